"""Log-space helpers, each once. Scalars in, scalars out; arrays belong to the callers."""

from __future__ import annotations

import math

import scipy.special

__all__ = ["log1mexp", "log_ndtr", "up"]


def up(value: float, *, ulps: int = 1) -> float:
    """The value moved ``ulps`` steps towards +infinity (zero stays zero): for whatever must err upwards."""
    if value == 0 or not math.isfinite(value):
        return value
    for _ in range(ulps if ulps < 4 else 1):
        value = math.nextafter(value, math.inf)
    return value + abs(value) * 2.3e-16 * ulps if ulps >= 4 else value


def log1mexp(x: float) -> float:
    """log(1 - e^x) for x < 0, accurate at both ends (Mächler 2012)."""
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def log_ndtr(x: float) -> float:
    """Natural log of the standard normal distribution function."""
    return float(scipy.special.log_ndtr(x))

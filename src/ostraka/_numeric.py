"""Log-space helpers, each once. Scalars in, scalars out; arrays belong to the callers."""

from __future__ import annotations

import math

import scipy.special

__all__ = ["log_ndtr", "up"]


def up(value: float, *, ulps: int = 1) -> float:
    """The value moved ``ulps`` steps towards +infinity (zero stays zero): for whatever must err upwards."""
    if value == 0 or not math.isfinite(value):
        return value
    for _ in range(ulps if ulps < 4 else 1):
        value = math.nextafter(value, math.inf)
    return value + abs(value) * 2.3e-16 * ulps if ulps >= 4 else value


def log_ndtr(x: float) -> float:
    """Natural log of the standard normal distribution function."""
    return float(scipy.special.log_ndtr(x))

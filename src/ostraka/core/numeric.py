"""Numerical helpers of all layers: rounding up, the normal law in logs, exact binomial intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special

Interval = tuple[np.ndarray, np.ndarray]

# The inverses of scipy are right to about 1e-13 of themselves; intervals are widened by this.
_OUTWARD = 1e-10


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


def clopper_pearson(successes: Any, trials: int, *, error: float) -> Interval:
    """Lower and upper end for a binomial probability, each wrong with probability at most ``error``.

    Source: Clopper and Pearson 1934, doi:10.1093/biomet/26.4.404.
    """
    x = np.asarray(successes, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        lower = scipy.special.betaincinv(x, trials - x + 1, error)
        upper = scipy.special.betainccinv(x + 1, trials - x, error)
    return outwards(np.where(x <= 0, 0.0, lower), np.where(x >= trials, 1.0, upper))


def outwards(lower: np.ndarray, upper: np.ndarray) -> Interval:
    """The interval, a little wider than rounding errors."""
    return lower * (1 - _OUTWARD), np.minimum(1.0, upper * (1 + _OUTWARD))

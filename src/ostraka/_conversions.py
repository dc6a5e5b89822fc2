"""Conversions of Rényi bounds and of Gaussian shifts to (epsilon, delta): every one errs upwards."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ostraka._numeric import log_ndtr, up

__all__ = ["LEAST", "gaussian_delta", "gaussian_epsilon", "rdp_delta", "rdp_epsilon"]

LEAST = 5e-324  # a chance that underflows is still a chance


def rdp_epsilon(orders: np.ndarray, rdp: np.ndarray, delta: float) -> np.ndarray:
    """Canonne et al. 2020, Prop. 12, solved for epsilon, one value an order, rounded up."""
    tail = (math.log(delta) + np.log(orders)) / (orders - 1)
    doubt = 4e-16 * (1 + rdp + (abs(math.log(delta)) + np.log(orders)) / (orders - 1))
    return np.asarray(rdp + np.log1p(-1 / orders) - tail + doubt)


def rdp_delta(orders: np.ndarray, rdp: np.ndarray, epsilon: float) -> float:
    """The same solved for delta, best order, rounded up."""
    log_delta = (orders - 1) * (rdp - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    doubt = 4e-16 * (2 + (orders - 1) * (1 + rdp + epsilon) + np.log(orders))
    return max(LEAST, up(math.exp(min(0.0, float((log_delta + doubt).min()))), ulps=8))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Dong et al. 2019, Cor. 1: delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), rounded up."""
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if not math.isfinite(mu):
        return 1.0
    x, y = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    above, below = log_ndtr(x), epsilon + log_ndtr(y)
    # either log is right to about 1e-15 of its size and of its argument's; that is charged to the safe side
    doubt = 4e-16 * (2 + abs(above) + abs(below) + (mu - y) * (2 + max(0.0, -x) + max(0.0, -y)))
    share = -math.expm1(min(0.0, below - above))
    return min(1.0, max(LEAST, math.exp(above) * (share + doubt)))


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu_squared: float, delta: float) -> float:
    """Smallest epsilon with ``gaussian_delta <= delta``, from above, by bisection."""
    if mu_squared == 0:
        return 0.0
    if not math.isfinite(mu_squared):
        return math.inf
    mu = up(math.sqrt(mu_squared))
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) + 1e-9
    if not gaussian_delta(high, mu) <= delta:  # rounding of so large a shift leaves nothing provable
        return math.inf
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if gaussian_delta(middle, mu) <= delta else (middle, high)
    return high

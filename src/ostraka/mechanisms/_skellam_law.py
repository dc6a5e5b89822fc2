"""Skellam noise on a cell that moves by a whole number: its Rényi divergence, and a dominating Gaussian."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ive, logsumexp, ndtri_exp

from ostraka._numeric import up
from ostraka.curve import ORDERS

__all__ = ["MOST_STEP", "log_density", "shift_mu", "shift_rdp"]

MOST_STEP = 64  # the largest move of one cell that is priced
_LEAST_VARIANCE = 1e-200  # below, a ratio of neighbouring chances leaves float64
_ROUNDING = 1e-10  # nats: far more than the sums below err by (tests compare with 50 digits)
_TAIL = math.log(2.0**-100)  # what lies further out is left to the slack of the curve


@lru_cache(maxsize=256)
def shift_rdp(variance: float, shift: int) -> tuple[float, ...]:
    """Rényi divergence of Skellam noise moved by ``shift``, for each order, rounded up by 1e-10 nats."""
    reach = math.ceil(2 * shift * ORDERS[-2] + 40 * math.sqrt(variance)) + 50
    half = log_density(variance, reach)
    at = np.concatenate([half[:0:-1], half])  # whole numbers from -reach to reach
    here, moved = at[shift:], at[:-shift]  # the density is even: both directions are this one
    stride = max(1, math.floor(math.sqrt(variance) / 2))
    coarse_here, coarse_moved = here[::stride], moved[::stride]
    rdp = []
    for order in ORDERS:
        if not math.isfinite(order):  # Skellam ratios are unbounded: there is no pure differential privacy
            rdp.append(math.inf)
            continue
        coarse = order * coarse_here + (1 - order) * coarse_moved
        near = np.flatnonzero(coarse > coarse.max() - 80)
        first, last = max(0, (near[0] - 1) * stride), (near[-1] + 1) * stride + 1
        terms = order * here[first:last] + (1 - order) * moved[first:last]
        total = float(logsumexp(terms))
        inside = max(terms[0], terms[-1]) < total - 60  # the mass of this order lies well inside the sum
        rdp.append(up(max(total, 0.0) / (order - 1) + _ROUNDING) if inside else math.inf)
    return tuple(rdp)


def shift_mu(variance: float, shift: int) -> float:
    """Return mu, rounded up: but for 2^-100, a Gaussian moved by mu deviations dominates the move.

    The density is log-concave, so the best tests are thresholds, and the trade-off function is linear
    between them. It lies above that of the Gaussian, which is convex, as soon as it does so at every
    threshold i: if z(i) - z(i - shift) <= mu, where z is the normal quantile of P[X <= i].
    """
    z = _normal_quantiles(variance)
    inner = len(z) // 2 - (MOST_STEP - shift)  # thresholds as far out as this move needs
    middle = len(z) // 2
    z = z[middle - inner : middle + inner]
    return float((z[shift:] - z[:-shift]).max()) * (1 + 1e-9) + _ROUNDING


@lru_cache(maxsize=8)
def _normal_quantiles(variance: float) -> np.ndarray:
    """Return z(i) for i from -n to n - 1, where P[X > n - 1 - MOST_STEP] is below 2^-100."""
    reach = math.ceil(60 * math.sqrt(variance)) + 300 + MOST_STEP
    tails = np.logaddexp.accumulate(log_density(variance, reach)[::-1])[::-1][1:]  # log P[X > i], i >= 0
    last = int(np.argmax(tails < _TAIL)) + MOST_STEP
    if not (tails[last - MOST_STEP] < _TAIL and last + 100 < len(tails)):
        raise ValueError("the tails of this noise are too long to be priced")
    right = -ndtri_exp(tails[: last + 1])
    return np.concatenate([-right[::-1], right])  # the density is even: z(-1 - i) = -z(i)


def log_density(variance: float, reach: int) -> np.ndarray:
    """Return log probabilities of 0, …, reach from Bessel ratios I(k)/I(k-1), by downward recursion."""
    if variance < _LEAST_VARIANCE:
        raise ValueError(
            "sigma must be at least 1e-100: less noise has no price in float64; use a larger one"
        )
    top = reach + math.ceil(10 * math.sqrt(variance)) + 50
    ratio = variance / (top + 0.5 + math.sqrt((top + 1.5) ** 2 + variance**2))
    logs = np.empty(reach + 1)
    logs[0] = math.log(ive(0, variance))
    for k in range(top, 0, -1):
        ratio = 1 / (2 * k / variance + ratio)
        if k <= reach:
            logs[k] = math.log(ratio)
    return np.cumsum(logs)

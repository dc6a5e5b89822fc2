"""Cost of the argmax of counts with Skellam noise, where of equal ones the first wins: docs/proof.md.

The supremum over three outcomes (one of two classes wins, the other, somebody else) is searched over whole
numbers. Up to sigma = 20 no whole number near the largest value is left out; beyond, the margins are those of
Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from ostraka._numeric import up
from ostraka.curve import ORDERS

__all__ = ["argmax_rdp"]

LogDensity: TypeAlias = Callable[[float, int], np.ndarray]

_FURTHEST = 6.0  # beyond order / sigma = 6 the price of both noisy counts is little above, and is used
_LEAST_SIGMA = 0.5  # below it, too
_FINE_UP_TO = 2.0  # in order / sigma: where the answer is, and worth a finer search
_COARSE, _FINE, _LINE = 4, 20, 100  # points a sigma
_COARSE_MARGIN, _MARGIN, _ROUNDING = 0.01, 6e-4, 1e-8
_AT_ONCE = 2**14  # columns of a product


@lru_cache(maxsize=32)
def argmax_rdp(variance: float, one_count: tuple[float, ...], law: LogDensity) -> tuple[float, ...]:
    """Cost of one answer at each order, for all votes and any number of classes; errs up. Nats.

    ``one_count`` is what one noisy count costs at each order, ``law`` the noise: the log probabilities of 0
    to so many, of a variance.
    """
    sigma, single = math.sqrt(variance), np.array(one_count)
    both, orders = 2 * single, np.array(ORDERS)
    where = orders <= (_FURTHEST * sigma if sigma >= _LEAST_SIGMA else 0.0)
    bound = both.copy()
    if where.any():
        found = np.maximum(
            _over_line(variance, law, orders[where]), _over_plane(variance, law, orders[where])
        )
        found = np.maximum(found, single[where])  # far out one of the classes cannot win
        bound[where] = np.minimum(both[where], found * (1 + _ROUNDING))
    return tuple(up(value) for value in bound.tolist())


def _over_line(variance: float, law: LogDensity, orders: np.ndarray) -> np.ndarray:
    """Return the largest divergence where no third class can win: the noisy difference of two counts."""
    sigma = math.sqrt(2 * variance)
    step = max(1, math.floor(sigma / _LINE))
    reach = step * (math.ceil(16 * sigma / step) + 30)
    spare = math.ceil(3 * sigma) + 60  # what lies beyond is below 1e-16 of the outermost sums
    density = _density(2 * variance, law, reach + spare)
    below, above = np.cumsum(density), np.cumsum(density[::-1])[::-1]
    ahead = np.arange(spare - 2, 2 * reach + spare, step)
    one, two = (np.stack([below[at], above[at + 1]]) for at in (ahead, ahead + 2))
    return _largest(one, two, orders) * (1 + (0.0 if step == 1 else _MARGIN))


def _over_plane(variance: float, law: LogDensity, orders: np.ndarray) -> np.ndarray:
    """Return the largest divergence of three outcomes on a coarse lattice, refined where it is large."""
    sigma = math.sqrt(variance)
    coarse, fine = (max(1, math.floor(sigma / points)) for points in (_COARSE, _FINE))
    side = np.arange(-math.ceil(5 * sigma) - 10, math.ceil(10 * sigma) + 10, coarse)
    at = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    laws = _moved(variance, law, at)
    values = np.max(
        [_divergences(*pair, orders) for one, two in laws for pair in ((one, two), (two, one))], 0
    )
    found = values.max(axis=0)
    if coarse == 1:
        return np.asarray(found)
    refined = orders <= _FINE_UP_TO * sigma
    near = (values[:, refined] * (1 + _COARSE_MARGIN) >= found[refined]).any(axis=1)
    found = found * (1 + _COARSE_MARGIN)
    if near.any():
        steps = np.arange(-(coarse // (2 * fine)) - 1, coarse // (2 * fine) + 2) * fine
        around = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(1, -1, 2)
        points = np.unique((at[near][:, None] + around).reshape(-1, 2), axis=0)
        best = [_largest(one, two, orders[refined]) for one, two in _moved(variance, law, points)]
        found[refined] = np.max(best, axis=0) * (1 + (0.0 if fine == 1 else _MARGIN))
    return np.asarray(found)


def _moved(variance: float, law: LogDensity, at: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the laws at each point (a, b) and one ballot away, for both rules for ties with the bar."""
    return [
        (_outcomes(variance, law, at, late), _outcomes(variance, law, at + np.array([-1, 1]), late))
        for late in (0, 1)
    ]


def _outcomes(variance: float, law: LogDensity, at: np.ndarray, late: int) -> np.ndarray:
    """Return P(A >= B, A >= 0), P(B > A, B >= late) and P(A < 0, B < late) at every (a, b), shape (3, n)."""
    # late: whether the class at the bar comes before (1) or after (0) the second one, which loses ties to
    # the first
    firsts, seconds = np.unique(at[:, 0]), np.unique(at[:, 1])
    end = int(at.max()) + math.ceil(12 * math.sqrt(variance)) + 60
    middle = end - min(0, int(at.min())) + 2
    density = _density(variance, law, middle)
    below = np.cumsum(density)
    first, second = np.zeros((2, len(firsts), len(seconds)))
    for start in range(0, end, _AT_ONCE):
        x = np.arange(start, min(end, start + _AT_ONCE)) + middle
        a, b = x - firsts[:, None], x - seconds[:, None]
        first += density[a] @ below[b].T
        second += below[a - 1] @ (density[b] * (x >= middle + late)).T
    i, j = np.searchsorted(firsts, at[:, 0]), np.searchsorted(seconds, at[:, 1])
    neither = below[middle - 1 - at[:, 0]] * below[middle + late - 1 - at[:, 1]]
    return np.stack([first[i, j], second[i, j], neither])


@lru_cache(maxsize=4)
def _density(variance: float, law: LogDensity, reach: int) -> np.ndarray:
    """Probabilities of -reach, …, reach."""
    half = np.exp(law(variance, reach))
    return np.concatenate([half[:0:-1], half])


def _largest(one: np.ndarray, two: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return the largest divergence in either direction over all laws, outcomes first."""
    from ostraka.mechanisms._divergence import largest_divergence  # noqa: PLC0415  (compiled code)

    found = np.zeros(len(orders))
    for p, q in ((one.T, two.T), (two.T, one.T)):
        log_q = np.log(q)
        largest_divergence(
            np.ascontiguousarray(log_q), np.ascontiguousarray(np.log(p) - log_q), orders, found
        )
    return found


def _divergences(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of p from q, outcomes first, shape (points, orders); no term is negative."""
    ratio = (np.log(p) - np.log(q))[:, :, None]
    excess = q[:, :, None] * (np.expm1(np.minimum(orders * ratio, 700.0)) - orders * np.expm1(ratio))
    return np.asarray(np.log1p(np.maximum(excess, 0.0).sum(axis=0)) / (orders - 1))

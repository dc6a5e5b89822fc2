"""The recursion for given laws: pairs of outcome laws, one set a query, composed on a grid that errs up."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.laws.cover import Pairs
from ostraka.core.laws.stored import stencils
from ostraka.core.laws.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ostraka.core.laws.stored import Stencils

_OUTWARD = 1e-10  # relative: ten times what probabilities err
_LOST = 1e-290  # of a probability that underflows
_TAIL = 1e-15  # of the composed loss may lie beyond the grid, which only loosens the bound
_RATES = np.geomspace(0.5, 400.0, 10)  # of the Chernoff bound which says how far the grid reaches
_MOST_POINTS, _FINEST, _COARSEST = 12_000, 1e-4, 0.02
_LOOSE = 5e-3  # by how much interpolation may widen the losses, in variance
_STEEPEST = 30.0  # nats: what one outcome tells beyond counts as fully revealing


def both_ways(log_q: np.ndarray, lam: np.ndarray) -> tuple[Pairs, Pairs]:
    """Neighbours against the votes, and the votes against neighbours."""
    half = len(log_q) // 2
    p = np.exp(np.concatenate([log_q[half:], log_q[:half]]))  # of the same pair the other way round
    with np.errstate(over="ignore"):
        difference = np.where(np.isfinite(lam), p * np.expm1(-np.maximum(lam, -700.0)), -p)
    return _outwards(p[:half], difference[:half]), _outwards(p[half:], difference[half:])


def _outwards(mass: np.ndarray, difference: np.ndarray) -> Pairs:
    """The pairs with more P and less Q, by more than both err: they tell more."""
    less = _OUTWARD * (2 * mass + np.maximum(difference, 0.0))
    mass = mass * (1 + _OUTWARD)
    return Pairs(mass, np.maximum(difference - less, -mass), np.full(len(mass), _LOST))


class Given:
    """The recursion in one direction: the pairs of all laws, a grid, and how each pair averages on it.

    ``queries`` says which of the laws each query has.
    """

    def __init__(self, laws: Sequence[Pairs], queries: np.ndarray, times: int) -> None:
        self._times, self._ends = times, np.cumsum([0, *(len(pairs.mass) for pairs in laws)])
        self._queries, self._uses = queries, np.bincount(queries, minlength=len(laws))
        self._pairs = _stacked(laws)
        self._step, self._points = self._grid()

    def tables(self, at: Iterable[int]) -> list[Table]:
        """Bounds after so many queries, which increase."""
        step, n = self._step, self._points
        x = np.arange(-n, n + 1) * step
        w, done, tables = np.maximum(0.0, -np.expm1(x)), 0, []
        taps, occupied, reach = self._averages()
        for end in at:
            w, done = self._after(w, slice(done, end), taps, occupied, reach), end
            tables.append(Table(-n, step, w.copy()))
        return tables

    def _after(
        self, w: np.ndarray, queries: slice, taps: Stencils, occupied: np.ndarray, reach: int
    ) -> np.ndarray:
        """W after these queries."""
        from ostraka.core.kernels.recursion import advance_in_turn  # noqa: PLC0415  (compiled code)

        stop = reach + w.size
        below = np.exp(np.arange(-reach, 0) * self._step)  # of the first point
        padded, laws = np.concatenate([below, w, below]), self._queries[queries].astype(np.int64)
        advance_in_turn(
            padded, reach, stop, laws, self._ends, self._times, below, *taps[:2], occupied, taps[2]
        )
        return padded[reach:stop]

    def _averages(self) -> tuple[Stencils, np.ndarray, int]:
        from ostraka.core.kernels.recursion import packed  # noqa: PLC0415  (compiled code)

        widest = float(np.abs(self._losses()).max(initial=0.0))
        reach = math.ceil(widest / self._step) + 2
        taps, occupied = packed(stencils(self._pairs, step=self._step, reach=reach))
        return taps, occupied, reach

    def _losses(self) -> np.ndarray:
        """Log of P / Q of each outcome, cut off."""
        mass, difference, _ = self._pairs
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = -np.log1p(np.where(mass > 0, difference / mass, 0.0))
        return np.clip(loss, -_STEEPEST, _STEEPEST)

    def _grid(self) -> tuple[float, int]:
        """Spacing, and how many points there are on each side of 0: they decide how tight the bound is."""
        mass, loss = self._pairs.mass, self._losses()
        nonempty = np.diff(self._ends) > 0
        starts, uses = self._ends[:-1][nonempty], self._uses[nonempty]
        if not starts.size:
            return _COARSEST, 1
        reach = math.inf
        for rate in _RATES:
            logs = (np.log(_mean(mass, sign * rate * loss)) for sign in (-1, 1))
            grown = max(float(np.maximum.reduceat(log, starts) @ uses) for log in logs)
            reach = min(reach, (self._times * grown - math.log(_TAIL)) / rate)
        spread = (mass * loss**2).sum(axis=1)
        widest = [a + int(spread[a:b].argmax()) for a, b in pairwise(self._ends.tolist()) if b > a]
        mass, loss, variance = mass[widest], loss[widest], float(spread[widest] @ uses)
        step = _COARSEST
        while step > _FINEST:
            share = loss / step - np.floor(loss / step)
            if float((mass * share * (1 - share)).sum(axis=1) @ uses) * step**2 <= _LOOSE * variance:
                break
            step /= 1.5
        step = max(step, 2 * reach / _MOST_POINTS)
        return step, math.ceil(reach / step)


def _mean(mass: np.ndarray, grown: np.ndarray) -> np.ndarray:
    """Mean of e^grown under P, never below 1e-300."""
    with np.errstate(over="ignore", invalid="ignore"):
        weighted = np.where(mass > 0, mass * np.exp(np.minimum(grown, 700.0)), 0.0)
    return np.asarray(np.maximum(weighted.sum(axis=1), 1e-300))


def _stacked(laws: Sequence[Pairs]) -> Pairs:
    """The pairs of all laws, with as many outcomes as the one with most."""
    width = max((pairs.mass.shape[1] for pairs in laws), default=1)
    size = sum(len(pairs.mass) for pairs in laws)
    stacked = Pairs(np.zeros((size, width)), np.zeros((size, width)), np.empty(size))
    start = 0
    for mass, difference, extra in laws:
        rows = slice(start, start + len(mass))
        stacked.mass[rows, : mass.shape[1]] = mass
        stacked.difference[rows, : mass.shape[1]] = difference
        stacked.extra[rows] = extra
        start = rows.stop
    return stacked

"""Many answers of one mechanism, followed one by one: the recursion over all pairs of its family.

Its state is kept, and continued when more answers are needed. Argmaxes and screens with Gaussian noise have
families of pairs in a plane or on a line; after some answers a smooth bound takes over. Bounded ranges, of
exponential mechanisms and of tokens that are drawn by a softmax, have a family of their own.
"""

from __future__ import annotations

import contextlib
import copy
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.kernels.recursion import APART, advance_by_few, packed
from ostraka.core.laws.cover import argmax_family, screen_family, stencils
from ostraka.core.laws.gaussian import Envelope, NotSmoothError, Smooth, Tail, gaussian_deltas, mirrored
from ostraka.core.laws.law import ARGMAX, BOUNDED_RANGE, Law

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.laws.cover import Pairs

_STEP, _FINER = 0.0175, 2  # spacing of the grid in shifts; how much wider that of the first answers is
_ONE_BY_ONE = 28  # answers before the smooth bound begins
_EVERY = 16  # answers after which a state is kept
_MOST_RUNS = 4
_STEEPEST = 26.0  # shifts: outcomes whose ratio is steeper count as fully revealing
_SEEDS = 16  # before the first answer, one pair in so many is tried at every point
_MOST_BY_ONE = 64  # answers that are taken one by one where the smooth bound does not hold or is wide
_LOUD = 0.095  # shift; with less noise it is wide
_WORTHWHILE = 0.2  # shift; with less noise, other bounds are smaller
# Up to which shift w is followed how far down. With less noise, rare outcomes cost more than they tell.
_TAILS = ((0.07, Tail(1e-16, 3e-13)), (0.095, Tail(1e-13, 1e-10)), (0.133, Tail(1e-12, 1e-9)))
_OUTWARD = 1e-12
# Bounded ranges: exponential mechanisms, and tokens that are drawn by a softmax.
# A pair of bounded range r has log P / Q within an interval of length r. It is dominated by the pairs of two
# outcomes that have loss s with probability (e^r - e^s) / (e^r - 1), else s - r, for s from 0 to r (Dong,
# Durfee and Rogers 2020, arXiv:1909.13830). docs/composition.md has the proofs.
_PARTS = 48  # of the range: the spacing of the grid
_COARSE = 32  # the same, for one use beside a Gaussian
_MOST_USES = 512
_RARE = 18.5  # nats: the loss of all uses exceeds the grid with a chance below e^-2 of this
_FURTHEST = 40.0  # nats; beyond, the last value counts
_UP = 1e-12  # relative, a use: more than weights and sums of positive numbers round
_BLOCK = 1 << 16  # numbers in one go: they stay in the processor's cache


def table(law: Law) -> tuple[float, np.ndarray] | None:
    """A grid spacing, and w after so many answers at 0, 1, ... of it; None where it cannot be followed."""
    if law.kind == BOUNDED_RANGE:
        return followed_range(law.size)(law.uses)
    key = law.kind, law.size
    run = _runs.pop(key, None) or _Run(law._replace(uses=1))  # of one thread, until it is put back
    values = run.values(law.uses)
    _runs[key] = run
    for oldest in list(_runs)[:-_MOST_RUNS]:
        _runs.pop(oldest, None)
    return values


def followed(law: Law) -> Callable[[int], tuple[float, np.ndarray] | None]:
    """The same of one mechanism, by the number of answers: all are of one recursion, which is not shared."""
    if law.kind == BOUNDED_RANGE:
        return followed_range(law.size)
    return _Run(law._replace(uses=1)).values


class _Run:
    """All counts of one mechanism on one grid."""

    def __init__(self, law: Law) -> None:
        self._shift = math.sqrt(law.mu_squared)
        self._family = argmax_family if law.kind == ARGMAX else screen_family
        self._first: dict[int, np.ndarray] = {}
        self._kept: dict[int, Smooth] = {}
        self._last: Smooth | None = None  # what was asked for last: often the next has one answer more
        self._tail = next((tail for limit, tail in _TAILS if self._shift <= limit), None)

    def values(self, answers: int) -> tuple[float, np.ndarray] | None:
        """A grid spacing, and w after so many answers at 0, 1, ... of it."""
        most = _MOST_BY_ONE if self._shift <= _WORTHWHILE else _ONE_BY_ONE
        if answers > (most if self._shift > _LOUD else _ONE_BY_ONE) and self._tail is not None:
            with contextlib.suppress(NotSmoothError):
                return _STEP * self._shift, self._smooth(answers, self._tail)
            self._tail = None
        if answers > most:
            return None
        if answers > len(self._first):
            self._follow(_ONE_BY_ONE if answers <= _ONE_BY_ONE else most)
        return _STEP * _FINER * self._shift, self._first[answers]

    def _smooth(self, answers: int, tail: Tail) -> np.ndarray:
        """W by the smooth bound, from the nearest state that is kept."""
        if not self._kept:
            shift, step = self._shift, _STEP * self._shift
            envelope = Envelope(self._family(shift, finest=True), shift=shift, step=step)
            if not self._first:
                self._follow(_ONE_BY_ONE)
            self._kept[_ONE_BY_ONE] = Smooth(
                self._first[_ONE_BY_ONE],
                finer=_FINER,
                answers=_ONE_BY_ONE,
                shift=shift,
                step=step,
                envelope=envelope,
                tail=tail,
            )
        nearest = self._kept[max(count for count in self._kept if count <= answers)]
        if self._last is not None and nearest.answers <= self._last.answers <= answers:
            nearest = self._last
        state = copy.copy(nearest)
        while state.answers < answers:
            state.advance()
            if state.answers % _EVERY == 0:
                self._kept[state.answers] = copy.copy(state)
        self._last = state
        return state.values()

    def _follow(self, answers: int) -> None:
        step = _STEP * _FINER * self._shift
        self._first = first_answers(self._family(self._shift), shift=self._shift, step=step, answers=answers)


_runs: dict[tuple[str, float], _Run] = {}


class Recursion:
    """Answers of one family, one by one: the pairs that were largest for one are the few of the next."""

    def __init__(self, pairs: Pairs, *, step: float, reach: int) -> None:
        self._way, self._used = packed(stencils(pairs, step=step, reach=reach))
        self._reach, self._length = reach, 0
        self._few = np.arange(0, len(self._used), _SEEDS)
        self._shares = np.expm1(np.arange(APART) * step) / math.expm1(APART * step)

    def advance(self, w: np.ndarray, stop: int) -> None:
        """Replace w at the points up to ``stop``; at least ``APART + reach`` more must follow it."""
        parts = -(-len(w) // APART)
        thin = np.zeros((parts, APART))
        thin.ravel()[: len(w)] = w
        if len(w) != self._length:
            at = self._way.offsets + self._reach
            self._apart, self._length = at % APART * parts + at // APART, len(w)
        best = advance_by_few(
            w,
            np.ascontiguousarray(thin.T).ravel(),
            self._reach,
            stop,
            self._way.offsets,
            self._apart,
            self._way.weights,
            self._used,
            self._way.constants,
            self._few,
            self._shares,
        )
        self._few = np.unique(best)


def first_answers(pairs: Pairs, *, shift: float, step: float, answers: int) -> dict[int, np.ndarray]:
    """W at 0, step, 2 step, ... after each of so many answers."""
    reach = int(_STEEPEST * shift / step) + 2
    recursion = Recursion(pairs, step=step, reach=reach)
    x = np.arange(_points(shift, answers, step) + reach + APART) * step
    values = gaussian_deltas(x, shift)
    by_count = {}
    for done in range(1, answers + 1):
        if done > 1:
            stop = reach + _points(shift, done, step)
            w = mirrored(values, step, reach)
            w[stop:] = w[stop - 1]
            recursion.advance(w, stop)
            w[stop:] = w[stop - 1]  # beyond the last point w only falls
            values = np.minimum(w[reach:], gaussian_deltas(x, shift * math.sqrt(done)))
        by_count[done] = values[: _points(shift, done, step)].copy()
    return by_count


def _points(shift: float, answers: int, step: float) -> int:
    """The grid point beyond which the Gaussian bound of this many answers is below 1e-16."""
    return int((8.4 * shift * math.sqrt(answers) + answers * shift**2 / 2 + 2 * shift) / step)


@lru_cache(maxsize=4)
def followed_range(size: float) -> Callable[[int], tuple[float, np.ndarray] | None]:
    """The same by the number of uses: all are of one recursion, so more uses have no smaller values."""
    step = size / _PARTS
    each = {0: np.array([0.0])}  # no use: w(v) is 0 from 1 on; by number, so that threads may share it

    def values(uses: int) -> tuple[float, np.ndarray] | None:
        if uses > _MOST_USES:
            return None
        for count in range(max(n for n in tuple(each) if n <= uses) + 1, uses + 1):
            # the grid holds all but little of the loss: a martingale with steps of one range (Azuma)
            spread, less = count * size * size, each[count - 1]
            reach = min(count * size, spread / 8 + math.sqrt(_RARE * spread), _FURTHEST)
            points = math.ceil(reach / size * _PARTS) + 1
            padded = np.pad(less, (0, points - len(less)), mode="edge")
            each[count] = after_range(padded, size, _PARTS)
        return step, each[uses]

    return values


def beside_gaussian(size: float, mu_squared: float) -> tuple[np.ndarray, float]:
    """One use beside a Gaussian of this squared shift: bounds at 0, step, ..., and the step."""
    step = size / _COARSE
    x = np.arange(math.ceil((8.4 * math.sqrt(mu_squared) + mu_squared / 2 + size) / step) + 1) * step
    return after_range(gaussian_deltas(x, math.sqrt(mu_squared)), size, _COARSE), step


def after_range(values: np.ndarray, size: float, parts: int) -> np.ndarray:
    """One more use, for w with these values at 0, 1, ... grid points: the largest over every s, from above.

    Between two grid points w lies below its chord, and beyond the last below the last value. The function
    of s that the chords give is known between two multiples of the spacing: at most the larger of both ends,
    and tanh(spacing / 4) of what w rises by more at one end of the range than at the other.
    """
    step, n = size / parts, len(values)
    w = mirrored(np.pad(values, (0, parts), mode="edge"), step, parts)
    s = np.linspace(0.0, size, parts + 1)  # its ends are exact
    full = math.expm1(size)
    likely, rare = np.exp(s) * np.expm1(size - s) / full, np.expm1(s) / full
    bent = math.tanh(step / 4) / full
    larger = np.empty(n)
    for start in range(0, n, block := max(1, _BLOCK // parts)):
        end = min(n, start + block)
        windows = np.lib.stride_tricks.sliding_window_view(w[start : end + 2 * parts], parts + 1)
        up = windows[: end - start, ::-1]  # at x - s
        down = windows[parts : parts + end - start, ::-1]  # at x + size - s
        at = likely * up + rare * down
        gap = bent * np.maximum(math.exp(size) * np.diff(up) - np.diff(down), 0.0)
        larger[start:end] = (np.maximum(at[:, 1:], at[:, :-1]) + gap).max(axis=1)
    return np.minimum(1.0, larger * (1 + _UP))

"""The first answers, one by one: the recursion over every pair at every grid point, compiled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.compiled import kernel
from ostraka.core.laws.gaussian import gaussian_delta, mirrored
from ostraka.core.laws.stored import Stencils, stencils

if TYPE_CHECKING:
    from ostraka.core.laws.cover import Pairs

_BLOCK = 256  # points whose values stay in the fast cache
_UP = 1 + 1e-14  # more than the rounding of one sum
_STEEPEST = 26.0  # shifts: outcomes whose ratio is steeper count as fully revealing
_ALWAYS = 9  # taps that most pairs have
APART = 6  # every so many points each pair is tried
_SEEDS = 16  # before the first answer, one pair in so many is tried at every point
_DOUBT = 1e-14  # of a value: more than a chord from it to a smaller one rounds


def packed(way: Stencils) -> tuple[Stencils, np.ndarray]:
    """Taps with weight first, as many columns as :func:`advance` wants; how many there are."""
    order = np.argsort(way.weights == 0, axis=1, kind="stable")
    offsets, weights = (np.take_along_axis(each, order, axis=1) for each in way[:2])
    lacking = max(0, _ALWAYS - offsets.shape[1])
    used = (weights > 0).sum(axis=1)
    offsets = np.pad(np.where(weights > 0, offsets, 0), ((0, 0), (0, lacking)))
    return Stencils(offsets, np.pad(weights, ((0, 0), (0, lacking))), way.constants), used


@kernel()
def _average(w, sums, start, n, o, c, used, constant):
    """The average of one pair at each point; slices, so that the loop is compiled to vectors."""
    to = sums[:n]
    w0, w1, w2 = w[start + o[0] :][:n], w[start + o[1] :][:n], w[start + o[2] :][:n]
    w3, w4, w5 = w[start + o[3] :][:n], w[start + o[4] :][:n], w[start + o[5] :][:n]
    w6, w7, w8 = w[start + o[6] :][:n], w[start + o[7] :][:n], w[start + o[8] :][:n]
    c0, c1, c2, c3, c4, c5, c6, c7, c8 = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]
    for i in range(n):
        one = constant + c0 * w0[i] + c1 * w1[i] + c2 * w2[i] + c3 * w3[i]
        two = c4 * w4[i] + c5 * w5[i] + c6 * w6[i] + c7 * w7[i] + c8 * w8[i]
        to[i] = one + two
    for k in range(_ALWAYS, used):
        wk, ck = w[start + o[k] :][:n], c[k]
        for i in range(n):
            to[i] += ck * wk[i]


@kernel()
def advance(w, reach, stop, offsets, weights, used, constants):
    """One more answer at the points from ``reach`` up to ``stop``."""
    out, sums = w.copy(), np.empty(_BLOCK)
    for start in range(reach, stop, _BLOCK):
        n = min(_BLOCK, stop - start)
        to = out[start:][:n]
        for p in range(len(offsets)):
            _average(w, sums, start, n, offsets[p], weights[p], used[p], constants[p])
            for i in range(n):
                to[i] = max(to[i], sums[i])
    for i in range(reach, stop):
        w[i] = min(1.0, out[i] * _UP)


@kernel("f8[::1], i8, i8, i8[::1], i8[::1], i8, f8[::1], i8[:,::1], f8[:,::1], i8[::1], f8[::1]")
def advance_in_turn(w, reach, stop, laws, ends, times, below, offsets, weights, used, constants):
    """Answers in turn, ``times`` for each query; ``laws`` says whose pairs, which end where ``ends`` says.

    Below the grid w lies below the chord from 1, which ``below`` divides; above it, below the last value.
    """
    for law in laws:
        own = slice(ends[law], ends[law + 1])
        if own.start == own.stop:
            continue
        for _ in range(times):
            for i in range(reach):
                w[i] = 1 - (1 - w[reach]) * below[i]
            for i in range(stop, w.size):
                w[i] = w[stop - 1]
            advance(w, reach, stop, offsets[own], weights[own], used[own], constants[own])


@kernel()
def _raised(to, best, sums, n, p):
    """Keep what is larger, and of which pair it is."""
    for i in range(n):
        if sums[i] > to[i]:
            to[i], best[i] = sums[i], p


@kernel()
def _enough(out, shares):
    """Values at places ``APART`` apart: a pair that exceeds neither of two neighbours lies below between."""
    n = (out.size - 1) // APART
    most, lacking = np.empty(n + 1), 0.0
    for k in range(n):
        low, before = out[k * APART], lacking
        fall, lacking = low - out[(k + 1) * APART], 0.0
        for i in range(1, APART):
            lacking = max(lacking, low - shares[i] * fall - out[k * APART + i])
        lacking += _DOUBT * low
        most[k] = low - max(before, lacking)
    most[n] = out[n * APART] - lacking
    return most


@kernel("f8[::1], f8[::1], i8, i8, i8[:,::1], i8[:,::1], f8[:,::1], i8[::1], f8[::1], i8[::1], f8[::1]")
def advance_by_few(w, thin, reach, stop, offsets, apart, weights, used, constants, few, shares):
    """As :func:`advance`, but only some pairs are tried everywhere. Returns the largest pair at each point.

    Averages are convex. So a pair that lies below by enough at places ``APART`` apart does so between them.
    ``thin`` are the values so far apart, from each place in turn, and ``apart`` the offsets in it.
    """
    parts = (stop - reach + APART - 2) // APART  # the last may end beyond the last point
    n, first = parts * APART + 1, reach - reach  # 0: a literal would compile the callee once more
    out, sums, best = np.zeros(n), np.empty(n), np.zeros(n, np.int64)
    for p in few:
        _average(w, sums, reach, n, offsets[p], weights[p], used[p], constants[p])
        _raised(out, best, sums, n, p)
    enough, tried, more = _enough(out, shares), np.empty(parts + 1), np.empty(parts + 1, np.bool_)
    for p in range(len(offsets)):
        _average(thin, tried, first, parts + 1, apart[p], weights[p], used[p], constants[p])
        for k in range(parts + 1):
            more[k] = tried[k] > enough[k]
        if not more.any():
            continue
        k = 0
        while k < parts:
            start = k
            while k < parts and (more[k] or more[k + 1]):
                k += 1
            if k > start:
                at, size = start * APART, (k - start) * APART + 1
                _average(w, sums, reach + at, size, offsets[p], weights[p], used[p], constants[p])
                _raised(out[at:], best[at:], sums, size, p)
            k += 1
    for i in range(reach, stop):
        w[i] = min(1.0, out[i - reach] * _UP)
    return best[: stop - reach]


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
    values = gaussian_delta(x, shift)
    found = {}
    for done in range(1, answers + 1):
        if done > 1:
            stop = reach + _points(shift, done, step)
            w = mirrored(values, step, reach)
            w[stop:] = w[stop - 1]
            recursion.advance(w, stop)
            w[stop:] = w[stop - 1]  # beyond the last point w only falls
            values = np.minimum(w[reach:], gaussian_delta(x, shift * math.sqrt(done)))
        found[done] = values[: _points(shift, done, step)].copy()
    return found


def _points(shift: float, answers: int, step: float) -> int:
    """The grid point beyond which the Gaussian bound of this many answers is below 1e-16."""
    return int((8.4 * shift * math.sqrt(answers) + answers * shift**2 / 2 + 2 * shift) / step)

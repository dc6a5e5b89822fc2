"""The first answers, one by one: the recursion over every pair at every grid point, compiled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka._compiled import kernel
from ostraka._composition.gaussian import gaussian_delta, mirrored
from ostraka._composition.stencils import Stencils, stencils

if TYPE_CHECKING:
    from ostraka._composition.cover import Pairs

__all__ = ["advance", "first_answers", "packed"]

_BLOCK = 256  # points whose values stay in the fast cache
_UP = 1 + 1e-14  # more than the rounding of one sum
_STEEPEST = 26.0  # shifts: outcomes whose ratio is steeper count as fully revealing
_ALWAYS = 9  # taps that most pairs have


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


@kernel("f8[::1], i8, i8, i8[:,::1], f8[:,::1], i8[::1], f8[::1]")
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


def first_answers(pairs: Pairs, *, shift: float, step: float, answers: int) -> dict[int, np.ndarray]:
    """W at 0, step, 2 step, ... after each of so many answers."""
    reach = int(_STEEPEST * shift / step) + 2
    way, used = packed(stencils(pairs, step=step, reach=reach))
    x = np.arange(_points(shift, answers, step) + reach + 1) * step
    values = gaussian_delta(x, shift)
    found = {}
    for done in range(1, answers + 1):
        if done > 1:
            stop = reach + _points(shift, done, step)
            w = mirrored(values, step, reach)
            w[stop:] = w[stop - 1]
            advance(w, reach, stop, way.offsets, way.weights, used, way.constants)
            w[stop:] = w[stop - 1]  # beyond the last point w only falls
            values = np.minimum(w[reach:], gaussian_delta(x, shift * math.sqrt(done)))
        found[done] = values[: _points(shift, done, step)].copy()
    return found


def _points(shift: float, answers: int, step: float) -> int:
    """The grid point beyond which the Gaussian bound of this many answers is below 1e-16."""
    return int((8.4 * shift * math.sqrt(answers) + answers * shift**2 / 2 + 2 * shift) / step)

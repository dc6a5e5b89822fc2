"""The recursion over answers on a grid of log odds, compiled; every rounding errs upwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numba as nb
import numpy as np

from ostraka._composition.families import BRANCHES

if TYPE_CHECKING:
    from ostraka._composition.cover import Pairs

__all__ = ["Stencils", "advance", "stencils"]

_BLOCK = 128  # points that are decided together
_UP = 1 + 1e-14  # more than the rounding of one sum

kernel = nb.njit(cache=True, nogil=True, error_model="numpy")


class Stencils(NamedTuple):
    """By which offsets and weights each pair averages, and a constant."""

    offsets: np.ndarray  # (n_pairs, n_taps)
    weights: np.ndarray
    constants: np.ndarray  # (n_pairs,)


def stencils(pairs: Pairs, *, step: float, reach: int) -> Stencils:
    """How each pair averages a convex function of e^x on a grid of x.

    An outcome between two grid points is split between them, so that its P and its Q stay the same. One
    below the reach counts as 1, one above it as the value at the reach: both err upwards.
    """
    mass, difference, extra = pairs
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(mass > 0, 1 + difference / mass, 1.0)
        place = np.floor(np.log(np.maximum(ratio, 1e-300)) / step - 1e-9)
    place = np.clip(place, -reach, reach - 1)
    low, high = np.exp(place * step), np.exp((place + 1) * step)
    # rather too low a ratio than too high
    share = np.clip((ratio - low) / (high - low) - 1e-12 - 1e-15 / step, 0.0, 1.0)
    under = ratio < np.exp(-reach * step)
    constants = extra + np.where(under, mass, 0.0).sum(axis=1)
    left = np.maximum(1 - mass.sum(axis=1), 0.0)
    mass = np.where(under, 0.0, mass)
    n, k = mass.shape
    offsets, weights = np.zeros((n, 2 * k + 1), np.int64), np.zeros((n, 2 * k + 1))
    offsets[:, 1::2], offsets[:, 2::2] = place, place + 1
    weights[:, 0], weights[:, 1::2], weights[:, 2::2] = left, mass * (1 - share), mass * share
    return Stencils(offsets, weights * (1 + 1e-14), constants)


@kernel
def _average(w, sums, start, stop, o, c, constant):
    """The average of one pair at each point; slices, so that the loop is compiled to vectors."""
    n = stop - start
    to, w0 = sums[:n], w[start + o[0] :][:n]
    w1, w2, w3 = w[start + o[1] :][:n], w[start + o[2] :][:n], w[start + o[3] :][:n]
    w4, w5, w6 = w[start + o[4] :][:n], w[start + o[5] :][:n], w[start + o[6] :][:n]
    w7, w8, w9, w10 = (
        w[start + o[7] :][:n],
        w[start + o[8] :][:n],
        w[start + o[9] :][:n],
        w[start + o[10] :][:n],
    )
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10 = (
        c[0],
        c[1],
        c[2],
        c[3],
        c[4],
        c[5],
        c[6],
        c[7],
        c[8],
        c[9],
        c[10],
    )
    for i in range(n):
        one = constant + c0 * w0[i] + c1 * w1[i] + c2 * w2[i] + c3 * w3[i] + c4 * w4[i]
        two = c5 * w5[i] + c6 * w6[i] + c7 * w7[i] + c8 * w8[i] + c9 * w9[i] + c10 * w10[i]
        to[i] = one + two


@kernel
def _exceed(out, sums, start, stop):
    """Whether any sum exceeds what there is."""
    to, by = out[start:stop], 0.0
    for i in range(stop - start):
        by = max(by, sums[i] - to[i])
    return by > 0.0


@kernel
def _block(w, out, start, stop, levels, offsets, weights, constants, best, sums, stack):
    """The largest average at each point of a block, and which pair was large last.

    A pair high in the tree dominates all below it: where it exceeds nothing, they are left out.
    """
    to = out[start:stop]
    _average(w, sums, start, stop, offsets[best], weights[best], constants[best])
    for i in range(stop - start):
        to[i] = max(to[i], sums[i])
    top = levels.size - 2
    stack[0, 0], stack[0, 1], height = top, levels[top], 1
    while height:
        height -= 1
        level, at = stack[height, 0], stack[height, 1]
        _average(w, sums, start, stop, offsets[at], weights[at], constants[at])
        if not _exceed(out, sums, start, stop):
            continue
        if level == 0:
            best = at
            for i in range(stop - start):
                to[i] = max(to[i], sums[i])
            continue
        first = levels[level - 1] + BRANCHES * (at - levels[level])
        for child in range(min(first + BRANCHES, levels[level]) - 1, first - 1, -1):
            stack[height, 0], stack[height, 1] = level - 1, child
            height += 1
    return best


@kernel
def advance(w, odds, reach, levels, offsets, weights, constants, times, floor):
    """``times`` more answers: w at the odds of each grid point, with ``reach`` points of room at either end.

    Where w is below ``floor`` it is not followed, but kept from falling further.
    """
    n = w.size
    out, sums, stack = np.empty(n), np.empty(_BLOCK), np.empty((8 * BRANCHES, 2), np.int64)
    best = np.zeros(n // _BLOCK + 2, np.int64)
    stop = n - reach
    while stop > reach + 1 and w[stop - 2] < floor:
        stop -= 1
    for _ in range(times):
        # beyond the last point w only falls; before the first it lies below the chord from (0, 1)
        for i in range(stop, n):
            w[i] = w[stop - 1]
        stop = min(stop + reach, n - reach)
        fall = (1 - w[reach]) / odds[reach]
        for i in range(reach):
            w[i] = 1 - fall * odds[i]
        out[:] = w
        for block in range((stop - reach + _BLOCK - 1) // _BLOCK):
            start = reach + block * _BLOCK
            end = min(start + _BLOCK, stop)
            best[block] = _block(
                w, out, start, end, levels, offsets, weights, constants, best[block], sums, stack
            )
        for i in range(reach, stop):
            w[i] = min(1.0, out[i] * _UP)
        while stop > reach + 1 and w[stop - 2] < floor:
            stop -= 1

"""Compiled loops of exact composition: the recursion over all pairs at every point, and the smooth bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.compiled import kernel

if TYPE_CHECKING:
    from ostraka.core.laws.cover import Stencils

_BLOCK = 256  # points whose values stay in the fast cache
_UP = 1 + 1e-14  # more than the rounding of one sum
_ALWAYS = 9  # taps that most pairs have
APART = 6  # every so many points each pair is tried
_DOUBT = 1e-14  # of a value: more than a chord from it to a smaller one rounds


def packed(way: Stencils) -> tuple[Stencils, np.ndarray]:
    """Taps with weight first, as many columns as :func:`advance` wants; how many there are."""
    order = np.argsort(way.weights == 0, axis=1, kind="stable")
    offsets, weights = (np.take_along_axis(each, order, axis=1) for each in way[:2])
    lacking = max(0, _ALWAYS - offsets.shape[1])
    used = (weights > 0).sum(axis=1)
    offsets = np.pad(np.where(weights > 0, offsets, 0), ((0, 0), (0, lacking)))
    return way._replace(offsets=offsets, weights=np.pad(weights, ((0, 0), (0, lacking)))), used


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


@kernel()
def _sum_taps(offsets, weights, values, to):
    to[:] = 0.0
    for k in range(offsets.size):
        c = weights[k]
        if c > 0.0:
            row = values[offsets[k]]
            for i in range(to.size):
                to[i] += c * row[i]


@kernel("i8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1]")
def each_pair(offsets, weights, values, out):
    for p in range(len(offsets)):
        _sum_taps(offsets[p], weights[p], values, out[p])


@kernel("i8[:,::1], f8[:,::1], f8[:,::1], f8[::1]")
def largest_pair(offsets, weights, values, out):
    to = np.empty(out.size)
    for p in range(len(offsets)):
        _sum_taps(offsets[p], weights[p], values, to)
        for i in range(out.size):
            out[i] = max(out[i], to[i])


@kernel("f8[::1], f8")
def shape(logs, step):
    """The largest second difference, and the steepest and the mildest slope less 1/2, at x > 0."""
    bent, steepest, mildest = 2 * (logs[1] - logs[0]) - step, 0.0, -math.inf
    for i in range(1, logs.size - 1):
        bent = max(bent, logs[i + 1] - 2 * logs[i] + logs[i - 1])
        slope = logs[i + 1] - logs[i - 1]
        steepest, mildest = min(steepest, slope), max(mildest, slope)
    return bent, steepest / (2 * step) - 0.5, mildest / (2 * step) - 0.5


@kernel("f8[::1], f8[::1], f8, f8[::1], f8")
def lacking(logs, added, step, most, unit):
    """Logs of what one answer may add, less logs of what was added."""
    # written out, so that the loop is compiled to vectors
    c0, c1, c2, c3, c4, c5 = most[0], most[1], most[2], most[3], most[4], most[5]
    per = 1 / (2 * step)
    added[0] = logs[0] + c0 - added[0]
    for i in range(1, added.size):
        slope = ((logs[i + 1] - logs[i - 1]) * per - 0.5) / unit
        x = slope * slope
        added[i] = logs[i] + (c0 + x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * c5))))) - added[i]


@kernel("f8[::1], f8[::1], f8[::1]")
def scaled(polynomial, needed, scale):
    """The polynomial of the squared place; by how much it falls short of what is needed."""
    c5, c4, c3 = polynomial[0], polynomial[1], polynomial[2]
    c2, c1, c0 = polynomial[3], polynomial[4], polynomial[5]
    n = needed.size
    for i in range(n):
        place = i / n
        x = place * place
        scale[i] = c0 + x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * c5))))
    gap = -math.inf
    for i in range(n):
        gap = max(gap, needed[i] - scale[i])
    return gap


@kernel("f8[::1], f8[::1], i8, i8")
def boxed(values, roots, half, checked):
    """Values over roots, which are even in x, averaged over 2 half + 1 neighbours, four times; times roots.

    Sums run from the far end, where values are small; a box is the difference of two of them.
    """
    room, wide, n = 4 * half, 2 * half + 1, values.size
    sums = np.zeros((n + room + wide, 4))
    out = np.empty(checked)
    for i in range(n + room - 1, -1, -1):
        at = abs(i - room)
        one = values[at] / roots[at] + sums[i + 1, 0]
        two = one - sums[i + wide, 0] + sums[i + 1, 1]
        three = two - sums[i + wide, 1] + sums[i + 1, 2]
        four = three - sums[i + wide, 2] + sums[i + 1, 3]
        sums[i, 0], sums[i, 1], sums[i, 2], sums[i, 3] = one, two, three, four
        if i < checked:
            out[i] = (four - sums[i + wide, 3]) * roots[i]
    return out


@kernel("f8[::1], f8[::1], f8, f8, f8")
def taken(kinks, added, step, low, rounded):
    """Place where the function falls to ``low`` after this was added, kinks before it, last two values."""
    n, fall, keep, ratio = added.size, -math.expm1(-step), math.exp(-step), math.exp(step)
    widen = math.expm1(step)
    out = np.empty(n)
    weight = value = before = last = 0.0
    end = n - 3
    for i in range(kinks.size - 1, -1, -1):
        if i < n - 1:
            left = added[i - 1] if i else added[1] * keep
            grown = (added[i + 1] - added[i] - ratio * (added[i] - left)) / widen
            out[i] = (kinks[i] + grown) * rounded
            after = (value + added[i]) * rounded
            if i >= n - 3 or after <= low:
                end, last = i, after
            elif before == 0.0:
                before = after
        weight = kinks[i] + keep * weight
        value += fall * weight
    return end, out, last, before


@kernel("f8[::1], f8, f8[::1]")
def function(kinks, step, to):
    """The convex function with these kinks, at the grid points before the last kink."""
    fall, keep = -math.expm1(-step), math.exp(-step)
    weight = value = 0.0
    for i in range(kinks.size - 1, -1, -1):
        to[i] = value
        weight = kinks[i] + keep * weight
        value += fall * weight

"""Compiled loops of the envelope and of the smooth bound."""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel


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

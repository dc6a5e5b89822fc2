"""Compiled loops of the envelope and of the smooth bound."""

from __future__ import annotations

import math

import numpy as np

from ostraka._compiled import kernel

__all__ = ["boxed", "each_pair", "function", "lacking", "largest_pair", "scaled", "shape", "taken"]


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
    n = most.size
    for i in range(added.size):
        slope = 0.0 if i == 0 else (logs[i + 1] - logs[i - 1]) / (2 * step) - 0.5
        square, value = (slope / unit) ** 2, most[n - 1]
        for k in range(n - 2, -1, -1):
            value = value * square + most[k]
        added[i] = logs[i] + value - added[i]


@kernel("f8[::1], f8[::1], f8[::1]")
def scaled(polynomial, needed, scale):
    """The polynomial of the squared place; by how much it falls short of what is needed."""
    gap, n = -math.inf, needed.size
    for i in range(n):
        square, value = (i / n) ** 2, 0.0
        for k in range(polynomial.size):
            value = value * square + polynomial[k]
        scale[i] = value
        gap = max(gap, needed[i] - value)
    return gap


@kernel("f8[::1], i8")
def boxed(values, half):
    """Sums over 2 half + 1 neighbours; there are ``half`` fewer at either end."""
    n = values.size - 2 * half
    out, tail = np.empty(n), np.zeros(values.size + 1)
    for i in range(values.size - 1, -1, -1):
        tail[i] = tail[i + 1] + values[i]
    for i in range(n):
        out[i] = tail[i] - tail[i + 2 * half + 1]
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

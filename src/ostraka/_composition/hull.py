"""Fewer pairs that dominate the same laws: hulls of regions of tests, compiled.

A pair is the concave polygon of what tests can tell it apart by: at each share x of P, the largest
P(S) - Q(S) over events S with P(S) = x. A pair whose polygon lies above that of another dominates it
(Blackwell 1953).
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

__all__ = ["LEAST", "N_EDGES", "joined"]

N_EDGES = 5  # of a merged polygon; every edge is an outcome
LEAST = 3e-15  # of a mass; less is left out, and added to what a pair tells for certain
_KEPT, _ROOM = 12, 32

kernel = nb.njit(cache=True, nogil=True, error_model="numpy")


@kernel
def _polygon(mass, difference, x, y):
    """Vertices of one pair, steepest edge first; how many there are."""
    n = mass.size
    used = np.zeros(n, dtype=np.bool_)
    left = 1.0
    for i in range(n):
        if mass[i] < LEAST:  # counted in what is added to every pair
            used[i] = True
        else:
            left -= mass[i]
    x[0], y[0], count, flat = 0.0, 0.0, 1, False
    for _ in range(n + 1):
        best, at = -math.inf, -1
        for i in range(n):
            if not used[i] and -difference[i] / mass[i] > best:
                best, at = -difference[i] / mass[i], i
        if not flat and (at < 0 or best <= 0.0):
            flat = True
            if left > LEAST:
                x[count], y[count] = x[count - 1] + left, y[count - 1]
                count += 1
        if at < 0:
            break
        used[at] = True
        x[count], y[count] = x[count - 1] + mass[at], y[count - 1] - difference[at]
        count += 1
    x[count - 1], y[count - 1] = 1.0, 0.0
    return count


@kernel
def _hull(x1, y1, n1, x2, y2, n2, x, y):
    """Upper hull of two polygons from (0, 0) to (1, 0)."""
    i = j = count = 0
    while i < n1 or j < n2:
        if j >= n2 or (i < n1 and x1[i] <= x2[j]):
            px, py = x1[i], y1[i]
            i += 1
        else:
            px, py = x2[j], y2[j]
            j += 1
        if count and px - x[count - 1] < LEAST:
            if py <= y[count - 1]:
                continue
            count -= 1
        while count >= 2 and (x[count - 1] - x[count - 2]) * (py - y[count - 2]) >= (px - x[count - 2]) * (
            y[count - 1] - y[count - 2]
        ):
            count -= 1
        x[count], y[count] = px, py
        count += 1
    return count


@kernel
def _worth(x, y, count, power):
    """A divergence of the pair: the mean of ratio^(1 - power) under P, less 1, over power (power - 1) / 2."""
    total = 0.0
    for k in range(1, count):
        width = x[k] - x[k - 1]
        if width > 0.0:
            away = (y[k - 1] - y[k]) / width
            total += width * math.expm1((1.0 - power) * math.log1p(max(away, -1 + 1e-12)))
    return 2 * total / (power * (power - 1))


@kernel
def _fewer(x, y, count, most, powers, tx, ty):
    """Drop edges, the cheapest first: the neighbours of an edge are drawn out until they meet."""
    while count - 1 > most:
        best, at, bx, by = math.inf, 0, 0.0, 0.0
        for k in range(1, count - 2):
            s1 = (y[k] - y[k - 1]) / (x[k] - x[k - 1])
            s2 = (y[k + 2] - y[k + 1]) / (x[k + 2] - x[k + 1])
            meet, top = x[k + 1], y[k + 1]
            if s1 > s2:
                meet = min(max((y[k + 1] - y[k] + s1 * x[k] - s2 * x[k + 1]) / (s1 - s2), x[k]), x[k + 1])
                top = max(y[k] + s1 * (meet - x[k]), y[k + 1] - s2 * (x[k + 1] - meet))
            tx[:k], ty[:k], tx[k], ty[k] = x[:k], y[:k], meet, top
            tx[k + 1 : count - 1], ty[k + 1 : count - 1] = x[k + 2 : count], y[k + 2 : count]
            cost = 0.0
            for power in powers:
                cost += _worth(tx, ty, count - 1, power)
            if at == 0 or cost < best:
                best, at, bx, by = cost, k, meet, top
        x[at], y[at] = bx, by
        for k in range(at + 1, count - 1):
            x[k], y[k] = x[k + 1], y[k + 1]
        count -= 1
    return count


@kernel
def joined(mass, difference, run, powers):
    """The hull of each run of so many pairs, as masses and differences of at most N_EDGES outcomes."""
    found = (len(mass) + run - 1) // run
    out_mass, out_difference = np.zeros((found, N_EDGES)), np.zeros((found, N_EDGES))
    x, y, tx, ty = np.empty(_ROOM), np.empty(_ROOM), np.empty(_ROOM), np.empty(_ROOM)
    gx, gy, hx, hy = np.empty(_ROOM), np.empty(_ROOM), np.empty(_ROOM), np.empty(_ROOM)
    for g in range(found):
        gx[0], gy[0], gx[1], gy[1], count = 0.0, 0.0, 1.0, 0.0, 2
        for i in range(g * run, min((g + 1) * run, len(mass))):
            n = _polygon(mass[i], difference[i], x, y)
            count = _fewer(hx, hy, _hull(gx, gy, count, x, y, n, hx, hy), _KEPT, powers, tx, ty)
            gx[:count], gy[:count] = hx[:count], hy[:count]
        count = _fewer(gx, gy, count, N_EDGES, powers, tx, ty)
        for k in range(1, count):
            out_mass[g, k - 1] = gx[k] - gx[k - 1]
            out_difference[g, k - 1] = gy[k - 1] - gy[k]
    return out_mass, out_difference

"""Compiled: the largest Rényi divergence between one query's outcome law and any neighbour's.

A neighbour moves one ballot from level i to level j (a level is a set of classes with equal counts;
one more, empty-handed level stands for "nobody": ballots added or removed). All neighbours are read
off the unmoved law: P'[k wins] / P[k wins] is the expectation, over the level at which k wins, of the
ratio of the moved distribution functions.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from ostraka.accounting._divergence import largest_divergence
from ostraka.mechanisms._grid import grid, sort_down
from ostraka.mechanisms._noise import GAUSSIAN, log_cdf, log_pdf
from ostraka.mechanisms.outcome import levels, tilt

__all__ = ["NO_SCREEN", "SCREEN_ANY", "SCREEN_MAX", "costs"]

NO_SCREEN, SCREEN_MAX, SCREEN_ANY = 0, 1, 2
# Beyond this exponent ratios may leave the range of float64, and logs are used throughout.
_SAFE = 300.0


@nb.njit(cache=True, nogil=True, error_model="numpy")
def costs(counts, scores, kind, scale, screen, at, sigma, replace, orders, out):
    """Per query and order, the largest divergence over neighbours and both directions.

    ``kind`` < 0: no argmax is released. ``scores`` is what the screen looks at. ``replace``: one
    ballot changes its class; otherwise one ballot is added or removed.
    """
    for q in range(counts.shape[0]):
        merge = True
        for k in range(counts.shape[1]):
            merge = merge and scores[q, k] == counts[q, k]
        _cost(counts[q], scores[q], merge, kind, scale, screen, at, sigma, replace, orders, out[q])


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _cost(counts, scores, merge, kind, scale, screen, at, sigma, replace, orders, out):
    unit = scale if kind >= 0 else 1.0
    y, w, place = levels(counts, unit, merge)
    n = y.size
    level_count, level_score = np.empty(n), np.empty(n)
    for k in range(place.size):
        level_count[place[k]], level_score[place[k]] = counts[k], scores[k]
    log_ratio, moved_i, moved_j, log_q = _ratios(kind, y, w, 1.0 / unit)
    before = _screen(screen, level_score, w, -1, -1, at, sigma)
    most = 2 * (n + 1) * (n + 1)
    log_law, lam = np.empty((most, n + 3)), np.zeros((most, n + 3))
    log_law.fill(-math.inf)
    size = 0
    for i in range(n + 1):
        if i < n and level_count[i] < 1.0:
            continue
        for j in range(n + 1):
            nobody = (i == n) + (j == n)
            if nobody != (0 if replace else 1) or (i == j and w[i] < 2):
                continue
            after = _screen(screen, level_score, w, i, j, at, sigma)
            answer, abstain = after[0] - before[0], after[1] - before[1]
            if kind >= 0:
                for m in range(n):
                    copies = w[m] - (m == i) - (m == j)
                    if copies > 0:
                        log_law[size, m] = log_q[m] + math.log(copies) + before[0]
                        lam[size, m] = log_ratio[m, i, j] + answer
                if i < n:
                    log_law[size, n], lam[size, n] = log_q[i] + before[0], moved_i[i, j] + answer
                if j < n:
                    log_law[size, n + 1], lam[size, n + 1] = log_q[j] + before[0], moved_j[i, j] + answer
            else:
                log_law[size, n], lam[size, n] = before[0], answer
            if screen != NO_SCREEN:
                log_law[size, n + 2], lam[size, n + 2] = before[1], abstain
            for k in range(n + 3):  # the same pair the other way round
                log_law[size + 1, k], lam[size + 1, k] = log_law[size, k] + lam[size, k], -lam[size, k]
            size += 2
    out.fill(0.0)
    if size:
        largest_divergence(log_law[:size], lam[:size], orders, out)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _ratios(kind, y, w, s):
    """Log of P'/P of an unmoved class of level k, and of the two moved classes, for every move (i, j)."""
    n = y.size
    log_ratio, moved_i, moved_j = (
        np.zeros((n, n + 1, n + 1)),
        np.zeros((n + 1, n + 1)),
        np.zeros((n + 1, n + 1)),
    )
    if kind < 0:
        return log_ratio, moved_i, moved_j, np.zeros(n)
    nodes, log_weights = grid(kind, y, w, s)
    log_q, law = tilt(kind, y, w, nodes, log_weights)
    furthest = 0.0
    for t in range(nodes.size):
        furthest = max(furthest, -nodes[t], nodes[t] + y[n - 1])
    if (furthest + s) * s > _SAFE and kind == GAUSSIAN:
        _ratios_far(kind, y, w, s, log_q, log_ratio, moved_i, moved_j)
        return log_ratio, moved_i, moved_j, log_q
    down, up = np.empty((nodes.size, n + 1)), np.empty((nodes.size, n + 1))
    down.fill(1.0)
    up.fill(1.0)
    down_pdf, up_pdf = np.empty((nodes.size, n)), np.empty((nodes.size, n))
    for m in range(n):
        for t in range(nodes.size):
            z = nodes[t] + y[m]
            cdf, pdf = log_cdf(kind, z), log_pdf(kind, z)
            down[t, m] = math.exp(log_cdf(kind, z + s) - cdf)
            up[t, m] = math.exp(log_cdf(kind, z - s) - cdf)
            down_pdf[t, m] = math.exp(log_pdf(kind, z + s) - pdf)
            up_pdf[t, m] = math.exp(log_pdf(kind, z - s) - pdf)
    for k in range(n):
        for t in range(nodes.size):
            p = law[k, t]
            if p == 0.0:
                continue
            for i in range(n + 1):
                here = p * down[t, i]
                moved_j[i, k] += here * up_pdf[t, k]
                moved_i[k, i] += p * down_pdf[t, k] * up[t, i]
                for j in range(n + 1):
                    log_ratio[k, i, j] += here * up[t, j]
    for i in range(n + 1):
        for j in range(n + 1):
            moved_i[i, j], moved_j[i, j] = math.log(moved_i[i, j]), math.log(moved_j[i, j])
            for k in range(n):
                log_ratio[k, i, j] = math.log(log_ratio[k, i, j])
    return log_ratio, moved_i, moved_j, log_q


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _ratios_far(kind, y, w, s, log_q, log_ratio, moved_i, moved_j):
    """The same where ratios leave the range of float64: each neighbour's own outcome law, in logs."""
    n = y.size
    counts, owner = np.empty(n + 2), np.empty(n + 2, np.int64)
    copies = np.empty(n + 2)
    for i in range(n + 1):
        for j in range(n + 1):
            if i == j and (i == n or w[i] < 2):
                continue
            size = 0
            for m in range(n):
                left = w[m] - (m == i) - (m == j)
                if left > 0:
                    counts[size], copies[size], owner[size] = -y[m], left, m
                    size += 1
            for m, moved in ((i, -s), (j, s)):
                if m < n:
                    counts[size], copies[size], owner[size] = (
                        -y[m] + moved,
                        1.0,
                        m + (n if moved < 0 else 2 * n),
                    )
                    size += 1
            y2, w2 = np.empty(size), np.empty(size)
            order = sort_down(counts[:size])
            for p in range(size):
                y2[p], w2[p] = counts[0] - counts[p], copies[order[p]]
            nodes, log_weights = grid(kind, y2, w2, 0.0)
            log_q2, _ = tilt(kind, y2, w2, nodes, log_weights)
            for p in range(size):
                m = owner[order[p]]
                if m < n:
                    log_ratio[m, i, j] = log_q2[p] - log_q[m]
                elif m < 2 * n:
                    moved_i[i, j] = log_q2[p] - log_q[m - n]
                else:
                    moved_j[i, j] = log_q2[p] - log_q[m - 2 * n]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _screen(screen, score, w, i, j, at, sigma):
    """Log probabilities (answer, abstain) once a ballot has moved from level i to level j."""
    if screen == NO_SCREEN:
        return 0.0, 0.0
    n = score.size
    if screen == SCREEN_MAX:
        largest = -math.inf
        for m in range(n):
            if w[m] - (m == i) - (m == j) > 0:
                largest = max(largest, score[m])
        if 0 <= i < n:
            largest = max(largest, score[i] - 1.0)
        if 0 <= j < n:
            largest = max(largest, score[j] + 1.0)
        return log_cdf(GAUSSIAN, (largest - at) / sigma), log_cdf(GAUSSIAN, (at - largest) / sigma)
    none, nearest = 0.0, math.inf  # log probability that no count passes; how far below the largest is
    gaps, copies = np.empty(n + 2), np.zeros(n + 2)
    for m in range(n):
        gaps[m], copies[m] = (at - score[m]) / sigma, w[m] - (m == i) - (m == j)
    if 0 <= i < n:
        gaps[n], copies[n] = (at - score[i] + 1.0) / sigma, 1.0
    if 0 <= j < n:
        gaps[n + 1], copies[n + 1] = (at - score[j] - 1.0) / sigma, 1.0
    for m in range(n + 2):
        if copies[m] > 0:
            none += copies[m] * log_cdf(GAUSSIAN, gaps[m])
            nearest = min(nearest, gaps[m])
    if none < -1e-290:
        return math.log(-math.expm1(none)) if none > -0.7 else math.log1p(-math.exp(none)), none
    peak, some = log_cdf(GAUSSIAN, -nearest), 0.0  # too rare for float64: in logs, where rare events add
    for m in range(n + 2):
        if copies[m] > 0:
            some += copies[m] * math.exp(log_cdf(GAUSSIAN, -gaps[m]) - peak)
    return peak + math.log(some), none

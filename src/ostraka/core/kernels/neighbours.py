"""Compiled: the largest Rényi divergence between one query's outcome law and any neighbour's.

A neighbour moves one ballot from level i to level j (a level is a set of classes with equal counts;
one more, empty-handed level stands for "nobody": ballots added or removed). All neighbours are read
off the unmoved law: P'[k wins] / P[k wins] is the expectation, over the level at which k wins, of the
ratio of the moved distribution functions.
"""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel
from ostraka.core.kernels.outcome import GAUSSIAN, grid, levels, log_cdf, log_pdf, sort_down, tilt

NO_SCREEN, SCREEN_MAX, SCREEN_ANY = 0, 1, 2
# Beyond this exponent Gaussian ratios may leave the range of float64, and logs are used throughout.
_SAFE = 300.0
_SAFE_LAPLACE = 8.0  # noise scales: larger moves may put weight where the nodes of the unmoved law end
_NOTHING, _OPEN = (np.empty(0), np.empty((0, 0, 0))), np.empty((0, 0, 2))


def pairs(
    counts: np.ndarray,
    scores: np.ndarray,
    argmax: tuple[int, float],
    gate: tuple[int, float, float],
    *,
    replace: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Log q and log p / q of all pairs (p, q) of one query: a neighbour and the counts, then the reverse.

    The kind of ``argmax`` is below 0 where none is released. ``scores`` is what the screen looks at.
    ``replace``: one ballot changes its class; otherwise one ballot is added or removed.
    """
    kind, scale = argmax
    screen, at, sigma = gate
    unit = scale if kind >= 0 else 1.0
    y, w, place = levels(counts, scores, unit)
    if kind >= 0:
        nodes, log_weights = grid(kind, y, w, 1.0 / unit)
        log_q, law = tilt(kind, y, w, nodes, log_weights)
        change, far = _ratios(kind, y, 1.0 / unit, nodes, law)
        if far:
            _ratios_far(kind, y, w, 1.0 / unit, log_q, change)
    else:
        log_q, change = _NOTHING
    seen = _OPEN if screen == NO_SCREEN else _screened(screen, scores, place, w, at, sigma, replace)
    found: tuple[np.ndarray, np.ndarray] = _pairs(counts, place, w, log_q, change, seen, replace)
    return found


@kernel("f8[::1], i8[::1], f8[::1], f8[::1], f8[:,:,::1], f8[:,:,::1], b1")
def _pairs(counts, place, w, log_q, change, screened, replace):
    """Return, per neighbour and direction, log probabilities of all outcomes and the logs of their ratios."""
    # columns: the unmoved classes of each level, the two moved classes, and, with a screen, no answer
    n = w.size
    level_count = np.empty(n)
    for k in range(place.size):
        level_count[place[k]] = counts[k]
    most = 2 * n * n if replace else 4 * n
    argmax, screen = log_q.size > 0, screened.shape[0] > 0
    size = n + 3 if screen else n + 2
    log_law, lam = np.empty((most, size)), np.empty((most, size))
    p, answer, abstain = 0.0, 0.0, 0.0
    if screen:
        p = screened[n, n, 0]
    r = 0
    for i in range(n + 1):
        if i < n and level_count[i] < 1.0:
            continue
        for j in range(n + 1):
            nobody = (i == n) + (j == n)
            if nobody != (0 if replace else 1) or (i == j and w[i] < 2):
                continue
            for k in range(size):
                log_law[r, k], lam[r, k] = -math.inf, 0.0
            if screen:
                answer, abstain = screened[i, j, 0] - p, screened[i, j, 1] - screened[n, n, 1]
                log_law[r, n + 2], lam[r, n + 2] = screened[n, n, 1], abstain
            if argmax:
                for m in range(n):
                    copies = w[m] - (m == i) - (m == j)
                    if copies > 0:
                        log_law[r, m] = log_q[m] + math.log(copies) + p
                        lam[r, m] = change[m, i, j] + answer
                if i < n:
                    log_law[r, n], lam[r, n] = log_q[i] + p, change[n, i, j] + answer
                if j < n:
                    log_law[r, n + 1], lam[r, n + 1] = log_q[j] + p, change[n + 1, i, j] + answer
            else:
                log_law[r, n], lam[r, n] = p, answer
            for k in range(size):  # the same pair the other way round
                log_law[r + 1, k], lam[r + 1, k] = log_law[r, k] + lam[r, k], -lam[r, k]
            r += 2
    return log_law[:r], lam[:r]


@kernel("i8, f8[::1], f8, f8[::1], f8[:,::1]")
def _ratios(kind, y, s, nodes, law):
    """Return log P'/P of an unmoved class of level k and of the two moved classes, for every move (i, j)."""
    # axes: k, then the class that loses the vote, then the one that gets it; the last value says whether
    # ratios leave the range of float64
    n = y.size
    change = np.empty((n + 2, n + 1, n + 1))
    furthest = 0.0
    for t in range(nodes.size):
        furthest = max(furthest, -nodes[t], nodes[t] + y[n - 1])
    if (furthest + s) * s > _SAFE if kind == GAUSSIAN else s > _SAFE_LAPLACE:
        return change, True
    down, up = np.empty((nodes.size, n + 1)), np.empty((nodes.size, n + 1))
    down_pdf, up_pdf = np.empty((nodes.size, n)), np.empty((nodes.size, n))
    for t in range(nodes.size):
        down[t, n] = up[t, n] = 1.0
    for m in range(n):
        for t in range(nodes.size):
            z = nodes[t] + y[m]
            cdf, pdf = log_cdf(kind, z), log_pdf(kind, z)
            down[t, m] = math.exp(log_cdf(kind, z + s) - cdf)
            up[t, m] = math.exp(log_cdf(kind, z - s) - cdf)
            down_pdf[t, m] = math.exp(log_pdf(kind, z + s) - pdf)
            up_pdf[t, m] = math.exp(log_pdf(kind, z - s) - pdf)
    for k in range(n + 2):
        for i in range(n + 1):
            for j in range(n + 1):
                change[k, i, j] = 0.0
    for k in range(n):
        for t in range(nodes.size):
            p = law[k, t]
            if p == 0.0:
                continue
            for i in range(n + 1):
                here = p * down[t, i]
                change[n + 1, i, k] += here * up_pdf[t, k]
                change[n, k, i] += p * down_pdf[t, k] * up[t, i]
                for j in range(n + 1):
                    change[k, i, j] += here * up[t, j]
    for k in range(n + 2):
        for i in range(n + 1):
            for j in range(n + 1):
                change[k, i, j] = math.log(change[k, i, j])
    return change, False


@kernel("i8, f8[::1], f8[::1], f8, f8[::1], f8[:,:,::1]")
def _ratios_far(kind, y, w, s, log_q, change):
    """Compute log ratios from each neighbour's own outcome law, where ratios exceed the range of float64."""
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
                    change[m, i, j] = log_q2[p] - log_q[m]
                elif m < 2 * n:
                    change[n, i, j] = log_q2[p] - log_q[m - n]
                else:
                    change[n + 1, i, j] = log_q2[p] - log_q[m - 2 * n]


@kernel("i8, f8[::1], i8[::1], f8[::1], f8, f8, b1")
def _screened(screen, scores, place, w, at, sigma, replace):
    """Log probabilities (answer, abstain) after every move (i, j); in the last place, without a move."""
    n = w.size
    score = np.empty(n)
    for k in range(place.size):
        score[place[k]] = scores[k]
    table = np.empty((n + 1, n + 1, 2))
    for i in range(n + 1):
        for j in range(n + 1):
            nobody = (i == n) + (j == n)
            if i + j == 2 * n or nobody == (0 if replace else 1):
                table[i, j, 0], table[i, j, 1] = _screen(screen, score, w, i, j, at, sigma)
    return table


@kernel()
def _screen(screen, score, w, i, j, at, sigma):
    """Log probabilities (answer, abstain) once a ballot has moved from level i to level j."""
    n = score.size
    if screen == SCREEN_MAX:
        largest = -math.inf
        for m in range(n):
            if w[m] - (m == i) - (m == j) > 0:
                largest = max(largest, score[m])
        if i < n:
            largest = max(largest, score[i] - 1.0)
        if j < n:
            largest = max(largest, score[j] + 1.0)
        return log_cdf(GAUSSIAN, (largest - at) / sigma), log_cdf(GAUSSIAN, (at - largest) / sigma)
    none, nearest = 0.0, math.inf  # log probability that no count passes; how far below the largest is
    gaps, copies = np.empty(n + 2), np.zeros(n + 2)
    for m in range(n):
        gaps[m], copies[m] = (at - score[m]) / sigma, w[m] - (m == i) - (m == j)
    if i < n:
        gaps[n], copies[n] = (at - score[i] + 1.0) / sigma, 1.0
    if j < n:
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

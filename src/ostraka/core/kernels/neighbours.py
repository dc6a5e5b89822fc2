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


@kernel("f8[:,::1], f8[:,::1], f8[::1], f8[::1]")
def largest_divergence(log_q, lam, orders, out):
    """Raise ``out`` to max over rows of D_order(q e^lam || q), at every order.

    Rows are pairs of laws: ``log_q`` (log probability, -inf where unused) and ``lam`` (log ratio),
    with sum q = sum q e^lam = 1. Then exp((order - 1) D) - 1 = sum q (e^(order lam) - 1 - order
    (e^lam - 1)), in which no term is negative: nothing cancels, however small D is.

    (order - 1) D is convex in the order. So between two anchor orders (1, 2, 3, 6, 12, 24, ...) a row
    lies below its chord, and a row whose chord is below the best so far need not be evaluated.
    Anchors are reached by squaring; orders in arithmetic runs by one multiplication each.
    """
    n_rows, size = lam.shape
    if orders[-1] == math.inf:
        for r in range(n_rows):
            for k in range(size):
                if log_q[r, k] > -math.inf:
                    out[-1] = max(out[-1], lam[r, k])
    q, linear = np.empty((n_rows, size)), np.empty((n_rows, size))
    excess, following = np.empty((n_rows, size)), np.empty((n_rows, size))
    low_k, high_k = np.empty(n_rows), np.empty(n_rows)
    walk, gain = np.empty((n_rows, size)), np.empty(size)
    steepest = 0.0
    for r in range(n_rows):
        low_k[r] = 0.0
        for k in range(size):
            q[r, k], linear[r, k] = math.exp(log_q[r, k]), math.expm1(lam[r, k])
            excess[r, k] = linear[r, k]
            steepest = max(steepest, lam[r, k])
    low, first = 1.0, np.int64(0)  # no literal
    while first < orders.size and orders[first] < math.inf:
        high = low + 1.0 if low < 2.5 else 2.0 * low
        last = first
        while last < orders.size and orders[last] <= high:
            last += 1
        safe = high * steepest <= _SAFE
        best = 0
        for r in range(n_rows):
            if safe:
                for k in range(size):  # e^(high lam) - 1: one more factor e^lam below 3, the square from 3 on
                    e = excess[r, k]
                    following[r, k] = e * (2.0 + e) if low > 2.5 else e + linear[r, k] * (1.0 + e)
                high_k[r] = math.log1p(_excess(q, following, linear, r, high))
            else:
                high_k[r] = _log_moment(log_q, lam, r, high)
            best = r if high_k[r] > high_k[best] else best
        for s in range(-1, n_rows):  # the best row first, then those whose chord rises above it
            r = best if s < 0 else s
            slope = (high_k[r] - low_k[r]) / (high - low)
            if s < 0 or _rises(low, low_k[r], slope, orders, out, first, last):
                for k in range(size):
                    walk[r, k] = excess[r, k]
                _walk(log_q, q, lam, linear, walk, gain, r, low, safe, orders, out, first, last)
        low_k, high_k = high_k, low_k
        excess, following = following, excess
        low, first = high, last


@kernel()
def _rises(low, low_k, slope, orders, out, first, last):
    """Return whether the chord allows a value above the best one so far."""
    for a in range(first, last):
        if low_k + (orders[a] - low) * slope > out[a] * (orders[a] - 1.0):
            return True
    return False


@kernel()
def _walk(log_q, q, lam, linear, excess, gain, r, low, safe, orders, out, first, last):
    """Row ``r`` at the orders above the anchor ``low``, ``first`` to ``last``; moves ``excess`` along."""
    step, before = 0.0, low
    for a in range(first, last):
        if not safe:
            out[a] = max(out[a], _log_moment(log_q, lam, r, orders[a]) / (orders[a] - 1.0))
            continue
        if orders[a] - before != step:
            step = orders[a] - before
            for k in range(q.shape[1]):
                gain[k] = math.expm1(step * lam[r, k])
        before = orders[a]
        for k in range(q.shape[1]):
            excess[r, k] += gain[k] * (1.0 + excess[r, k])
        total = _excess(q, excess, linear, r, orders[a])
        if total > out[a] * (orders[a] - 1.0):  # log1p(x) <= x: no smaller total can raise the maximum
            out[a] = max(out[a], math.log1p(total) / (orders[a] - 1.0))


@kernel(fastmath={"reassoc", "contract"})
def _excess(q, excess, linear, r, order):
    total = 0.0
    for k in range(q.shape[1]):
        total += q[r, k] * (excess[r, k] - order * linear[r, k])
    return max(total, 0.0)


@kernel()
def _log_moment(log_q, lam, r, order):
    """Compute log(1 + sum) from logarithms of the terms, which may exceed the range of float64."""
    total = -math.inf
    for k in range(lam.shape[1]):
        x, log_p = lam[r, k], log_q[r, k]
        reach = order * x
        if log_p == -math.inf or x == 0.0:
            continue
        if abs(reach) < 1e-5:  # e^(order x) - 1 - order (e^x - 1), by its series
            term = math.log(order - 1.0) + math.log1p((order + 1.0) * x / 3.0)
            term += math.log(0.5 * order) + 2.0 * math.log(abs(x))
        elif reach < 30.0:
            term = math.log(math.expm1(reach) - order * math.expm1(x))
        else:
            term = reach + math.log1p((order - 1.0) * math.exp(-reach) - order * math.exp(x - reach))
        term += log_p
        total = max(total, term) + math.log1p(math.exp(-abs(total - term)))
    return total if total > 40.0 else math.log1p(math.exp(total))

"""The outcome map: the exact probability of every outcome as a function of the votes.

With noise of density f and distribution function F on every count, class k wins with probability
Q_k(h) = integral of f(x - h_k) prod_{i != k} F(x - h_i) dx. All classes share one set of nodes, and
every integrand is kept as a normalised law of the winning level, so that whatever else is wanted
(gradients, the effect of one moved vote) is an expectation under it.

In this order: scalar functions of the two noises, in units of their scale; quadrature nodes, which resolve
the integrand of every class; the map and its slopes.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special

from ostraka.core.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

GAUSSIAN, LAPLACE = 0, 1

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_HALF_SQRT_2 = math.sqrt(0.5)
LOWEST = -16.0  # of the table of log Phi
_HIGH, _PER_UNIT, _DEGREE = 9.0, 32, 6
_STEEP = 3.0  # up to here the table's slope has a relative error below 1e-13
# How far (in nats below its peak) an integrand is followed before it is cut: e^-34 = 2e-15.
_CUT = 34.0
NEAR = 12.0  # noise scales: where no class is further below the top, Gaussian nodes ascend in equal steps
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(12)
_LEAST = -700.0  # nats: a node may hold little of a class's law, and most of its neighbour's
_HIGHEST = 37.0  # the density of the normal law is a normal float64 up to here


def _taylor_of_log_ndtr() -> np.ndarray:
    """Return Taylor coefficients of log Phi about each multiple of 1/32, then those of its derivative."""
    # r = (log Phi)' has r' = -r (z + r), which gives every further coefficient; Phi has no zero within 2.8
    # of the real axis, so term n of r is below (1/180)^n: |t| <= 1/64 leaves less than 1e-16 of both
    z = np.arange(LOWEST, _HIGH + 0.5 / _PER_UNIT, 1 / _PER_UNIT)
    log_phi = scipy.special.log_ndtr(z)
    r = np.zeros((_DEGREE + 1, z.size))
    r[0] = np.exp(-z * z / 2 - _HALF_LOG_2PI - log_phi)
    for n in range(_DEGREE):
        inner = z * r[n] + (r[n - 1] if n else 0)
        for i in range(n + 1):
            inner = inner + r[i] * r[n - i]
        r[n + 1] = -inner / (n + 1)
    return np.column_stack([log_phi, (r[:-1] / np.arange(1, _DEGREE + 1)[:, None]).T, r.T])


_TABLE = _taylor_of_log_ndtr()


@kernel()
def _cell(z):
    """Row of the table for z between LOWEST and _HIGH, and how far z is from the row's place."""
    i = int((z - LOWEST) * _PER_UNIT + 0.5)
    return _TABLE[i], z - (LOWEST + i / _PER_UNIT)


@kernel()
def _value(c, t):
    return c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * (c[5] + t * c[6])))))


@kernel()
def _slope(c, t):
    return c[7] + t * (c[8] + t * (c[9] + t * (c[10] + t * (c[11] + t * (c[12] + t * c[13])))))


@kernel()
def _log_ndtr(z):
    if z > _HIGH:
        return -0.5 * math.erfc(z * _HALF_SQRT_2)  # log(1 - x) = -x, for x below 1e-18
    if z < LOWEST:
        # asymptotic series of Mills' ratio: the term after the last is below 1e-17 from 16 on
        w = -1.0 / (z * z)
        total = 1.0
        for n in range(23, 0, -2):
            total = 1.0 + n * w * total
        return -0.5 * z * z - _HALF_LOG_2PI - math.log(-z) + math.log(total)
    c, t = _cell(z)
    return _value(c, t)


@kernel()
def log_cdf_and_score(z, density):
    """Log Phi and ``density`` / Phi, from LOWEST on, where ``density`` is that of the normal law at z."""
    if z > _HIGH:
        return 0.0, density
    c, t = _cell(z)
    log_phi = _value(c, t)
    if z < _STEEP:
        return log_phi, _slope(c, t)
    u = -log_phi  # below 0.0014
    return log_phi, density * (1.0 + u * (1.0 + u * (0.5 + u * (1.0 / 6.0 + u / 24.0))))


@kernel()
def log_cdf(kind, z):
    if kind == GAUSSIAN:
        return _log_ndtr(z)
    if z < 0:
        return z - math.log(2.0)
    return math.log1p(-0.5 * math.exp(-z))


@kernel()
def log_pdf(kind, z):
    if kind == GAUSSIAN:
        return -0.5 * z * z - _HALF_LOG_2PI
    return -abs(z) - math.log(2.0)


@kernel()
def score(kind, z):
    """Density over distribution function."""
    if kind == GAUSSIAN and LOWEST <= z < _STEEP:
        c, t = _cell(z)
        return _slope(c, t)
    return math.exp(log_pdf(kind, z) - log_cdf(kind, z))


@kernel()
def sort_down(values):
    """Sort in place, highest first, and return the original positions; short arrays by insertion sort."""
    n = values.size
    origin = np.empty(n, np.int64)
    for j in range(n):
        v, i = values[j], j
        while i > 0 and values[i - 1] < v:
            values[i], origin[i] = values[i - 1], origin[i - 1]
            i -= 1
        values[i], origin[i] = v, j
    return origin


@kernel("i8, f8[::1], f8[::1], f8")
def grid(kind, y, w, shift):
    """Nodes and log weights for classes ``y`` below the top (in noise scales, ascending), ``w`` of each.

    Nodes are measured from the top count. The rule stays accurate when any count moves by ``shift``.
    """
    if kind != GAUSSIAN:
        return _laplace_grid(y, w, shift)
    nodes, step = _gaussian_grid(kind, y, w, shift)
    log_weights = np.empty(nodes.size)
    for t in range(nodes.size):
        log_weights[t] = math.log(step)
    return nodes, log_weights


@kernel()
def _mode(kind, y, w, k, start):
    """Peak of class k's integrand -(x + y_k)^2/2 + sum log Phi, and the curvature there: guarded Newton."""
    low, high = -0.5 * y[k] - 1e-9, 40.0
    x = min(max(start, low), high)
    curvature = 1.0
    for _ in range(100):
        slope, curvature = -(x + y[k]), 1.0
        for m in range(y.size):
            copies = w[m] - 1.0 if m == k else w[m]
            if copies > 0.0:
                r = score(kind, x + y[m])
                slope += copies * r
                curvature += copies * max(0.0, r * (x + y[m] + r))
        low, high = (x, high) if slope > 0 else (low, x)
        step = slope / curvature
        if abs(step) * math.sqrt(curvature) < 1e-2:
            break
        x = x + step
        if not low <= x <= high:
            x = 0.5 * (low + high)
    return x, curvature


@kernel()
def _gaussian_grid(kind, y, w, shift):
    """Return nodes of the trapezoid rule, which converges exponentially where tails are Gaussian."""
    # each integrand is log-concave with curvature at least 1, and curvature falls to the right: the lowest
    # class has the narrowest peak, which sets the step; peaks move left as counts fall
    lowest = y.size - 1
    x, curvature = _mode(kind, y, w, lowest, 0.0)
    # many classes near the top make the peak lopsided, and the rule converges more slowly
    classes = 0.0
    for m in range(y.size):
        classes += w[m]
    finer = 1.0 + 0.22 * math.log(max(1.0, classes / 8.0))
    step = min(0.42, 0.60 / (finer * math.sqrt(curvature)))
    reach = math.sqrt(2 * _CUT) + shift
    left_reach = 6.0 + shift
    if y[lowest] < NEAR:
        right = reach + 0.5
        left = min(-reach + 0.7, -0.5 * y[lowest] - left_reach)
        n = int((right - left) / step) + 1
        nodes = np.empty(n)
        for t in range(n):
            nodes[t] = left + step * t
        return nodes, step
    most = int(y.size * (2 * reach / step + 3))
    nodes = np.empty(most)
    n = 0
    edge = 1 << 60
    x = 0.0
    for k in range(y.size):
        x, curvature = _mode(kind, y, w, k, x)
        first = math.floor((x - reach) / step)
        last = min(edge - 1, math.ceil((x + reach) / step))
        for j in range(last, first - 1, -1):
            nodes[n] = j * step
            n += 1
        edge = min(edge, first)
    return nodes[:n], step


@kernel()
def _laplace_grid(y, w, shift):
    """Return Gauss-Legendre nodes between the kinks (at every count, and where a moved count would be)."""
    # left of the top, with `above` classes above the panel, integrands grow to the right like e^(above x) or
    # e^((above - 1) x): panels start at the right end and stop once nothing is left
    kinks = np.empty(3 * y.size)
    for m in range(y.size):
        kinks[3 * m] = -y[m]
        kinks[3 * m + 1] = -y[m] - shift
        kinks[3 * m + 2] = -y[m] + shift
    sort_down(kinks)
    n_panels = _panels(kinks, y, w, np.empty((0, 2)))
    ends = np.empty((n_panels, 2))
    _panels(kinks, y, w, ends)
    n_legendre = _LEGENDRE_X.size
    nodes, weights = np.empty(n_panels * n_legendre), np.empty(n_panels * n_legendre)
    for p in range(n_panels):
        half = 0.5 * (ends[p, 1] - ends[p, 0])
        for i in range(n_legendre):
            nodes[p * n_legendre + i] = ends[p, 0] + half * (1 + _LEGENDRE_X[i])
            weights[p * n_legendre + i] = math.log(half * _LEGENDRE_W[i])
    return nodes, weights


@kernel()
def _panels(kinks, y, w, ends):
    """Return the number of panels; write the start and end of each if ``ends`` is large enough."""
    total = 0.0
    for m in range(y.size):
        total += w[m]
    n = 0
    x = kinks[0] + _CUT + 4.0 + math.log(total)
    for s in range(kinks.size + 1):
        end = kinks[s] if s < kinks.size else -math.inf
        above = 0.0
        for m in range(y.size):
            if -y[m] >= x - 1e-12:
                above += w[m]
        widest = min(1.0, 8.0 / max(above, 1.0))
        start = x
        while x > end:
            if above > 1.5 and (above - 1.0) * (start - x) > _CUT + 8:
                break
            before = x - widest
            if above == 1.0 and start - x > _CUT + 8 and x - end > _CUT + 8:
                before = end + _CUT + 8  # one class above and all others saturated: constant
            before = max(before, end)
            if n < ends.shape[0]:
                ends[n, 0], ends[n, 1] = before, x
            n += 1
            x = before
        x = end
    return n


def log_outcomes(counts: np.ndarray, *, kind: int, scale: float) -> np.ndarray:
    """Log probability that each class wins the noisy argmax.

    Parameters
    ----------
    counts : float64 array, shape (n_queries, n_classes), in votes
        Private where the votes are. Any finite numbers.
    kind : int
        ``GAUSSIAN`` (scale is its standard deviation) or ``LAPLACE`` (scale is its b).
    scale : float > 0, in votes
        Public.

    Returns
    -------
    float64 array, shape (n_queries, n_classes)
        Natural logs. Absolute error at most 1e-9, however small (measured: 2e-10; 3e-12 up to ten classes).

    Examples
    --------
    >>> np.exp(log_outcomes(np.array([[3.0, 3.0]]), kind=GAUSSIAN, scale=1.0)).round(12)
    array([[0.5, 0.5]])
    """
    out = np.empty(counts.shape)
    flat = np.empty((0, 0, 0))  # no room for slopes
    in_chunks(lambda rows: _outcomes(counts[rows], kind, scale, out[rows], flat), len(counts))
    return out


def log_outcomes_gradient(counts: np.ndarray, *, kind: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities, shape (n_queries, n_classes), and d log Q_k / d count_i, one more axis (i last).

    Examples
    --------
    >>> _, slope = log_outcomes_gradient(np.array([[2.0, 0.0]]), kind=GAUSSIAN, scale=1.0)
    >>> bool(abs(slope.sum(axis=2)).max() < 1e-12)  # adding a vote to every class changes nothing
    True
    """
    out = np.empty(counts.shape)
    slope = np.empty((*counts.shape, counts.shape[1]))
    in_chunks(lambda rows: _outcomes(counts[rows], kind, scale, out[rows], slope[rows]), len(counts))
    return out, slope


def in_chunks(work: Callable[[slice], Any], n: int) -> None:
    """Run ``work`` on slices of ``range(n)`` in as many threads as there are cores; kernels drop the GIL."""
    workers = min(os.cpu_count() or 1, max(1, n // 64))
    if workers == 1:
        work(slice(0, n))
        return
    edges = np.linspace(0, n, 4 * workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, [slice(a, b) for a, b in pairwise(edges)]))


@kernel("f8[::1], f8[::1], f8")
def levels(counts, scores, scale):
    """Counts, highest first, as distances below the top; how many of each; each class's place.

    Classes with equal counts share a level, unless ``scores``, which a screen looks at, are others.
    """
    n = counts.size
    down = np.empty(n)
    merge = True
    for k in range(n):
        down[k] = counts[k]
        merge = merge and scores[k] == counts[k]
    origin = sort_down(down)
    y, w, place = np.empty(n), np.empty(n), np.empty(n, np.int64)
    u = -1
    for j in range(n):
        if j == 0 or down[j] != down[j - 1] or not merge:
            u += 1
            y[u] = (down[0] - down[j]) / scale
            w[u] = 0.0
        w[u] += 1.0
        place[origin[j]] = u
    return y[: u + 1], w[: u + 1], place


@kernel("i8, f8[::1], f8[::1], f8[::1], f8[::1]")
def tilt(kind, y, w, nodes, log_weights):
    """Log probability that one class of each level wins, and its law over the nodes (rows sum to 1)."""
    n_levels, n = y.size, nodes.size
    if kind == GAUSSIAN and y[-1] < NEAR and nodes[0] >= LOWEST and nodes[-1] + y[-1] < _HIGHEST:
        return _near_tilt(y, w, nodes, log_weights[0])
    logs = np.empty((n_levels, n))
    total = np.empty(n)
    for j in range(n):
        total[j] = 0.0
    for m in range(n_levels):
        for j in range(n):
            logs[m, j] = log_cdf(kind, nodes[j] + y[m])
            total[j] += w[m] * logs[m, j]
    log_q = np.empty(n_levels)
    for m in range(n_levels):
        peak = -math.inf
        for j in range(n):
            logs[m, j] = total[j] - logs[m, j] + log_pdf(kind, nodes[j] + y[m]) + log_weights[j]
            peak = max(peak, logs[m, j])
        mass = 0.0
        for j in range(n):
            g = logs[m, j] - peak
            logs[m, j] = math.exp(g) if g > _LEAST else 0.0
            mass += logs[m, j]
        for j in range(n):
            logs[m, j] /= mass
        log_q[m] = peak + math.log(mass)
    return log_q, logs


@kernel()
def _near_tilt(y, w, nodes, log_weight):
    """:func:`tilt` of Gaussian noise where nothing leaves the range of float64: no exponential a class."""
    n_levels, n = y.size, nodes.size
    law, total = np.empty((n_levels, n)), np.empty(n)
    for j in range(n):
        total[j] = 0.0
    step = (nodes[n - 1] - nodes[0]) / (n - 1)
    for m in range(n_levels):
        # the density from node to node: each is a product of the one before
        z = nodes[0] + y[m]
        density = math.exp(log_pdf(GAUSSIAN, z))
        ratio, bend = math.exp(-(z + 0.5 * step) * step), math.exp(-step * step)
        for j in range(n):
            log_phi, law[m, j] = log_cdf_and_score(nodes[j] + y[m], density)
            total[j] += w[m] * log_phi
            density *= ratio
            ratio *= bend
    for j in range(n):
        total[j] = math.exp(total[j])
    log_q = np.empty(n_levels)
    for m in range(n_levels):
        mass = 0.0
        for j in range(n):
            law[m, j] *= total[j]
            mass += law[m, j]
        share = 1.0 / mass
        for j in range(n):
            law[m, j] *= share
        log_q[m] = math.log(mass) + log_weight
    return log_q, law


@kernel("f8[:,::1], i8, f8, f8[:,::1], f8[:,:,::1]")
def _outcomes(counts, kind, scale, out, slope):
    """Log probabilities and, if ``slope`` has room, their derivatives by the count of each class."""
    for q in range(counts.shape[0]):
        y, w, place = levels(counts[q], counts[q], scale)
        nodes, log_weights = grid(kind, y, w, 0.0)
        log_q, law = tilt(kind, y, w, nodes, log_weights)
        for k in range(place.size):
            out[q, k] = min(0.0, log_q[place[k]])
        if q < slope.shape[0]:
            _slopes(kind, y, nodes, law, place, scale, slope[q])


@kernel()
def _slopes(kind, y, nodes, law, place, scale, slope):
    r = np.empty((y.size, nodes.size))
    for m in range(y.size):
        for j in range(nodes.size):
            r[m, j] = score(kind, nodes[j] + y[m])
    pull = np.empty((y.size, y.size))  # expected score of each level, where a class of each level wins
    for k in range(y.size):
        for i in range(y.size):
            pull[k, i] = 0.0
            for j in range(nodes.size):
                pull[k, i] += law[k, j] * r[i, j]
    for k in range(place.size):
        others = 0.0
        for i in range(place.size):
            if i != k:
                slope[k, i] = -pull[place[k], place[i]] / scale
                others += slope[k, i]
        slope[k, k] = -others

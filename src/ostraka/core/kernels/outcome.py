"""The outcome map: the exact probability of every outcome as a function of the votes.

With noise of density f and distribution function F on every count, class k wins with probability
Q_k(h) = integral of f(x - h_k) prod_{i != k} F(x - h_i) dx. All classes share one set of nodes, and
every integrand is kept as a normalised law of the winning level, so that whatever else is wanted
(gradients, the effect of one moved vote) is an expectation under it.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.compiled import kernel
from ostraka.core.kernels.grid import NEAR, grid, sort_down
from ostraka.core.kernels.noise import GAUSSIAN as GAUSSIAN  # noqa: PLC0414  (read from here)
from ostraka.core.kernels.noise import LAPLACE as LAPLACE  # noqa: PLC0414  (read from here)
from ostraka.core.kernels.noise import LOWEST, log_cdf, log_cdf_and_score, log_pdf, score

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST = -700.0  # nats: a node may hold little of a class's law, and most of its neighbour's
_HIGHEST = 37.0  # the density of the normal law is a normal float64 up to here


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
            _slope(kind, y, nodes, law, place, scale, slope[q])


@kernel()
def _slope(kind, y, nodes, law, place, scale, slope):
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

"""Quadrature nodes for the outcome map, which resolve the integrand of every class."""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel
from ostraka.core.kernels.noise import GAUSSIAN, score

# How far (in nats below its peak) an integrand is followed before it is cut: e^-34 = 2e-15.
_CUT = 34.0
NEAR = 12.0  # noise scales: where no class is further below the top, Gaussian nodes ascend in equal steps
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(12)


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

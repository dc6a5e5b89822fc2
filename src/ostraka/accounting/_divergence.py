"""Compiled: the upper envelope of many Rényi divergences, over many orders, without evaluating most."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

__all__ = ["largest_divergence"]

# Beyond this exponent a term may leave the range of float64, and logs are used throughout.
_SAFE = 300.0


@nb.njit(cache=True, nogil=True, error_model="numpy")
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
    q, linear, excess = np.empty((n_rows, size)), np.empty((n_rows, size)), np.empty((n_rows, size))
    low_k, high_k = np.zeros(n_rows), np.zeros(n_rows)
    steepest = 0.0
    for r in range(n_rows):
        for k in range(size):
            q[r, k], linear[r, k] = math.exp(log_q[r, k]), math.expm1(lam[r, k])
            excess[r, k] = linear[r, k]
            steepest = max(steepest, lam[r, k])
    low, first = 1.0, 0
    while first < orders.size and orders[first] < math.inf:
        high = low + 1.0 if low < 2.5 else 2.0 * low
        last = first
        while last < orders.size and orders[last] <= high:
            last += 1
        safe = high * steepest <= _SAFE
        following = np.empty((n_rows, size))
        best = 0
        for r in range(n_rows):
            if safe:
                _next_anchor(excess[r], linear[r], low, following[r])
                high_k[r] = math.log1p(_excess(q[r], following[r], linear[r], high))
            else:
                high_k[r] = _log_moment(log_q[r], lam[r], high)
            best = r if high_k[r] > high_k[best] else best
        for r in range(-1, n_rows):  # the best row first, then those whose chord rises above it
            row = best if r < 0 else r
            slope = (high_k[row] - low_k[row]) / (high - low)
            if r < 0 or _rises(low, low_k[row], slope, orders[first:last], out[first:last]):
                _walk(
                    log_q[row],
                    q[row],
                    lam[row],
                    linear[row],
                    excess[row],
                    low,
                    safe,
                    orders[first:last],
                    out[first:last],
                )
        low_k, high_k = high_k, low_k
        low, first, excess = high, last, following


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _next_anchor(excess, linear, low, following):
    """e^(high lam) - 1 from e^(low lam) - 1: one more factor e^lam below 3, the square from 3 on."""
    for k in range(excess.size):
        e = excess[k]
        following[k] = e * (2.0 + e) if low > 2.5 else e + linear[k] * (1.0 + e)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _rises(low, low_k, slope, orders, out):
    """Whether the chord leaves any room above the best so far."""
    for a in range(orders.size):
        if low_k + (orders[a] - low) * slope > out[a] * (orders[a] - 1.0):
            return True
    return False


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _walk(log_q, q, lam, linear, start, low, safe, orders, out):
    """One row at every order above the anchor ``low``."""
    n = q.size
    excess, gain = np.empty(n), np.empty(n)
    for k in range(n):
        excess[k] = start[k]
    step, before = 0.0, low
    for a in range(orders.size):
        if not safe:
            out[a] = max(out[a], _log_moment(log_q, lam, orders[a]) / (orders[a] - 1.0))
            continue
        if orders[a] - before != step:
            step = orders[a] - before
            for k in range(n):
                gain[k] = math.expm1(step * lam[k])
        before = orders[a]
        for k in range(n):
            excess[k] += gain[k] * (1.0 + excess[k])
        total = _excess(q, excess, linear, orders[a])
        if total > out[a] * (orders[a] - 1.0):  # log1p(x) <= x: no smaller total can raise the maximum
            out[a] = max(out[a], math.log1p(total) / (orders[a] - 1.0))


@nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _excess(q, excess, linear, order):
    total = 0.0
    for k in range(q.size):
        total += q[k] * (excess[k] - order * linear[k])
    return max(total, 0.0)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _log_moment(log_q, lam, order):
    """The same where terms leave the range of float64: log of 1 + sum, each term by its log."""
    total = -math.inf
    for k in range(lam.size):
        reach = order * lam[k]
        if log_q[k] == -math.inf or lam[k] == 0.0:
            continue
        if abs(reach) < 1e-5:  # e^(order lam) - 1 - order (e^lam - 1), by its series
            term = math.log(order - 1.0) + math.log1p((order + 1.0) * lam[k] / 3.0)
            term += math.log(0.5 * order) + 2.0 * math.log(abs(lam[k]))
        elif reach < 30.0:
            term = math.log(math.expm1(reach) - order * math.expm1(lam[k]))
        else:
            term = reach + math.log1p((order - 1.0) * math.exp(-reach) - order * math.exp(lam[k] - reach))
        term += log_q[k]
        total = max(total, term) + math.log1p(math.exp(-abs(total - term)))
    return total if total > 40.0 else math.log1p(math.exp(total))

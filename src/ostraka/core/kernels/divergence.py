"""Compiled: the upper envelope of many Rényi divergences, over many orders, without evaluating most."""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel

# Beyond this exponent a term may leave the range of float64, and logs are used throughout.
_SAFE = 300.0


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

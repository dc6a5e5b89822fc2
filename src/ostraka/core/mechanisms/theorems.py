"""The formulas of Papernot et al. 2017 and 2018 for one query, over arrays, in logarithms, rounded up."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ostraka.core.curve import ORDERS

_TINY = float(np.finfo(float).tiny)  # a positive cost that underflows is still positive


def log_q_gaussian(counts: np.ndarray, sigma: float) -> np.ndarray:
    """Prop. 7: log of the union bound on Pr[outcome != plurality], never above log(1 - 1/n_classes)."""
    return union_gaussian(_behind(counts), sigma)


def log_q_laplace(counts: np.ndarray, scale: float) -> np.ndarray:
    """Lemma 4 of 2017: the same bound for Laplace noise."""
    return union_laplace(_behind(counts), scale)


def union_gaussian(behind: np.ndarray, sigma: float) -> np.ndarray:
    """Prop. 7 from the gap of each other class to the plurality, in votes, at most 0."""
    return _union(scipy.special.log_ndtr(behind / (math.sqrt(2) * sigma)))


def union_laplace(behind: np.ndarray, scale: float) -> np.ndarray:
    """Lemma 4 of 2017: the same bound for Laplace noise."""
    return _union(np.log((2 - behind / scale) / 4) + behind / scale)


def _behind(counts: np.ndarray) -> np.ndarray:
    return np.asarray(np.sort(counts, axis=1)[:, :-1] - counts.max(axis=1, keepdims=True))


def _union(log_each: np.ndarray) -> np.ndarray:
    peak = log_each.max(axis=1)
    total = peak + np.log(np.exp(log_each - peak[:, None]).sum(axis=1))
    total += 1e-14 * (
        1 + np.abs(total)
    )  # either theorem holds for any q that is no smaller than the true one
    return np.asarray(np.minimum(total, math.log1p(-1 / (log_each.shape[1] + 1))))


def theorem6(log_q: np.ndarray, sigma: float, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Theorem 6, mu1 and mu2 by Prop. 10, for a Rényi cost of order / sigma**2; shape (queries, orders).

    In the paper: λ = order, q̃ = q, ε(μ) = μ / sigma².
    """
    log_q, order = log_q[:, None], np.array(orders)[None, :]
    cap = order / sigma**2 * np.ones_like(log_q)
    mu2 = sigma * np.sqrt(-log_q)
    mu1 = mu2 + 1
    eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        ceiling = (mu2 - 1) * eps2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        applies = (mu2 > 1) & (log_q <= ceiling) & (log_q + eps2 < 0) & (order <= mu1)
        log_rest = _log1mexp(log_q)
        log_a = (order - 1) * (log_rest - _log1mexp((log_q + eps2) * (1 - 1 / mu2)))
        log_b = (order - 1) * (eps1 - log_q / (mu1 - 1))
        bound = _round(
            np.logaddexp(log_rest + log_a, log_q + log_b) / (order - 1), np.abs(log_q) + np.abs(log_b)
        )
    return np.where(applies & (bound < cap), bound, cap)


def theorem3(log_q: np.ndarray, pure: float, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Theorem 3 of 2017 in Rényi form for a pure-DP mechanism; shape (queries, orders).

    In the paper: l = order - 1, 2γ = pure; moment(l) = l * rdp.
    """
    log_q, order = log_q[:, None], np.array(orders)[None, :]
    cap = np.minimum(pure, order * pure**2 / 2) * np.ones_like(log_q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        applies = log_q < -np.logaddexp(0, pure)
        log_rest = _log1mexp(log_q)
        likely = order * log_rest - (order - 1) * _log1mexp(log_q + pure)
        unlikely = log_q + (order - 1) * pure
        bound = _round(np.logaddexp(likely, unlikely) / (order - 1), np.abs(log_q) + np.abs(unlikely))
    return np.where(applies & (bound < cap), bound, cap)


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """log(1 - e^x) for x < 0, NaN beyond (Mächler 2012)."""
    small = np.exp(x)
    return np.asarray(np.where(small < 0.5, np.log1p(-small), np.log(-np.expm1(x))))


def _round(value: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Round up by the error of an exponential of this size; a value that underflows stays positive."""
    return np.asarray(np.maximum(value * (1 + 4e-16 * (16 + exponents)), _TINY))

"""Lower bounds on Rényi divergences of laws, known exactly or within intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

__all__ = ["Found", "between_boxes", "of_coins", "of_laws"]

_DOWN, _ROUNDING = 1 - 1e-12, 1e-14


@dataclass(frozen=True, slots=True)
class Found:
    """Divergences in both directions at each order, and the set of outcomes that gave the larger."""

    forward: np.ndarray
    reverse: np.ndarray
    cuts: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, forward: np.ndarray, reverse: np.ndarray) -> Self:
        """Return divergences without a set of outcomes that gave them."""
        return cls(forward, reverse, ((),) * forward.size)


def of_coins(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D(p ‖ q) of coins, nats, rounded down: one row an order, one column a pair."""
    p, q = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64))
    return of_laws(np.stack([p, 1 - p], axis=-1), np.stack([q, 1 - q], axis=-1), orders)


def of_laws(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D(p ‖ q) over the last axis, nats, at least 0, rounded down; a new first axis for the orders."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, ratio = np.log(p), np.log(p) - np.log(q)
    ratio = np.where(p > 0, ratio, -np.inf)
    size = np.abs(np.where(np.isfinite(ratio), ratio, 0.0)).max(axis=-1)
    rows = []
    for order in orders:
        if np.isinf(order):
            rows.append(ratio.max(axis=-1) - _ROUNDING)
            continue
        terms = np.where(p > 0, log_p + (order - 1) * ratio, -np.inf)
        doubt = _ROUNDING * (1 + order * size)  # of the logarithm: equal laws must come out as 0
        rows.append((np.logaddexp.reduce(terms, axis=-1) - doubt) / (order - 1))
    return np.maximum(0.0, np.stack(rows) * _DOWN)


def between_boxes(
    low_p: np.ndarray, high_p: np.ndarray, low_q: np.ndarray, high_q: np.ndarray, orders: np.ndarray
) -> np.ndarray:
    """At each order a lower bound on D(p ‖ q) over all laws p and q within their boxes.

    sum p^order q^(1 - order) is jointly convex and homogeneous: it lies above each of its tangent planes
    g_p . p + g_q . q, and a plane's minimum over a box of laws is exact. The best of a few planes counts.
    """
    mid_p, mid_q = (_as_law((low + high) / 2) for low, high in ((low_p, high_p), (low_q, high_q)))
    best = np.zeros(orders.size)
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):  # from the middle of the boxes towards where they are closest
        p = _as_law(np.clip(mid_p + part * (mid_q - mid_p), low_p, high_p))
        q = _as_law(np.clip(mid_q + part * (mid_p - mid_q), low_q, high_q))
        ratio = np.log(p) - np.log(q)
        for place, order in enumerate(orders):
            if np.isinf(order):
                continue
            top = max(0.0, order * ratio.max())  # keeps the powers finite
            least = _least(order * np.exp((order - 1) * ratio - top), low_p, high_p) + _least(
                (1 - order) * np.exp(order * ratio - top), low_q, high_q
            )
            if least > 0:
                doubt = _ROUNDING * (1 + top + order * np.abs(ratio).max())
                best[place] = max(best[place], (np.log(least) + top - doubt) / (order - 1))
    with np.errstate(divide="ignore"):
        pure = max(0.0, float(np.log(low_p / high_q).max()))
    return np.where(np.isinf(orders), pure, best) * _DOWN


def _least(slope: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Minimum of slope . x over low <= x <= high with sum x = 1: smallest slopes are filled first."""
    order = np.argsort(slope)
    left = max(0.0, 1 - low.sum())
    room = (high - low)[order]
    filled = np.clip(left - (np.cumsum(room) - room), 0, room)
    return float((slope * low).sum() + (slope[order] * filled).sum())


def _as_law(x: np.ndarray) -> np.ndarray:
    x = np.maximum(x, 1e-300)
    return np.asarray(x / x.sum())

"""Which items go together: co-counts drawn to independence by as much as their noise outweighs the spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ostraka.collect.encodings import Pairs

__all__ = ["ranked", "similarity"]

_FLOOR = 1e-12
_POWER = 1.5  # variance of co-counts grows so with what independence expects; see docs/collect.md


def similarity(counts: np.ndarray, encoding: Pairs, n_clients: int, variance: float) -> np.ndarray:
    """Return the likelihood of each column's item given the row's item; popularity on the diagonal.

    Not the cosine: dividing by the count of a rare item raises what is mostly noise.
    """
    rows, columns = np.triu_indices(encoding.items)
    full = np.zeros((encoding.items, encoding.items))
    full[rows, columns] = full[columns, rows] = counts[encoding.place(rows, columns)]
    least = math.sqrt(variance) + _FLOOR
    own = np.maximum(np.diag(full), least)
    own = np.maximum(_pooled(full, own, n_clients, variance), least)
    expected = np.outer(own, own) / n_clients
    noise = variance + expected + _FLOOR
    signal = _signal(full, expected, noise)
    shrunk = expected + signal / (signal + noise) * (full - expected)
    found = shrunk / own[:, None]
    np.fill_diagonal(found, own)
    return np.asarray(found)


def _signal(full: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the variance of co-counts about ``expected`` without noise, fitted as a power of it."""
    shape = expected**_POWER
    weight = _off_diagonal(shape / noise**2)
    excess = (full - expected) ** 2 - noise
    return np.asarray(max(float((weight * excess).sum() / (weight * shape).sum()), 0.0) * shape)


def _pooled(full: np.ndarray, own: np.ndarray, n_clients: int, variance: float) -> np.ndarray:
    """Return counts of items by generalised least squares from their own cells and their co-counts."""
    # a co-count is about lift * own * share of the other item, with one lift for all pairs
    share = own / n_clients
    expected = np.outer(own, share)
    noise = variance + expected + _FLOOR
    known = _off_diagonal(expected / noise)
    lift = max(float((known * full).sum() / (known * expected).sum()), 0.0)
    weight = _off_diagonal(1 / (noise + _signal(full, lift * expected, noise)))
    precision = lift**2 * (share[:, None] ** 2 * weight).sum(axis=0)
    seen = lift * (share[:, None] * weight * full).sum(axis=0)
    return np.asarray((own + variance * seen) / (1 + variance * precision))


def _off_diagonal(table: np.ndarray) -> np.ndarray:
    np.fill_diagonal(table, 0.0)
    return table


def ranked(likelihood: np.ndarray, basket: Any, n: int) -> np.ndarray:
    """Return the items that are likeliest with those of a basket; ValueError if one of these is no item."""
    chosen = np.unique(np.asarray(basket, dtype=np.int64))
    if len(chosen) and not (chosen[0] >= 0 and chosen[-1] < len(likelihood)):
        raise ValueError(f"items of the basket must be 0 to {len(likelihood) - 1}")
    score = likelihood[chosen].sum(axis=0) if len(chosen) else np.diag(likelihood).copy()
    score[chosen] = -np.inf
    return np.argsort(-score, kind="stable")[: min(n, len(likelihood) - len(chosen))]

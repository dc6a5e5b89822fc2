"""The graph of public rows: nearest rows under small changes, and its smooth features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["affinity", "nearest", "smooth"]

_BLOCK = 1 << 22  # distances at a time
_DENSE = 1000  # rows up to which all eigenvectors are computed


def nearest(rows: np.ndarray, versions: Sequence[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` nearest public rows of each row, nearest first, and their squared distances.

    ``versions`` are the public rows under each small change; the distance is the least over them. All
    numbers are integers (``_fixed``), sums are exact, and a row's result depends on no other row.
    """
    n_public = len(versions[0])
    sizes = [np.einsum("ij,ij->i", version, version) for version in versions]
    k = min(k, n_public)
    places, distances = np.empty((len(rows), k), np.int64), np.empty((len(rows), k))
    step = max(1, _BLOCK // n_public)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        least = np.full((len(block), n_public), np.inf, dtype=np.float32)
        for version, size in zip(versions, sizes, strict=True):
            np.minimum(least, size - 2 * (block @ version.T), out=least)
        near = _smallest(least, k)
        places[start : start + step] = near
        own = np.einsum("ij,ij->i", block, block)
        distances[start : start + step] = np.take_along_axis(least, near, axis=1) + own[:, None]
    return places, np.maximum(distances, 0.0)


def affinity(places: np.ndarray, distances: np.ndarray) -> scipy.sparse.csr_array:
    """Weights exp(-d² / s_i s_j) between a row and its nearest ones; s is the distance of the furthest."""
    n, k = places.shape
    spread = np.sqrt(distances[:, -1]) + 1e-12
    ends = np.repeat(np.arange(n), k), places.ravel()
    weights = np.exp(-distances.ravel() / (spread[ends[0]] * spread[ends[1]]))
    one_way = scipy.sparse.csr_array((weights + 1e-9, ends), shape=(n, n))
    return scipy.sparse.csr_array(one_way.maximum(one_way.T))


def smooth(weights: scipy.sparse.csr_array, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of the normalised graph, falling, and their vectors as columns."""
    degree = 1 / np.sqrt(weights.sum(axis=1))
    normal = weights.multiply(degree[:, None]).multiply(degree[None]).tocsr()
    if weights.shape[0] <= max(_DENSE, 3 * n_features):
        values, vectors = np.linalg.eigh(normal.toarray())
    else:
        start = np.random.default_rng(0).normal(size=weights.shape[0])
        values, vectors = eigsh(normal, k=n_features, which="LA", v0=start, tol=1e-6)
    order = np.argsort(-values)[:n_features]
    return values[order], vectors[:, order]


def _smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k smallest numbers of each line, smallest first."""
    if k == 1:
        return np.asarray(values.argmin(axis=1)[:, None])
    some = np.argpartition(values, min(k, values.shape[1] - 1), axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, some, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(some, order, axis=1))

"""Parts of Lloyd's iteration: random features, nearest centres, noisy sums and sizes of clusters."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ostraka.mechanisms import sums

__all__ = ["SEVERAL", "Found", "Summed", "bounded", "nearest", "random_features", "refilled", "size_noise"]

_BLOCK = 4096  # rows
SEVERAL = 3.0  # standard deviations of the noise of a size; smaller clusters count as empty
_FARTHEST = 1e15
_FLOAT32 = 2**24  # whole numbers up to here are exact in single precision, and so are their sums


def bounded(rows: np.ndarray) -> np.ndarray:
    """The rows, with numbers cut at 1e15, so that neither a length nor an angle of a row overflows."""
    if rows.size and max(float(rows.max()), -float(rows.min())) > _FARTHEST:
        return np.asarray(np.clip(rows, -_FARTHEST, _FARTHEST))
    return rows


def random_features(X: np.ndarray, *, n_components: int, gamma: float, seed: int) -> np.ndarray:
    """[cos, sin] of random projections, of length exactly 1; float32 of shape (n_rows, n_components).

    Inner products estimate exp(-gamma distance²): Rahimi and Recht 2007, with pairs of one phase each.
    """
    n_pairs = n_components // 2
    directions = np.random.default_rng(seed).normal(0.0, math.sqrt(2 * gamma), (X.shape[1], n_pairs))
    found = np.empty((len(X), n_components), dtype=np.float32)
    directions = directions.astype(np.float32)
    for begin in range(0, len(X), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        angles = X[block].astype(np.float32) @ directions
        np.cos(angles, out=found[block, :n_pairs])
        np.sin(angles, out=found[block, n_pairs:])
    found /= np.float32(math.sqrt(n_pairs))
    return found


def nearest(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The place of the nearest centre of each row."""
    centres = centres.astype(rows.dtype)
    found = np.empty(len(rows), dtype=np.int64)
    half = np.einsum("ij,ij->i", centres, centres) / 2
    for begin in range(0, len(rows), _BLOCK):
        near = rows[begin : begin + _BLOCK] @ centres.T
        near -= half
        found[begin : begin + _BLOCK] = near.argmax(axis=1)
    return found


class Found(NamedTuple):
    """Noisy sums and sizes of clusters. Public."""

    sums: np.ndarray  # (n_clusters, width)
    sizes: np.ndarray  # (n_clusters,)
    sigma: float  # noise of a number of sums
    doubt: float  # noise of a size
    former: np.ndarray | None = None  # centres to keep for clusters that seem empty

    @property
    def empty(self) -> np.ndarray:
        """Whether each cluster is no larger than noise."""
        return self.sizes < max(SEVERAL * self.doubt, 1.0)

    def means(self, former: np.ndarray | None = None) -> np.ndarray:
        """Means of clusters; those that seem empty keep their former centre, or get 0."""
        former = self.former if former is None else former
        means = denoised(self.sums, self.sigma) / np.maximum(self.sizes, 1.0)[:, None]
        means[self.empty] = 0.0 if former is None else former[self.empty]
        return np.asarray(means)


def size_weight(width: int) -> float:
    """Weight of a row's size beside its columns in a noisy sum; the best where all columns are alike."""
    return float(width**-0.25)


def size_noise(sigma: float, width: int) -> float:
    """Standard deviation of a noisy size."""
    return sigma * math.hypot(1.0, size_weight(width)) / size_weight(width)


class Summed:
    """Private rows on the grid of their sums, each with its share of a size beside it."""

    def __init__(self, rows: np.ndarray, shares: np.ndarray, *, sigma: float) -> None:
        self.weight = size_weight(rows.shape[1])
        self.stretch = math.hypot(1.0, self.weight)
        self.sigma = sigma
        longest = sums.longest(sigma)
        narrow = longest * _BLOCK < _FLOAT32
        self.grid = np.empty((len(rows), rows.shape[1] + 1), dtype=np.float32 if narrow else np.float64)
        for begin in range(0, len(rows), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            both = np.empty((len(shares[block]), self.grid.shape[1]))
            both[:, :-1], share = rows[block], shares[block] / self.stretch
            far = np.sqrt(np.einsum("ij,ij->i", both[:, :-1], both[:, :-1]))
            both[:, :-1] *= (share / np.maximum(1.0, far))[:, None]
            both[:, -1] = self.weight * share
            self.grid[block] = sums.on_grid(both, sigma=sigma, shares=shares[block])

    def scaled(self, centres: np.ndarray) -> np.ndarray:
        """Centres in the units of the grid."""
        return np.asarray(centres * (sums.units(self.sigma) / self.stretch))

    def release(self, member: np.ndarray, n_clusters: int, *, rng: np.random.Generator) -> Found:
        """Noisy sums and sizes of the clusters that rows are members of."""
        totals = np.zeros((n_clusters, self.grid.shape[1]))
        for begin in range(0, len(self.grid), _BLOCK):  # sums of a block are exact whole numbers
            block = slice(begin, begin + _BLOCK)
            one_hot = member[block] == np.arange(n_clusters)[:, None]
            totals += one_hot.astype(self.grid.dtype) @ self.grid[block]
        noisy = sums.with_noise(totals, sigma=self.sigma, rng=rng) * self.stretch
        return Found(
            noisy[:, :-1],
            noisy[:, -1] / self.weight,
            self.sigma * self.stretch,
            size_noise(self.sigma, self.grid.shape[1] - 1),
        )


def denoised(table: np.ndarray, sigma: float) -> np.ndarray:
    """The table with its singular values shrunk by the rule for noise of this size.

    Source: Gavish and Donoho 2017, arXiv:1405.7511, equation 7 (Frobenius loss).
    """
    short, long = sorted(table.shape)
    if short < 3:
        return table
    left, size, right = np.linalg.svd(table, full_matrices=False)
    scaled, ratio = size / (sigma * math.sqrt(long)), short / long
    inside = np.maximum((scaled**2 - ratio - 1) ** 2 - 4 * ratio, 0.0)
    kept = np.where(scaled > 1 + math.sqrt(ratio), np.sqrt(inside) / np.maximum(scaled, 1e-12), 0.0)
    return np.asarray((left * (kept * sigma * math.sqrt(long))) @ right)


def refilled(centres: np.ndarray, found: Found, of_class: np.ndarray, *, seed: int) -> np.ndarray:
    """Each cluster that seems empty starts anew, close to the largest of its class."""
    rng = np.random.default_rng(seed)
    centres, sizes = centres.copy(), found.sizes.copy()
    for j in np.flatnonzero(found.empty):
        own = np.flatnonzero(of_class == of_class[j])
        largest = own[sizes[own].argmax()]
        step = rng.normal(size=centres.shape[1])
        centres[j] = centres[largest] + 0.05 * step / np.linalg.norm(step)
        sizes[largest] /= 2
    return centres

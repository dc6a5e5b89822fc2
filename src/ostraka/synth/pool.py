"""Rows that a generator of numbers draws, as codes of a table: one column of numbers for each code.

A row has the number 1 at each of its codes, and 0 elsewhere. So all rows are equally long, and a centre
holds the shares of the codes: a cluster is a product of distributions. What is drawn once is kept as a pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.synth.dpgm import DPGM
from ostraka.synth.evolution import Evolution
from ostraka.synth.kmeans import PrivateKMeans

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS = ("kmeans", "dpgm", "evolution")
MOST_CODES = 2_000  # of all columns together
_FEWEST, _MOST = 2_000, 100_000  # rows of a pool
_CANDIDATES, _ROUNDS, _CHANGED = 400, 12, 0.25
_FLOOR = 1e-9


class Pool:
    """Rows that were generated once, with weights. Public."""

    def __init__(self, codes: np.ndarray, weights: np.ndarray, *, n_rows: float) -> None:
        self.codes, self.weights, self.n_rows = codes, weights / weights.sum(), n_rows

    def draw(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """Codes of so many rows in random order, int64, by systematic resampling."""
        below = np.cumsum(self.weights)
        at = (np.arange(n_rows) + rng.random()) / max(n_rows, 1) * below[-1]
        chosen = np.minimum(np.searchsorted(below, at), len(self.codes) - 1)
        return np.asarray(rng.permutation(self.codes[chosen].astype(np.int64)))

    def tilted(self, column: int, factors: np.ndarray) -> Pool:
        """The rows, each as often as the factor of its code in one column says."""
        counts = factors[self.codes[:, column]]
        return Pool(self.codes, self.weights * counts, n_rows=self.n_rows * float(self.weights @ counts))


def numbers(codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """One number for each code of each column, float32: 1 where the row has it."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.zeros((len(codes), starts[-1]), dtype=np.float32)
    rows[np.arange(len(codes))[:, None], codes + starts[:-1]] = 1
    return rows


def codes_of(rows: np.ndarray, sizes: Sequence[int], *, rng: np.random.Generator) -> np.ndarray:
    """Codes drawn by the numbers of each column, as far as they are positive; uint16."""
    codes, begin = np.empty((len(rows), len(sizes)), dtype=np.uint16), 0
    for j, size in enumerate(sizes):
        below = np.cumsum(np.maximum(rows[:, begin : begin + size], _FLOOR), axis=1)
        at = rng.random((len(rows), 1)) * below[:, -1:]
        codes[:, j] = np.minimum((below <= at).sum(axis=1), size - 1)
        begin += size
    return codes


class NumberModel:
    """A generator of rows of numbers which learns a table.

    Parameters
    ----------
    method : {"kmeans", "dpgm", "evolution"}
    sizes : tuple of int
        Number of codes of each column. Public.
    target : int or None
        Clusters are of its classes each. Public.
    epsilon, delta : float
    """

    def __init__(
        self, method: str, sizes: tuple[int, ...], target: int | None, *, epsilon: float, delta: float
    ) -> None:
        check.one_of(method=method, allowed=METHODS)
        if sum(sizes) > MOST_CODES:
            raise ValueError(
                f"method {method!r} takes at most {MOST_CODES:,} codes of all columns together, got "
                f"{sum(sizes):,}: take fewer codes, or method='particles'"
            )
        self.method, self.sizes = method, sizes
        self.target = None if method == "evolution" else target
        self.features = [j for j in range(len(sizes)) if j != self.target]
        if not self.features:
            raise ValueError("a table must have one column or more beside the target")
        self.model = self._model(epsilon, delta)

    def mechanism(self) -> Any:
        """What is released, with the least noise that keeps (epsilon, delta)."""
        if self.method == "evolution":
            return self.model.mechanism()
        n_classes = 1 if self.target is None else self.sizes[self.target]
        n_features = sum(self.sizes[j] for j in self.features)
        return self.model.mechanism(n_features=n_features, n_classes=n_classes)

    def fit(self, codes: np.ndarray, **how: Any) -> Pool:
        """Charge, release, and draw the pool. ``codes`` are private; the pool is public."""
        sizes = [self.sizes[j] for j in self.features]
        rng = np.random.default_rng(0)  # of the pool, which is public
        if self.method == "evolution":
            self.model.fit(numbers(codes, sizes), **how)
            votes = np.maximum(self.model.votes_ - 2 * self.model.mechanism_.sigma, 0.0)
            weights = votes if votes.any() else np.ones(len(votes))
            return Pool(self.model.candidates_, weights, n_rows=float(self.model.votes_.sum()))
        labels: dict[str, Any] = {}
        if self.target is not None:
            labels = {"y": codes[:, self.target], "classes": list(range(self.sizes[self.target]))}
        self.model.fit(numbers(codes[:, self.features], sizes), **labels, **how)
        n_rows = float(np.maximum(self.model.cluster_sizes_, 0).sum())
        n_pool = int(min(max(n_rows, _FEWEST), _MOST))
        rows, members = self.model.sample(n_pool, random_state=0)
        pool = np.zeros((n_pool, len(self.sizes)), dtype=np.uint16)
        pool[:, self.features] = codes_of(rows, sizes, rng=rng)
        if self.target is not None:
            pool[:, self.target] = members
        return Pool(pool, np.ones(n_pool), n_rows=n_rows)

    def _model(self, epsilon: float, delta: float) -> Any:
        if self.method == "kmeans":
            return PrivateKMeans(10, longest=len(self.features) ** 0.5, epsilon=epsilon, delta=delta)
        if self.method == "dpgm":
            return DPGM(4, generator="gaussian", epsilon=epsilon, delta=delta)
        sizes = np.array(self.sizes)
        first = np.random.default_rng(0).integers(0, sizes, (_CANDIDATES, len(sizes))).astype(np.uint16)

        def vary(winners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            other = rng.integers(0, sizes, winners.shape)
            return np.where(rng.random(winners.shape) < _CHANGED, other, winners).astype(np.uint16)

        return Evolution(
            first,
            vary=vary,
            embed=lambda rows: numbers(rows, self.sizes),
            n_rounds=_ROUNDS,
            epsilon=epsilon,
            delta=delta,
        )

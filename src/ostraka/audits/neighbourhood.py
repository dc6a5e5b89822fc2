"""Private-kNN as a system under audit: the law of its votes, with and without a target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

from ostraka import _check
from ostraka.audits.models import VoteModel
from ostraka.private import Adjacency, Private

__all__ = ["NeighbourWorlds"]

_CHUNK = 100
_NEVER = 1e-15  # chance below which a row is taken to be out of reach


class NeighbourWorlds:
    """Private-kNN as a system under audit: votes are the labels of the nearest rows of a fresh sample.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Distances are Euclidean.
    y : integer array of shape (n_rows,)
        Class indices.
    n_classes, n_neighbours : int
    sampling_rate : float in (0, 1]
        Probability that a row takes part in an answer.

    Raises
    ------
    ValueError
        Another sampling rate, or fewer than one neighbour.

    Guarantees
    ----------
    :meth:`models` has the laws that the published model asks for, to 1e-12; :meth:`pairs` draws from the
    system itself. Source: Chadha et al. 2024, arXiv:2402.09403, section 6 and appendix D.3.

    Examples
    --------
    >>> X = np.arange(20.0)[:, None]
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> system.expected(np.array([[0.2]])).round(2)
    array([[2.12, 1.88]])
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, *, n_classes: int, n_neighbours: int, sampling_rate: float
    ) -> None:
        _check.integer(n_neighbours=n_neighbours, n_classes=n_classes, least=1)
        if not 0 < sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be > 0 and <= 1, got {sampling_rate!r}")
        self._X, self._y = np.asarray(X), np.asarray(y)
        self._squares = np.einsum("ij,ij->i", self._X, self._X)
        self._n_classes, self._k, self._rate = n_classes, n_neighbours, sampling_rate
        ranks = np.arange(len(self._y))
        # P[fewer than k of the nearer rows take part], times the row's own chance
        self._reached = sampling_rate * scipy.stats.binom.cdf(n_neighbours - 1, ranks, sampling_rate)
        self._last = sampling_rate * scipy.stats.binom.pmf(n_neighbours - 1, ranks, sampling_rate)
        self._enough = min(len(ranks), int((self._reached > _NEVER).sum()) + 1)
        self._cache: tuple[bytes, list[_Near]] | None = None

    def expected(self, queries: np.ndarray) -> np.ndarray:
        """Mean votes without the target, shape (n_queries, n_classes)."""
        return np.array([near.votes for near in self._near(queries)])

    def models(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[VoteModel]:
        """A model of the votes on each query, where row j with label j is the target of query j."""
        far = np.square(np.asarray(queries) - rows).sum(axis=1)
        return [
            VoteModel.neighbours(
                near.votes / near.votes.sum(),
                near.last / near.last.sum(),
                n_neighbours=self._k,
                label=int(labels[j]),
                reached=float(self._reached[min(int(np.searchsorted(near.far, far[j])), len(self._y) - 1)]),
            )
            for j, near in enumerate(self._near(queries))
        ]

    def pairs(
        self, query: np.ndarray, row: np.ndarray, *, label: int, n_draws: int, rng: np.random.Generator
    ) -> tuple[Private, Private]:
        """Votes with the target and without, drawn from the system: the same rows take part in a pair."""
        order = np.argsort(self._distances(np.asarray(query)[None])[0], kind="stable")
        rank = int((self._distances(np.asarray(query)[None])[0] < np.square(query - row).sum()).sum())
        taken = np.cumsum(rng.geometric(self._rate, size=(n_draws, self._k)), axis=1) - 1
        nobody = self._n_classes
        names = np.append(self._y[order], nobody)[np.minimum(taken, len(order))]
        without = np.stack([(names == c).sum(axis=1) for c in range(nobody)], axis=1)
        joins = (rng.random(n_draws) < self._rate) & (taken[:, -1] >= rank)
        one = np.eye(nobody + 1, dtype=np.int64)[:, :nobody]
        present = without + joins[:, None] * (one[label] - one[names[:, -1]])
        return Private(present, Adjacency.one_ballot()), Private(without, Adjacency.one_ballot())

    def _near(self, queries: np.ndarray) -> list[_Near]:
        name = np.ascontiguousarray(queries).tobytes()
        if self._cache is None or self._cache[0] != name:
            starts = range(0, len(queries), _CHUNK)
            chunks = (self._distances(np.asarray(queries[start : start + _CHUNK])) for start in starts)
            self._cache = name, [self._seen(far) for chunk in chunks for far in chunk]
        return self._cache[1]

    def _seen(self, far: np.ndarray) -> _Near:
        near = np.argpartition(far, self._enough - 1)[: self._enough]
        near = near[np.argsort(far[near], kind="stable")]
        votes, last = (
            np.bincount(self._y[near], weights=weights[: near.size], minlength=self._n_classes)
            for weights in (self._reached, self._last)
        )
        return _Near(votes=votes, last=last, far=far[near])

    def _distances(self, queries: np.ndarray) -> np.ndarray:
        """Squared, shape (n_queries, n_rows)."""
        own = np.einsum("ij,ij->i", queries, queries)
        return np.asarray(self._squares - 2 * queries @ self._X.T + own[:, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Near:
    """Mean votes of one query, the law of its last neighbour's label, and sorted squared distances."""

    votes: np.ndarray
    last: np.ndarray
    far: np.ndarray

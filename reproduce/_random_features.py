"""Teachers of the audits' reproduction: one hidden layer drawn at random, the last one by ridge regression.

All teachers of a training share the hidden layer, which each training draws anew, as the start of a neural
network would be. What a teacher says after one more row follows from the rank-one update, so that a
thousand targets cost one training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

N_HIDDEN, RIDGE = 160, 0.05


class RandomFeatures:
    """A ``Training`` of the audits: 250 teachers, dealt anew or fixed, all solved at once."""

    def __init__(self, X: np.ndarray, y: np.ndarray, *, n_teachers: int, n_classes: int, fixed: bool) -> None:
        self._X, self._y = X.astype(np.float32), y
        self._n_teachers, self.n_classes, self.fixed = n_teachers, n_classes, fixed

    def ballots(
        self,
        queries: np.ndarray,
        *,
        learnt: tuple[np.ndarray, np.ndarray] | None = None,
        teachers: Sequence[int] | None = None,
        rng: np.random.Generator,
    ) -> np.ndarray:
        n_each = len(self._y) // self._n_teachers
        order = np.arange(len(self._y)) if self.fixed else rng.permutation(len(self._y))
        shards = order[: n_each * self._n_teachers].reshape(self._n_teachers, n_each)
        hidden = rng.normal(size=(self._X.shape[1] + 1, N_HIDDEN)).astype(np.float32)
        hidden /= np.sqrt(self._X.shape[1] / 8)
        hidden_queries = layer(np.asarray(queries, dtype=np.float32), hidden)
        if learnt is not None:
            single = learnt[0].strides[0] == 0  # one row, shown as many
            rows = layer(np.asarray(learnt[0][:1] if single else learnt[0], dtype=np.float32), hidden)
            truth = np.eye(self.n_classes, dtype=np.float32)[learnt[1]]
        shards = shards if teachers is None else shards[list(teachers)]
        ballots = np.empty((len(shards), len(queries)), dtype=np.int64)
        for teacher, shard in enumerate(shards):
            inner = layer(self._X[shard], hidden)
            target = np.eye(self.n_classes, dtype=np.float32)[self._y[shard]] - 1 / self.n_classes
            inverse = np.linalg.inv(inner.T @ inner + RIDGE * n_each * np.eye(N_HIDDEN, dtype=np.float32))
            weights = inverse @ (inner.T @ target)
            scores = hidden_queries @ weights
            if learnt is not None:
                turned = rows @ inverse
                own_scores = np.einsum("ij,ij->i", turned, rows)
                query_scores = (
                    hidden_queries @ turned[0] if single else np.einsum("ij,ij->i", hidden_queries, turned)
                )
                wrong = truth - 1 / self.n_classes - rows @ weights
                scores = scores + (query_scores / (1 + own_scores))[:, None] * wrong
            ballots[teacher] = scores.argmax(axis=1)
        return ballots


def layer(X: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Values of the hidden layer; the last row of ``hidden`` is the bias."""
    return np.maximum(X @ hidden[:-1] + hidden[-1], 0)

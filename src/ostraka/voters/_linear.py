"""Linear teachers as one matrix: all teachers vote in one matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from ostraka.voters import TeacherEnsemble

__all__ = ["Stack"]

# Two orders of summing d products differ by less than this times (d + 2) machine epsilons of their size.
_ROUNDING = 8.0


class Stack:
    """Every teacher's scores for every class, weights of shape (n_classes, n_features, n_teachers).

    Where a teacher's two best scores are closer than rounding errors, that teacher predicts that row
    alone. So a row's votes do not depend on the other rows of the batch.
    """

    def __init__(self, ensemble: TeacherEnsemble, weights: np.ndarray, offsets: np.ndarray) -> None:
        self._ensemble = ensemble
        self._weights, self._offsets = weights, offsets[:, None, :]
        self._counter = np.uint16 if offsets.shape[1] < 1 << 16 else np.int64  # a smaller type is faster
        known = np.where(np.isfinite(offsets), np.abs(offsets), 0.0)
        self._largest = np.abs(weights).max(), known.max()
        self._ulp = _ROUNDING * (weights.shape[1] + 2) * np.finfo(np.float64).eps

    @classmethod
    def of(cls, ensemble: TeacherEnsemble) -> Self | None:
        """The stack of an ensemble, or None where a teacher is not linear."""
        shape = (len(ensemble.classes_), ensemble.n_features_in_, len(ensemble.teachers_))
        weights, offsets = np.zeros(shape), np.full((shape[0], shape[2]), -np.inf)
        for number, teacher in enumerate(ensemble.teachers_):
            if teacher.model is None:
                offsets[teacher.codes(np.empty((1, 0)))[0], number] = 0.0
                continue
            found = _scores(teacher.model)
            if found is None:
                return None
            weights[teacher.present, :, number], offsets[teacher.present, number] = found
        return cls(ensemble, weights, offsets)

    def vote(self, X: np.ndarray) -> Private:
        """The votes of ``ensemble.vote(X)``; rows must be finite."""
        scores = X @ self._weights  # (n_classes, n_rows, n_teachers)
        scores += self._offsets
        weight, offset = self._largest
        unsure = self._ulp * (np.abs(X).sum(axis=1) * weight + offset)
        near = scores >= scores.max(axis=0) - unsure[:, None]
        counts = np.add.reduce(near, axis=2, dtype=self._counter).T.astype(np.int64)
        for row in np.flatnonzero(counts.sum(axis=1) > near.shape[2]):
            self._resolve(X[row : row + 1], near[:, row], counts[row])
        return Private(counts, Adjacency.one_ballot(unit=self._ensemble.unit_))

    def _resolve(self, X: np.ndarray, near: np.ndarray, counts: np.ndarray) -> None:
        """Correct the ballots of teachers with more than one near-best class."""
        for number in np.flatnonzero(near.sum(axis=0) > 1):
            counts -= near[:, number]
            counts[self._ensemble.teachers_[number].codes(X)[0]] += 1


def _scores(model: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights (n_present, n_features) and offsets (n_present,) whose largest score is the prediction."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (heavy; loaded with the voters)

    if type(model) is not LogisticRegression or model.coef_.dtype != np.float64:
        return None
    if len(model.coef_) > 1:
        return model.coef_, model.intercept_
    ahead = model.coef_[0]  # two classes: the score of the second minus that of the first
    return np.stack([np.zeros_like(ahead), ahead]), np.array([0.0, model.intercept_[0]])

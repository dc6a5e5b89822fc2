"""Linear teachers as one matrix: the same votes as one teacher at a time, in one product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka.private import Adjacency, Private
from ostraka.voters import count_votes

if TYPE_CHECKING:
    from ostraka.voters import TeacherEnsemble

__all__ = ["Stack"]

# Two ways to add up d products differ by less than this times (d + 2) machine epsilons of their size.
_ROUNDING = 8.0


class Stack:
    """Every teacher's scores for every class, shape (n_features, n_classes * n_teachers).

    Where a teacher's two best classes are closer than rounding can tell, the teacher is asked by
    itself, about that row alone. So a row's votes do not depend on what else is in the batch.
    """

    def __init__(self, ensemble: TeacherEnsemble, weights: np.ndarray, offsets: np.ndarray) -> None:
        self._ensemble = ensemble
        self._shape = weights.shape[1:]
        self._weights = weights.reshape(len(weights), -1)
        self._offsets = offsets
        known = np.where(np.isfinite(offsets), np.abs(offsets), 0.0)
        self._largest = np.abs(self._weights).max(), known.max()
        self._ulp = _ROUNDING * (len(weights) + 2) * np.finfo(np.float64).eps

    @classmethod
    def of(cls, ensemble: TeacherEnsemble) -> Self | None:
        """The stack of an ensemble, or None where a teacher is not linear."""
        shape = (ensemble.n_features_in_, len(ensemble.classes_), len(ensemble.teachers_))
        weights, offsets = np.zeros(shape), np.full(shape[1:], -np.inf)
        for number, teacher in enumerate(ensemble.teachers_):
            if teacher.model is None:
                offsets[teacher.codes(np.empty((1, 0)))[0], number] = 0.0
                continue
            found = _scores(teacher.model)
            if found is None:
                return None
            weights[:, teacher.present, number], offsets[teacher.present, number] = found
        return cls(ensemble, weights, offsets)

    def vote(self, X: np.ndarray) -> Private:
        """What ``ensemble.vote(X)`` gives; rows must be finite."""
        scores = (X @ self._weights).reshape(len(X), *self._shape)
        scores += self._offsets
        best = scores[:, 0].copy()
        second = np.full_like(best, -np.inf)
        codes = np.zeros(best.shape, dtype=np.int64)
        for code in range(1, scores.shape[1]):
            score = scores[:, code]
            np.maximum(second, np.minimum(best, score), out=second)
            np.copyto(codes, code, where=score > best)
            np.maximum(best, score, out=best)
        weight, offset = self._largest
        unsure = self._ulp * (np.abs(X).sum(axis=1) * weight + offset)
        for row, number in np.argwhere(best - second <= unsure[:, None]):
            codes[row, number] = self._ensemble.teachers_[number].codes(X[row : row + 1])[0]
        counts = count_votes(codes.T, n_classes=self._shape[0])
        return Private(counts, Adjacency.one_ballot(unit=self._ensemble.unit_))


def _scores(model: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights (n_features, n_present) and offsets (n_present,) whose largest score is the prediction."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (its room is the voters')

    if type(model) is not LogisticRegression or model.coef_.dtype != np.float64:
        return None
    if len(model.coef_) > 1:
        return model.coef_.T, model.intercept_
    ahead = model.coef_[0]  # of two classes: how far the second is ahead of the first
    return np.stack([np.zeros_like(ahead), ahead], axis=1), np.array([0.0, model.intercept_[0]])

"""Votes of all teachers by one matrix product of scores; the ballots equal those of separate predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from ostraka.voters._scores import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ostraka.voters._scores import Terms
    from ostraka.voters._voting import Teacher

__all__ = ["LinearTeachers"]

# Two ways to add up d products differ by less than this times (d + 2) machine epsilons of their size.
_ROUNDING = 8.0
_CELLS = 2**18  # scores held at a time: 2 MiB, which fit a cache


class LinearTeachers:
    """Every teacher's scores for every class, weights of shape (n_classes, n_terms, n_teachers).

    If a teacher's two best classes are closer than rounding errors, this teacher is asked alone about that
    row alone. So a row's votes do not depend on the rest of the batch.
    """

    def __init__(
        self,
        teachers: Sequence[Teacher],
        terms: Terms,
        weights: np.ndarray,
        offsets: np.ndarray,
        largest_offset: float,
    ) -> None:
        self._teachers, self._terms = teachers, terms
        self._weights, self._offsets = weights, offsets[:, None, :]
        self._counter = np.uint16 if offsets.shape[1] < 1 << 16 else np.int64  # the smaller, the faster
        self._largest = np.abs(weights).max(axis=(0, 2)), largest_offset
        self._ulp = _ROUNDING * (weights.shape[1] + 2) * np.finfo(np.float64).eps

    @classmethod
    def of(cls, teachers: Sequence[Teacher], *, n_classes: int, n_features: int) -> Self | None:
        """Stack these teachers, or return None if their predictions are no largest scores."""
        with np.errstate(all="ignore"):  # scores that are not finite are refused
            terms = terms_of([teacher.model for teacher in teachers if teacher.model is not None])
            if terms is None:
                return None
            n_terms = terms.of_rows(np.zeros((1, n_features))).shape[1]
            weights = np.zeros((n_classes, n_terms, len(teachers)))
            offsets, largest = np.full((n_classes, len(teachers)), -np.inf), 0.0
            for number, teacher in enumerate(teachers):
                if teacher.model is None:
                    offsets[teacher.codes(np.empty((1, 0)))[0], number] = 0.0
                    continue
                found = terms.of_model(teacher.model)
                if found is None:
                    return None
                weights[teacher.present, :, number], offsets[teacher.present, number] = found[:2]
                largest = max(largest, found.size)
        return cls(teachers, terms, weights, offsets, largest)

    def counts(self, X: np.ndarray) -> np.ndarray:
        """Votes on finite rows: int64 (n_rows, n_classes). Private."""
        counts = np.empty((len(X), len(self._weights)), dtype=np.int64)
        for rows, scores, near in self._scored(X):
            part = np.add.reduce(near, axis=2, dtype=self._counter).T.astype(np.int64)
            for row in np.flatnonzero(part.sum(axis=1) > scores.shape[2]):
                for number in np.flatnonzero(near[:, row].sum(axis=0) > 1):
                    part[row] -= near[:, row, number]
                    part[row, self._asked(X, rows.start + row, int(number))] += 1
            counts[rows] = part
        return counts

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Each teacher's class index for finite rows: int64 (n_teachers, n_rows). Private."""
        codes = np.empty((self._weights.shape[2], len(X)), dtype=np.int64)
        for rows, scores, near in self._scored(X):
            codes[:, rows] = scores.argmax(axis=0).T
            for row, number in zip(*np.nonzero(near.sum(axis=0) > 1), strict=True):
                codes[number, rows.start + row] = self._asked(X, rows.start + row, number)
        return codes

    def _scored(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield scores of blocks of rows, (n_classes, n_rows, n_teachers), and which may be the best."""
        weights, offset = self._largest
        at_once = max(1, _CELLS // (len(self._weights) * self._weights.shape[2]))
        for start in range(0, len(X), at_once):
            part = X[start : start + at_once]
            with np.errstate(over="ignore", invalid="ignore"):
                terms = self._terms.of_rows(part)
                scores = terms @ self._weights
                scores += self._offsets
                unsure = self._ulp * (np.abs(terms) @ weights + offset)
                near = ~(scores < scores.max(axis=0) - unsure[:, None])  # true where scores overflow
            yield slice(start, start + len(part)), scores, near

    def _asked(self, X: np.ndarray, row: int, number: int) -> int:
        """Return the ballot of one teacher, predicted on its own."""
        return int(self._teachers[number].codes(X[row : row + 1])[0])

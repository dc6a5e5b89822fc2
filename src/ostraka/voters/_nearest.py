"""Search for the private units nearest to a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import sklearn
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Nearest"]

_CELLS = 2**24  # distances held at a time: 64 MiB
# The largest difference of a fast and an exact distance, as a share of the sum of the two squared norms.
# Rounding the fast one to float32 loses 2**-23 of that sum; the steps before lose less than 2**-24 for up to
# 2**27 features.
_ERROR = 2.0**-21


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Nearest:
    """Private rows that can be searched.

    One more row must not change the order of the others, not even of rows at equal distance. A matrix
    product rounds a distance differently depending on the row's place, so it only selects candidates, with a
    margin for its error. The candidates are ordered by distances that are computed from one row and the query
    in fixed steps, and then by their place in the data.
    """

    features: np.ndarray  # float32, shape (n_rows, n_features); the rows of a unit stand together
    codes: np.ndarray  # uint16, the class of each row
    lengths: np.ndarray  # float64, the squared norm of each row
    starts: np.ndarray | None  # the first row of each unit; None: every row is one
    cosine: bool

    @classmethod
    def of(
        cls, features: np.ndarray, codes: np.ndarray, units: np.ndarray | None, *, cosine: bool = False
    ) -> Self:
        """Rows with their classes and units, numbered from 0 without gaps; None: each row is a unit."""
        features, codes, starts = _scaled(features, cosine=cosine), codes.astype(np.uint16), None
        if units is not None:
            order = np.argsort(units, kind="stable")
            features, codes = features[order], codes[order]
            starts = np.flatnonzero(np.diff(units[order], prepend=-1))
        return cls.restored(features, codes, starts, cosine=cosine)

    @classmethod
    def restored(
        cls, features: np.ndarray, codes: np.ndarray, starts: np.ndarray | None, *, cosine: bool
    ) -> Self:
        """Rows whose arrays were stored."""
        return cls(features, codes, _squared(features, np.zeros(features.shape[1])), starts, cosine)

    @property
    def n_units(self) -> int:
        """Number of units. Private if neighbouring data sets differ in it."""
        return len(self.codes if self.starts is None else self.starts)

    def around(
        self,
        points: np.ndarray,
        *,
        depth: int,
        on_progress: Callable[[int, int], object] = lambda _done, _total: None,
    ) -> np.ndarray:
        """Classes of the ``depth`` nearest units of each point, nearest first: uint16, (n_queries, depth)."""
        depth = min(depth, self.n_units)
        points = _scaled(points, cosine=self.cosine)
        found = np.empty((len(points), depth), dtype=np.uint16)
        for batch in gen_batches(len(points), max(1, _CELLS // len(self.codes))):
            with sklearn.config_context(assume_finite=True), np.errstate(all="ignore"):
                fast = euclidean_distances(points[batch], self.features, squared=True)
            for query, row in zip(range(*batch.indices(len(points))), fast, strict=True):
                found[query] = self.codes[self._ranked(points[query], row, depth)]
            on_progress(batch.stop, len(points))
        return found

    def _ranked(self, point: np.ndarray, fast: np.ndarray, depth: int) -> np.ndarray:
        """The nearest row of each of the ``depth`` nearest units, in order."""
        with np.errstate(over="ignore", invalid="ignore"):
            margin = _ERROR * (self.lengths + float(np.square(point, dtype=np.float64).sum()))
            most = fast + margin
            of_units = most if self.starts is None else np.minimum.reduceat(most, self.starts)
            reach = np.partition(of_units, depth - 1)[depth - 1]
            candidates = np.flatnonzero(~(fast - margin > reach))  # written so that NaN is kept
        exact = _squared(self.features[candidates], point)
        ranked = candidates[np.argsort(exact, kind="stable")]
        if self.starts is not None:
            units = np.searchsorted(self.starts, ranked, side="right")
            ranked = ranked[np.sort(np.unique(units, return_index=True)[1])]
        return np.asarray(ranked[:depth])


def _squared(rows: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Squared distances, summed feature by feature: each depends on its own row only."""
    total = np.zeros(len(rows))
    with np.errstate(over="ignore"):
        for column, at in zip(np.ascontiguousarray(rows.T), point.astype(np.float64), strict=True):
            total += np.square(column - at)
    return total


def _scaled(features: np.ndarray, *, cosine: bool) -> np.ndarray:
    """The rows, scaled to length 1 for the cosine: the squared distance is then 2 - 2 cosine."""
    if not cosine:
        return features
    lengths = np.sqrt(_squared(features, np.zeros(features.shape[1])))
    return (features / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)

"""Public features of each row's own, over which its one ballot is spread."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka.voters._fixed import numbers
from ostraka.voters.cells import FromPublicRows, check_resolution, digest

__all__ = ["FeatureCells"]

_FEW = 5  # public rows that are transformed alone, to see whether rows are independent
_LEAST_VARIANCE = 1e-9  # of the largest


class FeatureCells(FromPublicRows):
    """Whitened public features: a ballot is spread over them, in the direction of the row's own.

    ``GraphCells`` sends a private row to its nearest public row. Here a row keeps its own features, which
    says more where there are many private rows.

    Parameters
    ----------
    transform : fitted transformer, such as a pipeline of scikit-learn
        From rows to numbers, each row by itself; fitted on public rows alone. Public. Never fitted here.
    n_features : int, default 500
        Principal components of the transformed public rows which are used. Public.
    resolution : int, default 1024
        Length of a ballot, in units of the counts: its entries are rounded towards zero to integers. Public.

    Attributes
    ----------
    features_ : float64 array, shape (n_public, at most n_features)
        What each public row would add to the counts of its class, of length at most 1. Public.
    reach_ : float
        Twice the resolution: how far a replaced row can move the table. Public.
    sha256_ : str
        Hash of the lines of the public rows. Public.

    Guarantees
    ----------
    A line is an integer vector of Euclidean norm at most ``resolution``, whatever the row holds: the norm is
    checked in integers, and a line that is longer counts nothing. Two such vectors are at most ``reach_``
    apart, in one class and in two (docs/noisy-counts.md, Theorem 2). This holds for a row replaced in its
    place and a transformer that maps each row by itself; one that does not is refused where public rows show
    it. Persons with several rows are refused, since replacing one moves the places of other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> images = load_digits().data
    >>> cells = FeatureCells(PCA(40).fit(images[:300]), n_features=30).fit(images[:300])
    >>> cells.lines(images[300:305]).shape, cells.reach_
    ((5, 30), 2048.0)
    """

    def __init__(self, transform: Any, *, n_features: int = 500, resolution: int = 1024) -> None:
        self.transform = transform
        self.n_features = n_features
        self.resolution = resolution

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Find the principal components of the transformed public rows, and their variances.

        Parameters
        ----------
        X : n_public rows, as ``transform`` takes them
            Public.
        y : ignored

        Raises
        ------
        ValueError
            Settings out of range; rows that are all alike; a transformer whose result for a row depends on
            the rows beside it.
        """
        _check.integer(n_features=self.n_features, least=1)
        check_resolution(self.resolution)
        table = self._transformed(X)
        self._require_rows_by_themselves(X, table)
        self._middle = table.mean(axis=0)
        apart = table - self._middle
        values, vectors = np.linalg.eigh(apart.T @ apart / len(apart))
        kept = np.flatnonzero(values > _LEAST_VARIANCE * max(float(values[-1]), 1e-300))
        kept = kept[::-1][: self.n_features]
        if not len(kept):
            raise ValueError(f"X must hold rows that differ, got {len(table)} with the same features")
        self._whitening = vectors[:, kept] / np.sqrt(values[kept])
        self.reach_ = 2.0 * self.resolution
        lines = self.lines(X)
        self.features_ = lines / self.resolution
        self.sha256_ = digest([lines])
        self._source = X
        return self

    def lines(self, X: Any) -> np.ndarray:
        """What each row adds to the counts of its class, int64 of shape (n_rows, n_features)."""
        check_is_fitted(self, "reach_")
        table = self._transformed(X)
        if table.shape[1] != len(self._middle):
            raise ValueError(f"transform must give {len(self._middle)} numbers a row, got {table.shape[1]}")
        with np.errstate(over="ignore", invalid="ignore"):  # such rows count nothing
            white = (table - self._middle) @ self._whitening
            length = np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-300)
            whole = np.trunc(self.resolution * (white / length))
            short = np.einsum("ij,ij->i", whole, whole) <= self.resolution**2
        return np.where(short[:, None], whole, 0.0).astype(np.int64)

    def _transformed(self, X: Any) -> np.ndarray:
        if not callable(getattr(self.transform, "transform", None)):
            kind = type(self.transform).__name__
            raise TypeError(f"transform must be a fitted transformer, got {kind}")
        return numbers(self.transform.transform(X), "what transform returns")

    def _require_rows_by_themselves(self, X: Any, table: np.ndarray) -> None:
        few = self._transformed(_safe_indexing(X, np.arange(min(_FEW, len(table)))))
        size = np.abs(table).max(axis=0) + 1e-300
        if few.shape[1:] != table.shape[1:] or not (np.abs(few - table[: len(few)]) <= 1e-3 * size).all():
            raise ValueError(
                "transform must map each row by itself, but gives other numbers for the first rows without "
                "the others: fit it on public rows before"
            )

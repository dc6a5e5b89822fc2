"""Public features of each row's own, over which its one ballot is spread."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka.voters._fixed import numbers
from ostraka.voters._residuals import shortened
from ostraka.voters.cells import FromPublicRows, check_resolution, digest

__all__ = ["FeatureCells"]

_FEW = 5  # public rows that are transformed alone, to see whether rows are independent
_ALIKE = "X must hold rows that differ, got {} with the same features"
_LARGEST = 1e100  # of public numbers, so that sums of their squares are finite
_LEAST_VARIANCE = 1e-9  # of the largest
_MOST_FEATURES, _ROWS_A_FEATURE = 500, 10
_COMPONENTS, _CENTRES, _PAIRS = 150, 1000, 500  # of the default features


class FeatureCells(FromPublicRows):
    """Public features, half whitened: a ballot is spread over them, in the direction of the row's own.

    ``GraphCells`` sends a private row to its nearest public row. Here a row keeps its own features, which
    says more where there are many private rows. Directions in which public rows vary more keep more of the
    ballot: each is divided by the square root of its standard deviation, half of the way to white. A last
    feature is the same for all rows, so that models of the lines have an intercept.

    Parameters
    ----------
    transform : fitted transformer, such as a pipeline of scikit-learn, optional
        From rows to numbers, each row by itself; fitted on public rows alone. Public. Never fitted here.
        None: 150 principal components of the public rows and a Gaussian kernel with 1,000 of these rows.
    n_features : int, optional
        Principal components of the transformed public rows which are used. None: one for ten public rows,
        500 at the most. Public.
    resolution : int, default 1024
        Length of a ballot, in units of the counts: its entries are rounded to integers. Public.

    Attributes
    ----------
    whitening_power : float
        0.25 in this class. Directions are divided by this power of their variance: 0 would leave them as they
        are, 0.5 would whiten them. Public.
    constant : float
        0.2 in this class: how long the part of a line is which all rows share. Public.
    transform_ : fitted transformer
        The given one, or the default one fitted on the public rows. Public.
    features_ : float64 array, shape (n_public, at most n_features + 1)
        What each public row would add to the counts of its class, of length at most 1. Public.
    middle_, whitening_ : float64 arrays, shapes (n,) and (n, at most n_features)
        Mean of the transformed public rows, and the matrix that turns and scales what is left. Public.
    reach_ : float
        Twice the resolution: how far a replaced row can move the table. Public.
    sha256_ : str
        Hash of the lines of the public rows. Public.

    Guarantees
    ----------
    A line is an integer vector of Euclidean norm at most ``resolution``, whatever the row holds: the norm is
    checked in integers, and a line that is longer counts nothing. Two such vectors are at most ``reach_``
    apart, in one class and in two (docs/noisy-counts.md, Theorem 2). This holds for a row replaced in its
    place, or counting nothing there, and a transformer that maps each row by itself; one that does not is
    refused where public rows show it. Persons with several rows are refused, since replacing one moves the
    places of other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> images = load_digits().data
    >>> cells = FeatureCells(PCA(40).fit(images[:300]), n_features=30).fit(images[:300])
    >>> cells.lines(images[300:305]).shape, cells.reach_
    ((5, 31), 2048.0)
    """

    whitening_power: ClassVar[float] = 0.25
    constant: ClassVar[float] = 0.2

    def __init__(
        self, transform: Any = None, *, n_features: int | None = None, resolution: int = 1024
    ) -> None:
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
            Settings out of range; rows that are all alike, not finite or beyond 1e100; a transformer whose
            result for a row depends on the rows beside it.
        """
        if self.n_features is not None:
            _check.integer(n_features=self.n_features, least=1)
        check_resolution(self.resolution, least=2)  # of 1, rounded lines are all zeros
        names = getattr(X, "columns", None)  # for the student, which is plain scikit-learn
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.transform_ = _kernel(X) if self.transform is None else self.transform
        table = _moderate(self._transformed(X), "what transform returns")
        self._require_rows_by_themselves(X, table)
        self.middle_ = table.mean(axis=0)
        apart = table - self.middle_
        values, vectors = np.linalg.eigh(apart.T @ apart / len(apart))
        kept = np.flatnonzero(values > _LEAST_VARIANCE * max(float(values[-1]), 1e-300))
        kept = kept[::-1][: self.n_columns(len(table))]
        if not len(kept):
            raise ValueError(_ALIKE.format(len(table)))
        self.whitening_ = vectors[:, kept] / values[kept] ** self.whitening_power
        self.reach_ = 2.0 * self.resolution
        lines = self.lines(X)
        self.features_ = lines / self.resolution
        self.sha256_ = digest([lines])
        self._source = X
        return self

    def lines(self, X: Any) -> np.ndarray:
        """What each row adds to the counts of its class, int64 of shape (n_rows, n_features + 1)."""
        check_is_fitted(self, "reach_")
        table = self._transformed(X)
        if table.shape[1] != len(self.middle_):
            raise ValueError(f"transform must give {len(self.middle_)} numbers a row, got {table.shape[1]}")
        with np.errstate(over="ignore", invalid="ignore"):  # such rows count nothing
            white = (table - self.middle_) @ self.whitening_
            length = np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-300)
            unit = np.sqrt(1 - self.constant**2) * (white / length)
            whole = np.column_stack([unit, np.full(len(unit), self.constant)])
            lines = shortened((self.resolution - 1) * whole, self.resolution)
        return lines.astype(np.int64)

    def n_columns(self, n_public: int) -> int:
        """The largest number of features for so many public rows."""
        if self.n_features is None:
            return min(_MOST_FEATURES, max(1, n_public // _ROWS_A_FEATURE))
        return min(self.n_features, n_public)

    def _transformed(self, X: Any) -> np.ndarray:
        if not callable(getattr(self.transform_, "transform", None)):
            kind = type(self.transform_).__name__
            raise TypeError(f"transform must be a fitted transformer, got {kind}")
        rows = numbers(X, "X") if self.transform is None else X
        return numbers(self.transform_.transform(rows), "what transform returns")

    def _require_rows_by_themselves(self, X: Any, table: np.ndarray) -> None:
        few = self._transformed(_safe_indexing(X, np.arange(min(_FEW, len(table)))))
        size = np.abs(table).max(axis=0) + 1e-300
        if few.shape[1:] != table.shape[1:] or not (np.abs(few - table[: len(few)]) <= 1e-3 * size).all():
            raise ValueError(
                "transform must map each row by itself, but gives other numbers for the first rows without "
                "the others: fit it on public rows before"
            )


def _moderate(table: np.ndarray, name: str) -> np.ndarray:
    if not np.abs(table).max() <= _LARGEST:
        raise ValueError(f"{name} must hold numbers up to {_LARGEST:g}, got larger ones: rescale public rows")
    return table


def _kernel(X: Any) -> Pipeline:
    """Principal components of public rows, and a Gaussian kernel as wide as their median distance."""
    table = _moderate(numbers(X, "X"), "X")
    if not table.var(axis=0).sum() > 0:
        raise ValueError(_ALIKE.format(len(table)))
    parts = PCA(min(_COMPONENTS, *table.shape), svd_solver="covariance_eigh").fit(table)
    points = parts.transform(table)
    half = min(_PAIRS, len(points) // 2)
    apart = ((points[:half, None] - points[None, half : 2 * half]) ** 2).sum(axis=2)
    middle = float(np.median(apart)) if half else 0.0
    kernel = Nystroem(
        gamma=1 / middle if middle > 0 else 1.0, n_components=min(_CENTRES, len(points)), random_state=0
    )
    return make_pipeline(parts, kernel.fit(points))

"""Cells of tables: each column in bins whose edges come from public rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka.voters.cells import digest, same_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QuantileCells"]


class QuantileCells(BaseEstimator):
    """Cells of a table: in each column, quantiles of numbers or categories, both from public rows.

    Parameters
    ----------
    columns : sequence of str or int, optional
        Columns that are used: fewer columns mean less noise. None: all. Public.
    n_bins : int, default 8
        Quantiles of a column of numbers. A value which more than one public row in ``n_bins`` has gets a
        bin of its own, and the others are shared out again. Public.
    least : int, default 10
        Public rows that a category needs for a bin of its own. The others share one. Public.

    Attributes
    ----------
    codebooks_ : list of int64 arrays, each the identity of its column's number of bins
        What a row adds to the counts of its class, for each code of each column. Public.
    columns_ : list
        The columns, in the order of the codebooks. Public.
    sha256_ : str
        Hash of the bins. Public.

    Guarantees
    ----------
    Every row has exactly one code in every column, whatever it holds: missing values and values which no
    public row has share the last bin. The code depends on that row alone.

    Examples
    --------
    >>> public = {"age": [20, 30, 40, 50], "sex": ["f", "m", "f", "m"]}
    >>> import pyarrow
    >>> cells = QuantileCells(n_bins=2, least=1).fit(pyarrow.table(public))
    >>> cells.codes(pyarrow.table({"age": [55, 25, None], "sex": ["m", "f", "x"]}))
    array([[1, 1],
           [0, 0],
           [2, 2]])
    """

    def __init__(
        self, *, columns: Sequence[str | int] | None = None, n_bins: int = 8, least: int = 10
    ) -> None:
        self.columns = columns
        self.n_bins = n_bins
        self.least = least

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Choose the bins.

        Parameters
        ----------
        X : array or data frame of n_public rows
            Public.
        y : ignored

        Raises
        ------
        ValueError
            Settings out of range, or a column that ``X`` does not have.
        """
        _check.integer(n_bins=self.n_bins, least=2)
        if self.least < 1:
            raise ValueError(f"least must be an integer >= 1, got {self.least!r}")
        table = _columns(X, self.columns)
        self.columns_ = list(table)
        self._bins = [_Bins.of(values, self.n_bins, self.least) for values in table.values()]
        self.codebooks_ = [np.eye(bins.n, dtype=np.int64) for bins in self._bins]
        self.sha256_ = digest([np.array([bins.n]) for bins in self._bins] + [self.codes(X)])
        self._source = X
        return self

    def codes(self, X: Any) -> np.ndarray:
        """The bin of each row in each column, int64 of shape (n_rows, n_columns)."""
        check_is_fitted(self, "codebooks_")
        table = _columns(X, self.columns_)
        return np.stack(
            [bins.codes(values) for bins, values in zip(self._bins, table.values(), strict=True)], axis=1
        )

    def is_of(self, X: Any) -> bool:
        """Whether the bins were chosen on these very rows."""
        return same_rows(self._source, X)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bins:
    """Bins of one column: by edges, or by category; the last one holds whatever fits nowhere."""

    edges: np.ndarray | None
    categories: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, n_bins: int, least: int) -> Self:
        """From the public rows' values."""
        if values.dtype.kind == "f":
            return cls(edges=_edges(values[np.isfinite(values)], n_bins), categories=np.empty(0, dtype=str))
        found, times = np.unique(values, return_counts=True)
        return cls(edges=None, categories=found[(times >= least) & (found != "")])

    @property
    def n(self) -> int:
        """Number of bins."""
        return 2 + len(self.edges) if self.edges is not None else 1 + len(self.categories)

    def codes(self, values: np.ndarray) -> np.ndarray:
        """The bin of each value."""
        if self.edges is not None:
            numbers = values if values.dtype.kind == "f" else _as_numbers(values)
            return np.where(np.isfinite(numbers), np.searchsorted(self.edges, numbers), self.n - 1)
        words = values.astype(str)
        place = np.searchsorted(self.categories, words).clip(max=max(len(self.categories) - 1, 0))
        known = self.categories[place] == words if len(self.categories) else np.zeros(len(words), dtype=bool)
        return np.where(known, place, self.n - 1)


def _edges(values: np.ndarray, n_bins: int) -> np.ndarray:
    """Upper ends of all bins but the last; a bin holds its upper end."""
    found, times = np.unique(values, return_counts=True)
    common = found[times * n_bins > len(values)]
    rest = values[~np.isin(values, common)]
    alone = np.concatenate([common, np.nextafter(common, -np.inf)])
    shared = np.quantile(rest, np.arange(1, n_bins) / n_bins) if len(rest) >= n_bins else np.empty(0)
    return np.unique(np.concatenate([alone, shared]))


def _columns(X: Any, names: Any) -> dict[Any, np.ndarray]:
    """Columns by name (or place), each of float64 with NaN where missing, or of text."""
    if hasattr(X, "__dataframe__") or hasattr(X, "to_pylist") or hasattr(X, "columns"):
        import narwhals  # noqa: PLC0415

        frame = narwhals.from_native(X, eager_only=True)
        found: dict[Any, Any] = {name: frame[name].to_list() for name in frame.columns}
    else:
        array = np.asarray(X)
        if array.ndim != 2 or not len(array):
            raise ValueError(f"X must have shape (n_rows, n_columns), got {array.shape}")
        found = {place: array[:, place].tolist() for place in range(array.shape[1])}
    wanted = list(found) if names is None else list(names)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}; it has {len(found)} columns")
    return {name: _typed(found[name]) for name in wanted}


def _typed(cells: list[Any]) -> np.ndarray:
    """Numbers if every cell that is not missing is one, otherwise text with "" where missing."""
    absent = [cell is None or (isinstance(cell, float) and math.isnan(cell)) for cell in cells]
    if all(gone or isinstance(cell, int | float) for gone, cell in zip(absent, cells, strict=True)):
        return np.array([np.nan if gone else float(cell) for gone, cell in zip(absent, cells, strict=True)])
    return np.array(["" if gone else str(cell) for gone, cell in zip(absent, cells, strict=True)])


def _as_numbers(words: np.ndarray) -> np.ndarray:
    """Text as float64, NaN where it is no number."""
    numbers = np.full(len(words), np.nan)
    for row, word in enumerate(words.tolist()):
        try:
            numbers[row] = float(word)
        except ValueError:
            continue
    return numbers

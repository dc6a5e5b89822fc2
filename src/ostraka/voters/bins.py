"""Cells of tables: each column in bins whose edges come from public rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.data.table import is_missing, numbers, word
from ostraka.voters.cells import FromPublicRows, digest

if TYPE_CHECKING:
    from collections.abc import Sequence

Cells = list[Any] | np.ndarray

_TRUTH = {"True": "1", "False": "0"}


@dataclass(kw_only=True, eq=False, repr=False)
class QuantileCells(FromPublicRows):
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

    Notes
    -----
    In plain arrays, neighbouring columns of zeros and ones which sum to one in every public row are one
    column of categories (one-hot).

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

    columns: Sequence[str | int] | None = None
    n_bins: int = 8
    least: int = 10

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
        check.integer(n_bins=self.n_bins, least=2)
        if self.least < 1:
            raise ValueError(f"least must be an integer >= 1, got {self.least!r}")
        self._one_hot = None if self.columns is not None or _is_frame(X) else _one_hot(np.asarray(X))
        table = self._table(X, self.columns)
        self.columns_ = list(table)
        self._bins = [_bins(values, self.n_bins, self.least) for values in table.values()]
        self.codebooks_ = [np.eye(_n_bins(bins), dtype=np.int64) for bins in self._bins]
        self.sha256_ = digest([np.array([_n_bins(bins)]) for bins in self._bins] + [self.codes(X)])
        self._source = X
        return self

    def codes(self, X: Any) -> np.ndarray:
        """The bin of each row in each column, int64 of shape (n_rows, n_columns)."""
        check_is_fitted(self, "codebooks_")
        table = self._table(X, self.columns_)
        return np.stack(
            [_codes(bins, values) for bins, values in zip(self._bins, table.values(), strict=True)], axis=1
        )

    def lines(self, X: Any) -> np.ndarray:
        """Shares that each row adds to the counts of its class, float64 of shape (n_rows, n_cells)."""
        codes = self.codes(X)
        return np.concatenate(
            [book[column] for book, column in zip(self.codebooks_, codes.T, strict=True)], axis=1
        ).astype(np.float64)

    def numbers(self, X: Any) -> list[np.ndarray | None]:
        """Numbers of each column, NaN where there is none; None for a column of categories."""
        check_is_fitted(self, "codebooks_")
        columns = self._table(X, self.columns_).values()
        return [
            _numbers(cells) if kind == "edges" else None
            for (kind, _), cells in zip(self._bins, columns, strict=True)
        ]

    def _table(self, X: Any, names: Any) -> dict[Any, Cells]:
        """Return the columns by name; each block of one-hot columns of a plain array becomes one column."""
        if self._one_hot is None:
            return _columns(X, names)
        width = sum(map(len, self._one_hot))
        array = X if isinstance(X, np.ndarray) else np.empty((0, 0), dtype=object)
        if isinstance(X, np.ndarray) and (array.ndim != 2 or array.shape[1] != width):
            raise ValueError(f"X must have {width} columns, got shape {array.shape}")
        if array.dtype.kind not in "fiub":
            array = np.column_stack([_numbers(cells) for cells in _columns(X, range(width)).values()])
        return {block[0]: _merged(array[:, block]) for block in self._one_hot}


def _bins(cells: Cells, n_bins: int, least: int) -> tuple[str, np.ndarray]:
    """Return the bins of one column from the public rows' cells: edges of numbers, or categories of text."""
    # public rows alone decide which: a private cell of another type must not change how others are read
    if isinstance(cells, np.ndarray) or all(
        is_missing(cell) or isinstance(cell, int | float) for cell in cells
    ):
        values = _numbers(cells)
        return "edges", _edges(values[np.isfinite(values)], n_bins)
    categories, times = np.unique(_words(cells), return_counts=True)
    return "categories", categories[(times >= least) & (categories != "")]


def _n_bins(bins: tuple[str, np.ndarray]) -> int:
    """Return the number of bins; the last one holds values which fit into no other."""
    return len(bins[1]) + (2 if bins[0] == "edges" else 1)


def _codes(bins: tuple[str, np.ndarray], cells: Cells) -> np.ndarray:
    """Return the bin of each cell, which depends on that cell only."""
    kind, marks = bins
    last = _n_bins(bins) - 1
    if kind == "edges":
        numbers = _numbers(cells)
        return np.where(np.isfinite(numbers), np.searchsorted(marks, numbers), last)
    if not len(marks):
        return np.full(len(cells), last)
    words = _words(cells)
    place = np.searchsorted(marks, words).clip(max=len(marks) - 1)
    return np.where(marks[place] == words, place, last)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "__dataframe__") or hasattr(X, "to_pylist") or hasattr(X, "columns")


def _one_hot(array: np.ndarray) -> list[list[int]] | None:
    """Group column indices by category; None if the array is not a table of numbers."""
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        return None
    binary = np.asarray(np.isin(array, (0, 1)).all(axis=0))
    blocks: list[list[int]] = []
    place = 0
    while place < array.shape[1]:
        end = _end_of_block(array, binary, place)
        blocks.append(list(range(place, end)))
        place = end
    return blocks


def _end_of_block(array: np.ndarray, binary: np.ndarray, start: int) -> int:
    """Where the columns from ``start`` on first sum to one in every row; the next column if they do not."""
    total = np.zeros(len(array))
    for end in range(start, array.shape[1]):
        if not binary[end]:
            break
        total += array[:, end]
        if total.max() > 1:
            break
        if total.min() == 1 and end > start:
            return end + 1
    return start + 1


def _edges(values: np.ndarray, n_bins: int) -> np.ndarray:
    """Upper ends of all bins but the last; a bin holds its upper end."""
    distinct, times = np.unique(values, return_counts=True)
    common = distinct[times * n_bins > len(values)]
    others = values[~np.isin(values, common)]
    alone = np.concatenate([common, np.nextafter(common, -np.inf)])
    shared = np.quantile(others, np.arange(1, n_bins) / n_bins) if len(others) >= n_bins else np.empty(0)
    return np.unique(np.concatenate([alone, shared]))


def _merged(block: np.ndarray) -> Cells:
    """Return a single column unchanged; of several, the name of the one which is 1, else None."""
    if block.shape[1] == 1:
        return np.asarray(block[:, 0], dtype=np.float64)
    good = np.isin(block, (0, 1)).all(axis=1) & (block.sum(axis=1) == 1)
    names: list[Any] = np.where(good, block.argmax(axis=1).astype(str), "").tolist()
    return names


def _columns(X: Any, names: Any) -> dict[Any, Cells]:
    """Return the cells of each column, by name or index."""
    if _is_frame(X):
        import narwhals  # noqa: PLC0415

        frame = narwhals.from_native(X, eager_only=True)
        cells: dict[Any, Any] = {name: frame[name].to_list() for name in frame.columns}
    elif isinstance(X, list | tuple) and X and all(isinstance(row, list | tuple) for row in X):
        # no array: one text would make text of all cells; and each row has its own length
        places = (
            range(max(map(len, X))) if names is None else [place for place in names if isinstance(place, int)]
        )
        cells = {place: [row[place] if place < len(row) else None for row in X] for place in places}
    else:
        array = np.asarray(X)
        if array.ndim != 2 or not len(array):
            raise ValueError(f"X must have shape (n_rows, n_columns), got {array.shape}")
        cells = {place: array[:, place].tolist() for place in range(array.shape[1])}
    wanted = list(cells) if names is None else list(names)
    missing = [name for name in wanted if name not in cells]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}; it has {len(cells)} columns")
    return {name: cells[name] for name in wanted}


def _numbers(cells: Cells) -> np.ndarray:
    """Convert each cell to float64, NaN if it is no number; 1, 1.0, True and their texts are equal."""
    if isinstance(cells, np.ndarray):
        return np.asarray(cells, dtype=np.float64)
    return numbers([_TRUTH.get(cell, cell) if isinstance(cell, str) else cell for cell in cells])


def _words(cells: Cells) -> np.ndarray:
    """Convert each cell to text, "" if it is missing; 1 and 1.0 are always equal."""
    return np.array([word(cell) for cell in cells], dtype=str)

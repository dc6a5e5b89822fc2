"""Public cells, for which private rows can vote; they are fitted on public rows only.

:class:`GraphCells` are clusters of a graph of public rows, or its smooth features. Rows are small integers in
it, so that sums of products are exact and do not depend on the order of rows. :class:`QuantileCells` are bins
of each column of a table.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.data.labels import Coded
from ostraka.data.nearest import INVARIANCES, nearest, squared_distances, transforms
from ostraka.data.table import distinct, is_missing, word
from ostraka.data.table import numbers as numbers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_DENSE = 1000  # rows up to which all eigenvectors are computed
_MOST = 127
_FINE = 2**12  # steps of a principal component's entries
_EXACT_IN_FLOAT32 = 2**24
_N_COMPONENTS = 64
FINEST = 2**20  # of a line: squares of its length are whole numbers in floats
_WARD_BY_ALL_PAIRS = 3000  # rows; beyond, only neighbours in the graph are merged
_TRUTH = {"True": "1", "False": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    """A map from numbers to integers from -127 to 127, fitted on public rows."""

    middle: np.ndarray
    step: float
    components: np.ndarray | None
    component_step: float

    @classmethod
    def of(cls, public: np.ndarray) -> Self:
        """Fit the map on public rows: centre, range and, for many columns, principal components."""
        middle = public.mean(axis=0)
        step = max(float(np.abs(public - middle).max()), 1e-300) / _MOST
        if 3 * _MOST**2 * public.shape[1] < _EXACT_IN_FLOAT32:
            return cls(middle=middle, step=step, components=None, component_step=1.0)
        plain = cls(middle=middle, step=step, components=None, component_step=1.0)
        steps = plain.integers(public).astype(np.float64)
        _, vectors = np.linalg.eigh(steps.T @ steps)
        components = np.rint(vectors[:, : -_N_COMPONENTS - 1 : -1] * _FINE)
        component_step = max(float(np.abs(steps @ components).max()), 1.0) / _MOST
        return cls(middle=middle, step=step, components=components, component_step=component_step)

    def integers(self, rows: np.ndarray) -> np.ndarray:
        """Return whole numbers as float32; each row depends on itself only.

        Numbers are clipped to the public range before anything is computed, and what is no number is its
        middle: no row ends or warns a run.
        """
        limit = (_MOST + 1) * self.step
        rows = np.where(np.isnan(rows), self.middle, rows)
        apart = np.clip(rows, self.middle - limit, self.middle + limit) - self.middle
        steps = np.clip(np.rint(apart / self.step), -_MOST, _MOST)
        if self.components is not None:
            # products of integers below 2^7 and 2^12 are exact in float64
            steps = np.clip(np.rint(steps @ self.components / self.component_step), -_MOST, _MOST)
        return np.ascontiguousarray(steps, dtype=np.float32)


def numbers(rows: Any, name: str, *, finite: bool = True) -> np.ndarray:
    """Convert rows to float64, shape (n_rows, n_columns), images flattened; messages name shapes."""
    try:
        table = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # which would quote a value
        table = None
    if table is None or table.ndim < 2 or not len(table):
        raise ValueError(f"{name} must be numbers of shape (n_rows, n_columns)")
    table = table.reshape(len(table), -1)
    if finite and not np.isfinite(table).all():
        raise ValueError(f"{name} of shape {table.shape} must be finite")
    return table


def affinity(places: np.ndarray, distances: np.ndarray) -> scipy.sparse.csr_array:
    """Weights exp(-d² / s_i s_j) between a row and its nearest ones; s is the distance of the furthest."""
    n, k = places.shape
    spread = np.sqrt(distances[:, -1]) + 1e-12
    ends = np.repeat(np.arange(n), k), places.ravel()
    weights = np.exp(-distances.ravel() / (spread[ends[0]] * spread[ends[1]]))
    one_way = scipy.sparse.csr_array((weights + 1e-9, ends), shape=(n, n))
    return scipy.sparse.csr_array(one_way.maximum(one_way.T))


def smooth(weights: scipy.sparse.csr_array, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of the normalised graph, falling, and their vectors as columns."""
    degree = 1 / np.sqrt(weights.sum(axis=1))
    normal = weights.multiply(degree[:, None]).multiply(degree[None]).tocsr()
    if weights.shape[0] <= max(_DENSE, 3 * n_features):
        values, vectors = np.linalg.eigh(normal.toarray())
    else:
        start = np.random.default_rng(0).normal(size=weights.shape[0])
        values, vectors = eigsh(normal, k=n_features, which="LA", v0=start, tol=1e-6)
    order = np.argsort(-values)[:n_features]
    return values[order], vectors[:, order]


class FromPublicRows(BaseEstimator):
    """Cells that know which public rows they were fitted on, so that private ones are refused there."""

    _source: Any = None

    def is_of(self, X: Any) -> bool:
        """Return whether the cells were fitted on the same rows: the same memory, or equal values."""
        source = self._source
        if not (isinstance(source, np.ndarray) and isinstance(X, np.ndarray)):
            return source is X
        return np.shares_memory(source, X) or (source.shape == X.shape and bool((source == X).all()))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the public rows, which only :meth:`is_of` needs."""
        return {name: value for name, value in super().__getstate__().items() if name != "_source"}


@dataclass(kw_only=True, eq=False, repr=False)
class GraphCells(FromPublicRows):
    """Cells from the graph of public rows: clusters, or smooth features over which a ballot is spread.

    Parameters
    ----------
    image_shape : (height, width), optional
        Rows are grey images of this shape, flattened or not. None: rows are plain numbers. Public.
    invariances : sequence of {"shift", "rotate", "scale", "shear"}, default: all
        Small changes of an image which leave its class as it is: distances are least over them. Used only
        with ``image_shape``. Public.
    n_cells : int, optional
        A ballot goes to one of so many Ward clusters. None: it is spread over ``n_features`` features.
    n_features : int, default 60
        Eigenvectors of the graph. Public.
    time : float >= 0, default 8
        How far features are smoothed along the graph: more for less budget. Public.
    n_neighbors : int, default 7
        Neighbours of a row in the graph. Public.
    resolution : int, default 256
        Length of a spread ballot, in units of the counts: its entries are rounded to integers. Public.

    Attributes
    ----------
    codebooks_ : list of one int64 array, shape (n_public, n_cells or n_features)
        What a row adds to the counts of its class, for each public row which may be nearest to it. Public.
    features_ : float64 array, shape (n_public, n_features)
        Smooth features of the public rows, each row of length 1. Public.
    sha256_ : str
        Hash of the codebooks. Public.

    Guarantees
    ----------
    A private row's code is the place of its nearest public row. It is computed in exact integer arithmetic
    from that row and the public rows, so no other private row moves it. All that a row can add is therefore
    a line of ``codebooks_``, a finite public list (docs/noisy-counts.md, Theorem 2).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits().data
    >>> cells = GraphCells(image_shape=(8, 8), n_cells=15).fit(images[:200])
    >>> cells.codes(images[200:205]).shape, cells.codebooks_[0].shape
    ((5, 1), (200, 15))
    """

    image_shape: tuple[int, int] | None = None
    invariances: Sequence[str] = INVARIANCES
    n_cells: int | None = None
    n_features: int = 60
    time: float = 8.0
    n_neighbors: int = 7
    resolution: int = 256

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Build the graph of public rows.

        Parameters
        ----------
        X : array of shape (n_public, n_columns) or (n_public, height, width)
            Public.
        y : ignored
        """
        table = self._rows(X)
        check.integer(n_features=self.n_features, n_neighbors=self.n_neighbors, least=2)
        check_resolution(self.resolution)
        check.finite(time=self.time)
        check.nonnegative(time=self.time)
        if self.n_cells is not None:
            check.integer(n_cells=self.n_cells, least=1)
        if len(table) <= self.n_neighbors:
            raise ValueError(f"X must have more than n_neighbors={self.n_neighbors} rows, got {len(table)}")
        self.n_features_in_ = table.shape[1]
        self._fixed = FixedPoint.of(table)
        versions = [table]
        if self.image_shape is not None:
            changes = transforms(self.image_shape, self.invariances)
            versions = [np.asarray(table @ change) for change in changes]
        self._versions = [self._fixed.integers(version) for version in versions]
        # the nearest other public rows of each public row, and their squared distances
        k, n = self.n_neighbors, len(table)
        places = nearest(self._versions[0], self._versions, k + 1)
        selves = places == np.arange(n)[:, None]
        selves[~selves.any(axis=1), -1] = True  # even if an equal row comes first
        places = places[~selves].reshape(n, k)
        pairs = np.repeat(np.arange(n), k), places.ravel()
        apart = [squared_distances(self._versions[0], version, *pairs) for version in self._versions]
        self._weights = affinity(places, np.minimum.reduce(apart).reshape(places.shape))
        values, vectors = smooth(self._weights, min(self.n_features, len(table) - 1))
        self._vectors = vectors
        self.features_ = _unit(vectors * np.exp(self.time * (values - 1) / 2))
        if self.n_cells is None:
            book = np.rint(self.features_ * self.resolution)
        else:
            labels = self.clusters(self.n_cells)
            book = np.eye(labels.max() + 1)[labels]
        self.codebooks_ = [np.asarray(book, dtype=np.int64)]
        self.sha256_ = digest(self.codebooks_)
        self._source = X
        return self

    def codes(self, X: Any) -> np.ndarray:
        """The nearest public row of each row, int64 of shape (n_rows, 1): a line of ``codebooks_[0]``.

        Numbers beyond the range of the public rows count as its ends, and NaN as its middle.
        """
        check_is_fitted(self, "codebooks_")
        table = self._rows(X, finite=False)
        if table.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} columns, got {table.shape[1]}")
        return nearest(self._fixed.integers(table), self._versions)

    def clusters(self, n_cells: int) -> np.ndarray:
        """Ward clusters of the public rows by their smooth features, int64 of shape (n_public,)."""
        from sklearn.cluster import AgglomerativeClustering  # noqa: PLC0415  (a tenth of all imports)

        check_is_fitted(self, "features_")
        check.integer(n_cells=n_cells, least=1)
        n_cells = min(n_cells, len(self._vectors))
        points = _unit(self._vectors[:, : max(2, min(12, n_cells))])
        graph = None if len(points) <= _WARD_BY_ALL_PAIRS else self._weights
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a graph in several parts
            labels = AgglomerativeClustering(n_cells, connectivity=graph).fit_predict(points)
        return np.asarray(labels, dtype=np.int64)

    def prototypes(self, n_cells: int) -> np.ndarray:
        """Return the public row nearest to the middle of each cluster, to ask about; int64, (n_cells,)."""
        labels = self.clusters(n_cells)
        points = _unit(self._vectors[:, : max(2, min(12, n_cells))])
        chosen = []
        for cell in np.unique(labels):
            members = np.flatnonzero(labels == cell)
            apart = points[members] - points[members].mean(axis=0)
            chosen.append(members[(apart**2).sum(axis=1).argmin()])
        return np.array(chosen, dtype=np.int64)

    def _rows(self, X: Any, *, finite: bool = True) -> np.ndarray:
        table = numbers(X, "X", finite=finite)
        if self.image_shape is not None and table.shape[1] != math.prod(self.image_shape):
            raise ValueError(f"X must hold images of shape {self.image_shape}, got {table.shape[1]} columns")
        return table


class Cells(Protocol):
    """Interface of public cells: the lines that a row can add to a table, and the one that each row adds.

    Cells with features of each row's own have ``reach_`` and ``lines`` instead of ``codebooks_`` and
    ``codes`` (:class:`~ostraka.voters.spectrum.FeatureCells`).
    """

    codebooks_: list[np.ndarray]

    def codes(self, X: Any) -> np.ndarray:
        """Return each row's line in every codebook, (n_rows, n_codebooks); it depends on that row only."""
        ...

    def is_of(self, X: Any) -> bool:
        """Return whether the cells were made from the same rows."""
        ...


def check_resolution(resolution: int, *, least: int = 1) -> None:
    """Raise ValueError unless lines of this length have exact squares in floats."""
    check.integer(resolution=resolution, least=least)
    if resolution > FINEST:
        raise ValueError(f"resolution must be at most {FINEST:,}, got {resolution!r}")


def digest(codebooks: Sequence[np.ndarray]) -> str:
    """Hash of public codebooks, in hex."""
    content = hashlib.sha256()
    for book in codebooks:
        content.update(repr(book.shape).encode() + book.astype("<i8").tobytes())
    return content.hexdigest()


def _unit(features: np.ndarray) -> np.ndarray:
    return np.asarray(features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-300))


_Column = list[Any] | np.ndarray


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
        check.room(n_bins=self.n_bins)
        check.integer(least=1, **{"least of a category": self.least})
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
        columns = self._table(X, self.columns_).values()
        return np.stack(
            [_codes(bins, cells) for bins, cells in zip(self._bins, columns, strict=True)], axis=1
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
            None if kind != "edges" or isinstance(cells, Coded) else _numbers(cells)
            for (kind, _), cells in zip(self._bins, columns, strict=True)
        ]

    def _table(self, X: Any, names: Any) -> dict[Any, _Column | Coded]:
        """Return the columns by name; each block of one-hot columns of a plain array becomes one column."""
        if self._one_hot is None:
            return _columns(X, names)
        width = sum(map(len, self._one_hot))
        if isinstance(X, np.ndarray) and (X.ndim != 2 or X.shape[1] != width):
            raise ValueError(f"X must have {width} columns, got shape {X.shape}")
        array = X
        if not isinstance(X, np.ndarray) or X.dtype.kind not in "fiub":
            array = np.column_stack([_numbers(cells) for cells in _columns(X, range(width)).values()])
        columns: dict[Any, _Column | Coded] = {}
        for first, *others in self._one_hot:
            block = array[:, [first, *others]]
            if not others:
                columns[first] = np.asarray(block[:, 0], dtype=np.float64)
                continue
            # the name of the column which is 1, or nothing
            ones, width = block == 1, block.shape[1]
            good = (ones | (block == 0)).all(axis=1) & (ones.sum(axis=1) == 1)
            codes = np.where(good, ones.argmax(axis=1), width)
            columns[first] = Coded(np.array([*map(str, range(width)), ""]), codes)
        return columns


def _bins(column: _Column | Coded, n_bins: int, least: int) -> tuple[str, np.ndarray]:
    """Return the bins of one column from the public rows' cells: edges of numbers, or categories of text."""
    cells: _Column = np.asarray(column).tolist() if isinstance(column, Coded) else column
    # public rows alone decide which: a private cell of another type must not change how others are read
    if isinstance(cells, np.ndarray) or all(
        is_missing(cell) or isinstance(cell, int | float) for cell in cells
    ):
        values = _numbers(cells)
        values = values[np.isfinite(values)]
        distinct, times = np.unique(values, return_counts=True)
        common = distinct[times * n_bins > len(values)]
        others = values[~np.isin(values, common)]
        alone = np.concatenate([common, np.nextafter(common, -np.inf)])
        shared = np.quantile(others, np.arange(1, n_bins) / n_bins) if len(others) >= n_bins else np.empty(0)
        # a bin holds its upper end; the last has none
        return "edges", np.unique(np.concatenate([alone, shared]))
    categories, times = np.unique(_words(cells), return_counts=True)
    return "categories", categories[(times >= least) & (categories != "")]


def _n_bins(bins: tuple[str, np.ndarray]) -> int:
    """Return the number of bins; the last one holds values which fit into no other."""
    return len(bins[1]) + (2 if bins[0] == "edges" else 1)


def _codes(bins: tuple[str, np.ndarray], cells: _Column | Coded) -> np.ndarray:
    """Return the bin of each cell, which depends on that cell only."""
    if isinstance(cells, np.ndarray):
        return _codes_of(bins, cells)
    values, places = (cells.values.tolist(), cells.codes) if isinstance(cells, Coded) else distinct(cells)
    return np.asarray(_codes_of(bins, values)[places])


def _codes_of(bins: tuple[str, np.ndarray], values: _Column) -> np.ndarray:
    kind, marks = bins
    last = _n_bins(bins) - 1
    if kind == "edges":
        numbers = _numbers(values)
        return np.where(np.isfinite(numbers), np.searchsorted(marks, numbers), last)
    if not len(marks):
        return np.full(len(values), last)
    words = _words(values)
    place = np.searchsorted(marks, words).clip(max=len(marks) - 1)
    return np.where(marks[place] == words, place, last)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "__dataframe__") or hasattr(X, "to_pylist") or hasattr(X, "columns")


def _one_hot(array: np.ndarray) -> list[list[int]] | None:
    """Group column indices by category; None if the array is not a table of numbers."""
    if array.ndim != 2 or not len(array) or array.dtype.kind not in "fiub":
        return None
    binary = np.asarray(np.isin(array, (0, 1)).all(axis=0))
    blocks: list[list[int]] = []
    place = 0
    while place < array.shape[1]:
        # the block ends where the columns from its first on sum to one in every row, or with the first
        end, total = place + 1, np.zeros(len(array))
        for last in range(place, array.shape[1]):
            if not binary[last]:
                break
            total += array[:, last]
            if total.max() > 1:
                break
            if total.min() == 1 and last > place:
                end = last + 1
                break
        blocks.append(list(range(place, end)))
        place = end
    return blocks


def _columns(X: Any, names: Any) -> dict[Any, Any]:
    """Return the cells of each column, by name or index."""
    present: Sequence[Any]
    if _is_frame(X):
        import narwhals  # noqa: PLC0415

        frame = narwhals.from_native(X, eager_only=True)
        present = frame.columns

        def column(name: Any) -> Any:
            return frame.get_column(name).to_list()  # names may be numbers, by which a frame has rows

    elif isinstance(X, list | tuple) and X and all(isinstance(row, list | tuple) for row in X):
        # no array: one text would make text of all cells; and each row has its own length
        present = (
            range(max(map(len, X))) if names is None else [place for place in names if isinstance(place, int)]
        )

        def column(name: Any) -> Any:
            return [row[name] if name < len(row) else None for row in X]

    else:
        array = np.asarray(X)
        if array.ndim != 2 or not len(array):
            raise ValueError(f"X must have shape (n_rows, n_columns), got {array.shape}")
        present = range(array.shape[1])

        def column(name: Any) -> Any:
            return array[:, name].tolist()

    wanted = list(present) if names is None else list(names)
    missing = [name for name in wanted if name not in present]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}; it has {len(present)} columns")
    return {name: column(name) for name in wanted}


def _numbers(cells: _Column) -> np.ndarray:
    """Convert each cell to float64, NaN if it is no number; 1, 1.0, True and their texts are equal."""
    if isinstance(cells, np.ndarray):
        return np.asarray(cells, dtype=np.float64)
    return numbers_of([_TRUTH.get(cell, cell) if isinstance(cell, str) else cell for cell in cells])


def _words(cells: _Column) -> np.ndarray:
    """Convert each cell to text, "" if it is missing; 1 and 1.0 are always equal."""
    return np.array([word(cell) for cell in cells], dtype=str)

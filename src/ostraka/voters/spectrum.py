"""Public features, for which each private row votes with a line of its own.

:class:`FeatureCells` has what any transformer gives, half whitened. :class:`Spectrum` has functions of
columns (:class:`Dictionary`, :class:`Interactions`) in their principal directions, each with a share of a
row's length.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.data.contribution import row_by_row
from ostraka.voters.cells import FromPublicRows, QuantileCells, check_resolution, digest, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW = 5  # public rows that are transformed alone, to see whether rows are independent
_ALIKE = "X must hold rows that differ, got {} with the same features"
_LARGEST = 1e100  # of public numbers, so that sums of their squares are finite
_BEYOND = 1e6  # times the largest public number
_LEAST_VARIANCE = 1e-9  # of the largest
_MOST_FEATURES, _ROWS_A_FEATURE = 500, 10
_COMPONENTS, _CENTRES, _PAIRS = 150, 1000, 500  # of the default features
_BINS = 32  # of a column of numbers
_WAVES = 5  # cosines of a number's public rank
_WAVE = 0.5 * math.sqrt(2)  # their size, divided by the frequency: half of a standardised number's
_END = 0.01  # share of public rows beyond each end of a number's range
_MOST_COLUMNS = 150  # of a dictionary; a wider table is taken as numbers of one kind
_MOST_OF_SUMS, _MOST_OF_KERNEL = 200, 500  # components
_CENTRES_BESIDE_SUMS = 800  # public rows of the kernel
_SHARE = 0.2  # prior variance of all that it adds, where that of all sums of functions is 1
_LEAST = 1e-6  # of the largest variance
_HEIGHT = 2.8  # of the water: noise of a component, in prior standard deviations, from which it gets nothing
_LEAST_SHARE = 1e-3  # of the largest one: components below are left out


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

    _furthest: float | None = None  # of private numbers; None: rows are not numbers

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
            check.integer(n_features=self.n_features, least=1)
        check_resolution(self.resolution, least=2)  # of 1, rounded lines are all zeros
        names = getattr(X, "columns", None)  # for the student, which is plain scikit-learn
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.transform_ = self._transformer(X) if self.transform is None else self.transform
        # private numbers may be far beyond the public ones, where nothing overflows, and no further
        self._furthest = None
        if isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
            largest = max(float(np.abs(X.astype(np.float64)).max(initial=0.0)), 1e-100)
            self._furthest = _BEYOND * largest if largest <= _LARGEST else None
        table = _moderate(self._transformed(X), "what transform returns")
        head = self._transformed(_safe_indexing(X, np.arange(min(_FEW, len(table)))))
        size = np.abs(table).max(axis=0) + 1e-300
        if head.shape[1:] != table.shape[1:] or not (np.abs(head - table[: len(head)]) <= 1e-3 * size).all():
            raise ValueError(
                "transform must map each row by itself, but gives other numbers for the first rows without "
                "the others: fit it on public rows before"
            )
        self.middle_ = table.mean(axis=0)
        apart = table - self.middle_
        values, vectors = self._principal(apart)
        directions = np.flatnonzero(values > _LEAST_VARIANCE * values.max(initial=1e-300))
        directions = directions[::-1][: self.n_columns(len(table))]
        if not len(directions):
            raise ValueError(_ALIKE.format(len(table)))
        self.whitening_ = self._scaled(values[directions], vectors[:, directions])
        self.reach_ = 2.0 * self.resolution
        lines = self.lines(X)
        self.features_ = lines / self.resolution
        self.sha256_ = digest([lines])
        self._source = X
        return self

    def lines(self, X: Any) -> np.ndarray:
        """What each row adds to the counts of its class, int64 of shape (n_rows, n_features + 1).

        Numbers far beyond those of the public rows count as the end of a public range. A row whose features
        are not finite counts nothing.
        """
        check_is_fitted(self, "reach_")
        features = self.features(X)
        with np.errstate(over="ignore", invalid="ignore"):  # such rows count nothing
            return shortened((self.resolution - 1) * features, self.resolution).astype(np.int64)

    def features(self, X: Any) -> np.ndarray:
        """Features of rows before they are rounded to lines, float64 of shape (n_rows, n_features + 1)."""
        table = self._transformed(X, private=True)
        if table.shape[1] != len(self.middle_):
            raise ValueError(f"transform must give {len(self.middle_)} numbers a row, got {table.shape[1]}")
        white = row_by_row(lambda some: (some - self.middle_) @ self.whitening_, table)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite in a private row stays so
            return self._of_length_one(white)

    def n_columns(self, n_public: int) -> int:
        """The largest number of features for so many public rows."""
        if self.n_features is None:
            return min(_MOST_FEATURES, max(1, n_public // _ROWS_A_FEATURE))
        return min(self.n_features, n_public)

    def _transformer(self, X: Any) -> Any:
        """The transformer where none is given, fitted on public rows."""
        return kernel_features(X)

    def _principal(self, apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances of centred public rows in their principal directions, rising, and these as columns."""
        values, vectors = np.linalg.eigh(apart.T @ apart / len(apart))
        return values, vectors

    def _scaled(self, values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Principal directions as columns, scaled by what their variances decide."""
        return np.asarray(vectors / values**self.whitening_power)

    def _of_length_one(self, white: np.ndarray) -> np.ndarray:
        """Rows with the last feature, which all share, of length 1."""
        length = np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-300)
        unit = np.sqrt(1 - self.constant**2) * (white / length)
        return np.column_stack([unit, np.full(len(unit), self.constant)])

    def _transformed(self, X: Any, *, private: bool = False) -> np.ndarray:
        if not callable(getattr(self.transform_, "transform", None)):
            kind = type(self.transform_).__name__
            raise TypeError(f"transform must be a fitted transformer, got {kind}")
        plain = self.transform is None and isinstance(self.transform_, Pipeline)
        rows = numbers(X, "X", finite=not private) if plain else X
        if not private:
            return numbers(self.transform_.transform(rows), "what transform returns")
        if self._furthest is not None and isinstance(rows, np.ndarray) and rows.dtype.kind == "f":
            rows = np.clip(rows, -self._furthest, self._furthest)
            if plain:
                rows = np.where(np.isnan(rows), 0.0, rows)
        if isinstance(rows, np.ndarray):
            return numbers(self._by_row(rows), "what transform returns", finite=False)
        # other rows in one go: neighbours share their number and places, and so how products are rounded
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # which would tell of a private row
            warnings.simplefilter("ignore")
            return numbers(self.transform_.transform(rows), "what transform returns", finite=False)

    def _by_row(self, rows: np.ndarray) -> np.ndarray:
        """What the transformer makes of each row alone."""
        return row_by_row(self.transform_.transform, rows)


class Spectrum(FeatureCells):
    """Public functions of columns in their principal directions, each with a share that the noise decides.

    Directions in which public rows vary more are likely to say more about a label. Each gets a share of a
    row's length: as water fills a vessel, those get most for which a share pays most, and those get nothing
    that the noise would drown. More budget means more directions. A row's features have length 1 at most by
    construction, and the model is one of these features: so what keeps rows short biases nothing.

    Parameters
    ----------
    transform : fitted transformer, such as a pipeline of scikit-learn, optional
        As of :class:`FeatureCells`. None: functions of each column
        (:class:`Dictionary`), or for more than 150 columns principal components and a Gaussian kernel.
    n_features : int, optional
        Components that are used at the most. None: 200, or 500 of a transformer. Public.
    resolution : int, default 64
        Length of a line, in units of the counts: its entries are rounded to integers. Public.
    interactions : bool, default False
        Add what a Gaussian kernel of the functions says beyond their sum: it costs noise, which many private
        rows pay for; the way of the filter decides. Public.
    noise : float >= 0, default 0
        Standard deviation of each number in the average of all rounds' mean gradients, where a row adds
        length 1 at the most. Public.

    Attributes
    ----------
    transform_, features_, middle_, whitening_, reach_, sha256_
        As of :class:`FeatureCells`.
    variances_ : float64 array, shape (n_features,)
        Prior variance of each coefficient, relative to each other; the last feature, the constant, has none.

    Guarantees
    ----------
    As of :class:`FeatureCells`.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(400, 6))
    >>> loud, quiet = (Spectrum(noise=noise).fit(rows[:300]) for noise in (0.1, 0.001))
    >>> len(loud.variances_) < len(quiet.variances_)
    True
    >>> bool((np.linalg.norm(quiet.lines(rows[300:]), axis=1) <= quiet.resolution).all())
    True
    """

    constant: ClassVar[float] = 0.5  # before rows get length 1

    def __init__(
        self,
        transform: Any = None,
        *,
        n_features: int | None = None,
        resolution: int = 64,
        interactions: bool = False,
        noise: float = 0.0,
    ) -> None:
        super().__init__(transform, n_features=n_features, resolution=resolution)
        self.interactions = interactions
        self.noise = noise

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the principal directions of the public rows' functions, and their shares."""
        check.nonnegative(noise=self.noise)
        return super().fit(X, y)

    def n_columns(self, n_public: int) -> int:
        """The largest number of features for so many public rows."""
        own = _MOST_OF_SUMS if isinstance(getattr(self, "transform_", None), Dictionary) else _MOST_OF_KERNEL
        return min(own if self.n_features is None else self.n_features, n_public)

    def _transformer(self, X: Any) -> Any:
        wide = not hasattr(X, "columns") and np.ndim(X) == 2 and np.shape(X)[1] > _MOST_COLUMNS
        if wide:
            return kernel_features(X)
        return Interactions().fit(X) if self.interactions else Dictionary().fit(X)

    def _by_row(self, rows: np.ndarray) -> np.ndarray:
        # a dictionary looks numbers up and computes nothing, so all rows go at once
        if isinstance(self.transform_, Dictionary) and rows.dtype.kind in "fiub":
            return self.transform_.transform(rows)
        return super()._by_row(rows)

    def _principal(self, apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The largest variances alone; of kernels, those of what no sum of functions of columns explains."""
        if not isinstance(self.transform_, Interactions):
            return self._largest(apart, self.n_columns(len(apart)))
        n_functions = self.transform_.kernel_.n_features_in_
        table, kernels = apart[:, :n_functions], apart[:, n_functions:]
        values, vectors = self._largest(table, _MOST_OF_SUMS)
        good = values > _LEAST * values.max()
        values, vectors = values[good], vectors[:, good]
        white = vectors / np.sqrt(values)
        explained = white @ ((table @ white).T @ kernels / len(table))
        own, turn = self._largest(kernels - table @ explained, _MOST_OF_KERNEL - _MOST_OF_SUMS)
        good = own > _LEAST * own.max()
        own, turn = own[good], turn[:, good]
        prior = _SHARE * values.sum() * own / own.sum()
        turn = turn * np.sqrt(prior / own)
        whole = np.block([[vectors, -explained @ turn], [np.zeros((len(turn), len(values))), turn]])
        variances = np.append(values, prior)
        order = np.argsort(variances)
        return variances[order], whole[:, order]

    def _largest(self, apart: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Some largest variances, rising, and their directions, among columns that differ between rows."""
        moving = np.flatnonzero(apart.any(axis=0))
        some = apart[:, moving]
        wide = some.shape[1] > len(some)  # then products of rows have the same variances, and are fewer
        moments = (some @ some.T if wide else some.T @ some) / len(some)
        n = len(moments) if len(moving) else 0
        values, part = eigh(moments, subset_by_index=[max(0, n - most), n - 1]) if n else ([], [])
        if wide and n:
            good = values > _LEAST**2 * values.max()
            values, part = values[good], some.T @ (part[:, good] / np.sqrt(len(some) * values[good]))
        vectors = np.zeros((apart.shape[1], len(values)))
        vectors[moving] = part
        return np.asarray(values), vectors

    def _scaled(self, values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        shares = filled(values / values.sum(), (_HEIGHT * self.noise) ** 2)
        some = shares > _LEAST_SHARE * shares.max()
        shares = shares[some] / shares[some].sum()
        self.variances_ = values[some] / values.sum() / shares
        return np.asarray(vectors[:, some] * np.sqrt(shares / values[some]))

    def _of_length_one(self, white: np.ndarray) -> np.ndarray:
        whole = np.column_stack([white, np.full(len(white), self.constant)])
        return np.asarray(whole / np.linalg.norm(whole, axis=1, keepdims=True))


class Dictionary:
    """Functions of each column by itself, from bins that public rows decide.

    A number becomes itself, between its public 1 % and 99 % and standardised, and five cosines of its
    public rank. A category, a column of two numbers and a missing value become zeros and ones.

    Attributes
    ----------
    cells_ : QuantileCells
        Bins of each column. Public.
    values_ : list of float64 arrays, shape (n_bins, n_functions)
        What the functions of a column are in each of its bins. Public.

    Guarantees
    ----------
    What a row becomes depends on that row and on the public ones alone.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> Dictionary().fit(rows).transform(rows[:3]).shape
    (3, 14)
    """

    def fit(self, X: Any) -> Self:
        """Choose bins and functions from public rows."""
        self.cells_ = QuantileCells(n_bins=_BINS).fit(X)
        codes, columns = self.cells_.codes(X), self.cells_.numbers(X)
        self.values_ = [
            np.eye(len(book)) if numbers is None else _functions(numbers, code, len(book))
            for numbers, code, book in zip(columns, codes.T, self.cells_.codebooks_, strict=True)
        ]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The functions of each row's columns, float64 of shape (n_rows, n_functions)."""
        codes = self.cells_.codes(X)
        return np.hstack([table[code] for table, code in zip(self.values_, codes.T, strict=True)])


class Interactions:
    """The functions of a dictionary, and a Gaussian kernel of them with some public rows.

    Attributes
    ----------
    dictionary_ : Dictionary
        Public.
    kernel_ : Nystroem
        Of scikit-learn. Its width is the mean distance of public rows. Public.

    Guarantees
    ----------
    What a row becomes depends on that row and on the public ones alone.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> Interactions().fit(rows).transform(rows[:3]).shape
    (3, 214)
    """

    def fit(self, X: Any) -> Self:
        """Choose functions and rows of the kernel from public rows."""
        self.dictionary_ = Dictionary().fit(X)
        table = self.dictionary_.transform(X)
        places = np.random.default_rng(0).permutation(len(table))[:_CENTRES_BESIDE_SUMS]
        self.kernel_ = Nystroem(gamma=0.5 / max(float(table.var(axis=0).sum()), 1e-300))
        self.kernel_.components_, self.kernel_.component_indices_ = table[places], places
        self.kernel_.normalization_, self.kernel_.n_features_in_ = np.eye(len(places)), table.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Functions, then kernels, of each row: float64 of shape (n_rows, n_functions + n_centres)."""
        table = self.dictionary_.transform(X)
        return np.hstack([table, self.kernel_.transform(table)])


def _functions(numbers: np.ndarray, codes: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the value of each function of a column of public numbers in each bin; the last is missing."""
    whole = np.isfinite(numbers)
    times = np.bincount(codes, minlength=n_bins)
    table = np.zeros((n_bins, 1))
    table[-1] = 1.0
    values = numbers[whole]
    if not len(values) or values.min() == values.max():
        return table
    low, high = np.quantile(values, [_END, 1 - _END])
    if low == high:  # nearly all rows hold one number
        low, high = values.min(), values.max()
    two = len(np.unique(values)) == 2
    values = np.clip(values, low, high)
    sums = np.bincount(codes[whole], weights=values, minlength=n_bins)
    middle = float(values.mean())
    means = np.where(times > 0, sums / np.maximum(times, 1), middle)
    means[-1] = middle
    if two:
        return np.hstack([((means - low) / (high - low))[:, None], table])
    line = ((means - middle) / float(values.std()))[:, None]
    inside = times[:-1].astype(np.float64)
    rank = (np.cumsum(inside) - inside / 2) / inside.sum()
    orders = np.arange(1, _WAVES + 1)
    waves = _WAVE / orders * np.cos(math.pi * rank[:, None] * orders)
    missing = (inside @ waves / inside.sum())[None]
    return np.hstack([line, np.vstack([waves, missing]), table])


def filled(variances: Sequence[float] | np.ndarray, noise: float) -> np.ndarray:
    """Return the shares of a unit of length that leave the smallest sum of posterior variances.

    A component of prior variance v and share b has posterior variance v noise / (noise + b v). So its share
    is the height of the water above noise / v, which is the same for all components that get any.
    Source: Cover and Thomas 2006, doi:10.1002/047174882X, Sec. 9.4 (water-filling).

    Parameters
    ----------
    variances : array of shape (n,), all > 0
    noise : float >= 0
        Variance of the noise of a component that has the whole length.

    Examples
    --------
    >>> filled([0.5, 0.3, 0.2], 0.1).round(3).tolist()
    [0.478, 0.344, 0.178]
    >>> filled([0.9, 0.1], 0.5).tolist()
    [1.0, 0.0]
    """
    ground = noise / np.asarray(variances, dtype=np.float64)
    deep = np.sort(ground)
    heights = (1 + np.cumsum(deep)) / np.arange(1, len(deep) + 1)
    height = heights[np.flatnonzero(heights >= deep)[-1]]
    return np.asarray(np.maximum(0.0, height - ground))


def shortened(rows: np.ndarray, longest: int) -> np.ndarray:
    """Rows of whole numbers, each at most ``longest`` long: rounded, or towards zero where that is too long.

    A row that is still too long, or not finite, is all zeros. Squares of whole numbers are exact, so the
    comparison is.
    """
    integers = np.rint(rows)
    for again in (np.trunc, np.zeros_like):
        too_long = ~(np.einsum("ij,ij->i", integers, integers) <= longest**2)
        integers[too_long] = again(rows[too_long])
    return np.asarray(integers)


def kernel_features(X: Any) -> Pipeline:
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


def _moderate(table: np.ndarray, name: str) -> np.ndarray:
    if not np.abs(table).max() <= _LARGEST:
        raise ValueError(f"{name} must hold numbers up to {_LARGEST:g}, got larger ones: rescale public rows")
    return table

"""Public functions of columns in their principal directions, each with a share of a row's length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.kernel_approximation import Nystroem

from ostraka.core import check
from ostraka.voters.cells import QuantileCells
from ostraka.voters.rows import FeatureCells, kernel_features

if TYPE_CHECKING:
    from collections.abc import Sequence

_BINS = 32  # of a column of numbers
_WAVES = 5  # cosines of a number's public rank
_WAVE = 0.5 * math.sqrt(2)  # their size, divided by the frequency: half of a standardised number's
_END = 0.01  # share of public rows beyond each end of a number's range
_MOST_COLUMNS = 150  # of a dictionary; a wider table is taken as numbers of one kind
_MOST, _MOST_OF_KERNEL = 200, 500  # components
_QUIET, _MANY = 1 / 6000, 2000  # noise, and public rows, with which interactions pay
_CENTRES = 800  # public rows of the kernel
_SHARE = 0.2  # prior variance of all that it adds, where that of all sums of functions is 1
_LEAST_VARIANCE = 1e-6  # of the largest one
_HEIGHT = 2.8  # of the water: noise of a component, in prior standard deviations, from which it gets nothing
_LEAST_SHARE = 1e-3  # of the largest one: components below are left out


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
        places = np.random.default_rng(0).permutation(len(table))[:_CENTRES]
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


class Spectrum(FeatureCells):
    """Public functions of columns in their principal directions, each with a share that the noise decides.

    Directions in which public rows vary more are likely to say more about a label. Each gets a share of a
    row's length: as water fills a vessel, those get most for which a share pays most, and those get nothing
    that the noise would drown. More budget means more directions. A row's features have length 1 at most by
    construction, and the model is one of these features: so what keeps rows short biases nothing.

    Parameters
    ----------
    transform : fitted transformer, such as a pipeline of scikit-learn, optional
        As of :class:`~ostraka.voters.rows.FeatureCells`. None: functions of each column
        (:class:`Dictionary`), or for more than 150 columns principal components and a Gaussian kernel.
    n_features : int, optional
        Components that are used at the most. None: 200, or 500 of a transformer. Public.
    resolution : int, default 64
        Length of a line, in units of the counts: its entries are rounded to integers. Public.
    interactions : bool, default False
        Add what a Gaussian kernel of the functions says beyond their sum: it costs noise, which many private
        rows pay for (:func:`many_rows`). Public.
    noise : float >= 0, default 0
        Standard deviation of each number in the average of all rounds' mean gradients, where a row adds
        length 1 at the most. Public.

    Attributes
    ----------
    transform_, features_, middle_, whitening_, reach_, sha256_
        As of :class:`~ostraka.voters.rows.FeatureCells`.
    variances_ : float64 array, shape (n_features,)
        Prior variance of each coefficient, relative to each other; the last feature, the constant, has none.

    Guarantees
    ----------
    As of :class:`~ostraka.voters.rows.FeatureCells`.

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
        own = _MOST if isinstance(getattr(self, "transform_", None), Dictionary) else _MOST_OF_KERNEL
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
        values, vectors = self._largest(table, _MOST)
        good = values > _LEAST_VARIANCE * values.max()
        values, vectors = values[good], vectors[:, good]
        white = vectors / np.sqrt(values)
        explained = white @ ((table @ white).T @ kernels / len(table))
        own, turn = self._largest(kernels - table @ explained, _MOST_OF_KERNEL - _MOST)
        good = own > _LEAST_VARIANCE * own.max()
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
            good = values > _LEAST_VARIANCE**2 * values.max()
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


def many_rows(noise: float, n_public: int) -> bool:
    """Whether private rows pay for interactions, by public numbers alone.

    The rule was chosen on tables of the stated half of ``python -m bench tables``.

    Parameters
    ----------
    noise : float
        As of :class:`Spectrum`.
    n_public : int

    Examples
    --------
    >>> many_rows(1e-4, 6000), many_rows(1e-3, 6000)
    (True, False)
    """
    return noise < _QUIET and n_public >= _MANY

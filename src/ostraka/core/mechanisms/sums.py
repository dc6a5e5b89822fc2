"""Sums with noise: one-hot rows of labels, and Gaussian sums of rows of bounded length, on a grid.

The noise of one-hot rows is Laplace or Gaussian. All noise is of a real law, drawn exactly as the cell of a
grid that it falls into.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import PURE, Law
from ostraka.core.mechanisms import exact, response, tight
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private

_LEAST, _MOST = 0.05, 1e4  # of the noise of one-hot rows: an epsilon of 40, and noise that leaves nothing
_ROUNDING = 1 + 1e-12  # of the closed form
CELLS = 2**16  # of the grid in one standard deviation of the noise
_LEAST_SIGMA, _MOST_SIGMA = 1e-3, 1e9  # of sums of rows
EXACT = 2**52  # whole numbers up to here are exact, and so are their sums


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotLaplace(response.Labels):
    """A one-hot row for each label, with Laplace noise on every entry.

    Parameters
    ----------
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    scale : float in [0.05, 1e4]
        The Laplace scale b; 2 / epsilon for pure ``epsilon``-DP. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes, before anything is charged.

    Guarantees
    ----------
    The release of all labels is (2 / scale)-DP for one label: another label moves two entries by one
    each. ``curve()`` is the Rényi divergence of these two entries, in both directions. Answers are whole
    multiples of a power of two, plus half of it: cells of real Laplace noise, drawn in whole numbers,
    so that no low bit tells which label was noised; without slack (docs/record/floating-point.md).
    Source: Malek et al. 2021, arXiv:2106.03408, Sec. 5 and eq. 3; Mironov 2017, arXiv:1702.07476,
    Prop. 6 (the curve); docs/label-privacy.md (delta).

    Examples
    --------
    >>> mechanism = OneHotLaplace(n_classes=3, scale=1.0)
    >>> mechanism.curve().rdp[-1]  # the last order is infinity
    2.0
    >>> mechanism.posterior([[0.2, 1.4, -0.3]], [[0.5, 0.25, 0.25]]).round(3)
    array([[0.262, 0.65 , 0.088]])
    """

    n_classes: int
    scale: float

    def __post_init__(self) -> None:
        check.integer(n_classes=self.n_classes, least=2)
        check.between(least=_LEAST, most=_MOST, scale=self.scale)

    def curve(self) -> Curve:
        """Cost of one release of all labels."""
        order = np.array(ORDERS)
        apart = np.append(order[:-1] / (order[:-1] - 1), 1.0) * exact.EXACTNESS
        two = 2 * (tight.laplace_rdp(1 / self.scale, order) * _ROUNDING + apart)
        rdp = tuple(np.minimum(two, 2 / self.scale).tolist())
        return Curve(ORDERS, rdp, "label", laws=(Law(PURE, rdp[-1]),))

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP: 1 - e^(-r/2) (1 + r/4), rounded up.

        In it, r = 2 / scale - epsilon, and delta is 0 where that is not positive.
        """
        check.nonnegative(epsilon=epsilon)
        if epsilon >= 2 / self.scale:
            return 0.0
        r = min(2 / self.scale - epsilon + 4 * exact.EXACTNESS, 2 / self.scale)
        return -math.expm1(-r / 2) - r / 4 * math.exp(-r / 2) + 4 * exact.EXACTNESS

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One noisy row a label, float64 of shape (n, n_classes)."""
        labels = response.hard(private, self.n_classes)
        grain = exact.grain(self.scale)
        # the law drawn may be off by a little: so is its scale, to the safe side
        rate = grain * (1 / self.scale - exact.EXACTNESS)
        return _noised(labels, exact.geometric(rate, (len(labels), self.n_classes), rng=rng), grain, rng)

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log density of each answer under each label, up to a constant for each row."""
        return np.asarray(np.clip(2 * response.soft(answers, self.n_classes) - 1, -1, 1) / self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotGaussian(response.Labels):
    """A one-hot row for each label, with Gaussian noise on every entry.

    Parameters
    ----------
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    sigma : float in [0.05, 1e4]
        Standard deviation of the noise. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes, before anything is charged.

    Guarantees
    ----------
    One changed label is a Gaussian shift of mu = sqrt(2) / sigma, exactly; ``curve().delta`` and
    ``curve().epsilon`` are those of the exact Gaussian (Balle and Wang 2018, arXiv:1805.06530, Thm. 8),
    not of the textbook bound. Answers are cells of the real noise, as :class:`OneHotLaplace`, drawn
    exactly: where a table does not decide the cell for certain, more bits do (docs/record/floating-point.md).
    Source: Malek et al. 2021, arXiv:2106.03408, Sec. 5 and App. D.

    Examples
    --------
    >>> round(OneHotGaussian(n_classes=10, sigma=4.0).curve().epsilon(delta=1e-5), 2)
    1.36
    """

    n_classes: int
    sigma: float

    def __post_init__(self) -> None:
        check.integer(n_classes=self.n_classes, least=2)
        check.between(least=_LEAST, most=_MOST, sigma=self.sigma)

    def curve(self) -> Curve:
        """Cost of one release of all labels."""
        return Curve.gaussian(sensitivity=up(math.sqrt(2)), sigma=self.sigma, moves="label")

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP, rounded up."""
        return self.curve().delta(epsilon)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One noisy row a label, float64 of shape (n, n_classes)."""
        labels = response.hard(private, self.n_classes)
        grain = exact.grain(self.sigma)
        size = exact.half_normal(self.sigma / grain, (len(labels), self.n_classes), rng=rng)
        return _noised(labels, size, grain, rng)

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log density of each answer under each label, up to a constant for each row."""
        return (response.soft(answers, self.n_classes) - 0.5) / self.sigma**2


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSums:
    """The sum of all rows, with Gaussian noise on every column.

    Parameters
    ----------
    n_columns : int >= 1
        Public.
    sigma : float in [1e-3, 1e9]
        Standard deviation of the noise of each column, where the length of a row is 1 at most. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, rows of another shape, or that are not finite.

    Guarantees
    ----------
    For one row added or removed, the Gaussian mechanism of sensitivity 1 + sigma / 32768 at most and standard
    deviation ``sigma``. Rows longer than 1 are shortened to 1. Rows are rounded to a grid of sigma / 65536,
    so that their sum is exact and rounding of a sum tells nothing about them; a row whose rounding would be
    longer than the price allows is rounded towards 0. What is released is the cell that the real noise falls
    into, drawn exactly (docs/record/floating-point.md).
    Source: Dwork and Roth 2014, Theorem A.1; Dong, Roth and Su 2019, arXiv:1905.02383, Theorem 2.7.

    Examples
    --------
    >>> from ostraka import Adjacency, Private
    >>> rows = Private([[0.6, 0.8]] * 1000, Adjacency(moves="row", relation="add-or-remove"))
    >>> found = GaussianSums(n_columns=2, sigma=4.0).release(rows, rng=np.random.default_rng(0))
    >>> np.abs(found - [600, 800]).max() < 20
    np.True_
    """

    n_columns: int
    sigma: float

    def __post_init__(self) -> None:
        check.integer(n_columns=self.n_columns, least=1)
        check_sigma(sigma=self.sigma)

    @property
    def promise(self) -> Adjacency:
        """One row may be present or absent."""
        return Adjacency(moves="row", relation="add-or-remove")

    def curve(self) -> Curve:
        """Cost of one release of all sums."""
        return sums_curve(self.sigma)

    def uses(self, private: Private) -> int:
        """One use for all sums together."""
        rows_of(private, self.n_columns, sigma=self.sigma)
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The noisy sums, float64 of shape (n_columns,)."""
        rows = rows_of(private, self.n_columns, sigma=self.sigma)
        return with_noise(on_grid(rows, sigma=self.sigma).sum(axis=0), sigma=self.sigma, rng=rng)


def check_sigma(**named: float) -> None:
    """Raise ValueError unless a grid exists for noise of this sigma."""
    check.between(least=_LEAST_SIGMA, most=_MOST_SIGMA, **named)


def sums_curve(sigma: float) -> Curve:
    """Cost of one release of sums, sensitivity 1, rounding included."""
    return Curve.gaussian(sensitivity=float(longest(sigma)), sigma=float(CELLS), moves="row")


def on_grid(rows: np.ndarray, *, sigma: float, shares: np.ndarray | None = None) -> np.ndarray:
    """Round rows to whole multiples of the grid, with lengths that the price allows; float64.

    ``shares``: the length each row may have, if it is not 1.
    """
    share = np.ones(len(rows)) if shares is None else shares
    square = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    limit = share * (1 - 1e-9)
    places = rows * (units(sigma) * np.minimum(1.0, limit / np.sqrt(np.maximum(square, 1e-300))))[:, None]
    rounded: np.ndarray = np.rint(places)
    allowed = (longest(sigma) * share) ** 2 * (1 - 1e-9)
    too_long = np.einsum("ij,ij->i", rounded, rounded) > allowed
    rounded[too_long] = np.trunc(places[too_long])
    return rounded


def with_noise(
    totals: np.ndarray, *, sigma: float, rng: np.random.Generator, cells: float = float(CELLS)
) -> np.ndarray:
    """Add noise to sums on the grid; return the middle of the cell that the real noise falls into.

    ``cells``: of the grid in one standard deviation of the noise.
    """
    size = exact.half_normal(cells, totals.shape, rng=rng)
    halves: np.ndarray = 2 * totals.astype(np.int64) + (2 * size + 1) * (
        1 - 2 * rng.integers(0, 2, size=size.shape)
    )
    return np.asarray(halves * (sigma / (2 * cells)))


def rows_of(private: Private, n_columns: int, *, sigma: float) -> np.ndarray:
    """Return the rows after checks: number of columns, finite values, and few enough rows for exact sums.

    Raises
    ------
    ValueError
        They do not; no value is in the message.
    """
    rows: np.ndarray = private.open()
    if rows.ndim != 2 or rows.shape[1] != n_columns or rows.dtype.kind not in "fiu":
        raise ValueError(f"rows must be numbers in {n_columns} columns, got shape {rows.shape}")
    if len(rows) * longest(sigma) > EXACT:
        raise ValueError(f"sums of {len(rows):,} rows at sigma {sigma:g} are not exact: take more noise")
    if not np.isfinite(rows).all():
        raise ValueError("rows must be finite: some numbers are missing or infinite")
    return rows


def units(sigma: float) -> float:
    """Return the number of grid cells in a length of 1."""
    return CELLS / sigma


def longest(sigma: float) -> int:
    """Return the largest length of a row on the grid: that of a row of length 1, plus rounding."""
    return math.ceil(CELLS / sigma) + 1


def _noised(labels: np.ndarray, size: np.ndarray, grain: float, rng: np.random.Generator) -> np.ndarray:
    """One-hot rows plus noise in the middles of cells, ``size`` cells to either side; no sum rounds."""
    halves = (2 * size + 1) * (1 - 2 * rng.integers(0, 2, size=size.shape))
    halves[np.arange(len(labels)), labels] += round(2 / grain)
    return np.asarray(halves * (grain / 2))

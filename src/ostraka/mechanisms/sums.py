"""Gaussian sums: the sum of rows of bounded length, with Gaussian noise drawn on a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ostraka import _check
from ostraka.curve import Curve
from ostraka.mechanisms import _whole
from ostraka.private import Adjacency

if TYPE_CHECKING:
    from ostraka.private import Private

__all__ = [
    "CELLS",
    "EXACT",
    "GaussianSums",
    "check_sigma",
    "longest",
    "on_grid",
    "rows_of",
    "sums_curve",
    "units",
    "with_noise",
]

CELLS = 2**16  # of the grid in one standard deviation of the noise
_LEAST_SIGMA, _MOST_SIGMA = 1e-3, 1e9
EXACT = 2**52  # whole numbers up to here are exact, and so are their sums


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
    into, drawn exactly (docs/floating-point.md).
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
        _check.integer(n_columns=self.n_columns, least=1)
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
    _check.positive(**named)
    for name, sigma in named.items():
        if not _LEAST_SIGMA <= sigma <= _MOST_SIGMA:
            raise ValueError(f"{name} must be from {_LEAST_SIGMA:g} to {_MOST_SIGMA:g}, got {sigma!r}")


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
    exact = rows * (units(sigma) * np.minimum(1.0, limit / np.sqrt(np.maximum(square, 1e-300))))[:, None]
    found: np.ndarray = np.rint(exact)
    allowed = (longest(sigma) * share) ** 2 * (1 - 1e-9)
    far = np.einsum("ij,ij->i", found, found) > allowed
    found[far] = np.trunc(exact[far])
    return found


def with_noise(
    totals: np.ndarray, *, sigma: float, rng: np.random.Generator, cells: float = float(CELLS)
) -> np.ndarray:
    """Add noise to sums on the grid; return the middle of the cell that the real noise falls into.

    ``cells``: of the grid in one standard deviation of the noise.
    """
    size = _whole.half_normal(cells, totals.shape, rng=rng)
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

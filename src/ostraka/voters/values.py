"""Rows with a number each: what a public linear model gets wrong about them, in whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.data.units import Manifest, numbered
from ostraka.voters.cells import check_relation
from ostraka.voters.rows import ROWS, bounded_sums, clipped_residuals, coefficients, dealt, lines_of, moved

if TYPE_CHECKING:
    from ostraka.core.private import Private
    from ostraka.voters.spectrum import Spectrum


DISTANCES = np.append(0.0, 2.0 ** (1 - np.arange(16, -1, -1) / 2))
"""Edges of bins of distances between numbers from -1 to 1: each is 41 % above the one before. Public."""


@dataclass(kw_only=True, eq=False, repr=False)
class ValueVoter(BaseEstimator):
    """Rows with a number each, between declared bounds; they add what a public model gets wrong.

    Parameters
    ----------
    cells : Spectrum, fitted on public rows
        Public.
    bounds : (low, high)
        Declared bounds of the numbers. What is beyond counts as the nearest bound. Public.
    manifest : Manifest, optional
        One teacher a unit. None: dealt anew.
    relation : {"replace-one", "zero-out"}
        How neighbours differ (:class:`~ostraka.Adjacency`). Public.

    Attributes
    ----------
    unit_ : str
        Public. ``"row"``, or ``"person"`` when rows were grouped.
    n_units_ : int
        Public. Protected units.
    manifest_ : Manifest
        With the data, like the rows.

    Guarantees
    ----------
    See :meth:`gradient`. A number that is missing or not finite counts nothing.

    Examples
    --------
    >>> from ostraka.voters.spectrum import Spectrum
    >>> rows = np.random.default_rng(0).normal(size=(300, 2))
    >>> cells = Spectrum(noise=0.01).fit(rows[:100])
    >>> voter = ValueVoter(cells=cells, bounds=(-3.0, 3.0)).fit(rows[100:], rows[100:, 0])
    >>> voter.gradient(np.zeros((len(cells.variances_) + 1, 1)), clip=1.0, parts=8).adjacency.l2
    1024.0
    """

    cells: Spectrum
    bounds: tuple[float, float]
    manifest: Manifest | None = None
    relation: str = "replace-one"

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Keep the line of each row with its number.

        Parameters
        ----------
        X : array or data frame of n_rows rows, as ``cells`` takes it
            Private.
        y : array of shape (n_rows,)
            Private.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to; the protected unit is then the person.

        Raises
        ------
        ValueError
            Bounds out of order; cells fitted on these rows; wrong shapes; a manifest of other data.
        """
        check_relation(self.relation)
        check_is_fitted(self.cells, "reach_")
        self._lines = lines_of(self.cells, X)
        n_rows = len(self._lines)
        for name, values in (("y", y), ("groups", groups)):
            if values is not None and len(values) != n_rows:
                raise ValueError(f"{name} must have one value a row: got {len(values)} for {n_rows} rows")
        self._targets = scaled(y, self.bounds)
        owners = n_rows if groups is None else groups
        self._people, self.n_units_, self.unit_ = numbered(owners)
        self.manifest_ = dealt(self.manifest, owners)
        return self

    def gradient(self, coef: Any, *, clip: float, parts: int) -> Private:
        """What a public linear model gets wrong, clipped: the sum of each row's line times its residual.

        Parameters
        ----------
        coef : array of shape (n_features, 1)
            From features of a line of length 1 to numbers between -1 and 1. Public.
        clip : float > 0
            The largest residual. Public.
        parts : int >= 1
            The clip is counted in so many parts. Public.

        Returns
        -------
        Private of the shape of ``coef``, int64, in parts of the clip times units of the lines
            One unit moves it by at most ``adjacency.l2`` of this array.

        Raises
        ------
        ValueError
            Coefficients of another shape or not finite, numbers out of range, or sums that are not exact.

        Guarantees
        ----------
        A row adds a line of length at most L times a residual of at most ``parts``, both of whole numbers,
        and a person the mean of what its rows add, rounded towards zero. So two versions of a unit are at
        most 2 L ``parts`` apart, and leaving it out moves the table by at most L ``parts``
        (docs/noisy-counts.md, Theorem 4).
        """
        check.positive(clip=clip)
        coef, targets = self._checked(coef), self._targets

        def residuals(expected: np.ndarray, some: slice) -> np.ndarray:
            return clipped_residuals(expected, targets[some], clip, parts)

        people = None if self.unit_ == "row" else self._people
        return bounded_sums(self, self._lines, coef, residuals, parts=parts, people=people)

    def distances(self, coef: Any, *, parts: int) -> Private:
        """How many rows are how far from what a public linear model expects of them.

        Parameters
        ----------
        coef, parts
            As of :meth:`gradient`.

        Returns
        -------
        Private of shape (n_bins, 1), int64, in units of which a row adds :meth:`weight`
            Bins are those of :data:`DISTANCES`. One unit moves the table by at most ``adjacency.l2``.

        Raises
        ------
        ValueError
            As of :meth:`gradient`.

        Guarantees
        ----------
        A row adds :meth:`weight` to the bin of its distance, and a person the mean of what its rows add,
        rounded towards zero. Two versions of a unit are in different bins at the most, so sqrt(2) weights
        apart, and leaving it out moves the table by at most one: this table has the adjacency of
        :meth:`gradient`.
        """
        check.integer(parts=parts, least=1)
        coef = self._checked(coef)
        bins = np.empty(len(self._lines), dtype=np.int64)
        for start in range(0, len(bins), ROWS):
            some = slice(start, start + ROWS)
            expected = self._lines[some].astype(np.float64) @ coef / self.cells.resolution
            bins[some] = distance_bins(expected, self._targets[some])
        weight, n_bins = self.weight(parts=parts), len(DISTANCES) - 1
        mine = bins >= 0  # a missing number counts nothing
        if self.unit_ == "row":
            sums = weight * np.bincount(bins[mine], minlength=n_bins)
        else:
            counts = np.zeros((self.n_units_, n_bins), dtype=np.int64)
            np.add.at(counts, (self._people[mine], bins[mine]), weight)
            sums = (counts // np.bincount(self._people, minlength=self.n_units_)[:, None]).sum(axis=0)
        return moved(self, sums[:, None].astype(np.int64), parts)

    def weight(self, *, parts: int) -> int:
        """What a row adds to its bin of :meth:`distances`: as much as the adjacency of a gradient allows."""
        square = round(parts * self.cells.reach_) ** 2 // (4 if self.relation == "zero-out" else 2)
        return math.isqrt(square)

    def _checked(self, coef: Any) -> np.ndarray:
        check_is_fitted(self, "unit_")
        return coefficients(coef, (self._lines.shape[1], 1))


def distance_bins(expected: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The bin of each row's distance between a prediction, (n_rows, 1), and its target; -1 where it has none.

    What is expected beyond -1 and 1 counts as these, between which targets are.

    >>> distance_bins(np.array([[0.0], [2.0], [0.0]]), np.array([0.001, -1.0, np.nan])).tolist()
    [0, 16, -1]
    """
    apart = np.abs(targets - np.clip(expected[:, 0], -1, 1))
    known = np.isfinite(apart)
    bins = np.searchsorted(DISTANCES[1:], np.where(known, apart, 0.0))
    return np.asarray(np.where(known, np.minimum(bins, len(DISTANCES) - 2), -1))


def scaled(y: Any, bounds: tuple[float, float]) -> np.ndarray:
    """Numbers from -1 at the low bound to 1 at the high one; missing ones stay so.

    Raises
    ------
    ValueError
        Bounds out of order or not finite, or values that are no numbers; no value is in the message.
    """
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"bounds must be finite numbers, the low one first, got {bounds!r}")
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):  # which would quote a value
        values = None
    if values is None or values.ndim != 1:
        raise ValueError("y must be numbers in one dimension")
    return np.asarray(2 * (np.clip(values, low, high) - low) / (high - low) - 1)

"""Row voting: every private row casts one ballot in all, for its public cell and its class."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka._units import numbered
from ostraka.private import Adjacency, Private
from ostraka.randomness import os_keyed
from ostraka.voters._residuals import residual_sums
from ostraka.voters._tables import CLASSES_FROM_Y, encoded
from ostraka.voters.cells import FINEST, check_relation, reach
from ostraka.voters.shards import Manifest, partition

if TYPE_CHECKING:
    from ostraka.voters.cells import Cells

__all__ = ["RowVoter", "ballot_of", "contrasts", "own_features"]

_MOST = 2.0**62  # in a table of int64
_EXACT = 2.0**52  # sums of floats
_TWO = 2  # classes, whose difference needs less noise than their sums


def own_features(cells: Any) -> bool:
    """Whether a row adds a line of its own instead of one of a codebook."""
    return hasattr(cells, "lines") and not hasattr(cells, "codes")


def ballot_of(cells: Any, n_classes: int, *, parts: int, relation: str = "replace-one") -> tuple[int, float]:
    """Parts in which a ballot for fitted cells is counted, and how far one unit moves the table."""
    check_relation(relation)
    if not own_features(cells):
        return parts, parts * reach(cells.codebooks_, relation)
    # each line is checked against half of the reach
    far = cells.reach_ / 2 if relation == "zero-out" else cells.reach_
    return (_TWO, far * math.sqrt(2)) if n_classes == _TWO else (1, far)


def contrasts(sums: np.ndarray) -> np.ndarray:
    """The table of sums for each class, in columns; of two classes, each sum less the other."""
    return sums - sums[:, ::-1] if sums.shape[1] == _TWO else sums


class RowVoter(BaseEstimator):
    """Row voting: each private row casts one ballot in all, for its cell among public cells and its class.

    Parameters
    ----------
    cells : GraphCells, QuantileCells, FeatureCells or the like, fitted on public rows
        Says what a row may add to the counts of its class. Public. It is never fitted here.
    person : {"shared", "sampled"}
        What a person with several rows does. ``"shared"``: the rows share one ballot of ``units`` parts.
        ``"sampled"``: one row, drawn at random by the operating system's generator when votes are counted,
        casts it.
    units : int, default 12
        Parts of a shared ballot. Used only where rows were grouped. Public.
    manifest : Manifest, optional
        One teacher a unit. None: dealt anew.
    relation : {"replace-one", "zero-out"}
        How neighbours differ (:class:`~ostraka.Adjacency`). ``"replace-one"``: the data of one unit is
        replaced by any other, or by nothing. ``"zero-out"``: by nothing alone. This promises less, and the
        table moves less. Public.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Public. Column k of the counts is of ``classes_[k]``.
    unit_ : str
        Public. ``"row"``, or ``"person"`` when rows were grouped.
    n_units_ : int
        Public. Protected units.
    manifest_ : Manifest
        With the data, like the rows. Only its hash may be published.
    ballot_ : int
        Public. Parts in which one ballot is counted: 1, or ``units``. With features of each row's own and
        two classes it is 2: each sum less the other is twice what the sum is above the mean of both.
    adjacency_ : Adjacency
        Public. How far one unit moves the table of counts.
    notes_ : list of str
        Public. What a reader of any result must know.

    Guarantees
    ----------
    *Sensitivity.* The table is a sum over units. A unit adds integer combinations, of total weight
    ``ballot_``, of lines of the public codebooks, in the columns of its rows' classes. So if its data are
    replaced by any other, or by nothing, the table moves by an integer vector of Euclidean norm at most
    ``ballot_`` times the reach of the codebooks, which is computed over all pairs of their lines: sqrt(2) for
    clusters, sqrt(2 k) for k columns of bins (docs/noisy-counts.md, Theorem 2). Other units' ballots do not
    depend on it. The number of units is public. With features of each row's own and two classes, the
    table holds differences and their negatives, and moves by at most sqrt(2) times the reach. Under
    ``"zero-out"`` the length of the longest line takes the place of the reach: 1 for clusters, sqrt(k) for
    k columns of bins, the resolution for features of each row's own.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ostraka import Budget, Ledger, release
    >>> from ostraka.mechanisms import NoisyCounts
    >>> from ostraka.voters import GraphCells
    >>> X, y = load_digits(return_X_y=True)
    >>> cells = GraphCells(image_shape=(8, 8), n_cells=15).fit(X[:300])
    >>> votes = RowVoter(cells=cells).fit(X[300:], y[300:], classes=range(10)).vote()
    >>> votes
    Private(shape=(15, 10), unit='row')
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     release(NoisyCounts(sigma=4.0), votes, ledger=ledger).shape
    (15, 10)
    """

    def __init__(
        self,
        *,
        cells: Cells,
        person: Literal["shared", "sampled"] = "shared",
        units: int = 12,
        manifest: Manifest | None = None,
        relation: str = "replace-one",
    ) -> None:
        self.cells = cells
        self.person = person
        self.units = units
        self.manifest = manifest
        self.relation = relation

    def fit(self, X: Any, y: Any, groups: Any = None, *, classes: Any = None) -> Self:
        """Find each row's code among the public cells, and keep it with the label.

        Parameters
        ----------
        X : array or data frame of n_rows rows, as ``cells`` takes it
            Private.
        y : array of shape (n_rows,)
            Private.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to; the protected unit is then the person.
        classes : array of shape (n_classes,), optional
            Public. Every class there may be. None: the labels' own, and ``notes_`` says so.

        Raises
        ------
        ValueError
            Cells which were not fitted, or were fitted on these very rows; codes outside of the codebooks;
            wrong shapes; a class not declared; a manifest of other data.
        """
        self._check_settings()
        codes = self._lines_of(X) if own_features(self.cells) else self._codes_of(X)
        y = np.asarray(y)
        if y.shape != (len(codes),):
            raise ValueError(f"y must have one label for each of {len(codes)} rows, got shape {y.shape}")
        if groups is not None and len(groups) != len(codes):
            raise ValueError(f"groups must name one person a row: got {len(groups)} for {len(codes)} rows")
        if groups is not None and own_features(self.cells):
            raise ValueError(
                "groups must be None for cells with features of each row's own: use GraphCells or "
                "QuantileCells, or keep one row of each person"
            )
        self.notes_ = [] if classes is not None else [CLASSES_FROM_Y]
        self.classes_, labels = encoded(y, classes)
        owners = len(codes) if groups is None else groups
        people, self.n_units_, self.unit_ = numbered(owners)
        self.manifest_ = self._dealt(owners)
        shared = groups is not None and self.person == "shared"
        parts = self.units if shared else 1
        self.ballot_, far = ballot_of(self.cells, len(self.classes_), parts=parts, relation=self.relation)
        if not far * len(codes) < _MOST:
            raise ValueError(
                f"cells must add so little that {len(codes):,} rows fit into 64 bits, but one can move the "
                f"table by {far:g}: give cells with a smaller resolution"
            )
        self.adjacency_ = Adjacency.vector(unit=self.unit_, l2=far, relation=self.relation)
        self._codes, self._labels, self._people = codes, labels, people
        return self

    def vote(self) -> Private:
        """Return the table of counts: all cells, column after column, as rows, and one column per class.

        Returns
        -------
        Private of shape (n_cells, n_classes), int64, in parts of a ballot
            One unit moves it by at most ``adjacency_.l2``: for :class:`ostraka.mechanisms.NoisyCounts`. With
            features of each row's own and two classes, each class's sum less the other's.
        """
        check_is_fitted(self, "adjacency_")
        weights = self._weights()
        if own_features(self.cells):
            each = [self._labels == label for label in range(len(self.classes_))]
            sums = np.stack([self._codes[own].T @ weights[own] for own in each], axis=1)
            return Private(contrasts(sums), self.adjacency_)
        tables = []
        for codes, book in zip(self._codes.T, self.cells.codebooks_, strict=True):
            lines = np.zeros((len(book), len(self.classes_)), dtype=np.int64)
            np.add.at(lines, (codes, self._labels), weights)
            tables.append(book.T @ lines)
        return Private(np.concatenate(tables), self.adjacency_)

    def residuals(self, coef: Any, *, clip: float, parts: int) -> Private:
        """What a public model gets wrong: the sum of each row's line times its residual.

        A residual is the row's class, as zeros and a one, less the probabilities that the model gives. The
        sum is the gradient of the log likelihood of logistic regression, with each row's part bounded.

        Parameters
        ----------
        coef : array of shape (n_features, n_classes)
            Log odds for each feature, where a line has length 1. Public.
        clip : float > 0
            Length that longer residuals are shortened to. Public.
        parts : int >= 1
            The clip is counted in so many parts, to which residuals are rounded. Public.

        Returns
        -------
        Private of shape (n_features, n_classes), int64, in parts of the clip times units of the lines
            One unit moves it by at most ``parts`` times how far it moves the sums of one class.

        Raises
        ------
        ValueError
            Cells without features of each row's own, coefficients of another shape or not finite, numbers
            out of range, or so many rows and parts that sums are not exact.

        Guarantees
        ----------
        A row adds a line of length at most L times a residual of length at most ``parts``, both of whole
        numbers. So two versions of it are at most 2 L ``parts`` apart, and leaving it out moves the table by
        at most L ``parts``, whatever ``coef`` is (docs/noisy-counts.md, Theorem 3).
        """
        check_is_fitted(self, "adjacency_")
        if not own_features(self.cells):
            raise ValueError("cells must have features of each row's own for residuals: take FeatureCells")
        _check.positive(clip=clip)
        _check.integer(parts=parts, least=1)
        if parts > FINEST:
            raise ValueError(
                f"parts must be so few that squares are exact, at most {FINEST:,}, got {parts!r}"
            )
        coef = np.asarray(coef, dtype=np.float64)
        shape = self._codes.shape[1], len(self.classes_)
        if coef.shape != shape or not np.isfinite(coef).all():
            raise ValueError(f"coef must be finite numbers of shape {shape}, got shape {coef.shape}")
        cells: Any = self.cells
        if not parts * cells.reach_ * len(self._codes) < _EXACT:
            raise ValueError(
                f"parts must be so few that sums of {len(self._codes):,} rows are exact, got {parts}: "
                "or give cells with a smaller resolution"
            )
        size = round(cells.reach_ / 2)
        sums = residual_sums(self._codes, self._labels, coef, resolution=size, clip=clip, parts=parts)
        far = cells.reach_ / 2 if self.relation == "zero-out" else cells.reach_
        return Private(sums, replace(self.adjacency_, l2=parts * far))

    def _weights(self) -> np.ndarray:
        """Return each row's share of its person's ballot; the shares of a person sum to ``ballot_``."""
        # no other person's rows decide them: the operating system's generator draws which rows are kept
        if self.unit_ == "row":
            return np.ones(len(self._people), dtype=np.int64)
        draw = (
            os_keyed().random(len(self._people)) if self.person == "sampled" else np.zeros(len(self._people))
        )
        order = np.lexsort((draw, self._people))  # stable: shared remainders go to a person's first rows
        sizes = np.bincount(self._people)
        within = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        size = sizes[self._people[order]]
        parts = np.empty(len(order), dtype=np.int64)
        parts[order] = self.ballot_ // size + (within < self.ballot_ % size)
        return parts

    def _dealt(self, owners: Any) -> Manifest:
        if self.manifest is None:
            return partition(owners, n_teachers=self.n_units_)
        self.manifest.check(owners)
        if self.manifest.n_teachers != self.n_units_:
            raise ValueError(
                f"the manifest must have one teacher a {self.unit_}: "
                f"{self.n_units_}, not {self.manifest.n_teachers}"
            )
        return self.manifest

    def _check_settings(self) -> None:
        _check.one_of(person=self.person, allowed=("shared", "sampled"))
        _check.integer(units=self.units, least=1)
        check_relation(self.relation)
        check_is_fitted(self.cells, "reach_" if own_features(self.cells) else "codebooks_")

    def _lines_of(self, X: Any) -> np.ndarray:
        """Lines of the private rows. Two of them, and so their sums of one ballot, are within the reach."""
        self._require_public(X)
        cells: Any = self.cells
        lines = np.asarray(cells.lines(X))
        if lines.ndim != 2 or lines.dtype != np.int64:
            raise ValueError(f"cells must give lines of int64, got {lines.dtype} of shape {lines.shape}")
        if not (2 * np.linalg.norm(lines.astype(np.float64), axis=1) <= cells.reach_).all():
            raise ValueError("cells gave a line that is longer than half of their reach")
        return lines

    def _require_public(self, X: Any) -> None:
        if self.cells.is_of(X):
            raise ValueError(
                "cells must come from public rows, but they were fitted on these private rows: what they say "
                "about them would leave without noise"
            )

    def _codes_of(self, X: Any) -> np.ndarray:
        """Codes of the private rows, checked against the public codebooks."""
        self._require_public(X)
        codes, books = np.asarray(self.cells.codes(X)), self.cells.codebooks_
        sizes = [len(book) for book in books]
        if codes.ndim != 2 or codes.shape[1] != len(sizes) or codes.dtype.kind not in "iu":
            raise ValueError(f"cells must give {len(sizes)} whole codes a row, got shape {codes.shape}")
        if len(codes) and (codes.min() < 0 or (codes.max(axis=0) >= sizes).any()):
            raise ValueError("cells gave a code outside of their codebooks")
        return codes

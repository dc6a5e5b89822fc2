"""Rows that vote: what each private row adds to a table, in whole numbers, and how far one unit moves it.

:class:`RowVoter` has rows with classes, which cast one ballot in all for a public cell or public features, or
add what a public model gets wrong about them. :class:`ValueVoter` has rows with a number each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed
from ostraka.data.labels import CLASSES_FROM_Y, Labels
from ostraka.data.parquet import ParquetRows
from ostraka.data.units import blocks, deal, numbered
from ostraka.voters.cells import FINEST
from ostraka.voters.spectrum import FeatureCells as FeatureCells  # noqa: PLC0414  (read from here)
from ostraka.voters.spectrum import Spectrum, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.data.units import Manifest
    from ostraka.voters.cells import Cells

EXACT = 2.0**52  # sums of floats
_FURTHEST = 4.0  # of log odds: no row is sure beyond
_MOST = 2.0**62  # in a table of int64
_RELATIONS = ("replace-one", "zero-out")  # the number of units is public in both
_TWO = 2  # classes, whose difference needs less noise than their sums
ROWS = 8192  # at a time
_KEPT = 2**29  # numbers of lines or codes that are kept of rows in files
DISTANCES = np.append(0.0, 2.0 ** (1 - np.arange(16, -1, -1) / 2))
"""Edges of bins of distances between numbers from -1 to 1: each is 41 % above the one before. Public."""


@dataclass(kw_only=True, eq=False, repr=False)
class RowVoter(BaseEstimator):
    """Row voting: each private row casts one ballot in all, for its cell among public cells and its class.

    Parameters
    ----------
    cells : GraphCells, QuantileCells, FeatureCells or the like, fitted on public rows
        Says what a row may add to the counts of its class. Public. It is never fitted here.
    person : {"shared", "sampled", "mean"}
        What a person with several rows does. ``"shared"``: the rows share one ballot of ``units`` parts.
        ``"sampled"``: one row, drawn at random by the operating system's generator when votes are counted,
        casts it. ``"mean"``, for :meth:`gradient` alone: the person adds the mean of what its rows add.
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
    >>> from ostraka.core.mechanisms import NoisyCounts
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

    cells: Cells
    person: Literal["shared", "sampled", "mean"] = "shared"
    units: int = 12
    manifest: Manifest | None = None
    relation: str = "replace-one"

    def fit(self, X: Any, y: Any, groups: Any = None, *, classes: Any = None) -> Self:
        """Find each row's code among the public cells, and keep it with the label.

        Parameters
        ----------
        X : array or data frame of n_rows rows, as ``cells`` takes it, or ParquetRows
            Private. Rows in files are read part by part. What they add is kept where it is small, and else
            made anew for each table.
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
        check.one_of(person=self.person, allowed=("shared", "sampled", "mean"))
        check.integer(units=self.units, least=1)
        check_relation(self.relation)
        own = own_features(self.cells)
        check_is_fitted(self.cells, "reach_" if own else "codebooks_")
        work = partial(lines_of if own else codes_of, self.cells)
        codes: np.ndarray | StoredLines
        if isinstance(X, ParquetRows):
            cells: Any = self.cells
            codes = StoredLines(X, work, cells.features_.shape[1] if own else len(cells.codebooks_))
            if math.prod(codes.shape) <= _KEPT:
                codes = np.concatenate([block for _, block in blocks_of(codes)])
        else:
            codes = work(X)
        if groups is not None and own and self.person != "mean":
            raise ValueError(
                "groups must be None for cells with features of each row's own: use GraphCells or "
                "QuantileCells, or keep one row of each person"
            )
        self.notes_ = [] if classes is not None else [CLASSES_FROM_Y]
        named = Labels.of(y, classes, n_rows=len(codes), least=2)
        self.classes_, labels = named.classes, named.encode(y)
        owners = len(codes) if groups is None else groups
        people: np.ndarray | None = None
        self.n_units_, self.unit_ = len(codes), "row"
        if groups is not None:
            people, self.n_units_, self.unit_ = numbered(groups)
        self.manifest_ = deal(owners, n_rows=len(codes), n_teachers=self.n_units_, manifest=self.manifest)
        units = self.units if groups is not None and self.person == "shared" else 1
        self.ballot_, move = ballot_of(self.cells, len(self.classes_), parts=units, relation=self.relation)
        if not move * len(codes) < _MOST:
            raise ValueError(
                f"cells must add so little that {len(codes):,} rows fit into 64 bits, but one can move the "
                f"table by {move:g}: give cells with a smaller resolution"
            )
        self.adjacency_ = Adjacency.vector(unit=self.unit_, l2=move, relation=self.relation)
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
        if self.person == "mean" and self.unit_ != "row":
            raise ValueError('person="mean" is for gradient(), whose sums are bounded: votes need "shared"')
        weights = self._weights()
        own, n_classes = own_features(self.cells), len(self.classes_)
        sizes = [self._codes.shape[1]] if own else [len(book) for book in self.cells.codebooks_]
        tables = [np.zeros((size, n_classes), dtype=np.int64) for size in sizes]
        for some, codes in blocks_of(self._codes):
            labels, parts = self._labels[some], weights(some)
            if own:  # products of whole numbers below 2^53 are exact
                ballots = np.eye(n_classes)[labels] * (1 if parts is None else parts[:, None])
                tables[0] += (codes.T.astype(np.float64) @ ballots).astype(np.int64)
                continue
            for table, column in zip(tables, codes.T, strict=True):
                cells = column.astype(np.int64) * n_classes + labels
                counts = np.bincount(cells, weights=parts, minlength=table.size)
                table[...] += counts.reshape(table.shape).astype(np.int64)
        if own:
            return Private(contrasts(tables[0]), self.adjacency_)
        counted = [book.T @ table for book, table in zip(self.cells.codebooks_, tables, strict=True)]
        return Private(np.concatenate(counted), self.adjacency_)

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
        self._require_own_features()
        check.positive(clip=clip)
        residuals = partial(shortened_residuals, clip=clip, parts=parts)
        return self._summed(coef, len(self.classes_), residuals, parts=parts)

    def gradient(self, coef: Any, *, parts: int) -> Private:
        """What a public model gets wrong, weighted so that every row is surprising by at most ``parts``.

        Parameters
        ----------
        coef : array of shape (n_features, 1) for two classes, else (n_features, n_classes)
            Log odds for each feature, where a line has length 1; of the second class, or of each. Public.
        parts : int >= 1
            The largest residual (:func:`~ostraka.voters.rows.balanced`). Public.

        Returns
        -------
        Private of the shape of ``coef``, int64, in parts times units of the lines
            One unit moves it by at most ``adjacency_.l2`` of this array.

        Raises
        ------
        ValueError
            Cells without features of each row's own, coefficients of another shape or not finite, numbers
            out of range, or so many rows and parts that sums are not exact.

        Guarantees
        ----------
        A row adds a line of length at most L times a residual of length at most ``parts``, both of whole
        numbers. A person adds the mean of what its rows add, rounded towards zero, which is no longer. So two
        versions of a unit are at most 2 L ``parts`` apart, and leaving it out moves the table by at most
        L ``parts``, whatever ``coef`` is (docs/noisy-counts.md, Theorem 4).
        """
        self._require_own_features()
        n_classes = len(self.classes_)
        residuals = partial(balanced_residuals, parts=parts)
        return self._summed(coef, 1 if n_classes == _TWO else n_classes, residuals, parts=parts)

    def _require_own_features(self) -> None:
        check_is_fitted(self, "adjacency_")
        if not own_features(self.cells):
            raise ValueError(
                "cells must have features of each row's own: for gradients take Spectrum, for residuals "
                "FeatureCells"
            )

    def _summed(
        self, coef: Any, n_columns: int, residuals: Callable[..., np.ndarray], *, parts: int
    ) -> Private:
        """The sums of lines times residuals, which are a function of log odds and labels."""
        coef = coefficients(coef, (self._codes.shape[1], n_columns))
        labels, people = self._labels, None if self.unit_ == "row" else self._people
        return bounded_sums(
            self,
            self._codes,
            coef,
            lambda odds, some: residuals(odds, labels[some]),
            parts=parts,
            people=people,
        )

    def _weights(self) -> Callable[[slice], np.ndarray | None]:
        """Shares of the ballots of persons by rows, asked for in order; None where a row is a unit.

        Those of a person sum to ``ballot_``, and remainders go to the person's first rows.
        """
        people = self._people
        if people is None:
            return lambda _some: None
        sizes, before = np.zeros((2, self.n_units_), dtype=np.int64)  # rows of each person: all, and so far
        for some in blocks(len(people)):
            np.add.at(sizes, people[some], 1)
        if self.person == "sampled":  # no other person's rows decide which are kept: they are drawn
            order = np.lexsort((os_keyed().random(len(people)), people))
            drawn = np.empty(len(people), dtype=np.int64)
            drawn[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)

        def shares(some: slice) -> np.ndarray:
            owners = people[some]
            if self.person == "sampled":
                within = drawn[some]
            else:
                order = np.argsort(owners, kind="stable")
                firsts = np.flatnonzero(np.diff(owners[order].astype(np.int64), prepend=-1))
                n_rows = np.diff(firsts, append=len(order))
                within = np.empty(len(order), dtype=np.int64)
                within[order] = np.arange(len(order)) - np.repeat(firsts, n_rows)
                within += before[owners]
                before[owners[order[firsts]]] += n_rows
            return np.asarray(self.ballot_ // sizes[owners] + (within < self.ballot_ % sizes[owners]))

        return shares


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
        self._targets = scaled(y, self.bounds)
        if len(self._targets) != n_rows:
            raise ValueError(f"y must have one number for each of {n_rows} rows, got {len(self._targets)}")
        owners = n_rows if groups is None else groups
        self._people, self.n_units_, self.unit_ = numbered(owners)
        self.manifest_ = deal(owners, n_rows=n_rows, n_teachers=self.n_units_, manifest=self.manifest)
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
        coef = self._checked(coef)
        adjacency = adjacency_of(self, parts=parts, n_rows=len(self._lines))
        bins = np.empty(len(self._lines), dtype=np.int64)
        for some, lines in blocks_of(self._lines):
            expected = lines.astype(np.float64) @ coef / self.cells.resolution
            bins[some] = distance_bins(expected, self._targets[some])
        weight, n_bins = self.weight(parts=parts), len(DISTANCES) - 1
        mine = bins >= 0  # a missing number counts nothing
        if self.unit_ == "row":
            sums = weight * np.bincount(bins[mine], minlength=n_bins)
        else:
            counts = np.zeros((self.n_units_, n_bins), dtype=np.int64)
            np.add.at(counts, (self._people[mine], bins[mine]), weight)
            sums = (counts // np.bincount(self._people, minlength=self.n_units_)[:, None]).sum(axis=0)
        return Private(sums[:, None].astype(np.int64), adjacency)

    def weight(self, *, parts: int) -> int:
        """What a row adds to its bin of :meth:`distances`: as much as the adjacency of a gradient allows."""
        square = round(parts * self.cells.reach_) ** 2 // (4 if self.relation == "zero-out" else 2)
        return math.isqrt(square)

    def _checked(self, coef: Any) -> np.ndarray:
        check_is_fitted(self, "unit_")
        return coefficients(coef, (self._lines.shape[1], 1))


def own_features(cells: Any) -> bool:
    """Whether a row adds a line of its own instead of one of a codebook."""
    return hasattr(cells, "lines") and not hasattr(cells, "codes")


def check_relation(relation: str) -> None:
    """Raise ValueError unless tables of counts can promise this neighbouring relation."""
    check.one_of(relation=relation, allowed=_RELATIONS)


def reach(codebooks: Sequence[np.ndarray], relation: str = "replace-one") -> float:
    """Return the largest Euclidean norm by which replacing one row can change the table.

    Replaced by a row of another class, both lines move; of the same class, their difference; by nothing,
    one line, and ``"zero-out"`` replaces rows by nothing else. Columns add up as squares. Exact in integers,
    then one square root.
    """
    check_relation(relation)
    total = 0
    for book in codebooks:
        lines = np.unique(book, axis=0).astype(np.float64)  # integers: products below 2^53 are exact
        size = np.einsum("ij,ij->i", lines, lines)
        if relation == "zero-out":
            total += int(size.max())
            continue
        same_class = max(
            int((size[start : start + 256, None] + size - 2 * (lines[start : start + 256] @ lines.T)).max())
            for start in range(0, len(lines), 256)
        )
        total += max(2 * int(size.max()), same_class)
    return math.sqrt(total)


def ballot_of(cells: Any, n_classes: int, *, parts: int, relation: str = "replace-one") -> tuple[int, float]:
    """Parts in which a ballot for fitted cells is counted, and how far one unit moves the table."""
    check_relation(relation)
    if not own_features(cells):
        return parts, parts * reach(cells.codebooks_, relation)
    # each line is checked against half of the reach
    move = cells.reach_ / 2 if relation == "zero-out" else cells.reach_
    return (_TWO, move * math.sqrt(2)) if n_classes == _TWO else (1, move)


def contrasts(sums: np.ndarray) -> np.ndarray:
    """The table of sums for each class, in columns; of two classes, each sum less the other."""
    return sums - sums[:, ::-1] if sums.shape[1] == _TWO else sums


def lines_of(cells: Any, X: Any) -> np.ndarray:
    """Lines of private rows, in few bytes. Two, and so their sums of one ballot, are within the reach.

    Raises
    ------
    ValueError
        Cells that were fitted on these very rows, or that give no whole numbers of the length they state.
    """
    require_public(cells, X)
    lines = np.asarray(cells.lines(X))
    if lines.ndim != 2 or lines.dtype != np.int64:
        raise ValueError(f"cells must give lines of int64, got {lines.dtype} of shape {lines.shape}")
    if not (2 * np.linalg.norm(lines.astype(np.float64), axis=1) <= cells.reach_).all():
        raise ValueError("cells gave a line that is longer than half of their reach")
    return lines.astype(np.min_scalar_type(-int(cells.reach_ / 2) - 1))  # 8 bits hold -128, but not 128


def codes_of(cells: Any, X: Any) -> np.ndarray:
    """Codes of private rows, checked against the public codebooks, in as few bytes as hold them.

    Raises
    ------
    ValueError
        Cells that were fitted on these very rows, or that give no codes of their codebooks.
    """
    require_public(cells, X)
    codes, sizes = np.asarray(cells.codes(X)), [len(book) for book in cells.codebooks_]
    if codes.ndim != 2 or codes.shape[1] != len(sizes) or codes.dtype.kind not in "iu":
        raise ValueError(f"cells must give {len(sizes)} whole codes a row, got shape {codes.shape}")
    if len(codes) and (codes.min() < 0 or (codes.max(axis=0) >= sizes).any()):
        raise ValueError("cells gave a code outside of their codebooks")
    return codes.astype(np.min_scalar_type(max(sizes) - 1))


def require_public(cells: Any, X: Any) -> None:
    """Raise ValueError if cells were fitted on these private rows."""
    if cells.is_of(X):
        raise ValueError(
            "cells must come from public rows, but they were fitted on these private rows: what they say "
            "about them would leave without noise"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StoredLines:
    """Lines or codes of rows in files, made anew whenever they are asked for. Private.

    Attributes
    ----------
    rows : ParquetRows
    work : callable(features) -> array of shape (n_rows, width)
        What each row becomes, whatever rows stand beside it.
    width : int
    """

    rows: ParquetRows
    work: Callable[[np.ndarray], np.ndarray]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns."""
        return len(self.rows), self.width

    def __len__(self) -> int:
        return len(self.rows)


def blocks_of(lines: np.ndarray | StoredLines) -> Iterator[tuple[slice, np.ndarray]]:
    """Lines or codes in blocks of 8,192 rows, with the numbers of these rows.

    A product of floats rounds a row by its place in a block: so blocks begin at the same rows, wherever rows
    are read from.
    """
    if not isinstance(lines, StoredLines):
        for start in range(0, len(lines), ROWS):
            yield slice(start, start + ROWS), lines[start : start + ROWS]
        return
    start, waiting = 0, np.zeros((0, lines.width))
    for _, features in lines.rows.blocks(lines.rows.pieces):
        made = lines.work(features)
        waiting = np.concatenate([waiting, made]) if len(waiting) else made
        n_whole = len(waiting) // ROWS * ROWS
        for first in range(0, n_whole, ROWS):
            yield slice(start + first, start + first + ROWS), waiting[first : first + ROWS]
        start, waiting = start + n_whole, waiting[n_whole:]
    if len(waiting):
        yield slice(start, start + ROWS), waiting


def residual_sums(
    lines: np.ndarray, labels: np.ndarray, coef: np.ndarray, *, resolution: int, clip: float, parts: int
) -> np.ndarray:
    """Sum over rows of each line times its residual, int64 of shape (n_features, n_classes).

    A residual is the row's class, as zeros and a one, less the probabilities that ``coef`` gives, at most
    ``clip`` long, in ``parts`` of it. Products of whole numbers in floats are exact while their sums are
    below 2^53, so a row adds the same whatever the rows beside it hold. How its residual is rounded may
    depend on its place and on the number of rows, which neighbours share.
    """
    residuals = partial(shortened_residuals, clip=clip, parts=parts)
    return summed(lines, coef, lambda odds, some: residuals(odds, labels[some]), resolution=resolution)


def shortened_residuals(odds: np.ndarray, labels: np.ndarray, *, clip: float, parts: int) -> np.ndarray:
    """Residuals of rows in whole ``parts`` of ``clip``, the longest one; of the shape of ``odds``."""
    apart = np.eye(odds.shape[1])[labels] - softmax(odds, axis=1)
    length = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), clip)
    return shortened(apart * (parts / length), parts)


def probabilities(odds: np.ndarray) -> np.ndarray:
    """Probability of each class, (n_rows, n_classes), for log odds of the second class or of each class.

    Log odds beyond 4 from their middle count as 4.
    """
    if odds.shape[1] == 1:
        second = expit(np.clip(odds, -_FURTHEST, _FURTHEST))
        return np.hstack([1 - second, second])
    return np.asarray(softmax(np.clip(odds, -_FURTHEST, _FURTHEST), axis=1))


def balanced(sure: np.ndarray) -> np.ndarray:
    """Weights of rows by which the longest residual that any class would have is 1, shape (n_rows, 1).

    A residual is the row's class less the probabilities: of the second of two classes, or of each class.
    Since the weight does not depend on the class, weighted residuals of a true model have mean zero, as plain
    ones have; and no row moves a sum by more than 1, where plain residuals reach sqrt(2).
    """
    if sure.shape[1] == 2:
        return np.asarray(1 / sure.max(axis=1, keepdims=True))
    square = np.einsum("ij,ij->i", sure, sure) + 1 - 2 * sure.min(axis=1)
    return np.asarray(1 / np.sqrt(square)[:, None])


def balanced_residuals(odds: np.ndarray, labels: np.ndarray, parts: int) -> np.ndarray:
    """Residuals of rows in whole numbers, at most ``parts`` long, of the shape of ``odds``."""
    sure = probabilities(odds)
    apart = (np.arange(sure.shape[1]) == np.asarray(labels)[:, None]) - sure
    return shortened(parts * balanced(sure) * apart[:, -odds.shape[1] :], parts)


def clipped_residuals(expected: np.ndarray, targets: np.ndarray, clip: float, parts: int) -> np.ndarray:
    """Targets less what is expected of them, in parts of ``clip``, which is the largest one; (n_rows, 1).

    What is expected beyond -1 and 1 counts as these, between which targets are.
    """
    apart = targets[:, None] - np.clip(expected, -1, 1)
    return shortened(np.clip(parts / clip * apart, -parts, parts), parts)


def coefficients(coef: Any, shape: tuple[int, int]) -> np.ndarray:
    """Public coefficients of this shape, all of them finite."""
    table = np.asarray(coef, dtype=np.float64)
    if table.shape != shape or not np.isfinite(table).all():
        raise ValueError(f"coef must be finite numbers of shape {shape}, got shape {table.shape}")
    return table


def adjacency_of(voter: Any, *, parts: int, n_rows: int) -> Adjacency:
    """How far one unit of a voter moves sums of its lines times up to so many parts.

    Raises
    ------
    ValueError
        Parts out of range, or so many that sums of these rows are not exact.
    """
    check.integer(parts=parts, least=1)
    if parts > FINEST or not parts * voter.cells.reach_ * n_rows < EXACT:
        raise ValueError(
            f"parts must be so few that sums of {n_rows:,} rows are exact, and at most {FINEST:,}, got "
            f"{parts}: or give cells with a smaller resolution"
        )
    move = voter.cells.reach_ / 2 if voter.relation == "zero-out" else voter.cells.reach_
    return Adjacency.vector(unit=voter.unit_, l2=parts * move, relation=voter.relation)


def bounded_sums(
    voter: Any,
    lines: np.ndarray | StoredLines,
    coef: np.ndarray,
    residuals: Callable[[np.ndarray, slice], np.ndarray],
    *,
    parts: int,
    people: np.ndarray | None,
) -> Private:
    """The sum of each line times its residual, at most ``parts`` long."""
    adjacency = adjacency_of(voter, parts=parts, n_rows=len(lines))
    size = round(voter.cells.reach_ / 2)
    return Private(summed(lines, coef, residuals, resolution=size, people=people), adjacency)


def summed(
    lines: np.ndarray | StoredLines,
    coef: np.ndarray,
    residuals: Callable[[np.ndarray, slice], np.ndarray],
    *,
    resolution: int,
    people: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over rows of each line times its residual, int64 of the shape of ``coef``.

    ``residuals`` gives whole numbers for the products of some lines with ``coef``. Of people with several
    rows, the sum over people of the mean of their rows, each number rounded towards zero: all lines are held
    at once for it. Products and sums of whole numbers in floats are exact below 2^53 (:func:`residual_sums`).
    """
    sums = np.zeros(coef.shape)
    residual = np.empty((0 if people is None else len(lines), coef.shape[1]))
    for some, block in blocks_of(lines):
        rows = block.astype(np.float64)
        # a warning would tell that some row overflows; such rows count nothing
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            wrong = residuals(rows @ coef / resolution, some)
        if people is None:
            sums += rows.T @ wrong
        else:
            residual[some] = wrong
    if people is not None:
        order = np.argsort(people, kind="stable")
        firsts = np.flatnonzero(np.diff(people[order], prepend=-1))
        sizes = np.diff(firsts, append=len(order))[:, None]
        kept = (
            lines if isinstance(lines, np.ndarray) else np.concatenate([rows for _, rows in blocks_of(lines)])
        )
        for column, weights in enumerate(residual.T):
            added = np.add.reduceat((kept * weights[:, None])[order], firsts, axis=0)
            sums[:, column] = np.trunc(added / sizes).sum(axis=0)
    return sums.astype(np.int64)


def distance_bins(expected: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The bin of each row's distance between a prediction, (n_rows, 1), and its target; -1 where it has none.

    What is expected beyond -1 and 1 counts as these, between which targets are.

    >>> distance_bins(np.array([[0.0], [2.0], [0.0]]), np.array([0.001, -1.0, np.nan])).tolist()
    [0, 16, -1]
    """
    apart = np.abs(targets - np.clip(expected[:, 0], -1, 1))
    bins = np.searchsorted(DISTANCES[1:], apart)
    return np.asarray(np.where(np.isfinite(apart), np.minimum(bins, len(DISTANCES) - 2), -1))


def scaled(y: Any, bounds: tuple[float, float]) -> np.ndarray:
    """Numbers from -1 at the low bound to 1 at the high one; missing ones stay so.

    Raises
    ------
    ValueError
        Bounds out of order or infinitely far apart, or values that are no numbers, none of which is shown.
    """
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError, OverflowError):  # not two numbers
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise ValueError(f"bounds must be numbers a finite distance apart, the low one first, got {bounds!r}")
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # which would quote a value
        values = None
    if values is None or values.ndim != 1:
        raise ValueError("y must be numbers in one dimension")
    return np.asarray(2 * ((np.clip(values, low, high) - low) / (high - low)) - 1)

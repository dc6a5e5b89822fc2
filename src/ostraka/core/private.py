"""Private: an array which does not print, convert or pickle, with its adjacency. Only mechanisms open it."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NoReturn

import numpy as np

from ostraka.core import check as _check
from ostraka.core.curve import MOVES

__all__: list[str] = []

RELATIONS = ("replace-one", "zero-out", "add-or-remove")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjacency:
    """The change that one protected unit can make to an array: the neighbouring relation of a privacy claim.

    Attributes
    ----------
    unit : str
        Who is protected: ``"row"``, ``"person"``, ``"label"``, ``"party"``, ``"client"``.
    moves : {"ballot", "label", "row", "vector"}
        What one unit can change. ``"ballot"``: one teacher's vote on every query, in tables of vote
        counts. ``"label"``: the label of a row whose features are public. ``"row"``: a whole row.
        ``"vector"``: all numbers of the array at once, within the norms below (sums, tables of counts).
    at_most : float > 0
        How many of them one unit moves: ballots in each row of the array; labels or rows in all of it.
    l0, l1, l2, linf : float > 0
        For ``"vector"``: bounds on the change of the whole array, as the number of entries that change,
        the sum of absolute changes, the Euclidean norm, and the largest change of one entry. Infinity: not
        bounded in this norm.
    relation : {"replace-one", "zero-out", "add-or-remove"}
        See Notes. ``"zero-out"`` is for ``moves="vector"``.
    sampling_rate : float in (0, 1]
        Poisson probability with which a unit takes part at all; 1 means always.
    noise_sigma : float >= 0
        Standard deviation of Skellam noise that the numbers carry already, as parties add it to their
        counts before anybody sees a sum. 0: there is none.
    argmax_only : bool
        Nobody sees these noisy numbers: only which one of each row is the largest, 1, the others 0.

    Raises
    ------
    ValueError
        An unknown word, or a number out of range.

    Notes
    -----
    ``"replace-one"``: neighbours differ in the data of one unit, which is replaced by any other data.
    All other units, and which shard each belongs to, stay the same, and so do the numbers of units, of
    teachers and of rows, which are public: nothing is replaced by nothing. A ballot changes its class;
    it neither appears nor vanishes (a teacher that fails votes a class fixed in advance).
    ``"zero-out"``: neighbours differ in the data of one unit, which is replaced by nothing, so that the unit
    counts nothing in the array. The number of units, and the place of each, are public. To replace a unit is
    to take it out and to put another one in. So this promises less than ``"replace-one"``: what is
    mu-Gaussian private here is 2 mu there, and epsilon is up to twice as large, with a larger delta.
    Source: Kairouz et al. 2021, arXiv:2103.00039; Ponomareva et al. 2023, arXiv:2303.00654, Section 2.1.
    ``"add-or-remove"``: the unit is present in one of the two data sets and missing in the other, and
    the number of units is not public. A ballot appears, vanishes, or changes its class because another
    unit casts it instead.

    Examples
    --------
    >>> Adjacency.one_ballot(unit="person").within(Adjacency.one_ballot())
    True
    >>> sums = Adjacency.vector(unit="client", l0=1, l1=1.0, l2=1.0)
    >>> sums.within(Adjacency.vector(l2=2.0)), sums.within(Adjacency.vector(l2=0.5))
    (True, False)
    """

    unit: str = "row"
    moves: str = "ballot"
    at_most: float = 1.0
    l0: float = math.inf
    l1: float = math.inf
    l2: float = math.inf
    linf: float = math.inf
    relation: str = "replace-one"
    sampling_rate: float = 1.0
    noise_sigma: float = 0.0
    argmax_only: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.unit, str) and self.unit):
            raise ValueError(f"unit must say who is protected, got {self.unit!r}")
        _check.one_of(moves=self.moves, allowed=MOVES)
        _check.one_of(relation=self.relation, allowed=RELATIONS)
        _check.positive(at_most=self.at_most)
        _check.share(one=True, sampling_rate=self.sampling_rate)
        _check.nonnegative(l0=self.l0, l1=self.l1, l2=self.l2, linf=self.linf, noise_sigma=self.noise_sigma)
        if self.relation == "zero-out" and self.moves != "vector":
            raise ValueError(f"relation='zero-out' is for moves='vector', got moves={self.moves!r}")
        norms = (self.l0, self.l1, self.l2, self.linf)
        if min(norms) == 0:
            raise ValueError(f"l0, l1, l2 and linf must be > 0, got {norms}")
        if not isinstance(self.argmax_only, bool) or (self.argmax_only and not self.noise_sigma):
            raise ValueError("argmax_only must be True or False, and True only where noise_sigma is given")
        if self.moves == "vector" and not math.isfinite(min(norms)):
            raise ValueError("a vector must be bounded in one norm at least: give l0=, l1=, l2= or linf=")
        if self.moves != "vector" and norms != (math.inf,) * 4:
            raise ValueError(f"l0, l1, l2 and linf are for moves='vector', got moves={self.moves!r}")

    @classmethod
    def one_ballot(cls, *, unit: str = "row") -> Adjacency:
        """One unit decides one teacher's vote, and so moves at most one vote in every query."""
        return cls(unit=unit)

    @classmethod
    def one_label(cls, *, unit: str = "label") -> Adjacency:
        """One unit owns the label of one row: neighbours differ in this label, and in nothing else."""
        return cls(unit=unit, moves="label")

    @classmethod
    def one_row(cls, *, unit: str = "row") -> Adjacency:
        """One unit owns one row of the array."""
        return cls(unit=unit, moves="row")

    @classmethod
    def vector(
        cls,
        *,
        unit: str = "row",
        l0: float = math.inf,
        l1: float = math.inf,
        l2: float = math.inf,
        linf: float = math.inf,
        relation: str = "replace-one",
    ) -> Adjacency:
        """One unit moves the whole array, by at most so much in each norm that is given."""
        return cls(unit=unit, moves="vector", l0=l0, l1=l1, l2=l2, linf=linf, relation=relation)

    def within(self, promise: Adjacency) -> bool:
        """Whether a mechanism that promises to hide ``promise`` hides this too, whoever the unit is.

        True only if the same thing moves, under the same relation, in numbers with the same noise, no
        more of it, no farther in any norm, and no more often.
        """
        return (
            self.moves == promise.moves
            and self.relation == promise.relation
            and self.noise_sigma == promise.noise_sigma
            and self.argmax_only == promise.argmax_only
            and self.at_most <= promise.at_most
            and self.l0 <= promise.l0
            and self.l1 <= promise.l1
            and self.l2 <= promise.l2
            and self.linf <= promise.linf
            and self.sampling_rate <= promise.sampling_rate
        )


def promise_words(unit: str, relation: str) -> str:
    """A unit under its relation, as ledgers record them: ``"row (zero-out)"``; replace-one goes unsaid."""
    return unit if relation == "replace-one" else f"{unit} ({relation})"


class _Sample:
    """Which rows of an array were answered from; shared by all arrays made of its rows."""

    __slots__ = ("_answered", "_lock", "_rows")

    def __init__(self, rows: range | np.ndarray, answered: np.ndarray, lock: Lock) -> None:
        self._rows, self._answered, self._lock = rows, answered, lock

    @classmethod
    def new(cls, n_rows: int) -> _Sample:
        return cls(range(n_rows), np.zeros(n_rows, dtype=bool), Lock())  # pages of zeros, until written to

    def of(self, rows: Any) -> _Sample:
        sample = self._rows[rows] if isinstance(rows, slice) else self._each[rows]
        return _Sample(sample, self._answered, self._lock)

    @property
    def is_distinct(self) -> bool:
        if isinstance(self._rows, range):
            return True
        rows = np.sort(self._rows, axis=None)  # np.unique takes ten times as long
        return bool((rows[1:] > rows[:-1]).all())

    @property
    def _each(self) -> np.ndarray:
        rows = self._rows
        return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows

    def check(self) -> None:
        if self._answered[self._each].any():
            raise ValueError(
                "this stored sample was answered from before, and a second answer costs more than its "
                "sampled price: ask Subsampled(mechanism=..., sampling_rate=1.0), which pays in full, or "
                "votes that are drawn anew for each release, as those of NeighbourVoter"
            )

    def take(self, *, at_most_once: bool) -> None:
        with self._lock:
            if at_most_once:
                self.check()
            self._answered[self._each] = True


class Private:
    """An array with its adjacency. It does not print, iterate, convert, pickle or compare.

    Parameters
    ----------
    values : array
        Private. First axis: one entry a use (for votes: one row a query).
    adjacency : Adjacency
        Public. What one protected unit can do to one entry.

    Raises
    ------
    TypeError
        On every implicit way out: ``np.asarray``, iteration, ``==``, ``pickle``.

    Examples
    --------
    >>> votes = Private([[90, 10], [20, 80]], Adjacency.one_ballot())
    >>> votes
    Private(shape=(2, 2), unit='row')
    >>> len(votes[:1])
    1
    """

    __slots__ = ("_sample", "_values", "adjacency")

    def __init__(self, values: Any, adjacency: Adjacency) -> None:
        if isinstance(values, Private):
            raise TypeError("values are Private already")
        array = np.array(values)
        array.setflags(write=False)
        if array.ndim == 0:
            raise ValueError("a Private array needs at least one axis")
        self._values = array
        self.adjacency = adjacency
        self._sample = _Sample.new(len(array))  # also where everybody takes part: with_adjacency may say less

    @property
    def drawn_anew(self) -> bool:
        """Whether each :meth:`open` draws a sample of its own; False: the values are stored."""
        return False

    def check_sample(self) -> None:
        """Raise ValueError where a stored sample was answered from: later answers have no sampled price."""
        if not self.drawn_anew:
            self._sample.check()

    def take_sample(self, *, at_most_once: bool) -> None:
        """Note that a stored sample is answered from; with ``at_most_once``, raise if it was before."""
        if not self.drawn_anew:
            self._sample.take(at_most_once=at_most_once)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is public."""
        return self._values.shape

    def __len__(self) -> int:
        return int(self._values.shape[0])

    def __getitem__(self, rows: Any) -> Private:
        """Some entries, under the same adjacency; an integer selects one entry, kept as an array of one.

        An entry can be selected twice only where one unit moves a ballot of every query anyway. It
        cannot where a unit owns an entry (labels, rows, vectors), which it would then own twice, nor
        where entries were sampled by chance, since two copies would share one sample.
        """
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"index {rows} is out of range for {len(self)} entries")
            rows = slice(rows, rows + 1 or None)
        elif isinstance(rows, tuple):
            raise IndexError("a Private array takes one index, which selects entries, as in votes[:10]")
        return self._sharing(Private(self._values[rows], self.adjacency), rows)

    def open(self) -> np.ndarray:
        """The values, read-only: only for mechanisms, the owner's accounting, attacks and audits."""
        return self._values

    def with_adjacency(self, **changes: Any) -> Private:
        """The same values under another adjacency (for example another unit); repeated rows as in ``[]``."""
        return self._sharing(Private(self._values, replace(self.adjacency, **changes)), slice(None))

    def _sharing(self, other: Private, rows: Any) -> Private:
        other._sample = self._sample.of(rows)
        if (
            not (other.adjacency.moves == "ballot" and other.adjacency.sampling_rate == 1)
            and not other._sample.is_distinct
        ):
            raise ValueError(
                f"rows must not repeat a {other.adjacency.moves}: one unit would move it more than once"
            )
        return other

    def __repr__(self) -> str:
        return f"Private(shape={self.shape}, unit={self.adjacency.unit!r})"

    def _repr_html_(self) -> str:
        """The same, for notebooks: never a value."""
        return f"<code>{html.escape(repr(self))}</code>"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} opens only in a mechanism: ostraka.release(mechanism, private, ledger=…)")

    __array__ = _refuse
    __iter__ = _refuse
    __reduce__ = _refuse
    __getstate__ = _refuse
    __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]
    __bool__ = _refuse
    __float__ = _refuse
    __int__ = _refuse

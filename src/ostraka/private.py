"""Private: an array nobody may print, plot or learn from. Only a mechanism opens it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ostraka import _check

__all__ = ["Adjacency", "Private"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjacency:
    """What one protected unit can do to an array: the neighbouring relation of a privacy claim.

    Attributes
    ----------
    unit : str
        Whom the claim protects: ``"row"``, ``"person"``, ``"party"``, ``"label"``.
    moves : str
        What a unit moves: ``"ballot"`` (one vote of one teacher in every query), or ``"label"`` (the
        label of one row; all else about the row is public).
    at_most : float
        How many of them one unit moves: ballots in each row of the array, labels in all of it.
    relation : str
        ``"replace-one"``: neighbours differ in the data of one unit, replaced by any other data
        or by nothing; which shard every other unit belongs to stays as the manifest says.
    sampling_rate : float in (0, 1]
        Poisson probability with which a unit takes part at all; 1 means always.

    Examples
    --------
    >>> Adjacency.one_ballot(unit="person").within(Adjacency.one_ballot())
    True
    """

    unit: str = "row"
    moves: str = "ballot"
    at_most: float = 1.0
    relation: str = "replace-one"
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        _check.positive(at_most=self.at_most, sampling_rate=self.sampling_rate)
        if self.sampling_rate > 1:
            raise ValueError(f"sampling_rate must be at most 1, got {self.sampling_rate!r}")

    @classmethod
    def one_ballot(cls, *, unit: str = "row") -> Adjacency:
        """One unit decides one teacher's vote, and so moves at most one vote in every query."""
        return cls(unit=unit)

    @classmethod
    def one_label(cls, *, unit: str = "label") -> Adjacency:
        """One unit owns the label of one row: neighbours differ in this label, and in nothing else."""
        return cls(unit=unit, moves="label")

    def within(self, promise: Adjacency) -> bool:
        """Whether a mechanism that promises to hide ``promise`` hides this too, whoever the unit is."""
        return (
            self.moves == promise.moves
            and self.relation == promise.relation
            and self.at_most <= promise.at_most
            and self.sampling_rate <= promise.sampling_rate
        )


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

    __slots__ = ("_values", "adjacency")

    def __init__(self, values: Any, adjacency: Adjacency) -> None:
        if isinstance(values, Private):
            raise TypeError("values are Private already")
        array = np.array(values)
        array.setflags(write=False)
        if array.ndim == 0:
            raise ValueError("a Private array needs at least one axis")
        self._values = array
        self.adjacency = adjacency

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is public."""
        return self._values.shape

    def __len__(self) -> int:
        return int(self._values.shape[0])

    def __getitem__(self, rows: Any) -> Private:
        """Some entries, under the same adjacency; an integer selects one entry, kept as an array of one.

        Labels cannot be selected twice: one unit would then own two of them.
        """
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"index {rows} is out of range for {len(self)} entries")
            rows = slice(rows, rows + 1 or None)
        elif self.adjacency.moves == "label" and not _distinct(np.arange(len(self))[rows]):
            raise ValueError("rows must not repeat a label: one unit would move it more than once")
        return Private(self._values[rows], self.adjacency)

    def open(self) -> np.ndarray:
        """The values, read-only: for mechanisms, owner-only accounting, attacks and audits, nobody else."""
        return self._values

    def with_adjacency(self, **changes: Any) -> Private:
        """The same values under another adjacency (for example another unit)."""
        return Private(self._values, replace(self.adjacency, **changes))

    def __repr__(self) -> str:
        return f"Private(shape={self.shape}, unit={self.adjacency.unit!r})"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} opens only in a mechanism: ostraka.release(mechanism, private, ledger=…)")

    __array__ = _refuse
    __iter__ = _refuse
    __reduce__ = _refuse
    __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]
    __bool__ = _refuse
    __float__ = _refuse
    __int__ = _refuse


def _distinct(rows: np.ndarray) -> bool:
    return np.unique(rows).size == rows.size

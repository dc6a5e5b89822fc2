"""SequenceMarginals: counts of persons' first rows, and of each later row with the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core import check
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from ostraka.core.curve import Curve
    from ostraka.core.mechanisms.adaptive import AdaptiveMarginals

FIRST, NEXT = "first/", "next/"  # how names of released arrays begin
_MOST_LEFT = 3  # rows that follow: 0, 1, 2, or more


def left_sizes(longest: int) -> int:
    """Number of codes of how many rows follow a second or later row."""
    return min(longest - 1, _MOST_LEFT + 1)


def left_codes(left: np.ndarray) -> np.ndarray:
    """The codes of so many rows that follow."""
    return np.asarray(np.minimum(left, _MOST_LEFT))


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceMarginals:
    """Counts of first rows with the number of rows of a person, and of each later row with the one before it.

    Parameters
    ----------
    first : AdaptiveMarginals
        Of the columns of a row, and of the number of rows less 1. Its grain is 1. Public.
    following : AdaptiveMarginals
        Of the columns of a row, of the columns of the next one but for ``constant``, and of how many rows
        follow that. All steps of one person share its grain. Public.
    constant : tuple of int
        Columns in which all rows of a person are as the first one. Public.

    Raises
    ------
    ValueError
        Parts that do not fit each other; when asked, persons that are not whole numbers in range.

    Guarantees
    ----------
    One person is one line of the private array: how many rows there are, and the codes of each in order. A
    person added or removed adds or removes one first row of weight 1, and steps whose weights add up to at
    most the grain of ``following``: each part has what it promises. ``curve()`` is the sum of both curves.
    They are fixed in advance, so adaptive composition holds (docs/synthetic.md).

    Examples
    --------
    >>> from ostraka.core.mechanisms.adaptive import AdaptiveMarginals
    >>> noise = {"target": None, "sigma_first": 9.0, "sigma": 9.0, "select_epsilon": 0.1, "n_pick": 1}
    >>> first = AdaptiveMarginals(sizes=(4, 3), **noise)
    >>> wide = noise | {"sigma_first": 999.0, "sigma": 999.0}
    >>> following = AdaptiveMarginals(sizes=(4, 4, 2), grain=120, **wide)
    >>> mechanism = SequenceMarginals(first=first, following=following)
    >>> persons = Private([[2, 3, 1, 0], [1, 2, 0, 0]], mechanism.promise)  # 3 then 1; 2 alone
    >>> mechanism.steps(persons.open()).tolist()
    [[3, 1, 0, 120]]
    """

    first: AdaptiveMarginals
    following: AdaptiveMarginals
    constant: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check.integer(longest=self.longest, least=2)
        if self.first.grain != 1:
            raise ValueError(f"first must have a grain of 1, got {self.first.grain}")
        if not self.changing:
            raise ValueError("constant must leave a column that changes from row to row")
        expected = (*self.row, *(self.row[j] for j in self.changing), left_sizes(self.longest))
        if self.following.sizes != expected:
            raise ValueError(f"following must have the sizes {expected}, got {self.following.sizes}")
        if self.following.grain < self.longest - 1:
            raise ValueError(f"grain of following must be at least {self.longest - 1}, a unit for each step")

    @property
    def longest(self) -> int:
        """Most rows of a person."""
        return self.first.sizes[-1]

    @property
    def row(self) -> tuple[int, ...]:
        """Number of codes of each column of a row."""
        return self.first.sizes[:-1]

    @property
    def changing(self) -> tuple[int, ...]:
        """Columns that may differ from row to row."""
        return tuple(j for j in range(len(self.row)) if j not in set(self.constant))

    @property
    def promise(self) -> Adjacency:
        """One line: a person with all rows."""
        return Adjacency(moves="row", relation="add-or-remove")

    def curve(self) -> Curve:
        """Cost of one release of all tables."""
        return self.first.curve() + self.following.curve()

    def uses(self, private: Private) -> int:
        """One use for all tables together."""
        self._opened(private)
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """What both parts release, by names that begin with ``"first/"`` and ``"next/"``."""
        persons = self._opened(private)
        released: dict[str, np.ndarray] = {}
        for prefix, part, rows in (
            (FIRST, self.first, self.firsts(persons)),
            (NEXT, self.following, self.steps(persons)),
        ):
            tables = part.release(Private(rows, part.promise), rng=rng)
            released |= {prefix + name: table for name, table in tables.items()}
        return released

    def firsts(self, persons: np.ndarray) -> np.ndarray:
        """First rows, the number of rows less 1, and a weight of 1; a line each person."""
        width = len(self.row)
        return np.column_stack([persons[:, 1 : 1 + width], persons[:, 0] - 1, np.ones_like(persons[:, 0])])

    def steps(self, persons: np.ndarray) -> np.ndarray:
        """Each row but the last, the next row, how many follow that, and the weight of the step."""
        width, lengths = len(self.row), persons[:, 0].astype(np.int64)
        kind = np.min_scalar_type(max(self.following.grain, *self.following.sizes))
        parts = [np.zeros((0, len(self.following.sizes) + 1), dtype=kind)]
        for place in range(1, self.longest):
            inside = lengths > place
            two = persons[inside, 1 + (place - 1) * width : 1 + (place + 1) * width]
            left = left_codes(lengths[inside] - place - 1)
            weights = self.following.grain // (lengths[inside] - 1)
            columns = [*range(width), *(width + j for j in self.changing)]
            parts.append(np.column_stack([two[:, columns], left, weights]).astype(kind))
        return np.concatenate(parts)

    def _opened(self, private: Private) -> np.ndarray:
        persons: np.ndarray = private.open()
        width = len(self.row)
        if (
            persons.ndim != 2
            or persons.shape[1] != 1 + self.longest * width
            or not np.issubdtype(persons.dtype, np.integer)
        ):
            raise ValueError(
                f"persons must be whole numbers: a number of rows and the codes of {self.longest} rows of "
                f"{width} columns, got shape {persons.shape}"
            )
        most = np.array([self.longest, *[size - 1 for size in self.row] * self.longest])
        if persons.size and not (
            persons.min() >= 0 and persons[:, 0].min() >= 1 and (persons.max(axis=0) <= most).all()
        ):
            raise ValueError("persons must have one row or more, and codes below the sizes of their columns")
        return persons

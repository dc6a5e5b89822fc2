"""SequenceGenerator: public generated persons with rows in order, from noisy counts of rows and steps."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.accounting.calibration import gaussian_shift
from ostraka.core.mechanisms.adaptive import (
    FIRST,
    NEXT,
    AdaptiveMarginals,
    SequenceMarginals,
    columns_of,
    left_codes,
    left_sizes,
)
from ostraka.core.private import Adjacency, Private
from ostraka.core.result import Result
from ostraka.data.schema import Schema, encoded
from ostraka.data.table import cells_of, numbers, word
from ostraka.data.units import numbered
from ostraka.synth import fitting
from ostraka.synth.models import answered
from ostraka.synth.tables import GRAIN, by_rules

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.particles import Particles
    from ostraka.synth.models import Answers

LONGEST = 20
KIND = "sequences"
_PUBLIC = (
    "the schema, the most rows of a person and the constant columns, which are public",
    "whether somebody took part in making them",
)
_FIRST_SHARE = 0.4  # of the budget, for first rows and numbers of rows
_SWEEPS = 8  # of a next row given the last
_VERSION = 1


@dataclass(eq=False, repr=False)
class SequenceGenerator(BaseEstimator):
    """A generator of persons with several rows in order, such as a patient's visits, from noisy counts.

    Parameters
    ----------
    schema : Schema
        Public. Nothing of it may come from private rows.
    longest : int, from 2 to 121
        Most rows of a person; of more the first ones count. Public.
    constant : tuple of str
        Columns in which all rows of a person are as the first one, such as the year of birth. Public.
    person, order : str
        Names of the columns of a copy that number persons, and the rows of each, from 1. Public.
    epsilon, delta : float
        Public. The price, for one person with all rows added or removed.

    Attributes
    ----------
    mechanism_ : SequenceMarginals
        What was released, with its noise.
    result_ : Result
        Settings and upper bound.
    counts_ : dict of arrays
        The noisy counts: of first rows by names such as ``"first/0,3"``, in persons; of a row with the next
        by names such as ``"next/0,3"``, in persons whose steps share 1. Public.
    n_people_, n_rows_ : int
        Noisy numbers of persons, and of their rows. Public.

    Notes
    -----
    Two models of maximal entropy (:class:`~ostraka.core.mechanisms.particles.Particles`): the first row with
    the number of rows; and each next row, given the row before it and how many rows follow it. A copy begins
    with first rows; next rows are drawn one after another (Gibbs). So what lies more than one row back is
    kept as far as the last row tells of it.

    Guarantees
    ----------
    (epsilon, delta)-DP for one person, with all rows, added or removed, by the price of
    :class:`~ostraka.core.mechanisms.adaptive.SequenceMarginals`; all else is post-processing.

    Examples
    --------
    >>> from ostraka.synth import Schema
    >>> schema = Schema.from_dict({"ward": {"categories": ["a", "b"]}})
    >>> rows = {"ward": ["a", "b", "b"] * 500}  # 500 persons with three visits each
    >>> who, when = np.repeat(np.arange(500), 3), np.tile([1, 2, 3], 500)
    >>> made = SequenceGenerator(schema, longest=4, epsilon=4.0, delta=1e-5).fit(rows, groups=who, order=when)
    >>> sample = made.sample(100, random_state=0)
    >>> bool(np.mean(sample["ward"][np.asarray(sample["place"]) == 1] == "a") > 0.9)
    True
    """

    schema: Schema
    _: KW_ONLY
    longest: int = LONGEST
    constant: tuple[str, ...] = ()
    person: str = "person"
    order: str = "place"
    epsilon: float = 1.0
    delta: float = 1e-5

    def mechanism(self) -> SequenceMarginals:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        check.integer(longest=self.longest, least=2)
        check.positive(epsilon=self.epsilon)
        if self.longest > GRAIN + 1:
            raise ValueError(f"longest must be at most {GRAIN + 1} rows of a person, got {self.longest}")
        if len({self.person, self.order, *self.schema.names}) != len(self.schema.names) + 2:
            raise ValueError(
                f"the schema must not have the columns {self.person!r} and {self.order!r}: a copy numbers "
                "persons and their rows itself"
            )
        sizes, constant = self.schema.sizes, tuple(sorted(map(self.schema.place, self.constant)))
        following = (
            *sizes,
            *(size for j, size in enumerate(sizes) if j not in constant),
            left_sizes(self.longest),
        )
        rho = gaussian_shift(self.epsilon, self.delta) ** 2 / 2
        first = by_rules((*sizes, self.longest), None, _FIRST_SHARE * rho, 1)
        second = by_rules(following, None, (1 - _FIRST_SHARE) * rho, GRAIN)

        def made(noise: float) -> SequenceMarginals:
            return SequenceMarginals(
                first=first(noise / _FIRST_SHARE**0.5),
                following=second(noise / (1 - _FIRST_SHARE) ** 0.5),
                constant=constant,
            )

        return made(fitting.least_noise(made, epsilon=self.epsilon, delta=self.delta))

    def fit(
        self,
        frame: Any,
        *,
        groups: Any,
        order: Any = None,
        ledger: Ledger | None = None,
        rng: np.random.Generator | None = None,
    ) -> SequenceGenerator:
        """Charge, release the counts, and learn both models from them.

        Parameters
        ----------
        frame : data frame, dict of columns, or path of a Parquet file
            Private.
        groups : array of shape (n_rows,)
            Private. Whose row it is.
        order : array of shape (n_rows,), optional
            Private. Numbers, dates as ISO 8601, or text, by which the rows of a person are put in order; a
            row without comes last. Equal ones, and without ``order`` all, stay as they stand.
        ledger, rng
            As for :meth:`TableGenerator.fit`.

        Raises
        ------
        ValueError
            Before anything is charged: the schema does not fit, or no noise keeps so small an epsilon.
        BudgetExceeded
            The charge does not fit; nothing was released.
        """
        mechanism = self.mechanism()
        private = sequences(self.schema, frame, groups, order, longest=self.longest)
        lines = private.open()  # of persons, in order
        released = fitting.charged(self, mechanism, private, of=(lines,), groups=None, ledger=ledger, rng=rng)
        parts = [
            fitting.counts_and_model(
                {
                    name.removeprefix(prefix): table
                    for name, table in released.items()
                    if name.startswith(prefix)
                },
                part.grain,
            )
            for prefix, part in ((FIRST, mechanism.first), (NEXT, mechanism.following))
        ]
        self._set(mechanism, parts)
        self.result_ = fitting.record(
            self,
            private,
            rng=rng,
            public=_PUBLIC,
            n_rows=self.n_rows_,
            n_people=self.n_people_,
            n_columns=len(self.schema.columns),
            longest=self.longest,
            schema=self.schema.to_dict(),
            tables=[*self._names(FIRST), *self._names(NEXT)],
        )
        return self

    def _names(self, prefix: str) -> list[list[str]]:
        """The columns of each table that was counted of one part, by name."""
        names = [*self.schema.names, *(f"next {self.schema.names[j]}" for j in self.mechanism_.changing)]
        names = [*self.schema.names, "number of rows"] if prefix == FIRST else [*names, "rows that follow"]
        tables = [name.removeprefix(prefix) for name in self.counts_ if name.startswith(prefix)]
        return [[names[j] for j in columns_of(table)] for table in tables]

    def sample(self, n_people: int | None = None, *, random_state: Any = None) -> dict[str, np.ndarray]:
        """Columns of generated rows, by name. Public: as many as wanted, at no further price.

        Parameters
        ----------
        n_people : int, optional
            None: the noisy number of persons of the private table.
        random_state : int or numpy.random.Generator, optional

        Returns
        -------
        dict of arrays
            ``person`` and ``order``, both from 1, then the columns of the schema; rows of a person in order.
        """
        check_is_fitted(self, "result_")
        n_people = self.n_people_ if n_people is None else n_people
        check.integer(n_people=n_people)
        rng = np.random.default_rng(random_state)
        codes, owners, places = self.model_.people(n_people, rng=rng)
        return {self.person: owners + 1, self.order: places + 1} | self.schema.decode(codes, rng=rng)

    def query(self, text: str, *, confidence: float = 0.95) -> Answers:
        """Counts of rows of the model, as :meth:`TableGenerator.query` has them; without intervals."""
        return answered(self, text, confidence=confidence)

    @property
    def coded_(self) -> Schema:
        """What questions may name: the schema. Public."""
        return self.schema

    @property
    def tables_(self) -> list[tuple[int, ...]]:
        """No table counts rows of all places."""
        return []

    def to_json(self) -> str:
        """The generator as JSON, public like its rows; :meth:`from_json` reads it."""
        check_is_fitted(self, "result_")
        parts = [
            {
                "counts": fitting.counts_to_dict(counts),
                "model": fitting.packed(arrays),
                "mechanism": fitting.settings(part) | {"sizes": part.sizes},
            }
            for part, (counts, arrays) in zip(
                (self.mechanism_.first, self.mechanism_.following), self._parts, strict=True
            )
        ]
        return json.dumps(
            {
                "kind": KIND,
                "version": _VERSION,
                "schema": self.schema.to_dict(),
                "longest": self.longest,
                "constant": list(self.constant),
                "person": self.person,
                "order": self.order,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "parts": parts,
                "result": json.loads(self.result_.to_json()),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> SequenceGenerator:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ValueError
            The text is not what :meth:`to_json` writes.
        """
        record = fitting.loaded(text, kind=cls.__name__, versions=range(_VERSION, _VERSION + 1))
        with fitting.reading(cls.__name__):
            schema = Schema.from_dict(record["schema"])
            settings = {name: record[name] for name in ("longest", "person", "order", "epsilon", "delta")}
            generator = cls(schema, constant=tuple(record["constant"]), **settings)
            mechanisms = [part["mechanism"] for part in record["parts"]]
            first, following = (
                AdaptiveMarginals(target=None, **mechanism | {"sizes": tuple(mechanism["sizes"])})
                for mechanism in mechanisms
            )
            constant = tuple(sorted(map(schema.place, generator.constant)))
            generator._set(
                SequenceMarginals(first=first, following=following, constant=constant),
                [
                    (fitting.counts_of(part["counts"]), fitting.unpacked(part["model"]))
                    for part in record["parts"]
                ],
            )
            generator.result_ = Result.from_json(json.dumps(record["result"]))
        return generator

    def _set(self, mechanism: SequenceMarginals, parts: list[tuple[fitting.Arrays, fitting.Arrays]]) -> None:
        self.mechanism_, self._parts = mechanism, parts
        first, following = (
            part.model(counts, **arrays)
            for part, (counts, arrays) in zip((mechanism.first, mechanism.following), parts, strict=True)
        )
        self.counts_ = {
            prefix + name: table
            for prefix, (counts, _) in zip((FIRST, NEXT), parts, strict=True)
            for name, table in counts.items()
        }
        self.model_ = Sequences(first, following, mechanism)
        self.n_people_ = max(1, round(first.n_rows))
        self.n_rows_ = max(1, round(self.model_.n_rows))


class Sequences:
    """Both models. Public."""

    def __init__(self, first: Particles, following: Particles, mechanism: SequenceMarginals) -> None:
        self.first, self.following, self._mechanism = first, following, mechanism
        self.n_people = first.n_rows
        self.n_rows = first.n_rows * float(first.weights @ (first.codes[:, -1] + 1.0))

    def people(self, n_people: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes of the rows of so many persons, in order; the person and the place of each row, from 0."""
        width, changing = len(self._mechanism.row), list(self._mechanism.changing)
        start = self.first.draw(n_people, rng=rng)
        rows, lengths, who = start[:, :-1], start[:, -1] + 1, np.arange(n_people)
        parts = [(rows, who, np.zeros(n_people, dtype=np.int64))]
        conditions = [*range(width), width + len(changing)]
        for place in range(1, self._mechanism.longest):
            longer = lengths[who] > place
            rows, who = rows[longer].copy(), who[longer]
            if not who.size:
                break
            remaining = left_codes(lengths[who] - place - 1)
            steps = self.following.conditional(
                conditions, np.column_stack([rows, remaining]), sweeps=_SWEEPS, rng=rng
            )
            rows[:, changing] = steps[:, width:-1]
            parts.append((rows, who, np.full(who.size, place)))
        codes, owners, places = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((places, owners))
        return codes[order], owners[order], places[order]

    def draw(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """Codes of so many rows of any place, int64."""
        n_people = round(n_rows * self.n_people / self.n_rows) + 1
        codes = self.people(n_people, rng=rng)[0]
        return codes[rng.permutation(len(codes))[:n_rows]]


def sequences(schema: Schema, frame: Any, groups: Any, order: Any, *, longest: int) -> Private:
    """One line a person: the number of rows, and the codes of each row in order, zeros after the last.

    A person's line depends on the rows of that person alone.
    """
    codes = encoded(schema, frame, most=longest)[:, :-1]
    n_rows, width = codes.shape
    for name, values in (("groups", groups), ("order", order)):
        if values is not None and np.shape(values) != (n_rows,):
            raise ValueError(f"{name} must be one a row, shape ({n_rows},), got {np.shape(values)}")
    person, n_people, _ = numbered(groups)
    by_person = np.lexsort((*_keys(order), person))
    sizes = np.bincount(person, minlength=n_people)
    place = np.arange(n_rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    inside = by_person[place < longest]
    lines = np.zeros((n_people, 1 + longest * width), dtype=codes.dtype)
    lines[:, 0] = np.minimum(sizes, longest)
    begin = 1 + place[place < longest] * width
    for j in range(width):
        lines[person[inside], begin + j] = codes[inside, j]
    return Private(lines, Adjacency(unit="person", moves="row", relation="add-or-remove"))


def _keys(order: Any) -> tuple[np.ndarray, ...]:
    """Keys to sort by, the last one first: numbers, then text, then what is missing."""
    if order is None:
        return ()
    cells = cells_of(order)
    values = numbers(cells)
    none = np.isnan(values)
    if not none.any():
        return (values,)
    texts = np.array(
        [word(cell) if missing else "" for cell, missing in zip(cells.tolist(), none, strict=True)]
    )
    kind = np.where(none, np.where(texts == "", 2, 1), 0)
    return texts, np.where(none, 0.0, values), kind

"""TableGenerator: public generated rows from noisy counts of a private table."""

from __future__ import annotations

import json
import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.accounting.calibration import gaussian_shift
from ostraka.core.mechanisms.adaptive import ROWS, WEIGHTS, AdaptiveMarginals
from ostraka.core.mechanisms.counts import TreeMarginals
from ostraka.core.private import Adjacency, Private
from ostraka.core.result import Result
from ostraka.data.schema import Column, Schema, encoded
from ostraka.data.units import numbered
from ostraka.synth import fitting, models
from ostraka.synth.models import Forest, NumberModel, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.ledger.ledger import Ledger
    from ostraka.synth.models import Answers

GRAIN = 120  # weight of one person: 1 to 6 and 8 rows share it without a remainder
PERSON_ROWS = "rows of the person"  # the column that a table has, too, where persons are the unit
METHODS = ("auto", "particles", "forest", *models.METHODS)
_PUBLIC = ("the schema, which is public", "whether somebody took part in making it")
_MOST_COLUMNS = 50  # for particles by default
_SHARES = {"pairs": 0.5, "triples": 0.4, "choices": 0.1}  # of the budget, in terms of squared noise
# Rules for particles, chosen on Adult's training rows: from the squared noise multiplier rho = mu²/2 that
# (epsilon, delta) allow, and the number of columns. All of it is public.
_USUAL, _LITTLE, _MUCH = 0.036, 0.006, 0.1  # rho of epsilon 1, 0.4 and 1.8 at delta 1e-5
_FIRST, _FIRST_WITH_TARGET, _CHOICES = 0.1, 0.5, 0.1  # shares of rho
_PICKS, _PICKS_GROW, _USUAL_WIDTH = 30, 0.3, 13
_PULL, _PULL_GROWS = 0.03, 0.5
_STEPS, _MORE_STEPS = 15, 25
_BATCHES = 8  # at most, about: with more tables, batches are larger
_VERSION = 3


@dataclass(eq=False, repr=False)
class TableGenerator(BaseEstimator):
    """A generator of table rows from noisy counts of combinations of columns.

    Parameters
    ----------
    schema : Schema
        Public. Nothing of it may come from private rows.
    target : str, optional
        The column that models will learn to predict; counts of it with every other column are kept best.
        None: all columns are alike.
    epsilon, delta : float
        Public. The price, for one row or one person added or removed.
    method : {"auto", "particles", "forest", "kmeans", "dpgm", "evolution"}
        Public. "particles": columns, then pairs and triples that are chosen by how far a model is from the
        rows; the model is of maximal entropy (:class:`~ostraka.core.mechanisms.particles.Particles`).
        "forest": columns and a forest of pairs, each with the target: quicker, and further from the rows.
        "auto": particles up to 50 columns. The others learn rows of numbers, one for each code:
        :class:`PrivateKMeans` (a mixture of independent columns), :class:`DPGM` of Gaussians,
        :class:`Evolution` of random rows.

    Attributes
    ----------
    mechanism_ : AdaptiveMarginals, TreeMarginals, or that of another method
        What was released, with its noise.
    result_ : Result
        Settings and upper bound.
    counts_ : dict of arrays
        The noisy counts, in rows (of persons, if there were groups), by the numbers of their columns. Public.
    n_rows_ : int
        Noisy number of rows; of a person at most eight count. Public.
    n_people_ : int or None
        Noisy number of persons, if there were groups. Public.

    Notes
    -----
    Particles: rows with weights, whose counts are the noisy ones as far as their noise demands. Samples are
    chosen from them by systematic resampling, so they hardly add an error of their own.

    With groups, how many rows a person has (eight or more count as eight) is a column more. Each row of a
    copy is as likely as the number of rows of its person says, so that there are as many rows for a person,
    on average, as in the private table.

    Forest: counts are pulled to conditional independence as far as their noise demands, and sampled along the
    forest. The target of a sampled row is then drawn anew, by a logistic model of all columns whose expected
    counts are the noisy ones: a forest alone would count evidence twice that several columns share.

    Guarantees
    ----------
    (epsilon, delta)-DP for one row (with ``groups``: one person) added or removed, by the price of
    ``AdaptiveMarginals`` or ``TreeMarginals``; all else is post-processing. The number of rows is part of it.

    Examples
    --------
    >>> from ostraka.synth import Schema
    >>> schema = Schema.from_dict(
    ...     {"smokes": {"categories": ["no", "yes"]}, "ill": {"categories": ["0", "1"]}}
    ... )
    >>> rows = {"smokes": ["no"] * 600 + ["yes"] * 400, "ill": ["0"] * 590 + ["1"] * 410}
    >>> generator = TableGenerator(schema, target="ill", epsilon=2.0, delta=1e-5).fit(rows)
    >>> sample = generator.sample(1000, random_state=0)
    >>> bool(np.mean((sample["smokes"] == "yes") == (sample["ill"] == "1")) > 0.9)
    True
    """

    schema: Schema
    _: KW_ONLY
    target: str | None = None
    epsilon: float = 1.0
    delta: float = 1e-5
    method: str = "auto"

    def fit(
        self,
        frame: Any,
        *,
        groups: Any = None,
        ledger: Ledger | None = None,
        rng: np.random.Generator | None = None,
    ) -> TableGenerator:
        """Charge, release the counts, and learn the generator from them.

        Parameters
        ----------
        frame : data frame, dict of columns, or path of a Parquet file
            Private. A file is read in parts; its codes are in memory, a byte for each cell in most tables.
        groups : array of shape (n_rows,), optional
            Private. Whose row it is: the unit is then a person with all rows. At most eight rows of a person,
            chosen at random, share one unit of weight.
        ledger : Ledger, optional
            Where the charge is written and the release kept: the same fit of the same rows, also one that
            was interrupted, gives that release at no further price. None: a ledger in memory with exactly
            this budget.
        rng : numpy.random.Generator, optional
            For simulations only, which the ledger is then marked as.

        Raises
        ------
        ValueError
            Before anything is charged: the schema does not fit, or no noise keeps so small an epsilon.
        BudgetExceeded
            The charge does not fit; nothing was released.
        """
        persons = groups is not None
        mechanism = self.mechanism(persons=persons)
        if self.method in models.METHODS:  # a generator of rows of numbers learns the codes
            numbers = self._number_model(persons=persons)
            codes = encoded(self.schema, frame, most=1)[:, :-1].astype(np.int64)
            if persons:
                codes = np.column_stack([codes, rows_of_person(groups, len(codes)) - 1])
            pool = numbers.fit(codes, groups=groups, ledger=ledger, rng=rng)
            arrays = {ROWS: pool.codes, WEIGHTS: fitting.fine(pool.weights)}
            self._set(numbers.model.mechanism_, {}, arrays, persons=persons, n_units=pool.n_rows)
            record: Result = numbers.model.result_
            settings = record.settings | self._numbers() | {"method": self.method}
            upper = record.upper | {"not_protected": list(_PUBLIC)}
            self.result_ = replace(record, settings=settings, upper=upper)
            return self
        codes = encoded(self.schema, frame, most=mechanism.grain)
        private = shared(codes, groups, rng=rng)
        released = fitting.charged(
            self, mechanism, private, of=(codes[:, :-1],), groups=groups, ledger=ledger, rng=rng
        )
        self._set(mechanism, *fitting.counts_and_model(released, mechanism.grain), persons=persons)
        self.result_ = fitting.record(self, private, rng=rng, public=_PUBLIC, **self._numbers())
        return self

    def _numbers(self) -> dict[str, Any]:
        """Settings of the record."""
        people = {} if self.n_people_ is None else {"n_people": self.n_people_}
        return people | {
            "n_rows": self.n_rows_,
            "n_columns": len(self.schema.columns),
            "target": self.target,
            "schema": self.schema.to_dict(),
            "tables": [[self.coded_.names[j] for j in columns] for columns in self.tables_],
        }

    def _coded_schema(self, *, persons: bool) -> Schema:
        """The columns that are counted: those of the schema, and of persons how many rows each has."""
        if not persons:
            return self.schema
        edges = tuple(float(number) for number in range(1, fitting.ROWS_OF_A_PERSON + 2))
        return Schema((*self.schema.columns, Column(name=PERSON_ROWS, edges=edges, whole=True)))

    def _number_model(self, *, persons: bool) -> NumberModel:
        target = None if self.target is None else self.schema.place(self.target)
        sizes = self._coded_schema(persons=persons).sizes
        return NumberModel(self.method, sizes, target, epsilon=self.epsilon, delta=self.delta)

    def mechanism(self, *, persons: bool) -> Any:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        check.one_of(method=self.method, allowed=METHODS)
        check.positive(epsilon=self.epsilon)
        if not isinstance(self.schema, Schema):
            raise TypeError(
                "schema must be a Schema, such as Schema.from_toml(path): it is public, not read off frame"
            )
        target = None if self.target is None else self.schema.place(self.target)
        sizes, grain = self._coded_schema(persons=persons).sizes, GRAIN if persons else 1
        if self.method in models.METHODS:
            return self._number_model(persons=persons).mechanism()
        few = len(sizes) <= _MOST_COLUMNS
        if self.method == "particles" or (self.method == "auto" and few):
            return adaptive(sizes, target, self.epsilon, self.delta, grain)
        return calibrated(sizes, target, self.epsilon, self.delta, grain)

    def sample(self, n_rows: int | None = None, *, random_state: Any = None) -> dict[str, np.ndarray]:
        """Columns of generated rows, by name. Public: as many as wanted, at no further price.

        Parameters
        ----------
        n_rows : int, optional
            None: the noisy number of rows of the private table, ``n_rows_``.
        random_state : int or numpy.random.Generator, optional
        """
        check_is_fitted(self, "result_")
        n_rows = self.n_rows_ if n_rows is None else n_rows
        check.integer(n_rows=n_rows)
        rng = np.random.default_rng(random_state)
        return self.schema.decode(self.sample_codes(n_rows, rng=rng), rng=rng)

    def sample_codes(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """The same as codes of the schema, int64 of shape (n_rows, n_columns)."""
        return np.asarray(self._rows.draw(n_rows, rng=rng)[:, : len(self.schema.columns)])

    def marginal(self, *names: str) -> tuple[np.ndarray, float]:
        """Noisy counts of a table that was counted, and their standard error. Public.

        Parameters
        ----------
        *names : str
            Its columns, in any order. The target may be left out where it was counted with them. Of persons
            ``"rows of the person"`` is one, too.

        Returns
        -------
        counts : array, shape (n_codes, ...), in rows (persons, if they are the unit)
            As they were released: unbiased, some below 0. Axes are ordered as the schema, of a forest the
            target last.
        standard_error : float
            Of the noise of each cell.

        Raises
        ------
        ValueError
            A name that is no such column, or a table that was not counted.
        """
        check_is_fitted(self, "result_")
        columns = {self.coded_.place(name) for name in names}
        mechanism: Any = getattr(self, "mechanism_", None)
        for counted in self.tables_:
            if len(columns) == len(names) and columns in (set(counted), set(counted) - {mechanism.target}):
                table = self.counts_[",".join(map(str, counted))]
                return table.reshape([mechanism.sizes[j] for j in counted]), mechanism.sigma_of(
                    counted
                ) / mechanism.grain
        tables = ["(" + ", ".join(self.coded_.names[j] for j in counted) + ")" for counted in self.tables_]
        raise ValueError(
            f"names must be those of a table that was counted, {', '.join(tables)}, got {names!r}"
        )

    def query(self, text: str, *, confidence: float = 0.95) -> Answers:
        """Counts of rows that satisfy conditions, by group, with intervals. Public, at no further price.

        Parameters
        ----------
        text : str
            Conditions and columns to group by, with commas between: ``"age>=65, sex"``. Operators are
            ``>=``, ``<=``, ``>``, ``<``, ``=`` and ``!=``; a missing value satisfies none. A bin that a
            condition cuts counts by the part of it that satisfies the condition.
        confidence : float in (0, 1)
            Of each interval.

        Returns
        -------
        Answers
            From the noisy counts themselves where a table with all of these columns was counted, with an
            interval for their noise. Else from the model; of particles with an interval for the noise that
            the model has from its counts. What the model does not know at all is in no interval.

        Raises
        ------
        ValueError
            A condition that cannot be read, or a column or category that the schema lacks.
        """
        return models.answered(self, text, confidence=confidence)

    @property
    def tables_(self) -> list[tuple[int, ...]]:
        """The columns of each table that was counted, in its order. Public."""
        return [tuple(int(part) for part in name.split(",")) for name in self.counts_]

    def to_json(self) -> str:
        """The generator as JSON, public like its rows; :meth:`from_json` reads it."""
        check_is_fitted(self, "result_")
        record = {
            "version": _VERSION,
            "schema": self.schema.to_dict(),
            "target": self.target,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "method": self.method,
            "persons": self.n_people_ is not None,
            "n_rows": float(self.model_.n_rows),
            "counts": fitting.counts_to_dict(self.counts_),
            "model": fitting.packed(self._arrays),
            "result": json.loads(self.result_.to_json()),
        }
        if self.counts_:
            record["method"] = "particles" if self._arrays else "forest"
            record["counted_with"] = self.mechanism_.target
            record["mechanism"] = fitting.settings(self.mechanism_)
        return json.dumps(record)

    @classmethod
    def from_json(cls, text: str) -> TableGenerator:
        """The inverse of :meth:`to_json`; it also reads what earlier versions wrote.

        Raises
        ------
        ValueError
            The text is not what :meth:`to_json` writes.
        """
        record = fitting.loaded(text, kind=cls.__name__, versions=range(1, _VERSION + 1))
        with fitting.reading(cls.__name__):
            settings = {name: record[name] for name in ("target", "epsilon", "delta")}
            schema, persons = Schema.from_dict(record["schema"]), record.get("persons", False)
            generator = cls(schema, **settings, method=record.get("method", "forest"))
            counts, arrays = fitting.counts_of(record["counts"]), fitting.unpacked(record.get("model", {}))
            sizes = generator._coded_schema(persons=persons).sizes
            mechanism: TreeMarginals | AdaptiveMarginals | None = None
            if generator.method == "forest":
                target = None if record["target"] is None else schema.place(record["target"])
                mechanism = TreeMarginals(sizes=sizes, target=target, **record["mechanism"])
            elif generator.method not in models.METHODS:
                counted_with = record["counted_with"]
                mechanism = AdaptiveMarginals(sizes=sizes, target=counted_with, **record["mechanism"])
            generator._set(mechanism, counts, arrays, persons=persons, n_units=record.get("n_rows"))
            generator.result_ = Result.from_json(json.dumps(record["result"]))
        return generator

    def _set(
        self,
        mechanism: Any,
        counts: dict[str, np.ndarray],
        arrays: dict[str, np.ndarray],
        *,
        persons: bool,
        n_units: float | None = None,
    ) -> None:
        """Keep what was released. ``n_units``: how many rows, or persons, a pool stands for."""
        self.mechanism_: Any = mechanism
        self.counts_, self._arrays = counts, arrays
        self.coded_ = self._coded_schema(persons=persons)
        self.model_: Any
        if not arrays:
            self.model_ = Forest(mechanism, counts)
        elif not counts:
            weights = arrays[WEIGHTS].astype(np.float64)
            self.model_ = Pool(arrays[ROWS], weights, n_rows=0.0 if n_units is None else n_units)
        else:
            self.model_ = mechanism.model(counts, **arrays)
        self._rows = self.model_
        if persons:
            factors = np.arange(1.0, fitting.ROWS_OF_A_PERSON + 1)
            self._rows = self.model_.tilted(len(self.schema.columns), factors)
        self.n_people_ = max(1, round(self.model_.n_rows)) if persons else None
        self.n_rows_ = max(1, round(self._rows.n_rows))


def adaptive(
    sizes: tuple[int, ...], target: int | None, epsilon: float, delta: float, grain: int
) -> AdaptiveMarginals:
    """The least noise that keeps (epsilon, delta), with tables and shares by the rules above."""
    made = by_rules(sizes, target, gaussian_shift(epsilon, delta) ** 2 / 2, grain)
    return made(fitting.least_noise(made, epsilon=epsilon, delta=delta))


def by_rules(
    sizes: tuple[int, ...], target: int | None, rho: float, grain: int
) -> Callable[[float], AdaptiveMarginals]:
    """Tables and shares for so much rho; the mechanism for a noise, whose own rho is about 1 / noise²."""
    scale, width = rho / _USUAL, len(sizes)
    with_target = target if rho < _LITTLE and width > 1 else None
    bare = AdaptiveMarginals(
        sizes=sizes, target=with_target, sigma_first=1.0, sigma=1.0, select_epsilon=1.0, n_pick=0, grain=grain
    )
    n_pick = round(_PICKS * scale**_PICKS_GROW * math.sqrt(width / _USUAL_WIDTH))
    n_pick = min(max(n_pick, 1), len(bare.candidates()))
    share = _FIRST if with_target is None else _FIRST_WITH_TARGET
    if not n_pick:
        share = 1.0

    def made(noise: float) -> AdaptiveMarginals:
        last = max(n_pick, 1)
        return AdaptiveMarginals(
            sizes=sizes,
            target=with_target,
            sigma_first=grain * noise * math.sqrt(len(bare.first) / (2 * share)),
            sigma=grain * noise * math.sqrt(last / (2 * max(1 - share - _CHOICES, _CHOICES))),
            select_epsilon=min(40.0, math.sqrt(8 * _CHOICES / last) / noise),
            n_pick=n_pick,
            batch=max(5, math.ceil(n_pick / _BATCHES)),
            pull=_PULL * min(1.0, scale**_PULL_GROWS),
            steps=_STEPS if rho < _MUCH else _MORE_STEPS,
            grain=grain,
        )

    return made


def calibrated(
    sizes: tuple[int, ...], target: int | None, epsilon: float, delta: float, grain: int
) -> TreeMarginals:
    """The least noise that keeps (epsilon, delta), with the usual shares of the budget."""
    n_features = len(sizes) - (target is not None)
    n_pairs = max(1, n_features - 1)

    def made(noise: float) -> TreeMarginals:
        return TreeMarginals(
            sizes=sizes,
            target=target,
            sigma_pairs=grain * noise * math.sqrt(n_features / (2 * _SHARES["pairs"])),
            sigma_triples=grain * noise * math.sqrt(n_pairs / (2 * _SHARES["triples"])),
            select_epsilon=min(40.0, math.sqrt(8 * _SHARES["choices"] / n_pairs) / noise),
            grain=grain,
        )

    return made(fitting.least_noise(made, epsilon=epsilon, delta=delta))


def coded(schema: Schema, frame: Any, groups: Any, *, rng: np.random.Generator | None) -> Private:
    """Codes and weights of the private rows, as :func:`shared` has them."""
    return shared(encoded(schema, frame, most=1 if groups is None else GRAIN), groups, rng=rng)


def shared(rows: np.ndarray, groups: Any, *, rng: np.random.Generator | None) -> Private:
    """Rows of codes with their weights in the last column; of persons also how many rows each has.

    At most eight rows of a person, chosen at random, share one GRAIN.
    """
    grain, unit = 1 if groups is None else GRAIN, "row"
    if groups is None:
        rows[:, -1] = 1
    else:
        used, unit = fitting.rows_of_persons(groups, len(rows), rng=rng), "person"
        rows[:, -1] = np.where(used > 0, GRAIN // np.maximum(used, 1), 0)
        rows = np.insert(rows, -1, np.maximum(used, 1) - 1, axis=1)[used > 0]
    adjacency = Adjacency(unit=unit, moves="row", at_most=float(grain), relation="add-or-remove")
    return Private(rows, adjacency)


def rows_of_person(groups: Any, n_rows: int) -> np.ndarray:
    """How many rows the person of each row has; eight or more are eight. Private."""
    if np.shape(groups) != (n_rows,):
        raise ValueError(f"groups must be one a row, shape ({n_rows},), got {np.shape(groups)}")
    person = numbered(groups)[0]
    return np.asarray(np.minimum(np.bincount(person)[person], fitting.ROWS_OF_A_PERSON))

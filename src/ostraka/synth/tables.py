"""TableGenerator: public generated rows from noisy counts of a private table."""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from ostraka.core import check
from ostraka.core.accounting.calibration import gaussian_shift
from ostraka.core.mechanisms.adaptive import ROWS, THETA, WEIGHTS, AdaptiveMarginals
from ostraka.core.mechanisms.marginals import TreeMarginals
from ostraka.core.private import Adjacency, Private
from ostraka.core.result import Result
from ostraka.data.schema import Schema, encoded
from ostraka.synth import fitting
from ostraka.synth import pool as pools
from ostraka.synth.forest import Forest
from ostraka.synth.pool import NumberModel, Pool

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.synth.query import Answers

GRAIN = 120  # weight of one person: 1 to 6 and 8 rows share it without a remainder
METHODS = ("auto", "particles", "forest", *pools.METHODS)
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
_VERSION = 2
_FINENESS = 2**16 - 1  # of the weights of rows, as they are kept


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
        Noisy number of rows (of persons, if there were groups). Public.

    Notes
    -----
    Particles: rows with weights, whose counts are the noisy ones as far as their noise demands. Samples are
    chosen from them by systematic resampling, so they hardly add an error of their own.

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

    def __init__(
        self,
        schema: Schema,
        *,
        target: str | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        method: str = "auto",
    ) -> None:
        self.schema = schema
        self.target = target
        self.epsilon = epsilon
        self.delta = delta
        self.method = method

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
            Where the charge is written; None: a ledger in memory with exactly this budget.
        rng : numpy.random.Generator, optional
            For simulations only, which the ledger is then marked as.

        Raises
        ------
        ValueError
            Before anything is charged: the schema does not fit, or no noise keeps so small an epsilon.
        BudgetExceeded
            The charge does not fit; nothing was released.
        """
        mechanism = self.mechanism(persons=groups is not None)
        if self.method in pools.METHODS:
            return self._fit_pool(frame, groups=groups, ledger=ledger, rng=rng)
        private = coded(self.schema, frame, groups, rng=rng)
        found = fitting.charged(
            mechanism, private, epsilon=self.epsilon, delta=self.delta, ledger=ledger, rng=rng
        )
        self.mechanism_: Any = mechanism
        self._learn(found)
        self.result_ = fitting.record(
            mechanism,
            private,
            delta=self.delta,
            simulation=rng is not None,
            public=_PUBLIC,
            n_rows=self.n_rows_,
            n_columns=len(mechanism.sizes),
            target=self.target,
            schema=self.schema.to_dict(),
        )
        return self

    def _fit_pool(self, frame: Any, **how: Any) -> TableGenerator:
        """Let a generator of rows of numbers learn the codes."""
        numbers = self._number_model()
        codes = encoded(self.schema, frame, most=1)[:, :-1].astype(np.int64)
        pool = numbers.fit(codes, **how)
        weights = np.rint(pool.weights / pool.weights.max() * _FINENESS).astype(np.uint16)
        self.counts_: dict[str, np.ndarray] = {}
        self._arrays: dict[str, np.ndarray] = {ROWS: pool.codes, WEIGHTS: weights}
        self.mechanism_ = numbers.model.mechanism_
        self.model_: Any = Pool(**self._arrays_of_pool(), n_rows=pool.n_rows)
        self.n_rows_ = max(1, round(pool.n_rows))
        found: Result = numbers.model.result_
        settings = found.settings | {
            "n_rows": self.n_rows_,
            "n_columns": len(self.schema.columns),
            "target": self.target,
            "schema": self.schema.to_dict(),
            "method": self.method,
        }
        upper = found.upper | {"not_protected": list(_PUBLIC)}
        self.result_ = replace(found, settings=settings, upper=upper)
        return self

    def _arrays_of_pool(self) -> dict[str, np.ndarray]:
        return {"codes": self._arrays[ROWS], "weights": self._arrays[WEIGHTS].astype(np.float64)}

    def _number_model(self) -> NumberModel:
        target = None if self.target is None else self.schema.place(self.target)
        return NumberModel(self.method, self.schema.sizes, target, epsilon=self.epsilon, delta=self.delta)

    def mechanism(self, *, persons: bool) -> Any:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        check.one_of(method=self.method, allowed=METHODS)
        if not isinstance(self.schema, Schema):
            raise TypeError(
                "schema must be a Schema, such as Schema.from_toml(path): it is public, not read off frame"
            )
        target = None if self.target is None else self.schema.place(self.target)
        sizes, grain = self.schema.sizes, GRAIN if persons else 1
        if self.method in pools.METHODS:
            return self._number_model().mechanism()
        few = len(sizes) <= _MOST_COLUMNS
        if self.method == "particles" or (self.method == "auto" and few):
            return adaptive(sizes, target, self.epsilon, self.delta, grain)
        return calibrated(sizes, target, self.epsilon, self.delta, grain)

    def sample(self, n_rows: int | None = None, *, random_state: Any = None) -> dict[str, np.ndarray]:
        """Columns of generated rows, by name. Public: as many as wanted, at no further price.

        Parameters
        ----------
        n_rows : int, optional
            None: the noisy number of rows of the private table.
        random_state : int or numpy.random.Generator, optional
        """
        n_rows = self.n_rows_ if n_rows is None else n_rows
        check.integer(n_rows=n_rows)
        rng = np.random.default_rng(random_state)
        return self.schema.decode(self.sample_codes(n_rows, rng=rng), rng=rng)

    def sample_codes(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """The same as codes of the schema, int64 of shape (n_rows, n_columns)."""
        return np.asarray(self.model_.draw(n_rows, rng=rng))

    def marginal(self, *names: str) -> tuple[np.ndarray, float]:
        """Noisy counts of a table that was counted, and their standard error. Public.

        Parameters
        ----------
        *names : str
            Its columns, in any order. The target may be left out where it was counted with them.

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
        columns = {self.schema.place(name) for name in names}
        mechanism: Any = getattr(self, "mechanism_", None)
        for counted in self.tables_:
            if len(columns) == len(names) and columns in (set(counted), set(counted) - {mechanism.target}):
                table = self.counts_[",".join(map(str, counted))]
                return table.reshape([mechanism.sizes[j] for j in counted]), mechanism.sigma_of(
                    counted
                ) / mechanism.grain
        tables = ["(" + ", ".join(self.schema.names[j] for j in counted) + ")" for counted in self.tables_]
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
        from ostraka.synth.query import answered  # noqa: PLC0415  (not needed to generate)

        return answered(self, text, confidence=confidence)

    @property
    def tables_(self) -> list[tuple[int, ...]]:
        """The columns of each table that was counted, in its order. Public."""
        return [tuple(int(part) for part in name.split(",")) for name in self.counts_]

    def to_json(self) -> str:
        """The generator as JSON, public like its rows; :meth:`from_json` reads it."""
        record = {
            "version": _VERSION,
            "schema": self.schema.to_dict(),
            "target": self.target,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "method": self.method,
            "n_rows": float(self.model_.n_rows),
            "counts": {name: table.ravel().tolist() for name, table in self.counts_.items()},
            "model": {name: _packed(array) for name, array in self._arrays.items()},
            "result": json.loads(self.result_.to_json()),
        }
        if self.counts_:
            mechanism = self.mechanism_
            record["method"] = "particles" if self._arrays else "forest"
            record["counted_with"] = mechanism.target
            record["mechanism"] = {
                field.name: getattr(mechanism, field.name)
                for field in fields(mechanism)
                if field.name not in {"sizes", "target"}
            }
        return json.dumps(record)

    @classmethod
    def from_json(cls, text: str) -> TableGenerator:
        """The inverse of :meth:`to_json`; it also reads what earlier versions wrote.

        Raises
        ------
        ValueError
            The text is not what :meth:`to_json` writes.
        """
        record = json.loads(text)
        if not isinstance(record, dict) or record.get("version") not in (1, _VERSION):
            raise ValueError(
                f"a generator must be JSON of version {_VERSION}, as TableGenerator.to_json writes it"
            )
        schema = Schema.from_dict(record["schema"])
        settings = {name: record[name] for name in ("target", "epsilon", "delta")}
        generator = cls(schema, **settings, method=record.get("method", "forest"))
        counts = {name: np.array(cells) for name, cells in record["counts"].items()}
        arrays = {name: _unpacked(each) for name, each in record.get("model", {}).items()}
        if generator.method in pools.METHODS:
            generator.counts_, generator._arrays = counts, arrays
            generator.model_ = Pool(**generator._arrays_of_pool(), n_rows=record["n_rows"])
            generator.n_rows_ = max(1, round(record["n_rows"]))
        elif generator.method == "forest":
            target = None if record["target"] is None else schema.place(record["target"])
            generator.mechanism_ = TreeMarginals(sizes=schema.sizes, target=target, **record["mechanism"])
            generator._set(counts, {})
        else:
            generator.mechanism_ = AdaptiveMarginals(
                sizes=schema.sizes, target=record["counted_with"], **record["mechanism"]
            )
            generator._set(counts, arrays)
        generator.result_ = Result.from_json(json.dumps(record["result"]))
        return generator

    def _learn(self, released: dict[str, np.ndarray]) -> None:
        """Keep what was released, in rows; the model's arrays as they are kept in a file."""
        arrays = {}
        if WEIGHTS in released:  # particles, as they were fitted between the choices
            weights = released.pop(WEIGHTS)
            arrays = {
                ROWS: released.pop(ROWS),
                WEIGHTS: np.rint(weights / weights.max() * _FINENESS).astype(np.uint16),
                THETA: released.pop(THETA).astype(np.float32),
            }
        self._set({name: table / self.mechanism_.grain for name, table in released.items()}, arrays)

    def _set(self, counts: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> None:
        mechanism = self.mechanism_
        self.counts_, self._arrays = counts, arrays
        self.model_ = mechanism.model(counts, **arrays) if arrays else Forest(mechanism, counts)
        self.n_rows_ = max(1, round(self.model_.n_rows))


def _packed(array: np.ndarray) -> dict[str, Any]:
    """An array as plain JSON types."""
    data = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), level=6)).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def _unpacked(record: dict[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b85decode(record["data"]))
    return np.frombuffer(data, dtype=np.dtype(record["dtype"])).reshape(record["shape"]).copy()


def adaptive(
    sizes: tuple[int, ...], target: int | None, epsilon: float, delta: float, grain: int
) -> AdaptiveMarginals:
    """The least noise that keeps (epsilon, delta), with tables and shares by the rules above."""
    rho = gaussian_shift(epsilon, delta) ** 2 / 2
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

    return made(fitting.least_noise(made, epsilon=epsilon, delta=delta))


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
    """Codes and weights of the private rows, with what one unit moves.

    At most eight rows of a person, chosen at random, share one GRAIN.
    """
    grain = 1 if groups is None else GRAIN
    rows = encoded(schema, frame, most=grain)
    if groups is None:
        rows[:, -1], unit = 1, "row"
    else:
        used = fitting.rows_of_persons(groups, len(rows), rng=rng)
        rows[:, -1], unit = np.where(used > 0, GRAIN // np.maximum(used, 1), 0), "person"
        rows = rows[used > 0]
    adjacency = Adjacency(unit=unit, moves="row", at_most=float(grain), relation="add-or-remove")
    return Private(rows, adjacency)

"""From noisy counts to a table: post-processing of public numbers.

The label of a generated row: a logistic model whose expected counts are the noisy ones.

TableGenerator: public generated rows from noisy counts of a private table.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax
from sklearn.base import BaseEstimator

from ostraka.core import check
from ostraka.core.mechanisms.marginals import TreeMarginals
from ostraka.core.private import Adjacency, Private
from ostraka.core.result import Result
from ostraka.data.schema import Schema, encoded
from ostraka.synth import fitting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.core.ledger.ledger import Ledger

_POWERS = (1.0, 1.5, 2.0)  # how the spread of a cell may grow with its expected count
_FLOOR = 1e-3  # rows; no cell is impossible
_SWEEPS = 20


def consistent_total(pairs: list[np.ndarray]) -> np.ndarray:
    """Rows of each target class: the mean over the noisy tables, each of which counts every row."""
    return np.asarray(np.maximum(np.mean([table.sum(axis=0) for table in pairs], axis=0), 1.0))


def projected(table: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The nearest table whose columns are not negative and add up to ``totals``."""
    out = np.empty_like(table, dtype=np.float64)
    for k, total in enumerate(totals):
        down = np.sort(table[:, k])[::-1]
        excess = (np.cumsum(down) - total) / np.arange(1, len(down) + 1)
        out[:, k] = np.maximum(table[:, k] - excess[np.flatnonzero(down > excess)[-1]], 0.0)
    return out


def conditional_independence(a: np.ndarray, b: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Expected counts (i, j, target) if two columns are independent given the target."""
    return np.asarray(a[:, None, :] * b[None, :, :] / totals)


def shrunk(
    noisy: np.ndarray, expected: np.ndarray, margins: tuple[np.ndarray, np.ndarray], *, sigma: float
) -> np.ndarray:
    """Counts of three columns, each cell shrunk to conditional independence according to its noise.

    The spread of a cell about its expected count m is modelled as c m^p; c and p are the most likely ones
    for this table. The result has the margins of the two pairs of columns.
    """
    away = noisy - expected
    spread, best = np.zeros_like(expected), -np.inf
    for power in _POWERS:
        shape = expected**power
        scale = max(0.0, float(((away**2 - sigma**2) * shape).sum() / max((shape**2).sum(), 1e-300)))
        variance = scale * shape + sigma**2
        likelihood = -0.5 * float((np.log(variance) + away**2 / variance).sum())
        if likelihood > best:
            best, spread = likelihood, scale * shape
    cells = expected + spread / (spread + sigma**2) * away
    cells = np.maximum(cells, _FLOOR * np.minimum(expected, 1.0) + 1e-9)
    for _ in range(_SWEEPS):  # iterative proportional fitting
        cells *= (margins[0] / np.maximum(cells.sum(axis=1), 1e-12))[:, None, :]
        cells *= (margins[1] / np.maximum(cells.sum(axis=0), 1e-12))[None, :, :]
    return np.asarray(cells)


def drawn(chances: np.ndarray, given: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """One code a row, from the conditional distribution that ``given`` names; shape of ``given``."""
    below = np.cumsum(chances + 1e-12, axis=1)  # where no row is expected, any code will do
    below /= below[:, -1:]
    place = rng.random(given.shape)
    codes = np.empty(given.shape, dtype=np.int64)
    for group in np.unique(given):
        rows = given == group
        codes[rows] = np.searchsorted(below[group], place[rows], side="right")
    return np.asarray(np.minimum(codes, chances.shape[1] - 1))


def ordered(edges: list[tuple[int, int]], roots: Mapping[int, None]) -> list[tuple[int, int | None]]:
    """Columns with their parent in the forest, parents first."""
    near: dict[int, list[int]] = {column: [] for column in roots}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    order: list[tuple[int, int | None]] = []
    done: set[int] = set()
    for root in roots:
        waiting: list[tuple[int, int | None]] = [(root, None)]
        while waiting:
            column, parent = waiting.pop()
            if column in done:
                continue
            done.add(column)
            order.append((column, parent))
            waiting += [(other, column) for other in near[column] if other not in done]
    return order


_MOST_STEPS = 100
_TRUST = 0.005  # how strongly noise in a count pulls its weight to zero; chosen on a part of one table


class Labels(NamedTuple):
    """Log odds of the classes: one number for each code of each column. Public."""

    weights: list[np.ndarray]  # one (n_codes, n_classes) a column

    def logits(self, codes: np.ndarray) -> np.ndarray:
        """Log odds of each row, shape (n_rows, n_classes)."""
        return np.asarray(sum(table[codes[:, j]] for j, table in enumerate(self.weights)))

    def draw(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, by its chance."""
        logits = self.logits(codes)
        return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(axis=1), dtype=np.int64)


def fitted(codes: np.ndarray, counts: list[np.ndarray], *, sigma: float) -> Labels:
    """The model of maximal entropy whose counts of (code, class) over ``codes`` are the given shares.

    ``counts``: rows of each code by class, one table a column, with noise of standard deviation ``sigma``.
    The penalty on a weight is proportional to the variance of its count (Dudik, Phillips and Schapire 2007,
    JMLR 8: relaxed maximum entropy).
    """
    n_classes = counts[0].shape[1]
    starts = np.cumsum([0, *(len(table) for table in counts)])
    place = (codes + starts[:-1]).ravel()
    rows = np.arange(0, place.size + 1, codes.shape[1])
    which = csr_matrix((np.ones(place.size), place, rows), shape=(len(codes), starts[-1]))
    shares = np.concatenate([table / np.maximum(table.sum(axis=1, keepdims=True), 1e-9) for table in counts])
    wanted = np.bincount(place, minlength=starts[-1])[:, None] * shares
    scale = len(codes) / max(1.0, float(counts[0].sum()))
    penalty = _TRUST * ((sigma * scale) ** 2 + 1.0)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, n_classes)
        logits = which @ weights
        logs = log_softmax(logits, axis=1)
        value = float(
            (logits - logs)[:, 0].sum() - (wanted * weights).sum() + 0.5 * penalty * (weights**2).sum()
        )
        return value, (which.T @ np.exp(logs) - wanted + penalty * weights).ravel()

    options = {"maxiter": _MOST_STEPS, "ftol": 1e-9}
    best = minimize(loss, np.zeros(starts[-1] * n_classes), jac=True, method="L-BFGS-B", options=options)
    weights = best.x.reshape(-1, n_classes)
    return Labels([weights[a:b] for a, b in pairwise(starts)])


GRAIN = 120  # weight of one person: 1 to 6 and 8 rows share it without a remainder
_SHARES = {"pairs": 0.5, "triples": 0.4, "choices": 0.1}  # of the budget, in terms of squared noise
_ROWS_TO_LEARN = 20_000
_VERSION = 1


class TableGenerator(BaseEstimator):
    """A generator of table rows from noisy marginals of a target and a forest of pairs.

    Parameters
    ----------
    schema : Schema
        Public. Nothing of it may come from private rows.
    target : str, optional
        The column that models will learn to predict; counts of it with every other column are kept best.
        None: all columns are alike.
    epsilon, delta : float
        Public. The price, for one row or one person added or removed.

    Attributes
    ----------
    mechanism_ : TreeMarginals
        What was released, with its noise.
    result_ : Result
        Settings and upper bound.
    counts_ : dict of arrays
        The noisy counts, in rows (of persons, if there were groups), by the numbers of their columns. Public.
    n_rows_ : int
        Noisy number of rows (of persons, if there were groups). Public.

    Notes
    -----
    Counts are pulled to conditional independence as far as their noise demands, and sampled along the
    forest. The target of a sampled row is then drawn anew, by a logistic model of all columns whose expected
    counts are the noisy ones: a forest alone would count evidence twice that several columns share.

    Guarantees
    ----------
    (epsilon, delta)-DP for one row (with ``groups``: one person) added or removed, by the price of
    ``TreeMarginals``; all else is post-processing. The number of rows is part of it.

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
        self, schema: Schema, *, target: str | None = None, epsilon: float = 1.0, delta: float = 1e-5
    ) -> None:
        self.schema = schema
        self.target = target
        self.epsilon = epsilon
        self.delta = delta

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
        private = coded(self.schema, frame, groups, rng=rng)
        found = fitting.charged(
            mechanism, private, epsilon=self.epsilon, delta=self.delta, ledger=ledger, rng=rng
        )
        self.mechanism_ = mechanism
        self._learn({name: table / mechanism.grain for name, table in found.items()})
        self.result_ = fitting.record(
            mechanism,
            private,
            delta=self.delta,
            simulation=rng is not None,
            public=("the schema, which is public", "whether somebody took part in making it"),
            n_rows=self.n_rows_,
            n_columns=len(mechanism.sizes),
            target=self.target,
            schema=self.schema.to_dict(),
        )
        return self

    def mechanism(self, *, persons: bool) -> TreeMarginals:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        if not isinstance(self.schema, Schema):
            raise TypeError(
                "schema must be a Schema, such as Schema.from_toml(path): it is public, not read off frame"
            )
        target = None if self.target is None else self.schema.place(self.target)
        return calibrated(self.schema.sizes, target, self.epsilon, self.delta, GRAIN if persons else 1)

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
        codes = self._from_forest(n_rows, rng)
        target = self.mechanism_.target
        if target is not None and self.labels_ is not None:
            codes[:, target] = self.labels_.draw(codes[:, list(self.mechanism_.features)], rng=rng)
        return codes

    def marginal(self, *names: str) -> tuple[np.ndarray, float]:
        """Noisy counts of one column, or of a pair that was chosen, and their standard error. Public.

        Parameters
        ----------
        *names : str
            One or two columns beside the target.

        Returns
        -------
        counts : array, shape (n_codes, ..., n_classes), in rows (persons, if they are the unit)
            As they were released: unbiased, some below 0. Axes are ordered as the schema, the target last.
        standard_error : float
            Of the noise of each cell.

        Raises
        ------
        ValueError
            A name that is no such column, or a pair that was not counted.
        """
        mechanism = self.mechanism_
        columns = tuple(sorted(self.schema.place(name) for name in names))
        found = self.counts_.get(mechanism.table_name(*columns))
        if found is None or mechanism.target in columns:
            pairs = [", ".join(self.schema.names[j] for j in pair) for pair in self.triples_]
            raise ValueError(
                f"names must be a column beside the target, or a pair that was counted ({'; '.join(pairs)}), "
                f"got {names!r}"
            )
        sizes = [mechanism.sizes[j] for j in columns]
        shape = sizes if mechanism.target is None else [*sizes, mechanism.sizes[mechanism.target]]
        sigma = mechanism.sigma_pairs if len(columns) == 1 else mechanism.sigma_triples
        return found.reshape(shape), sigma / mechanism.grain

    def to_json(self) -> str:
        """The generator as JSON, public like its rows; :meth:`from_json` reads it."""
        mechanism = self.mechanism_
        return json.dumps(
            {
                "version": _VERSION,
                "schema": self.schema.to_dict(),
                "target": self.target,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "mechanism": {
                    "sigma_pairs": mechanism.sigma_pairs,
                    "sigma_triples": mechanism.sigma_triples,
                    "select_epsilon": mechanism.select_epsilon,
                    "grain": mechanism.grain,
                },
                "counts": {name: table.ravel().tolist() for name, table in self.counts_.items()},
                "result": json.loads(self.result_.to_json()),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> TableGenerator:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ValueError
            The text is not what :meth:`to_json` writes.
        """
        record = json.loads(text)
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            raise ValueError(
                f"a generator must be JSON of version {_VERSION}, as TableGenerator.to_json writes it"
            )
        schema = Schema.from_dict(record["schema"])
        generator = cls(schema, target=record["target"], epsilon=record["epsilon"], delta=record["delta"])
        target = None if record["target"] is None else schema.place(record["target"])
        generator.mechanism_ = TreeMarginals(sizes=schema.sizes, target=target, **record["mechanism"])
        generator._learn({name: np.array(cells) for name, cells in record["counts"].items()})
        generator.result_ = Result.from_json(json.dumps(record["result"]))
        return generator

    def _learn(self, found: dict[str, np.ndarray]) -> None:
        """Compute the generator from the noisy counts, in rows."""
        mechanism, grain = self.mechanism_, self.mechanism_.grain
        self.counts_ = found
        noisy = {
            j: found[mechanism.table_name(j)].reshape(mechanism.sizes[j], -1) for j in mechanism.features
        }
        totals = consistent_total(list(noisy.values()))
        self.totals_ = totals
        self.n_rows_ = max(1, round(float(totals.sum())))
        self.pairs_ = {j: projected(table, totals) for j, table in noisy.items()}
        self.triples_ = {}
        for name, table in found.items():
            columns = tuple(int(part) for part in name.split(","))
            pair = tuple(j for j in columns if j != mechanism.target)
            if len(pair) == 2:
                margins = (self.pairs_[pair[0]], self.pairs_[pair[1]])
                expected = conditional_independence(*margins, totals)
                cells = table.reshape(expected.shape)
                sigma = mechanism.sigma_triples / grain
                self.triples_[pair] = shrunk(cells, expected, margins, sigma=sigma)
        self.labels_ = None
        if mechanism.target is not None and len(totals) > 1:
            rows = self._from_forest(_ROWS_TO_LEARN, np.random.default_rng(0))
            self.labels_ = fitted(
                rows[:, list(mechanism.features)],
                [self.pairs_[j] for j in mechanism.features],
                sigma=mechanism.sigma_pairs / grain,
            )

    def _from_forest(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        mechanism, n_classes = self.mechanism_, len(self.totals_)
        codes = np.zeros((n_rows, len(mechanism.sizes)), dtype=np.int64)
        label = rng.choice(n_classes, size=n_rows, p=self.totals_ / self.totals_.sum())
        if mechanism.target is not None:
            codes[:, mechanism.target] = label
        for column, parent in ordered(list(self.triples_), dict.fromkeys(mechanism.features)):
            if parent is None:
                codes[:, column] = drawn(self.pairs_[column].T, label, rng=rng)
                continue
            cells = self.triples_.get((parent, column))
            if cells is None:
                cells = self.triples_[column, parent].transpose(1, 0, 2)
            chances = cells.transpose(0, 2, 1).reshape(-1, mechanism.sizes[column])
            given = codes[:, parent] * n_classes + label
            codes[:, column] = drawn(chances, given, rng=rng)
        return codes


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

"""Models of a table's rows as codes, and questions to them. All of it is post-processing.

A forest of pairs of columns goes from its noisy counts to rows; the label of a row is drawn by a logistic
model whose expected counts are the noisy ones. A generator of numbers learns one column of numbers for each
code: a row has the number 1 at each of its codes, and 0 elsewhere. So all rows are equally long, and a centre
holds the shares of the codes: a cluster is a product of distributions. What is drawn once is kept as a pool.
Questions are answered by counts with intervals, from the noisy tables or from a model.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, ndtri
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.mechanisms.particles import Particles
from ostraka.synth.clusters import PrivateKMeans
from ostraka.synth.dpgm import DPGM
from ostraka.synth.evolution import Evolution, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostraka.core.mechanisms.counts import TreeMarginals
    from ostraka.data.schema import Column, Schema
    from ostraka.synth.sequences import SequenceGenerator
    from ostraka.synth.tables import TableGenerator

METHODS = ("kmeans", "dpgm", "evolution")
MOST_CODES = 2_000  # of all columns together
_FEWEST, _MOST = 2_000, 100_000  # rows of a pool
_CANDIDATES, _ROUNDS, _CHANGED = 400, 12, 0.25
_NEVER = 1e-9
_POWERS = (1.0, 1.5, 2.0)  # how the spread of a cell may grow with its expected count
_FLOOR = 1e-3  # rows; no cell is impossible
_SWEEPS = 20
_ROWS_TO_LEARN = 20_000
_GOLDEN = (5**0.5 - 1) / 2
_TIMES = 4  # as many rows are drawn as are chosen
_MOST_STEPS = 100
_TRUST = 0.005  # how strongly noise in a count pulls its weight to zero; chosen on a part of one table
_CONDITION = re.compile(r"(.+?)\s*(>=|<=|!=|==|=|>|<)\s*(.+)")
_MOST_GROUPS = 1_000
_MOST_ERRORS = 24  # groups of a model whose error is computed
_FEW = 10  # particles of a group; of fewer nothing is known of its error
_ROWS = 100_000  # that are drawn where a model has no weighted rows


class Pool:
    """Rows that were generated once, with weights. Public."""

    def __init__(self, codes: np.ndarray, weights: np.ndarray, *, n_rows: float) -> None:
        self.codes, self.weights, self.n_rows = codes, weights / weights.sum(), n_rows

    def draw(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """Codes of so many rows in random order, int64, by systematic resampling."""
        below = np.cumsum(self.weights)
        at = (np.arange(n_rows) + rng.random()) / max(n_rows, 1) * below[-1]
        chosen = np.minimum(np.searchsorted(below, at), len(self.codes) - 1)
        return np.asarray(rng.permutation(self.codes[chosen].astype(np.int64)))

    def tilted(self, column: int, factors: np.ndarray) -> Pool:
        """The rows, each as often as the factor of its code in one column says."""
        counts = factors[self.codes[:, column]]
        return Pool(self.codes, self.weights * counts, n_rows=self.n_rows * float(self.weights @ counts))


class Forest:
    """Rows along a forest of pairs.

    Attributes
    ----------
    totals : array
        Rows of each class of the target.
    pairs, triples : dict of arrays
        Counts of one column and of two columns with the target, consistent, by column and by pair.
    labels : Labels or None
    """

    def __init__(self, mechanism: TreeMarginals, counts: Mapping[str, np.ndarray]) -> None:
        self._mechanism = mechanism
        grain = mechanism.grain
        noisy = {
            j: counts[mechanism.table_name(j)].reshape(mechanism.sizes[j], -1) for j in mechanism.features
        }
        totals = consistent_total(list(noisy.values()))
        self.totals = totals
        self.n_rows = float(totals.sum())
        self.pairs = {j: projected(table, totals) for j, table in noisy.items()}
        self.triples: dict[tuple[int, int], np.ndarray] = {}
        for name, table in counts.items():
            columns = tuple(int(part) for part in name.split(","))
            features = [j for j in columns if j != mechanism.target]
            if len(features) == 2:
                pair = (features[0], features[1])
                margins = (self.pairs[pair[0]], self.pairs[pair[1]])
                expected = conditional_independence(*margins, totals)
                cells = table.reshape(expected.shape)
                sigma = mechanism.sigma_triples / grain
                self.triples[pair] = shrunk(cells, expected, margins, sigma=sigma)
        self.labels: Labels | None = None
        if mechanism.target is not None and len(totals) > 1:
            rows = self._along(_ROWS_TO_LEARN, np.random.default_rng(0))
            self.labels = fitted(
                rows[:, list(mechanism.features)],
                [self.pairs[j] for j in mechanism.features],
                sigma=mechanism.sigma_pairs / grain,
            )

    def draw(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """Codes of so many rows, int64."""
        codes, mechanism = self._along(n_rows, rng), self._mechanism
        if mechanism.target is not None and self.labels is not None:
            codes[:, mechanism.target] = self.labels.draw(codes[:, list(mechanism.features)], rng=rng)
        return codes

    def tilted(self, column: int, factors: np.ndarray) -> Tilted:
        """Rows, each as often as the factor of its code in one column says."""
        counts = self.pairs[column].sum(axis=1)
        return Tilted(self, column, factors, n_rows=float(counts @ factors))

    def _along(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        mechanism, n_classes = self._mechanism, len(self.totals)
        codes = np.zeros((n_rows, len(mechanism.sizes)), dtype=np.int64)
        label = drawn(self.totals[None], np.zeros(n_rows, dtype=np.int64), rng=rng)
        if mechanism.target is not None:
            codes[:, mechanism.target] = label
        for column, parent in ordered(list(self.triples), dict.fromkeys(mechanism.features)):
            if parent is None:
                codes[:, column] = drawn(self.pairs[column].T, label, rng=rng)
                continue
            cells = self.triples.get((parent, column))
            if cells is None:
                cells = self.triples[column, parent].transpose(1, 0, 2)
            chances = cells.transpose(0, 2, 1).reshape(-1, mechanism.sizes[column])
            condition = codes[:, parent] * n_classes + label
            codes[:, column] = drawn(chances, condition, rng=rng)
        return codes


class Tilted(NamedTuple):
    """Rows of a forest that are chosen by a column, from more than are asked for."""

    forest: Forest
    column: int
    factors: np.ndarray
    n_rows: float

    def draw(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """Codes of so many rows, int64."""
        codes = self.forest.draw(_TIMES * n_rows, rng=rng)
        return Pool(codes, self.factors[codes[:, self.column]], n_rows=self.n_rows).draw(n_rows, rng=rng)


class Labels(NamedTuple):
    """Log odds of the classes: one number for each code of each column. Public."""

    weights: list[np.ndarray]  # one (n_codes, n_classes) a column

    def logits(self, codes: np.ndarray) -> np.ndarray:
        """Log odds of each row, shape (n_rows, n_classes)."""
        return np.asarray(sum(table[codes[:, j]] for j, table in enumerate(self.weights)))

    def draw(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, by its chance; rows that are alike have chances in equal strata."""
        logits = self.logits(codes)
        below = np.cumsum(np.exp(log_softmax(logits, axis=1)), axis=1)
        place = np.empty(len(codes))
        place[np.lexsort(codes.T)] = (np.arange(len(codes)) * _GOLDEN + rng.random()) % 1.0
        return np.asarray((below[:, :-1] <= place[:, None]).sum(axis=1), dtype=np.int64)


class NumberModel:
    """A generator of rows of numbers which learns a table.

    Parameters
    ----------
    method : {"kmeans", "dpgm", "evolution"}
    sizes : tuple of int
        Number of codes of each column. Public.
    target : int or None
        Clusters are of its classes each. Public.
    epsilon, delta : float
    """

    def __init__(
        self, method: str, sizes: tuple[int, ...], target: int | None, *, epsilon: float, delta: float
    ) -> None:
        check.one_of(method=method, allowed=METHODS)
        if sum(sizes) > MOST_CODES:
            raise ValueError(
                f"method {method!r} takes at most {MOST_CODES:,} codes of all columns together, got "
                f"{sum(sizes):,}: take fewer codes, or method='particles'"
            )
        self.method, self.sizes = method, sizes
        self.target = None if method == "evolution" else target
        self.features = [j for j in range(len(sizes)) if j != self.target]
        if not self.features:
            raise ValueError("a table must have one column or more beside the target")
        self.model: Any
        if method == "kmeans":
            longest = len(self.features) ** 0.5
            self.model = PrivateKMeans(10, longest=longest, epsilon=epsilon, delta=delta)
        elif method == "dpgm":
            self.model = DPGM(4, generator="gaussian", epsilon=epsilon, delta=delta)
        else:
            widths = np.array(sizes)
            first = np.random.default_rng(0).integers(0, widths, (_CANDIDATES, len(sizes)))

            def vary(winners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
                other = rng.integers(0, widths, winners.shape)
                return np.where(rng.random(winners.shape) < _CHANGED, other, winners).astype(np.uint16)

            self.model = Evolution(
                first.astype(np.uint16),
                vary=vary,
                embed=lambda rows: numbers(rows, sizes),
                n_rounds=_ROUNDS,
                name=f"codes of {sizes!r}",
                epsilon=epsilon,
                delta=delta,
            )

    def mechanism(self) -> Any:
        """What is released, with the least noise that keeps (epsilon, delta)."""
        if self.method == "evolution":
            return self.model.mechanism()
        n_classes = 1 if self.target is None else self.sizes[self.target]
        n_features = sum(self.sizes[j] for j in self.features)
        return self.model.mechanism(n_features=n_features, n_classes=n_classes)

    def fit(self, codes: np.ndarray, **how: Any) -> Pool:
        """Charge, release, and draw the pool. ``codes`` are private; the pool is public."""
        sizes = [self.sizes[j] for j in self.features]
        if self.method == "evolution":
            self.model.fit(numbers(codes, sizes), **how)
            votes = self.model.votes_
            weights = weights_of(votes, sigma=self.model.mechanism_.sigma)
            return Pool(self.model.candidates_, weights, n_rows=float(votes.sum()))
        labels: dict[str, Any] = {}
        if self.target is not None:
            labels = {"y": codes[:, self.target], "classes": list(range(self.sizes[self.target]))}
        self.model.fit(numbers(codes[:, self.features], sizes), **labels, **how)
        n_rows = float(np.maximum(self.model.cluster_sizes_, 0).sum())
        n_pool = int(min(max(n_rows, _FEWEST), _MOST))
        rows, members = self.model.sample(n_pool, random_state=0)
        pool = np.zeros((n_pool, len(self.sizes)), dtype=np.uint16)
        pool[:, self.features] = codes_of(rows, sizes, rng=np.random.default_rng(0))  # the pool is public
        if self.target is not None:
            pool[:, self.target] = members
        return Pool(pool, np.ones(n_pool), n_rows=n_rows)


class Answer(NamedTuple):
    """The count of one group."""

    group: tuple[str, ...]
    estimate: float
    low: float  # NaN, as high: no interval is known
    high: float


class Answers(NamedTuple):
    """Counts of all groups, and where they come from: ``"counts"`` or ``"model"``."""

    columns: tuple[str, ...]
    rows: list[Answer]
    source: str
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; an interval that is not known is null."""
        return {
            "columns": list(self.columns),
            "source": self.source,
            "confidence": self.confidence,
            "rows": [
                {
                    "group": list(row.group),
                    "count": row.estimate,
                    "low": None if math.isnan(row.low) else row.low,
                    "high": None if math.isnan(row.high) else row.high,
                }
                for row in self.rows
            ],
        }


def answered(
    generator: TableGenerator | SequenceGenerator, text: str, *, confidence: float = 0.95
) -> Answers:
    """Answer a question from the noisy tables that have all of its columns, else from the model."""
    check_is_fitted(generator, "result_")
    check.share(confidence=confidence)
    question, schema = asked(generator.coded_, text), generator.coded_
    covering = [columns for columns in generator.tables_ if question.columns <= set(columns)]
    counts: Any
    errors: Any
    if covering:  # the mean of all tables that have the columns, weighted by their noise
        sums: Any = 0.0
        precision: Any = 0.0
        for columns in covering:
            cells, error = generator.marginal(*(schema.names[j] for j in columns))
            squares = np.ones(cells.shape)
            for axis, j in enumerate(columns):
                if j in question.shares:
                    shape = [-1 if k == axis else 1 for k in range(len(columns))]
                    cells = cells * question.shares[j].reshape(shape)
                    squares = squares * np.square(question.shares[j]).reshape(shape)
            others = tuple(axis for axis, j in enumerate(columns) if j not in question.groups)
            grouped = [j for j in columns if j in question.groups]
            order = [grouped.index(j) for j in question.groups]
            count, variance = (
                np.transpose(table.sum(axis=others), order).ravel() for table in (cells, error**2 * squares)
            )
            sums = sums + count / np.maximum(variance, 1e-300)
            precision = precision + 1 / np.maximum(variance, 1e-300)
        counts, errors = sums / precision, precision**-0.5
    else:  # of particles with standard errors from the noise of what was counted
        model, sizes = generator.model_, schema.sizes
        if isinstance(model, Particles | Pool):
            codes, weights = model.codes.astype(np.int64), model.weights
        else:
            codes = model.draw(_ROWS, rng=np.random.default_rng(0))
            weights = np.full(len(codes), 1 / len(codes))
        shares = np.ones(len(codes))
        for j, share in question.shares.items():
            shares = shares * share[codes[:, j]]
        shape = [sizes[j] for j in question.groups]
        place = np.zeros(len(codes), dtype=np.int64)
        if shape:
            place = np.ravel_multi_index(tuple(codes[:, j] for j in question.groups), shape)
        n_groups = math.prod(shape)
        counts = model.n_rows * np.bincount(place, weights=weights * shares, minlength=n_groups)
        errors = [math.nan] * n_groups
        if isinstance(model, Particles) and n_groups <= _MOST_ERRORS:
            mechanism: Any = generator.mechanism_
            inside = np.bincount(place, weights=shares > 0, minlength=n_groups)
            errors = [
                mechanism.model_error(model, shares * (place == k)) if inside[k] >= _FEW else math.nan
                for k in range(n_groups)
            ]
    width = float(ndtri((1 + confidence) / 2))
    names = [schema.columns[j].values() for j in question.groups]
    rows = [
        Answer(group, count, count - width * error, count + width * error)
        for group, count, error in zip(
            product(*names), counts.tolist(), np.asarray(errors).tolist(), strict=True
        )
    ]
    source = "counts" if covering else "model"
    return Answers(tuple(schema.names[j] for j in question.groups), rows, source, confidence)


class Question(NamedTuple):
    """Columns to group by, and for each column of a condition how much of each code satisfies it."""

    groups: tuple[int, ...]
    shares: dict[int, np.ndarray]

    @property
    def columns(self) -> set[int]:
        """All columns that are asked for."""
        return {*self.groups, *self.shares}


def asked(schema: Schema, text: str) -> Question:
    """Read a question such as ``"age>=65, sex"``."""
    groups: list[int] = []
    shares: dict[int, np.ndarray] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _CONDITION.fullmatch(part)
        place = schema.place((match[1] if match else part).strip())
        if match is None:
            if place not in groups:
                groups.append(place)
            continue
        share = _share(schema.columns[place], match[2], match[3].strip().strip("'\""))
        shares[place] = shares.get(place, 1.0) * share
    if not groups and not shares:
        raise ValueError("a question must name a column or a condition, such as 'age>=65, sex'")
    if math.prod(schema.sizes[j] for j in groups) > _MOST_GROUPS:
        raise ValueError(f"a question must have at most {_MOST_GROUPS:,} groups: group by fewer columns")
    return Question(tuple(groups), shares)


def _share(column: Column, operator: str, text: str) -> np.ndarray:
    """How much of each code satisfies a condition, from 0 to 1; 0 of a missing value."""
    share = np.zeros(column.size)
    equal = operator in {"=", "=="}
    if column.categories:
        if not equal and operator != "!=":
            raise ValueError(f"column {column.name!r} has categories: ask for {column.name}=... or !=...")
        if text not in column.categories:
            raise ValueError(
                f"column {column.name!r} has no category {text!r}; it has {', '.join(column.categories)}"
            )
        share[: column.n_values] = np.array([(name == text) == equal for name in column.categories])
        return share
    value, edges = column.number(text), np.asarray(column.edges)
    if not math.isfinite(value):
        raise ValueError(f"column {column.name!r} has numbers or dates, got {text!r}")
    if column.whole or column.date:  # whole numbers of each bin
        low, high = np.ceil(edges[:-1]), np.ceil(edges[1:])
        first, after = float(math.ceil(value)), math.floor(value) + 1.0  # the first >= value, and > value
    else:
        low, high, first, after = edges[:-1], edges[1:], value, value
    wide = np.maximum(high - low, 1e-300)
    below, up_to = (np.clip((end - low) / wide, 0, 1) for end in (first, after))
    kinds = {"<": below, "<=": up_to, ">=": 1 - below, ">": 1 - up_to}
    share[: column.n_values] = kinds[operator] if operator in kinds else up_to - below
    if operator == "!=":
        share[: column.n_values] = 1 - (up_to - below)
    return share


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
            waiting += [(neighbour, column) for neighbour in near[column] if neighbour not in done]
    return order


def drawn(chances: np.ndarray, given: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """One code a row, from the conditional distribution that ``given`` names; shape of ``given``."""
    below = np.cumsum(chances + 1e-12, axis=1)  # where no row is expected, any code will do
    below /= below[:, -1:]
    codes = np.empty(given.shape, dtype=np.int64)
    for group in np.unique(given):
        rows = np.flatnonzero(given == group)
        # one uniform number in each of equal strata: the counts are within one of what is expected
        place = (rng.permutation(rows.size) + rng.random()) / rows.size
        codes[rows] = np.searchsorted(below[group], place, side="right")
    return np.asarray(np.minimum(codes, chances.shape[1] - 1))


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


def numbers(codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """One number for each code of each column, float32: 1 where the row has it."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.zeros((len(codes), starts[-1]), dtype=np.float32)
    rows[np.arange(len(codes))[:, None], codes + starts[:-1]] = 1
    return rows


def codes_of(rows: np.ndarray, sizes: Sequence[int], *, rng: np.random.Generator) -> np.ndarray:
    """Codes drawn by the numbers of each column, as far as they are positive; uint16."""
    codes, begin = np.empty((len(rows), len(sizes)), dtype=np.uint16), 0
    for j, size in enumerate(sizes):
        below = np.cumsum(np.maximum(rows[:, begin : begin + size], _NEVER), axis=1)
        at = rng.random((len(rows), 1)) * below[:, -1:]
        codes[:, j] = np.minimum((below <= at).sum(axis=1), size - 1)
        begin += size
    return codes

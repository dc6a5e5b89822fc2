"""A forest of pairs of columns: from its noisy counts to rows. All of it is post-processing.

The label of a generated row: a logistic model whose expected counts are the noisy ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax

from ostraka.synth.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.core.mechanisms.marginals import TreeMarginals

_POWERS = (1.0, 1.5, 2.0)  # how the spread of a cell may grow with its expected count
_FLOOR = 1e-3  # rows; no cell is impossible
_SWEEPS = 20
_ROWS_TO_LEARN = 20_000
_GOLDEN = (5**0.5 - 1) / 2
_TIMES = 4  # as many rows are drawn as are chosen


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
    codes = np.empty(given.shape, dtype=np.int64)
    for group in np.unique(given):
        rows = np.flatnonzero(given == group)
        # one uniform number in each of equal strata: the counts are within one of what is expected
        place = (rng.permutation(rows.size) + rng.random()) / rows.size
        codes[rows] = np.searchsorted(below[group], place, side="right")
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
            waiting += [(neighbour, column) for neighbour in near[column] if neighbour not in done]
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
        """One class a row, by its chance; rows that are alike have chances in equal strata."""
        logits = self.logits(codes)
        below = np.cumsum(np.exp(log_softmax(logits, axis=1)), axis=1)
        place = np.empty(len(codes))
        place[np.lexsort(codes.T)] = (np.arange(len(codes)) * _GOLDEN + rng.random()) % 1.0
        return np.asarray((below[:, :-1] <= place[:, None]).sum(axis=1), dtype=np.int64)


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

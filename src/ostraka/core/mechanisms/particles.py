"""Particles: a log-linear model of maximal entropy for noisy counts, by weighted rows. All of it is public.

No junction tree: whatever tables were counted, the model is held by rows that are drawn from it. Weights of
the rows fit the counts; the rows are drawn anew where weights become too unequal.
"""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize

from ostraka.core.kernels import particles as kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST_SHARE = 0.25  # of the particles: the effective sample below which a step is shortened
_SHORTER, _MOST_SHORTENINGS = 0.7, 12
_MOST_RETURNS = 3  # of a step that led away from the noisy counts
SAMPLING = 0.8  # mean size of the error of a count of rows that are drawn, in its square roots
_NEAR = 0.8  # effective sample at which rows need not be drawn anew
_LARGEST = 12.0  # of a weight: no cell is more than e^12 times as likely for it
_LEAST_SINGLE = 40.0  # of a code's own weight below 0: several tables together may raise it
_RISE, _FALL = 4.0, 4.0  # of a weight in one step, at most
_MEMORY = 8  # of L-BFGS
_SWEEPS = 2
_BLOCK = 2**13  # rows that are counted at once
_FLOOR = 1.0  # rows of a code, where a column starts


class Table(NamedTuple):
    """One table of counts: its columns, where its cells begin among those of all, and their number."""

    columns: tuple[int, ...]
    begin: int
    size: int


class Particles:
    """Rows whose weighted counts are those of noisy tables, and whose entropy is the largest otherwise.

    Parameters
    ----------
    sizes : tuple of int
        Number of codes of each column. Public.
    n_rows : float > 0
        How many rows the counts are of. Public.
    n_particles : int
        Rows of the model.
    rng : numpy.random.Generator
        Of the model: not of the noise.

    Notes
    -----
    With the weights theta of all cells, a row has the logarithm of its chance from the sum over its cells.
    ``fit`` minimises n log mean exp(<theta - theta_0, f>) - <counts, theta - theta_0>
    + sum pull sigma² theta² / 2 over particles that were drawn from theta_0: relaxed maximum entropy by
    importance weights (Dudik, Phillips and Schapire 2007, JMLR 8). Rows are then chosen by systematic
    resampling in lexicographic order (Kitagawa 1996), and each column is drawn anew given the others (Gibbs).
    """

    def __init__(
        self, sizes: Sequence[int], *, n_rows: float, n_particles: int, rng: np.random.Generator
    ) -> None:
        self.sizes = tuple(sizes)
        self.n_rows = n_rows
        self.rng = rng
        self.tables: list[Table] = []
        self.theta = np.zeros(0)
        self.wanted = np.zeros(0)
        self.penalty = np.zeros(0)
        self.codes = np.zeros((n_particles, len(self.sizes)), dtype=np.uint16)
        self.weights = np.full(n_particles, 1 / n_particles)

    def add(self, columns: tuple[int, ...], counts: np.ndarray, *, sigma: float, pull: float) -> None:
        """One table more: noisy counts, spread evenly to the number of rows, and how its noise pulls to 0."""
        cells = counts.ravel().astype(np.float64)
        cells += (self.n_rows - cells.sum()) / cells.size
        self.tables.append(Table(columns, self.theta.size, cells.size))
        self.theta = np.concatenate([self.theta, np.zeros(cells.size)])
        self.wanted = np.concatenate([self.wanted, cells])
        self.penalty = np.concatenate([self.penalty, np.full(cells.size, pull * sigma**2)])

    def start(self) -> None:
        """Columns drawn independently, each by its own noisy counts."""
        n = len(self.codes)
        for table in self.tables:
            if len(table.columns) > 1:
                continue
            cells = slice(table.begin, table.begin + table.size)
            chances = np.maximum(self.wanted[cells], _FLOOR)
            chances /= chances.sum()
            self.theta[cells] = np.log(chances) - np.log(chances).mean()
            place = (np.arange(n) + 0.5) / n
            drawn = np.searchsorted(np.cumsum(chances)[:-1], place, side="right")
            self.codes[:, table.columns[0]] = self.rng.permutation(drawn)

    def fit(self, *, rounds: int, steps: int) -> None:
        """Fit the weights, draw the rows anew, and so on: at most so many rounds of so many steps.

        A step is taken back, and tried half as long, if its rows are farther from the noisy counts than those
        before it by more than chance.
        """
        for k in range(rounds):
            start, codes = self.theta.copy(), self.codes
            # with the misfit that rows drawn anew would have by chance alone, if their model were exact
            before = self.misfit() + self._chance(self.wanted)
            whole, share = self.solve(steps)
            step = self.theta - start
            for tries in range(_MOST_RETURNS + 1):
                self.resample(len(self.codes))
                self.refresh()
                if self.misfit() <= before:
                    break
                whole, self.codes = False, codes
                if tries == _MOST_RETURNS:
                    self.theta, self.weights = start, np.full(len(codes), 1 / len(codes))
                else:
                    step /= 2
                    self.theta, self.weights = start + step, self._weighted(step)
            if whole and k and share > _NEAR:
                break

    def misfit(self) -> float:
        """Sum of absolute differences, over all tables, of the rows' weighted counts and the noisy ones."""
        return float(np.abs(self._counted() - self.wanted).sum())

    def _counted(self) -> np.ndarray:
        """The rows' weighted counts in the cells of all tables."""
        shares = np.empty(self.theta.size)
        kernels.spread(self._cells(), self.weights, shares)
        return self.n_rows * shares

    def _chance(self, counts: np.ndarray) -> float:
        """About the sum of absolute errors of these counts in rows that are drawn by chance alone."""
        return SAMPLING * float(np.sqrt(self.n_rows / len(self.codes) * np.maximum(counts, _FLOOR)).sum())

    def _weighted(self, step: np.ndarray) -> np.ndarray:
        """Weights of the rows for a step of theta."""
        logs = np.empty(len(self.codes))
        most = kernels.logits(self._cells(), step, logs)
        weights = np.exp(logs - most)
        return np.asarray(weights / weights.sum())

    def solve(self, steps: int) -> tuple[bool, float]:
        """Fit the weights to the rows; whether the step was whole, and the share of the effective sample."""
        cells, start, n = self._cells(), self.theta.copy(), self.n_rows
        held = np.empty(start.size)

        # about the curvature of each weight: with it, all weights move alike
        scale = np.sqrt(np.clip(self.wanted, _FLOOR, None) + self.penalty)

        def loss(scaled: np.ndarray) -> tuple[float, np.ndarray]:
            theta = scaled / scale
            whole = kernels.moments(cells, theta - start, held)
            if not math.isfinite(whole):
                return math.inf, np.zeros(theta.size)
            value = n * math.log(whole / len(cells)) - float(self.wanted @ (theta - start))
            value += 0.5 * float((self.penalty * theta) @ theta)
            return value, (n / whole * held - self.wanted + self.penalty * theta) / scale

        # a cell that few particles are in says little of its own share: its weight may rise by little
        inside = np.bincount(cells.ravel(), minlength=start.size)
        least = np.full(start.size, -_LARGEST)
        for table in self.tables:
            if len(table.columns) == 1:
                least[table.begin : table.begin + table.size] = -_LEAST_SINGLE
        low = np.maximum(start - _FALL, least) * scale
        high = np.minimum(start + np.minimum(np.log1p(inside) + 1, _RISE), _LARGEST) * scale
        options = {"maxiter": steps, "maxcor": _MEMORY, "maxfun": 2 * steps}
        found = minimize(
            loss,
            start * scale,
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([low, high], axis=1),
            options=options,
        )
        step = found.x / scale - start
        share = 0.0
        for tries in range(_MOST_SHORTENINGS):
            weights = self._weighted(step)
            share = 1 / float(weights @ weights) / len(weights)
            if share >= _LEAST_SHARE:
                self.theta, self.weights = start + step, weights
                return tries == 0, share
            step *= _SHORTER
        return False, share

    def resample(self, n_rows: int) -> None:
        """So many rows by systematic resampling: each as often as its weight says, up to one."""
        self.codes = self._resampled(n_rows, self.rng)
        self.weights = np.full(n_rows, 1 / n_rows)

    def draw(self, n_rows: int, *, rng: np.random.Generator) -> np.ndarray:
        """Codes of so many rows in random order, int64.

        Beyond the number of particles, rows are refreshed ones, as long as their counts are those of the
        particles but for chance; else they are the particles once more.
        """
        size, counts, more = len(self.codes), self._counted(), copy(self)
        parts, more.rng = [self._resampled(min(size, n_rows), rng)] if n_rows else [], rng
        for begin in range(size, n_rows, size):
            more.codes, more.weights = self._resampled(size, rng), np.full(size, 1 / size)
            more.refresh(1)
            if np.abs(more._counted() - counts).sum() > self._chance(counts):  # noqa: SLF001  (a copy)
                more.codes = self._resampled(size, rng)
            parts.append(more._resampled(min(size, n_rows - begin), rng))  # noqa: SLF001
        rows = np.concatenate([*parts, self.codes[:0]]).astype(np.int64)
        return np.asarray(rng.permutation(rows))

    def _resampled(self, n_rows: int, rng: np.random.Generator) -> np.ndarray:
        """Rows by systematic resampling, in lexicographic order."""
        order = np.lexsort(self.codes.T[::-1])
        below = np.cumsum(self.weights[order])
        at = (np.arange(n_rows) + rng.random()) / n_rows * below[-1]
        chosen = order[np.minimum(np.searchsorted(below, at), len(order) - 1)]
        return np.ascontiguousarray(self.codes[chosen])

    def refresh(self, sweeps: int = _SWEEPS, columns: Sequence[int] | None = None) -> None:
        """Draw each column anew, given the others, under the present weights: all, or the named ones."""
        drawn, starts, parts, chances, begin = [], [0], [], [], 0
        for j in range(len(self.sizes)) if columns is None else columns:
            mine = [table for table in self.tables if j in table.columns]
            if all(len(table.columns) == 1 for table in mine):
                continue  # it is independent of all others
            for table in mine:  # its own code fastest
                shape = [self.sizes[k] for k in table.columns]
                cells = self.theta[table.begin : table.begin + table.size].reshape(shape)
                cells = np.moveaxis(cells, table.columns.index(j), -1)
                chances.append(np.exp(cells - cells.max(axis=-1, keepdims=True)).ravel())
                rest = [k for k in table.columns if k != j]
                line, stride = [begin, -1, 0, -1, 0], self.sizes[j]
                for position, k in reversed(list(enumerate(rest))):
                    line[1 + 2 * position], line[2 + 2 * position] = k, stride
                    stride *= self.sizes[k]
                parts.append(line)
                begin += table.size
            drawn.append(j)
            starts.append(len(parts))
        order, sizes, ends = (np.array(numbers, dtype=np.int64) for numbers in (drawn, self.sizes, starts))
        lines, factors = (
            np.array(parts, dtype=np.int64).reshape(-1, 5),
            np.concatenate([*chances, np.zeros(0)]),
        )
        for _ in range(sweeps):
            uniforms = self.rng.random((order.size, len(self.codes)), dtype=np.float32)
            kernels.sweep(self.codes, uniforms, order, sizes, ends, lines, factors)

    def tilted(self, column: int, factors: np.ndarray) -> Particles:
        """The model in which each row counts as often as the factor of its code in one column says."""
        whole = copy(self)
        table = next(table for table in self.tables if table.columns == (column,))
        whole.theta = self.theta.copy()
        whole.theta[table.begin : table.begin + table.size] += np.log(factors)
        weights = self.weights * factors[self.codes[:, column]]
        whole.weights, whole.n_rows = weights / weights.sum(), self.n_rows * float(weights.sum())
        return whole

    def conditional(
        self, known: Sequence[int], codes: np.ndarray, *, sweeps: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Rows whose ``known`` columns have these codes, one row a line; the others are drawn given them."""
        whole = copy(self)
        whole.codes, whole.rng = self.draw(len(codes), rng=rng).astype(np.uint16), rng
        whole.codes[:, known] = codes
        whole.refresh(sweeps, [j for j in range(len(self.sizes)) if j not in set(known)])
        return whole.codes.astype(np.int64)

    def influence(self, values: np.ndarray, *, steps: int = 60, within: float = 1e-3) -> np.ndarray:
        """How far the expected sum of ``values`` over all rows moves with each noisy count, one a cell.

        ``values``: one a particle. Theta solves n mean f + penalty theta = counts, so a change y of the
        counts moves n mean h by n cov(h, f) (n cov(f, f) + penalty)^-1 y: by conjugate gradients.
        """
        cells, n, w = self._cells(), self.n_rows, self.weights

        def spread(of_rows: np.ndarray) -> np.ndarray:
            out = np.empty(self.theta.size)
            kernels.spread(cells, of_rows, out)
            return out

        mean = spread(w)
        logs = np.empty(len(cells))

        def product(x: np.ndarray) -> np.ndarray:
            kernels.logits(cells, x, logs)
            return np.asarray(n * (spread(w * logs) - mean * float(mean @ x)) + self.penalty * x)

        right = n * (spread(w * values) - mean * float(w @ values))
        scale = 1 / (n * mean * (1 - np.minimum(mean, 1 - 1e-9)) + self.penalty)
        x: np.ndarray = np.zeros(right.size)
        rest: np.ndarray = right
        towards = scale * rest
        height = float(rest @ towards)
        begin = height
        for _ in range(steps):
            if not height > within**2 * begin:
                break
            moved = product(towards)
            step = height / float(towards @ moved)
            x, rest = x + step * towards, rest - step * moved
            last, height = height, float(rest @ (scale * rest))
            towards = scale * rest + height / last * towards
        return np.asarray(x)

    def counts(self, tables: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """How many of the particles lie in each cell of tables, int64, flat. For equal weights."""
        block = np.concatenate([self.codes.T, np.ones((1, len(self.codes)), dtype=np.uint16)])
        return tallied(block, self.sizes, tables)

    def _cells(self) -> np.ndarray:
        out = np.empty((len(self.codes), len(self.tables)), dtype=np.int32)
        sizes = np.array(self.sizes, dtype=np.int64)
        begins = np.array([table.begin for table in self.tables], dtype=np.int64)
        kernels.places(self.codes, padded([table.columns for table in self.tables]), sizes, begins, out)
        return out


def padded(tables: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Columns of tables, int64 of shape (n_tables, 3); -1 stands for none."""
    return np.array([(*columns, -1, -1)[:3] for columns in tables], dtype=np.int64).reshape(-1, 3)


def tallied(block: np.ndarray, sizes: Sequence[int], tables: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Weights of rows in each cell of tables, int64, flat; exact.

    ``block``: codes and, in the last line, weights; uint16 of shape (n_columns + 1, n_rows).
    """
    cells = [math.prod(sizes[j] for j in columns) for columns in tables]
    begins = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
    out = np.zeros(begins[-1], dtype=np.int64)
    width, places = np.array(sizes, dtype=np.int64), padded(tables)
    for begin in range(0, block.shape[1], _BLOCK):
        part = np.ascontiguousarray(block[:, begin : begin + _BLOCK], dtype=np.uint16)
        kernels.tally(part, places, width, begins[:-1], out)
    return np.split(out, begins[1:-1])

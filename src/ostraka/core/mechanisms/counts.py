"""Noisy counts with discrete Gaussian noise: of a whole table of ballots, and of columns of coded rows.

A marginal counts combinations of columns. Which ones is fixed in advance (NoisyMarginals), or chosen by the
data at a price (TreeMarginals). Each row has a weight; the rows of one unit weigh ``grain`` together at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import GAUSSIAN, Law
from ostraka.core.mechanisms import exact
from ostraka.core.mechanisms.selection import Selection
from ostraka.core.numeric import up
from ostraka.core.private import RELATIONS, Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MOST_SIGMA = 1e5  # tables of the noise stay short
_MOST_COUNT = 2**52
_FURTHEST_SHIFT = 8.0  # standard deviations; beyond, only the Rényi bound is claimed
_MOST_CELLS = 50_000_000
_BLOCK = 2**17  # rows that are counted at once, so that few numbers are in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """The whole table of counts, with discrete Gaussian noise on every count.

    Parameters
    ----------
    sigma : float in (0, 1e5], in the units of the counts
        Parameter of the discrete Gaussian; its standard deviation is at most this. Public.
    l2 : float >= 1, default sqrt(2)
        How far one unit may move the whole table, as a Euclidean norm. sqrt(2): one ballot in all,
        which another ballot replaces. sqrt(2 k): k ballots. Public.
    relation : {"replace-one", "zero-out", "add-or-remove"}
        Neighbouring relation of the data, which the table must have, too (:class:`~ostraka.Adjacency`). The
        price depends on ``l2`` alone. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, counts that are not integers, before anything is charged.

    Guarantees
    ----------
    Each count c is released as c + X with P[X = k] proportional to exp(-k² / 2 sigma²), exactly: draws
    compare uniform integers with integer thresholds, and there is no rounding. If one unit moves the table by
    an integer vector of length at most ``l2``, the Rényi divergence of order a is at most a l2² / (2 sigma²)
    (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Theorem 14), and the release is mu-GDP with mu
    slightly above l2 / sigma, up to a total variation distance below 1e-200 (docs/noisy-counts.md,
    Theorem 1). ``curve()`` holds both.

    Examples
    --------
    >>> from ostraka import Budget, Ledger, release
    >>> table = Private([[40, 2], [1, 57]], Adjacency.vector(l2=math.sqrt(2)))
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     release(NoisyCounts(sigma=4.0), table, ledger=ledger).argmax(axis=1)
    array([0, 1])
    >>> round(NoisyCounts(sigma=4.0).curve().epsilon(delta=1e-5), 3)
    1.36
    """

    sigma: float
    l2: float = math.sqrt(2)
    relation: str = "replace-one"

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma, l2=self.l2)
        check.one_of(relation=self.relation, allowed=RELATIONS)
        check.at_most(_MOST_SIGMA, sigma=self.sigma)
        if self.l2 < 1:
            raise ValueError(f"l2 must be >= 1, since counts are integers, got {self.l2!r}")

    @property
    def promise(self) -> Adjacency:
        """A table which one unit moves by at most ``l2``."""
        return Adjacency.vector(l2=self.l2, relation=self.relation)

    def curve(self) -> Curve:
        """Cost of one release of a whole table, whatever its size and its counts."""
        l2 = up(self.l2, ulps=4)  # square roots and products of whole numbers are rounded
        shift = l2 / self.sigma
        rdp = tuple(up(order * (shift * shift) / 2, ulps=4) for order in ORDERS)
        if shift > _FURTHEST_SHIFT:
            return Curve(ORDERS, rdp, "vector")
        mu = up(l2 * exact.unit_shift(self.sigma, reach=math.ceil(l2)), ulps=4)
        slack = up(l2**2) * exact.tail_mass(self.sigma)
        mu_squared = up(mu**2)
        return Curve(
            ORDERS, rdp, "vector", mu_squared=mu_squared, slack=slack, laws=(Law(GAUSSIAN, mu_squared),)
        )

    def uses(self, private: Private) -> int:
        """One use for the whole table."""
        _integers(private)
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The noisy counts, int64 of the shape of the table. Some may be negative."""
        counts = _integers(private)
        return np.asarray(counts + exact.discrete_gaussian(self.sigma, counts.shape, rng=rng))

    def information(self, counts: Any) -> np.ndarray:
        """Fisher information of one release, shape (n_rows, n_classes, n_classes), per count squared.

        That of the continuous Gaussian.
        """
        n_rows, n_classes = np.shape(counts)
        return np.broadcast_to(np.eye(n_classes) / self.sigma**2, (n_rows, n_classes, n_classes)).copy()

    def log_likelihood(self, answers: Any, counts: Any) -> np.ndarray:
        """Exact log probability of each released count, given the count; nats, of the shape of both."""
        apart = np.asarray(answers, dtype=np.int64) - np.asarray(counts, dtype=np.int64)
        return np.asarray(-((apart / self.sigma) ** 2) / 2 - exact.log_normaliser(self.sigma))


def one_table(votes: Private) -> Private:
    """Votes of several queries as one table, which one unit moves by a stated Euclidean norm.

    Parameters
    ----------
    votes : Private, shape (n_queries, n_classes), in votes
        Private. ``moves="ballot"``: a unit moves at most ``at_most`` ballots in each query.

    Returns
    -------
    Private
        The same counts, int64, with ``Adjacency.vector``: l1 = 2 b n and l2 = b sqrt(2 n) for n queries in
        which a unit moves b ballots.

    Raises
    ------
    ValueError
        The data are no votes, are sampled by chance, carry noise already, or are not integers.

    Examples
    --------
    >>> one_table(Private([[9, 1], [2, 8]], Adjacency.one_ballot())).adjacency.l2
    2.0
    """
    adjacency = votes.adjacency
    plain = Adjacency(unit=adjacency.unit, at_most=adjacency.at_most, relation=adjacency.relation)
    if adjacency != plain:
        raise ValueError(f"one_table takes votes, not sampled and without noise, got {adjacency}")
    n, moved = max(1, len(votes)), adjacency.at_most
    l1, l2 = 2 * moved * n, moved * math.sqrt(2 * n)
    table = Adjacency.vector(unit=adjacency.unit, l1=l1, l2=l2, relation=adjacency.relation)
    return Private(_integers(votes), table)


class CodedTable:
    """The common part of mechanisms for one table of coded rows, those of one unit of bounded weight."""

    __slots__ = ()
    sizes: tuple[int, ...]
    grain: int

    @property
    def promise(self) -> Adjacency:
        """The rows of one unit have a total weight of at most ``grain``."""
        return Adjacency(moves="row", at_most=float(self.grain), relation="add-or-remove")

    def uses(self, private: Private) -> int:
        """One use for all tables together."""
        self._opened(private)
        return 1

    def marginals(self, columns: Sequence[tuple[int, ...]], sigma: float) -> NoisyMarginals:
        """Noisy counts of these columns, which are fixed in advance or public by then."""
        return NoisyMarginals(sizes=self.sizes, columns=tuple(columns), sigma=sigma, grain=self.grain)

    def beside(self, target: int | None) -> tuple[int, ...]:
        """All columns but the target, which must be one of them; one or more."""
        width = len(self.sizes)
        if target is not None and not 0 <= target < width:
            raise ValueError(f"target must be a column from 0 to {width - 1}, got {target!r}")
        if width <= (target is not None):
            raise ValueError("a table must have one column or more beside the target")
        return tuple(j for j in range(width) if j != target)

    def _opened(self, private: Private) -> np.ndarray:
        """Codes and, in the last column, weights; integers of shape (n_rows, n_columns + 1)."""
        rows: np.ndarray = private.open()
        sizes = self.sizes
        if rows.ndim != 2 or rows.shape[1] != len(sizes) + 1 or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(
                f"rows must be integer codes of {len(sizes)} columns and a weight, got shape {rows.shape}"
            )
        most = np.array([*(size - 1 for size in sizes), self.grain])
        if rows.size and not (rows.min() >= 0 and (rows.max(axis=0) <= most).all()):
            raise ValueError(
                "rows must hold codes from 0 to one less than the size of each column, and weights from 0 to "
                f"grain={self.grain}"
            )
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMarginals(CodedTable):
    """Several marginals of one table, each with discrete Gaussian noise on every cell.

    Parameters
    ----------
    sizes : tuple of int
        Number of codes of each column. Public.
    columns : tuple of tuples of int
        Which columns each marginal counts. Public.
    sigma : float > 0, in weights of rows
        Noise of every cell. Public.
    grain : int >= 1
        The most that the rows of one unit may weigh together; 1 if a row is the unit. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, rows that are not integer codes and weights.

    Guarantees
    ----------
    A unit added or removed moves each marginal by cells which are not negative and add up to at most
    ``grain``, so all of them by a vector of length at most grain sqrt(number of marginals).
    Its price is that of :class:`~ostraka.core.mechanisms.NoisyCounts`.

    Examples
    --------
    >>> rows = Private([[0, 1, 1], [0, 1, 1], [1, 0, 1]], Adjacency(moves="row", relation="add-or-remove"))
    >>> mechanism = NoisyMarginals(sizes=(2, 2), columns=((0,), (0, 1)), sigma=0.05)
    >>> found = mechanism.release(rows, rng=np.random.default_rng(0))
    >>> {name: table.tolist() for name, table in found.items()}
    {'0': [2, 1], '0,1': [[0, 2], [1, 0]]}
    """

    sizes: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]
    sigma: float
    grain: int = 1

    def __post_init__(self) -> None:
        _check_sizes(self.sizes)
        check.integer(grain=self.grain, least=1)
        if not self.columns or any(not 0 <= j < len(self.sizes) for chosen in self.columns for j in chosen):
            raise ValueError(f"columns must name one marginal or more of {len(self.sizes)} columns")
        cells = sum(math.prod(self.sizes[j] for j in chosen) for chosen in self.columns)
        if cells > _MOST_CELLS:
            raise ValueError(
                f"marginals must have at most {_MOST_CELLS:,} cells, got {cells:,}: take fewer codes"
            )
        self._noise()

    def curve(self) -> Curve:
        """Cost of one release of all marginals."""
        return replace(self._noise().curve(), moves="row")

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The noisy counts by name, such as ``"0,3"``; int64, each of the sizes of its columns."""
        rows = self._opened(private)
        tables = {}
        for chosen, cells in zip(self.columns, counts(rows, self.sizes, self.columns), strict=True):
            noise = exact.discrete_gaussian(self.sigma, cells.shape, rng=rng)
            tables[",".join(map(str, chosen))] = cells + noise
        return tables

    def _noise(self) -> NoisyCounts:
        l2 = up(self.grain * math.sqrt(len(self.columns)), ulps=4)
        return NoisyCounts(sigma=self.sigma, l2=l2, relation="add-or-remove")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMarginals(CodedTable):
    """Marginals of every column with a target, and of a forest of pairs of columns with the target.

    Three steps, all paid for at once. Every column is counted with the target. Pairs of columns are chosen
    one after another, by how far their counts are from independence given the target, less the error that
    noise would bring; no pair closes a circle. The chosen pairs are counted with the target.

    Parameters
    ----------
    sizes : tuple of int
        Number of codes of each column. Public.
    target : int or None
        The target column. None: there is none; then columns are counted alone, and in pairs. Public.
    sigma_pairs, sigma_triples : float > 0, in weights of rows
        Noise of the first and of the last counts. Public.
    select_epsilon : float > 0, nats
        Of each choice. Public.
    grain : int >= 1
        The most that the rows of one unit may weigh together. Public.

    Guarantees
    ----------
    ``curve()`` is the sum of the curves of :class:`NoisyMarginals` twice and of
    ``Selection`` once a choice: parameters are fixed in advance, so that adaptive
    composition holds for Rényi divergences. A score is a sum of absolute differences between counts and
    numbers that are public by then, so one unit moves it by at most ``grain``.

    Examples
    --------
    >>> mechanism = TreeMarginals(
    ...     sizes=(4, 3, 2), target=2, sigma_pairs=20.0, sigma_triples=20.0, select_epsilon=0.1
    ... )
    >>> round(mechanism.curve().epsilon(delta=1e-5), 3) < 1
    True
    """

    sizes: tuple[int, ...]
    target: int | None
    sigma_pairs: float
    sigma_triples: float
    select_epsilon: float
    grain: int = 1

    def __post_init__(self) -> None:
        _check_sizes(self.sizes)
        check.positive(sigma_triples=self.sigma_triples)
        self._first()
        self._choice()

    @property
    def features(self) -> tuple[int, ...]:
        """All columns but the target."""
        return self.beside(self.target)

    def curve(self) -> Curve:
        """Cost of one release of all marginals."""
        total = self._first().curve()
        n_pairs = len(self.features) - 1
        if n_pairs:
            total += n_pairs * replace(self._choice().curve(), moves="row")
            total += self._last(list(combinations(self.features, 2))[:n_pairs]).curve()
        return total

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The noisy counts by name; names of three columns are those of the chosen pairs."""
        rows = self._opened(private)
        tables = self._first().release(private, rng=rng)
        # the pairs of the forest, one after another, by the exponential mechanism
        scores = self._scores(rows, tables)
        part = {column: column for column in self.features}
        chosen: list[tuple[int, int]] = []
        while len(chosen) < len(self.features) - 1:
            open_pairs = [pair for pair in scores if part[pair[0]] != part[pair[1]]]
            table = np.array([scores[pair] for pair in open_pairs], dtype=np.int64)
            a, b = open_pairs[self._choice().choose(table, rng=rng)]
            chosen.append((a, b))
            joined = part[b]
            part = {column: part[a] if root == joined else root for column, root in part.items()}
        if chosen:
            tables |= self._last(chosen).release(private, rng=rng)
        return tables

    def _scores(self, rows: np.ndarray, released: dict[str, np.ndarray]) -> dict[tuple[int, int], int]:
        """Distance from independence given the target, less expected noise; a unit moves it by ``grain``."""
        tables = {
            j: np.maximum(released[self.table_name(j)].reshape(self.sizes[j], -1), 0) for j in self.features
        }
        totals = np.maximum(np.mean([table.sum(axis=0) for table in tables.values()], axis=0), 1.0)
        scores, pairs = {}, list(combinations(self.features, 2))
        counted = counts(rows, self.sizes, [self._with_target(*pair) for pair in pairs])
        for (a, b), cells in zip(pairs, counted, strict=True):
            expected = np.rint(tables[a][:, None, :] * tables[b][None, :, :] / totals).astype(np.int64)
            wrong = np.minimum(self.sigma_triples * math.sqrt(2 / math.pi), expected).sum()
            counted_cells = cells.reshape(expected.shape)
            scores[a, b] = int(np.abs(counted_cells - expected).sum()) - int(wrong)
        return scores

    def sigma_of(self, columns: tuple[int, ...]) -> float:
        """Noise of each cell of a table that was counted, in weights of rows."""
        triple = len(set(columns) - {self.target}) == 2
        return self.sigma_triples if triple else self.sigma_pairs

    def _first(self) -> NoisyMarginals:
        return self.marginals([self._with_target(j) for j in self.features], self.sigma_pairs)

    def _last(self, pairs: list[tuple[int, int]]) -> NoisyMarginals:
        return self.marginals([self._with_target(a, b) for a, b in pairs], self.sigma_triples)

    def _choice(self) -> Selection:
        return Selection(epsilon=self.select_epsilon, sensitivity=self.grain)

    def _with_target(self, *columns: int) -> tuple[int, ...]:
        return columns if self.target is None else (*columns, self.target)

    def table_name(self, *columns: int) -> str:
        """Return the name of the released table of these columns and the target."""
        return ",".join(map(str, self._with_target(*columns)))


def count(rows: np.ndarray, sizes: tuple[int, ...], columns: tuple[int, ...]) -> np.ndarray:
    """Weights of the rows in each cell of one marginal; exact, int64."""
    return counts(rows, sizes, [columns])[0]


def counts(rows: np.ndarray, sizes: tuple[int, ...], columns: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Weights of the rows in each cell of several marginals; exact, int64."""
    tables = [np.zeros(math.prod(sizes[j] for j in chosen), dtype=np.int64) for chosen in columns]
    for begin in range(0, len(rows), _BLOCK):
        codes = np.ascontiguousarray(rows[begin : begin + _BLOCK].T, dtype=np.int64)
        weights = None if (codes[-1] == 1).all() else codes[-1]
        for table, chosen in zip(tables, columns, strict=True):
            place = codes[chosen[0]].copy() if chosen else np.zeros(codes.shape[1], dtype=np.int64)
            for j in chosen[1:]:
                place *= sizes[j]
                place += codes[j]
            np.add(table, np.bincount(place, weights=weights, minlength=table.size), table, casting="unsafe")
    return [table.reshape([sizes[j] for j in chosen]) for table, chosen in zip(tables, columns, strict=True)]


def _integers(private: Private) -> NDArray[np.int64]:
    """The counts as int64, exactly."""
    values = private.open()
    kind = values.dtype.kind
    whole = kind in "iu" or (kind == "f" and bool((values == np.floor(values)).all()))
    if not whole or (values.size and not (values.min() >= -_MOST_COUNT and values.max() <= _MOST_COUNT)):
        raise ValueError(f"counts of shape {values.shape} must be integers of at most 2^52 in size")
    return values.astype(np.int64)


def _check_sizes(sizes: tuple[int, ...]) -> None:
    for size in sizes:
        check.integer(size=size, least=1)

"""Marginals that are chosen by how far a public model of earlier ones is from the rows (AdaptiveMarginals).

SequenceMarginals are two of them, for persons with several rows: of first rows, and of each later row with
the one before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core import check
from ostraka.core.mechanisms import exact
from ostraka.core.mechanisms.counts import CodedTable
from ostraka.core.mechanisms.particles import SAMPLING, Particles, tallied
from ostraka.core.mechanisms.selection import Selection
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostraka.core.curve import Curve

_MOST_CELLS = (20_000, 10_000, 5_000, 2_000, 1_000, 500)  # of one candidate
_ALL_CELLS = 2**23  # of all candidates together
_MOST_TRIPLES = 25_000  # with more columns, pairs alone are candidates
_PARTICLES = 2.0  # for each row
_FEWEST, _MOST = 2_000, 150_000
_MOST_GRAIN = 2**16 - 1
_SEED = 0  # of the model, which is public
_SINGLE = 0.0005  # the pull of tables of one column: hardly any
_FIRST_ROUNDS, _ROUNDS = 4, 2
_LAST_STEPS = 40
_ABSOLUTE = math.sqrt(2 / math.pi)  # mean size of a normal number
ROWS, WEIGHTS, THETA = "rows", "weights", "theta"  # names of the model's arrays in a release
FIRST, NEXT = "first/", "next/"  # how names of released arrays begin
_MOST_LEFT = 3  # rows that follow: 0, 1, 2, or more


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveMarginals(CodedTable):
    """Counts of every column, then of pairs and triples of columns that are chosen in batches.

    After each batch a public model (:class:`~ostraka.core.mechanisms.particles.Particles`) is fitted to all
    noisy counts so far. The next batch is of those tables whose counts are farthest from the model's, less
    the error that noise would bring. No two tables of one batch have two columns in common. How many tables
    there are, and with which noise, is fixed in advance.

    Parameters
    ----------
    sizes : tuple of int
        Number of codes of each column. Public.
    target : int or None
        The first counts are of every other column with this one. None: of every column alone. Public.
    sigma_first, sigma : float > 0, in weights of rows
        Noise of the first counts, and of the chosen ones. Public.
    select_epsilon : float in (0, 40], nats
        Of each choice. Public.
    n_pick : int >= 0
        Most tables that are chosen. Public.
    batch : int >= 1
        Most tables between two fits of the model. Public.
    pull : float > 0
        How strongly noise in a count pulls its weight in the model to 0. It costs nothing. Public.
    steps : int >= 1
        Of the search for the model's weights after each batch. They cost nothing. Public.
    grain : int >= 1
        The most that the rows of one unit may weigh together. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, rows that are not integer codes and weights.

    Guarantees
    ----------
    ``curve()`` is the sum of the curves of :class:`NoisyMarginals` for the first counts, of
    :class:`Selection` ``n_pick`` times, and of :class:`NoisyMarginals` for ``n_pick`` tables. All of them are
    fixed in advance; only which table is counted depends on what was released before (docs/synthetic.md). A
    score is a sum of absolute differences between counts and whole numbers that are public by then, less a
    public number: one unit moves it by at most ``grain``.

    Examples
    --------
    >>> mechanism = AdaptiveMarginals(
    ...     sizes=(4, 3, 2), target=None, sigma_first=9.0, sigma=9.0, select_epsilon=0.1, n_pick=2
    ... )
    >>> round(mechanism.curve().epsilon(delta=1e-5), 1)
    1.0
    >>> rows = Private([[0, 1, 1, 1], [3, 0, 1, 1]] * 500, Adjacency(moves="row", relation="add-or-remove"))
    >>> found = mechanism.release(rows, rng=np.random.default_rng(0))
    >>> list(found)[:3], list(found)[5:]
    (['0', '1', '2'], ['rows', 'weights', 'theta'])
    """

    sizes: tuple[int, ...]
    target: int | None
    sigma_first: float
    sigma: float
    select_epsilon: float
    n_pick: int
    batch: int = 5
    pull: float = 0.03
    steps: int = 15
    grain: int = 1

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma, pull=self.pull)
        check.integer(n_pick=self.n_pick)
        check.integer(batch=self.batch, steps=self.steps, least=1)
        check.integer(grain=self.grain, least=1)
        if self.grain > _MOST_GRAIN or max(self.sizes, default=0) > _MOST_GRAIN:
            raise ValueError(f"grain and sizes must be at most {_MOST_GRAIN:,}, which two bytes hold")
        most = len(self.candidates())
        if self.n_pick > most:
            raise ValueError(f"n_pick must be at most {most}, the number of candidates, got {self.n_pick}")
        self.marginals(self.first, self.sigma_first)
        self._choice()

    @property
    def first(self) -> tuple[tuple[int, ...], ...]:
        """The columns of the tables that are counted first."""
        others = self.beside(self.target)
        if self.target is None:
            return tuple((j,) for j in others)
        return tuple((min(j, self.target), max(j, self.target)) for j in others)

    def curve(self) -> Curve:
        """Cost of one release of all tables."""
        total = self.marginals(self.first, self.sigma_first).curve()
        if self.n_pick:
            total += self.n_pick * replace(self._choice().curve(), moves="row")
            total += self.marginals(self.first[:1] * self.n_pick, self.sigma).curve()
        return total

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The noisy counts by name, such as ``"0,3"``, in their order; and the model.

        The model is ``rows`` (codes), how much each of them counts (``weights``), and the weights of all
        cells (``theta``). It is a function of the noisy counts: its own random numbers have a public seed.
        """
        rows = self._opened(private)
        first, candidates = self.first, list(self.candidates()) if self.n_pick else []
        truth = tallied(rows.T, self.sizes, [*first, *candidates])
        tables = {
            name_of(columns): self._noisy(columns, cells, rng)
            for columns, cells in zip(first, truth, strict=False)
        }
        model, truth, left = self._begun(tables), truth[len(first) :], self.n_pick
        model.start()
        if self.target is not None:
            model.fit(rounds=_FIRST_ROUNDS, steps=self.steps)
        while left:
            scores = self._scores(candidates, truth, model)
            # tables one after another by the exponential mechanism, no two with two columns in common
            chosen: list[int] = []
            while len(chosen) < min(self.batch, left):
                open_places = [
                    k
                    for k, columns in enumerate(candidates)
                    if all(len(set(columns) & set(candidates[other])) < 2 for other in chosen)
                ]
                if not open_places:
                    break
                chosen.append(open_places[self._choice().choose(scores[open_places], rng=rng)])
            for k in chosen:
                noisy = self._noisy(candidates[k], truth[k], rng)
                tables[name_of(candidates[k])] = noisy
                model.add(candidates[k], noisy / self.grain, sigma=self.sigma / self.grain, pull=self.pull)
            left -= len(chosen)
            model.fit(rounds=_ROUNDS, steps=self.steps)
            candidates = [each for k, each in enumerate(candidates) if k not in chosen]
            truth = [each for k, each in enumerate(truth) if k not in chosen]
        model.fit(rounds=_ROUNDS, steps=self.steps)
        model.solve(_LAST_STEPS)
        return tables | {ROWS: model.codes, WEIGHTS: model.weights, THETA: model.theta}

    def candidates(self) -> tuple[tuple[int, ...], ...]:
        """Pairs and triples that may be chosen: those with few enough cells, and not counted first."""
        return _candidates(self.sizes, self.first)

    def sigma_of(self, columns: tuple[int, ...]) -> float:
        """Noise of each cell of a table that was counted, in weights of rows."""
        return self.sigma_first if columns in self.first else self.sigma

    def _noisy(self, columns: tuple[int, ...], cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        shape = [self.sizes[j] for j in columns]
        return np.asarray(
            cells.reshape(shape) + exact.discrete_gaussian(self.sigma_of(columns), tuple(shape), rng=rng)
        )

    def model(
        self, tables: Mapping[str, np.ndarray], *, rows: np.ndarray, weights: np.ndarray, theta: np.ndarray
    ) -> Particles:
        """The model of a release: its tables, in rows and in their order, and the arrays of the model."""
        model = self._begun({name: self.grain * table for name, table in tables.items()})
        for name, table in tables.items():
            columns = columns_of(name)
            if columns not in self.first:
                model.add(columns, table, sigma=self.sigma / self.grain, pull=self.pull)
        if rows.shape != (len(weights), len(self.sizes)) or theta.shape != model.theta.shape:
            raise ValueError(f"rows, weights and theta must be those of {len(model.tables)} tables")
        model.codes, model.theta = rows, theta.astype(np.float64)
        model.weights = weights / weights.sum()
        return model

    def model_error(self, model: Particles, values: np.ndarray) -> float:
        """Standard error, from the noise of all counts, of the expected sum of ``values`` over all rows.

        ``values``: one a particle of the model. What no count says is not in it.
        """
        moved = model.influence(values)
        each = {table.columns: moved[table.begin : table.begin + table.size] for table in model.tables}
        variance = 0.0
        for columns, cells in each.items():
            if self.target is not None and len(columns) == 1:
                continue  # it is a sum of the first tables, and enters with them
            total = cells
            if self.target is not None and columns in self.first:
                shape = [self.sizes[j] for j in columns]
                one, other = (each[(j,)] / (len(self.first) if j == self.target else 1) for j in columns)
                total = (cells.reshape(shape) + one[:, None] + other[None, :]).ravel()
            # counts are moved evenly to one number of rows, so that an even change of a table moves nothing
            variance += self.sigma_of(columns) ** 2 * float(np.square(total - total.mean()).sum())
        sizes = [math.prod(self.sizes[j] for j in columns) for columns in self.first]
        whole = self.sigma_first**2 / sum(1 / size for size in sizes)  # of the number of rows
        return math.sqrt(variance + whole * float(model.weights @ values) ** 2) / self.grain

    def _begun(self, tables: Mapping[str, np.ndarray]) -> Particles:
        """A model of the first counts, whose rows are not drawn yet."""
        noisy = [np.asarray(tables[name_of(columns)]) / self.grain for columns in self.first]
        noisy = [
            table.reshape([self.sizes[j] for j in columns])
            for columns, table in zip(self.first, noisy, strict=True)
        ]
        sigma, sizes = self.sigma_first / self.grain, [table.size for table in noisy]
        whole = sum(float(table.sum()) / table.size for table in noisy) / sum(1 / size for size in sizes)
        n_rows = max(1.0, whole)
        n_particles = int(min(max(_PARTICLES * n_rows, _FEWEST), _MOST))
        model = Particles(
            self.sizes, n_rows=n_rows, n_particles=n_particles, rng=np.random.default_rng(_SEED)
        )
        if self.target is not None:
            # tables of one column follow from those of two: they let columns be independent at no pull
            classes = np.zeros(self.sizes[self.target])
            for columns, table in zip(self.first, noisy, strict=True):
                place = columns.index(self.target)
                classes += table.sum(axis=1 - place) / len(noisy)
                wide = sigma * math.sqrt(classes.size)
                model.add((columns[1 - place],), table.sum(axis=place), sigma=wide, pull=_SINGLE)
            model.add((self.target,), classes, sigma=sigma, pull=_SINGLE)
        pull = _SINGLE if self.target is None else self.pull
        for columns, table in zip(self.first, noisy, strict=True):
            model.add(columns, table, sigma=sigma, pull=pull)
        return model

    def _scores(
        self, candidates: Sequence[tuple[int, ...]], truth: Sequence[np.ndarray], model: Particles
    ) -> np.ndarray:
        """How far each table is from the model's, less the error of its noise and of the particles; int64.

        One unit moves a score by at most ``grain``: only the sum of absolute differences is private.
        """
        rows = model.n_rows / len(model.codes)
        scores = np.zeros(len(candidates), dtype=np.int64)
        for k, (cells, particles) in enumerate(zip(truth, model.counts(candidates), strict=True)):
            expected = self.grain * rows * particles
            wrong = np.minimum(_ABSOLUTE * self.sigma, expected + self.grain).sum()
            wrong += SAMPLING * np.minimum(np.sqrt(self.grain * rows * expected), expected).sum()
            scores[k] = np.abs(cells - np.rint(expected).astype(np.int64)).sum() - int(wrong)
        return scores

    def _choice(self) -> Selection:
        return Selection(epsilon=self.select_epsilon, sensitivity=self.grain)


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


def name_of(columns: Sequence[int]) -> str:
    """The name of the released table of these columns."""
    return ",".join(map(str, columns))


def columns_of(name: str) -> tuple[int, ...]:
    """The inverse of :func:`name_of`."""
    return tuple(int(part) for part in name.split(","))


def left_sizes(longest: int) -> int:
    """Number of codes of how many rows follow a second or later row."""
    return min(longest - 1, _MOST_LEFT + 1)


def left_codes(left: np.ndarray) -> np.ndarray:
    """The codes of so many rows that follow."""
    return np.asarray(np.minimum(left, _MOST_LEFT))


@lru_cache(maxsize=16)
def _candidates(sizes: tuple[int, ...], first: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Pairs and triples that are not among the first, of as many cells as memory allows for all of them."""
    width = len(sizes)
    lengths = (2, 3) if math.comb(width, 3) <= _MOST_TRIPLES else (2,)
    every = [columns for k in lengths for columns in combinations(range(width), k) if columns not in first]
    cells = [math.prod(sizes[j] for j in columns) for columns in every]
    for most in _MOST_CELLS:
        within = tuple(columns for columns, size in zip(every, cells, strict=True) if size <= most)
        if sum(size for size in cells if size <= most) <= _ALL_CELLS:
            break
    return within

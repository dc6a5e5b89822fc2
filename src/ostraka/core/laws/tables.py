"""Delta against epsilon for many answers, in tables: of any votes (:func:`of`), and of given ones (Given).

Tables of any votes are kept in memory and on disk, one for each mechanism and number. Those of given votes
come from a recursion over pairs of outcome laws, one set a query, on a grid that errs up.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ostraka.core.laws import equivalents, limit, losses, stored
from ostraka.core.laws.cover import Pairs, stencils
from ostraka.core.laws.gaussian import gaussian_deltas, gaussian_pair, mirrored
from ostraka.core.laws.law import GAUSSIAN, Law, composes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Answers that are followed one by one, if noise is as large as most, and if not; then a Gaussian bounds them.
_MOST, _FEWER = 512, 64
_LITTLE_DELTA = 1e-9
_MOST_PURE = 64
_MOST_POINTS = 20_000  # of a grid for answers beside other releases: with more, these are what counts
_LEADERS = 2  # families that are followed exactly, one at a time: those with the largest Gaussians
_FEW, _MUCH = 4, 0.25  # families that are followed as they are; of more, the share that one must be of all
_WORTH_KEEPING = 0.1  # seconds that a file must save
_FURTHEST = 9.0  # standard deviations of a Gaussian's loss that its pair has
_LOWER, _UPPER = 6.0, 8.0  # standard deviations of the loss that a grid reaches to either side
_FINE = 0.01  # spacing of a Gaussian's table, in its standard deviations
_OUTWARD = 1e-12
_ULP = 2.0**-52
_GIVEN_OUTWARD = 1e-10  # relative: ten times what probabilities err
_LOST = 1e-290  # of a probability that underflows
_TAIL = 1e-15  # of the composed loss may lie beyond the grid, which only loosens the bound
_RATES = np.geomspace(0.5, 400.0, 10)  # of the Chernoff bound which says how far the grid reaches
_MOST_GIVEN_POINTS, _FINEST, _COARSEST = 12_000, 1e-4, 0.02
_LOOSE = 5e-3  # by how much interpolation may widen the losses, in variance
_STEEPEST = 30.0  # nats: what one outcome tells beyond counts as fully revealing


class Table(NamedTuple):
    """Upper bounds of the largest P(S) - v Q(S), at v = exp(step * (start + i))."""

    start: int
    step: float
    values: np.ndarray

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 at which delta is proved, or infinity."""
        within = self.values <= delta
        if not within.any():
            return math.inf
        i = int(within.argmax())
        x = self.step * (self.start + i)
        if i:
            before, after = float(self.values[i - 1]), float(self.values[i])
            share = min(1.0, (before - delta) / (before - after) + _OUTWARD)
            x = self.step * (self.start + i - 1) + math.log1p(share * math.expm1(self.step))
        return max(0.0, x + _OUTWARD * (1 + abs(x)))

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at epsilon, at most 1: on the chord between grid points."""
        place = epsilon / self.step - self.start
        if place <= 0 or place >= len(self.values):
            return 1.0 if place <= 0 else float(self.values[-1])
        doubt = _ULP * epsilon / self.step  # places are rounded
        i = min(max(0, int(place - doubt)), len(self.values) - 2)
        within = min(epsilon - self.step * (self.start + i), self.step)
        share = max(0.0, math.expm1(within) / math.expm1(self.step) - _OUTWARD - doubt)
        on_chord = float(self.values[i] + share * (self.values[i + 1] - self.values[i]))
        return min(1.0, on_chord * (1 + _OUTWARD))


class Bound(Protocol):
    """Delta against epsilon."""

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 at which delta is proved, or infinity."""
        ...

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at epsilon, at most 1."""
        ...


class Tables(NamedTuple):
    """Several bounds of the same releases: the smallest counts, so that fewer uses never cost more."""

    each: tuple[Bound, ...]

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 at which delta is proved, or infinity."""
        return min((table.epsilon(delta) for table in self.each), default=math.inf)

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at epsilon, at most 1."""
        return min((table.delta(epsilon) for table in self.each), default=1.0)


@lru_cache(maxsize=256)
def of(laws: tuple[Law, ...]) -> Tables:
    """Tables for all these laws together, in any order that answers may decide; maybe none.

    In each, one family is followed exactly. The others enter as the Gaussian that dominates them.
    Fixed pairs are applied last, as if they came first: in any other order they tell no more.
    More than a few families are rounded up, so that what each adds stands in a table, and a family leads
    only where it is much of the whole.
    """
    followed = [law for law in laws if limit.within_reach(law)]
    if many := len(followed) > _FEW:
        laws = limit.rounded(laws)
    least = _MUCH * sum(map(_weight, laws)) if many else 0.0
    leaders = [law for law in laws if limit.within_reach(law) and _weight(law) >= least]
    leaders.sort(key=_weight, reverse=True)
    bounds: list[Bound | None] = []
    for leader in leaders[:_LEADERS]:
        pairs = [law for law in laws if law.is_pure]
        if sum(law.uses for law in pairs) > _MOST_PURE:
            pairs = []  # so many are hardly more than the Gaussians that dominate them
        gaussian = _gaussian([law for law in laws if law not in pairs and law is not leader])
        if not math.isfinite(gaussian.mu_squared):
            continue
        room = sum(law.uses * law.size for law in pairs)
        table = followed_table(leader) if leader.uses <= _MOST else None
        bound = None if table is None else _beside(table, gaussian, pairs, room)
        if bound is None:
            # the Gaussian which exceeds the uses that are followed, those beyond, and the rest
            for uses in (n for n in (_MOST, _FEWER) if n < leader.uses):
                if (first := _gaussian_of(leader._replace(uses=uses))) is not None:
                    mu_squared = (first.mu_squared + gaussian.mu_squared) * (1 + _OUTWARD)
                    begun = limit.Part(mu_squared, first.delta + gaussian.delta)
                    whole = limit.after(leader._replace(uses=leader.uses - uses), begun)
                    if (table := _as_gaussian(whole, room)) is not None:
                        bound = _beside(table, limit.Part(0.0, 0.0), pairs, room)
                    break
        bounds.append(bound)
    if len(followed) > 1 and math.isfinite(limit.together(laws).mu_squared):
        bounds.append(_as_gaussian(limit.together(laws), 0.0))
    if (not followed or any(law.is_sampled for law in laws)) and composes(laws):
        # fixed pairs only: every argmax and screen as the Gaussian that dominates it
        pairs = [law for law in laws if law.size and (law.is_sampled or law.is_pure)]
        gaussian = _gaussian([law for law in laws if law.size and law not in pairs])
        if math.isfinite(gaussian.mu_squared) and pairs:
            if gaussian.mu_squared:
                pairs.append(Law(GAUSSIAN, gaussian.mu_squared))
            sticks = losses.hockey_sticks(pairs)
            if sticks is not None:
                bounds.append(_raised(Table(sticks[1], sticks[0], sticks[2]), gaussian.delta))
        elif math.isfinite(gaussian.mu_squared) and gaussian.mu_squared and gaussian.delta:
            bounds.append(_as_gaussian(gaussian, 0.0))  # without delta, Gaussians have a formula of their own
    return Tables(tuple(table for table in bounds if table is not None))


def _weight(law: Law) -> float:
    """The squared shift of a Gaussian that dominates all uses."""
    return law.uses * law.mu_squared


def _beside(table: Table, gaussian: limit.Part, pairs: list[Law], room: float) -> Bound | None:
    """The table with fixed pairs, which must not need too many points."""
    wide = 2 * (gaussian.mu_squared / 2 + _FURTHEST * math.sqrt(gaussian.mu_squared) + room)
    if wide > _MOST_POINTS * table.step:
        return None
    kernels = [
        reduce(losses.together, [losses.kernel(losses.pure_pair(law, table.step), table.step)] * law.uses)
        for law in pairs
    ]
    if gaussian.mu_squared:
        kernels.append(_of_gaussian(gaussian.mu_squared, table.step))
    if not kernels:
        return _raised(table, gaussian.delta)
    kernel = reduce(losses.together, kernels)
    kernel = kernel._replace(revealing=kernel.revealing + gaussian.delta)
    return losses.Averaged(table.start, table.step, table.values, kernel)


@lru_cache(maxsize=16)
def _of_gaussian(mu_squared: float, step: float) -> losses.Kernel:
    return losses.kernel(gaussian_pair(mu_squared, step), step)


def _as_gaussian(part: limit.Part, room: float) -> Table | None:
    """The table of a Gaussian, with room for pure releases on either side."""
    mu = math.sqrt(part.mu_squared)
    step = _FINE * mu
    low = math.ceil((_LOWER * mu + room) / step)
    high = math.ceil((part.mu_squared / 2 + _UPPER * math.sqrt(part.mu_squared) + 0.5 + room) / step)
    if high > _MOST_POINTS:
        return None
    return _raised(Table(-low, step, gaussian_deltas(np.arange(-low, high + 1) * step, mu)), part.delta)


@lru_cache(maxsize=64)
def _gaussian_of(law: Law) -> limit.Part | None:
    """The Gaussian which exceeds uses that are followed one by one."""
    table = followed_table(law)
    if table is None:
        return None
    mu_squared = law.uses * law.mu_squared
    delta = _LITTLE_DELTA if law.uses == _FEWER else 0.0  # the table of few is steep at its end
    return limit.larger_gaussian(
        table.values[-table.start :], table.step, least=mu_squared / 2, highest=mu_squared, delta=delta
    )


def _gaussian(laws: list[Law]) -> limit.Part:
    """One Gaussian that dominates all of these in any order, and the probability that it does not cover."""
    parts = [limit.beside(law) for law in laws]
    mu_squared = sum(part.mu_squared for part in parts) * (1 + _OUTWARD)
    return limit.Part(mu_squared, sum(part.delta for part in parts))


def _raised(table: Table, by: float) -> Table:
    return table._replace(values=np.minimum(1.0, (table.values + by) * (1 + _OUTWARD))) if by else table


def followed_table(law: Law) -> Table | None:
    """The table of one family which is followed to its last use; None where that is too much."""
    pair = equivalents.table(law)
    if pair is None:  # from the user's folder of tables, or by the recursion
        name = f"{law.kind} {law.size.hex()} {law.uses}"
        stored_table = stored.load(name)
        if stored_table is not None:
            pair = float(stored_table[0]), stored_table[1:]
        else:
            from ostraka.core.laws import answers  # noqa: PLC0415  (compiled code, loaded when needed)

            start = time.process_time()
            pair = answers.table(law)
            if pair is not None and time.process_time() - start > _WORTH_KEEPING:
                stored.save(name, np.concatenate([[pair[0]], pair[1]]))
    if pair is None:
        return None
    step, values = pair
    spread = math.sqrt(law.uses * law.mu_squared)
    less = min(values.size - 1, math.ceil(_LOWER * spread / step))
    return Table(-less, step, mirrored(values, step, less))


def both_ways(log_q: np.ndarray, lam: np.ndarray) -> tuple[Pairs, Pairs]:
    """Neighbours against the votes, and the votes against neighbours."""
    half = len(log_q) // 2
    p = np.exp(np.concatenate([log_q[half:], log_q[:half]]))  # of the same pair the other way round
    with np.errstate(over="ignore"):
        difference = np.where(np.isfinite(lam), p * np.expm1(-np.maximum(lam, -700.0)), -p)
    return _outwards(p[:half], difference[:half]), _outwards(p[half:], difference[half:])


def _outwards(mass: np.ndarray, difference: np.ndarray) -> Pairs:
    """The pairs with more P and less Q, by more than both err: they tell more."""
    less = _GIVEN_OUTWARD * (2 * mass + np.maximum(difference, 0.0))
    mass = mass * (1 + _GIVEN_OUTWARD)
    return Pairs(mass, np.maximum(difference - less, -mass), np.full(len(mass), _LOST))


class Given:
    """The recursion in one direction: the pairs of all laws, a grid, and how each pair averages on it.

    ``queries`` says which of the laws each query has.
    """

    def __init__(self, laws: Sequence[Pairs], queries: np.ndarray, times: int) -> None:
        self._times, self._ends = times, np.cumsum([0, *(len(pairs.mass) for pairs in laws)])
        self._queries, self._uses = queries, np.bincount(queries, minlength=len(laws))
        # the pairs of all laws, with as many outcomes as the one with most
        size, width = int(self._ends[-1]), max((pairs.mass.shape[1] for pairs in laws), default=1)
        self._pairs = Pairs(np.zeros((size, width)), np.zeros((size, width)), np.empty(size))
        for start, (mass, difference, extra) in zip(self._ends.tolist(), laws, strict=False):
            rows = slice(start, start + len(mass))
            self._pairs.mass[rows, : mass.shape[1]] = mass
            self._pairs.difference[rows, : mass.shape[1]] = difference
            self._pairs.extra[rows] = extra
        # spacing, and how many points there are on each side of 0: they decide how tight the bound is
        self._step, self._points = _COARSEST, 1
        mass, loss = self._pairs.mass, self._losses()
        nonempty = np.diff(self._ends) > 0
        starts, uses = self._ends[:-1][nonempty], self._uses[nonempty]
        if not starts.size:
            return
        reach = math.inf
        for rate in _RATES:
            grown = -math.inf
            for sign in (-1, 1):  # the mean of e^(sign rate loss) under P, never below 1e-300
                with np.errstate(over="ignore", invalid="ignore"):
                    weighted = np.where(mass > 0, mass * np.exp(np.minimum(sign * rate * loss, 700.0)), 0.0)
                logs = np.log(np.maximum(weighted.sum(axis=1), 1e-300))
                grown = max(grown, float(np.maximum.reduceat(logs, starts) @ uses))
            reach = min(reach, (times * grown - math.log(_TAIL)) / rate)
        spread = (mass * loss**2).sum(axis=1)
        widest = [a + int(spread[a:b].argmax()) for a, b in pairwise(self._ends.tolist()) if b > a]
        mass, loss, variance = mass[widest], loss[widest], float(spread[widest] @ uses)
        step = _COARSEST
        while step > _FINEST:
            share = loss / step - np.floor(loss / step)
            if float((mass * share * (1 - share)).sum(axis=1) @ uses) * step**2 <= _LOOSE * variance:
                break
            step /= 1.5
        self._step = max(step, 2 * reach / _MOST_GIVEN_POINTS)
        self._points = math.ceil(reach / self._step)

    def tables(self, at: Iterable[int]) -> list[Table]:
        """Bounds after so many queries, which increase."""
        from ostraka.core.kernels.recursion import advance_in_turn, packed  # noqa: PLC0415  (compiled code)

        step, n = self._step, self._points
        x = np.arange(-n, n + 1) * step
        w, done, tables = np.maximum(0.0, -np.expm1(x)), 0, []
        reach = math.ceil(float(np.abs(self._losses()).max(initial=0.0)) / step) + 2
        taps, occupied = packed(stencils(self._pairs, step=step, reach=reach))
        stop = reach + w.size
        below = np.exp(np.arange(-reach, 0) * step)  # of the first point
        for end in at:
            padded, laws = np.concatenate([below, w, below]), self._queries[done:end].astype(np.int64)
            advance_in_turn(
                padded, reach, stop, laws, self._ends, self._times, below, *taps[:2], occupied, taps[2]
            )
            w, done = padded[reach:stop].copy(), end
            tables.append(Table(-n, step, w))
        return tables

    def _losses(self) -> np.ndarray:
        """Log of P / Q of each outcome, cut off."""
        mass, difference, _ = self._pairs
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = -np.log1p(np.where(mass > 0, difference / mass, 0.0))
        return np.clip(loss, -_STEEPEST, _STEEPEST)

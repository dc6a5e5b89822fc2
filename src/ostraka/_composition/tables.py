"""delta against epsilon for many answers: a table for each mechanism and number, in memory and on disk."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from ostraka._composition import sampled, stored
from ostraka._composition.cover import Pairs
from ostraka._composition.families import LARGEST_SHIFT, SMALLEST_SHIFT, argmax_family, screen_family
from ostraka._composition.law import ARGMAX, GAUSSIAN, PURE, SCREEN, Law

__all__ = ["Table", "Tables", "of"]

_MOST = 1024  # answers that are followed one by one; what is beyond enters as Gaussian
_MOST_PURE = 64
_MOST_POINTS = 20_000  # of a grid for answers beside other releases: with more, these are what counts
_GAUSSIAN_UP_TO = 4  # answers for which the Gaussian bound may be the smaller
_FLOOR = 1e-18
_WORTH_KEEPING = 0.1  # seconds that a file must save
_LOWER, _UPPER = 5.5, 8.0  # standard deviations of the loss that a grid reaches to either side
_OUTWARD = 1e-12
_SPREAD = 0.68  # of a Gaussian of the same shift, in variance: how far losses spread; decides the grid only


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
        high, low = math.exp(self.step * (self.start + i)), math.exp(self.step * (self.start + i - 1))
        if i:
            before, after = float(self.values[i - 1]), float(self.values[i])
            high = low + (high - low) * min(1.0, (before - delta) / (before - after) + _OUTWARD)
        return max(0.0, math.log(high) + _OUTWARD)

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at epsilon, at most 1: on the chord between grid points."""
        place = epsilon / self.step - self.start
        if place <= 0 or place >= len(self.values) - 1:
            return 1.0 if place <= 0 else float(self.values[-1])
        i = int(place)
        low, high = (math.exp(self.step * (self.start + k)) for k in (i, i + 1))
        share = max(0.0, (math.exp(epsilon) - low) / (high - low) - _OUTWARD)
        return min(
            1.0, float(self.values[i] + share * (self.values[i + 1] - self.values[i])) * (1 + _OUTWARD)
        )


class Tables(NamedTuple):
    """Several bounds of the same releases: the smallest counts, so that fewer uses never cost more."""

    each: tuple[Table, ...]

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
    """
    found = [_led_by(law, laws) for law in laws if law.kind in (ARGMAX, SCREEN) and _small(law)]
    if any(law.is_sampled for law in laws):
        found.append(_with_samples(laws))
    return Tables(tuple(table for table in found if table is not None))


def _with_samples(laws: tuple[Law, ...]) -> Table | None:
    """Fixed pairs only: every argmax and screen as the Gaussian that dominates it."""
    fixed = [law for law in laws if law.is_sampled or law.kind == PURE]
    mu_squared = sum(law.uses * law.mu_squared for law in laws if law not in fixed) * (1 + _OUTWARD)
    if not math.isfinite(mu_squared) or sum(law.uses for law in fixed if law.kind == PURE) > _MOST_PURE:
        return None
    if mu_squared:
        fixed.append(Law(GAUSSIAN, mu_squared))
    found = sampled.hockey_sticks(fixed)
    return None if found is None else Table(found[1], found[0], found[2])


def _led_by(leader: Law, laws: tuple[Law, ...]) -> Table | None:
    if sum(law.uses for law in laws if law.kind == PURE) > _MOST_PURE:
        return None
    rest = [law for law in laws if law is not leader]
    if leader.uses > _MOST:
        rest.append(leader._replace(uses=leader.uses - _MOST))
        leader = leader._replace(uses=_MOST)
    table = _followed_table(leader)
    mu_squared = sum(law.uses * law.mu_squared for law in rest if law.kind != PURE) * (1 + _OUTWARD)
    if not math.isfinite(mu_squared):
        return None
    pure = [law for law in rest if law.kind == PURE]
    if mu_squared or pure:
        room = _reach(leader.uses * leader.mu_squared * _SPREAD + mu_squared) + sum(
            p.uses * p.size for p in pure
        )
        if room > _MOST_POINTS * table.step:
            return None
        table = _widened(table, room + 10 * math.sqrt(mu_squared) + mu_squared)
    if mu_squared:
        table = _averaged(table, _gaussian(mu_squared, table.step))
    for law in pure:
        for _ in range(law.uses):
            table = _averaged(table, _response(law.size))
    return table


def _small(law: Law) -> bool:
    return SMALLEST_SHIFT <= math.sqrt(law.mu_squared) <= LARGEST_SHIFT


def _reach(variance: float) -> float:
    return variance / 2 + _UPPER * math.sqrt(variance) + 0.5


def _step(law: Law) -> float:
    """Grid spacing: finer where the same cost is spread over fewer answers, which are faster to follow."""
    return math.sqrt(law.mu_squared) * (0.03 if law.uses <= 128 else 0.04 if law.uses <= 512 else 0.06)


def _followed_table(law: Law) -> Table:
    name = f"{law.kind} {law.size.hex()} {law.uses}"
    step = _step(law)
    known = stored.load(name)
    if known is not None:
        return Table(int(known[0]), step, known[1:])
    begun = time.process_time()
    table = _follow(law, step)
    if time.process_time() - begun > _WORTH_KEEPING:
        stored.save(name, np.concatenate([[float(table.start)], table.values]))
    return table


class _Run(NamedTuple):
    """Where the recursion of one mechanism on one grid has come to."""

    start: int
    w: np.ndarray
    answers: int


_runs: dict[tuple[str, float, float, int], _Run] = {}
_MOST_RUNS = 16


def _follow(law: Law, step: float) -> Table:
    """Run the recursion from the last state on the same grid, or from the beginning."""
    from ostraka._composition import recursion  # noqa: PLC0415  (compiled code, loaded when needed)

    widest = 1 << (law.uses - 1).bit_length()  # one grid for all counts up to the next power of two
    variance = _SPREAD * widest * law.mu_squared
    reach = int(11 * math.sqrt(law.mu_squared) / step) + 2
    low = -(variance / 2 + _LOWER * math.sqrt(variance) + 0.5)
    start = math.floor(low / step) - reach
    x = np.arange(start, math.ceil(_reach(variance) / step) + reach) * step
    key = (law.kind, law.size, step, widest)
    run = _runs.pop(key, None)
    if run is None or run.answers > law.uses:
        run = _Run(start, np.maximum(0.0, -np.expm1(x)), 0)
    w = run.w.copy()
    shift = math.sqrt(law.mu_squared)
    levels = argmax_family(shift) if law.kind == ARGMAX else screen_family(shift)
    every = Pairs(*(np.concatenate(column) for column in zip(*levels, strict=True)))
    ends = np.cumsum([0, *(len(level.mass) for level in levels)])
    way = recursion.stencils(every, step=step, reach=reach)
    done = run.answers
    while done < law.uses:
        turns = 1 if done < _GAUSSIAN_UP_TO else law.uses - done
        recursion.advance(w, np.exp(x), reach, ends, *way, turns, _FLOOR)
        done += turns
        if done <= _GAUSSIAN_UP_TO:
            w = np.minimum(w, _gaussian_bound(x, done * law.mu_squared))
    _runs[key] = _Run(start, w, law.uses)
    while len(_runs) > _MOST_RUNS:
        del _runs[next(iter(_runs))]
    return Table(start + reach, step, w[reach:-reach].copy())


def _gaussian_bound(x: np.ndarray, mu_squared: float) -> np.ndarray:
    """Dong et al. 2019, Cor. 1, for every sign of epsilon, rounded up."""
    mu = math.sqrt(mu_squared) * (1 + 4e-16)
    above, below = ndtr(mu / 2 - x / mu), np.exp(np.minimum(x + log_ndtr(-mu / 2 - x / mu), 0.0))
    return np.asarray(np.minimum(1.0, above - below + 1e-13 * above + 1e-300))


def _widened(table: Table, reach: float) -> Table:
    """More points at both ends: the chord from (0, 1) below, the last value above."""
    more = max(0, math.ceil(reach / table.step) - (table.start + len(table.values)))
    less = max(0, table.start + math.ceil(reach / table.step))
    x = np.arange(table.start - less, table.start) * table.step
    fall = (1 - table.values[0]) / math.exp(table.start * table.step)
    values = np.concatenate([1 - fall * np.exp(x), table.values, np.full(more, table.values[-1])])
    return Table(table.start - less, table.step, values)


def _gaussian(mu_squared: float, step: float) -> Pairs:
    """A Gaussian of this squared shift, in cells of the grid; what lies outside counts as told."""
    mu = math.sqrt(mu_squared)
    edges = np.arange(
        -math.ceil((mu_squared / 2 + 9 * mu) / step) - 1, math.ceil((mu_squared / 2 + 9 * mu) / step) + 2
    )
    x = edges * step  # log Q / P; under P normal around -mu^2 / 2
    p, q = (_cells((x + sign * mu_squared / 2) / mu) for sign in (1, -1))
    outside = float(ndtr((x[0] + mu_squared / 2) / mu) + ndtr(-(x[-1] + mu_squared / 2) / mu))
    return Pairs(p[None], (q - p)[None], np.array([outside * (1 + 1e-9)]))


def _cells(z: np.ndarray) -> np.ndarray:
    """Normal probabilities between neighbours, from the side where they are small."""
    left, right = ndtr(z), ndtr(-z)
    return np.asarray(np.where(z[1:] < 0, left[1:] - left[:-1], right[:-1] - right[1:]))


def _response(epsilon: float) -> Pairs:
    """Randomised response, which dominates whatever is epsilon-DP (Kairouz et al. 2015, Thm. 8)."""
    true = 1 / (1 + math.exp(-epsilon))
    change = math.expm1(epsilon) / (1 + math.exp(epsilon)) * (1 + _OUTWARD)
    return Pairs(np.array([[true, 1 - true]]), np.array([[-change, change]]), np.zeros(1))


def _averaged(table: Table, pair: Pairs) -> Table:
    """The table after one fixed pair."""
    from ostraka._composition import recursion  # noqa: PLC0415  (compiled code, loaded when needed)

    widest = float(np.abs(np.log1p(np.maximum(pair.difference / pair.mass, -1 + 1e-12))).max())
    reach = math.ceil(widest / table.step) + 1
    way = recursion.stencils(pair, step=table.step, reach=reach)
    weights = np.zeros(2 * reach + 1)
    np.add.at(weights, way.offsets[0] + reach, way.weights[0])
    x = np.arange(table.start - reach, table.start) * table.step
    fall = (1 - table.values[0]) / math.exp(table.start * table.step)
    padded = np.concatenate([1 - fall * np.exp(x), table.values, np.full(reach, table.values[-1])])
    values = np.convolve(padded, weights[::-1], mode="valid") + way.constants[0]
    return table._replace(values=np.minimum(1.0, values * (1 + 1e-12)))

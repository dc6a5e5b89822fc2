"""delta against epsilon for many answers: a table for each mechanism and number, in memory and on disk."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ostraka._composition import limit, sampled, stored
from ostraka._composition.cover import Pairs
from ostraka._composition.gaussian import gaussian_delta, gaussian_pair, mirrored
from ostraka._composition.law import GAUSSIAN, PURE, Law

__all__ = ["Table", "Tables", "of"]

# Answers that are followed one by one, if noise is as large as most, and if not; then a Gaussian bounds them.
_MOST, _FEWER = 512, 64
_LITTLE_TOLD = 1e-9
_MOST_PURE = 64
_MOST_POINTS = 20_000  # of a grid for answers beside other releases: with more, these are what counts
_WORTH_KEEPING = 0.1  # seconds that a file must save
_LOWER, _UPPER = 6.0, 8.0  # standard deviations of the loss that a grid reaches to either side
_FINE = 0.01  # spacing of a Gaussian's table, in its standard deviations
_OUTWARD = 1e-12
_ULP = 2.0**-52
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
        beyond = min(epsilon - self.step * (self.start + i), self.step)
        share = max(0.0, math.expm1(beyond) / math.expm1(self.step) - _OUTWARD - doubt)
        on_chord = float(self.values[i] + share * (self.values[i + 1] - self.values[i]))
        return min(1.0, on_chord * (1 + _OUTWARD))


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
    found = [_led_by(law, laws) for law in laws if limit.within_reach(law)]
    if any(law.is_sampled for law in laws):
        found.append(_with_samples(laws))
    return Tables(tuple(table for table in found if table is not None))


def _with_samples(laws: tuple[Law, ...]) -> Table | None:
    """Fixed pairs only: every argmax and screen as the Gaussian that dominates it."""
    fixed = [law for law in laws if law.is_sampled or law.kind == PURE]
    rest = _gaussian([law for law in laws if law not in fixed])
    if not math.isfinite(rest.mu_squared) or sum(law.uses for law in fixed if law.kind == PURE) > _MOST_PURE:
        return None
    if rest.mu_squared:
        fixed.append(Law(GAUSSIAN, rest.mu_squared))
    found = sampled.hockey_sticks(fixed)
    return None if found is None else _raised(Table(found[1], found[0], found[2]), rest.told)


def _led_by(leader: Law, laws: tuple[Law, ...]) -> Table | None:
    pure = [law for law in laws if law.kind == PURE]
    rest = _gaussian([law for law in laws if law not in pure and law is not leader])
    if not math.isfinite(rest.mu_squared) or sum(law.uses for law in pure) > _MOST_PURE:
        return None
    room = sum(law.uses * law.size for law in pure)
    table = _few(leader, rest, room) if leader.uses <= _MOST else None
    table = _many(leader, rest, room) if table is None else table
    for law in pure:
        for _ in range(law.uses):
            table = None if table is None else _averaged(table, _response(law.size))
    return table


def _few(leader: Law, rest: limit.Part, room: float) -> Table | None:
    """The table of a family that is followed to its last use, beside a Gaussian."""
    table = _followed_table(leader)
    if table is None or not (rest.mu_squared or room):
        return table
    more = _reach(leader.uses * leader.mu_squared * _SPREAD + rest.mu_squared) + room
    if more > _MOST_POINTS * table.step:
        return None
    table = _widened(table, more + 10 * math.sqrt(rest.mu_squared) + rest.mu_squared)
    if rest.mu_squared:
        table = _averaged(table, gaussian_pair(rest.mu_squared, table.step))
    return _raised(table, rest.told)


def _many(leader: Law, rest: limit.Part, room: float) -> Table | None:
    """The table of the Gaussian which exceeds the uses that are followed, those beyond, and the rest."""
    followed = [leader._replace(uses=n) for n in (_MOST, _FEWER) if n < leader.uses]
    found = next(((law, begun) for law in followed if (begun := _gaussian_of(law))), None)
    if found is None:
        return None
    law, begun = found
    begun = limit.Part((begun.mu_squared + rest.mu_squared) * (1 + _OUTWARD), begun.told + rest.told)
    whole = limit.after(leader._replace(uses=leader.uses - law.uses), begun)
    mu = math.sqrt(whole.mu_squared)
    step = _FINE * mu
    low = math.ceil((_LOWER * mu + room) / step)
    high = math.ceil((_reach(whole.mu_squared) + room) / step)
    if high > _MOST_POINTS:
        return None
    return _raised(Table(-low, step, gaussian_delta(np.arange(-low, high + 1) * step, mu)), whole.told)


@lru_cache(maxsize=64)
def _gaussian_of(law: Law) -> limit.Part | None:
    """The Gaussian which exceeds uses that are followed one by one."""
    table = _followed_table(law)
    if table is None:
        return None
    most = law.uses * law.mu_squared
    told = _LITTLE_TOLD if law.uses == _FEWER else 0.0  # the table of few is steep at its end
    return limit.larger_gaussian(
        table.values[-table.start :], table.step, least=most / 2, most=most, told=told
    )


def _gaussian(laws: list[Law]) -> limit.Part:
    """One Gaussian for all of these, in whatever order, and what is told beside it."""
    parts = [limit.beside(law) for law in laws]
    mu_squared = sum(part.mu_squared for part in parts) * (1 + _OUTWARD)
    return limit.Part(mu_squared, sum(part.told for part in parts))


def _raised(table: Table, by: float) -> Table:
    return table._replace(values=np.minimum(1.0, (table.values + by) * (1 + _OUTWARD))) if by else table


def _reach(variance: float) -> float:
    return variance / 2 + _UPPER * math.sqrt(variance) + 0.5


def _followed_table(law: Law) -> Table | None:
    name = f"{law.kind} {law.size.hex()} {law.uses}"
    known = stored.load(name)
    if known is None:
        from ostraka._composition import answers  # noqa: PLC0415  (compiled code, loaded when needed)

        begun = time.process_time()
        found = answers.table(law)
        if found is None:
            return None
        step, values = found
        if time.process_time() - begun > _WORTH_KEEPING:
            stored.save(name, np.concatenate([[step], values]))
    else:
        step, values = float(known[0]), known[1:]
    spread = math.sqrt(law.uses * law.mu_squared)
    less = min(values.size - 1, math.ceil(_LOWER * spread / step))
    return Table(-less, step, mirrored(values, step, less))


def _widened(table: Table, reach: float) -> Table:
    """More points at both ends: the chord from (0, 1) below, the last value above."""
    more = max(0, math.ceil(reach / table.step) - (table.start + len(table.values)))
    less = max(0, table.start + math.ceil(reach / table.step))
    x = np.arange(table.start - less, table.start) * table.step
    fall = (1 - table.values[0]) / math.exp(table.start * table.step)
    values = np.concatenate([1 - fall * np.exp(x), table.values, np.full(more, table.values[-1])])
    return Table(table.start - less, table.step, values)


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

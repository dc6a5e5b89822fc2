"""delta against epsilon for many answers: a table for each mechanism and number, in memory and on disk."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ostraka._composition import sampled, stored
from ostraka._composition.cover import Pairs
from ostraka._composition.families import LARGEST_SHIFT, SMALLEST_SHIFT
from ostraka._composition.gaussian import gaussian_pair, mirrored
from ostraka._composition.law import ARGMAX, GAUSSIAN, PURE, SCREEN, Law

__all__ = ["Table", "Tables", "of"]

_MOST = 1024  # answers that are followed one by one; what is beyond enters as Gaussian
_MOST_PURE = 64
_MOST_POINTS = 20_000  # of a grid for answers beside other releases: with more, these are what counts
_WORTH_KEEPING = 0.1  # seconds that a file must save
_LOWER, _UPPER = 6.0, 8.0  # standard deviations of the loss that a grid reaches to either side
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
    if table is None:
        return None
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
        table = _averaged(table, gaussian_pair(mu_squared, table.step))
    for law in pure:
        for _ in range(law.uses):
            table = _averaged(table, _response(law.size))
    return table


def _small(law: Law) -> bool:
    return SMALLEST_SHIFT <= math.sqrt(law.mu_squared) <= LARGEST_SHIFT


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

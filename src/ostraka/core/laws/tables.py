"""delta against epsilon for many answers: a table for each mechanism and number, in memory and on disk."""

from __future__ import annotations

import math
import time
from functools import lru_cache, reduce
from typing import NamedTuple, Protocol

import numpy as np

from ostraka.core.laws import answers as fixed
from ostraka.core.laws import equivalents, limit, pure, sampled, stored
from ostraka.core.laws.gaussian import gaussian_delta, gaussian_pair, mirrored
from ostraka.core.laws.law import GAUSSIAN, Law, composes

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
    bounds: list[Bound | None] = [_led_by(law, laws) for law in leaders[:_LEADERS]]
    if len(followed) > 1 and math.isfinite(limit.together(laws).mu_squared):
        bounds.append(_as_gaussian(limit.together(laws), 0.0))
    if not followed or any(law.is_sampled for law in laws):
        bounds.append(_fixed_only(laws))
    return Tables(tuple(table for table in bounds if table is not None))


def _fixed_only(laws: tuple[Law, ...]) -> Table | None:
    """Fixed pairs only: every argmax and screen as the Gaussian that dominates it."""
    if not composes(laws):
        return None
    pairs = [law for law in laws if law.size and (law.is_sampled or law.is_pure)]
    gaussian = _gaussian([law for law in laws if law.size and law not in pairs])
    if not math.isfinite(gaussian.mu_squared):
        return None
    if not pairs:  # Gaussians alone have a formula of their own
        return _as_gaussian(gaussian, 0.0) if gaussian.delta and gaussian.mu_squared else None
    if gaussian.mu_squared:
        pairs.append(Law(GAUSSIAN, gaussian.mu_squared))
    bound = sampled.hockey_sticks(pairs)
    return None if bound is None else _raised(Table(bound[1], bound[0], bound[2]), gaussian.delta)


def _weight(law: Law) -> float:
    """The squared shift of a Gaussian that dominates all uses."""
    return law.uses * law.mu_squared


def _led_by(leader: Law, laws: tuple[Law, ...]) -> Bound | None:
    pairs = [law for law in laws if law.is_pure]
    if sum(law.uses for law in pairs) > _MOST_PURE:
        pairs = []  # so many are hardly more than the Gaussians that dominate them
    gaussian = _gaussian([law for law in laws if law not in pairs and law is not leader])
    if not math.isfinite(gaussian.mu_squared):
        return None
    room = sum(law.uses * law.size for law in pairs)
    table = followed_table(leader) if leader.uses <= _MOST else None
    bound = None if table is None else _beside(table, gaussian, pairs, room)
    if bound is None and (table := _many(leader, gaussian, room)) is not None:
        bound = _beside(table, limit.Part(0.0, 0.0), pairs, room)
    return bound


def _beside(table: Table, gaussian: limit.Part, pairs: list[Law], room: float) -> Bound | None:
    """The table with fixed pairs, which must not need too many points."""
    wide = 2 * (gaussian.mu_squared / 2 + _FURTHEST * math.sqrt(gaussian.mu_squared) + room)
    if wide > _MOST_POINTS * table.step:
        return None
    kernels = [_of_pure(law, table.step) for law in pairs]
    if gaussian.mu_squared:
        kernels.append(_of_gaussian(gaussian.mu_squared, table.step))
    if not kernels:
        return _raised(table, gaussian.delta)
    kernel = reduce(fixed.together, kernels)
    kernel = kernel._replace(revealing=kernel.revealing + gaussian.delta)
    return fixed.Averaged(table.start, table.step, table.values, kernel)


@lru_cache(maxsize=16)
def _of_gaussian(mu_squared: float, step: float) -> fixed.Kernel:
    return fixed.kernel(gaussian_pair(mu_squared, step), step)


def _of_pure(law: Law, step: float) -> fixed.Kernel:
    return reduce(fixed.together, [fixed.kernel(pure.pair(law, step), step)] * law.uses)


def _many(leader: Law, remainder: limit.Part, room: float) -> Table | None:
    """The table of the Gaussian which exceeds the uses that are followed, those beyond, and the rest."""
    followed = [leader._replace(uses=n) for n in (_MOST, _FEWER) if n < leader.uses]
    pair = next(((law, gaussian) for law in followed if (gaussian := _gaussian_of(law))), None)
    if pair is None:
        return None
    law, gaussian = pair
    gaussian = limit.Part(
        (gaussian.mu_squared + remainder.mu_squared) * (1 + _OUTWARD), gaussian.delta + remainder.delta
    )
    total = limit.after(leader._replace(uses=leader.uses - law.uses), gaussian)
    return _as_gaussian(total, room)


def _as_gaussian(part: limit.Part, room: float) -> Table | None:
    """The table of a Gaussian, with room for pure releases on either side."""
    mu = math.sqrt(part.mu_squared)
    step = _FINE * mu
    low = math.ceil((_LOWER * mu + room) / step)
    high = math.ceil((_reach(part.mu_squared) + room) / step)
    if high > _MOST_POINTS:
        return None
    return _raised(Table(-low, step, gaussian_delta(np.arange(-low, high + 1) * step, mu)), part.delta)


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


def _reach(variance: float) -> float:
    return variance / 2 + _UPPER * math.sqrt(variance) + 0.5


def followed_table(law: Law) -> Table | None:
    """The table of one family which is followed to its last use; None where that is too much."""
    pair = equivalents.table(law) or _computed(law)
    if pair is None:
        return None
    step, values = pair
    spread = math.sqrt(law.uses * law.mu_squared)
    less = min(values.size - 1, math.ceil(_LOWER * spread / step))
    return Table(-less, step, mirrored(values, step, less))


def _computed(law: Law) -> tuple[float, np.ndarray] | None:
    """What no file of this library holds: from the user's folder of tables, or by the recursion."""
    name = f"{law.kind} {law.size.hex()} {law.uses}"
    stored_table = stored.load(name)
    if stored_table is not None:
        return float(stored_table[0]), stored_table[1:]
    start = time.process_time()
    pair = fixed.table(law)
    if pair is not None and time.process_time() - start > _WORTH_KEEPING:
        stored.save(name, np.concatenate([[pair[0]], pair[1]]))
    return pair

"""Many answers against one Gaussian: what an answer adds to a Gaussian is at most a little more Gaussian.

If no pair of a family, beside a Gaussian of squared shift m, tells more than a Gaussian of m + d, then n
uses beside a Gaussian of m or more tell no more than one that is larger by n d (docs/composition.md).

Tables hold what an answer adds at the nodes of a lattice of shifts. More shift never tells less, so a family
may be rounded up to the next node. ``python -m ostraka.core.laws.limit`` writes both tables anew, which takes
about a minute of processor time.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ostraka.core.laws import stored
from ostraka.core.laws.cover import argmax_family, screen_family
from ostraka.core.laws.gaussian import gaussian_deltas, mirrored
from ostraka.core.laws.law import ARGMAX, BOUNDED_RANGE, GAUSSIAN, SCREEN, Law, added

_SMALLEST_SHIFT, _LARGEST_SHIFT = 1e-5, 0.45  # of t; outside, floats or the proof at the edge give out
_SHORTEST_RANGE, _LONGEST_RANGE = 1e-5, 4.0  # that are followed; beyond, other bounds are as good
STARTS = (8, 32, 128)  # squared shifts that a Gaussian has before the first answer
_ABOUT = {8: 0.743, 32: 0.656, 128: 0.645}  # squared shifts that an answer then adds: decides which is tried
_WORTHWHILE = 40  # uses
_STEP = 0.05  # shifts
_STEEPEST = 26.0  # shifts: outcomes whose ratio is steeper count as fully revealing
_OUTWARD, _UP = 1e-12, 1e-9
_FINER = (6, 8, 12, 16, 24, 32, 64, 128)  # the same, for several families
_LEAST_DELTA = 2e-15
_PER_OCTAVE, _LOWEST = 32, -336  # nodes: sizes of 2^(k / 32), from one vote at sigma of 1,448
_COLUMNS = 236  # to one of 9.1
_TABLED = (8, 16, 32, 128)  # starts of the tables
_DIGESTS = {
    ARGMAX: "42f811ea51bf478b22752390611c8a8dc15bdd9f3330b5facdf2308e321fe37d",
    SCREEN: "5486d49c1680abd02fca8e3316316ba50347b1da44851e4fa34518221e6e7b93",
}
_FULL = 65_535  # a share of 1: an answer adds as much as the Gaussian that dominates it
_DELTA = 1e-12  # of an answer whose share is smaller
_MOST_DELTA = 1e-10  # by one answer; a bound that adds more to delta is of no use


class Part(NamedTuple):
    """A Gaussian of this squared shift, and a delta beside it."""

    mu_squared: float
    delta: float


class Levels(NamedTuple):
    """The cost of a unit of mass by the squared shift from which on it holds; the costs fall."""

    begin: np.ndarray
    rate: np.ndarray
    mass: np.ndarray  # what is paid for at the beginning of each level

    def before(self, mass: np.ndarray | float) -> np.ndarray:
        """The squared shift that pays for this mass."""
        at = np.searchsorted(self.mass, mass, side="right") - 1
        return np.asarray(self.begin[at] + (mass - self.mass[at]) * self.rate[at])

    def after(self, mu_squared: float) -> float:
        """The mass that a Gaussian of this squared shift pays for."""
        at = int(np.searchsorted(self.begin, mu_squared, side="right")) - 1
        return float(self.mass[at] + (mu_squared - self.begin[at]) / self.rate[at])


def within_reach(law: Law) -> bool:
    """Whether its answers can be followed: an argmax or a screen with enough noise, or a bounded range."""
    if law.kind == BOUNDED_RANGE:
        return _SHORTEST_RANGE <= law.size <= _LONGEST_RANGE
    return law.kind in (ARGMAX, SCREEN) and _SMALLEST_SHIFT <= math.sqrt(law.mu_squared) <= _LARGEST_SHIFT


def beside(law: Law) -> Part:
    """The smallest Gaussian that all uses of this law come to, in any order, beside other releases."""
    alone = Part(law.uses * law.mu_squared * (1 + _OUTWARD), law.uses * law.delta)
    start = min(STARTS, key=lambda start: start + law.uses * _ABOUT[start])
    if law.uses < _WORTHWHILE or not within_reach(law):
        return alone
    step = one(law._replace(uses=1), start)
    total = (start * law.mu_squared + law.uses * step.mu_squared) * (1 + _OUTWARD)
    return min(alone, Part(total, law.uses * step.delta))


def together(laws: tuple[Law, ...]) -> Part:
    """A Gaussian that bounds all of these, in whatever order, also one that answers decide."""
    followed = tuple(law for law in laws if within_reach(law))
    fixed = sum(law.uses * law.mu_squared for law in laws if law not in followed)
    singles = tuple(law._replace(uses=1) for law in followed)
    paid = levels(singles)
    mass = sum(law.uses * law.mu_squared for law in followed)
    bounds = [max(one(law, start).delta for start in _FINER) for law in singles]
    delta = sum(law.uses * one_delta for law, one_delta in zip(followed, bounds, strict=True))
    delta += sum(law.uses * law.delta for law in laws)
    return Part(float((fixed + paid.before(mass)) * (1 + _UP)), delta)


@lru_cache(maxsize=64)
def levels(laws: tuple[Law, ...]) -> Levels:
    """Levels at which the costs hold for each of these families."""
    widest = max((law.mu_squared for law in laws), default=0.0)
    begin, rate = [0.0], [1.0]
    # law by law: its pairs are computed once for all of its starts
    every = [[one(law, start).mu_squared / law.mu_squared for start in _FINER] for law in laws]
    for place, start in enumerate(_FINER):
        steps = [of_law[place] for of_law in every]
        begin.append((start + 1) * widest)
        rate.append(min(rate[-1], max(steps, default=1.0) * (1 + _UP)))
    mass = np.concatenate([[0.0], np.cumsum(np.diff(begin) / np.array(rate[:-1]))])
    return Levels(np.array(begin), np.array(rate), mass)


def after(law: Law, part: Part) -> Part:
    """The Gaussian after these uses, where there was one before the first of them."""
    step = Part(law.mu_squared, 0.0)
    within = [start for start in STARTS if part.mu_squared >= start * law.mu_squared and within_reach(law)]
    if within:
        step = min(step, one(law._replace(uses=1), max(within)))
    total = (part.mu_squared + law.uses * step.mu_squared) * (1 + _OUTWARD)
    return Part(total, part.delta + law.uses * step.delta)


def larger_gaussian(
    values: np.ndarray, step: float, *, least: float, highest: float, delta: float = _LEAST_DELTA
) -> Part | None:
    """A Gaussian that exceeds the function with these values at 0, step, ... everywhere; None beyond most.

    Where the function is below ``delta`` that number alone exceeds it.

    The function is convex in v = e^x and falls, so it lies below its chords. The Gaussian lies above its
    tangents. On each interval the tangent in the middle is compared with the chord, at both ends.
    """
    delta = max(delta, float(values[-1]) * (1 + _OUTWARD) + _LEAST_DELTA)
    count = int((values > delta).sum()) + 1
    low, middle = np.arange(count) * step, (np.arange(count) + 0.5) * step
    needed = values[: count + 1] if count < values.size else np.append(values, values[-1])
    needed = needed * (1 + _OUTWARD) - delta
    lower, upper = np.exp(low), np.exp(low + step)
    centre = np.exp(middle)

    def exceeds(mu_squared: float) -> bool:
        mu = math.sqrt(mu_squared)
        slope = ndtr(-middle / mu - mu / 2)
        above = ndtr(mu / 2 - middle / mu)
        height = above - centre * slope - 1e-13 * above
        ends = (height + slope * (centre - lower), height + slope * (centre - upper))
        return bool((ends[0] >= needed[:-1]).all() and (ends[1] >= needed[1:]).all())

    if not exceeds(highest):
        return None
    while highest - least > 1e-7 * highest:
        between = (least + highest) / 2
        least, highest = (least, between) if exceeds(between) else (between, highest)
    return Part(highest * (1 + _OUTWARD), delta)


def rounded(laws: tuple[Law, ...]) -> tuple[Law, ...]:
    """The same families, each at the next node of its table, which tells no less.

    What is beyond the tables, with less noise or more, becomes the Gaussian that dominates it.
    """
    total: tuple[Law, ...] = ()
    for law in laws:
        larger = law
        if law.kind in _DIGESTS:
            column = max(0, math.ceil(_PER_OCTAVE * math.log2(law.size) - 1e-9) - _LOWEST)
            column += node(column) < law.size
            larger = Law(GAUSSIAN, law.mu_squared, law.uses)
            if column < _COLUMNS and law.size > node(0) / 2 and _shares(law.kind):
                larger = law._replace(size=node(column))
        total = added(total, (larger,)) or ()
    return total


def node(column: int) -> float:
    """The size of the families of a column of the tables."""
    return float(2.0 ** ((_LOWEST + column) / _PER_OCTAVE))


def tabulate(kind: str, column: int) -> np.ndarray:
    """One column of a table: shares of the squared shift, rounded up, for each start."""
    law = Law(kind, node(column))
    parts = [_computed(law, start) for start in _TABLED]
    shares = [part.mu_squared / law.mu_squared if part.delta <= _DELTA else 1.0 for part in parts]
    return np.minimum(np.ceil(np.array(shares) * (_FULL * (1 + _OUTWARD))), _FULL).astype("<u2")


@lru_cache(maxsize=2)
def _shares(kind: str) -> dict[float, np.ndarray]:
    """Shares by the size of the family; none if the file is not as it was written."""
    numbers = stored.read(_path(kind), _DIGESTS[kind])
    if numbers is None:
        return {}
    shares = numbers.reshape(_COLUMNS, len(_TABLED)) / _FULL
    return {node(column): shares[column] for column in range(_COLUMNS)}


def _path(kind: str) -> Path:
    return Path(__file__).with_name(f"{kind.removeprefix('gaussian-')}_beside.bin")


@lru_cache(maxsize=4096)
def one(law: Law, start: int) -> Part:
    """Bound what one answer adds to a Gaussian of ``start`` squared shifts of its own."""
    shares = _shares(law.kind).get(law.size) if law.kind in _DIGESTS else None
    if shares is None:
        return _computed(law, start)
    share = min((float(shares[at]) for at, tabled in enumerate(_TABLED) if tabled <= start), default=1.0)
    return Part(share * law.mu_squared * (1 + _OUTWARD), _DELTA if share < 1 else 0.0)


def _computed(law: Law, start: int) -> Part:
    name = f"one {law.kind} {law.size.hex()} {start}"
    stored_part = stored.load(name)
    if stored_part is not None:
        return Part(*map(float, stored_part))
    from ostraka.core.kernels.recursion import APART  # noqa: PLC0415  (compiled code, loaded when needed)
    from ostraka.core.laws import answers  # noqa: PLC0415

    before, shift = start * law.mu_squared, math.sqrt(law.mu_squared)
    # one answer beside a Gaussian of this squared shift: bounds at 0, step, ...
    if law.kind == BOUNDED_RANGE:
        values, step = answers.beside_gaussian(law.size, before)
    else:
        step = _STEP * shift
        reach = int(_STEEPEST * shift / step) + 2
        family = argmax_family(shift) if law.kind == ARGMAX else screen_family(shift)
        points = int((8.4 * math.sqrt(before) + before / 2 + 2 * shift) / step)
        x = np.arange(points + reach + APART) * step
        w = mirrored(gaussian_deltas(x, math.sqrt(before)), step, reach)
        stop = reach + points
        w[stop:] = w[stop - 1]  # beyond the last point w only falls
        answers.Recursion(family, step=step, reach=reach).advance(w, stop)
        values = w[reach:stop].copy()
    gaussian = larger_gaussian(values, step, least=before, highest=before + law.mu_squared)
    part = Part(law.mu_squared, 0.0)
    if gaussian is not None and gaussian.delta <= _MOST_DELTA:
        part = Part((gaussian.mu_squared - before) * (1 + _OUTWARD), gaussian.delta)
    stored.save(name, np.array(part))
    return part


if __name__ == "__main__":
    for table_kind in _DIGESTS:
        stored.write(_path(table_kind), np.stack([tabulate(table_kind, n) for n in range(_COLUMNS)]))

"""Fixed pairs of laws: their losses log P / Q on a grid, their exact composition, and a table after them.

Pure pairs are those of responses, and of counts with Laplace noise. Sampled Gaussians compare
P = (1 - q) N(0, 1) + q N(mu, 1) with Q = N(0, 1), and Q with P. The mass of P and that of
Q in each cell of losses are split between the ends of the cell so that both stay the same, which tells more
than the cell did (Doroshenko et al. 2022, arXiv:2207.04380). Masses of independent losses convolve. The
larger of both directions counts. docs/composition.md has the bounds of the rest.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka.core.laws.cover import Pairs, stencils
from ostraka.core.laws.law import LAPLACE_COUNT, Law
from ostraka.core.numeric import normal_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

_FURTHEST = 12.0  # standard deviations; what lies beyond counts as fully revealing
_FINE = 0.02  # of the standard deviation of one loss: the spacing of the grid
_LEAST_STEP, _MOST_STEP = 1e-9, 0.02
_POINTS_OF_ONE = 1 << 18  # at most, of the grid of one loss
_MOST_POINTS = 1 << 20
_LARGEST_SHIFT = 20.0  # beyond, losses overflow, and the other bounds of a curve are as good
_TAIL = 1e-15  # mass beyond the grid
_RATES = np.geomspace(1e-2, 3e3, 30).tolist()  # of the Chernoff bound
_ROUNDING = 2.0**-52
_OUTWARD = 1e-11  # of a mass: rounding of a split, moved up
_PAIR_OUTWARD = 1e-12  # of the differences of a pair
_CHORD_OUTWARD = 1e-12  # of sums of kernels, and of a chord
_REMEMBERED = 64  # values of one table


class Cells(NamedTuple):
    """Masses under P and under Q, and the cell of a grid of losses log P / Q in which each lies.

    The other way round they are the same: losses change their sign.
    """

    cells: np.ndarray
    p: np.ndarray
    q: np.ndarray


def pure_cells(law: Law, step: float) -> Cells:
    """The losses of one use; cell i is from i to i + 1 steps."""
    if law.kind == LAPLACE_COUNT:
        # noise of scale 1 on a count that moves by epsilon: both ends are atoms, between them losses spread
        epsilon = law.size
        inner = np.arange(math.floor(-epsilon / step) + 1, math.ceil(epsilon / step)) * step
        edges = np.concatenate([[-epsilon], np.clip(inner, -epsilon, epsilon), [epsilon]])
        a, b = edges[:-1], edges[1:]
        share = -np.expm1((a - b) / 2) / 2
        cells = np.floor(np.concatenate([[-epsilon, epsilon], (a + b) / 2]) / step)
        rare = math.exp(-epsilon) / 2
        return Cells(
            cells.astype(np.int64),
            np.concatenate([[rare, 0.5], np.exp((b - epsilon) / 2) * share]),
            np.concatenate([[0.5, rare], np.exp(-(a + epsilon) / 2) * share]),
        )
    # the answer is one label, the other, or any of the rest, which tells nothing
    others = law.n_classes - 1
    true = 1 / (1 + others * math.exp(-law.size))
    wrong = 1 / (math.exp(law.size) + others)
    neither = max(0.0, 1 - true - wrong) if others > 1 else 0.0
    p = np.array([true, wrong, neither])
    cells = np.floor(np.array([law.size, -law.size, 0.0]) / step)
    return Cells(cells.astype(np.int64), p, p[[1, 0, 2]])


def pure_pair(law: Law, step: float) -> Pairs:
    """One use as outcomes, one for each cell of the grid, which is split between the cell's ends later."""
    _, p, q = pure_cells(law, step)
    return Pairs(p[None], (q - p)[None] * (1 + _PAIR_OUTWARD), np.zeros(1))


class _Losses(NamedTuple):
    """Masses at start, start + 1, … times the step; the rest up to 1 counts as fully revealing."""

    start: int
    masses: np.ndarray
    uses: int

    def log_moment(self, rate: float) -> float:
        """Log of the mean of e^(rate place)."""
        places = rate * (self.start + np.arange(len(self.masses)))
        highest, lowest = float(places.max()), float(places.min())
        # many uses multiply what this rounds: the exponents, and a sum of so many numbers
        doubt = _ROUNDING * (8 + len(places) + 2 * max(abs(highest), abs(lowest)))
        return highest + math.log(float(np.exp(places - highest) @ self.masses) + 1e-300) + doubt


def hockey_sticks(laws: Sequence[Law]) -> tuple[float, int, np.ndarray] | None:
    """Step, start and upper bounds of the largest P(S) - e^x Q(S), x = step (start + i), in both directions.

    None where the grid would have too many points, or one use reveals nearly everything.
    """
    if any(not law.is_pure and law.mu_squared > _LARGEST_SHIFT**2 for law in laws):
        return None
    # the grid: as fine as the narrowest loss asks for, and no finer than what many of them can show
    spread, widest = 0.0, 0.0
    for law in laws:
        q, mu_squared = law.rate, law.mu_squared
        if law.is_pure:
            variance, wide = law.size**2, 2 * law.size
        else:
            variance = min(mu_squared, q * q * math.expm1(min(mu_squared, 50.0)))
            mu = math.sqrt(mu_squared)
            low, high = _loss(np.array([-_FURTHEST, mu + _FURTHEST]), mu, q).tolist()
            wide = high - low
        spread, widest = spread + law.uses * variance, max(widest, wide)
    fine = min(_FINE * math.sqrt(spread / sum(law.uses for law in laws)), _MOST_STEP)
    step = max(fine, widest / _POINTS_OF_ONE, _LEAST_STEP)
    directions = (
        _one_way([_losses(law, step, added=added) for law in laws], step) for added in (False, True)
    )
    bounds = [bound for bound in directions if bound is not None]
    if len(bounds) < 2:
        return None
    start = min(first for first, _ in bounds)
    values = np.zeros(max(first + len(bound) for first, bound in bounds) - start)
    for first, bound in bounds:
        low = first - start
        values[:low] = np.maximum(values[:low], _risen(float(bound[0]), first * step, step, low))
        values[low : low + len(bound)] = np.maximum(values[low : low + len(bound)], bound)
        values[low + len(bound) :] = np.maximum(values[low + len(bound) :], bound[-1])
    return step, start, values


def _risen(bound: float, x: float, step: float, points: int) -> np.ndarray:
    """Bounds at so many grid points below x: there P(S) - e^y Q(S) is larger by at most e^x - e^y."""
    falls = np.log(-np.expm1(-np.arange(points, 0, -1) * step))
    larger = np.exp(np.minimum(x + falls, 0.0))  # e^x alone may leave float64
    return np.asarray(np.minimum(1.0, (bound + larger) * (1 + _OUTWARD)))


def _losses(law: Law, step: float, *, added: bool) -> _Losses:
    """One use on the grid; ``added``: of Q against P."""
    if law.is_pure:
        return _split(*pure_cells(law, step), step, law.uses)
    mu, q = math.sqrt(law.mu_squared), law.rate
    ends = np.array([-_FURTHEST, mu + _FURTHEST])
    low, high = np.floor(_loss(ends, mu, q) / step).astype(np.int64) + np.array([0, 1])
    # the inverse of the loss; minus infinity below its range
    grown = np.arange(low, high + 1) * step
    if q != 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.log1p(np.expm1(np.minimum(grown, 30.0)) / q)
            grown = np.where(grown > 30, grown - math.log(q), near)
    edges = np.where(np.isnan(grown), -math.inf, (grown + mu * mu / 2) / mu)
    edges[0], edges[-1] = -math.inf, ends[1]  # above the last: counts as fully revealing
    without = normal_cells(edges)
    mixed = (1 - q) * without + q * normal_cells(edges - mu)
    cells = np.arange(low, high)
    if added:
        # the loss changes its sign, and what lies above the last edge was below all the rest
        return _split(-cells - 1, without, mixed, step, law.uses)
    return _split(cells, mixed, without, step, law.uses)


def _loss(x: np.ndarray, mu: float, q: float) -> np.ndarray:
    """Loss at x: log P / Q."""
    grown = mu * x - mu * mu / 2
    if q == 1:  # a whole Gaussian, whose losses have no end
        return grown
    mirrored = grown + math.log(q) + np.log1p((1 - q) / q * np.exp(-np.abs(grown)))
    return np.asarray(np.where(grown > 30, mirrored, np.log1p(q * np.expm1(np.minimum(grown, 30.0)))))


def _split(cells: np.ndarray, p: np.ndarray, q: np.ndarray, step: float, uses: int) -> _Losses:
    """Each mass of p between both ends of its cell, so that the mass of q stays the same, or falls."""
    start = int(cells.min())
    upper = (p - q * np.exp(cells * step)) / -math.expm1(-step)
    upper = np.clip(upper + (_OUTWARD + 8 * _ROUNDING / step) * p, 0.0, p)
    masses = np.zeros(int(cells.max()) - start + 2)
    np.add.at(masses, cells - start, p - upper)
    np.add.at(masses, cells - start + 1, upper)
    return _Losses(start, masses, uses)


def _one_way(parts: list[_Losses], step: float) -> tuple[int, np.ndarray] | None:
    """First place, and the bounds, of all uses of all parts together."""
    # places between which all but a little of the composed mass lies (Chernoff)
    ends = []
    for sign in (-1, 1):

        @cache
        def reach(at: int, sign: int = sign) -> float:
            grown = sum(part.uses * part.log_moment(sign * _RATES[at] * step) for part in parts)
            return float((grown - math.log(_TAIL)) / _RATES[at])

        left, right = 0, len(_RATES) - 1
        while left < right:  # it falls, then rises: a convex function with a positive end, over its argument
            middle = (left + right) // 2
            left, right = (left, middle) if reach(middle) <= reach(middle + 1) else (middle + 1, right)
        ends.append(sign * reach(left))
    low, high, outside = math.floor(ends[0] / step) - 1, math.ceil(ends[1] / step) + 1, 2 * _TAIL
    if not 0 <= high - low <= _MOST_POINTS:
        return None
    n = 1 << (high - low + 1).bit_length()
    spectrum, worst = np.ones(n // 2 + 1, dtype=complex), np.zeros(n // 2 + 1)
    shift, revealing = 0, 0.0
    for part in parts:
        folded = np.bincount(np.arange(len(part.masses)) % n, weights=part.masses, minlength=n)
        factor = np.fft.rfft(folded)
        # an error e of one factor becomes uses * e * |factor|^(uses - 1) of the power
        size = np.abs(factor)
        worst = worst * size**part.uses + np.abs(spectrum) * part.uses * size ** (part.uses - 1)
        spectrum = spectrum * factor**part.uses
        shift += part.uses * part.start
        revealing += part.uses * max(0.0, 1 - math.fsum(part.masses) + 8 * _ROUNDING)
    # a transform errs by log2(n) roundings of the whole mass in each number, and up to n numbers are summed
    doubt = math.log2(n) * _ROUNDING * float(worst.mean() + np.abs(spectrum).mean()) * n
    masses = np.maximum(np.roll(np.fft.irfft(spectrum, n), shift - low), 0.0)[: high - low + 1]
    # The sum over l > i of p_l (1 - e^(-(l - i) step)), for each i: it is e^-step times the sum at i + 1, and
    # (1 - e^-step) times the mass above i, so nothing is subtracted.
    from scipy.signal import lfilter  # noqa: PLC0415  (slow to import, seldom needed)

    above = np.cumsum(masses[::-1])  # at each point and above, from the top
    later = np.concatenate([[0.0], above[:-1]]) * -math.expm1(-step)
    sticks = np.asarray(lfilter([1.0], [1.0, -math.exp(-step)], later)[::-1])
    return low, np.minimum(1.0, sticks * (1 + 1e-9) + revealing + outside + doubt)


class Kernel(NamedTuple):
    """A fixed pair on a grid: weights at the places -reach, ..., reach, and fully revealing mass."""

    weights: np.ndarray
    revealing: float

    @property
    def reach(self) -> int:
        """How many grid points it reaches to either side."""
        return len(self.weights) // 2


def kernel(pair: Pairs, step: float) -> Kernel:
    """The weights by which a pair averages a convex function of e^x on a grid of x; errs upwards."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(pair.mass > 0, pair.difference / pair.mass, 0.0)
    widest = float(np.abs(np.log1p(np.maximum(ratios, -1 + 1e-12))).max())
    reach = math.ceil(widest / step) + 1
    stencil = stencils(pair, step=step, reach=reach)
    weights = np.zeros(2 * reach + 1)
    np.add.at(weights, stencil.offsets[0] + reach, stencil.weights[0])
    return Kernel(weights, float(stencil.constants[0]))


def together(first: Kernel, second: Kernel) -> Kernel:
    """Both, one after the other. Only positive numbers add up, and the sums are rounded up."""
    weights = np.convolve(first.weights, second.weights) * (1 + _CHORD_OUTWARD)
    return Kernel(weights, (first.revealing + second.revealing) * (1 + _CHORD_OUTWARD))


class Averaged:
    """Upper bounds of a table's function after a kernel.

    Beyond its points the function is continued: by the chord from (0, 1) below, by the last value above.
    """

    def __init__(self, start: int, step: float, values: np.ndarray, by: Kernel) -> None:
        self._start, self._step, self._values, self._by = start, step, values, by
        self._fall = (1 - float(values[0])) / math.exp(start * step)
        self._at = lru_cache(_REMEMBERED)(self._value)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 at which delta is proved, or infinity."""
        low, high = 0, self._start + len(self._values) + self._by.reach
        if self._at(low) <= delta:
            return 0.0
        if not self._at(high) <= delta:
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._at(middle) <= delta else (middle, high)
        before, after = self._at(low), self._at(high)
        share = min(1.0, (before - delta) / (before - after) + _CHORD_OUTWARD)
        x = self._step * low + math.log1p(share * math.expm1(self._step))
        return x + _CHORD_OUTWARD * (1 + abs(x))

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at epsilon, at most 1: on the chord between grid points."""
        end = self._start + len(self._values) + self._by.reach
        if not epsilon < self._step * end:
            return self._at(end)
        i = max(0, math.floor(epsilon / self._step - 1e-9))
        within = min(epsilon - self._step * i, self._step)
        share = max(0.0, math.expm1(within) / math.expm1(self._step) - _CHORD_OUTWARD * (1 + i))
        on_chord = self._at(i) + min(1.0, share) * (self._at(i + 1) - self._at(i))
        return min(1.0, on_chord * (1 + _CHORD_OUTWARD))

    def _value(self, i: int) -> float:
        """The bound at one grid point."""
        reach, n = self._by.reach, len(self._values)
        first, last = i - reach - self._start, i + reach + 1 - self._start
        inside = self._values[max(0, first) : max(0, last)]
        below = self._step * (self._start + np.arange(first, min(0, last)))
        around = np.concatenate(
            [1 - self._fall * np.exp(below), inside, np.full(reach * 2 + 1, self._values[-1])]
        )
        around = around[: 2 * reach + 1] if first < n else np.full(2 * reach + 1, self._values[-1])
        return min(1.0, (float(around @ self._by.weights) + self._by.revealing) * (1 + _CHORD_OUTWARD))

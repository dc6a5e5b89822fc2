"""Fixed pairs beside a table: one kernel of all of them, applied only at the points that are asked for."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka._composition.stencils import stencils

if TYPE_CHECKING:
    from ostraka._composition.cover import Pairs

__all__ = ["Averaged", "Kernel", "kernel", "together"]

_OUTWARD = 1e-12
_REMEMBERED = 64  # values of one table


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
    way = stencils(pair, step=step, reach=reach)
    weights = np.zeros(2 * reach + 1)
    np.add.at(weights, way.offsets[0] + reach, way.weights[0])
    return Kernel(weights, float(way.constants[0]))


def together(one: Kernel, two: Kernel) -> Kernel:
    """Both, one after the other. Only positive numbers add up, and the sums are rounded up."""
    weights = np.convolve(one.weights, two.weights) * (1 + _OUTWARD)
    return Kernel(weights, (one.revealing + two.revealing) * (1 + _OUTWARD))


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
        share = min(1.0, (before - delta) / (before - after) + _OUTWARD)
        x = self._step * low + math.log1p(share * math.expm1(self._step))
        return x + _OUTWARD * (1 + abs(x))

    def delta(self, epsilon: float) -> float:
        """The smallest proved delta at epsilon, at most 1: on the chord between grid points."""
        end = self._start + len(self._values) + self._by.reach
        if not epsilon < self._step * end:
            return self._at(end)
        i = max(0, math.floor(epsilon / self._step - 1e-9))
        beyond = min(epsilon - self._step * i, self._step)
        share = max(0.0, math.expm1(beyond) / math.expm1(self._step) - _OUTWARD * (1 + i))
        on_chord = self._at(i) + min(1.0, share) * (self._at(i + 1) - self._at(i))
        return min(1.0, on_chord * (1 + _OUTWARD))

    def _value(self, i: int) -> float:
        """The bound at one grid point."""
        reach, n = self._by.reach, len(self._values)
        first, last = i - reach - self._start, i + reach + 1 - self._start
        known = self._values[max(0, first) : max(0, last)]
        below = self._step * (self._start + np.arange(first, min(0, last)))
        around = np.concatenate(
            [1 - self._fall * np.exp(below), known, np.full(reach * 2 + 1, self._values[-1])]
        )
        around = around[: 2 * reach + 1] if first < n else np.full(2 * reach + 1, self._values[-1])
        return min(1.0, (float(around @ self._by.weights) + self._by.revealing) * (1 + _OUTWARD))

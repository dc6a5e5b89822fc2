"""The most that one answer adds where w is smooth: a bound by local slope and curvature, from all pairs.

Let G be the kinks of a convex function on the grid (docs/composition.md). Where
G[m + j] <= G[m] exp(slope j h - curvature (j h)^2 / 2) at all j, one answer adds at most
G[m] M(slope, curvature), and log M is convex. M is evaluated at nodes; between them chords bound it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka._composition.kernels import each_pair, largest_pair

if TYPE_CHECKING:
    from ostraka._composition.cover import Pairs

__all__ = ["Envelope", "NotSmoothError"]

DEGREE = 5  # of polynomials of the squared slope
_NODES = 64
_FINER = 16  # points between nodes at which a polynomial is compared with the chord
_MARGIN = 1e-10  # of M: more than its rounding
_STEEPEST = 18.0  # shifts: outcomes whose ratio is steeper count as fully revealing
_EXTRA = 1e-10  # the most that an answer may add beside M
_THIN = 1e-9  # by how much slopes at zero may round beyond it
_STEEPER = 1.1  # than the slope that is asked for: so steep the next may be


class NotSmoothError(ArithmeticError):
    """The bound by slopes and curvatures does not hold here, or is too wide to be useful."""


class _Taps(NamedTuple):
    """Places of outcomes on the grid, counted from ``reach`` points before 1, and their masses."""

    offsets: np.ndarray
    weights: np.ndarray
    reach: int

    def chosen(self, used: np.ndarray) -> _Taps:
        """Some of the pairs, on as much of the grid as they need."""
        offsets, weights = self.offsets[used], self.weights[used]
        reach = int(np.abs(np.where(weights > 0, offsets - self.reach, 0)).max()) + 1
        offsets = np.where(weights > 0, offsets - self.reach + reach, reach)
        return _Taps(offsets, weights, reach)


class Envelope:
    """Log M of one family on one grid. Slopes are less 1/2; slopes and curvatures are in units of shift."""

    def __init__(self, pairs: Pairs, *, shift: float, step: float) -> None:
        self._grid = shift, step
        self._taps, beyond = _taps(pairs, step, int(_STEEPEST * shift / step) + 2)
        self.extra = float(pairs.extra.max() + beyond)
        if self.extra > _EXTRA:
            raise NotSmoothError
        self._kept: tuple[float, float, _Taps] | None = None

    def polynomial(self, curvature: float, steepest: float) -> np.ndarray:
        """Coefficients, by powers of (slope / steepest)^2, of a bound of log M on -steepest <= slope <= 0."""
        nodes = np.append(-steepest * np.cos(np.linspace(0, np.pi / 2, _NODES))[:-1], _THIN)
        few = self._few(curvature, steepest)
        logs = np.log(_largest(few, self._lattice(nodes, curvature, few.reach))) + _MARGIN
        powers = np.vander((nodes / steepest) ** 2, DEGREE + 1, increasing=True)
        found = np.linalg.lstsq(powers, logs, rcond=None)[0]
        share = np.arange(_FINER + 1) / _FINER
        at = nodes[:-1, None] + np.diff(nodes)[:, None] * share
        chords = logs[:-1, None] + np.diff(logs)[:, None] * share
        value = np.polynomial.polynomial.polyval((at / steepest) ** 2, found)
        orders = 2 * np.arange(DEGREE + 1)
        bend = float((np.abs(found) * orders * (orders - 1)).sum()) / steepest**2
        found[0] += (chords - value).max() + bend * (np.diff(nodes).max() / _FINER) ** 2 / 8
        return np.asarray(found)

    def _few(self, curvature: float, steepest: float) -> _Taps:
        """Return the pairs that may be largest at this curvature or a lower one, and at milder slopes."""
        # logs are convex: over a rectangle of slopes and curvatures a pair is largest at a corner
        if self._kept is not None and curvature <= self._kept[0] and steepest <= self._kept[1]:
            return self._kept[2]
        steepest *= _STEEPER
        nodes = np.append(np.linspace(-steepest, 0, 25)[:-1], _THIN)
        taps = self._taps
        ends = [_each(taps, self._lattice(nodes, at, taps.reach)) for at in (curvature, 0.0)]
        most = np.maximum(*ends)
        most = np.maximum(most[:, :-1], most[:, 1:])
        # M falls with curvature. On an interval a convex function lies above the chord next to it.
        support = np.log(ends[0].max(axis=0))
        rise = np.diff(support) / np.diff(nodes)
        ahead = support[1:-1] - np.maximum(rise[1:], 0.0) * np.diff(nodes)[:-1]
        last = support[-2] + min(rise[-2], 0.0) * (nodes[-1] - nodes[-2])
        least = np.exp(np.append(ahead, last))
        used = (most >= least).any(axis=1)
        few = self._taps.chosen(used)
        self._kept = curvature, steepest, few
        return few

    def _lattice(self, slopes: np.ndarray, curvature: float, reach: int) -> np.ndarray:
        """The function whose kinks are the exponential, less its tangent at 1; (grid points, slopes)."""
        shift, step = self._grid
        x = np.arange(-reach, reach + 1) * step
        v = np.exp(x)[:, None]
        kinks = np.exp(
            np.outer(x, slopes / shift + 0.5) - curvature / shift**2 * (x**2)[:, None] / 2 - x[:, None]
        )
        out = np.zeros_like(kinks)
        above, below = slice(reach + 1, None), slice(None, reach + 1)
        up, over = np.cumsum(kinks[above], axis=0), np.cumsum((kinks * v)[above], axis=0)
        out[above] = v[above] * up - over
        down, under = (np.cumsum(each[below][::-1], axis=0)[::-1] for each in (kinks, kinks * v))
        out[below] = under - v[below] * down
        return np.maximum(out, 0.0)


def _taps(pairs: Pairs, step: float, reach: int) -> tuple[_Taps, float]:
    """Places of outcomes, and the largest mass of a pair beyond the reach: P below it, Q - P above it."""
    mass, difference, _ = pairs
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(mass > 0, 1 + difference / mass, 1.0)
        place = np.floor(np.log(np.maximum(ratio, 1e-300)) / step)
    far = (place < -reach) | (place >= reach)
    beyond = float((np.where(place < 0, mass, np.abs(difference)) * far).sum(axis=1).max())
    place, mass = np.where(far, 0.0, place), np.where(far, 0.0, mass)
    low, high = np.exp(place * step), np.exp((place + 1) * step)
    share = np.clip((ratio - low) / (high - low), 0.0, 1.0)
    n, k = mass.shape
    offsets, weights = np.zeros((n, 2 * k), np.int64), np.zeros((n, 2 * k))
    offsets[:, ::2], offsets[:, 1::2] = place + reach, place + 1 + reach
    weights[:, ::2], weights[:, 1::2] = mass * (1 - share), mass * share
    return _Taps(offsets, weights, reach), beyond


def _each(taps: _Taps, values: np.ndarray) -> np.ndarray:
    out = np.empty((len(taps.offsets), values.shape[1]))
    each_pair(taps.offsets, taps.weights, values, out)
    return out


def _largest(taps: _Taps, values: np.ndarray) -> np.ndarray:
    out = np.full(values.shape[1], math.ulp(0.0))
    largest_pair(taps.offsets, taps.weights, values, out)
    return out

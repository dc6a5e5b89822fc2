"""Functions w of log odds on a grid: of a Gaussian pair, and a smooth bound after many answers of one family.

The smooth bound is a number (the floor) plus the convex function with kinks G on the grid. It is carried from
answer to answer. Which kinks come next is a guess: G averaged over neighbours, scaled by a smooth factor. The
guess counts only after it was raised until it exceeds what any pair can add, at every point.

What any pair can add, :class:`Envelope` bounds by local slope and curvature. Where
G[m + j] <= G[m] exp(slope j h - curvature (j h)^2 / 2) at all j, one answer adds at most
G[m] M(slope, curvature), and log M is convex. M is evaluated at nodes; between them chords bound it.
Proofs: docs/composition.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from ostraka.core.kernels import recursion
from ostraka.core.laws.cover import Pairs
from ostraka.core.numeric import normal_cells

DEGREE = 5  # of polynomials of the squared slope
_NODES = 64
_FINER = 16  # points between nodes at which a polynomial is compared with the chord
_MARGIN = 1e-10  # of M: more than its rounding
_STEEPEST = 18.0  # shifts: outcomes whose ratio is steeper count as fully revealing
_EXTRA = 1e-10  # the most that an answer may add beside M
_THIN = 1e-9  # by how much slopes at zero may round beyond it
_STEEPER = 1.1  # than the slope that is asked for: so steep the next may be
_ROUNDING = 1e-12  # of kinks and of what is added to them, in one answer: more than rounding
_BOX, _BOXES = 0.98, 4  # width of the boxes of the guess, in shifts; an even number, for stability
_BEYOND = 6.5  # shifts by which kinks are continued
_TINY = 1e-280
_TERMS = 6  # of the polynomial by which a guess is scaled
_APART = 0.8  # ratio of curvatures at which the envelope is evaluated
_MILDER = 0.8  # ratio of slopes for which one polynomial is used
_FIT = 5  # terms of the polynomial that the first kinks are fitted with
_PLACES = np.linspace(0, 1, 48)
_FITTED = np.linalg.pinv(np.vander(_PLACES**2, _TERMS))


def gaussian_deltas(x: np.ndarray, mu: float | np.ndarray) -> np.ndarray:
    """Delta at epsilon = x of either sign: Dong et al. 2019, arXiv:1905.02383, Cor. 1, rounded up."""
    mu = mu * (1 + 4e-16)
    above, below = ndtr(mu / 2 - x / mu), np.exp(np.minimum(x + log_ndtr(-mu / 2 - x / mu), 0.0))
    return np.asarray(np.minimum(1.0, above - below + 1e-13 * above + 1e-300))


def gaussian_pair(mu_squared: float, step: float) -> Pairs:
    """A Gaussian of this squared shift, in cells of the grid; mass outside counts as fully revealing."""
    mu = math.sqrt(mu_squared)
    edges = np.arange(
        -math.ceil((mu_squared / 2 + 9 * mu) / step) - 1, math.ceil((mu_squared / 2 + 9 * mu) / step) + 2
    )
    x = edges * step  # log Q / P; under P normal around -mu^2 / 2
    p, q = (normal_cells((x + sign * mu_squared / 2) / mu) for sign in (1, -1))
    outside = float(ndtr((x[0] + mu_squared / 2) / mu) + ndtr(-(x[-1] + mu_squared / 2) / mu))
    return Pairs(p[None], (q - p)[None], np.array([outside * (1 + 1e-9)]))


def mirrored(values: np.ndarray, step: float, room: int) -> np.ndarray:
    """Values at 0, 1, ... and, before them, ``room`` points on the other side of 0.

    Families are symmetric under exchange of P and Q, so w(1 / v) = 1 - 1 / v + w(v) / v.
    """
    x = np.arange(room, 0, -1) * step
    return np.concatenate([-np.expm1(-x) + np.exp(-x) * values[room:0:-1], values])


class NotSmoothError(ArithmeticError):
    """The bound by slopes and curvatures does not hold here, or is too wide to be useful."""


class _Taps(NamedTuple):
    """Places of outcomes on the grid, counted from ``reach`` points before 1, and their masses."""

    offsets: np.ndarray
    weights: np.ndarray
    reach: int

    def chosen(self, occupied: np.ndarray) -> _Taps:
        """Some of the pairs, on as much of the grid as they need."""
        offsets, weights = self.offsets[occupied], self.weights[occupied]
        reach = int(np.abs(np.where(weights > 0, offsets - self.reach, 0)).max()) + 1
        offsets = np.where(weights > 0, offsets - self.reach + reach, reach)
        return _Taps(offsets, weights, reach)


class Envelope:
    """Log M of one family on one grid. Slopes are less 1/2; slopes and curvatures are in units of shift."""

    def __init__(self, pairs: Pairs, *, shift: float, step: float) -> None:
        self._grid = shift, step
        self._taps, lost = _taps(pairs, step, int(_STEEPEST * shift / step) + 2)
        self.extra = float(pairs.extra.max() + lost)
        if self.extra > _EXTRA:
            raise NotSmoothError
        self._kept: tuple[float, float, _Taps] | None = None

    def polynomial(self, curvature: float, steepest: float) -> np.ndarray:
        """Coefficients, by powers of (slope / steepest)^2, of a bound of log M on -steepest <= slope <= 0."""
        nodes = np.append(-steepest * np.cos(np.linspace(0, np.pi / 2, _NODES))[:-1], _THIN)
        taps = self._few(curvature, steepest)
        largest = np.full(nodes.size, math.ulp(0.0))
        lattice = self._lattice(nodes, curvature, taps.reach)
        recursion.largest_pair(taps.offsets, taps.weights, lattice, largest)
        logs = np.log(largest) + _MARGIN
        powers = np.vander((nodes / steepest) ** 2, DEGREE + 1, increasing=True)
        coefficients = np.linalg.lstsq(powers, logs, rcond=None)[0]
        share = np.arange(_FINER + 1) / _FINER
        at = nodes[:-1, None] + np.diff(nodes)[:, None] * share
        chords = logs[:-1, None] + np.diff(logs)[:, None] * share
        value = np.polynomial.polynomial.polyval((at / steepest) ** 2, coefficients)
        orders = 2 * np.arange(DEGREE + 1)
        bend = float((np.abs(coefficients) * orders * (orders - 1)).sum()) / steepest**2
        coefficients[0] += (chords - value).max() + bend * (np.diff(nodes).max() / _FINER) ** 2 / 8
        return np.asarray(coefficients)

    def _few(self, curvature: float, steepest: float) -> _Taps:
        """Return the pairs that may be largest at this curvature or a lower one, and at milder slopes."""
        # logs are convex: over a rectangle of slopes and curvatures a pair is largest at a corner
        if self._kept is not None and curvature <= self._kept[0] and steepest <= self._kept[1]:
            return self._kept[2]
        steepest *= _STEEPER
        nodes = np.append(np.linspace(-steepest, 0, 25)[:-1], _THIN)
        taps = self._taps
        ends = np.empty((2, len(taps.offsets), nodes.size))
        for end, at in zip(ends, (curvature, 0.0), strict=True):
            recursion.each_pair(taps.offsets, taps.weights, self._lattice(nodes, at, taps.reach), end)
        highest = ends.max(axis=0)
        highest = np.maximum(highest[:, :-1], highest[:, 1:])
        # M falls with curvature. On an interval a convex function lies above the chord next to it.
        support = np.log(ends[0].max(axis=0))
        rise = np.diff(support) / np.diff(nodes)
        ahead = support[1:-1] - np.maximum(rise[1:], 0.0) * np.diff(nodes)[:-1]
        last = support[-2] + min(rise[-2], 0.0) * (nodes[-1] - nodes[-2])
        least = np.exp(np.append(ahead, last))
        occupied = (highest >= least).any(axis=1)
        taps = taps.chosen(occupied)
        self._kept = curvature, steepest, taps
        return taps

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
        down, under = (np.cumsum(kink[below][::-1], axis=0)[::-1] for kink in (kinks, kinks * v))
        out[below] = under - v[below] * down
        return np.maximum(out, 0.0)


def _taps(pairs: Pairs, step: float, reach: int) -> tuple[_Taps, float]:
    """Places of outcomes, and the largest mass of a pair beyond the reach: P below it, Q - P above it."""
    mass, difference, _ = pairs
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(mass > 0, 1 + difference / mass, 1.0)
        place = np.floor(np.log(np.maximum(ratio, 1e-300)) / step)
    outside = (place < -reach) | (place >= reach)
    lost = float((np.where(place < 0, mass, np.abs(difference)) * outside).sum(axis=1).max())
    place, mass = np.where(outside, 0.0, place), np.where(outside, 0.0, mass)
    low, high = np.exp(place * step), np.exp((place + 1) * step)
    share = np.clip((ratio - low) / (high - low), 0.0, 1.0)
    n, k = mass.shape
    offsets, weights = np.zeros((n, 2 * k), np.int64), np.zeros((n, 2 * k))
    offsets[:, ::2], offsets[:, 1::2] = place + reach, place + 1 + reach
    weights[:, ::2], weights[:, 1::2] = mass * (1 - share), mass * share
    return _Taps(offsets, weights, reach), lost


class Tail(NamedTuple):
    """How far down w is followed."""

    low: float  # where w is smaller, this number is added instead
    fitted: float  # below, the first answers' values are little but rounding, and the cost of rare outcomes


class Smooth:
    """After so many answers, w lies below ``floor`` plus the function of these kinks, at x >= 0."""

    def __init__(
        self,
        values: np.ndarray,
        *,
        finer: int,
        answers: int,
        shift: float,
        step: float,
        envelope: Envelope,
        tail: Tail,
    ) -> None:
        self.answers, self._shift, self._step, self._envelope = answers, shift, step, envelope
        self._tail = tail
        self._ends: list[np.ndarray] = []
        self._narrow = (math.inf, 0.0, 0.0)  # curvatures between which polynomials are known, up to a slope
        self._half = int(_BOX * shift / step / 2)
        self._more = int(_BEYOND * shift / step)
        self._roots = np.empty(0)  # of the odds at the grid points
        self._further = np.arange(1.0, self._more + 1)  # from the last kink
        self._lower = np.exp(-(self._further - 1) * step)
        # smooth kinks whose function lies above these values and the chords between them
        step = step * finer
        # the kinks of a function that is symmetric as families are, at all points but the last
        ratio = math.exp(step)
        grown = np.diff(np.concatenate([[-math.expm1(-step) + values[1] / ratio], values]))
        kinks = (grown[1:] - ratio * grown[:-1]) / math.expm1(step)
        end = int((values > tail.fitted).sum())
        logs = np.log(np.maximum(kinks, 1e-300)) - np.arange(kinks.size) * step / 2  # even in x
        width = int(1.5 * shift / step)
        window = np.hanning(2 * width + 1) / width
        logs = np.correlate(np.concatenate([logs[width:0:-1], logs]), window, "valid")[:end]
        coefficients = np.linalg.lstsq(np.vander(np.linspace(0, 1, end) ** 2, _FIT), logs, rcond=None)[0]
        last = (end - 1) * finer
        place = np.linspace(0, 1, last + 1)
        self._floor = 0.0
        self._continue(np.exp(np.polyval(coefficients, place**2) + place * (end - 1) * step / 2), 0.0, 0.0)
        self._floor = float(values[end - 1])
        odds = np.exp(place * (end - 1) * step)
        above = np.interp(odds, odds[::finer], values[:end]) * (1 + _ROUNDING) - self._floor
        reached = np.zeros(self._kinks.size)
        recursion.function(self._kinks, self._step, reached)
        self._kinks *= float((above[:last] / reached[:last]).max()) * (1 + _ROUNDING)

    def values(self) -> np.ndarray:
        """The bound at 0, step, 2 step, ..."""
        values = np.zeros(self._kinks.size)
        recursion.function(self._kinks, self._step, values)
        return (values + self._floor) * (1 + _ROUNDING)

    def advance(self) -> None:
        """One more answer."""
        logs = np.log(self._kinks)
        checked = logs.size - _BOXES * self._half - 2
        bent, steepest, mildest = recursion.shape(logs, self._step)
        curvature = -(bent + 1e-13) * (self._shift / self._step) ** 2
        if not (curvature > 0 and mildest <= 0):
            raise NotSmoothError
        # the guess: kinks averaged over neighbours, as even functions of x
        if self._roots.size < logs.size:
            self._roots = np.exp(np.arange(2 * logs.size) * self._step / 2)
        added = np.asarray(recursion.boxed(self._kinks, self._roots, self._half, checked))
        needed = np.log(added)
        highest = self._most(curvature, -steepest * self._shift)
        recursion.lacking(logs, needed, self._step, highest, self._narrow[2] / self._shift)
        places = np.rint(_PLACES * (checked - 1)).astype(np.int64)
        scale = np.empty(checked)
        gap = recursion.scaled(_FITTED @ needed[places], needed, scale)
        added *= np.exp(scale + (gap + _ROUNDING))
        # the kinks after this much was added, up to where the function is low; continued from there
        low = self._tail.low
        end, kinks, value, before = recursion.taken(self._kinks, added, self._step, low, 1 + _ROUNDING)
        if not (kinks[:end] > 0).all():
            raise NotSmoothError
        self._continue(kinks[:end], value, before)
        self.answers += 1

    def _most(self, curvature: float, steepest: float) -> np.ndarray:
        """Log M at this curvature: between two of them, where it lies below the chord of its logs."""
        high, low, highest = self._narrow
        if not (low <= curvature <= high and steepest <= highest):
            if low * _APART <= curvature <= low and _MILDER * highest <= steepest <= highest:
                high, polynomial = low, self._ends[1]
            else:
                high, highest = curvature * 1.0001, steepest * 1.01
                polynomial = self._envelope.polynomial(high, highest)
            low = high * _APART
            self._ends = [polynomial, self._envelope.polynomial(low, highest)]
            self._narrow = high, low, highest
        share = (high - curvature) / (high - low)
        return (1 - share) * self._ends[0] + share * self._ends[1]

    def _continue(self, kinks: np.ndarray, value: float, before: float) -> None:
        """Add kinks beyond the last; the floor takes the rest of the function's value and slope."""
        logs = np.log(kinks[-3:])
        bend = min(logs[2] - 2 * logs[1] + logs[0], 0.0)
        k = self._further
        values = np.exp(logs[2] + k * (logs[2] - logs[1] + bend / 2 + k * (bend / 2)))
        if values[-1] < _TINY:
            raise NotSmoothError
        self._kinks = np.concatenate([kinks, values])
        weight = float(values @ self._lower)
        slope = (before - value) / -math.expm1(-self._step)
        self._floor += value + max(0.0, slope - weight) + self._envelope.extra

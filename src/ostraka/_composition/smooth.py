"""Many answers: a smooth bound of w that is carried from answer to answer, and checked at each.

The bound is a number (the floor) plus the convex function with kinks G on the grid. Which kinks come next
is a guess: G averaged over neighbours, scaled by a smooth factor. The guess counts only after it was raised
until it exceeds what any pair can add, by :class:`Envelope`, at every point. See docs/composition.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ostraka._composition.envelope import Envelope, NotSmoothError
from ostraka._composition.kernels import boxed, function, lacking, scaled, shape, taken

__all__ = ["Smooth", "Tail"]

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
        self._fit(values, finer)

    def values(self) -> np.ndarray:
        """The bound at 0, step, 2 step, ..."""
        found = np.zeros(self._kinks.size)
        function(self._kinks, self._step, found)
        return (found + self._floor) * (1 + _ROUNDING)

    def advance(self) -> None:
        """One more answer."""
        logs = np.log(self._kinks)
        checked = logs.size - _BOXES * self._half - 2
        bent, steepest, mildest = shape(logs, self._step)
        curvature = -(bent + 1e-13) * (self._shift / self._step) ** 2
        if not (curvature > 0 and mildest <= 0):
            raise NotSmoothError
        added = self._guess(checked)
        needed = np.log(added)
        most = self._most(curvature, -steepest * self._shift)
        lacking(logs, needed, self._step, most, self._narrow[2] / self._shift)
        few = np.rint(_PLACES * (checked - 1)).astype(np.int64)
        scale = np.empty(checked)
        gap = scaled(_FITTED @ needed[few], needed, scale)
        added *= np.exp(scale + (gap + _ROUNDING))
        self._take(added)
        self.answers += 1

    def _guess(self, checked: int) -> np.ndarray:
        """Kinks averaged over neighbours, as even functions of x."""
        n = self._kinks.size
        if self._roots.size < n:
            self._roots = np.exp(np.arange(2 * n) * self._step / 2)
        return np.asarray(boxed(self._kinks, self._roots, self._half, checked))

    def _most(self, curvature: float, steepest: float) -> np.ndarray:
        """Log M at this curvature: between two of them, where it lies below the chord of its logs."""
        high, low, most = self._narrow
        if not (low <= curvature <= high and steepest <= most):
            if low * _APART <= curvature <= low and _MILDER * most <= steepest <= most:
                high, known = low, self._ends[1]
            else:
                high, most = curvature * 1.0001, steepest * 1.01
                known = self._envelope.polynomial(high, most)
            low = high * _APART
            self._ends = [known, self._envelope.polynomial(low, most)]
            self._narrow = high, low, most
        share = (high - curvature) / (high - low)
        return (1 - share) * self._ends[0] + share * self._ends[1]

    def _take(self, added: np.ndarray) -> None:
        """The kinks after this much was added, up to where the function is low; continued from there."""
        end, kinks, value, before = taken(self._kinks, added, self._step, self._tail.low, 1 + _ROUNDING)
        if not (kinks[:end] > 0).all():
            raise NotSmoothError
        self._continue(kinks[:end], value, before)

    def _continue(self, kinks: np.ndarray, value: float, before: float) -> None:
        """Add kinks beyond the last; the floor takes the rest of the function's value and slope."""
        logs = np.log(kinks[-3:])
        bend = min(logs[2] - 2 * logs[1] + logs[0], 0.0)
        k = self._further
        more = np.exp(logs[2] + k * (logs[2] - logs[1] + bend / 2 + k * (bend / 2)))
        if more[-1] < _TINY:
            raise NotSmoothError
        self._kinks = np.concatenate([kinks, more])
        weight = float(more @ self._lower)
        slope = (before - value) / -math.expm1(-self._step)
        self._floor += value + max(0.0, slope - weight) + self._envelope.extra

    def _fit(self, values: np.ndarray, finer: int) -> None:
        """Smooth kinks whose function lies above these values and the chords between them."""
        step, kinks = self._step * finer, _kinks(values, self._step * finer)
        end = int((values > self._tail.fitted).sum())
        logs = np.log(np.maximum(kinks, 1e-300)) - np.arange(kinks.size) * step / 2  # even in x
        width = int(1.5 * self._shift / step)
        window = np.hanning(2 * width + 1) / width
        logs = np.correlate(np.concatenate([logs[width:0:-1], logs]), window, "valid")[:end]
        found = np.linalg.lstsq(np.vander(np.linspace(0, 1, end) ** 2, _FIT), logs, rcond=None)[0]
        last = (end - 1) * finer
        place = np.linspace(0, 1, last + 1)
        self._floor = 0.0
        self._continue(np.exp(np.polyval(found, place**2) + place * (end - 1) * step / 2), 0.0, 0.0)
        self._floor = float(values[end - 1])
        odds = np.exp(place * (end - 1) * step)
        above = np.interp(odds, odds[::finer], values[:end]) * (1 + _ROUNDING) - self._floor
        reached = np.zeros(self._kinks.size)
        function(self._kinks, self._step, reached)
        self._kinks *= float((above[:last] / reached[:last]).max()) * (1 + _ROUNDING)


def _kinks(values: np.ndarray, step: float) -> np.ndarray:
    """The kinks of a function that is symmetric as families are, at all points but the last."""
    ratio = math.exp(step)
    grown = np.diff(np.concatenate([[-math.expm1(-step) + values[1] / ratio], values]))
    return np.asarray((grown[1:] - ratio * grown[:-1]) / math.expm1(step))

"""Exact draws of noisy answers: rounding errors never change an answer.

Noise comes from 64 random bits each, as a float and a bound on its error. Where the bounds of several
counts overlap, about once in 2^40 answers, more bits are drawn until they do not (``_quantile``). So
every outcome has exactly the probability that real-valued noise gives it: docs/record/floating-point.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.mechanisms.discrete import GAUSSIAN as GAUSSIAN  # noqa: PLC0414  (read from here)
from ostraka.core.mechanisms.discrete import LAPLACE as LAPLACE  # noqa: PLC0414  (read from here)
from ostraka.core.mechanisms.discrete import Noise
from ostraka.core.randomness import further, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.core.mechanisms.discrete import End

_EXTREME = 1e150  # beyond, noise or counts may leave the range of float64
_ROUNDING = 2.0**-50  # as in _draws


def largest(counts: np.ndarray, *, kind: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """The class whose count is largest after noise on every count; int64 of shape (n_queries,)."""
    from ostraka.core.kernels import draws  # noqa: PLC0415  (compiled code, loaded when needed)

    counts, bits = counts.copy(), words(rng, counts.shape)  # kernels are compiled for arrays that may change
    noise = _noise(bits, kind)
    winners, sure = np.empty(len(counts), dtype=np.int64), np.empty(len(counts), dtype=np.bool_)
    draws.largest(counts, noise, scale, _doubt(scale), winners, sure)
    if sure.all():
        return winners
    for row in np.flatnonzero(~sure).tolist():
        # the classes that may win: those with unknown noise, and those which no other certainly beats
        going = np.arange(counts.shape[1])
        if scale < _EXTREME and np.abs(counts[row]).max() < _EXTREME:
            gap = counts[row] - counts[row].max()
            y, e = gap + scale * noise[row], _doubt(scale) - _ROUNDING * gap
            going = np.flatnonzero(np.isnan(y) | (y + e >= np.fmax.reduce(y - e, initial=-math.inf)))
        noises = _noises(kind, bits[row, going].tolist(), further(rng, row))
        winners[row] = going[settled_largest(counts[row, going].tolist(), scale, noises)]
    return winners


def reaches(counts: np.ndarray, at: float, *, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Whether any count reaches ``at`` after Gaussian noise on every one; bool of shape (n_queries,)."""
    from ostraka.core.kernels import draws  # noqa: PLC0415

    counts, bits = counts.copy(), words(rng, counts.shape)
    noise = _noise(bits, GAUSSIAN)
    passes, sure = np.empty(len(counts), dtype=np.bool_), np.empty(len(counts), dtype=np.bool_)
    draws.above(counts, noise, scale, _doubt(scale), at, passes, sure)
    if sure.all():
        return passes
    for row in np.flatnonzero(~sure).tolist():
        # the counts that may reach the threshold: those which are not certainly below it
        going, gap = np.arange(counts.shape[1]), counts[row] - at
        if scale < _EXTREME and np.abs(gap).max() < _EXTREME:
            y, e = gap + scale * noise[row], _doubt(scale) + _ROUNDING * np.abs(gap)
            going = np.flatnonzero(~(y < -e))
        noises = _noises(GAUSSIAN, bits[row, going].tolist(), further(rng, row))
        passes[row] = settled_reaches(counts[row, going].tolist(), at, scale, noises)
    return passes


def noisy_floor(place: Fraction, *, scale: Fraction, grid: Fraction, rng: np.random.Generator) -> int:
    """Return the largest whole n with n grid <= place + Gaussian noise; only n is released."""
    (noise,) = _noises(GAUSSIAN, words(rng, (1,)).tolist(), further(rng, 0))
    while True:
        low, high = (
            (math.floor(end / grid) if math.isfinite(end) else None) for end in _ends(place, scale, noise)
        )
        if low == high and low is not None:
            return low
        noise.refine()


def settled_largest(counts: Sequence[float], scale: float, noises: Sequence[Noise]) -> int:
    """Return the class of the largest noisy count; draw more bits until it is decided."""
    places, exact_scale = [Fraction(count) for count in counts], Fraction(scale)
    going = list(range(len(counts)))
    while True:
        ends = {k: _ends(places[k], exact_scale, noises[k]) for k in going}
        bar = max(low for low, _ in ends.values())
        going = [k for k, (_, high) in ends.items() if high >= bar]
        if len(going) == 1:
            return going[0]
        for k in going:
            noises[k].refine()


def settled_reaches(counts: Sequence[float], at: float, scale: float, noises: Sequence[Noise]) -> bool:
    """Return whether any noisy count reaches ``at``; draw more bits until it is decided."""
    going = [(Fraction(count) - Fraction(at), noise) for count, noise in zip(counts, noises, strict=True)]
    while going:
        ends = [_ends(place, Fraction(scale), noise) for place, noise in going]
        if any(low >= 0 for low, _ in ends):
            return True
        going = [count for count, (_, high) in zip(going, ends, strict=True) if high >= 0]
        for _, noise in going:
            noise.refine()
    return False


def _noise(bits: np.ndarray, kind: int) -> np.ndarray:
    from ostraka.core.kernels import draws  # noqa: PLC0415

    noise = np.empty(bits.shape)
    draws.sizes(bits.ravel(), draws.table(kind), noise.ravel())  # views
    return noise


def _doubt(scale: float) -> float:
    """Bound the error of scale times noise: twice the proved bound, plus the loss of subnormal numbers."""
    return max(scale * 2.0**-40, 1e-290) if scale < _EXTREME else math.inf


def _noises(kind: int, bits: Sequence[int], source: Callable[[], int]) -> list[Noise]:
    return [Noise(kind, word, source) for word in bits]


def _ends(place: Fraction, scale: Fraction, noise: Noise) -> tuple[End, End]:
    low, high = noise.ends()
    return place + scale * low, place + scale * high

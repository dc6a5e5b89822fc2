"""The outcome laws that a curve records, so that many releases compose exactly.

Finite sets of pairs of laws which dominate every pair that one answer can have.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erfcinv, erfinv

from ostraka.core import check as _check
from ostraka.core.laws.cover import EDGE, Grid, Pairs, argmax_pairs, plane_pairs, screen_pairs

ARGMAX, SCREEN, GAUSSIAN, PURE = "gaussian-argmax", "gaussian-screen", "gaussian", "pure"
BOUNDED_RANGE = "bounded-range"  # log P / Q lies in an interval of length ``size``
LAPLACE_COUNT = "laplace"  # one count which moves by ``size`` scales
NEAR_GAUSSIAN = "near-gaussian"  # dominated by a Gaussian, but for 2^-98
_BEYOND = 2.0**-98
_LARGEST_SHIFT, _LARGEST_RANGE = 0.16, 0.5
_SAMPLED = "sampled-gaussian "  # followed by the rate in hexadecimal
_RESPONSE = "response "  # followed by the number of classes, 3 or more; with 2 it is PURE
_MOST_CLASSES = 2**53
_OUTWARD = 1e-9


class Law(NamedTuple):
    """A family of outcome laws, and how often it was used.

    ``size`` is the shift of one noisy count in units of the noise (argmax, screen and Laplace), mu squared
    (Gaussian), epsilon (pure and response) or the length of the range (bounded range). All of it is public.
    """

    kind: str
    size: float
    uses: int = 1

    @classmethod
    def sampled(cls, rate: float, mu_squared: float) -> Law:
        """A Gaussian of this squared shift for a unit that takes part with probability ``rate``."""
        return cls(_SAMPLED + float(rate).hex(), mu_squared)

    @classmethod
    def response(cls, n_classes: int, epsilon: float) -> Law:
        """Randomised response."""
        return cls(PURE if n_classes == 2 else f"{_RESPONSE}{n_classes}", epsilon)

    @property
    def n_classes(self) -> int:
        """How many classes a response has; 2 stand for whatever is pure."""
        return int(self.kind.removeprefix(_RESPONSE)) if self.kind.startswith(_RESPONSE) else 2

    @property
    def is_pure(self) -> bool:
        """Whether it is one fixed pair with pure differential privacy of ``size``."""
        return self.kind in (PURE, LAPLACE_COUNT) or self.kind.startswith(_RESPONSE)

    @property
    def delta(self) -> float:
        """The delta of one use beside the Gaussian that dominates it otherwise."""
        return _BEYOND if self.kind == NEAR_GAUSSIAN else 0.0

    @property
    def is_sampled(self) -> bool:
        """Whether a unit takes part by chance."""
        return self.kind.startswith(_SAMPLED)

    @property
    def rate(self) -> float:
        """The probability with which a unit takes part."""
        return float.fromhex(self.kind.removeprefix(_SAMPLED)) if self.is_sampled else 1.0

    @property
    def mu_squared(self) -> float:
        """Squared shift of the Gaussian that dominates one use."""
        if self.kind == ARGMAX:
            return 2 * (self.size * self.size) * (1 + 1e-15)
        if self.kind == SCREEN:
            return self.size * self.size * (1 + 1e-15)
        if self.kind in (GAUSSIAN, NEAR_GAUSSIAN) or self.is_sampled:
            return self.size
        if self.kind == BOUNDED_RANGE:  # the most is a response of half of it: docs/composition.md
            return _of_pure(self.size / 2)
        return _of_pure(self.size) if self.is_pure else math.inf


@lru_cache(maxsize=1024)
def _of_pure(epsilon: float) -> float:
    """Squared shift mu^2 of the Gaussian that dominates randomised response, and so whatever is pure.

    Phi(-mu / 2) = 1 / (1 + e^epsilon), from the form that loses no digits.
    """
    if epsilon < 1:
        half = erfinv(math.tanh(epsilon / 2))
    else:
        half = erfcinv(2 * math.exp(-epsilon) / (1 + math.exp(-epsilon)))
    return float(8 * (half * (1 + _OUTWARD)) ** 2)


def check(law: Law) -> None:
    """Refuse numbers that no release has, as a record that was damaged or made by hand may have them.

    A kind that is not known is no error: it has no law here, so other bounds count.
    """
    _check.integer(least=1, uses=law.uses)
    if not law.size >= 0:
        raise ValueError(f"the size of a law must be >= 0 and not NaN, got {law.size!r}")
    _check_kind(law.kind)


@lru_cache(maxsize=1024)
def _check_kind(kind: str) -> None:
    if kind.startswith(_RESPONSE):
        number = kind.removeprefix(_RESPONSE)
        plain = number.isascii() and number.isdigit() and len(number) <= len(str(_MOST_CLASSES))
        if not (plain and 2 <= int(number) <= _MOST_CLASSES):
            raise ValueError(f"a response must have from 2 to 2^53 classes, got {number!r}")
    if kind.startswith(_SAMPLED):
        number = kind.removeprefix(_SAMPLED)
        try:
            rate = float.fromhex(number)
        except (ValueError, OverflowError):
            rate = math.nan
        if not 0 < rate <= 1 or number != rate.hex():
            raise ValueError(f"a sampling rate must be above 0 and at most 1, in hexadecimal, got {number!r}")


def added(first: tuple[Law, ...] | None, second: tuple[Law, ...] | None) -> tuple[Law, ...] | None:
    """All uses of both, sorted, Gaussians in one; None where either is not known."""
    if first is None or second is None:
        return None
    counts: dict[tuple[str, float], int] = {}
    for law in (*first, *second):
        counts[law.kind, law.size] = counts.get((law.kind, law.size), 0) + law.uses
    return tuple(Law(kind, size, count) for (kind, size), count in sorted(counts.items()) if count)


def composes(laws: tuple[Law, ...] | None) -> bool:
    """Whether following these may give less than their Rényi bounds. Laplace argmaxes alone never do."""
    return bool(laws) and any(law.kind != LAPLACE_COUNT for law in laws or ())


def begins(laws: tuple[Law, ...] | None) -> bool:
    """Whether an adaptive budget that begins with these follows them.

    They are Gaussians, argmaxes, screens and bounded ranges.

    With less noise other bounds allow more.
    """
    return bool(laws) and all(
        law.kind in (GAUSSIAN, NEAR_GAUSSIAN)
        or (law.kind in (ARGMAX, SCREEN) and law.mu_squared <= _LARGEST_SHIFT**2)
        or (law.kind == BOUNDED_RANGE and law.size <= _LARGEST_RANGE)
        for law in laws or ()
    )


SMALLEST_SHIFT, LARGEST_SHIFT = 1e-5, 0.45  # of t; outside, floats or the proof at the edge give out
SHORTEST_RANGE, LONGEST_RANGE = 1e-5, 4.0  # that are followed; beyond, other bounds are as good


def _knots(near: float, far: float) -> np.ndarray:
    """Knots on both sides of 0: so far apart up to 2 and up to 4.5, and 1 / 4 up to the edge."""
    half = np.concatenate([np.arange(0, 2, near), np.arange(2, 4.5, far), np.arange(4.5, EDGE + 0.1, 1 / 4)])
    return np.unique(np.concatenate([-half, half]))


# Fine where one answer tells most (t near 0, u near 1), coarse where it tells less anyway.
_LEFT, _RIGHT = (-1.5, 0.25), (1.5, 2.75)
_FINE = Grid(np.linspace(-1.5, 1.5, 97), np.linspace(0.25, 2.75, 51))
_FINER = _FINE._replace(left=(-0.75, 0.5), right=(0.75, 1.75))
_FINEST = Grid(np.linspace(-0.75, 0.75, 97), np.linspace(0.5, 1.75, 51))
_COARSE = Grid(
    _knots(1 / 16, 1 / 8),
    np.concatenate(
        [
            np.arange(-12.1, -3, 0.35),
            np.arange(-3, 0, 0.25),
            np.arange(0, 0.2, 0.125),
            np.arange(0.25, 2.8, 0.125),
            [2.9, 3.1, 3.4, 3.8, 4.3, 4.8, 5.4, 6.1, 6.8, 7.6, EDGE],
        ]
    ),
    _LEFT,
    _RIGHT,
)
_LINE, _THIN = _knots(1 / 64, 1 / 8), _knots(1 / 128, 1 / 16)


@lru_cache(maxsize=4)
def argmax_family(shift: float, *, finest: bool = False) -> Pairs:
    """One Gaussian argmax whose t moves by ``shift`` (one vote: sqrt 2 over sigma)."""
    fine = [plane_pairs(shift, grid) for grid in ((_FINER, _FINEST) if finest else (_FINE,))]
    return argmax_pairs(shift, [_coarse_pairs(shift), *fine], _LINE)


@lru_cache(maxsize=1)
def _coarse_pairs(shift: float) -> Pairs:
    return plane_pairs(shift, _COARSE)


@lru_cache(maxsize=4)
def screen_family(shift: float, *, finest: bool = False) -> Pairs:
    """One threshold with one Gaussian noise, moved by ``shift`` (one vote: one over sigma)."""
    return screen_pairs(shift, _THIN if finest else _LINE)

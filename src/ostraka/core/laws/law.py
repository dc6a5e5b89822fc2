"""The outcome laws that a curve records, so that many releases compose exactly."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from scipy.special import erfcinv, erfinv

from ostraka.core import check as _check

ARGMAX, SCREEN, GAUSSIAN, PURE = "gaussian-argmax", "gaussian-screen", "gaussian", "pure"
BOUNDED_RANGE = "bounded-range"  # log P / Q lies in an interval of length ``size``
LAPLACE_COUNT = "laplace"  # one count which moves by ``size`` scales
NEAR_GAUSSIAN = "near-gaussian"  # dominated by a Gaussian, but for 2^-98
_BEYOND = 2.0**-98
_LARGEST_SHIFT, _LARGEST_RANGE = 0.16, 0.5
_SAMPLED = "sampled-gaussian "  # followed by the rate in hexadecimal
_RESPONSE = "response "  # followed by the number of classes, 3 or more; with 2 it is PURE
MOST_CLASSES = 2**53
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
        plain = number.isascii() and number.isdigit() and len(number) <= len(str(MOST_CLASSES))
        if not (plain and 2 <= int(number) <= MOST_CLASSES):
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

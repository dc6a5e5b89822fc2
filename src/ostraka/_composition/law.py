"""The outcome laws that a curve records, so that many releases compose exactly."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ARGMAX", "GAUSSIAN", "PURE", "SCREEN", "Law", "added", "begins"]

ARGMAX, SCREEN, GAUSSIAN, PURE = "gaussian-argmax", "gaussian-screen", "gaussian", "pure"
_LARGEST_SHIFT = 0.16
_SAMPLED = "sampled-gaussian "  # followed by the rate in hexadecimal


class Law(NamedTuple):
    """A family of outcome laws, and how often it was used.

    ``size`` is the shift of one noisy count in units of the noise (argmax and screen), mu squared (Gaussian)
    or epsilon (pure). All of it is public.
    """

    kind: str
    size: float
    uses: int = 1

    @classmethod
    def sampled(cls, rate: float, mu_squared: float) -> Law:
        """A Gaussian of this squared shift for a unit that takes part with probability ``rate``."""
        return cls(_SAMPLED + float(rate).hex(), mu_squared)

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
        return self.size if self.kind == GAUSSIAN or self.is_sampled else float("inf")


def added(one: tuple[Law, ...] | None, two: tuple[Law, ...] | None) -> tuple[Law, ...] | None:
    """All uses of both, sorted, Gaussians in one; None where either is not known."""
    if one is None or two is None:
        return None
    counts: dict[tuple[str, float], int] = {}
    for law in (*one, *two):
        counts[law.kind, law.size] = counts.get((law.kind, law.size), 0) + law.uses
    return tuple(Law(kind, size, count) for (kind, size), count in sorted(counts.items()) if count)


def begins(laws: tuple[Law, ...] | None) -> bool:
    """Whether an adaptive budget that begins with these follows them: Gaussians, argmaxes and screens.

    With less noise other bounds allow more.
    """
    return bool(laws) and all(
        law.kind == GAUSSIAN or (law.kind in (ARGMAX, SCREEN) and law.mu_squared <= _LARGEST_SHIFT**2)
        for law in laws or ()
    )

"""What a curve remembers of a release, so that many of them compose exactly."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ARGMAX", "GAUSSIAN", "PURE", "SCREEN", "Law", "added"]

ARGMAX, SCREEN, GAUSSIAN, PURE = "gaussian-argmax", "gaussian-screen", "gaussian", "pure"


class Law(NamedTuple):
    """A family of outcome laws, and how often it was used.

    ``size`` is the shift of one noisy count in units of the noise (argmax and screen), mu squared (Gaussian)
    or epsilon (pure). All of it is public.
    """

    kind: str
    size: float
    uses: int = 1

    @property
    def mu_squared(self) -> float:
        """Squared shift of the Gaussian that dominates one use."""
        if self.kind == ARGMAX:
            return 2 * self.size**2 * (1 + 1e-15)
        if self.kind == SCREEN:
            return self.size**2 * (1 + 1e-15)
        return self.size if self.kind == GAUSSIAN else float("inf")


def added(one: tuple[Law, ...] | None, two: tuple[Law, ...] | None) -> tuple[Law, ...] | None:
    """All uses of both, sorted, Gaussians in one; None where either is not known."""
    if one is None or two is None:
        return None
    counts: dict[tuple[str, float], int] = {}
    for law in (*one, *two):
        counts[law.kind, law.size] = counts.get((law.kind, law.size), 0) + law.uses
    return tuple(Law(kind, size, count) for (kind, size), count in sorted(counts.items()) if count)

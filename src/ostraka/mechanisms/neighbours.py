"""Protocols of mechanisms that know all neighbours of votes, or are asked about votes less guesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["HasNeighbours", "Neighbours", "Shifted", "unshifted"]


class Neighbours(Protocol):
    """All neighbours of each row of counts: each moves one ballot. Private, as the counts are."""

    def distinct(self) -> tuple[Neighbours, np.ndarray]:
        """The same of rows that differ, and which of them each row is: equal rows have equal laws."""
        ...

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Largest Rényi divergence, in either direction, shape (n_queries, n_orders), nats."""
        ...

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of each query all pairs of laws (p, q), each followed or preceded by (q, p): log q and log p / q.

        Both of shape (n_pairs, n_outcomes). The first half of the rows compares neighbours with the
        counts, the second half the counts with neighbours.
        """
        ...


@runtime_checkable
class HasNeighbours(Protocol):
    """A ballot mechanism which knows a faster way to all neighbours than enumerating them."""

    def neighbours(self, counts: np.ndarray, *, relation: str) -> Neighbours:
        """All neighbours of each row of counts."""
        ...


@runtime_checkable
class Shifted(Protocol):
    """Asks its inner mechanism about counts minus something public."""

    @property
    def mechanism(self) -> BallotMechanism:
        """The inner mechanism."""
        ...

    def difference(self, counts: np.ndarray) -> np.ndarray:
        """What the inner mechanism is asked about."""
        ...


def unshifted(screen: BallotMechanism, counts: np.ndarray) -> tuple[BallotMechanism, np.ndarray]:
    """Return the screen itself and what it looks at: the counts, or their difference from guesses."""
    if isinstance(screen, Shifted):
        return screen.mechanism, screen.difference(counts)
    return screen, counts

"""All neighbours of votes: compiled for a screen and an argmax, by enumeration for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka import _check
from ostraka.mechanisms import _neighbours, outcome
from ostraka.mechanisms._divergence import largest_divergence
from ostraka.mechanisms.neighbours import HasNeighbours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["NO_ARGMAX", "NO_SCREEN", "SCREEN_ANY", "SCREEN_MAX", "Compiled", "Enumerated", "neighbours"]

NO_ARGMAX = (-1, 1.0)
NO_SCREEN = (_neighbours.NO_SCREEN, 0.0, 1.0)
SCREEN_MAX, SCREEN_ANY = _neighbours.SCREEN_MAX, _neighbours.SCREEN_ANY
_RELATIONS = ("replace-one", "add-or-remove")  # of ballots
_IMPOSSIBLE = -1e300  # a log probability below this is that of an outcome that never comes


def neighbours(mechanism: BallotMechanism, counts: np.ndarray, *, relation: str) -> Neighbours:
    """Return all neighbours of each row of counts: the mechanism's own way, or by enumeration."""
    if isinstance(mechanism, HasNeighbours):
        return mechanism.neighbours(counts, relation=relation)
    return Enumerated(mechanism, counts, relation=relation)


class Compiled:
    """Neighbours of a screen, an argmax, or both: read off the law of the counts."""

    def __init__(
        self,
        counts: np.ndarray,
        *,
        relation: str,
        seen: np.ndarray | None = None,
        argmax: tuple[int, float] = NO_ARGMAX,
        screen: tuple[int, float, float] = NO_SCREEN,
    ) -> None:
        """``argmax`` is (noise, scale), ``screen`` (kind, threshold, sigma); ``seen`` by the screen."""
        _check.one_of(relation=relation, allowed=_RELATIONS)
        self._counts, self._seen = counts, counts if seen is None else seen
        self._argmax, self._screen, self._relation = argmax, screen, relation

    def distinct(self) -> tuple[Compiled, np.ndarray]:
        """The same of rows that differ in counts or in what the screen sees, and which each row is."""
        both, places = np.unique(np.hstack([self._counts, self._seen]), axis=0, return_inverse=True)
        counts, seen = (np.ascontiguousarray(part) for part in np.hsplit(both, [self._counts.shape[1]]))
        rows = Compiled(counts, relation=self._relation, argmax=self._argmax, screen=self._screen, seen=seen)
        return rows, places.ravel()

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Largest Rényi divergence of each query, shape (n_queries, n_orders)."""
        out = np.empty((len(self._counts), orders.size))

        def work(rows: slice) -> None:
            _neighbours.costs(
                self._counts[rows],
                self._seen[rows],
                self._argmax,
                self._screen,
                orders,
                out[rows],
                replace=self._relation == "replace-one",
            )

        outcome.in_chunks(work, len(self._counts))
        return out

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of each query all pairs of laws."""
        for counts, seen in zip(self._counts, self._seen, strict=True):
            replace = self._relation == "replace-one"
            log_q, lam = _neighbours.pairs(counts, seen, self._argmax, self._screen, replace=replace)
            yield np.concatenate([log_q[::2], log_q[1::2]]), np.concatenate([lam[::2], lam[1::2]])


class Enumerated:
    """Neighbours of any ballot mechanism, from outcome probabilities at every one of them."""

    def __init__(self, mechanism: BallotMechanism, counts: np.ndarray, *, relation: str) -> None:
        if mechanism.promise.at_most != 1:
            raise ValueError(f"exact costs by enumeration are for ballots that weigh 1, got {mechanism!r}")
        _check.one_of(relation=relation, allowed=_RELATIONS)
        self._mechanism, self._counts, self._relation = mechanism, counts, relation

    def distinct(self) -> tuple[Enumerated, np.ndarray]:
        """The same of rows that differ, and which of them each row is."""
        counts, places = np.unique(self._counts, axis=0, return_inverse=True)
        return Enumerated(self._mechanism, counts, relation=self._relation), places.ravel()

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Largest Rényi divergence of each query, shape (n_queries, n_orders)."""
        out = np.zeros((len(self._counts), orders.size))
        for row, (log_q, lam) in zip(out, self.pairs(), strict=True):
            if np.isinf(lam).any():
                row[:] = np.inf
            elif len(lam):
                largest_divergence(log_q, lam, orders, row)
        return out

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of each query all pairs of laws."""
        for own in self._counts:
            near = own + _moves(own, self._relation)
            here = np.repeat(self._mechanism.log_outcomes(own[None, :]), len(near), axis=0)
            there = self._mechanism.log_outcomes(near) if len(near) else here
            both = [_pair(there, here), _pair(here, there)]
            log_q, lam = (np.ascontiguousarray(np.concatenate(part)) for part in zip(*both, strict=True))
            yield log_q, lam


def _moves(counts: np.ndarray, relation: str) -> np.ndarray:
    """Return every change that one ballot can make to a query's counts, one per row."""
    one = np.eye(len(counts))
    gives = np.flatnonzero(counts >= 1.0)
    if relation == "replace-one":
        moves = [one[j] - one[i] for i in gives for j in range(len(counts)) if i != j]
        return np.array(moves).reshape(-1, len(counts))
    return np.concatenate([one, -one[gives]])


def _pair(log_p: np.ndarray, log_q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log q and log(p / q), which is infinite where only p is possible."""
    never_q, never_p = log_q < _IMPOSSIBLE, log_p < _IMPOSSIBLE
    with np.errstate(invalid="ignore"):
        lam = np.where(never_q, np.where(never_p, 0.0, np.inf), log_p - log_q)
    return np.where(never_q, -np.inf, log_q), lam

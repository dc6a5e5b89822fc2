"""All neighbours of votes: compiled for a screen and an argmax, by enumeration for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ostraka.core import check
from ostraka.core.kernels import neighbours as _neighbours
from ostraka.core.kernels import outcome
from ostraka.core.kernels.neighbours import largest_divergence
from ostraka.core.mechanisms.law import law
from ostraka.core.numeric import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.core.mechanisms.law import BallotMechanism

NO_ARGMAX = (-1, 1.0)
NO_SCREEN = (_neighbours.NO_SCREEN, 0.0, 1.0)
_RELATIONS = ("replace-one", "add-or-remove")  # of ballots
_IMPOSSIBLE = -1e300  # a log probability below this is that of an outcome that never comes


class Neighbours(Protocol):
    """All neighbours of each row of counts: each moves one ballot. Private, as the counts are."""

    def distinct(self) -> tuple[Neighbours, np.ndarray]:
        """The same of rows that differ, and which of them each row is: equal rows have equal laws."""
        ...

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Largest Rényi divergence, in either direction, shape (n_queries, n_orders), nats."""
        ...

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each query, all pairs of laws (p, q), each beside (q, p), as log q and log p / q.

        Both of shape (n_pairs, n_outcomes). The first half of the rows compares neighbours with the
        counts, the second half the counts with neighbours.
        """
        ...


def neighbours(mechanism: BallotMechanism, counts: np.ndarray, *, relation: str) -> Neighbours:
    """Return all neighbours of each row of counts: compiled where the noise is known, else by enumeration."""
    check.one_of(relation=relation, allowed=_RELATIONS)
    stages = law(mechanism).stages
    weight = stages[0].weight
    screen, argmax = ([part for part in stages if part.passes is passes] for passes in (True, False))
    compiled = len(screen) < 2 and all(part.bar if part.passes else part.noise for part in stages)
    if not compiled or any(part.offset is not None for part in argmax):
        return Enumerated(mechanism, counts, relation=relation, weight=weight)
    screened = counts
    noise, bar = NO_ARGMAX, NO_SCREEN
    for part in screen:
        kind, at, sigma = part.bar or NO_SCREEN
        screened, bar = part.shown(counts), (kind, at / weight, sigma / weight)
    for part in argmax:
        kind, scale = part.noise or NO_ARGMAX
        noise = kind, scale / weight
    votes = counts if weight == 1 else counts / weight
    screened_votes = votes if screened is counts else screened / weight
    return Compiled(votes, relation=relation, screened=screened_votes, argmax=noise, screen=bar)


class Compiled:
    """Neighbours of a screen, an argmax, or both: read off the law of the counts."""

    def __init__(
        self,
        counts: np.ndarray,
        *,
        relation: str,
        screened: np.ndarray | None = None,
        argmax: tuple[int, float] = NO_ARGMAX,
        screen: tuple[int, float, float] = NO_SCREEN,
    ) -> None:
        """``argmax`` is (noise, scale), ``screen`` (kind, threshold, sigma); ``screened`` what it sees."""
        self._counts, self._screened = counts, counts if screened is None else screened
        self._argmax, self._screen, self._relation = argmax, screen, relation

    def distinct(self) -> tuple[Compiled, np.ndarray]:
        """The same of rows that differ in counts or in what the screen sees, and which each row is."""
        alone = self._screened is self._counts
        table, places = distinct(self._counts if alone else np.hstack([self._counts, self._screened]))
        counts, *screened = (
            np.ascontiguousarray(part) for part in np.split(table, [self._counts.shape[1]], axis=1)
        )
        rows = Compiled(
            counts,
            relation=self._relation,
            screened=None if alone else screened[0],
            argmax=self._argmax,
            screen=self._screen,
        )
        return rows, places

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Largest Rényi divergence of each query, shape (n_queries, n_orders)."""
        out = np.zeros((len(self._counts), orders.size))

        def work(rows: slice) -> None:
            for row, (log_q, lam) in zip(out[rows], self._laws(rows), strict=True):
                if len(lam):
                    largest_divergence(log_q, lam, orders, row)

        outcome.in_chunks(work, len(self._counts))
        return out

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each query, all pairs of laws."""
        for log_q, lam in self._laws(slice(None)):
            yield np.concatenate([log_q[::2], log_q[1::2]]), np.concatenate([lam[::2], lam[1::2]])

    def _laws(self, rows: slice) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, each pair beside its reverse."""
        replace = self._relation == "replace-one"
        for counts, screened in zip(self._counts[rows], self._screened[rows], strict=True):
            yield _neighbours.pairs(counts, screened, self._argmax, self._screen, replace=replace)


class Enumerated:
    """Neighbours of any ballot mechanism, from outcome probabilities at every one of them."""

    def __init__(
        self, mechanism: BallotMechanism, counts: np.ndarray, *, relation: str, weight: float = 1.0
    ) -> None:
        if mechanism.promise.at_most != weight:
            raise ValueError(f"exact costs by enumeration are for ballots that weigh 1, got {mechanism!r}")
        self._mechanism, self._counts, self._relation = mechanism, counts, relation
        self._weight = weight

    def distinct(self) -> tuple[Enumerated, np.ndarray]:
        """The same of rows that differ, and which of them each row is."""
        counts, places = distinct(self._counts)
        return Enumerated(self._mechanism, counts, relation=self._relation, weight=self._weight), places

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
        """For each query, all pairs of laws."""
        for votes in self._counts:
            # every change that one ballot can make to a query's counts, one per row
            units = np.eye(len(votes))
            gives = np.flatnonzero(votes / self._weight >= 1.0)
            if self._relation == "replace-one":
                moves = [units[j] - units[i] for i in gives for j in range(len(votes)) if i != j]
                near = votes + self._weight * np.array(moves).reshape(-1, len(votes))
            else:
                near = votes + self._weight * np.concatenate([units, -units[gives]])
            law_of_votes = np.repeat(self._mechanism.log_outcomes(votes[None, :]), len(near), axis=0)
            laws_of_near = self._mechanism.log_outcomes(near) if len(near) else law_of_votes
            directions = [_pair(laws_of_near, law_of_votes), _pair(law_of_votes, laws_of_near)]
            log_q, lam = (
                np.ascontiguousarray(np.concatenate(part)) for part in zip(*directions, strict=True)
            )
            yield log_q, lam


def _pair(log_p: np.ndarray, log_q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log q and log(p / q), which is infinite where only p is possible."""
    never_q, never_p = log_q < _IMPOSSIBLE, log_p < _IMPOSSIBLE
    with np.errstate(invalid="ignore"):
        lam = np.where(never_q, np.where(never_p, 0.0, np.inf), log_p - log_q)
    return np.where(never_q, -np.inf, log_q), lam

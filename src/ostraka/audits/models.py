"""Models of the votes on one query, in the worlds with and without a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka import _check
from ostraka.audits._mixture import gaussian_argmax_law
from ostraka.audits.paired import bound_pairs
from ostraka.curve import ORDERS
from ostraka.mechanisms._noise import GAUSSIAN
from ostraka.mechanisms.protocols import HasArgmaxKernel
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from ostraka.audits.bounds import RenyiBound
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["VoteModel"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class VoteModel:
    """The votes on one query in two worlds: a part that both share, and the target's part.

    ``fixed + Mult(n, law) + one ballot of each party`` is shared. To it comes one row of ``moves``: with
    probabilities ``present`` in the world with the target, and ``absent`` in the world without.

    Attributes
    ----------
    n : int
        Teachers who vote by ``law``, independently.
    law : array of shape (n_classes,)
    moves : integer array of shape (n_moves, n_classes), in votes
        What the target's part can be. Any two rows differ in one ballot at most.
    present, absent : arrays of shape (n_moves,)
    fixed : integer array of shape (n_classes,), in votes
        Ballots that are always the same.
    parties : array of shape (n_parties, n_classes)
        The law of each teacher who has one of their own.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> model = VoteModel.random_shards([0.6, 0.4], [0.1, 0.9], n_teachers=20)
    >>> with_target, without = model.outcome_laws(GNMax(sigma=4.0))
    >>> with_target.round(3), without.round(3)
    (array([0.664, 0.336]), array([0.712, 0.288]))
    """

    n: int
    law: np.ndarray
    moves: np.ndarray
    present: np.ndarray
    absent: np.ndarray
    fixed: np.ndarray
    parties: np.ndarray

    @classmethod
    def random_shards(cls, law: Any, one: Any, *, n_teachers: int) -> Self:
        """PATE: all rows are dealt anew. ``one``: law of the teacher whose shard holds the target.

        Source: Chadha et al. 2024, arXiv:2402.09403, section 5.1.
        """
        _check.integer(n_teachers=n_teachers, least=1)
        absent, present = _law(law), _law(one)
        n_classes = absent.size
        return cls(
            n=n_teachers - 1,
            law=absent,
            moves=np.eye(n_classes, dtype=np.int64),
            present=present,
            absent=absent,
            fixed=np.zeros(n_classes, dtype=np.int64),
            parties=np.empty((0, n_classes)),
        )

    @classmethod
    def fixed_parties(cls, laws: Any, one: Any, *, party: int = 0) -> Self:
        """CaPC: every party keeps its rows. ``one``: law of the party who also holds the target.

        Source: Chadha et al. 2024, arXiv:2402.09403, section 5.2.
        """
        each = np.array([_law(law) for law in laws])
        others = np.delete(each, party, axis=0)
        sure = others.max(axis=1) == 1
        return cls(
            n=0,
            law=np.full(each.shape[1], 1 / each.shape[1]),
            moves=np.eye(each.shape[1], dtype=np.int64),
            present=_law(one),
            absent=each[party],
            fixed=others[sure].sum(axis=0).astype(np.int64),
            parties=others[~sure],
        )

    @classmethod
    def neighbours(cls, law: Any, last: Any, *, n_neighbours: int, label: int, reached: float) -> Self:
        """Private-kNN as modelled: the target, where it is ``reached``, takes the last neighbour's place.

        ``law``, ``last``: of the labels of all neighbours, and of the last. A count can fall to -1 in the
        model, and never in the system. Source: Chadha et al. 2024, arXiv:2402.09403, section 6.
        """
        base, leaving = _law(law), _law(last)
        one = np.eye(base.size, dtype=np.int64)
        return cls(
            n=n_neighbours,
            law=base,
            moves=np.vstack([np.zeros((1, base.size), dtype=np.int64), one[label] - one]),
            present=np.concatenate([[1 - reached], reached * leaving]),
            absent=np.eye(1 + base.size)[0],
            fixed=np.zeros(base.size, dtype=np.int64),
            parties=np.empty((0, base.size)),
        )

    def has_outcome_laws(self, mechanism: BallotMechanism) -> bool:
        """Whether :meth:`outcome_laws` knows the laws of this mechanism's answers."""
        return not len(self.parties) and _gaussian_noise(mechanism) is not None

    def outcome_laws(self, mechanism: BallotMechanism) -> tuple[np.ndarray, np.ndarray]:
        """Probability of each answer with and without the target, all randomness integrated out.

        Raises
        ------
        ValueError
            Parties with random ballots of their own, or another mechanism: :meth:`lower_bound` draws votes
            instead.
        """
        sigma = _gaussian_noise(mechanism)
        if sigma is None or not self.has_outcome_laws(mechanism):
            raise ValueError(
                "the exact law must be that of an argmax with Gaussian noise, such as GNMax, without parties "
                "whose ballots are random"
            )
        used = (self.present > 0) | (self.absent > 0)
        laws = gaussian_argmax_law(self.n, self.law, self.fixed + self.moves[used], sigma=sigma)
        return self.present[used] @ laws, self.absent[used] @ laws

    def draw(self, *, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Independent draws of the part that both worlds share, (n_draws, n_classes), in votes."""
        votes = self.fixed + rng.multinomial(self.n, self.law, size=n_draws)
        for law in np.cumsum(self.parties, axis=1):
            chosen = np.searchsorted(law[:-1], rng.random(n_draws), side="right")
            votes[np.arange(n_draws), chosen] += 1
        return votes

    def worlds(self, *, n_draws: int, rng: np.random.Generator) -> tuple[Private, Private]:
        """Pairs of votes, with and without the target, that share all but its part."""
        shared, chance = self.draw(n_draws=n_draws, rng=rng), rng.random(n_draws)
        present, absent = (
            shared + self.moves[np.searchsorted(np.cumsum(w)[:-1], chance, side="right")]
            for w in (self.present, self.absent)
        )
        return Private(present, Adjacency.one_ballot()), Private(absent, Adjacency.one_ballot())

    def lower_bound(
        self,
        mechanism: BallotMechanism,
        *,
        n_draws: int = 10_000,
        orders: tuple[float, ...] = ORDERS,
        confidence: float = 0.95,
        rng: np.random.Generator,
    ) -> RenyiBound:
        """Lower bound for one answer from draws of the shared part; the target's part is integrated out.

        The guarantee is that of pairs in :func:`votes_lower_bound`, and holds for the model.
        """
        if np.array_equal(self.present, self.absent):
            n_draws = min(n_draws, 10)  # nothing to see
        shared = self.draw(n_draws=n_draws, rng=rng)
        used = np.flatnonzero((self.present > 0) | (self.absent > 0))
        laws = [np.exp(mechanism.log_outcomes(shared + self.moves[move])) for move in used]
        worlds = [np.tensordot(w[used], laws, axes=1) for w in (self.present, self.absent)]
        reach = mechanism.curve().delta(0.0)
        return bound_pairs(*worlds, reach=reach, orders=orders, confidence=confidence)


def _gaussian_noise(mechanism: BallotMechanism) -> float | None:
    """Sigma in votes, of an argmax of counts with Gaussian noise; else None."""
    kind, scale = mechanism.argmax_kernel if isinstance(mechanism, HasArgmaxKernel) else (None, 0.0)
    return scale if kind == GAUSSIAN else None


def _law(values: Any) -> np.ndarray:
    law = np.asarray(values, dtype=np.float64)
    if law.ndim != 1 or not (law >= 0).all() or not abs(law.sum() - 1) <= 1e-9:
        raise ValueError(f"a law must be probabilities that sum to 1, got shape {law.shape}")
    return np.asarray(law / law.sum())

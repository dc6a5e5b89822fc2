"""Weighted: a mechanism for ballots whose weight is not one vote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ostraka import _check
from ostraka.mechanisms.protocols import (
    abstains,
    check_ballot,
    classic_curve,
    gradient,
    passes_or_stops,
    rescaled,
)

if TYPE_CHECKING:
    import numpy as np

    from ostraka.curve import Curve
    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.private import Adjacency, Private

__all__ = ["Weighted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A ballot mechanism for teachers whose votes have weights of at most ``weight``.

    Noise and threshold stay in units of the counts. Dividing counts, noise and threshold by one number
    changes no answer: a ballot of weight w under noise sigma is a ballot of weight 1 under sigma / w.
    So every price and every exact cost is that of the mechanism scaled down, and no formula is new.

    Attributes
    ----------
    mechanism : GNMax, LNMax, Threshold, or any ballot mechanism that offers ``rescaled``
        Noise (and threshold) in units of the weighted counts. Public.
    weight : float > 0
        The most that one ballot may count. Public, and so must be how it was chosen: weights learned
        from private data are private data.

    Raises
    ------
    ValueError
        ``weight`` not finite and positive, or a mechanism that is not about ballots (labels, say), or whose
        noise cannot be scaled.

    Guarantees
    ----------
    One moved ballot of weight at most ``weight`` costs at most ``curve()`` per answer; lighter ones cost
    no more (docs/proof.md, Lemma 3). The price is that of the mechanism in units of one ballot, so it
    follows from the mechanism's own promise, also of one that is weighted or subsampled itself.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> heavy = Weighted(mechanism=GNMax(sigma=80.0), weight=2.0)
    >>> heavy.curve() == GNMax(sigma=40.0).curve()
    True
    >>> heavy.per_ballot, heavy.scaled([[120.0, 60.0]])
    (GNMax(sigma=40.0), array([[60., 30.]]))
    """

    mechanism: BallotMechanism
    weight: float

    def __post_init__(self) -> None:
        _check.positive(weight=self.weight)
        self.per_ballot  # noqa: B018  (raises where a part of the mechanism cannot be scaled)
        check_ballot(self.mechanism)
        if self.mechanism.promise.moves != "ballot":
            raise ValueError(f"mechanism must hide a ballot, as GNMax(...) does, got {self.mechanism!r}")

    @property
    def promise(self) -> Adjacency:
        """One ballot may move, with a weight of at most ``weight``."""
        own = self.mechanism.promise
        return replace(own, at_most=own.at_most * self.weight)

    @property
    def passes_or_stops(self) -> bool:
        """The same as that of the inner mechanism."""
        return passes_or_stops(self.mechanism)

    @property
    def abstains(self) -> bool:
        """The same as that of the inner mechanism."""
        return abstains(self.mechanism)

    @property
    def per_ballot(self) -> BallotMechanism:
        """The inner mechanism in units of one ballot, which the price refers to."""
        return rescaled(self.mechanism, 1 / self.weight)

    def scaled(self, counts: Any) -> np.ndarray:
        """Weighted counts in units of one ballot, shape (n_queries, n_classes); private if the counts are."""
        return _check.counts(counts) / self.weight

    def curve(self, bound: Literal["tight", "classic"] = "tight") -> Curve:
        """Cost of one answer, whatever the votes: that of the mechanism in units of one ballot."""
        _check.one_of(bound=bound, allowed=("tight", "classic"))
        classic = self.classic_curve() if bound == "classic" else None
        return self.per_ballot.curve() if classic is None else classic

    def classic_curve(self) -> Curve | None:
        """``curve(bound="classic")``, if the mechanism offers it."""
        return classic_curve(self.per_ballot)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """The mechanism's own outcome law; counts are weighted."""
        return self.mechanism.log_outcomes(counts)

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each weighted count (last axis)."""
        return gradient(self.mechanism, _check.counts(counts))

    def neighbours(self, counts: np.ndarray, *, relation: str) -> Neighbours:
        """All neighbours of each row of counts, of ballots which all weigh ``weight``."""
        from ostraka.mechanisms import _costs  # noqa: PLC0415  (compiled code, loaded when needed)

        return _costs.neighbours(self.per_ballot, counts / self.weight, relation=relation)

    def rescaled(self, factor: float) -> Weighted:
        """The same in other units of votes."""
        return replace(self, mechanism=rescaled(self.mechanism, factor))

    def uses(self, private: Private) -> int:
        """The same as that of the inner mechanism."""
        return self.mechanism.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The mechanism's own answer."""
        return self.mechanism.release(private, rng=rng)

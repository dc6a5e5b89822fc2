"""Weighted: ballots that count for more than one vote, or for less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ostraka import _check
from ostraka.mechanisms.protocols import passes_or_stops

if TYPE_CHECKING:
    import numpy as np

    from ostraka.curve import Curve
    from ostraka.mechanisms.argmax import GNMax, LNMax
    from ostraka.mechanisms.screen import Threshold
    from ostraka.private import Adjacency, Private

__all__ = ["Weighted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A ballot mechanism for teachers whose vote counts ``weight``, or less.

    Noise and threshold stay in units of the counts. Dividing counts, noise and threshold by one number
    changes no answer: a ballot of weight w under noise sigma is a ballot of weight 1 under sigma / w.
    So every price and every exact cost is that of the mechanism scaled down, and no formula is new.

    Attributes
    ----------
    mechanism : GNMax, LNMax or Threshold
        Noise (and threshold) in units of the weighted counts. Public.
    weight : float > 0
        The most that one ballot may count. Public, and so must be how it was chosen: weights learned
        from private data are private data.

    Raises
    ------
    ValueError
        ``weight`` not finite and positive.

    Guarantees
    ----------
    One moved ballot of weight at most ``weight`` costs at most ``curve()`` per answer; lighter ones cost
    no more (docs/proof.md, Lemma 3).

    Examples
    --------
    >>> from ostraka import GNMax
    >>> heavy = Weighted(mechanism=GNMax(sigma=80.0), weight=2.0)
    >>> heavy.curve() == GNMax(sigma=40.0).curve()
    True
    >>> heavy.unit, heavy.scaled([[120.0, 60.0]])
    (GNMax(sigma=40.0), array([[60., 30.]]))
    """

    mechanism: GNMax | LNMax | Threshold
    weight: float

    def __post_init__(self) -> None:
        _check.positive(weight=self.weight)

    @property
    def promise(self) -> Adjacency:
        """A ballot that moves ``weight``."""
        own = self.mechanism.promise
        return replace(own, at_most=own.at_most * self.weight)

    @property
    def unit(self) -> GNMax | LNMax | Threshold:
        """The same in units of one ballot: what exact accounting takes, with :meth:`scaled` counts."""
        lengths = {"sigma", "scale", "at"} & set(self.mechanism.__dataclass_fields__)
        return replace(
            self.mechanism, **{name: getattr(self.mechanism, name) / self.weight for name in lengths}
        )

    def scaled(self, counts: Any) -> np.ndarray:
        """Weighted counts in units of one ballot, shape (n_queries, n_classes). Private where they are."""
        return _check.counts(counts) / self.weight

    def curve(self) -> Curve:
        """Cost of one answer, whatever the votes."""
        return self.unit.curve()

    @property
    def passes_or_stops(self) -> bool:
        """As the mechanism has it."""
        return passes_or_stops(self.mechanism)

    def uses(self, private: Private) -> int:
        """As the mechanism has it."""
        return self.mechanism.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The mechanism's own answer."""
        return self.mechanism.release(private, rng=rng)

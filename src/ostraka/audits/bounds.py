"""Records of lower bounds: on Rényi divergences, and on epsilon or delta."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check
from ostraka.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EpsilonBound", "RenyiBound"]

Cut = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenyiBound:
    """Lower bounds on the Rényi divergence between the outcomes of two worlds, at all orders at once.

    Attributes
    ----------
    orders : tuple of float > 1
    rdp : tuple of float >= 0, nats
        The larger of the two directions, at each order.
    forward, reverse : tuple of float >= 0, nats
        D(P ‖ Q) and D(Q ‖ P).
    cuts : tuple of tuple of int
        For each order the set of outcomes whose probabilities gave ``rdp``; empty where every
        outcome was used by itself, or where nothing was found.
    confidence : float
        All of ``forward`` and ``reverse`` lie below the truth together with this probability.
    trials : tuple of int
        Outcomes seen in P and in Q.
    method : str
    note : str
        When the bound is valid, in a sentence.

    Examples
    --------
    >>> from ostraka.audits import renyi_lower_bound
    >>> bound = renyi_lower_bound([900, 100], [500, 500], orders=(2.0, 32.0))
    >>> bound.exceeds(Curve((2.0, 32.0), (0.1, 3.2)))
    (2.0,)
    """

    orders: tuple[float, ...]
    rdp: tuple[float, ...]
    forward: tuple[float, ...]
    reverse: tuple[float, ...]
    cuts: tuple[Cut, ...]
    confidence: float
    trials: tuple[int, int]
    method: str
    note: str

    def illustrated_epsilon(self, *, delta: float) -> float:
        """The epsilon of ``rdp`` if it were an upper bound: an illustration, **not a lower bound**.

        The conversion loses in the direction that is safe for upper bounds only (Chadha et al.
        2024, section 5.4). For a lower bound on epsilon: :func:`epsilon_lower_bound`.
        """
        return Curve(self.orders, self.rdp).epsilon(delta=delta)

    def exceeds(self, curve: Curve) -> tuple[float, ...]:
        """The orders at which more was seen to leak than an upper bound allows; needs the same orders."""
        if curve.orders != self.orders:
            raise ValueError("orders must be those of the curve: renyi_lower_bound(…, orders=curve.orders)")
        claims = zip(self.orders, self.rdp, curve.rdp, strict=True)
        return tuple(order for order, low, high in claims if low > high)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        return {
            "orders": [order if math.isfinite(order) else "inf" for order in self.orders],
            "rdp": list(self.rdp),
            "forward": list(self.forward),
            "reverse": list(self.reverse),
            "cuts": [list(cut) for cut in self.cuts],
            "confidence": self.confidence,
            "trials": list(self.trials),
            "method": self.method,
            "note": self.note,
        }

    @classmethod
    def compose(cls, bounds: Sequence[RenyiBound]) -> RenyiBound:
        """Lower bound on what several answers leak together: the sums, direction by direction.

        ``bounds``: one for each query, all between the same two worlds in the same sense (with and without),
        at the same orders. The failure probabilities add up: ask each for ``1 - 0.05 / n_queries`` to have
        0.95 in the end. Raises ValueError for no bounds, other orders, or no confidence left.

        Valid if, **in each world, the answers are independent of one another**: fresh noise on given votes.
        The divergence of independent answers is exactly the sum of theirs. It is not valid where the votes
        themselves are random and shared by the queries (teachers retrained in every trial): then audit the
        answers jointly, as one outcome. Lower bounds on epsilon at some delta must never be added.
        Source: van Erven and Harremoës 2014, arXiv:1206.2459, Theorem 28.

        Examples
        --------
        >>> from ostraka.audits import renyi_lower_bound
        >>> one = renyi_lower_bound([900, 100], [500, 500], orders=(2.0,), confidence=0.99)
        >>> three = RenyiBound.compose([one, one, one])
        >>> round(three.confidence, 2), round(three.rdp[0] / one.rdp[0], 3)
        (0.97, 3.0)
        """
        if not bounds:
            raise ValueError("bounds must be one or more")
        if any(bound.orders != bounds[0].orders for bound in bounds):
            raise ValueError("bounds must all have the same orders")
        confidence = 1 - math.fsum(1 - bound.confidence for bound in bounds)
        if not confidence > 0:
            raise ValueError(
                f"bounds must be confident enough: the failure probabilities of {len(bounds)} add up to "
                f"{1 - confidence:g}; ask each for confidence=1 - 0.05 / {len(bounds)}"
            )
        forward, reverse = (
            np.array([getattr(bound, name) for bound in bounds]).sum(axis=0) * (1 - 1e-12)
            for name in ("forward", "reverse")
        )
        return replace(
            bounds[0],
            rdp=tuple(np.maximum(forward, reverse).tolist()),
            forward=tuple(forward.tolist()),
            reverse=tuple(reverse.tolist()),
            cuts=((),) * len(bounds[0].orders),
            confidence=confidence,
            trials=(sum(bound.trials[0] for bound in bounds), sum(bound.trials[1] for bound in bounds)),
            note=f"{bounds[0].note} Sum over {len(bounds)} answers, which must be independent in each world.",
        )

    def per_unit(self, *, group: int) -> RenyiBound:
        """The bound for one unit, from worlds which differ in ``group`` units.

        At orders ``2**c`` times larger, where ``c = ceil(log2(group))``; orders below 2 are left out, since
        nothing is known to follow from them. Raises ValueError for a ``group`` below 1, or no order of 2.

        If one unit costs at most ``r`` at order ``2**c * order``, then ``2**c`` units cost at most
        ``3**c * r`` at ``order``; read backwards. Chadha et al. 2024 (appendix C) write the number of
        units where Mironov has its logarithm; that is valid too, and much weaker.
        Source: Mironov 2017, arXiv:1702.07476, Prop. 2.

        Examples
        --------
        >>> from ostraka.audits import renyi_lower_bound
        >>> three_units = renyi_lower_bound([900, 100], [100, 900], orders=(2.0, 4.0))
        >>> one_unit = three_units.per_unit(group=3)
        >>> one_unit.orders, round(three_units.rdp[0] / one_unit.rdp[0], 6)
        ((8.0, 16.0), 9.0)
        """
        _check.integer(group=group, least=1)
        doublings = (group - 1).bit_length()
        keep = [place for place, order in enumerate(self.orders) if order >= 2 or doublings == 0]
        if not keep:
            raise ValueError(f"orders must reach 2 for a group of {group}, got {self.orders}")
        forward, reverse, rdp = (
            tuple(getattr(self, name)[place] / 3**doublings * (1 - 1e-15) for place in keep)
            for name in ("forward", "reverse", "rdp")
        )
        return replace(
            self,
            orders=tuple(self.orders[place] * 2**doublings for place in keep),
            rdp=rdp,
            forward=forward,
            reverse=reverse,
            cuts=tuple(self.cuts[place] for place in keep),
            note=f"{self.note} For one unit, from worlds that differ in {group}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonBound:
    """A lower bound on epsilon at one delta, or on delta at one epsilon, between two worlds.

    Attributes
    ----------
    epsilon : float >= 0, nats
    delta : float in [0, 1]
        One of the two was given. No smaller value of the other is compatible with what was seen, at this
        confidence, whichever world is taken first.
    group : int
        How many units differ between the worlds; the bound is for one unit.
    estimate : float >= 0
        The same number from the observed rates of ``cut``, without any allowance for chance: no bound.
    cut : tuple of int
        The set of outcomes that gave it.
    confidence : float
    trials : tuple of int
    method, note : str

    Examples
    --------
    >>> from ostraka.audits import epsilon_lower_bound
    >>> epsilon_lower_bound([900, 100], [500, 500], delta=1e-5).to_dict()["trials"]
    [1000, 1000]
    """

    epsilon: float
    delta: float
    group: int
    estimate: float
    cut: Cut
    confidence: float
    trials: tuple[int, int]
    method: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        estimate = self.estimate if math.isfinite(self.estimate) else "inf"
        return {**plain, "estimate": estimate, "cut": list(self.cut), "trials": list(self.trials)}

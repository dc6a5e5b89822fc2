"""What audits return: bounds on Rényi divergences, epsilon or delta, and findings.

A bound is one side of a quantity, whatever it was computed from. A finding compares lower bounds with upper
ones of the same quantities, and says which verdict follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

Cut = tuple[int, ...]
Verdict = Literal["consistent", "violated", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One side of a quantity of privacy, with the law that proves it.

    Attributes
    ----------
    side : {"lower", "upper"}
        Audits have lower bounds: at least that much leaks.
    quantity : {"rdp", "epsilon", "delta"}
        Rényi divergences, at all ``orders`` at once, or one number. The value has this name, too:
        ``bound.epsilon``.
    value : float, or tuple of float
        Nats, or a probability.
    confidence : float
        The bound holds with this probability; all numbers of it together.
    trials : int, or tuple of int
        Outcomes seen in both worlds, pairs or canaries.
    law : str
        The method or theorem; also ``method``.
    sentence : str
        When the bound is valid; also ``note``.
    details : dict of str to Any
        What belongs to the quantity. Each is an attribute of the bound, too.

        *rdp*: ``orders``; ``forward`` and ``reverse``, D(P ‖ Q) and D(Q ‖ P), of which the value is the
        larger; ``cuts``, for each order the set of outcomes whose probabilities gave it, empty where every
        outcome was used by itself or nothing was seen.

        *epsilon* or *delta*, from two worlds: the other of both, which was given; ``group``, how many units
        differ (the bound is for one); ``estimate``, the same number without any allowance for chance, which
        is no bound; ``cut``, the set of outcomes that gave it.

        *epsilon*, from canaries: ``delta``; ``estimate``; ``interval``, whose upper end is about this attack
        only, where guesses are independent, and never an upper bound; ``right`` of ``guesses``;
        ``n_canaries``, each one of ``n_candidates``; ``at``, the score below which the adversary abstained,
        or None where the number of guesses was planned; ``n_cuts``, how many cuts share the error.

    Examples
    --------
    >>> from ostraka.audit import epsilon_lower_bound, renyi_lower_bound
    >>> bound = renyi_lower_bound([900, 100], [500, 500], orders=(2.0, 32.0))
    >>> bound.exceeds(Curve((2.0, 32.0), (0.1, 3.2))), bound.quantity
    ((2.0,), 'rdp')
    >>> epsilon_lower_bound([900, 100], [500, 500], delta=1e-5).to_dict()["trials"]
    [1000, 1000]
    """

    quantity: Literal["rdp", "epsilon", "delta"]
    value: Any
    confidence: float
    trials: Any
    law: str
    sentence: str
    details: dict[str, Any] = field(default_factory=dict, hash=False)
    side: Literal["lower", "upper"] = "lower"

    def __getattr__(self, name: str) -> Any:
        """The value by its name, and every detail."""
        if name.startswith("_") or name in Bound.__slots__:  # not yet there, as while a copy is made
            raise AttributeError(name)
        named = {**self.details, self.quantity: self.value, "method": self.law, "note": self.sentence}
        if name not in named:
            raise AttributeError(f"a bound on {self.quantity} has no {name}")
        return named[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        named = {self.quantity: self.value, **self.details, "confidence": self.confidence}
        named |= {"trials": self.trials, "method": self.law, "note": self.sentence}
        return {name: plain(value) for name, value in named.items()}

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

    @classmethod
    def compose(cls, bounds: Sequence[Bound], *, times: Sequence[int] | None = None) -> Bound:
        """Lower bound on what several answers leak together: the sums, direction by direction.

        ``bounds``: one for each query, all between the same two worlds in the same sense (with and without),
        at the same orders. ``times``: how many answers each bound is for, once each by default. The failure
        probabilities add up: ask each for ``1 - 0.05 / n_queries`` to have 0.95 in the end. Raises ValueError
        for no bounds, other orders, or no confidence left.

        Valid if, **in each world, the answers are independent of one another**: fresh noise on given votes.
        The divergence of independent answers is exactly the sum of theirs. It is not valid where the votes
        themselves are random and shared by the queries (teachers retrained in every trial): then audit the
        answers jointly, as one outcome. Lower bounds on epsilon at some delta must never be added.
        Source: van Erven and Harremoës 2014, arXiv:1206.2459, Theorem 28.

        Examples
        --------
        >>> from ostraka.audit import renyi_lower_bound
        >>> one = renyi_lower_bound([900, 100], [500, 500], orders=(2.0,), confidence=0.99)
        >>> three = Bound.compose([one, one, one])
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
        weights = np.ones(len(bounds)) if times is None else np.asarray(times)
        n_answers = int(weights.sum())
        directions = (
            weights @ [bound.details[direction] for bound in bounds] for direction in ("forward", "reverse")
        )
        independent = f"Sum over {n_answers} answers, which must be independent in each world."
        return renyi_bound(
            *(total * (1 - 1e-12) for total in directions),
            orders=bounds[0].orders,
            confidence=confidence,
            trials=tuple(sum(bound.trials[world] for bound in bounds) for world in (0, 1)),
            law=bounds[0].law,
            sentence=bounds[0].sentence if n_answers == 1 else f"{bounds[0].sentence} {independent}",
        )

    def finding(self, *, name: str, verdict: Verdict, sentence: str, measures: Sequence[Measure]) -> Finding:
        """A finding whose lower bounds are those of this bound; its trials are those of the smaller world."""
        return Finding(
            name=name,
            verdict=verdict,
            sentence=sentence,
            measures=tuple(measures),
            confidence=self.confidence,
            trials=min(self.trials) if isinstance(self.trials, tuple) else self.trials,
            method=self.law,
            note=self.sentence,
        )

    def against(self, *, claimed: float, clearest: float, name: str, outcome: str, kind: str) -> Finding:
        """The finding of a bound on epsilon against a claim.

        ``clearest``: the bound if every trial had given its target away. ``outcome`` begins the sentence that
        the bound ends, as in "these answers leak"; ``kind`` names the trials.
        """
        sure = f"an epsilon of at least {self.epsilon:.4g} (confidence {self.confidence:g})"
        verdict: Verdict = "inconclusive"
        if self.epsilon > claimed:
            verdict = "violated"
            sentence = f"The claim is false: {outcome} {sure}, and {claimed:g} was claimed."
        elif clearest <= claimed:
            sentence = (
                f"So few {kind} cannot contradict an epsilon of {claimed:g}: had every one given its target "
                f"away, they would show {clearest:.4g}. Take more."
            )
        elif self.estimate > claimed:
            sentence = (
                f"The observed rates say {self.estimate:.4g}, above the claim of {claimed:g}; but chance "
                f"could be the reason, and only {sure} is certain. Take more {kind}."
            )
        else:
            verdict = "consistent"
            sentence = (
                f"Nothing contradicts an epsilon of {claimed:g}: {outcome} {sure}. That is no proof: another "
                "target, other questions or another attack may show more."
            )
        measure = Measure(
            what=f"epsilon at delta {self.delta:g}", upper=claimed, exact=None, lower=self.epsilon
        )
        return self.finding(name=name, verdict=verdict, sentence=sentence, measures=[measure])

    def per_unit(self, *, group: int) -> Bound:
        """The bound for one unit, from worlds which differ in ``group`` units.

        At orders ``2**c`` times larger, where ``c = ceil(log2(group))``; orders below 2 are left out, since
        nothing is known to follow from them. Raises ValueError for a ``group`` below 1, or no order of 2.

        If one unit costs at most ``r`` at order ``2**c * order``, then ``2**c`` units cost at most
        ``3**c * r`` at ``order``; read backwards. Chadha et al. 2024 (appendix C) write the number of
        units where Mironov has its logarithm; that is valid too, and much weaker.
        Source: Mironov 2017, arXiv:1702.07476, Prop. 2.

        Examples
        --------
        >>> from ostraka.audit import renyi_lower_bound
        >>> three_units = renyi_lower_bound([900, 100], [100, 900], orders=(2.0, 4.0))
        >>> one_unit = three_units.per_unit(group=3)
        >>> one_unit.orders, round(three_units.rdp[0] / one_unit.rdp[0], 6)
        ((8.0, 16.0), 9.0)
        """
        check.integer(group=group, least=1)
        doublings = (group - 1).bit_length()
        keep = [place for place, order in enumerate(self.orders) if order >= 2 or doublings == 0]
        if not keep:
            raise ValueError(f"orders must reach 2 for a group of {group}, got {self.orders}")
        directions = (
            np.array(direction)[keep] / 3**doublings * (1 - 1e-15)
            for direction in (self.forward, self.reverse)
        )
        bound = renyi_bound(
            *directions,
            orders=tuple(self.orders[place] * 2**doublings for place in keep),
            cuts=tuple(self.cuts[place] for place in keep),
            confidence=self.confidence,
            trials=self.trials,
            law=self.law,
            sentence=f"{self.sentence} For one unit, from worlds that differ in {group}.",
        )
        return replace(bound, side=self.side)


RenyiBound = EpsilonBound = CanaryBound = Bound  # names of before


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One quantity of a promise: its promised upper bound, its exact value, and its lower bound.

    Attributes
    ----------
    what : str
        Such as ``"order 2"`` or ``"epsilon at delta 1e-05"``.
    upper : float, nats
        The promise.
    exact : float or None, nats
        The same of these two worlds by the outcome map; None for a black box.
    lower : float, nats
        The lower bound from what was seen, at the finding's confidence.
    cap : float or None, nats
        What any number of answers to this question can show at most, in the model of an audit.
    anew_exact, anew_lower : float or None, nats
        Both numbers, were teachers trained anew for each answer.
    """

    what: str
    upper: float
    exact: float | None
    lower: float
    cap: float | None = None
    anew_exact: float | None = None
    anew_lower: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``, and what does not apply is left out."""
        named = {name: plain(getattr(self, name)) for name in self.__slots__}
        return {name: value for name, value in named.items() if value is not None or name == "exact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one audit.

    Attributes
    ----------
    name : str
        The system that was audited.
    verdict : {"consistent", "violated", "inconclusive"}
    sentence : str
        The same in plain words.
    measures : tuple of Measure
    confidence : float
        All lower bounds of the finding hold together with this probability.
    trials : int
        In each world.
    method, note : str

    Examples
    --------
    >>> from ostraka.audit import audit_answers
    >>> audit_answers([990, 10], [20, 980], claimed_epsilon=3.0, delta=1e-5).to_dict()["verdict"]
    'violated'
    """

    name: str
    verdict: Verdict
    sentence: str
    measures: tuple[Measure, ...]
    confidence: float
    trials: int
    method: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return named | {"measures": [measure.to_dict() for measure in self.measures]}

    @staticmethod
    def result(findings: Sequence[Finding]) -> Result:
        """Findings as a record, from which :mod:`ostraka.report.figures` draws.

        They are for the owner only: lower bounds of trained models were not released by any mechanism.

        Examples
        --------
        >>> from ostraka.audit import audit_answers
        >>> finding = audit_answers([990, 10], [20, 980], claimed_epsilon=3.0, delta=1e-5)
        >>> Finding.result([finding]).kind
        'audit'
        """
        return Result(kind="audit", owner={"audit": [finding.to_dict() for finding in findings]})


def renyi_bound(
    forward: Any, reverse: Any, *, orders: Sequence[float], cuts: tuple[Cut, ...] | None = None, **record: Any
) -> Bound:
    """A lower bound on Rényi divergences from both directions, and what a bound records."""
    details = {
        "orders": tuple(orders),
        "forward": tuple(np.asarray(forward).tolist()),
        "reverse": tuple(np.asarray(reverse).tolist()),
        "cuts": ((),) * len(orders) if cuts is None else cuts,
    }
    return Bound(
        quantity="rdp", value=tuple(np.maximum(forward, reverse).tolist()), details=details, **record
    )


def plain(value: Any) -> Any:
    """Plain JSON types: tuples are lists, and infinity is ``"inf"``."""
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return "inf" if value == math.inf else value

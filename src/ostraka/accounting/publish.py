"""Publish the cost of answers: a number that depends on the votes, released with noise and paid for."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka import _check
from ostraka.accounting.certificate import Certificate, plan_certificate
from ostraka.accounting.cost_levels import check_ballots
from ostraka.accounting.smooth_bound import SmoothBound, plan_smooth_bound
from ostraka.curve import ORDERS, Curve
from ostraka.door import release
from ostraka.ledger import Budget, Ledger
from ostraka.mechanisms.protocols import HasPublishedBound, check_ballot, parts
from ostraka.private import Private

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["PublishedEpsilon", "release_epsilon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEpsilon:
    """An epsilon that depends on the votes and may be published. All fields are public.

    Attributes
    ----------
    epsilon, delta : float
        What is claimed, of the answers and this record together: see :attr:`guarantee`.
    any_votes : float
        The epsilon of the answers alone that holds whatever the votes (with a screen: if it had
        let every query through); to know it, nothing had to be published.
    method : str
        ``"certificate"``, ``"smooth"``, or ``"any votes"`` where publishing could not have paid.
    order : float
        The one Rényi order, fixed beforehand, at which all of it was computed.
    answers_rdp, release_rdp : float, nats
        At that order: the published bound on the answers' cost, and the cost of publishing it.
    confidence : float
        Probability, over the noise of the publication, that ``answers_rdp`` is at least the cost of
        these votes (exact for two classes; for ``"smooth"`` the 2018 bound).
    unit : str
        Who is protected.
    simulation : bool
        The noise came from a generator that somebody could repeat: no privacy.
    release : str
        The mechanism of the publication, and ``published``, what it gave: with these two everybody
        can compute ``epsilon`` again.

    Examples
    --------
    >>> from ostraka import Adjacency, GNMax, Private
    >>> one = Private([[240, 10]], Adjacency.one_ballot())
    >>> told = release_epsilon(GNMax(sigma=40.0), one, delta=1e-5)
    >>> told.method, round(told.epsilon, 3), told.to_dict()["confidence"]
    ('any votes', 0.11, 1.0)
    """

    epsilon: float
    delta: float
    any_votes: float
    method: str
    order: float
    answers_rdp: float
    release_rdp: float
    confidence: float
    unit: str
    simulation: bool
    release: str
    published: float

    @property
    def guarantee(self) -> str:
        """The claim in words; docs/publishing-epsilon.md, Theorem 3, proves it."""
        if self.simulation:
            return "Simulation: the noise can be repeated, so nothing is protected."
        told = "the answers" if self.method == "any votes" else "the answers and this number"
        return (
            f"For any two data sets that differ in one {self.unit}, and any set of outputs ({told}) whose "
            f"published epsilon is at most e: its probability on one is at most exp(e) times that on the "
            f"other, plus {self.delta:g}. Here the published epsilon is {self.epsilon:.4g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, the guarantee included."""
        return {**asdict(self), "guarantee": self.guarantee}


def release_epsilon(
    mechanism: BallotMechanism,
    votes: Private,
    *,
    delta: float,
    ledger: Ledger | None = None,
    rng: np.random.Generator | None = None,
    method: Literal["auto", "certificate", "smooth"] = "auto",
    agreement: float = 2 / 3,
    answered: ArrayLike | None = None,
    order: float | None = None,
    key: str | None = None,
) -> PublishedEpsilon:
    """Publish an epsilon for the answers to ``votes`` that profits from how far the teachers agreed.

    Parameters
    ----------
    mechanism : GNMax, LNMax, Threshold or Confident
        What answered, or will answer, each row of ``votes`` once. Public.
    votes : Private of shape (n_queries, n_classes), in votes
        Whole ballots, as many in every row. Number and text of the queries are public.
    delta : float in (0, 1)
        For everything together: answers, publication, its chance of failure, floating point.
    ledger : Ledger, optional
        Charged for the publication (a small Gaussian), before it is made. None: nothing is recorded.
    rng : numpy.random.Generator, optional
        None: a cryptographic generator. Any other is a simulation.
    method : {"auto", "certificate", "smooth"}
        ``"certificate"``: a noisy distance from a public guess, in ballots; exact costs for two
        classes, a proved bound for more. ``"smooth"``: Papernot et al. 2018, the 2018 bound with noise
        scaled to its smooth sensitivity. ``"auto"``: a certificate where the guess says that it
        pays, otherwise the number for any votes, and no publication.
    agreement : float in [0, 1]
        Public guess of the share of nearly unanimous queries. A wrong guess costs accuracy only. It
        must not be taken from ``votes``.
    answered : bool array, shape (n_queries,), optional
        With a screen: which queries the released screen let through. Needed for three classes or more,
        and for ``"smooth"``.
    order : float, optional
        The Rényi order, one of ``ostraka.curve.ORDERS``, fixed before the first answer. Then every number,
        also the one for any votes, is converted at this order, and answers may decide how many questions
        are asked. None: the best for the number of rows and the guess, for a number that is fixed in advance.
    key : str, optional
        Public name of the publication in the ledger, as for ``ostraka.release``.

    Returns
    -------
    PublishedEpsilon

    Raises
    ------
    TypeError
        Another mechanism, or votes that are not Private.
    ValueError
        Rows that are not whole ballots of one number of teachers, a wrong or missing ``answered``, a
        ``delta`` that noise in float64 eats up, or, for ``"smooth"``, conditions that fail.
    BudgetExceeded
        The ledger has too little left for the publication.

    Guarantees
    ----------
    For every pair of neighbouring data sets, and every set E of outputs (answers and publication)
    whose epsilon is at most e: P[E] <= exp(e) P'[E] + delta. This is (e, delta)-differential privacy
    of all outputs that come with a number of e or less. It holds for queries chosen adaptively from
    earlier answers; if these also decide how many are asked, with ``order`` and ``method="certificate"`` or
    ``"auto"`` (Theorem 3a). With probability ``confidence`` the bound is also one on the cost of these very
    votes. Rounded up. Source: docs/publishing-epsilon.md, Theorems 1 to 7; Redberg and Wang 2021,
    arXiv:2111.02281, and Ligett et al. 2017, arXiv:1705.10829, for the notions.

    Examples
    --------
    >>> import numpy as np
    >>> from ostraka import Adjacency, GNMax, Private
    >>> yes = np.random.default_rng(5).binomial(250, 0.96, size=500)
    >>> votes = Private(np.stack([yes, 250 - yes], axis=1), Adjacency.one_ballot())
    >>> told = release_epsilon(GNMax(sigma=40.0), votes, delta=1e-5, agreement=0.9)
    >>> told.method, told.epsilon < 0.6 * told.any_votes
    ('certificate', True)
    """
    _check.delta(delta)
    _check.one_of(method=method, allowed=("auto", "certificate", "smooth"))
    if not isinstance(votes, Private):
        raise TypeError("votes must be Private: Private(counts, Adjacency.one_ballot())")
    check_ballot(mechanism)
    if not votes.adjacency.within(mechanism.promise):
        raise ValueError(f"{mechanism!r} hides {mechanism.promise}, but the data is {votes.adjacency}")
    rows, n_screened = _rows(mechanism, votes, answered, method)
    n_teachers = check_ballots(_check.counts(votes.open()))
    # how many were answered is itself an answer: only the size of the guess may depend on it
    plan = _plan(
        mechanism,
        method,
        n_teachers=n_teachers,
        n_classes=rows.shape[1],
        n_queries=n_screened + round(agreement * n_screened) if n_screened else len(rows),
        n_screened=n_screened,
        delta=delta,
        agreement=agreement,
        orders=None if order is None else (order,),
    )
    most = _any_votes(mechanism, len(votes), order=order)
    terms = _Terms.of(plan, most, delta)
    if method == "auto" and not terms.hoped < most.epsilon(delta):
        return _without(most, delta=delta, votes=votes, simulation=rng is not None)
    plan = replace(plan, n_queries=len(rows))
    if ledger is None:
        with Ledger(":memory:", budget=Budget(epsilon=1e9, delta=delta)) as scratch:
            published = release(plan, rows, ledger=scratch, rng=rng)
    else:
        published = release(plan, rows, ledger=ledger, rng=rng, key=key)
    bound = plan.bound(published.item())
    return PublishedEpsilon(
        epsilon=terms.epsilon(bound),
        delta=delta,
        any_votes=most.epsilon(delta),
        method="smooth" if isinstance(plan, SmoothBound) else "certificate",
        order=plan.order,
        answers_rdp=bound,
        release_rdp=terms.price,
        confidence=1 - (plan.failure if isinstance(plan, SmoothBound) else plan.below()),
        unit=votes.adjacency.unit,
        simulation=rng is not None,
        release=repr(plan),
        published=published.item(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """The constants of Theorem 3, which are fixed before the first answer."""

    order: float
    price: float  # of the publication, at the order
    delta: float
    left: float  # of delta, for the conversion at the order
    ceiling: float  # largest epsilon that floating point is paid for
    most: float  # epsilon that holds whatever the votes, publication included
    hoped: float

    @classmethod
    def of(cls, plan: Certificate | SmoothBound, answers: Curve, delta: float) -> _Terms:
        release_cost = plan.curve()
        price = release_cost.rdp[ORDERS.index(plan.order)]
        paid = release_cost if answers.orders == ORDERS else _at(release_cost, plan.order)
        most = (answers + paid).epsilon(delta)
        usable = delta - (plan.failure if isinstance(plan, SmoothBound) else 0.0)
        # what is rounded costs (1 + e^epsilon) slack of delta: paid beforehand, up to the ceiling
        slack = answers.slack + release_cost.slack
        if not 8 * slack < usable:
            raise ValueError(
                f"delta={delta!r} is too small for what is rounded: take {20 * slack:.1g} or more"
            )
        hoped = Curve((plan.order,), (plan.expected() + price,)).epsilon(usable / 2)
        ceiling, left = most, usable
        if slack:
            cheap, dear = (math.log(max(share * usable / slack - 1, 1.0)) for share in (0.02, 0.5))
            ceiling = min(most, dear, max(cheap, 1.3 * hoped + 1))
            left = usable - (1 + math.exp(ceiling)) * slack
        hoped = Curve((plan.order,), (plan.expected() + price,)).epsilon(left)
        return cls(
            order=plan.order, price=price, delta=delta, left=left, ceiling=ceiling, most=most, hoped=hoped
        )

    def epsilon(self, bound: float) -> float:
        """Theorem 3's epsilon from a published bound on the answers' cost."""
        epsilon = Curve((self.order,), (bound + self.price,)).epsilon(self.left)
        return min(epsilon, self.most) if epsilon <= self.ceiling else self.most


def _plan(mechanism: BallotMechanism, method: str, **sizes: Any) -> Certificate | SmoothBound:
    if method != "smooth":
        return plan_certificate(mechanism, **sizes)
    argmax = parts(mechanism)[1]
    if not isinstance(argmax, HasPublishedBound):
        raise TypeError(f"method='smooth' needs the bound of 2018, which {argmax!r} does not offer")
    return plan_smooth_bound(mechanism, **sizes)


def _without(most: Curve, *, delta: float, votes: Private, simulation: bool) -> PublishedEpsilon:
    """Return the record of a refusal to publish, which does not depend on the votes."""
    order = most.best_order(delta)
    return PublishedEpsilon(
        epsilon=most.epsilon(delta),
        delta=delta,
        any_votes=most.epsilon(delta),
        method="any votes",
        order=order,
        answers_rdp=most.rdp[most.orders.index(order)],
        release_rdp=0.0,
        confidence=1.0,
        unit=votes.adjacency.unit,
        simulation=simulation,
        release="none",
        published=0.0,
    )


def _rows(
    mechanism: BallotMechanism, votes: Private, answered: ArrayLike | None, method: str
) -> tuple[Private, int]:
    """One row an answer. With a screen in two parts: all rows, for it, then those it let through."""
    if parts(mechanism)[0] is None:
        if answered is not None:
            raise ValueError("answered is for mechanisms with a screen, such as Confident")
        return votes, 0
    if answered is None:
        if votes.shape[1] > 2 or method == "smooth":
            raise ValueError("answered is needed: which queries did the released screen let through?")
        return votes, 0
    mask = np.asarray(answered)
    if mask.dtype != bool or mask.shape != (len(votes),):
        raise ValueError(f"answered must be bool of shape ({len(votes)},), got {mask.dtype} of {mask.shape}")
    if votes.shape[1] == 2 and method != "smooth":
        return votes, 0
    counts = votes.open()
    return Private(np.concatenate([counts, counts[mask]]), votes.adjacency), len(votes)


def _any_votes(mechanism: BallotMechanism, n_queries: int, *, order: float | None) -> Curve:
    """Return the cost of the answers for any votes, if every query passes the screen."""
    every = n_queries * mechanism.curve()
    return every if order is None else _at(every, order)


def _at(curve: Curve, order: float) -> Curve:
    """Return the bound at one order, the only one that may be used where answers decide what is asked."""
    return Curve((order,), (curve.rdp[curve.orders.index(order)],), curve.moves, slack=curve.slack)

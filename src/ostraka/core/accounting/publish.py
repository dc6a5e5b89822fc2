"""Publish the cost of answers: a number that depends on the votes, released with noise and paid for.

:func:`release_epsilon` does it, in one of two ways. A :class:`Certificate` says how far, in ballots, the
votes are from a public guess; levels bound what a query costs by how far the teachers agree, and what a few
ballots can make of it. The other way, of Papernot et al. 2018, is in ``smooth.py``.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import scipy.special
from scipy.ndimage import maximum_filter1d

from ostraka.core import check
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.accounting.smooth import SmoothBound, check_ballots, plan_smooth_bound
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.door import release
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms import exact
from ostraka.core.mechanisms.law import check_ballot, law, payments
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from ostraka.core.mechanisms.law import BallotMechanism

_GUESSES = 256  # queries of the public guess
_ORDERS = tuple(order for order in ORDERS if 2.0 <= order <= 130.0)
_NOISES = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 28.0, 40.0)
_MARGINS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
UNIT = 2.0**-36  # nats; costs are whole multiples, so that their sums are exact
_FINE = 32  # levels a ballot where agreement is continuous
_SHARED = 4  # neighbouring levels that share the cost of their lowest
_CELLS = 16  # divisions of a tail between its two sides
_OUTWARD = 1e-9  # relative, above the error of every cost computed here or in exact_rdp
_DOUBT = 1e-12  # absolute, nats: what cancels near a cost of nothing


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
    votes. Rounded up. Source: docs/record/publishing-epsilon.md, Theorems 1 to 7; Redberg and Wang 2021,
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
    check.delta(delta)
    check.one_of(method=method, allowed=("auto", "certificate", "smooth"))
    check.share(zero=True, one=True, agreement=agreement)
    if not isinstance(votes, Private):
        raise TypeError("votes must be Private: Private(counts, Adjacency.one_ballot())")
    check_ballot(mechanism)
    if not votes.adjacency.within(mechanism.promise):
        raise ValueError(f"{mechanism!r} hides {mechanism.promise}, but the data is {votes.adjacency}")
    # one row an answer; with a screen in two parts: all rows, for it, then those it let through
    rows, n_screened = votes, 0
    if len(payments(mechanism)) == 1:
        if answered is not None:
            raise ValueError("answered is for mechanisms with a screen, such as Confident")
    elif answered is None:
        if votes.shape[1] > 2 or method == "smooth":
            raise ValueError("answered is needed: which queries did the released screen let through?")
    else:
        mask = np.asarray(answered)
        if mask.dtype != bool or mask.shape != (len(votes),):
            raise ValueError(
                f"answered must be bool of shape ({len(votes)},), got {mask.dtype} of {mask.shape}"
            )
        if votes.shape[1] > 2 or method == "smooth":
            counts, n_screened = votes.open(), len(votes)
            rows = Private(np.concatenate([counts, counts[mask]]), votes.adjacency)
    n_teachers = check_ballots(check.counts(votes.open()))
    # how many were answered is itself an answer: only the size of the guess may depend on it
    plan: Certificate | SmoothBound = (plan_smooth_bound if method == "smooth" else plan_certificate)(
        mechanism,
        n_teachers=n_teachers,
        n_classes=rows.shape[1],
        n_queries=n_screened + round(agreement * n_screened) if n_screened else len(rows),
        n_screened=n_screened,
        delta=delta,
        agreement=agreement,
        orders=None if order is None else (order,),
    )
    ceiling = len(votes) * mechanism.curve()  # for any votes, if every query passes the screen
    ceiling = ceiling if order is None else _at(ceiling, order)
    terms = _Terms.of(plan, ceiling, delta)
    best, epsilon = ceiling.best_order(delta), ceiling.epsilon(delta)
    record = PublishedEpsilon(  # of the refusal to publish, which does not depend on the votes
        epsilon=epsilon,
        delta=delta,
        any_votes=epsilon,
        method="any votes",
        order=best,
        answers_rdp=ceiling.rdp[ceiling.orders.index(best)],
        release_rdp=0.0,
        confidence=1.0,
        unit=votes.adjacency.unit,
        simulation=rng is not None,
        release="none",
        published=0.0,
    )
    if method == "auto" and not terms.hoped < epsilon:
        return record
    plan = replace(plan, n_queries=len(rows))
    if ledger is None:
        with Ledger(":memory:", budget=Budget(epsilon=1e9, delta=delta, adaptive=False)) as scratch:
            published = release(plan, rows, ledger=scratch, rng=rng)
    else:
        published = release(plan, rows, ledger=ledger, rng=rng, key=key)
    bound = plan.bound(published.item())
    return replace(
        record,
        epsilon=terms.epsilon(bound),
        method="smooth" if isinstance(plan, SmoothBound) else "certificate",
        order=plan.order,
        answers_rdp=bound,
        release_rdp=terms.price,
        confidence=1 - (plan.failure if isinstance(plan, SmoothBound) else plan.below()),
        release=repr(plan),
        published=published.item(),
    )


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
        """The claim in words; docs/record/publishing-epsilon.md, Theorem 3, proves it."""
        if self.simulation:
            return "Simulation: the noise can be repeated, so nothing is protected."
        subject = "the answers" if self.method == "any votes" else "the answers and this number"
        return (
            f"For any two data sets that differ in one {self.unit}, and any set of outputs ({subject}) whose "
            f"published epsilon is at most e: its probability on one is at most exp(e) times that on the "
            f"other, plus {self.delta:g}. Here the published epsilon is {self.epsilon:.4g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, the guarantee included."""
        return {**asdict(self), "guarantee": self.guarantee}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """The constants of Theorem 3, which are fixed before the first answer."""

    order: float
    price: float  # of the publication, at the order
    remainder: float  # of delta, for the conversion at the order
    ceiling: float  # largest epsilon that floating point is paid for
    any_votes: float  # epsilon that holds whatever the votes, publication included
    hoped: float

    @classmethod
    def of(cls, plan: Certificate | SmoothBound, answers: Curve, delta: float) -> _Terms:
        release_cost = plan.curve()
        price = release_cost.rdp[ORDERS.index(plan.order)]
        paid = release_cost if answers.orders == ORDERS else _at(release_cost, plan.order)
        any_votes = (answers + paid).epsilon(delta)
        usable = delta - (plan.failure if isinstance(plan, SmoothBound) else 0.0)
        # what is rounded costs (1 + e^epsilon) slack of delta: paid beforehand, up to the ceiling
        slack = answers.slack + release_cost.slack
        if not 8 * slack < usable:
            raise ValueError(
                f"delta={delta!r} is too small for what is rounded: take {20 * slack:.1g} or more"
            )
        hoped = Curve((plan.order,), (plan.expected() + price,)).epsilon(usable / 2)
        ceiling, remainder = any_votes, usable
        if slack:
            cheap, dear = (math.log(max(share * usable / slack - 1, 1.0)) for share in (0.02, 0.5))
            ceiling = min(any_votes, dear, max(cheap, 1.3 * hoped + 1))
            remainder = usable - (1 + math.exp(ceiling)) * slack
        hoped = Curve((plan.order,), (plan.expected() + price,)).epsilon(remainder)
        return cls(
            order=plan.order,
            price=price,
            remainder=remainder,
            ceiling=ceiling,
            any_votes=any_votes,
            hoped=hoped,
        )

    def epsilon(self, bound: float) -> float:
        """Theorem 3's epsilon from a published bound on the answers' cost."""
        epsilon = Curve((self.order,), (bound + self.price,)).epsilon(self.remainder)
        return min(epsilon, self.any_votes) if epsilon <= self.ceiling else self.any_votes


def _at(curve: Curve, order: float) -> Curve:
    """Return the bound at one order, the only one that may be used where answers decide what is asked."""
    return Curve((order,), (curve.rdp[curve.orders.index(order)],), curve.moves, slack=curve.slack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Publishes how far, in ballots, votes are from a public guess of equal cost; a door mechanism.

    Attributes
    ----------
    mechanism : GNMax, LNMax, Threshold or Confident
        What gave the answers.
    n_teachers, n_classes : int
    n_queries : int
        Number of rows of the votes.
    n_screened : int
        With a screen and three classes or more: the first ``n_screened`` rows went through the screen,
        the rest are rows that it let through, answered by the argmax. Otherwise 0.
    order : float, one of ``ORDERS``, finite
        The Rényi order at which costs are summed.
    noise : float > 0, in ballots
        Standard deviation of the Gaussian noise.
    margin : float >= 0
        How far the bound is moved up for noise; 1 is right where costs grow evenly with distance.
    confidence : float in [0.5, 1)
        The bound is at least the cost of these votes with this probability over the noise.
    agreement : float in [0, 1]
        The public guess: this share of the queries nearly unanimous, the others spread evenly down
        to a tie. A wrong guess makes the bound larger, never wrong.

    Guarantees
    ----------
    docs/record/publishing-epsilon.md. Theorem 2: moving one ballot moves the number before noise by at
    most 1. Theorem 3: what :meth:`bound` says of the published number.
    """

    mechanism: BallotMechanism
    n_teachers: int
    n_classes: int
    n_queries: int
    order: float
    noise: float
    n_screened: int = 0
    margin: float = 1.0
    confidence: float = 0.95
    agreement: float = 2 / 3
    promise: ClassVar[Adjacency] = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        check.positive(noise=self.noise)
        check.integer(n_teachers=self.n_teachers, n_classes=self.n_classes, least=2)
        check.integer(n_queries=self.n_queries, least=1)
        check.integer(n_screened=self.n_screened)
        check.nonnegative(margin=self.margin)
        check.share(zero=True, one=True, agreement=self.agreement)
        if self.order not in ORDERS[:-1]:
            raise ValueError(f"order must be a finite one of ostraka.core.curve.ORDERS, got {self.order!r}")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence must be >= 0.5 and < 1, got {self.confidence!r}")
        two_parts = len(payments(self.mechanism)) > 1 and self.n_classes > 2
        if not (self.n_screened <= self.n_queries and (self.n_screened > 0) == two_parts):
            raise ValueError("n_screened is the number of screened rows: with a screen and many classes")

    def curve(self) -> Curve:
        """The cost of publishing: a Gaussian of sensitivity 1."""
        return Curve.gaussian(sensitivity=1.0, sigma=self.noise, moves="ballot")

    def uses(self, private: Private) -> int:
        """One, whatever the number of queries."""
        del private
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The distance, rounded to whole ballots after noise; int64, shape ()."""
        place, grid = Fraction(2 * self.distance(private.open()) + 1, 2), Fraction(1)
        noisy = exact.noisy_floor(place, scale=Fraction(self.noise), grid=grid, rng=rng)
        return np.asarray(noisy, dtype=np.int64)

    def distance(self, counts: ArrayLike) -> int:
        """Return, without noise, by how many ballots the guess must worsen to cover these votes. Private.

        With v_k the largest cost of any votes within k ballots of these, and F(x) the cost of the
        guess worsened by x ballots: max over k of (smallest x with F(x) >= v_k) - k.
        """
        array = check.counts(counts)
        if array.shape != (self.n_queries, self.n_classes) or check_ballots(array) != self.n_teachers:
            shape = (self.n_queries, self.n_classes)
            raise ValueError(f"counts must have shape {shape} and {self.n_teachers} ballots a row")
        steps = _levels_of(self)
        rows = (array,) if len(steps) == 1 else (array[: self.n_screened], array[self.n_screened :])
        placed = [(scale, scale.levels(part)) for scale, part in zip(steps, rows, strict=True)]
        costs = worst(placed, self.n_teachers)
        lowest, guess = _guess(self)
        covers = lowest + np.searchsorted(guess, costs * UNIT, side="left")
        return max(lowest, int((covers - np.arange(len(costs))).max()))

    def bound(self, published: int) -> float:
        """Rényi cost at ``order`` of the answers, as published: Theorem 3's U, in nats."""
        lowest, claims = _claims(self)
        return float(claims[min(max(int(published) - lowest, 0), len(claims) - 1)])

    def below(self) -> float:
        """Largest probability, over all votes, that the bound is below their cost: at most 1 - confidence."""
        first, claims = _claims(self)
        lowest, guess = _guess(self)
        enough = first + np.searchsorted(claims, guess, side="left")
        reached = scipy.special.ndtr((enough - 0.5 - lowest - np.arange(len(guess))) / self.noise)
        return float(min(1.0, reached.max() * (1 + 1e-9)))

    def expected(self) -> float:
        """Mean of :meth:`bound` if the guess is right."""
        lowest, claims = _claims(self)
        chance = _cells(lowest, len(claims), 0.0, self.noise)
        return float(np.exp(chance) @ claims)


@lru_cache(maxsize=64)
def plan_certificate(
    mechanism: BallotMechanism,
    *,
    n_teachers: int,
    n_classes: int,
    n_queries: int,
    n_screened: int = 0,
    delta: float,
    agreement: float = 2 / 3,
    orders: tuple[float, ...] | None = None,
) -> Certificate:
    """The certificate of the smallest published epsilon on average, near the guess. Reads no votes."""
    best, least = None, math.inf
    for order in _ORDERS if orders is None else orders:
        fixed = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        if fixed > least:
            continue
        start = Certificate(
            mechanism=mechanism,
            n_teachers=n_teachers,
            n_classes=n_classes,
            n_queries=n_queries,
            n_screened=n_screened,
            order=order,
            noise=1.0,
            agreement=agreement,
        )
        for noise in _NOISES:
            epsilon = fixed + order / (2 * noise**2) + _mean(start, noise, 1.5)
            if epsilon < least:
                best, least = replace(start, noise=noise, margin=1.5), epsilon
    if best is None:
        raise ValueError(f"no order certifies anything at delta={delta!r}: take a larger delta")
    means = {margin: _mean(best, best.noise, margin) for margin in _MARGINS}
    return replace(best, margin=min(means, key=lambda margin: means[margin]))


def _levels_of(of: Certificate) -> tuple[CostLevels, ...]:
    return cost_levels(of.mechanism, n_teachers=of.n_teachers, n_classes=of.n_classes, order=of.order)


@lru_cache(maxsize=256)
def _guess(certificate: Certificate) -> tuple[int, np.ndarray]:
    """Return the public guess worsened by x ballots: the lowest x, and the cost at each x from there."""
    # the list ends at a cost that no votes exceed
    level = (np.arange(_GUESSES) + 0.5) / _GUESSES
    spread = 1 - certificate.agreement
    margins = np.interp(level, [0, spread, spread, 1], [0, 1, 0.9, 1])
    steps, screened = _levels_of(certificate), certificate.n_screened
    sizes = (screened, certificate.n_queries - screened) if screened else (certificate.n_queries,)
    reach = max(1, *(math.ceil((step.agreed - step.tied) / step.pace) for step in steps))
    x = np.arange(-reach, reach + 1)
    total = np.zeros(len(x))
    for step, size in zip(steps, sizes, strict=True):
        falling = np.maximum.accumulate(step.cost[::-1])[::-1].astype(float) * UNIT
        place = np.rint(step.tied + margins * (step.agreed - step.tied))[:, None] - step.pace * x[None, :]
        inside = falling[np.clip(place, 0, step.agreed).astype(np.int64)]
        fade = math.log(falling[step.agreed] / falling[max(0, step.agreed - step.pace)]) / step.pace
        total += size * (inside * np.exp(fade * np.clip(place - step.agreed, 0, None))).mean(axis=0)
    guess = np.maximum.accumulate(total)
    ceiling = sum(size * int(step.cost.max()) * UNIT for step, size in zip(steps, sizes, strict=True))
    guess[-1] = max(guess[-1], ceiling) * (1 + 1e-12)
    return -reach, guess


@lru_cache(maxsize=256)
def _claims(certificate: Certificate) -> tuple[int, np.ndarray]:
    """Return Theorem 3's U, rounded up: the lowest number that it tells apart, and its values from there."""
    # raised evenly until, as the theorem requires, at every whole x
    # E exp(-(order - 1) U(x - (order - 1) + noise)) <= exp(-(order - 1) F(x))
    (lowest, guess), tilt, noise = _guess(certificate), certificate.order - 1, certificate.noise
    pad = _pad(noise)
    claims = _raised(guess, tilt, noise, certificate.margin)
    sure = (
        np.arange(-pad, len(guess) + pad)
        + 0.5
        - noise * float(scipy.special.ndtri(1 - certificate.confidence))
    )
    claims = np.maximum(claims, np.interp(sure, np.arange(len(guess)), guess))
    start = lowest + np.arange(len(guess))
    chance = _cells(lowest - pad, len(claims), (start - tilt)[:, None], noise)
    short = scipy.special.logsumexp(chance - tilt * claims, axis=1) / tilt + guess
    claims += max(0.0, float(short.max())) + 1e-9 * (1 + claims)
    return lowest - pad, claims


def _pad(noise: float) -> int:
    return math.ceil(10 * noise)


def _raised(guess: np.ndarray, tilt: float, noise: float, margin: float) -> np.ndarray:
    """Shift the guess to lower numbers by the tilt and the slope's allowance, and make it monotone."""
    pad, x = _pad(noise), np.arange(len(guess), dtype=float)
    at = np.arange(-pad, len(guess) + pad) + tilt
    slope = np.interp(at, x, np.gradient(guess))
    return np.maximum.accumulate(np.interp(at + margin * tilt * noise**2 * slope / 2, x, guess))


def _mean(certificate: Certificate, noise: float, margin: float) -> float:
    """Return a quick approximation of the bound's mean, for planning only."""
    # the mean of three guesses: a right one, and ones that are too good by 4 and 8 % of the teachers
    (lowest, guess), tilt = _guess(certificate), certificate.order - 1
    claims, pad = _raised(guess, tilt, noise, margin), _pad(noise)
    width = math.ceil(8 * noise)
    lift = math.ceil(tilt) + width
    weights = np.exp(_cells(-lift, lift + width + 1, -tilt, noise))
    padded = np.pad(np.exp(-tilt * claims), (max(0, lift - pad), max(0, width - pad)), mode="edge")
    begin = pad - lift + max(0, lift - pad)
    sums = np.correlate(padded, weights, mode="valid")[begin : begin + len(guess)]
    with np.errstate(divide="ignore"):
        short = float((np.log(sums) / tilt + guess).max())
    off = np.array([[0.0], [0.04], [0.08]]) * certificate.n_teachers
    chance = np.exp(_cells(lowest - pad, len(claims), off, noise)).mean(axis=0)
    return float(chance @ claims) + max(0.0, short)


def _cells(lowest: int, n_cells: int, centre: float | np.ndarray, noise: float) -> np.ndarray:
    """Log probability that N(centre, noise²) rounds to each number from ``lowest``; ends take the tails."""
    edges = (lowest + np.arange(1, n_cells) - 0.5 - centre) / noise
    low = np.concatenate([np.full_like(edges[..., :1], -math.inf), edges], axis=-1)
    high = np.concatenate([edges, np.full_like(edges[..., :1], math.inf)], axis=-1)
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    upper = scipy.special.log_ndtr(high)
    with np.errstate(divide="ignore"):
        return np.asarray(upper + np.log(-np.expm1(scipy.special.log_ndtr(low) - upper)))


@dataclass(frozen=True, slots=True, eq=False)
class CostLevels:
    """Costs of one query at one order, by level. All public; on which level a query stands is private.

    Attributes
    ----------
    cost : int64 array, shape (n_levels,), in units of ``UNIT`` nats
        At least the Rényi cost (every neighbour, both directions) of any query on that level.
    reach : int
        No ballot moves a query by more levels than this.
    pace : int
        Levels that a query of clear plurality falls for each ballot it loses; for guesses only.
    tied, agreed : int
        Levels of an even split and of unanimity; for guesses only.
    levels : callable, counts -> int64 array, shape (n_queries,)
        Where queries stand.
    """

    cost: np.ndarray
    reach: int
    pace: int
    tied: int
    agreed: int
    levels: Callable[[np.ndarray], np.ndarray]


@lru_cache(maxsize=512)
def cost_levels(
    mechanism: BallotMechanism, *, n_teachers: int, n_classes: int, order: float
) -> tuple[CostLevels, ...]:
    """Return the levels of a mechanism: one scale, or one per part for a screen and many classes."""
    if n_classes == 2:  # exact: one level for each value of the first count
        return (
            CostLevels(
                cost=_units(_two_class_costs(mechanism, n_teachers)[:, ORDERS.index(order)]),
                reach=1,
                pace=1,
                tied=(n_teachers + 1) // 2,
                agreed=n_teachers,
                levels=lambda counts: counts[:, 0].astype(np.int64),
            ),
        )
    scales = []
    for part in payments(mechanism):
        outcome_law, curve = law(part), part.curve()
        if outcome_law.payer is None and outcome_law.stages[-1].bar is not None:
            # exact: the screen looks at the largest count only, and a ballot moves it by at most one
            if outcome_law.stages[-1].bound is None:
                raise ValueError(f"a screen of many classes needs noise='largest' here, got {part!r}")
            largest = np.arange(-1, n_teachers + 2)
            laws = part.log_outcomes(np.stack([largest, np.full_like(largest, -1)], axis=1))
            steps = np.maximum(
                _divergence(laws[:-1], laws[1:], order), _divergence(laws[1:], laws[:-1], order)
            )
            scale = CostLevels(
                cost=_units(np.maximum(steps[:-1], steps[1:])),
                reach=1,
                pace=1,
                tied=-(-n_teachers // n_classes),
                agreed=n_teachers,
                levels=lambda counts: counts.max(axis=1).astype(np.int64),
            )
        elif math.isfinite(curve.mu_squared):
            scale = _gaussian(part, n_teachers, n_classes, order)
        elif math.isfinite(curve.rdp[-1]):
            scale = _pure(part, n_teachers, n_classes, order)
        else:
            raise TypeError(
                f"{part!r} is neither dominated by a Gaussian nor purely private: for three classes or more "
                "nothing bounds its cost from the likeliest answer alone"
            )
        scales.append(scale)
    return tuple(scales)


def worst(placed: Sequence[tuple[CostLevels, np.ndarray]], n_ballots: int) -> np.ndarray:
    """Largest summed cost within 0, …, n_ballots ballots of queries on these levels; int64, in ``UNIT``.

    A ballot may change its vote in every query, so the worst case of a sum is the sum of worst
    cases. Integer sums: with v(D, k) the result, v(D', k) <= v(D, k + 1) holds exactly for
    neighbours D and D'.
    """
    total = np.zeros(n_ballots + 1, dtype=np.int64)
    for scale, levels in placed:
        times = np.bincount(levels, minlength=len(scale.cost))
        if int(scale.cost.max()) * max(1, len(levels)) >= 2**62:
            raise OverflowError("these queries cost more than can be summed exactly: publish them in parts")
        for k in range(n_ballots + 1):
            within = maximum_filter1d(scale.cost, size=2 * k * scale.reach + 1, mode="nearest")
            total[k] += int(times @ within)
    return total


@lru_cache(maxsize=16)
def _two_class_costs(mechanism: BallotMechanism, n_teachers: int) -> np.ndarray:
    """Exact cost of every two-class histogram at every finite order; shape (n_teachers + 1, n_orders)."""
    first = np.arange(n_teachers + 1)
    return exact_rdp(mechanism, np.stack([first, n_teachers - first], axis=1), orders=ORDERS[:-1])


def _gaussian(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """A bound from the likeliest answer's probability alone; docs/record/publishing-epsilon.md, Theorem 5."""
    curve = mechanism.curve()
    shift = math.sqrt(curve.mu_squared)  # one ballot is at most a Gaussian shift of this

    def agreement(counts: np.ndarray) -> np.ndarray:
        """Phi^-1(P[likeliest answer]) in ballots: for two classes half the gap."""
        return np.asarray(-scipy.special.ndtri_exp(_log_rest(mechanism, counts)) / shift)

    lowest = float(scipy.special.ndtri(1 / n_classes)) / shift - 1
    edges = lowest + np.arange(math.ceil((n_teachers - lowest) * _FINE)) / _FINE
    cap = curve.rdp[ORDERS.index(order)]
    bound = np.repeat(_censored_gaussian(-(edges[::_SHARED] - 1e-6) * shift, shift, order), _SHARED)
    return CostLevels(
        cost=_units(np.minimum(bound[: len(edges)], cap)),
        reach=_FINE + 1,  # one more for the numerical error of where an edge lies
        pace=_FINE,
        tied=int(-lowest * _FINE),
        agreed=int((float(agreement(_unanimous(n_teachers, n_classes))[0]) - lowest) * _FINE),
        levels=lambda counts: _place(agreement(counts), lowest, len(edges)),
    )


def _pure(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """A bound for pure differential privacy; docs/record/publishing-epsilon.md, Theorem 6."""
    curve = mechanism.curve()
    pure = curve.rdp[-1]

    def agreement(counts: np.ndarray) -> np.ndarray:
        """-log P[another answer] in ballots."""
        return np.asarray(-_log_rest(mechanism, counts) / pure)

    edges = np.arange(math.ceil((n_teachers + 1 / pure) * _FINE)) / _FINE
    cap = curve.rdp[ORDERS.index(order)]
    bound = _censored_pure(-(edges - 1e-6) * pure, pure, order)
    return CostLevels(
        cost=_units(np.minimum(bound, cap)),
        reach=_FINE + 1,
        pace=_FINE,
        tied=int(-math.log1p(-1 / n_classes) / pure * _FINE),
        agreed=int(float(agreement(_unanimous(n_teachers, n_classes))[0]) * _FINE),
        levels=lambda counts: _place(agreement(counts), 0.0, len(edges)),
    )


def _log_rest(mechanism: BallotMechanism, counts: np.ndarray) -> np.ndarray:
    """Log probability of all answers but the likeliest."""
    return np.asarray(
        scipy.special.logsumexp(np.sort(mechanism.log_outcomes(counts), axis=1)[:, :-1], axis=1)
    )


def _units(rdp: np.ndarray) -> np.ndarray:
    """Convert nats to whole units, rounded up."""
    if not (rdp < 2.0**20).all():
        raise ValueError(
            "a query costs more than a million nats at this order: take more noise or a smaller order"
        )
    return np.ceil((rdp * (1 + _OUTWARD) + _DOUBT) / UNIT).astype(np.int64)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, order: float) -> np.ndarray:
    """Rényi divergence between outcome laws in logs, last axis."""
    return np.asarray(scipy.special.logsumexp(order * log_p + (1 - order) * log_q, axis=-1) / (order - 1))


def _censored_gaussian(z: np.ndarray, shift: float, order: float) -> np.ndarray:
    """Theorem 5: N(0, 1) and N(shift, 1), where tails of probability Phi(z) in all are one outcome."""
    # how the tail is divided between the two sides is not known: take the largest over cells of divisions,
    # each of which reveals a little more than any division in it; does not increase as z falls
    q = scipy.special.ndtr(z)[:, None]
    cell = np.arange(_CELLS) / _CELLS
    lower_edge, upper_edge = (
        -scipy.special.ndtri(q * (cell + 1 / _CELLS)),
        scipy.special.ndtri(q * (1 - cell)),
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        unmoved = np.clip(1 - q * (1 + 1 / _CELLS), 0, None)
        moved = np.clip(
            scipy.special.ndtr(lower_edge - shift) - scipy.special.ndtr(upper_edge - shift), 0, None
        )
        log_scale = order * (order - 1) * shift**2 / 2
        sums = [np.full_like(lower_edge, math.inf)]
        for near, far, (a, b) in (
            (order - 1, order - 1, (unmoved, moved)),
            (-order, -order, (moved, unmoved)),
        ):
            tails = scipy.special.ndtr(-lower_edge - near * shift) + scipy.special.ndtr(
                upper_edge + far * shift
            )
            sums.append(np.exp(log_scale) * tails + a**order * b ** (1 - order))
    largest = np.maximum(sums[1], sums[2]).max(axis=1)
    largest = np.where(np.isfinite(largest) & (unmoved[:, 0] > 0), largest, math.inf)
    return np.asarray(np.log(largest) / (order - 1))


def _censored_pure(log_q: np.ndarray, pure: float, order: float) -> np.ndarray:
    """Theorem 6: all ratios within e^±pure, one outcome of probability 1 - q."""
    q = np.exp(np.minimum(log_q, 0.0))
    best = np.zeros_like(q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for ratio in (math.exp(pure), math.exp(-pure)):
            unmoved, moved = 1 - q, 1 - q * ratio
            forth = q * ratio ** (1 - order) + unmoved**order * moved ** (1 - order)
            back = q * ratio**order + moved**order * unmoved ** (1 - order)
            best = np.maximum(best, np.maximum(forth, back))
    applies = q < 1 / (1 + math.exp(pure))
    return np.where(applies, np.log(np.where(applies, best, 1.0)) / (order - 1), math.inf)


def _unanimous(n_teachers: int, n_classes: int) -> np.ndarray:
    return np.eye(1, n_classes) * n_teachers


def _place(agreement: np.ndarray, lowest: float, n_levels: int) -> np.ndarray:
    return np.clip(np.floor((agreement - lowest) * _FINE), 0, n_levels - 1).astype(np.int64)

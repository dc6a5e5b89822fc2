"""Mechanisms made of a mechanism: over a Poisson sample, of weighted ballots, or in stages.

Subsampled prices a mechanism whose input comes from a Poisson sample of the units; Weighted, ballots whose
weight is not one vote; StagedResponse, labels in stages whose earlier answers give the priors of later ones,
for the price of one stage. The prices of Poisson samples are here too, those of private training among them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import gammaln

from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.laws.law import PURE, Law
from ostraka.core.mechanisms import response
from ostraka.core.mechanisms.law import OutcomeLaw, Wrapped, check_ballot, classic_curve, law, rescaled
from ostraka.core.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.core.private import Private

# What is added to each computed divergence; rounding is below 1e-11 of it.
_OUTWARD = 1 + 1e-9
# Where two nearly equal numbers are subtracted, their rounding is added to the difference.
_ROUNDING = 1e-15
# The Gaussian integral is taken where order * mu and the largest exponent are at most these; beyond, chance
# saves next to nothing.
_FURTHEST, _LARGEST = 300.0, 700.0
NOT_YET = -1  # in the answers that advice is made of


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsampled(Wrapped):
    """A ballot over a Poisson sample: each unit takes part with ``sampling_rate``, anew for every row.

    The sampling itself has happened where the votes were made (Private-kNN samples its neighbours); this
    carries the price, and :func:`ostraka.release` refuses data that were sampled at a higher rate.

    Attributes
    ----------
    mechanism : GNMax, LNMax, Threshold, Confident, or any other ballot mechanism
        What is asked of the sample. Public.
    sampling_rate : float in (0, 1]
        Poisson probability of taking part. Public; who took part is secret.

    Raises
    ------
    ValueError
        ``sampling_rate`` out of range; a mechanism that does not hide a replaced ballot of exact counts, or
        counts on sampling itself.

    Guarantees
    ----------
    For neighbours that differ by one unit added or removed (not replaced), ``curve()`` bounds both
    directions, at every order, if each row of the votes has a sample of its own. It is the smallest of
    what :func:`amplified` says, and so never above the mechanism's own curve.
    Source: Mironov, Talwar and Zhang 2019, arXiv:1908.10530; Zhu and Wang 2019, Poisson subsampled
    Rényi differential privacy, ICML 2019; docs/accounting.md.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> always, seldom = GNMax(sigma=5.0), Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=0.05)
    >>> [round((20 * each.curve()).epsilon(delta=1e-5), 2) for each in (always, seldom)]
    [4.88, 0.21]
    """

    mechanism: BallotMechanism
    sampling_rate: float

    def __post_init__(self) -> None:
        check.share(one=True, sampling_rate=self.sampling_rate)
        promise = getattr(self.mechanism, "promise", None)
        if promise is not None and promise.sampling_rate != 1:
            raise ValueError(
                "mechanism counts on sampling already: take one Subsampled at the product of the rates, "
                f"got {self.mechanism!r}"
            )
        if (
            promise is None
            or promise.moves != "ballot"
            or promise.relation != "replace-one"
            or promise.noise_sigma
        ):
            raise ValueError(
                f"mechanism must hide a ballot of exact counts, as GNMax does, got {self.mechanism!r}"
            )
        check_ballot(self.mechanism)

    @property
    def promise(self) -> Adjacency:
        """The mechanism's promise, for a unit which takes part at random and is added or removed."""
        return replace(self.mechanism.promise, relation="add-or-remove", sampling_rate=self.sampling_rate)

    def curve(self) -> Curve:
        """Cost of one answer, whatever the votes."""
        return amplified(self.mechanism.curve(), sampling_rate=self.sampling_rate)

    def law(self) -> OutcomeLaw:
        """The stages of the mechanism, given the votes of one sample."""
        return OutcomeLaw.wrapped(self, classic=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(Wrapped):
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
        check.positive(weight=self.weight)
        self.per_ballot  # noqa: B018  (raises where a part of the mechanism cannot be scaled)
        check_ballot(self.mechanism)
        if self.mechanism.promise.moves != "ballot":
            raise ValueError(f"mechanism must hide a ballot, as GNMax(...) does, got {self.mechanism!r}")

    @property
    def promise(self) -> Adjacency:
        """One ballot may move, with a weight of at most ``weight``."""
        promise = self.mechanism.promise
        return replace(promise, at_most=promise.at_most * self.weight)

    @property
    def per_ballot(self) -> BallotMechanism:
        """The inner mechanism in units of one ballot, which the price refers to."""
        return rescaled(self.mechanism, 1 / self.weight)

    def scaled(self, counts: Any) -> np.ndarray:
        """Weighted counts in units of one ballot, shape (n_queries, n_classes); private if the counts are."""
        return check.counts(counts) / self.weight

    def curve(self, bound: Literal["tight", "classic"] = "tight") -> Curve:
        """Cost of one answer, whatever the votes: that of the mechanism in units of one ballot."""
        check.one_of(bound=bound, allowed=("tight", "classic"))
        classic = classic_curve(self.per_ballot) if bound == "classic" else None
        return self.per_ballot.curve() if classic is None else classic

    def law(self) -> OutcomeLaw:
        """The stages of the mechanism, of ballots which all weigh ``weight``; counts are weighted."""
        return OutcomeLaw.wrapped(self, weight=self.weight * law(self.mechanism).stages[0].weight)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StagedResponse:
    """Labels are asked in stages, each label in one: by randomised response, then with priors.

    Stage 0 answers by :class:`RandomizedResponse`. Before every later stage, ``advise`` makes a prior of
    the answers there are, and the stage answers by :class:`PriorResponse` under it.

    Parameters
    ----------
    stage : int array of shape (n,)
        In which stage each label is asked, from 0 on. Public: it must not depend on any label.
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    epsilon : float in (0, 40], nats
        Public. Of each stage, and so of all together.
    advise : callable(stage, answers) -> array
        Class probabilities of the rows of that stage, shape (rows of the stage, n_classes).
        ``answers`` are those of all n rows so far, -1 where a label has not been asked. See Notes.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes or not one a row, before
        anything is charged; advice that is no probabilities.

    Guarantees
    ----------
    ``epsilon``-DP for one label, whatever ``advise`` does: of two neighbouring sets of labels, the answers
    before the differing label have one law, its own answer costs at most ``curve()`` under every prior,
    and what follows depends on the labels through answers only. So it is parallel composition, with the
    stages chosen by answers. ``curve()`` is that of :class:`PriorResponse`.
    Source: Ghazi et al. 2021, arXiv:2102.06062, Algorithm 3 and Sec. 4.

    Notes
    -----
    The door writes a charge before :meth:`release` and stores the answers after it; if the process ends
    between the two, the same key draws all stages afresh for the same charge. That is right if nothing
    of the first draw was seen. ``advise`` sees some of it, and so must keep it to itself until the
    answers are stored: no checkpoint, no log, and no exception, whose text or mere existence tells
    something of the answers. Afterwards all of it is public.

    Examples
    --------
    >>> from ostraka import Adjacency, Private
    >>> labels = Private([2] * 6, Adjacency.one_label())
    >>> def advise(stage, answers):
    ...     seen = np.bincount(answers[answers >= 0], minlength=3) + 1
    ...     return np.tile(seen / seen.sum(), (3, 1))
    >>> mechanism = StagedResponse(stage=[0, 0, 0, 1, 1, 1], n_classes=3, epsilon=30.0, advise=advise)
    >>> mechanism.release(labels, rng=np.random.default_rng(0))
    array([2, 2, 2, 2, 2, 2])
    >>> mechanism.curve().rdp[-1]  # the last order is infinity
    30.0
    """

    stage: Any
    n_classes: int
    epsilon: float
    advise: Callable[[int, np.ndarray], Any]
    n_stages: int = field(init=False)
    promise = Adjacency.one_label()

    def __post_init__(self) -> None:
        RandomizedResponse(n_classes=self.n_classes, epsilon=self.epsilon)  # knows what is out of range
        stage = np.array(self.stage)
        if stage.ndim != 1 or not (np.issubdtype(stage.dtype, np.integer) and (stage >= 0).all()):
            raise ValueError(f"stage must be whole numbers from 0 on, one a label, got shape {stage.shape}")
        stage = stage.astype(np.int64)
        stage.setflags(write=False)
        object.__setattr__(self, "stage", stage)
        object.__setattr__(self, "n_stages", int(stage.max(initial=-1)) + 1)

    def curve(self) -> Curve:
        """Cost of one release of all labels."""
        return self._advised(np.empty((0, self.n_classes))).curve()

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP, rounded up."""
        return self._advised(np.empty((0, self.n_classes))).delta(epsilon)

    def uses(self, private: Private) -> int:
        """One use for all rows of all stages, since one unit owns one label."""
        return response.charged(self._matched(private), self.n_classes)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, int64 of shape (n,)."""
        answers = np.full(len(self._matched(private)), NOT_YET, dtype=np.int64)
        for number in range(self.n_stages):
            rows = np.flatnonzero(self.stage == number)
            part: RandomizedResponse | PriorResponse
            if number == 0:
                part = RandomizedResponse(n_classes=self.n_classes, epsilon=self.epsilon)
            else:
                prior = np.asarray(self.advise(number, answers.copy()))
                if prior.shape != (len(rows), self.n_classes):
                    raise ValueError(
                        f"advise must return shape ({len(rows)}, {self.n_classes}) in stage {number}, got "
                        f"{prior.shape}"
                    )
                part = self._advised(prior)
            answers[rows] = part.release(private[rows], rng=rng)
        return answers

    def _advised(self, prior: np.ndarray) -> PriorResponse:
        return PriorResponse(prior=prior, epsilon=self.epsilon)

    def _matched(self, private: Private) -> Private:
        if private.shape[:1] != self.stage.shape:
            raise ValueError(f"labels must be one for each of {len(self.stage)} rows, got {private.shape}")
        return private

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.stage.astype("<i8").tobytes()).hexdigest()
        return (
            f"StagedResponse(epsilon={self.epsilon!r}, n_classes={self.n_classes}, "
            f"stage=<{len(self.stage)} in {self.n_stages} stages, sha256 {digest}>)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StagedResponse):
            return NotImplemented
        return repr(self) == repr(other) and self.advise == other.advise

    def __hash__(self) -> int:
        return hash(repr(self))


@lru_cache(maxsize=64)  # each release asks for the curve more than once
def amplified(curve: Curve, *, sampling_rate: float) -> Curve:
    """Return the cost for a unit which takes part at random, from the cost for one which always takes part.

    Parameters
    ----------
    curve : Curve
        Bounds the mechanism on a sample with the unit against one without it, both directions.
    sampling_rate : float in (0, 1]

    Returns
    -------
    Curve
        With the same orders, never above ``curve``.

    Guarantees
    ----------
    With r = P/Q the likelihood ratio of "with" to "without" on one sample, q the rate and x = q (r - 1)
    > -q, the two directions are log E_Q[(1 + x)^a] / (a - 1) and log E_Q[(1 + x)^(1 - a)] / (a - 1);
    averaging over the rest of the sample only lowers them (joint quasi-convexity).

    *With against without.* At whole orders, the binomial sum over k of C(a, k) (1 - q)^(a - k) q^k
    e^((k - 1) D_k): exact in the D_k (Zhu and Wang 2019, ICML). Between
    whole orders (a - 1) D_a is convex, so its chord is a bound. Below order 2,
    (1 + x)^a - 1 - a x <= c x^2 with c = ((1 - q)^a - 1 + a q) / q^2, since this quotient falls with x.

    *Without against with.* Likewise (1 + x)^(1 - a) - 1 + (a - 1) x is at most
    ((1 - q)^(1 - a) - 1 - (a - 1) q) x^2 / q^2; and E_Q[(r - 1)^2] = e^(D_2) - 1. Also at most
    -log(1 - q), since x > -q; and q D_(1 + q (a - 1)), since 1 + x >= r^q. No factor 3 is needed.

    *Gaussians.* A pair dominated by a Gaussian of shift mu is a post-processing of it, and so is its
    mixture: at most the sampled Gaussian, whose worse direction is the first (Mironov, Talwar and Zhang
    2019, arXiv:1908.10530, Thm. 5), by quadrature at any order. The smaller of the two bounds counts.
    mu^2 itself is not amplified. ``laws`` are the sampled Gaussian's, so that uses compose exactly with each
    other and with whatever else does; of a pure mechanism, those of pure privacy of its amplified epsilon
    log(1 + q (e^epsilon - 1)): x lies between its ends.

    Examples
    --------
    >>> from ostraka.core.curve import Curve
    >>> step = amplified(Curve.gaussian(sensitivity=1.0, sigma=1.0), sampling_rate=0.01)
    >>> round((1000 * step).epsilon(delta=1e-5), 3)
    1.828
    """
    check.share(one=True, sampling_rate=sampling_rate)
    if sampling_rate == 1:
        return curve
    orders, rdp_always = np.array(curve.orders), np.array(curve.rdp)
    finite = np.isfinite(orders)
    rdp = rdp_always.copy()
    if not finite.all():
        largest = rdp_always[-1]  # beyond 700, chance saves next to nothing
        rdp[-1] = math.log1p(sampling_rate * math.expm1(largest)) if largest <= _LARGEST else largest
    alphas, always = orders[finite], rdp_always[finite]
    # with against without: the binomial sum at whole orders, its chord between them, the quadratic below 2
    integers = np.arange(2.0, math.ceil(alphas[-1]) + 1)
    log_moments = np.concatenate([[0.0, 0.0], _between(integers, alphas, always)])  # of r, at 0, 1, 2, 3, …
    around = np.unique(np.concatenate([np.floor(alphas), np.ceil(alphas)]))
    whole = around[around >= 2]
    reached = [0.0, *(_binomial(int(order), log_moments, sampling_rate) for order in whole)]
    generic = np.interp(alphas, [1.0, *whole], reached) / (alphas - 1)
    low = alphas < 2
    linear = alphas[low] * sampling_rate
    bend = np.expm1(alphas[low] * math.log1p(-sampling_rate)) + linear * (1 + _ROUNDING)
    second = bend * _expm1(log_moments[2])
    generic[low] = np.minimum(generic[low], np.log1p(second) / (alphas[low] - 1))
    generic = np.maximum(generic, _without_against_with(alphas, always, sampling_rate))
    rdp[finite] = np.minimum(generic, _gaussian(alphas, curve.mu_squared, sampling_rate))
    rdp = np.minimum(rdp * _OUTWARD, rdp_always)
    # A fixed pair that dominates one use: a Gaussian, or pure privacy, of a unit that takes part at random.
    # Whatever is asked of one sample is one use, whose own laws add up. A mixture of a dominated pair is
    # dominated by the same mixture of what dominates it.
    laws: tuple[Law, ...] | None = None
    if curve.laws and all(law.is_pure for law in curve.laws):
        laws = (Law(PURE, float(rdp[-1])),) if math.isfinite(rdp[-1]) else None
    elif curve.laws and math.isfinite(curve.mu_squared):
        laws = (Law.sampled(sampling_rate, curve.mu_squared),)
    return replace(curve, rdp=tuple(float(value) for value in rdp), laws=laws)


def sampled_gaussian_curve(
    *, sigma: float, sampling_rate: float, steps: int = 1, sensitivity: float = 1.0, moves: str = "row"
) -> Curve:
    """The cost of Gaussian releases to a unit which takes part in each with probability ``sampling_rate``.

    Parameters
    ----------
    sigma : float > 0
        Standard deviation of the noise. Public.
    sampling_rate : float in (0, 1]
        Poisson probability, anew for every step. Public; who took part is secret.
    steps : int >= 1
        Releases. Each may depend on the ones before.
    sensitivity : float > 0, in the units of sigma
        How far one unit that takes part moves what is released, as a Euclidean norm.
    moves : str
        As :attr:`ostraka.Adjacency.moves`.

    Returns
    -------
    Curve
        For one unit added or removed, both directions.

    Guarantees
    ----------
    Epsilon and delta come from the exact composition of the privacy loss distributions, discretised upwards
    (Doroshenko et al. 2022, arXiv:2207.04380), with all rounding and what is cut off charged; Rényi
    divergences are those of :class:`~ostraka.core.mechanisms.Subsampled`. Such curves add with all others.
    Source: Zhu, Dong and Wang 2022, arXiv:2106.08567, Theorem 10 (adaptive composition of dominating pairs);
    docs/composition.md.

    Examples
    --------
    >>> curve = sampled_gaussian_curve(sigma=1.0, sampling_rate=0.01, steps=1000)
    >>> round(curve.epsilon(delta=1e-5), 2)
    1.83
    """
    check.integer(steps=steps, least=1)
    unsampled = Curve.gaussian(sensitivity=sensitivity, sigma=sigma, moves=moves)
    step_curve = amplified(unsampled, sampling_rate=sampling_rate)
    return steps * replace(step_curve, laws=(Law.sampled(sampling_rate, unsampled.mu_squared),))


def _without_against_with(orders: np.ndarray, rdp: np.ndarray, rate: float) -> np.ndarray:
    """Return the smallest of three bounds on the divergence without the unit against with it."""
    excess = orders - 1
    second = _expm1(_between(np.array([2.0]), orders, rdp)[0])
    geometric = _between(1 + rate * excess, orders, rdp) / excess
    return np.asarray(np.minimum(_quadratic(excess, second, rate), geometric))


def _quadratic(excess: np.ndarray, second: float, rate: float) -> np.ndarray:
    """Bound the divergence by E_Q[(r - 1)^2] alone, and by what x > -rate implies."""
    with np.errstate(over="ignore"):
        bend = np.expm1(-excess * math.log1p(-rate)) - excess * rate * (1 - _ROUNDING)
        return np.asarray(np.minimum(np.log1p(bend * second) / excess, -math.log1p(-rate)))


def _between(wanted: np.ndarray, orders: np.ndarray, rdp: np.ndarray) -> np.ndarray:
    """Bound (order - 1) D at any order from above: it is convex in the order, 0 at 1, and D never falls."""
    finite = np.isfinite(orders) & np.isfinite(rdp)
    chord = np.interp(
        wanted, [1.0, *orders[finite]], [0.0, *(orders[finite] - 1) * rdp[finite]], right=math.inf
    )
    place = np.searchsorted(orders, wanted)
    stair = np.append(rdp, math.inf)[np.minimum(place, len(rdp))] * (wanted - 1)
    return np.asarray(np.minimum(chord, stair))


def _binomial(order: int, log_moments: np.ndarray, rate: float) -> float:
    """Log of 1 + sum over k >= 2 of C(order, k) (1 - q)^(order - k) q^k (moment of k - 1)."""
    k = np.arange(2, order + 1)
    log_terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    log_terms += k * math.log(rate) + (order - k) * math.log1p(-rate)
    moments = log_moments[2 : order + 1]
    if moments.max() < 700 and (log_terms + moments).max() < 700:
        return math.log1p(float(np.exp(log_terms) @ np.expm1(moments)))
    return float(np.logaddexp.reduce(log_terms + moments, initial=0.0))


def _gaussian(orders: np.ndarray, mu_squared: float, rate: float) -> np.ndarray:
    """Sampled Gaussian of shift mu, with against without the unit, by the trapezoid rule, or infinity."""
    bound = np.full(orders.shape, math.inf)
    mu = math.sqrt(mu_squared)
    for place, order in enumerate(orders):
        end = order * mu + 12.0
        if 0 < order * mu <= _FURTHEST and mu * end <= _LARGEST:
            step = 0.05 / max(1.0, mu)
            x = np.arange(-12.0, end, step)
            gain = rate * np.expm1(mu * x - mu_squared / 2)
            log_terms = _log_bend(gain, float(order)) - x**2 / 2 + math.log(step / math.sqrt(2 * math.pi))
            bound[place] = np.logaddexp(0.0, np.logaddexp.reduce(log_terms)) / (order - 1)
    return bound


def _log_bend(gain: np.ndarray, order: float) -> np.ndarray:
    """Log of (1 + x)^order - 1 - order x, which is never negative; its series where that would cancel."""
    power = order * np.log1p(gain)
    little = np.clip(gain, -1e-4 / order, 1e-4 / order)
    # twice the last term
    correction = (order - 2) * little / 3 + abs((order - 2) * (order - 3)) * little**2 / 6
    series = order * (order - 1) / 2 * little**2 * (1 + correction)
    plain = np.expm1(np.minimum(power, 600.0)) - order * np.minimum(gain, 1e290)
    with np.errstate(divide="ignore", invalid="ignore"):
        large = np.where(power > 600, power, np.log(np.maximum(plain, 0)))
        return np.asarray(np.where(gain == little, np.log(series), large))


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf

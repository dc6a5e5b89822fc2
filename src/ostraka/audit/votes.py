"""Votes that are random, as after retraining: models of them, and lower bounds on what their answers leak.

Draws of both worlds are separate, or pairs that share all randomness but the target. Bounds are for one
answer, or for all answers of teachers that are trained once together: with L(v) the law of an answer to the
votes v, these have the law E_v prod_j L(v)[a_j], which is no product of single answers' laws. No sum of
their divergences bounds its divergence.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.fft
import scipy.special
import scipy.stats
from scipy.special import gammaln

from ostraka.audit.bound import renyi_bound
from ostraka.audit.cuts import (
    MOST_OUTCOMES,
    between_boxes,
    check_orders,
    of_coins,
    of_laws,
    subsets,
)
from ostraka.audit.intervals import empirical_bernstein
from ostraka.core import check
from ostraka.core.curve import ORDERS
from ostraka.core.kernels.outcome import GAUSSIAN
from ostraka.core.mechanisms.law import law, outcome_places
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.audit.bound import Bound
    from ostraka.core.mechanisms.law import BallotMechanism

    Numbers = tuple[np.ndarray, float, float, float, float]
    Draw = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]

_REACH = 9.0  # of the integral over the winning count, in sigma
_TINY = 1e-18
_PILOT = 0.2  # share of the draws that only choose where the divergence is touched, or standardise a sum
_ROUNDING = 1e-14
_NOTE = (
    "Valid for any number of pairs and all orders at once (empirical Bernstein on a tangent of the "
    "divergence), for the code that the outcome map describes, and the system the votes were drawn from."
)
_VOTES_NOTE = (
    "Valid for any number of draws and all orders at once (empirical Bernstein), for the code that the "
    "outcome map describes: it trusts the map, and the model the votes were drawn from."
)
_CELLS = 20_000_000  # of a table of votes by counts of answers
_CLIP = 4.0  # standard deviations: bounds what is averaged
_CHUNK = 2_000
_FEW = 20  # answers to a question from which counts are drawn by the outcome map, and not one by one
_UP = 1 + 1e-9
_JOINT_NOTE = (
    "Valid for any number of trainings and all orders at once (empirical Bernstein on a tangent of the "
    "divergence of all answers together)."
)


def votes_lower_bound(
    mechanism: BallotMechanism,
    votes_p: Private,
    votes_q: Private,
    *,
    paired: bool = False,
    orders: tuple[float, ...] = ORDERS,
    confidence: float = 0.95,
) -> Bound:
    """Lower bound on what one answer leaks when the votes themselves are random, as after retraining.

    Parameters
    ----------
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
        Public.
    votes_p, votes_q : Private of shape (n_draws, n_classes), in votes
        One row for each independent draw of the votes on one query, in each world, such as those of
        :func:`retrained_votes`.
    paired : bool
        Row i of both comes from one draw of all randomness but the target's presence: shards, seeds and
        samples are the same. Then one ballot at most differs, and a few dozen real trainings tell what takes
        millions of separate ones.
    orders : tuple of float > 1
    confidence : float in (0, 1)

    Returns
    -------
    Bound
        ``trials`` counts draws of votes, or pairs.

    Raises
    ------
    ValueError
        Fewer than two draws or ten pairs, other shapes, orders not above 1, a pair that differs in more than
        one ballot.

    Guarantees
    ----------
    Both trust the outcome map. Separate draws: the probability of an outcome is the mean of its probability
    given the votes (Rao and Blackwell), so each draw tells far more than one sampled answer. The larger of
    every 2-cut (up to 12 outcomes) and of the cut into all outcomes; the error is shared among all. Pairs:
    ``F(p, q) = sum p^order q^(1 - order)`` is jointly convex and homogeneous, so it lies above its tangent
    plane at any point, and F of the mean laws lies above the mean of that plane over pairs. A fifth of
    the pairs choose the point.
    Source: Maurer and Pontil 2009, arXiv:0907.3740, Theorem 4; docs/auditing.md.

    Examples
    --------
    >>> from ostraka import Adjacency, GNMax, Private
    >>> without = np.random.default_rng(0).multinomial(19, [0.6, 0.4], size=200) + [1, 0]
    >>> votes_p, votes_q = (Private(v, Adjacency.one_ballot()) for v in (without + [-1, 1], without))
    >>> bound = votes_lower_bound(GNMax(sigma=4.0), votes_p, votes_q, paired=True, orders=(2.0,))
    >>> bound.rdp[0] > 0.015
    True
    """
    if paired:
        return _paired_bound(mechanism, votes_p, votes_q, orders=orders, confidence=confidence)
    order = check_orders(orders)
    check.share(confidence=confidence)
    laws = [np.exp(mechanism.log_outcomes(votes.open())) for votes in (votes_p, votes_q)]
    n_outcomes = laws[0].shape[1]
    if laws[1].shape[1] != n_outcomes or min(len(law) for law in laws) < 2:
        raise ValueError(
            f"votes must be two or more draws of the same classes, got {votes_p.shape} and {votes_q.shape}"
        )
    single = np.eye(n_outcomes, dtype=bool)
    sets = np.concatenate([single, ~single]) if n_outcomes > MOST_OUTCOMES else subsets(n_outcomes)
    error = (1 - confidence) / (2 * len(sets))  # a set's upper end is the lower end of its complement
    p, q = (
        empirical_bernstein(
            sets @ law.mean(axis=0),
            ((sets @ np.cov(law, rowvar=False)) * sets).sum(axis=1),  # variance of each set's probability
            len(law),
            error=error,
        )
        for law in laws
    )
    forward, reverse = _larger(sets, p, q, order), _larger(sets, q, p, order)
    record: dict[str, Any] = {"confidence": confidence, "trials": (len(laws[0]), len(laws[1]))}
    return renyi_bound(forward, reverse, orders=orders, **record, law="votes", sentence=_VOTES_NOTE)


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
        check.integer(n_teachers=n_teachers, least=1)
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
        ballot_laws = np.array([_law(law) for law in laws])
        others = np.delete(ballot_laws, party, axis=0)
        sure = others.max(axis=1) == 1
        return cls(
            n=0,
            law=np.full(ballot_laws.shape[1], 1 / ballot_laws.shape[1]),
            moves=np.eye(ballot_laws.shape[1], dtype=np.int64),
            present=_law(one),
            absent=ballot_laws[party],
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
        unit = np.eye(base.size, dtype=np.int64)
        return cls(
            n=n_neighbours,
            law=base,
            moves=np.vstack([np.zeros((1, base.size), dtype=np.int64), unit[label] - unit]),
            present=np.concatenate([[1 - reached], reached * leaving]),
            absent=np.eye(1 + base.size)[0],
            fixed=np.zeros(base.size, dtype=np.int64),
            parties=np.empty((0, base.size)),
        )

    @property
    def certain(self) -> bool:
        """Whether the votes of both worlds are always the same, so that answers are independent in each."""
        sure = all(law.max() == 1 for law in (self.present, self.absent))
        return sure and not len(self.parties) and (self.n == 0 or self.law.max() == 1)

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
        possible = (self.present > 0) | (self.absent > 0)
        laws = gaussian_argmax_law(self.n, self.law, self.fixed + self.moves[possible], sigma=sigma)
        return self.present[possible] @ laws, self.absent[possible] @ laws

    def draw(self, *, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Independent draws of the part that both worlds share, (n_draws, n_classes), in votes."""
        votes = self.fixed + rng.multinomial(self.n, self.law, size=n_draws)
        for chances in np.cumsum(self.parties, axis=1):
            chosen = np.searchsorted(chances[:-1], rng.random(n_draws), side="right")
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
    ) -> Bound:
        """Lower bound for one answer from draws of the shared part; the target's part is integrated out.

        The guarantee is that of pairs in :func:`votes_lower_bound`, and holds for the model.
        """
        if np.array_equal(self.present, self.absent):
            n_draws = min(n_draws, 10)  # nothing to see
        shared = self.draw(n_draws=n_draws, rng=rng)
        possible = np.flatnonzero((self.present > 0) | (self.absent > 0))
        laws = [np.exp(mechanism.log_outcomes(shared + self.moves[move])) for move in possible]
        worlds = [np.tensordot(w[possible], laws, axes=1) for w in (self.present, self.absent)]
        reach = mechanism.curve().delta(0.0)
        return bound_pairs(*worlds, reach=reach, orders=orders, confidence=confidence)


def _law(values: Any) -> np.ndarray:
    law = np.asarray(values, dtype=np.float64)
    if law.ndim != 1 or not (law >= 0).all() or not abs(law.sum() - 1) <= 1e-9:
        raise ValueError(f"a law must be probabilities that sum to 1, got shape {law.shape}")
    return np.asarray(law / law.sum())


def _gaussian_noise(mechanism: BallotMechanism) -> float | None:
    """Sigma in votes, of an argmax of counts with Gaussian noise; else None."""
    stages = law(mechanism).stages
    kind, scale = stages[-1].noise or (None, 0.0)
    return scale if kind == GAUSSIAN and len(stages) == 1 and stages[0].offset is None else None


def gaussian_argmax_law(n: int, law: np.ndarray, fixed_votes: np.ndarray, *, sigma: float) -> np.ndarray:
    """P[class c wins], one row for each row of ``fixed_votes``: ``n`` ballots by ``law`` plus that row.

    Multinomial counts are Poisson counts given their sum, so that the probability is one coefficient of a
    product over the classes: of sum_k Poisson(k) Phi((x - k - rest) / sigma) z^k, for the winner with the
    density instead. Read off on a circle; integrated over x by the trapezoid rule. Error below 1e-12: the
    transform of a product of C functions as smooth as Phi falls like exp(-omega^2 / (2 C)).
    """
    mean = n * law
    ends = [float(f(fixed_votes, axis=None)) for f in (np.min, np.max)]
    width = 9 * math.sqrt(n) if n else 0.0
    x = np.arange(
        ends[0] + max(0.0, mean.min() - width) - _REACH * sigma,
        ends[1] + min(float(n), mean.max() + width) + _REACH * sigma,
        step := 0.8 * sigma / math.sqrt(law.size),
    )
    length = scipy.fft.next_fast_len(int(9 * math.sqrt(n)) + 40, real=True)
    circle = np.exp(-2j * np.pi * np.outer(np.arange(n + 1), np.arange(length // 2 + 1)) / length)
    factors = {
        (c, shift): _factor(x, float(mean[c]), circle, shift=float(shift), sigma=sigma)
        for c in range(law.size)
        for shift in np.unique(fixed_votes[:, c])
    }
    turn = np.exp(2j * np.pi * np.arange(length // 2 + 1) * n / length)
    weight = np.where((np.arange(turn.size) == 0) | (2 * np.arange(turn.size) == length), 1.0, 2.0)
    pick = turn * weight / length / scipy.stats.poisson.pmf(n, n) * step
    chances = np.empty((len(fixed_votes), law.size))
    for row, shifts in enumerate(fixed_votes):
        below, wins = zip(*(factors[c, shift] for c, shift in enumerate(shifts)), strict=True)
        before, after = np.ones_like(below[0]), [np.ones_like(below[0])]
        for factor in below[:0:-1]:
            after.append(after[-1] * factor)
        for c in range(law.size):
            chances[row, c] = ((before * wins[c] * after[-1 - c]).sum(axis=0) @ pick).real
            before = before * below[c]
    chances = np.maximum(chances, 0.0)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _factor(
    x: np.ndarray, mean: float, circle: np.ndarray, *, shift: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """The transform over the number of ballots of one class, as a loser and as the winner."""
    ballots = np.arange(len(circle))
    mass = scipy.stats.poisson.pmf(ballots, mean)
    keep = mass > _TINY
    ballots, mass, circle = ballots[keep], mass[keep], circle[keep]
    z = (x[:, None] - ballots - shift) / sigma
    density = np.exp(-z * z / 2) / (sigma * math.sqrt(2 * math.pi))
    return (mass * scipy.special.ndtr(z)) @ circle, (mass * density) @ circle


def _paired_bound(
    mechanism: BallotMechanism,
    votes_p: Private,
    votes_q: Private,
    *,
    orders: tuple[float, ...],
    confidence: float,
) -> Bound:
    """Lower bound from draws of votes, each made in both worlds; see :func:`votes_lower_bound`."""
    worlds = [np.asarray(votes.open()) for votes in (votes_p, votes_q)]
    if worlds[0].shape != worlds[1].shape or worlds[0].ndim != 2 or len(worlds[0]) < 10:
        raise ValueError(
            f"votes must be ten or more pairs of the same classes, got {votes_p.shape} and {votes_q.shape}"
        )
    moved = worlds[0] - worlds[1]
    if np.abs(moved).max() > 1 or np.abs(moved).sum(axis=1).max() > 2 or np.abs(moved.sum(axis=1)).max() > 1:
        raise ValueError("each pair of votes must differ in one ballot at most")
    laws = [np.exp(mechanism.log_outcomes(votes)) for votes in worlds]
    reach = mechanism.curve().delta(0.0)
    return bound_pairs(*laws, reach=reach, orders=orders, confidence=confidence)


def bound_pairs(*laws: np.ndarray, reach: float, orders: tuple[float, ...], confidence: float) -> Bound:
    """The same from laws of the answers, (n_draws, n_outcomes); ``reach``: how far apart a pair can be."""
    n_pilot = max(2, math.ceil(_PILOT * len(laws[0])))
    means = [law[:n_pilot].mean(axis=0) for law in laws]
    samples = [law[n_pilot:] for law in laws]

    def numbers(order: float, sign: int) -> Numbers:
        centred, slope_p, slope_q, height = tangent(samples[::sign], means[::sign], order)
        low = min(0.0, slope_q.min() - height) - reach * np.ptp(slope_p)
        high = max(0.0, slope_q.max() - height) + reach * np.ptp(slope_p)
        return centred, height, low, high, np.abs(slope_p).max()

    return tangent_bound(
        numbers, orders=orders, confidence=confidence, trials=len(laws[0]), law="paired", sentence=_NOTE
    )


def tangent(
    laws: Sequence[np.ndarray], means: Sequence[np.ndarray], order: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The tangent plane of F = sum p^a q^(1 - a) at the mean laws: values for pairs of laws less its height.

    Then its slopes in p - q and in q, and its height.
    """
    p, q = (mean + 1e-12 for mean in means)
    ratio = np.log(p) - np.log(q)
    slope_p = order * np.exp((order - 1) * ratio)
    slope_q = slope_p + (1 - order) * np.exp(order * ratio)  # of q, when p moves along with it
    # both are centred, which changes nothing where laws sum to 1, and keeps small differences exact
    height, middle = float(slope_q @ q / q.sum()), float((slope_p.max() + slope_p.min()) / 2)
    values = laws[1] @ (slope_q - height) + (laws[0] - laws[1]) @ (slope_p - middle)
    return values, slope_p, slope_q, height


def tangent_bound(
    numbers: Callable[[float, int], Numbers],
    *,
    orders: tuple[float, ...],
    confidence: float,
    trials: int,
    law: str,
    sentence: str,
    weights: np.ndarray | None = None,
) -> Bound:
    """Lower bounds at all orders in both directions, where the mean of some numbers is below e^((a - 1) D_a).

    ``numbers(order, sign)``: the numbers less their height, that height, the ends between which all are, and
    the size of the terms which float64 rounds. ``sign``: 1 for D(P ‖ Q), -1 for D(Q ‖ P). ``weights``: how
    often each number came; None: once.
    """
    order = check_orders(orders)
    check.share(confidence=confidence)
    error = (1 - confidence) / (2 * order.size)
    rank, ways = np.argsort(order), []
    for sign in (1, -1):
        bounds = np.zeros(order.size)
        for place in np.flatnonzero(np.isfinite(order)):
            a = order[place]
            values, height, low, high, slope = numbers(a, sign)
            span = high - low
            if not (np.isfinite(span) and span > 0):
                continue
            times = np.ones(values.size) if weights is None else weights
            n, mean = int(times.sum()), np.average(values, weights=times)
            variance = float(times @ (values - mean) ** 2) / (n - 1) / span**2
            least = empirical_bernstein((mean - low) / span, variance, n, error=error)[0] * span + low
            value = height + float(least) - _ROUNDING * (1 + a * slope)
            bounds[place] = max(0.0, math.log(value) / (a - 1) * (1 - 1e-12)) if value > 1 else 0.0
        # a larger order never has a smaller divergence: what one order shows holds for all above it
        bounds[rank] = np.maximum.accumulate(bounds[rank])
        ways.append(bounds)
    record: dict[str, Any] = {"confidence": confidence, "trials": (trials, trials)}
    return renyi_bound(*ways, orders=orders, **record, law=law, sentence=sentence)


def _larger(
    sets: np.ndarray,
    p: tuple[np.ndarray, np.ndarray],
    q: tuple[np.ndarray, np.ndarray],
    orders: np.ndarray,
) -> np.ndarray:
    """D(p ‖ q), the larger of its best 2-cut and of the cut into all outcomes."""
    (low_p, high_p), (low_q, high_q) = p, q
    # sets that p surely makes more likely; their complements are among the sets, too
    coins = of_coins(np.maximum(low_p, high_q), high_q, orders).max(axis=1)
    singles = np.flatnonzero(sets.sum(axis=1) == 1)
    singles = singles[sets[singles].argmax(axis=1).argsort()]
    cells = between_boxes(low_p[singles], high_p[singles], low_q[singles], high_q[singles], orders)
    return np.asarray(np.maximum(coins, cells))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeated:
    """The law of all answers to one question: that of their counts, given the part of the votes both share.

    Attributes
    ----------
    chances : array of shape (n_votes,)
    present, absent : arrays of shape (n_votes, n_counts)
        The target's part is integrated out.
    """

    chances: np.ndarray
    present: np.ndarray
    absent: np.ndarray

    def divergences(self, orders: tuple[float, ...]) -> np.ndarray:
        """Larger direction at each order, nats, rounded down."""
        p, q = (law / law.sum() for law in (self.chances @ self.present, self.chances @ self.absent))
        order = check_orders(orders)
        return np.asarray(np.maximum(of_laws(p, q, order), of_laws(q, p, order)))

    def bound(
        self, *, trials: int, orders: tuple[float, ...], confidence: float, rng: np.random.Generator
    ) -> Bound:
        """Lower bound from ``trials`` trainings, drawn by ``chances``; the noise is averaged within each."""
        chances, laws = self.chances / self.chances.sum(), (self.present, self.absent)
        means = [chances @ law for law in laws]

        def numbers(order: float, sign: int) -> Numbers:
            values, slope, _, height = tangent(laws[::sign], means[::sign], order)
            return values, height, float(values.min()), float(values.max()), float(np.abs(slope).max())

        return tangent_bound(
            numbers,
            weights=rng.multinomial(trials, chances),
            orders=orders,
            confidence=confidence,
            trials=trials,
            law="joint",
            sentence=_JOINT_NOTE,
        )


def repeated(model: VoteModel, mechanism: BallotMechanism, *, n_answers: int) -> Repeated | None:
    """The exact law of ``n_answers`` answers to one question, or None where it has too many cells."""
    n_classes = model.law.size
    size = math.comb(model.n + n_classes - 1, n_classes - 1)
    if size > _CELLS // 100 or (len(model.parties) and n_classes > 2):
        return None
    # every possible value of the part that both worlds share, with its probability
    votes = _compositions(model.n, n_classes)
    with np.errstate(divide="ignore"):
        log_ballot = np.maximum(np.log(model.law), -1e300)
    chances = np.exp(gammaln(model.n + 1) - gammaln(votes + 1).sum(axis=1) + votes @ log_ballot)
    for ballot in model.parties:
        chances = np.convolve(chances, ballot[::-1])
    if len(model.parties):
        votes = _compositions(model.n + len(model.parties), n_classes)
    votes, chances = votes[chances > 0] + model.fixed, chances[chances > 0]
    possible = np.flatnonzero((model.present > 0) | (model.absent > 0))
    n_outcomes = np.asarray(mechanism.log_outcomes(votes[:1])).shape[1]
    n_counts = math.comb(n_answers + n_outcomes - 1, n_outcomes - 1)
    if len(votes) * n_counts > _CELLS:
        return None
    counts = _compositions(n_answers, n_outcomes)
    ways = gammaln(n_answers + 1) - gammaln(counts + 1).sum(axis=1)
    laws = [np.zeros((len(votes), n_counts)), np.zeros((len(votes), n_counts))]
    for move in possible:
        log_law = np.maximum(mechanism.log_outcomes(votes + model.moves[move]), -1e300)
        table = np.exp(log_law @ counts.T + ways)
        laws[0] += model.present[move] * table
        laws[1] += model.absent[move] * table
    return Repeated(chances=chances, present=laws[0], absent=laws[1])


def _compositions(n: int, parts: int) -> np.ndarray:
    """All ways to write ``n`` as a sum of ``parts`` numbers >= 0; of two parts, by the first."""
    if parts == 2:
        first = np.arange(n + 1)
        return np.stack([first, n - first], axis=1)
    bars = np.array(list(itertools.combinations(range(n + parts - 1), parts - 1)), dtype=np.int64)
    bars = bars.reshape(-1, parts - 1)
    ends = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), n + parts - 1)])
    return np.asarray(np.diff(ends, axis=1) - 1)


def vote_cap(model: VoteModel, orders: tuple[float, ...]) -> np.ndarray:
    """The divergence of the votes on one question: answers to it never show more, in the model.

    Of k independent ballots one has the law P' in place of P, and nobody knows which: the likelihood ratio of
    the votes is the mean of P'/P over all k ballots. A moment of it is a coefficient of a power series, or an
    integral. Elsewhere the divergence of the target's own part, which is at least that of the votes.
    """
    p, q, n_ballots = model.present, model.absent, model.n + 1
    dealt = not (model.fixed.any() or len(model.parties)) and np.array_equal(model.moves, np.eye(p.size))
    order = check_orders(orders)
    if not dealt or not np.array_equal(q, model.law):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.maximum(of_laws(p, q, order), of_laws(q, p, order)) * _UP)
    if np.array_equal(p, q):
        return np.zeros(order.size)
    if (p[q == 0] > 0).any():
        return np.full(order.size, np.inf)
    ratio, weights = p[q > 0] / q[q > 0], q[q > 0]
    return np.array(
        [max(_forward(ratio, weights, n_ballots, a), _reverse(ratio, weights, n_ballots, a)) for a in order]
    )


def _forward(ratio: np.ndarray, weights: np.ndarray, n_ballots: int, order: float) -> float:
    """Log E S^a / (a - 1) for S the mean ratio; at the next whole order, which is no smaller."""
    if math.isinf(order):
        return float(np.log(ratio.max())) * _UP
    a = math.ceil(order)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        powers = np.log(ratio * a / n_ballots) * np.arange(a + 1)[:, None]
        powers[0] = 0.0
        base = (weights * np.exp(powers - gammaln(np.arange(a + 1) + 1)[:, None])).sum(axis=1)
        series, exponent = np.eye(a + 1)[0], n_ballots
        while exponent:
            if exponent & 1:
                series = np.convolve(series, base)[: a + 1]
            base, exponent = np.convolve(base, base)[: a + 1], exponent >> 1
        moment = gammaln(a + 1) - a * math.log(a) + np.log(series[a])
    return math.inf if not np.isfinite(moment) else float(moment) / (a - 1) * _UP


def _reverse(ratio: np.ndarray, weights: np.ndarray, n_ballots: int, order: float) -> float:
    """Log E S^(1 - a) / (a - 1), by the integral of a Gamma function over log t."""
    least, m = ratio.min(), order - 1
    if least <= 0:
        return math.inf
    if math.isinf(order):
        return -math.log(least) * _UP
    u = np.linspace(math.log(m) - 45 / m - 5, math.log(60 * (m + 1) * n_ballots / least), 40_001)
    inner = -np.exp(u)[:, None] * ratio / n_ballots
    top = inner.max(axis=1)
    log_mean = top + np.log((weights * np.exp(inner - top[:, None])).sum(axis=1))
    log_terms = m * u + n_ballots * log_mean
    total = np.logaddexp.reduce(log_terms) + math.log(u[1] - u[0]) - gammaln(m)
    return float(total) / m * _UP


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BallotPool:
    """Ballots on several questions at once: a teacher's ballots are drawn together, each teacher's by itself.

    Attributes
    ----------
    others : integer array of shape (n_pools, n_ballots, n_queries)
        Class indices. Each other teacher draws a row of its pool.
    each : int
        How many other teachers draw from each pool.
    present, absent : integer arrays of shape (n_pairs, n_queries)
        The target's teacher draws a pair: what it says after learning the target, and without.
    n_classes : int
    """

    others: np.ndarray
    each: int
    present: np.ndarray
    absent: np.ndarray
    n_classes: int

    def take(self, questions: Sequence[int]) -> BallotPool:
        """The same on some of the questions."""
        place = list(questions)
        return BallotPool(
            others=self.others[..., place],
            each=self.each,
            present=self.present[:, place],
            absent=self.absent[:, place],
            n_classes=self.n_classes,
        )

    def sampler(self) -> Draw:
        """Draw pairs of votes, with the target and without, that share all but the ballots of its teacher."""
        tables = [np.unique(pool, axis=0, return_counts=True) for pool in self.others]
        ballots = _one_hot(np.concatenate([rows for rows, _ in tables]), self.n_classes)
        shape = ballots.shape[1:]

        def draw(n_draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            times = [rng.multinomial(self.each, n / n.sum(), size=n_draws) for _, n in tables]
            weights = np.concatenate(times, axis=1).astype(np.float32)  # whole numbers: sums are exact
            shared = (weights @ ballots.reshape(len(ballots), -1)).reshape(n_draws, *shape)
            target = rng.integers(len(self.present), size=n_draws)
            with_target, without_target = (
                _one_hot(a[target], self.n_classes) for a in (self.present, self.absent)
            )
            return shared + with_target, shared + without_target

        return draw


def _one_hot(ballots: np.ndarray, n_classes: int) -> np.ndarray:
    return np.asarray(ballots[..., None] == np.arange(n_classes), dtype=np.float32)


def joint_bound(
    draw: Draw,
    mechanism: BallotMechanism,
    times: Sequence[int],
    *,
    n_draws: int,
    orders: tuple[float, ...],
    confidence: float,
    rng: np.random.Generator,
) -> Bound:
    """Lower bound on what the answers to several questions leak together, from draws of whole trainings.

    Parameters
    ----------
    draw : callable, (n, rng) -> votes with the target and without, (n, n_queries, n_classes)
        Pairs that share all but the target's ballots.
    times : sequence of int
        How often each question is asked.
    n_draws : int
        A fifth chooses the weights of the answers, the others are averaged.

    Guarantees
    ----------
    A weighted sum T of all answers is post-processing. With r any positive function of T, the mean of
    a r(T_P)^(a - 1) - (a - 1) r(T_Q)^a is at most e^((a - 1) D_a), and r is clipped, so that the mean has an
    empirical Bernstein bound. Source: Maurer and Pontil 2009, arXiv:0907.3740, Theorem 4; docs/auditing.md.
    """
    n_asked = np.asarray(times)
    n_pilot = max(10, math.ceil(_PILOT * n_draws))
    pilot = draw(n_pilot, rng)
    weights, apart = leading_direction(mechanism, *pilot, n_asked)
    weights = weights / n_asked[:, None]
    middle = _sums(mechanism, *pilot, n_asked, weights, rng=rng)[1]
    centre, spread = middle.mean(), middle.std()
    if not (apart > 0 and spread > 0):
        apart, spread = 0.0, 1.0
    remaining, sums = n_draws - n_pilot, []
    while remaining > 0:
        sums.append(_sums(mechanism, *draw(min(_CHUNK, remaining), rng), n_asked, weights, rng=rng))
        remaining -= _CHUNK
    logs = [
        np.clip(apart * (np.concatenate(s) - centre) / spread - apart**2 / 2, -_CLIP * apart, _CLIP * apart)
        for s in zip(*sums, strict=True)
    ]

    def numbers(order: float, sign: int) -> Numbers:
        top, (log_p, log_q) = _CLIP * apart, (sign * log for log in logs[::sign])
        values = order * np.exp((order - 1) * log_p) - (order - 1) * np.exp(order * log_q)
        low = order * math.exp(-(order - 1) * top) - (order - 1) * math.exp(order * top)
        high = order * math.exp((order - 1) * top) - (order - 1) * math.exp(-order * top)
        return values, 0.0, low, high, order * math.exp(order * top)

    return tangent_bound(
        numbers, orders=orders, confidence=confidence, trials=n_draws, law="joint", sentence=_JOINT_NOTE
    )


def leading_direction(
    mechanism: BallotMechanism, present: np.ndarray, absent: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, float]:
    """Weights of the answers that tell the worlds apart best where all is normal, and by how many deviations.

    ``present``, ``absent``: draws of the votes, (n_draws, n_queries, n_classes); ``times``: answers to each.
    """
    mean, shift = absent.mean(axis=0), (present - absent).mean(axis=0)
    log_p, slope = law(mechanism).gradient(mean)
    p = np.exp(log_p)
    jacobian = p[..., None] * slope
    apart = np.einsum("joc,jc->jo", jacobian, shift).ravel()
    around = np.einsum("joc,njc->njo", jacobian, absent - mean).reshape(len(absent), -1)
    spread = around.T @ around / len(absent)
    n_outcomes = p.shape[1]
    for j, (row, n) in enumerate(zip(p, times, strict=True)):
        block = slice(j * n_outcomes, (j + 1) * n_outcomes)
        spread[block, block] += (np.diag(row) - np.outer(row, row)) / n
    weights = np.linalg.solve(spread + 1e-9 * np.trace(spread) * np.eye(len(spread)), apart)
    return weights.reshape(p.shape), math.sqrt(max(0.0, float(apart @ weights)))


def _sums(
    mechanism: BallotMechanism,
    present: np.ndarray,
    absent: np.ndarray,
    times: np.ndarray,
    weights: np.ndarray,
    *,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted sums of all answers in both worlds, one a draw; both share their chance where possible."""
    shape = present.shape[:2]
    rows = [votes.reshape(-1, votes.shape[-1]) for votes in (present, absent)]
    if times.max() < _FEW:
        totals = [np.zeros(shape), np.zeros(shape)]
        for number in range(times.max()):
            seed = int(rng.integers(2**63))
            for world, votes in enumerate(rows):
                private = Private(votes, Adjacency.one_ballot())
                answers = mechanism.release(private, rng=np.random.default_rng(seed))
                places = outcome_places(answers, weights.shape[1]).reshape(shape)
                totals[world] += (number < times) * weights[np.arange(shape[1]), places]
        return totals[0].sum(axis=1), totals[1].sum(axis=1)
    p, q = (np.exp(mechanism.log_outcomes(votes)).reshape(*shape, -1) for votes in rows)
    p, q = p / p.sum(axis=2, keepdims=True), q / q.sum(axis=2, keepdims=True)
    overlap = np.minimum(p, q)
    alike = np.minimum(overlap.sum(axis=2), 1.0)
    common = rng.binomial(times, alike)
    common_counts = rng.multinomial(common, overlap / overlap.sum(axis=2, keepdims=True))
    sums = []
    for world in (p, q):
        residual = world - overlap
        total = residual.sum(axis=2, keepdims=True)
        residual = np.where(total > 0, residual / np.where(total > 0, total, 1.0), 1 / residual.shape[2])
        counts = common_counts + rng.multinomial(times - common, residual)
        sums.append((counts * weights).sum(axis=(1, 2)))
    return sums[0], sums[1]

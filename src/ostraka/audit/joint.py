"""What all answers of teachers that are trained once leak together: exact laws, caps and sampled bounds.

The partition and the seeds are drawn once, the noise of each answer anew. With L(v) the law of an answer to
the votes v, the answers have the law E_v prod_j L(v)[a_j]. It is no product of single answers' laws, and no
sum of their divergences bounds its divergence.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from ostraka.audit.cuts import check_orders, of_laws
from ostraka.audit.votes import tangent, tangent_bound
from ostraka.core.mechanisms.law import law, outcome_places
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.audit.bound import Bound
    from ostraka.audit.votes import Numbers, VoteModel
    from ostraka.core.mechanisms.law import BallotMechanism

    Draw = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]

_CELLS = 20_000_000  # of a table of votes by counts of answers
_PILOT = 0.2  # share of the draws that only standardise the statistic
_CLIP = 4.0  # standard deviations: bounds what is averaged
_CHUNK = 2_000
_FEW = 20  # answers to a question from which counts are drawn by the outcome map, and not one by one
_UP = 1 + 1e-9
_NOTE = (
    "Valid for any number of trainings and all orders at once (empirical Bernstein on a tangent of the "
    "divergence of all answers together)."
)


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
            sentence=_NOTE,
        )


def repeated(model: VoteModel, mechanism: BallotMechanism, *, n_answers: int) -> Repeated | None:
    """The exact law of ``n_answers`` answers to one question, or None where it has too many cells."""
    votes, chances = _shared(model)
    possible = np.flatnonzero((model.present > 0) | (model.absent > 0))
    if not len(votes):
        return None
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


def _shared(model: VoteModel) -> tuple[np.ndarray, np.ndarray]:
    """Every possible value of the part that both worlds share, with its probability; none if too many."""
    n_classes = model.law.size
    size = math.comb(model.n + n_classes - 1, n_classes - 1)
    if size > _CELLS // 100 or (len(model.parties) and n_classes > 2):
        return np.empty((0, n_classes)), np.empty(0)
    votes = _compositions(model.n, n_classes)
    with np.errstate(divide="ignore"):
        log_law = np.maximum(np.log(model.law), -1e300)
    chances = np.exp(gammaln(model.n + 1) - gammaln(votes + 1).sum(axis=1) + votes @ log_law)
    for ballot in model.parties:
        chances = np.convolve(chances, ballot[::-1])
    if len(model.parties):
        votes = _compositions(model.n + len(model.parties), n_classes)
    keep = chances > 0
    return votes[keep] + model.fixed, chances[keep]


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
        numbers, orders=orders, confidence=confidence, trials=n_draws, law="joint", sentence=_NOTE
    )


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

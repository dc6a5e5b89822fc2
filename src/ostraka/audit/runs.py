"""Audits of a whole run of answers, and of noisy tables, in the two worlds where one unit tells most.

Nothing private is read: the worlds follow from the mechanism and from public numbers. What leaks in them is
known from the exact law of what is released. The code that releases it is run as well, and must follow it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import scipy.fft

from ostraka.audit.bound import Finding, Measure, Verdict
from ostraka.audit.claims import MISFIT, follows, released
from ostraka.audit.cuts import epsilon_lower_bound
from ostraka.audit.intervals import largest_refuted
from ostraka.core import check
from ostraka.core.mechanisms.exact import log_normaliser
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.mechanisms.counts import NoisyCounts
    from ostraka.core.mechanisms.law import BallotMechanism

_FINEST, _MOST_CELLS = 200, 2**21
_NEGLIGIBLE = 1e-20  # probability of a score that is left out at either end
_LOST = 1e-15  # relative error of one Fourier coefficient, a few units in the last place
_DRAWS = 1e7  # noisy counts a world: half a second
_MOST_TRIALS, _LEAST_TRIALS = 20_000, 100
_CHUNK = 10_000
_NOTE = "Votes where one ballot tells most, all other ballots known"
_TAILS = (0.5, 0.2, 0.08, 0.03, 0.012)  # how often a threshold is passed in the world that it speaks for
_MOST_MOVES = 64  # moves by one whose law is computed; beyond, two cells move far
_BINS = 12
_REACH = 12  # standard deviations
_SMOOTH = 3.0  # sigma from which sums of discrete Gaussians are discrete Gaussians up to 1e-36
_DOWN = 1 - 1e-9  # sums of probabilities in floating point err by far less
_WHAT = "Tables of counts where one unit moves as far as it may, all other units known"


def audit_run(
    mechanism: BallotMechanism,
    *,
    n_answers: int,
    n_teachers: int,
    n_classes: int,
    claimed_epsilon: float,
    delta: float,
    trials: int | None = None,
    confidence: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Compute and simulate what the strongest adversary learns from a whole run.

    The adversary knows every ballot but one teacher's, and that this teacher voted for one of two classes in
    all of the questions. The votes are those where a ballot tells most. The law of a run follows exactly from
    the outcome map. In each trial the mechanism itself answers all questions; the sum of the log likelihood
    ratios must follow that law.

    Parameters
    ----------
    mechanism : ballot mechanism, such as GNMax or Confident
    n_answers, n_teachers, n_classes : int
        Of the run. Public.
    claimed_epsilon, delta : float
        What the run promises in all.
    trials : int, optional
        Runs in each world. None: 20,000, or fewer where that takes longer than a second or two.
    confidence : float in (0, 1)
    rng : numpy.random.Generator, optional
        None: noise as the door draws it, keyed by the operating system.

    Returns
    -------
    Finding
        One measure, epsilon at ``delta``. *Violated* if the lower bound is above the claim, or the runs do
        not follow the exact law (false alarm below 1e-6).

    Raises
    ------
    ValueError
        A number out of range.

    Guarantees
    ----------
    Nothing private is read, so the finding is public. No smaller epsilon at ``delta`` holds for ballots; for
    code which follows the outcome map that is certain, and it is computed from below. Where the runs do not
    follow the map, the bound is from the runs alone, at ``confidence``. Whether some data set moves a teacher
    that far is not said.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> found = audit_run(GNMax(sigma=10.0), n_answers=50, n_teachers=100, n_classes=3, trials=4000,
    ...                   claimed_epsilon=3.6, delta=1e-4, rng=np.random.default_rng(0))
    >>> found.verdict, 2.5 < found.measures[0].lower < 3.2
    ('consistent', True)
    """
    check.integer(n_answers=n_answers, least=1)
    check.nonnegative(claimed_epsilon=claimed_epsilon)
    check.delta(delta)
    check.share(confidence=confidence)
    if trials is None:
        trials = int(min(_MOST_TRIALS, max(_LEAST_TRIALS, _DRAWS / (n_answers * n_classes))))
    check.integer(trials=trials, least=100)
    worlds = worst_case_votes(mechanism, n_teachers=n_teachers, n_classes=n_classes)
    laws = run_laws(*(_log_law(mechanism, world[None])[0] for world in worlds), n_answers=n_answers)
    exact, edges = laws.epsilon(delta), laws.quantile_edges(_TAILS)
    rng = os_keyed() if rng is None else rng
    answers = {"trials": trials * n_answers, "n_outcomes": len(laws.points), "chunk": _CHUNK}
    counts = []
    for world in worlds:
        places = np.concatenate(list(released(partial(mechanism.release, rng=rng), world, **answers)))
        scores = laws.points[places].reshape(trials, n_answers).sum(axis=1)
        counts.append(np.bincount(np.searchsorted(edges, scores, side="right"), minlength=edges.size + 1))
    return finding_of(
        counts,
        laws.binned(edges),
        name=f"{n_answers} answers of {mechanism!r}",
        exact=exact,
        claimed=claimed_epsilon,
        delta=delta,
        confidence=confidence,
        trials=trials,
        note=_NOTE,
    )


def audit_counts(
    mechanism: NoisyCounts,
    *,
    claimed_epsilon: float,
    delta: float,
    n_tables: int = 1,
    trials: int = 20_000,
    confidence: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Compute and simulate what the strongest adversary learns from one noisy table, or from several.

    The adversary knows all counts but one unit's part. That part moves the table as far as the mechanism
    promises to hide: one count up and one down by one for every ballot, or two counts by more. It moves
    every table so. In each trial the mechanism itself releases the tables, and the adversary reads the log
    likelihood ratio, whose law is exact.

    Parameters
    ----------
    mechanism : NoisyCounts
        Public.
    claimed_epsilon, delta : float
        What all releases together promise.
    n_tables : int >= 1
        How many tables the mechanism releases.
    trials : int
        Releases in each world.
    confidence : float in (0, 1)
    rng : numpy.random.Generator, optional
        None: noise as the door draws it, keyed by the operating system.

    Returns
    -------
    Finding
        One measure, epsilon at ``delta``. *Violated* if the lower bound is above the claim, or the releases
        do not follow the exact law (false alarm below 1e-6). The lower bound is the larger of the exact
        epsilon and of what the releases show; the latter is wrong by a chance of 1 - ``confidence`` at most.

    Guarantees
    ----------
    Nothing private is read, so the finding is public. For code which follows the law of the discrete
    Gaussian the measure's ``exact`` is certain: the exact epsilon of a move within ``l2``, computed from
    below. Where the releases do not follow it, the bound is from them alone, at ``confidence``.

    Examples
    --------
    >>> from ostraka.core.mechanisms import NoisyCounts
    >>> mechanism = NoisyCounts(sigma=4.5)
    >>> found = audit_counts(mechanism, claimed_epsilon=1.2, delta=1e-5, rng=np.random.default_rng(0))
    >>> found.verdict, 1.18 < found.measures[0].lower < 1.2
    ('consistent', True)
    """
    check.nonnegative(claimed_epsilon=claimed_epsilon)
    check.delta(delta)
    check.share(confidence=confidence)
    check.integer(trials=trials, least=100)
    check.integer(n_tables=n_tables, least=1)
    # integers of Euclidean norm at most l2, and hardly less
    squared, step = math.floor(mechanism.l2**2 * (1 + 1e-12)), math.floor(mechanism.l2 / math.sqrt(2))
    far = squared > _MOST_MOVES
    move = np.tile([step, -step] if far else np.resize([1, -1], squared), n_tables)
    values, chances = noise_law(move, mechanism)
    loss = (float(move @ move) + 2 * values) / (2 * mechanism.sigma**2)  # in the world with the move

    def excess(epsilon: float) -> float:
        over = loss > epsilon
        return float((chances[over] * -np.expm1(epsilon - loss[over])).sum()) * _DOWN - delta

    exact = largest_refuted(excess, limit=float(loss.max()))
    edges = np.unique(values[np.searchsorted(chances.cumsum(), np.arange(1, _BINS) / _BINS)])
    rng, adjacency, counts = os_keyed() if rng is None else rng, Adjacency.vector(l2=mechanism.l2), []
    for world in (move, np.zeros_like(move)):  # the mechanism itself releases what the adversary reads
        scores = mechanism.release(Private(np.tile(world, (trials, 1)), adjacency), rng=rng) @ move
        counts.append(np.bincount(np.searchsorted(edges, scores), minlength=edges.size + 1))
    laws = [
        np.bincount(np.searchsorted(edges, at), weights=chances, minlength=edges.size + 1)
        for at in (values + int(move @ move), values)
    ]
    return finding_of(
        counts,
        laws,
        name=f"{'one table' if n_tables == 1 else f'{n_tables} tables'} by {mechanism!r}",
        exact=exact,
        claimed=claimed_epsilon,
        delta=delta,
        confidence=confidence,
        trials=trials,
        note=_WHAT,
        trial="release",
        draws="noise",
        hidden="unit",
    )


def worst_case_votes(
    mechanism: BallotMechanism, *, n_teachers: int, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return two-class votes, and the same with one ballot moved, which an answer distinguishes best.

    Parameters
    ----------
    mechanism
        As for :func:`audit_run`.
    n_teachers, n_classes : int
        Public.

    Returns
    -------
    two float64 arrays, shape (n_classes,), in votes
        Of all divisions between two classes, the pair whose answers have the largest sum of both
        Kullback-Leibler divergences. Public: no data is read.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> [votes.tolist() for votes in worst_case_votes(GNMax(sigma=10.0), n_teachers=9, n_classes=3)]
    [[5.0, 4.0, 0.0], [4.0, 5.0, 0.0]]
    """
    check.integer(n_teachers=n_teachers, least=1)
    check.integer(n_classes=n_classes, least=2)
    leading = np.arange((n_teachers + 1) // 2, n_teachers + 1, dtype=np.float64)
    votes = np.zeros((leading.size, n_classes))
    votes[:, 0], votes[:, 1] = leading, n_teachers - leading
    moved = votes.copy()
    moved[:, 0] -= 1
    moved[:, 1] += 1
    log_p, log_q = _log_law(mechanism, votes), _log_law(mechanism, moved)
    information = ((np.exp(log_p) - np.exp(log_q)) * (log_p - log_q)).sum(axis=1)
    return votes[information.argmax()], moved[information.argmax()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunLaws:
    """Laws of the score of a run in two worlds. The score is the sum of whole points of its answers.

    ``points``: of each outcome, its log likelihood ratio in units of ``step``, rounded. ``p``, ``q``:
    probability of the scores from ``lowest`` on. ``doubt``: largest error of one such probability.
    """

    points: np.ndarray
    step: float
    n_answers: int
    lowest: int
    p: np.ndarray
    q: np.ndarray
    doubt: float

    def delta(self, epsilon: float) -> float:
        """A lower bound on delta at ``epsilon``, the larger direction.

        A score is post-processing, so its hockey-stick divergence is at most that of the runs. Each point is
        rounded by half a step at most, which also bounds the ratio of both probabilities of a score.
        """
        loss = self.step * (self.lowest + np.arange(self.p.size))
        blur = self.step * self.n_answers / 2
        return max(
            self._excess(self.p, self.q, blur - loss, epsilon),
            self._excess(self.q, self.p, blur + loss, epsilon),
        )

    def _excess(self, p: np.ndarray, q: np.ndarray, log_ratio: np.ndarray, epsilon: float) -> float:
        """Sum of p - e^epsilon q where positive: p rounded down, q up; log(q / p) <= ``log_ratio``."""
        low, high = np.maximum(0.0, p - self.doubt), q + self.doubt
        with np.errstate(over="ignore", divide="ignore"):
            by_ratio = np.log(p + self.doubt) + log_ratio
            scaled = np.exp(np.minimum(700.0, epsilon + np.minimum(np.log(high), by_ratio)))
        return float(np.maximum(0.0, low - scaled).sum() * (1 - 1e-9))

    def epsilon(self, delta: float) -> float:
        """The largest epsilon whose delta is certainly above ``delta``, from below; 0 if there is none."""
        return largest_refuted(lambda epsilon: self.delta(epsilon) - delta, limit=700.0)

    def quantile_edges(self, tails: tuple[float, ...]) -> np.ndarray:
        """Scores near these upper quantiles of the first world, and lower quantiles of the second."""
        above = self.p[::-1].cumsum()[::-1]
        below = self.q.cumsum()
        places = [int(np.searchsorted(-above, -tail)) for tail in tails]
        places += [int(np.searchsorted(below, tail)) for tail in tails]
        return np.unique(self.lowest + np.array(places))

    def binned(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probability of the scores below the first edge, between each two, and from the last one on."""
        cuts = np.clip(edges - self.lowest, 0, self.p.size)
        p, q = (
            np.diff(np.concatenate([[0], law.cumsum()])[[0, *cuts, law.size]]) for law in (self.p, self.q)
        )
        return p, q


def run_laws(log_p: np.ndarray, log_q: np.ndarray, *, n_answers: int) -> RunLaws:
    """The laws of ``n_answers`` independent answers with these log probabilities of each outcome."""
    ratio = np.clip(log_p - log_q, -700.0, 700.0)
    largest = float(np.abs(ratio).max())
    fine = int(np.clip(_MOST_CELLS // (2 * n_answers), 1, _FINEST))
    step = largest / fine if largest > 0 else 1.0
    points = np.round(ratio / step).astype(np.int64)
    least, span = int(points.min()), int(np.ptp(points))
    size = scipy.fft.next_fast_len(span * n_answers + 1, real=True)
    laws, doubt = [], 0.0
    for log_law in (log_p, log_q):
        single = np.bincount(points - least, weights=np.exp(log_law), minlength=size)
        coefficients = scipy.fft.rfft(single / single.sum()) ** n_answers
        laws.append(np.maximum(0.0, scipy.fft.irfft(coefficients, size)[: span * n_answers + 1]))
        spread = 2 * float(np.abs(coefficients).mean())
        doubt = max(doubt, _LOST * (n_answers + math.log2(size + 1)) * spread)
    likely = np.flatnonzero(np.maximum(*laws) > _NEGLIGIBLE)  # leaving scores out only lowers a bound
    first, last = int(likely[0]), int(likely[-1]) + 1
    return RunLaws(
        points=points,
        step=step,
        n_answers=n_answers,
        lowest=least * n_answers + first,
        p=laws[0][first:last],
        q=laws[1][first:last],
        doubt=doubt,
    )


def _log_law(mechanism: BallotMechanism, votes: np.ndarray) -> np.ndarray:
    """Log probability of each outcome, one row a vote, with finite values for impossible outcomes."""
    return np.asarray(np.maximum(mechanism.log_outcomes(votes), -1e300))


def noise_law(move: np.ndarray, mechanism: NoisyCounts) -> tuple[np.ndarray, np.ndarray]:
    """Values of the sum of moves times noise, and their probabilities."""
    smooth = mechanism.sigma >= _SMOOTH
    spread = mechanism.sigma * (math.sqrt(len(move)) if smooth else 1.0)
    reach = math.ceil(_REACH * spread) + 1
    noise = np.arange(-reach, reach + 1)
    if smooth:  # a sum of n of them is one of sigma sqrt(n), but for 4 n exp(-pi² sigma²) of each probability
        chances = np.exp(-((noise / spread) ** 2) / 2 - log_normaliser(spread))
    else:
        single = np.exp(mechanism.log_likelihood(noise, np.zeros_like(noise)))
        chances = reduce(np.convolve, [single] * len(move))
    return int(np.abs(move).max()) * (np.arange(len(chances)) - len(chances) // 2), chances


def finding_of(
    counts: Sequence[np.ndarray],
    laws: Sequence[np.ndarray],
    *,
    name: str,
    exact: float,
    claimed: float,
    delta: float,
    confidence: float,
    trials: int,
    note: str,
    trial: str = "run",
    draws: str = "answers",
    hidden: str = "ballot",
) -> Finding:
    """Report the exact epsilon if the simulated ``counts`` follow ``laws``, else the bound from them.

    Beside an exact law chance may decide as seldom as the check of that law is wrong: both share ``MISFIT``.
    ``trial``, ``draws``, ``hidden``: words for what is simulated, what the code draws, and what it must hide.
    """
    fits = all(follows(count, law, error=MISFIT / 2) for count, law in zip(counts, laws, strict=True))
    sure = 1 - MISFIT / 2 if fits else confidence
    bound = epsilon_lower_bound(*counts, delta=delta, confidence=sure, ordered=True)
    lower = max(exact, bound.epsilon) if fits else bound.epsilon
    leak = f"an epsilon of at least {lower:.4g} (confidence {confidence:g})"
    verdict: Verdict = "violated"
    if lower > claimed:
        sentence = f"The promise is broken: a whole {trial} leaks {leak}, and {claimed:.4g} was promised."
    elif not fits:
        sentence = (
            f"The {trial}s do not follow the law that the price was computed from: the code that draws "
            f"{draws} is not the mechanism that is priced. They show {leak}."
        )
    else:
        verdict = "consistent"
        sentence = (
            f"An adversary who knows every other {hidden} learns {leak}; at most {claimed:.4g} was promised."
        )
    source = (
        f"that of the exact law, which the simulated {trial}s follow" if fits else f"from the {trial}s alone"
    )
    return Finding(
        name=name,
        verdict=verdict,
        sentence=sentence,
        measures=(Measure(what=f"epsilon at delta {delta:g}", upper=claimed, exact=exact, lower=lower),),
        confidence=confidence,
        trials=trials,
        method="exact law" if fits else bound.method,
        note=f"{note}; nothing private was read. The bound is {source}.",
    )

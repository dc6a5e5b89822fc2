"""Audits of two worlds, both simulated: of a run of answers and of counts by exact laws, and of training.

Training of teachers is repeated with and without a target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.fft

from ostraka.audit.bound import Finding, Measure, Verdict
from ostraka.audit.claims import MISFIT, follows, released
from ostraka.audit.cuts import epsilon_lower_bound
from ostraka.audit.intervals import largest_refuted
from ostraka.audit.votes import BallotPool, VoteModel
from ostraka.core import check
from ostraka.core.mechanisms.exact import log_normaliser
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.core.mechanisms.counts import NoisyCounts
    from ostraka.core.mechanisms.law import BallotMechanism

_FINEST, _MOST_CELLS = 200, 2**21
_NEGLIGIBLE = 1e-20  # probability of a score that is left out at either end
_LOST = 1e-15  # relative error of one Fourier coefficient, a few units in the last place


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


_DRAWS = 1e7  # noisy counts a world: half a second
_MOST_TRIALS, _LEAST_TRIALS = 20_000, 100
_CHUNK = 10_000
_NOTE = "Votes where one ballot tells most, all other ballots known"
_TAILS = (0.5, 0.2, 0.08, 0.03, 0.012)  # how often a threshold is passed in the world that it speaks for


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


def _log_law(mechanism: BallotMechanism, votes: np.ndarray) -> np.ndarray:
    """Log probability of each outcome, one row a vote, with finite values for impossible outcomes."""
    return np.asarray(np.maximum(mechanism.log_outcomes(votes), -1e300))


_MOST_MOVES = 64  # moves by one whose law is computed; beyond, two cells move far
_BINS = 12
_REACH = 12  # standard deviations
_SMOOTH = 3.0  # sigma from which sums of discrete Gaussians are discrete Gaussians up to 1e-36
_DOWN = 1 - 1e-9  # sums of probabilities in floating point err by far less
_WHAT = "Tables of counts where one unit moves as far as it may, all other units known"


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


Learnt = tuple[np.ndarray, np.ndarray]


class Training(Protocol):
    """Training of teachers, with fresh randomness in every call.

    Attributes
    ----------
    fixed : bool
        Whether every teacher keeps its rows (parties, as in CaPC); else all rows are dealt anew (PATE).
    n_classes : int
    """

    @property
    def fixed(self) -> bool: ...

    @property
    def n_classes(self) -> int: ...

    def ballots(
        self,
        queries: np.ndarray,
        *,
        learnt: Learnt | None = None,
        teachers: Sequence[int] | None = None,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Train all teachers or the named ones, and ask each: class indices, shape (n_teachers, n_queries).

        ``learnt``: rows and labels, one for each query; before query j every teacher also learns row j.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Retraining:
    """Any scikit-learn classifier as the teachers of a :class:`Training`.

    Attributes
    ----------
    estimator : classifier
        Cloned for each teacher; its ``random_state``, if it has one, is set anew.
    X : array of shape (n_rows, n_features)
    y : integer array of shape (n_rows,)
        Class indices.
    n_teachers, n_classes : int
    fixed : bool
        Deal the rows once, in their order; else anew in every training.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> teachers = Retraining(estimator=GaussianNB(), X=X, y=y, n_teachers=6, n_classes=2)
    >>> teachers.ballots(np.array([[3.0, 0.0]]), rng=rng).shape
    (6, 1)
    """

    estimator: Any
    X: np.ndarray
    y: np.ndarray
    n_teachers: int
    n_classes: int
    fixed: bool = False

    def ballots(
        self,
        queries: np.ndarray,
        *,
        learnt: Learnt | None = None,
        teachers: Sequence[int] | None = None,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Train the teachers, and ask each; see :class:`Training`."""
        order = np.arange(len(self.y)) if self.fixed else rng.permutation(len(self.y))
        seed = int(rng.integers(2**31))
        shards = np.array_split(order, self.n_teachers)
        chosen = range(self.n_teachers) if teachers is None else teachers
        ballots = np.empty((len(chosen), len(queries)), dtype=np.int64)
        group = None
        if learnt is not None:  # queries of one target have one training
            targets = np.column_stack([np.asarray(learnt[0]).reshape(len(queries), -1), learnt[1]])
            group = np.unique(targets, axis=0, return_inverse=True)[1].ravel()
        for votes, place in zip(ballots, chosen, strict=True):
            X, y = self.X[shards[place]], self.y[shards[place]]
            if learnt is None or group is None:
                votes[:] = self._fitted(X, y, seed + place).predict(queries)
                continue
            for number in range(int(group.max()) + 1):
                places = np.flatnonzero(group == number)
                row, label = learnt[0][places[:1]], learnt[1][places[:1]]
                teacher = self._fitted(np.concatenate([X, row]), np.concatenate([y, label]), seed + place)
                votes[places] = teacher.predict(queries[places])
        return ballots

    def _fitted(self, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
        from sklearn.base import clone  # noqa: PLC0415  (heavy)

        teacher = clone(self.estimator)
        if "random_state" in teacher.get_params():
            teacher.set_params(random_state=seed % 2**32)
        return teacher.fit(X, y)


class TeacherWorlds:
    """A :class:`Training` as a system under audit: the law of its ballots, estimated from trainings.

    Parameters
    ----------
    training : Training
    n_trainings : int
        Trainings without a target, and as many with it. Every teacher of these learns the target, by
        itself: its ballot is a draw of the one teacher's whose shard holds it.
    party : int
        Who holds the target, where teachers keep their rows.
    seed : int
        Of the trainings.

    Guarantees
    ----------
    The laws are maximum-likelihood estimates: what is found with them holds for the model, and for the
    real system as far as the model fits it. Source: Chadha et al. 2024, arXiv:2402.09403, section 5.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> teachers = Retraining(estimator=GaussianNB(), X=X, y=y, n_teachers=6, n_classes=2)
    >>> system = TeacherWorlds(teachers, n_trainings=5)
    >>> system.expected(np.array([[3.0, 0.0]]))
    array([[1., 5.]])
    """

    def __init__(self, training: Training, *, n_trainings: int = 100, party: int = 0, seed: int = 0) -> None:
        check.integer(n_trainings=n_trainings, least=1)
        self._training, self._n_trainings, self._party, self._seed = training, n_trainings, party, seed
        self._cache: tuple[bytes, np.ndarray] | None = None

    def expected(self, queries: np.ndarray) -> np.ndarray:
        """Mean votes without the target, shape (n_queries, n_classes)."""
        return np.asarray(self._rates(self._without(queries)).sum(axis=0))

    def models(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> list[VoteModel]:
        """A model of the votes on each query, where row j with label j is the target of query j."""
        without = self._rates(self._without(queries))
        present = self._rates(self._ballots(queries, (rows, labels)))
        if self._training.fixed:
            target_law = present[0]
            return [
                VoteModel.fixed_parties(without[:, j], target_law[j], party=self._party)
                for j in range(len(queries))
            ]
        base, target_law = without.mean(axis=0), present.mean(axis=0)
        return [
            VoteModel.random_shards(base[j], target_law[j], n_teachers=len(without))
            for j in range(len(queries))
        ]

    def pool(self, queries: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> BallotPool:
        """The ballots of each teacher on all queries together, with the target and without."""
        without, present = self._without(queries), self._ballots(queries, (rows, labels))
        if self._training.fixed:
            others = np.delete(without, self._party, axis=1).swapaxes(0, 1)
            present, absent, n_others = present[:, 0], without[:, self._party], 1
        else:
            absent, n_others = without.reshape(-1, len(queries)), without.shape[1] - 1
            others, present = absent[None], present.reshape(-1, len(queries))
        return BallotPool(
            others=others, each=n_others, present=present, absent=absent, n_classes=self._training.n_classes
        )

    def _without(self, queries: np.ndarray) -> np.ndarray:
        name = np.ascontiguousarray(queries).tobytes()
        if self._cache is None or self._cache[0] != name:
            self._cache = name, self._ballots(queries, None)
        return self._cache[1]

    def _ballots(self, queries: np.ndarray, learnt: Learnt | None) -> np.ndarray:
        """Ballots of all trainings, (n_trainings, n_teachers, n_queries); of a target, its party's alone."""
        rng = np.random.default_rng(self._seed)  # the same with and without: what differs is the target's
        teachers = [self._party] if self._training.fixed and learnt is not None else None
        return np.stack(
            [
                self._training.ballots(queries, learnt=learnt, teachers=teachers, rng=rng)
                for _ in range(self._n_trainings)
            ]
        )

    def _rates(self, ballots: np.ndarray) -> np.ndarray:
        """The frequency of each teacher's vote for each class, shape (n_teachers, n_queries, n_classes)."""
        classes = range(self._training.n_classes)
        return np.stack([(ballots == c).mean(axis=0) for c in classes], axis=-1)


def retrained_votes(
    fit: Callable[[np.ndarray, np.ndarray, int], Any],
    X: np.ndarray,
    y: np.ndarray,
    query: np.ndarray,
    *,
    target: tuple[Any, Any],
    n_trainings: int,
) -> tuple[Private, Private]:
    """Train a voter repeatedly in the worlds with and without a target, and collect its votes on one query.

    Parameters
    ----------
    fit : callable, (X, y, number) -> object with ``vote(X) -> Private``
        Trains on the rows of one world. All its randomness must come from ``number``: both worlds of a
        pair have the same, and then differ in the target only.
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,)
        The last row is the unit that differs: its place is the target's in the other world.
    query : array of shape (n_features,)
    target : pair of a row and its label
    n_trainings : int
        Pairs.

    Returns
    -------
    pair of Private, each of shape (n_trainings, n_classes), in votes
        With the target and without, for :func:`votes_lower_bound` with ``paired=True``, or without it where
        the voter cannot keep the rest the same.

    Raises
    ------
    ValueError
        ``n_trainings`` not a positive integer.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from ostraka import TeacherEnsemble
    >>> from ostraka.voters import partition
    >>> def fit(X, y, number):
    ...     deal = partition(len(y), n_teachers=10, key=number.to_bytes(16, "big"))
    ...     teachers = TeacherEnsemble(KNeighborsClassifier(1), n_teachers=10)
    ...     return teachers.fit(X, y, classes=[0, 1], manifest=deal)
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> with_target, without = retrained_votes(
    ...     fit, X, y, np.array([5.0, 0.0]), target=([5.0, 0.0], 0), n_trainings=3)
    >>> (with_target.open() - without.open()).tolist()
    [[1, -1], [1, -1], [1, -1]]
    """
    check.integer(n_trainings=n_trainings, least=1)
    X, y, row = np.asarray(X), np.asarray(y), np.asarray(target[0])
    worlds = (np.concatenate([X[:-1], row[None]]), np.append(y[:-1], target[1])), (X, y)
    question = np.asarray(query)[None]
    votes: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for number in range(n_trainings):
        for world_votes, (rows, labels) in zip(votes, worlds, strict=True):
            world_votes.append(fit(rows, labels, number).vote(question).open()[0])
    with_target, without = (Private(np.array(world_votes), Adjacency.one_ballot()) for world_votes in votes)
    return with_target, without

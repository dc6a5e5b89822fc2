"""Attacks on votes: what answers to one question, or tables of noisy counts, tell of the votes behind them.

What comes in: how often each answer was seen, and the mechanism, which is public. What goes out: the votes
that an attacker infers. From the votes themselves the owner learns how near any attacker comes after so many
answers, and how well low agreement of the teachers gives members of a group away.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import ndtri
from scipy.stats.qmc import Sobol

from ostraka.audit.attacks.sampler import NO_BAR, log_prior, tables, walk
from ostraka.core import check
from ostraka.core.kernels.recovery import best_steps, chain
from ostraka.core.mechanisms.law import check_ballot, law
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from ostraka.core.mechanisms.counts import NoisyCounts
    from ostraka.core.mechanisms.law import BallotMechanism

_FINEST = 2000  # counts told apart; more teachers than this are followed in larger steps
_WORK = 6e7  # multiplications a chain may take: some 50 ms
_MOST, _LEAST = 40_000, 6_000
_METHODS = ("posterior", "maximum-likelihood", "wang2022")
_PRIORS = ("leader", "alike")
_MASS = 0.95  # of an interval
_Z = float(ndtri((1 + _MASS) / 2))
_SILENT = 0.05  # information, relative to the prior's, below which answers have said next to nothing
_AS_MANY = 10.0  # without n_teachers: a count this many noise scales below the mean is as good as never
_MOST_DESCENTS = 100
_LONG, _SHORT = 10.0, 1.0  # votes
_FURTHEST = 9.0  # posterior deviations; beyond lies less than 1e-18
_DRAWS = 64
_LEADER = (0.1, 0.7, 0.99)  # its share of the votes, before any answer: like the others, most, nearly all
_REPEATS = (1, 10, 100, 1_000, 10_000)
_QUESTIONS = 24  # that a panel looks at
_ENOUGH = 1e-7  # nats that another step could still gain
_MOST_STEPS = 60
_FLAT = 1e-12  # curvature where answers say nothing at all


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredVotes:
    """An attacker's estimate of the votes on one question, with intervals.

    Attributes
    ----------
    mean : array of shape (n_classes,), in votes
        The estimate. Posterior mean, or the maximiser.
    lower, upper : arrays of shape (n_classes,), in votes
        95 % interval of each count: the shortest credible one, or a Wald interval cut to what is
        possible; NaN for ``"wang2022"``, which has none.
    mode : array of shape (n_classes,), in votes
        Likeliest votes in whole numbers.
    method : str
    relative : bool
        n_teachers was not given: every number is relative to the mean count.
    note : str
        What to know beside the numbers; empty if nothing.
    """

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    mode: np.ndarray
    method: str
    relative: bool = False
    note: str = ""


def recover_votes(
    answers: Any,
    *,
    n_teachers: int | None,
    mechanism: BallotMechanism,
    n_classes: int | None = None,
    prior: float | Literal["leader", "alike"] = "leader",
    method: Literal["posterior", "maximum-likelihood", "wang2022"] = "posterior",
) -> RecoveredVotes:
    """Recover the votes on one question from how often each outcome was seen.

    Parameters
    ----------
    answers : array of int, shape (n_classes,), or (n_classes + 1,) with a screen
        How often each class was the answer; with a screen, last, how often there was none.
        Released, so public; what comes back is about private votes.
    n_teachers : int or None
        Number of teachers. None if unknown: answers tell counts apart, not their level, and every
        number comes back relative to the mean count.
    mechanism : GNMax, LNMax, Confident or any other that answers with a class
        Public.
    n_classes : int, optional
        To check ``answers`` against; None takes what they show.
    prior : {"leader", "alike"} or float > 0
        For the posterior. ``"alike"``: Dirichlet-multinomial, all classes alike, its concentration
        inferred. A number: that concentration. ``"leader"``: the same for all classes but one,
        whose share is any (or everything) with equal chance; which one it is, is inferred too.
    method : {"posterior", "maximum-likelihood", "wang2022"}
        ``"wang2022"`` is the algorithm of Wang et al., with this library's exact probabilities.

    Returns
    -------
    RecoveredVotes
        Deterministic: the same answers give the same votes.

    Raises
    ------
    ValueError
        Answers negative, fractional, none at all, of one class, or with an outcome the mechanism
        does not have; an unknown prior or method.
    TypeError
        Not a ballot mechanism.

    Guarantees
    ----------
    Credible intervals hold the votes at least 95 % of the time if these are drawn from the prior.
    The posterior follows up to 2,000 counts one by one; more teachers in larger steps.
    Source: Wang et al. 2022, arXiv:2209.10732, for the attack.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> mechanism = GNMax(sigma=40.0)
    >>> seen = 10_000 * np.exp(mechanism.log_outcomes([[150, 60, 40]])[0])
    >>> found = recover_votes(seen.round(), n_teachers=250, mechanism=mechanism, method="maximum-likelihood")
    >>> found.mode
    array([150,  60,  40])
    """
    check.one_of(method=method, allowed=_METHODS)
    # counts of the outcomes as float64, after checks; the error names the broken rule
    check_ballot(mechanism, classes=True)
    silent = law(mechanism).abstains
    counts = np.asarray(answers)
    if counts.ndim != 1 or counts.dtype.kind not in "iuf":
        raise ValueError(
            f"answers must be numbers of shape (n_outcomes,), got {counts.dtype} of {counts.shape}"
        )
    counts = counts.astype(np.float64)
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts != np.floor(counts)).any():
        raise ValueError("answers must be whole numbers >= 0: how often each outcome was seen")
    labels = counts[: len(counts) - silent]
    if n_classes is not None and len(labels) != n_classes:
        extra = " (a column for no answer needs a screen: mechanism=Confident(screen=..., argmax=...))"
        raise ValueError(
            f"answers must have {n_classes} classes{' and no answer' if silent else ''}, "
            f"got {len(counts)} outcomes{'' if silent else extra}"
        )
    if len(labels) < 2:
        screened = " and how often there was no answer" if silent else ""
        raise ValueError(f"answers must count two classes or more{screened}, got {len(counts)} outcomes")
    if not counts.any():
        raise ValueError("answers must hold one answer or more, got none")
    if (n_teachers is None or method == "wang2022") and not labels.any():
        raise ValueError(
            "every question was refused: wang2022, and recovery without n_teachers, need answered ones"
        )
    if isinstance(prior, str):
        check.one_of(prior=prior, allowed=_PRIORS)
    else:
        check.positive(prior=prior)
    if n_teachers is None:
        # Votes relative to their mean, from the labels alone, at a level so high that no count is near zero
        argmax = law(mechanism).stages[-1]
        if argmax.noise is None:
            raise TypeError(
                f"n_teachers is needed: {argmax.mechanism!r} does not offer the scale of its noise"
            )
        _, scale = argmax.noise
        level = max(1, round(_AS_MANY * scale)) * len(labels)
        settings: dict[str, Any] = {"mechanism": argmax.mechanism, "prior": prior, "method": method}
        recovered = recover_votes(labels, n_teachers=level, **settings)
        shift = level / len(labels)
        note = "relative to the mean count: answers alone do not tell its level"
        if (labels == 0).any():
            note += "; classes never seen are bounded from above only"
        floor = np.where(labels == 0, -np.inf, recovered.lower - shift)
        return RecoveredVotes(
            mean=recovered.mean - shift,
            lower=np.where(np.isnan(recovered.lower), np.nan, floor),
            upper=recovered.upper - shift,
            mode=recovered.mode - round(shift),
            method=method,
            relative=True,
            note=f"{note}; {recovered.note}" if recovered.note else note,
        )
    check.integer(n_teachers=n_teachers, least=1)
    if method == "posterior":
        chances, best, unit = marginals(counts, n_teachers, mechanism, prior=prior)
        lower, upper = (end * unit for end in _shortest(chances))
        mean, mode = chances @ np.arange(chances.shape[1]) * unit, best * unit
        note = _silence(counts, np.full(len(mean), n_teachers / len(mean)), mechanism, "this is the prior")
    elif method == "wang2022":
        mean = _descend(labels, n_teachers, mechanism)
        lower = upper = np.full(len(labels), np.nan)
        mode = np.maximum(mean, 0) * n_teachers / np.maximum(mean, 0).sum()
        note = "wang2022 has no intervals"
    else:
        mean = mode = most_likely(counts, n_teachers, mechanism)
        basis = tangent(len(mean))
        precision = counts.sum() * basis.T @ law(mechanism).information(mean[None])[0] @ basis
        covariance = basis @ np.linalg.pinv(precision, hermitian=True) @ basis.T
        spread = _Z * np.sqrt(np.diag(covariance).clip(0))
        lower, upper = (np.clip(mean + sign * spread, 0, n_teachers) for sign in (-1, 1))
        note = _silence(counts, mean, mechanism, "maximum likelihood has next to nothing to go by")
    mode = rounded(mode, n_teachers)
    return RecoveredVotes(mean=mean, lower=lower, upper=upper, mode=mode, method=method, note=note)


def recover_counts(tables: Any, *, mechanism: NoisyCounts) -> RecoveredVotes:
    """The posterior of every count after one release of a table, or several of the same one.

    Parameters
    ----------
    tables : integer array, shape (n_releases, ...)
        Released tables. Public.
    mechanism : NoisyCounts
        Public. What released them. Counts are in its units.

    Returns
    -------
    RecoveredVotes
        Posterior mean, 95 % credible interval and likeliest value of each count, of the shape of a table,
        under a prior where all counts >= 0 are alike. The law of the noise is exact, so is the posterior.

    Raises
    ------
    ValueError
        No release, or numbers which are not integers.

    Examples
    --------
    >>> from ostraka.core.mechanisms import NoisyCounts
    >>> found = recover_counts([[[40, -2]], [[44, 1]]], mechanism=NoisyCounts(sigma=4.0))
    >>> found.mode, found.lower, found.upper
    (array([[42.,  0.]]), array([[36.,  0.]]), array([[47.,  5.]]))
    """
    releases = np.asarray(tables)
    if releases.ndim < 1 or not len(releases) or releases.dtype.kind not in "iu":
        raise ValueError(f"tables must be integers of shape (n_releases, ...), got shape {releases.shape}")
    middle = releases.mean(axis=0).ravel()
    spread = mechanism.sigma / math.sqrt(len(releases))
    reach = np.arange(math.ceil(2 * _FURTHEST * spread) + 2)
    first = np.maximum(0.0, np.ceil(middle - _FURTHEST * spread))
    counts = first[:, None] + reach
    log_chance = -(((counts - middle[:, None]) / spread) ** 2) / 2
    chance = np.exp(log_chance - log_chance.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    # first and last place of the fewest values which hold 95 %: one run, since the law has one peak
    order = np.argsort(-chance, axis=1, kind="stable")
    mass = np.take_along_axis(chance, order, axis=1).cumsum(axis=1)
    heavy = np.concatenate([np.ones((len(chance), 1), dtype=bool), mass[:, :-1] < _MASS], axis=1)
    inside = np.zeros(chance.shape, dtype=bool)
    np.put_along_axis(inside, order, heavy, axis=1)
    lower, upper = inside.argmax(axis=1), chance.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
    shape = releases.shape[1:]
    rows = np.arange(len(middle))
    return RecoveredVotes(
        mean=(chance * counts).sum(axis=1).reshape(shape),
        lower=counts[rows, lower].reshape(shape),
        upper=counts[rows, upper].reshape(shape),
        mode=counts[rows, chance.argmax(axis=1)].reshape(shape),
        method="posterior",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusTest:
    """Rates of a test that separates members of a group from others by low consensus.

    Attributes
    ----------
    precision : float or None
        Of those called members, the share that is one, in a population with as many members as
        others. None if nobody was called one.
    recall, false_alarm : float
        Share of members, and of others, whose consensus is below ``at``.
    at : float
        Consensus below which somebody is called a member.
    n_members, n_others : int
    scores : Scores
        One minus the consensus, of members and of others.
    """

    precision: float | None
    recall: float
    false_alarm: float
    at: float
    n_members: int
    n_others: int
    scores: Scores


def consensus_test(counts: Any, members: Any, *, at: float = 0.75) -> ConsensusTest:
    """Call rows on which the teachers disagree members of the group, and count how often that is right.

    Parameters
    ----------
    counts : array of shape (n_people, n_classes), in votes
        The votes on each person's row, or what an attacker recovered of them.
    members : bool array, shape (n_people,)
        Who is one, to score the test with.
    at : float in (0, 1)
        Share of the votes that the plurality must reach for somebody to count as one of the others.

    Returns
    -------
    ConsensusTest
        Its precision is that of a balanced population, by weighing both groups alike rather than
        by dropping people at random.

    Raises
    ------
    ValueError
        Counts without a vote, a group that is empty, other shapes, ``at`` out of range.

    Guarantees
    ----------
    None: a heuristic, with nothing learned from labelled people, so a better attack may exist.
    Source: Wang et al. 2022, arXiv:2209.10732, section 2 and appendix E.

    Examples
    --------
    >>> found = consensus_test([[90, 10], [60, 40], [55, 45], [99, 1]], [False, True, True, False])
    >>> found.precision, found.recall
    (1.0, 1.0)
    """
    votes = check.counts(counts)
    member = np.asarray(members)
    if member.shape != (len(votes),) or member.dtype != bool:
        shape = (len(votes),)
        raise ValueError(f"members must be bool of shape {shape}, got {member.dtype} of {member.shape}")
    if not (member.any() and not member.all()):
        raise ValueError("members must hold both members of the group and others")
    check.share(at=at)
    if not (votes.sum(axis=1) > 0).all() or (votes < 0).any():
        raise ValueError(f"counts of shape {votes.shape} must be >= 0, with a vote in every row")
    consensus = votes.max(axis=1) / votes.sum(axis=1)
    low = consensus < at
    recall, false_alarm = float(low[member].mean()), float(low[~member].mean())
    called = recall + false_alarm
    return ConsensusTest(
        precision=recall / called if called else None,
        recall=recall,
        false_alarm=false_alarm,
        at=float(at),
        n_members=int(member.sum()),
        n_others=int((~member).sum()),
        scores=Scores.of(members=1 - consensus[member], others=1 - consensus[~member]),
    )


def leakage_meter(mechanism: BallotMechanism, counts: Any, *, n_answers: Any) -> np.ndarray:
    """Votes that the best attacker still gets wrong after so many answers to one question.

    An attacker who knows which class leads and has a first guess of the other counts (the better
    of three: the leader has a tenth, most, or nearly all of the votes), and weighs answers by
    their information, under counts >= 0 with a known sum. Expected sum of absolute errors, halved,
    so that one misplaced vote counts once.

    Parameters
    ----------
    mechanism : GNMax, LNMax, Confident or any other that answers with a class, or NoisyCounts
        Public.
    counts : array of shape (n_queries, n_classes), in votes
        Private. Not negative.
    n_answers : int >= 0, or array of them, shape (n_points,)
        How often a question was answered so far.

    Returns
    -------
    float64 array, shape (n_queries,) or (n_queries, n_points), in votes
        Private, as the counts are: for the owner only.

    Raises
    ------
    ValueError
        Counts negative, not finite or of one class; ``n_answers`` negative or fractional.

    Guarantees
    ----------
    The answers' information at the true votes, by Le Cam's local limit (a Gaussian shift), averaged
    over 64 fixed quasi-random draws: an expectation, not a bound. The mean over 15 questions was
    within 26 % of what :func:`recover_votes` reaches; one question was up to five times above it,
    and for unanimous teachers after few answers up to eleven times below (docs/record/vote-recovery.md).

    Examples
    --------
    >>> from ostraka import GNMax
    >>> left = leakage_meter(GNMax(sigma=40.0), [[150, 60, 40]], n_answers=[0, 100, 10_000])
    >>> round(left[0, 0].item(), 6), bool(left[0, 1] > left[0, 2])
    (25.0, True)
    """
    votes = _votes(mechanism, counts)
    points = np.asarray(n_answers)
    if points.dtype.kind not in "iu" or points.ndim > 1 or (points < 0).any():
        raise ValueError(f"n_answers must be an integer >= 0 or an array of them, got shape {points.shape}")
    precisions = law(mechanism).information(votes)
    # fixed quasi-random normal draws, as many above zero as below
    half = ndtri(Sobol(votes.shape[1], scramble=True, rng=0).random(_DRAWS // 2).clip(1e-6, 1 - 1e-6))
    normal = np.concatenate([half, -half])
    wrong = np.array(
        [
            [_error(h, m * precision, normal) for m in points.ravel()]
            for h, precision in zip(votes, precisions, strict=True)
        ]
    )
    return wrong.reshape(len(votes), *points.shape)


def leakage_panel(
    mechanism: BallotMechanism, counts: Any, *, n_answers: Any = _REPEATS, delta: float = 1e-5
) -> dict[str, Any]:
    """Numbers about what repeated questions reveal, for the owner's part of a record.

    Parameters
    ----------
    mechanism, counts
        As for :func:`leakage_meter`.
    n_answers : array of int, shape (n_points,)
        Numbers of repeats to look at.
    delta : float
        For the price of these repeats.

    Returns
    -------
    dict
        ``questions``: how many it looks at, at most 24, from the closest vote to the clearest;
        ``delta``; and lists of one number a point. ``repeats``; ``votes_wrong``, the mean over questions of
        :func:`leakage_meter`; ``share_wrong``, the same as a share of the votes;
        ``share_wrong_least``, of the question that is easiest to read; and
        ``epsilon``, what so many repeats of one question cost at most.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> panel = leakage_panel(GNMax(sigma=40.0), [[150, 60, 40]], n_answers=[1, 1000])
    >>> panel["repeats"], panel["votes_wrong"][0] > panel["votes_wrong"][1]
    ([1, 1000], True)
    """
    points = np.atleast_1d(np.asarray(n_answers))
    votes = _votes(mechanism, counts)
    order = np.argsort(votes.max(axis=1), kind="stable")
    votes = votes[order[np.unique(np.linspace(0, len(votes) - 1, _QUESTIONS).astype(int))]]
    wrong = leakage_meter(mechanism, votes, n_answers=points)
    once = mechanism.curve()
    return {
        "questions": len(votes),
        "repeats": points.tolist(),
        "votes_wrong": wrong.mean(axis=0).tolist(),
        "share_wrong": (wrong / votes.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
        "share_wrong_least": (wrong / votes.sum(axis=1, keepdims=True)).min(axis=0).tolist(),
        "epsilon": [(int(m) * once).epsilon(delta) for m in points],
        "delta": delta,
    }


def cramer_rao(mechanism: BallotMechanism, counts: Any, *, n_answers: int) -> np.ndarray:
    """Smallest standard deviation of any unbiased estimate of each count, from so many answers.

    Parameters
    ----------
    mechanism : GNMax, LNMax, Confident or any other that answers with a class, or NoisyCounts
        Public.
    counts : array of shape (n_queries, n_classes), in votes
        Private. Not negative.
    n_answers : int >= 1
        How often each question was put.

    Returns
    -------
    float64 array, shape (n_queries, n_classes), in votes
        Private, as the counts are. 0 for a count of 0, which the attacker is then taken to know.

    Raises
    ------
    ValueError
        Counts negative, not finite or of one class; ``n_answers`` not an integer >= 1.

    Guarantees
    ----------
    Among estimates that know the number of votes. Where every count is several deviations above 0
    it also describes biased ones, such as those kept at or above 0; near 0 these can do better.
    Source: Gorman and Hero 1990, doi:10.1109/18.57210 (constraints).

    Examples
    --------
    >>> from ostraka import GNMax
    >>> cramer_rao(GNMax(sigma=40.0), [[100, 80, 70]], n_answers=10_000).round(2)
    array([[0.43, 0.47, 0.49]])
    """
    votes = _votes(mechanism, counts)
    check.integer(n_answers=n_answers, least=1)
    precisions = n_answers * law(mechanism).information(votes)
    spread = np.zeros(votes.shape)
    for row, (h, precision) in enumerate(zip(votes, precisions, strict=True)):
        free = h > 0
        if free.sum() > 1:
            basis = tangent(int(free.sum()))
            inside = np.linalg.pinv(basis.T @ precision[np.ix_(free, free)] @ basis, hermitian=True)
            spread[row, free] = np.sqrt(np.diag(basis @ inside @ basis.T).clip(0))
    return spread


def _votes(mechanism: BallotMechanism, counts: Any) -> np.ndarray:
    if law(mechanism).stages[-1].information is None:
        check_ballot(mechanism, classes=True)
    votes = check.counts(counts)
    if (votes < 0).any() or not votes.sum(axis=1).all():
        raise ValueError(f"counts of shape {votes.shape} must be >= 0, with a vote in every row")
    return votes


def _error(votes: np.ndarray, fisher: np.ndarray, normal: np.ndarray) -> float:
    """Expected votes wrong of the estimate that weighs a first guess and a Gaussian shift's one look."""
    values, vectors = np.linalg.eigh(fisher)
    looks = normal @ (vectors * np.sqrt(values.clip(0))).T
    leads, total, wrong = np.arange(len(votes)) == votes.argmax(), votes.sum(), []
    for share in _LEADER:
        # what an attacker expects who knows the leading class and its share, and how firmly
        guess = np.where(leads, share, (1 - share) / (len(votes) - 1)) * total
        firm = np.where(leads, total / 12**0.5, np.maximum(guess, 1.0)) ** -2.0
        precision, pull = fisher + np.diag(firm), firm * (guess - votes)
        moved = np.abs(best_steps(votes, pull + looks, precision)).sum(axis=1)
        wrong.append(float(moved.mean() / 2))
        wrong.append(float(np.abs(guess - votes).sum() / 2))  # answers may be left aside
    return min(wrong)


def marginals(
    answers: np.ndarray, n_teachers: int, mechanism: BallotMechanism, *, prior: float | str
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior of each class's count, shape (n_classes, n_counts); the likeliest votes; votes a count step.

    The same answers give the same result: the chain's own randomness is seeded by them.
    """
    steps = min(n_teachers, _FINEST)
    start = most_likely(answers, n_teachers, mechanism)
    unit = n_teachers / steps
    votes = rounded(start / unit, steps)
    # votes to move between two classes at a time, so that a fair part of the proposals is accepted
    precision = answers.sum() * law(mechanism).information(start[None])[0]
    diagonal = np.diag(precision)
    along = diagonal[:, None] + diagonal[None, :] - 2 * precision
    widest = max(1.0, n_teachers / 4)
    reach = np.asarray(np.minimum(1.7 / np.sqrt(np.maximum(along, widest**-2)), widest)) / unit
    seed = zlib.crc32(np.ascontiguousarray(answers, dtype=np.int64).tobytes())
    *screens, argmax = law(mechanism).stages
    bar = screens[0].bar if screens else NO_BAR
    if argmax.noise and bar and not any(stage.offset is not None for stage in (*screens, argmax)):
        lookup = tables(answers, n_teachers, noise=argmax.noise, bar=bar, steps=steps, prior=prior)
        n_steps = int(np.clip(_WORK / (2 * len(start) * lookup.cdf.shape[1]), _LEAST, _MOST))
        visits, best = chain(votes, reach, n_steps, seed, *lookup)
    else:
        weights = log_prior(steps, len(start), prior)
        visits, best = walk(votes, answers, mechanism, reach=reach, prior=weights, unit=unit, seed=seed)
    return visits / visits.sum(axis=1, keepdims=True), best, unit


def rounded(votes: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers near ``votes`` that add up to ``total``: the largest remainders go up."""
    down: np.ndarray = np.floor(np.maximum(votes, 0.0)).astype(np.int64)
    remainder = total - int(down.sum())
    order = np.argsort(down - votes, kind="stable")
    down[order[:remainder]] += 1
    return down


def _shortest(chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last count of the shortest run that holds 95 %, the heaviest among equals, a class."""
    n = chances.shape[1]
    below = np.concatenate([np.zeros((len(chances), 1)), chances.cumsum(axis=1)], axis=1)
    lower, upper = np.zeros(len(chances), np.int64), np.zeros(len(chances), np.int64)
    for k, mass_below in enumerate(below):
        last = np.searchsorted(mass_below, mass_below[:-1] + _MASS - 1e-12) - 1
        width = np.where(last < n, last - np.arange(n), n)
        weight = mass_below[np.minimum(last + 1, n)] - mass_below[:-1]
        lower[k] = np.lexsort((-weight, width))[0]
        upper[k] = last[lower[k]]
    return lower, upper


def _silence(counts: np.ndarray, votes: np.ndarray, mechanism: BallotMechanism, words: str) -> str:
    """A sentence for answers that carry hardly any information about the votes; else an empty text."""
    n_teachers = votes.sum()
    information_size = counts.sum() * np.linalg.eigvalsh(law(mechanism).information(votes[None])[0])[-1]
    if information_size * n_teachers**2 / len(votes) < _SILENT:
        return f"the answers carry hardly any information about the votes: {words}"
    return ""


def most_likely(answers: np.ndarray, total: float, mechanism: BallotMechanism) -> np.ndarray:
    """Votes, not negative and adding up to ``total``, that maximise the likelihood of the answers.

    Without a screen the likelihood is log-concave in the votes (noise with a log-concave density,
    Prékopa 1973), so what is found is the only maximum.
    """
    n_classes = len(answers) - law(mechanism).abstains
    smoothed = answers[:n_classes] + 1.0
    votes: np.ndarray = total * smoothed / smoothed.sum()
    gain, slope, curvature = _model(answers, votes, mechanism)
    damping = 0.0
    for _ in range(_MOST_STEPS):
        ridge = (damping + 1e-12) * np.trace(curvature) / n_classes + _FLAT
        [step] = best_steps(votes, slope[None], curvature + ridge * np.eye(n_classes))
        promised = float(slope @ step)
        if promised < _ENOUGH:
            if damping == 0 or promised < _ENOUGH * 1e-3:
                break
            damping = 0.0
            continue
        size = 1.0
        while size > 1e-6:
            proposal = np.maximum(votes + size * step, 0.0)
            fit = _model(answers, proposal, mechanism)
            if fit[0] >= gain + 1e-4 * size * promised:
                break
            size *= 0.5 if size > 0.3 else 0.25
        else:
            break
        damping = 0.0 if size == 1.0 else max(2 * damping, 1e-3)
        votes = proposal * (total / proposal.sum())
        gain, slope, curvature = fit
    return votes


def _model(
    answers: np.ndarray, votes: np.ndarray, mechanism: BallotMechanism
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, its gradient, and the expected curvature (Fisher information)."""
    logs, slopes = law(mechanism).gradient(votes[None])
    log_q, slope = logs[0], slopes[0]
    answered = answers > 0
    weighted = slope * (answers.sum() * np.exp(log_q))[:, None]
    return float(answers[answered] @ log_q[answered]), answers[answered] @ slope[answered], slope.T @ weighted


def _descend(answers: np.ndarray, n_teachers: int, mechanism: BallotMechanism) -> np.ndarray:
    """Votes whose outcome law points where the answers' frequencies point: steps of ten votes, then of one.

    Source: Wang et al. 2022, arXiv:2209.10732, Algorithm 2, and the authors' public code for what
    the text leaves open: both vectors are scaled to length one, the start is an even vote, and it
    ends with the first step that makes a count negative, or a short one that does not come nearer
    (that step included, as there). It knows no screen.
    """
    votes: np.ndarray = np.full(len(answers), n_teachers / len(answers))
    aim = answers / np.linalg.norm(answers)
    stride = _LONG
    distance, slope = _distance(votes, aim, mechanism)
    for _ in range(_MOST_DESCENTS):
        length = float(np.linalg.norm(slope))
        if length == 0:
            break
        proposal = votes - stride / length * slope
        gap, steeper = _distance(proposal, aim, mechanism)
        if gap > distance and stride == _LONG:
            stride = _SHORT
            continue
        ends = gap > distance or bool((proposal < 0).any())
        votes, distance, slope = proposal, gap, steeper
        if ends:
            break
    votes += (n_teachers - votes.sum()) / len(votes)
    return votes


def _distance(votes: np.ndarray, aim: np.ndarray, mechanism: BallotMechanism) -> tuple[float, np.ndarray]:
    logs, slopes = law(mechanism).stages[-1].gradient(votes[None])
    q = np.exp(logs[0])
    by_votes = slopes[0] * q[:, None]
    length = float(np.linalg.norm(q))
    gap = q / length - aim
    distance = float(np.linalg.norm(gap))
    if distance == 0:
        return 0.0, np.zeros(len(votes))
    by_q = (gap - q * (gap @ q) / length**2) / (length * distance)
    return distance, by_q @ by_votes


def tangent(n_classes: int) -> np.ndarray:
    """Orthonormal basis of the changes that keep the number of votes, shape (n_classes, n_classes - 1)."""
    steps = np.eye(n_classes)[:, 1:] - 1 / n_classes
    basis: np.ndarray = np.linalg.qr(steps)[0]
    return basis

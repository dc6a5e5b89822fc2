"""Audits of a mechanism against its price and outcome map, and of answers against a claimed epsilon."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check
from ostraka.audits import intervals
from ostraka.audits._divergence import of_laws
from ostraka.audits.cuts import Method, check_orders, hold_out, renyi_lower_bound, tallies
from ostraka.audits.epsilon import epsilon_lower_bound
from ostraka.audits.finding import Finding, Measure, Verdict
from ostraka.mechanisms.protocols import BallotMechanism, outcome_places
from ostraka.private import Adjacency, Private
from ostraka.randomness import os_keyed
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AUDIT_ORDERS", "audit_answers", "audit_mechanism", "follows", "judged_answers", "sample_outcomes"]

AUDIT_ORDERS = (2.0, 3.0, 4.0, 8.0, 16.0, 32.0)

CERTIFIED = 0.9  # of the exact divergence: what a sound audit with enough trials sees at least
MISFIT = 1e-6  # probability that answers of the right law are said not to follow the outcome map

_CHUNK = 4_000  # what fits a core's cache


def sample_outcomes(
    mechanism: BallotMechanism, votes: Any, *, trials: int, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Count the answers of a mechanism which answers the same votes many times.

    Parameters
    ----------
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
        Its own ``release`` is called, a few thousand votes at a time.
    votes : array of shape (n_classes,), in votes
        An audit's own, so not private.
    trials : int
        Public.
    rng : numpy.random.Generator, optional
        None: generators as the door makes them, ChaCha20 keyed by the operating system, one for each
        core. A generator of your own makes it repeatable, on one core.

    Returns
    -------
    int64 array, shape (n_outcomes,)
        How often each outcome came, in the order of ``log_outcomes``.

    Raises
    ------
    ValueError
        ``votes`` not of one dimension; ``trials`` not a positive integer.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> sample_outcomes(GNMax(sigma=2.0), [5, 4], trials=1000, rng=np.random.default_rng(0)).sum()
    np.int64(1000)
    """
    _check.integer(trials=trials, least=1)
    n_outcomes = len(_log_law(mechanism, votes))
    workers = 1 if rng is not None else min(os.cpu_count() or 1, math.ceil(trials / _CHUNK))
    shares = [trials // workers + (worker < trials % workers) for worker in range(workers)]

    def work(share: int) -> np.ndarray:
        own = os_keyed() if rng is None else rng
        chunk = Private(np.tile(np.asarray(votes), (min(share, _CHUNK), 1)), Adjacency.one_ballot())
        tally = np.zeros(n_outcomes, dtype=np.int64)
        for start in range(0, share, _CHUNK):
            part = chunk if share - start >= _CHUNK else chunk[: share - start]
            tally += outcome_counts(mechanism.release(part, rng=own), n_outcomes=n_outcomes)
        return tally

    if workers == 1:
        return work(trials)
    with ThreadPoolExecutor(workers) as pool:
        return np.asarray(sum(pool.map(work, shares)))


def outcome_counts(answers: np.ndarray, *, n_outcomes: int) -> np.ndarray:
    """How many times each outcome came. A screen has the outcomes "passes" and "stops", in this order."""
    return np.bincount(outcome_places(answers, n_outcomes), minlength=n_outcomes)


def audit_mechanism(
    mechanism: BallotMechanism,
    votes: Any,
    neighbour: Any,
    *,
    trials: int = 1_000_000,
    orders: tuple[float, ...] = AUDIT_ORDERS,
    confidence: float = 0.95,
    method: Method = "k-cut",
    sample: Callable[[Any], np.ndarray] | None = None,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Sample a mechanism in two neighbouring worlds, and compare it with its price and its outcome map.

    Parameters
    ----------
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
    votes, neighbour : arrays of shape (n_classes,), in votes
        An audit's own. One ballot moved, added or removed.
    trials : int
        Answers in each world.
    orders : tuple of float
        Orders of the mechanism's curve.
    confidence, method
        As for :func:`renyi_lower_bound`.
    sample : callable, votes -> int64 array of shape (n_outcomes,), optional
        How to get ``trials`` answers, for example through the door; None: :func:`sample_outcomes`.
    rng : numpy.random.Generator, optional
        For :func:`sample_outcomes`.

    Returns
    -------
    Finding
        *Violated*: more leaks than the price or the outcome map allows, or the answers do not
        follow the map (false alarm below 1e-6). *Inconclusive*: at some order less than 0.9 of the
        exact divergence was certified; take more trials. Else *consistent*.

    Raises
    ------
    ValueError
        The worlds are no neighbours, or equal; an order the curve does not have.

    Guarantees
    ----------
    A mechanism that keeps its promise is called violated with probability at most
    1 - ``confidence`` + 1e-6.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> finding = audit_mechanism(GNMax(sigma=2.0), [14, 12, 10, 8, 6], [13, 13, 10, 8, 6],
    ...                           trials=400_000, rng=np.random.default_rng(0))
    >>> finding.verdict
    'consistent'
    """
    check_orders(orders)
    _neighbours(votes, neighbour)
    curve = mechanism.curve()
    missing = [order for order in orders if order not in curve.orders]
    if missing:
        raise ValueError(f"orders must be among those of the mechanism's curve, got {missing}")
    draw = sample or (lambda world: sample_outcomes(mechanism, world, trials=trials, rng=rng))
    counts = [draw(world) for world in (votes, neighbour)]
    laws = [np.exp(_log_law(mechanism, world)) for world in (votes, neighbour)]
    bound = renyi_lower_bound(*counts, orders=orders, confidence=confidence, method=method)
    # what float64 noise may differ from real noise by is far below what any number of trials can see
    order = np.array(orders)
    exact = np.maximum(of_laws(laws[0], laws[1], order), of_laws(laws[1], laws[0], order))
    fits = all(follows(count, law) for count, law in zip(counts, laws, strict=True))
    upper = [curve.rdp[curve.orders.index(each)] for each in orders]
    measures = tuple(
        Measure(what=f"order {each:g}", upper=high, exact=middle, lower=low)
        for each, high, middle, low in zip(orders, upper, exact.tolist(), bound.rdp, strict=True)
    )
    verdict, sentence = _judged(measures, fits=fits, trials=trials, confidence=confidence)
    return Finding(
        name=repr(mechanism),
        verdict=verdict,
        sentence=sentence,
        measures=measures,
        confidence=confidence,
        trials=trials,
        method=method,
        note=bound.note,
    )


def _judged(
    measures: tuple[Measure, ...], *, fits: bool, trials: int, confidence: float
) -> tuple[Verdict, str]:
    broken = next((m for m in measures if m.lower > m.upper), None)
    if broken:
        return "violated", (
            f"The promise is broken: at {broken.what} one ballot leaks at least {broken.lower:.4g} nats "
            f"(confidence {confidence:g}), and at most {broken.upper:.4g} was promised."
        )
    off_map = next((m for m in measures if m.exact is not None and m.lower > m.exact * (1 + 1e-9)), None)
    if not fits or off_map:
        return "violated", (
            "The answers do not follow the outcome map that the price was computed from: "
            "the code that draws them is not the mechanism that is priced."
        )
    part = min(m.lower / m.exact if m.exact else 1.0 for m in measures)
    seen = f"At least {part:.1%} of what these votes leak was seen in {trials:,} answers a world"
    if part < CERTIFIED:
        return "inconclusive", f"{seen}; {CERTIFIED:.0%} is needed to call it sound: take more trials."
    return "consistent", f"{seen} (confidence {confidence:g}), and nothing beyond what was promised."


def audit_answers(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    claimed_epsilon: float,
    delta: float,
    confidence: float = 0.95,
    group: int = 1,
    rng: np.random.Generator | None = None,
) -> Finding:
    """Compare answers of a black box, from two worlds, with a claimed epsilon.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world. Or one
        :class:`ostraka.scores.Scores` in place of both.
    claimed_epsilon, delta : float
        The claim.
    confidence, group
        As for :func:`epsilon_lower_bound`.
    rng : numpy.random.Generator, optional
        Chooses the tenth of the trials that chooses the set, where there are more than 12 outcomes.
        None: keyed by the operating system.

    Returns
    -------
    Finding
        *Violated*: the claim is too small. *Inconclusive*: the observed rates are above the claim, but
        chance could be the reason, or there are too few trials to contradict the claim at all. Else
        *consistent*: which is no proof, since another target or question may leak more.

    Raises
    ------
    ValueError
        As for :func:`epsilon_lower_bound`.

    Examples
    --------
    >>> audit_answers([990, 10], [20, 980], claimed_epsilon=3.0, delta=1e-5).verdict
    'violated'
    """
    _check.nonnegative(claimed_epsilon=claimed_epsilon)
    _check.delta(delta)
    counts, pilot = tallies(outcomes_p, outcomes_q), None
    if counts[0].size > 12:
        pilot, counts = hold_out(*counts, rng=os_keyed() if rng is None else rng)
    bounded = partial(epsilon_lower_bound, delta=delta, confidence=confidence, group=group)
    bound = bounded(*counts, pilot=pilot, ordered=isinstance(outcomes_p, Scores))
    sizes = [int(count.sum()) for count in counts]
    clearest = bounded([sizes[0], 0], [0, sizes[1]]).epsilon
    verdict, sentence = judged_answers(bound.epsilon, bound.estimate, clearest, claimed_epsilon, confidence)
    what = f"epsilon at delta {delta:g}"
    return Finding(
        name=f"answers of a black box, {counts[0].size} outcomes",
        verdict=verdict,
        sentence=sentence,
        measures=(Measure(what=what, upper=claimed_epsilon, exact=None, lower=bound.epsilon),),
        confidence=confidence,
        trials=min(sizes),
        method=bound.method,
        note=bound.note,
    )


def judged_answers(
    lower: float, estimate: float, clearest: float, claimed: float, confidence: float
) -> tuple[Verdict, str]:
    """Verdict and sentence from a lower bound, an estimate, and the bound of the clearest possible counts."""
    if lower > claimed:
        return "violated", (
            f"The claim is false: these answers leak an epsilon of at least {lower:.4g} "
            f"(confidence {confidence:g}), and {claimed:g} was claimed."
        )
    if clearest <= claimed:
        return "inconclusive", (
            f"So few answers cannot contradict an epsilon of {claimed:g}: even if they gave the target "
            f"away every time, they would show {clearest:.4g}. Collect more."
        )
    if estimate > claimed:
        return "inconclusive", (
            f"The observed rates say {estimate:.4g}, above the claim of {claimed:g}, but chance could be the "
            f"reason: only {lower:.4g} is certain (confidence {confidence:g}). Collect more answers."
        )
    return "consistent", (
        f"Nothing in these answers contradicts an epsilon of {claimed:g}: they leak at least {lower:.4g} "
        f"(confidence {confidence:g}). That is no proof: another target, or other questions, may leak more."
    )


def follows(counts: np.ndarray, law: np.ndarray) -> bool:
    """Whether every outcome came as often as its probability says, by exact tests."""
    trials, each = int(counts.sum()), MISFIT / (4 * counts.size)  # two worlds, two ends
    low, high = intervals.clopper_pearson(counts, trials, error=each)
    return bool(((low <= law) & (law <= high)).all())


def _log_law(mechanism: BallotMechanism, votes: Any) -> np.ndarray:
    world = np.asarray(votes, dtype=np.float64)
    if world.ndim != 1:
        raise ValueError(f"votes must be one count a class, got shape {world.shape}")
    return np.asarray(mechanism.log_outcomes(world[None, :])[0])


def _neighbours(votes: Any, neighbour: Any) -> None:
    a, b = (np.asarray(world, dtype=np.float64) for world in (votes, neighbour))
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(
            f"votes and neighbour must have the same classes, got shapes {a.shape} and {b.shape}"
        )
    moved = b - a
    if not moved.any() or not (np.abs(moved) <= 1).all() or np.abs(moved).sum() > 2 or abs(moved.sum()) > 1:
        raise ValueError("neighbour must be votes with one ballot moved, such as 14,12,10 and 13,13,10")

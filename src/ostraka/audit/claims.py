"""Audits of answers to the same votes: of a mechanism against its price, of a black box against a claim.

What comes in: a mechanism that can be sampled, counts of answers from two worlds, or two functions that ask
for more. What goes out: a finding, which compares what was promised with what was seen.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.audit import intervals
from ostraka.audit.bound import Finding, Measure, Verdict
from ostraka.audit.cuts import (
    Method,
    check_orders,
    epsilon_lower_bound,
    hold_out,
    of_laws,
    renyi_lower_bound,
    tallies,
)
from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.mechanisms.law import BallotMechanism, outcome_places
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ostraka.audit.bound import Bound

    Ask = Callable[[int], np.ndarray]

AUDIT_ORDERS = (2.0, 3.0, 4.0, 8.0, 16.0, 32.0)
CERTIFIED = 0.9  # of the exact divergence: what a sound audit with enough trials sees at least
MISFIT = 1e-6  # probability that answers of the right law are said not to follow the outcome map
_CHUNK = 4_000  # what fits a core's cache
_SAME = 100  # answers a world after which noise would have shown


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
    a, b = (np.asarray(world, dtype=np.float64) for world in (votes, neighbour))
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(
            f"votes and neighbour must have the same classes, got shapes {a.shape} and {b.shape}"
        )
    moved = b - a
    if not moved.any() or not (np.abs(moved) <= 1).all() or np.abs(moved).sum() > 2 or abs(moved.sum()) > 1:
        raise ValueError("neighbour must be votes with one ballot moved, such as 14,12,10 and 13,13,10")
    curve = mechanism.curve()
    upper = at_orders(curve, orders, name="mechanism's curve")
    draw = sample or (lambda world: sample_outcomes(mechanism, world, trials=trials, rng=rng))
    counts = [draw(world) for world in (votes, neighbour)]
    laws = [np.exp(_log_law(mechanism, world)) for world in (votes, neighbour)]
    bound = renyi_lower_bound(*counts, orders=orders, confidence=confidence, method=method)
    # what float64 noise may differ from real noise by is far below what any number of trials can see
    order = np.array(orders)
    exact = np.maximum(of_laws(laws[0], laws[1], order), of_laws(laws[1], laws[0], order))
    fits = all(follows(count, law) for count, law in zip(counts, laws, strict=True))
    measures = order_measures(orders, upper=upper, exact=exact, lower=bound.rdp)
    broken = next((m for m in measures if m.lower > m.upper), None)
    off_map = next((m for m in measures if m.exact is not None and m.lower > m.exact * (1 + 1e-9)), None)
    part = min(m.lower / m.exact if m.exact else 1.0 for m in measures)
    share = f"At least {part:.1%} of what these votes leak was seen in {trials:,} answers a world"
    verdict: Verdict = "consistent"
    sentence = f"{share} (confidence {confidence:g}), and nothing beyond what was promised."
    if broken:
        verdict = "violated"
        sentence = (
            f"The promise is broken: at {broken.what} one ballot leaks at least {broken.lower:.4g} nats "
            f"(confidence {confidence:g}), and at most {broken.upper:.4g} was promised."
        )
    elif not fits or off_map:
        verdict = "violated"
        sentence = (
            "The answers do not follow the outcome map that the price was computed from: "
            "the code that draws them is not the mechanism that is priced."
        )
    elif part < CERTIFIED:
        verdict = "inconclusive"
        sentence = f"{share}; {CERTIFIED:.0%} is needed to call it sound: take more trials."
    finding = bound.finding(name=repr(mechanism), verdict=verdict, sentence=sentence, measures=measures)
    return replace(finding, trials=trials)


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
        :class:`ostraka.core.scores.Scores` in place of both.
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
    check.nonnegative(claimed_epsilon=claimed_epsilon)
    check.delta(delta)
    counts, pilot = tallies(outcomes_p, outcomes_q), None
    if counts[0].size > 12:
        pilot, counts = hold_out(*counts, rng=os_keyed() if rng is None else rng)
    return _judged_answers(
        counts,
        claimed_epsilon,
        delta=delta,
        confidence=confidence,
        group=group,
        pilot=pilot,
        ordered=isinstance(outcomes_p, Scores),
    )


def audit_until(
    ask_p: Ask,
    ask_q: Ask,
    *,
    promise: Curve | float,
    delta: float | None = None,
    wanted: float = 0.9,
    max_trials: int,
    first: int = 1000,
    confidence: float = 0.95,
    pilot: tuple[Any, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Finding:
    """Ask two worlds in batches until the verdict is clear. Each batch is as large as all before it.

    Parameters
    ----------
    ask_p, ask_q : callable, n -> int64 array of shape (n_outcomes,)
        How often each outcome came in ``n`` further independent answers of each world. Fewer answers than
        were asked for, such as none, mean that there are no more.
    promise : Curve, or float
        The promise for one answer: Rényi bounds of a mechanism, or an epsilon.
    delta : float, optional
        Of an epsilon.
    wanted : float > 0
        Share of the promise at which asking stops: more could only confirm it.
    max_trials : int
        Answers of each world at most.
    first : int
        Size of the first batch.
    confidence : float in (0, 1)
    pilot : pair of integer arrays, optional
        Counts of other answers, which choose the set of outcomes; needed for more than 12.
    progress : callable(trials: int, max_trials: int), optional

    Returns
    -------
    Finding
        *Violated* as soon as that is certain. *Inconclusive* where every answer of a world is the same:
        then they are no independent trials, whatever they are. Else *consistent* or *inconclusive* as for
        :func:`audit_answers`; of a Curve, inconclusive if nothing was seen to leak at all.

    Raises
    ------
    ValueError
        An epsilon without a delta, or below 0; a Curve with a delta; what :func:`renyi_lower_bound` refuses.

    Guarantees
    ----------
    A promise that is kept is called violated with probability at most 1 - ``confidence``, however often
    one looks. Source: Howard et al. 2021, arXiv:1810.08240; docs/auditing.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = audit_until(
    ...     lambda n: rng.multinomial(n, [0.9, 0.1]),
    ...     lambda n: rng.multinomial(n, [0.1, 0.9]),
    ...     promise=1.0, delta=1e-5, max_trials=10**6)
    >>> found.verdict, found.trials
    ('violated', 1000)
    """
    check.integer(max_trials=max_trials, first=first, least=1)
    check.positive(wanted=wanted)
    check.share(confidence=confidence)
    if isinstance(promise, Curve) == (delta is not None):
        raise ValueError("promise must be a Curve, or an epsilon together with its delta")
    if not isinstance(promise, Curve):
        check.nonnegative(promise=promise)
    counts: list[Any] = [0, 0]
    total = 0
    while True:
        size = min(max(first, total), max_trials - total)
        batch = [np.asarray(ask(size)) for ask in (ask_p, ask_q)]
        counts = [so_far + new for so_far, new in zip(counts, batch, strict=True)]
        total += size
        if progress is not None:
            progress(total, max_trials)
        last = total >= max_trials or any(int(new.sum()) < size for new in batch)
        if all((tally > 0).sum() <= 1 for tally in counts) and (last or total >= _SAME):
            return Finding(
                name=f"answers of a black box, {counts[0].size} outcomes",
                verdict="inconclusive",
                sentence=(
                    "Every answer of a world was the same. Either one question has one answer here "
                    "(consistent answers), or there is hardly any noise. Answers that are not drawn anew are "
                    "no independent trials, and say nothing about either. Start each deployment anew for "
                    "each answer, or choose a question the teachers are less sure of."
                ),
                measures=(),
                confidence=0.0,
                trials=min(int(tally.sum()) for tally in counts),
                method="2-cut-anytime",
                note="No bound was computed.",
            )
        if min(int(tally.sum()) for tally in counts) < 2:
            raise ValueError("two answers or more are needed of each world, but there were none to be had")
        if isinstance(promise, Curve):
            orders = tuple(order for order in AUDIT_ORDERS if order in promise.orders) or promise.orders
            bound = renyi_lower_bound(
                *counts, orders=orders, confidence=confidence, method="2-cut-anytime", pilot=pilot
            )
            upper = at_orders(promise, orders, name="promise")
            measures = order_measures(orders, upper=upper, lower=bound.rdp)
            best = max(measures, key=lambda m: m.lower / m.upper if m.upper > 0 else math.inf * (m.lower > 0))
            verdict: Verdict = "consistent" if best.lower > 0 else "inconclusive"
            leak = f"at {best.what} at least {best.lower:.4g} nats leak (confidence {confidence:g})"
            sentence = f"{leak.capitalize()}, of {best.upper:.4g} that were promised."
            if best.lower > best.upper:
                verdict = "violated"
                sentence = f"The promise is broken: {leak}, and at most {best.upper:.4g} was promised."
            name = f"two worlds, {counts[0].size} outcomes"
            finding = bound.finding(name=name, verdict=verdict, sentence=sentence, measures=measures)
            reached = verdict == "violated" or best.lower >= wanted * best.upper
        else:
            finding = _judged_answers(
                counts,
                promise,
                delta=float(delta or 0.0),
                confidence=confidence,
                method="2-cut-anytime",
                pilot=pilot,
            )
            reached = finding.measures[0].lower >= wanted * promise and finding.verdict != "inconclusive"
        if last or reached:
            return finding


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
    check.integer(trials=trials, least=1)
    n_outcomes = len(_log_law(mechanism, votes))
    workers = 1 if rng is not None else min(os.cpu_count() or 1, math.ceil(trials / _CHUNK))
    shares = [trials // workers + (worker < trials % workers) for worker in range(workers)]

    def work(share: int) -> np.ndarray:
        release = partial(mechanism.release, rng=os_keyed() if rng is None else rng)
        return outcome_counts(released(release, votes, trials=share, n_outcomes=n_outcomes), n_outcomes)

    if workers == 1:
        return work(trials)
    with ThreadPoolExecutor(workers) as pool:
        return np.asarray(sum(pool.map(work, shares)))


def released(
    release: Callable[[Private], np.ndarray], votes: Any, *, trials: int, n_outcomes: int, chunk: int = _CHUNK
) -> Iterator[np.ndarray]:
    """Outcomes of the same votes released many times, in chunks, by number: of a screen "passes", "stops"."""
    private = Private(np.tile(np.asarray(votes), (min(trials, chunk), 1)), Adjacency.one_ballot())
    for start in range(0, trials, chunk):
        yield outcome_places(release(private[: trials - start]), n_outcomes)


def outcome_counts(chunks: Iterable[np.ndarray], n_outcomes: int) -> np.ndarray:
    """How many times each outcome came."""
    return np.asarray(sum(np.bincount(places, minlength=n_outcomes) for places in chunks))


def _log_law(mechanism: BallotMechanism, votes: Any) -> np.ndarray:
    world = np.asarray(votes, dtype=np.float64)
    if world.ndim != 1:
        raise ValueError(f"votes must be one count a class, got shape {world.shape}")
    return np.asarray(mechanism.log_outcomes(world[None, :])[0])


def follows(counts: np.ndarray, law: np.ndarray, *, error: float = MISFIT) -> bool:
    """Whether every outcome came as often as its probability says, by exact tests of two worlds."""
    trials, tail_error = int(counts.sum()), error / (4 * counts.size)  # two worlds, two ends
    low, high = intervals.clopper_pearson(counts, trials, error=tail_error)
    return bool(((low <= law) & (law <= high)).all())


def at_orders(curve: Curve, orders: tuple[float, ...], *, name: str) -> list[float]:
    """The Rényi bounds of a curve at some of its orders."""
    missing = [order for order in orders if order not in curve.orders]
    if missing:
        raise ValueError(f"orders must be among those of the {name}, got {missing}")
    return [curve.rdp[curve.orders.index(order)] for order in orders]


def order_measures(orders: tuple[float, ...], **columns: Any) -> tuple[Measure, ...]:
    """A measure for each order; a column that is None is None at all of them."""
    rows: list[dict[str, Any]] = [{"what": f"order {order:g}", "exact": None} for order in orders]
    for name, column in columns.items():
        for row, value in zip(rows, [None] * len(rows) if column is None else column, strict=True):
            row[name] = None if value is None else float(value)
    return tuple(Measure(**row) for row in rows)


def _judged_answers(
    counts: Sequence[np.ndarray], claimed: float, *, delta: float, **settings: Any
) -> Finding:
    """The finding of counts against a claimed epsilon; ``settings`` are those of the bound."""
    bounded: Callable[..., Bound] = partial(epsilon_lower_bound, delta=delta, **settings)
    bound = bounded(*counts)
    sizes = [int(count.sum()) for count in counts]
    clearest = bounded([sizes[0], 0], [0, sizes[1]], pilot=None, ordered=False).epsilon
    name = f"answers of a black box, {counts[0].size} outcomes"
    return bound.against(
        claimed=claimed, clearest=clearest, name=name, outcome="these answers leak", kind="answers"
    )

"""Sequential audits: ask in batches, and stop when the verdict is clear."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check
from ostraka.audits.claims import AUDIT_ORDERS, judged_answers
from ostraka.audits.cuts import check_confidence, renyi_lower_bound
from ostraka.audits.epsilon import epsilon_lower_bound
from ostraka.audits.finding import Finding, Measure, Verdict
from ostraka.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[int], np.ndarray]

__all__ = ["audit_until"]

_SAME = 100  # answers a world after which noise would have shown


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
        An epsilon without a delta, a Curve with one; what :func:`renyi_lower_bound` refuses.

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
    _check.integer(max_trials=max_trials, first=first, least=1)
    _check.positive(wanted=wanted)
    check_confidence(confidence)
    if isinstance(promise, Curve) == (delta is not None):
        raise ValueError("promise must be a Curve, or an epsilon together with its delta")
    counts: list[Any] = [0, 0]
    asked = 0
    while True:
        size = min(max(first, asked), max_trials - asked)
        batch = [np.asarray(ask(size)) for ask in (ask_p, ask_q)]
        counts = [so_far + new for so_far, new in zip(counts, batch, strict=True)]
        asked += size
        if progress is not None:
            progress(asked, max_trials)
        last = asked >= max_trials or any(int(new.sum()) < size for new in batch)
        constant = _constant(counts)
        if constant is not None and (last or asked >= _SAME):
            return constant
        if min(int(tally.sum()) for tally in counts) < 2:
            raise ValueError("two answers or more are needed of each world, but there were none to be had")
        settings: Any = {"confidence": confidence, "pilot": pilot, "wanted": wanted}
        if isinstance(promise, Curve):
            found, reached = _of_curve(counts, promise, **settings)
        else:
            found, reached = _of_epsilon(counts, promise, delta=float(delta or 0.0), **settings)
        if last or reached:
            return found


def _of_epsilon(
    counts: list[Any], claimed: float, *, delta: float, confidence: float, pilot: Any, wanted: float
) -> tuple[Finding, bool]:
    bound = epsilon_lower_bound(
        *counts, delta=delta, confidence=confidence, method="2-cut-anytime", pilot=pilot
    )
    sizes = [int(tally.sum()) for tally in counts]
    clearest = epsilon_lower_bound(
        [sizes[0], 0], [0, sizes[1]], delta=delta, confidence=confidence, method="2-cut-anytime"
    )
    verdict, sentence = judged_answers(bound.epsilon, bound.estimate, clearest.epsilon, claimed, confidence)
    found = Finding(
        name=f"answers of a black box, {counts[0].size} outcomes",
        verdict=verdict,
        sentence=sentence,
        measures=(
            Measure(what=f"epsilon at delta {delta:g}", upper=claimed, exact=None, lower=bound.epsilon),
        ),
        confidence=confidence,
        trials=min(sizes),
        method=bound.method,
        note=bound.note,
    )
    return found, bound.epsilon >= wanted * claimed and verdict != "inconclusive"


def _of_curve(
    counts: list[Any], curve: Curve, *, confidence: float, pilot: Any, wanted: float
) -> tuple[Finding, bool]:
    orders = tuple(order for order in AUDIT_ORDERS if order in curve.orders) or curve.orders
    bound = renyi_lower_bound(
        *counts, orders=orders, confidence=confidence, method="2-cut-anytime", pilot=pilot
    )
    upper = [curve.rdp[curve.orders.index(order)] for order in orders]
    measures = tuple(
        Measure(what=f"order {order:g}", upper=high, exact=None, lower=low)
        for order, high, low in zip(orders, upper, bound.rdp, strict=True)
    )
    best = max(measures, key=lambda m: m.lower / m.upper if m.upper > 0 else math.inf * (m.lower > 0))
    verdict: Verdict = "consistent" if best.lower > 0 else "inconclusive"
    sentence = f"At {best.what} at least {best.lower:.4g} nats leak, of {best.upper:.4g} that were promised."
    if best.lower > best.upper:
        verdict = "violated"
        sentence = (
            f"The promise is broken: at {best.what} at least {best.lower:.4g} nats leak, of {best.upper:.4g}."
        )
    found = Finding(
        name=f"two worlds, {counts[0].size} outcomes",
        verdict=verdict,
        sentence=f"{sentence} (confidence {confidence:g})",
        measures=measures,
        confidence=confidence,
        trials=min(int(tally.sum()) for tally in counts),
        method=bound.method,
        note=bound.note,
    )
    return found, verdict == "violated" or best.lower >= wanted * best.upper


def _constant(counts: list[Any]) -> Finding | None:
    """An inconclusive finding if each world always gave the same answer, else None."""
    if any((tally > 0).sum() > 1 for tally in counts):
        return None
    return Finding(
        name=f"answers of a black box, {counts[0].size} outcomes",
        verdict="inconclusive",
        sentence=(
            "Every answer of a world was the same. Either one question has one answer here (consistent "
            "answers), or there is hardly any noise. Answers that are not drawn anew are no independent "
            "trials, and say nothing about either. Start each deployment anew for each answer, or choose a "
            "question the teachers are less sure of."
        ),
        measures=(),
        confidence=0.0,
        trials=min(int(tally.sum()) for tally in counts),
        method="2-cut-anytime",
        note="No bound was computed.",
    )

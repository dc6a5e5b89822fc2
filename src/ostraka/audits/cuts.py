"""Rényi lower bounds from how often each outcome was seen in two worlds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ostraka import _check
from ostraka.audits import intervals
from ostraka.audits._divergence import Found, between_boxes, of_coins
from ostraka.audits._sets import MOST_OUTCOMES, Sets, every_set
from ostraka.audits.bounds import RenyiBound
from ostraka.curve import ORDERS
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ANYTIME_NOTE",
    "Method",
    "check_confidence",
    "check_orders",
    "cut_rates",
    "hold_out",
    "renyi_lower_bound",
    "tallies",
]

Method = Literal["2-cut", "2-cut-anytime", "k-cut"]

ANYTIME_NOTE = "Valid at every number of trials at once: sampling may stop as soon as it suffices."
_NOTES: dict[str, str] = {
    "2-cut": "Valid for any number of trials, any outcomes and all orders at once (Clopper-Pearson).",
    "2-cut-anytime": ANYTIME_NOTE,
    "k-cut": "Valid for any number of trials and all orders at once (Clopper-Pearson on every outcome).",
}


def renyi_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    orders: tuple[float, ...] = ORDERS,
    confidence: float = 0.95,
    method: Method = "2-cut",
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> RenyiBound:
    """Lower bound on the Rényi divergence between two worlds, from how often each outcome was seen.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world. Or one
        :class:`ostraka.scores.Scores` in place of both: its members are world P.
    orders : tuple of float > 1
        The last may be infinity.
    confidence : float in (0, 1)
    method : {"2-cut", "2-cut-anytime", "k-cut"}
        ``"2-cut"``: the divergence between one set of outcomes and the rest. ``"2-cut-anytime"``:
        the same, valid however often one looks. ``"k-cut"``: the divergence between all outcomes.
    pilot : pair of integer arrays, optional
        Counts from *other* trials, which only choose the sets of a 2-cut: see :func:`hold_out`.
        None: every set is tried and the error shared among them, up to 12 outcomes. For few outcomes
        and many trials both certify about as much; for many outcomes a pilot certifies more.
    ordered : bool
        Outcomes are ordered, as scores are: only sets of neighbours at either end are tried. Scores
        are always ordered.

    Returns
    -------
    RenyiBound
        At least 0. Both directions, and all orders, are below the truth with probability ``confidence``.

    Raises
    ------
    ValueError
        Counts of different shapes or none, orders not above 1, more than 12 outcomes and no pilot.

    Guarantees
    ----------
    Every method is valid for any number of trials and any laws. With p_low and q_high the one-sided ends
    for a set, D(p ‖ q) >= D(p_low ‖ q_high) where p_low > q_high, since the divergence of two coins grows
    as they part. Chadha et al. use the other two ends for the rest of the outcomes, which is lower.
    Source: Chadha et al. 2024, arXiv:2402.09403, section 4.2 and appendix B.

    Examples
    --------
    >>> bound = renyi_lower_bound([725, 222, 53], [469, 469, 62], orders=(2.0, 32.0))
    >>> [round(value, 3) for value in bound.rdp], bound.cuts
    ([0.138, 0.475], ((0, 2), (0, 2)))
    """
    counts, order = tallies(outcomes_p, outcomes_q), check_orders(orders)
    ordered = ordered or isinstance(outcomes_p, Scores)
    check_confidence(confidence)
    _check.one_of(method=method, allowed=get_args(Method))
    error = 1 - confidence
    if method == "k-cut":
        found = _all_outcomes(counts, order, error)
    else:
        found = _two_cut(counts, order, method, error, pilot, ordered=ordered)
    return RenyiBound(
        orders=tuple(orders),
        rdp=tuple(np.maximum(found.forward, found.reverse).tolist()),
        forward=tuple(found.forward.tolist()),
        reverse=tuple(found.reverse.tolist()),
        cuts=found.cuts,
        confidence=confidence,
        trials=(int(counts[0].sum()), int(counts[1].sum())),
        method=method,
        note=_NOTES[method],
    )


def hold_out(
    outcomes_p: Any, outcomes_q: Any = None, *, part: float = 0.1, rng: np.random.Generator
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Split counts at random into a pilot, which chooses a set of outcomes, and the rest, which tests it.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        Or one :class:`ostraka.scores.Scores` in place of both.
    part : float in (0, 1)
        Share of the trials that goes to the pilot.
    rng : numpy.random.Generator
        Decides which trials they are. It must not have been chosen after looking at the result.

    Returns
    -------
    pair of pairs of int64 arrays
        Counts of both worlds in the pilot, and in the rest.

    Examples
    --------
    >>> pilot, rest = hold_out([400, 600], [500, 500], rng=np.random.default_rng(1))
    >>> pilot[0].sum(), rest[0].sum(), (pilot[0] + rest[0]).tolist()
    (np.int64(100), np.int64(900), [400, 600])
    """
    if not 0 < part < 1:
        raise ValueError(f"part must be between 0 and 1, got {part!r}")
    counts = tallies(outcomes_p, outcomes_q)
    pilot = []
    for tally in counts:
        size = min(max(1, round(part * int(tally.sum()))), int(tally.sum()) - 1)
        pilot.append(rng.multivariate_hypergeometric(tally, size, method="marginals"))
    return (pilot[0], pilot[1]), (counts[0] - pilot[0], counts[1] - pilot[1])


def tallies(outcomes_p: Any, outcomes_q: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Checked counts of two worlds, int64; members and others of Scores."""
    if isinstance(outcomes_p, Scores):
        if outcomes_q is not None:
            raise ValueError("outcomes_q must not be given beside Scores, which hold both worlds")
        outcomes_p, outcomes_q = outcomes_p.members, outcomes_p.others
    worlds = [np.asarray(outcomes_p), np.asarray(outcomes_q)]
    for name, array in zip(("outcomes_p", "outcomes_q"), worlds, strict=True):
        whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and (array == np.floor(array)).all())
        if array.ndim != 1 or array.size < 2 or not whole or (array < 0).any() or not array.sum() >= 2:
            raise ValueError(
                f"{name} must say how often each of two or more outcomes was seen, in two trials or more: "
                f"integers >= 0 in one dimension, got shape {array.shape}"
            )
    if worlds[0].shape != worlds[1].shape:
        raise ValueError(
            f"both worlds must have the same outcomes, got {worlds[0].size} and {worlds[1].size}: "
            "count an outcome that was not seen as 0"
        )
    return worlds[0].astype(np.int64), worlds[1].astype(np.int64)


def cut_rates(
    counts: tuple[np.ndarray, np.ndarray],
    value: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    method: str,
    error: float,
    pilot: tuple[Any, Any] | None,
    ordered: bool,
) -> tuple[Sets, np.ndarray, np.ndarray]:
    """Sets with a lower end in P and an upper end in Q, all of them right but for ``error``.

    ``value(p, q)`` is what the bound will be: a pilot chooses the best set for each of its rows.
    """
    interval = intervals.confidence_sequence if method.endswith("anytime") else intervals.clopper_pearson
    sets = _sets(counts[0].size, pilot, ordered=ordered)
    if pilot is not None:
        sets = sets.best(tallies(*pilot), value, partial(interval, error=error / 2))
    each = error / (2 * len(sets))
    low = interval(sets.sums(counts[0]), int(counts[0].sum()), error=each)[0]
    high = interval(sets.sums(counts[1]), int(counts[1].sum()), error=each)[1]
    return sets, low, high


def _sets(n_outcomes: int, pilot: tuple[Any, Any] | None, *, ordered: bool) -> Sets:
    if pilot is not None:
        p, q = tallies(*pilot)
        if p.size != n_outcomes:
            raise ValueError(f"pilot must have the same {n_outcomes} outcomes, got {p.size}")
        if ordered or n_outcomes > MOST_OUTCOMES:
            ratio = (p + 0.5) / (p.sum() + 0.5 * p.size) * (q.sum() + 0.5 * q.size) / (q + 0.5)
            order = np.arange(n_outcomes) if ordered else np.argsort(-ratio, kind="stable")
            return Sets.thresholds(order, p / p.sum() + q / q.sum())
    if ordered:
        return Sets.thresholds(np.arange(n_outcomes))
    return every_set(n_outcomes)


def _two_cut(
    counts: tuple[np.ndarray, np.ndarray],
    orders: np.ndarray,
    method: str,
    error: float,
    pilot: tuple[Any, Any] | None,
    *,
    ordered: bool,
) -> Found:
    def value(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        p = np.maximum(p, q)  # where the ends have crossed nothing is known: equal coins
        return np.concatenate([of_coins(p, q, orders), of_coins(q, p, orders)])

    sets, low, high = cut_rates(counts, value, method=method, error=error, pilot=pilot, ordered=ordered)
    table = value(low, high)
    forward, reverse = table[: orders.size], table[orders.size :]
    best = np.maximum(forward, reverse)
    cuts = tuple(
        sets.cut(int(place)) if row[place] > 0 else ()
        for row, place in zip(best, best.argmax(axis=1), strict=True)
    )
    return Found(forward.max(axis=1), reverse.max(axis=1), cuts)


def _all_outcomes(counts: tuple[np.ndarray, np.ndarray], orders: np.ndarray, error: float) -> Found:
    each = error / (4 * counts[0].size)
    (low_p, high_p), (low_q, high_q) = (
        intervals.clopper_pearson(c, int(c.sum()), error=each) for c in counts
    )
    return Found.of(
        between_boxes(low_p, high_p, low_q, high_q, orders),
        between_boxes(low_q, high_q, low_p, high_p, orders),
    )


def check_orders(orders: tuple[float, ...]) -> np.ndarray:
    """The orders as an array, if there is one and all are above 1."""
    array = np.array(orders, dtype=np.float64)
    if array.ndim != 1 or not array.size or not (array > 1).all():
        raise ValueError(f"orders must all be above 1, got {orders!r}")
    return array


def check_confidence(confidence: float) -> None:
    """Raise unless it is a probability below 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")

"""The audit with the outcome map where the worlds share their randomness: tangents of the divergence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ostraka.audits.bounds import RenyiBound
from ostraka.audits.cuts import check_confidence, check_orders
from ostraka.audits.intervals import empirical_bernstein
from ostraka.audits.whitebox import Mapped
from ostraka.curve import ORDERS

if TYPE_CHECKING:
    from ostraka.curve import Curve
    from ostraka.private import Private

__all__ = ["PricedMap", "bound_pairs", "paired_lower_bound"]

_PILOT = 0.2  # share of the pairs that only choose where the divergence is touched
_ROUNDING = 1e-14
_NOTE = (
    "Valid for any number of pairs and all orders at once (empirical Bernstein on a tangent of the "
    "divergence), for the code that the outcome map describes, and the system the votes were drawn from."
)


class PricedMap(Mapped, Protocol):
    """A mechanism with a price and an outcome map."""

    def curve(self) -> Curve:
        """Cost of one answer."""
        ...


def paired_lower_bound(
    mechanism: PricedMap,
    votes_p: Private,
    votes_q: Private,
    *,
    orders: tuple[float, ...] = ORDERS,
    confidence: float = 0.95,
) -> RenyiBound:
    """Lower bound on what one answer leaks where each draw of the votes is made in both worlds at once.

    The shards, seeds and samples of a pair are the same, and only the target differs. Then one ballot
    at most differs, so that a few dozen real trainings tell what takes millions of separate ones.

    Parameters
    ----------
    mechanism : GNMax, LNMax or Threshold
        Public.
    votes_p, votes_q : Private of shape (n_draws, n_classes), in votes
        Row i of both comes from one draw of all randomness but the target's presence. The pairs are
        independent of one another: :func:`retrained_votes`, or the voters themselves.
    orders : tuple of float > 1
    confidence : float in (0, 1)

    Returns
    -------
    RenyiBound
        ``trials`` counts pairs.

    Raises
    ------
    ValueError
        Fewer than ten pairs, other shapes, a pair that differs in more than one ballot.

    Guarantees
    ----------
    ``F(p, q) = sum p^order q^(1 - order)`` is jointly convex and homogeneous, so it lies above its tangent
    plane at any point, and F of the mean laws lies above the mean of that plane over pairs. A fifth of
    the pairs choose the point. Source: docs/auditing.md; Maurer and Pontil 2009, arXiv:0907.3740,
    Theorem 4.

    Examples
    --------
    >>> from ostraka import Adjacency, GNMax, Private
    >>> without = np.random.default_rng(0).multinomial(19, [0.6, 0.4], size=200) + [1, 0]
    >>> votes_p, votes_q = (Private(v, Adjacency.one_ballot()) for v in (without + [-1, 1], without))
    >>> bound = paired_lower_bound(GNMax(sigma=4.0), votes_p, votes_q, orders=(2.0,))
    >>> bound.rdp[0] > 0.015
    True
    """
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


def bound_pairs(
    laws_p: np.ndarray,
    laws_q: np.ndarray,
    *,
    reach: float,
    orders: tuple[float, ...],
    confidence: float,
) -> RenyiBound:
    """The same from laws of the answers, (n_draws, n_outcomes); ``reach``: how far apart a pair can be."""
    order = check_orders(orders)
    check_confidence(confidence)
    n_pilot = max(2, math.ceil(_PILOT * len(laws_p)))
    error = (1 - confidence) / (2 * order.size)
    forward, reverse = (
        _one_way(p, q, n_pilot, order, reach=reach, error=error)
        for p, q in ((laws_p, laws_q), (laws_q, laws_p))
    )
    return RenyiBound(
        orders=tuple(orders),
        rdp=tuple(np.maximum(forward, reverse).tolist()),
        forward=tuple(forward.tolist()),
        reverse=tuple(reverse.tolist()),
        cuts=((),) * order.size,
        confidence=confidence,
        trials=(len(laws_p), len(laws_q)),
        method="paired",
        note=_NOTE,
    )


def _one_way(
    laws_p: np.ndarray, laws_q: np.ndarray, n_pilot: int, orders: np.ndarray, *, reach: float, error: float
) -> np.ndarray:
    p0, q0 = (laws[:n_pilot].mean(axis=0) + 1e-12 for laws in (laws_p, laws_q))
    ratio = np.log(p0) - np.log(q0)
    q, moved = laws_q[n_pilot:], laws_p[n_pilot:] - laws_q[n_pilot:]
    found = np.zeros(orders.size)
    for place in np.flatnonzero(np.isfinite(orders)):
        a = orders[place]
        slope_p = a * np.exp((a - 1) * ratio)
        slope_q = slope_p + (1 - a) * np.exp(a * ratio)  # of q, when p moves along with it
        # both are centred, which changes nothing where laws sum to 1, and keeps small differences exact
        height, middle = float(slope_q @ q0 / q0.sum()), float((slope_p.max() + slope_p.min()) / 2)
        values = q @ (slope_q - height) + moved @ (slope_p - middle)
        low = min(0.0, slope_q.min() - height) - reach * np.ptp(slope_p)
        span = max(0.0, slope_q.max() - height) + reach * np.ptp(slope_p) - low
        if not (np.isfinite(span) and span > 0):
            continue
        mean, variance = (values.mean() - low) / span, values.var(ddof=1) / span**2
        least = empirical_bernstein(mean, variance, values.size, error=error)[0] * span + low
        value = height + float(least) - _ROUNDING * (1 + a * np.abs(slope_p).max())
        found[place] = max(0.0, math.log(value) / (a - 1) * (1 - 1e-12)) if value > 1 else 0.0
    # a larger order never has a smaller divergence: what one order shows holds for all above it
    rank = np.argsort(orders)
    found[rank] = np.maximum.accumulate(found[rank])
    return found

"""Lower bounds from pairs of votes that share all randomness but the target: tangents of the divergence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka.audits.bounds import RenyiBound
from ostraka.audits.cuts import check_confidence, check_orders
from ostraka.audits.intervals import empirical_bernstein

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.private import Private

__all__ = ["bound_pairs", "paired_bound"]

_PILOT = 0.2  # share of the pairs that only choose where the divergence is touched
_ROUNDING = 1e-14
_NOTE = (
    "Valid for any number of pairs and all orders at once (empirical Bernstein on a tangent of the "
    "divergence), for the code that the outcome map describes, and the system the votes were drawn from."
)


def paired_bound(
    mechanism: BallotMechanism,
    votes_p: Private,
    votes_q: Private,
    *,
    orders: tuple[float, ...],
    confidence: float,
) -> RenyiBound:
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

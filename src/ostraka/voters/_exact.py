"""Exact cost of an answer that is computed from a sample, for given data of two classes. Private.

The units are visited nearest first. The state is the number of ballots of each class so far. Its law is a
product of two binomials; the law of the answer from a state is computed backwards. So one pass gives the law
of the answer with any unit removed, and with a unit of either class inserted at any place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["SURELY", "sampled_rdp"]

# -log of the probability that a sample needs more units than these, which bounds the error of the laws
SURELY = 80.0
# Each divergence is exact to a relative 1e-9 and 1e-13; these additions make the result an upper bound.
_OUTWARD, _LOST = 1 + 1e-8, 1e-12
# Beyond this ratio a subtraction loses too many digits; below this probability it loses all of them.
_FURTHEST, _RAREST = 1e4, 1e-250


def sampled_rdp(
    mechanism: BallotMechanism,
    codes: np.ndarray,
    *,
    k: int,
    sampling_rate: float,
    orders: tuple[float, ...],
    whole: bool,
) -> np.ndarray:
    """Largest divergence from a neighbour in either direction; infinity where it cannot be computed.

    ``codes``: classes 0 and 1 of the units around one query, nearest first; ``whole``: these are all units.
    """
    law, steps = _laws(_outcomes(mechanism, k), codes, k, sampling_rate)
    near = law + sampling_rate * steps
    if not (law.min() > _RAREST and (near * _FURTHEST > law).all()):
        return np.full(len(orders), math.inf)
    off = 0.0 if whole else math.log1p(4 * math.exp(-SURELY) / min(law.min(), near.min()))
    order = np.array(orders)
    finite = order[np.isfinite(order)]
    log_p, log_q = np.log(near), np.log(law)
    found = np.maximum(_divergence(log_p, log_q, finite), _divergence(log_q, log_p, finite))
    found += off * (2 * finite - 1) / (finite - 1)
    if len(finite) < len(order):
        found = np.append(found, np.abs(log_p - log_q).max() + 2 * off)
    return np.asarray(found * _OUTWARD + _LOST)


def _outcomes(mechanism: BallotMechanism, k: int) -> np.ndarray:
    """Probability of both outcomes in every state, shape (2, k + 1, k + 1); 0 for more than k ballots."""
    a, b = np.indices((k + 1, k + 1))
    possible = a + b <= k
    found = np.zeros((2, k + 1, k + 1))
    found[:, possible] = np.exp(mechanism.log_outcomes(np.stack([a[possible], b[possible]], axis=1))).T
    return found


def _laws(after: np.ndarray, codes: np.ndarray, k: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of both outcomes, and their differences for each neighbour divided by the rate."""
    before = np.concatenate([[[0, 0]], np.cumsum(np.stack([codes == 0, codes == 1], axis=1), axis=0)])
    ballots = np.arange(k)
    first, second = (binom.pmf(ballots, np.arange(most + 1)[:, None], rate) for most in before[-1])
    open_ = np.add.outer(ballots, ballots) < k
    steps = []
    for place in range(len(codes), -1, -1):
        now = after[:, :k, :k]
        one_more = [(later - now) * open_ for later in (after[:, 1:, :k], after[:, :k, 1:])]
        a, b = before[place]
        steps += [first[a] @ change @ second[b] for change in one_more]  # inserted here
        if place:
            a, b = before[place - 1]
            change = one_more[codes[place - 1]]
            steps.append(-(first[a] @ change @ second[b]))  # the unit before removed
            after[:, :k, :k] += rate * change
    return after[:, 0, 0], np.array(steps)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The largest divergence over rows, at each order."""
    found = np.empty(len(orders))
    for at, order in enumerate(orders):
        found[at] = np.logaddexp.reduce(order * log_p + (1 - order) * log_q, axis=1).max() / (order - 1)
    return np.maximum(found, 0.0)

"""What an answer from a sample really costs, for the data at hand: exact, two classes. Owner only.

Along the units, nearest first, the state is how many ballots of each class the sample has given so far.
What came before is two independent binomials; what will come of a state is found going backwards. So one
pass gives the law of the answer with any unit left out, and with one of either class put in at any place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom

if TYPE_CHECKING:
    from ostraka.mechanisms import GNMax, LNMax, Threshold

__all__ = ["SURELY", "sampled_rdp"]

# -log of the chance that a sample reaches beyond the units that are followed: as far as their laws are off
SURELY = 80.0
# Rounding: each divergence is right to 1e-9 of itself and 1e-13; what is added makes it err upwards.
_OUTWARD, _LOST = 1 + 1e-8, 1e-12
# Laws further apart lose too many digits in a subtraction, and rarer outcomes all of them.
_FURTHEST, _RAREST = 1e4, 1e-250


def sampled_rdp(
    mechanism: GNMax | LNMax | Threshold,
    codes: np.ndarray,
    *,
    k: int,
    sampling_rate: float,
    orders: tuple[float, ...],
    whole: bool,
) -> np.ndarray:
    """Largest divergence from any neighbour by one unit, either direction; infinity where it is not known.

    ``codes``: classes 0 and 1 of the units around one query, nearest first; ``whole``: there are no others.
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


def _outcomes(mechanism: GNMax | LNMax | Threshold, k: int) -> np.ndarray:
    """Probability of both outcomes for every state, shape (2, k + 1, k + 1); 0 where ballots exceed k."""
    a, b = np.indices((k + 1, k + 1))
    possible = a + b <= k
    found = np.zeros((2, k + 1, k + 1))
    found[:, possible] = np.exp(mechanism.log_outcomes(np.stack([a[possible], b[possible]], axis=1))).T
    return found


def _laws(after: np.ndarray, codes: np.ndarray, k: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Chances of both outcomes, and by how much those of each neighbour differ, over the rate."""
    before = np.concatenate([[[0, 0]], np.cumsum(np.stack([codes == 0, codes == 1], axis=1), axis=0)])
    ballots = np.arange(k)
    first, second = (binom.pmf(ballots, np.arange(most + 1)[:, None], rate) for most in before[-1])
    open_ = np.add.outer(ballots, ballots) < k
    steps = []
    for place in range(len(codes), -1, -1):
        now = after[:, :k, :k]
        one_more = [(later - now) * open_ for later in (after[:, 1:, :k], after[:, :k, 1:])]
        a, b = before[place]
        steps += [first[a] @ change @ second[b] for change in one_more]  # put in here
        if place:
            a, b = before[place - 1]
            change = one_more[codes[place - 1]]
            steps.append(-(first[a] @ change @ second[b]))  # the unit before left out
            after[:, :k, :k] += rate * change
    return after[:, 0, 0], np.array(steps)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The largest over rows, at each order."""
    found = np.empty(len(orders))
    for at, order in enumerate(orders):
        found[at] = np.logaddexp.reduce(order * log_p + (1 - order) * log_q, axis=1).max() / (order - 1)
    return np.maximum(found, 0.0)

"""Lower bounds from draws of random votes, through the outcome map of the mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.audits._divergence import between_boxes, of_coins
from ostraka.audits._sets import MOST_OUTCOMES, subsets
from ostraka.audits.bounds import RenyiBound
from ostraka.audits.cuts import check_confidence, check_orders
from ostraka.audits.intervals import empirical_bernstein
from ostraka.audits.paired import paired_bound
from ostraka.curve import ORDERS

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.private import Private

__all__ = ["votes_lower_bound"]

_NOTE = (
    "Valid for any number of draws and all orders at once (empirical Bernstein), for the code that the "
    "outcome map describes: it trusts the map, and the model the votes were drawn from."
)


def votes_lower_bound(
    mechanism: BallotMechanism,
    votes_p: Private,
    votes_q: Private,
    *,
    paired: bool = False,
    orders: tuple[float, ...] = ORDERS,
    confidence: float = 0.95,
) -> RenyiBound:
    """Lower bound on what one answer leaks when the votes themselves are random, as after retraining.

    Parameters
    ----------
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
        Public.
    votes_p, votes_q : Private of shape (n_draws, n_classes), in votes
        One row for each independent draw of the votes on one query, in each world, such as those of
        :func:`retrained_votes`.
    paired : bool
        Row i of both comes from one draw of all randomness but the target's presence: shards, seeds and
        samples are the same. Then one ballot at most differs, and a few dozen real trainings tell what takes
        millions of separate ones.
    orders : tuple of float > 1
    confidence : float in (0, 1)

    Returns
    -------
    RenyiBound
        ``trials`` counts draws of votes, or pairs.

    Raises
    ------
    ValueError
        Fewer than two draws or ten pairs, other shapes, orders not above 1, a pair that differs in more than
        one ballot.

    Guarantees
    ----------
    Both trust the outcome map. Separate draws: the probability of an outcome is the mean of its probability
    given the votes (Rao and Blackwell), so each draw tells far more than one sampled answer. The larger of
    every 2-cut (up to 12 outcomes) and of the cut into all outcomes; the error is shared among all. Pairs:
    ``F(p, q) = sum p^order q^(1 - order)`` is jointly convex and homogeneous, so it lies above its tangent
    plane at any point, and F of the mean laws lies above the mean of that plane over pairs. A fifth of
    the pairs choose the point.
    Source: Maurer and Pontil 2009, arXiv:0907.3740, Theorem 4; docs/auditing.md.

    Examples
    --------
    >>> from ostraka import Adjacency, GNMax, Private
    >>> without = np.random.default_rng(0).multinomial(19, [0.6, 0.4], size=200) + [1, 0]
    >>> votes_p, votes_q = (Private(v, Adjacency.one_ballot()) for v in (without + [-1, 1], without))
    >>> bound = votes_lower_bound(GNMax(sigma=4.0), votes_p, votes_q, paired=True, orders=(2.0,))
    >>> bound.rdp[0] > 0.015
    True
    """
    if paired:
        return paired_bound(mechanism, votes_p, votes_q, orders=orders, confidence=confidence)
    return _separate_bound(mechanism, votes_p, votes_q, orders=orders, confidence=confidence)


def _separate_bound(
    mechanism: BallotMechanism,
    votes_p: Private,
    votes_q: Private,
    *,
    orders: tuple[float, ...],
    confidence: float,
) -> RenyiBound:
    order = check_orders(orders)
    check_confidence(confidence)
    laws = [np.exp(mechanism.log_outcomes(votes.open())) for votes in (votes_p, votes_q)]
    n_outcomes = laws[0].shape[1]
    if laws[1].shape[1] != n_outcomes or min(len(law) for law in laws) < 2:
        raise ValueError(
            f"votes must be two or more draws of the same classes, got {votes_p.shape} and {votes_q.shape}"
        )
    one = np.eye(n_outcomes, dtype=bool)
    sets = np.concatenate([one, ~one]) if n_outcomes > MOST_OUTCOMES else subsets(n_outcomes)
    error = (1 - confidence) / (2 * len(sets))  # a set's upper end is the lower end of its complement
    p, q = (_ends(law, sets, error=error) for law in laws)
    forward, reverse = _larger(sets, p, q, order), _larger(sets, q, p, order)
    return RenyiBound(
        orders=tuple(orders),
        rdp=tuple(np.maximum(forward, reverse).tolist()),
        forward=tuple(forward.tolist()),
        reverse=tuple(reverse.tolist()),
        cuts=((),) * order.size,
        confidence=confidence,
        trials=(len(laws[0]), len(laws[1])),
        method="votes",
        note=_NOTE,
    )


def _ends(law: np.ndarray, sets: np.ndarray, *, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper end of the probability of each set."""
    mean, spread = law.mean(axis=0), np.cov(law, rowvar=False)
    variance = ((sets @ spread) * sets).sum(axis=1)
    return empirical_bernstein(sets @ mean, variance, len(law), error=error)


def _larger(
    sets: np.ndarray,
    p: tuple[np.ndarray, np.ndarray],
    q: tuple[np.ndarray, np.ndarray],
    orders: np.ndarray,
) -> np.ndarray:
    """D(p ‖ q), the larger of its best 2-cut and of the cut into all outcomes."""
    (low_p, high_p), (low_q, high_q) = p, q
    # sets that p surely makes more likely; their complements are among the sets, too
    coins = of_coins(np.maximum(low_p, high_q), high_q, orders).max(axis=1)
    one = np.flatnonzero(sets.sum(axis=1) == 1)
    one = one[sets[one].argmax(axis=1).argsort()]
    return np.asarray(
        np.maximum(coins, between_boxes(low_p[one], high_p[one], low_q[one], high_q[one], orders))
    )

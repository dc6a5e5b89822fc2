"""The audit with the outcome map: probabilities averaged over random votes, instead of sampled answers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ostraka import _check
from ostraka.audits._divergence import between_boxes, of_coins
from ostraka.audits._sets import MOST_OUTCOMES, subsets
from ostraka.audits.bounds import RenyiBound
from ostraka.audits.cuts import check_confidence, check_orders
from ostraka.audits.intervals import empirical_bernstein
from ostraka.curve import ORDERS
from ostraka.private import Adjacency, Private

__all__ = ["Mapped", "modelled_votes", "whitebox_lower_bound"]

_NOTE = (
    "Valid for any number of draws and all orders at once (empirical Bernstein), for the code that the "
    "outcome map describes: it trusts the map, and the model the votes were drawn from."
)


class Mapped(Protocol):
    """A mechanism with an outcome map."""

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Log probability of each outcome, one row a query."""
        ...


def whitebox_lower_bound(
    mechanism: Mapped,
    votes_p: Private,
    votes_q: Private,
    *,
    orders: tuple[float, ...] = ORDERS,
    confidence: float = 0.95,
) -> RenyiBound:
    """Lower bound on what one answer leaks when the votes themselves are random, as after retraining.

    Parameters
    ----------
    mechanism : GNMax, LNMax or Threshold
        Public.
    votes_p, votes_q : Private of shape (n_draws, n_classes), in votes
        One row per independent draw of the votes on one query, in each world:
        :func:`modelled_votes`, or real retrainings.
    orders : tuple of float > 1
    confidence : float in (0, 1)

    Returns
    -------
    RenyiBound
        ``trials`` counts draws of votes.

    Raises
    ------
    ValueError
        Fewer than two draws, other shapes, orders not above 1.

    Guarantees
    ----------
    The probability of an outcome is the mean of its probability given the votes
    (Rao and Blackwell), so each draw tells far more than one sampled answer. The larger of every
    2-cut (up to 12 outcomes) and of the cut into all outcomes; the error is shared among all.
    Source: Maurer and Pontil 2009, arXiv:0907.3740, Theorem 4; docs/auditing.md.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> rng = np.random.default_rng(0)
    >>> law = [0.6, 0.3, 0.1]
    >>> without = modelled_votes(law, n_teachers=20, n_draws=20_000, rng=rng)
    >>> poisoned = modelled_votes(law, n_teachers=20, n_draws=20_000, one=[0, 1, 0], rng=rng)
    >>> bound = whitebox_lower_bound(GNMax(sigma=2.0), poisoned, without, orders=(2.0,))
    >>> bound.rdp[0] > 0.01
    True
    """
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
        method="whitebox",
        note=_NOTE,
    )


def modelled_votes(
    law: Any, *, n_teachers: int, n_draws: int, one: Any = None, rng: np.random.Generator
) -> Private:
    """Votes as if the teachers were trained again for each draw: independent ballots from a fitted law.

    Parameters
    ----------
    law : array of shape (n_classes,)
        Probability that a teacher votes each class.
    n_teachers, n_draws : int
    one : array of shape (n_classes,), optional
        The law of the one teacher whose shard holds the target.
    rng : numpy.random.Generator

    Returns
    -------
    Private of shape (n_draws, n_classes), in votes
        One row a draw, for :func:`whitebox_lower_bound` or any mechanism.

    Raises
    ------
    ValueError
        Laws of different lengths or that do not sum to 1.

    Guarantees
    ----------
    What is found with these votes holds for the model, and for the real system as far as the
    model fits it. Source: Chadha et al. 2024, arXiv:2402.09403, section 5.1.

    Examples
    --------
    >>> modelled_votes([0.5, 0.5], n_teachers=10, n_draws=3, rng=np.random.default_rng(0)).open().sum(axis=1)
    array([10, 10, 10])
    """
    _check.integer(n_teachers=n_teachers, n_draws=n_draws, least=1)
    laws = [np.asarray(each, dtype=np.float64) for each in (law, law if one is None else one)]
    for each in laws:
        if each.shape != laws[0].shape or each.ndim != 1 or (each < 0).any() or abs(each.sum() - 1) > 1e-9:
            raise ValueError(
                f"law and one must be probabilities that sum to 1, got shapes {laws[0].shape}, {each.shape}"
            )
    votes = rng.multinomial(n_teachers - 1, laws[0], size=n_draws) + rng.multinomial(1, laws[1], size=n_draws)
    return Private(votes, Adjacency.one_ballot())


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

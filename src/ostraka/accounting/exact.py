"""The exact cost of answers for given votes: every neighbour, both directions. For the owner only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms.neighbours import neighbours
from ostraka.mechanisms.protocols import check_ballot

if TYPE_CHECKING:
    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["all_neighbours", "exact_curve", "exact_rdp"]

# Each divergence is right to about 1e-11 of itself, or lost below 1e-190; what is added makes it err upwards.
_OUTWARD, _LOST = 1 + 1e-9, 1e-190


def exact_curve(
    mechanism: BallotMechanism,
    counts: Any,
    *,
    relation: Literal["replace-one", "add-or-remove"] = "replace-one",
    orders: tuple[float, ...] = ORDERS,
) -> Curve:
    """Rényi cost of answering each row of ``counts`` once, for these votes.

    Parameters
    ----------
    mechanism : BallotMechanism
        Public. ``Confident`` counts as one outcome law over the classes and "no answer"; for
        Interactive-GNMax its screen is ``AgainstGuesses``. Compiled for the mechanisms of this library;
        of any other the outcomes of all neighbours are enumerated.
    counts : array of shape (n_queries, n_classes), in votes
        Private.
    relation : {"replace-one", "add-or-remove"}
        One ballot changes its class; or one ballot is added or removed. See :class:`~ostraka.Adjacency`.
    orders : tuple of float > 1
        Rényi orders; the last may be infinity.

    Returns
    -------
    Curve
        ``publishable=False``: it depends on the votes, and is for the owner only.

    Raises
    ------
    TypeError
        Not a ballot mechanism.
    ValueError
        Counts not finite, of one class, or of the wrong shape; orders not above 1 and increasing.

    Guarantees
    ----------
    For each order, the largest Rényi divergence between the outcome laws of ``counts`` and of any
    neighbour, in either direction, summed over queries: at least the truth, and above it by no
    more than a relative 1e-8 and 1e-26 a query. One ballot may change its vote in every query.
    Source: docs/proof.md; Rényi composition of adaptively chosen queries, Mironov 2017,
    arXiv:1702.07476, Prop. 1.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> votes = [[180, 40, 30], [90, 80, 80]]
    >>> curve = exact_curve(GNMax(sigma=40.0), votes)
    >>> curve.publishable, round(curve.epsilon(delta=1e-5), 3)
    (False, 0.132)
    """
    rdp = exact_rdp(mechanism, counts, relation=relation, orders=orders).sum(axis=0)
    n_queries = len(_check.counts(counts))
    slack = n_queries * mechanism.curve().slack
    rdp = rdp * _OUTWARD + n_queries * _LOST
    return Curve(orders, tuple(rdp.tolist()), "ballot", publishable=False, slack=slack)


def exact_rdp(
    mechanism: BallotMechanism,
    counts: Any,
    *,
    relation: Literal["replace-one", "add-or-remove"] = "replace-one",
    orders: tuple[float, ...] = ORDERS,
) -> np.ndarray:
    """Rényi cost of each single query, shape (n_queries, n_orders). Parameters as :func:`exact_curve`.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> exact_rdp(GNMax(sigma=40.0), [[150, 100], [125, 125]], orders=(2.0,)).round(6)
    array([[0.000614],
           [0.000796]])
    """
    order = np.array(orders, dtype=np.float64)
    if not (order.size and order[0] > 1 and np.all(order[:-1] < order[1:])):
        raise ValueError("orders must be above 1 and increasing")
    return all_neighbours(mechanism, counts, relation=relation).rdp(order)


def all_neighbours(mechanism: BallotMechanism, counts: Any, *, relation: str) -> Neighbours:
    """Return all neighbours of each row; raise unless one unit moves ballots of an exact table of votes."""
    _check.one_of(relation=relation, allowed=("replace-one", "add-or-remove"))
    check_ballot(mechanism)
    promise = mechanism.promise
    if promise.moves != "ballot" or promise.sampling_rate < 1 or promise.noise_sigma:
        raise ValueError(f"exact costs are for one ballot of a table of votes; this hides {promise}")
    return neighbours(mechanism, _check.counts(counts), relation=relation)

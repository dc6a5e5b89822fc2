"""The exact cost of answers for given votes: every neighbour, both directions. For the owner only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ostraka import _check
from ostraka._composition.given import Given, both_ways
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms.protocols import check_ballot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka._composition.cover import Pairs
    from ostraka._composition.tables import Table
    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["Profile", "all_neighbours", "exact_curve", "exact_profile", "exact_profiles", "exact_rdp"]

# Each divergence is right to about 1e-11 of itself, or lost below 1e-190; what is added makes it err upwards.
_OUTWARD, _LOST = 1 + 1e-9, 1e-190
_MOST_PAIRS = 200_000  # over all answers of a profile; each costs about 20 microseconds


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
    rows, places = all_neighbours(mechanism, counts, relation=relation).distinct()
    return np.asarray(rows.rdp(order)[places])


def all_neighbours(mechanism: BallotMechanism, counts: Any, *, relation: str) -> Neighbours:
    """Return all neighbours of each row; raise unless one unit moves ballots of an exact table of votes."""
    _check.one_of(relation=relation, allowed=("replace-one", "add-or-remove"))
    check_ballot(mechanism)
    promise = mechanism.promise
    if promise.moves != "ballot" or promise.sampling_rate < 1 or promise.noise_sigma:
        raise ValueError(f"exact costs are for one ballot of a table of votes; this hides {promise}")
    from ostraka.mechanisms import _costs  # noqa: PLC0415  (compiled code, loaded when needed)

    return _costs.neighbours(mechanism, _check.counts(counts), relation=relation)


class Profile(NamedTuple):
    """Delta against epsilon for given votes: a number for the owner only.

    Attributes
    ----------
    tables : tuple of Table
        Of both directions: neighbours against the votes, the votes against neighbours.
    publishable : bool
        False: it depends on the votes.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> profile = exact_profile(GNMax(sigma=40.0), [[180, 40, 30], [90, 80, 80]])
    >>> profile.delta(profile.epsilon(delta=1e-3)) <= 1e-3
    True
    """

    tables: tuple[Table, ...]
    publishable: bool = False

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 at which delta is proved for these votes, or infinity."""
        _check.delta(delta)
        return max(table.epsilon(delta) for table in self.tables)

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved for these votes at epsilon, at most 1."""
        _check.nonnegative(epsilon=epsilon)
        return max(table.delta(epsilon) for table in self.tables)


def exact_profile(
    mechanism: BallotMechanism,
    counts: Any,
    *,
    relation: Literal["replace-one", "add-or-remove"] = "replace-one",
) -> Profile:
    """Exact (epsilon, delta) of answering each row of ``counts`` once, for these votes.

    Parameters
    ----------
    mechanism : BallotMechanism
        Public.
    counts : array of shape (n_queries, n_classes), in votes
        Private. A few thousand rows of ten classes, or a hundred thousand of two.
    relation : {"replace-one", "add-or-remove"}
        One ballot changes its class; or one ballot is added or removed. See :class:`~ostraka.Adjacency`.

    Returns
    -------
    Profile
        ``epsilon(delta)`` and ``delta(epsilon)``. ``publishable=False``: it depends on the votes.

    Raises
    ------
    TypeError
        Not a ballot mechanism.
    ValueError
        A mechanism with slack, whose law is not exactly that of its outcome map; too many rows; counts not
        finite, of one class, or of the wrong shape.

    Guarantees
    ----------
    ``delta(epsilon)`` is at least the largest ``P(S) - e^epsilon Q(S)`` over sets S of answers, where P and
    Q are the laws of all answers for these votes and for votes in which each row is a neighbour of the
    given one, in either direction, for questions that are fixed. One ballot may change its vote in every
    query. It exceeds the recursion of docs/composition.md, over the rows from the last to the first, by
    what interpolation adds: about 0.3 % of epsilon.
    Source: docs/composition.md, "For given votes"; dominating pairs, Zhu, Dong and Wang 2022,
    arXiv:2106.08567.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> from ostraka.accounting import exact_curve
    >>> votes = [[180, 40, 30], [90, 80, 80]] * 50
    >>> exact, renyi = exact_profile(GNMax(sigma=40.0), votes), exact_curve(GNMax(sigma=40.0), votes)
    >>> round(exact.epsilon(delta=1e-5), 2), round(renyi.epsilon(delta=1e-5), 2)
    (0.74, 0.82)
    """
    counts = _check.counts(counts)
    found = exact_profiles(mechanism, counts, relation=relation, at=[len(counts)])
    if found is None:
        raise ValueError(
            f"counts must have at most {_MOST_PAIRS:,} neighbours in all, and the mechanism no slack, to be "
            "composed exactly; exact_curve takes any"
        )
    return found[0]


def exact_profiles(
    mechanism: BallotMechanism,
    counts: np.ndarray,
    *,
    at: Sequence[int],
    relation: Literal["replace-one", "add-or-remove"] = "replace-one",
    answers_per_query: int = 1,
) -> list[Profile] | None:
    """Profiles of the first rows, so many as ``at`` says, each answered so often; None for too many."""
    if mechanism.curve().slack:
        return None
    laws: list[tuple[Pairs, Pairs]] = []
    room = _MOST_PAIRS // answers_per_query
    rows, places = all_neighbours(mechanism, counts, relation=relation).distinct()
    for (log_q, lam), many in zip(rows.pairs(), np.bincount(places).tolist(), strict=True):
        laws.append(both_ways(log_q, lam))
        room -= many * (len(log_q) // 2)
        if room < 0:
            return None
    each = [Given([law[way] for law in laws], places, answers_per_query).tables(at) for way in (0, 1)]
    return [Profile(tables) for tables in zip(*each, strict=True)]

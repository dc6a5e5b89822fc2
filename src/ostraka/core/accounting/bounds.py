"""The cost of answers for given votes: exact, by the bounds of 2017 and 2018, and every valid bound of both.

Costs that depend on votes are for the owner only; :func:`every_bound` says which ones may be published.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import composes
from ostraka.core.laws.tables import Given, both_ways
from ostraka.core.mechanisms.law import check_ballot, classic_curve, law, payments
from ostraka.core.mechanisms.screen import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from ostraka.core.laws.cover import Pairs
    from ostraka.core.laws.tables import Table
    from ostraka.core.mechanisms.law import BallotMechanism, PublishedBound
    from ostraka.core.mechanisms.neighbours import Neighbours

# Each divergence is right to about 1e-11 of itself, or lost below 1e-190; what is added makes it err upwards.
_OUTWARD, _LOST = 1 + 1e-9, 1e-190
_MOST_PAIRS = 200_000  # over all answers of a profile; each costs about 20 microseconds
_CHUNK = 4096  # queries at a time: bounds memory at about 4096 x len(ORDERS) doubles per temporary
_KINDS = {
    "classic": "whatever the votes: the price of publishing the noisy counts",
    "gaussian": "whatever the votes: Gaussian differential privacy, composed exactly",
    "tight": "whatever the votes: the price of publishing the answer only",
    "adaptive": "whatever the votes: all answers together, composed exactly",
    "moments2017": "these votes: Papernot et al. 2017, Theorem 3",
    "papernot2018": "these votes: Papernot et al. 2018, Theorem 6",
    "exact": "these votes: the largest divergence over all neighbours",
    "composed": "these votes: all answers together, composed exactly over all neighbours",
}


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
    rows, places = _distinct(mechanism, counts, relation, orders)
    n_queries = len(places)
    rdp = np.bincount(places) @ rows.rdp(np.array(orders, dtype=np.float64))  # equal rows cost alike
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
    rows, places = _distinct(mechanism, counts, relation, orders)
    return np.asarray(rows.rdp(np.array(orders, dtype=np.float64))[places])


def _distinct(
    mechanism: BallotMechanism, counts: Any, relation: str, orders: Sequence[float]
) -> tuple[Neighbours, np.ndarray]:
    """Neighbours of the rows that differ, and which of them each row is; orders are checked first."""
    if not (len(orders) and orders[0] > 1 and all(a < b for a, b in itertools.pairwise(orders))):
        raise ValueError("orders must be above 1 and increasing")
    return all_neighbours(mechanism, counts, relation=relation).distinct()


def all_neighbours(mechanism: BallotMechanism, counts: Any, *, relation: str) -> Neighbours:
    """Return all neighbours of each row; raise unless one unit moves ballots of an exact table of votes."""
    check.one_of(relation=relation, allowed=("replace-one", "add-or-remove"))
    check_ballot(mechanism)
    promise = mechanism.promise
    if promise.moves != "ballot" or promise.sampling_rate < 1 or promise.noise_sigma:
        raise ValueError(f"exact costs are for one ballot of a table of votes; this hides {promise}")
    from ostraka.core.mechanisms import neighbours  # noqa: PLC0415  (compiled code, loaded when needed)

    return neighbours.neighbours(mechanism, check.counts(counts), relation=relation)


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
        check.delta(delta)
        return max(table.epsilon(delta) for table in self.tables)

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved for these votes at epsilon, at most 1."""
        check.nonnegative(epsilon=epsilon)
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
    >>> from ostraka.core.accounting import exact_curve
    >>> votes = [[180, 40, 30], [90, 80, 80]] * 50
    >>> exact, renyi = exact_profile(GNMax(sigma=40.0), votes), exact_curve(GNMax(sigma=40.0), votes)
    >>> round(exact.epsilon(delta=1e-5), 2), round(renyi.epsilon(delta=1e-5), 2)
    (0.74, 0.82)
    """
    counts = check.counts(counts)
    profiles = exact_profiles(mechanism, counts, relation=relation, at=[len(counts)])
    if profiles is None:
        raise ValueError(
            f"counts must have at most {_MOST_PAIRS:,} neighbours in all, and the mechanism no slack, to be "
            "composed exactly; exact_curve takes any"
        )
    return profiles[0]


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
    directions = ([law[0] for law in laws], [law[1] for law in laws])
    bounds = [Given(pairs, places, answers_per_query).tables(at) for pairs in directions]
    return [Profile(tables) for tables in zip(*bounds, strict=True)]


def papernot2018_curve(
    mechanism: BallotMechanism,
    counts: ArrayLike,
    *,
    screened: ArrayLike | None = None,
    answered: ArrayLike | None = None,
) -> Curve:
    """Data-dependent Rényi bound of Papernot et al. 2018, each row of ``counts`` answered once.

    Parameters
    ----------
    mechanism : GNMax, LNMax, or Confident (also for Interactive-GNMax)
        Public. Any whose stages state their bounds (:class:`~ostraka.core.mechanisms.law.Stage`).
    counts : array, shape (n_queries, n_classes), in votes
        Private.
    screened : array, shape (n_queries, n_classes), in votes, optional
        What the screen saw, where that is not ``counts``: for Interactive-GNMax the votes minus
        ``n_teachers`` times the student's guess. Only with a screen.
    answered : bool array, shape (n_queries,), optional
        Which queries the screen let through. Only with a screen. None: the expected cost, every
        argmax weighted by its probability of being asked, as the paper plots it; that is a
        forecast, not a bound on any one run.

    Returns
    -------
    Curve
        Not publishable: for the owner only. Capped at every order by the bounds for any votes
        (order / sigma**2 for GNMax, order / (2 sigma**2) for the screen, pure DP for LNMax).

    Raises
    ------
    TypeError
        A mechanism without such a bound.
    ValueError
        A screen with noise on every count, malformed ``counts``, or options of a screen without one.

    Guarantees
    ----------
    With D the data that gave ``counts``, bounds the divergence D(M(D) || M(D')) for every
    neighbour D', and ONLY in this direction: the divergence D(M(D') || M(D)) can exceed it, so
    it is no substitute for ``exact_curve``, which covers both. Rounded up.
    Source: Papernot et al. 2018, arXiv:1802.08908, Theorem 6 with mu1 and mu2 of Prop. 10, the
    probability of another outcome by Prop. 7, the cap by Prop. 8; for LNMax arXiv:1610.05755,
    Theorem 3 and Lemma 4, in Rényi form.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> curve = papernot2018_curve(GNMax(sigma=40.0), [[240, 10], [130, 120]])
    >>> round(curve.epsilon(delta=1e-5), 4)
    0.1495
    >>> curve.publishable
    False
    """
    return spans_2018(mechanism, check.counts(counts), screened=screened, answered=answered)(slice(None))


def spans_2018(
    mechanism: BallotMechanism,
    asked: np.ndarray,
    *,
    screened: ArrayLike | None = None,
    answered: ArrayLike | None = None,
) -> Callable[[slice], Curve]:
    """The same for any run of the rows."""
    check_ballot(mechanism)
    *screens, argmax = payments(mechanism)
    bound, log_q = _log_q(argmax, asked, screen=False)
    if not screens:
        if screened is not None or answered is not None:
            raise ValueError("screened and answered are for mechanisms with a screen, such as Confident")
        return lambda rows: _curve(_total(log_q[rows], bound))
    screened_counts = asked if screened is None else check.counts(screened)
    if screened_counts.shape != asked.shape:
        raise ValueError(f"screened must have shape {asked.shape}, got {screened_counts.shape}")
    [screen] = screens
    gate, doubt = _log_q(screen, screened_counts, screen=True)
    if answered is None:
        chances = np.exp(screen.log_outcomes(screened_counts)[:, 0])
    else:
        mask = np.asarray(answered)
        if mask.dtype != bool or mask.shape != (len(asked),):
            raise ValueError(
                f"answered must be bool of shape ({len(asked)},), got {mask.dtype} of {mask.shape}"
            )
        chances = mask.astype(float)
    return lambda rows: _curve(_total(doubt[rows], gate) + _total(log_q[rows], bound, weights=chances[rows]))


def _log_q(
    mechanism: BallotMechanism, counts: np.ndarray, *, screen: bool
) -> tuple[PublishedBound, np.ndarray]:
    """The bound of 2018 of one stage, and the log of its q a query."""
    bound = bound_2018(mechanism, screen=screen, guesses=True)
    return bound, bound.log_q(law(mechanism).stages[-1].shown(counts))


def moments2017_curve(mechanism: BallotMechanism, counts: ArrayLike, *, n_moments: int = 8) -> Curve:
    """Data-dependent moments bound of Papernot et al. 2017 for LNMax, each row of ``counts`` answered once.

    Parameters
    ----------
    mechanism : LNMax
        Public.
    counts : array, shape (n_queries, n_classes), in votes
        Private.
    n_moments : int >= 1
        Moments 1, …, n_moments, which are the orders 2, …, n_moments + 1 (the paper takes 8).

    Returns
    -------
    Curve
        With those orders; ``rdp`` is moment(l) / l at order l + 1. Not publishable.

    Raises
    ------
    TypeError
        A mechanism without such a bound.
    ValueError
        Malformed ``counts``, or no moment.

    Guarantees
    ----------
    As for :func:`papernot2018_curve`, in the same single direction. Rounded up.
    Source: Papernot et al. 2017, arXiv:1610.05755, Theorems 2 and 3, Lemma 4; also never above
    what pure (2 / scale)-DP implies.

    Examples
    --------
    >>> from ostraka import LNMax
    >>> moments2017_curve(LNMax(scale=20.0), [[240, 10]]).orders
    (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    """
    bound = law(mechanism).stages[0].moments
    if bound is None:
        raise TypeError(f"{mechanism!r} offers no moments bound of 2017; LNMax does")
    check.integer(n_moments=n_moments, least=1)
    orders = tuple(float(order) for order in range(2, n_moments + 2))
    return _curve(_total(bound.log_q(check.counts(counts)), bound, orders), orders)


def bound_2018(mechanism: BallotMechanism, *, screen: bool, guesses: bool = False) -> Any:
    """The bound of 2018 of a screen or of an argmax, or an error that says which have it."""
    stage = law(mechanism).stages[-1]
    if screen and stage.bar is not None and stage.bar[0] == EVERY:
        raise ValueError(f"the 2018 bound is for a screen with noise on the largest count, got {mechanism!r}")
    if stage.bound is None or stage.passes != screen or (stage.offset is not None and not guesses):
        which = "a screen; Threshold does" if screen else "an argmax; GNMax and LNMax do"
        raise TypeError(f"{mechanism!r} offers no bound of 2018 for {which}")
    return stage.bound


def _curve(rdp: np.ndarray, orders: tuple[float, ...] = ORDERS) -> Curve:
    return Curve(orders, tuple(float(value) for value in rdp), publishable=False)


def _total(
    log_q: np.ndarray,
    bound: PublishedBound,
    orders: tuple[float, ...] = ORDERS,
    *,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Weighted sum over queries of the bound, rounded up; equal queries are computed once."""
    value, where = np.unique(log_q, return_inverse=True)
    times = np.bincount(where, weights=weights, minlength=len(value))
    repeated = times > 0  # 0 * infinity is a cost of nothing
    value, times = value[repeated], times[repeated]
    total = sum(
        (
            times[at : at + _CHUNK] @ bound.rdp(value[at : at + _CHUNK], orders)
            for at in range(0, len(value), _CHUNK)
        ),
        start=np.zeros(len(orders)),
    )
    return np.asarray(total * (1 + 4e-16 * (8 + len(value))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One bound on what the first answers cost, and the next, up to all of them.

    Attributes
    ----------
    name : str
        ``"classic"``, ``"gaussian"``, ``"tight"``, ``"adaptive"``, ``"moments2017"``, ``"papernot2018"``,
        ``"exact"``, ``"composed"``.
    says : str
        What it holds for and where it comes from, in one line.
    answers : tuple of int
        After how many answers.
    curves : tuple of Curve or Profile
        The cost of so many. Owner only unless ``publishable``.
    both_directions : bool
        False: it bounds the divergence of these votes from their neighbours, not the reverse, and
        so is no proof of (epsilon, delta)-DP.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> bounds = every_bound(GNMax(sigma=40.0), [[230, 10, 10]] * 100)
    >>> {bound.name: round(bound.epsilon(delta=1e-5)[-1], 2) for bound in bounds}
    {'classic': 1.48, 'gaussian': 1.36, 'tight': 1.16, 'adaptive': 1.07, 'papernot2018': 0.26, 'exact': 0.22,
     'composed': 0.14}
    >>> [bound.name for bound in bounds if bound.publishable]
    ['classic', 'gaussian', 'tight', 'adaptive']
    """

    name: str
    says: str
    answers: tuple[int, ...]
    curves: tuple[Curve | Profile, ...]
    both_directions: bool

    @property
    def publishable(self) -> bool:
        """Whether the bound was computed without the votes."""
        return all(curve.publishable for curve in self.curves)

    def epsilon(self, delta: float) -> tuple[float, ...]:
        """Epsilon after each number of answers, at ``delta``."""
        return tuple(curve.epsilon(delta) for curve in self.curves)


def every_bound(
    mechanism: BallotMechanism,
    counts: Any,
    *,
    answers_per_query: int = 1,
    at: Sequence[int] | None = None,
) -> tuple[Bound, ...]:
    """Return every available bound on the cost of answering the rows of ``counts`` in order.

    Parameters
    ----------
    mechanism : BallotMechanism
        Public. For Interactive-GNMax a ``Confident`` whose screen is ``AgainstGuesses``.
    counts : array of shape (n_queries, n_classes), in votes
        Private.
    answers_per_query : int >= 1
        How often each row is answered.
    at : sequence of int, optional
        After how many rows to look, increasing and at most ``n_queries``. None: after all of them.

    Returns
    -------
    tuple of Bound
        Those that exist for the mechanism. Whatever the votes, one with a screen costs what it would if
        the screen let every row through; its exact cost is that of one outcome law; its 2018 bound is
        the *expected* cost, as its authors plot it. ``"composed"`` is left out for very many answers.

    Raises
    ------
    ValueError
        Malformed counts, or ``at`` out of order.

    Examples
    --------
    >>> from ostraka import LNMax
    >>> *_, exact, composed = every_bound(LNMax(scale=20.0), [[240, 10], [130, 120]], at=[1, 2])
    >>> exact.answers, [round(e, 3) for e in exact.epsilon(delta=1e-5)]
    ((1, 2), [0.058, 0.111])
    """
    votes = check.counts(counts)
    check.integer(answers_per_query=answers_per_query, least=1)
    ends = (len(votes),) if at is None else tuple(at)
    for end in ends:
        check.integer(at=end)
    if not ends or not all(a < b for a, b in zip((0, *ends), ends, strict=False)) or ends[-1] > len(votes):
        raise ValueError(f"at must be increasing, from 1 to at most {len(votes)}, got {list(ends)}")
    spans = [slice(start, end) for start, end in zip((0, *ends), ends, strict=False)]

    def these_votes(name: str, cost: Callable[[slice], Curve]) -> Bound:
        total, totals = None, []
        for span in spans:
            next_cost = answers_per_query * cost(span)
            total = next_cost if total is None else total + next_cost
            totals.append(total)
        return _bound(name, totals, ends, answers_per_query)

    # whatever the votes: each bound of one answer on its own
    classic, tight = classic_curve(mechanism), mechanism.curve()
    no_orders = replace(tight, rdp=(math.inf,) * len(tight.rdp))
    prices = {} if classic is None else {"classic": replace(classic, mu_squared=math.inf, laws=None)}
    if math.isfinite(tight.mu_squared):
        prices["gaussian"] = replace(no_orders, laws=None)
    prices["tight"] = replace(tight, mu_squared=math.inf, laws=None)
    if composes(tight.laws):
        prices["adaptive"] = no_orders
    bounds = [
        _bound(name, [end * answers_per_query * price for end in ends], ends, answers_per_query)
        for name, price in prices.items()
    ]
    stages = law(mechanism).stages
    if len(stages) == 1 and stages[0].moments is not None:
        bounds.append(these_votes("moments2017", lambda span: moments2017_curve(mechanism, votes[span])))
    if not stages[-1].passes and all(stage.bound is not None for stage in stages):
        bounds.append(these_votes("papernot2018", spans_2018(mechanism, votes)))
    rdp = exact_rdp(mechanism, votes, orders=ORDERS)

    def exact(span: slice) -> Curve:
        costs = rdp[span]
        total = tuple((costs.sum(axis=0) * _OUTWARD).tolist())
        return Curve(ORDERS, total, "ballot", publishable=False, slack=len(costs) * tight.slack)

    bounds.append(these_votes("exact", exact))
    composed = exact_profiles(mechanism, votes, at=ends, answers_per_query=answers_per_query)
    if composed is not None:
        bounds.append(_bound("composed", composed, ends, answers_per_query))
    return tuple(bounds)


def _bound(name: str, curves: Sequence[Curve | Profile], ends: tuple[int, ...], times: int) -> Bound:
    return Bound(
        name=name,
        says=_KINDS[name],
        answers=tuple(end * times for end in ends),
        curves=tuple(curves),
        both_directions=name not in ("moments2017", "papernot2018"),
    )

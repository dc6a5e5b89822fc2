"""Lower bounds on Rényi divergences, epsilon and delta from how often each outcome was seen in two worlds.

A 2-cut compares the probability of one set of outcomes in both worlds, a k-cut that of all outcomes. Beside
the bounds is what they are made of: the sets that a 2-cut tries, the choice among them by a pilot sample, and
divergences of laws that are known exactly or within intervals. Estimates, which are no bounds, are for
figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from ostraka.audit import intervals
from ostraka.audit.bound import Bound, renyi_bound
from ostraka.core import check
from ostraka.core.curve import ORDERS
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

    Value = Callable[[np.ndarray, np.ndarray], np.ndarray]

Method = Literal["2-cut", "2-cut-anytime", "k-cut"]
SetMethod = Literal["2-cut", "2-cut-anytime"]
EstimateMethod = Literal["k-cut-goodman", "k-cut-sison-glaz", "2-cut-bootstrap", "k-cut-bootstrap"]
MOST_OUTCOMES = 12  # up to here every subset of outcomes is tried
_MOST_TRIALS = 2.0**53  # counts are floats in what follows
_MOST_THRESHOLDS = 1000
_DOWN, _ROUNDING = 1 - 1e-12, 1e-14
_ANYTIME = "Valid at every number of trials at once: sampling may stop as soon as it suffices."
_NOTES: dict[str, str] = {
    "2-cut": "Valid for any number of trials, any outcomes and all orders at once (Clopper-Pearson).",
    "2-cut-anytime": _ANYTIME,
    "k-cut": "Valid for any number of trials and all orders at once (Clopper-Pearson on every outcome).",
}
_CUT_NOTES = {"2-cut": "Valid for any number of trials (Clopper-Pearson).", "2-cut-anytime": _ANYTIME}
_RESAMPLES = 1000


def renyi_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    orders: tuple[float, ...] = ORDERS,
    confidence: float = 0.95,
    method: Method = "2-cut",
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> Bound:
    """Lower bound on the Rényi divergence between two worlds, from how often each outcome was seen.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world. Or one
        :class:`ostraka.core.scores.Scores` in place of both: its members are world P.
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
    Bound
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
    check.share(confidence=confidence)
    check.one_of(method=method, allowed=get_args(Method))
    if method == "k-cut":
        end_error = (1 - confidence) / (4 * counts[0].size)
        p, q = (intervals.clopper_pearson(c, int(c.sum()), error=end_error) for c in counts)
        ways, cuts = (between_boxes(*p, *q, order), between_boxes(*q, *p, order)), None
    else:

        def value(p: np.ndarray, q: np.ndarray) -> np.ndarray:
            p = np.maximum(p, q)  # where the ends have crossed nothing is known: equal coins
            return np.concatenate([of_coins(p, q, order), of_coins(q, p, order)])

        sets, low, high = cut_rates(
            counts, value, method=method, error=1 - confidence, pilot=pilot, ordered=ordered
        )
        forward, reverse = np.split(value(low, high), 2)
        best = np.maximum(forward, reverse)
        cuts = tuple(
            sets.cut(int(place)) if row[place] > 0 else ()
            for row, place in zip(best, best.argmax(axis=1), strict=True)
        )
        ways = forward.max(axis=1), reverse.max(axis=1)
    return renyi_bound(
        *ways,
        orders=orders,
        cuts=cuts,
        confidence=confidence,
        trials=(int(counts[0].sum()), int(counts[1].sum())),
        law=method,
        sentence=_NOTES[method],
    )


def epsilon_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    delta: float,
    confidence: float = 0.95,
    method: SetMethod = "2-cut",
    group: int = 1,
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> Bound:
    """Lower bound on epsilon from how often each outcome was seen in two worlds.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world. Or one
        :class:`ostraka.core.scores.Scores` in place of both.
    delta : float in [0, 1)
        Public. The delta of the claim.
    confidence : float in (0, 1)
    method : {"2-cut", "2-cut-anytime"}
        The second is valid however often one looks.
    group : int
        How many units differ between the worlds; the bound is for one.
    pilot, ordered
        As for :func:`renyi_lower_bound`. For an attack that was fixed in advance, with the outcomes "member"
        and "no member", ``pilot=([2, 0], [0, 2])`` says which outcome speaks for which world.

    Returns
    -------
    Bound

    Raises
    ------
    ValueError
        As for :func:`renyi_lower_bound`, or ``delta`` not in [0, 1).

    Guarantees
    ----------
    With probability ``confidence`` no mechanism that is (epsilon, delta)-DP for a smaller epsilon
    has these two outcome laws. For a set of probability at least p in one world and at most q in
    the other, p <= e^epsilon q + delta, in both directions and for its complement; for a group of
    m, with m epsilon and delta (e^(m epsilon) - 1) / (e^epsilon - 1). Chadha et al. write the ratio
    where its logarithm is meant. Source: Chadha et al. 2024, arXiv:2402.09403, equation 1; for
    groups, Vadhan 2017, doi:10.1007/978-3-319-57048-8_7, Lemma 2.2.

    Examples
    --------
    >>> bound = epsilon_lower_bound([900, 100], [100, 900], delta=1e-5)
    >>> round(bound.epsilon, 3), round(bound.estimate, 3)
    (1.962, 2.197)
    """
    check.share(zero=True, delta=delta)
    check.integer(group=group, least=1)
    settings: dict[str, Any] = {"confidence": confidence, "method": method, "pilot": pilot}
    value = partial(_least_epsilon, delta=delta, group=group)
    details = {"delta": float(delta), "group": group}
    return _best_cut("epsilon", (outcomes_p, outcomes_q), value, details, **settings, ordered=ordered)


def delta_lower_bound(
    outcomes_p: Any,
    outcomes_q: Any = None,
    *,
    epsilon: float,
    confidence: float = 0.95,
    method: SetMethod = "2-cut",
    group: int = 1,
    pilot: tuple[Any, Any] | None = None,
    ordered: bool = False,
) -> Bound:
    """Lower bound on delta at a given epsilon, from how often each outcome was seen in two worlds.

    Parameters
    ----------
    outcomes_p, outcomes_q, confidence, method, group, pilot, ordered
        As for :func:`epsilon_lower_bound`.
    epsilon : float >= 0, nats
        Public. The epsilon of the claim.

    Returns
    -------
    Bound
        ``delta`` is the bound, and ``estimate`` an estimate of delta.

    Raises
    ------
    ValueError
        As for :func:`renyi_lower_bound`, or ``epsilon`` below 0.

    Guarantees
    ----------
    With probability ``confidence`` no mechanism that is (epsilon, delta)-DP for a smaller delta has these
    two outcome laws: delta >= p - e^epsilon q for every set of outcomes, which for a group of m is divided
    by 1 + e^epsilon + … + e^((m - 1) epsilon), with e^(m epsilon) in place of e^epsilon.
    Source: Vadhan 2017, doi:10.1007/978-3-319-57048-8_7, Lemma 2.2.

    Examples
    --------
    >>> bound = delta_lower_bound([900, 100], [100, 900], epsilon=1.0)
    >>> round(bound.delta, 3), round(bound.estimate, 3)
    (0.542, 0.628)
    """
    check.nonnegative(epsilon=epsilon)
    check.integer(group=group, least=1)
    settings: dict[str, Any] = {"confidence": confidence, "method": method, "pilot": pilot}
    value = partial(_least_delta, epsilon=epsilon, group=group)
    details = {"epsilon": float(epsilon), "group": group}
    return _best_cut("delta", (outcomes_p, outcomes_q), value, details, **settings, ordered=ordered)


def hold_out(
    outcomes_p: Any, outcomes_q: Any = None, *, part: float = 0.1, rng: np.random.Generator
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Split counts at random into a pilot, which chooses a set of outcomes, and the rest, which tests it.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        Or one :class:`ostraka.core.scores.Scores` in place of both.
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
    check.share(part=part)
    counts = tallies(outcomes_p, outcomes_q)
    pilot = []
    for tally in counts:
        size = min(max(1, round(part * int(tally.sum()))), int(tally.sum()) - 1)
        pilot.append(rng.multivariate_hypergeometric(tally, size, method="marginals"))
    return (pilot[0], pilot[1]), (counts[0] - pilot[0], counts[1] - pilot[1])


def renyi_estimate(
    outcomes_p: Any,
    outcomes_q: Any,
    *,
    orders: tuple[float, ...] = ORDERS,
    method: EstimateMethod,
    level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """Estimate the Rényi divergence between two worlds by an asymptotic method. This is **not a bound**.

    Parameters
    ----------
    outcomes_p, outcomes_q : integer arrays, shape (n_outcomes,)
        How often each outcome was seen in independent trials of each world.
    orders : tuple of float > 1
        The last may be infinity.
    method : {"k-cut-goodman", "k-cut-sison-glaz", "2-cut-bootstrap", "k-cut-bootstrap"}
        The cuts and intervals of Chadha et al. 2024. A 2-cut compares one set of outcomes with the rest, a
        k-cut compares all outcomes. At most 12 outcomes for a 2-cut.
    level : float in (0, 1)
        Nominal level of the intervals, or one minus the quantile of the resampled divergences.
    rng : numpy.random.Generator, optional
        The bootstrap needs one.

    Returns
    -------
    float64 array, shape (n_orders,), nats
        The larger of both directions at each order.

    Raises
    ------
    ValueError
        Counts of different shapes or none, orders not above 1, a bootstrap without ``rng``.

    Guarantees
    ----------
    None. On skewed laws the results lay above the true divergence in up to 23 % of runs at level 0.95, and
    the bootstrap is positive in every run where both worlds are equal. For a bound use
    :func:`renyi_lower_bound`. Source: Chadha et al. 2024, arXiv:2402.09403, section 4.2 and appendix B.

    Examples
    --------
    >>> counts = [725, 222, 53], [469, 469, 62]
    >>> renyi_estimate(*counts, orders=(2.0, 32.0), method="k-cut-goodman").round(3)
    array([0.145, 0.476])
    """
    counts, order = tallies(outcomes_p, outcomes_q), check_orders(orders)
    check.one_of(method=method, allowed=get_args(EstimateMethod))
    check.share(level=level)
    if not method.endswith("bootstrap"):
        interval = intervals.goodman if method == "k-cut-goodman" else intervals.sison_glaz
        (low_p, high_p), (low_q, high_q) = (interval(c, error=(1 - level) / 2) for c in counts)
        forward = between_boxes(low_p, high_p, low_q, high_q, order)
        return np.asarray(np.maximum(forward, between_boxes(low_q, high_q, low_p, high_p, order)))
    if rng is None:
        raise ValueError(f"method {method!r} must be given an rng to resample with")
    resampled = [rng.multinomial(int(c.sum()), c / c.sum(), size=_RESAMPLES) / c.sum() for c in counts]
    if method == "k-cut-bootstrap":
        p, q = resampled
        ways = [of_laws(p, q, order), of_laws(q, p, order)]
    else:
        # by direction and order: resampled divergences of the set that is best on the counts themselves
        sets, ways = Sets.every(counts[0].size), []
        rates, resamples = [sets.sums(c) / c.sum() for c in counts], [sets.sums(world) for world in resampled]
        for direction in (slice(None), slice(None, None, -1)):
            (p, q), (a, b) = rates[direction], resamples[direction]
            best = of_coins(p, q, order).argmax(axis=-1)
            coins = [of_coins(a[:, i], b[:, i], order[o : o + 1])[0] for o, i in enumerate(best)]
            ways.append(np.array(coins))
    return np.asarray(np.maximum(*(np.quantile(way, 1 - level, axis=-1) for way in ways)))


def tallies(outcomes_p: Any, outcomes_q: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Checked counts of two worlds, int64; members and others of Scores."""
    if isinstance(outcomes_p, Scores):
        if outcomes_q is not None:
            raise ValueError("outcomes_q must not be given beside Scores, which hold both worlds")
        outcomes_p, outcomes_q = outcomes_p.members, outcomes_p.others
    worlds = [np.asarray(outcomes_p), np.asarray(outcomes_q)]
    for name, array in zip(("outcomes_p", "outcomes_q"), worlds, strict=True):
        integral = array.dtype.kind in "iu" or (array.dtype.kind == "f" and (array == np.floor(array)).all())
        trials = float(array.sum(dtype=np.float64)) if integral else 0.0
        if not 2 <= trials <= _MOST_TRIALS or array.ndim != 1 or array.size < 2 or (array < 0).any():
            raise ValueError(
                f"{name} must say how often each of two or more outcomes was seen, in two to 2**53 trials: "
                f"integers >= 0 in one dimension, got shape {array.shape}"
            )
    if worlds[0].shape != worlds[1].shape:
        raise ValueError(
            f"both worlds must have the same outcomes, got {worlds[0].size} and {worlds[1].size}: "
            "count an outcome that was not seen as 0"
        )
    return worlds[0].astype(np.int64), worlds[1].astype(np.int64)


def check_orders(orders: tuple[float, ...]) -> np.ndarray:
    """The orders as an array, if there is one and all are above 1."""
    array = np.array(orders, dtype=np.float64)
    if array.ndim != 1 or not array.size or not (array > 1).all():
        raise ValueError(f"orders must all be above 1, got {orders!r}")
    return array


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
    rank, weights, n_outcomes = np.arange(counts[0].size) if ordered else None, None, counts[0].size
    if pilot is not None:
        p, q = tallies(*pilot)
        if p.size != n_outcomes:
            raise ValueError(f"pilot must have the same {n_outcomes} outcomes, got {p.size}")
        weights = p / p.sum() + q / q.sum()
        if not ordered and n_outcomes > MOST_OUTCOMES:
            ratio = (p + 0.5) / (p.sum() + 0.5 * p.size) * (q.sum() + 0.5 * q.size) / (q + 0.5)
            rank = np.argsort(-ratio, kind="stable")
    sets = Sets.every(n_outcomes) if rank is None else Sets.thresholds(rank, weights)
    if pilot is not None:
        sets = sets.best((p, q), value, partial(interval, error=error / 2))
    set_error = error / (2 * len(sets))
    low = interval(sets.sums(counts[0]), int(counts[0].sum()), error=set_error)[0]
    high = interval(sets.sums(counts[1]), int(counts[1].sum()), error=set_error)[1]
    return sets, low, high


def _best_cut(
    quantity: Literal["epsilon", "delta"],
    outcomes: tuple[Any, Any],
    one_way: Value,
    details: dict[str, Any],
    *,
    method: SetMethod,
    confidence: float,
    ordered: bool,
    pilot: Any,
) -> Bound:
    """The bound of the best set: ``one_way(p, q)`` is that of one with probabilities p and q."""
    counts = tallies(*outcomes)
    check.share(confidence=confidence)
    check.one_of(method=method, allowed=get_args(SetMethod))

    def value(p: np.ndarray, q: np.ndarray) -> np.ndarray:  # the complement of the set counts, too
        return np.asarray(np.maximum(one_way(p, q), one_way(1 - q, 1 - p))[None, :])

    ordered = ordered or isinstance(outcomes[0], Scores)
    sets, low, high = cut_rates(
        counts, value, method=method, error=1 - confidence, pilot=pilot, ordered=ordered
    )
    lower = value(low, high)[0]
    rates = [sets.sums(tally) / tally.sum() for tally in counts]
    best = int(lower.argmax())
    positive = lower[best] > 0
    estimate = float(value(*rates)[0][best]) if positive else 0.0
    return Bound(
        quantity=quantity,
        value=float(lower[best]),
        details={"estimate": estimate, "cut": sets.cut(best) if positive else ()} | details,
        confidence=confidence,
        trials=(int(counts[0].sum()), int(counts[1].sum())),
        law=method,
        sentence=_CUT_NOTES[method],
    )


def _least_epsilon(p: np.ndarray, q: np.ndarray, *, delta: float, group: int) -> np.ndarray:
    """Largest epsilon >= 0 with p >= e^(m epsilon) q + delta (1 + … + e^((m - 1) epsilon)), rounded down."""
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(p > delta, np.log(np.maximum(p - delta, 0)) - np.log(q), -np.inf)
    alone = np.maximum(0.0, np.nan_to_num(alone * _DOWN, nan=0.0, posinf=np.inf, neginf=0.0))
    if group == 1:
        return np.asarray(alone)

    def fits(epsilon: np.ndarray) -> np.ndarray:
        terms = sum(np.exp(i * epsilon) for i in range(group))
        return np.asarray(p >= np.exp(group * epsilon) * q + delta * terms)

    # more delta only lowers it
    return intervals.bisect(fits, np.zeros_like(alone), np.minimum(alone, 700.0) / group)


def _least_delta(p: np.ndarray, q: np.ndarray, *, epsilon: float, group: int) -> np.ndarray:
    """Smallest delta >= 0 with p <= e^(m epsilon) q + delta (1 + … + e^((m - 1) epsilon)), rounded down."""
    with np.errstate(over="ignore", invalid="ignore"):
        excess = np.where(q > 0, p - np.exp(group * epsilon) * q, p) * _DOWN - 1e-15
        terms = 1 + sum(np.exp(i * epsilon) for i in range(1, group))  # 0 times infinity is no number
    return np.asarray(np.maximum(0.0, excess) / terms)


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of outcomes, each with its complement: the first ``n`` outcomes of an order, or any subset.

    ``rank``: place of each outcome in the order; ``ends``: how many outcomes each set takes;
    ``masks``: instead, one row a set.
    """

    rank: np.ndarray
    ends: np.ndarray
    masks: np.ndarray | None = None

    @classmethod
    def every(cls, n_outcomes: int) -> Self:
        """All subsets except the empty and the full one; more than 12 outcomes raise a ValueError."""
        if n_outcomes > MOST_OUTCOMES:
            raise ValueError(
                f"{n_outcomes} outcomes have too many subsets to try them all (at most {MOST_OUTCOMES}): "
                "pilot, rest = hold_out(p, q, rng=rng), then renyi_lower_bound(*rest, pilot=pilot)"
            )
        return cls(np.empty(0), np.empty(0), subsets(n_outcomes))

    @classmethod
    def thresholds(cls, order: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """The first n of ``order``, for each n, and the rest; with weights a thousand n at most."""
        ends = np.arange(1, order.size)
        if weights is not None and ends.size > _MOST_THRESHOLDS:
            total = np.cumsum(weights[order])
            spread = np.searchsorted(total, np.linspace(0, total[-1], _MOST_THRESHOLDS + 2)[1:-1])
            ends = np.unique(np.clip(spread, 1, order.size - 1))
        return cls(order, ends)

    def __len__(self) -> int:
        return 2 * self.ends.size if self.masks is None else len(self.masks)

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Sum of the counts (last axis) over each set."""
        if self.masks is not None:
            return np.asarray(counts @ self.masks.T)
        first = np.cumsum(counts[..., self.rank], axis=-1)
        inside = first[..., self.ends - 1]
        return np.concatenate([inside, first[..., -1:] - inside], axis=-1)

    def cut(self, place: int) -> tuple[int, ...]:
        """The outcomes of one set."""
        if self.masks is not None:
            return tuple(np.flatnonzero(self.masks[place]).tolist())
        end = int(self.ends[place % self.ends.size])
        chosen = self.rank[:end] if place < self.ends.size else self.rank[end:]
        return tuple(sorted(chosen.tolist()))

    def best(
        self,
        pilot: tuple[np.ndarray, np.ndarray],
        value: Callable[[np.ndarray, np.ndarray], np.ndarray],
        interval: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    ) -> Sets:
        """For each row of ``value(p, q)``, the set with the largest bound on the pilot's own counts.

        ``interval`` is the one which the bound will use. A pilot that is too small for any bound chooses the
        set whose rates differ most, in standard errors.
        """
        p, q = (self.sums(counts) for counts in pilot)
        sizes = [int(counts.sum()) for counts in pilot]
        table = value(interval(p, sizes[0])[0], interval(q, sizes[1])[1])
        clear = table.max(axis=-1) > 0
        if clear.any():
            return self._take(np.unique(table.argmax(axis=-1)[clear]))
        gap = p / sizes[0] - q / sizes[1]
        spread = _standard_error(p, sizes[0]) + _standard_error(q, sizes[1])
        return self._take(np.array([(gap / spread).argmax()]))

    def _take(self, chosen: np.ndarray) -> Sets:
        n = self.rank.size if self.masks is None else self.masks.shape[1]
        masks = np.zeros((chosen.size, n), dtype=bool)
        for row, place in enumerate(chosen):
            masks[row, list(self.cut(int(place)))] = True
        return Sets(self.rank, self.ends, masks)


def subsets(n_outcomes: int) -> np.ndarray:
    """Every set of outcomes but the empty and the full one, as one boolean row each."""
    bits = np.arange(1, 2**n_outcomes - 1)[:, None] >> np.arange(n_outcomes)
    return np.asarray((bits & 1).astype(bool))


def _standard_error(counts: np.ndarray, trials: int) -> np.ndarray:
    smooth = (counts + 0.5) / (trials + 1)
    return np.asarray(np.sqrt(smooth * (1 - smooth) / trials))


def of_laws(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D(p ‖ q) over the last axis, nats, at least 0, rounded down; a new first axis for the orders."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, ratio = np.log(p), np.log(p) - np.log(q)
    ratio = np.where(p > 0, ratio, -np.inf)
    size = np.abs(np.where(np.isfinite(ratio), ratio, 0.0)).max(axis=-1)
    rows = []
    for order in orders:
        if np.isinf(order):
            rows.append(ratio.max(axis=-1) - _ROUNDING)
            continue
        terms = np.where(p > 0, log_p + (order - 1) * ratio, -np.inf)
        doubt = _ROUNDING * (1 + order * size)  # of the logarithm: equal laws must come out as 0
        rows.append((np.logaddexp.reduce(terms, axis=-1) - doubt) / (order - 1))
    return np.maximum(0.0, np.stack(rows) * _DOWN)


def of_coins(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D(p ‖ q) of coins, nats, rounded down: one row an order, one column a pair."""
    p, q = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64))
    return of_laws(np.stack([p, 1 - p], axis=-1), np.stack([q, 1 - q], axis=-1), orders)


def between_boxes(
    low_p: np.ndarray, high_p: np.ndarray, low_q: np.ndarray, high_q: np.ndarray, orders: np.ndarray
) -> np.ndarray:
    """At each order a lower bound on D(p ‖ q) over all laws p and q within their boxes.

    sum p^order q^(1 - order) is jointly convex and homogeneous: it lies above each of its tangent planes
    g_p . p + g_q . q, and a plane's minimum over a box of laws is exact. The best of a few planes counts.
    """
    mid_p, mid_q = (_as_law((low + high) / 2) for low, high in ((low_p, high_p), (low_q, high_q)))
    best = np.zeros(orders.size)
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):  # from the middle of the boxes towards where they are closest
        p = _as_law(np.clip(mid_p + part * (mid_q - mid_p), low_p, high_p))
        q = _as_law(np.clip(mid_q + part * (mid_p - mid_q), low_q, high_q))
        ratio = np.log(p) - np.log(q)
        for place, order in enumerate(orders):
            if np.isinf(order):
                continue
            top = max(0.0, order * ratio.max())  # keeps the powers finite
            least = _least(order * np.exp((order - 1) * ratio - top), low_p, high_p) + _least(
                (1 - order) * np.exp(order * ratio - top), low_q, high_q
            )
            if least > 0:
                doubt = _ROUNDING * (1 + top + order * np.abs(ratio).max())
                best[place] = max(best[place], (np.log(least) + top - doubt) / (order - 1))
    with np.errstate(divide="ignore"):
        pure = max(0.0, float(np.log(low_p / high_q).max()))
    return np.where(np.isinf(orders), pure, best) * _DOWN


def _least(slope: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Minimum of slope . x over low <= x <= high with sum x = 1: smallest slopes are filled first."""
    order = np.argsort(slope)
    mass = max(0.0, 1 - low.sum())
    room = (high - low)[order]
    filled = np.clip(mass - (np.cumsum(room) - room), 0, room)
    return float((slope * low).sum() + (slope[order] * filled).sum())


def _as_law(x: np.ndarray) -> np.ndarray:
    x = np.maximum(x, 1e-300)
    return np.asarray(x / x.sum())

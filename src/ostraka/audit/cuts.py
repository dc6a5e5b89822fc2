"""The sets of outcomes that a 2-cut tries, and the choice among them by a pilot sample.

Lower bounds on Rényi divergences of laws, known exactly or within intervals.

Rényi lower bounds from how often each outcome was seen in two worlds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from ostraka.audit import intervals
from ostraka.audit.bound import Bound, Cut, renyi_bound
from ostraka.core import check
from ostraka.core.curve import ORDERS
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_OUTCOMES = 12  # up to here every subset of outcomes is tried
_MOST_THRESHOLDS = 1000


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
        """Return all subsets except the empty and the full one."""
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


def every_set(n_outcomes: int) -> Sets:
    """All sets of at most 12 outcomes; more outcomes raise a ValueError."""
    if n_outcomes > MOST_OUTCOMES:
        raise ValueError(
            f"{n_outcomes} outcomes have too many subsets to try them all (at most {MOST_OUTCOMES}): "
            "pilot, rest = hold_out(p, q, rng=rng), then renyi_lower_bound(*rest, pilot=pilot)"
        )
    return Sets.every(n_outcomes)


def subsets(n_outcomes: int) -> np.ndarray:
    """Every set of outcomes but the empty and the full one, as one boolean row each."""
    bits = np.arange(1, 2**n_outcomes - 1)[:, None] >> np.arange(n_outcomes)
    return np.asarray((bits & 1).astype(bool))


def _standard_error(counts: np.ndarray, trials: int) -> np.ndarray:
    smooth = (counts + 0.5) / (trials + 1)
    return np.asarray(np.sqrt(smooth * (1 - smooth) / trials))


_DOWN, _ROUNDING = 1 - 1e-12, 1e-14


def of_coins(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D(p ‖ q) of coins, nats, rounded down: one row an order, one column a pair."""
    p, q = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64))
    return of_laws(np.stack([p, 1 - p], axis=-1), np.stack([q, 1 - q], axis=-1), orders)


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


Method = Literal["2-cut", "2-cut-anytime", "k-cut"]

ANYTIME_NOTE = "Valid at every number of trials at once: sampling may stop as soon as it suffices."
_NOTES: dict[str, str] = {
    "2-cut": "Valid for any number of trials, any outcomes and all orders at once (Clopper-Pearson).",
    "2-cut-anytime": ANYTIME_NOTE,
    "k-cut": "Valid for any number of trials and all orders at once (Clopper-Pearson on every outcome).",
}


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
    check_confidence(confidence)
    check.one_of(method=method, allowed=get_args(Method))
    if method == "k-cut":
        ways, cuts = _all_outcomes(counts, order, 1 - confidence), None
    else:
        ways, cuts = _two_cut(counts, order, method, 1 - confidence, pilot, ordered=ordered)
    return renyi_bound(
        *ways,
        orders=orders,
        cuts=cuts,
        confidence=confidence,
        trials=(int(counts[0].sum()), int(counts[1].sum())),
        law=method,
        sentence=_NOTES[method],
    )


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
    if not 0 < part < 1:
        raise ValueError(f"part must be between 0 and 1, got {part!r}")
    counts = tallies(outcomes_p, outcomes_q)
    pilot = []
    for tally in counts:
        size = min(max(1, round(part * int(tally.sum()))), int(tally.sum()) - 1)
        pilot.append(rng.multivariate_hypergeometric(tally, size, method="marginals"))
    return (pilot[0], pilot[1]), (counts[0] - pilot[0], counts[1] - pilot[1])


def tallies(outcomes_p: Any, outcomes_q: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Checked counts of two worlds, int64; members and others of Scores."""
    if isinstance(outcomes_p, Scores):
        if outcomes_q is not None:
            raise ValueError("outcomes_q must not be given beside Scores, which hold both worlds")
        outcomes_p, outcomes_q = outcomes_p.members, outcomes_p.others
    worlds = [np.asarray(outcomes_p), np.asarray(outcomes_q)]
    for name, array in zip(("outcomes_p", "outcomes_q"), worlds, strict=True):
        integral = array.dtype.kind in "iu" or (array.dtype.kind == "f" and (array == np.floor(array)).all())
        if array.ndim != 1 or array.size < 2 or not integral or (array < 0).any() or not array.sum() >= 2:
            raise ValueError(
                f"{name} must say how often each of two or more outcomes was seen, in two trials or more: "
                f"integers >= 0 in one dimension, got shape {array.shape}"
            )
    if worlds[0].shape != worlds[1].shape:
        raise ValueError(
            f"both worlds must have the same outcomes, got {worlds[0].size} and {worlds[1].size}: "
            "count an outcome that was not seen as 0"
        )
    return worlds[0].astype(np.int64), worlds[1].astype(np.int64)


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
    sets = _sets(counts[0].size, pilot, ordered=ordered)
    if pilot is not None:
        sets = sets.best(tallies(*pilot), value, partial(interval, error=error / 2))
    set_error = error / (2 * len(sets))
    low = interval(sets.sums(counts[0]), int(counts[0].sum()), error=set_error)[0]
    high = interval(sets.sums(counts[1]), int(counts[1].sum()), error=set_error)[1]
    return sets, low, high


def _sets(n_outcomes: int, pilot: tuple[Any, Any] | None, *, ordered: bool) -> Sets:
    if pilot is not None:
        p, q = tallies(*pilot)
        if p.size != n_outcomes:
            raise ValueError(f"pilot must have the same {n_outcomes} outcomes, got {p.size}")
        if ordered or n_outcomes > MOST_OUTCOMES:
            ratio = (p + 0.5) / (p.sum() + 0.5 * p.size) * (q.sum() + 0.5 * q.size) / (q + 0.5)
            order = np.arange(n_outcomes) if ordered else np.argsort(-ratio, kind="stable")
            return Sets.thresholds(order, p / p.sum() + q / q.sum())
    if ordered:
        return Sets.thresholds(np.arange(n_outcomes))
    return every_set(n_outcomes)


def _two_cut(
    counts: tuple[np.ndarray, np.ndarray],
    orders: np.ndarray,
    method: str,
    error: float,
    pilot: tuple[Any, Any] | None,
    *,
    ordered: bool,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[Cut, ...]]:
    def value(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        p = np.maximum(p, q)  # where the ends have crossed nothing is known: equal coins
        return np.concatenate([of_coins(p, q, orders), of_coins(q, p, orders)])

    sets, low, high = cut_rates(counts, value, method=method, error=error, pilot=pilot, ordered=ordered)
    table = value(low, high)
    forward, reverse = table[: orders.size], table[orders.size :]
    best = np.maximum(forward, reverse)
    cuts = tuple(
        sets.cut(int(place)) if row[place] > 0 else ()
        for row, place in zip(best, best.argmax(axis=1), strict=True)
    )
    return (forward.max(axis=1), reverse.max(axis=1)), cuts


def _all_outcomes(
    counts: tuple[np.ndarray, np.ndarray], orders: np.ndarray, error: float
) -> tuple[np.ndarray, np.ndarray]:
    end_error = error / (4 * counts[0].size)
    (low_p, high_p), (low_q, high_q) = (
        intervals.clopper_pearson(c, int(c.sum()), error=end_error) for c in counts
    )
    return (
        between_boxes(low_p, high_p, low_q, high_q, orders),
        between_boxes(low_q, high_q, low_p, high_p, orders),
    )


def check_orders(orders: tuple[float, ...]) -> np.ndarray:
    """The orders as an array, if there is one and all are above 1."""
    array = np.array(orders, dtype=np.float64)
    if array.ndim != 1 or not array.size or not (array > 1).all():
        raise ValueError(f"orders must all be above 1, got {orders!r}")
    return array


def check_confidence(confidence: float) -> None:
    """Raise unless it is a probability below 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")

"""How far one ballot moves the cost of answers: what it takes to publish that cost with noise.

Smooth sensitivity of the 2018 bound (Papernot et al. 2018, appendix B); upper bounds on the cost of a query
by how far the teachers agree, and k ballots away; and the 2018 bound, published with noise of that size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.special
from scipy.ndimage import maximum_filter1d

from ostraka.core import check
from ostraka.core.accounting.bounds import bound_2018, exact_rdp
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.mechanisms import exact as _exact
from ostraka.core.mechanisms.law import law, payments
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from ostraka.core.mechanisms.law import ArgmaxBound, BallotMechanism

_GRID = 4096  # points at which conditions C5 and C6 are looked at
_RELATIVE = 1e-9  # what a condition may fail by, as rounding does


def local_sensitivities(
    mechanism: BallotMechanism, counts: ArrayLike, *, n_teachers: int, order: float
) -> np.ndarray:
    """Bounds on how far one more ballot moves the 2018 bound, 0, …, n_teachers ballots away. Owner only.

    Parameters
    ----------
    mechanism : GNMax, LNMax, or a Threshold with noise on the largest count
        Public.
    counts : array, shape (n_queries, n_classes), in votes
        Private. Each row answered once.
    n_teachers : int
        Public.
    order : float > 1
        The Rényi order, finite.

    Returns
    -------
    float64 array, shape (n_teachers + 1,), nats
        Entry d bounds the local sensitivity of the summed bound at all votes within d ballots of
        ``counts``. A ballot may change its vote in every query, so queries add up.

    Raises
    ------
    TypeError
        Another mechanism.
    ValueError
        Condition C5 or C6 fails at this noise and order: see :func:`check_conditions`.

    Guarantees
    ----------
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithms 3 to 5 and Prop. 13. Unlike there,
    each query counts with its largest sensitivity up to distance d, not with that at d: within d
    ballots every query may be at another distance.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> local_sensitivities(GNMax(sigma=40.0), [[240, 10]], n_teachers=250, order=8.0)[[0, 9]].round(7)
    array([1.7e-06, 5.4e-06])
    """
    array = check.counts(counts)
    check.integer(n_teachers=n_teachers, least=2)
    if law(mechanism).passes:
        # the largest step of the screen's bound within each distance; it depends on the largest count only
        published = bound_2018(mechanism, screen=True)
        unlikely = published.log_q_of_largest(np.arange(n_teachers + 1.0))
        step = np.pad(np.abs(np.diff(published.rdp(unlikely, (order,))[:, 0])), 1)
        local = np.maximum(step[1:], step[:-1])
        times = np.bincount(array.max(axis=1).astype(np.int64), minlength=n_teachers + 1)
        within = [times @ maximum_filter1d(local, 2 * d + 1, mode="nearest") for d in range(n_teachers + 1)]
        return np.array(within) * (1 + 1e-12)
    require_conditions(mechanism, n_classes=array.shape[1], order=order)
    # Algorithms 4 and 5 for all queries at once: walk each query towards q0, where sensitivity peaks
    model, votes = _model(mechanism, array.shape[1], order), -np.sort(-array, axis=1)
    plateau = float(model.sensitivity(np.array([model.meets + 1]))[0])
    largest = np.full(n_teachers + 1, 0.0)
    point = model.points(votes)
    best = model.sensitivity(point)
    rising = point < model.meets
    going = (point > model.meets + 1) | rising
    best[~going] = plateau
    largest[0] = best.sum()
    done = float(best[~going].sum())
    votes, best, rising = votes[going], best[going], rising[going]
    for distance in range(1, n_teachers + 1):
        stuck = rising & (votes[:, 1] < 1)
        done += float(best[stuck].sum())
        votes, best, rising = votes[~stuck], best[~stuck], rising[~stuck]
        # one ballot between the two largest counts: to the first where rising, else to the second
        votes[:, 0] += np.where(rising, 1, -1)
        votes[:, 1] -= np.where(rising, 1, -1)
        votes[rising, 1:] = -np.sort(-votes[rising, 1:], axis=1)
        point = model.points(votes)
        arrived = np.where(rising, point >= model.meets, point <= model.meets + 1)
        best = np.where(arrived, plateau, np.maximum(best, model.sensitivity(point)))
        done += float(best[arrived].sum())
        votes, best, rising = votes[~arrived], best[~arrived], rising[~arrived]
        largest[distance] = done + best.sum()
        if not len(votes):
            largest[distance:] = done
            break
    return np.asarray(largest * (1 + 1e-12))


def smooth_sensitivity(sensitivities: np.ndarray, *, beta: float) -> float:
    """Largest local sensitivity, that at distance d counted exp(-beta d) times (Nissim et al. 2007)."""
    check.positive(beta=beta)
    return float((sensitivities * np.exp(-beta * np.arange(len(sensitivities)))).max())


def check_conditions(mechanism: BallotMechanism, *, n_classes: int, order: float) -> tuple[bool, bool]:
    """Whether conditions C5 and C6 of Papernot et al. 2018, appendix B, hold, on a grid of 4096 points.

    C5: the bound grows with q up to q0, where it meets the bound for any votes. C6: so does the
    largest step that one ballot can make it grow by, up to one ballot before q0.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> check_conditions(GNMax(sigma=40.0), n_classes=10, order=20.0)
    (True, True)
    """
    return _model(mechanism, n_classes, order).conditions


def require_conditions(mechanism: BallotMechanism, *, n_classes: int, order: float) -> None:
    """Raise unless both conditions hold."""
    conditions = check_conditions(mechanism, n_classes=n_classes, order=order)
    if conditions != (True, True):
        failed = "C6" if conditions[0] else "C5"
        raise ValueError(
            f"condition {failed} of Papernot et al. 2018, appendix B, fails for {mechanism!r} at order "
            f"{order:g}: choose another order, or method='certificate', which needs none"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The bound of one argmax as a function of q, on a scale on which a ballot moves q by one step."""

    published: ArgmaxBound
    n_classes: int
    order: float
    meets: float  # q0 as a point of the scale; smaller points are larger q
    conditions: tuple[bool, bool]

    def points(self, votes: np.ndarray) -> np.ndarray:
        return self.published.points(votes[:, 1:] - votes[:, :1])

    def bound(self, point: np.ndarray) -> np.ndarray:
        return self.published.at_points(point, n_classes=self.n_classes, order=self.order)

    def sensitivity(self, point: np.ndarray) -> np.ndarray:
        """Algorithm 3, outside the plateau from one ballot before q0 to q0."""
        worse, same_place, better = self.bound(np.concatenate([point - 1, point, point + 1])).reshape(3, -1)
        return np.asarray(np.maximum(worse - same_place, same_place - better))


@lru_cache(maxsize=512)
def _model(mechanism: BallotMechanism, n_classes: int, order: float) -> _Model:
    """Find q0 and look at the two conditions."""
    published = bound_2018(mechanism, screen=False)
    bound_at = partial(published.at_points, n_classes=n_classes, order=order)
    point = np.linspace(-2.0, published.furthest, 4 * _GRID)
    bound = bound_at(point)
    smaller = bound < bound.max() * (1 - 1e-12)
    if not smaller.any():
        raise ValueError(f"at order {order:g} the 2018 bound never falls below the bound for any votes")
    first = int(np.argmax(smaller))
    low, high = float(point[max(0, first - 1)]), float(point[first])
    for _ in range(60):
        middle = (low + high) / 2
        below = bound_at(np.array([middle]))[0] < bound.max() * (1 - 1e-12)
        low, high = (low, middle) if below else (middle, high)
    falls = np.linspace(high, float(point[-1]), _GRID)
    value = bound_at(falls)
    steps = np.linspace(high + 1, float(point[-1]), _GRID)
    step = bound_at(steps - 1) - bound_at(steps)
    return _Model(published, n_classes, order, low, (_falls(value), _falls(step)))


def _falls(values: np.ndarray) -> bool:
    return bool((np.diff(values) <= _RELATIVE * np.abs(values[:-1]) + 1e-280).all())


UNIT = 2.0**-36  # nats; costs are whole multiples, so that their sums are exact
_FINE = 32  # levels a ballot where agreement is continuous
_SHARED = 4  # neighbouring levels that share the cost of their lowest
_CELLS = 16  # divisions of a tail between its two sides
_OUTWARD = 1e-9  # relative, above the error of every cost computed here or in exact_rdp
_DOUBT = 1e-12  # absolute, nats: what cancels near a cost of nothing


@dataclass(frozen=True, slots=True, eq=False)
class CostLevels:
    """Costs of one query at one order, by level. All public; on which level a query stands is private.

    Attributes
    ----------
    cost : int64 array, shape (n_levels,), in units of ``UNIT`` nats
        At least the Rényi cost (every neighbour, both directions) of any query on that level.
    reach : int
        No ballot moves a query by more levels than this.
    pace : int
        Levels that a query of clear plurality falls for each ballot it loses; for guesses only.
    tied, agreed : int
        Levels of an even split and of unanimity; for guesses only.
    levels : callable, counts -> int64 array, shape (n_queries,)
        Where queries stand.
    """

    cost: np.ndarray
    reach: int
    pace: int
    tied: int
    agreed: int
    levels: Callable[[np.ndarray], np.ndarray]


@lru_cache(maxsize=512)
def cost_levels(
    mechanism: BallotMechanism, *, n_teachers: int, n_classes: int, order: float
) -> tuple[CostLevels, ...]:
    """Return the levels of a mechanism: one scale, or one per part for a screen and many classes."""
    if n_classes == 2:  # exact: one level for each value of the first count
        return (
            CostLevels(
                cost=_units(_two_class_costs(mechanism, n_teachers)[:, ORDERS.index(order)]),
                reach=1,
                pace=1,
                tied=(n_teachers + 1) // 2,
                agreed=n_teachers,
                levels=lambda counts: counts[:, 0].astype(np.int64),
            ),
        )
    scales = []
    for part in payments(mechanism):
        outcome_law, curve = law(part), part.curve()
        if outcome_law.payer is None and outcome_law.stages[-1].bar is not None:
            # exact: the screen looks at the largest count only, and a ballot moves it by at most one
            if outcome_law.stages[-1].bound is None:
                raise ValueError(f"a screen of many classes needs noise='largest' here, got {part!r}")
            largest = np.arange(-1, n_teachers + 2)
            laws = part.log_outcomes(np.stack([largest, np.full_like(largest, -1)], axis=1))
            steps = np.maximum(
                _divergence(laws[:-1], laws[1:], order), _divergence(laws[1:], laws[:-1], order)
            )
            scale = CostLevels(
                cost=_units(np.maximum(steps[:-1], steps[1:])),
                reach=1,
                pace=1,
                tied=-(-n_teachers // n_classes),
                agreed=n_teachers,
                levels=lambda counts: counts.max(axis=1).astype(np.int64),
            )
        elif math.isfinite(curve.mu_squared):
            scale = _gaussian(part, n_teachers, n_classes, order)
        elif math.isfinite(curve.rdp[-1]):
            scale = _pure(part, n_teachers, n_classes, order)
        else:
            raise TypeError(
                f"{part!r} is neither dominated by a Gaussian nor purely private: for three classes or more "
                "nothing bounds its cost from the likeliest answer alone"
            )
        scales.append(scale)
    return tuple(scales)


def worst(placed: Sequence[tuple[CostLevels, np.ndarray]], n_ballots: int) -> np.ndarray:
    """Largest summed cost within 0, …, n_ballots ballots of queries on these levels; int64, in ``UNIT``.

    A ballot may change its vote in every query, so the worst case of a sum is the sum of worst
    cases. Integer sums: with v(D, k) the result, v(D', k) <= v(D, k + 1) holds exactly for
    neighbours D and D'.
    """
    total = np.zeros(n_ballots + 1, dtype=np.int64)
    for scale, levels in placed:
        times = np.bincount(levels, minlength=len(scale.cost))
        if int(scale.cost.max()) * max(1, len(levels)) >= 2**62:
            raise OverflowError("these queries cost more than can be summed exactly: publish them in parts")
        for k in range(n_ballots + 1):
            within = maximum_filter1d(scale.cost, size=2 * k * scale.reach + 1, mode="nearest")
            total[k] += int(times @ within)
    return total


def check_ballots(counts: np.ndarray) -> int:
    """Number of teachers, where every row is whole ballots and has as many; messages show no count."""
    n_teachers = int(counts[0].sum()) if len(counts) else 0
    integral = (counts >= 0).all() and (counts == np.floor(counts)).all()
    if n_teachers < 2 or not integral or not (counts.sum(axis=1) == n_teachers).all():
        raise ValueError(
            "counts must be whole ballots, every row of the same number of teachers, two or more"
        )
    return n_teachers


@lru_cache(maxsize=16)
def _two_class_costs(mechanism: BallotMechanism, n_teachers: int) -> np.ndarray:
    """Exact cost of every two-class histogram at every finite order; shape (n_teachers + 1, n_orders)."""
    first = np.arange(n_teachers + 1)
    return exact_rdp(mechanism, np.stack([first, n_teachers - first], axis=1), orders=ORDERS[:-1])


def _gaussian(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """A bound from the likeliest answer's probability alone; docs/record/publishing-epsilon.md, Theorem 5."""
    curve = mechanism.curve()
    shift = math.sqrt(curve.mu_squared)  # one ballot is at most a Gaussian shift of this

    def agreement(counts: np.ndarray) -> np.ndarray:
        """Phi^-1(P[likeliest answer]) in ballots: for two classes half the gap."""
        return np.asarray(-scipy.special.ndtri_exp(_log_rest(mechanism, counts)) / shift)

    lowest = float(scipy.special.ndtri(1 / n_classes)) / shift - 1
    edges = lowest + np.arange(math.ceil((n_teachers - lowest) * _FINE)) / _FINE
    cap = curve.rdp[ORDERS.index(order)]
    bound = np.repeat(_censored_gaussian(-(edges[::_SHARED] - 1e-6) * shift, shift, order), _SHARED)
    return CostLevels(
        cost=_units(np.minimum(bound[: len(edges)], cap)),
        reach=_FINE + 1,  # one more for the numerical error of where an edge lies
        pace=_FINE,
        tied=int(-lowest * _FINE),
        agreed=int((float(agreement(_unanimous(n_teachers, n_classes))[0]) - lowest) * _FINE),
        levels=lambda counts: _place(agreement(counts), lowest, len(edges)),
    )


def _pure(mechanism: BallotMechanism, n_teachers: int, n_classes: int, order: float) -> CostLevels:
    """A bound for pure differential privacy; docs/record/publishing-epsilon.md, Theorem 6."""
    curve = mechanism.curve()
    pure = curve.rdp[-1]

    def agreement(counts: np.ndarray) -> np.ndarray:
        """-log P[another answer] in ballots."""
        return np.asarray(-_log_rest(mechanism, counts) / pure)

    edges = np.arange(math.ceil((n_teachers + 1 / pure) * _FINE)) / _FINE
    cap = curve.rdp[ORDERS.index(order)]
    bound = _censored_pure(-(edges - 1e-6) * pure, pure, order)
    return CostLevels(
        cost=_units(np.minimum(bound, cap)),
        reach=_FINE + 1,
        pace=_FINE,
        tied=int(-math.log1p(-1 / n_classes) / pure * _FINE),
        agreed=int(float(agreement(_unanimous(n_teachers, n_classes))[0]) * _FINE),
        levels=lambda counts: _place(agreement(counts), 0.0, len(edges)),
    )


def _unanimous(n_teachers: int, n_classes: int) -> np.ndarray:
    return np.eye(1, n_classes) * n_teachers


def _place(agreement: np.ndarray, lowest: float, n_levels: int) -> np.ndarray:
    return np.clip(np.floor((agreement - lowest) * _FINE), 0, n_levels - 1).astype(np.int64)


def _log_rest(mechanism: BallotMechanism, counts: np.ndarray) -> np.ndarray:
    """Log probability of all answers but the likeliest."""
    return np.asarray(
        scipy.special.logsumexp(np.sort(mechanism.log_outcomes(counts), axis=1)[:, :-1], axis=1)
    )


def _units(rdp: np.ndarray) -> np.ndarray:
    """Convert nats to whole units, rounded up."""
    if not (rdp < 2.0**20).all():
        raise ValueError(
            "a query costs more than a million nats at this order: take more noise or a smaller order"
        )
    return np.ceil((rdp * (1 + _OUTWARD) + _DOUBT) / UNIT).astype(np.int64)


def _divergence(log_p: np.ndarray, log_q: np.ndarray, order: float) -> np.ndarray:
    """Rényi divergence between outcome laws in logs, last axis."""
    return np.asarray(scipy.special.logsumexp(order * log_p + (1 - order) * log_q, axis=-1) / (order - 1))


def _censored_gaussian(z: np.ndarray, shift: float, order: float) -> np.ndarray:
    """Theorem 5: N(0, 1) and N(shift, 1), where tails of probability Phi(z) in all are one outcome."""
    # how the tail is divided between the two sides is not known: take the largest over cells of divisions,
    # each of which reveals a little more than any division in it; does not increase as z falls
    q = scipy.special.ndtr(z)[:, None]
    cell = np.arange(_CELLS) / _CELLS
    lower_edge, upper_edge = (
        -scipy.special.ndtri(q * (cell + 1 / _CELLS)),
        scipy.special.ndtri(q * (1 - cell)),
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        unmoved = np.clip(1 - q * (1 + 1 / _CELLS), 0, None)
        moved = np.clip(
            scipy.special.ndtr(lower_edge - shift) - scipy.special.ndtr(upper_edge - shift), 0, None
        )
        log_scale = order * (order - 1) * shift**2 / 2
        sums = [np.full_like(lower_edge, math.inf)]
        for near, far, (a, b) in (
            (order - 1, order - 1, (unmoved, moved)),
            (-order, -order, (moved, unmoved)),
        ):
            tails = scipy.special.ndtr(-lower_edge - near * shift) + scipy.special.ndtr(
                upper_edge + far * shift
            )
            sums.append(np.exp(log_scale) * tails + a**order * b ** (1 - order))
    largest = np.maximum(sums[1], sums[2]).max(axis=1)
    largest = np.where(np.isfinite(largest) & (unmoved[:, 0] > 0), largest, math.inf)
    return np.asarray(np.log(largest) / (order - 1))


def _censored_pure(log_q: np.ndarray, pure: float, order: float) -> np.ndarray:
    """Theorem 6: all ratios within e^±pure, one outcome of probability 1 - q."""
    q = np.exp(np.minimum(log_q, 0.0))
    best = np.zeros_like(q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for ratio in (math.exp(pure), math.exp(-pure)):
            unmoved, moved = 1 - q, 1 - q * ratio
            forth = q * ratio ** (1 - order) + unmoved**order * moved ** (1 - order)
            back = q * ratio**order + moved**order * unmoved ** (1 - order)
            best = np.maximum(best, np.maximum(forth, back))
    applies = q < 1 / (1 + math.exp(pure))
    return np.where(applies, np.log(np.where(applies, best, 1.0)) / (order - 1), math.inf)


_STEP = 2.0**-20  # nats; published bounds are rounded up to whole steps
_GUESSES = 64
# The draw is exact; cost and sensitivity are float64, whose rounding is charged as total variation.
_FLOAT_SLACK = 2.0**-40
_ORDERS = tuple(order for order in ORDERS if 2.0 <= order <= 64.0)[::2]
_BETAS = (0.15, 0.25, 0.35, 0.42, 0.47)  # times 1 / order; the theorem needs less than 0.5
_NOISES = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)


def smooth_noise_rdp(*, order: float, beta: float, noise: float) -> float:
    """Rényi cost of adding N(0, (noise S)²) to a value that a ballot moves by at most S, log S by beta.

    Raises
    ------
    ValueError
        ``order`` not below 1 / (2 beta).

    Guarantees
    ----------
    The smaller of Papernot et al. 2018, arXiv:1802.08908, Theorem 23, and the divergence of two
    Gaussians (Gil et al. 2013) at its largest, docs/record/publishing-epsilon.md, Theorem 7. Rounded up.

    Examples
    --------
    >>> round(smooth_noise_rdp(order=10.0, beta=0.02, noise=20.0), 4)
    0.026
    """
    check.positive(order=order, beta=beta, noise=noise)
    if not 1 < order < 1 / (2 * beta):
        raise ValueError(f"order must be above 1 and below 1 / (2 beta) = {1 / (2 * beta):g}, got {order!r}")
    paper = order * math.exp(2 * beta) / noise**2
    paper += (beta * order - math.log1p(-2 * order * beta) / 2) / (order - 1)
    narrower = 1 + order * math.expm1(-2 * beta)
    wider = 1 + order * math.expm1(2 * beta)
    spread = max(-2 * order * beta - math.log(narrower), 2 * order * beta - math.log(wider))
    exact = order / (2 * noise**2 * narrower) + spread / (2 * (order - 1))
    return min(paper, exact) * (1 + 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothBound:
    """Publishes the 2018 bound of some votes at one order, plus a margin, with Gaussian noise.

    Attributes
    ----------
    mechanism : GNMax, LNMax or Confident
        What gave the answers; one that offers the bound of 2018.
    n_teachers, n_classes, n_queries : int
    n_screened : int
        With a screen: the first rows went through the screen, the rest are the rows it let through.
    order, beta, noise : float
        The Rényi order; the decay of smooth sensitivity a ballot; the noise in units of it.
    failure : float in (0, 1)
        Probability that the published bound is too low.
    agreement : float in [0, 1]
        The public guess that :meth:`expected` assumes; the same as for ``Certificate``.

    Raises
    ------
    ValueError
        ``order`` not below 1 / (2 beta), or condition C5 or C6 fails.

    Guarantees
    ----------
    docs/record/publishing-epsilon.md, Theorem 7.
    """

    mechanism: BallotMechanism
    n_teachers: int
    n_classes: int
    n_queries: int
    order: float
    beta: float
    noise: float
    failure: float
    n_screened: int = 0
    agreement: float = 2 / 3
    promise: ClassVar[Adjacency] = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        check.integer(n_teachers=self.n_teachers, n_classes=self.n_classes, least=2)
        check.integer(n_queries=self.n_queries, least=1)
        check.delta(self.failure)
        *screens, argmax = payments(self.mechanism)
        if not (0 <= self.n_screened <= self.n_queries and (self.n_screened > 0) == bool(screens)):
            raise ValueError("n_screened is the number of screened rows of a mechanism with a screen")
        smooth_noise_rdp(order=self.order, beta=self.beta, noise=self.noise)
        require_conditions(argmax, n_classes=self.n_classes, order=self.order)

    def curve(self) -> Curve:
        """The cost of publishing for every possible votes; infinite from order 1 / (2 beta) on."""
        rdp = tuple(_price(order, self.beta, self.noise, self.failure) for order in ORDERS)
        return Curve(ORDERS, rdp, "ballot", slack=_FLOAT_SLACK)

    def uses(self, private: Private) -> int:
        """One, whatever the number of queries."""
        del private
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The bound at ``order`` with margin and noise, in nats, rounded up to a public grid; shape ()."""
        counts = check.counts(private.open())
        smooth = smooth_sensitivity(self.sensitivities(counts), beta=self.beta)
        place = Fraction(self.cost(counts)) + Fraction(smooth) * Fraction(self.margin())
        scale = Fraction(smooth) * Fraction(self.noise)
        steps = _exact.noisy_floor(place, scale=scale, grid=Fraction(_STEP), rng=rng)
        return np.asarray((steps + 1) * _STEP)

    def bound(self, published: float) -> float:
        """Rényi cost at ``order`` of the answers, as published."""
        return max(0.0, float(published))

    def expected(self) -> float:
        """Mean of :meth:`bound` if the guess is right."""
        cost, local = _guessed(self)
        return cost + self.margin() * smooth_sensitivity(local, beta=self.beta)

    def cost(self, counts: ArrayLike) -> float:
        """The 2018 bound at ``order``: private."""
        total = 0.0
        for part, rows in _parts(self, check.counts(counts)):
            total += float(_bounds(part, rows, self.order).sum())
        return total * (1 + 1e-12)

    def sensitivities(self, counts: ArrayLike) -> np.ndarray:
        """Local sensitivity of :meth:`cost` within 0, 1, … ballots: private."""
        array = check.counts(counts)
        if len(array) and (len(array) != self.n_queries or check_ballots(array) != self.n_teachers):
            raise ValueError(f"counts must have {self.n_queries} rows of {self.n_teachers} ballots")
        total = np.zeros(self.n_teachers + 1)
        for part, rows in _parts(self, array):
            total += local_sensitivities(part, rows, n_teachers=self.n_teachers, order=self.order)
        return total

    def margin(self) -> float:
        """The margin added for noise, in units of smooth sensitivity; it depends on the votes."""
        return _margin(self.noise, self.failure)


@lru_cache(maxsize=64)
def plan_smooth_bound(
    mechanism: BallotMechanism,
    *,
    n_teachers: int,
    n_classes: int,
    n_queries: int,
    n_screened: int = 0,
    delta: float,
    agreement: float = 2 / 3,
    orders: tuple[float, ...] | None = None,
) -> SmoothBound:
    """Order, beta and noise of the smallest published epsilon if a public guess is right. Reads no votes.

    Half of ``delta`` pays for the failure of the bound. The guess is that of ``Certificate``.
    ``orders``: where to look.

    Raises
    ------
    ValueError
        The conditions fail at every order.
    """
    argmax = payments(mechanism)[-1]
    best, least = None, math.inf
    for order in _ORDERS if orders is None else orders:
        if check_conditions(argmax, n_classes=n_classes, order=order) != (True, True):
            continue
        start = SmoothBound(
            mechanism=mechanism,
            n_teachers=n_teachers,
            n_classes=n_classes,
            n_queries=n_queries,
            n_screened=n_screened,
            order=order,
            beta=_BETAS[0] / order,
            noise=_NOISES[0],
            failure=delta / 2,
            agreement=agreement,
        )
        fixed = math.log1p(-1 / order) - (math.log(delta / 2) + math.log(order)) / (order - 1)
        cost, local = _guessed(start)
        for beta in _BETAS:
            smooth = smooth_sensitivity(local, beta=beta / order)
            for noise in _NOISES:
                margin, price = _margin(noise, delta / 2), _price(order, beta / order, noise, delta / 2)
                epsilon = fixed + cost + margin * smooth + price
                if epsilon < least:
                    best, least = replace(start, beta=beta / order, noise=noise), epsilon
    if best is None:
        raise ValueError(f"conditions C5 and C6 fail at every order for {mechanism!r}")
    return best


def _margin(noise: float, failure: float) -> float:
    return noise * float(-scipy.special.ndtri(failure))


def _price(order: float, beta: float, noise: float, failure: float) -> float:
    """Price with the margin's own sensitivity, which acts as if there were less noise."""
    if not order < 1 / (2 * beta):
        return math.inf
    return smooth_noise_rdp(
        order=order, beta=beta, noise=noise / (1 + _margin(noise, failure) * math.expm1(beta))
    )


def _guessed(plan: SmoothBound) -> tuple[float, np.ndarray]:
    """Cost and local sensitivities if the votes were the guess."""
    # a share of ``agreement`` nearly unanimous, the others evenly down to a tie
    n_classes, doubt = plan.n_classes, 1 - plan.agreement
    level = (np.arange(_GUESSES) + 0.5) / _GUESSES
    margin = np.interp(level, [0, doubt, doubt, 1], [0, 1, 0.9, 1])
    first = np.rint(plan.n_teachers * (1 + margin * (n_classes - 1)) / n_classes)[:, None]
    others = np.clip(plan.n_teachers - first - np.arange(n_classes - 1), 0, None)
    guess = np.concatenate([first, np.ceil(others / (n_classes - 1))], axis=1)
    cost, local = 0.0, np.zeros(plan.n_teachers + 1)
    screened = plan.n_screened
    sizes = (screened, plan.n_queries - screened) if screened else (plan.n_queries,)
    for (part, _), size in zip(_parts(plan, guess), sizes, strict=True):
        cost += float(_bounds(part, guess, plan.order).mean()) * size
        local += local_sensitivities(part, guess, n_teachers=plan.n_teachers, order=plan.order) * (
            size / len(guess)
        )
    return cost, local


def _parts(plan: SmoothBound, counts: np.ndarray) -> list[tuple[BallotMechanism, np.ndarray]]:
    """Each answer's mechanism with its rows."""
    *screens, argmax = payments(plan.mechanism)
    return [*((screen, counts[: plan.n_screened]) for screen in screens), (argmax, counts[plan.n_screened :])]


def _bounds(mechanism: BallotMechanism, counts: np.ndarray, order: float) -> np.ndarray:
    """The 2018 bound of each row at one order."""
    published = bound_2018(mechanism, screen=law(mechanism).passes)
    return np.asarray(published.rdp(published.log_q(counts), (order,))[:, 0])

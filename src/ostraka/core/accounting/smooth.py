"""The bound of Papernot et al. 2018, published with noise scaled to its smooth sensitivity (appendix B)."""

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
from ostraka.core.accounting.bounds import bound_2018
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.mechanisms import exact
from ostraka.core.mechanisms.law import law, payments
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ostraka.core.mechanisms.law import ArgmaxBound, BallotMechanism

_GRID = 4096  # points at which conditions C5 and C6 are looked at
_RELATIVE = 1e-9  # what a condition may fail by, as rounding does
_STEP = 2.0**-20  # nats; published bounds are rounded up to whole steps
_GUESSES = 64
# The draw is exact; cost and sensitivity are float64, whose rounding is charged as total variation.
_FLOAT_SLACK = 2.0**-40
_ORDERS = tuple(order for order in ORDERS if 2.0 <= order <= 64.0)[::2]
_BETAS = (0.15, 0.25, 0.35, 0.42, 0.47)  # times 1 / order; the theorem needs less than 0.5
_NOISES = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)


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
        steps = exact.noisy_floor(place, scale=scale, grid=Fraction(_STEP), rng=rng)
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
    largest = order / (2 * noise**2 * narrower) + spread / (2 * (order - 1))
    return min(paper, largest) * (1 + 1e-12)


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


def check_ballots(counts: np.ndarray) -> int:
    """Number of teachers, where every row is whole ballots and has as many; messages show no count."""
    n_teachers = int(counts[0].sum()) if len(counts) else 0
    integral = (counts >= 0).all() and (counts == np.floor(counts)).all()
    if n_teachers < 2 or not integral or not (counts.sum(axis=1) == n_teachers).all():
        raise ValueError(
            "counts must be whole ballots, every row of the same number of teachers, two or more"
        )
    return n_teachers

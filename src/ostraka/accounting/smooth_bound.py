"""The 2018 bound, published with Gaussian noise which is scaled to its smooth sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.special

from ostraka import _check
from ostraka.accounting.cost_levels import check_ballots
from ostraka.accounting.dependent import argmax_bound, screen_bound
from ostraka.accounting.sensitivity import (
    check_conditions,
    local_sensitivities,
    require_conditions,
    smooth_sensitivity,
)
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import _exact
from ostraka.mechanisms.protocols import HasScreenBound, parts
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["SmoothBound", "plan_smooth_bound", "smooth_noise_rdp"]

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
    Gaussians (Gil et al. 2013) at its largest, docs/publishing-epsilon.md, Theorem 7. Rounded up.

    Examples
    --------
    >>> round(smooth_noise_rdp(order=10.0, beta=0.02, noise=20.0), 4)
    0.026
    """
    _check.positive(order=order, beta=beta, noise=noise)
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
    docs/publishing-epsilon.md, Theorem 7.
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
        _check.integer(n_teachers=self.n_teachers, n_classes=self.n_classes, least=2)
        _check.integer(n_queries=self.n_queries, least=1)
        _check.delta(self.failure)
        screen, argmax = parts(self.mechanism)
        if not (0 <= self.n_screened <= self.n_queries and (self.n_screened > 0) == (screen is not None)):
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
        counts = _check.counts(private.open())
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
        for part, rows in _parts(self, _check.counts(counts)):
            total += float(_bounds(part, rows, self.order).sum())
        return total * (1 + 1e-12)

    def sensitivities(self, counts: ArrayLike) -> np.ndarray:
        """Local sensitivity of :meth:`cost` within 0, 1, … ballots: private."""
        array = _check.counts(counts)
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
    _, argmax = parts(mechanism)
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


def _guess(n_teachers: int, n_classes: int, agreement: float) -> np.ndarray:
    """Public votes: a share of ``agreement`` nearly unanimous, the others evenly down to a tie."""
    level = (np.arange(_GUESSES) + 0.5) / _GUESSES
    margin = np.interp(level, [0, 1 - agreement, 1 - agreement, 1], [0, 1, 0.9, 1])
    first = np.rint(n_teachers * (1 + margin * (n_classes - 1)) / n_classes)
    rest = n_teachers - first[:, None] - np.arange(n_classes - 1)[None, :]
    return np.concatenate([first[:, None], np.ceil(np.clip(rest, 0, None) / (n_classes - 1))], axis=1)


def _guessed(plan: SmoothBound) -> tuple[float, np.ndarray]:
    """Cost and local sensitivities if the votes were the guess."""
    guess = _guess(plan.n_teachers, plan.n_classes, plan.agreement)
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
    screen, argmax = parts(plan.mechanism)
    if screen is None:
        return [(argmax, counts)]
    return [(screen, counts[: plan.n_screened]), (argmax, counts[plan.n_screened :])]


def _bounds(mechanism: BallotMechanism, counts: np.ndarray, order: float) -> np.ndarray:
    """The 2018 bound of each row at one order."""
    screens = isinstance(mechanism, HasScreenBound)
    published = screen_bound(mechanism) if screens else argmax_bound(mechanism)
    return published.rdp(published.log_q(counts), (order,))[:, 0]

"""A certificate: one noisy number computed from the votes, which bounds the cost of the answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.special

from ostraka import _check
from ostraka.accounting.cost_levels import UNIT, CostLevels, check_ballots, cost_levels, worst
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import _exact
from ostraka.mechanisms.protocols import parts
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["Certificate", "plan_certificate"]

_GUESSES = 256  # queries of the public guess
_ORDERS = tuple(order for order in ORDERS if 2.0 <= order <= 130.0)
_NOISES = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 28.0, 40.0)
_MARGINS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Publishes how far, in ballots, votes are from a public guess of equal cost; a door mechanism.

    Attributes
    ----------
    mechanism : GNMax, LNMax, Threshold or Confident
        What gave the answers.
    n_teachers, n_classes : int
    n_queries : int
        Number of rows of the votes.
    n_screened : int
        With a screen and three classes or more: the first ``n_screened`` rows went through the screen,
        the rest are rows that it let through, answered by the argmax. Otherwise 0.
    order : float, one of ``ORDERS``, finite
        The Rényi order at which costs are summed.
    noise : float > 0, in ballots
        Standard deviation of the Gaussian noise.
    margin : float >= 0
        How far the bound is moved up for noise; 1 is right where costs grow evenly with distance.
    confidence : float in [0.5, 1)
        The bound is at least the cost of these votes with this probability over the noise.
    agreement : float in [0, 1]
        The public guess: this share of the queries nearly unanimous, the others spread evenly down
        to a tie. A wrong guess makes the bound larger, never wrong.

    Guarantees
    ----------
    docs/publishing-epsilon.md. Theorem 2: moving one ballot moves the number before noise by at
    most 1. Theorem 3: what :meth:`bound` says of the published number.
    """

    mechanism: BallotMechanism
    n_teachers: int
    n_classes: int
    n_queries: int
    order: float
    noise: float
    n_screened: int = 0
    margin: float = 1.0
    confidence: float = 0.95
    agreement: float = 2 / 3
    promise: ClassVar[Adjacency] = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        _check.positive(noise=self.noise)
        _check.integer(n_teachers=self.n_teachers, n_classes=self.n_classes, least=2)
        _check.integer(n_queries=self.n_queries, least=1)
        _check.integer(n_screened=self.n_screened)
        _check.nonnegative(margin=self.margin, agreement=self.agreement)
        if self.order not in ORDERS[:-1]:
            raise ValueError(f"order must be a finite one of ostraka.curve.ORDERS, got {self.order!r}")
        if self.agreement > 1:
            raise ValueError(f"agreement must be at most 1, got {self.agreement!r}")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence must be >= 0.5 and < 1, got {self.confidence!r}")
        two_parts = parts(self.mechanism)[0] is not None and self.n_classes > 2
        if not (self.n_screened <= self.n_queries and (self.n_screened > 0) == two_parts):
            raise ValueError("n_screened is the number of screened rows: with a screen and many classes")

    def curve(self) -> Curve:
        """The cost of publishing: a Gaussian of sensitivity 1."""
        return Curve.gaussian(sensitivity=1.0, sigma=self.noise, moves="ballot")

    def uses(self, private: Private) -> int:
        """One, whatever the number of queries."""
        del private
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The distance, rounded to whole ballots after noise; int64, shape ()."""
        place, one = Fraction(2 * self.distance(private.open()) + 1, 2), Fraction(1)
        noisy = _exact.noisy_floor(place, scale=Fraction(self.noise), grid=one, rng=rng)
        return np.asarray(noisy, dtype=np.int64)

    def distance(self, counts: ArrayLike) -> int:
        """Return, without noise, by how many ballots the guess must worsen to cover these votes. Private.

        With v_k the largest cost of any votes within k ballots of these, and F(x) the cost of the
        guess worsened by x ballots: max over k of (smallest x with F(x) >= v_k) - k.
        """
        array = _check.counts(counts)
        if array.shape != (self.n_queries, self.n_classes) or check_ballots(array) != self.n_teachers:
            shape = (self.n_queries, self.n_classes)
            raise ValueError(f"counts must have shape {shape} and {self.n_teachers} ballots a row")
        steps = _levels_of(self)
        rows = (array,) if len(steps) == 1 else (array[: self.n_screened], array[self.n_screened :])
        placed = [(scale, scale.levels(part)) for scale, part in zip(steps, rows, strict=True)]
        costs = worst(placed, self.n_teachers)
        lowest, guess = _guess(self)
        covers = lowest + np.searchsorted(guess, costs * UNIT, side="left")
        return max(lowest, int((covers - np.arange(len(costs))).max()))

    def bound(self, published: int) -> float:
        """Rényi cost at ``order`` of the answers, as published: Theorem 3's U, in nats."""
        lowest, claims = _claims(self)
        return float(claims[min(max(int(published) - lowest, 0), len(claims) - 1)])

    def below(self) -> float:
        """Largest probability, over all votes, that the bound is below their cost: at most 1 - confidence."""
        first, claims = _claims(self)
        lowest, guess = _guess(self)
        enough = first + np.searchsorted(claims, guess, side="left")
        reached = scipy.special.ndtr((enough - 0.5 - lowest - np.arange(len(guess))) / self.noise)
        return float(min(1.0, reached.max() * (1 + 1e-9)))

    def expected(self) -> float:
        """Mean of :meth:`bound` if the guess is right."""
        lowest, claims = _claims(self)
        chance = _cells(lowest, len(claims), 0.0, self.noise)
        return float(np.exp(chance) @ claims)


@lru_cache(maxsize=64)
def plan_certificate(
    mechanism: BallotMechanism,
    *,
    n_teachers: int,
    n_classes: int,
    n_queries: int,
    n_screened: int = 0,
    delta: float,
    agreement: float = 2 / 3,
    orders: tuple[float, ...] | None = None,
) -> Certificate:
    """The certificate of the smallest published epsilon on average, near the guess. Reads no votes."""
    best, least = None, math.inf
    for order in _ORDERS if orders is None else orders:
        fixed = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        if fixed > least:
            continue
        start = Certificate(
            mechanism=mechanism,
            n_teachers=n_teachers,
            n_classes=n_classes,
            n_queries=n_queries,
            n_screened=n_screened,
            order=order,
            noise=1.0,
            agreement=agreement,
        )
        for noise in _NOISES:
            epsilon = fixed + order / (2 * noise**2) + _mean(start, noise, 1.5)
            if epsilon < least:
                best, least = replace(start, noise=noise, margin=1.5), epsilon
    if best is None:
        raise ValueError(f"no order certifies anything at delta={delta!r}: take a larger delta")
    means = {margin: _mean(best, best.noise, margin) for margin in _MARGINS}
    return replace(best, margin=min(means, key=lambda margin: means[margin]))


def _levels_of(of: Certificate) -> tuple[CostLevels, ...]:
    return cost_levels(of.mechanism, n_teachers=of.n_teachers, n_classes=of.n_classes, order=of.order)


@lru_cache(maxsize=256)
def _guess(certificate: Certificate) -> tuple[int, np.ndarray]:
    """Return the public guess worsened by x ballots: the lowest x, and the cost at each x from there."""
    # the list ends at a cost that no votes exceed
    level = (np.arange(_GUESSES) + 0.5) / _GUESSES
    spread = 1 - certificate.agreement
    margins = np.interp(level, [0, spread, spread, 1], [0, 1, 0.9, 1])
    steps, screened = _levels_of(certificate), certificate.n_screened
    sizes = (screened, certificate.n_queries - screened) if screened else (certificate.n_queries,)
    reach = max(1, *(math.ceil((step.agreed - step.tied) / step.pace) for step in steps))
    x = np.arange(-reach, reach + 1)
    total = np.zeros(len(x))
    for step, size in zip(steps, sizes, strict=True):
        falling = np.maximum.accumulate(step.cost[::-1])[::-1].astype(float) * UNIT
        place = np.rint(step.tied + margins * (step.agreed - step.tied))[:, None] - step.pace * x[None, :]
        inside = falling[np.clip(place, 0, step.agreed).astype(np.int64)]
        fade = math.log(falling[step.agreed] / falling[max(0, step.agreed - step.pace)]) / step.pace
        total += size * (inside * np.exp(fade * np.clip(place - step.agreed, 0, None))).mean(axis=0)
    guess = np.maximum.accumulate(total)
    most = sum(size * int(step.cost.max()) * UNIT for step, size in zip(steps, sizes, strict=True))
    guess[-1] = max(guess[-1], most) * (1 + 1e-12)
    return -reach, guess


@lru_cache(maxsize=256)
def _claims(certificate: Certificate) -> tuple[int, np.ndarray]:
    """Return Theorem 3's U, rounded up: the lowest number that it tells apart, and its values from there."""
    # raised evenly until, as the theorem requires, at every whole x
    # E exp(-(order - 1) U(x - (order - 1) + noise)) <= exp(-(order - 1) F(x))
    (lowest, guess), tilt, noise = _guess(certificate), certificate.order - 1, certificate.noise
    pad = _pad(noise)
    claims = _raised(guess, tilt, noise, certificate.margin)
    sure = (
        np.arange(-pad, len(guess) + pad)
        + 0.5
        - noise * float(scipy.special.ndtri(1 - certificate.confidence))
    )
    claims = np.maximum(claims, np.interp(sure, np.arange(len(guess)), guess))
    start = lowest + np.arange(len(guess))
    chance = _cells(lowest - pad, len(claims), (start - tilt)[:, None], noise)
    short = scipy.special.logsumexp(chance - tilt * claims, axis=1) / tilt + guess
    claims += max(0.0, float(short.max())) + 1e-9 * (1 + claims)
    return lowest - pad, claims


def _pad(noise: float) -> int:
    return math.ceil(10 * noise)


def _raised(guess: np.ndarray, tilt: float, noise: float, margin: float) -> np.ndarray:
    """Shift the guess to lower numbers by the tilt and the slope's allowance, and make it monotone."""
    pad, x = _pad(noise), np.arange(len(guess), dtype=float)
    at = np.arange(-pad, len(guess) + pad) + tilt
    slope = np.interp(at, x, np.gradient(guess))
    return np.maximum.accumulate(np.interp(at + margin * tilt * noise**2 * slope / 2, x, guess))


def _mean(certificate: Certificate, noise: float, margin: float) -> float:
    """Return a quick approximation of the bound's mean, for planning only."""
    # the mean of three guesses: a right one, and ones that are too good by 4 and 8 % of the teachers
    (lowest, guess), tilt = _guess(certificate), certificate.order - 1
    claims, pad = _raised(guess, tilt, noise, margin), _pad(noise)
    width = math.ceil(8 * noise)
    lift = math.ceil(tilt) + width
    weights = np.exp(_cells(-lift, lift + width + 1, -tilt, noise))
    padded = np.pad(np.exp(-tilt * claims), (max(0, lift - pad), max(0, width - pad)), mode="edge")
    begin = pad - lift + max(0, lift - pad)
    sums = np.correlate(padded, weights, mode="valid")[begin : begin + len(guess)]
    with np.errstate(divide="ignore"):
        short = float((np.log(sums) / tilt + guess).max())
    off = np.array([[0.0], [0.04], [0.08]]) * certificate.n_teachers
    chance = np.exp(_cells(lowest - pad, len(claims), off, noise)).mean(axis=0)
    return float(chance @ claims) + max(0.0, short)


def _cells(lowest: int, n_cells: int, centre: float | np.ndarray, noise: float) -> np.ndarray:
    """Log probability that N(centre, noise²) rounds to each number from ``lowest``; ends take the tails."""
    edges = (lowest + np.arange(1, n_cells) - 0.5 - centre) / noise
    low = np.concatenate([np.full_like(edges[..., :1], -math.inf), edges], axis=-1)
    high = np.concatenate([edges, np.full_like(edges[..., :1], math.inf)], axis=-1)
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    upper = scipy.special.log_ndtr(high)
    with np.errstate(divide="ignore"):
        return np.asarray(upper + np.log(-np.expm1(scipy.special.log_ndtr(low) - upper)))

"""Skellam noise: whole numbers, so several parties, clients or keepers can each add a share of it.

The cost of an argmax, in which the first of equal counts wins, is a supremum over three outcomes (one of two
classes wins, the other, somebody else), searched over whole numbers: docs/proof.md. Up to sigma = 20 no whole
number near the largest value is left out; beyond, the margins are those of Gaussian noise. The cost of sums
is the divergence of a cell that moves by a whole number, and a Gaussian which dominates it.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import ive, ndtri_exp

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import GAUSSIAN, NEAR_GAUSSIAN, Law
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private

# of the search for the cost of an argmax
_FURTHEST = 6.0  # beyond order / sigma = 6 the price of both noisy counts is little above, and is used
_LEAST_SIGMA = 0.5  # below it, too
_FINE_UP_TO = 2.0  # in order / sigma: where the answer is, and worth a finer search
_COARSE, _FINE, _LINE = 4, 20, 100  # points a sigma
_COARSE_MARGIN, _MARGIN, _ROUNDING = 0.01, 6e-4, 1e-8
_AT_ONCE = 2**14  # columns of a product
# of the cost of sums
MOST_STEP = 64  # the largest move of one cell that is priced
_LEAST_VARIANCE = 1e-200  # below, a ratio of neighbouring chances leaves float64
_SKELLAM_LAW_ROUNDING = 1e-10  # nats: far more than the sums below err by (tests compare with 50 digits)
_TAIL = math.log(2.0**-100)  # what lies further out is left to the slack of the curve
# of mechanisms and draws
MOST_SIGMA = 10_000.0  # in votes; keeps tables and sums short
_MOST_ARGMAX_SIGMA = 1_000.0
MOST_SUM_SIGMA = 8_000.0  # prices take half a second
_MOST_TABLE = 1e6  # of a variance: tables of draws are made in a second
_MOST_L2 = 2.0**14
_SUMMED_UP_TO = 1_000.0  # a sigma: beyond, Rényi divergences are taken from a theorem
# Clients in a browser draw from tables of 128 bits, each number within 2^-110; and at most 2^28 cells move,
# each of which a Gaussian dominates but for 2^-100.
_SLACK = 2.0**-60


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamMax:
    """Argmax of counts to which the parties have already added noise: it adds none itself.

    Parameters
    ----------
    sigma : float > 0, in votes
        Standard deviation of the noise that honest parties together put on each count. Public.
    changed : int >= 2, default 2
        How many counts of a row one party can move, each by one. A ballot moves two; towards an asker who
        cheats with secret questions it is the number of classes.
    reveals : {"counts", "argmax"}, default "counts"
        What is seen of the noisy counts: ``"counts"``, all of them; ``"argmax"``, only which is the largest,
        the first of equal ones. ``"argmax"`` needs ``changed=2`` and ``sigma`` of at most 1,000.

    Raises
    ------
    ValueError
        ``sigma`` not positive, or above 10,000 (1,000); ``changed`` below 2; an unknown word.

    Guarantees
    ----------
    One moved ballot costs at most ``curve()``, with ``reveals="counts"`` also where the noisy counts
    themselves are seen. The Rényi divergence of Skellam noise moved by one is summed numerically for each
    order and rounded up; ``changed`` counts move by one. With ``reveals="argmax"`` the price is that of the
    argmax of the same noisy counts, for all votes and any number of classes. :attr:`promise` lets only votes
    in that carry exactly this noise and are seen so: noise can be neither forgotten nor added twice.
    Source: Agarwal, Kairouz and Liu 2021, arXiv:2110.04995 (the mechanism); docs/proof.md (the argmax).

    Examples
    --------
    >>> round((100 * SkellamMax(sigma=40.0).curve()).epsilon(delta=1e-5), 2)
    1.36
    >>> round((100 * SkellamMax(sigma=40.0, reveals="argmax").curve()).epsilon(delta=1e-5), 2)
    1.16
    """

    sigma: float
    changed: int = 2
    reveals: Literal["counts", "argmax"] = "counts"

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma)
        check.integer(changed=self.changed, least=2)
        check.one_of(reveals=self.reveals, allowed=("counts", "argmax"))
        limit = MOST_SIGMA if self.reveals == "counts" else _MOST_ARGMAX_SIGMA
        check.at_most(limit, unit=" votes", sigma=self.sigma)
        if self.reveals == "argmax" and self.changed > 2:
            raise ValueError(f"changed must be 2 where only the argmax is seen, got {self.changed}")

    @property
    def promise(self) -> Adjacency:
        """One ballot may move, in counts that already contain this noise."""
        return Adjacency(noise_sigma=self.sigma, argmax_only=self.reveals == "argmax")

    def curve(self) -> Curve:
        """Cost of one row of noisy counts, or of their argmax, for every possible votes."""
        if self.reveals == "argmax":
            rdp = argmax_rdp(self.sigma**2)
        else:
            rdp = skellam_rdp(self.sigma**2, self.changed)
        # each count is dominated by a Gaussian, and the argmax is computed from all of them
        one_count = up(shift_mu(self.sigma**2, 1) ** 2)
        return Curve(ORDERS, rdp, "ballot", laws=(Law(NEAR_GAUSSIAN, one_count, self.changed),))

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The answers, int64 of shape (n_queries,); ties of counts are broken by ``rng``."""
        noisy = private.open()
        return np.asarray((noisy + rng.random(noisy.shape) / 2).argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamSum:
    """A sum of clients' vectors of whole numbers, with Skellam noise on every cell.

    Parameters
    ----------
    sigma : float > 0, at most 8,000
        Standard deviation of the noise on each cell, in the unit of the cells. Public.
    l1, l2 : float >= 1
        How far two encodings of one client can lie apart, in these norms. Public. ``l2`` is at most 16,384.
    adds : bool, default False
        False: the sums carry the noise already, because clients or keepers added it. True: the sums are
        exact, and :meth:`release` adds the noise.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, sums that are not whole numbers.

    Guarantees
    ----------
    ``curve()`` covers every whole-number change of one client's vector within both norms, in both
    directions, also where all noisy cells are seen. It bounds the Rényi divergence, and names a
    Gaussian that dominates the change; the smaller epsilon holds. Up to 64 the worst case is searched; where
    both norms are larger, the Gaussian is that of ``l2`` moves by one, whatever the number of cells.
    :attr:`promise` names the norms and the noise: sums with other noise, or with none, are refused.
    Source: Agarwal, Kairouz and Liu 2021, arXiv:2110.04995 (the mechanism, and Theorem 3.5 for large
    norms); the worst case is a linear program over the costs of single cells; the Gaussian is proved in
    docs/collect.md.

    Examples
    --------
    >>> tree = SkellamSum(sigma=36.0, l1=20.0, l2=20**0.5)
    >>> round(tree.curve().epsilon(delta=1e-6), 3)
    0.501
    """

    sigma: float
    l1: float
    l2: float
    adds: bool = False

    def __post_init__(self) -> None:
        check.positive(sigma=self.sigma, l1=self.l1, l2=self.l2)
        check.at_most(MOST_SUM_SIGMA, sigma=self.sigma)
        if min(self.l1, self.l2) < 1 or self.l2 > _MOST_L2:
            raise ValueError(f"l1 and l2 must be 1 or more, and l2 at most {_MOST_L2:,.0f}")
        if not isinstance(self.adds, bool):
            raise ValueError(f"adds must be True or False, got {self.adds!r}")  # noqa: TRY004  (house style)

    @property
    def promise(self) -> Adjacency:
        """One client's vector within both norms, in sums that carry exactly this noise (or none)."""
        return vector_adjacency(self.l1, self.l2, sigma=0.0 if self.adds else self.sigma)

    def curve(self) -> Curve:
        """Cost of one release of all cells."""
        rdp = vector_rdp(self.sigma**2, self.l1, self.l2)
        mu_squared = vector_mu_squared(self.sigma**2, self.l1, self.l2)
        laws = (Law(GAUSSIAN, mu_squared),)
        return Curve(ORDERS, rdp, "vector", mu_squared=mu_squared, slack=_SLACK, laws=laws)

    def uses(self, private: Private) -> int:
        """One use for the whole array: the norms bound all of it."""
        del private
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The noisy sums, int64 of the shape of ``private``."""
        sums = private.open()
        if not np.issubdtype(sums.dtype, np.integer):
            raise ValueError(f"sums must be whole numbers, got {sums.dtype}")
        noise = skellam(self.sigma**2, sums.shape, rng=rng) if self.adds else 0
        return np.asarray(sums + noise, dtype=np.int64)


def vector_adjacency(l1: float, l2: float, *, sigma: float) -> Adjacency:
    """The adjacency of sums of clients' vectors which carry Skellam noise of this standard deviation."""
    return Adjacency(unit="client", moves="vector", l1=l1, l2=l2, noise_sigma=sigma)


def skellam(variance: float, shape: tuple[int, ...], *, rng: np.random.Generator | None = None) -> np.ndarray:
    """Draw exactly, int64, from ``rng`` or the operating system; use more bits where 64 do not decide."""
    if variance > _MOST_TABLE:  # the sum of two draws of half the variance is one of all of it
        return np.asarray(skellam(variance / 2, shape, rng=rng) + skellam(variance / 2, shape, rng=rng))
    size = math.prod(shape)
    words = _words(2 * size, rng)
    thresholds = _thresholds(variance / 2)
    draws = np.searchsorted(thresholds, words, side="left")
    for place in np.flatnonzero(thresholds[draws] == words).tolist():
        # the first 64 bits equal those of a threshold: with more bits
        number, bits = int(words[place]), 64
        while True:
            number, bits = (number << 64) | int(_words(1, rng)[0]), bits + 64
            longer = _poisson(variance / 2, bits)
            draws[place] = bisect_left(longer, number)
            if longer[draws[place]] != number:
                break
    return np.asarray((draws[:size] - draws[size:]).reshape(shape), dtype=np.int64)


def largest_draw(variance: float) -> int:
    """Return a bound which the size of a draw exceeds with probability at most 2^-60."""
    if variance > _MOST_TABLE:
        return 2 * largest_draw(variance / 2)
    return len(_thresholds(variance / 2))


def _words(size: int, rng: np.random.Generator | None) -> np.ndarray:
    if rng is None:
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    return rng.integers(0, 2**64, size=size, dtype=np.uint64)


@lru_cache(maxsize=32)
def _thresholds(mean: float) -> np.ndarray:
    """Poisson probabilities of at most 0, 1, 2, …, in steps of 2^-64, rounded down."""
    table = np.array(_poisson(mean, 64), dtype=np.uint64)
    table.setflags(write=False)
    return table


def _poisson(mean: float, bits: int) -> list[int]:
    """Poisson probabilities of at most 0, 1, … in steps of 2^-bits, until one rounds down to 1 - 2^-bits."""
    digits, ceiling = math.ceil(0.302 * bits), 2**bits - 1
    floors: list[int] = []
    while not floors or floors[-1] < ceiling:  # again with more digits where these do not decide all of them
        digits += 30
        with localcontext(Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)):
            rate, scale = Decimal(mean), Decimal(2**bits)
            # n steps lose less than 4 n units of the last place, and n is below 10^8
            chance, doubt = (-rate).exp(), scale * Decimal(10) ** (10 - digits)
            below, floors = chance, []
            while not floors or floors[-1] < ceiling:
                at_least = max(0, int(below * scale - doubt))
                if at_least != min(ceiling, int(below * scale + doubt)):
                    break
                floors.append(at_least)
                chance *= rate / len(floors)
                below += chance
    return floors


@lru_cache(maxsize=32)
def skellam_rdp(variance: float, changed: int = 2) -> tuple[float, ...]:
    """Rényi divergence, rounded up, when so many counts with this noise move by one; nats for each order."""
    return tuple(up(changed * value) for value in shift_rdp(variance, 1))


@lru_cache(maxsize=32)
def vector_rdp(variance: float, l1: float, l2: float) -> tuple[float, ...]:
    """The largest Rényi divergence, rounded up, of any whole-number move within both norms."""
    if variance > _SUMMED_UP_TO**2 or min(l1, l2) > MOST_STEP:
        return published_rdp(variance, l1, l2)
    single = np.array([shift_rdp(variance, step) for step in _steps(l1, l2)])
    return tuple(up(value, ulps=64) for value in _costliest(single, l1, l2).tolist())


@lru_cache(maxsize=32)
def vector_mu_squared(variance: float, l1: float, l2: float) -> float:
    """The square of a mean shift, rounded up, whose Gaussian dominates every move within both norms.

    Independent cells are dominated by independent Gaussians, whose squared shifts add.
    """
    if min(l1, l2) > MOST_STEP:  # a move by k costs at most k^2 times that of a move by one
        return up(l2**2 * shift_mu(variance, 1) ** 2, ulps=64)
    single = np.array([[shift_mu(variance, step) ** 2] for step in _steps(l1, l2)])
    return up(float(_costliest(single, l1, l2)[0]), ulps=64)


def published_rdp(variance: float, l1: float, l2: float) -> tuple[float, ...]:
    """Theorem 3.5 of Agarwal et al. 2021, which holds at whole orders; others take the next, rounded up."""
    area, l1 = l2 * l2 * (1 + 1e-12), min(l1, l2 * l2)  # of whole numbers, l1 is at most the square of l2
    rdp = []
    for order in (math.ceil(order) if math.isfinite(order) else order for order in ORDERS):
        rest = min(((2 * order - 1) * area + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        rdp.append(up(order * area / (2 * variance) + rest, ulps=64) if math.isfinite(order) else math.inf)
    return tuple(rdp)


def _steps(l1: float, l2: float) -> range:
    """The moves of one cell that both norms allow."""
    return range(1, math.floor(min(l1, l2)) + 1)


def _costliest(single: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """Return the largest cost of a whole move, given the costs of one cell for moves of 1, 2, 3 and so on."""
    # costs of cells add; with n(k) cells moved by k, the worst case is a linear program: maximise the sum of
    # n(k) cost(k) where the n(k) k add to at most l1 and the n(k) k^2 to at most l2^2; fractions only raise
    # it, and two values of k suffice, since there are two constraints
    steps, area = _steps(l1, l2), l2 * l2 * (1 + 1e-12)
    worst = np.zeros(single.shape[1])
    for i, step in enumerate(steps):
        worst = np.maximum(worst, min(l1 / step, area / step**2) * single[i])
        for j, two in enumerate(steps[:i]):
            fine = (l1 * step - area) / (two * (step - two))  # cells that move by the smaller step
            coarse = (area - l1 * two) / (step * (step - two))
            if fine > 0 and coarse > 0:
                worst = np.maximum(worst, fine * single[j] + coarse * single[i])
    return worst


@lru_cache(maxsize=256)
def shift_rdp(variance: float, shift: int) -> tuple[float, ...]:
    """Rényi divergence of Skellam noise moved by ``shift``, for each order, rounded up by 1e-10 nats."""
    reach = math.ceil(2 * shift * ORDERS[-2] + 40 * math.sqrt(variance)) + 50
    half = log_density(variance, reach)
    at = np.concatenate([half[:0:-1], half])  # whole numbers from -reach to reach
    unmoved, moved = at[shift:], at[:-shift]  # the density is even: both directions are this one
    stride = max(1, math.floor(math.sqrt(variance) / 2))
    coarse_here, coarse_moved = unmoved[::stride], moved[::stride]
    rdp = []
    for order in ORDERS:
        if not math.isfinite(order):  # Skellam ratios are unbounded: there is no pure differential privacy
            rdp.append(math.inf)
            continue
        coarse = order * coarse_here + (1 - order) * coarse_moved
        near = np.flatnonzero(coarse > coarse.max() - 80)
        first, last = max(0, (near[0] - 1) * stride), (near[-1] + 1) * stride + 1
        terms = order * unmoved[first:last] + (1 - order) * moved[first:last]
        largest = terms.max()
        total = float(largest + np.log(np.exp(terms - largest).sum()))
        inside = max(terms[0], terms[-1]) < total - 60  # the mass of this order lies well inside the sum
        rdp.append(up(max(total, 0.0) / (order - 1) + _SKELLAM_LAW_ROUNDING) if inside else math.inf)
    return tuple(rdp)


def shift_mu(variance: float, shift: int) -> float:
    """Return mu, rounded up: but for 2^-100, a Gaussian moved by mu deviations dominates the move.

    The density is log-concave, so the best tests are thresholds, and the trade-off function is linear
    between them. It lies above that of the Gaussian, which is convex, as soon as it does so at every
    threshold i: if z(i) - z(i - shift) <= mu, where z is the normal quantile of P[X <= i].
    """
    z = _normal_quantiles(variance)
    inner = len(z) // 2 - (MOST_STEP - shift)  # thresholds as far out as this move needs
    middle = len(z) // 2
    z = z[middle - inner : middle + inner]
    return float((z[shift:] - z[:-shift]).max()) * (1 + 1e-9) + _SKELLAM_LAW_ROUNDING


@lru_cache(maxsize=8)
def _normal_quantiles(variance: float) -> np.ndarray:
    """Return z(i) for i from -n to n - 1, where P[X > n - 1 - MOST_STEP] is below 2^-100."""
    deviations = 60 if variance < 2_500 else 16  # far enough for 2^-100; checked below
    reach = math.ceil(deviations * math.sqrt(variance)) + 300 + MOST_STEP
    tails = np.logaddexp.accumulate(log_density(variance, reach)[::-1])[::-1][1:]  # log P[X > i], i >= 0
    last = int(np.argmax(tails < _TAIL)) + MOST_STEP
    if not (tails[last - MOST_STEP] < _TAIL and last + 100 < len(tails)):
        raise ValueError("the tails of this noise are too long to be priced")
    right = -ndtri_exp(tails[: last + 1])
    return np.concatenate([-right[::-1], right])  # the density is even: z(-1 - i) = -z(i)


def log_density(variance: float, reach: int) -> np.ndarray:
    """Return log probabilities of 0, …, reach."""
    if variance < _LEAST_VARIANCE:
        raise ValueError(
            "sigma must be at least 1e-100: less noise has no price in float64; use a larger one"
        )
    block = 1 << max(0, reach.bit_length() - 3)  # moves by a few steps share one
    return _log_density(variance, math.ceil(reach / block) * block)[: reach + 1]


@lru_cache(maxsize=8)
def _log_density(variance: float, reach: int) -> np.ndarray:
    """As :func:`log_density`, from Bessel ratios I(k)/I(k-1) by downward recursion."""
    top = reach + math.ceil(10 * math.sqrt(variance)) + 50
    ratio = variance / (top + 0.5 + math.sqrt((top + 1.5) ** 2 + variance**2))
    logs = np.empty(reach + 1)
    logs[0] = math.log(ive(0, variance))
    for k in range(top, 0, -1):
        ratio = 1 / (2 * k / variance + ratio)
        if k <= reach:
            logs[k] = math.log(ratio)
    logs = np.cumsum(logs)
    logs.setflags(write=False)
    return logs


@lru_cache(maxsize=32)
def argmax_rdp(variance: float) -> tuple[float, ...]:
    """Cost of one answer at each order, for all votes and any number of classes; errs up. Nats."""
    sigma, single = math.sqrt(variance), np.array(shift_rdp(variance, 1))
    doubled, orders = 2 * single, np.array(ORDERS)
    where = orders <= (_FURTHEST * sigma if sigma >= _LEAST_SIGMA else 0.0)
    bound = doubled.copy()
    if where.any():
        # where no third class can win: the noisy difference of two counts
        wide = math.sqrt(2 * variance)
        step = max(1, math.floor(wide / _LINE))
        reach = step * (math.ceil(16 * wide / step) + 30)
        spare = math.ceil(3 * wide) + 60  # what lies beyond is below 1e-16 of the outermost sums
        density = _density(2 * variance, reach + spare)
        below, above = np.cumsum(density), np.cumsum(density[::-1])[::-1]
        ahead = np.arange(spare - 2, 2 * reach + spare, step)
        near, moved = (np.stack([below[at], above[at + 1]]) for at in (ahead, ahead + 2))
        line = _largest(near, moved, orders[where]) * (1 + (0.0 if step == 1 else _MARGIN))
        largest = np.maximum(line, _over_plane(variance, orders[where]))
        largest = np.maximum(largest, single[where])  # far out one of the classes cannot win
        bound[where] = np.minimum(doubled[where], largest * (1 + _ROUNDING))
    return tuple(up(value) for value in bound.tolist())


def _over_plane(variance: float, orders: np.ndarray) -> np.ndarray:
    """Return the largest divergence of three outcomes on a coarse lattice, refined where it is large."""
    sigma = math.sqrt(variance)
    coarse, fine = (max(1, math.floor(sigma / points)) for points in (_COARSE, _FINE))
    side = np.arange(-math.ceil(5 * sigma) - 10, math.ceil(10 * sigma) + 10, coarse)
    at = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    laws = _moved(variance, at)
    # divergences of each point, shape (points, orders); no term is negative
    values = np.zeros((len(at), orders.size))
    for p, q in ((p, q) for base, moved in laws for p, q in ((base, moved), (moved, base))):
        ratio = (np.log(p) - np.log(q))[:, :, None]
        excess = q[:, :, None] * (np.expm1(np.minimum(orders * ratio, 700.0)) - orders * np.expm1(ratio))
        total = np.maximum(excess, 0.0).sum(axis=0)
        np.maximum(values, np.log1p(total) / (orders - 1), out=values)
    largest = values.max(axis=0)
    if coarse == 1:
        return np.asarray(largest)
    refined = orders <= _FINE_UP_TO * sigma
    near = (values[:, refined] * (1 + _COARSE_MARGIN) >= largest[refined]).any(axis=1)
    largest = largest * (1 + _COARSE_MARGIN)
    if near.any():
        steps = np.arange(-(coarse // (2 * fine)) - 1, coarse // (2 * fine) + 2) * fine
        around = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(1, -1, 2)
        points = np.unique((at[near][:, None] + around).reshape(-1, 2), axis=0)
        best = [_largest(base, moved, orders[refined]) for base, moved in _moved(variance, points)]
        largest[refined] = np.max(best, axis=0) * (1 + (0.0 if fine == 1 else _MARGIN))
    return np.asarray(largest)


def _moved(variance: float, at: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the laws at each point (a, b) and one ballot away, for both rules for ties with the bar."""
    return [
        (_outcomes(variance, at, late), _outcomes(variance, at + np.array([-1, 1]), late)) for late in (0, 1)
    ]


def _outcomes(variance: float, at: np.ndarray, late: int) -> np.ndarray:
    """Return P(A >= B, A >= 0), P(B > A, B >= late) and P(A < 0, B < late) at every (a, b), shape (3, n)."""
    # late: whether the class at the bar comes before (1) or after (0) the second one, which loses ties to
    # the first
    firsts, seconds = np.unique(at[:, 0]), np.unique(at[:, 1])
    end = int(at.max()) + math.ceil(12 * math.sqrt(variance)) + 60
    middle = end - min(0, int(at.min())) + 2
    density = _density(variance, middle)
    below = np.cumsum(density)
    first, second = np.zeros((2, len(firsts), len(seconds)))
    for start in range(0, end, _AT_ONCE):
        x = np.arange(start, min(end, start + _AT_ONCE)) + middle
        a, b = x - firsts[:, None], x - seconds[:, None]
        first += density[a] @ below[b].T
        second += below[a - 1] @ (density[b] * (x >= middle + late)).T
    i, j = np.searchsorted(firsts, at[:, 0]), np.searchsorted(seconds, at[:, 1])
    neither = below[middle - 1 - at[:, 0]] * below[middle + late - 1 - at[:, 1]]
    return np.stack([first[i, j], second[i, j], neither])


@lru_cache(maxsize=4)
def _density(variance: float, reach: int) -> np.ndarray:
    """Probabilities of -reach, …, reach."""
    half = np.exp(log_density(variance, reach))
    return np.concatenate([half[:0:-1], half])


def _largest(law: np.ndarray, moved: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return the largest divergence in either direction over all laws, outcomes first."""
    from ostraka.core.kernels.neighbours import largest_divergence  # noqa: PLC0415  (compiled code)

    divergences = np.zeros(len(orders))
    for p, q in ((law.T, moved.T), (moved.T, law.T)):
        log_q = np.log(q)
        largest_divergence(
            np.ascontiguousarray(log_q), np.ascontiguousarray(np.log(p) - log_q), orders, divergences
        )
    return divergences

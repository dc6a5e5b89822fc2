"""The discrete Gaussian on the whole numbers: exact draws, and a Gaussian shift which dominates it."""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from scipy.special import ndtri_exp

from ostraka._numeric import up

__all__ = ["discrete_gaussian", "log_normaliser", "tail_mass", "unit_shift"]

_BITS = 63  # drawn at a time
_FURTHEST = 11.0  # standard deviations within which shifts are compared


def discrete_gaussian(
    sigma: float, shape: tuple[int, ...], *, rng: np.random.Generator, bits: int = _BITS
) -> np.ndarray:
    """Whole numbers with probability proportional to exp(-k² / 2 sigma²), exactly; int64.

    The distribution function is inverted at a uniform number. Where the first ``bits`` bits of both do
    not decide, more bits are drawn and computed. That takes tables, no rejections and no floating point.
    """
    table = _table(sigma, bits)
    first = rng.integers(0, 2**bits, size=math.prod(shape), dtype=np.int64)
    place = np.searchsorted(table, first)
    drawn = place - len(table) // 2
    for at in np.flatnonzero(table[place] == first):
        drawn[at] = _settled(sigma, int(first[at]), bits, rng)
    return np.asarray(drawn.reshape(shape), dtype=np.int64)


@lru_cache(maxsize=256)
def unit_shift(sigma: float, *, reach: int = 1) -> float:
    """A mu, rounded up, such that discrete Gaussians a apart are (a mu)-GDP for every integer a <= ``reach``.

    That is up to :func:`tail_mass`. Write P[X >= t] = P[N(0, 1) >= z(t)]. The best tests ask whether X >= t,
    so it suffices that z(t) - z(t - 1) <= mu for every t up to 11 sigma + reach: docs/noisy-counts.md.
    """
    n = math.ceil(_FURTHEST * sigma) + reach
    weights = np.exp(-((np.arange(n + math.ceil(5 * sigma) + 60) / sigma) ** 2) / 2)
    tails = np.cumsum(weights[::-1])[::-1]
    with np.errstate(divide="ignore"):
        z = -ndtri_exp(np.log(tails[1 : n + 1] / (2 * tails[0] - weights[0])))
    steps = np.diff(z, prepend=-z[0])
    # sums of n terms err by less than n 2^-53 of their size, and z by less than 1.3 times that
    return up(float(steps.max()) + 4 * len(weights) * 2.0**-53 + 1e-13)


def tail_mass(sigma: float) -> float:
    """A bound on the probability of a draw further than 11 standard deviations from 0."""
    # a sum of a decreasing function is at most its first term and its integral; the normaliser is above 1
    furthest = _FURTHEST * sigma
    return 2 * math.exp(-(_FURTHEST**2) / 2) * (1 + sigma**2 / furthest)


def log_normaliser(sigma: float) -> float:
    """Log of the sum of exp(-k² / 2 sigma²) over all integers k."""
    reach = np.arange(1, math.ceil(40 * sigma) + 2)
    return math.log1p(2 * float(np.exp(-((reach / sigma) ** 2) / 2).sum()))


def _settled(sigma: float, number: int, bits: int, rng: np.random.Generator) -> int:
    """Draw again with more bits, where the first bits do not decide the value."""
    n_bits = bits
    while True:
        number = (number << bits) + int(rng.integers(0, 2**bits, dtype=np.int64))
        n_bits += bits
        half = _lower_half(sigma, n_bits)
        table = [*half, *((1 << n_bits) - 1 - value for value in reversed(half))]
        place = bisect_left(table, number)
        if table[place] != number:
            return place - len(half)


@lru_cache(maxsize=32)
def _table(sigma: float, bits: int) -> np.ndarray:
    """Return the distribution function at -n, …, n - 1, as multiples of 2^-bits, rounded down."""
    half = np.array(_lower_half(sigma, bits), dtype=np.int64)
    table = np.concatenate([half, (2**bits - 1) - half[::-1]])
    table.setflags(write=False)
    return table


def _lower_half(sigma: float, bits: int) -> list[int]:
    """Return the distribution function at -n, …, -1; -n is the first place where it rounds down to 0."""
    digits = math.ceil(0.302 * bits) + 30
    while True:
        floors = _floors(sigma, bits, digits)
        if floors is not None:
            return floors
        digits += 30


def _floors(sigma: float, bits: int, digits: int) -> list[int] | None:
    """Return floors of 2^bits P[X < -k], k from high to 0; None if ``digits`` do not decide all of them."""
    with localcontext() as context:
        context.prec = digits
        step = (-1 / (2 * Decimal(sigma) ** 2)).exp()
        weight, ratio, square = Decimal(1), step, step * step
        weights = []
        while weight > Decimal(10) ** -digits:
            weights.append(weight)
            weight, ratio = weight * ratio, ratio * square
        scale = Decimal(2**bits) / (2 * sum(weights) - 1)
        # n steps of recurrence lose n² units of the last place; n is below 10^7
        doubt, below, floors = Decimal(10) ** (16 - digits) * 2**bits, Decimal(0), []
        for weight in reversed(weights):
            floor = int(below - doubt) if below > doubt else 0
            if int(below + doubt) != floor:
                return None
            floors.append(floor)
            below += weight * scale
    first = next((k for k, floor in enumerate(floors) if floor), len(floors)) - 1
    return floors[max(first, 0) :]

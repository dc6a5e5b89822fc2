"""Noise that parties add together: Skellam, whole numbers whose sums are Skellam again."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ive, logsumexp

from ostraka import _check
from ostraka._numeric import up
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms.argmax import FLOAT_SLACK
from ostraka.private import Adjacency

if TYPE_CHECKING:
    from ostraka.private import Private

__all__ = ["MOST_SIGMA", "SkellamMax", "largest_draw", "skellam", "skellam_rdp"]

MOST_SIGMA = 10_000.0  # in votes; keeps tables and sums short
_ROUNDING = 1e-10  # nats: far more than the sums below err by (tests compare with 50 digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamMax:
    """Noisy max of counts that parties have made noisy already: it picks the largest, and adds nothing.

    Parameters
    ----------
    sigma : float > 0, in votes
        Standard deviation of the noise that honest parties together put on each count. Public.

    Raises
    ------
    ValueError
        ``sigma`` not positive, or above 10,000.

    Guarantees
    ----------
    One moved ballot costs at most ``curve()``, also towards whoever sees the noisy counts
    themselves. The Rényi divergence of Skellam noise moved by one is summed numerically for each
    order and rounded up; a ballot moves two counts by one. :attr:`promise` lets only votes in
    that carry exactly this noise, so noise can be neither forgotten nor added twice.
    Source: Agarwal, Kairouz and Liu 2021, arXiv:2110.04995 (the mechanism).

    Examples
    --------
    >>> round((100 * SkellamMax(sigma=40.0).curve()).epsilon(delta=1e-5), 2)
    1.48
    """

    sigma: float

    def __post_init__(self) -> None:
        _check.positive(sigma=self.sigma)
        if self.sigma > MOST_SIGMA:
            raise ValueError(f"sigma must be at most {MOST_SIGMA:,.0f} votes, got {self.sigma!r}")

    @property
    def promise(self) -> Adjacency:
        """One ballot, in counts that this noise is part of."""
        return Adjacency(moves=f"ballot under Skellam noise of sigma={self.sigma!r}")

    def curve(self) -> Curve:
        """Cost of one row of noisy counts, for every possible votes."""
        return Curve(ORDERS, skellam_rdp(self.sigma**2), "ballot", slack=FLOAT_SLACK)

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The answers, int64 of shape (n_queries,); ties are broken by ``rng``."""
        noisy = private.open()
        return np.asarray((noisy + rng.random(noisy.shape) / 2).argmax(axis=1), dtype=np.int64)


@lru_cache(maxsize=32)
def skellam_rdp(variance: float) -> tuple[float, ...]:
    """Rényi divergence, rounded up, when one ballot moves two counts with this noise; nats for each order."""
    reach = math.ceil(2 * ORDERS[-2] + 40 * math.sqrt(variance)) + 50
    half = _log_density(variance, reach)
    at = np.concatenate([half[:0:-1], half])  # whole numbers from -reach to reach
    here, moved = at[1:], at[:-1]  # the density is even: both directions are this one
    rdp = []
    for order in ORDERS:
        terms = order * here + (1 - order) * moved if math.isfinite(order) else np.zeros(1)
        total = float(logsumexp(terms))
        # the order's mass must lie well inside; for pure DP it never does: Skellam ratios are unbounded
        inside = math.isfinite(order) and max(terms[0], terms[-1]) < total - 60
        rdp.append(up(2 * (max(total, 0.0) / (order - 1) + _ROUNDING)) if inside else math.inf)
    return tuple(rdp)


def skellam(variance: float, shape: tuple[int, ...]) -> np.ndarray:
    """Draws from the operating system's generator, int64; each is off by 2^-63 times the table's length."""
    size = math.prod(shape)
    up_and_down = np.frombuffer(os.urandom(16 * size), dtype=np.uint64)
    draws = np.searchsorted(_thresholds(variance / 2), up_and_down, side="right")
    return np.asarray((draws[:size] - draws[size:]).reshape(shape), dtype=np.int64)


def largest_draw(variance: float) -> int:
    """No draw is farther from zero."""
    return len(_thresholds(variance / 2))


@lru_cache(maxsize=32)
def _thresholds(mean: float) -> np.ndarray:
    """Poisson probabilities of at most 0, 1, 2, …, in steps of 2^-64, rounded down."""
    found = []
    with localcontext() as context:
        context.prec = 50
        rate, scale = Decimal(mean), Decimal(2**64)
        chance = (-rate).exp()
        below, number = chance, 0
        while not (number > mean and chance * scale < Decimal("1e-6")):
            found.append(min(int(below * scale), 2**64 - 1))
            number += 1
            chance *= rate / number
            below += chance
    return np.array(found, dtype=np.uint64)


def _log_density(variance: float, reach: int) -> np.ndarray:
    """Log probabilities of 0 … reach: Bessel ratios I(k)/I(k-1), run down from far above."""
    top = reach + math.ceil(10 * math.sqrt(variance)) + 50
    ratio = variance / (top + 0.5 + math.sqrt((top + 1.5) ** 2 + variance**2))
    logs = np.empty(reach + 1)
    logs[0] = math.log(ive(0, variance))
    for k in range(top, 0, -1):
        ratio = 1 / (2 * k / variance + ratio)
        if k <= reach:
            logs[k] = math.log(ratio)
    return np.cumsum(logs)

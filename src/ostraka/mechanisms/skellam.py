"""Skellam noise: whole numbers, so several parties, clients or keepers can each add a share of it."""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from ostraka import _check
from ostraka._composition.law import GAUSSIAN, NEAR_GAUSSIAN, Law
from ostraka._numeric import up
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms._skellam_law import MOST_STEP, log_density, shift_mu, shift_rdp
from ostraka.private import Adjacency

if TYPE_CHECKING:
    from ostraka.private import Private

__all__ = [
    "MOST_SIGMA",
    "SkellamMax",
    "SkellamSum",
    "largest_draw",
    "skellam",
    "skellam_rdp",
    "vector_adjacency",
    "vector_rdp",
]

MOST_SIGMA = 10_000.0  # in votes; keeps tables and sums short
MOST_SUM_SIGMA = 1_000.0  # its tables are made in a second
# Clients in a browser draw from tables of 128 bits, each number within 2^-110; and at most 64^2 cells move,
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
        _check.positive(sigma=self.sigma)
        _check.integer(changed=self.changed, least=2)
        _check.one_of(reveals=self.reveals, allowed=("counts", "argmax"))
        most = MOST_SIGMA if self.reveals == "counts" else MOST_SUM_SIGMA
        if self.sigma > most:
            raise ValueError(f"sigma must be at most {most:,.0f} votes, got {self.sigma!r}")
        if self.reveals == "argmax" and self.changed > 2:
            raise ValueError(f"changed must be 2 where only the argmax is seen, got {self.changed}")

    @property
    def promise(self) -> Adjacency:
        """One ballot may move, in counts that already contain this noise."""
        return Adjacency(noise_sigma=self.sigma, argmax_only=self.reveals == "argmax")

    def curve(self) -> Curve:
        """Cost of one row of noisy counts, or of their argmax, for every possible votes."""
        if self.reveals == "argmax":
            from ostraka.mechanisms._skellam_argmax import argmax_rdp  # noqa: PLC0415  (compiled code)

            rdp = argmax_rdp(self.sigma**2, shift_rdp(self.sigma**2, 1), log_density)
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
    sigma : float > 0, at most 1,000
        Standard deviation of the noise on each cell, in the unit of the cells. Public.
    l1, l2 : float >= 1
        How far two encodings of one client can lie apart, in these norms. Public. The smaller must be
        below 65.
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
    Gaussian that dominates the change; the smaller epsilon holds.
    :attr:`promise` names the norms and the noise: sums with other noise, or with none, are refused.
    Source: Agarwal, Kairouz and Liu 2021, arXiv:2110.04995 (the mechanism); the worst case is a linear
    program over the costs of single cells; the Gaussian is proved in docs/collect.md.

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
        _check.positive(sigma=self.sigma, l1=self.l1, l2=self.l2)
        if self.sigma > MOST_SUM_SIGMA:
            raise ValueError(f"sigma must be at most {MOST_SUM_SIGMA:,.0f}, got {self.sigma!r}")
        if min(self.l1, self.l2) < 1 or min(self.l1, self.l2) > MOST_STEP:
            raise ValueError(f"l1 and l2 must be 1 or more, one of them at most {MOST_STEP}")
        if not isinstance(self.adds, bool):
            raise ValueError(f"adds must be True or False, got {self.adds!r}")  # noqa: TRY004  (house style)

    @property
    def promise(self) -> Adjacency:
        """One client's vector within both norms, in sums that carry exactly this noise (or none)."""
        return vector_adjacency(self.l1, self.l2, sigma=0.0 if self.adds else self.sigma)

    def curve(self) -> Curve:
        """Cost of one release of all cells."""
        variance, l1, l2 = self.sigma**2, self.l1, self.l2
        mu_squared = vector_mu_squared(variance, l1, l2)
        return Curve(
            ORDERS,
            vector_rdp(variance, l1, l2),
            "vector",
            mu_squared=mu_squared,
            slack=_SLACK,
            laws=(Law(GAUSSIAN, mu_squared),),
        )

    def uses(self, private: Private) -> int:  # noqa: ARG002  (part of the protocol)
        """One use for the whole array: the norms bound all of it."""
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


@lru_cache(maxsize=32)
def skellam_rdp(variance: float, changed: int = 2) -> tuple[float, ...]:
    """Rényi divergence, rounded up, when so many counts with this noise move by one; nats for each order."""
    return tuple(up(changed * value) for value in shift_rdp(variance, 1))


@lru_cache(maxsize=32)
def vector_rdp(variance: float, l1: float, l2: float) -> tuple[float, ...]:
    """The largest Rényi divergence, rounded up, of any whole-number move within both norms."""
    single = np.array([shift_rdp(variance, step) for step in _steps(l1, l2)])
    return tuple(up(value, ulps=64) for value in _costliest(single, l1, l2).tolist())


@lru_cache(maxsize=32)
def vector_mu_squared(variance: float, l1: float, l2: float) -> float:
    """The square of a mean shift, rounded up, whose Gaussian dominates every move within both norms.

    Independent cells are dominated by independent Gaussians, whose squared shifts add.
    """
    single = np.array([[shift_mu(variance, step) ** 2] for step in _steps(l1, l2)])
    return up(float(_costliest(single, l1, l2)[0]), ulps=64)


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
    for i, one in enumerate(steps):
        worst = np.maximum(worst, min(l1 / one, area / one**2) * single[i])
        for j, two in enumerate(steps[:i]):
            fine = (l1 * one - area) / (two * (one - two))  # cells that move by the smaller step
            coarse = (area - l1 * two) / (one * (one - two))
            if fine > 0 and coarse > 0:
                worst = np.maximum(worst, fine * single[j] + coarse * single[i])
    return worst


def skellam(variance: float, shape: tuple[int, ...], *, rng: np.random.Generator | None = None) -> np.ndarray:
    """Draw exactly, int64, from ``rng`` or the operating system; use more bits where 64 do not decide."""
    size = math.prod(shape)
    words = _words(2 * size, rng)
    thresholds = _thresholds(variance / 2)
    draws = np.searchsorted(thresholds, words, side="left")
    for place in np.flatnonzero(thresholds[draws] == words).tolist():
        draws[place] = _settled(variance / 2, int(words[place]), rng)
    return np.asarray((draws[:size] - draws[size:]).reshape(shape), dtype=np.int64)


def largest_draw(variance: float) -> int:
    """Return a bound which the size of a draw exceeds with probability at most 2^-64."""
    return len(_thresholds(variance / 2))


def _words(size: int, rng: np.random.Generator | None) -> np.ndarray:
    if rng is None:
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    return rng.integers(0, 2**64, size=size, dtype=np.uint64)


def _settled(mean: float, number: int, rng: np.random.Generator | None) -> int:
    """Return the Poisson draw whose first 64 bits equal those of a threshold, with more bits."""
    bits = 64
    while True:
        number, bits = (number << 64) | int(_words(1, rng)[0]), bits + 64
        thresholds = _poisson(mean, bits)
        place = bisect_left(thresholds, number)
        if thresholds[place] != number:
            return place


@lru_cache(maxsize=32)
def _thresholds(mean: float) -> np.ndarray:
    """Poisson probabilities of at most 0, 1, 2, …, in steps of 2^-64, rounded down."""
    table = np.array(_poisson(mean, 64), dtype=np.uint64)
    table.setflags(write=False)
    return table


def _poisson(mean: float, bits: int) -> list[int]:
    """Poisson probabilities of at most 0, 1, … in steps of 2^-bits, until one rounds down to 1 - 2^-bits."""
    digits = math.ceil(0.302 * bits) + 30
    while (floors := _floors(mean, bits, digits)) is None:
        digits += 30
    return floors


def _floors(mean: float, bits: int, digits: int) -> list[int] | None:
    """Return these probabilities rounded down; None if ``digits`` do not decide all of them."""
    with localcontext(Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        rate, scale, most = Decimal(mean), Decimal(2**bits), 2**bits - 1
        # n steps lose less than 4 n units of the last place, and n is below 10^8
        chance, doubt = (-rate).exp(), scale * Decimal(10) ** (10 - digits)
        below, found = chance, list[int]()
        while not found or found[-1] < most:
            at_least = max(0, int(below * scale - doubt))
            if at_least != min(most, int(below * scale + doubt)):
                return None
            found.append(at_least)
            chance *= rate / len(found)
            below += chance
    return found

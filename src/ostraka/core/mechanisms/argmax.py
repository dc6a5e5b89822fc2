"""Noisy argmax of votes: LNMax (Laplace noise) and GNMax (Gaussian noise), and their bounds for given votes.

The bounds are those of Papernot et al. 2017 and 2018. They are over arrays, in logarithms, rounded up; a
screen has one as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy.special

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import ARGMAX, LAPLACE_COUNT, Law
from ostraka.core.mechanisms import exact, tight
from ostraka.core.mechanisms.law import OutcomeLaw
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private

_TINY = float(np.finfo(float).tiny)  # a positive cost that underflows is still positive


class _NoisyMax:
    """The class whose count is largest after noise of some law on every count."""

    __slots__ = ()
    promise = Adjacency.one_ballot()

    @property
    def _noise(self) -> tuple[int, float]:
        """The noise and its scale in votes, as the compiled code takes them."""
        raise NotImplementedError

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability that each class is the answer, shape (n_queries, n_classes), nats."""
        from ostraka.core.kernels import outcome  # noqa: PLC0415  (compiled code, loaded when needed)

        kind, scale = self._noise
        return outcome.log_outcomes(check.counts(counts), kind=kind, scale=scale)

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each count (last axis), per vote."""
        from ostraka.core.kernels import outcome  # noqa: PLC0415

        kind, scale = self._noise
        return outcome.log_outcomes_gradient(check.counts(counts), kind=kind, scale=scale)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The answers, int64 of shape (n_queries,)."""
        kind, scale = self._noise
        return exact.largest(check.counts(private.open()), kind=kind, scale=scale, rng=rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class GNMax(_NoisyMax):
    """Gaussian noisy max: the class whose count is largest after N(0, sigma²) noise on every count.

    Parameters
    ----------
    sigma : float > 0, in votes
        Standard deviation of the noise. Public.

    Raises
    ------
    ValueError
        ``sigma`` not positive, or above 1e150.

    Guarantees
    ----------
    One moved ballot costs at most ``curve()`` per answer, whatever the votes.
    Source: Papernot et al. 2018, arXiv:1802.08908, Prop. 8 (classic); docs/proof.md (tight).

    Examples
    --------
    >>> mechanism = GNMax(sigma=40.0)
    >>> round((100 * mechanism.curve()).epsilon(delta=1e-5), 2)
    1.07
    >>> np.exp(mechanism.log_outcomes([[60, 30, 10]])).round(3)
    array([[0.623, 0.253, 0.124]])
    """

    sigma: float

    def __post_init__(self) -> None:
        check.noise(sigma=self.sigma)

    def curve(self, bound: Literal["exact", "tight", "classic"] = "exact") -> Curve:
        """Cost of one answer, for every possible votes.

        ``"classic"`` pays for the whole noisy histogram: order / sigma². ``"tight"`` pays for its
        argmax only, about 0.64 of that; Gaussian-DP composition comes with both. ``"exact"`` is tight,
        and many answers also compose exactly (docs/composition.md): the smallest of all counts.
        """
        check.one_of(bound=bound, allowed=("exact", "tight", "classic"))
        return gaussian_curve(ARGMAX, self.sigma, math.sqrt(2), bound)

    @property
    def _noise(self) -> tuple[int, float]:
        return exact.GAUSSIAN, self.sigma

    def law(self) -> OutcomeLaw:
        """One stage; its bound is Theorem 6 of 2018."""
        return OutcomeLaw.of(self, noise=self._noise, bound=GaussianBound(self.sigma), classic=True)

    @classmethod
    def with_noise(cls, *, noise: float) -> Self:
        """The mechanism with ``sigma=noise``, for the search of :func:`ostraka.core.accounting.calibrate`."""
        return cls(sigma=noise)

    def rescaled(self, factor: float) -> Self:
        """The same mechanism in other units of votes."""
        return replace(self, sigma=self.sigma * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LNMax(_NoisyMax):
    """Laplace noisy max: the class whose count is largest after Laplace noise on every count.

    Parameters
    ----------
    scale : float > 0, in votes
        The Laplace scale b (1/γ in Papernot et al. 2017). Public.

    Raises
    ------
    ValueError
        ``scale`` not positive, or above 1e150.

    Guarantees
    ----------
    Each answer is (2 / scale)-DP, and one moved ballot costs at most ``curve()``.
    Source: Papernot et al. 2017, arXiv:1610.05755, Theorem 2 (pure DP); docs/proof.md (tight).

    Examples
    --------
    >>> round(LNMax(scale=20.0).curve().rdp[-1], 9)  # the last order is infinity
    0.1
    """

    scale: float

    def __post_init__(self) -> None:
        check.noise(scale=self.scale)

    def curve(self, bound: Literal["tight", "classic"] = "tight") -> Curve:
        """Cost of one answer, for every possible votes.

        ``"classic"`` pays for two Laplace counts; ``"tight"`` for the argmax only, about two thirds.
        """
        check.one_of(bound=bound, allowed=("tight", "classic"))
        with np.errstate(over="ignore"):
            two = 2 * tight.laplace_rdp(1 / self.scale, np.array(ORDERS)) * (1 + 1e-12)
        rdp = np.minimum(two, up(2 / self.scale)).tolist()
        if bound == "tight":
            rdp = map(min, tight.laplace_argmax(1 / self.scale, ORDERS), rdp)
        # two counts move by one vote each, and the argmax is computed from the noisy counts
        return Curve(ORDERS, tuple(rdp), "ballot", laws=(Law(LAPLACE_COUNT, up(1 / self.scale), 2),))

    @property
    def _noise(self) -> tuple[int, float]:
        return exact.LAPLACE, self.scale

    def law(self) -> OutcomeLaw:
        """One stage; both bounds are Theorem 3 of 2017."""
        bound = LaplaceBound(self.scale)
        return OutcomeLaw.of(self, noise=self._noise, bound=bound, moments=bound, classic=True)

    @classmethod
    def with_noise(cls, *, noise: float) -> Self:
        """The mechanism with ``scale=noise``, for the search of :func:`ostraka.core.accounting.calibrate`."""
        return cls(scale=noise)

    def rescaled(self, factor: float) -> Self:
        """The same mechanism in other units of votes."""
        return replace(self, scale=self.scale * factor)


@lru_cache(maxsize=1024)
def gaussian_curve(kind: str, sigma: float, sensitivity: float, bound: str) -> Curve:
    """Cost of one Gaussian argmax or screen, as its ``curve`` states each bound."""
    classic = Curve.gaussian(sensitivity=sensitivity, sigma=sigma, moves="ballot")
    if bound == "classic":
        return classic
    prices = (tight.gaussian_argmax if kind == ARGMAX else tight.gaussian_screen)(1 / sigma, ORDERS)
    laws = (Law(kind, up(1 / sigma)),) if bound == "exact" else None
    return replace(classic, rdp=tuple(map(min, prices, classic.rdp)), laws=laws)


@dataclass(frozen=True, slots=True)
class GaussianBound:
    """Theorem 6 of 2018, for a Gaussian noisy argmax.

    Examples
    --------
    >>> bound = GaussianBound(sigma=40.0)
    >>> bound.rdp(bound.log_q(np.array([[240.0, 10.0]])), (8.0,)).round(6)
    array([[1.2e-05]])
    """

    sigma: float

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log of a bound on the probability of another outcome than the likeliest, one a query (Prop. 7)."""
        return self._log_q(_behind(counts))

    def _log_q(self, behind: np.ndarray) -> np.ndarray:
        """Prop. 7 from the gap of each other class to the plurality, in votes, at most 0."""
        return _union(scipy.special.log_ndtr(behind / (math.sqrt(2) * self.sigma)))

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem6(log_q, self.sigma, orders)

    def points(self, behind: np.ndarray) -> np.ndarray:
        """``log_q`` on a scale in ballots, on which one ballot moves it by at most 1."""
        log_each = self._log_q(behind) - math.log(behind.shape[1])
        return np.asarray(-scipy.special.ndtri_exp(log_each) * self.sigma / math.sqrt(2))

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these points of the scale."""
        log_q = scipy.special.log_ndtr(-point * math.sqrt(2) / self.sigma) + math.log(n_classes - 1)
        return theorem6(np.minimum(log_q, -1e-12), self.sigma, (order,))[:, 0]

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound has to be evaluated."""
        return 26 * self.sigma


@dataclass(frozen=True, slots=True)
class LaplaceBound:
    """Theorem 3 of 2017, for a Laplace noisy argmax.

    Examples
    --------
    >>> bound = LaplaceBound(scale=20.0)
    >>> bound.rdp(bound.log_q(np.array([[240.0, 10.0]])), (8.0,)).round(6)
    array([[9.e-06]])
    """

    scale: float

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log of a bound on the probability of another outcome than the likeliest, one a query (Lemma 4)."""
        return self._log_q(_behind(counts))

    def _log_q(self, behind: np.ndarray) -> np.ndarray:
        """Lemma 4 from the gap of each other class to the plurality, in votes, at most 0."""
        return _union(np.log((2 - behind / self.scale) / 4) + behind / self.scale)

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem3(log_q, 2 / self.scale, orders)

    def points(self, behind: np.ndarray) -> np.ndarray:
        """``log_q`` on a scale in ballots, on which one ballot moves it by at most 1."""
        return np.asarray(-self._log_q(behind) * self.scale / 2)

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these points of the scale."""
        del n_classes
        return theorem3(np.minimum(-point * 2 / self.scale, -1e-12), 2 / self.scale, (order,))[:, 0]

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound has to be evaluated."""
        return 350 * self.scale


@dataclass(frozen=True, slots=True)
class ScreenBound:
    """Theorem 6 of 2018, for a threshold with one noise on the largest count.

    Examples
    --------
    >>> bound = ScreenBound(at=200.0, sigma=150.0)
    >>> bound.rdp(bound.log_q(np.array([[240.0, 10.0]])), (8.0,)).round(6)
    array([[0.000178]])
    """

    at: float
    sigma: float

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log probability of the less likely of passing and stopping, one a query."""
        return self.log_q_of_largest(counts.max(axis=1))

    def log_q_of_largest(self, largest: np.ndarray) -> np.ndarray:
        """``log_q`` from the largest counts."""
        return np.asarray(scipy.special.log_ndtr(-np.abs((largest - self.at) / self.sigma)))

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem6(log_q, math.sqrt(2) * self.sigma, orders)


def theorem6(log_q: np.ndarray, sigma: float, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Theorem 6, mu1 and mu2 by Prop. 10, for a Rényi cost of order / sigma**2; shape (queries, orders).

    In the paper: λ = order, q̃ = q, ε(μ) = μ / sigma².
    """
    log_q, order = log_q[:, None], np.array(orders)[None, :]
    cap = order / sigma**2 * np.ones_like(log_q)
    mu2 = sigma * np.sqrt(-log_q)
    mu1 = mu2 + 1
    eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        ceiling = (mu2 - 1) * eps2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        applies = (mu2 > 1) & (log_q <= ceiling) & (log_q + eps2 < 0) & (order <= mu1)
        log_rest = _log1mexp(log_q)
        log_a = (order - 1) * (log_rest - _log1mexp((log_q + eps2) * (1 - 1 / mu2)))
        log_b = (order - 1) * (eps1 - log_q / (mu1 - 1))
        bound = _round(
            np.logaddexp(log_rest + log_a, log_q + log_b) / (order - 1), np.abs(log_q) + np.abs(log_b)
        )
    return np.where(applies & (bound < cap), bound, cap)


def theorem3(log_q: np.ndarray, pure: float, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Theorem 3 of 2017 in Rényi form for a pure-DP mechanism; shape (queries, orders).

    In the paper: l = order - 1, 2γ = pure; moment(l) = l * rdp.
    """
    log_q, order = log_q[:, None], np.array(orders)[None, :]
    cap = np.minimum(pure, order * pure**2 / 2) * np.ones_like(log_q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        applies = log_q < -np.logaddexp(0, pure)
        log_rest = _log1mexp(log_q)
        likely = order * log_rest - (order - 1) * _log1mexp(log_q + pure)
        unlikely = log_q + (order - 1) * pure
        bound = _round(np.logaddexp(likely, unlikely) / (order - 1), np.abs(log_q) + np.abs(unlikely))
    return np.where(applies & (bound < cap), bound, cap)


def _behind(counts: np.ndarray) -> np.ndarray:
    return np.asarray(np.sort(counts, axis=1)[:, :-1] - counts.max(axis=1, keepdims=True))


def _union(log_each: np.ndarray) -> np.ndarray:
    peak = log_each.max(axis=1)
    total = peak + np.log(np.exp(log_each - peak[:, None]).sum(axis=1))
    # either theorem holds for any q that is no smaller than the true one
    total += 1e-14 * (1 + np.abs(total))
    return np.asarray(np.minimum(total, math.log1p(-1 / (log_each.shape[1] + 1))))


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """log(1 - e^x) for x < 0, NaN beyond (Mächler 2012)."""
    small = np.exp(x)
    return np.asarray(np.where(small < 0.5, np.log1p(-small), np.log(-np.expm1(x))))


def _round(value: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Round up by the error of an exponential of this size; a value that underflows stays positive."""
    return np.asarray(np.maximum(value * (1 + 4e-16 * (16 + exponents)), _TINY))

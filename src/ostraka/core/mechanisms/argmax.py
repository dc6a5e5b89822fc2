"""The data-dependent bounds of Papernot et al. 2017 and 2018, as values which mechanisms offer.

Noisy argmax of votes: LNMax (Laplace noise) and GNMax (Gaussian noise).
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
from ostraka.core.mechanisms.discrete import GAUSSIAN, LAPLACE
from ostraka.core.mechanisms.law import OutcomeLaw
from ostraka.core.mechanisms.theorems import (
    log_q_gaussian,
    log_q_laplace,
    theorem3,
    theorem6,
    union_gaussian,
    union_laplace,
)
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private


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
        return log_q_gaussian(counts, self.sigma)

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem6(log_q, self.sigma, orders)

    def points(self, behind: np.ndarray) -> np.ndarray:
        """``log_q`` on a scale in ballots, on which one ballot moves it by at most 1."""
        log_each = union_gaussian(behind, self.sigma) - math.log(behind.shape[1])
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
        return log_q_laplace(counts, self.scale)

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem3(log_q, 2 / self.scale, orders)

    def points(self, behind: np.ndarray) -> np.ndarray:
        """``log_q`` on a scale in ballots, on which one ballot moves it by at most 1."""
        return np.asarray(-union_laplace(behind, self.scale) * self.scale / 2)

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
        if bound == "classic":
            return Curve.gaussian(sensitivity=math.sqrt(2), sigma=self.sigma, moves="ballot")
        return _curve(self, bound)

    @property
    def _noise(self) -> tuple[int, float]:
        return GAUSSIAN, self.sigma

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


@lru_cache(maxsize=1024)
def _curve(mechanism: GNMax, bound: str) -> Curve:
    classic, shift = GNMax.curve(mechanism, bound="classic"), 1 / mechanism.sigma
    rdp = tuple(map(min, tight.gaussian_argmax(shift, ORDERS), classic.rdp))
    return replace(classic, rdp=rdp, laws=(Law(ARGMAX, up(shift)),) if bound == "exact" else None)


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
        return LAPLACE, self.scale

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

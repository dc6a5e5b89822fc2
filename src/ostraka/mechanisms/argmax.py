"""Noisy argmax of votes: LNMax (Laplace noise) and GNMax (Gaussian noise)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from ostraka import _check
from ostraka._composition.law import ARGMAX, LAPLACE_COUNT, Law
from ostraka._numeric import up
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import _exact, _tight
from ostraka.mechanisms._quantile import GAUSSIAN, LAPLACE
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.published import GaussianBound, LaplaceBound

__all__ = ["GNMax", "LNMax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GNMax:
    """Gaussian noisy max: the class whose count is largest after N(0, sigma²) noise on every count.

    Parameters
    ----------
    sigma : float > 0, in votes
        Standard deviation of the noise. Public.

    Raises
    ------
    ValueError
        ``sigma`` not finite and positive.

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
    promise = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        _check.positive(sigma=self.sigma)

    def curve(self, bound: Literal["exact", "tight", "classic"] = "exact") -> Curve:
        """Cost of one answer, for every possible votes.

        ``"classic"`` pays for the whole noisy histogram: order / sigma². ``"tight"`` pays for its
        argmax only, about 0.64 of that; Gaussian-DP composition comes with both. ``"exact"`` is tight,
        and many answers also compose exactly (docs/composition.md): the smallest of all counts.
        """
        _check.one_of(bound=bound, allowed=("exact", "tight", "classic"))
        return self.classic_curve() if bound == "classic" else _curve(self, bound)

    def classic_curve(self) -> Curve:
        """``curve(bound="classic")``."""
        return Curve.gaussian(sensitivity=math.sqrt(2), sigma=self.sigma, moves="ballot")

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability that each class is the answer, shape (n_queries, n_classes), nats."""
        from ostraka.mechanisms import outcome  # noqa: PLC0415  (compiled code, loaded when needed)

        return outcome.log_outcomes(_check.counts(counts), kind=outcome.GAUSSIAN, scale=self.sigma)

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each count (last axis), per vote."""
        from ostraka.mechanisms import outcome  # noqa: PLC0415

        return outcome.log_outcomes_gradient(_check.counts(counts), kind=outcome.GAUSSIAN, scale=self.sigma)

    def neighbours(self, counts: np.ndarray, *, relation: str) -> Neighbours:
        """All neighbours of each row of counts."""
        from ostraka.mechanisms import _costs  # noqa: PLC0415

        return _costs.Compiled(counts, relation=relation, argmax=self.argmax_kernel)

    @property
    def argmax_kernel(self) -> tuple[int, float]:
        """The noise, and its scale in votes, as the compiled code takes them."""
        return GAUSSIAN, self.sigma

    def published_bound(self) -> GaussianBound:
        """The bound that :func:`ostraka.accounting.papernot2018_curve` sums."""
        from ostraka.mechanisms.published import GaussianBound  # noqa: PLC0415  (only owners need it)

        return GaussianBound(self.sigma)

    @classmethod
    def with_noise(cls, *, noise: float) -> Self:
        """The mechanism with ``sigma=noise``, for the search of :func:`ostraka.accounting.calibrate`."""
        return cls(sigma=noise)

    def rescaled(self, factor: float) -> Self:
        """The same mechanism in other units of votes."""
        return replace(self, sigma=self.sigma * factor)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The answers, int64 of shape (n_queries,)."""
        counts = _check.counts(private.open())
        return _exact.largest(counts, kind=GAUSSIAN, scale=self.sigma, rng=rng)


@lru_cache(maxsize=1024)
def _curve(mechanism: GNMax, bound: str) -> Curve:
    classic = mechanism.classic_curve()
    rdp = tuple(map(min, _tight.gaussian_argmax(1 / mechanism.sigma, ORDERS), classic.rdp))
    laws = (Law(ARGMAX, up(1 / mechanism.sigma)),) if bound == "exact" else None
    return replace(classic, rdp=rdp, laws=laws)


@dataclass(frozen=True, slots=True, kw_only=True)
class LNMax:
    """Laplace noisy max: the class whose count is largest after Laplace noise on every count.

    Parameters
    ----------
    scale : float > 0, in votes
        The Laplace scale b (1/γ in Papernot et al. 2017). Public.

    Raises
    ------
    ValueError
        ``scale`` not finite and positive.

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
    promise = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        _check.positive(scale=self.scale)

    def curve(self, bound: Literal["tight", "classic"] = "tight") -> Curve:
        """Cost of one answer, for every possible votes.

        ``"classic"`` pays for two Laplace counts; ``"tight"`` for the argmax only, about two thirds.
        """
        _check.one_of(bound=bound, allowed=("tight", "classic"))
        classic = self.classic_curve()
        if bound == "classic":
            return classic
        rdp = tuple(map(min, _tight.laplace_argmax(1 / self.scale, ORDERS), classic.rdp))
        return replace(classic, rdp=rdp)

    def classic_curve(self) -> Curve:
        """``curve(bound="classic")``."""
        with np.errstate(over="ignore"):
            two = 2 * _tight.laplace_rdp(1 / self.scale, np.array(ORDERS)) * (1 + 1e-12)
        rdp = tuple(np.minimum(two, up(2 / self.scale)).tolist())
        # two counts move by one vote each, and the argmax is computed from the noisy counts
        return Curve(ORDERS, rdp, "ballot", laws=(Law(LAPLACE_COUNT, up(1 / self.scale), 2),))

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability that each class is the answer, shape (n_queries, n_classes), nats."""
        from ostraka.mechanisms import outcome  # noqa: PLC0415

        return outcome.log_outcomes(_check.counts(counts), kind=outcome.LAPLACE, scale=self.scale)

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each count (last axis), per vote."""
        from ostraka.mechanisms import outcome  # noqa: PLC0415

        return outcome.log_outcomes_gradient(_check.counts(counts), kind=outcome.LAPLACE, scale=self.scale)

    def neighbours(self, counts: np.ndarray, *, relation: str) -> Neighbours:
        """All neighbours of each row of counts."""
        from ostraka.mechanisms import _costs  # noqa: PLC0415

        return _costs.Compiled(counts, relation=relation, argmax=self.argmax_kernel)

    @property
    def argmax_kernel(self) -> tuple[int, float]:
        """The noise, and its scale in votes, as the compiled code takes them."""
        return LAPLACE, self.scale

    def published_bound(self) -> LaplaceBound:
        """The bound that :func:`ostraka.accounting.papernot2018_curve` sums."""
        from ostraka.mechanisms.published import LaplaceBound  # noqa: PLC0415  (only owners need it)

        return LaplaceBound(self.scale)

    def moments_bound(self) -> LaplaceBound:
        """The bound that :func:`ostraka.accounting.moments2017_curve` sums."""
        return self.published_bound()

    @classmethod
    def with_noise(cls, *, noise: float) -> Self:
        """The mechanism with ``scale=noise``, for the search of :func:`ostraka.accounting.calibrate`."""
        return cls(scale=noise)

    def rescaled(self, factor: float) -> Self:
        """The same mechanism in other units of votes."""
        return replace(self, scale=self.scale * factor)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The answers, int64 of shape (n_queries,)."""
        counts = _check.counts(private.open())
        return _exact.largest(counts, kind=LAPLACE, scale=self.scale, rng=rng)

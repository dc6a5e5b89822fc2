"""Threshold: whether the largest count is above a threshold, after noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import log_ndtr, logsumexp

from ostraka import _check
from ostraka._composition.law import SCREEN, Law
from ostraka._numeric import up
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import _exact, _tight
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.published import ScreenBound

__all__ = ["Threshold"]

LARGEST, EVERY = 1, 2  # as compiled code has them; 0 is no screen
_HALF_LOG_2PI = 0.9189385332046727


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Noisy threshold on the largest count: True where a query may be answered.

    Parameters
    ----------
    at : float, in votes
        Where the threshold lies. Public.
    sigma : float > 0, in votes
        Standard deviation of the noise. Public.
    noise : {"largest", "every"}
        ``"largest"``: one noise on the largest count, max_k h_k + N >= at (Papernot et al. 2018).
        ``"every"``: one noise on every count, max_k (h_k + N_k) >= at (Malek et al. 2021).

    Raises
    ------
    ValueError
        ``at`` not finite, ``sigma`` not finite and positive, or an unknown ``noise``.

    Guarantees
    ----------
    One moved ballot costs at most ``curve()`` per query, whatever the votes.
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithm 1; Malek et al. 2021,
    arXiv:2106.03408, Algorithm 2; docs/proof.md (tight).

    Examples
    --------
    >>> screen = Threshold(at=200, sigma=150.0)
    >>> np.exp(screen.log_outcomes([[200, 50], [50, 50]])).round(3)  # passes, stops
    array([[0.5  , 0.5  ],
           [0.159, 0.841]])
    """

    at: float
    sigma: float
    noise: Literal["largest", "every"] = "largest"
    promise = Adjacency.one_ballot()
    passes_or_stops: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check.positive(sigma=self.sigma)
        _check.finite(at=self.at)
        _check.one_of(noise=self.noise, allowed=("largest", "every"))

    def curve(self, bound: Literal["exact", "tight", "classic"] = "exact") -> Curve:
        """Cost of one query, for every possible votes.

        ``"classic"``: order / (2 sigma²), or order / sigma² with noise on every count, the cost of
        releasing what the threshold is applied to. ``"tight"`` pays for the yes or no only.
        ``"exact"`` is tight, and many queries also compose exactly (docs/composition.md): the smallest
        of all counts.
        """
        _check.one_of(bound=bound, allowed=("exact", "tight", "classic"))
        return self.classic_curve() if bound == "classic" else _curve(self, bound)

    def classic_curve(self) -> Curve:
        """``curve(bound="classic")``."""
        sensitivity = 2**0.5 if self.noise == "every" else 1.0
        return Curve.gaussian(sensitivity=sensitivity, sigma=self.sigma, moves="ballot")

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability of passing and of stopping, shape (n_queries, 2), nats."""
        gap = (self.at - _check.counts(counts)) / self.sigma
        if self.noise == "largest":
            gap = gap.min(axis=1)
            return np.stack([log_ndtr(-gap), log_ndtr(gap)], axis=1)
        stops = log_ndtr(gap).sum(axis=1)
        rare = stops > -1e-290  # too rare for float64: in logs, where the chances of rare events add
        passes = np.where(
            rare, logsumexp(log_ndtr(-gap), axis=1), np.log(-np.expm1(np.where(rare, -1.0, stops)))
        )
        return np.stack([passes, stops], axis=1)

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each count (last axis), per vote."""
        table = _check.counts(counts)
        logs = self.log_outcomes(table)
        gap = (self.at - table) / self.sigma
        by_stop = -np.exp(-(gap**2) / 2 - _HALF_LOG_2PI - log_ndtr(gap)) / self.sigma
        if self.noise == "largest":
            top = table == table.max(axis=1, keepdims=True)
            by_stop = np.where(top, by_stop, 0.0) / top.sum(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            odds = np.exp(np.minimum(logs[:, 1] - logs[:, 0], 700.0))
        return logs, np.stack([-odds[:, None] * by_stop, by_stop], axis=1)

    def neighbours(self, counts: np.ndarray, *, relation: str) -> Neighbours:
        """All neighbours of each row of counts."""
        from ostraka.mechanisms import _costs  # noqa: PLC0415  (compiled code, loaded when needed)

        return _costs.Compiled(counts, relation=relation, screen=self.screen_kernel)

    @property
    def screen_kernel(self) -> tuple[int, float, float]:
        """The arguments of the compiled code: kind of screen, threshold and noise, in votes."""
        return LARGEST if self.noise == "largest" else EVERY, self.at, self.sigma

    def screen_bound(self) -> ScreenBound | None:
        """Bound that :func:`ostraka.accounting.papernot2018_curve` sums; None if every count is noisy."""
        from ostraka.mechanisms.published import ScreenBound  # noqa: PLC0415  (only owners need it)

        return ScreenBound(self.at, self.sigma) if self.noise == "largest" else None

    def rescaled(self, factor: float) -> Self:
        """The same mechanism in other units of votes."""
        return replace(self, at=self.at * factor, sigma=self.sigma * factor)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """Whether each query passes, bool of shape (n_queries,)."""
        counts = _check.counts(private.open())
        if self.noise == "largest":
            counts = counts.max(axis=1, keepdims=True)
        return _exact.reaches(counts, self.at, scale=self.sigma, rng=rng)


@lru_cache(maxsize=1024)
def _curve(mechanism: Threshold, bound: str) -> Curve:
    classic = mechanism.classic_curve()
    rdp = tuple(map(min, _tight.gaussian_screen(1 / mechanism.sigma, ORDERS), classic.rdp))
    laws = (Law(SCREEN, up(1 / mechanism.sigma)),) if bound == "exact" else None
    return replace(classic, rdp=rdp, laws=laws)

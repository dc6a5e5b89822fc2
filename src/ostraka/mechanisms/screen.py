"""Threshold: whether the plurality is large enough to be worth an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import log_ndtr, logsumexp

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import _tight
from ostraka.mechanisms.argmax import FLOAT_SLACK
from ostraka.private import Adjacency, Private

__all__ = ["Threshold"]


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
    promise: ClassVar[Adjacency] = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        _check.positive(sigma=self.sigma)
        _check.finite(at=self.at)
        _check.one_of(noise=self.noise, allowed=("largest", "every"))

    def curve(self, bound: Literal["tight", "classic"] = "tight") -> Curve:
        """Cost of one query, for every possible votes.

        ``"classic"``: order / (2 sigma²), or order / sigma² with noise on every count, the cost of
        releasing what the threshold is applied to. ``"tight"`` pays for the yes or no only.
        """
        _check.one_of(bound=bound, allowed=("tight", "classic"))
        every = self.noise == "every"
        whole = Curve.gaussian(sensitivity=2**0.5 if every else 1.0, sigma=self.sigma, unit="ballot")
        rdp = whole.rdp
        if bound == "tight":
            rdp = tuple(map(min, _tight.gaussian_screen(1 / self.sigma, ORDERS, each=every), rdp))
        return Curve(ORDERS, rdp, "ballot", mu_squared=whole.mu_squared, slack=FLOAT_SLACK)

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

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """Which queries pass, bool of shape (n_queries,)."""
        above = _check.counts(private.open()) - self.at  # first: rounding is then relative to the noise
        if self.noise == "largest":
            return np.asarray(above.max(axis=1) + rng.normal(scale=self.sigma, size=len(above)) >= 0)
        return np.asarray((above + rng.normal(scale=self.sigma, size=above.shape)).max(axis=1) >= 0)

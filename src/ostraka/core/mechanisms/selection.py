"""Selection: the exponential mechanism, which picks one of several candidates by a private score."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import BOUNDED_RANGE, Law
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The exponential mechanism: candidate k with probability proportional to exp(epsilon score_k / 2 Delta).

    Parameters
    ----------
    epsilon : float in (0, 40], nats
        Public.
    sensitivity : int >= 1
        Delta, the most that one unit may change any score. Public.
    relation : {"add-or-remove", "replace-one"}
        Neighbouring relation of the data. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, scores that are not integers of shape (n_candidates,).

    Guarantees
    ----------
    ``epsilon``-DP, and a bounded range of ``epsilon``, so (order epsilon² / 8) of Rényi divergence at every
    order: ``curve()`` takes the smaller, and records the range, by which choices compose exactly
    (docs/composition.md). Drawn exactly: a candidate is proposed uniformly and accepted with
    probability exp(-epsilon (best - score) / 2 Delta), by comparisons of whole numbers.
    Source: McSherry and Talwar 2007, doi:10.1109/FOCS.2007.66, Theorem 6; Cesar and Rogers 2021,
    arXiv:2004.07223, Lemma 3.2 (bounded range implies epsilon² / 8 of zero-concentrated DP); Dong, Durfee and
    Rogers 2020, arXiv:1909.13830 (composition of bounded ranges).

    Examples
    --------
    >>> from ostraka import Private
    >>> scores = Private([0, 1000, 3], Adjacency.vector(linf=1, relation="add-or-remove"))
    >>> Selection(epsilon=1.0, sensitivity=1).release(scores, rng=np.random.default_rng(0))
    array([1])
    """

    epsilon: float
    sensitivity: int = 1
    relation: str = "add-or-remove"

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.integer(sensitivity=self.sensitivity, least=1)
        check.one_of(relation=self.relation, allowed=("add-or-remove", "replace-one"))
        if self.epsilon > 40:
            raise ValueError(f"epsilon must be at most 40, got {self.epsilon!r}")

    @property
    def promise(self) -> Adjacency:
        """One unit may change each score by at most ``sensitivity``."""
        return Adjacency.vector(linf=float(self.sensitivity), relation=self.relation)

    def curve(self) -> Curve:
        """Cost of one choice, whatever the scores and however many candidates."""
        concentrated = self.epsilon**2 / 8
        rdp = tuple(up(min(self.epsilon, order * concentrated), ulps=4) for order in ORDERS)
        law = Law(BOUNDED_RANGE, float(self.epsilon))
        return Curve(ORDERS, rdp, "vector", mu_squared=law.mu_squared, laws=(law,))

    def uses(self, private: Private) -> int:
        """One use for all candidates together."""
        _scores(private.open())
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The chosen candidate, int64 of shape (1,)."""
        return np.array([self.choose(_scores(private.open()), rng=rng)], dtype=np.int64)

    def choose(self, scores: np.ndarray, *, rng: np.random.Generator) -> int:
        """Return the index of the chosen score. ``scores``: private integers of shape (n_candidates,)."""
        best = int(scores.max())
        rate = Fraction(self.epsilon) / (2 * self.sensitivity)
        while True:
            k = int(rng.integers(len(scores)))
            if _accepted(rate * (best - int(scores[k])), rng):
                return k


def _scores(values: np.ndarray) -> np.ndarray:
    if values.ndim != 1 or not values.size or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"scores must be integers of shape (n_candidates,), got shape {values.shape}")
    return values


def _accepted(exponent: Fraction, rng: np.random.Generator) -> bool:
    """True with probability exp(-exponent), exactly (Canonne et al. 2020, arXiv:2004.00010, Algorithm 1)."""
    while exponent > 1:
        if not _below_one(Fraction(1), rng):
            return False
        exponent -= 1
    return _below_one(exponent, rng)


def _below_one(exponent: Fraction, rng: np.random.Generator) -> bool:
    """The same for an exponent in [0, 1], by the parity of the first failure of Bernoulli(exponent / k)."""
    k = 1
    while _bernoulli(exponent / k, rng):
        k += 1
    return k % 2 == 1


def _bernoulli(chance: Fraction, rng: np.random.Generator) -> bool:
    """Return True with probability ``chance``; draw uniform bits until that is decided."""
    low, wide = 0, 1
    while True:
        low, wide = (low << 62) + int(rng.integers(1 << 62)), wide << 62
        if (low + 1) * chance.denominator <= chance.numerator * wide:
            return True
        if low * chance.denominator >= chance.numerator * wide:
            return False

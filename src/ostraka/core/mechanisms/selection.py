"""Selection: the exponential mechanism, which picks one of several candidates by a private score."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MIN_EMIN, Decimal, localcontext
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

_BITS = 62  # drawn at a time
_PROPOSALS, _MOST_PROPOSALS = 32, 1 << 16  # made at once: for each choice, and in all


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
    probability exp(-epsilon (best - score) / 2 Delta): more bits are drawn until floats decide.
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
        scores_of(private.open())
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The chosen candidate, int64 of shape (1,)."""
        return np.array([self.choose(scores_of(private.open()), rng=rng)], dtype=np.int64)

    def choose(self, scores: np.ndarray, *, rng: np.random.Generator) -> int:
        """Return the index of the chosen score. ``scores``: private integers of shape (n_candidates,)."""
        return choose(scores, rate=Fraction(self.epsilon) / (2 * self.sensitivity), rng=rng)


def choose(scores: np.ndarray, *, rate: Fraction, rng: np.random.Generator) -> int:
    """Return k with probability proportional to exp(rate score_k), exactly. ``scores``: private integers."""
    return int(choices(scores, 1, rate=rate, rng=rng)[0])


def choices(scores: np.ndarray, size: int, *, rate: Fraction, rng: np.random.Generator) -> np.ndarray:
    """So many choices, independent; int64 of shape (size,).

    A candidate is proposed uniformly, and accepted if a uniform number is below exp(-rate (best - score)).
    Its first 62 bits decide, beside the error of that chance in floats; else more bits are drawn.
    """
    gaps = scores.max().astype(np.uint64) - scores.astype(np.uint64)  # also where they wrap
    exponents = gaps * float(rate)
    chances = np.exp(-exponents)
    doubts = chances * (8 + 4 * exponents) * 2.0**-52 + 2.0**-60
    chosen: list[int] = []
    while len(chosen) < size:
        block = min(_MOST_PROPOSALS, _PROPOSALS * (size - len(chosen)))
        proposed, drawn = rng.integers(len(scores), size=block), rng.integers(1 << _BITS, size=block)
        above = drawn * 2.0**-_BITS - chances[proposed]
        accepted = above < 0
        for place in np.flatnonzero(np.abs(above) <= doubts[proposed] + 2.0**-52 * chances[proposed]):
            exponent = rate * int(gaps[proposed[place]])
            accepted[place] = is_below(int(drawn[place]), exponent, rng)
        chosen += proposed[accepted].tolist()
    return np.array(chosen[:size], dtype=np.int64)


def is_below(first: int, exponent: Fraction, rng: np.random.Generator) -> bool:
    """Whether a uniform number with these first bits is below exp(-exponent): further bits decide."""
    low, wide, digits = first, 1 << _BITS, 40
    while True:
        with localcontext() as context:
            context.prec, context.Emin = digits, MIN_EMIN
            rounded = Decimal(exponent.numerator) / Decimal(exponent.denominator)
            chance = Fraction((-rounded).exp())  # correctly rounded; what the exponent was rounded by counts
            doubt = chance * (2 + 2 * Fraction(exponent)) / 10 ** (digits - 1)
        if Fraction(low + 1, wide) <= chance - doubt or exponent == 0:
            return True
        if Fraction(low, wide) >= chance + doubt:
            return False
        low, wide, digits = (low << _BITS) + int(rng.integers(1 << _BITS)), wide << _BITS, digits + 40


def scores_of(values: np.ndarray) -> np.ndarray:
    """Raise unless the values are a row of integers."""
    if values.ndim != 1 or not values.size or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"scores must be integers of shape (n_candidates,), got shape {values.shape}")
    return values

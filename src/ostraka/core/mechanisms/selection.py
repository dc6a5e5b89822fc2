"""The exponential mechanism: of candidates with a private score (Selection), and of tokens (TokenDraw).

A token is drawn by what a public prompt and many private documents make likely. MeteredDraws let each
document pay for its own part. Draws are exact: bits are drawn until floats decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import BOUNDED_RANGE, Law
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private

_BITS = 62  # of a uniform number, drawn at a time
_PROPOSALS, _MOST_PROPOSALS = 32, 1 << 16  # made at once: for each choice, and in all
_STEPS = 4096  # of a document's difference to either side
_FURTHEST = 1e4  # nats: a public log probability below -1e4 is as good as none
_MOST = 2.0**52  # units: scores are whole numbers that stay exact


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
        check.at_most(40, epsilon=self.epsilon)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDraw:
    """One token, with probability proportional to exp((public + mean difference) / temperature).

    Each document gives one number for each candidate token: by how much it makes that token more likely than
    the public prompt does. The numbers of one document are clipped and rounded on their own.

    Parameters
    ----------
    clip : float > 0, nats
        A document's differences, less the middle of their range, are kept within ``[-clip, clip]``. Public.
    n_documents : int >= 1
        By how much the sum of differences is divided. Documents that are missing count nothing. Public.
    temperature : float > 0
        Public.
    public : tuple of float, nats
        The log probabilities of the candidates after the public prompt. Public. Empty: all alike.
    relation : {"zero-out", "replace-one"}
        Neighbours differ in one document that is left out, or replaced by any other: twice the range. Public.
    steps : int from 1 to 2**20
        Whole numbers from ``-steps`` to ``steps`` stand for differences from ``-clip`` to ``clip``. Public.

    Raises
    ------
    ValueError
        A parameter out of range, or a range above 40 nats; when asked, sums that are not integers of shape
        (n_candidates,).

    Guarantees
    ----------
    The mechanism is exponential, of bounded range ``2 clip / (n_documents temperature)``, twice that for
    ``"replace-one"``, whatever the candidates, if these and ``public`` depend on public values only. Draws
    compose exactly (docs/composition.md, "Bounded ranges"). Drawn exactly, by comparisons of whole numbers.
    Source: McSherry and Talwar 2007, doi:10.1109/FOCS.2007.66, Theorem 6; for language models Amin et al.
    2024, arXiv:2407.12108, and InvisibleInk 2025, arXiv:2507.02974, which clips around the public prompt's
    value. A shift that is the same for all candidates changes nothing, so here each document is clipped
    around the middle of its own range.

    Examples
    --------
    >>> from ostraka import Private
    >>> draw = TokenDraw(clip=2.0, n_documents=4, public=(-0.1, -3.0, -4.0))
    >>> sums = draw.contributions([[0.0, 4.0, 0.0], [-1.0, 3.0, -1.0]]).sum(axis=0)
    >>> np.exp(draw.log_outcomes(sums)).round(3)
    array([0.701, 0.285, 0.014])
    >>> draw.release(Private(sums, draw.promise), rng=np.random.default_rng(0))
    array([1])
    >>> round((12 * draw.curve()).epsilon(delta=1e-5), 2)
    8.02
    """

    clip: float
    n_documents: int
    temperature: float = 1.0
    public: tuple[float, ...] = ()
    relation: str = "zero-out"
    steps: int = _STEPS

    def __post_init__(self) -> None:
        check.positive(clip=self.clip, temperature=self.temperature)
        check.integer(n_documents=self.n_documents, least=1)
        check.integer(steps=self.steps, least=1)
        check.one_of(relation=self.relation, allowed=("zero-out", "replace-one"))
        check.at_most(2**20, steps=self.steps)
        if self.range > 40:
            raise ValueError(
                f"one draw must have a range of at most 40 nats, got {self.range:.4g}: lower clip, or raise "
                "n_documents or temperature"
            )
        if not all(-_FURTHEST <= value <= _FURTHEST for value in self.public):
            raise ValueError(f"public must hold log probabilities from {-_FURTHEST} nats on")
        if max(map(abs, self.public), default=0.0) / self.clip * self.steps * self.n_documents > _MOST:
            raise ValueError(f"clip={self.clip!r} is too small for these public log probabilities")

    @property
    def range(self) -> float:
        """The bounded range of one draw, nats, rounded up."""
        return up(float(2 * self._moved * self._rate), ulps=4)

    @property
    def promise(self) -> Adjacency:
        """One unit moves the sum of each candidate by at most what one document may count, or twice that."""
        return Adjacency.vector(linf=float(self._moved), relation=self.relation)

    def at(self, public: Any) -> TokenDraw:
        """The same for candidates with these public log probabilities."""
        return replace(self, public=tuple(float(value) for value in np.asarray(public)))

    def curve(self) -> Curve:
        """Cost of one draw, whatever the documents."""
        return Selection(epsilon=self.range).curve()

    def contributions(self, differences: Any) -> np.ndarray:
        """What each document adds to the sums: integers from ``-steps`` to ``steps``, shape as given.

        Parameters
        ----------
        differences : float array, shape (n_documents, n_candidates), nats
            Private. A row with a number that is not finite counts nothing.

        Returns
        -------
        int64 array
            Private. Each row is a function of that row alone, bit for bit.
        """
        rows = np.asarray(differences, dtype=np.float64)
        finite = np.isfinite(rows).all(axis=-1, keepdims=True)
        rows = np.clip(np.where(finite, rows, 0.0), -_FURTHEST, _FURTHEST)
        middle = (rows.max(axis=-1, keepdims=True) + rows.min(axis=-1, keepdims=True)) / 2
        within = np.clip((rows - middle) / self.clip, -1.0, 1.0)
        return np.asarray(np.rint(within * self.steps), dtype=np.int64)

    def cost(self, contributions: np.ndarray) -> np.ndarray:
        """What this draw costs each document alone, in zero-concentrated DP; shape of all axes but the last.

        Private: for the meter of that document. Of relation ``"zero-out"``: an eighth of the square of the
        range of its own numbers (Feldman and Zrnic 2021, arXiv:2008.11193, for individual filters).
        """
        if self.relation != "zero-out":
            raise ValueError("documents are metered one by one under relation='zero-out' only")
        reach = contributions.max(axis=-1) - contributions.min(axis=-1)
        return np.asarray((reach * float(self._rate)) ** 2 / 8 * (1 + 1e-14))

    def log_outcomes(self, sums: Any) -> np.ndarray:
        """Exact log probability of each candidate.

        Parameters
        ----------
        sums : array, shape (..., n_candidates)
            Private. Sums of :meth:`contributions` over documents.

        Returns
        -------
        float64 array of the same shape, nats
        """
        places = np.asarray(sums, dtype=np.float64) + self._public(np.shape(sums)[-1])
        logits = (places - places.max(axis=-1, keepdims=True)) * float(self._rate)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))

    def uses(self, private: Private) -> int:
        """One use for all candidates together."""
        self._public(len(scores_of(private.open())))
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The drawn candidate, int64 of shape (1,)."""
        return self.tokens(private, size=1, rng=rng)

    def tokens(self, private: Private, *, size: int, rng: np.random.Generator) -> np.ndarray:
        """So many independent draws, int64 of shape (size,): each costs :meth:`curve`."""
        sums = scores_of(private.open())
        return choices(sums + self._public(len(sums)), size, rate=self._rate, rng=rng)

    @property
    def _moved(self) -> int:
        """By how many units one document may move the sum of a candidate."""
        return self.steps if self.relation == "zero-out" else 2 * self.steps

    @property
    def _rate(self) -> Fraction:
        """The exponent of one unit, nats; exact."""
        return Fraction(self.clip) / (self.steps * self.n_documents * Fraction(self.temperature))

    def _public(self, n_candidates: int) -> np.ndarray:
        """The public log probabilities in units, int64."""
        if not self.public:
            return np.zeros(n_candidates, dtype=np.int64)
        if len(self.public) != n_candidates:
            raise ValueError(f"public has {len(self.public)} candidates, but the sums have {n_candidates}")
        units = np.array(self.public) / self.clip * (self.steps * self.n_documents)
        return np.rint(units).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredDraws:
    """Draws of tokens of which each document pays for its own part, until what it may spend is spent.

    Parameters
    ----------
    draw : TokenDraw
        Of relation ``"zero-out"``. Public.
    paid : int >= 1
        A document may spend what so many draws of the whole range cost. Public.

    Raises
    ------
    ValueError
        Another relation, or a parameter out of range.

    Guarantees
    ----------
    Any number of draws, each with candidates and public logits that depend on public values and earlier
    tokens only, is (order paid range²/8)-Rényi private at every order if each document counts nothing in a
    draw whose :meth:`TokenDraw.cost` would lift its own sum above ``limit``. That sum must depend on this
    document and on earlier tokens only, and is private: neither it nor who is silent may leave.
    Source: Feldman and Zrnic 2021, arXiv:2008.11193, Section 4 (individual filters); proof in docs/text.md.

    Examples
    --------
    >>> metered = MeteredDraws(draw=TokenDraw(clip=2.0, n_documents=32), paid=64)
    >>> round(metered.curve().epsilon(delta=1e-5), 3)
    2.166
    """

    draw: TokenDraw
    paid: int

    def __post_init__(self) -> None:
        check.integer(paid=self.paid, least=1)
        if self.draw.relation != "zero-out":
            raise ValueError("documents are metered one by one under relation='zero-out' only")

    @property
    def limit(self) -> float:
        """What one document may spend, in zero-concentrated DP."""
        return self.paid * self.draw.range**2 / 8

    @property
    def promise(self) -> Adjacency:
        """As of one draw."""
        return self.draw.promise

    def curve(self) -> Curve:
        """The cost of all draws together."""
        one = self.draw.curve()
        rdp = tuple(up(min(order * self.limit, 1e308), ulps=4) for order in one.orders)
        return Curve(one.orders, rdp, one.moves)

    def admit(self, contributions: np.ndarray, spent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What documents count in the next draw, and what each has spent after it. Both are private.

        ``spent`` has the shape of ``contributions`` without its last axis.
        """
        cost = self.draw.cost(contributions)
        fits = spent + cost <= self.limit
        return np.where(fits[..., None], contributions, 0), np.where(
            fits, (spent + cost) * (1 + 1e-15), spent
        )


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
    """The values, if they are a row of integers; ValueError if not."""
    if values.ndim != 1 or not values.size or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"scores must be integers of shape (n_candidates,), got shape {values.shape}")
    return values

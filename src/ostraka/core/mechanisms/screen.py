"""Screens of votes: whether the largest count is above a threshold, after noise (Threshold).

Confident is such a screen and an argmax for the queries which pass it, as one mechanism. AgainstGuesses looks
at the votes minus the student's expected votes, with any mechanism (Interactive-GNMax).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.special import log_ndtr, logsumexp

from ostraka.core import check
from ostraka.core.laws.law import SCREEN
from ostraka.core.mechanisms import exact
from ostraka.core.mechanisms.argmax import ScreenBound, gaussian_curve
from ostraka.core.mechanisms.law import (
    ABSTAIN,
    BallotMechanism,
    OutcomeLaw,
    check_ballot,
    classic_curve,
    law,
    rescaled,
)
from ostraka.core.private import Adjacency, Private

if TYPE_CHECKING:
    from ostraka.core.curve import Curve

LARGEST, EVERY = 1, 2  # as compiled code has them; 0 is no screen
_HALF_LOG_2PI = 0.9189385332046727
_MOST_TEACHERS = 2**31  # so that votes less guesses fit into float64, exactly
_GRID = 2.0**20  # guesses are rounded to a millionth of a vote, about


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
        ``at`` not finite, ``sigma`` not positive or above 1e150, or an unknown ``noise``.

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

    def __post_init__(self) -> None:
        check.noise(sigma=self.sigma)
        check.finite(at=self.at)
        check.one_of(noise=self.noise, allowed=("largest", "every"))

    def curve(self, bound: Literal["exact", "tight", "classic"] = "exact") -> Curve:
        """Cost of one query, for every possible votes.

        ``"classic"``: order / (2 sigma²), or order / sigma² with noise on every count, the cost of
        releasing what the threshold is applied to. ``"tight"`` pays for the yes or no only.
        ``"exact"`` is tight, and many queries also compose exactly (docs/composition.md): the smallest
        of all counts.
        """
        check.one_of(bound=bound, allowed=("exact", "tight", "classic"))
        return gaussian_curve(SCREEN, self.sigma, 2**0.5 if self.noise == "every" else 1.0, bound)

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability of passing and of stopping, shape (n_queries, 2), nats."""
        gap = (self.at - check.counts(counts)) / self.sigma
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
        table = check.counts(counts)
        logs = self.log_outcomes(table)
        gap = (self.at - table) / self.sigma
        by_stop = -np.exp(-(gap**2) / 2 - _HALF_LOG_2PI - log_ndtr(gap)) / self.sigma
        if self.noise == "largest":
            top = table == table.max(axis=1, keepdims=True)
            by_stop = np.where(top, by_stop, 0.0) / top.sum(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            odds = np.exp(np.minimum(logs[:, 1] - logs[:, 0], 700.0))
        return logs, np.stack([-odds[:, None] * by_stop, by_stop], axis=1)

    def law(self) -> OutcomeLaw:
        """One stage; with noise on the largest count, its bound is Theorem 6 of 2018."""
        single = self.noise == "largest"
        return OutcomeLaw.of(
            self,
            passes=True,
            bar=(LARGEST if single else EVERY, self.at, self.sigma),
            bound=ScreenBound(self.at, self.sigma) if single else None,
            classic=True,
        )

    def rescaled(self, factor: float) -> Self:
        """The same mechanism in other units of votes."""
        return replace(self, at=self.at * factor, sigma=self.sigma * factor)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """Whether each query passes, bool of shape (n_queries,)."""
        counts = check.counts(private.open())
        if self.noise == "largest":
            counts = counts.max(axis=1, keepdims=True)
        return exact.reaches(counts, self.at, scale=self.sigma, rng=rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confident:
    """Confident-GNMax: the answer of an argmax for queries which pass a screen, no answer for the others.

    Parameters
    ----------
    screen : Threshold
        Asked for every query. Public. Any ballot mechanism whose two outcomes are "passes" and "stops".
    argmax : GNMax or LNMax
        Asked for the queries that passed. Public. Any ballot mechanism that answers with a class.

    Raises
    ------
    TypeError
        ``screen`` is no screen, or ``argmax`` is one or has one.
    ValueError
        The two parts do not promise to hide the same change.

    Guarantees
    ----------
    ``curve()`` bounds one query, whatever the votes: one use of the screen and one of the argmax.
    Through :func:`ostraka.release` there are two payments in this order, the screen for every query and
    the argmax only for those that passed, which is public by then. Parts that are both
    :class:`Subsampled` see a sample of their own each, as sampled votes are drawn anew for every
    payment; ``Subsampled(mechanism=Confident(...))`` prices one sample that both see.
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from ostraka import GNMax, Threshold
    >>> mechanism = Confident(screen=Threshold(at=75, sigma=30.0), argmax=GNMax(sigma=10.0))
    >>> np.exp(mechanism.log_outcomes([[95, 5], [52, 48]])).round(3)  # two classes, no answer
    array([[0.748, 0.   , 0.252],
           [0.135, 0.086, 0.778]])
    """

    screen: BallotMechanism
    argmax: BallotMechanism

    def __post_init__(self) -> None:
        if not law(self.screen).passes:
            raise TypeError(f"screen must pass or stop queries, as Threshold(...) does, got {self.screen!r}")
        answers = law(self.argmax)
        if not callable(getattr(self.argmax, "release", None)) or answers.passes or answers.abstains:
            raise TypeError(f"argmax must answer with a class, as GNMax(...) does, got {self.argmax!r}")
        if self.screen.promise != self.argmax.promise:
            raise ValueError(
                "screen and argmax must hide the same change, got "
                f"{self.screen.promise} and {self.argmax.promise}"
            )

    @property
    def promise(self) -> Adjacency:
        """The promise of both parts."""
        return self.argmax.promise

    def curve(self, bound: Literal["tight", "classic"] = "tight") -> Curve:
        """Cost of one query, for every possible votes: one use of the screen, and one of the argmax."""
        check.one_of(bound=bound, allowed=("tight", "classic"))
        if bound == "tight":
            return self.screen.curve() + self.argmax.curve()
        screen, argmax = (classic_curve(part) or part.curve() for part in (self.screen, self.argmax))
        return screen + argmax

    def law(self) -> OutcomeLaw:
        """Two stages, each paid for by itself: the screen, then the argmax."""
        return OutcomeLaw(law(self.screen).stages + law(self.argmax).stages)

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability of each class, then of no answer, shape (n_queries, n_classes + 1), nats."""
        return self.law().log_outcomes(counts)

    def rescaled(self, factor: float) -> Confident:
        """The same mechanism in other units of votes, if both parts offer that."""
        return Confident(screen=rescaled(self.screen, factor), argmax=rescaled(self.argmax, factor))

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """A class index, or -1 for no answer; int64 of shape (n_queries,)."""
        return self.law().in_turn(private, lambda part, votes, _: part.release(votes, rng=rng), None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AgainstGuesses:
    """A ballot mechanism that is applied to ``votes - n_teachers * guesses`` instead of the votes.

    Parameters
    ----------
    mechanism : Threshold
        Public. Any ballot mechanism.
    guesses : array of shape (n_queries, n_classes)
        A student's class probabilities, from 0 to 1, for the very rows that will be asked. Public.
    n_teachers : int, at most 2**31
        Public.

    Raises
    ------
    ValueError
        Guesses that are not from 0 to 1, or too many teachers; when asked, votes of another shape.

    Guarantees
    ----------
    What is subtracted is public and the same for neighbours, so one use costs what a use of the mechanism
    costs. What is subtracted is rounded to multiples of 2^-20 votes, so that the difference from whole
    votes is exact: rounding decides nothing.
    Source: Papernot et al. 2018, arXiv:1802.08908, Algorithm 2.

    Examples
    --------
    >>> from ostraka import Threshold
    >>> screen = AgainstGuesses(mechanism=Threshold(at=50, sigma=5.0), guesses=[[0.9, 0.1]], n_teachers=100)
    >>> np.exp(screen.log_outcomes([[5, 95]])).round(3)  # passes: the student is wrong
    array([[1., 0.]])
    """

    mechanism: BallotMechanism
    guesses: Any
    n_teachers: int

    def __post_init__(self) -> None:
        check_ballot(self.mechanism)
        check.integer(n_teachers=self.n_teachers, least=1)
        check.at_most(_MOST_TEACHERS, n_teachers=self.n_teachers)
        guesses = np.array(self.guesses, dtype=np.float64)
        if guesses.ndim != 2 or not ((guesses >= 0) & (guesses <= 1)).all():
            raise ValueError(
                "guesses must be probabilities from 0 to 1, of shape (n_queries, n_classes), "
                f"got shape {guesses.shape}"
            )
        guesses.setflags(write=False)
        object.__setattr__(self, "guesses", guesses)

    @property
    def promise(self) -> Adjacency:
        """The same as that of the inner mechanism."""
        return self.mechanism.promise

    def curve(self) -> Curve:
        """Cost of one answer: that of the mechanism."""
        return self.mechanism.curve()

    def uses(self, private: Private) -> int:
        """The inner mechanism's uses; votes of another shape are refused before anything is charged."""
        self._matched(private.shape)
        return self.mechanism.uses(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """The mechanism's outcome law of the difference."""
        return self.mechanism.log_outcomes(self.difference(check.counts(counts)))

    def law(self) -> OutcomeLaw:
        """The stages of the mechanism, which look at votes less guesses."""
        inner = law(self.mechanism).stages[0]
        offset = self._offset if inner.offset is None else self._offset + inner.offset
        return OutcomeLaw.wrapped(self, offset=offset, bound=inner.bound, classic=False)

    @property
    def _offset(self) -> np.ndarray:
        return np.asarray(np.rint(self.n_teachers * self.guesses * _GRID) / _GRID)

    def difference(self, counts: np.ndarray) -> np.ndarray:
        """Counts minus guesses, in votes; private if the counts are."""
        self._matched(counts.shape)
        return np.asarray(counts - self._offset)

    def sure(self, confidence: float) -> np.ndarray:
        """The student's guess where it is at least this sure, ``ABSTAIN`` elsewhere. Public."""
        if not 0 < confidence <= 1:
            raise ValueError(f"confidence must be in (0, 1], got {confidence!r}")
        sure = self.guesses.max(axis=1) >= confidence
        return np.where(sure, self.guesses.argmax(axis=1), ABSTAIN)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The mechanism's answer to the difference."""
        difference = self.difference(check.counts(private.open()))
        return self.mechanism.release(Private(difference, private.adjacency), rng=rng)

    def _matched(self, shape: tuple[int, ...]) -> None:
        if shape != self.guesses.shape:
            raise ValueError(f"votes must have the shape of guesses, {self.guesses.shape}, got {shape}")

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.guesses.astype("<f8").tobytes()).hexdigest()
        rows, n_classes = self.guesses.shape
        return (
            f"AgainstGuesses(mechanism={self.mechanism!r}, n_teachers={self.n_teachers!r}, "
            f"guesses=<{rows} x {n_classes}, sha256 {digest}>)"
        )

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other) if isinstance(other, AgainstGuesses) else NotImplemented

    def __hash__(self) -> int:
        return hash(repr(self))

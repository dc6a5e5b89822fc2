"""AgainstGuesses: a screen on the votes minus the student's expected votes (Interactive-GNMax)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.mechanisms.law import ABSTAIN, OutcomeLaw, check_ballot, law
from ostraka.core.private import Private

if TYPE_CHECKING:
    from ostraka.core.curve import Curve
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.core.private import Adjacency

_MOST_TEACHERS = 2**31  # so that votes less guesses fit into float64, exactly
_GRID = 2.0**20  # guesses are rounded to a millionth of a vote, about


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
        if self.n_teachers > _MOST_TEACHERS:
            raise ValueError(f"n_teachers must be at most {_MOST_TEACHERS}, got {self.n_teachers!r}")
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

"""Confident: a screen, and an argmax for the queries which pass it, as one mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ostraka import _check
from ostraka.mechanisms.neighbours import unshifted
from ostraka.mechanisms.protocols import (
    ABSTAIN,
    BallotMechanism,
    HasArgmaxKernel,
    HasScreenKernel,
    abstains,
    classic_curve,
    gradient,
    passes_or_stops,
    rescaled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.curve import Curve
    from ostraka.mechanisms.neighbours import Neighbours
    from ostraka.mechanisms.protocols import Mechanism
    from ostraka.private import Adjacency, Private

__all__ = ["Confident"]


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
    >>> from ostraka import GNMax, Threshold
    >>> mechanism = Confident(screen=Threshold(at=75, sigma=30.0), argmax=GNMax(sigma=10.0))
    >>> np.exp(mechanism.log_outcomes([[95, 5], [52, 48]])).round(3)  # two classes, no answer
    array([[0.748, 0.   , 0.252],
           [0.135, 0.086, 0.778]])
    """

    screen: BallotMechanism
    argmax: BallotMechanism
    abstains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not passes_or_stops(self.screen):
            raise TypeError(f"screen must pass or stop queries, as Threshold(...) does, got {self.screen!r}")
        named = callable(getattr(self.argmax, "release", None)) and not passes_or_stops(self.argmax)
        if not named or abstains(self.argmax):
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
        _check.one_of(bound=bound, allowed=("tight", "classic"))
        return self.classic_curve() if bound == "classic" else self.screen.curve() + self.argmax.curve()

    def classic_curve(self) -> Curve:
        """Cost of one query from the classic curves of both parts."""
        screen, argmax = (classic_curve(part) or part.curve() for part in (self.screen, self.argmax))
        return screen + argmax

    def uses(self, private: Private) -> int:
        """One use a query."""
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Exact log probability of each class, then of no answer, shape (n_queries, n_classes + 1), nats."""
        log_pass, log_stop = self.screen.log_outcomes(counts).T
        classes = self.argmax.log_outcomes(counts) + log_pass[:, None]
        return np.concatenate([classes, log_stop[:, None]], axis=1)

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each count (last axis), per vote."""
        table = _check.counts(counts)
        log_q, slope = gradient(self.argmax, table)
        log_screen, by_screen = gradient(self.screen, table)
        logs = np.concatenate([log_q + log_screen[:, :1], log_screen[:, 1:]], axis=1)
        return logs, np.concatenate([slope + by_screen[:, :1], by_screen[:, 1:]], axis=1)

    def neighbours(self, counts: np.ndarray, *, relation: str) -> Neighbours:
        """All neighbours of each row of counts."""
        from ostraka.mechanisms import _costs  # noqa: PLC0415  (compiled code, loaded when needed)

        argmax = self.argmax
        screen, seen = unshifted(self.screen, counts)
        if not (isinstance(screen, HasScreenKernel) and isinstance(argmax, HasArgmaxKernel)):
            return _costs.Enumerated(self, counts, relation=relation)
        return _costs.Compiled(
            counts, relation=relation, seen=seen, argmax=argmax.argmax_kernel, screen=screen.screen_kernel
        )

    def rescaled(self, factor: float) -> Confident:
        """The same mechanism in other units of votes, if both parts offer that."""
        return Confident(screen=rescaled(self.screen, factor), argmax=rescaled(self.argmax, factor))

    def in_stages(self, private: Private, ask: Callable[[str, Mechanism, Private], np.ndarray]) -> np.ndarray:
        """Apply the screen to every query, then the argmax to those which passed."""
        passed = ask("screen", self.screen, private)
        answers = np.full(len(passed), ABSTAIN, dtype=np.int64)
        if passed.any():
            answers[passed] = ask("argmax", self.argmax, private[passed])
        return answers

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """A class index, or -1 for no answer; int64 of shape (n_queries,)."""
        return self.in_stages(private, lambda _, part, asked: part.release(asked, rng=rng))

"""What a mechanism is, and the law of its outcomes: the one table that everything else reads.

A mechanism is frozen public parameters with its code and its price. A ballot mechanism also knows the
probability of each of its outcomes, and that is enough: exact costs, vote recovery, audits, planning,
learning and the service work with it, by enumerating outcomes. One that can say more of its outcomes has a
method ``law()``: stages, noise that compiled code knows, published bounds. Whatever asks for any of it asks
:func:`law`, which answers for every mechanism. The type of a mechanism is never looked at.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from ostraka.core import check
from ostraka.core.curve import Priced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.curve import Curve
    from ostraka.core.private import Adjacency, Private
    from ostraka.core.released import Released

    Pay = Callable[["Mechanism", Private, str | None], np.ndarray]

ABSTAIN = -1  # the answer where there is none
_STEP = 1e-4  # votes; of a central difference, where a mechanism offers no gradient


class Releasing(Priced, Protocol):
    """Frozen public parameters with code and price; releases an array, named arrays or a model."""

    def __hash__(self) -> int:
        """Equal mechanisms have equal hashes: they are the keys of price lists."""
        ...

    @property
    def promise(self) -> Adjacency:
        """The largest change of its input that :meth:`curve` pays for."""
        ...

    def uses(self, private: Private) -> int:
        """Return how many uses are charged for answering all of ``private``."""
        ...

    def release(self, private: Private, *, rng: np.random.Generator) -> Released:
        """The noisy release. All noise comes from ``rng``."""
        ...


class Mechanism(Releasing, Protocol):
    """A mechanism which releases one array: frozen parameters, code and price in one object."""

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The noisy answers. All noise comes from ``rng``."""
        ...


class BallotMechanism(Mechanism, Protocol):
    """A mechanism which answers a table of votes, one outcome for each row, and knows their probabilities."""

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Log probability of each outcome, shape (n_queries, n_outcomes), nats.

        :func:`outcome_places` says which column an answer belongs to. A mechanism whose outcomes are
        "passes" and "stops" instead of classes returns ``OutcomeLaw.of(self, passes=True)`` from a method
        ``law()``; one whose last outcome is "no answer", ``OutcomeLaw.of(self, abstains=True)``.
        """
        ...


class PublishedBound(Protocol):
    """A published data-dependent bound on one query, from the log of a probability q."""

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log of (a bound on) the probability of the less likely outcome, one a query."""
        ...

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...]) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats, from these votes to a neighbour's only."""
        ...


class ArgmaxBound(PublishedBound, Protocol):
    """A published bound for an argmax which also maps q to a scale in ballots, for smooth sensitivity."""

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound has to be evaluated."""
        ...

    def points(self, behind: np.ndarray) -> np.ndarray:
        """Points on the scale, from the gap of each other class; one ballot moves a point by at most 1."""
        ...

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these points."""
        ...


class ScreenBound(PublishedBound, Protocol):
    """A published bound for a screen that looks at the largest count only."""

    def log_q_of_largest(self, largest: np.ndarray) -> np.ndarray:
        """``log_q`` from the largest counts."""
        ...


class HasNoise(Protocol):
    """A class of mechanisms which differ in the amount of their noise only."""

    @classmethod
    def with_noise(cls, *, noise: float) -> Self:
        """The mechanism of this class with noise of this scale, in votes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a question: the law of its outcomes, of the votes that the stages before let through.

    Attributes
    ----------
    mechanism : BallotMechanism
        Its ``log_outcomes(votes)`` is the law, its ``curve()`` the price where stages are paid one by one.
    passes : bool
        The outcomes are "passes" and "stops", as those of a screen, instead of classes.
    abstains : bool
        The last outcome is "no answer".
    noise : tuple of int and float, optional
        Of an argmax: ``GAUSSIAN`` (0) or ``LAPLACE`` (1), and the scale in votes, as compiled code has them.
    bar : tuple of int and two floats, optional
        Of a screen with Gaussian noise: noise on the largest count (1) or on every count (2), the
        threshold, and sigma, in votes.
    offset : array, optional
        What is subtracted from the votes before they are looked at. Public.
    weight : float
        The votes that one ballot counts.
    bound, moments : PublishedBound, optional
        The bound of Papernot et al. 2018 and, for an argmax, of 2017.
    slopes : callable(counts), optional
        Log probabilities and their derivatives by each count (last axis), of votes less ``offset``.
    information : callable(counts), optional
        Fisher information of one answer, shape (n_rows, n_classes, n_classes), per count squared: of
        mechanisms which answer with numbers.
    classic : bool
        ``curve(bound="classic")`` is the price of publishing the noisy counts themselves.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> [stage] = law(GNMax(sigma=40.0)).stages
    >>> stage.passes, stage.abstains, stage.noise
    (False, False, (0, 40.0))
    """

    mechanism: Any
    passes: bool = False
    abstains: bool = False
    noise: tuple[int, float] | None = None
    bar: tuple[int, float, float] | None = None
    offset: np.ndarray | None = None
    weight: float = 1.0
    bound: Any = None
    moments: PublishedBound | None = None
    slopes: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    information: Callable[[np.ndarray], np.ndarray] | None = None
    classic: bool = False

    @property
    def name(self) -> str:
        """The name of its payment in the ledger."""
        return "screen" if self.passes else "argmax"

    def shown(self, counts: np.ndarray) -> np.ndarray:
        """The votes that it looks at: less the offset."""
        if self.offset is None:
            return counts
        if self.offset.shape != counts.shape:
            raise ValueError(f"votes must have the shape of guesses, {self.offset.shape}, got {counts.shape}")
        return np.asarray(counts - self.offset)

    def gradient(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities and their derivatives by each count, if need be by central differences."""
        if self.slopes is not None:
            return self.slopes(self.shown(counts))
        logs: np.ndarray = self.mechanism.log_outcomes(counts)
        slopes = np.empty((*logs.shape, counts.shape[1]))
        for k in range(counts.shape[1]):
            step = _STEP * (np.arange(counts.shape[1]) == k)
            with np.errstate(invalid="ignore"):  # an impossible outcome stays one: its slope is none
                slope = self.mechanism.log_outcomes(counts + step) - self.mechanism.log_outcomes(
                    counts - step
                )
            slopes[:, :, k] = np.nan_to_num(slope / (2 * _STEP), nan=0.0)
        return logs, slopes


@dataclass(frozen=True, slots=True)
class OutcomeLaw:
    """The law of a mechanism's outcomes: stages, of which all but the last pass or stop a question.

    Attributes
    ----------
    stages : tuple of Stage
        One, unless there is a screen.
    payer : mechanism, optional
        What is paid for where one payment covers all stages. None: each stage is paid for by itself, for the
        questions that reach it.

    Examples
    --------
    >>> from ostraka import Confident, GNMax, Threshold
    >>> question = Confident(screen=Threshold(at=200, sigma=150.0), argmax=GNMax(sigma=40.0))
    >>> [stage.passes for stage in law(question).stages]
    [True, False]
    """

    stages: tuple[Stage, ...]
    payer: Any = None

    @classmethod
    def of(cls, mechanism: Any, **stated: Any) -> OutcomeLaw:
        """One stage, of which ``stated`` says more; what is left out is slower, or there is none of it."""
        stated.setdefault("slopes", getattr(mechanism, "log_outcomes_gradient", None))
        stated.setdefault("information", getattr(mechanism, "information", None))
        return cls((Stage(mechanism=mechanism, **stated),))

    @classmethod
    def wrapped(cls, wrapper: Any, **stated: Any) -> OutcomeLaw:
        """The law of ``wrapper.mechanism``, each stage in the wrapper, and paid for by the wrapper at once.

        The bounds of 2017 and 2018 are about ballots of weight 1 which all take part, and are not kept.
        """
        inner = law(wrapper.mechanism).stages
        if len(inner) == 1:
            wrappers = [wrapper]
        else:
            wrappers = [dataclasses.replace(wrapper, mechanism=stage.mechanism) for stage in inner]
        return cls(
            tuple(
                dataclasses.replace(stage, **{"bound": None, "moments": None, "mechanism": part, **stated})
                for stage, part in zip(inner, wrappers, strict=True)
            ),
            payer=wrapper,
        )

    @property
    def paid(self) -> tuple[Stage, ...]:
        """The stages as they are paid for."""
        if self.payer is None:
            return self.stages
        return (dataclasses.replace(self.stages[-1], mechanism=self.payer, abstains=self.abstains),)

    @property
    def passes(self) -> bool:
        """Whether the outcomes are "passes" and "stops", as those of a screen, instead of classes."""
        return self.stages[-1].passes

    @property
    def abstains(self) -> bool:
        """Whether the last outcome is "no answer"."""
        return len(self.stages) > 1 or self.stages[-1].abstains

    def in_turn(self, private: Private, pay: Pay, key: str | None) -> np.ndarray:
        """The answers: ``pay(mechanism, entries, key)`` a stage, for what the ones before let through."""
        *screens, last = self.paid
        if not screens:
            return pay(last.mechanism, private, key)
        keys = [None if key is None else f"{key}/{stage.name}" for stage in self.paid]
        answers, rows = np.full(len(private), ABSTAIN, dtype=np.int64), np.arange(len(private))
        entries = private
        for stage, name in zip(screens, keys, strict=False):
            rows = rows[pay(stage.mechanism, entries, name)]
            entries = private[rows]
        if rows.size:
            answers[rows] = pay(last.mechanism, entries, keys[-1])
        return answers

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Log probability of each outcome, shape (n_queries, n_outcomes), nats."""
        *screens, last = (stage.mechanism.log_outcomes(counts) for stage in self.stages)
        for log_pass, log_stop in (screen.T for screen in reversed(screens)):
            last = np.concatenate([last + log_pass[:, None], log_stop[:, None]], axis=1)
        return np.asarray(last)

    def gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities and their derivatives by each count (last axis), per vote."""
        table = check.counts(counts)
        *screens, (logs, slopes) = (stage.gradient(table) for stage in self.stages)
        for log_screen, by_screen in reversed(screens):
            logs = np.concatenate([logs + log_screen[:, :1], log_screen[:, 1:]], axis=1)
            slopes = np.concatenate([slopes + by_screen[:, :1], by_screen[:, 1:]], axis=1)
        return logs, slopes

    def information(self, counts: np.ndarray) -> np.ndarray:
        """Fisher information of one answer, shape (n, n_classes, n_classes), per vote squared."""
        numbers = self.stages[-1].information
        if numbers is not None:
            return numbers(counts)
        logs, slopes = self.gradient(counts)
        return np.asarray(np.swapaxes(slopes, 1, 2) @ (slopes * np.exp(logs)[..., None]))


def law(mechanism: Any) -> OutcomeLaw:
    """Return the law that a mechanism states; one stage, known by ``log_outcomes`` alone, for any other.

    Examples
    --------
    >>> from ostraka import Confident, GNMax, Threshold
    >>> pair = Confident(screen=Threshold(at=75, sigma=30.0), argmax=GNMax(sigma=10.0))
    >>> [stage.name for stage in law(pair).stages], law(pair).abstains, law(GNMax(sigma=10.0)).stages[0].noise
    (['screen', 'argmax'], True, (0, 10.0))
    """
    stated: Callable[[], OutcomeLaw] | None = getattr(mechanism, "law", None)
    return OutcomeLaw.of(mechanism) if stated is None else stated()


def payments(mechanism: Any) -> tuple[Any, ...]:
    """Return the mechanisms that are paid for in turn: of a screened question the screen, then the argmax.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> payments(GNMax(sigma=40.0))
    (GNMax(sigma=40.0),)
    """
    return tuple(stage.mechanism for stage in law(mechanism).paid)


def named(mechanism: Any) -> dict[str, str | None]:
    """Return what a record says was asked: the mechanism, and the screen before it or None."""
    *screens, argmax = payments(mechanism)
    return {"mechanism": repr(argmax), "screen": repr(screens[0]) if screens else None}


class Wrapped:
    """The common part of mechanisms that answer as ``mechanism`` does, for another price."""

    __slots__ = ()
    mechanism: BallotMechanism

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """The mechanism's own outcome law."""
        return self.mechanism.log_outcomes(counts)

    def rescaled(self, factor: float) -> Self:
        """The same in other units of votes, if the mechanism offers that."""
        inner = rescaled(self.mechanism, factor)
        return dataclasses.replace(self, mechanism=inner)  # type: ignore[type-var]

    def uses(self, private: Private) -> int:
        """The same as that of the inner mechanism."""
        return self.mechanism.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The mechanism's own answer."""
        return self.mechanism.release(private, rng=rng)


def check_ballot(mechanism: BallotMechanism, *, classes: bool = False) -> None:
    """Raise TypeError unless it is a ballot mechanism; with ``classes``, unless its answers are classes."""
    ballot = all(callable(getattr(mechanism, name, None)) for name in ("log_outcomes", "curve"))
    if not ballot or isinstance(mechanism, type) or (classes and law(mechanism).passes):
        what = "a ballot mechanism that answers with a class" if classes else "a ballot mechanism"
        raise TypeError(
            f"mechanism must be {what}, such as GNMax(...) or "
            f"Confident(screen=Threshold(...), argmax=GNMax(...)), got {mechanism!r}"
        )


def rescaled(mechanism: BallotMechanism, factor: float) -> BallotMechanism:
    """Return the same mechanism in other units of votes: noise and thresholds multiplied by ``factor``.

    Raises
    ------
    ValueError
        A mechanism without the method ``rescaled``.
    """
    scaled = getattr(mechanism, "rescaled", None)
    if isinstance(mechanism, type) or scaled is None:
        raise ValueError(
            "mechanism must be a ballot mechanism whose noise is in votes, such as GNMax(...), "
            f"got {mechanism!r}"
        )
    scaled_mechanism: BallotMechanism = scaled(factor)
    return scaled_mechanism


def classic_curve(mechanism: Any) -> Curve | None:
    """Return the price of publishing the noisy counts themselves; None if the mechanism does not offer it."""
    curve: Curve | None = (
        mechanism.curve(bound="classic") if any(stage.classic for stage in law(mechanism).stages) else None
    )
    return curve


def outcome_places(answers: np.ndarray, n_outcomes: int) -> np.ndarray:
    """The column of ``log_outcomes`` that each answer belongs to.

    Class k is column k; "passes" (True) is column 0 and "stops" (False) is column 1; no answer
    (``ABSTAIN``) is the last column.

    Examples
    --------
    >>> outcome_places(np.array([2, ABSTAIN]), 4), outcome_places(np.array([True, False]), 2)
    (array([2, 3]), array([0, 1]))
    """
    if answers.dtype == bool:
        return np.where(answers, 0, 1)
    return np.where(answers == ABSTAIN, n_outcomes - 1, answers).astype(np.int64)

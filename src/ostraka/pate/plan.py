"""Plans: number of answers and amount of noise, fixed from public numbers before any data is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ostraka import _check
from ostraka.accounting.calibration import Goal, calibrate
from ostraka.ledger import BudgetExceeded
from ostraka.mechanisms import Confident, GNMax
from ostraka.mechanisms.protocols import parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.curve import Curve
    from ostraka.mechanisms import Threshold
    from ostraka.mechanisms.protocols import Mechanism

__all__ = ["LabelPlan", "Plan", "make_label_plan", "make_plan"]

_ENOUGH_ANSWERS = 100  # more answers with more noise each did not help on digits (10 classes) or a census (2)
_ANSWERS_A_CLASS = 10
_QUERIES_AN_ANSWER = 2  # with a screen
_UNITS_A_TEACHER = 13
_MOST_TEACHERS = 250
_AUDIBLE = 4  # teachers must outnumber the noise this many times for an answer to be worth asking
_DIGITS, _PRECISION = 4, 1e-4  # of sigma, rounded up
_FURTHER, _TRIES, _LARGEST = 5e-5, 4, 1e9  # of the search for it
_SURELY = 0.9  # of the teachers: noise that seems to fit so far below them does
_LEAST = 0.5  # votes; less noise than this has no use and a price nobody would pay


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run, and its largest cost for all data. All of it is public.

    Attributes
    ----------
    n_teachers, n_answers : int
        ``n_answers`` counts questions: with a screen, some of them will be refused an answer.
    mechanism : Mechanism
        With a screen, a :class:`~ostraka.Confident`.
    epsilon, delta : float
        Epsilon at most, at ``delta``, if every question is answered.

    Examples
    --------
    >>> plan = Plan(n_teachers=250, n_answers=100, mechanism=GNMax(sigma=40.0), delta=1e-5)
    >>> round(plan.epsilon, 2)
    1.07
    """

    way: ClassVar[str] = "argmax"

    n_teachers: int
    n_answers: int
    mechanism: Any
    delta: float

    def curve(self, n_answers: int | None = None) -> Curve:
        """Cost of so many questions (None: all), all of them answered."""
        each: Curve = self.mechanism.curve()
        return (self.n_answers if n_answers is None else n_answers) * each

    def left(self, paid: Mapping[str, int]) -> Curve:
        """Cost of what is still to be asked, given the uses of each mechanism that are paid for."""
        screen, argmax = parts(self.mechanism)
        return self.curve(max(0, self.n_answers - paid.get(repr(screen or argmax), 0)))

    @property
    def epsilon(self) -> float:
        """Epsilon at most, at ``delta``."""
        return self.curve().epsilon(self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """The plan of a run of PATE-FM, and its largest cost for all labels. All of it is public.

    Attributes
    ----------
    n_teachers : int
    n_answers : int
        Labels for the student; asking stops there.
    n_queries : int
        Rows asked about at the most: those that the screen refuses are paid for, too.
    mechanism : Mechanism
        With a screen, a :class:`~ostraka.Confident`.
    delta : float

    Examples
    --------
    >>> from ostraka import Threshold
    >>> screen = Threshold(at=12, sigma=10.0)
    >>> mechanism = Confident(screen=screen, argmax=GNMax(sigma=5.0))
    >>> plan = LabelPlan(n_teachers=20, n_answers=50, n_queries=80, mechanism=mechanism, delta=1e-5)
    >>> plan.epsilon == (80 * screen.curve() + 50 * GNMax(sigma=5.0).curve()).epsilon(delta=1e-5)
    True
    """

    n_teachers: int
    n_answers: int
    n_queries: int
    mechanism: Any
    delta: float

    def __post_init__(self) -> None:
        _check.integer(n_teachers=self.n_teachers, n_answers=self.n_answers, least=1)
        if self.n_queries < self.n_answers:
            raise ValueError(
                f"n_queries must be at least n_answers={self.n_answers}, got {self.n_queries}: "
                "no row is answered that was not asked about"
            )

    def curve(self, n_queries: int | None = None) -> Curve:
        """Cost of so many queries (None: all), as many of them answered as there may be answers."""
        n_queries = self.n_queries if n_queries is None else n_queries
        return self._cost(n_queries, min(n_queries, self.n_answers))

    def left(self, paid: Mapping[str, int]) -> Curve:
        """Cost of what is still to be asked, given the uses of each mechanism that are paid for."""
        screen, argmax = parts(self.mechanism)
        queries = self.n_queries - paid.get(repr(screen), 0)
        return self._cost(queries, self.n_answers - paid.get(repr(argmax), 0))

    @property
    def epsilon(self) -> float:
        """Epsilon at most, at ``delta``."""
        return self.curve().epsilon(self.delta)

    def _cost(self, n_queries: int, n_answers: int) -> Curve:
        screen, argmax = parts(self.mechanism)
        cost: Curve = max(0, n_answers) * argmax.curve()
        return cost if screen is None else cost + max(0, n_queries) * screen.curve()


def make_plan(
    *,
    n_units: int,
    n_classes: int,
    n_public: int,
    n_teachers: int | str,
    mechanism: Mechanism | None,
    screen: Threshold | None,
    n_answers: int | None,
    epsilon: float,
    delta: float,
) -> Plan:
    """The best use of (epsilon, delta) that the given choices leave open; reads public numbers only.

    Raises
    ------
    BudgetExceeded
        (epsilon, delta) does not pay for the answers asked for, or not for one that can be heard.
    ValueError
        delta >= 1 / n_units, more answers than public rows, or a number out of range.
    """
    _require_meaning(n_units=n_units, epsilon=epsilon, delta=delta)
    teachers = _teachers(n_teachers, n_units)
    if n_answers is not None:
        _check.integer(n_answers=n_answers, least=1)
        if n_answers > n_public:
            raise ValueError(f"n_answers={n_answers} must be at most the {n_public} public rows there are")
    if mechanism is None:
        most = min(n_public, max(_ENOUGH_ANSWERS, _ANSWERS_A_CLASS * n_classes))
        audible = asked(GNMax(sigma=teachers / _AUDIBLE), screen).curve(bound="classic")
        n_answers = n_answers or max(
            1, min(most, _affordable(audible, epsilon=epsilon, delta=delta, most=most))
        )
        chosen: Mechanism = _least_noise(n_answers, screen, teachers, epsilon, delta)
    else:
        chosen = asked(mechanism, screen)
        paid = _affordable(chosen.curve(), epsilon=epsilon, delta=delta, most=n_answers or n_public)
        if paid < (n_answers or 1):
            raise _too_expensive(chosen, n_answers=n_answers or 1, paid=paid, epsilon=epsilon, delta=delta)
        n_answers = paid
    return Plan(n_teachers=teachers, n_answers=n_answers, mechanism=chosen, delta=delta)


def make_label_plan(
    *,
    n_rows: int,
    n_classes: int,
    n_teachers: int,
    mechanism: Mechanism | None,
    screen: Threshold | None,
    n_answers: int | None,
    n_queries: int | None,
    epsilon: float,
    delta: float,
) -> LabelPlan:
    """Plan a run of PATE-FM; noise that is not given is the least with which every query can be answered.

    Raises
    ------
    BudgetExceeded
        (epsilon, delta) does not pay for it.
    ValueError
        delta >= 1 / n_rows, more queries than rows or fewer than answers, or a number out of range.
    """
    _require_meaning(n_units=n_rows, epsilon=epsilon, delta=delta)
    n_answers = min(n_rows, _ANSWERS_A_CLASS * n_classes) if n_answers is None else n_answers
    _check.integer(n_answers=n_answers, least=1)
    n_teachers = _teachers(n_teachers, n_rows)
    if n_queries is None:
        n_queries = n_answers if screen is None else min(n_rows, _QUERIES_AN_ANSWER * n_answers)
    _check.integer(n_queries=n_queries, least=1)
    if n_queries > n_rows:
        raise ValueError(f"n_queries={n_queries} must be at most the {n_rows} rows there are")
    chosen: Mechanism = (
        _least_noise(n_queries, screen, n_teachers, epsilon, delta)
        if mechanism is None
        else asked(mechanism, screen)
    )
    plan = LabelPlan(
        n_teachers=n_teachers, n_answers=n_answers, n_queries=n_queries, mechanism=chosen, delta=delta
    )
    if not plan.epsilon <= epsilon:
        raise BudgetExceeded(
            f"epsilon={epsilon:g} at delta={delta:g} does not pay for {n_queries} queries and {n_answers} × "
            f"{chosen!r}, which would cost {_check.nats(plan.epsilon)}: use more noise, fewer of them, "
            "or a larger epsilon",
            asked=plan.epsilon,
            left=epsilon,
        )
    return plan


def _require_meaning(*, n_units: int, epsilon: float, delta: float) -> None:
    """Raise ValueError unless (epsilon, delta) is meaningful for this number of units."""
    _check.positive(epsilon=epsilon)
    _check.delta(delta)
    if delta >= 1 / n_units:
        raise ValueError(
            f"delta must be below 1 / {n_units} units, got {delta:g}: a mechanism that publishes one unit "
            f"outright would pass; use delta={0.1 / n_units:.0e} or less"
        )


def _teachers(n_teachers: int | str, n_units: int) -> int:
    if n_teachers != "auto":
        _check.integer(n_teachers=n_teachers, least=1)  # type: ignore[arg-type]
        if int(n_teachers) > n_units:
            raise ValueError(
                f"{n_teachers} teachers need at least {n_teachers} units, but there are {n_units}: "
                f"use n_teachers={n_units} or fewer"
            )
        return int(n_teachers)
    return min(n_units, _MOST_TEACHERS, max(5, round(n_units / _UNITS_A_TEACHER)))


def asked(mechanism: Mechanism, screen: Threshold | None) -> Any:
    """Combine an estimator's mechanism and screen into one mechanism."""
    return mechanism if screen is None else Confident(screen=screen, argmax=mechanism)  # type: ignore[arg-type]


def _too_expensive(
    mechanism: Mechanism, *, n_answers: int, paid: int, epsilon: float, delta: float
) -> BudgetExceeded:
    fewer = f"n_answers={paid} or fewer, " if paid else ""
    cost = (n_answers * mechanism.curve()).epsilon(delta)
    return BudgetExceeded(
        f"epsilon={epsilon:g} at delta={delta:g} does not pay for {n_answers} × {mechanism!r}, "
        f"which would cost {_check.nats(cost)}: use {fewer}more noise, or a larger epsilon",
        asked=cost,
        left=epsilon,
    )


def _affordable(each: Curve, *, epsilon: float, delta: float, most: int) -> int:
    """The largest number of uses up to ``most`` that stays within (epsilon, delta)."""
    low, high = 0, most + 1  # low fits, high is not known to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (middle * each).epsilon(delta) <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=256)
def _least_noise(
    n_answers: int, screen: Threshold | None, n_teachers: int, epsilon: float, delta: float
) -> GNMax | Confident:
    """The least noise, to four digits upwards, whose answers fit into (epsilon, delta)."""
    within = epsilon * (1 - 1e-9)  # a ledger rounds each price up once more

    def question(sigma: float) -> GNMax | Confident:
        question: GNMax | Confident = asked(GNMax(sigma=sigma), screen)
        return question

    def spent(sigma: float) -> float:
        return (n_answers * question(sigma).curve()).epsilon(delta)

    goal = Goal(question, n_answers=n_answers, epsilon=within, delta=delta)
    start = goal.about()
    if not start < _SURELY * n_teachers and (drowned := spent(n_teachers)) > within:
        raise BudgetExceeded(
            f"epsilon={epsilon:g} at delta={delta:g} is too small for n_answers={n_answers}: noise would "
            f"drown all {n_teachers} teachers; use a larger epsilon, more teachers, or a smaller n_answers",
            asked=drowned,
            left=epsilon,
        )
    sigma = _fitting(goal, start)
    if sigma == math.inf:
        sigma = calibrate(question, n_answers=n_answers, epsilon=within, delta=delta, precision=_PRECISION)
        sigma = _digits(max(sigma, _LEAST))
        while spent(sigma) > within:
            sigma = _digits(sigma * (1 + 10.0 ** (1 - _DIGITS)))
    return question(sigma)


def _fitting(goal: Goal, start: float) -> float:
    """The least noise of a few digits that fits, or one near it, where it is found soon; else infinity."""
    sigma = _digits(max(min(start, _LARGEST) * (1 + _FURTHER), _LEAST))
    for _ in range(_TRIES):
        over = goal.excess(sigma)
        better = _digits(max(sigma * math.exp(min(over, 1.0)) * (1 + _FURTHER / 5), _LEAST))
        if over <= 0 and better >= sigma:
            return sigma
        sigma = better
    return math.inf


def _digits(value: float) -> float:
    """Round up to a few digits."""
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return float(f"{math.ceil(value / step) * step:.{_DIGITS}g}")

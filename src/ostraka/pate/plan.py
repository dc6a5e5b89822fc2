"""Plans: how many answers with how much noise, fixed from public numbers before any data is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ostraka import _check
from ostraka.accounting import calibrate
from ostraka.ledger import BudgetExceeded
from ostraka.mechanisms import GNMax

if TYPE_CHECKING:
    from ostraka.curve import Curve
    from ostraka.door import Mechanism
    from ostraka.mechanisms import Threshold

__all__ = ["Plan", "make_plan"]

_ENOUGH_ANSWERS = 100  # more answers with more noise each did not help on digits (10 classes) or a census (2)
_ANSWERS_A_CLASS = 10
_UNITS_A_TEACHER = 13
_MOST_TEACHERS = 250
_AUDIBLE = 4  # teachers must outnumber the noise this many times for an answer to be worth asking
_DIGITS, _PRECISION = 4, 1e-4  # of sigma, rounded up
_LEAST = 0.5  # votes; less noise than this has no use and a price nobody would pay


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do and cost at most, whatever the data. All of it is public.

    Attributes
    ----------
    n_teachers, n_answers : int
        ``n_answers`` counts questions: with a screen, some of them will be refused an answer.
    mechanism : Mechanism
    screen : Threshold or None
    epsilon, delta : float
        Epsilon at most, at ``delta``, if every question is answered.

    Examples
    --------
    >>> plan = Plan(n_teachers=250, n_answers=100, mechanism=GNMax(sigma=40.0), screen=None, delta=1e-5)
    >>> round(plan.epsilon, 2)
    1.16
    """

    n_teachers: int
    n_answers: int
    mechanism: Any
    screen: Threshold | None
    delta: float

    def curve(self, n_answers: int | None = None) -> Curve:
        """Cost of so many questions (None: all), all of them answered."""
        return (self.n_answers if n_answers is None else n_answers) * _each(self.mechanism, self.screen)

    @property
    def epsilon(self) -> float:
        """Epsilon at most, at ``delta``."""
        return self.curve().epsilon(self.delta)


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
    _check.positive(epsilon=epsilon)
    _check.delta(delta)
    if delta >= 1 / n_units:
        raise ValueError(
            f"delta must be below 1 / {n_units} units, got {delta:g}: a mechanism that publishes one unit "
            f"outright would pass; use delta={0.1 / n_units:.0e} or less"
        )
    teachers = _teachers(n_teachers, n_units)
    if n_answers is not None:
        _check.integer(n_answers=n_answers, least=1)
        if n_answers > n_public:
            raise ValueError(f"n_answers={n_answers} must be at most the {n_public} public rows there are")
    if mechanism is None:
        most = min(n_public, max(_ENOUGH_ANSWERS, _ANSWERS_A_CLASS * n_classes))
        audible = _each(GNMax(sigma=teachers / _AUDIBLE), screen, bound="classic")
        n_answers = n_answers or max(
            1, min(most, _affordable(audible, epsilon=epsilon, delta=delta, most=most))
        )
        mechanism = _quietest(n_answers, screen, teachers, epsilon, delta)
    else:
        each = _each(mechanism, screen)
        paid = _affordable(each, epsilon=epsilon, delta=delta, most=n_answers or n_public)
        if paid < (n_answers or 1):
            fewer = f"n_answers={paid} or fewer, " if paid else ""
            asked = ((n_answers or 1) * each).epsilon(delta)
            raise BudgetExceeded(
                f"epsilon={epsilon:g} at delta={delta:g} does not pay for {n_answers or 1} × {mechanism!r}, "
                f"which would cost {asked:.4g}: use {fewer}more noise, or a larger epsilon",
                asked=asked,
                left=epsilon,
            )
        n_answers = paid
    return Plan(n_teachers=teachers, n_answers=n_answers, mechanism=mechanism, screen=screen, delta=delta)


def _teachers(n_teachers: int | str, n_units: int) -> int:
    if n_teachers != "auto":
        _check.integer(n_teachers=n_teachers, least=1)  # type: ignore[arg-type]
        return int(n_teachers)
    return min(n_units, _MOST_TEACHERS, max(5, round(n_units / _UNITS_A_TEACHER)))


def _each(mechanism: Mechanism, screen: Threshold | None, **bound: Any) -> Curve:
    """Cost of a question that is answered."""
    cost = mechanism.curve(**bound)
    return cost if screen is None else cost + screen.curve(**bound)


def _affordable(each: Curve, *, epsilon: float, delta: float, most: int) -> int:
    """The largest number of uses up to ``most`` that stays within (epsilon, delta)."""
    low, high = 0, most + 1  # low fits, high is not known to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (middle * each).epsilon(delta) <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=256)
def _quietest(
    n_answers: int, screen: Threshold | None, n_teachers: int, epsilon: float, delta: float
) -> GNMax:
    """The least noise, to four digits upwards, whose answers fit into (epsilon, delta)."""
    within = epsilon * (1 - 1e-9)  # a ledger rounds each price up once more

    def spent(sigma: float) -> float:
        return (n_answers * _each(GNMax(sigma=sigma), screen)).epsilon(delta)

    def asked(sigma: float) -> GNMax | tuple[Threshold, GNMax]:
        return GNMax(sigma=sigma) if screen is None else (screen, GNMax(sigma=sigma))

    drowned = spent(n_teachers)
    if drowned > within:
        raise BudgetExceeded(
            f"epsilon={epsilon:g} at delta={delta:g} is too small for n_answers={n_answers}: noise would "
            f"drown all {n_teachers} teachers; use a larger epsilon, more teachers, or a smaller n_answers",
            asked=drowned,
            left=epsilon,
        )
    sigma = calibrate(asked, n_answers=n_answers, epsilon=within, delta=delta, precision=_PRECISION)
    sigma = _digits(max(sigma, _LEAST))
    while spent(sigma) > within:
        sigma = _digits(sigma * (1 + 10.0 ** (1 - _DIGITS)))
    return GNMax(sigma=sigma)


def _digits(value: float) -> float:
    """Rounded up to a few digits."""
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return float(f"{math.ceil(value / step) * step:.{_DIGITS}g}")

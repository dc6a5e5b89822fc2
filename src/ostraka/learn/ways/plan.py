"""Plans and ways: what will be asked and at which price, fixed before any data is read, and how."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from ostraka.core import check
from ostraka.core.accounting.calibration import Goal, calibrate
from ostraka.core.ledger.budget import BudgetExceeded
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.argmax import GNMax
from ostraka.core.mechanisms.law import check_ballot, payments
from ostraka.core.mechanisms.screen import Confident
from ostraka.data.units import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.audit.bound import Finding
    from ostraka.core.curve import Curve
    from ostraka.core.mechanisms.law import Mechanism
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.learn.run import Owned, Run
    from ostraka.learn.session import Data, Seeds, Session

_ENOUGH_ANSWERS = 100  # more answers with more noise each did not help on digits (10 classes) or a census (2)
_ANSWERS_A_CLASS = 10
_QUERIES_AN_ANSWER = 2  # with a screen
_UNITS_A_TEACHER = 13
_MOST_TEACHERS = 250
_AUDIBLE = 4  # teachers must outnumber the noise this many times for an answer to be worth asking
_DIGITS = 4  # of sigma, rounded up
_FURTHER, _TRIES, _LARGEST = 5e-5, 4, 1e9  # of the search for it
_SURELY = 0.9  # of the teachers: noise that seems to fit so far below them does
_LEAST = 0.5  # votes; less noise than this has no use and a price nobody would pay
MANY = {"row": "rows", "person": "people", "label": "labels"}
_SHOWN = 50  # numbers of answers in a record; each takes one to four milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Public facts about the private rows, the budget, and the promise."""

    n_units: int
    n_classes: int
    n_public: int = 0
    grouped: bool
    epsilon: float
    delta: float
    relation: str = "replace-one"

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.delta(self.delta, n_units=self.n_units)


def delta_of(model: Any, n_units: int) -> float:
    """The delta of an estimator: its own, else its ledger's, else what suits the number of units."""
    if model.delta is None and isinstance(model.ledger, Ledger):
        return model.ledger.budget.delta
    return float(check.release_delta(model.delta, n_units=n_units))


class Step(NamedTuple):
    """A mechanism, and how often it is used at most."""

    mechanism: Mechanism
    uses: int


class Planned:
    """The part that all plans share: steps, and from them the largest cost for all data."""

    __slots__ = ()

    way: ClassVar[str]
    n_teachers: int
    n_answers: int
    mechanism: Any
    delta: float

    @property
    def steps(self) -> tuple[Step, ...]:
        """Mechanisms in the order in which a question meets them."""
        return _stages(self.mechanism, self.n_answers, self.n_answers)

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that only this way has, for the record."""
        return {}

    @property
    def epsilon(self) -> float:
        """Epsilon at most, at ``delta``."""
        return self.curve().epsilon(self.delta)

    def curve(self, n_answers: int | None = None) -> Curve:
        """Cost of so many questions (None: all), as many of them answered as there may be answers."""
        (first, uses), *later = self.steps
        uses = uses if n_answers is None else n_answers
        costs = [uses * first.curve(), *(min(step.uses, uses) * step.mechanism.curve() for step in later)]
        return functools.reduce(operator.add, costs)

    def left(self, paid: Mapping[str, int]) -> Curve:
        """Cost of all that is planned and not paid for, given the uses of each mechanism that are."""
        costs = [max(0, n - paid.get(repr(mechanism), 0)) * mechanism.curve() for mechanism, n in self.steps]
        return functools.reduce(operator.add, costs)

    def over_time(self) -> dict[str, Any]:
        """Epsilon after each question; of more than a figure can show, after some, evenly apart."""
        n = self.steps[0].uses
        answers = np.unique(np.linspace(1, n, min(n, _SHOWN)).round().astype(int)).tolist()
        epsilon = [self.curve(number).epsilon(self.delta) for number in answers]
        return {"epsilon": epsilon} if n <= _SHOWN else {"epsilon": epsilon, "answers": answers}

    def require_affordable(self, ledger: Ledger, *, key: str) -> None:
        """Raise unless the ledger can pay for all that is not paid under this key."""
        paid: Counter[str] = Counter()
        first: Curve | None = None
        for entry in ledger.scan():
            if first is None and entry.uses:
                first = entry.curve
            if (entry.key or "").startswith(f"{key}/"):
                paid[entry.mechanism] += entry.uses
        whole = self.left(paid) if first is None else ledger.spent() + self.left(paid)
        # an adaptive budget allows less than its epsilon, by a rule that the first charge decides
        if ledger.budget.allows(whole, first=whole if first is None else first):
            return
        total, left = whole.epsilon(ledger.budget.delta), ledger.left()
        room = ", less the price of choosing questions by earlier answers" if ledger.budget.adaptive else ""
        raise BudgetExceeded(
            f"{ledger!r} has epsilon {left:.4g} left{room}, but {self.n_answers} × {self.mechanism!r} would "
            f"make it {check.nats(total)}: ask fewer questions, or with more noise; nothing was trained or "
            "charged",
            asked=total - ledger.epsilon(),
            left=left,
        )


def _stages(mechanism: Any, n_queries: int, n_answers: int) -> tuple[Step, ...]:
    *screens, argmax = payments(mechanism)
    return *(Step(screen, n_queries) for screen in screens), Step(argmax, n_answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Planned):
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

    @classmethod
    def of(cls, model: Any, facts: Facts) -> Plan:
        """The best use of (epsilon, delta) that an estimator's settings leave open.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) does not pay for the answers asked for, or not for one that can be heard.
        ValueError
            More answers than public rows, or a number out of range.
        """
        teachers, epsilon, delta = _teachers(model, facts.n_units), facts.epsilon, facts.delta
        n_answers, n_public = model.n_answers, facts.n_public
        if n_answers is not None:
            check.integer(n_answers=n_answers, least=1)
            if n_answers > n_public:
                raise ValueError(
                    f"n_answers={n_answers} must be at most the {n_public} public rows there are"
                )
        if model.mechanism is None:
            most = min(n_public, max(_ENOUGH_ANSWERS, _ANSWERS_A_CLASS * facts.n_classes))
            audible = asked(GNMax(sigma=teachers / _AUDIBLE), model.screen).curve(bound="classic")
            n_answers = n_answers or max(1, _affordable(audible, epsilon=epsilon, delta=delta, most=most))
            mechanism = _question(n_answers, model.screen, teachers, epsilon, delta)
        else:
            mechanism = asked(model.mechanism, model.screen)
            price = mechanism.curve()
            paid = _affordable(price, epsilon=epsilon, delta=delta, most=n_answers or n_public)
            if paid < (n_answers or 1):
                cost = ((n_answers or 1) * price).epsilon(delta)
                raise BudgetExceeded(
                    f"epsilon={epsilon:g} at delta={delta:g} does not pay for {n_answers or 1} × "
                    f"{mechanism!r}, which would cost {check.nats(cost)}: use "
                    f"{f'n_answers={paid} or fewer, ' if paid else ''}more noise, or a larger epsilon",
                    asked=cost,
                    left=epsilon,
                )
            n_answers = paid
        return cls(n_teachers=teachers, n_answers=n_answers, mechanism=mechanism, delta=delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan(Planned):
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

    way: ClassVar[str] = "labels"

    n_teachers: int
    n_answers: int
    n_queries: int
    mechanism: Any
    delta: float

    def __post_init__(self) -> None:
        check.integer(n_teachers=self.n_teachers, n_answers=self.n_answers, least=1)
        if self.n_queries < self.n_answers:
            raise ValueError(
                f"n_queries must be at least n_answers={self.n_answers}, got {self.n_queries}: "
                "no row is answered that was not asked about"
            )

    @property
    def steps(self) -> tuple[Step, ...]:
        """The screen, if there is one, for each query, and the argmax for each answer."""
        return _stages(self.mechanism, self.n_queries, self.n_answers)

    @property
    def sizes(self) -> dict[str, Any]:
        """The number of queries."""
        return {"n_queries": self.n_queries}

    @classmethod
    def of(cls, model: Any, facts: Facts) -> LabelPlan:
        """The plan of an estimator; noise that is not given is the least that answers every query.

        Raises
        ------
        BudgetExceeded
            (epsilon, delta) does not pay for it.
        ValueError
            More queries than rows or fewer than answers, or a number out of range.
        """
        n_rows, epsilon, delta, screen = facts.n_units, facts.epsilon, facts.delta, model.screen
        n_answers, n_queries = model.n_answers, model.n_queries
        n_answers = min(n_rows, _ANSWERS_A_CLASS * facts.n_classes) if n_answers is None else n_answers
        check.integer(n_answers=n_answers, least=1)
        teachers = _teachers(model, n_rows)
        if n_queries is None:
            n_queries = n_answers if screen is None else min(n_rows, _QUERIES_AN_ANSWER * n_answers)
        check.integer(n_queries=n_queries, least=1)
        if n_queries > n_rows:
            raise ValueError(f"n_queries={n_queries} must be at most the {n_rows} rows there are")
        mechanism = (
            _question(n_queries, screen, teachers, epsilon, delta)
            if model.mechanism is None
            else asked(model.mechanism, screen)
        )
        plan = cls(
            n_teachers=teachers, n_answers=n_answers, n_queries=n_queries, mechanism=mechanism, delta=delta
        )
        if not plan.epsilon <= epsilon:
            raise BudgetExceeded(
                f"epsilon={epsilon:g} at delta={delta:g} does not pay for {n_queries} queries and "
                f"{n_answers} × {mechanism!r}, which would cost {check.nats(plan.epsilon)}: use more "
                "noise, fewer of them, or a larger epsilon",
                asked=plan.epsilon,
                left=epsilon,
            )
        return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to learn: its plan, its fitted public cells, and the accuracy expected of each way tried.

    What can fail is tried before anything is charged.
    """

    accountant: ClassVar[str]
    advice: ClassVar[str]  # where nothing was learned
    stages: ClassVar[dict[str, str]]  # of progress, and what the command line calls them

    plan: Any
    cells: Any = None
    expected: dict[str, float] = field(default_factory=dict)

    def learn(self, model: Any, data: Data, seeds: Seeds, session: Session) -> Run:
        """Vote, pay, release and teach.

        Raises
        ------
        BudgetExceeded
            The ledger cannot pay for the plan.
        ValueError
            Teachers, student, cells or mechanism fail on made-up labels and votes.
        """
        raise NotImplementedError

    def trial(self, model: Any, world: World, rng: np.random.Generator) -> float:
        """Accuracy if the private rows are distributed as public rows with made-up labels are."""
        raise NotImplementedError

    def record(self, run: Run, owned: Owned) -> dict[str, Any]:  # noqa: ARG002
        """The parts of a result, ``utility`` and ``owner``, that only this way has: none."""
        return {}

    def finding(self, run: Run, **settings: Any) -> Finding:
        """The lower bound of an adversary who knows everything but one unit."""
        raise NotImplementedError

    def require_hope(self, *, n_units: int, n_classes: int, n_public: int, unit: str, epsilon: float) -> None:
        """Raise ValueError where noise would drown the data; the message says what would do."""
        raise NotImplementedError

    def words(self, *, n_units: int, n_public: int, unit: str, teacher: str) -> dict[str, str]:
        """Who answers which questions, and how."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Public rows with labels: they stand for the private rows; half of them stay public.

    ``new`` are rows and labels to measure with. None: the half that is not public, which votes, too.
    """

    rows: Any
    y: np.ndarray
    facts: Facts
    new: tuple[Any, np.ndarray] | None = None

    @property
    def public(self) -> Any:
        """Rows that are public in this world."""
        return _safe_indexing(self.rows, np.arange(len(self.y) // 2))

    def score(self, student: Any) -> float:
        """Accuracy on the other rows."""
        if self.new is not None:
            rows, y = self.new
        else:
            others = np.arange(len(self.y) // 2, len(self.y))
            rows, y = _safe_indexing(self.rows, others), self.y[others]
        return float((np.asarray(student.predict(rows)) == y).mean())


def _teachers(model: Any, n_units: int) -> int:
    n_teachers = model.manifest.n_teachers if isinstance(model.manifest, Manifest) else model.n_teachers
    if n_teachers == "auto":
        return min(n_units, _MOST_TEACHERS, max(5, round(n_units / _UNITS_A_TEACHER)))
    check.integer(n_teachers=n_teachers, least=1)
    if n_teachers > n_units:
        raise ValueError(
            f"{n_teachers} teachers need at least {n_teachers} units, but there are {n_units}: "
            f"use n_teachers={n_units} or fewer"
        )
    return int(n_teachers)


def asked(mechanism: Any, screen: Threshold | None) -> Any:
    """Combine an estimator's mechanism and screen into one mechanism; TypeError unless it is of ballots."""
    check_ballot(mechanism)
    return mechanism if screen is None else Confident(screen=screen, argmax=mechanism)


def _affordable(price: Curve, *, epsilon: float, delta: float, most: int) -> int:
    """The largest number of uses up to ``most`` that stays within (epsilon, delta)."""
    low, high = 0, most + 1  # low fits, high is not known to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (middle * price).epsilon(delta) <= epsilon else (low, middle)
    return low


@functools.lru_cache(maxsize=256)
def _question(n_answers: int, screen: Threshold | None, n_teachers: int, epsilon: float, delta: float) -> Any:
    """The question with the least noise, to four digits upwards, whose answers fit into (epsilon, delta)."""
    within = epsilon * (1 - 1e-9)  # a ledger rounds each price up once more

    def question(sigma: float) -> Any:
        return asked(GNMax(sigma=sigma), screen)

    def spent(sigma: float) -> float:
        return float((n_answers * question(sigma).curve()).epsilon(delta))

    goal = Goal(question, n_answers=n_answers, epsilon=within, delta=delta)
    start = goal.about()
    if not start < _SURELY * n_teachers and (drowned := spent(n_teachers)) > within:
        raise BudgetExceeded(
            f"epsilon={epsilon:g} at delta={delta:g} is too small for n_answers={n_answers}: noise would "
            f"drown all {n_teachers} teachers; use a larger epsilon, more teachers, or a smaller n_answers",
            asked=drowned,
            left=epsilon,
        )
    sigma = _upwards(max(min(start, _LARGEST) * (1 + _FURTHER), _LEAST), _DIGITS)
    for _ in range(_TRIES):  # the least noise of a few digits that fits, or one near it, if it comes soon
        over = goal.excess(sigma)
        better = _upwards(max(sigma * math.exp(min(over, 1.0)) * (1 + _FURTHER / 5), _LEAST), _DIGITS)
        if over <= 0 and better >= sigma:
            return question(sigma)
        sigma = better
    sigma = max(
        least_noise(question, n_answers=n_answers, epsilon=epsilon, delta=delta, digits=_DIGITS), _LEAST
    )
    while spent(sigma) > within:
        sigma = _upwards(sigma * (1 + 10.0 ** (1 - _DIGITS)), _DIGITS)
    return question(sigma)


def least_noise(
    family: Callable[[float], Any], *, n_answers: int, epsilon: float, delta: float, digits: int
) -> float:
    """The least noise, to a few digits upwards, whose answers fit into (epsilon, delta)."""
    within = epsilon * (1 - 1e-9)  # a ledger rounds each price up once more
    precision = 10.0**-digits
    noise = calibrate(family, n_answers=n_answers, epsilon=within, delta=delta, precision=precision)
    return _upwards(noise, digits)


def _upwards(value: float, digits: int) -> float:
    """Round up to a few digits."""
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return float(f"{math.ceil(value / step) * step:.{digits}g}")

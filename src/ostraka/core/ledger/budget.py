"""Budgets: the rules by which a total cost fits, the errors of a ledger, and how long what is left lasts.

::

    OstrakaError          base of all errors that a caller can act on
    ├── BudgetExceeded    the charge does not fit: ``asked``, ``left``; nothing was recorded
    └── LedgerError       the ledger is damaged, foreign or bound to something else: ``seq``
        ├── KeyConflict         a key was used again for another question
        ├── LedgerMoved         the ledger was removed, replaced or rolled back while it was open
        └── LedgerUnavailable   the ledger cannot be reached now: try again with the same key

BudgetExceeded is not a LedgerError, so code that handles damage does not hide a spent budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import begins

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS_PER_NAT = 2.0**50
DAMAGED = (
    "is damaged, so what was charged is not known: keep the file, count its whole budget as spent, "
    "and answer no more from this data"
)
# Shares of delta, fixed before anything is asked: of noise in floating point, of Gaussian DP, of the orders.
_FOR_SLACK, _FOR_GAUSSIANS, _FOR_ORDERS = 0.10, 0.15, 0.75
# Weight falls by this power of how far an order is from the one that is best for a linear curve.
_FALL = 3.0
_OUTWARD = 1e-9
# Shares of delta in a run that begins with argmaxes, screens or Gaussians: of their exact composition, of the
# orders; and of noise in floating point, in the first of these shares.
_EXACTLY, _OTHERWISE, _OF_EXACT_FOR_SLACK = 0.9, 0.1, 1e-3
DAY = 86_400  # seconds
_STEP = 600  # seconds that are counted together
_LEAST = 3_600.0  # seconds that a rate is taken over, at least: the first questions are no rate


class OstrakaError(Exception):
    """Base of the errors that a caller can act on. Other exceptions are wrong arguments or defects."""


class BudgetExceeded(OstrakaError):  # noqa: N818  (a refusal, not an error)
    """The charge does not fit into the budget. Nothing was recorded, nothing may be answered.

    Attributes
    ----------
    asked, left : float, nats
        Epsilon the charge would have added, and the epsilon that is left, at the budget's delta.
    """

    def __init__(self, message: str, *, asked: float = math.inf, left: float = 0.0) -> None:
        super().__init__(message)
        self.asked = asked
        self.left = left


class LedgerError(OstrakaError):
    """The ledger cannot be used, or not for this. Nothing may be answered.

    Attributes
    ----------
    seq : int or None
        The first bad entry, where the entries do not hold together.
    """

    def __init__(self, message: str, *, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq


class LedgerUnavailable(LedgerError):  # noqa: N818  (a condition that passes)
    """The ledger is locked, out of disk space or out of reach. Nothing was answered; it stays usable.

    The same call can be tried again. With the same key it is charged once, even where a database
    lost the connection during the commit of the first try.
    """


class LedgerMoved(LedgerError):  # noqa: N818  (the state of the file)
    """The ledger or its anchor was removed, replaced or rolled back while it was open.

    What was charged is not on record there. Nothing more may be answered by this process.
    """


class KeyConflict(LedgerError):  # noqa: N818  (a refusal, not an error)
    """A key of one question was used for another question. Nothing was charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Upper limit of all spending: (epsilon, delta)-differential privacy.

    Attributes
    ----------
    epsilon : float > 0, nats
    delta : float in (0, 1)
    adaptive : bool
        True, the default: earlier answers may decide anything about what is asked next, at about 1 % of
        the answers of one mechanism and 6 % of those of several (docs/composition.md); other costs than
        argmaxes, screens and Gaussians fit if :class:`RenyiFilter` says so. False: for plans whose
        mechanisms are fixed in advance, or where earlier answers decide only how often one of them is
        used; the total at the best order counts. A ledger of before keeps its rule.

    Raises
    ------
    ValueError
        epsilon or delta is out of range or not a number.

    Examples
    --------
    >>> Budget(epsilon=2.0, delta=1e-5)
    Budget(epsilon=2.0, delta=1e-05, adaptive=True)
    """

    epsilon: float
    delta: float
    adaptive: bool = None  # type: ignore[assignment]  # None: True, but a ledger keeps the rule it began with
    _any_rule: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.delta(self.delta)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(self, "_any_rule", self.adaptive is None)
        if self.adaptive is None:
            object.__setattr__(self, "adaptive", True)
        if not isinstance(self.adaptive, bool):
            raise ValueError(f"adaptive must be True or False, got {self.adaptive!r}")  # noqa: TRY004

    def agrees_with(self, stored: Budget) -> bool:
        """Whether a ledger has this budget. Where no rule is asked for, it keeps the one it began with."""
        return self == stored or (self._any_rule and self == replace(stored, adaptive=True))

    def allows(self, total: Curve, *, first: Curve | None = None) -> bool:
        """Whether a total cost is within the budget. NaN is not.

        Parameters
        ----------
        total : Curve
        first : Curve, optional
            What was charged first. It decides by which rule an adaptive budget allows totals, from then on.
            None: something like ``total``.

        Examples
        --------
        >>> from ostraka import GNMax
        >>> total = 260 * GNMax(sigma=40.0).curve()
        >>> [Budget(epsilon=2.0, delta=1e-5, adaptive=adaptive).allows(total) for adaptive in (False, True)]
        [True, True]
        """
        if self.adaptive:
            return allows_adaptively(total, total if first is None else first, self.epsilon, self.delta)
        # the cap is rounded up to whole units, as totals are: a cost of exactly epsilon fits
        cap = math.ceil(self.epsilon * UNITS_PER_NAT) / UNITS_PER_NAT
        if total.laws is not None and replace(total, laws=None).epsilon(self.delta) <= cap:
            return True  # by the bounds that need no table, which often suffice
        return total.epsilon(self.delta) <= cap


def allows_adaptively(total: Curve, first: Curve, epsilon: float, delta: float) -> bool:
    """Whether a run that began with ``first`` may end with this total, whatever answers decided.

    Where it began with argmaxes, screens or Gaussians, their composition counts (docs/composition.md). Runs
    that end within it add at most their share of delta, all others at most the share of the Rényi filter.
    """
    if not begins(first.laws):
        return RenyiFilter(epsilon=epsilon, delta=delta).fits(total)
    if not total.publishable:
        raise ValueError("a filter must see publishable curves only: a refusal is public")
    share = _EXACTLY * delta
    slack = (1 + math.exp(min(epsilon, 700.0))) * total.slack
    if total.laws is not None and slack <= _OF_EXACT_FOR_SLACK * share:
        from ostraka.core.laws import adaptive  # noqa: PLC0415  (compiled code, loaded when needed)

        if adaptive.fits(total.laws, epsilon=epsilon, delta=(1 - _OF_EXACT_FOR_SLACK) * share):
            return True
    return RenyiFilter(epsilon=epsilon, delta=_OTHERWISE * delta).fits(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenyiFilter:
    """Whether a total cost fits (epsilon, delta), where answers may decide which mechanisms come next.

    ``curve.epsilon(delta) <= epsilon`` picks the best order *afterwards*. That is sound for a plan fixed
    in advance. Where answers decide what comes next, the order that is best depends on the answers,
    and the rule is wrong: docs/accounting.md shows a game of two questions in which it permits 1.29
    times its delta. This filter fixes its orders and their shares before the first question.

    Attributes
    ----------
    epsilon : float > 0, nats
    delta : float in (0, 1)
        The budget. Public.
    orders : tuple of float > 1, finite
        Which orders take part. One order: the filter of Feldman and Zrnic.

    Raises
    ------
    ValueError
        A number is out of range.

    Guarantees
    ----------
    If every mechanism is asked only while the total of the curves so far *and its own* ``fits``, all that
    is released together is (epsilon, delta)-DP, however the mechanisms were chosen from earlier answers.

    Proof, for neighbours P and Q. L is the log ratio of P to Q of all that was seen, R(a) the total at
    order a. For every order, exp((a - 1)(L - R(a))) is a supermartingale under P that starts at 1
    (Feldman and Zrnic 2021, arXiv:2008.11193, Thm. 3.1; Lécuyer 2021, arXiv:2103.01379, Thm. 1), and so
    is its average M over orders, with weights w(a) fixed in advance (the method of mixtures). The rule
    for the orders is: for every number l > epsilon,
    1 - exp(epsilon - l) <= delta_1 * sum_a w(a) exp((a - 1)(l - R(a))). Where the run ends within it,
    the hockey-stick divergence E_P[max(0, 1 - exp(epsilon - L))] is at most delta_1 E[M] <= delta_1. Runs
    that end within the Gaussian rule (total mu^2 of Gaussian DP at most what (epsilon, delta_2) allows;
    Koskela, Tobaben and Honkela 2022, arXiv:2209.15596; Smith and Thakurta 2022, arXiv:2210.17520) add
    at most delta_2. Runs whose total at order infinity is at most epsilon have L <= epsilon and add
    nothing. Slack in total is kept below delta_3 / (1 + e^epsilon), and costs delta_3. The three shares
    add up to delta.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> budget = RenyiFilter(epsilon=2.0, delta=1e-5)
    >>> price = GNMax(sigma=40.0).curve()
    >>> budget.fits(200 * price), budget.fits(300 * price)
    (True, False)
    """

    epsilon: float
    delta: float
    orders: tuple[float, ...] = ORDERS[:-1]

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.delta(self.delta)
        if not self.orders or not all(1 < order < math.inf for order in self.orders):
            raise ValueError("orders must be finite and above 1, and at least one")

    def fits(self, total: Curve) -> bool:
        """Return whether the run may end with this total. NaN and unknown orders do not fit.

        Raises
        ------
        ValueError
            The total was computed from private data: refusals would tell something about them.
        """
        if not total.publishable:
            raise ValueError("a filter must see publishable curves only: a refusal is public")
        if not (1 + math.exp(min(self.epsilon, 700.0))) * total.slack <= _FOR_SLACK * self.delta:
            return False
        pure = total.rdp[-1] if total.orders[-1] == math.inf else math.inf
        if pure <= self.epsilon:
            return True
        gaussian = Curve((2.0,), (math.inf,), mu_squared=total.mu_squared)
        if gaussian.delta(epsilon=self.epsilon) <= _FOR_GAUSSIANS * self.delta:
            return True
        # by orders: whether the minimum of a convex function of t = l - epsilon > 0 is not negative
        rdp = dict(zip(total.orders, total.rdp, strict=True))
        log_weights = _log_weights(self.epsilon, self.delta, self.orders)
        rows = [
            (order - 1, weight + (order - 1) * (self.epsilon - rdp[order]))
            for order, weight in zip(self.orders, log_weights, strict=True)
            if rdp.get(order, math.inf) < math.inf
        ]
        if not rows:
            return False
        slopes, heights = np.array(rows).T
        heights = heights + math.log(_FOR_ORDERS * self.delta) - _OUTWARD * (1 + np.abs(heights))
        return _stays_above(slopes, heights)


@lru_cache(maxsize=256)
def _log_weights(epsilon: float, delta: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Weights of the orders; the order which is best for costs proportional to the order has the largest."""
    excess = np.array(orders) - 1
    conversion = np.log1p(-1 / (1 + excess)) - (math.log(delta) + np.log1p(excess)) / excess
    best = excess[np.argmax((epsilon - conversion) / (1 + excess))]
    log_weights = -_FALL * np.abs(np.log(excess / best))
    total = log_weights.max() + math.log(np.exp(log_weights - log_weights.max()).sum())
    return tuple((log_weights - total).tolist())


def _stays_above(slopes: np.ndarray, heights: np.ndarray) -> bool:
    """Return whether log sum exp(heights + slopes t) >= log(1 - e^-t) for every t > 0."""
    # the difference is convex in t and its derivative changes sign once: between two points on both sides of
    # that place it lies above the point where their tangents meet

    def at(t: float) -> tuple[float, float]:
        exponents = heights + slopes * t
        top = float(exponents.max())
        terms = np.exp(exponents - top)
        value = top + math.log(float(terms.sum())) - math.log(-math.expm1(-t))
        return value, float(terms @ slopes / terms.sum()) - 1 / math.expm1(t)

    low, high = 1e-12, 1.0
    while at(high)[1] < 0:
        high *= 2
        if high > 1e6:
            return False
    for _ in range(200):
        middle = math.sqrt(low * high)
        value, slope = at(middle)
        if not value >= 0:
            return False
        low, high = (middle, high) if slope < 0 else (low, middle)
        (low_value, falls), (high_value, rises) = at(low), at(high)
        meet = (low_value * rises - high_value * falls + falls * rises * (high - low)) / (rises - falls)
        if meet >= 0:
            return True
        if high / low < 1 + 1e-12:
            break
    return False


class Pace:
    """Uses charged in the last day, counted in steps of ten minutes.

    >>> pace = Pace()
    >>> for second in range(0, 3600, 10):
    ...     pace.add(second, 1)
    >>> pace.per_second(now=3600), pace.per_second(now=2 * DAY)
    (0.1, 0.0)
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.steps: dict[int, int] = {}

    def add(self, at: int, uses: int) -> None:
        """Count uses charged at a time. Steps that are too old are forgotten."""
        step = at // _STEP
        self.first = at if self.first is None else min(self.first, at)
        if step in self.steps:
            self.steps[step] += uses
            return
        self.steps[step] = uses
        oldest = step - DAY // _STEP
        self.steps = {start: n for start, n in self.steps.items() if start > oldest}

    def in_a_day(self, now: int) -> int:
        """Uses in the 24 hours before ``now``."""
        return sum(n for step, n in self.steps.items() if step > now // _STEP - DAY // _STEP)

    def per_second(self, now: int) -> float:
        """The rate over the 24 hours before ``now``, or since the first use, but over an hour at least."""
        begin = max(self.first or 0, (now // _STEP - DAY // _STEP + 1) * _STEP)
        return self.in_a_day(now) / max(now - begin, _LEAST)

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {"first": self.first, "steps": list(self.steps.items())}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Pace:
        """Restore from the value of :meth:`plain`."""
        pace = cls()
        pace.first, pace.steps = plain["first"], {int(step): int(n) for step, n in plain["steps"]}
        return pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The number of answers that a budget still pays for, and how long they last. All fields are public.

    Attributes
    ----------
    mechanism : str
        What was charged last; empty before the first charge.
    answers_left : int
        How many more uses of it fit.
    in_a_day : int
        Uses of anything that were charged in the last 24 hours.
    seconds_to_empty : float or None
        How long ``answers_left`` last at that rate; None where nothing was charged in 24 hours.
    """

    mechanism: str = ""
    answers_left: int = 0
    in_a_day: int = 0
    seconds_to_empty: float | None = None

"""A running total under a cap: whether one more use fits, decided seldom and remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.curve import Curve
from ostraka.ledger.chain import Price, fold, to_curve

if TYPE_CHECKING:
    from ostraka.ledger.budget import Budget

__all__ = ["Purse"]

_WIDEST = 4096  # uses that one conversion may grant ahead
_NARROWER = 8
_PRICES = 8  # kept apart before they are added up


class Purse:
    """What one account has spent, and its cap.

    Turning a total into epsilon takes as long as writing a hundred charges. Totals only grow, and
    what may be spent depends on nothing else; so if ``n`` more uses would still be allowed, the
    next ``n`` need not be asked about. ``fits`` decides for as many as it can, down to exactly one.
    """

    __slots__ = ("_ahead", "_epsilon", "_owed", "_priced", "_refused", "_total", "_width", "budget")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._priced: Price | None = None  # any price: it knows the unit and the orders
        self._total: bytes | None = None
        self._owed: dict[Price, int] = {}
        self._width = 1
        self._ahead: dict[Price, int] = {}
        self._refused: set[Price] = set()
        self._epsilon: float | None = None

    def after(self, price: Price | None = None, *, uses: int = 0) -> bytes | None:
        """The total after ``uses`` more uses, in whole units; None before the first."""
        total = self._total
        for owed, times in self._owed.items():
            total = fold(total, owed.cost, uses=times)
        return fold(total, price.cost, uses=uses) if price else total

    def curve(self, price: Price | None = None, *, uses: int = 0) -> Curve:
        """The total after ``uses`` more uses, as a curve."""
        total, priced = self.after(price, uses=uses), price or self._priced
        return to_curve(total, priced.unit, priced.orders) if priced and total is not None else Curve.zero()

    def fits(self, price: Price) -> bool:
        """Whether one more use is allowed."""
        if self._ahead.get(price, 0) > 0:
            return True
        if price in self._refused:
            return False
        self._ahead.clear()
        times = self._width
        while not self.budget.allows(self.curve(price, uses=times)):
            if times == 1:
                self._refused.add(price)
                return False
            times = max(1, times // _NARROWER)
        self._ahead[price] = times
        self._width = min(2 * times, _WIDEST)
        return True

    def take(self, price: Price, *, uses: int = 1, under: Price | None = None) -> None:
        """Spend; ``under`` is the price that :meth:`fits` was asked about, and costs at least as much."""
        self._owed[price] = self._owed.get(price, 0) + uses
        self._priced, self._epsilon = price, None
        left = self._ahead.get(under, 0) - uses if under else 0
        if left > 0 and under:
            self._ahead[under] = left
        else:
            self._ahead.clear()

    def settle(self) -> None:
        """Add up: nothing since can be undone any more."""
        if len(self._owed) > _PRICES:
            self._total = self.after()
            self._owed.clear()

    def resume(self, price: Price, total: bytes) -> None:
        """Go on from a total that was stored."""
        self._priced, self._total = price, total

    def cap(self, budget: Budget) -> None:
        """Set what may be spent."""
        self.budget = budget
        self._ahead.clear()
        self._refused.clear()

    @property
    def epsilon(self) -> float:
        """Epsilon of the total, at the budget's delta."""
        if self._epsilon is None:
            self._epsilon = self.curve().epsilon(self.budget.delta)
        return self._epsilon

    @property
    def left(self) -> float:
        """Epsilon that is left; never negative."""
        return max(0.0, self.budget.epsilon - self.epsilon)

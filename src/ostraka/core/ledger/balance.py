"""Balance of one account: total spent, cap, and whether more uses fit."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from ostraka.core.curve import Curve
from ostraka.core.ledger.chain import Price, fold, to_curve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.ledger.budget import Budget

_WIDEST = 4096  # uses that one check may grant ahead,
_STEP = 0.01  # and the share of the cap that these uses may take
_PRICES = 8  # prices kept separately before they are summed
_SMALL = 0.05  # share of the cap up to which bounds that need no table are near enough
_OFTEN = 16  # uses of one price in a row, after which a decision may be made for several


class Balance:
    """The total spent by one account, and its cap.

    Converting a total to epsilon takes as long as writing a hundred charges. Totals only grow, and
    the decision depends on the total only. So if ``n`` more uses are allowed, the next ``n`` need no
    check. :meth:`fits` decides for as many uses at once as it can, down to one near the cap.
    """

    __slots__ = (
        "_ahead",
        "_deciding",
        "_epsilon",
        "_for",
        "_owed",
        "_priced",
        "_refused",
        "_row",
        "_then",
        "_total",
        "_width",
        "budget",
    )

    def __init__(self, budget: Budget, deciding: Callable[[Price], Price] | None = None) -> None:
        self.budget = budget
        self._deciding = deciding  # which price of the ledger decides an adaptive budget's rule
        self._priced: Price | None = None  # any price charged: source of unit and orders
        self._total: bytes | None = None
        self._owed: dict[Price, int] = {}
        self._epsilon: float | None = None
        self._for: Price | None = None  # _ahead more uses of it fit, and lead to epsilon _then
        self._ahead, self._then, self._width = 0, 0.0, 1
        self._refused: set[Price] = set()
        self._row: tuple[Price | None, int] = None, 0  # the price decided on last, and how often in a row

    def now(self) -> Balance:
        """A copy that later charges do not change: what takes long is worked out while others charge."""
        balance = copy.copy(self)
        balance._owed = self._owed.copy()  # noqa: SLF001  (of its own class)
        return balance

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

    def fits(self, price: Price, *, uses: int = 1) -> bool:
        """Return whether this many more uses are allowed."""
        if self._ahead >= uses and self._for is price:
            return True
        if price in self._refused:
            return False
        before = self.at_most
        self._width = max(uses, self._width)
        while not self._reaches(price, before, least=uses):
            if self._width == uses:
                if uses == 1:
                    self._refused.add(price)
                return False
            self._width = max(uses, self._width // 4)
        if self._then - before < _STEP * self.budget.epsilon / 3:
            self._width = min(2 * self._width, _WIDEST)
        return True

    def decide(self, price: Price, *, uses: int) -> float | None:
        """Epsilon after more uses, or None where they are not allowed.

        Exact, until one price was asked for often in a row. From then on it is an upper bound within a
        hundredth of the cap, which one conversion gives for many decisions.
        """
        last, times = self._row
        self._row = price, times + 1 if last is price else 1
        if self._row[1] > _OFTEN:
            return self._then if self.fits(price, uses=uses) else None
        total = self.curve(price, uses=uses)
        return total.epsilon(self.budget.delta) if self.allows(total, price) else None

    def allows(self, total: Curve, price: Price) -> bool:
        """Whether the total after more uses of this price is within the cap."""
        if not self.budget.adaptive:
            return self.budget.allows(total)
        began = self._deciding(price) if self._deciding else price
        return self.budget.allows(total, first=to_curve(began.cost, began.unit, began.orders))

    def _reaches(self, price: Price, before: float, *, least: int) -> bool:
        """Whether ``_width`` uses are allowed, and stay within one step's share of the cap."""
        total = self.curve(price, uses=self._width)
        if not self.allows(total, price):
            return False
        then = self._near(total)
        if self._width > least and then - before > _STEP * self.budget.epsilon:
            return False
        self._for, self._ahead, self._then = price, self._width, then
        return True

    def uses_left(self, price: Price, *, most: int) -> int:
        """The number of further uses of a price that are allowed, up to ``most``, by bisection; exact."""
        low, high = 0, 1
        while high <= most and self.allows(self.curve(price, uses=high), price):
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            if self.allows(self.curve(price, uses=middle), price):
                low = middle
            else:
                high = middle
        return low

    def take(self, price: Price, *, uses: int = 1, under: Price | None = None) -> None:
        """Spend uses. ``under`` is the price that :meth:`fits` approved; it costs at least as much."""
        self._owed[price] = self._owed.get(price, 0) + uses
        self._priced, self._epsilon = price, None
        if under is not None and self._for is under and self._ahead >= uses:
            self._ahead -= uses
        else:
            self._for, self._ahead = None, 0

    def settle(self) -> None:
        """Sum the recent prices: their charges are durable and cannot be rolled back."""
        if len(self._owed) > _PRICES:
            self._total = self.after()
            self._owed.clear()

    def resume(self, price: Price, total: bytes) -> None:
        """Continue from a stored total."""
        self._priced, self._total = price, total

    def cap(self, budget: Budget) -> None:
        """Set the cap."""
        self.budget = budget
        self._for, self._ahead = None, 0
        self._refused.clear()

    @property
    def at_most(self) -> float:
        """A cheap upper bound on the total's epsilon."""
        return self._near(self.curve()) if self._for is None else self._then

    def _near(self, total: Curve) -> float:
        """Epsilon of a total, or a little more: exact composition counts where it matters."""
        quick = replace(total, laws=None).epsilon(self.budget.delta)
        return quick if quick <= _SMALL * self.budget.epsilon else total.epsilon(self.budget.delta)

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

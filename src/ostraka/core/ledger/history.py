"""State derived from the entries: head, totals and accounts. Built by reading, updated while writing.

The balance of one account: total spent, cap, and whether more uses fit.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ostraka.core.curve import Curve
from ostraka.core.ledger.budget import DAMAGED, Budget, LedgerError
from ostraka.core.ledger.chain import (
    CHARGE,
    GRANT,
    NOTE,
    Price,
    Row,
    Seal,
    fold,
    is_free,
    protection,
    to_curve,
    without_laws,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.core.ledger.chain import Fields
    from ostraka.core.ledger.store import Store


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
        while True:
            # whether so many uses are allowed, and stay within one step's share of the cap
            total = self.curve(price, uses=self._width)
            if self.allows(total, price):
                then = self._near(total)
                if self._width == uses or then - before <= _STEP * self.budget.epsilon:
                    self._for, self._ahead, self._then = price, self._width, then
                    break
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


_CHARGED = itemgetter(*map(Row._fields.index, ("account", "price", "uses", "protects", "simulation")))
_STATE = Row._fields.index("state")
SNAPSHOT_EVERY = 10_000  # entries between two snapshots of all totals, from which a start can resume


# The first digest says by which rule an adaptive budget decides. A ledger that began with RenyiFilter alone
# keeps it: runs that ended under that rule have spent delta of their own.
_PLAN, _EARLIER_RULE, _RULE = 0, 1, 2
TWO_RELATIONS = "two neighbouring relations"  # of a ledger from before they were told apart


class Total(NamedTuple):
    """Total of one account after entry ``seq``. The ledger's own account has an empty name and no cap."""

    seq: int
    account: str
    cap: float | None
    protects: str
    simulation: int
    total: bytes | None


class History:
    """The state of a ledger after its entry number ``seq``."""

    def __init__(self, path: str, budget: Budget, seal: Seal, name: str | None = None) -> None:
        self.path, self.budget, self._seal, self._name = path, budget, seal, name
        self.genesis = self._genesis(_RULE if budget.adaptive else _PLAN)
        self.seq, self.head = 0, self.genesis
        self.protects: str | None = None  # whom everything protects, as the first charge was recorded
        self.bound: tuple[str, str, bytes] | None = None  # whom, and under which relation; unit, orders
        self.simulation = False
        self.prices: dict[int, Price] = {}
        self._first: Price | None = None  # of the first charge that is not free, by order of entries
        self._earlier_rule = False
        self.dataset = Balance(budget, self._deciding)
        self.accounts: dict[str, Balance] = {}
        self._by_value: dict[tuple[str, str, bytes, bytes], Price] = {}
        self._like: tuple[Price, str] | None = None  # the last price and unit that were checked
        self._snapshot = 0
        self._new: list[Price] = []
        self._quoted: dict[tuple[str, str, bytes, bytes], Price] = {}
        self._alone: dict[tuple[str, str, bytes, bytes], float] = {}
        self._touched: set[Balance] = set()
        self.dirty = False  # memory holds charges that are not on stable storage

    def begins_with(self, head: bytes) -> bool:
        """Whether this is the digest of the budget alone, before any entry."""
        return head == self.genesis or (self.budget.adaptive and head == self._genesis(_EARLIER_RULE))

    def _genesis(self, rule: int) -> bytes:
        epsilon, delta = self.budget.epsilon.hex(), self.budget.delta.hex()
        named = [] if self._name is None else [self._name]
        return self._seal.link(bytes(32), ["ostraka", epsilon, delta, rule, self._seal.name, *named])

    def _deciding(self, price: Price) -> Price:
        """The price that decides the rule of an adaptive budget, where this one is asked for next."""
        # public, and fixed before the first answer; what is free tells nothing
        first = self._first or price
        return without_laws(first) if self._earlier_rule else first

    def _note_first(self, priced: Price | None) -> None:
        if self._first is None and priced and not is_free(priced.cost):
            self._first = priced

    def _note_rule(self, row: Fields, priced: Price | None) -> None:
        """Keep the earlier rule where the first entry follows its digest."""
        before = self._genesis(_EARLIER_RULE)
        if self.budget.adaptive and row[-1] == self._seal.entry(row, before, _digest(priced)):
            self.genesis, self._earlier_rule = before, True

    # Reading -----------------------------------------------------------------------------------

    def follow(self, store: Store) -> None:
        """Read, check and count the entries that were added since."""
        tally: Counter[tuple[str, Price, int]] = Counter()
        bound: set[tuple[Any, ...]] = set()  # charges whose like needs no check
        for block in store.blocks(self.seq):
            n_sound = self._sound(block, store)
            others = [
                at
                for at, fields in enumerate(block[:n_sound])
                if fields[1] != CHARGE or fields[4] is None or fields[_STATE] is not None
            ]
            start = 0
            for end in (*others, n_sound):
                self._tally(block[start:end], tally, bound)
                start = end + 1
                if end == n_sound:
                    break
                # a grant, a note, or an entry with a snapshot of all totals
                row = Row._make(block[end])
                if row.kind == CHARGE and row.price is not None:
                    self._tally([block[end]], tally, bound)
                elif row.kind == GRANT:
                    self._granted(row)
                elif row.kind != NOTE:
                    raise self.damaged(row.seq, "it is neither a charge nor a grant nor a note")
                self.seq, self.head = row.seq, row.digest
                if row.state is not None:
                    self._count(tally)
                    totals, self._snapshot = self._totals(row.seq), row.seq
                    if row.state != self._digest_of(totals) or store.totals(row.seq) != totals:
                        raise self.damaged(row.seq, "its totals are not the totals of the entries up to it")
            if n_sound < len(block):
                fields = block[n_sound]
                if fields[0] != self.seq + 1:
                    raise self.damaged(self.seq + 1, "it is missing")
                self._priced(Row._make(fields), store)  # or it has no price
                raise self.damaged(fields[0], "its fields do not match its digest, or do not follow")
        self._count(tally)
        self.settle()

    def _sound(self, block: Sequence[Fields], store: Store) -> int:
        """How many entries of a block, from its first on, have their number and their digest."""
        if not self.seq:
            self._note_rule(block[0], self._priced(Row._make(block[0]), store))
            self.head = self.genesis
        numbers = {fields[4] for fields in block}
        if not numbers <= {None, *self.prices}:
            self.read_prices(store)
        of_price = {None: _NO_PRICE} | {n: self.prices[n].digest for n in numbers if n in self.prices}
        heads = [fields[-1] for fields in block]
        digests = self._seal.entries(
            block, [self.head, *heads[:-1]], [of_price.get(f[4], b"") for f in block]
        )
        follows = (
            seq == fields[0] and head == digest
            for seq, fields, head, digest in zip(count(self.seq + 1), block, heads, digests, strict=False)
        )
        return next((n for n, sound in enumerate(follows) if not sound), len(block))

    def _tally(
        self, charges: Sequence[Fields], tally: Counter[tuple[str, Price, int]], bound: set[tuple[Any, ...]]
    ) -> None:
        """Add sound charges to those that are counted, kind by kind; check what is not ``bound`` yet."""
        for charge, times in Counter(map(_CHARGED, charges)).items():
            account, price, uses, protects, simulation = charge
            priced = self.prices[price]
            if charge not in bound:
                bound.add(charge)
                seq = next(fields[0] for fields in charges if _CHARGED(fields) == charge)
                self._bind(seq, priced, protects)
                self.simulation |= bool(simulation)
                if account and account not in self.accounts:
                    raise self.damaged(seq, "it charges an account without a grant")
                self._note_first(priced)
            tally[account, priced, uses] += times
        if charges:
            self.seq, self.head = charges[-1][0], charges[-1][-1]

    def _bind(self, seq: int, priced: Price, protects: str) -> None:
        if (priced, protects) == self._like:
            return
        self.protects = self.protects or protects
        bound = (protection(protects, priced.mechanism), priced.unit, priced.orders)
        if self.bound not in (None, bound):
            if protects != self.protects or self.bound[1:] != bound[1:]:
                raise self.damaged(seq, "its unit or orders differ from the entries before")
            bound = (f"{protects} ({TWO_RELATIONS})", *bound[1:])  # from before ledgers knew relations
        self.bound, self._like = bound, (priced, protects)

    def _count(self, tally: Counter[tuple[str, Price, int]]) -> None:
        """Charge the counted uses to their accounts, and reset the counter."""
        for (account, priced, uses), times in tally.items():
            self.dataset.take(priced, uses=uses * times)
            self._touched.add(self.dataset)
            if account:
                self.accounts[account].take(priced, uses=times)
                self._touched.add(self.accounts[account])
        tally.clear()

    def resume(self, store: Store) -> None:
        """Start from the last snapshot of all totals instead of the first entry."""
        row = store.last_snapshot()
        if row is None:
            return
        totals = [Total(*total) for total in store.totals(row.seq)]
        self.read_prices(store)
        head = b""
        # the entries up to the first charge that is not free decide the rule of an adaptive budget
        for fields in store.rows(0) if self.budget.adaptive else ():
            paid = self._priced(Row._make(fields), store)
            if not head:
                self._note_rule(fields, paid)
                head = self.genesis
            if fields[-1] != self._seal.entry(fields, head, _digest(paid)):
                raise self.damaged(fields[0], "its fields do not match its digest, or do not follow")
            self._note_first(paid)
            if self._first is not None:
                break
            head = fields[-1]
        if self.checked(row, store).state != self._digest_of(totals):
            raise self.damaged(row.seq, "its totals are not those recorded")
        bound = next(iter(self.prices.values()), None)
        for priced in self.prices.values():
            self._bind(row.seq, priced, totals[0].protects)
        for total in totals:
            if total.account:
                self.accounts[total.account] = Balance(self._capped(total.cap), self._deciding)
            balance = self.accounts[total.account] if total.account else self.dataset
            if total.total is not None and bound:
                balance.resume(bound, total.total)
            self.simulation |= bool(total.simulation)
        self.seq, self.head, self._snapshot = row.seq, row.digest, row.seq

    def checked(self, row: Row, store: Store) -> Row:
        """Check the digest of an entry that was read on its own; return the entry."""
        self.check_each([row], store)
        return row

    def check_each(self, rows: Sequence[Row], store: Store) -> None:
        """Check the digests of entries that were read on their own."""
        heads = store.heads([row.seq - 1 for row in rows])
        for row in rows:
            before = heads.get(row.seq - 1, self.genesis)
            if row.digest != self._seal.entry(row, before, _digest(self._priced(row, store))):
                raise self.damaged(row.seq, "its fields do not match its digest, or do not follow")

    def _priced(self, row: Row, store: Store) -> Price | None:
        if row.price is None:
            return None
        if row.price not in self.prices:
            self.read_prices(store)
        if row.price not in self.prices:
            raise self.damaged(row.seq, "it has no price")
        return self.prices[row.price]

    def read_prices(self, store: Store) -> None:
        """Read the prices that were added since."""
        for number, mechanism, unit, orders, cost in store.prices(len(self.prices)):
            self._learn(self._seal.price(number, mechanism, unit, orders, cost))

    def _learn(self, priced: Price) -> None:
        self.prices[priced.id] = priced
        self._by_value[priced.mechanism, priced.unit, priced.orders, priced.cost] = priced

    def _granted(self, row: Row) -> None:
        balance = self.accounts.get(row.account)
        if balance is None:
            self.accounts[row.account] = Balance(self._capped(row.cap), self._deciding)
        else:
            balance.cap(self._capped(row.cap))

    def _capped(self, cap: float | None) -> Budget:
        # no cap above the ledger's own: a filter's room for rounding shrinks as its epsilon grows
        epsilon = min(cap or 0.0, self.budget.epsilon)
        return Budget(epsilon=epsilon, delta=self.budget.delta, adaptive=self.budget.adaptive)

    def verify(self, store: Store) -> None:
        """Read and check everything, including stray entries and stored answers."""
        n_entries = store.count()  # counted first: others can add entries meanwhile
        self.follow(store)
        if self.seq < n_entries:
            raise self.damaged(self.seq + 1, "it is not in sequence")
        for seq, array, digest, sealed in store.answers():
            self._check_answer(seq, array, digest, sealed)

    def answer(self, seq: int, store: Store) -> bytes | None:
        """The array stored for an entry, after a check of its digest; None if there is none."""
        stored = store.answer(seq)
        if stored is None:
            return None
        self._check_answer(seq, *stored)
        return stored[0]

    def _check_answer(self, seq: int, array: bytes, digest: bytes, sealed: bytes | None) -> None:
        if sealed is None or digest != self._seal.link(sealed, ["answer"], array):
            raise self.damaged(seq, "its answer is not the one recorded")

    # Writing -----------------------------------------------------------------------------------

    def price(self, mechanism: str, unit: str, orders: bytes, cost: bytes) -> Price:
        """The price with these values; a new one if none is recorded."""
        price = self._by_value.get((mechanism, unit, orders, cost))
        if price is None:
            price = self._seal.price(len(self.prices) + 1, mechanism, unit, orders, cost)
            self._learn(price)
            self._new.append(price)
        return price

    def reserve(self, *quote: Any) -> Price:
        """A price used for checks only, which is not recorded."""
        reserve = self._quoted.get(quote)
        if reserve is None:
            reserve = self._quoted[quote] = self._seal.price(0, *quote)
        return reserve

    def alone(self, *quote: Any) -> float:
        """Return the epsilon of a single use."""
        if quote not in self._alone:
            priced = self.reserve(*quote)
            self._alone[quote] = to_curve(priced.cost, priced.unit, priced.orders).epsilon(self.budget.delta)
        return self._alone[quote]

    def take(self, balance: Balance, priced: Price, *, uses: int = 1, under: Price | None = None) -> None:
        """Charge an account for an entry that is about to be written."""
        self.dirty = True
        self._note_first(priced)
        self._touched.add(balance)
        balance.take(priced, uses=uses, under=under)

    def write(self, rows: Sequence[Row], store: Store) -> list[Row]:
        """Seal entries whose charges were taken, and append them to the store."""
        self.dirty = True
        sealed, totals = [], []
        now = int(time.time())  # recorded, and never decided by
        for n, row in enumerate(rows, 1):
            priced = self.prices[row.price] if row.price else None
            if priced:
                self._bind(row.seq, priced, row.protects)
                self.simulation |= bool(row.simulation)
            elif row.kind == GRANT:
                self._granted(row)
            if n == len(rows) and row.seq - self._snapshot >= max(SNAPSHOT_EVERY, 2 * len(self.accounts)):
                totals, self._snapshot = self._totals(row.seq), row.seq
                row = row._replace(state=self._digest_of(totals))  # noqa: PLW2901
            sealed.append(row.sealed(self._seal, self.head, _digest(priced), at=now))
            self.seq, self.head = row.seq, sealed[-1].digest
        store.append(sealed, self._new, totals)
        return sealed

    def settle(self) -> None:
        """Note that everything written is durable."""
        self.dirty = False
        self._new.clear()
        for balance in self._touched:
            balance.settle()
        self._touched.clear()

    # Snapshots of all totals ---------------------------------------------------------------------

    def _totals(self, seq: int) -> list[Total]:
        protects, flag = self.protects or "", int(self.simulation)
        return [Total(seq, "", None, protects, flag, self.dataset.after())] + [
            Total(seq, name, balance.budget.epsilon, protects, flag, balance.after())
            for name, balance in sorted(self.accounts.items())
        ]

    def _digest_of(self, totals: Sequence[Total]) -> bytes:
        plain: list[int | str | None] = ["totals", *(repr(total[:-1]) for total in totals)]
        # chained to the genesis digest, which covers the budget and is known without reading entries
        return self._seal.link(self.genesis, plain, *(total.total or b"" for total in totals))

    def damaged(self, seq: int, wrong: str) -> LedgerError:
        """Return the error for a damaged entry ``seq``."""
        return LedgerError(f"{self.path} {DAMAGED} (entry {seq}: {wrong})", seq=seq)


_NO_PRICE = bytes(32)


def _digest(priced: Price | None) -> bytes:
    return priced.digest if priced else _NO_PRICE

"""Read-only methods of an open ledger: entries, accounts, receipts, answers and totals."""

from __future__ import annotations

import bisect
import html
import time
from typing import TYPE_CHECKING, Any

from ostraka.core import axes as _axes
from ostraka.core.ledger.budget import DAY, LedgerError, Outlook, Pace
from ostraka.core.ledger.chain import CHARGE, GRANT, NOTE, Account, Brief, Entry, Receipt, Row
from ostraka.core.ledger.commit import CommittedState
from ostraka.core.released import from_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.core.curve import Curve, Priced
    from ostraka.core.ledger.history import History
    from ostraka.core.released import Released

_BLOCK = 1_000  # entries read at once
_SAMPLE = 10_000  # newest entries that a rate is taken from


class Readings(CommittedState):
    """The methods of :class:`~ostraka.core.ledger.Ledger` that only read."""

    def _repr_html_(self) -> str:
        """Budget, what is spent and what is left, for notebooks."""
        facts = {"ledger": repr(self), "spent": f"{self.epsilon():.4g}", "left": f"{self.left():.4g}"}
        rows = (f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in facts.items())
        return f"<table>{''.join(rows)}</table>"

    def plot(self, axes: Any = None) -> Any:
        """Draw epsilon after each entry, and the budget; returns matplotlib's axes, new ones for None.

        Examples
        --------
        >>> from ostraka import Budget, GNMax, Ledger
        >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ...     n = ledger.charge(GNMax(sigma=40.0), uses=100, unit="row", simulation=False)
        ...     ledger.plot().get_ylabel()
        'ε spent at δ = 1e-05'
        """
        spent = [entry.epsilon_after for entry in self.scan()]
        return _axes.spending(spent, cap=self.budget.epsilon, delta=self.budget.delta, axes=axes)

    def accounts(self) -> tuple[Account, ...]:
        """Every client's account, by name."""
        with self._reading() as history:
            balances = [(name, balance.now()) for name, balance in sorted(history.accounts.items())]
        return tuple(
            Account(name=name, cap=balance.budget.epsilon, spent=balance.epsilon, left=balance.left)
            for name, balance in balances
        )

    def uses_left(self, mechanism: Priced, *, account: str | None = None, most: int = 10**9) -> int:
        """The number of further uses of a mechanism that fit, up to ``most``, if no other program charges.

        Parameters
        ----------
        mechanism : Mechanism
            Public.
        account : str, optional
            A client, whose number is never above that of the ledger's budget. None: that of the budget.
        most : int
            Where to stop counting.

        Examples
        --------
        >>> from ostraka import Budget, GNMax, Ledger
        >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ...     n = ledger.uses_left(GNMax(sigma=40.0))
        ...     ledger.affords(GNMax(sigma=40.0), uses=n), ledger.affords(GNMax(sigma=40.0), uses=n + 1)
        (True, False)
        """
        quote = self._prices.quote(mechanism)
        with self._reading() as history:
            price, balances = history.reserve(*quote), [history.dataset.now()]
            if account is not None:
                if account not in history.accounts:
                    return 0
                balances.append(history.accounts[account].now())
        for balance in balances:
            most = balance.uses_left(price, most=most)
        return most

    def outlook(self) -> Outlook:
        """The number of further uses of the price charged last, and how long they last at the present rate.

        The rate is that of the last 24 hours, by the times of the entries. The newest 10,000 entries are
        read; of a day that holds more, the older ones are counted, at the mean uses of those that were read.

        Examples
        --------
        >>> from ostraka import Budget, GNMax, Ledger
        >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ...     n = ledger.charge(GNMax(sigma=40.0), uses=100, unit="row", simulation=False)
        ...     seen = ledger.outlook()
        ...     seen.in_a_day, seen.answers_left == ledger.uses_left(GNMax(sigma=40.0))
        (100, True)
        """
        now, pace = int(time.time()), Pace()
        with self._reading() as history:
            last = self._store.last_charge(history.seq)
            if last is None:
                return Outlook()
            price, balance = history.prices[last.price or 0], history.dataset.now()
            for at, uses in self._charged_since(now - DAY, history.seq):
                if at <= now:  # else a clock was wrong
                    pace.add(at, uses)
        n_uses, rate = balance.uses_left(price, most=10**9), pace.per_second(now)
        seconds = n_uses / rate if rate > 0 else None
        return Outlook(
            mechanism=price.mechanism,
            answers_left=n_uses,
            in_a_day=pace.in_a_day(now),
            seconds_to_empty=0.0 if not n_uses else seconds,
        )

    def _charged_since(self, begin: int, seq: int) -> Iterator[tuple[int, int]]:
        """Return time and uses of the charges since a time, up to entry ``seq``, as :meth:`outlook` says."""
        # a clock may be set back, so times need not rise: reading ends at a whole block of older entries
        n_read = n_uses = 0
        while seq > 0 and n_read < _SAMPLE:
            start = max(0, seq - _BLOCK)
            rows = map(Row._make, self._store.rows(start, seq - start))
            times = [(row.at, row.uses * (row.kind == CHARGE)) for row in rows]
            recent = [(at, uses) for at, uses in times if at is not None and at >= begin]
            if not recent:
                return
            yield from recent
            n_read, n_uses = n_read + len(times), n_uses + sum(uses for _, uses in recent)
            seq = start
        first = 1 + bisect.bisect_left(range(1, seq + 1), begin, key=self._time_of)
        if first <= seq:
            yield max(begin, self._time_of(first)), round((seq + 1 - first) * n_uses / n_read)

    def _time_of(self, seq: int) -> int:
        row = self._store.with_seq(seq)
        return 0 if row is None or row.at is None else row.at

    def receipt(self, seq: int) -> Receipt:
        """The receipt of a client's charge as :meth:`charge_each` gave it, with the epsilon left now.

        Raises
        ------
        LedgerError
            There is no such charge.
        """
        with self._reading() as history:
            row = self._store.with_seq(seq)
            if row is None or row.answer is None:
                raise LedgerError(f"{self.path} has no client's charge {seq}")
            history.checked(row, self._store)
            balance = history.accounts[row.account].now()
        return Receipt(seq=row.seq, head=row.digest.hex(), answer=row.answer, left=balance.left)

    def answer(self, entry: int) -> Released | None:
        """The answer stored for an entry, or None."""
        with self._store.reading() as store:
            array = store.answer(entry)
        return None if array is None else from_bytes(array)

    def spent(self) -> Curve:
        """The cost of everything charged so far."""
        with self._reading() as history:
            return history.dataset.curve()

    def epsilon(self, delta: float | None = None) -> float:
        """Epsilon of everything charged so far, at ``delta`` (None: the budget's)."""
        if delta is not None:
            return self.spent().epsilon(delta)
        with self._reading() as history:
            balance = history.dataset.now()
        return balance.epsilon

    def left(self) -> float:
        """Epsilon that is left at the budget's delta; never negative."""
        return max(0.0, self.budget.epsilon - self.epsilon())

    def entries(self, *, after: int = 0, limit: int | None = None) -> tuple[Entry, ...]:
        """Entries in order: those after number ``after``, ``limit`` at most. All are in memory at once."""
        with self._reading() as history:
            rows = [Row._make(fields) for fields in self._store.rows(after, limit)]
            if after < self._resumed_at:
                history.check_each(rows, self._store)
            return tuple(_entry(history, row) for row in rows)

    def scan(self, *, after: int = 0) -> Iterator[Entry]:
        """Entries in order, read a thousand at a time: memory does not grow with the ledger.

        Examples
        --------
        >>> from ostraka import Budget, GNMax, Ledger
        >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ...     n = ledger.charge(GNMax(sigma=40.0), uses=100, unit="row", simulation=False)
        ...     sum(entry.uses for entry in ledger.scan())
        100
        """
        while block := self.entries(after=after, limit=_BLOCK):
            yield from block
            after = block[-1].seq

    def entry_of(self, key: str, *, account: str | None = None) -> Entry | None:
        """The entry with this key, of the ledger's budget or of a client's account; None if there is none."""
        place = account or "", key
        with self._reading() as history:
            row = self._store.with_keys([place]).get(place)
            return None if row is None else _entry(history, history.checked(row, self._store))

    def briefly(self, *, after: int, limit: int) -> list[Brief]:
        """Entries after number ``after`` in order, ``limit`` at most: quicker than :meth:`entries`."""
        with self._reading() as history:
            names = {number: price.mechanism for number, price in history.prices.items()}
            rows = self._store.rows(after, limit)
            return [
                Brief(seq, account, names.get(price or 0, ""), uses, answer, asked, epsilon, at)
                for seq, _, account, _, price, uses, _, _, epsilon, asked, answer, _, _, at, _ in rows
            ]

    def notes(self) -> tuple[Entry, ...]:
        """What owners did, such as changes of keys and proposals of caps, in order.

        Examples
        --------
        >>> from ostraka import Budget, Ledger
        >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ...     n = ledger.note("the key of ann is in the safe", by="olga")
        ...     [entry.key for entry in ledger.notes()]
        ['1: the key of ann is in the safe by olga']
        """
        with self._reading() as history:
            rows = self._store.notes()
            history.check_each(rows, self._store)
            return tuple(_entry(history, row) for row in rows)

    def count(self) -> int:
        """Return the number of entries."""
        with self._reading() as history:
            return history.seq

    def kinds(self) -> dict[str, int]:
        """How many entries of each kind there are: ``"charge"``, ``"grant"``, ``"note"``.

        Examples
        --------
        >>> from ostraka import Budget, Ledger
        >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ...     n = ledger.grant("ann", budget_epsilon=1.0)
        ...     ledger.kinds()
        {'charge': 0, 'grant': 1, 'note': 0}
        """
        with self._reading() as history:
            others = self._store.others()
            grants, notes = others.get(GRANT, 0), others.get(NOTE, 0)
            return {CHARGE: history.seq - grants - notes, GRANT: grants, NOTE: notes}

    @property
    def simulation(self) -> bool:
        """Whether any noise came from a reproducible generator; once true, always true."""
        with self._reading() as history:
            return history.simulation

    @property
    def unit(self) -> str | None:
        """The protected unit of all charges; None before the first charge."""
        with self._reading() as history:
            return history.protects

    @property
    def head(self) -> str:
        """Digest over the budget and every entry, in hexadecimal: note it elsewhere, compare it later."""
        with self._reading() as history:
            return history.head.hex()


def _entry(history: History, row: Row) -> Entry:
    return row.entry(history.prices[row.price] if row.price else None)

"""The ledger: durable charges against a budget, the answers stored with them, and copies of both.

A copy is made while others charge, is verified, and is put back only where nothing is lost.
"""

from __future__ import annotations

import bisect
import html
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ostraka.core import axes as _axes
from ostraka.core import check, files
from ostraka.core.ledger import sqlite
from ostraka.core.ledger.budget import DAY, BudgetExceeded, KeyConflict, LedgerError, Outlook, Pace
from ostraka.core.ledger.chain import (
    CHARGE,
    GRANT,
    INFINITE,
    NOTE,
    Account,
    Brief,
    Entry,
    Receipt,
    Row,
    beyond,
    comparable,
    covers,
    is_free,
    plain_unit,
    price,
    protection,
)
from ostraka.core.ledger.commit import CommittedState, Outcome, Quote, check_text, unlike
from ostraka.core.ledger.witness import Anchor
from ostraka.core.released import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ostraka.core.curve import Curve, Priced
    from ostraka.core.ledger.chain import ChargeRequest
    from ostraka.core.ledger.history import History
    from ostraka.core.ledger.witness import Head
    from ostraka.core.released import AnyRelease, Released

_BLOCK = 1_000  # entries read at once
_SAMPLE = 10_000  # newest entries that a rate is taken from


class Ledger(CommittedState):
    """Durable, append-only charges against a budget. A charge is written before its answer leaves.

    Parameters
    ----------
    where : str or path-like
        An SQLite file on a local disk (a path, or ``sqlite:///path``), or ``":memory:"`` for experiments.
    budget : Budget, optional
        Needed for a new file. For an existing one it must equal the stored budget; None takes that.
    secret : bytes, 32 or more, optional
        Digests are then HMAC-SHA256 under it, so entries cannot be forged without it. A ledger
        that was begun with a secret opens with this secret only.
    anchor : path, optional
        Another file, on another disk if possible, which records the newest entry. It is written after
        each commit and before anything is answered. A ledger without that entry is an older copy or
        another ledger, and is refused. Opening then reads from the last snapshot of totals on;
        :meth:`verify` reads everything.
    owner : bool
        Lock out all other writers until closed. New entries of others then need no look-up.
    read_only : bool
        Never write. A ledger that another process owns opens in this way only.
    verify : bool
        False, with ``read_only``: read from the last snapshot of totals on also without an anchor, however
        long the ledger is. Older entries are checked when they are read.
    witnesses : sequence of Witness
        Who remembers the newest entry elsewhere (``ostraka.secure.witness``). A majority must have been told
        of an entry before anything charged up to it is answered, and know of none that is not on record.
        Give all programs of a ledger the same ones.

    Raises
    ------
    LedgerError
        The file is damaged, not a ledger, unreachable, or has another budget.

    Guarantees
    ----------
    A charge is on stable storage before :meth:`charge` returns. Entries are never changed, removed
    or refunded. Threads and processes may charge one file at once (each process opens its own
    ``Ledger``), and together never overspend. Sums are exact: each price is rounded up once.

    What is answered under accepted charges is (budget.epsilon, budget.delta)-differentially private
    for one protected unit, however the questions are chosen, if the mechanisms and numbers of
    uses are fixed in advance (Mironov 2017, arXiv:1702.07476, Prop. 1, at each order; Dong et al.
    2019, arXiv:1905.02383, Cor. 2, for the Gaussian part). It also holds where earlier answers
    decide only how often *one* mechanism is used, as in Confident-GNMax with a fixed number of
    screens: its uses then fit up to a number fixed in advance, which is a filter at one order
    (Feldman and Zrnic 2020, arXiv:2008.11193, Thm. 3.1; Smith and Thakurta 2022, arXiv:2210.17520,
    for the Gaussian part). Where answers may decide more than that, begin the ledger with
    ``Budget(adaptive=True)``: its rule (docs/composition.md) holds for anything.
    Where answers decide how much is used, the bound is the budget; :meth:`epsilon` is a reading.

    Without ``anchor`` or ``witnesses`` an older copy put in place of the file is not noticed; without
    ``secret``, changes by somebody who also recomputes the digests. :attr:`head`, noted elsewhere, shows
    both.
    With witnesses, of which at most one in three is put back itself, nothing is answered whose charge a
    rollback, a restored disk or a standby that lags could take back unnoticed.

    Examples
    --------
    >>> from ostraka import Budget, GNMax, Ledger
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     ledger.charge(GNMax(sigma=40.0), uses=100, unit="row", simulation=False)
    ...     ledger.left() < 2.0
    1
    True
    """

    def charge(
        self, mechanism: Priced, *, uses: int, unit: str, simulation: bool, key: str | None = None
    ) -> int:
        """Record the cost of ``uses`` uses durably, or refuse and record nothing.

        Parameters
        ----------
        mechanism : Mechanism
            Public, with a ``repr`` that names its parameters. Its ``curve()`` must be publishable.
        uses : int >= 0
        unit : str
            The protected unit. The first charge binds the ledger to it, and to the mechanism's neighbouring
            relation, which the entry states beside it: ``"row (add-or-remove)"``; replace-one goes unsaid.
        simulation : bool
            The noise will come from a reproducible generator.
        key : str, optional
            Public name of the release. A key charged before returns that entry and costs nothing.

        Returns
        -------
        int
            Sequence number of the entry.

        Raises
        ------
        BudgetExceeded
            The total after the charge is not known to be within the budget.
        LedgerError
            The ledger counts for another unit or relation, or the key was used for another question.
        ValueError
            A cost computed from private data, or a wrong argument.
        """
        check.integer(uses=uses)
        check.at_most(INFINITE - 1, uses=uses)
        check_text(unit=unit, **({} if key is None else {"key": key}))
        quote = self._prices.quote(mechanism)
        if not uses:  # nothing is asked: it must not decide how later charges add up
            quote = (*quote[:3], price(0 * mechanism.curve())[1])
        unit = protection(unit, quote[0])
        with self._writing() as history:
            earlier = self._store.with_keys([("", key)]).get(("", key)) if key is not None else None
            if earlier:
                paid = history.prices.get(history.checked(earlier, self._store).price or 0)
                was = paid.mechanism if paid else ""  # a note, which asks for nothing
                question = was, earlier.uses, protection(earlier.protects, was), earlier.simulation
                if question != (quote[0], int(uses), unit, int(simulation)):
                    raise KeyConflict(
                        f"key {key!r} stands for another question in {self.path}: use a new key"
                    )
                return earlier.seq
            _check_bound(history, quote, unit)
            reserve = history.reserve(*quote)
            epsilon = history.dataset.decide(reserve, uses=int(uses))
            if epsilon is None:
                total = history.dataset.curve(reserve, uses=int(uses))
                raise self._refusal(history, quote[0], int(uses), total)
            priced = history.price(*quote)
            history.take(history.dataset, priced, uses=int(uses), under=reserve)
            row = Row(
                seq=history.seq + 1,
                kind=CHARGE,
                account="",
                key=key,
                price=priced.id,
                uses=int(uses),
                protects=unit,
                simulation=int(simulation),
                epsilon=epsilon,
            )
            history.write([row], self._store)
        return row.seq

    def affords(self, mechanism: Priced, *, uses: int) -> bool:
        """Whether :meth:`charge` would find enough left for this now. Nothing is recorded.

        Raises
        ------
        LedgerError
            The ledger counts for another relation.
        ValueError
            A cost computed from private data, or a wrong argument.
        """
        check.integer(uses=uses)
        check.at_most(INFINITE - 1, uses=uses)
        quote = self._prices.quote(mechanism)
        with self._reading() as history:
            _check_bound(history, quote)
            reserve = history.reserve(*quote)
            return history.dataset.allows(history.dataset.curve(reserve, uses=int(uses)), reserve)

    def charge_each(
        self, requests: Sequence[ChargeRequest], *, unit: str = "row", simulation: bool = False
    ) -> list[Outcome]:
        """Charge the requests of clients. Requests of many threads share one transaction.

        Parameters
        ----------
        requests : sequence of ChargeRequest
            Decided in this order.
        unit : str
            The protected unit, as in :meth:`charge`.
        simulation : bool
            As in :meth:`charge`.

        Returns
        -------
        list of Receipt, BudgetExceeded or KeyConflict
            One for each request. A receipt means that the charge is on stable storage, for the ledger's
            budget and for the client, and that ``receipt.answer`` may leave. The other two mean that
            nothing was recorded. A known key with the same digest gives its receipt again and costs
            nothing. A known digest under a new key gives the stored answer: it costs the ledger's
            budget nothing, and the client its full price.

        Raises
        ------
        LedgerError
            Nothing may be answered. After a commit of unknown outcome, every later call raises.
        ValueError
            A wrong argument, or a cost computed from private data.
        """
        check_text(unit=unit)
        return self._group.submit(self._prices.priced(requests, unit=unit, simulation=simulation))

    def grant(self, account: str, *, budget_epsilon: float, by: str = "", key: str | None = None) -> int:
        """Set the cap of a client's account, which is created if it does not exist.

        Parameters
        ----------
        account : str
            Public.
        budget_epsilon : float > 0, nats
            The cap, at the ledger's delta. With a cap below what was spent, nothing is left.
        by : str
            Who decided that; it stands in the chain, in a note behind the grant.
        key : str, optional
            Public name of the decision, of its own among the keys of the account's charges. One that was
            granted before changes nothing again.

        Returns
        -------
        int
            Sequence number of the entry, or of the first one under this key. Without a key an unchanged
            cap adds an entry as well.

        Raises
        ------
        KeyConflict
            The client was charged under this key: nothing was granted.
        """
        check_text(account=account, **({"by": by} if by else {}), **({} if key is None else {"key": key}))
        check.positive(budget_epsilon=budget_epsilon)
        with self._writing() as history:
            earlier = None if key is None else self._store.with_keys([(account, key)]).get((account, key))
            if earlier is not None:
                if history.checked(earlier, self._store).kind != GRANT:
                    raise KeyConflict(
                        f"key {key!r} stands for a charge of {account!r} in {self.path}, so nothing was "
                        "granted: use a new key"
                    )
                return earlier.seq
            note = _note(history, history.seq + 1, "")
            row = note._replace(kind=GRANT, account=account, key=key, cap=float(budget_epsilon))
            history.write(
                [row, *([_note(history, row.seq + 1, f"grant by {by}")] if by else [])], self._store
            )
        return row.seq

    def note(self, text: str, *, by: str) -> int:
        """Write into the chain what an owner did, such as a change of keys; return the entry's number.

        Parameters
        ----------
        text, by : str
            What, and who did it. Public.
        """
        check_text(text=text, by=by)
        with self._writing() as history:
            history.write([_note(history, history.seq + 1, f"{text} by {by}")], self._store)
            return history.seq

    def record(self, entry: int, answer: AnyRelease) -> AnyRelease:
        """Store the public answer of a keyed entry, unless one is stored; return the stored one.

        Parameters
        ----------
        entry : int
            What :meth:`charge` returned.
        answer : array, dict of named arrays, or Model
            Public. Not of objects.

        Returns
        -------
        array, dict of named arrays, or Model
            The first answer recorded by any process, so that every caller has the same. For an entry
            without key, ``answer`` itself, which is not stored.

        Raises
        ------
        LedgerError
            There is no such entry.
        """
        with self._reading():
            row = self._store.with_seq(entry)
        if row is None:
            raise LedgerError(f"{self.path} has no entry {entry}: charge first, then record")
        if row.key is None:
            return answer
        array = to_bytes(answer)
        with self._writing() as history:
            history.checked(row, self._store)
            first = history.answer(entry, self._store)
            if first is None:
                self._store.add_answer(entry, array, self._seal.link(row.digest, ["answer"], array))
        return cast("AnyRelease", from_bytes(array if first is None else first))

    def anchor(self, path: str | os.PathLike[str]) -> None:
        """Create a new anchor for this copy, which the caller knows to be the newest.

        Parameters
        ----------
        path : str or path-like
            A file that does not exist yet, on another disk if possible.
        """
        if os.path.lexists(path):
            raise LedgerError(f"{path} exists: move it away first, if it is an obsolete anchor")
        self.verify()
        anchor = Anchor(path, self._seal)
        try:
            anchor.write(self._history.seq, self._history.head)
        finally:
            anchor.close()

    def adopt(self, *, by: str, lost: int = 0, reserve: Priced | None = None) -> int:
        """Go on with this copy, after its server was replaced or an older copy restored. Open it to be read.

        Parameters
        ----------
        by : str
            Who decided that; it stands in the chain.
        lost : int >= 0
            The number of answers that were given and are not on record here: at least the difference to the
            newest number in any anchor, receipt or reply.
        reserve : Mechanism, optional
            What each of them may have cost at most: what the service reserves for an answer. Needed where
            ``lost`` is not 0. It must cost at least what any answer on record did.

        With witnesses, all of which must answer, it is known what was lost: the newest total of all charges
        that one of them was told of, less the total on record, is charged, and they forget the rest.

        Returns
        -------
        int
            Sequence number of the entry, which charges the ledger's budget for what was lost.

        Raises
        ------
        BudgetExceeded
            The budget does not pay for what was lost: it counts as spent, and nothing is adopted.
        LedgerError
            The ledger is open for writing.
        """
        check.integer(lost=lost)
        check.at_most(INFINITE - 1, lost=lost)
        check_text(by=by)
        if self._quorum is not None and (lost or reserve is not None):
            raise ValueError("lost and reserve must be left out where witnesses know what was lost")
        if lost and reserve is None:
            raise ValueError("reserve must be what an answer cost at most, where any were lost")
        if self._writes:
            raise LedgerError(f"{self.path} is open for writing: open it with read_only=True to adopt it")
        with self._store.reading():
            where = self._store.own_for_adoption()
            self._writes = True
        try:
            return self._adopted(f"{where} adopted by {by}", int(lost), reserve)
        except BaseException:
            self._writes = False  # what was refused is still only read
            raise

    def _adopted(self, decision: str, lost: int, reserve: Priced | None) -> int:
        """Charge for what was lost, and take this copy for the right one, in one transaction."""
        gone: list[Head] = []  # what the witnesses, all of them, know and this copy lacks, by number
        if self._quorum is not None:
            heads = self._quorum.ask(everyone=True, least=self._quorum.size)
            gone = sorted(head for head in heads if not self._is_on_record(head))
        with self._writing() as history:
            if gone:
                lost, self._instead = max(1, gone[-1].seq - history.seq), tuple(head.digest for head in gone)
            if history.bound is None:
                if lost:
                    raise LedgerError(
                        f"{self.path} has no charge on record, so it is not known what it protects: count "
                        "its whole budget as spent, and begin another ledger for other data"
                    )
                self._store.adopt()
                return history.seq
            protects, unit, orders = history.bound
            if gone:  # the price of all charges that were told to witnesses and are not on record
                quote, uses = ("Lost()", unit, orders, self._gone(gone, history)), 1
            elif reserve is not None:  # what lost answers may have cost at most, by what the owner says
                name, *_, cost = self._prices.quote(reserve)
                for paid in history.prices.values():
                    if not covers(cost, paid.cost):
                        raise ValueError(
                            f"reserve must cost at least what {paid.mechanism} on record did, got {reserve!r}"
                        )
                    cost = cost if is_free(paid.cost) else comparable(cost, paid.cost)
                _check_bound(history, self._prices.quote(reserve), protects)
                quote, uses = (name, unit, orders, cost), lost
            else:  # nothing was lost
                quote, uses = ("Adopted()", unit, orders, bytes(len(orders) + 16)), lost
            under = history.reserve(*quote)
            total = history.dataset.curve(under, uses=uses)
            if not history.dataset.allows(total, under):
                raise self._refusal(history, quote[0], uses, total)
            seq = history.seq + 1
            priced = history.price(*quote)
            history.take(history.dataset, priced, uses=uses)
            row = Row(
                seq=seq,
                kind=CHARGE,
                account="",
                key=f"{seq}: {decision}, {lost} lost",
                price=priced.id,
                uses=uses,
                protects=protects,
                simulation=0,
                epsilon=total.epsilon(self.budget.delta),
            )
            history.write([row], self._store)
            self._store.adopt()
        return seq

    def _gone(self, gone: Sequence[Head], history: History) -> bytes:
        """The cost of all charges up to the newest of these heads that are not on record, in whole units."""
        newest = bytes.fromhex(gone[-1].total)
        try:
            for head in gone:
                beyond(newest, bytes.fromhex(head.total) or None)
            return beyond(newest, history.dataset.after())
        except ValueError:
            raise LedgerError(
                f"{self.path} is no beginning of what its witnesses know, so it is not known what "
                "was lost: count its whole budget as spent"
            ) from None

    def _refusal(self, history: History, mechanism: str, uses: int, total: Curve) -> BudgetExceeded:
        before, remainder = history.dataset.epsilon, history.dataset.left
        cost = total.epsilon(self.budget.delta) - before
        budget = f"{self.budget.epsilon:g} left at delta={self.budget.delta:g}"
        if self.budget.adaptive:
            budget += ", less the price of choosing questions by earlier answers"
        return BudgetExceeded(
            f"{self.path} has epsilon {remainder:.6g} of {budget}, and {uses} uses of {mechanism} "
            f"would add {check.nats(cost, digits=6)}; nothing was charged: ask fewer questions, or "
            "use more noise",
            asked=cost,
            left=remainder,
        )

    # Reading -----------------------------------------------------------------------------------

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

        Raises
        ------
        LedgerError
            The ledger counts for another relation.

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
            _check_bound(history, quote)
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
        """The answer stored for an entry, or None.

        Raises
        ------
        LedgerError
            It is not the answer that was recorded.
        """
        with self._store.reading() as store:
            array = self._history.answer(entry, store)
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


def _check_bound(history: History, quote: Quote, protects: str | None = None) -> None:
    """Raise unless the ledger counts such prices. Without ``protects``: for the unit that it counts for."""
    name, unit, orders, _ = quote
    if history.bound:
        protects = protects or protection(plain_unit(history.protects or ""), name)
        if history.bound != (protects, unit, orders):
            raise unlike(history.path, history.bound, protects, unit)


def _note(history: History, seq: int, text: str) -> Row:
    """An entry that charges nothing and says what an owner did."""
    return Row(
        seq=seq,
        kind=NOTE,
        account="",
        key=f"{seq}: {text}",
        price=None,
        uses=0,
        protects=history.protects or "",
        simulation=0,
        epsilon=history.dataset.epsilon,
    )


def _entry(history: History, row: Row) -> Entry:
    return row.entry(history.prices[row.price] if row.price else None)


class Copied(NamedTuple):
    """The extent of a copy: its number of entries, and the digest over all of them."""

    entries: int
    head: str


def back_up(ledger: str | os.PathLike[str], copy: str | os.PathLike[str], *, secret: bytes | None) -> Copied:
    """Copy an SQLite ledger into a new file, which others may charge meanwhile, and verify the copy.

    Parameters
    ----------
    ledger : path
    copy : path
        A file that does not exist yet. Beside it ``COPY.anchor`` is written, which belongs to the copy.
    secret : bytes, optional
        As for :class:`Ledger`.

    Returns
    -------
    Copied
        What the copy holds. What is charged later is not in it.

    Raises
    ------
    LedgerError
        There is no such ledger, the copy exists, or the copy does not verify, as with another secret: then
        it is removed.
    """
    source, target, anchor = Path(ledger), Path(copy), Path(f"{copy}.anchor")
    _require_file(source)
    for path in (target, anchor):
        if os.path.lexists(path):
            raise LedgerError(f"{path} exists: type the name of a new file")
    _copy(source, target)
    try:
        with Ledger(target, secret=secret) as opened:
            opened.anchor(anchor)
            return Copied(opened.count(), opened.head)
    except BaseException:
        for path in (target, anchor):
            path.unlink(missing_ok=True)
        raise


def restore(
    copy: str | os.PathLike[str],
    ledger: str | os.PathLike[str],
    *,
    secret: bytes | None,
    anchor: str | os.PathLike[str],
) -> Copied:
    """Put a copy in the place of a ledger that is lost, if its anchor says that the copy is the newest.

    Parameters
    ----------
    copy : path
    ledger : path
        A file that does not exist: move what is left of the old one away first.
    secret : bytes, optional
        As for :class:`Ledger`.
    anchor : path
        The lost ledger's own anchor; for a rehearsal elsewhere, the one beside the copy.

    Raises
    ------
    LedgerError
        The copy is behind the anchor: answers left after it was made, and nobody would count them.
    """
    source, target = Path(copy), Path(ledger)
    _require_file(source)
    if not Path(anchor).is_file():
        raise LedgerError(
            f"there is no anchor at {anchor}, so it is not known whether {copy} is the newest copy: type "
            f"the ledger's own anchor, or count its whole budget as spent"
        )
    for path in (target, Path(f"{target}-wal"), Path(f"{target}-shm")):
        if os.path.lexists(path):
            raise LedgerError(f"{path} exists: move it away first, and keep it")
    with Ledger(source, secret=secret, anchor=anchor, read_only=True) as opened:
        opened.verify()
        copied = Copied(opened.count(), opened.head)
    _copy(source, target)
    return copied


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path}: for PostgreSQL use pg_dump and pg_restore")


def _copy(source: Path, target: Path) -> None:
    """Copy all pages in one transaction, atomically, to stable storage."""

    def fill(path: Path) -> None:
        with closing(sqlite.watch(source)) as read, closing(sqlite3.connect(path)) as written:
            read.backup(written)

    with sqlite.explained(str(target)):
        files.write(target, fill, private=True)

"""An open ledger: its state, the prices of what is asked of it, decisions, and durable transactions.

Requests of clients are granted or refused in order, and the granted ones are written in one transaction.
Callers that arrive during a write are served together by the next one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, NoReturn, Self, TypeVar

from ostraka.core import check
from ostraka.core.ledger.budget import (
    DAMAGED,
    Budget,
    BudgetExceeded,
    KeyConflict,
    LedgerError,
    LedgerMoved,
    LedgerUnavailable,
)
from ostraka.core.ledger.chain import (
    CHARGE,
    ChargeRequest,
    Receipt,
    Row,
    Seal,
    alike,
    comparable,
    covers,
    price,
    protection,
)
from ostraka.core.ledger.history import History
from ostraka.core.ledger.postgres import PostgresStore
from ostraka.core.ledger.sqlite import SQLiteStore
from ostraka.core.ledger.witness import Anchor, Head, Quorum, check_anchored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.core.curve import Priced
    from ostraka.core.ledger.store import Store
    from ostraka.core.ledger.witness import Witness

Asks = TypeVar("Asks")
Gets = TypeVar("Gets")
Outcome = Receipt | BudgetExceeded | KeyConflict
Quote = tuple[str, str, bytes, bytes]  # mechanism, unit, orders, cost of one use in whole units
_REMEMBERED = 1024  # prices


class CommittedState:
    """Store, history and anchor of an open ledger; base of :class:`~ostraka.core.ledger.Ledger`."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        budget: Budget | None = None,
        secret: bytes | None = None,
        anchor: str | os.PathLike[str] | None = None,
        owner: bool = False,
        read_only: bool = False,
        verify: bool = True,
        witnesses: Sequence[Witness] = (),
    ) -> None:
        if not verify and not read_only:
            raise ValueError("verify=False needs read_only=True: what is charged must follow checked entries")
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(
                "budget must be a Budget, such as Budget(epsilon=2.0, delta=1e-5), got "
                f"{type(budget).__name__}"
            )
        if not isinstance(where, str | os.PathLike):
            raise TypeError(
                f"where must be the path of a file, postgresql://… or ':memory:', got {type(where).__name__}"
            )
        self._seal = Seal(secret)
        address = os.fspath(where).removeprefix("sqlite:///")
        kind = PostgresStore if address.startswith(("postgresql://", "postgres://")) else SQLiteStore
        self._store: Store = kind(address, budget=budget, secret=self._seal.name)
        self.path, self.budget = self._store.path, self._store.budget
        self._prices = PriceList(adaptive=self.budget.adaptive)
        self._named: str | None = None
        self._history = self._new_history()
        self._group: Group[Sequence[PricedRequest], list[Outcome]] = Group(self._serve)
        self._on_record: Row | None = None  # the newest entry known here, as the last transaction read it
        self._writes = not read_only
        self._anchor: Anchor | None = None
        self._resumed_at = 0  # entries up to this one were not read when the ledger was opened
        self._durable = 0, b""  # number and digest of the newest entry that was on record, whoever wrote it
        self._quorum: Quorum | None = None
        self._instead: tuple[str, ...] = ()  # digests of lost entries that the owner counts as spent
        self._confirmed = -1  # number of the newest entry that a majority of the witnesses knows
        try:
            with self._store.reading() as store:
                self._named = store.name()
            self._history = self._new_history()
            if witnesses:
                self._quorum = Quorum(witnesses, self._named or self._history.genesis.hex())
                self._store.vouched = self._vouched
            if self._writes:
                self._store.own(alone=owner)
            if anchor is not None:
                # check against it, and read the entries after the last snapshot of totals
                self._anchor = Anchor(anchor, self._seal, read_only=read_only)
                with _damage_reported(self.path), self._store.reading() as store:
                    self._resume(store)
                    newest = self._anchor.read()
                    if newest is None or newest[0] < self._history.seq:  # it is older than the snapshot
                        self.verify()
                    else:
                        self._history.follow(store)
                    check_anchored(self._anchor, self._history, store)
                self._remember()
            elif verify:
                self.verify()
            else:
                with _damage_reported(self.path), self._store.reading() as store:
                    self._resume(store)
                    self._history.follow(store)
            self._durable = self._history.seq, self._history.head
            if self._writes:
                self._confirm(self._head(), everyone=True)
        except BaseException:
            self.close()
            raise

    def secret_of_fits(self) -> bytes:
        """**Private:** 32 bytes that fits are named by, and that repeated questions draw their noise from.

        They are the same for every process that opens this ledger: in a file beside an SQLite file; of
        PostgreSQL they follow from ``secret``, and without it they are in a table that only the role which
        made it may read. Of a ledger in memory they are the process's own.

        Raises
        ------
        LedgerError
            They cannot be read or kept.
        """
        if self._seal.name and isinstance(self._store, PostgresStore):
            return self._seal(b"ostraka ledger: secret of its fits")
        return self._store.kept_secret()

    def _resume(self, store: Store) -> None:
        self._history.resume(store)
        self._resumed_at = self._history.seq

    def _remember(self) -> None:
        """Write the anchor. After a failure the ledger is poisoned: a later start may refuse its end."""
        if self._anchor is None or not self._writes:
            return
        try:
            self._anchor.write(self._history.seq, self._history.head)
        except BaseException as error:
            trouble = "could not write its anchor, so nothing was answered"
            self._store.poison(trouble)
            if isinstance(error, OSError):
                raise LedgerError(f"{self.path} {trouble} ({error.strerror or error})") from error
            raise

    def _new_history(self) -> History:
        return History(self.path, self.budget, self._seal, self._named)

    def _head(self) -> Head:
        """The newest entry as witnesses remember it."""
        history = self._history
        total = b"" if self._quorum is None else history.dataset.after() or b""
        return Head(history.seq, history.head.hex(), total.hex())

    def _confirm(self, head: Head, *, everyone: bool = False, instead: Sequence[str] = ()) -> None:
        """Let a majority of the witnesses remember an entry before anything of it is answered."""
        if self._quorum is None:
            return
        try:
            self._quorum.confirm(head, self._is_on_record, everyone=everyone, instead=instead)
        except LedgerMoved as error:
            self._store.poison(str(error))
            raise LedgerMoved(f"{self.path} {error}") from None
        except LedgerUnavailable as error:
            raise LedgerUnavailable(f"{self.path}: {error}") from None
        self._confirmed = max(self._confirmed, head.seq)

    def _is_on_record(self, head: Head) -> bool:
        """Whether an entry that a witness knows is in this database."""
        with self._store.reading() as store:
            row = store.with_seq(head.seq)
        return row is not None and row.digest.hex() == head.digest

    def _vouched(self) -> bool:
        """Whether all that the witnesses know is on record here, so that no answer was lost on the way."""
        if self._quorum is None:
            return False
        return all(self._is_on_record(head) for head in self._quorum.ask(everyone=True))

    def verify(self) -> None:
        """Read and check every digest, total and answer again. Other threads wait meanwhile.

        Raises
        ------
        LedgerError
            A check failed; ``seq`` is the first bad entry.
        """
        with _damage_reported(self.path), self._store.reading() as store:
            with store.checking():
                history = self._new_history()
                history.verify(store)
            if self._anchor is not None:
                check_anchored(self._anchor, history, store)
            self._history, self._resumed_at = history, 0
            self._note_on_record()

    def probe(self) -> None:
        """Check that a charge could be written now: take the write lock, look at the newest entry, let go.

        Raises
        ------
        LedgerUnavailable, LedgerMoved or LedgerError
            As a charge would.
        """
        with contextlib.suppress(_ProbedError), self._writing():
            raise _ProbedError  # rolls back
        if self._quorum is not None:
            with self._reading():
                head = self._head()
            self._confirm(head)

    def waited(self) -> float:
        """Return the seconds for which the database has not answered a call: 0 while it answers."""
        return self._store.waited()

    def close(self) -> None:
        """Close the file. In a process that did not open the ledger: do nothing."""
        self._store.close()
        if self._anchor is not None:
            self._anchor.close()
        if self._quorum is not None:
            self._quorum.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.path!r}, budget={self.budget})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: open Ledger({self.path!r}) in each process")

    def _serve(self, callers: Sequence[Sequence[PricedRequest]]) -> list[list[Outcome] | LedgerError]:
        with self._writing() as history:
            return serve(history, self._store, callers, decoy=self._on_record)

    @contextmanager
    def _reading(self) -> Iterator[History]:
        """Hold the store, and give the state after the newest entry."""
        with self._store.reading() as store:
            yield self._newest(store, longer=not store.alone)

    def _newest(self, store: Store, *, longer: bool) -> History:
        """The state after the newest entry; ``longer`` where there may be entries that are not known here."""
        if self._history.dirty:  # a charge was taken in memory, and its transaction rolled back
            self._history = self._new_history()
            self._history.resume(store)
            self._history.follow(store)
        elif longer:
            self._history.follow(store)
        self._note_on_record()
        return self._history

    def _note_on_record(self) -> None:
        """Remember the newest entry that was read, unless this is an owner, who knows what it wrote."""
        if not self._store.alone and self._history.seq > self._durable[0]:
            self._durable = self._history.seq, self._history.head

    @contextmanager
    def _writing(self) -> Iterator[History]:
        """Give the newest state while no other process can write; writes are durable when the block ends."""
        if not self._writes:
            raise LedgerError(f"{self.path} was opened to be read: leave read_only= out")
        with self._store.reading():
            with self._store.writing():
                history = self._newest(self._store, longer=self._check_on_record())
                before = history.seq
                yield history
            history.settle()
            self._durable = history.seq, history.head
            if history.seq != before:
                self._remember()
            # what is released must be confirmed, also where nothing was written: a retry, or others' entries
            head = self._head() if self._quorum is not None and history.seq > self._confirmed else None
        if head is not None:
            self._confirm(head, instead=self._instead, everyone=bool(self._instead))

    def _check_on_record(self) -> bool:
        """Whether there are entries that are not known here.

        Raises LedgerMoved unless the newest entry known here is on record, and for an owner the newest.
        """
        seq, head = self._durable
        rows = self._store.with_next(seq)
        self._on_record = rows[0] if rows else None
        lost = seq and (self._on_record is None or self._on_record.digest != head)
        longer = bool(rows) and rows[-1].seq > seq
        in_doubt = self._history.dirty  # a lost connection may have committed one more transaction
        if lost or (self._store.alone and longer and not in_doubt):
            trouble = (
                f"has another history than the {seq} entries known here, so it was replaced or rolled back"
            )
            self._store.poison(trouble)
            raise LedgerMoved(f"{self.path} {trouble}: stop, and put the newest copy back")
        return longer


class _ProbedError(Exception):
    """Ends a probe's transaction."""


@contextmanager
def _damage_reported(path: str) -> Iterator[None]:
    """Report values of the wrong type as damage: a damaged page can produce them."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise LedgerError(
            f"{path} {DAMAGED} (a field has an impossible value: {type(error).__name__})"
        ) from error


class PricedRequest(NamedTuple):
    """A charge request after its checks, with its prices looked up."""

    account: str
    key: str
    asked: bytes
    cost: Quote
    reserve: Quote
    answer: int
    times: int
    follows: bool
    protects: str
    simulation: int


class PriceList:
    """Cache of mechanism prices. ``adaptive``: answers decide which of a request's two prices is paid."""

    def __init__(self, *, adaptive: bool = False) -> None:
        self._adaptive = adaptive
        self._new = threading.Lock()
        self._pairs: dict[tuple[Priced, Priced], tuple[Quote, Quote]] = {}
        self._quotes: dict[tuple[Priced, str], Quote] = {}

    def quote(self, mechanism: Priced) -> Quote:
        """Return name, unit, orders and cost of a mechanism whose curve is publishable."""
        name = repr(mechanism)  # equal mechanisms may have two names: sigma=40 and sigma=40.0
        parameters = getattr(type(mechanism), "__dataclass_params__", None)
        if not getattr(parameters, "frozen", False):  # its price may change while it stays the same object
            return self._quoted(mechanism, name)
        try:
            return self._quotes[mechanism, name]
        except (KeyError, TypeError):  # new, or not hashable
            quote = self._quoted(mechanism, name)
        if len(self._quotes) >= _REMEMBERED:
            self._quotes.clear()
        with contextlib.suppress(TypeError):
            self._quotes[mechanism, name] = quote
        return quote

    def _quoted(self, mechanism: Priced, name: str) -> Quote:
        curve = mechanism.curve()
        if not curve.publishable:
            raise ValueError(
                f"{mechanism!r} has a cost computed from private data: only publishable curves are charged"
            )
        orders, cost = price(curve)
        return name, curve.moves, orders, cost

    def priced(
        self, requests: Sequence[ChargeRequest], *, unit: str, simulation: bool
    ) -> list[PricedRequest]:
        """Check requests and look their prices up; raise ValueError for a wrong argument."""
        # by identity: many requests share few objects, and to hash a mechanism takes longer than the rest
        known: dict[tuple[int, int], tuple[Quote, Quote, str]] = {}
        priced = []
        for request in requests:
            check_text(account=request.account, key=request.key)
            check.integer(least=-(2**31), answer=request.answer)
            check.at_most(2**31 - 1, answer=request.answer)
            check.integer(least=1, times=request.times)
            try:
                asked = bytes.fromhex(request.digest)
            except (TypeError, ValueError):
                asked = b""
            if not asked:
                raise ValueError(f"digest must be hexadecimal and not empty, got {request.digest!r}")
            objects = id(request.cost), id(request.reserve)
            if objects not in known:
                cost, reserve = self._pair(request.cost, request.reserve)
                known[objects] = cost, reserve, protection(unit, cost[0])
            cost, reserve, protects = known[objects]
            priced.append(
                PricedRequest(
                    request.account,
                    request.key,
                    asked,
                    cost,
                    reserve,
                    int(request.answer),
                    int(request.times),
                    bool(request.follows),
                    protects,
                    int(simulation),
                )
            )
        return priced

    def _pair(self, cost: Priced, reserve: Priced) -> tuple[Quote, Quote]:
        """The prices of a request, of which the second covers the first."""
        with self._new:  # else every thread of a service would compute the first price
            with contextlib.suppress(KeyError, TypeError):  # new, or not hashable
                return self._pairs[cost, reserve]
            pair = self.quote(cost), self.quote(reserve)
            (_, *kind, low), (_, *reserve_kind, high) = pair
            if kind != reserve_kind or not covers(high, low):
                raise ValueError(f"reserve must cost at least {cost!r} at every order, got {reserve!r}")
            high = comparable(high, low)
            if self._adaptive:  # what is paid first decides the budget's rule, and answers must not
                low, high = alike(low, high)
            pair = (*pair[0][:-1], low), (*pair[1][:-1], high)
            if len(self._pairs) >= _REMEMBERED:
                self._pairs.clear()
            with contextlib.suppress(TypeError):
                self._pairs[cost, reserve] = pair
            return pair


def check_text(**named: str) -> None:
    """Raise unless every value is printable text."""
    for name, value in named.items():
        if not (isinstance(value, str) and value and value.isprintable()):
            raise ValueError(f"{name} must be printable text and not empty, got {value!r}")


def serve(
    history: History, store: Store, callers: Sequence[Sequence[PricedRequest]], *, decoy: Row | None
) -> list[list[Outcome] | LedgerError]:
    """Decide the requests of several callers in order. A caller with another unit gets its own error.

    ``decoy`` is any entry on record; it is checked where a repeated question's entry would be.
    """
    bound, fitting, errors = history.bound, list[PricedRequest](), {}
    for n, questions in enumerate(callers):
        for question in questions:
            _, unit, orders, _ = question.cost
            bound = bound or (question.protects, unit, orders)
            if bound != (question.protects, unit, orders):
                errors[n] = unlike(history.path, bound, question.protects, unit)
        fitting += () if n in errors else questions
    outcomes = iter(decide(history, store, fitting, decoy=decoy))
    return [errors[n] if n in errors else [next(outcomes) for _ in q] for n, q in enumerate(callers)]


def unlike(path: str, bound: tuple[str, str, bytes], protects: str, unit: str) -> LedgerError:
    """Return the error for a charge whose unit, relation or orders differ from the ledger's."""
    return LedgerError(
        f"{path} counts {bound[1]} curves that protect a {bound[0]}; this is a {unit} curve that protects a "
        f"{protects}, or has other orders: use a separate ledger, or a mechanism of the same relation. "
        "Prices for a unit added or removed do not add to prices for one replaced: it is up to twice as far"
    )


def decide(
    history: History, store: Store, questions: Sequence[PricedRequest], *, decoy: Row | None
) -> list[Outcome]:
    """Grant or refuse each request and write the granted ones. Refusals depend on publishable totals only."""
    by_key = store.with_keys([(q.account, q.key) for q in questions])
    first = store.with_asked([q.asked for q in questions])
    # the same work for new and repeated questions, so that response times do not tell them apart
    looked = (*by_key.values(), *(first.get(question.asked, decoy) for question in questions))
    history.check_each([row for row in looked if row is not None], store)
    drafts: list[Row] = []
    outcomes: list[Row | BudgetExceeded | KeyConflict] = []
    for question in questions:
        same_key = by_key.get((question.account, question.key))
        if question.follows and outcomes and not isinstance(outcomes[-1], Row):
            outcomes.append(outcomes[-1])
        elif same_key is None:
            granted = _granted(history, question, first.get(question.asked), history.seq + 1 + len(drafts))
            if isinstance(granted, Row):
                drafts.append(granted)
                by_key[question.account, question.key] = granted
                first.setdefault(question.asked, granted)
            outcomes.append(granted)
        elif same_key.asked == question.asked:
            outcomes.append(same_key)
        else:
            outcomes.append(
                KeyConflict(
                    f"key {question.key!r} stands for another question: use a new key; nothing was charged"
                )
            )
    written = {}
    if drafts:
        written = {row.seq: row for row in history.write(drafts, store)}
    remainders: dict[str, float] = {}  # near its cap, each look at an account converts its total
    answered: list[Outcome] = []
    for row in outcomes:
        if isinstance(row, Row):
            if row.account not in remainders:
                balance = history.accounts[row.account]
                remainders[row.account] = max(0.0, balance.budget.epsilon - balance.at_most)
            head, left = written.get(row.seq, row).digest.hex(), remainders[row.account]
            answered.append(Receipt(seq=row.seq, head=head, answer=row.answer or 0, left=left))
        else:
            answered.append(row)
    return answered


def _granted(history: History, question: PricedRequest, first: Row | None, seq: int) -> Row | BudgetExceeded:
    """Return the new entry, charged to the ledger's budget and the client's account if both suffice."""
    balance = history.accounts.get(question.account)
    reserve = history.reserve(*question.reserve)
    if balance is None or not (
        history.dataset.fits(reserve, uses=question.times) and balance.fits(reserve, uses=question.times)
    ):
        # the same words for a spent ledger, a spent client and an unknown client
        return BudgetExceeded(
            f"account {question.account!r} has too little left for one more question; nothing was charged",
            asked=history.alone(*question.reserve),
            left=balance.left if balance else 0.0,
        )
    cost = history.price(*question.cost)
    if first is None:
        history.take(history.dataset, cost, under=reserve)
    history.take(balance, cost, under=reserve)
    return Row(
        seq=seq,
        kind=CHARGE,
        account=question.account,
        key=question.key,
        price=cost.id,
        uses=0 if first else 1,
        protects=question.protects,
        simulation=question.simulation,
        epsilon=history.dataset.at_most,
        asked=question.asked,
        answer=first.answer if first else question.answer,
    )


class Group(Generic[Asks, Gets]):
    """Serves callers of :meth:`submit` in order of arrival, many at a time; one of them does the work."""

    def __init__(self, serve: Callable[[Sequence[Asks]], Sequence[Gets | BaseException]]) -> None:
        self._serve = serve
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[Asks, Gets]] = []
        self._busy = False

    def submit(self, asks: Asks) -> Gets:
        """Return what ``serve`` gives for this caller, or raise what it raised."""
        ticket: _Ticket[Asks, Gets] = _Ticket(asks)
        try:
            with self._lock:
                self._waiting.append(ticket)
                ticket.leads, self._busy = not self._busy, True
            if not ticket.leads:
                ticket.turn.acquire()
            if ticket.leads:
                self._lead()
        except BaseException:  # an interrupt: no other caller may wait for this one
            with self._lock:
                waits = ticket in self._waiting  # else it is being served, or was served
                if waits:
                    self._waiting.remove(ticket)
            if waits and ticket.leads:
                self._hand_over()
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.gets  # type: ignore[return-value]

    def _lead(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        try:
            served = self._serve([ticket.asks for ticket in batch])
            for ticket, gets in zip(batch, served, strict=True):
                if isinstance(gets, BaseException):
                    ticket.error = gets
                else:
                    ticket.gets = gets
        except BaseException as error:
            kind = type(error) if isinstance(error, LedgerError) else LedgerError
            for ticket in batch:
                ticket.error = kind(str(error) or "interrupted: it is unknown whether it was charged")
            raise
        finally:
            for ticket in batch:
                ticket.turn.release()
            self._hand_over()  # last: a served caller can ask again and join the next write

    def _hand_over(self) -> None:
        with self._lock:
            self._busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].turn.release()


class _Ticket(Generic[Asks, Gets]):
    __slots__ = ("asks", "error", "gets", "leads", "turn")

    def __init__(self, asks: Asks) -> None:
        self.asks = asks
        self.gets: Gets | None = None
        self.error: BaseException | None = None
        self.leads = False
        self.turn = threading.Lock()
        self.turn.acquire()

"""Where a ledger keeps its rows: what SQLite and PostgreSQL have in common, in one shape of SQL."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, Self

from ostraka.core.ledger.budget import LedgerError, LedgerUnavailable
from ostraka.core.ledger.chain import Row
from ostraka.core.ledger.history import Total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.chain import Fields, Price

COLUMNS = ", ".join(Row._fields)
UNKNOWN = "was interrupted while it wrote, so it is unknown whether the last charge is recorded"
ANSWER = '"array", a.digest, e.digest FROM $answer a LEFT JOIN $entry e ON seq = entry'
_BATCH = 1000  # rows read at a time, so that no long read holds back a checkpoint
_AS_THEN = "pass the one of then, as --secret FILE or secret="
_LEAVE_OUT = (
    "leave out --secret, OSTRAKA_LEDGER_SECRET or secret= (ledger.sqlite.secret in the folder of a run "
    "keys digests of its tables, and is not of its ledger)"
)


class Store(Protocol):
    """Rows in a database. Methods that read or write rows are called inside ``reading`` or ``writing``."""

    path: str
    budget: Budget
    secret: str
    _release: Callable[[], object]
    _process: int
    _lock: threading.RLock
    _trouble: str | None = None
    vouched: Callable[[], bool] | None = None  # whether witnesses know of nothing that is not here
    _begun: float | None = None  # when a call began that has not come back
    _refused: float | None = None  # when the first began of those that could not be used, up to the last one

    def _begin(self, path: str) -> None:
        self.path, self._process, self._lock = path, os.getpid(), threading.RLock()

    def _agree(self, stored: Budget, name: str, *, budget: Budget | None, secret: str) -> None:
        """Keep the stored budget and name of the secret; raise if they are not what the caller expects."""
        if budget is not None and not budget.agrees_with(stored):
            raise LedgerError(
                f"{self.path} has {stored}, not {budget}: to use its own, leave budget= out (on the command "
                "line, --epsilon and --delta)"
            )
        if name != secret:
            wants = "another secret" if name and secret else "a secret" if name else "no secret"
            raise LedgerError(f"{self.path} was begun with {wants}: {_AS_THEN if name else _LEAVE_OUT}")
        self.budget, self.secret = stored, name

    @property
    def alone(self) -> bool:
        """Whether no other process can have added entries."""
        raise NotImplementedError

    @abstractmethod
    def own(self, *, alone: bool) -> None:
        """Take the writer lock: exclusive, or shared with other writers."""

    @abstractmethod
    def own_for_adoption(self) -> str:
        """Take the writer lock alone, on whatever server this is; return what shall be adopted."""

    @abstractmethod
    def adopt(self) -> None:
        """Take this server for the right one from now on, with the transaction that is being written."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Self]:
        """Keep all other writers out, then commit durably. An exception rolls back."""

    @abstractmethod
    def kept_secret(self) -> bytes:
        """32 bytes that stay with the rows and are no part of the ledger; the first call makes them."""

    @abstractmethod
    def check(self) -> None:
        """Check the database's own structure."""

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check the database's own structure before this ends."""
        yield
        self.check()

    @abstractmethod
    def _explained(self) -> AbstractContextManager[None]:
        """Turn errors of the database into one sentence."""

    @abstractmethod
    def _ask(self, query: str, *values: Any) -> Any:
        """Run one statement, with $ before names of tables and ? for values; return a cursor."""

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """Hold the connection for this thread; refuse a store that is closed or poisoned."""
        if os.getpid() != self._process:  # neither connections nor SQLite's locks survive a fork
            raise LedgerError(f"{self.path} was opened by another process: open Ledger(…) in this one")
        start, refused = time.monotonic(), None
        with self._lock:
            try:
                with self._explained():
                    if self._trouble:
                        raise LedgerError(f"{self.path} {self._trouble}: open Ledger(…) again")
                    yield self
            except LedgerUnavailable:
                refused = start if self._refused is None else self._refused
                raise
            finally:
                self._refused = refused

    def poison(self, trouble: str) -> None:
        """Refuse every later use, with this reason."""
        self._trouble = trouble

    def waited(self) -> float:
        """Return the seconds for which nobody could use the database: 0 while it answers.

        They begin with the first of several callers in a row who were refused, each in time, or with a call
        that has not come back. To wait for one who computes does not count.
        """
        starts = [when for when in (self._begun, self._refused) if when is not None]
        return time.monotonic() - min(starts) if starts else 0.0

    def close(self) -> None:
        """Close it. In a process that did not open it, do nothing."""
        if os.getpid() == self._process:
            with self._lock:
                self._trouble = "is closed"
                self._release()

    def blocks(self, after: int, limit: int | None = None) -> Iterator[list[Fields]]:
        """The fields of entries, in order, ``limit`` at most, up to a thousand at a time."""
        while limit is None or limit > 0:
            size = _BATCH if limit is None else min(_BATCH, limit)
            block = self._entries("WHERE seq > ? ORDER BY seq LIMIT ?", after, size).fetchall()
            if block:
                yield block
            if len(block) < size:
                return
            after, limit = block[-1][0], None if limit is None else limit - size

    def rows(self, after: int, limit: int | None = None) -> Iterator[Fields]:
        """The fields of entries, in order, ``limit`` at most."""
        return chain.from_iterable(self.blocks(after, limit))

    def prices(self, after: int) -> list[tuple[int, str, str, bytes, bytes]]:
        """Number, mechanism, unit, orders and cost of prices, in order."""
        rows = self._ask("SELECT * FROM $price WHERE id > ? ORDER BY id", after)
        return list(rows)

    def name(self) -> str | None:
        """The random name that the ledger was begun with; None for one from before format 4."""
        name: str | None = self._ask("SELECT name FROM $budget").fetchone()[0]
        return name

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        return next(map(Row._make, self._entries("WHERE seq = ?", seq)), None)

    def with_next(self, seq: int) -> list[Row]:
        """The entry number ``seq`` and the one after it, as far as there are any."""
        return list(map(Row._make, self._entries("WHERE seq IN (?, ?) ORDER BY seq", seq, seq + 1)))

    def last_snapshot(self) -> Row | None:
        """The newest entry that records all totals."""
        newest = self._entries("WHERE state IS NOT NULL ORDER BY seq DESC LIMIT 1")
        return next(map(Row._make, newest), None)

    @abstractmethod
    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""

    @abstractmethod
    def with_asked(self, questions: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""

    @abstractmethod
    def heads(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The digests of the entries with these numbers."""

    @abstractmethod
    def append(self, rows: Sequence[Row], prices: Sequence[Price], totals: Sequence[Total]) -> None:
        """Add entries at the end, with the prices and totals that are new with them."""

    def last_charge(self, seq: int) -> Row | None:
        """The newest entry up to ``seq`` that the budget was charged for."""
        newest = self._entries(
            "WHERE seq <= ? AND uses > 0 AND price IS NOT NULL ORDER BY seq DESC LIMIT 1", seq
        )
        return next(map(Row._make, newest), None)

    def others(self) -> dict[str, int]:
        """How many entries of each kind there are, but for charges; read from an index of them alone."""
        return dict(self._ask("SELECT kind, count(*) FROM $entry WHERE kind <> 'charge' GROUP BY kind"))

    def notes(self) -> list[Row]:
        """The entries that say what owners did, in order."""
        # the first condition is that of the index
        return list(map(Row._make, self._entries("WHERE kind <> 'charge' AND kind = 'note' ORDER BY seq")))

    def totals(self, seq: int) -> list[Total]:
        """All totals recorded with an entry, by account."""
        rows = self._ask("SELECT * FROM $total WHERE entry = ?", seq)
        return sorted((Total._make(row) for row in rows), key=lambda total: total.account)

    def count(self) -> int:
        """Return the number of entries."""
        return int(self._ask("SELECT count(*) FROM $entry").fetchone()[0])

    def answer(self, seq: int) -> tuple[bytes, bytes, bytes | None] | None:
        """Array and digest of what is stored for an entry, with the entry's digest."""
        query = f"SELECT {ANSWER} WHERE entry = ?"
        answer: tuple[bytes, bytes, bytes | None] | None = self._ask(query, seq).fetchone()
        return answer

    def add_answer(self, seq: int, array: bytes, digest: bytes) -> None:
        """Store the array of an entry that has none."""
        self._ask("INSERT INTO $answer VALUES (?, ?, ?)", seq, array, digest)

    def answers(self) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """Entry, array and digest of every array, with the entry's digest."""
        yield from self._ask(f"SELECT entry, {ANSWER}")

    def _entries(self, where: str, *values: Any) -> Any:
        return self._ask(f"SELECT {COLUMNS} FROM $entry {where}", *values)  # noqa: S608  (names of our own)

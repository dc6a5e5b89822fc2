"""What SQLite and PostgreSQL have in common as the storage of a ledger: one shape of SQL.

Notice that another program removed, replaced or wrote an owner's SQLite files.

A ledger in an SQLite file: transactions and queries.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from abc import abstractmethod
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ostraka.core.ledger import sqlite
from ostraka.core.ledger.budget import Budget, LedgerError, LedgerMoved, LedgerUnavailable
from ostraka.core.ledger.chain import Price, Row
from ostraka.core.ledger.history import Total
from ostraka.core.ledger.sqlite import OPENING, FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.core.ledger.chain import Fields

COLUMNS = ", ".join(Row._fields)
_BATCH = 1000  # rows read at a time, so that no long read holds back a checkpoint


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

    def answer(self, seq: int) -> bytes | None:
        """The array stored for an entry."""
        row = self._ask('SELECT "array" FROM $answer WHERE entry = ?', seq).fetchone()
        return row[0] if row else None

    def add_answer(self, seq: int, array: bytes, digest: bytes) -> None:
        """Store the array of an entry that has none."""
        self._ask("INSERT INTO $answer VALUES (?, ?, ?)", seq, array, digest)

    def answers(self) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """Entry, array and digest of every array, with the entry's digest."""
        yield from self._ask(
            'SELECT entry, "array", a.digest, e.digest FROM $answer a LEFT JOIN $entry e ON seq = entry'
        )

    def _entries(self, where: str, *values: Any) -> Any:
        return self._ask(f"SELECT {COLUMNS} FROM $entry {where}", *values)  # noqa: S608  (names of our own)


_AS_THEN = "pass the one of then, as --secret FILE or secret="
_LEAVE_OUT = (
    "leave out --secret, OSTRAKA_LEDGER_SECRET or secret= (ledger.sqlite.secret in the folder of a run "
    "keys digests of its tables, and is not of its ledger)"
)


def agreed(
    path: str, *, stored: Budget, expected: Budget | None, name: str, secret: str
) -> tuple[Budget, str]:
    """Return the stored budget and name of the secret; raise if they are not what the caller expects."""
    if expected is not None and not expected.agrees_with(stored):
        raise LedgerError(f"{path} has {stored}, not {expected}: leave budget= out to use its own")
    if name != secret:
        wants = "another secret" if name and secret else "a secret" if name else "no secret"
        remedy = _AS_THEN if name else _LEAVE_OUT
        raise LedgerError(f"{path} was begun with {wants}: {remedy}")
    return stored, name


MOVED = (
    "was removed, replaced or changed by another program while it was open: stop, and put the newest copy "
    "back"
)


class Unchanged:
    """A snapshot of an owner's files, by which changes of other programs are noticed.

    Only the owner writes to them: to the ledger itself at a checkpoint, to its log at a commit.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.note_checkpoint()

    def note_checkpoint(self) -> None:
        """Record the present state of both files as this program's own."""
        self._file = _seen(self._path)
        self.note_commit()

    def note_commit(self) -> None:
        """Record the present state of the log as this program's own."""
        self._log = _seen(f"{self._path}-wal")

    def holds(self, *, log: bool) -> bool:
        """Return whether no file was removed, replaced or written by another program."""
        if self._file is None or _seen(self._path) != self._file:
            return False
        return not log or _seen(f"{self._path}-wal") == self._log


def _seen(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  (text, and twice for each transaction)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_Value = TypeVar("_Value")

CHECKPOINT_EVERY = 1000  # commits of one store: about 16 MB of write-ahead log, unless they are large
CHECKPOINT_BYTES = 64 * 2**20
_STORE_BATCH = 1000  # values that one statement takes
_MANY = 200_000  # entries from which on another process pays
_UNKNOWN = "was interrupted while it wrote, so it is unknown whether the last charge is recorded"
_INSERT = f"INSERT INTO entry ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608  (names of our own)


class SQLiteStore(Store):
    """Rows in an SQLite file."""

    def __init__(self, path: str, *, budget: Budget | None, secret: str) -> None:
        self._begin(path)
        self._commits = 0
        self._file_lock: FileLock | None = None
        self._unchanged: Unchanged | None = None
        with sqlite.explained(path), OPENING:
            self._db = sqlite.open_file(path, budget, secret)
            if path != ":memory:":
                self._file_lock = FileLock(path)
            try:
                if self._file_lock is not None:
                    sqlite.upgrade(self._db, path, self._file_lock)
                stored, name = sqlite.inspect(self._db, path)
                self.budget, self.secret = agreed(
                    path, stored=stored, expected=budget, name=name, secret=secret
                )
            except BaseException:
                _release(self._db, self._file_lock, self._process)
                raise
        # a ledger that is dropped without close(), such as an estimator's, must not leak its connection
        self._release = weakref.finalize(self, _release, self._db, self._file_lock, self._process)

    @property
    def alone(self) -> bool:
        """Whether no other process can have added entries."""
        return self.path == ":memory:" or (self._file_lock is not None and self._file_lock.alone)

    def own(self, *, alone: bool) -> None:
        """Take the writer lock: exclusive, or shared with other writers."""
        if self._file_lock is not None:
            with sqlite.explained(self.path):
                self._file_lock.take(alone=alone)
                sqlite.settle(self._db, self.path)
                if alone:
                    sqlite.expect_no_others(self._db)
                    self._unchanged = Unchanged(self.path)

    def own_for_adoption(self) -> str:
        """Take the writer lock alone; a file has no lineage but its anchor."""
        self.own(alone=True)
        return "file"

    def adopt(self) -> None:
        """Do nothing: what was adopted is an entry."""

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Keep all other writers out, then commit durably. An exception rolls back."""
        with self.reading():
            db = self._db
            self._roll_back()  # left over if an interrupt hit between two of the lines below
            self._check_unchanged(log=True)
            log = Path(f"{self.path}-wal")
            many = self._commits >= CHECKPOINT_EVERY
            if many or (
                not self._commits % 16 and log.exists() and log.stat().st_size > CHECKPOINT_BYTES
            ):  # the log is long
                try:
                    sqlite.checkpoint(db)
                    self._commits = 0
                finally:
                    if self._unchanged:
                        self._unchanged.note_checkpoint()
            self._begun = time.monotonic()
            try:
                db.execute("BEGIN IMMEDIATE")
            finally:
                self._begun = None
            try:
                yield self
                self._commit()
            except BaseException:
                self._roll_back()
                raise
            finally:
                if self._unchanged:  # also where it failed: a full disk leaves a part of the log
                    self._unchanged.note_commit()
            self._check_unchanged(log=False)

    def _check_unchanged(self, *, log: bool) -> None:
        if self._file_lock is None:
            return
        unmoved = self._unchanged.holds(log=log) if self._unchanged else self._file_lock.is_same_file()
        if not unmoved:
            self._trouble = MOVED
            raise LedgerMoved(f"{self.path} {MOVED}")

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            trouble, self._trouble = self._trouble, _UNKNOWN
            self._db.execute("ROLLBACK")
            self._trouble = trouble

    def _commit(self) -> None:
        self._trouble = _UNKNOWN
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                self._roll_back()  # the log's end was not written: the transaction does not exist
                self._trouble = None
                raise
            raise LedgerError(
                f"{self.path} {self._trouble}: open Ledger(…) again (SQLite: {error})"
            ) from error
        self._trouble = None
        self._commits += 1

    def check(self) -> None:
        """Check every page and index of the file."""
        if self.path == ":memory:":
            sqlite.check(self._db, self.path)
        else:
            sqlite.check_file(self.path)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check every page and index of the file; of a large one in a process beside this one."""
        (newest,) = self._ask("SELECT coalesce(max(seq), 0) FROM entry").fetchone()
        if self.path == ":memory:" or newest < _MANY:
            with super().checking():
                yield
            return
        with sqlite.checked_beside(self.path) as verdict:
            yield
            verdict()

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        names: dict[str, list[str]] = {}
        for account, key in keys:
            names.setdefault(account, []).append(key)
        return {
            (row.account, row.key or ""): row
            for account, of_account in names.items()
            for row in self._among("WHERE account = ? AND key IN", of_account, account)
        }

    def with_asked(self, questions: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""
        return {row.asked or b"": row for row in self._among("WHERE uses > 0 AND asked IN", questions)}

    def heads(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The digests of the entries with these numbers. A number given twice is looked up twice."""
        digests: dict[int, bytes] = {}
        for part in _parts(numbers):
            wanted = ", ".join(["(?)"] * len(part))
            query = f"SELECT seq, digest FROM (VALUES {wanted}) CROSS JOIN entry ON seq = column1"  # noqa: S608  (placeholders)
            digests.update(self._db.execute(query, part))
        return digests

    def append(self, rows: Sequence[Row], prices: Sequence[Price], totals: Sequence[Total]) -> None:
        """Add entries at the end, with the prices and totals that are new with them."""
        new = ((p.id, p.mechanism, p.unit, p.orders, p.cost) for p in prices)
        if prices:
            self._db.executemany("INSERT INTO price VALUES (?, ?, ?, ?, ?)", new)
        self._db.executemany(_INSERT, rows)
        if totals:
            self._db.executemany("INSERT INTO total VALUES (?, ?, ?, ?, ?, ?)", totals)

    def _explained(self) -> AbstractContextManager[None]:
        return sqlite.explained(self.path)

    def _ask(self, query: str, *values: Any) -> sqlite3.Cursor:
        return self._db.execute(query.replace("$", ""), values)

    def _among(self, where: str, values: Sequence[str | bytes], *before: str) -> Iterator[Row]:
        """The entries for which a value is in a list: one statement for many."""
        for part in _parts(values):
            rows = self._entries(f"{where} ({', '.join('?' * len(part))})", *before, *part)
            yield from map(Row._make, rows)


def _parts(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """Yield pieces that one statement can take."""
    return (values[start : start + _STORE_BATCH] for start in range(0, len(values), _STORE_BATCH))


def _release(db: sqlite3.Connection, lock: FileLock | None, process: int) -> None:
    """Close a connection and its lock, unless this is a forked child, which must not touch its parent's."""
    if os.getpid() == process:
        with OPENING:
            db.close()
            if lock is not None:
                lock.close()

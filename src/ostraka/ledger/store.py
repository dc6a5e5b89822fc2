"""A ledger in an SQLite file: transactions and queries."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from ostraka.ledger import sqlite
from ostraka.ledger.backend import agreed, batches
from ostraka.ledger.budget import Budget, LedgerError, LedgerMoved
from ostraka.ledger.chain import Fields, Price, Row
from ostraka.ledger.history import Total
from ostraka.ledger.locking import OPENING, FileLock
from ostraka.ledger.unchanged import MOVED, Unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SQLiteStore"]

_Value = TypeVar("_Value")

CHECKPOINT_EVERY = 1000  # commits of one store: about 16 MB of write-ahead log, unless they are large
CHECKPOINT_BYTES = 64 * 2**20
_BATCH = 1000  # rows read at a time, so that no long read holds back a checkpoint
_UNKNOWN = "was interrupted while it wrote, so it is unknown whether the last charge is recorded"
_COLUMNS = ", ".join(Row._fields)
_SELECT = f"SELECT {_COLUMNS} FROM entry "  # noqa: S608  (names of our own)
_INSERT = f"INSERT INTO entry ({_COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608  (names of our own)


class SQLiteStore:
    """Rows in an SQLite file. Its methods are called inside :meth:`reading` or :meth:`writing`."""

    def __init__(self, path: str, *, budget: Budget | None, secret: str) -> None:
        self.path = path
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._trouble: str | None = None
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
                found, name = sqlite.inspect(self._db, path)
                self.budget, self.secret = agreed(
                    path, found=found, expected=budget, name=name, secret=secret
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

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """Hold the connection for this thread; refuse a store that is closed or poisoned."""
        if os.getpid() != self._process:  # SQLite's locks and log do not survive a fork
            raise LedgerError(
                f"{self.path} was opened by another process: open Ledger({self.path!r}) in this one"
            )
        with self._lock, sqlite.explained(self.path):
            if self._trouble:
                raise LedgerError(f"{self.path} {self._trouble}: open Ledger({self.path!r}) again")
            yield self

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Keep all other writers out, then commit durably. An exception rolls back."""
        with self.reading():
            db = self._db
            self._roll_back()  # left over if an interrupt hit between two of the lines below
            self._check_unchanged(log=True)
            if self._log_is_long():
                self._checkpoint()
            db.execute("BEGIN IMMEDIATE")
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

    def _checkpoint(self) -> None:
        try:
            sqlite.checkpoint(self._db)
            self._commits = 0
        finally:
            if self._unchanged:
                self._unchanged.note_checkpoint()

    def _check_unchanged(self, *, log: bool) -> None:
        if self._file_lock is None:
            return
        same = self._unchanged.holds(log=log) if self._unchanged else self._file_lock.is_same_file()
        if not same:
            self._trouble = MOVED
            raise LedgerMoved(f"{self.path} {MOVED}")

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            trouble, self._trouble = self._trouble, _UNKNOWN
            self._db.execute("ROLLBACK")
            self._trouble = trouble

    def _log_is_long(self) -> bool:
        if self._commits < CHECKPOINT_EVERY and self._commits % 16:
            return False
        log = Path(f"{self.path}-wal")
        return self._commits >= CHECKPOINT_EVERY or (log.exists() and log.stat().st_size > CHECKPOINT_BYTES)

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
                f"{self.path} {self._trouble}: open Ledger({self.path!r}) again (SQLite: {error})"
            ) from error
        self._trouble = None
        self._commits += 1

    def poison(self, trouble: str) -> None:
        """Refuse every later use, with this reason."""
        self._trouble = trouble

    def close(self) -> None:
        """Close the file. In a process that did not open it, do nothing."""
        if os.getpid() == self._process:
            with self._lock:
                self._trouble = "is closed"
                self._release()

    def check(self) -> None:
        """Check every page and index of the file; called while another thread reads."""
        if self.path == ":memory:":
            sqlite.check(self._db, self.path)
            return
        with closing(sqlite.watch(Path(self.path))) as db:
            sqlite.check(db, self.path)

    def rows(self, after: int, limit: int | None = None) -> Iterator[Fields]:
        """The fields of entries, in order, ``limit`` at most."""
        query = f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?"
        for size in batches(_BATCH, limit):
            batch = self._db.execute(query, (after, size)).fetchall()
            yield from batch
            if len(batch) < size:
                return
            after = batch[-1][0]

    def prices(self, after: int) -> list[tuple[int, str, str, bytes, bytes]]:
        """Number, mechanism, unit, orders and cost of prices, in order."""
        return self._db.execute("SELECT * FROM price WHERE id > ? ORDER BY id", (after,)).fetchall()

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        return self._one("WHERE seq = ?", seq)

    def with_next(self, seq: int) -> list[Row]:
        """The entry number ``seq`` and the one after it, as far as there are any."""
        found = self._db.execute(_SELECT + "WHERE seq IN (?, ?) ORDER BY seq", (seq, seq + 1))
        return [Row._make(fields) for fields in found]

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        names: dict[str, list[str]] = {}
        for account, key in keys:
            names.setdefault(account, []).append(key)
        return {
            (row.account, row.key or ""): row
            for account, asked in names.items()
            for row in self._among("WHERE account = ? AND key IN", asked, account)
        }

    def with_asked(self, asked: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""
        return {row.asked or b"": row for row in self._among("WHERE uses > 0 AND asked IN", asked)}

    def heads(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The digests of the entries with these numbers. A number given twice is looked up twice."""
        found: dict[int, bytes] = {}
        for part in _parts(numbers):
            wanted = ", ".join(["(?)"] * len(part))
            query = f"SELECT seq, digest FROM (VALUES {wanted}) CROSS JOIN entry ON seq = column1"  # noqa: S608  (placeholders)
            found.update(self._db.execute(query, part))
        return found

    def last_snapshot(self) -> Row | None:
        """The newest entry that records all totals."""
        return self._one("WHERE state IS NOT NULL ORDER BY seq DESC LIMIT 1")

    def totals(self, seq: int) -> list[Total]:
        """All totals recorded with an entry, by account."""
        found = self._db.execute("SELECT * FROM total WHERE entry = ? ORDER BY account", (seq,))
        return [Total._make(row) for row in found]

    def append(self, rows: Sequence[Row], prices: Sequence[Price], totals: Sequence[Total]) -> None:
        """Add entries at the end, with the prices and totals that are new with them."""
        new = ((p.id, p.mechanism, p.unit, p.orders, p.cost) for p in prices)
        self._db.executemany("INSERT INTO price VALUES (?, ?, ?, ?, ?)", new)
        self._db.executemany(_INSERT, rows)
        self._db.executemany("INSERT INTO total VALUES (?, ?, ?, ?, ?, ?)", totals)

    def count(self) -> int:
        """Return the number of entries."""
        (count,) = self._db.execute("SELECT count(*) FROM entry").fetchone()
        return int(count)

    def answer(self, seq: int) -> bytes | None:
        """The array stored for an entry."""
        found: tuple[bytes] | None = self._db.execute(
            "SELECT array FROM answer WHERE entry = ?", (seq,)
        ).fetchone()
        return found[0] if found else None

    def add_answer(self, seq: int, array: bytes, digest: bytes) -> None:
        """Store the array of an entry that has none."""
        self._db.execute("INSERT INTO answer VALUES (?, ?, ?)", (seq, array, digest))

    def answers(self) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """Entry, array and digest of every array, with the entry's digest."""
        yield from self._db.execute(
            "SELECT entry, array, answer.digest, entry.digest FROM answer LEFT JOIN entry ON seq = entry"
        )

    def _among(self, where: str, values: Sequence[str | bytes], *before: str) -> Iterator[Row]:
        """The entries for which a value is in a list: one statement for many."""
        for part in _parts(values):
            query = f"{_SELECT}{where} ({', '.join('?' * len(part))})"
            yield from map(Row._make, self._db.execute(query, (*before, *part)))

    def _one(self, where: str, *values: str | int | bytes) -> Row | None:
        found = self._db.execute(_SELECT + where, values).fetchone()
        return Row._make(found) if found else None


def _parts(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """Yield pieces that one statement can take."""
    return (values[start : start + _BATCH] for start in range(0, len(values), _BATCH))


def _release(db: sqlite3.Connection, lock: FileLock | None, process: int) -> None:
    """Close a connection and its lock, unless this is a forked child, which must not touch its parent's."""
    if os.getpid() == process:
        with OPENING:
            db.close()
            if lock is not None:
                lock.close()

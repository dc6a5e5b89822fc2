"""One process's connection to a ledger file: whose turn it is, and the few queries there are."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from ostraka.ledger import sqlite
from ostraka.ledger.budget import Budget, LedgerError
from ostraka.ledger.chain import Row, link

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Store"]

CHECKPOINT_EVERY = 1000  # commits of one store: about 16 MB of write-ahead log
_BATCH = 1000  # rows read at a time, so that no long read holds back a checkpoint
_SELECT = """
SELECT seq, key, mechanism, unit, orders, cost, uses, protects, simulation, total, epsilon, digest
FROM entry JOIN price ON price.id = entry.price
"""


class Store:
    """Rows in an SQLite file. Its methods are called inside :meth:`reading` or :meth:`writing`."""

    def __init__(self, path: str, budget: Budget | None) -> None:
        self.path = path
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._trouble: str | None = None
        self._commits = 0
        with sqlite.explained(path):
            self._db = sqlite.open_file(path, budget)
            try:
                self.budget = sqlite.inspect(self._db, path, budget)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """Hold the connection, if it may still be used."""
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
        """Hold the file against all other writers; then commit, durably. On an exception, write nothing."""
        with self.reading():
            db = self._db
            if db.in_transaction:  # an interrupt struck between two of the lines below
                db.execute("ROLLBACK")
            if self._commits >= CHECKPOINT_EVERY:
                sqlite.checkpoint(db)
                self._commits = 0
            try:
                db.execute("BEGIN IMMEDIATE")
                yield self
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            self._commit()

    def _commit(self) -> None:
        self._trouble = "was stopped while it wrote, and may have the last charge or not"
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.path} {self._trouble}: open Ledger({self.path!r}) again (SQLite: {error})"
            ) from error
        self._trouble = None
        self._commits += 1

    def close(self) -> None:
        """Close the file. In a process that did not open it: do nothing."""
        if os.getpid() == self._process:
            with self._lock:
                self._trouble = "is closed"
                self._db.close()

    def last(self) -> Row | None:
        """The newest entry."""
        return self._one("ORDER BY seq DESC LIMIT 1")

    def with_key(self, key: str) -> Row | None:
        """The entry charged under ``key``."""
        return self._one("WHERE key = ?", key)

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        return self._one("WHERE seq = ?", seq)

    def simulated(self) -> Row | None:
        """An entry whose noise could be repeated."""
        return self._one("WHERE simulation <> 0 LIMIT 1")

    def rows(self) -> Iterator[Row]:
        """Every entry, in order."""
        seq, query = 0, f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?"
        while batch := self._db.execute(query, (seq, _BATCH)).fetchall():
            yield from map(Row._make, batch)
            seq = batch[-1][0]

    def count(self) -> int:
        """How many entries there are, whether or not they have a price."""
        (count,) = self._db.execute("SELECT count(*) FROM entry").fetchone()
        return int(count)

    def append(self, row: Row) -> None:
        """Add an entry at the end, and its price if that is new."""
        same = (row.mechanism, row.unit, row.orders, row.cost)
        known = (
            self._db.execute(
                "SELECT id FROM price WHERE (mechanism, unit, orders, cost) = (?, ?, ?, ?)", same
            ).fetchone()
            or self._db.execute(
                "INSERT INTO price SELECT count(*) + 1, ?, ?, ?, ? FROM price RETURNING id", same
            ).fetchone()
        )
        values = (
            row.seq,
            row.key,
            *known,
            row.uses,
            row.protects,
            row.simulation,
            row.total,
            row.epsilon,
            row.digest,
        )
        self._db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def answer(self, seq: int) -> bytes | None:
        """The answer stored for an entry."""
        found: tuple[bytes] | None = self._db.execute(
            "SELECT array FROM answer WHERE entry = ?", (seq,)
        ).fetchone()
        return found[0] if found else None

    def add_answer(self, row: Row, array: bytes) -> None:
        """Store the answer of an entry that has none."""
        self._db.execute(
            "INSERT INTO answer VALUES (?, ?, ?)", (row.seq, array, link(row.digest, ["answer"], array))
        )

    def bad_answer(self) -> int | None:
        """The first entry whose answer is not the one recorded."""
        for seq, array, digest, sealed in self._db.execute(
            "SELECT entry, array, answer.digest, entry.digest FROM answer LEFT JOIN entry ON seq = entry"
        ):
            if sealed is None or digest != link(sealed, ["answer"], array):
                return int(seq)
        return None

    def _one(self, where: str, *values: str | int) -> Row | None:
        found = self._db.execute(_SELECT + where, values).fetchone()
        return Row(*found) if found else None

"""A ledger in a PostgreSQL schema: the first one of the connection's search path.

Entries are only ever added: triggers forbid other changes. A transaction first locks the one row of
``ostraka_budget`` and then reads. Without that lock, at the default isolation, transactions that read
concurrently would each grant the same remaining budget.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from ostraka import _check
from ostraka.ledger.backend import agreed, batches
from ostraka.ledger.budget import DAMAGED, Budget, LedgerError, LedgerMoved, LedgerUnavailable
from ostraka.ledger.chain import Fields, Price, Row
from ostraka.ledger.history import Total
from ostraka.ledger.postgres_tables import NAMES, UPGRADES, VERSION, fill, shown, upgrade, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PostgresStore"]

PATIENCE, _OWNER_WAITS = 60, 5  # seconds to wait for the locks of others
_CONNECTING = {"connect_timeout": 5, "tcp_user_timeout": 30_000, "keepalives_idle": 10}  # s, ms, s
_SELECT = f"SELECT {', '.join(Row._fields)} FROM ostraka_entry "  # noqa: S608  (names of our own)
_COLUMNS = {"entry": f" ({', '.join(Row._fields)})"}
_KEYS = "(account, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
_BATCH = 1000
_UNKNOWN = "was interrupted while it wrote, so it is unknown whether the last charge is recorded"


class PostgresStore:
    """Rows in a PostgreSQL schema. Its methods are called inside :meth:`reading` or :meth:`writing`."""

    def __init__(self, where: str, *, budget: Budget | None, secret: str) -> None:
        self._pg: Any = _check.require("psycopg", extra="service")
        self.path = shown(self._pg, where)
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._trouble: str | None = None
        self._where, self._alone, self._writes = where, False, False
        self._db = self._connected(budget, secret)
        # a ledger that is dropped without close(), such as an estimator's, must not leak its connection
        self._release = weakref.finalize(self, _release, self._db, self._process)

    def _connected(self, budget: Budget | None, secret: str) -> Any:
        """A new connection to the ledger with this budget and secret."""
        with self._explained():
            self._db = db = self._pg.connect(self._where, autocommit=True, **self._options())
            try:
                self._make_durable()
                found, name = self._found(budget, secret)
                self.budget, self.secret = agreed(
                    self.path, found=found, expected=budget, name=name, secret=secret
                )
            except BaseException:
                db.close()
                raise
        return db

    def _options(self) -> dict[str, int]:
        """Return connection options: timeouts for an address that does not set them."""
        given = self._pg.conninfo.conninfo_to_dict(self._where)
        return {name: value for name, value in _CONNECTING.items() if name not in given}

    def _reconnect(self) -> None:
        """Replace a lost connection, and take the writer lock again."""
        self._release()
        budget = self.budget
        try:
            self._db = self._connected(None, self.secret)
        except LedgerUnavailable:
            raise
        except LedgerError as error:
            raise LedgerMoved(f"{error} (after a lost connection)") from error
        if self.budget != budget:
            raise LedgerMoved(f"{self.path} has another budget since a lost connection: stop, and restore it")
        self._release = weakref.finalize(self, _release, self._db, self._process)
        if self._writes:
            try:
                self.own(alone=self._alone)
            except LedgerError as error:
                self._db.close()
                raise LedgerUnavailable(f"{error} (after a lost connection)") from error

    @property
    def alone(self) -> bool:
        """Whether no other process can have added entries."""
        return self._alone

    def own(self, *, alone: bool) -> None:
        """Take the writer lock, exclusive or shared, until the connection ends."""
        lock = "pg_try_advisory_lock" if alone else "pg_try_advisory_lock_shared"
        with self._explained():
            query = f"SELECT {lock}(('ostraka_budget'::regclass)::oid::bigint)"
            (got,) = self._db.execute(query).fetchone()
        if not got:
            who = "is open for writing elsewhere" if alone else "is owned by another process"
            raise LedgerError(f"{self.path} {who}: stop that first, or open it with read_only=True")
        if alone:
            with self._explained():
                self._db.execute(f"SET lock_timeout = '{_OWNER_WAITS}s'")
        self._alone, self._writes = alone, True

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """Hold the connection for this thread; refuse a store that is closed or poisoned."""
        if os.getpid() != self._process:  # a connection does not survive a fork
            raise LedgerError(f"{self.path} was opened by another process: open Ledger(…) in this one")
        with self._lock, self._explained():
            if self._trouble:
                raise LedgerError(f"{self.path} {self._trouble}: open Ledger(…) again")
            if self._db.closed:
                self._reconnect()
            yield self

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Keep all other writers out, then commit durably. An exception rolls back."""
        with self.reading():
            try:
                self._db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                self._db.execute("SELECT id FROM ostraka_budget FOR UPDATE")
                yield self
            except BaseException:
                self._roll_back()
                raise
            self._commit()

    def _roll_back(self) -> None:
        trouble, self._trouble = self._trouble, _UNKNOWN
        status, known = self._db.info.transaction_status, self._pg.pq.TransactionStatus
        if status == known.UNKNOWN:  # the connection is lost, and the server rolls back
            self._db.close()
        elif status != known.IDLE:
            self._db.execute("ROLLBACK")
        self._trouble = trouble

    def _commit(self) -> None:
        self._trouble = _UNKNOWN
        try:
            done = self._db.execute("COMMIT").statusmessage
        except self._pg.Error as error:
            if self._db.broken:
                # The server may have committed. The next transaction waits for that one's lock, reads what
                # is on record, and a retry with the same key finds its charge.
                self._trouble = None
                raise
            raise LedgerError(
                f"{self.path} {self._trouble}: open Ledger(…) again ({words(error)})"
            ) from error
        if done != "COMMIT":
            raise LedgerError(f"{self.path} {self._trouble}: open Ledger(…) again (PostgreSQL: {done})")
        self._trouble = None

    def poison(self, trouble: str) -> None:
        """Refuse every later use, with this reason."""
        self._trouble = trouble

    def close(self) -> None:
        """Close the connection. In a process that did not open it, do nothing."""
        if os.getpid() == self._process:
            with self._lock:
                self._trouble = "is closed"
                self._release()

    def check(self) -> None:
        """Check that the triggers which forbid changes are in place."""
        names = self._db.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgenabled = 'O' AND tgrelid = ANY(%s::regclass[])"
            " AND tgfoid = 'ostraka_append_only'::regproc",
            ([f"ostraka_{name}" for name in NAMES],),
        ).fetchone()
        if names != (2 * len(NAMES),):
            raise LedgerError(f"{self.path} {DAMAGED} (its triggers were changed)")

    def rows(self, after: int, limit: int | None = None) -> Iterator[Fields]:
        """The fields of entries, in order, ``limit`` at most."""
        query = f"{_SELECT} WHERE seq > %s ORDER BY seq LIMIT %s"
        for size in batches(_BATCH, limit):
            batch = self._db.execute(query, (after, size), binary=True).fetchall()
            yield from batch
            if len(batch) < size:
                return
            after = batch[-1][0]

    def prices(self, after: int) -> list[tuple[int, str, str, bytes, bytes]]:
        """Number, mechanism, unit, orders and cost of prices, in order."""
        return self._all("SELECT * FROM ostraka_price WHERE id > %s ORDER BY id", after)

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        return self._one("WHERE seq = %s", seq)

    def with_next(self, seq: int) -> list[Row]:
        """The entry number ``seq`` and the one after it, as far as there are any."""
        found = self._all(f"{_SELECT} WHERE seq IN (%s, %s) ORDER BY seq", seq, seq + 1)
        return [Row._make(fields) for fields in found]

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        accounts, names = [key[0] for key in keys], [key[1] for key in keys]
        found = map(Row._make, self._all(f"{_SELECT} WHERE {_KEYS}", accounts, names))
        return {(row.account, row.key or ""): row for row in found}

    def with_asked(self, asked: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""
        found = map(Row._make, self._all(f"{_SELECT} WHERE asked = ANY(%s) AND uses > 0", list(asked)))
        return {row.asked or b"": row for row in found}

    def heads(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The digests of the entries with these numbers."""
        return dict(self._all("SELECT seq, digest FROM ostraka_entry WHERE seq = ANY(%s)", list(numbers)))

    def last_snapshot(self) -> Row | None:
        """The newest entry that records all totals."""
        return self._one("WHERE state IS NOT NULL ORDER BY seq DESC LIMIT 1")

    def totals(self, seq: int) -> list[Total]:
        """All totals recorded with an entry, by account."""
        query = 'SELECT * FROM ostraka_total WHERE entry = %s ORDER BY account COLLATE "C"'
        return [Total._make(row) for row in self._all(query, seq)]

    def append(self, rows: Sequence[Row], prices: Sequence[Price], totals: Sequence[Total]) -> None:
        """Add entries at the end, with the prices and totals that are new with them."""
        with self._db.cursor() as cursor:
            for table, values in (
                ("price", [(p.id, p.mechanism, p.unit, p.orders, p.cost) for p in prices]),
                ("entry", rows),
                ("total", totals),
            ):
                if values:
                    with cursor.copy(f"COPY ostraka_{table}{_COLUMNS.get(table, '')} FROM STDIN") as copy:
                        for value in values:
                            copy.write_row(value)

    def count(self) -> int:
        """Return the number of entries."""
        return int(self._all("SELECT count(*) FROM ostraka_entry")[0][0])

    def answer(self, seq: int) -> bytes | None:
        """The array stored for an entry."""
        found = self._all('SELECT "array" FROM ostraka_answer WHERE entry = %s', seq)
        return found[0][0] if found else None

    def add_answer(self, seq: int, array: bytes, digest: bytes) -> None:
        """Store the array of an entry that has none."""
        self._db.execute("INSERT INTO ostraka_answer VALUES (%s, %s, %s)", (seq, array, digest))

    def answers(self) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """Entry, array and digest of every array, with the entry's digest."""
        yield from self._all(
            'SELECT entry, "array", a.digest, e.digest '
            "FROM ostraka_answer a LEFT JOIN ostraka_entry e ON seq = entry"
        )

    def _all(self, query: str, *values: object) -> list[Any]:
        found: list[Any] = self._db.execute(query, values, binary=True).fetchall()
        return found

    def _one(self, where: str, *values: object) -> Row | None:
        found = self._all(_SELECT + where, *values)
        return Row._make(found[0]) if found else None

    def _make_durable(self) -> None:
        self._db.execute("SET synchronous_commit = on")
        self._db.execute(f"SET lock_timeout = '{PATIENCE}s'")
        self._db.execute("SET client_min_messages = error")
        settings = {
            name: self._db.execute(f"SHOW {name}").fetchone()[0]
            for name in ("synchronous_commit", "fsync", "full_page_writes")
        }
        if settings != dict.fromkeys(settings, "on"):
            raise LedgerError(f"{self.path} does not write durably ({settings}): turn all of these on")

    def _found(self, budget: Budget | None, secret: str) -> tuple[Budget, str]:
        """Return the stored budget and name of the secret; create missing tables."""
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(hashtext('ostraka' || current_schema()))")
            (table,) = self._db.execute("SELECT to_regclass('ostraka_budget')").fetchone()
            if table is None:
                if budget is None:
                    raise LedgerError(
                        f"no ledger at {self.path}: to begin one, add budget=Budget(epsilon=…, delta=…)"
                    )
                fill(self._db, budget, secret)
            (version,) = self._db.execute("SELECT version FROM ostraka_budget").fetchone() or (VERSION,)
            if version in UPGRADES:
                upgrade(self._db, version, self.path)
        row = self._db.execute(
            "SELECT version, epsilon, delta, adaptive, secret FROM ostraka_budget", binary=True
        ).fetchone()
        if row is None:
            raise LedgerError(f"{self.path} {DAMAGED} (it has no budget)")
        if row[0] != VERSION:
            raise LedgerError(
                f"{self.path} has format {row[0]}, this ostraka knows {VERSION}: pip install -U ostraka"
            )
        return Budget(epsilon=row[1], delta=row[2], adaptive=row[3]), row[4]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of PostgreSQL into one sentence."""
        try:
            yield
        except self._pg.errors.LockNotAvailable as error:
            raise LedgerUnavailable(f"{self.path} is held by others: try again later") from error
        except self._pg.errors.UndefinedTable as error:
            raise LedgerMoved(f"{self.path} has no tables any more: stop, and restore them") from error
        except self._pg.Error as error:
            passing = self._pg.OperationalError, self._pg.errors.ReadOnlySqlTransaction  # such as a failover
            if isinstance(error, passing):
                raise LedgerUnavailable(
                    f"{self.path} cannot be reached, and nothing was answered: try again ({words(error)})"
                ) from error
            raise LedgerError(
                f"{self.path} could not be used, and nothing was answered ({words(error)})"
            ) from error


def _release(db: Any, process: int) -> None:
    """Close a connection, unless this is a forked child, which shares it with its parent."""
    if os.getpid() == process:
        db.close()

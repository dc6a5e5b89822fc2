"""A ledger in a PostgreSQL schema: the first one of the connection's search path.

Entries are only ever added: triggers forbid other changes. A transaction first locks the one row of
``ostraka_budget`` and then reads. Without that lock, at the default isolation, transactions that read
concurrently would each grant the same remaining budget.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from ostraka import _check
from ostraka.ledger.backend import agreed
from ostraka.ledger.budget import DAMAGED, Budget, LedgerError
from ostraka.ledger.chain import Fields, Price, Row
from ostraka.ledger.history import Total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PostgresStore"]

VERSION = 2
PATIENCE = 60  # seconds to wait for the transactions of others
TABLES = """
CREATE TABLE ostraka_budget (
    id integer PRIMARY KEY CHECK (id = 1),
    version integer NOT NULL,
    epsilon double precision NOT NULL,
    delta double precision NOT NULL,
    adaptive boolean NOT NULL,
    secret text NOT NULL
);
CREATE TABLE ostraka_price (
    id integer PRIMARY KEY,
    mechanism text NOT NULL,
    unit text NOT NULL,
    orders bytea NOT NULL,
    cost bytea NOT NULL
);
CREATE TABLE ostraka_entry (
    seq bigint PRIMARY KEY,
    kind text NOT NULL,
    account text NOT NULL,
    key text,
    price integer REFERENCES ostraka_price,
    uses bigint NOT NULL,
    protects text NOT NULL,
    simulation integer NOT NULL,
    epsilon double precision NOT NULL,
    asked bytea,
    answer bigint,
    cap double precision,
    state bytea,
    digest bytea NOT NULL
);
CREATE UNIQUE INDEX ostraka_entry_key ON ostraka_entry (account, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX ostraka_entry_asked ON ostraka_entry (asked) WHERE asked IS NOT NULL AND uses > 0;
CREATE INDEX ostraka_entry_state ON ostraka_entry (seq) WHERE state IS NOT NULL;
CREATE TABLE ostraka_total (
    entry bigint NOT NULL REFERENCES ostraka_entry,
    account text NOT NULL,
    cap double precision,
    protects text NOT NULL,
    simulation integer NOT NULL,
    total bytea,
    PRIMARY KEY (entry, account)
);
CREATE TABLE ostraka_answer (
    entry bigint PRIMARY KEY REFERENCES ostraka_entry,
    "array" bytea NOT NULL,
    digest bytea NOT NULL
);
CREATE FUNCTION ostraka_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
"""
_NAMES = ("answer", "budget", "entry", "price", "total")
_SELECT = f"SELECT {', '.join(Row._fields)} FROM ostraka_entry "  # noqa: S608  (names of our own)
_KEYS = "(account, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
_BATCH = 1000
_UNKNOWN = "was interrupted while it wrote, so it is unknown whether the last charge is recorded"


class PostgresStore:
    """Rows in a PostgreSQL schema. Its methods are called inside :meth:`reading` or :meth:`writing`."""

    def __init__(self, where: str, *, budget: Budget | None, secret: str) -> None:
        self._pg: Any = _check.require("psycopg", extra="service")
        self.path = _named(self._pg, where)
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._trouble: str | None = None
        self._alone = False
        with self._explained():
            self._db = self._pg.connect(where, autocommit=True)
            try:
                self._make_durable()
                found, name = self._found(budget, secret)
                self.budget, self.secret = agreed(
                    self.path, found=found, expected=budget, name=name, secret=secret
                )
            except BaseException:
                self._db.close()
                raise

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
        self._alone = alone

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """Hold the connection for this thread; refuse a store that is closed or poisoned."""
        if os.getpid() != self._process:  # a connection does not survive a fork
            raise LedgerError(f"{self.path} was opened by another process: open Ledger(…) in this one")
        with self._lock, self._explained():
            if self._trouble:
                raise LedgerError(f"{self.path} {self._trouble}: open Ledger(…) again")
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
        if self._db.info.transaction_status != self._pg.pq.TransactionStatus.IDLE:
            self._db.execute("ROLLBACK")
        self._trouble = trouble

    def _commit(self) -> None:
        self._trouble = _UNKNOWN
        try:
            done = self._db.execute("COMMIT").statusmessage
        except self._pg.Error as error:
            raise LedgerError(
                f"{self.path} {self._trouble}: open Ledger(…) again ({_words(error)})"
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
                self._db.close()

    def check(self) -> None:
        """Check that the triggers which forbid changes are in place."""
        names = self._db.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgenabled = 'O' AND tgrelid = ANY(%s::regclass[])"
            " AND tgfoid = 'ostraka_append_only'::regproc",
            ([f"ostraka_{name}" for name in _NAMES],),
        ).fetchone()
        if names != (2 * len(_NAMES),):
            raise LedgerError(f"{self.path} {DAMAGED} (its triggers were changed)")

    def rows(self, after: int) -> Iterator[Fields]:
        """The fields of entries, in order."""
        query = f"{_SELECT} WHERE seq > %s ORDER BY seq LIMIT %s"
        while batch := self._db.execute(query, (after, _BATCH), binary=True).fetchall():
            yield from batch
            after = batch[-1][0]
            if len(batch) < _BATCH:
                return

    def prices(self, after: int) -> list[tuple[int, str, str, bytes, bytes]]:
        """Number, mechanism, unit, orders and cost of prices, in order."""
        return self._all("SELECT * FROM ostraka_price WHERE id > %s ORDER BY id", after)

    def with_seq(self, seq: int) -> Row | None:
        """The entry number ``seq``."""
        return self._one("WHERE seq = %s", seq)

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        accounts, names = [key[0] for key in keys], [key[1] for key in keys]
        found = map(Row._make, self._all(f"{_SELECT} WHERE {_KEYS}", accounts, names))
        return {(row.account, row.key or ""): row for row in found}

    def with_asked(self, asked: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""
        found = map(Row._make, self._all(f"{_SELECT} WHERE asked = ANY(%s) AND uses > 0", list(asked)))
        return {row.asked or b"": row for row in found}

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
                    with cursor.copy(f"COPY ostraka_{table} FROM STDIN") as copy:
                        for value in values:
                            copy.write_row(value)

    def count(self) -> int:
        """How many entries there are."""
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
        """The stored budget and name of the secret; missing tables are created."""
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(hashtext('ostraka' || current_schema()))")
            (table,) = self._db.execute("SELECT to_regclass('ostraka_budget')").fetchone()
            if table is None:
                if budget is None:
                    raise LedgerError(
                        f"no ledger at {self.path}: to begin one, add budget=Budget(epsilon=…, delta=…)"
                    )
                self._fill(budget, secret)
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

    def _fill(self, budget: Budget, secret: str) -> None:
        self._db.execute(TABLES)
        values = (VERSION, budget.epsilon, budget.delta, budget.adaptive, secret)
        self._db.execute("INSERT INTO ostraka_budget VALUES (1, %s, %s, %s, %s, %s)", values)
        for name in _NAMES:
            self._db.execute(
                f"CREATE TRIGGER ostraka_{name}_change BEFORE UPDATE OR DELETE ON ostraka_{name} "
                "FOR EACH ROW EXECUTE FUNCTION ostraka_append_only()"
            )
            self._db.execute(
                f"CREATE TRIGGER ostraka_{name}_empty BEFORE TRUNCATE ON ostraka_{name} "
                "FOR EACH STATEMENT EXECUTE FUNCTION ostraka_append_only()"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of PostgreSQL into one sentence."""
        try:
            yield
        except self._pg.errors.LockNotAvailable as error:
            raise LedgerError(f"{self.path} was held by others for {PATIENCE} s: try again later") from error
        except self._pg.Error as error:
            raise LedgerError(
                f"{self.path} could not be used, and nothing was answered ({_words(error)})"
            ) from error


def _named(pg: Any, where: str) -> str:
    """Server and database of an address, without user, password and other parts."""
    try:
        parts = pg.conninfo.conninfo_to_dict(where)
    except pg.Error:  # its message may quote a password
        parts = {}
    host, database = str(parts.get("host") or ""), str(parts.get("dbname") or "")
    if not parts or "@" in host:  # possibly part of a password
        raise LedgerError(
            "the address of the ledger cannot be read: type postgresql://user@host/database, with special "
            "characters as %XX, and keep the password in PGPASSFILE"
        )
    return f"postgresql://{'' if host.startswith('/') else host}/{database}"


def _words(error: Exception) -> str:
    """The first line of what PostgreSQL says: later lines may quote a statement."""
    return f"PostgreSQL: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"

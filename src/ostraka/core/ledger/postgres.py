"""A ledger in a PostgreSQL schema, the first one of the connection's search path: its rows and its tables.

Entries are only ever added: triggers forbid other changes. A transaction first locks the one row of
``ostraka_budget`` and then reads. Without that lock, at the default isolation, transactions that read
concurrently would each grant the same remaining budget.

The server must be on this machine or prove its name by TLS, must write durably, and must be the one, on the
timeline, that the owner adopted. Of an address, only server and database are ever shown.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import secrets
import socket
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from ostraka.core import check as _check
from ostraka.core.ledger import sqlite
from ostraka.core.ledger.budget import DAMAGED, Budget, LedgerError, LedgerMoved, LedgerUnavailable
from ostraka.core.ledger.chain import Price, Row
from ostraka.core.ledger.store import ANSWER, COLUMNS, UNKNOWN, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ostraka.core.ledger.history import Total

_LOG = logging.getLogger("ostraka.ledger")
# with a version in the budget's row, where SQLite has one in its header
REFUSE = """
ALTER TABLE ostraka_budget ADD COLUMN version integer NOT NULL;
CREATE FUNCTION ostraka_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
"""
# pg_control_checkpoint() shows the old timeline for seconds after a promotion
HERE = (
    "(SELECT system_identifier FROM pg_control_system())::text,"
    " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
)
# the systems and timelines that the owner adopted; the first is this one
LINEAGE = f"""
CREATE TABLE ostraka_lineage (id serial PRIMARY KEY, system text NOT NULL, timeline integer NOT NULL);
INSERT INTO ostraka_lineage (system, timeline) SELECT {HERE};
"""
# made by the server, so that no log of statements has it; default privileges may let others read new tables
KEPT = """
CREATE TABLE ostraka_secret (id integer PRIMARY KEY CHECK (id = 1), secret bytea NOT NULL);
INSERT INTO ostraka_secret
  SELECT 1, decode(replace(concat(gen_random_uuid(), gen_random_uuid()), '-', ''), 'hex');
REVOKE ALL ON ostraka_secret FROM PUBLIC;
DO $$ DECLARE who regrole; BEGIN
  FOR who IN SELECT DISTINCT grantee FROM pg_class, aclexplode(relacl)
    WHERE pg_class.oid = 'ostraka_secret'::regclass AND grantee NOT IN (0, relowner)
  LOOP EXECUTE format('REVOKE ALL ON ostraka_secret FROM %s', who); END LOOP;
END $$;
"""
NAMES = ("answer", "budget", "entry", "price", "total")
PATIENCE = 2  # seconds to wait for the locks of others, which they need for milliseconds
ANSWER_SECONDS = 5  # that a statement may take; and that a paused program may hold the lock of the budget
CONNECTING = {
    "connect_timeout": 2,
    "tcp_user_timeout": 2_000,  # ms
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
# a walsender whose state is not told may be a base backup: grant pg_monitor
STANDBYS = (
    "SELECT (SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup' AND pid NOT IN "
    "(SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)) + "
    "(SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical'), "
    "current_setting('synchronous_standby_names') <> ''"
)
_STANDBY_LOOK = 60.0  # seconds between two looks at the standbys
_KEYS = "(account, key) IN (SELECT * FROM unnest(?::text[], ?::text[]))"


class PostgresStore(Store):
    """Rows in a PostgreSQL schema."""

    def __init__(self, where: str, *, budget: Budget | None, secret: str) -> None:
        self._pg: Any = _check.require("psycopg", extra="service")
        self._begin(shown(self._pg, where))
        self._where, self._alone, self._writes = where, False, False
        self._warned: list[str] = []
        self._looked = 0.0  # when the standbys were looked at
        self._timing = False  # a call is being timed, of which another one is a part
        self._lineage: tuple[str, int] | None = None  # system and timeline that the owner adopted
        self._connect(budget, secret)

    def _connect(self, budget: Budget | None, secret: str) -> None:
        """Connect to the ledger with this budget and secret."""
        with self._explained(), self._timed():
            require_tls(self._pg, self._where)
            parameters = self._pg.conninfo.conninfo_to_dict(self._where)
            options = {name: value for name, value in CONNECTING.items() if name not in parameters}
            self._db = db = self._pg.connect(self._where, autocommit=True, **options)
            db.add_notice_handler(lambda notice: self._warned.append(notice.message_primary or "a warning"))
            try:
                require_tls(self._pg, self._where, db)
                with _WATCH.over(db):  # a process that is frozen may hold what all others wait for
                    self._make_durable()
                    stored, name = self._stored(db, budget, secret)
                self._agree(stored, name, budget=budget, secret=secret)
            except BaseException:
                db.close()
                raise
        # a ledger that is dropped without close(), such as an estimator's, must not leak its connection
        self._release = weakref.finalize(self, _release, db, self._process)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Note for how long the server has not answered; a failure is no answer, nor is a part of one."""
        outer, self._timing = self._timing, True
        self._begun = self._begun or time.monotonic()
        try:
            yield
        finally:
            self._timing = outer
        if not outer:
            self._begun = None

    def _execute(self, query: str, *values: object, binary: bool = False) -> Any:
        with self._timed(), _WATCH.over(self._db):
            return self._db.execute(query, values or None, binary=binary)

    @property
    def alone(self) -> bool:
        """Whether no other process can have added entries."""
        return self._alone

    def own(self, *, alone: bool) -> None:
        """Take the writer lock, exclusive or shared, until the connection ends."""
        lock = "pg_try_advisory_lock" if alone else "pg_try_advisory_lock_shared"
        with self._explained():
            query = f"SELECT {lock}(('ostraka_budget'::regclass)::oid::bigint)"
            (got,) = self._execute(query).fetchone()
        if not got:
            who = "is open for writing elsewhere" if alone else "is owned by another process"
            raise LedgerError(f"{self.path} {who}: stop that first, or open it with read_only=True")
        with self._explained():
            if standby := self._standby():
                raise LedgerError(standby)
            (table,) = self._execute("SELECT to_regclass('ostraka_lineage')").fetchone()
            if table is None:  # a ledger that began before there was one
                with self._db.transaction():
                    begin(self._db, "lineage", LINEAGE)
            query = "SELECT system, timeline FROM ostraka_lineage ORDER BY id DESC LIMIT 1"
            self._lineage = self._execute(query).fetchone()
            self._expect_lineage(self._execute(f"SELECT {HERE}").fetchone())
        self._alone, self._writes = alone, True

    def _standby(self) -> str:
        """What is wrong with the standbys: one that lags may be promoted, and lacks what was answered."""
        self._looked = time.monotonic()
        if self.vouched is not None:  # witnesses notice that
            return ""
        has_standby, waits = self._execute(STANDBYS).fetchone()
        if waits or not has_standby:
            return ""
        return (
            f"{self.path} has a standby for which commits do not wait: set synchronous_standby_names, or "
            "give the ledger witnesses"
        )

    def _expect_lineage(self, lineage: tuple[str, int]) -> None:
        """Refuse a server that is not the one, on the timeline, that the owner adopted last."""
        if lineage == self._lineage:
            return
        if self.vouched is not None and self.vouched():
            self.adopt()
            self._lineage = lineage
            _LOG.warning(
                "a new server or timeline was adopted: the witnesses know of nothing that it lacks",
                extra={"event": "ledger.adopted"},
            )
            return
        system, timeline = self._lineage or ("none", 0)
        raise LedgerMoved(
            f"{self.path} is on system {lineage[0]}, timeline {lineage[1]}, but {system}, timeline "
            f"{timeline} was adopted: a standby was promoted or a copy restored, which may lack charges. "
            "Find out how many, and type ostraka ledger adopt"
        )

    def adopt(self) -> None:
        """Take this server and timeline for the right ones, with the transaction that is being written."""
        self._execute(f"INSERT INTO ostraka_lineage (system, timeline) SELECT {HERE}")

    def own_for_adoption(self) -> str:
        """Take the writer lock on whatever server this is; return its lineage."""
        with suppress(LedgerMoved):
            self.own(alone=True)
        with self._explained():
            lineage = self._lineage = self._execute(f"SELECT {HERE}").fetchone()
            # nobody waits for this program, and to count what many lost answers cost may take seconds
            self._execute("SET idle_in_transaction_session_timeout = 0")
        self._alone = self._writes = True
        return f"system {lineage[0]}, timeline {lineage[1]}"

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """Hold the connection for this thread; make a lost one again."""
        with super().reading():
            if self._db.closed:  # replace it, and take the writer lock again
                self._release()
                budget = self.budget
                try:
                    self._connect(None, self.secret)
                except LedgerUnavailable:
                    raise
                except LedgerError as error:
                    raise LedgerMoved(f"{error} (after a lost connection)") from error
                if self.budget != budget:
                    self._db.close()  # so that the next call looks again, and is refused again
                    self.budget = budget
                    raise LedgerMoved(
                        f"{self.path} has another budget since a lost connection: stop, and restore it"
                    )
                if self._writes:
                    try:
                        self.own(alone=self._alone)
                    except LedgerMoved:
                        raise
                    except LedgerError as error:
                        self._db.close()
                        raise LedgerUnavailable(f"{error} (after a lost connection)") from error
            yield self

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Keep all other writers out, then commit durably. An exception rolls back."""
        with self.reading():
            try:
                self._execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                lock = f"SELECT {HERE} FROM ostraka_budget FOR UPDATE"  # noqa: S608  (names of our own)
                if (row := self._execute(lock).fetchone()) is not None:  # else damage, which is found below
                    self._expect_lineage(row)
                if self._looked < time.monotonic() - _STANDBY_LOOK and (standby := self._standby()):
                    self._looked = 0.0
                    raise LedgerUnavailable(standby)  # noqa: TRY301  (it rolls back)
                yield self
            except BaseException:
                trouble, self._trouble = self._trouble, UNKNOWN
                status, statuses = self._db.info.transaction_status, self._pg.pq.TransactionStatus
                if status == statuses.UNKNOWN:  # the connection is lost, and the server rolls back
                    self._db.close()
                elif status != statuses.IDLE:
                    self._execute("ROLLBACK")
                self._trouble = trouble
                raise
            self._commit()

    def _commit(self) -> None:
        self._trouble = UNKNOWN
        self._warned.clear()
        try:
            done = self._execute("COMMIT").statusmessage
        except self._pg.Error as error:
            if self._db.broken:
                # The server may have committed. The next transaction waits for that one's lock, reads what
                # is on record, and a retry with the same key finds its charge.
                self._trouble = None
                raise
            raise LedgerError(
                f"{self.path} {self._trouble}: open Ledger(…) again ({words(error)})"
            ) from error
        if self._warned:  # committed here, perhaps on no standby: as if the connection had been lost
            self._trouble = None
            self._db.close()
            raise LedgerUnavailable(
                f"{self.path}: a commit was not confirmed, and nothing was answered: try again with the same "
                f"key (PostgreSQL: {self._warned[0]})"
            )
        if done != "COMMIT":
            raise LedgerError(f"{self.path} {self._trouble}: open Ledger(…) again (PostgreSQL: {done})")
        self._trouble = None

    def kept_secret(self) -> bytes:
        """32 bytes, in a table that only the role which made it may read."""
        with self.reading():
            try:
                with self._db.transaction():
                    begin(self._db, "secret", KEPT)
                (secret,) = self._execute("SELECT secret FROM ostraka_secret", binary=True).fetchone()
            except self._pg.errors.InsufficientPrivilege as error:
                raise LedgerError(
                    f"{self.path} does not let this role have the secret of its fits ({words(error)}): call "
                    "ledger.secret_of_fits() as the role that began it, and type "
                    "GRANT SELECT ON ostraka_secret TO this one"
                ) from error
        return bytes(secret)

    def check(self) -> None:
        """Check that the triggers which forbid changes are in place."""
        names = self._db.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgenabled = 'O' AND tgrelid = ANY(%s::regclass[])"
            " AND tgfoid = 'ostraka_append_only'::regproc",
            ([f"ostraka_{name}" for name in NAMES],),
        ).fetchone()
        if names != (2 * len(NAMES),):
            raise LedgerError(f"{self.path} {DAMAGED} (its triggers were changed)")

    def with_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The entries with these accounts and keys."""
        accounts, names = [key[0] for key in keys], [key[1] for key in keys]
        rows = map(Row._make, self._entries(f"WHERE {_KEYS}", accounts, names))
        return {(row.account, row.key or ""): row for row in rows}

    def with_asked(self, questions: Sequence[bytes]) -> dict[bytes, Row]:
        """The entries that first paid for these questions."""
        rows = map(Row._make, self._entries("WHERE asked = ANY(?) AND uses > 0", list(questions)))
        return {row.asked or b"": row for row in rows}

    def heads(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The digests of the entries with these numbers."""
        return dict(self._ask("SELECT seq, digest FROM $entry WHERE seq = ANY(?)", list(numbers)))

    def append(self, rows: Sequence[Row], prices: Sequence[Price], totals: Sequence[Total]) -> None:
        """Add entries at the end, with the prices and totals that are new with them."""
        with self._timed(), _WATCH.over(self._db), self._db.cursor() as cursor:
            for table, values in (
                ("price", [(p.id, p.mechanism, p.unit, p.orders, p.cost) for p in prices]),
                ("entry", rows),
                ("total", totals),
            ):
                if values:
                    with cursor.copy(
                        f"COPY ostraka_{table}{f' ({COLUMNS})' if table == 'entry' else ''} FROM STDIN"
                    ) as copy:
                        for value in values:
                            copy.write_row(value)

    def answers(self) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """Entry, array and digest of every array, with the entry's digest."""
        yield from self._db.execute(  # all at once: it may take longer than a statement of a charge
            f"SELECT entry, {ANSWER}".replace("$", "ostraka_"), binary=True
        ).fetchall()

    def _ask(self, query: str, *values: Any) -> Any:
        return self._execute(query.replace("$", "ostraka_").replace("?", "%s"), *values, binary=True)

    def _make_durable(self) -> None:
        self._execute("SET synchronous_commit = on")
        self._execute(f"SET lock_timeout = '{PATIENCE}s'")
        # as a warning PostgreSQL tells that the wait of a COMMIT for a standby was cancelled
        self._execute("SET client_min_messages = warning")
        self._execute(f"SET idle_in_transaction_session_timeout = '{ANSWER_SECONDS}s'")
        settings = {
            name: self._execute(f"SHOW {name}").fetchone()[0]
            for name in ("synchronous_commit", "fsync", "full_page_writes")
        }
        if settings != dict.fromkeys(settings, "on"):
            raise LedgerError(f"{self.path} does not write durably ({settings}): turn all of these on")

    def _stored(self, db: Any, budget: Budget | None, secret: str) -> tuple[Budget, str]:
        """Return the stored budget and name of the secret; create missing tables."""
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(hashtext('ostraka' || current_schema()))")
            (table,) = db.execute("SELECT to_regclass('ostraka_budget')").fetchone()
            if table is None:
                if budget is None:
                    raise LedgerError(
                        f"no ledger at {self.path}: to begin one, add budget=Budget(epsilon=…, delta=…)"
                    )
                fill(db, budget, secret)
            (version,) = db.execute("SELECT version FROM ostraka_budget").fetchone() or (sqlite.VERSION,)
            if version in sqlite.UPGRADES:
                upgrade(db, version, self.path)
        row = db.execute(
            "SELECT version, epsilon, delta, adaptive, secret FROM ostraka_budget", binary=True
        ).fetchone()
        if row is None:
            raise LedgerError(f"{self.path} {DAMAGED} (it has no budget)")
        if row[0] != sqlite.VERSION:
            raise LedgerError(
                f"{self.path} has format {row[0]}, this ostraka knows {sqlite.VERSION}: install a newer one"
            )
        return Budget(epsilon=row[1], delta=row[2], adaptive=bool(row[3])), row[4]

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
            kinds = self._pg.errors
            passing = self._pg.OperationalError, kinds.ReadOnlySqlTransaction  # such as a failover
            waiting = kinds.IdleInTransactionSessionTimeout, kinds.ObjectNotInPrerequisiteState  # a standby
            if isinstance(error, (*passing, *waiting)):
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


class _Watch:
    """Ends the wait for a server that does not answer: shuts the socket of the connection."""

    # neither statement_timeout nor the timeouts of TCP end the wait for a frozen server on this machine

    def __init__(self) -> None:
        self._mutex, self._until = threading.Lock(), dict[Any, float]()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, db: Any) -> Iterator[None]:
        """Give the server ``ANSWER_SECONDS`` for what is inside; one inside another does not prolong it."""
        with self._mutex:
            before = self._until.get(db)
            self._until[db] = time.monotonic() + ANSWER_SECONDS if before is None else before
            if self._thread is None or not self._thread.is_alive():  # none, or that of the parent of a fork
                self._thread = threading.Thread(target=self._look, name="deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._mutex:
                if before is None:
                    self._until.pop(db, None)

    def _look(self) -> None:
        while True:
            time.sleep(0.25)
            with self._mutex:  # so no connection is closed, and its number given to another, meanwhile
                for db in [db for db, until in self._until.items() if until < time.monotonic()]:
                    del self._until[db]
                    with suppress(OSError), socket.socket(fileno=os.dup(db.fileno())) as connection:
                        connection.shutdown(socket.SHUT_RDWR)


_WATCH = _Watch()


def shown(pg: Any, where: str) -> str:
    """Return server and database of an address, without user, password and other parts."""
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


def require_tls(pg: Any, where: str, db: Any = None) -> None:
    """Refuse to reach a server beyond this machine other than by TLS with its certificate verified.

    With a connection: look at what was negotiated, whatever the address and the environment said.
    """
    parameters = db.info.get_parameters() if db is not None else pg.conninfo.conninfo_to_dict(where)
    hosts = parameters.get("hostaddr") or parameters.get("host")
    if db is None:
        hosts = hosts or os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST")
    mode = parameters.get("sslmode") or os.environ.get("PGSSLMODE")
    verified = mode == "verify-full" and (db is None or db.pgconn.ssl_in_use)
    for host in str(hosts or "").split(","):
        local = host in ("", "localhost") or host.startswith(("/", "@"))
        with suppress(ValueError):
            local = local or ipaddress.ip_address(host).is_loopback
        if not (local or verified):
            raise LedgerError(
                f"{shown(pg, where)} is another machine, and its certificate would not be verified: add "
                "sslmode=verify-full and sslrootcert=FILE to the address, or name a tunnel on 127.0.0.1"
            )


def words(error: Exception) -> str:
    """Return the first line of PostgreSQL's message: later lines may quote a statement."""
    return f"PostgreSQL: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"


def translated(tables: str) -> str:
    """Tables of SQLite as those of PostgreSQL."""
    types = {"INTEGER": "bigint", "REAL": "double precision", "BLOB": "bytea", "array": '"array"'}
    named = re.sub(r"(TABLE|INDEX|ON|REFERENCES) (\w+)", r"\1 ostraka_\2", tables)
    plain = re.sub(r"\) STRICT(, WITHOUT ROWID)?", ")", named)
    return re.sub(r"\b(INTEGER|REAL|BLOB|array)\b", lambda word: types[word[1]], plain)


def fill(db: Any, budget: Budget, secret: str) -> None:
    """Create the tables, their triggers, and the row of the budget."""
    db.execute("; ".join([translated(sqlite.TABLES + ";".join(sqlite.UPGRADES.values())), REFUSE]))
    values = (
        budget.epsilon,
        budget.delta,
        int(budget.adaptive),
        secret,
        secrets.token_hex(16),
        sqlite.VERSION,
    )
    columns = "id, epsilon, delta, adaptive, secret, name, version"
    db.execute(f"INSERT INTO ostraka_budget ({columns}) VALUES (1, %s, %s, %s, %s, %s, %s)", values)  # noqa: S608
    for name in NAMES:
        _only_append(db, name)


def _only_append(db: Any, name: str) -> None:
    for change, rows in (("UPDATE OR DELETE", "ROW"), ("TRUNCATE", "STATEMENT")):
        trigger = f"ostraka_{name}_{'change' if rows == 'ROW' else 'empty'}"
        db.execute(
            f"CREATE TRIGGER {trigger} BEFORE {change} ON ostraka_{name} "
            f"FOR EACH {rows} EXECUTE FUNCTION ostraka_append_only()"
        )


def begin(db: Any, name: str, statements: str) -> None:
    """Create a table that a ledger of before does not have, unless another process did."""
    db.execute("SELECT pg_advisory_xact_lock(hashtext('ostraka' || current_schema()))")
    (table,) = db.execute("SELECT to_regclass(%s)", (f"ostraka_{name}",)).fetchone()
    if table is None:
        db.execute(statements)
        _only_append(db, name)


def upgrade(db: Any, version: int, path: str) -> None:
    """Bring an older format to the present one, inside a transaction of the caller, while nobody writes."""
    lock = "SELECT pg_try_advisory_xact_lock(('ostraka_budget'::regclass)::oid::bigint)"
    (alone,) = db.execute(lock).fetchone()
    if not alone:
        raise LedgerError(f"{path} has an older format, and is in use: stop the other program first")
    for number in range(version, sqlite.VERSION):
        db.execute(translated(sqlite.UPGRADES[number]))
    db.execute("ALTER TABLE ostraka_budget DISABLE TRIGGER ostraka_budget_change")
    db.execute("UPDATE ostraka_budget SET version = %s", (sqlite.VERSION,))
    db.execute("ALTER TABLE ostraka_budget ENABLE TRIGGER ostraka_budget_change")

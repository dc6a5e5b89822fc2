"""A ledger in an SQLite file: its rows, its tables, the checks before use, and the lock of its writers.

Rows are only ever added: triggers forbid the rest. Every commit waits for stable storage
(write-ahead log, ``synchronous=FULL``).

SQLite before 3.51.3 can lose a commit when a checkpoint that lets writers through meets another
connection that restarts the log (sqlite.org/wal.html, "The WAL-Reset Bug"). So connections do not
checkpoint by themselves; :func:`checkpoint` does, in a mode that keeps other writers out meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ostraka.core import files
from ostraka.core.ledger.budget import DAMAGED, Budget, LedgerError, LedgerMoved, LedgerUnavailable
from ostraka.core.ledger.chain import Row
from ostraka.core.ledger.store import COLUMNS, UNKNOWN, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ostraka.core.ledger.chain import Price
    from ostraka.core.ledger.history import Total

_Value = TypeVar("_Value")
_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

APPLICATION, VERSION = 0x6F737472, 5  # "ostr" in SQLite's header; and the version of the tables below
PATIENCE = 60.0  # seconds to wait for the transactions of others, each of about a millisecond
CHECKPOINT_EVERY = 1000  # commits of one store: about 16 MB of write-ahead log, unless they are large
CHECKPOINT_BYTES = 64 * 2**20
_SHORT, _OWNER_WAITS = 100, 5_000  # milliseconds: for a checkpoint, and of an owner for any lock
_PIECE = 2**20  # bytes of the log read at a time
_ROWS, _VALUES = 1000, 1000  # that a check reads at a time, and that one statement takes
_PROCESS_SECRET = os.urandom(32)  # for ledgers in memory, which end with the process
_MANY = 200_000  # entries from which on a check in another process pays
_DAMAGED_STATUS = 3  # of that process
TABLES = """
CREATE TABLE budget (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    adaptive INTEGER NOT NULL CHECK (adaptive IN (0, 1)),
    secret TEXT NOT NULL
) STRICT;
CREATE TABLE price (
    id INTEGER PRIMARY KEY,
    mechanism TEXT NOT NULL,
    unit TEXT NOT NULL,
    orders BLOB NOT NULL,
    cost BLOB NOT NULL
) STRICT;
CREATE INDEX price_mechanism ON price (mechanism);
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    key TEXT,
    price INTEGER REFERENCES price,
    uses INTEGER NOT NULL,
    protects TEXT NOT NULL,
    simulation INTEGER NOT NULL,
    epsilon REAL NOT NULL,
    asked BLOB,
    answer INTEGER,
    cap REAL,
    state BLOB,
    digest BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX entry_key ON entry (account, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX entry_asked ON entry (asked) WHERE asked IS NOT NULL AND uses > 0;
CREATE INDEX entry_state ON entry (seq) WHERE state IS NOT NULL;
CREATE INDEX entry_simulation ON entry (seq) WHERE simulation <> 0;
CREATE TABLE total (
    entry INTEGER NOT NULL REFERENCES entry,
    account TEXT NOT NULL,
    cap REAL,
    protects TEXT NOT NULL,
    simulation INTEGER NOT NULL,
    total BLOB,
    PRIMARY KEY (entry, account)
) STRICT, WITHOUT ROWID;
CREATE TABLE answer (
    entry INTEGER PRIMARY KEY REFERENCES entry,
    array BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT;
"""
# what each format adds to the one before; a new file is made in the same steps, so its tables are the same
UPGRADES = {
    2: "ALTER TABLE entry ADD COLUMN at INTEGER",
    3: "ALTER TABLE budget ADD COLUMN name TEXT",
    4: "CREATE INDEX entry_other ON entry (kind) WHERE kind <> 'charge'",
}
# columns of each index and the number of the row, the table, and which of its rows
_INDEXES = {
    "entry_key": ("account, key, seq", "entry", "key IS NOT NULL"),
    "entry_asked": ("asked, seq", "entry", "asked IS NOT NULL AND uses > 0"),
    "entry_state": ("seq, seq", "entry", "state IS NOT NULL"),
    "entry_simulation": ("seq, seq", "entry", "simulation <> 0"),
    "entry_other": ("kind, seq", "entry", "kind <> 'charge'"),
    "price_mechanism": ("mechanism, id", "price", "mechanism IS NOT NULL"),
}
_UNIQUE = ("entry_key", "entry_asked")
_NEVER_REPLACED = {  # INSERT OR REPLACE would delete without a delete trigger
    "answer": "EXISTS (SELECT 1 FROM answer WHERE entry = NEW.entry)",
    "budget": "EXISTS (SELECT 1 FROM budget)",
    "entry": "NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entry)"
    " OR EXISTS (SELECT 1 FROM entry WHERE account = NEW.account AND key = NEW.key)"
    " OR (NEW.uses > 0 AND EXISTS (SELECT 1 FROM entry WHERE asked = NEW.asked AND uses > 0))",
    "total": "EXISTS (SELECT 1 FROM total WHERE entry = NEW.entry AND account = NEW.account)",
    "price": "NEW.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM price)",
}
_INSERT = f"INSERT INTO entry ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608  (names of our own)
_ADVICE = {
    sqlite3.SQLITE_NOTADB: "is not a ledger: give the path of a ledger, or of a file that does not exist yet",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it must be a file, in a directory you may write: chmod u+w",
    sqlite3.SQLITE_READONLY: "cannot be written, and nothing was: chmod u+w the file and its directory",
}
_PASSING = {  # the transaction was rolled back, and another try may succeed
    sqlite3.SQLITE_BUSY: "is held by another process, and nothing was charged: try again when that is done",
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full, and nothing was charged: free some space, try again",
}


class SQLiteStore(Store):
    """Rows in an SQLite file."""

    def __init__(self, path: str, *, budget: Budget | None, secret: str) -> None:
        self._begin(path)
        self._commits = 0
        self._file_lock: FileLock | None = None
        self._unchanged: Unchanged | None = None
        with explained(path), OPENING:
            self._db = open_file(path, budget, secret)
            if path != ":memory:":
                self._file_lock = FileLock(path)
            try:
                if self._file_lock is not None:
                    upgrade(self._db, path, self._file_lock)
                self._agree(*inspect(self._db, path), budget=budget, secret=secret)
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
            with explained(self.path):
                self._file_lock.take(alone=alone)
                settle(self._db, self.path)
                if alone:
                    # an owner has no other writers to wait for
                    self._db.execute(f"PRAGMA busy_timeout = {_OWNER_WAITS}")
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
            many, look = self._commits >= CHECKPOINT_EVERY, not self._commits % 16
            if many or (look and log.exists() and log.stat().st_size > CHECKPOINT_BYTES):
                try:
                    checkpoint(db)
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
        own = self._unchanged
        if self._file_lock and not (own.holds(log=log) if own else self._file_lock.is_same_file()):
            self._trouble = (
                "was removed, replaced or changed by another program while it was open: stop, and put the "
                "newest copy back"
            )
            raise LedgerMoved(f"{self.path} {self._trouble}")

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            trouble, self._trouble = self._trouble, UNKNOWN
            self._db.execute("ROLLBACK")
            self._trouble = trouble

    def _commit(self) -> None:
        self._trouble = UNKNOWN
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

    def kept_secret(self) -> bytes:
        """32 bytes, in a private file beside that of the ledger; of a ledger in memory the process's own."""
        if self.path == ":memory:":
            return _PROCESS_SECRET
        return files.create(f"{self.path}.secret", os.urandom(32))

    def check(self) -> None:
        """Check every page and index of the file."""
        if self.path == ":memory:":
            check(self._db, self.path)
        else:
            check_file(self.path)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check every page and index of the file; of a large one in a process beside this one."""
        (newest,) = self._ask("SELECT coalesce(max(seq), 0) FROM entry").fetchone()
        if self.path == ":memory:" or newest < _MANY:
            with super().checking():
                yield
            return
        with checked_beside(self.path) as verdict:
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
        self._db.executemany("INSERT INTO price VALUES (?, ?, ?, ?, ?)", new)
        self._db.executemany(_INSERT, rows)
        self._db.executemany("INSERT INTO total VALUES (?, ?, ?, ?, ?, ?)", totals)

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.path)

    def _ask(self, query: str, *values: Any) -> sqlite3.Cursor:
        return self._db.execute(query.replace("$", ""), values)

    def _among(self, where: str, values: Sequence[str | bytes], *before: str) -> Iterator[Row]:
        """The entries for which a value is in a list: one statement for many."""
        for part in _parts(values):
            rows = self._entries(f"{where} ({', '.join('?' * len(part))})", *before, *part)
            yield from map(Row._make, rows)


def _parts(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """Yield pieces that one statement can take."""
    return (values[start : start + _VALUES] for start in range(0, len(values), _VALUES))


def _release(db: sqlite3.Connection, lock: FileLock | None, process: int) -> None:
    """Close a connection and its lock, unless this is a forked child, which must not touch its parent's."""
    if os.getpid() == process:
        with OPENING:
            db.close()
            if lock is not None:
                lock.close()


class Unchanged:
    """A snapshot of an owner's files, by which changes of other programs are noticed.

    Only the owner writes to them: to the ledger itself at a checkpoint, to its log at a commit.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.note_checkpoint()

    def note_checkpoint(self) -> None:
        """Record the present state of both files as this program's own."""
        self._file = _state(self._path)
        self.note_commit()

    def note_commit(self) -> None:
        """Record the present state of the log as this program's own."""
        self._log = _state(f"{self._path}-wal")

    def holds(self, *, log: bool) -> bool:
        """Return whether no file was removed, replaced or written by another program."""
        if self._file is None or _state(self._path) != self._file:
            return False
        return not log or _state(f"{self._path}-wal") == self._log


def _state(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  (text, and twice for each transaction)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# Errors, and opening a file --------------------------------------------------------------------


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn errors of SQLite and the system into one sentence with the path and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
            raise LedgerMoved(f"{path} was moved or removed while it was open: put it back") from error
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _PASSING:
            raise LedgerUnavailable(f"{path} {_PASSING[code]} (SQLite: {error})") from error
        advice = _ADVICE.get(code, "could not be used, and nothing was answered")
        raise LedgerError(f"{path} {advice} (SQLite: {error})") from error
    except UnicodeDecodeError as error:  # from the text of a damaged table
        raise LedgerError(f"{path} {DAMAGED} ({error})") from error
    except FileNotFoundError as error:
        raise LedgerError(f"{path} has no directory: mkdir -p {Path(path).parent}") from error
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be used ({error.strerror}): choose a directory you may write"
        ) from error


def open_file(path: str, budget: Budget | None, secret: str) -> sqlite3.Connection:
    """Connect to the ledger at ``path``; create it if it is missing and a budget is given."""
    if path != ":memory:" and os.path.lexists(path):
        return _connect(Path(path))
    if budget is None:
        raise LedgerError(f"no ledger at {path}: to begin one, add budget=Budget(epsilon=…, delta=…)")
    if path == ":memory:":
        return _memory(budget, secret)
    create(Path(path), lambda db: _fill(db, budget, secret))
    return _connect(Path(path))


def _memory(budget: Budget, secret: str) -> sqlite3.Connection:
    db = connect(":memory:")
    _fill(db, budget, secret)
    return db


def create(path: Path, fill: Callable[[sqlite3.Connection], object]) -> None:
    """Create a new file atomically: ``path`` never holds an incomplete database."""
    for left_over in (f"{path}-wal", f"{path}-journal"):
        if os.path.lexists(left_over):
            raise LedgerError(f"{path} is missing, but {left_over} exists: restore it beside it")
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        with closing(connect(draft)) as db:
            db.execute("PRAGMA synchronous = FULL")
            fill(db)
            db.execute("PRAGMA journal_mode = WAL")
        with contextlib.suppress(FileExistsError):  # another process created it first
            os.link(draft, path)
        files.sync_folder(path.parent)
    finally:
        Path(draft).unlink()


def _fill(db: sqlite3.Connection, budget: Budget, secret: str) -> None:
    db.execute("PRAGMA page_size = 1024")
    marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    db.executescript(f"BEGIN; {marks} {TABLES} {'; '.join(UPGRADES.values())}")
    for table, replaces in _NEVER_REPLACED.items():
        refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for verb in ("UPDATE", "DELETE"):
            db.execute(f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} {refuse}")
        db.execute(f"CREATE TRIGGER {table}_append BEFORE INSERT ON {table} WHEN {replaces} {refuse}")
    values = (budget.epsilon, budget.delta, int(budget.adaptive), secret, secrets.token_hex(16))
    db.execute("INSERT INTO budget VALUES (1, ?, ?, ?, ?, ?)", values)
    db.execute("COMMIT")


def open_table(
    path: str, table: str, application: int, kind: str, *, alone: bool
) -> tuple[sqlite3.Connection, FileLock]:
    """Open a durable file of one table of its own kind, which is created if it is missing, and lock it.

    What may never have reached the disk is written again. Call it while holding ``OPENING``.
    """
    if not os.path.lexists(path):
        marks = f"PRAGMA application_id = {application}; PRAGMA user_version = 1;"
        create(Path(path), lambda db: db.executescript(f"{marks} {table}"))
    db, lock = connect(path), FileLock(path)
    try:
        if _one(db, "PRAGMA application_id") != application:
            raise LedgerError(f"{path} is no {kind}: move it away, or name another folder")  # noqa: TRY301  (it is closed)
        try:
            lock.take(alone=alone)
        except LedgerError:
            raise LedgerError(f"{path} is open elsewhere: stop the other program first") from None
        make_durable(db, Path(path))
        settle(db, path)
    except BaseException:
        db.close()
        lock.close()
        raise
    return db, lock


def _connect(path: Path) -> sqlite3.Connection:
    """Open an existing ledger for durable writing, after checking that it is one."""
    if not path.is_file():
        raise LedgerError(
            f"{path} is not a file: give the path of a ledger, or of a file that does not exist yet"
        )
    if path.stat().st_size == 0:
        raise LedgerError(
            f"{path} is empty, and a ledger never is: if it was one, it {DAMAGED}; otherwise rm it"
        )
    db = connect(path.absolute().as_uri() + "?mode=rw", uri=True)
    try:
        _identify(db, path)
        make_durable(db, path)
    except BaseException:
        db.close()
        raise
    return db


def connect(name: str, *, uri: bool = False) -> sqlite3.Connection:
    """Connect to a file, which SQLite creates if it is missing; threads may share the connection."""
    if sqlite3.sqlite_version_info < (3, 37):
        raise LedgerError(f"SQLite {sqlite3.sqlite_version} is too old, 3.37 is needed: use a newer Python")
    return sqlite3.connect(name, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=uri)


def watch(path: Path) -> sqlite3.Connection:
    """Open a second, read-only connection to a ledger that is open."""
    db = connect(path.absolute().as_uri() + "?mode=ro", uri=True)
    db.execute("PRAGMA mmap_size = 0")
    return db


def _identify(db: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a ledger, before anything is written to it."""
    application, version = _one(db, "PRAGMA application_id"), _one(db, "PRAGMA user_version")
    if application != APPLICATION:
        raise LedgerError(f"{path} belongs to another program: give the path of a ledger, or of a new file")
    if version != VERSION and version not in UPGRADES:
        raise LedgerError(f"{path} has format {version}, this ostraka knows {VERSION}: install a newer one")


def make_durable(db: sqlite3.Connection, path: Path) -> None:
    """Have each commit wait for stable storage; raise where that cannot be had."""
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache
    db.execute("PRAGMA mmap_size = 0")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("BEGIN IMMEDIATE")
    version = _one(db, "PRAGMA user_version")
    # where writing is forbidden, fail now and not at the first charge
    db.execute(f"PRAGMA user_version = {version}")
    db.execute("ROLLBACK")
    mode, synchronous = _one(db, "PRAGMA journal_mode = WAL"), _one(db, "PRAGMA synchronous")
    if (mode, synchronous) != ("wal", 2):
        raise LedgerError(f"{path} lies where SQLite cannot write durably (mode {mode}): use a local disk")


def inspect(db: sqlite3.Connection, path: str) -> tuple[Budget, str]:
    """Check the tables; return the budget and the name of the secret."""
    if _schema(db) != _expected_schema():
        raise LedgerError(f"{path} {DAMAGED} (its tables or triggers were changed)")
    row = db.execute("SELECT epsilon, delta, adaptive, secret FROM budget").fetchone()
    try:
        return Budget(epsilon=row[0], delta=row[1], adaptive=bool(row[2])), row[3]
    except (TypeError, ValueError) as error:
        raise LedgerError(f"{path} {DAMAGED} (it has no budget)") from error


def _schema(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute(
        "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()


@cache
def _expected_schema() -> list[tuple[str, str]]:
    with closing(_memory(Budget(epsilon=1.0, delta=0.5), "")) as db:
        return _schema(db)


def upgrade(db: sqlite3.Connection, path: str, lock: FileLock) -> None:
    """Bring an older format to the present one, in one transaction, while nobody else writes."""
    if path == ":memory:" or _one(db, "PRAGMA user_version") == VERSION:
        return
    try:
        lock.take(alone=True)
    except LedgerError as error:
        raise LedgerError(
            f"{path} has an older format, and is in use: stop the other program first"
        ) from error
    try:
        db.execute("BEGIN IMMEDIATE")
        for version in range(_one(db, "PRAGMA user_version"), VERSION):
            db.execute(UPGRADES[version])
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    finally:
        lock.release()


def _one(db: sqlite3.Connection, query: str) -> Any:
    return db.execute(query).fetchone()[0]


# Moving the log into the file, and checking all of it -------------------------------------------


def settle(db: sqlite3.Connection, path: str) -> None:
    """Write the log to disk again, then move it into the file.

    After a failed sync, pages read from the log may not be on the disk, and nothing writes them again:
    a power cut would lose them and every charge after them.
    """
    db.execute("BEGIN IMMEDIATE")  # keeps other writers out meanwhile
    try:
        with contextlib.suppress(FileNotFoundError), Path(f"{path}-wal").open("r+b") as log:
            while content := log.read(_PIECE):
                log.seek(-len(content), os.SEEK_CUR)
                log.write(content)
            log.flush()
            os.fsync(log.fileno())
    finally:
        db.execute("ROLLBACK")
    checkpoint(db)


def checkpoint(db: sqlite3.Connection) -> None:
    """Move the log into the file and empty the log, while other writers are kept out.

    A long reader, such as a backup, leaves the log as it is for now.
    """
    (wait,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {_SHORT}")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {wait}")


def check(db: sqlite3.Connection, path: str) -> None:
    """Check every page, and that each index holds its rows, in order and once.

    ``PRAGMA integrity_check`` looks each row up in each index, at places all over the file. Here tables and
    indexes are read from end to end, and the sums of the hashes of what they hold are compared: a difference
    escapes with a chance of 2^-61.
    """
    if (verdict := _one(db, "PRAGMA quick_check(1)")) != "ok":
        raise LedgerError(f"{path} {DAMAGED} (SQLite: {verdict})")
    db.execute("BEGIN")  # one state for all that is read
    try:
        for name, (columns, table, where) in _INDEXES.items():
            query = f"SELECT {columns} FROM {table} {{}} WHERE {where} ORDER BY {{}}"  # noqa: S608  (names of our own)
            rows, before = 0, ()
            for block in _blocks(db, query.format(f"INDEXED BY {name}", columns.rpartition(",")[0])):
                places = [row[:-1] for row in block] if name in _UNIQUE else block
                if not all(map(operator.lt, [before, *places], places)):
                    raise LedgerError(f"{path} {DAMAGED} (index {name} is not in order)")
                rows, before = rows + sum(map(hash, block)), places[-1]
            in_table = _blocks(db, query.format("NOT INDEXED", columns.rpartition(",")[2]))
            if rows != sum(sum(map(hash, block)) for block in in_table):
                raise LedgerError(f"{path} {DAMAGED} (index {name} does not hold the rows of its table)")
    finally:
        db.execute("ROLLBACK")


def check_file(path: str) -> None:
    """Check every page and index of a file that others may write meanwhile."""
    with explained(path), closing(watch(Path(path))) as db:
        check(db, path)


@contextmanager
def checked_beside(path: str) -> Iterator[Callable[[], None]]:
    """Check a file in another process; yield what waits for its verdict, and raises as :func:`check` does."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OSTRAKA_", "PG"))
    }
    command = [sys.executable, "-m", __name__, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:  # noqa: S603

        def verdict() -> None:
            message, _ = process.communicate()
            if process.returncode == _DAMAGED_STATUS:
                raise LedgerError(message)
            if process.returncode:  # no processes are to be had here
                check_file(path)

        try:
            yield verdict
        finally:
            process.kill()


def _blocks(db: sqlite3.Connection, query: str) -> Iterator[list[tuple[Any, ...]]]:
    cursor = db.execute(query)
    while rows := cursor.fetchmany(_ROWS):
        yield rows


# The lock of writers ------------------------------------------------------------------------------

# Elsewhere flock and fcntl locks exclude each other: SQLite could not lock a file that is locked by flock.
_ON_THE_FILE_ITSELF = sys.platform == "linux"
OPENING = threading.RLock()  # held while a connection is opened or closed
_connections: Counter[tuple[int, int]] = Counter()  # of this process, by device and inode
_unlocked: dict[tuple[int, int], list[int]] = {}  # handles to close after the last connection of their file
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An flock on the ledger file itself, for the life of one SQLite connection.

    Closing any handle of a file drops all fcntl locks of the process on it, and SQLite needs its own
    until the last connection is closed. So handles are closed after that. Open a connection and
    make its FileLock while holding ``OPENING``.
    """

    def __init__(self, ledger: str) -> None:
        self.alone, self._ledger, self._handle = False, ledger, -1
        status = os.stat(ledger)  # noqa: PTH116  (text, as SQLite takes it)
        self._file = status.st_dev, status.st_ino
        _connections[self._file] += 1
        _held.add(self)

    def take(self, *, alone: bool) -> None:
        """Take the lock: exclude all other writers, or only an owner."""
        if self.alone:  # of an adoption that was refused and is tried again
            return
        if _fcntl is None:  # pragma: no cover
            if alone:
                raise LedgerError(f"{self._ledger} cannot be owned on this system: leave owner= out")
            return
        path = self._ledger if _ON_THE_FILE_ITSELF else f"{self._ledger}-owner"
        flags = os.O_RDONLY if _ON_THE_FILE_ITSELF else os.O_RDWR | os.O_CREAT
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            _fcntl.flock(handle, _fcntl.LOCK_NB | (_fcntl.LOCK_EX if alone else _fcntl.LOCK_SH))
        except BlockingIOError:
            _unlocked.setdefault(self._file, []).append(handle)
            who = "is open for writing elsewhere" if alone else "is owned by another process"
            raise LedgerError(
                f"{self._ledger} {who}: stop that first, or open it with read_only=True"
            ) from None
        self._handle, self.alone = handle, alone

    def release(self) -> None:
        """Release the lock for other writers; the connection stays open."""
        if self._handle >= 0:
            _fcntl.flock(self._handle, _fcntl.LOCK_UN)
            _unlocked.setdefault(self._file, []).append(self._handle)
        self._handle, self.alone = -1, False

    def is_same_file(self) -> bool:
        """Whether the ledger's path still names the file that was opened."""
        try:
            status = os.stat(self._ledger)  # noqa: PTH116  (text, and for each transaction)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def close(self) -> None:
        """Release the lock, after the connection is closed."""
        with OPENING:
            self.release()
            if self in _held:
                _held.discard(self)
                _connections[self._file] -= 1
            if not _connections[self._file]:
                for handle in _unlocked.pop(self._file, []):
                    os.close(handle)

    def forget(self) -> None:
        """Close the handle of a forked child. The parent's lock stays."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def _forget_all() -> None:
    OPENING.release()
    for lock in list(_held):
        lock.forget()
    for handles in _unlocked.values():
        for handle in handles:
            os.close(handle)
    _held.clear()
    _connections.clear()
    _unlocked.clear()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(before=OPENING.acquire, after_in_parent=OPENING.release, after_in_child=_forget_all)


if __name__ == "__main__":
    try:
        check_file(sys.argv[1])
    except LedgerError as error:
        sys.stdout.write(str(error))
        sys.exit(_DAMAGED_STATUS)

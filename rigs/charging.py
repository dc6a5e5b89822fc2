"""A process that charges: what the rigs record, disturb and kill.

``python -m rigs.charging FOLDER … --then FOLDER …`` runs two sessions. A line "seq key answer" goes to the
file ``acknowledged`` for every charge that was acknowledged, in one write, after the ledger said so and
before anything else.
"""

from __future__ import annotations

import argparse
import bisect
import errno
import hashlib
import os
import re
import secrets
import sqlite3
import sys
import threading
import traceback
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from ostraka import Budget, BudgetExceeded, GNMax, Ledger
from ostraka.core.ledger import sqlite
from ostraka.ledger import ChargeRequest, LedgerError
from ostraka.secure import log
from ostraka.secure.log import Log, LogError
from rigs import disk

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "LEDGERS",
    "MODES",
    "ChargingMode",
    "Paid",
    "acknowledge",
    "acknowledged",
    "affordable",
    "checkpoint_every",
    "open_marks",
    "refusal",
]

MECHANISM = GNMax(sigma=400.0)
NAME, CLIENT, SECRET = "ledger.sqlite", "alice", b"the owner's secret, 32 bytes long"
ADDRESS = "OSTRAKA_POSTGRES"  # where the rigs' own server is
BUDGET = Budget(epsilon=2.0, delta=1e-6, adaptive=False)  # what ``affordable`` counts


class Paid(NamedTuple):
    """What a caller is told."""

    seq: int
    answer: int


class ChargingMode(Protocol):
    """A way of opening and charging a ledger. ``open`` begins one where there is none."""

    budget: Budget
    processes: int  # how many may charge at once
    needs_postgres: bool

    def open(self, folder: Path) -> Any: ...

    def pay(self, ledger: Any, key: str) -> Paid: ...

    def rows(self, folder: Path) -> list[tuple[int, str | None, bytes, int | None]]: ...

    def said(self, ledger: Any) -> object:
        """Return everything that a ledger reports."""
        entries = ledger.entries()
        receipts = []
        for entry in entries:
            with suppress(LedgerError):
                receipts.append(ledger.receipt(entry.seq))
        return ledger.budget, ledger.head, entries, ledger.accounts(), receipts

    def most(self) -> int:
        """Return the number of charges that the budget pays for."""
        return affordable(self.budget)


SELECT = "SELECT seq, key, digest, answer FROM entry ORDER BY seq"


@dataclass(frozen=True, slots=True)
class Shared(ChargingMode):
    """Several processes on one file, one charge a transaction: ``Ledger.charge``."""

    budget: Budget = BUDGET
    processes: int = 2
    needs_postgres: bool = False

    def open(self, folder: Path) -> Ledger:
        return Ledger(folder / NAME, budget=self.budget)

    def pay(self, ledger: Ledger, key: str) -> Paid:
        return Paid(ledger.charge(MECHANISM, uses=1, unit="row", simulation=False, key=key), 0)

    def rows(self, folder: Path) -> list[tuple[int, str | None, bytes, int | None]]:
        with closing(sqlite3.connect(folder / NAME)) as db:
            return db.execute(SELECT).fetchall()


@dataclass(frozen=True, slots=True)
class Owned(ChargingMode):
    """One process, whose threads commit together, with answers and an anchor: as a service charges."""

    budget: Budget = BUDGET
    processes: int = 1
    needs_postgres: bool = False

    def open(self, folder: Path) -> Ledger:
        where, anchor = folder / NAME, folder / "anchor"
        return granted(Ledger(where, budget=self.budget, secret=SECRET, anchor=anchor, owner=True))

    def pay(self, ledger: Ledger, key: str) -> Paid:
        answer = secrets.randbelow(
            10
        )  # a second attempt draws anew, and must be told what the first one drew
        digest = hashlib.sha256(key.encode()).hexdigest()
        request = ChargeRequest(
            account=CLIENT, key=key, digest=digest, cost=MECHANISM, reserve=MECHANISM, answer=answer
        )
        (got,) = ledger.charge_each([request])
        if isinstance(got, Exception):
            raise got
        return Paid(got.seq, got.answer)

    def rows(self, folder: Path) -> list[tuple[int, str | None, bytes, int | None]]:
        return Shared().rows(folder)


@dataclass(frozen=True, slots=True)
class Database(ChargingMode):
    """Several processes on one PostgreSQL server, a schema for each folder."""

    budget: Budget = BUDGET
    processes: int = 4
    needs_postgres: bool = True

    def open(self, folder: Path) -> Ledger:
        address, schema = os.environ[ADDRESS], folder.name.replace("-", "_")
        with closing(self._connection()) as db:
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        where = f"{address}&options=-csearch_path%3D{schema}"
        return granted(Ledger(where, budget=self.budget, secret=SECRET))

    def pay(self, ledger: Ledger, key: str) -> Paid:
        return Owned().pay(ledger, key)

    def rows(self, folder: Path) -> list[tuple[int, str | None, bytes, int | None]]:
        with closing(self._connection()) as db:
            table = f"{folder.name.replace('-', '_')}.ostraka_entry"
            rows = db.execute(SELECT.replace("entry", table)).fetchall()
            return [(seq, key, bytes(digest), answer) for seq, key, digest, answer in rows]

    def _connection(self) -> Any:
        import psycopg

        return psycopg.connect(os.environ[ADDRESS], autocommit=True)


class Charged(Log):
    """The durable log of the other roles, as the rigs charge a ledger: a key is paid by an entry."""

    def __init__(self, path: Path) -> None:
        with translated():
            super().__init__(path, name="rigs")

    def verify(self) -> None:
        with translated():
            list(self.entries())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the log as those of a ledger."""
    try:
        yield
    except LogError as error:
        raise LedgerError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Kept(ChargingMode):
    """Several processes on one log, as of an enrolment or a keeper: the first answer to a key counts."""

    budget: Budget = BUDGET
    processes: int = 8
    needs_postgres: bool = False

    def open(self, folder: Path) -> Charged:
        return Charged(folder / NAME)

    def pay(self, ledger: Charged, key: str) -> Paid:
        drawn = b"%d" % secrets.randbelow(10)
        with translated():
            answer = int(ledger.once(key, drawn))
            return Paid(ledger.number(key), answer)

    def rows(self, folder: Path) -> list[tuple[int, str | None, bytes, int | None]]:
        with closing(sqlite3.connect(folder / NAME)) as db:
            rows = db.execute("SELECT seq, key, digest, body FROM entry ORDER BY seq").fetchall()
            return [(seq, key, digest, int(body)) for seq, key, digest, body in rows]

    def said(self, ledger: Charged) -> object:
        return ledger.head, list(ledger.entries())

    def most(self) -> int:
        return 2**30


def granted(ledger: Ledger) -> Ledger:
    """The ledger, with a client who may spend all of it."""
    try:
        if not ledger.accounts():
            ledger.grant(CLIENT, budget_epsilon=1000.0)
    except BaseException:
        ledger.close()
        raise
    return ledger


LEDGERS: dict[str, ChargingMode] = {"shared": Shared(), "owned": Owned(), "postgres": Database()}
MODES: dict[str, ChargingMode] = {**LEDGERS, "log": Kept()}


@cache
def affordable(budget: Budget) -> int:
    """How many charges a budget pays for, by the curve's own arithmetic."""
    curve = MECHANISM.curve()
    return bisect.bisect(range(1, 2**20), budget.epsilon, key=lambda n: (n * curve).epsilon(budget.delta))


class Careless(sqlite3.Connection):
    """The control: commits do not wait for the disk."""

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql.startswith("BEGIN"):
            super().execute("PRAGMA synchronous = NORMAL")
        if sql == "PRAGMA synchronous":  # the ledger reads its setting back, and would refuse
            super().execute("PRAGMA synchronous = FULL")
        return super().execute(sql, *parameters)


def careless() -> None:
    """From now on this process syncs as ``synchronous=NORMAL`` does: at checkpoints only."""
    connect = sqlite3.connect
    sqlite3.connect = lambda *arguments, **named: connect(*arguments, **named, factory=Careless)


def checkpoint_every(commits: int) -> None:
    """Move the log into the file so often that a short run sees it many times."""
    log.CHECKPOINT_BYTES = 4096 * commits
    if not hasattr(sqlite, "CHECKPOINT_EVERY"):
        raise AttributeError("the ledger's checkpoint interval has another name by now")
    sqlite.CHECKPOINT_EVERY = commits


def open_marks(folder: Path) -> int:
    return os.open(folder / disk.MARK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def acknowledge(marks: int, key: str, paid: Paid) -> None:
    """Tell the outside, in one write, what was paid."""
    os.write(marks, f"{paid.seq} {key} {paid.answer}\n".encode())


def acknowledged(marks: bytes) -> dict[str, Paid]:
    """What was told of each key, the last time."""
    lines = [line.split() for line in marks.decode().splitlines()]
    return {key: Paid(int(seq), int(answer)) for seq, key, answer in lines}


def behind_the_triggers(folder: Path, *changes: tuple[str, tuple[object, ...]] | str) -> bool:
    """Change rows that the ledger itself never changes; whether SQLite let it happen."""
    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        try:
            for change in changes:
                db.execute(*([change] if isinstance(change, str) else change))
        except sqlite3.IntegrityError:
            return False
        for _, sql in triggers:
            db.execute(sql)
    return True


def refusal(error: LedgerError) -> str:
    """What a ledger that does not open says, without folders and numbers, so that the like can be counted."""
    return "refused: " + re.sub(r"\d+", "N", re.sub(r"/\S*/", "", str(error)))[:90]


def charge_all(mode: ChargingMode, ledger: Ledger, keys: list[str], marks: int) -> None:
    for key in keys:
        try:
            paid = mode.pay(ledger, key)
        except BudgetExceeded:
            continue
        except LedgerError:  # whether it was charged is not known: this process answers no more
            return
        acknowledge(marks, key, paid)


def main(arguments: list[str]) -> None:
    """Sessions, with ``--then`` between them, each in a fork: nothing is imported again."""
    session: list[str] = []
    for word in [*arguments, "--then"]:
        if word != "--then":
            session.append(word)
        elif session:
            forked(session)
            session = []
    print("{}", flush=True)


def forked(session: list[str]) -> None:
    """Charge in a process of its own; raise if it fails."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            charge(session)
            status = 0
        except Exception:  # noqa: BLE001  (whatever it is, it is printed, and the parent fails)
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError(f"the session {session} failed")


def charge(arguments: list[str]) -> None:
    """One session: several threads charge, then the ledger is closed, or not."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--mode", choices=sorted(MODES), default="shared")
    options.add_argument("--charges", type=int, default=100)
    options.add_argument("--threads", type=int, default=4)
    options.add_argument("--checkpoint", type=int, default=20)
    options.add_argument("--name", default="k")
    options.add_argument("--crash", action="store_true", help="end without closing the ledger")
    options.add_argument("--fail-sync", type=int, help="the disk fails at this sync, and forgets what it had")
    options.add_argument("--careless", action="store_true", help="synchronous=NORMAL")
    chosen = options.parse_args(arguments)
    if chosen.careless:
        careless()
    checkpoint_every(chosen.checkpoint)
    mode, marks = MODES[chosen.mode], open_marks(chosen.folder)
    ledger = mode.open(chosen.folder)
    if chosen.fail_sync:
        disk.arm("s", chosen.fail_sync, errno.EIO)
    threads = [
        threading.Thread(
            target=charge_all,
            args=(mode, ledger, [f"{chosen.name}-{t}-{n}" for n in range(chosen.charges)], marks),
        )
        for t in range(chosen.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if chosen.crash:
        # A crash must not close the connection, which would write the log into the file. A ledger that is
        # dropped when this function returns may close it.
        sys.stdout.flush()
        os._exit(0)
    ledger.close()


if __name__ == "__main__":
    main(sys.argv[1:])

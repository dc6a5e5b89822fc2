"""A process that charges: what the rigs record, disturb and kill.

``python -m benchmarks.rigs.charging FOLDER …`` writes a line "seq key" to the file ``acknowledged`` for every
charge that was acknowledged, in one write, after the ledger said so and before anything else.
"""

from __future__ import annotations

import argparse
import bisect
import errno
import os
import sqlite3
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.rigs import disk

from ostraka import Budget, BudgetExceeded, GNMax, Ledger, LedgerError
from ostraka.ledger import store

__all__ = ["TILLS", "Till", "acknowledged", "affordable", "checkpoint_every", "open_marks", "refusal"]

MECHANISM = GNMax(sigma=400.0)
NAME = "ledger.sqlite"
BUDGET = Budget(epsilon=2.0, delta=1e-6)


@dataclass(frozen=True, slots=True)
class Till:
    """How a ledger is opened and charged: several processes on one file, one charge a transaction."""

    budget: Budget = BUDGET
    processes: int = 2

    def open(self, folder: Path) -> Ledger:
        return Ledger(folder / NAME, budget=self.budget)

    def pay(self, ledger: Ledger, key: str) -> int:
        return ledger.charge(MECHANISM, uses=1, protects="row", simulation=False, key=key)


TILLS = {"single": Till()}
OPENING: frozenset[str] = frozenset()  # keys of entries that were there before anybody charged


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
        return super().execute(sql, *parameters)  # type: ignore[arg-type]


def careless() -> None:
    """From now on this process syncs as ``synchronous=NORMAL`` does: at checkpoints only."""
    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **named: connect(*given, **named, factory=Careless)  # type: ignore[assignment]


def checkpoint_every(commits: int) -> None:
    """Move the log into the file so often that a short run sees it many times."""
    if not hasattr(store, "CHECKPOINT_EVERY"):
        raise AttributeError("the ledger's checkpoint interval has another name by now")
    store.CHECKPOINT_EVERY = commits


def open_marks(folder: Path) -> int:
    return os.open(folder / disk.MARK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def acknowledged(marks: bytes) -> dict[str, int]:
    """Key to sequence number, of what was written to the marks."""
    lines = [line.split() for line in marks.decode().splitlines()]
    return {key: int(seq) for seq, key in lines}


def refusal(error: LedgerError) -> str:
    """What a ledger that does not open says, without the path."""
    return "refused: " + str(error).partition(NAME)[2].strip()[:80]


def charge_all(till: Till, ledger: Ledger, keys: list[str], marks: int) -> None:
    for key in keys:
        try:
            seq = till.pay(ledger, key)
        except BudgetExceeded:
            continue
        except LedgerError:  # whether it was charged is not known: this process answers no more
            return
        os.write(marks, f"{seq} {key}\n".encode())


def main(given: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--till", choices=sorted(TILLS), default="single")
    options.add_argument("--charges", type=int, default=100)
    options.add_argument("--threads", type=int, default=4)
    options.add_argument("--checkpoint", type=int, default=20)
    options.add_argument("--name", default="k")
    options.add_argument("--crash", action="store_true", help="end without closing the ledger")
    options.add_argument("--fail-sync", type=int, help="the disk fails at this sync, and forgets what it had")
    options.add_argument("--careless", action="store_true", help="synchronous=NORMAL")
    chosen = options.parse_args(given)
    if chosen.careless:
        careless()
    checkpoint_every(chosen.checkpoint)
    till, marks = TILLS[chosen.till], open_marks(chosen.folder)
    ledger = till.open(chosen.folder)
    if chosen.fail_sync:
        disk.arm("s", chosen.fail_sync, errno.EIO)
    threads = [
        threading.Thread(
            target=charge_all,
            args=(till, ledger, [f"{chosen.name}-{t}-{n}" for n in range(chosen.charges)], marks),
        )
        for t in range(chosen.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("{}", flush=True)
    if chosen.crash:
        os._exit(0)
    ledger.close()


if __name__ == "__main__":
    main(sys.argv[1:])

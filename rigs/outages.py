"""Temporary outages under load: a write lock, a full disk, a restart of PostgreSQL.

Threads charge under keys of their own and try again, with the same key, whatever was refused. Afterwards
every acknowledged charge must be on record with its answer, no key twice, and nobody may have been stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka import Budget, GNMax, Ledger
from ostraka.core.ledger.budget import LedgerUnavailable
from ostraka.ledger import ChargeRequest, LedgerError
from rigs import postgres
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["find"]

PRICE = GNMax(sigma=10_000.0)
BUDGET = Budget(epsilon=50.0, delta=1e-6)
THREADS = 4
AT_ONCE, MINUTE = 25, 60.0  # ledgers; seconds that a lock of a backup is held


def find(kind: str, *, times: int) -> Finding:
    """``kind`` is lock, minute (a lock that is held so long), disk or restart."""
    if kind == "restart":
        postgres.program("initdb")
    facts = apart("outages", kind, "--times", times)
    wrong = Counter({name: count for name, count in facts["wrong"].items() if count})
    sentence = f"{times} × {kind}, {facts['charges']:,} charges, {facts['again']:,} tried again"
    return Finding(
        tried=sentence,
        wrong=wrong,
        control=f"{facts['refused']:,} refusals were seen",
        blind=not facts["refused"],
    )


class Load:
    """Threads that charge until they are stopped."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.done = ledger, threading.Event()
        self.answers: dict[str, int] = {}
        self.refused, self.again, self.stopped = 0, 0, Counter[str]()
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(THREADS)]

    def work(self, number: int) -> None:
        for n in itertools.count():
            if self.done.is_set():
                return
            key = f"{number}-{n}"
            while True:
                # each try draws another answer: what was charged first must be told
                request = ChargeRequest(
                    account="ann",
                    key=key,
                    digest=key.encode().hex(),
                    cost=PRICE,
                    reserve=PRICE,
                    answer=(n + self.again) % 7,
                )
                try:
                    (receipt,) = self.ledger.charge_each([request])
                except LedgerUnavailable:
                    self.refused += 1
                    self.again += 1
                    time.sleep(0.01)
                    continue
                except LedgerError as error:
                    self.stopped[f"stopped: {error}"[:120]] += 1
                    return
                self.answers[key] = receipt.answer  # type: ignore[union-attr]
                break


def lock(path: Path, times: int, load: Load) -> None:
    """Another program takes the write lock, for longer than the ledger waits, which is 20 ms here."""
    load.ledger._store._db.execute("PRAGMA busy_timeout = 20")  # type: ignore[attr-defined]  # noqa: SLF001
    hold(path, times, load, seconds=0.1)


def hold(path: Path, times: int, load: Load, *, seconds: float) -> None:
    """Take the write lock of a ledger again and again, each time until somebody was refused."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        for _ in range(times):
            connection.execute("BEGIN IMMEDIATE")
            before, until = load.refused, time.monotonic() + 5 + seconds
            time.sleep(seconds)
            while load.refused == before and time.monotonic() < until and not load.stopped:
                time.sleep(0.01)
            connection.execute("ROLLBACK")
            time.sleep(0.05)


def minutes(folder: Path, times: int) -> dict[str, Any]:
    """Locks of a minute, on many ledgers at once, each of which waits for a lock as long as a service's."""
    at_once = min(AT_ONCE, times)

    def one(number: int) -> dict[str, Any]:
        path = folder / str(number) / "ledger.sqlite"
        path.parent.mkdir()
        rounds = len(range(number, times, at_once))
        return run(
            str(path), lambda load: hold(path, rounds, load, seconds=MINUTE), anchor=path.with_name("anchor")
        )

    with ThreadPoolExecutor(at_once) as pool:
        tallies = list(pool.map(one, range(at_once)))
    wrong = Counter[str]()
    for tally in tallies:
        wrong.update(tally["wrong"])
    counts = {name: sum(each[name] for each in tallies) for name in ("charges", "refused", "again")}
    return counts | {"wrong": dict(wrong)}


def disk(path: Path, times: int, load: Load) -> None:
    """The file system of the ledger fills up, and is freed again."""
    filler = path.with_name("filler")
    for _ in range(times):
        with filler.open("wb", buffering=0) as file:
            try:
                for size in (1 << 22, 1 << 16, 1 << 12, 1):
                    while size:
                        try:
                            file.write(bytes(size))
                        except OSError:
                            break
            finally:
                before, until = load.refused, time.monotonic() + 5
                while load.refused == before and time.monotonic() < until and not load.stopped:
                    time.sleep(0.01)
                filler.unlink()
        time.sleep(0.05)


def restart(folder: Path, times: int, load: Load) -> None:
    """The server is stopped at once, and started again."""
    for n in range(times):
        mode = ("fast", "immediate")[n % 2]
        postgres.restart(folder, mode=mode)
        before, until = len(load.answers), time.monotonic() + 30
        while len(load.answers) < before + THREADS and time.monotonic() < until and not load.stopped:
            time.sleep(0.01)


def judged(ledger: Ledger, load: Load) -> Counter[str]:
    """What is wrong with the record."""
    wrong = Counter(load.stopped)
    entries = [entry for entry in ledger.entries() if entry.answer is not None]
    recorded = Counter(entry.key for entry in entries)
    answers = {entry.key: entry.answer for entry in entries}
    wrong["charged twice"] = sum(count - 1 for count in recorded.values())
    wrong["answered and not on record"] = sum(key not in answers for key in load.answers)
    wrong["told another answer"] = sum(answers.get(key) != answer for key, answer in load.answers.items())
    wrong["on record and not told"] = max(0, len(answers) - len(load.answers) - THREADS)
    ledger.verify()
    return wrong


def run(where: str, disturb: Callable[[Load], None], **options: object) -> dict[str, Any]:
    """Load a ledger, disturb it, and judge."""
    with Ledger(where, budget=BUDGET, secret=b"s" * 32, owner=True, **options) as ledger:
        ledger.grant("ann", budget_epsilon=40.0)
        load = Load(ledger)
        for thread in load.threads:
            thread.start()
        try:
            disturb(load)
        finally:
            load.done.set()
            for thread in load.threads:
                thread.join()
        wrong = judged(ledger, load)
    counts = {"charges": len(load.answers), "refused": load.refused, "again": load.again}
    return counts | {"wrong": dict(wrong)}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.outages")
    options.add_argument("kind", choices=("lock", "minute", "disk", "restart"))
    options.add_argument("--times", type=int, default=100)
    chosen = options.parse_args()
    if chosen.kind == "restart":
        with postgres.server() as address:
            folder = Path(address.partition("host=")[2])
            print(json.dumps(run(address, lambda load: restart(folder, chosen.times, load))))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if chosen.kind == "minute":
            print(json.dumps(minutes(place, chosen.times)))
            return
        if chosen.kind == "disk":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
        try:
            path, anchor = place / "ledger.sqlite", place / "anchor"
            disturb = {"lock": lock, "disk": disk}[chosen.kind]
            print(json.dumps(run(str(path), lambda load: disturb(path, chosen.times, load), anchor=anchor)))
        finally:
            if chosen.kind == "disk":
                subprocess.run(["umount", folder], check=True)


if __name__ == "__main__":
    main()

"""Overspending: 64 callers at once want more than the budget pays for, on a hundred budgets.

What was granted must be exactly what the budget pays for, counted with the curve's own arithmetic. The
planted defect, in plain SQL on the same database, reads the total, checks it, and writes: it must overspend.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import sqlite3
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ostraka import Budget, BudgetExceeded
from ostraka.ledger import LedgerError
from rigs import charging, disk, postgres, power
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["find"]

CALLERS, EACH = 64, 2


def forked(processes: int, work: Callable[[int, int], None], threads: int) -> None:
    """Let ``processes`` times ``threads`` callers work at once, as nearly as can be."""
    receiver, tell = os.pipe()
    children = []
    for process in range(processes):
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(receiver, 1)  # all start when the pipe closes
            several = [threading.Thread(target=work, args=(process, thread)) for thread in range(threads)]
            for thread in several:
                thread.start()
            for thread in several:
                thread.join()
            os._exit(0)
        children.append(child)
    os.close(receiver)
    os.close(tell)
    for child in children:
        os.waitpid(child, 0)


def race(mode: charging.ChargingMode, folder: Path, number: int) -> tuple[int, int]:
    """How many of 64 callers' charges were granted, and how many callers got an error."""
    marks, processes = charging.open_marks(folder), mode.processes
    ledgers: dict[int, Any] = {}
    door = threading.Lock()

    def call(process: int, thread: int) -> None:
        try:
            with door:
                ledger = ledgers.get(process) or ledgers.setdefault(process, mode.open(folder))
            for n in range(EACH):
                with contextlib.suppress(BudgetExceeded):
                    key = f"b{number}-{process}-{thread}-{n}"
                    charging.acknowledge(marks, key, mode.pay(ledger, key))
        except LedgerError:
            charging.acknowledge(marks, f"error-{process}-{thread}", charging.Paid(-1, 0))

    mode.open(folder).close()
    forked(processes, call, CALLERS // processes)
    os.close(marks)
    acknowledged = charging.acknowledged((folder / disk.MARK).read_bytes()).values()
    return sum(paid.seq > 0 for paid in acknowledged), sum(paid.seq < 0 for paid in acknowledged)


def run(mode: charging.ChargingMode, budgets: int) -> dict[str, object]:
    """Race for every budget."""
    rng, wrong, granted = random.Random(4), Counter[str](), 0
    for number in range(budgets):
        budget = Budget(epsilon=rng.uniform(0.02, 0.11), delta=1e-6, adaptive=False)
        limit, racing = charging.affordable(budget), replace(mode, budget=budget)
        with power.quick_folder() as folder:
            got, errors = race(racing, folder, number)
            _, paid = power.written(racing, folder)
        granted += got
        wrong["a caller got an error"] += errors
        wrong["overspent"] += max(got, len(paid)) > limit
        wrong["underspent"] += len(paid) < limit
        wrong["charged, but not granted"] += len(paid) > got
    return {"budgets": budgets, "granted": granted, "wrong": +wrong}


def planted(address: str, cap: int) -> int:
    """The defect: how many charges a cap let pass when it was read, checked and then charged."""

    def connect() -> Any:
        if address.startswith("postgresql:"):
            import psycopg

            return psycopg.connect(address, autocommit=True)
        db = sqlite3.connect(address, isolation_level=None, timeout=600)
        db.execute("PRAGMA synchronous = OFF")  # durability is not what it lacks, and takes long
        return db

    with contextlib.closing(connect()) as db:
        db.execute("DROP TABLE IF EXISTS charge")
        db.execute("CREATE TABLE charge (cost INTEGER)")

    all_have_read = multiprocessing.get_context("fork").Barrier(CALLERS, timeout=120)

    def call(*_: int) -> None:
        with contextlib.closing(connect()) as db:
            for n in range(EACH):
                (spent,) = db.execute("SELECT count(*) FROM charge").fetchone()
                if n == 0:
                    all_have_read.wait()  # and none has written, as may happen
                if spent < cap:
                    db.execute("INSERT INTO charge VALUES (1)")

    forked(4, call, CALLERS // 4)
    with contextlib.closing(connect()) as db:
        (charged,) = db.execute("SELECT count(*) FROM charge").fetchone()
    return int(charged)


def find(mode: str, *, budgets: int) -> Finding:
    """The races, and the control."""
    postgres.require(charging.MODES[mode])
    facts = apart("races", "--mode", mode, "--budgets", budgets)
    if facts["control"] <= facts["cap"]:
        return Finding(tried="", control="the planted defect was not noticed", blind=True)
    return Finding(
        tried=f"{facts['budgets']} budgets, {CALLERS} callers, {facts['granted']:,} charges granted",
        wrong=Counter(facts["wrong"]),
        control=f"read, check, write: {facts['control']} charges against a cap of {facts['cap']}",
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--mode", choices=sorted(charging.MODES), default="shared")
    options.add_argument("--budgets", type=int, default=100)
    chosen = options.parse_args(arguments)
    mode, cap = charging.MODES[chosen.mode], 40
    with contextlib.ExitStack() as stack:
        stack.enter_context(postgres.ready(mode))
        folder = stack.enter_context(power.quick_folder())
        address = os.environ[charging.ADDRESS] if mode.needs_postgres else str(folder / "planted.sqlite")
        control = planted(address, cap)
        print(json.dumps(run(mode, chosen.budgets) | {"control": control, "cap": cap}))


if __name__ == "__main__":
    main(sys.argv[1:])

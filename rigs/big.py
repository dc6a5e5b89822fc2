"""A long ledger: how fast it is filled, verified from the first entry to the last, and opened."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from ostraka import Budget, GNMax, Ledger
from ostraka.ledger import ChargeRequest, LedgerError
from rigs import charging
from rigs.finding import Finding, apart

__all__ = ["find"]

BATCH = 2_000
CHEAP = GNMax(sigma=1e6)
BUDGET = Budget(
    epsilon=8.0, delta=1e-3
)  # noise in floats adds 1e-12 to delta each time: 10**7 answers must fit
FASTEST_START, SLOWEST_READ = 3.0, 100_000.0


def fill(mode: charging.ChargingMode, folder: Path, entries: int) -> None:
    """Charge in a process that ends without closing the ledger."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if status:
            raise ChildProcessError("the ledger could not be filled")
        return
    try:
        charge_all(mode.open(folder), entries)
        os._exit(0)
    except BaseException:  # noqa: BLE001  (whatever it is, this process must not go on)
        traceback.print_exc()
        os._exit(1)


def charge_all(ledger: Ledger, entries: int) -> None:
    """So many questions, in lots."""
    for first in range(0, entries, BATCH):
        asked = [
            ChargeRequest(
                account=charging.CLIENT,
                key=f"k{n}",
                digest=hashlib.sha256(b"%d" % n).hexdigest(),
                cost=CHEAP,
                reserve=CHEAP,
                answer=n % 10,
            )
            for n in range(first, min(entries, first + BATCH))
        ]
        if refused := [got for got in ledger.charge_each(asked) if isinstance(got, Exception)]:
            raise refused[0]


def find(*, entries: int) -> Finding:
    """The long ledger, and one with an entry changed in the middle."""
    found = apart("big", "--entries", entries)
    rate = entries / found["verify"]
    slow = Counter[str]()
    slow["start takes longer than 3 s"] += found["start"] > FASTEST_START
    slow["verification reads fewer than 100,000 entries a second"] += rate < SLOWEST_READ
    return Finding(
        tried=f"{entries:,} entries of {found['bytes'] / entries:.0f} bytes: {entries / found['fill']:,.0f} "
        f"charges a second in lots of {BATCH:,}; start {found['start']:.2f} s after a crash; "
        f"{rate:,.0f} entries verified a second, {entries / found['cpu']:,.0f} a second of processor time",
        wrong=+slow,
        control="a changed entry in the middle is found by `verify`",
        blind=not found["noticed"],
    )


def main(given: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--entries", type=int, default=10**6)
    chosen = options.parse_args(given)
    mode = charging.Owned(budget=BUDGET)
    with tempfile.TemporaryDirectory() as place:
        folder, clock = Path(place), time.perf_counter
        begun = clock()
        fill(mode, folder, chosen.entries)
        filled = clock()
        with mode.open(folder) as ledger:
            opened, busy = clock(), time.process_time()
            ledger.verify()
            verified, worked = clock(), time.process_time()
        size = sum(path.stat().st_size for path in folder.iterdir())
        figures = {
            "fill": filled - begun,
            "start": opened - filled,
            "verify": verified - opened,
            "bytes": size,
        }
        figures["cpu"] = worked - busy
        print(json.dumps(figures | {"noticed": noticed(mode, folder, chosen.entries // 2)}))


def noticed(mode: charging.ChargingMode, folder: Path, seq: int) -> bool:
    """Whether a changed answer of one entry is found."""
    charging.behind_the_triggers(folder, f"UPDATE entry SET answer = answer + 1 WHERE seq = {seq}")
    try:
        with mode.open(folder) as ledger:
            ledger.verify()
    except LedgerError as error:
        return error.seq == seq
    return False


if __name__ == "__main__":
    main(sys.argv[1:])

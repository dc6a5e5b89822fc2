"""A long ledger: how fast it is filled, verified from the first entry to the last, and opened.

``python -m rigs.big --folder PLACE`` keeps the ledger, and fills up one that is there already.
"""

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

from ostraka import GNMax, Ledger
from ostraka.ledger import ChargeRequest, LedgerError
from rigs import charging
from rigs.finding import Finding, apart

__all__ = ["find"]

BATCH = 2_000
CHEAP = GNMax(sigma=1e6)
FASTEST_START, SLOWEST_READ = 3.0, 100_000.0


def fill(mode: charging.ChargingMode, folder: Path, entries: int) -> None:
    """Charge up to so many entries in a process that ends without closing the ledger."""
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
    """Questions in lots, from where the ledger stands."""
    for first in range(ledger.count() - 1, entries, BATCH):  # its first entry is a grant
        charges = [
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
        if refused := [got for got in ledger.charge_each(charges) if isinstance(got, Exception)]:
            raise refused[0]


def find(*, entries: int) -> Finding:
    """The long ledger, and one with an entry changed in the middle."""
    facts = apart("big", "--entries", entries)
    rate, worked = entries / facts["verify"], entries / facts["cpu"]
    slow = Counter[str]()
    slow["start takes longer than 3 s"] += facts["start"] > FASTEST_START
    # both threads' time: what a quiet machine of two cores does not fall below by the clock
    slow["verification reads fewer than 100,000 entries a second of processor time"] += worked < SLOWEST_READ
    return Finding(
        tried=f"{entries:,} entries of {facts['bytes'] / entries:.0f} bytes: {entries / facts['fill']:,.0f} "
        f"charges a second in lots of {BATCH:,}; start {facts['start']:.2f} s after a crash; "
        f"{rate:,.0f} entries verified a second, {worked:,.0f} a second of processor time",
        wrong=+slow,
        control="a changed entry in the middle is found by `verify`",
        blind=not facts["noticed"],
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--entries", type=int, default=10**6)
    options.add_argument(
        "--folder", type=Path, help="where the ledger is kept; one that is there is filled up"
    )
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measured(chosen.folder or Path(place), chosen.entries)))


def measured(folder: Path, entries: int) -> dict[str, float]:
    """Seconds to fill, open and verify, and the processor time of verifying."""
    mode, clock = charging.Owned(), time.perf_counter
    folder.mkdir(exist_ok=True)
    start = clock()
    fill(mode, folder, entries)
    filled = clock()
    with mode.open(folder) as ledger:
        opened, busy = clock(), time.process_time()
        ledger.verify()
        verified, worked = clock(), time.process_time()
    took = f"verified in {verified - opened:,.0f} s, {worked - busy:,.0f} s of processor time"
    print(f"opened in {opened - filled:.1f} s, {took}", file=sys.stderr, flush=True)
    return {
        "fill": filled - start,
        "start": opened - filled,
        "verify": verified - opened,
        "cpu": worked - busy,
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "noticed": noticed(mode, folder, entries // 2),
    }


def noticed(mode: charging.ChargingMode, folder: Path, seq: int) -> bool:
    """Whether a changed answer of one entry is found; it is put back."""
    change = "UPDATE entry SET answer = answer {} 1 WHERE seq = {}"
    charging.behind_the_triggers(folder, change.format("+", seq))
    try:
        with mode.open(folder) as ledger:
            ledger.verify()
    except LedgerError as error:
        return error.seq == seq
    finally:
        charging.behind_the_triggers(folder, change.format("-", seq))
    return False


if __name__ == "__main__":
    main(sys.argv[1:])

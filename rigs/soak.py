"""A service at full load for hours: memory, errors, and the ledger that comes of it.

64 connections ask, each as soon as it has its answer. Every question is new. The memory of the service is
read after each slice of the time. Memory must not grow after the first quarter by more than a tenth, no
request may fail, every answer must be charged, and the ledger is verified from its first entry.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np

from bench import service
from ostraka import Ledger
from ostraka.serve.deployment import secret_of
from ostraka.serve.keys import Keyring
from rigs.finding import Finding, apart

__all__ = ["find"]

SLICES, GROWTH, N_TEACHERS = 40, 1.1, 50
ANSWERED = """SELECT count(*) FROM entry JOIN price ON entry.price = price.id
WHERE answer IS NOT NULL AND mechanism NOT LIKE 'Reserved%'"""
SERVE = service.SERVE.replace("Budget(epsilon=1.0", "Budget(epsilon=50.0")


def find(*, seconds: float) -> Finding:
    """Failed requests, growing memory or answers without a charge are wrong."""
    facts = apart("soak", "--seconds", seconds)
    wrong = Counter[str]()
    wrong["requests failed"] += facts["failed"]
    wrong["memory grew by more than a tenth"] += facts["last"] > GROWTH * facts["early"]
    wrong["answers without a charge"] += max(0, facts["answers"] - facts["charged"])
    rate, latency = facts["entries"] / facts["verify"], facts["answers"] / facts["seconds"]
    return Finding(
        tried=f"{facts['seconds']:,.0f} s, {facts['answers']:,} answers, {latency:,.0f} a second, "
        f"p99 {1e3 * facts['p99']:.0f} ms; memory {facts['early']:.0f} MiB after a quarter, "
        f"{facts['last']:.0f} MiB in the end; verified at {rate:,.0f} entries a second",
        wrong=+wrong,
        control=f"{facts['charged']:,} answers are on record",
        blind=not facts["charged"],
    )


def memory(pid: int) -> float:
    """Resident memory of a process, MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) / 1024


def answered(ledger: Path) -> int:
    """Answers on record, as another reader of the file counts them."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        return int(db.execute(ANSWERED).fetchone()[0])


def run(seconds: float) -> dict[str, float]:
    """Load the service, then look at its ledger."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        service.N_TEACHERS = N_TEACHERS
        service.teachers(folder / "teachers")
        (folder / "service").mkdir(mode=0o700)
        pepper = bytes.fromhex(service.PEPPER)
        key = Keyring(folder / "service" / "keys.json", pepper).add("alice", role="client", epsilon=40.0)
        port, where = service.free_port(), f"sqlite:///{folder / 'service' / 'ledger.sqlite'}"
        command = [sys.executable, "-c", SERVE, str(folder), str(port), where]
        server = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            service.wait_for(port, server)
            start, sizes = time.monotonic(), list[float]()
            loads = list[service.Load]()
            while (seconds_left := seconds - (time.monotonic() - start)) > 0:
                part = min(seconds_left, max(1.0, seconds / SLICES))
                loads.append(
                    service.asked(port, key, server.pid, requests=10**6, seconds=part, start=len(loads))
                )
                sizes.append(memory(server.pid))
                progress = f"{loads[-1].answers:,} answers, {loads[-1].failed} failed, {sizes[-1]:.0f} MiB"
                print(f"{time.monotonic() - start:,.0f} s: {progress}", file=sys.stderr, flush=True)
            lasted = time.monotonic() - start
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        charged, start = answered(folder / "service" / "ledger.sqlite"), time.perf_counter()
        secret = secret_of("ledger", folder / "service", {})
        with Ledger(where, secret=secret, read_only=True) as ledger:  # opening verifies it
            took, entries = time.perf_counter() - start, ledger.count()
    return {
        "seconds": lasted, "answers": sum(load.answers for load in loads), "charged": charged,
        "failed": sum(load.failed for load in loads), "entries": entries, "verify": took,
        "early": sizes[len(sizes) // 4], "last": sizes[-1],
        "p99": float(np.percentile(np.concatenate([load.latencies for load in loads]), 99)),
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.soak")
    options.add_argument("--seconds", type=float, default=7_200.0)
    print(json.dumps(run(options.parse_args(arguments).seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])

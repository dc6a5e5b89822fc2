"""Charges a second from many callers, a charge alone, and entries a second that are verified.

On SQLite in a temporary folder, or where OSTRAKA_BENCHMARK_LEDGER says: ``postgresql://…``.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ostraka import Budget, GNMax, Ledger
from ostraka.core.ledger.chain import Receipt
from ostraka.ledger import ChargeRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

PRICE = GNMax(sigma=40_000.0)
CALLERS, CLIENTS, EACH, ENTRIES, AT_ONCE = 64, 64, 400, 200_000, 4000
ROUNDS, ALONE = 25, 100
QUICK = {"CALLERS": 4, "EACH": 5, "ENTRIES": 400, "AT_ONCE": 200, "ROUNDS": 2, "ALONE": 3}


def asked(client: int) -> ChargeRequest:
    """Return a charge request for a new question."""
    return ChargeRequest(
        account=f"client{client % CLIENTS}",
        key=secrets.token_hex(16),
        digest=secrets.token_hex(32),
        cost=PRICE,
        reserve=PRICE,
        answer=client % 10,
    )


def callers(ledger: Ledger, n_callers: int) -> Iterator[str]:
    """Many threads, each of which asks one question after the other."""
    waited: list[list[float]] = [[] for _ in range(n_callers)]
    questions = [[asked(me) for _ in range(EACH)] for me in range(n_callers)]

    def work(me: int) -> None:
        for question in questions[me]:
            began = time.perf_counter()
            (receipt,) = ledger.charge_each([question])
            waited[me].append(time.perf_counter() - began)
            assert isinstance(receipt, Receipt)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(n_callers)]
    wall, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    n, (median, late) = n_callers * EACH, np.percentile(np.concatenate(waited), [50, 99]) * 1e3
    yield f"{n_callers} callers: {n / wall:,.0f} charges/s, {cpu / n * 1e6:.0f} µs of processor time each"
    yield f"  a caller waits {median:.1f} ms (median), {late:.1f} ms (99 %)"


def verification(ledger: Ledger, options: dict[str, object]) -> Iterator[str]:
    """Fill a ledger, read all of it, and start from its anchor."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(ENTRIES // AT_ONCE):
        ledger.charge_each([asked(client) for client in range(AT_ONCE)])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    yield f"{AT_ONCE} at once: {ENTRIES / wall:,.0f} charges/s, {cpu / ENTRIES * 1e6:.0f} µs each"
    n, wall, cpu = ledger.count(), time.perf_counter(), time.process_time()
    ledger.verify()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    yield f"verified: {n / wall:,.0f} entries/s, {cpu / n * 1e6:.1f} µs of processor time each, of {n:,}"
    ledger.close()
    wall = time.perf_counter()
    Ledger(ledger.path, **options).close()
    yield f"started from the anchor in {time.perf_counter() - wall:.3f} s"


def alone(folder: Path) -> Iterator[str]:
    """One charge after the other, by turns with as many durable inserts of a row into a bare file."""
    ledger = Ledger(folder / "alone.sqlite", budget=Budget(epsilon=50.0, delta=1e-6))
    with ledger, closing(sqlite3.connect(folder / "bare.sqlite", isolation_level=None)) as bare:
        bare.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA page_size = 1024")
        bare.execute("CREATE TABLE entry (seq INTEGER PRIMARY KEY, kind TEXT, digest BLOB)")

        def charge() -> None:
            ledger.charge(PRICE, uses=1, unit="row", simulation=False)

        def insert() -> None:
            bare.execute("BEGIN IMMEDIATE")
            bare.execute("INSERT INTO entry (kind, digest) VALUES ('charge', ?)", (secrets.token_bytes(32),))
            bare.execute("COMMIT")

        spent: dict[str, list[float]] = {"charge": [], "insert": []}
        for _ in range(ROUNDS):
            for name, work in (("charge", charge), ("insert", insert)):
                start = time.process_time()
                for _ in range(ALONE):
                    work()
                spent[name].append((time.process_time() - start) / ALONE)
    for name, times in spent.items():
        yield f"alone: {name} {1e3 * np.median(times):.3f} ms of processor, fastest {1e3 * min(times):.3f}"
    yield f"  ratio of both {np.median(spent['charge']) / np.median(spent['insert']):.2f}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = os.environ.get("OSTRAKA_BENCHMARK_LEDGER", str(Path(folder) / "ledger.sqlite"))
        options: dict[str, object] = {
            "secret": bytes(32),
            "anchor": Path(folder) / "anchor",
            "owner": True,
        }
        ledger = Ledger(where, budget=Budget(epsilon=50.0, delta=1e-6, adaptive=False), **options)
        for client in range(CLIENTS):
            ledger.grant(f"client{client}", budget_epsilon=50.0)
        ledger.charge_each([asked(0)])
        for line in (*callers(ledger, CALLERS), *callers(ledger, 1)):
            print(line)
        if "://" not in where:
            for line in alone(Path(folder)):
                print(line)
            for line in verification(ledger, options):
                print(line)


if __name__ == "__main__":
    main()

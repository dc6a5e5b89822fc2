"""Several services before one PostgreSQL: answers a second, and the time that a charge waits for the lock.

1, 2 and 4 HTTP processes share a ledger. Single rows and batches of 16 come from 64 connections, by turns to
each process, and every question is new. Meanwhile the database is asked a hundred times a second which of its
connections wait for a lock, which are in a transaction, and which write to the disk. Afterwards the entries
are counted: every acknowledged answer must be one of them. Client, services and database share the machine.

Then 100 random forests vote in 1, 2 and 4 processes, which send partial votes; their sums must be the same.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from bench import service
from bench._data import shrink
from ostraka import GNMax, TeacherEnsemble
from ostraka.consistent import Consistent
from ostraka.serve.keys import Keyring
from ostraka.voters import SavedTeachers
from rigs import postgres
from rigs.disk import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.core.private import Private

PROCESSES = (1, 2, 4)
SECONDS = 10.0
ROWS = {1: "single rows", 16: "batches of 16"}  # in one request
N_FORESTS, TREES, ROUNDS = 100, 10, 5
QUICK = {
    "PROCESSES": (2,),
    "ROWS": {16: "batches of 16"},
    "SECONDS": 0.3,
    "N_FORESTS": 50,
    "TREES": 1,
    "ROUNDS": 1,
}
SERVE = service.SERVE.replace("environment={}", "shared=True, environment={}")
STATES = """SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'),
    count(*) FILTER (WHERE state <> 'idle'), count(*) FILTER (WHERE wait_event = 'WALSync')
    FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"""
COUNT = "SELECT count(*) FROM ostraka_entry WHERE answer IS NOT NULL AND uses = 1"


class Watch:
    """Means of how many connections wait, are busy, and sync, while it runs."""

    def __init__(self, address: str) -> None:
        import psycopg

        self.db, self.done = psycopg.connect(address, autocommit=True), threading.Event()
        self.seen: list[tuple[int, int, int]] = []
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        while not self.done.wait(0.01):
            self.seen.append(self.db.execute(STATES).fetchone())

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        self.db.close()

    def means(self) -> tuple[float, float, float]:
        return (
            tuple(sum(column) / max(1, len(self.seen)) for column in zip(*self.seen, strict=True))
            or (0.0,) * 3
        )


@contextmanager
def services(folder: Path, db: str, many: int) -> Iterator[list[tuple[int, int]]]:
    """So many processes; port and process number of each."""
    setting = {**os.environ, "OMP_NUM_THREADS": "1"}
    running: list[subprocess.Popen] = []
    try:
        ports = []
        for _ in range(many):
            port = service.free_port()
            command = [sys.executable, "-c", SERVE, str(folder), str(port), db]
            running.append(subprocess.Popen(command, env=setting))
            service.wait_for(port, running[-1])
            ports.append(port)
        yield [(port, process.pid) for port, process in zip(ports, running, strict=True)]
    finally:
        for each in running:
            each.send_signal(signal.SIGTERM)
        for each in running:
            each.wait(30)


def entries(address: str) -> int:
    """Answers that the ledger holds."""
    import psycopg

    with psycopg.connect(address) as db:
        return sum(row[0] for row in db.execute(COUNT))


def measure(folder: Path, address: str, many: int, *, rows: int) -> str:
    """One line: so many processes, batches of so many rows."""
    keyring = Keyring(folder / "service" / "keys.json", bytes.fromhex(service.PEPPER))
    key = keyring.add(f"load-{time.time_ns()}", role="client", epsilon=1.0)
    with services(folder, address, many) as addresses:
        (port, pid), *others = addresses
        how = {"rows": rows, "others": others}
        service.asked(port, key, pid, requests=64 * many, seconds=SECONDS, start=1, **how)
        before = entries(address)
        with Watch(address) as watch:
            start = time.time_ns() % 10**9
            load = service.asked(port, key, pid, requests=10**6 // rows, seconds=SECONDS, start=start, **how)
        charged = entries(address) - before
    assert charged >= load.answers, f"{load.answers - charged} answers left without their charges"
    waiting, busy, syncing = watch.means()
    milliseconds = 1e3 * load.seconds / max(1, load.answers)
    return (
        f"{load}; {many} connections to the database, of which {waiting:.2f} wait for the lock, {busy:.2f} "
        f"are in a transaction and {syncing:.2f} sync: {waiting * milliseconds:.3f} ms of waiting a charge"
    )


def main() -> None:
    try:
        with postgres.server() as address:
            compare(address)
    except UnavailableError as missing:
        print(f"left out: {missing}")
    partial_votes()


def compare(address: str) -> None:
    """Measure every number of processes, with a new ledger for each."""
    import psycopg

    if SECONDS < 1:  # the smallest form
        shrink(service)
    with tempfile.TemporaryDirectory() as path, psycopg.connect(address, autocommit=True) as db:
        service.teachers(Path(path) / "teachers")
        for rows, name in ROWS.items():
            for many in PROCESSES:
                folder, schema = Path(path) / f"{many}-{rows}", f"n{many}x{rows}"
                shutil.copytree(Path(path) / "teachers", folder / "teachers")
                (folder / "service").mkdir(mode=0o700)
                db.execute(f"CREATE SCHEMA {schema}")
                where = f"{address}&options=-csearch_path%3D{schema}"
                print(f"{name}, {many} processes: {measure(folder, where, many, rows=rows)}", flush=True)


def partial_votes() -> None:
    """Votes a second of slow teachers in several processes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * N_FORESTS, 8))
    forests = TeacherEnsemble(RandomForestClassifier(TREES), n_teachers=N_FORESTS, n_jobs=1, random_state=0)
    forests.fit(X, X[:, :3].argmax(axis=1), classes=range(3))
    saved = SavedTeachers(
        ensemble=forests, mechanism=GNMax(sigma=40.0), columns=tuple("abcdefgh"), numeric=(True,) * 8,
        grid=Consistent.grid_of(X),
    )  # fmt: skip
    questions = rng.normal(size=(256, 8))
    with tempfile.TemporaryDirectory() as path:
        saved.save(Path(path) / "teachers")
        for many in PROCESSES:
            split = SavedTeachers.load(Path(path) / "teachers", processes=many)
            agrees = np.array_equal(opened(split.vote(questions)), opened(saved.vote(questions)))
            assert agrees, "partial votes do not add up"
            start = time.perf_counter()
            for _ in range(ROUNDS):
                split.vote(questions)
            took = (time.perf_counter() - start) / ROUNDS
            split.ensemble.close()
            rate = len(questions) / took
            print(
                f"{N_FORESTS} forests of {TREES} trees, {many} processes: {rate:,.0f} rows a second",
                flush=True,
            )


def opened(votes: Private) -> np.ndarray:
    """The votes, which are of made-up rows here."""
    return votes.open()


if __name__ == "__main__":
    main()

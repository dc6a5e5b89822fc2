"""The service on loopback: durable, charged answers a second, their latency, processor time an answer.

A server in a process of its own with 250 linear teachers, a ledger with synchronous commits on this disk,
and a client with raw sockets in this process. Every request is a new question under a new key. Afterwards
the ledger is opened and its entries are counted: every acknowledged answer must be one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from ostraka import GNMax, Ledger, TeacherEnsemble, Threshold
from ostraka.consistent import Consistent
from ostraka.serve.deployment import secret_of
from ostraka.serve.keys import Keyring
from ostraka.voters import SavedTeachers

if TYPE_CHECKING:
    from collections.abc import Sequence

N_TEACHERS, N_FEATURES, N_CLASSES = 250, 64, 10
CONNECTIONS = 64
SECONDS, WARM_SECONDS = 10.0, 2.0
TURNS = 10  # of each of two checkouts that are compared
SIGMA = 4_000.0  # so that the budget lasts for the whole run; noise costs the same time
SCREEN = Threshold(at=150.0, sigma=SIGMA)
WAYS = (  # what is asked, and how many rows in a request
    ("single rows", None, 1),
    ("batches of 16", None, 16),
    ("single rows, Confident-GNMax", SCREEN, 1),
)
QUICK = {
    "CONNECTIONS": 4,
    "SECONDS": 0.3,
    "WARM_SECONDS": 0.1,
    "N_TEACHERS": 10,
    "WAYS": (("single rows, Confident-GNMax", SCREEN, 1),),
}
PEPPER = "ab" * 32
SERVE = """
import os, sys, json
from pathlib import Path
from ostraka import Budget
from ostraka.serve import server as _server
from ostraka.serve.deployment import Deployment, Settings
from ostraka.serve.app import Application
from ostraka.voters import SavedTeachers
run, port, db = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
saved = SavedTeachers.load(run / "teachers")
deployment = Deployment(
    saved=saved, folder=run / "service", db=db,
    budget=Budget(epsilon=1.0, delta=1e-3, adaptive=bool(saved.screen)),
    settings=Settings(rate=1e9, burst=10**9), environment={}, pepper=bytes.fromhex("ab" * 32),
)
_server.run(Application(deployment), host="127.0.0.1", port=port)
"""
PREPARE = """
import sys
from pathlib import Path
from bench.service import PEPPER, SCREEN, SERVE, Keyring, teachers
folder = Path(sys.argv[1])
(folder / "service").mkdir(mode=0o700, parents=True)
teachers(folder / "teachers", screen=SCREEN if sys.argv[2] else None)
keyring = Keyring(folder / "service" / "keys.json", bytes.fromhex(PEPPER))
print(keyring.add("load", role="client", epsilon=1.0))
print(SERVE)
"""  # in each of two checkouts, which may differ in all of this
FLOORS = """floor: 3,000 answers a second with p99 <= 60 ms; goal: 6,000 with p99 <= 25 ms;
on two cores, the client included"""


@dataclass(frozen=True, slots=True)
class Load:
    """Replies and latencies that a client saw."""

    answers: int
    seconds: float
    latencies: np.ndarray
    client_cpu: float
    server_cpu: float
    failed: int

    def __str__(self) -> str:
        p50, p99, worst = np.percentile(self.latencies, [50, 99, 100]) * 1e3
        per_answer = 1e6 / max(self.answers, 1)
        server, client = self.server_cpu * per_answer, self.client_cpu * per_answer
        return (
            f"{self.answers / self.seconds:,.0f} answers a second; p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
            f"slowest {worst:.0f} ms; {self.failed} failed; processor time an answer: "
            f"server {server:.0f} us, client {client:.0f} us"
        )


def teachers(folder: Path, *, screen: Threshold | None = None) -> None:
    """Logistic regressions on blobs, 40 rows a teacher."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, 40 * N_TEACHERS)
    X = (rng.normal(size=(N_CLASSES, N_FEATURES)) * 2)[y] + rng.normal(size=(len(y), N_FEATURES)) + 8
    ensemble = TeacherEnsemble(
        LogisticRegression(max_iter=50), n_teachers=N_TEACHERS, n_jobs=1, random_state=0
    )
    ensemble.fit(X, y, classes=range(N_CLASSES))
    SavedTeachers(
        ensemble=ensemble,
        mechanism=GNMax(sigma=SIGMA),
        screen=screen,
        columns=tuple(f"pixel_{j}" for j in range(N_FEATURES)),
        numeric=(True,) * N_FEATURES,
        grid=Consistent.grid_of(X),
    ).save(folder)


class Caller(asyncio.Protocol):
    """One connection, which asks one request after another until none is left."""

    def __init__(self, shared: dict, rows: int) -> None:
        self.shared, self.rows, self.buffer = shared, rows, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        shared = self.shared
        if shared["left"] <= 0 or time.perf_counter() > shared["until"]:
            self.transport.close()
            return
        shared["left"] -= 1
        number = shared["left"]
        cells = self.cells(number)
        body = b'{"row":%s}' % cells if self.rows == 1 else b'{"rows":[%s]}' % cells
        self.start = time.perf_counter()
        self.transport.write(  # type: ignore[attr-defined]
            shared["head"] % (b"k%d" % number, len(body)) + body
        )

    def cells(self, number: int) -> bytes:
        """Return the rows of one request, all of them different."""
        other_rows, first = self.shared["rest"], number * self.rows
        return b",".join(
            b"[%d,%d,%d,%s]" % (k % 17, k // 17 % 17, k // 289 % 17, other_rows[k // 4913])
            for k in range(first, first + self.rows)
        )

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        self.buffer = b""
        self.shared["seconds"].append(time.perf_counter() - self.start)
        self.shared["failed"] += not head.startswith(b"HTTP/1.1 200")
        self.ask()

    def connection_lost(self, _: Exception | None) -> None:
        self.shared["open"] -= 1
        if not self.shared["open"]:
            self.shared["done"].set_result(None)


def asked(
    port: int,
    key: str,
    pid: int,
    *,
    requests: int,
    seconds: float,
    rows: int = 1,
    start: int = 0,
    others: Sequence[tuple[int, int]] = (),
) -> Load:
    """Load from 64 connections, by turns to this process and to ``others`` (port and process number)."""
    import uvloop

    async def main() -> Load:
        loop = asyncio.get_running_loop()
        rng = np.random.default_rng(start)
        other_rows = [
            b",".join(b"%d" % cell for cell in rng.integers(0, 17, N_FEATURES - 3))
            for _ in range(requests * rows // 4913 + 1)
        ]
        head = (
            f"POST /v1/label HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
            f"Idempotency-Key: {start}-%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        ).encode()
        shared: dict[str, Any] = {
            "left": requests, "until": time.perf_counter() + seconds, "open": CONNECTIONS, "failed": 0,
            "seconds": [], "rest": other_rows, "head": head, "done": loop.create_future(),
        }  # fmt: skip
        ports, pids = [port, *(member for member, _ in others)], [pid, *(member for _, member in others)]
        before, mine, begun = sum(map(cpu, pids)), time.process_time(), time.perf_counter()
        for number in range(CONNECTIONS):
            where = ports[number % len(ports)]
            await loop.create_connection(lambda: Caller(shared, rows), "127.0.0.1", where)
        await shared["done"]
        lasted = time.perf_counter() - begun
        answered = len(shared["seconds"]) - shared["failed"]
        return Load(
            answered * rows, lasted, np.array(shared["seconds"]), time.process_time() - mine,
            sum(map(cpu, pids)) - before, shared["failed"],
        )  # fmt: skip

    return uvloop.run(main())


def cpu(pid: int) -> float:
    """Seconds of processor time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_time(pid: int) -> float:
    """Processor time of a process, all threads, in microseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int, server: subprocess.Popen) -> None:
    """Wait until the service answers."""
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError("the server has left")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the server does not listen")


def measured(folder: Path, *, seconds: float, rows: int = 1, db: str | None = None) -> Load:
    """Start, warm up, load, stop, and count what the ledger has."""
    (folder / "service").mkdir(mode=0o700, exist_ok=True)
    keyring = Keyring(folder / "service" / "keys.json", bytes.fromhex(PEPPER))
    key = keyring.add(f"load-{time.time_ns()}", role="client", epsilon=1.0)
    port, where = free_port(), db or f"sqlite:///{folder / 'service' / 'ledger.sqlite'}"
    command = [sys.executable, "-c", SERVE, str(folder), str(port), where]
    server = subprocess.Popen(command)
    try:
        wait_for(port, server)
        asked(port, key, server.pid, requests=2_000, seconds=WARM_SECONDS, start=1)
        load = asked(port, key, server.pid, requests=10**6 // rows, seconds=seconds, rows=rows, start=2)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    return load


def charged(folder: Path) -> int:
    """Answers in the ledger: entries of clients, less those that bind a batch to its key."""
    secret = secret_of("ledger", folder / "service", {})
    with Ledger(f"sqlite:///{folder / 'service' / 'ledger.sqlite'}", secret=secret, read_only=True) as ledger:
        n, seq = 0, 0
        while page := ledger.entries(after=seq, limit=10_000):
            n += sum(
                entry.answer is not None and not entry.mechanism.startswith("Reserved") for entry in page
            )
            seq = page[-1].seq
    return n


def main(seconds: float | None = None) -> None:
    seconds = SECONDS if seconds is None else seconds
    print(FLOORS)
    for name, screen, rows in WAYS:
        with tempfile.TemporaryDirectory(dir=os.environ.get("OSTRAKA_BENCH_DIR")) as path:
            folder = Path(path)
            teachers(folder / "teachers", screen=screen)
            load = measured(folder, seconds=seconds, rows=rows)
            print(f"{name}: {load}", flush=True)
            assert charged(folder) >= load.answers, "an answer left without its charge"


def compare(checkout: Path, seconds: float) -> None:
    """Print what an answer takes the server here and that of another checkout: both run, loaded by turns."""
    places = [(Path(__file__).parents[1], sys.executable), (checkout, ".venv/bin/python")]
    for name, screen, rows in WAYS:
        with tempfile.TemporaryDirectory(dir=os.environ.get("OSTRAKA_BENCH_DIR")) as path:
            servers: list[tuple[int, str, subprocess.Popen[bytes]]] = []
            times: tuple[list[float], list[float]] = ([], [])
            rates: tuple[list[float], list[float]] = ([], [])
            try:
                for number, (place, python) in enumerate(places):
                    folder, port = Path(path) / str(number), free_port()
                    command = [python, "-c", PREPARE, str(folder), "screen" if screen else ""]
                    output = subprocess.run(command, cwd=place, check=True, stdout=subprocess.PIPE, text=True)
                    key, program = output.stdout.split("\n", 1)
                    db = f"sqlite:///{folder / 'service' / 'ledger.sqlite'}"
                    command = [python, "-c", program, str(folder), str(port), db]
                    servers.append((port, key, subprocess.Popen(command, cwd=place)))
                for port, _, server in servers:
                    wait_for(port, server)
                for turn in range(TURNS + 1):  # the first one warms up
                    for side in (0, 1) if turn % 2 else (1, 0):  # a drift of the machine favours neither
                        port, key, server = servers[side]
                        before, last = processor_time(server.pid), seconds if turn else 2 * WARM_SECONDS
                        load = asked(
                            port, key, server.pid, requests=10**5, seconds=last, rows=rows, start=turn + 1
                        )
                        if turn:
                            times[side].append((processor_time(server.pid) - before) / load.answers)
                            rates[side].append(load.answers / load.seconds)
            finally:
                for *_, server in servers:
                    server.send_signal(signal.SIGTERM)
                    server.wait(60)
        mine, theirs = (float(np.median(side)) for side in times)
        print(
            f"{name}: {mine:.0f} us of the server here, {theirs:.0f} us there: {mine / theirs:.2f} times; "
            f"{np.median(rates[0]):,.0f} and {np.median(rates[1]):,.0f} answers a second",
            flush=True,
        )
    print(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d %H:%M')}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load; of each turn, compared")
    parser.add_argument(
        "--against", type=Path, help="a checkout of another commit, with an environment in its .venv"
    )
    chosen = parser.parse_args()
    if chosen.against:
        compare(chosen.against.resolve(), chosen.seconds)
    else:
        main(chosen.seconds)

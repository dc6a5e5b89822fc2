"""The service's processor time by stage: the same server with ever more of its parts, loaded by turns.

The first server writes a fixed reply to whatever it reads, the last one is the service on what ``learn``
writes. All run at once, and one after the other is loaded for a moment by 64 connections, so that each sees
the same machine. Linux only: processor time is read from /proc, to the nanosecond.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import learned_service, service
from ostraka.serve.keys import Keyring

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS, TURNS, N_TEACHERS = 0.5, 10, 250
QUICK = {"SECONDS": 0.1, "TURNS": 1, "N_TEACHERS": 10, "STAGES": ("the whole service",)}
SOCKETS = """
import asyncio, signal, sys, httptools, uvloop
REPLY = b"HTTP/1.1 200 OK\\r\\ncontent-length: 130\\r\\n\\r\\n" + b"x" * 130
class Bare(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
    def data_received(self, data):
        self.transport.write(REPLY)
class Parsing(Bare):
    def data_received(self, data):
        self.parser.feed_data(data)
    def on_message_begin(self):
        self.headers, self.body = [], b""
    def on_header(self, name, value):
        self.headers.append((name.lower(), value))
    def on_body(self, body):
        self.body += body
    def on_message_complete(self):
        self.transport.write(REPLY)
async def main(kind):
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with await loop.create_server(kind, "127.0.0.1", int(sys.argv[2])):
        await ended.wait()
"""
FIXED_REPLY = """
from ostraka.secure.server import Reply
async def reply(self, request):
    return Reply(200, b"x" * 130)
Application.reply = reply
"""
RECEIPT = """
from ostraka.ledger import Ledger
from ostraka.core.ledger.chain import Receipt
from ostraka.serve.answering import Batcher
def receipt(answer):
    return Receipt(seq=12345, head="ab" * 32, answer=answer, left=0.5)
"""
NO_BATCHER = """
async def ask(self, account, key, rows):
    return [receipt(3)]
Batcher.ask = ask
"""
NO_VOTE = """
def answer(self, jobs):
    for job in jobs:
        job.receipts = [receipt(3)]
Batcher._answer = answer
"""
NO_LEDGER = """
Ledger.charge_each = lambda self, requests, **_: [receipt(each.answer) for each in requests]
"""
NO_DISK = """
os.fdatasync = lambda handle: None
there.ledger._store._db.execute("PRAGMA synchronous = OFF")
"""


def changed(*parts: str) -> str:
    """The service's program with parts replaced before it runs."""
    return service.SERVE.replace("_server.run(", "\n".join([*parts, "_server.run("]))


PROGRAMS = {
    "sockets of the kernel and of uvloop": SOCKETS + "uvloop.run(main(Bare))",
    "HTTP parsed": SOCKETS + "uvloop.run(main(Parsing))",
    "limits of connections, key, a task a request": changed(FIXED_REPLY),
    "JSON, checks, rates, reply": changed(RECEIPT, NO_BATCHER),
    "handed to the answering thread and back": changed(RECEIPT, NO_VOTE),
    "features, votes, noise": changed(RECEIPT, NO_LEDGER),
    "ledger, without waiting for the disk": changed(NO_DISK),
    "the whole service": service.SERVE,
}
STAGES = tuple(PROGRAMS)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, how to reach it, and what it took for each answer so far."""

    process: subprocess.Popen[bytes]
    port: int
    key: str
    took: list[float]
    client: list[float]


@contextlib.contextmanager
def running(program: str, teachers: Path) -> Iterator[Server]:
    """Start a server on a copy of the teachers."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("OSTRAKA_BENCH_DIR")) as path:
        folder = Path(path)
        shutil.copytree(teachers, folder / "teachers")
        (folder / "service").mkdir(mode=0o700)
        keyring = Keyring(folder / "service" / "keys.json", bytes.fromhex(service.PEPPER))
        key, port = keyring.add("load", role="client", epsilon=1.0), service.free_port()
        db = f"sqlite:///{folder / 'service' / 'ledger.sqlite'}"
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder), str(port), db],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            service.wait_for(port, process)
            yield Server(process, port, key, [], [])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def load(server: Server, turn: int, seconds: float) -> None:
    """Ask for a moment, and note what each answer took."""
    pid = server.process.pid
    before = service.processor_time(pid)
    load_result = service.asked(server.port, server.key, pid, requests=50_000, seconds=seconds, start=turn)
    assert not load_result.failed, f"{load_result.failed} requests failed"
    server.took.append((service.processor_time(pid) - before) / load_result.answers)
    server.client.append(1e6 * load_result.client_cpu / load_result.answers)


def main() -> None:
    if not Path("/proc/self/schedstat").exists():
        print("left out: processor time is read from /proc, which is not here")
        return
    with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as stack:
        learned_service.prepared(Path(path) / "teachers", n_teachers=N_TEACHERS)
        servers = {
            stage: stack.enter_context(running(PROGRAMS[stage], Path(path) / "teachers")) for stage in STAGES
        }
        for server in servers.values():
            load(server, 1, 2 * SECONDS)  # to warm up
            server.took.clear()
        for turn in range(TURNS):
            for stage in STAGES if turn % 2 else STAGES[::-1]:
                load(servers[stage], turn + 2, SECONDS)
        before = 0.0
        for stage, server in servers.items():
            low, middle, high = np.percentile(server.took, [25, 50, 75])
            print(
                f"{stage}: {middle:.0f} us an answer ({low:.0f} to {high:.0f}), {middle - before:+.0f}; "
                f"client {np.median(server.client):.0f} us"
            )
            before = middle
        print(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d %H:%M')}")


if __name__ == "__main__":
    main()

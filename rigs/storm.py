"""A storm of retries: clients reach the service through a proxy that loses requests and replies.

The proxy cuts connections before a request goes on, after it went on, and in the middle of the reply. The
service itself is killed and started again meanwhile. Each key must be charged once at most, every caller of
a key must get the same answer, and so must whoever asks again later. The control takes a new key for each
question that is asked again: it must pay more than once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ostraka.serve.client import Answer, Client, ServiceError
from rigs import power, serving
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find"]

CALLERS = 24


@dataclass(slots=True)
class Proxy:
    """A proxy that forwards requests or loses them."""

    port: int
    chance: float
    rng: random.Random
    lost: Counter[str] = field(default_factory=Counter)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            server = await asyncio.open_connection("127.0.0.1", self.port)
            up, down = self.pump(reader, server[1], "requests"), self.pump(server[0], writer, "replies")
            tasks = [asyncio.ensure_future(up), asyncio.ensure_future(down)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            server[1].transport.abort()
        writer.transport.abort()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str) -> None:
        """Forward one direction until something is lost."""
        while data := await reader.read(65536):
            if self.rng.random() < self.chance:
                self.lost[kind] += 1
                if self.rng.random() < 0.5:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                return
            writer.write(data)
            await writer.drain()


@contextlib.contextmanager
def between(port: int, *, chance: float, seed: int) -> Iterator[tuple[str, Proxy]]:
    """A lossy way to a port: its address, and what it lost."""
    proxy, ready, end = Proxy(port, chance, random.Random(seed)), threading.Event(), threading.Event()
    pauses: list[int] = []

    async def live() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        pauses.append(server.sockets[0].getsockname()[1])
        ready.set()
        await asyncio.to_thread(end.wait)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(live(),), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{pauses[0]}", proxy
    finally:
        end.set()
        thread.join()


def row_of(number: int) -> list[float]:
    rng = random.Random(number)
    return [round(rng.uniform(-9, 9), 3) for _ in serving.COLUMNS]


@dataclass(slots=True)
class Storm:
    """Callers, and what they were told."""

    service: serving.Service
    wrong: Counter[str] = field(default_factory=Counter)
    told: dict[str, Answer] = field(default_factory=dict)
    door: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, client: Client, number: int, *, fresh: bool = False) -> None:
        """One question, until it is answered; some are asked by two callers at once."""
        key = f"q{number}" if not fresh else None
        try:
            answer = client.label(row_of(number), key=key)
        except ServiceError as error:
            self.wrong[f"not answered: {error.code}"] += 1
            return
        with self.door:
            first = self.told.setdefault(f"q{number}", answer)
        if (first.label, first.seq, first.head) != (answer.label, answer.seq, answer.head) and not fresh:
            self.wrong["two answers for one key"] += 1

    def run(self, url: str, numbers: list[int], *, fresh: bool = False) -> None:
        """All questions, from many threads."""
        clients = [Client(url, self.service.keys["alice"], patience=120.0) for _ in range(CALLERS)]
        with ThreadPoolExecutor(CALLERS) as pool:
            for n, number in enumerate(numbers):
                pool.submit(self.ask, clients[n % CALLERS], number, fresh=fresh)
        for client in clients:
            client.close()

    def look(self, keys: int) -> None:
        """Compare what was told with what is on record."""
        charged = self.service.charged()
        if len(charged) != keys:
            self.wrong["keys charged not once"] += abs(len(charged) - keys)
        on_record = {seq: key for (_, key), (seq, _) in charged.items()}
        for key, answer in self.told.items():
            if not on_record.get(answer.seq, "").startswith(key):
                self.wrong["answered, but not charged under this key"] += 1


def run(keys: int, *, kills: int, fresh: bool) -> dict[str, object]:
    """Storm, look, and ask everything again without the proxy."""
    rng = random.Random(5)
    with power.quick_folder() as folder, serving.running(folder) as service:
        storm = Storm(service)
        with between(service.port, chance=0.08 if fresh else 0.04, seed=6) as (url, proxy):
            numbers = list(range(keys)) + rng.sample(range(keys), keys // 10)
            numbers.sort(key=lambda number: number + rng.random() * 8)  # the second caller is close behind
            stop = threading.Event()
            killer = threading.Thread(target=kill_repeatedly, args=(service, kills, stop))
            killer.start()
            storm.run(url, numbers, fresh=fresh)
            stop.set()
            killer.join()
        if fresh:
            return {"charged": len(service.charged()), "keys": keys}
        storm.look(keys)
        storm.run(service.url, rng.sample(range(keys), min(keys, 5_000)))
        storm.look(keys)
    return {"keys": keys, "lost": proxy.lost, "kills": kills, "wrong": storm.wrong}


def kill_repeatedly(service: serving.Service, kills: int, stop: threading.Event) -> None:
    """Kill the service and start it again while clients ask it."""
    for _ in range(kills):
        if stop.wait(1.5):
            return
        service.kill()
        service.start()


def find(*, keys: int, kills: int) -> Finding:
    """The storm, and the control."""
    facts = apart("storm", "--keys", keys, "--kills", kills)
    control = apart("storm", "--keys", min(keys, 300), "--kills", 0, "--fresh")
    lost = facts["lost"]
    return Finding(
        tried=f"{keys:,} keys; {lost.get('requests', 0):,} requests and {lost.get('replies', 0):,} replies "
        f"lost, the service killed {kills} times",
        wrong=Counter(facts["wrong"]),
        control=f"a new key each time pays {control['charged']} times for {control['keys']}",
        blind=control["charged"] <= control["keys"],
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--keys", type=int, default=100_000)
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--fresh", action="store_true", help="the control")
    chosen = options.parse_args(arguments)
    print(json.dumps(run(chosen.keys, kills=chosen.kills, fresh=chosen.fresh)))


if __name__ == "__main__":
    main(sys.argv[1:])

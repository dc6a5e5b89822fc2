"""Connections without a valid key, more than the service takes, while a client with a key asks.

Each stranger connects, sends GET /health, waits seven seconds, asks again, and connects again when it is
dropped. The client opens a new connection for each question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from rigs import serving
from rigs.finding import Finding, apart

__all__ = ["find"]

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE = 30.0


def find(*, strangers: int, questions: int) -> Finding:
    facts = apart("strangers", "--strangers", strangers, "--questions", questions)
    wrong = Counter({f"reply {code}": count for code, count in facts["codes"].items() if code != "200"})
    return Finding(
        tried=f"{strangers:,} strangers, {facts['connections']:,} connections of theirs; "
        f"{facts['codes'].get('200', 0)} of {questions} questions answered, median {facts['p50']:.0f} ms, "
        f"99 % {facts['p99']:.0f} ms",
        wrong=wrong,
        control=f"{facts['again']:,} connections of strangers were ended by the service",
        blind=not facts["connections"],
    )


class Crowd:
    """Clients without a key that connect again and again."""

    def __init__(self, port: int) -> None:
        self.port, self.connections, self.again, self.done = port, 0, 0, asyncio.Event()

    async def stranger(self) -> None:
        while not self.done.is_set():
            try:
                read, write = await asyncio.open_connection("127.0.0.1", self.port)
                self.connections += 1
                while not self.done.is_set():
                    write.write(HEALTH)
                    if not await asyncio.wait_for(read.read(1000), PATIENCE):
                        break
                    await asyncio.sleep(7)
                write.close()
            except (OSError, TimeoutError):
                pass
            self.again += 1
            await asyncio.sleep(0.5)


async def asked(port: int, key: str, number: int) -> str:
    """The status of one question on a connection of its own."""
    body = json.dumps({"row": [number / 10, 1.0, 2.0]}).encode()
    read, write = await asyncio.open_connection("127.0.0.1", port)
    write.write(
        b"POST /v1/label HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: s%d\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (number, key.encode(), len(body), body)
    )
    try:
        return (await asyncio.wait_for(read.read(4000), PATIENCE))[9:12].decode()
    finally:
        write.close()


async def crowded(port: int, key: str, strangers: int, questions: int) -> dict[str, object]:
    crowd, tasks = Crowd(port), []
    for number in range(strangers):
        tasks.append(asyncio.create_task(crowd.stranger()))
        if number % 50 == 0:
            await asyncio.sleep(0.05)
    await asyncio.sleep(3)
    codes: Counter[str] = Counter()
    times = []
    for number in range(questions):
        start = time.perf_counter()
        try:
            codes[await asked(port, key, number) or "none"] += 1
        except (OSError, TimeoutError) as error:
            codes[type(error).__name__] += 1
        times.append(1e3 * (time.perf_counter() - start))
        await asyncio.sleep(0.02)
    crowd.done.set()
    for task in tasks:
        task.cancel()
    times.sort()
    p50, p99 = (times[min(len(times) - 1, int(part * len(times)))] for part in (0.5, 0.99))
    summary = {"connections": crowd.connections, "again": crowd.again, "p50": p50, "p99": p99}
    return summary | {"codes": dict(codes)}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.strangers")
    options.add_argument("--strangers", type=int, default=2_000)
    options.add_argument("--questions", type=int, default=500)
    chosen = options.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, chosen.strangers + 500)), hard))
    with tempfile.TemporaryDirectory() as folder, serving.running(Path(folder)) as service:
        key = service.keys["alice"]
        print(
            json.dumps(asyncio.run(crowded(service.port, key, chosen.strangers, chosen.questions))),
            flush=True,
        )


if __name__ == "__main__":
    main()

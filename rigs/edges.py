"""Fuzzing without a schema: numbers at every edge of JSON and of floats, and raw bytes below HTTP.

Three of four requests are well-formed HTTP with a client's key, whose cells are numbers of many digits, with
exponents at the edges of float64, subnormals, whole numbers around powers of two, and what only looks like a
number; they are pipelined. The rest are such requests with bytes changed, removed, repeated or cut off, each
on a connection of its own. Every well-formed request must get one reply, of a known status below 500. Raw
bytes may get none. In the end every row that was answered is charged, and nothing else is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import signal
import sys
import time
from collections import Counter

from rigs import power, serving
from rigs.finding import Finding, apart

__all__ = ["find"]

CONNECTIONS, IN_FLIGHT, PATIENCE = 8, 16, 120.0
PROGRESS = 20_000  # after about so many requests, a line says how many failed
STATUSES = {200, 400, 402, 404, 405, 409, 413, 415, 431}
HEAD = b"POST /v1/label HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\nidempotency-key: %s\r\n"
TAIL = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
POWERS = (7, 8, 15, 16, 24, 31, 32, 53, 62, 63, 64, 127, 128, 1023, 1024, 1025)
EXPONENTS = (0, 1, 15, 16, 17, 38, 39, 45, 307, 308, 309, 310, 323, 324, 325, 400, 4299, 4300, 10**6, 10**18)
EDGES = (
    "0", "-0", "0.0", "-0.0", "4.9406564584124654e-324", "2.4703282292062327e-324", "2.2250738585072011e-308",
    "2.2250738585072014e-308", "1.7976931348623157e308", "1.7976931348623159e308", "3.4028235e38", "1e-45",
    "0.1", "1e400", "-1e400", "1e-400",
)  # fmt: skip
NEARLY = (
    "NaN", "Infinity", "-Infinity", "+1", ".5", "1.", "01", "-", "1e", "1e+", "0x10", "1_0", "١", "null",
    "true", '"1"', "[1]", "{}", "1 2", "",
)  # fmt: skip
LENGTHS, ZEROS = (16, 20, 308, 309, 400, 4300, 5000), (1, 20, 44, 307, 323, 324, 400)


def number(rng: random.Random) -> str:
    """A number at an edge, or what looks like one."""
    kind, sign = rng.randrange(8), rng.choice(("", "", "-"))
    if kind == 0:
        return rng.choice(NEARLY)
    if kind == 1:
        digits = rng.choice(EDGES).lstrip("-")
    elif kind == 2:
        digits = str(2 ** rng.choice(POWERS) + rng.randint(-2, 2))
    elif kind == 3:
        digits = rng.choice("123456789") + "".join(rng.choices("0123456789", k=rng.choice(LENGTHS)))
    elif kind == 4:
        digits = f"0.{'0' * rng.choice(ZEROS)}{rng.randrange(1, 10**6)}"
    elif kind == 5:
        power_of_ten = rng.choice(("e", "E", "e+", "e-")) + str(rng.choice(EXPONENTS))
        digits = f"{rng.random() * 10:.{rng.randrange(1, 18)}f}{power_of_ten}"
    else:
        digits = f"{rng.uniform(0, 9):.3f}"
    return sign + digits


def body(rng: random.Random) -> bytes:
    """Cells of a row, or of some rows; now and then too few or too many."""
    width = rng.choices((3, 2, 4, 0), weights=(20, 1, 1, 1))[0]
    single = rng.random() < 0.5  # one strange number among usual ones, or only strange ones

    def row() -> str:
        cells = [number(rng) if not single else f"{rng.uniform(-9, 9):.3f}" for _ in range(width)]
        if single and cells:
            cells[rng.randrange(len(cells))] = number(rng)
        return f"[{', '.join(cells)}]"

    if rng.random() < 0.8:
        return f'{{"row": {row()}}}'.encode()
    return f'{{"rows": [{", ".join(row() for _ in range(rng.randrange(4)))}]}}'.encode()


def request(rng: random.Random, key: bytes, name: int) -> bytes:
    content = body(rng)
    return HEAD % (key, b"e%d" % name) + TAIL % (len(content), content)


def spoilt(rng: random.Random, whole: bytes) -> bytes:
    """The bytes of a request, changed."""
    content = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        at = rng.randrange(len(content) or 1)
        how = rng.randrange(6)
        if how == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif how == 1:
            del content[at : at + rng.choice((1, 1, 4, 40))]
        elif how == 2:
            content[at:at] = content[at : at + rng.randrange(1, 60)]
        elif how == 3:
            content[at:at] = rng.choice(
                (b"\r\n", b"\n", b"\0", b": ", b" ", b"\r", b"HTTP/0.9", b"chunked", b"\xff\xfe")
            )
        elif how == 4:
            del content[at:]
        else:
            content[at:at] = rng.randbytes(rng.choice((1, 3, 200)))
    return bytes(content)


class Run:
    """Counts of all replies, over all connections."""

    def __init__(self, service: serving.Service, requests: int, seconds: float) -> None:
        self.port, self.left, self.done = service.port, requests, 0
        self.until = time.monotonic() + seconds
        self.key = service.keys["alice"].encode()
        self.statuses: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.answered: set[int] = set()

    def stop(self, *_: object) -> None:
        """End after the requests that are under way; what was done is counted."""
        self.left = 0

    def take(self, n: int) -> int:
        """Numbers of the next requests."""
        n = min(n, self.left) if time.monotonic() < self.until else 0
        if self.left // PROGRESS != (self.left - n) // PROGRESS:
            print(f"{self.done:,} requests, {self.wrong.total()} failures", file=sys.stderr, flush=True)
        self.left -= n
        return n

    def reply(self, status: int, content: bytes, *, raw: bool) -> None:
        self.statuses[f"{status} raw" if raw else str(status)] += 1
        if status >= 500 or (not raw and status not in STATUSES):
            self.wrong[f"{status}{' after raw bytes' if raw else ''}: {content[:60]!r}"] += 1
        if status == 200 and b'"receipt"' in content:
            parsed = json.loads(content)
            self.answered.update(result["receipt"]["seq"] for result in parsed.get("results", [parsed]))

    async def connected(self, seed: int) -> None:
        """Pipelined requests and raw bytes, by turns."""
        rng = random.Random(seed)
        while (n := self.take(IN_FLIGHT)) > 0:
            names = range(seed * 10**9 + self.left, seed * 10**9 + self.left + n)
            if rng.random() < 0.25:
                for name in names:
                    self.done += 1
                    await self.raw(spoilt(rng, request(rng, self.key, name)))
                continue
            try:
                await asyncio.wait_for(self.pipelined(rng, names), PATIENCE)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.wrong[f"no reply to a well-formed request: {type(error).__name__}"] += 1

    async def pipelined(self, rng: random.Random, names: range) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"".join(request(rng, self.key, name) for name in names))
            for _ in names:
                self.done += 1
                self.reply(*await replied(reader), raw=False)
        finally:
            writer.close()

    async def raw(self, content: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            self.wrong[f"no connection: {type(error).__name__}"] += 1
            return
        try:
            writer.write(content)
            writer.write_eof()
            while True:
                self.reply(*await asyncio.wait_for(replied(reader), PATIENCE), raw=True)
        except TimeoutError:
            self.wrong["a connection of raw bytes is not ended"] += 1
        except (OSError, asyncio.IncompleteReadError):
            self.statuses["ended raw"] += 1
        finally:
            writer.close()


async def replied(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and content of one reply."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return status, await reader.readexactly(int(length[1]) if length else 0)


def run(requests: int, seconds: float) -> dict[str, object]:
    """Ask, then check the ledger."""
    with power.quick_folder() as folder, serving.running(folder) as service:
        session = Run(service, requests, seconds)
        signal.signal(signal.SIGTERM, session.stop)

        async def all_of_them() -> None:
            await asyncio.gather(*(session.connected(seed) for seed in range(1, CONNECTIONS + 1)))

        asyncio.run(all_of_them())
        assert service.process is not None
        if service.process.poll() is not None:
            session.wrong["the service ended"] += 1
        charged = {seq for seq, _ in service.charged().values()}
    if uncharged := session.answered - charged:
        session.wrong["answered, but not charged"] += len(uncharged)
    statuses = dict(sorted(session.statuses.items()))
    return {"requests": session.done, "statuses": statuses, "charged": len(charged),
            "unread": len(charged - session.answered), "wrong": session.wrong}  # fmt: skip


def find(*, requests: int) -> Finding:
    """Run the rig and return its finding."""
    facts = apart("edges", "--requests", requests)
    statuses = ", ".join(f"{count:,} × {status}" for status, count in facts["statuses"].items())
    wrong = Counter(facts["wrong"])
    return Finding(
        tried=f"{facts['requests']:,} requests ({statuses}); {facts['unread']:,} charged rows whose raw "
        "connection ended before the reply",
        wrong=wrong,
        control=f"{facts['charged']:,} rows were answered and charged",
        blind=not facts["charged"],
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.edges")
    options.add_argument("--requests", type=int, default=10**6)
    options.add_argument("--seconds", type=float, default=math.inf, help="end after this time")
    chosen = options.parse_args(arguments)
    print(json.dumps(run(chosen.requests, chosen.seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])

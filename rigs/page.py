"""The owner's page before a long ledger, after a restart, and what it does to clients' waiting times.

A service that has counted its ledger is started, and its page is loaded at once. Then a client
asks without the page, and with the page loaded again and again; the medians are compared.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from bench.service import cpu
from ostraka import GNMax, Ledger
from ostraka.ledger import ChargeRequest
from ostraka.serve.counts import Checkpoint
from ostraka.serve.deployment import secret_of
from rigs import serving
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from rigs.serving import Service

__all__ = ["find"]

REPEATED = 1_000  # one question in so many is one of ten, which are asked again and again
LOT, SLOWEST, MOVED = 2_000, 0.3, 1.5
CHEAP = GNMax(sigma=1e6)


def find(*, entries: int, questions: int) -> Finding:
    """A page that takes longer than 0.3 s, or that lifts a client's median by more than half, is wrong."""
    facts = apart("page", "--entries", entries, "--questions", questions)
    wrong = Counter[str]()
    wrong["page slower than 0.3 s"] += facts["first"] > SLOWEST
    wrong["a client's median grows by more than half"] += facts["busy"] > MOVED * facts["alone"]
    wrong["entries not counted after a restart"] += facts["uncounted"] > LOT
    return Finding(
        tried=f"{entries:,} entries; page {facts['first']:.2f} s at once after a restart, "
        f"{facts['worked']:.2f} s of processor time, {facts['again']:.2f} s later; "
        f"a client's median {1e3 * facts['alone']:.1f} ms, {1e3 * facts['busy']:.1f} ms while the page "
        f"is loaded {facts['loads']} times, {1e3 * facts['counting']:.1f} ms while all is counted anew",
        wrong=+wrong,
        control=f"without its counts the page lacks {facts['lacking']:,} entries",
        blind=not facts["lacking"],
    )


def fill(service: Service, entries: int) -> None:
    """Put questions into the ledger of a service that is not running."""
    place = service.folder / "service"
    secret, path = secret_of("ledger", place, {}), place / "ledger.sqlite"
    with Ledger(path, secret=secret, anchor=place / "ledger.anchor", owner=True) as ledger:
        for first in range(0, entries, LOT):
            charges = [
                ChargeRequest(
                    account="alice",
                    key=f"f{n}",
                    digest=f"{n if n % REPEATED else n % (10 * REPEATED):064x}",
                    cost=CHEAP,
                    reserve=CHEAP,
                    answer=n % 3,
                )
                for n in range(first, min(entries, first + LOT))
            ]
            if refused := [got for got in ledger.charge_each(charges) if isinstance(got, Exception)]:
                raise refused[0]


def count(service: Service) -> None:
    """Write the counts that a service keeps as it goes."""
    place = service.folder / "service"
    secret = secret_of("ledger", place, {})
    checkpoint = Checkpoint(place / "counts.json", secret)
    with service.ledger() as ledger:
        counts = checkpoint.read(ledger)
        counts.catch_up(ledger, seconds=math.inf)
        checkpoint.write(counts, ledger)


def page(service: Service) -> tuple[float, str]:
    """Load the page: seconds, and what it says."""
    start = time.perf_counter()
    # not httpx: a client of it works for as long as the service does, in the process that measures
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)) as connection:
        connection.request("GET", "/", headers={"authorization": f"Bearer {service.keys['olga']}"})
        reply = connection.getresponse()
        text = reply.read().decode()
    if reply.status != HTTPStatus.OK:
        raise AssertionError(f"the page has status {reply.status}")
    return time.perf_counter() - start, text


def uncounted(text: str) -> int:
    """Entries that the page says it has not counted."""
    if "Not everything is counted" not in text:
        return 0
    parts = text.partition("those of the first")[2].split("of\n", 1)
    counted, entries = (int(part.split()[0].replace(",", "")) for part in parts)
    return entries - counted


def median(service: Service, name: str, questions: int) -> float:
    """A client's median waiting time."""
    times = []
    headers = {"authorization": f"Bearer {service.keys['alice']}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=300) as client:
        for n in range(questions):
            start = time.perf_counter()
            row = {"row": [n / 7, 1.0, 2.0]}
            client.post("/v1/label", json=row, headers={"idempotency-key": f"{name}-{n}"}).raise_for_status()
            times.append(time.perf_counter() - start)
            time.sleep(0.005)
    return statistics.median(times)


def run(entries: int, questions: int) -> dict[str, float]:
    """The two looks, and the medians."""
    with tempfile.TemporaryDirectory() as folder, serving.running(Path(folder)) as service:
        service.stop()
        fill(service, entries)
        service.start()
        lacking = uncounted(page(service)[1])
        counting = median(service, "counting", questions)
        service.stop()
        count(service)
        service.start()
        assert service.process is not None
        before = cpu(service.process.pid)
        first, text = page(service)
        worked = cpu(service.process.pid) - before
        alone, loads, done = median(service, "alone", questions), [], threading.Event()

        def look() -> None:
            while not done.is_set():
                loads.append(page(service)[0])
                done.wait(1.0)

        looking = threading.Thread(target=look)
        looking.start()
        busy = median(service, "busy", questions)
        done.set()
        looking.join()
    return {
        "first": first, "uncounted": uncounted(text), "lacking": lacking, "alone": alone, "busy": busy,
        "again": statistics.median(loads), "loads": len(loads), "worked": worked, "counting": counting,
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.page")
    options.add_argument("--entries", type=int, default=10**6)
    options.add_argument("--questions", type=int, default=500)
    chosen = options.parse_args(arguments)
    print(json.dumps(run(chosen.entries, chosen.questions)))


if __name__ == "__main__":
    main(sys.argv[1:])

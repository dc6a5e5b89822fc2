"""How long requests wait while the database of a service does not answer, route by route.

Four troubles, by turns: a *paused* program that holds the lock of the budget, a *half-open* link (a proxy
that takes what comes and forwards nothing), a *frozen* database process (SIGSTOP), and a lost *standby*, for
which every commit waits. Meanwhile each route is asked again and again on connections of its own. Afterwards
each key is asked once more, until it is answered; none may be charged twice.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigs import postgres, serving
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rigs.serving import Service

__all__ = ["find"]

ROUTES = (  # method, path, who asks
    ("POST", "/v1/label", "alice"),
    ("GET", "/v1/budget", "alice"),
    ("GET", "/v1/budget", "olga"),
    ("GET", "/v1/ledger/receipt/3", "alice"),
    ("POST", "/v1/grants", "olga"),
    ("GET", "/ready", ""),
    ("GET", "/metrics", "olga"),
    ("GET", "/", "olga"),
    ("GET", "/health", ""),
)
FLOOR, PATIENCE = 3.0, 60.0  # seconds
SOCKET = ".s.PGSQL.5432"
OTHERS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
TWICE = """SELECT count(*) FROM (SELECT FROM ostraka_entry WHERE account = 'alice' AND answer IS NOT NULL
GROUP BY key HAVING count(*) > 1) AS twice"""


class Link:
    """A way to a database that can become half-open: it takes what comes, and forwards nothing."""

    def __init__(self, server: Path, folder: Path) -> None:
        self.forwards = threading.Event()
        self.forwards.set()
        self._server = str(server / SOCKET)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / SOCKET))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                client, _ = self._listening.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            while True:
                for ready in select.select((client, server), (), ())[0]:
                    self.forwards.wait()
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    (server if ready is client else client).sendall(data)


@contextlib.contextmanager
def paused(direct: str, link: Link) -> Iterator[None]:  # noqa: ARG001
    import psycopg  # the other rigs need none

    with psycopg.connect(direct) as db:
        db.execute("SELECT * FROM ostraka_budget FOR UPDATE")
        yield
        db.rollback()


@contextlib.contextmanager
def half_open(direct: str, link: Link) -> Iterator[None]:  # noqa: ARG001
    link.forwards.clear()
    try:
        yield
    finally:
        link.forwards.set()


@contextlib.contextmanager
def frozen(direct: str, link: Link) -> Iterator[None]:  # noqa: ARG001
    import psycopg

    with psycopg.connect(direct, autocommit=True) as db:
        processes = [pid for (pid,) in db.execute(OTHERS)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@contextlib.contextmanager
def standby(direct: str, link: Link) -> Iterator[None]:  # noqa: ARG001
    import psycopg

    with psycopg.connect(direct, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET synchronous_standby_names = 'lost'")
        db.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            db.execute("ALTER SYSTEM RESET synchronous_standby_names")
            db.execute("SELECT pg_reload_conf()")


TROUBLES: dict[str, Callable[[str, Link], Any]] = {
    "paused": paused,
    "half-open": half_open,
    "frozen": frozen,
    "standby": standby,
}


def asked(service: Service, route: tuple[str, str, str], key: str) -> tuple[int, float]:
    """Status of a request on a connection of its own (0: none came), and its seconds."""
    method, path, who = route
    headers = {"Authorization": f"Bearer {service.keys[who]}"} if who else {}
    body = None
    if method == "POST":
        headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
        number = float(key.rpartition("-")[2])
        body = json.dumps({"row": [number, 1.0, 2.0]} if "label" in path else {"client": "bob", "epsilon": 2})
    start, status = time.monotonic(), 0
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        reply.read()
        status = reply.status
    connection.close()
    return status, time.monotonic() - start


def troubled(service: Service, trouble: str, seconds: float, context: Any) -> dict[str, Any]:
    """The slowest request of each route, in one trouble; what was refused; and what became of the keys."""
    slowest: defaultdict[str, float] = defaultdict(float)
    statuses, keys = Counter[int](), []

    def ask(route: tuple[str, str, str]) -> None:
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            number += 1
            key = f"{trouble}-{number}"
            status, took = asked(service, route, key)
            statuses[status] += 1
            slowest[f"{route[0]} {route[1]}"] = max(slowest[f"{route[0]} {route[1]}"], took)
            if route[1] == "/v1/label":
                keys.append(key)
            time.sleep(0.05)

    with context, ThreadPoolExecutor(len(ROUTES)) as pool:
        list(pool.map(ask, ROUTES))
    unanswered, until = 0, time.monotonic() + PATIENCE
    for key in keys:
        while (status := asked(service, ROUTES[0], key)[0]) != 200 and time.monotonic() < until:
            time.sleep(0.05)
        unanswered += status != 200
    return {
        "slowest": dict(slowest),
        "statuses": {str(status): count for status, count in statuses.items()},
        "unanswered": unanswered,
        "keys": keys,
    }


def run(seconds: float, names: Sequence[str]) -> dict[str, Any]:
    troubles = {}
    with postgres.server() as address, tempfile.TemporaryDirectory() as folder:
        server = Path(address.partition("host=")[2])
        link = Link(server, Path(folder))
        os.environ[serving.DATABASE] = address.replace(str(server), folder)
        with serving.running(Path(folder)) as service:
            for number in range(3):
                asked(service, ROUTES[0], f"before-{number}")
            asked(service, ROUTES[7], "-0")
            for name in names:
                troubles[name] = troubled(service, name, seconds, TROUBLES[name](address, link))
            service.stop()
        import psycopg

        with psycopg.connect(address) as db:
            (twice,) = db.execute(TWICE).fetchone() or (0,)
    return {"troubles": troubles, "twice": twice}


def find(*, seconds: float) -> Finding:
    postgres.program("initdb")
    facts = apart("deadlines", "--seconds", seconds)
    sentences, wrong, refused = [], Counter[str](), 0
    for name, trouble in facts["troubles"].items():
        route, slowest = max(trouble["slowest"].items(), key=lambda item: item[1])
        sentences.append(f"{name} {slowest:.2f} s ({route})")
        slow = sum(took > FLOOR for took in trouble["slowest"].values())
        wrong[f"route slower than {FLOOR:g} s, {name}"] = slow
        wrong["request without a reply"] += trouble["statuses"].get("0", 0)
        wrong["server error"] += trouble["statuses"].get("500", 0)
        wrong["key without an answer afterwards"] += trouble["unanswered"]
        refused += trouble["statuses"].get("503", 0)
    wrong["key charged twice"] = facts["twice"]
    n_keys = sum(len(each["keys"]) for each in facts["troubles"].values())
    return Finding(
        tried=f"{len(ROUTES)} routes for {seconds:g} s in each trouble; the slowest request: "
        f"{', '.join(sentences)}; {n_keys} keys were answered afterwards, each charged once",
        wrong=+wrong,
        control=f"{refused} requests were refused with 503",
        blind=not refused,
    )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.deadlines")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("troubles", nargs="*", metavar="TROUBLE", help=", ".join(TROUBLES))
    chosen = options.parse_args()
    print(json.dumps(run(chosen.seconds, chosen.troubles or list(TROUBLES))), flush=True)


if __name__ == "__main__":
    main()

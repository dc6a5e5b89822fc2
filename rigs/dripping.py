"""Strangers who are silent, half through a handshake, or dripping; and a client before a server that drips.

``tls``: a service with TLS and few descriptors, before more silent strangers than it has room for, while a
client with a key asks on new connections. ``role``: a tally, a keeper, a party or a dealer, before many who
send one byte of a body a second. ``find_client`` measures how long after its deadline the
one client waits.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import resource
import socket
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka.collect.encodings import Histogram
from ostraka.collect.keeper import Keeper
from ostraka.collect.tally import Tally
from ostraka.collect.task import Task
from ostraka.secure.keys import Identity
from ostraka.secure.wire import Late, Line, PartyServer
from ostraka.voters import Agreement, Dealer, Party, SecretQuestions
from rigs import serving
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find", "find_client", "find_tls"]

ROLES = ("tally", "keeper", "party", "dealer")
HALF_HELLO = b"\x16\x03\x01\x02\x00"
HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n"
SOURCES = 50  # addresses that strangers come from
SECONDS, PATIENCE = 2.0, 30.0


class Crowd:
    """A process of strangers, who share no time with the client that is measured.

    Each says its part of ``said``, and a byte at each look if it ``drips``. Who is dropped comes again.
    """

    def __init__(
        self, port: int, size: int, greetings: tuple[bytes, ...], *, every: float, drips: bool
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, child_end = context.Pipe()
        self._process = context.Process(
            target=strangers_at,
            args=(child_end, port, size, greetings),
            kwargs={"every": every, "drips": drips},
        )
        self._process.start()
        self._end.recv()  # all have come
        self.dropped = 0

    def close(self) -> None:
        self._end.send("done")
        self.dropped = self._end.recv()
        self._process.join()


def strangers_at(
    end: Any, port: int, size: int, greetings: tuple[bytes, ...], *, every: float, drips: bool
) -> None:
    """Be strangers until told to stop; then tell how many were dropped. They look every so many seconds."""

    def come(number: int) -> socket.socket | None:
        with contextlib.suppress(OSError):
            source = (f"127.0.1.{1 + number % SOURCES}", 0)
            connection = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=source)
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.send(greetings[number % len(greetings)])
            return connection
        return None

    sockets, dropped = [come(number) for number in range(size)], 0
    end.send("here")
    while not end.poll(every):
        for number, tally in enumerate(sockets):
            try:
                if tally is None:
                    raise ConnectionError
                if drips:
                    tally.send(b"x")
                if not tally.recv(1):
                    raise ConnectionError
            except BlockingIOError:
                continue
            except OSError:
                dropped += 1
                if tally is not None:
                    tally.close()
                sockets[number] = come(number)
    end.send(dropped)


def asked(line: Line, path: str, times: int, **request: Any) -> tuple[int, list[float]]:
    """How many of so many requests on new connections were answered, and their milliseconds."""
    answered, took = 0, []
    for number in range(times):
        start = time.perf_counter()
        with contextlib.suppress(Late):
            options = {name: value(number) for name, value in request.items()}
            line.ask("POST", path, seconds=PATIENCE, most=2**20, fresh=True, **options)
            answered += 1
        took.append(1e3 * (time.perf_counter() - start))
        time.sleep(0.05)
    return answered, sorted(took)


# A service with TLS


def find_tls(*, strangers: int, questions: int) -> Finding:
    facts = apart("dripping", "tls", strangers, questions)
    return Finding(
        tried=f"{strangers:,} strangers, half of them with five bytes of a handshake, 4,096 descriptors; "
        f"{facts['answered']} of {questions} questions answered, median {facts['p50']:.0f} ms, 99 % "
        f"{facts['p99']:.0f} ms",
        wrong=+Counter({"question without an answer": questions - facts["answered"]}),
        control=f"{facts['dropped']:,} connections of strangers were ended by the service",
        blind=not facts["dropped"],
    )


def tls(strangers: int, questions: int) -> dict[str, Any]:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
    )
    os.environ[serving.DESCRIPTORS] = "4096"
    with tempfile.TemporaryDirectory() as folder, serving.running(Path(folder), tls=True) as service:
        crowd = Crowd(service.port, strangers, (b"", HALF_HELLO), every=7, drips=False)
        time.sleep(8)  # they have looked once: a quick service answers all questions before
        headers = {"Authorization": f"Bearer {service.keys['alice']}", "Content-Type": "application/json"}
        os.environ["SSL_CERT_FILE"] = str(Path(folder) / "cert.pem")
        line = Line(service.url, headers=headers)
        answered, took = asked(
            line,
            "/v1/label",
            questions,
            body=lambda number: json.dumps({"row": [number / 10, 1.0, 2.0]}).encode(),
            headers=lambda number: {"Idempotency-Key": f"s{number}"},
        )
        crowd.close()
    p50, p99 = (took[min(len(took) - 1, int(part * len(took)))] for part in (0.5, 0.99))
    return {"answered": answered, "p50": p50, "p99": p99, "dropped": crowd.dropped}


# Tally, keeper, party, dealer


def find(*, strangers: int, questions: int) -> Finding:
    by_role = {role: apart("dripping", "role", strangers, questions, "--role", role) for role in ROLES}
    sentence = ", ".join(f"{role} {facts['answered']} of {questions}" for role, facts in by_role.items())
    lost = sum(questions - facts["answered"] for facts in by_role.values())
    slowest = max(facts["p99"] for facts in by_role.values())
    dropped = sum(facts["dropped"] for facts in by_role.values())
    return Finding(
        tried=f"{strangers:,} strangers of {SOURCES} addresses that send a byte of a body a second; answered "
        f"{sentence}; 99 % within {slowest:.0f} ms",
        wrong=+Counter({"message without an answer": lost}),
        control=f"{dropped:,} connections of strangers were ended by the servers",
        blind=not dropped,
    )


def made(role: str) -> Any:
    """Somebody in this role."""
    me, keepers = Identity.fresh(), [Identity.fresh() for _ in range(2)]
    task = Task(
        Histogram(0, 10, cells=5),
        sigma=5.0,
        tally=me.public_key,
        keepers=tuple(Keeper.key(keeper) for keeper in keepers),
        honest=1,
        least=3,
    )
    if role == "tally":
        return Tally(task, me, keepers=[Keeper(task, keeper) for keeper in keepers])
    if role == "keeper":
        return Keeper(task, keepers[0])
    names = {
        name: Identity(hashlib.sha256(name.encode()).digest())
        for name in ("asker", "dealer", "p0", "p1", "p2")
    }
    questions = SecretQuestions(
        dealer=names["dealer"].public_key, input_range=(0, 1), hidden=0, max_rounds=100, reveals="counts"
    )
    agreement = Agreement(
        members={name: names[name].public_key for name in ("p0", "p1", "p2")},
        aggregator=names["asker"].public_key,
        classes=range(2),
        n_features=2,
        sigma=4.0,
        noise="parties",
        max_rows=16,
        secret=questions if role == "dealer" else None,
    )
    if role == "dealer":
        return Dealer(agreement, names["dealer"])
    from sklearn.linear_model import RidgeClassifier  # only a party needs it

    X, y = [[0.0, 1.0], [1.0, 0.0]] * 4, [0, 1] * 4
    return Party(RidgeClassifier(), X, y, agreement=agreement, identity=names["p0"], random_state=0)


def role_served(role: str, end: Any) -> None:
    """Serve a role in a process of its own until told to stop."""
    connection = made(role)
    with PartyServer(connection) as server:
        end.send((server.url, min(connection.answers)))
        end.recv()


def role_asked(role: str, strangers: int, questions: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=role_served, args=(role, child_end))
    process.start()
    try:
        url, path = parent_end.recv()
        port, head = int(url.rpartition(":")[2]), HEAD % path.encode()
        crowd = Crowd(port, strangers, (head,), every=1, drips=True)
        time.sleep(2)
        answered, took = asked(Line(url), path, questions, body=lambda number: b"message %d" % number)
        crowd.close()
        parent_end.send("done")
    finally:
        process.join(20)
        process.kill()
    p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
    return {"answered": answered, "p99": p99, "dropped": crowd.dropped}


# The client


def find_client(*, times: int) -> Finding:
    over = {kind: max(overshoot(kind) for _ in range(times)) for kind in ("silent", "head", "body")}
    late = {kind: seconds for kind, seconds in over.items() if seconds > 0.5}
    sentence = ", ".join(f"{1e3 * seconds:.0f} ms ({kind})" for kind, seconds in over.items())
    return Finding(
        tried=f"{times} × a server that is silent, drips its head, drips its body, before a client with "
        f"{SECONDS:g} s; beyond them at most {sentence}",
        wrong=Counter({f"client waited too long ({kind})": 1 for kind in late}),
        control=f"a time limit of each read alone still waits after {plain():.0f} s",
    )


def drips(kind: str) -> Iterator[bytes]:
    """What a server sends, one piece each tenth of a second."""
    if kind == "silent":
        return
    if kind == "body":
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    else:
        yield b"HTTP/1.1 200 OK\r\nX: "
    while True:
        yield b"x"


@contextlib.contextmanager
def server_that(kind: str) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = threading.Event()

        def serve() -> None:
            with contextlib.suppress(OSError):
                peer, _ = listening.accept()
                with peer:
                    for piece in drips(kind):
                        peer.sendall(piece)
                        if done.wait(0.1):
                            return
                    done.wait(PATIENCE)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            done.set()
            thread.join()


def overshoot(kind: str) -> float:
    """Seconds that the client waits beyond its deadline."""
    with server_that(kind) as port:
        start = time.monotonic()
        with contextlib.suppress(Late):
            Line(f"http://127.0.0.1:{port}").ask("GET", "/", seconds=SECONDS, most=2**20)
        return time.monotonic() - start - SECONDS


def plain() -> float:
    """For how long the standard library waits under the same limit, at most three times it."""
    import http.client  # the control alone needs it

    with server_that("body") as port:
        start = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("GET", "/")
        reader = connection.getresponse()
        while time.monotonic() - start < 3 * SECONDS and reader.read(1):
            pass
        connection.close()
        return time.monotonic() - start


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m rigs.dripping")
    options.add_argument("what", choices=("tls", "role"))
    options.add_argument("strangers", type=int)
    options.add_argument("questions", type=int)
    options.add_argument("--role", choices=ROLES)
    chosen = options.parse_args()
    if chosen.what == "tls":
        figures = tls(chosen.strangers, chosen.questions)
    else:
        figures = role_asked(chosen.role, chosen.strangers, chosen.questions)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()

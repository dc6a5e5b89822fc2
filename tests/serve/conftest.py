"""A small service on a port of this machine: real HTTP, a real ledger on disk, forty linear teachers."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import socket
import ssl
import threading

import httpx
import numpy as np
import pytest
import uvloop
from sklearn.linear_model import LogisticRegression

from ostraka import Budget, GNMax, TeacherEnsemble
from ostraka.consistent import Consistent
from ostraka.secure.server import Server, listening
from ostraka.serve.app import Application
from ostraka.serve.deployment import Deployment, Settings
from ostraka.serve.keys import Keyring
from ostraka.serve.requests import Buckets
from ostraka.voters import SavedTeachers, partition

PEPPER = b"p" * 32
PATIENCE = 120.0  # seconds, on a busy machine
COLUMNS = ("age", "hours", "weight")
CLASSES = ["green", "red", "blue"]
ONE = [1.0, 2.0, 3.0]
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@functools.cache
def authorities() -> ssl.SSLContext:
    """What HTTPX trusts: it would read it anew for each client, which takes longer than what is tested."""
    return httpx.create_ssl_context()


def client(url: str, headers=()) -> httpx.Client:
    """A client of the service at an address."""
    return httpx.Client(base_url=url, headers=dict(headers), timeout=PATIENCE, verify=authorities())


def rows(n: int, *, seed: int) -> np.ndarray:
    """Public rows."""
    return np.random.default_rng(seed).normal(size=(n, 3)) * 3


def ensemble(estimator=None, *, n_teachers: int = 40) -> TeacherEnsemble:
    """Teachers who mostly agree on the nearest of three corners."""
    X = rows(1_200, seed=0)
    y = np.array(CLASSES)[X.argmax(axis=1)]
    model = LogisticRegression() if estimator is None else estimator
    manifest = partition(len(X), n_teachers=n_teachers, key=b"the same shards in every run")
    blank = TeacherEnsemble(model, n_teachers=n_teachers, n_jobs=1, random_state=0)
    return blank.fit(X, y, classes=CLASSES, manifest=manifest)


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> SavedTeachers:
    """Teachers as the service loads them."""
    folder = tmp_path_factory.mktemp("saved") / "teachers"
    SavedTeachers(
        ensemble=ensemble(),
        mechanism=GNMax(sigma=30.0),
        columns=COLUMNS,
        numeric=(True,) * 3,
        grid=Consistent.grid_of(rows(500, seed=1)),
    ).save(folder)
    return SavedTeachers.load(folder)


@dataclasses.dataclass
class Service:
    """A deployment in a folder, its keys, and how to reach it while it is served."""

    folder: object
    there: Deployment
    keys: dict[str, str]
    url: str = ""
    server: object = None

    def limit(self, **limits) -> None:
        """Set limits of the connections that come from now on."""
        self.server.limits = dataclasses.replace(self.server.limits, **limits)

    def http(self, who: str | None = "alice", **headers: str) -> httpx.Client:
        """A client with somebody's key."""
        authorization = {"authorization": f"Bearer {self.keys[who]}"} if who else {}
        return client(self.url, {**authorization, **headers})

    def label(self, row=ONE, *, key: str, who: str = "alice") -> httpx.Response:
        """Ask about one row."""
        with self.http(who) as http:
            return http.post("/v1/label", json={"row": list(row)}, headers={"idempotency-key": key})

    def entries(self) -> list:
        """The ledger's answers: neither grants nor what binds keys and teachers."""
        return [
            entry
            for entry in self.there.ledger.entries()
            if entry.answer is not None and not entry.mechanism.startswith("Reserved")
        ]


def deploy(
    folder,
    saved,
    *,
    epsilon=50.0,
    budget=None,
    clients=None,
    stop=None,
    witnesses=(),
    anchor=None,
    **settings,
) -> Service:
    """Open a service folder; make keys where there are none."""
    place = folder / "service"
    place.mkdir(mode=0o700, exist_ok=True)
    ring = Keyring(place / "keys.json", PEPPER)
    keys = {}
    for name, cap in (clients or {"alice": 20.0, "bob": 20.0}).items():
        keys[name] = ring.rotate(name) if name in ring.kept else ring.add(name, role="client", epsilon=cap)
    keys["olga"] = ring.rotate("olga") if "olga" in ring.kept else ring.add("olga", role="owner")
    deployment = Deployment(
        saved=saved,
        folder=place,
        db=f"sqlite:///{place / 'ledger.sqlite'}",
        budget=budget or Budget(epsilon=epsilon, delta=1e-6, adaptive=saved.screen is not None),
        settings=Settings(**{"rate": 1e6, "burst": 10**6, "answer_seconds": PATIENCE, **settings}),
        environment={},
        pepper=PEPPER,
        stop=stop,
        witnesses=witnesses,
        anchor=anchor,
    )
    counts = deployment.counts  # a search for garbage may take longer than a view has for new entries
    counts.catch_up = functools.partial(counts.catch_up, seconds=PATIENCE)
    return Service(folder, deployment, keys)


@contextlib.contextmanager
def serving(service: Service, *, strangers=(20.0, 200), tls=None, tokens=None, reading=PATIENCE, **limits):
    """Serve it from another thread of this process. ``strangers``: the rate and the burst of an address.

    ``reading``: seconds that a request may take which needs no teacher.

    ``tls``: paths of the certificate, its key, and the authority of owners' certificates. ``tokens``: the
    provider of owners' tokens.
    """
    app = Application(service.there, owner_certificates="authority" in (tls or {}), tokens=tokens)
    app.limits = dataclasses.replace(app.limits, **limits)
    app.strangers = Buckets(rate=strangers[0], burst=strangers[1])
    app.reading = reading
    with running(app, **(tls or {})) as (service.url, service.server, service.loop):
        yield service


@contextlib.contextmanager
def running(app, **tls):
    """Serve an application from another thread of this process: its address, server and event loop."""
    sock, ready, servers = listening("127.0.0.1", 0), threading.Event(), []

    def started(server):
        servers.extend([server, asyncio.get_running_loop()])
        ready.set()

    coroutine = Server(app, sock, **tls).serve(started)
    thread = threading.Thread(target=uvloop.run, args=(coroutine,), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE), "the service did not start in time"
    server, loop = servers
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{sock.getsockname()[1]}", server, loop
    finally:
        server.stop()
        thread.join(PATIENCE)


def connected(service: Service) -> socket.socket:
    """A connection to the service, on which nothing was said yet."""
    return socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=PATIENCE)


def question(key: str, name: str, row) -> bytes:
    """A request for the label of one row, as bytes."""
    body = json.dumps({"row": row})
    return (
        f"POST /v1/label HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: {name}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def asking(service: Service, name: str) -> socket.socket:
    """A connection on which alice asked a question, and read nothing."""
    connection = connected(service)
    connection.sendall(question(service.keys["alice"], name, ONE))
    return connection


def all_of(connection: socket.socket) -> bytes:
    """Everything until the service closes the connection."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 20):
            got += chunk
    return got


@pytest.fixture
def service(tmp_path, saved):
    """A service of this test's own."""
    with serving(deploy(tmp_path, saved)) as running_service:
        yield running_service


@pytest.fixture(scope="module")
def shared(tmp_path_factory, saved):
    """A service that the tests of a module share."""
    with serving(deploy(tmp_path_factory.mktemp("shared"), saved)) as running_service:
        yield running_service

"""Mechanisms with a given price, clients and their questions, scripts that charge from other processes."""

import contextlib
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ostraka.core.curve import Curve
from ostraka.core.private import Adjacency
from ostraka.ledger import Budget, ChargeRequest, Ledger
from rigs import postgres
from rigs.disk import UnavailableError
from tests.threads import at_once

ASK = {"unit": "row", "simulation": False}
PRELUDE = """
import sys
from dataclasses import dataclass
from ostraka.curve import Curve
from ostraka.ledger import Budget, BudgetExceeded, Ledger, LedgerError

@dataclass(frozen=True)
class Gaussian:
    sigma: float

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=self.sigma, moves="ballot")

path = sys.argv[1]
"""


@dataclass(frozen=True)
class Gaussian:
    """The same as in PRELUDE, so that its repr is too."""

    sigma: float
    promise = Adjacency.one_ballot()

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=self.sigma, moves="ballot")

    def uses(self, private):
        return len(private)

    def release(self, private, *, rng):
        return private.open()[:, 0] + rng.normal(scale=self.sigma, size=len(private))


@dataclass(frozen=True)
class Priced:
    """Costs exactly this curve."""

    price: Curve

    def curve(self):
        return self.price


@pytest.fixture(scope="session")
def gaussian():
    return Gaussian


@pytest.fixture
def priced():
    return Priced


@pytest.fixture
def budget():
    return Budget(epsilon=2.0, delta=1e-5, adaptive=False)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path, budget):
    """A ledger on disk with two clients."""
    with Ledger(path, budget=budget) as ledger:
        ledger.grant("ann", budget_epsilon=1.0)
        ledger.grant("bob", budget_epsilon=0.5)
        yield ledger


@pytest.fixture
def ask(gaussian):
    """A question; its digest is its key, unless another is given."""

    def ask(key, *, account="ann", digest=None, sigma=10.0, reserve=None, answer=3):
        cost = gaussian(sigma)
        return ChargeRequest(
            account=account,
            key=key,
            digest=(digest or key).encode().hex(),
            cost=cost,
            reserve=cost if reserve is None else gaussian(reserve),
            answer=answer,
        )

    return ask


@pytest.fixture
def start():
    """Start a script in another process; whatever is left of it is killed at the end."""
    processes = []

    def start(script, *arguments):
        command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def affordable():
    """How many uses of a curve an epsilon pays for, counted one by one with the curve's own arithmetic."""

    def affordable(curve, epsilon=2.0):
        n = 0
        while (curve * (n + 1)).epsilon(1e-5) <= epsilon:
            n += 1
        return n

    return affordable


@pytest.fixture
def answers():
    return np.array([3, 1, 2])


@pytest.fixture
def own_postgresql():
    """The address of a PostgreSQL of this test's own, and its folder: another may take its place."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[service]'")
    try:
        with postgres.server() as address:
            yield address, Path(address.partition("host=")[2])
    except UnavailableError as missing:
        pytest.skip(str(missing))


def changed(where, *statements):
    """Change a ledger on PostgreSQL as whoever owns the server may: no trigger keeps from it."""
    import psycopg

    with psycopg.connect(where, autocommit=True) as db:
        db.execute("SET session_replication_role = replica")
        for statement in statements:
            db.execute(statement)


@contextlib.contextmanager
def beneath(path):
    """A connection to a ledger's file as its owner may have: no trigger keeps from a change, none is lost."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield db
        for _, sql in triggers:
            db.execute(sql)


def tamper(path, *statements):
    """Change a ledger's file behind the triggers' back."""
    with beneath(path) as db:
        for statement in statements:
            db.execute(statement)


class AtCommit:
    """A connection that does something of its own in place of COMMIT."""

    def __init__(self, db, commit):
        self._db, self._commit = db, commit

    def __getattr__(self, name):
        return getattr(self._db, name)

    def execute(self, query, *values, **options):
        if query == "COMMIT":
            return self._commit(self._db)
        return self._db.execute(query, *values, **options)


def race(charge, open_one=contextlib.nullcontext, *, n_callers, n_each):
    """How many charges were granted to callers that start together, each with what it opens."""
    granted, together = [], threading.Barrier(n_callers)

    def work(me):
        with open_one() as mine:
            together.wait()
            granted.extend(me for n in range(n_each) if charge(mine, f"{me}/{n}"))

    with at_once(*(partial(work, me) for me in range(n_callers))):
        pass
    return len(granted)

"""Mechanisms with a given price, clients and their questions, scripts that charge from other processes."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ostraka.core.curve import Curve
from ostraka.core.private import Adjacency
from ostraka.ledger import Budget, ChargeRequest, Ledger

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


@pytest.fixture
def affordable(budget):
    """How many uses of a curve a budget pays for, counted one by one with the curve's own arithmetic."""

    def affordable(curve):
        n = 0
        while (curve * (n + 1)).epsilon(budget.delta) <= budget.epsilon:
            n += 1
        return n

    return affordable


@pytest.fixture
def answers():
    return np.array([3, 1, 2])


def _binaries():
    """Where initdb and pg_ctl are; PostgreSQL of Debian keeps them out of PATH."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).parent if found else None


@pytest.fixture(scope="session")
def server():
    """A temporary PostgreSQL server; its URL, with %s for the name of a schema."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[service]'")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here: initdb was found neither in PATH nor in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="ostraka-pg-"))
    who = {}
    if os.geteuid() == 0:  # PostgreSQL does not run as root
        os.chown(folder, 65534, 65534)
        who = {"user": 65534, "group": 65534, "extra_groups": []}

    def run(*command):
        with (folder.parent / f"{folder.name}.log").open("ab") as log:
            subprocess.run(
                [binaries / command[0], "-D", folder / "data", *command[1:]],
                check=True, cwd=folder, stdout=log, stderr=log, timeout=120, **who,
            )  # fmt: skip

    run("initdb", "-A", "trust", "-U", "ostraka", "-E", "UTF8", "--locale=C")
    run("pg_ctl", "-w", "-l", folder / "log", "-o", f"-c listen_addresses='' -k {folder}", "start")
    yield f"postgresql://ostraka@/postgres?host={folder}&options=-csearch_path%3D"
    run("pg_ctl", "-w", "-m", "immediate", "stop")
    shutil.rmtree(folder)
    (folder.parent / f"{folder.name}.log").unlink()


@pytest.fixture
def new_schema(server):
    """Call it for the URL of a ledger that does not exist yet, in a schema of its own."""
    import psycopg

    def new_schema():
        with psycopg.connect(f"{server}public", autocommit=True) as db:
            (n,) = db.execute("SELECT count(*) FROM pg_namespace").fetchone()
            db.execute(f"CREATE SCHEMA s{n}")
        return f"{server}s{n}"

    return new_schema

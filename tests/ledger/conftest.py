"""Mechanisms with a given price, and scripts that charge from other processes."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from ostraka.curve import Curve
from ostraka.ledger import Budget
from ostraka.private import Adjacency

PRELUDE = """
import sys
from dataclasses import dataclass
from ostraka.curve import Curve
from ostraka.ledger import Budget, BudgetExceeded, Ledger, LedgerError

@dataclass(frozen=True)
class Gaussian:
    sigma: float

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=self.sigma, unit="ballot")

path = sys.argv[1]
"""


@dataclass(frozen=True)
class Gaussian:
    """The same as in PRELUDE, so that its repr is too."""

    sigma: float
    promise = Adjacency.one_ballot()

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=self.sigma, unit="ballot")

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
    return Budget(epsilon=2.0, delta=1e-5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


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

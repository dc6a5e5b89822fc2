"""Exact composition: epsilon of many answers, and processor seconds of a table and of its file."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING

from ostraka import Budget, Confident, GNMax, Threshold
from ostraka.core.laws import tables

if TYPE_CHECKING:
    from ostraka.core.curve import Curve

ANSWERS = (100, 250, 500, 1_000)
DELTA = 1e-5
RUNS = 5
EPSILON = 2.0  # of the budget of which answers choose the uses
QUICK = {"ANSWERS": (30,), "RUNS": 1, "EPSILON": 0.4}
_SERVED = Budget(epsilon=5.0, delta=1e-6, adaptive=False)
_FRESH = iter(range(1, 10_000))


def fresh() -> GNMax:
    """Return a mechanism with a sigma of its own, so that no table of it is kept from before."""
    return GNMax(sigma=40.0 + 1e-6 * next(_FRESH))


def seconds(n: int) -> tuple[float, float]:
    """Processor seconds of a table for so many answers, computed anew and from the file; fastest of some."""
    new: list[float] = []
    stored_seconds: list[float] = []
    for _ in range(RUNS):
        curve = n * fresh().curve(bound="exact")
        for times in (new, stored_seconds):
            tables.of.cache_clear()
            start = time.process_time()
            curve.epsilon(DELTA)
            times.append(time.process_time() - start)
    return min(new), min(stored_seconds)


def affords(budget: Budget, cost: Curve) -> int:
    """How many uses fit into a budget."""
    low, high = 0, 10**8
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if budget.allows(middle * cost) else (low, middle)
    return low


def adaptive() -> None:
    """Print what is left of a budget where answers choose the mechanisms."""
    first, second = GNMax(sigma=40.0), GNMax(sigma=40.0 + 1e-9)
    mechanisms = {
        "GNMax(sigma=40)": first.curve(),
        "two like it, in turn": first.curve() + second.curve(),
        "behind a screen, sigma 150": Confident(screen=Threshold(at=200, sigma=150.0), argmax=first).curve(),
    }
    for name, mechanism in mechanisms.items():
        plain, free = (
            affords(Budget(epsilon=EPSILON, delta=DELTA, adaptive=adaptive), mechanism)
            for adaptive in (False, True)
        )
        print(
            f"epsilon {EPSILON:g}, {name}: {plain} uses if they are fixed in advance, "
            f"{free} if answers choose"
        )


def main() -> None:
    """Print the figures of docs/composition.md."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        (ANSWERS[0] * fresh().curve(bound="exact")).epsilon(DELTA)  # compiled code is loaded once
        screen = Threshold(at=200, sigma=150.0).curve(bound="exact")
        for n in ANSWERS:
            exact, tight = (
                (n * GNMax(sigma=40.0).curve(bound=bound)).epsilon(DELTA) for bound in ("exact", "tight")
            )
            new, stored_seconds = seconds(n)
            print(
                f"{n:,} answers, sigma 40: epsilon {exact:.4f}, tight Rényi {tight:.4f}; "
                f"table {new:.2f} s, from its file {1e3 * stored_seconds:.1f} ms; "
                f"with as many screens {(n * (fresh().curve(bound='exact') + screen)).epsilon(DELTA):.4f}",
                flush=True,
            )
        for bound in ("exact", "tight"):
            n_answers = affords(_SERVED, GNMax(sigma=4_000.0).curve(bound=bound))
            print(f"answers of a service, sigma 4,000, epsilon 5, delta 1e-6: {n_answers:,} ({bound})")
        adaptive()

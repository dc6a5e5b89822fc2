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
    kept: list[float] = []
    for _ in range(RUNS):
        curve = n * fresh().curve(bound="exact")
        for times in (new, kept):
            tables.of.cache_clear()
            begun = time.process_time()
            curve.epsilon(DELTA)
            times.append(time.process_time() - begun)
    return min(new), min(kept)


def affords(budget: Budget, each: Curve) -> int:
    """How many uses fit into a budget."""
    low, high = 0, 10**8
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if budget.allows(middle * each) else (low, middle)
    return low


def adaptive() -> None:
    """Print what is left of a budget where answers choose the mechanisms."""
    one, other = GNMax(sigma=40.0), GNMax(sigma=40.0 + 1e-9)
    asked = {
        "GNMax(sigma=40)": one.curve(),
        "two like it, in turn": one.curve() + other.curve(),
        "behind a screen, sigma 150": Confident(screen=Threshold(at=200, sigma=150.0), argmax=one).curve(),
    }
    for name, each in asked.items():
        plain, free = (
            affords(Budget(epsilon=EPSILON, delta=DELTA, adaptive=adaptive), each)
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
            new, kept = seconds(n)
            print(
                f"{n:,} answers, sigma 40: epsilon {exact:.4f}, tight Rényi {tight:.4f}; "
                f"table {new:.2f} s, from its file {1e3 * kept:.1f} ms; "
                f"with as many screens {(n * (fresh().curve(bound='exact') + screen)).epsilon(DELTA):.4f}",
                flush=True,
            )
        for bound in ("exact", "tight"):
            most = affords(_SERVED, GNMax(sigma=4_000.0).curve(bound=bound))
            print(f"answers of a service, sigma 4,000, epsilon 5, delta 1e-6: {most:,} ({bound})")
        adaptive()

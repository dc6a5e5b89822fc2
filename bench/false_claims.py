"""False claims: how often a lower bound at confidence 0.95 is above the truth, on skewed laws."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, get_args

import numpy as np
from scipy.stats import beta

from ostraka.audits import delta_lower_bound, epsilon_lower_bound, hold_out, renyi_lower_bound
from ostraka.audits.cuts import Method

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS = (2.0, 8.0, 32.0)
DELTA, EPSILON, CONFIDENCE = 1e-5, 0.2, 0.95
SIZES, RUNS = (200, 5000), 2000
_GEOMETRIC, _POWER = 0.3 ** np.arange(6), np.arange(1, 11) ** -2.5


def _law(weights: object) -> np.ndarray:
    weights = np.asarray(weights, dtype=np.float64)
    return np.asarray(weights / weights.sum())


# One outcome has nearly all of the probability, and what differs is rare.
PAIRS: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "rare": (_law([0.97, 0.02, 0.008, 0.002]), _law([0.985, 0.01, 0.004, 0.001])),
    "spike": (_law([0.999, 0.0005, 0.0005]), _law([0.998, 0.0015, 0.0005])),
    "one tail": (_law([0.9, 0.0999, 0.0001]), _law([0.9, 0.0995, 0.0005])),
    "geometric": (_law(_GEOMETRIC), _law(_GEOMETRIC * [1, 1, 1.5, 0.7, 2, 0.5])),
    "power": (_law(_POWER), _law(_POWER * [2, 1, 1, 1, 1, 0.2, 0.5, 1, 1, 3])),
}

Counts = tuple[np.ndarray, np.ndarray]


def divergences(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The larger direction at each order."""
    both = [[np.log(np.sum(a**o * b ** (1 - o))) / (o - 1) for o in ORDERS] for a, b in ((p, q), (q, p))]
    return np.max(both, axis=0)


def delta_at(epsilon: float, p: np.ndarray, q: np.ndarray) -> float:
    """Hockey-stick divergence, the larger direction."""
    return max(float(np.maximum(0, a - np.exp(epsilon) * b).sum()) for a, b in ((p, q), (q, p)))


def claims(p: np.ndarray, q: np.ndarray) -> dict[str, Callable[[Counts, np.random.Generator], bool]]:
    """For each method whether a bound from these counts is above the truth."""
    exact = divergences(p, q) * (1 + 1e-9)

    def renyi(counts: Counts, _: np.random.Generator, *, method: Method) -> bool:
        found = renyi_lower_bound(*counts, orders=ORDERS, confidence=CONFIDENCE, method=method)
        return bool((np.array(found.rdp) > exact).any())

    def renyi_pilot(counts: Counts, rng: np.random.Generator) -> bool:
        pilot, rest = hold_out(*counts, rng=rng)
        found = renyi_lower_bound(*rest, orders=ORDERS, confidence=CONFIDENCE, pilot=pilot)
        return bool((np.array(found.rdp) > exact).any())

    def epsilon(counts: Counts, _: np.random.Generator, *, method: str) -> bool:
        found = epsilon_lower_bound(*counts, delta=DELTA, confidence=CONFIDENCE, method=method)
        return delta_at(found.epsilon - 1e-9, p, q) < DELTA  # a smaller epsilon than the bound holds

    def delta(counts: Counts, _: np.random.Generator) -> bool:
        found = delta_lower_bound(*counts, epsilon=EPSILON, confidence=CONFIDENCE)
        return found.delta > delta_at(EPSILON, p, q) + 1e-12

    return {
        **{f"Rényi, {method}": partial(renyi, method=method) for method in get_args(Method)},
        "Rényi, 2-cut with a pilot": renyi_pilot,
        **{f"epsilon, {method}": partial(epsilon, method=method) for method in ("2-cut", "2-cut-anytime")},
        "delta, 2-cut": delta,
    }


def false_claims(runs: int) -> dict[tuple[str, str, int], int]:
    """How many of ``runs`` bounds are above the truth, for each method, pair of laws and number of trials."""
    found: dict[tuple[str, str, int], int] = {}
    for place, (name, (p, q)) in enumerate(PAIRS.items()):
        for size in SIZES:
            rng = np.random.default_rng([place, size])
            tests = claims(p, q)
            for _ in range(runs):
                counts = rng.multinomial(size, p), rng.multinomial(size, q)
                for method, wrong in tests.items():
                    found[method, name, size] = found.get((method, name, size), 0) + wrong(counts, rng)
    return found


def main(runs: int = RUNS) -> None:
    start = time.perf_counter()
    found = false_claims(runs)
    print(
        f"{runs:,} runs each at confidence {CONFIDENCE:g}; {len(PAIRS)} skewed pairs, {SIZES} trials a world"
    )
    for method in dict.fromkeys(key[0] for key in found):
        worst = max((count, *key[1:]) for key, count in found.items() if key[0] == method)
        high = beta.ppf(0.975, worst[0] + 1, runs - worst[0]) if worst[0] < runs else 1.0
        print(f"{method:28s} at most {worst[0] / runs:7.2%} (95 % interval up to {high:.2%}): {worst[1:]}")
    print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main(20 if "--quick" in sys.argv else RUNS)

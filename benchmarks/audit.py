"""Audits: how much of the exact divergence is certified, how fast, null calibration, mutation score."""

from __future__ import annotations

import time

import numpy as np
from scipy.stats import beta

from ostraka import GNMax
from ostraka.audits import hold_out, mutation_score, renyi_lower_bound, sample_outcomes

ORDERS = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0)
METHODS = (
    "2-cut",
    "2-cut-anytime",
    "k-cut",
    "k-cut-goodman",
    "k-cut-sison-glaz",
    "2-cut-bootstrap",
    "k-cut-bootstrap",
)
MECHANISM = GNMax(sigma=2.0)
VOTES = ([14, 12, 10, 8, 6], [13, 13, 10, 8, 6])
RUNS = 1000


def exact() -> tuple[np.ndarray, np.ndarray]:
    p, q = np.exp(MECHANISM.log_outcomes(VOTES))
    both = [[np.log(np.sum(a**o * b ** (1 - o))) / (o - 1) for o in ORDERS] for a, b in ((p, q), (q, p))]
    return np.array(both[0]), np.array(both[1])


def figures_2_and_6(trials: int) -> None:
    """The synthetic pair of Chadha et al. 2024, by every method, as a part of the exact divergence."""
    start, busy = time.perf_counter(), time.process_time()
    seen = [sample_outcomes(MECHANISM, votes, trials=trials) for votes in VOTES]
    sampling, busy = time.perf_counter() - start, time.process_time() - busy
    truth = np.maximum(*exact())
    print(f"\n{trials:,} answers a side, sampled in {sampling:.1f} s ({busy:.1f} s of processor)")
    print("certified part of the exact divergence")
    print(f"{'order':24s}" + "".join(f"{order:9g}" for order in ORDERS) + "   seconds")
    print(f"{'exact, nats':24s}" + "".join(f"{value:9.4f}" for value in truth))
    rng = np.random.default_rng(0)
    for method in METHODS:
        start = time.perf_counter()
        found = renyi_lower_bound(*seen, orders=ORDERS, method=method, rng=rng)
        took = time.perf_counter() - start
        print(f"{method:24s}" + "".join(f"{part:9.4f}" for part in found.rdp / truth) + f"{took:10.3f}")
    pilot, rest = hold_out(*seen, rng=rng)
    found = renyi_lower_bound(*rest, orders=ORDERS, pilot=pilot)
    print(f"{'2-cut, pilot of a tenth':24s}" + "".join(f"{part:9.4f}" for part in found.rdp / truth))


def null_calibration() -> None:
    """How often each method claims leakage in a thousand runs where both worlds are the same."""
    law = np.exp(MECHANISM.log_outcomes(VOTES[:1]))[0]
    print(f"\nclaims of leakage in {RUNS:,} runs of equal worlds (95 % interval of the rate)")
    for number, method in enumerate(METHODS):
        rng = np.random.default_rng(number)
        claims = 0
        for _ in range(RUNS):
            p, q = rng.multinomial(20_000, law / law.sum(), size=2)
            claims += max(renyi_lower_bound(p, q, orders=ORDERS, method=method, rng=rng).rdp) > 0
        low = beta.ppf(0.025, claims, RUNS - claims + 1) if claims else 0.0
        print(f"{method:24s}{claims:6d}   [{low:.4f}, {beta.ppf(0.975, claims + 1, RUNS - claims):.4f}]")


def defects() -> None:
    start = time.perf_counter()
    caught = mutation_score()
    for each in caught:
        print(f"{'caught' if each.by else 'MISSED':8s}{each.defect:40s}{'; '.join(each.by)}")
    took = time.perf_counter() - start
    print(f"mutation score: {sum(bool(each.by) for each in caught)} of {len(caught)} ({took:.0f} s)")


def main() -> None:
    sample_outcomes(MECHANISM, VOTES[0], trials=10)  # compile
    for trials in (10**6, 10**8):
        figures_2_and_6(trials)
    null_calibration()
    print()
    defects()


if __name__ == "__main__":
    main()

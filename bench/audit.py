"""Audits: certified part of the exact divergence, speed, equal worlds, random settings, mutation score."""

from __future__ import annotations

import time
from typing import get_args

import numpy as np
from scipy.stats import beta

from ostraka import GNMax, LNMax, Threshold
from ostraka.audit.claims import AUDIT_ORDERS, sample_outcomes
from ostraka.audit.cuts import EstimateMethod, Method, renyi_estimate
from ostraka.audit.library import mutation_score
from ostraka.audits import epsilon_lower_bound, hold_out, renyi_lower_bound

ORDERS = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0)
METHODS = get_args(Method)
ESTIMATES = get_args(EstimateMethod)
MECHANISM = GNMax(sigma=2.0)
VOTES = ([14, 12, 10, 8, 6], [13, 13, 10, 8, 6])
RUNS = 1000
TRIALS = (10**6, 10**8)
ONLY_FIGURES = False
QUICK = {"TRIALS": (1000,), "ONLY_FIGURES": True}


def exact() -> tuple[np.ndarray, np.ndarray]:
    p, q = np.exp(MECHANISM.log_outcomes(VOTES))
    divergences = [
        [np.log(np.sum(a**o * b ** (1 - o))) / (o - 1) for o in ORDERS] for a, b in ((p, q), (q, p))
    ]
    return np.array(divergences[0]), np.array(divergences[1])


def figures_2_and_6(trials: int) -> None:
    """The synthetic pair of Chadha et al. 2024, by every method, as a part of the exact divergence."""
    start, busy = time.perf_counter(), time.process_time()
    counts = [sample_outcomes(MECHANISM, votes, trials=trials) for votes in VOTES]
    sampling, busy = time.perf_counter() - start, time.process_time() - busy
    truth = np.maximum(*exact())
    print(f"\n{trials:,} answers a side, sampled in {sampling:.1f} s ({busy:.1f} s of processor)")
    print("certified part of the exact divergence")
    print(f"{'order':24s}" + "".join(f"{order:9g}" for order in ORDERS) + "   seconds")
    print(f"{'exact, nats':24s}" + "".join(f"{value:9.4f}" for value in truth))
    rng = np.random.default_rng(0)
    for method in METHODS:
        start = time.perf_counter()
        bound = renyi_lower_bound(*counts, orders=ORDERS, method=method)
        took = time.perf_counter() - start
        print(f"{method:24s}" + "".join(f"{part:9.4f}" for part in bound.rdp / truth) + f"{took:10.3f}")
    print("estimates, without a guarantee")
    for method in ESTIMATES:
        start = time.perf_counter()
        estimate = renyi_estimate(*counts, orders=ORDERS, method=method, rng=rng)
        took = time.perf_counter() - start
        print(f"{method:24s}" + "".join(f"{part:9.4f}" for part in estimate / truth) + f"{took:10.3f}")
    pilot, proof = hold_out(*counts, rng=rng)
    bound = renyi_lower_bound(*proof, orders=ORDERS, pilot=pilot)
    print(f"{'2-cut, pilot of a tenth':24s}" + "".join(f"{part:9.4f}" for part in bound.rdp / truth))


def null_calibration() -> None:
    """How often each method claims leakage in a thousand runs where both worlds are the same."""
    law = np.exp(MECHANISM.log_outcomes(VOTES[:1]))[0]
    print(f"\nclaims of leakage in {RUNS:,} runs of equal worlds (95 % interval of the rate)")
    for number, method in enumerate(METHODS):
        rng = np.random.default_rng(number)
        claims = 0
        for _ in range(RUNS):
            p, q = rng.multinomial(20_000, law / law.sum(), size=2)
            claims += max(renyi_lower_bound(p, q, orders=ORDERS, method=method).rdp) > 0
        low = beta.ppf(0.025, claims, RUNS - claims + 1) if claims else 0.0
        print(f"{method:24s}{claims:6d}   [{low:.4f}, {beta.ppf(0.975, claims + 1, RUNS - claims):.4f}]")


def setting(rng: np.random.Generator) -> tuple[GNMax | LNMax | Threshold, np.ndarray]:
    """A mechanism, and votes with a neighbour, at random."""
    noise = float(np.exp(rng.uniform(np.log(0.5), np.log(50))))
    n_classes, n_teachers = int(rng.integers(2, 9)), int(np.exp(rng.uniform(np.log(3), np.log(300))))
    votes = rng.multinomial(n_teachers, rng.dirichlet(np.full(n_classes, 0.7)))
    mechanisms = (GNMax(sigma=noise), LNMax(scale=noise), Threshold(at=0.6 * n_teachers, sigma=noise))
    identity = np.eye(n_classes, dtype=np.int64)
    leaves, enters = rng.choice(np.flatnonzero(votes)), rng.integers(n_classes)
    return mechanisms[rng.integers(3)], np.array([votes, votes - identity[leaves] + identity[enters]])


def random_settings(runs: int = RUNS) -> dict[str, tuple[int, int]]:
    """Count random settings in which a lower bound exceeds the exact leakage, or the price."""
    rng = np.random.default_rng(0)
    wrong = {name: [0, 0] for name in (*METHODS, "epsilon")}
    for _ in range(runs):
        mechanism, votes = setting(rng)
        p, q = np.exp(mechanism.log_outcomes(votes))
        trials = int(np.exp(rng.uniform(np.log(100), np.log(1e7))))
        real = trials <= 3000  # the noise itself; above, a draw from the law, which other tests hold it to
        if real:
            counts = [sample_outcomes(mechanism, histogram, trials=trials) for histogram in votes]
        else:
            counts = [rng.multinomial(trials, law / law.sum()) for law in (p, q)]
        orders, curve = np.array(AUDIT_ORDERS), mechanism.curve()
        with np.errstate(all="ignore"):
            exact = [
                np.maximum(*(np.log(np.sum(a**o * b ** (1 - o))) / (o - 1) for a, b in ((p, q), (q, p))))
                for o in orders
            ]
        exact = np.where(np.isfinite(exact), exact, np.inf) * (1 + 1e-9) + 1e-12
        price = np.array([curve.rdp[curve.orders.index(order)] for order in AUDIT_ORDERS])
        for name in METHODS:
            bounds = np.array(renyi_lower_bound(*counts, orders=AUDIT_ORDERS, method=name).rdp)
            wrong[name][0] += bool((bounds > exact).any())
            wrong[name][1] += bool((bounds > price).any())
        epsilon = epsilon_lower_bound(*counts, delta=1e-5).epsilon
        wrong["epsilon"][0] += epsilon > delta_inverse(p, q, 1e-5) + 1e-9
        wrong["epsilon"][1] += epsilon > curve.epsilon(1e-5)
    return {name: (above[0], above[1]) for name, above in wrong.items()}


def delta_inverse(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    """The smallest epsilon with p(S) <= e^epsilon q(S) + delta for all S, both ways, by bisection."""
    low, high = 0.0, 800.0
    for _ in range(60):
        middle = (low + high) / 2
        worst = max(np.maximum(0, a - np.exp(middle) * b).sum() for a, b in ((p, q), (q, p)))
        low, high = (middle, high) if worst > delta else (low, middle)
    return high


def show_random_settings() -> None:
    start = time.perf_counter()
    print(f"\n{RUNS:,} random settings at confidence 0.95: lower bound above the exact leak, above the price")
    for name, (exact, price) in random_settings().items():
        high = beta.ppf(0.975, exact + 1, RUNS - exact)
        print(f"{name:24s}{exact:6d}{price:6d}   95 % interval of the rate up to {high:.4f}")
    print(f"({time.perf_counter() - start:.0f} s)")


def defects() -> None:
    start = time.perf_counter()
    score = mutation_score()
    for name, by in score.items():
        print(f"{'detected' if by else 'MISSED':10s}{name:40s}{'; '.join(by)}")
    took = time.perf_counter() - start
    print(f"mutation score: {sum(map(bool, score.values()))} of {len(score)} ({took:.0f} s)")


def main() -> None:
    sample_outcomes(MECHANISM, VOTES[0], trials=10)  # compile
    for trials in TRIALS:
        figures_2_and_6(trials)
    if ONLY_FIGURES:
        return
    null_calibration()
    show_random_settings()
    print()
    defects()


if __name__ == "__main__":
    main()

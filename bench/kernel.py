"""Speed of the outcome map and of exact costs, against scipy.integrate.quad on the same formula."""

from __future__ import annotations

import math
import resource
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.integrate import quad
from scipy.special import log_ndtr

from ostraka import GNMax
from ostraka.accounting import exact_curve
from ostraka.core.curve import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable

SIGMA = 40.0
MANY, SEVERAL, BALLOTS = 20_000, 10_000, (250, 1_000, 5_000)
QUICK = {"MANY": 200, "SEVERAL": 100, "BALLOTS": (250,)}
FLOORS = """floors on two cores: log_outcomes >= 100,000 a second and >= 1,000 times quad;
exact_curve <= 0.3 ms a histogram of ten classes (goal 0.2: 10,000 in 2 s), <= 20 ms of a hundred; < 500 MB"""


def histograms(n: int, *, n_classes: int, n_teachers: int = 250) -> np.ndarray:
    """Return votes from clear to close, with a new consensus for every query."""
    rng = np.random.default_rng(1)
    return rng.multinomial(n_teachers, rng.dirichlet(np.full(n_classes, 0.5), size=n))


def seconds(work: Callable[[], object], *, repeats: int = 5) -> float:
    """Return the shortest of several times, because the machine may be shared."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def busy(work: Callable[[], object]) -> float:
    """Processor time over all threads: what counts when other programs share the cores."""
    start = time.process_time()
    work()
    return time.process_time() - start


def by_quad(row: np.ndarray) -> np.ndarray:
    """The probability that each class wins, by adaptive quadrature, one class at a time."""
    y = (row - row.max()) / SIGMA

    def chance(k: int) -> float:
        others = np.delete(y, k)

        def integrand(x: float) -> float:
            return math.exp(float(log_ndtr(x - others).sum()) - (x - y[k]) ** 2 / 2) / math.sqrt(2 * math.pi)

        return float(quad(integrand, y[k] - 9, 9, epsabs=1e-13, epsrel=1e-10)[0])

    return np.array([chance(k) for k in range(row.size)])


def megabytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    print(FLOORS)
    mechanism = GNMax(sigma=SIGMA)
    ten = histograms(MANY, n_classes=10)
    start = time.perf_counter()
    mechanism.log_outcomes(ten[:1])
    exact_curve(mechanism, ten[:1])
    print(f"first use, compiled or read from the cache: {time.perf_counter() - start:.2f} s")

    rate = len(ten) / seconds(lambda: mechanism.log_outcomes(ten))
    sample = ten[:: len(ten) // 20]
    quad_rate = len(sample) / seconds(lambda: [by_quad(row) for row in sample], repeats=2)
    agree = max(np.abs(np.exp(mechanism.log_outcomes([row])[0]) - by_quad(row)).max() for row in sample)
    print(f"log_outcomes: {rate:,.0f} histograms of ten classes a second")
    print(f"scipy.integrate.quad: {quad_rate:,.1f} a second, the same to {agree:.0e}")
    print(f"ratio: {rate / quad_rate:,.0f}")
    single = busy(lambda: mechanism.log_outcomes(ten)) / len(ten)
    by_hand = busy(lambda: [by_quad(row) for row in sample]) / len(sample)
    print(f"by processor time: {single * 1e6:.1f} us against {by_hand * 1e3:.1f} ms; on two idle cores")
    print(f"  {2 / single:,.0f} a second, ratio {2 * by_hand / single:,.0f} (quad uses one)")

    several = ten[:SEVERAL]
    single = seconds(lambda: exact_curve(mechanism, several), repeats=3) / len(several)
    print(
        f"exact_curve, {len(ORDERS)} orders, both directions, ten classes: {single * 1e3:.3f} ms a histogram,"
    )
    print(f"  {single * len(several):.2f} s for {len(several):,};")
    single = busy(lambda: exact_curve(mechanism, several)) / len(several)
    print(
        f"  by processor time {single * 1e3:.3f} ms, so {single * len(several) / 2:.2f} s on two idle cores"
    )
    for n_teachers in BALLOTS:
        hundred = histograms(20, n_classes=100, n_teachers=n_teachers)
        single = seconds(lambda rows=hundred: exact_curve(mechanism, rows), repeats=2) / len(hundred)
        levels = np.mean([np.unique(row).size for row in hundred])
        print(
            f"  a hundred classes, {n_teachers:,} votes, {levels:.0f} distinct counts: {single * 1e3:.1f} ms"
        )
    print(f"memory: {megabytes():.0f} MB at most")


if __name__ == "__main__":
    main()

"""Publishing epsilon: published values on real votes, and the time of smooth sensitivity.

The loop is Algorithms 3 to 5 of Papernot et al. 2018 one histogram, one distance and one bound at a time,
as the published reference code is built. Real votes: the data folder, or OSTRAKA_DATA.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy.special
import scipy.stats

from bench._data import folder
from ostraka import Adjacency, GNMax, Private
from ostraka.accounting import exact_curve
from ostraka.core.accounting.publish import plan_certificate, release_epsilon
from ostraka.core.accounting.smooth import local_sensitivities, smooth_sensitivity
from ostraka.core.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIGMA, TEACHERS, CLASSES = 40.0, 250, 10
SEEDS = 20
MANY, LOOPED, PUBLISHED = 500, 40, True
QUICK = {"SEEDS": 1, "MANY": 20, "LOOPED": 2, "PUBLISHED": False}
ARGMAX = GNMax(sigma=SIGMA)


def bound(log_q: float, order: float) -> float:
    """Theorem 6 for one query."""
    mu2 = SIGMA * math.sqrt(-log_q)
    eps1, eps2 = (mu2 + 1) / SIGMA**2, mu2 / SIGMA**2
    if mu2 <= 1 or order > mu2 + 1 or log_q + eps2 >= 0:
        return order / SIGMA**2
    if log_q > (mu2 - 1) * eps2 - mu2 * math.log((mu2 + 1) / mu2 * mu2 / (mu2 - 1)):
        return order / SIGMA**2
    log_rest = np.log1p(-math.exp(log_q))
    log_a = (order - 1) * (log_rest - np.log1p(-math.exp((log_q + eps2) * (1 - 1 / mu2))))
    log_b = (order - 1) * (eps1 - log_q / mu2)
    return min(order / SIGMA**2, np.logaddexp(log_rest + log_a, log_q + log_b) / (order - 1))


def log_q_of(votes: list[int]) -> float:
    """Prop. 7 for one histogram."""
    behind = np.array([votes[0] - count for count in votes[1:]])
    return float(scipy.special.logsumexp(scipy.stats.norm.logsf(behind, scale=math.sqrt(2) * SIGMA)))


def moved(log_q: float, ballots: int) -> float:
    """Return the largest bound on q after this number of ballots has moved."""
    q = math.exp(log_q) * 2 / (CLASSES - 1)
    return math.log((CLASSES - 1) / 2 * scipy.special.erfc(scipy.special.erfcinv(q) - ballots / SIGMA))


def sensitivity(log_q: float, order: float, log_q0: float) -> float:
    """Algorithm 3 for one query."""
    log_q1 = moved(log_q0, -1)
    log_q = log_q1 if log_q1 <= log_q <= log_q0 else log_q
    bound_here = bound(log_q, order)
    return max(bound(moved(log_q, 1), order) - bound_here, bound_here - bound(moved(log_q, -1), order))


def loop(histogram: np.ndarray, order: float, log_q0: float) -> np.ndarray:
    """Algorithms 4 and 5 for one histogram."""
    log_q1 = moved(log_q0, -1)
    out = np.full(TEACHERS + 1, sensitivity(log_q1, order, log_q0))
    votes = sorted((int(v) for v in histogram), reverse=True)
    log_q = log_q_of(votes)
    if log_q1 <= log_q <= log_q0:
        return out
    out[0], distance, rising = sensitivity(log_q, order, log_q0), 0, log_q > log_q0
    while (rising and log_q > log_q0 and votes[1] > 0) or (not rising and log_q < log_q1):
        distance += 1
        votes[0] += 1 if rising else -1
        votes[1] -= 1 if rising else -1
        votes[1:] = sorted(votes[1:], reverse=True)
        log_q = log_q_of(votes)
        out[distance] = sensitivity(log_q, order, log_q0)
    return out


def meeting_point(order: float) -> float:
    """Log q0, by bisection."""
    low, high = -400.0, -1e-3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if bound(middle, order) < order / SIGMA**2 else (low, middle)
    return low


def seconds(task: Callable[[], object], times: int = 3) -> float:
    """Return the shortest of several times."""
    best = math.inf
    for _ in range(times):
        start = time.perf_counter()
        task()
        best = min(best, time.perf_counter() - start)
    return best


def speed() -> None:
    rng = np.random.default_rng(0)
    shares = rng.uniform(0.4, 0.98, size=MANY)
    remainder = np.full(CLASSES - 1, 1 / (CLASSES - 1))
    histograms = np.array([rng.multinomial(TEACHERS, [s, *(1 - s) * remainder]) for s in shares])
    print("\nsmooth sensitivity of the 2018 bound, 500 histograms of ten classes, sigma 40, beta 0.4 / order")
    print(
        f"{'order':>6} {'loop, ms each':>14} {'here, ms each':>14} {'faster':>7} {'largest difference':>19}"
    )
    for order in (4.0, 8.0, 20.0):
        start = meeting_point(order)
        local = partial(local_sensitivities, ARGMAX, n_teachers=TEACHERS, order=order)
        slow = seconds(partial(loops, histograms[:LOOPED], order, start), 1) / LOOPED
        quick = seconds(partial(smoothed, local, histograms, order)) / len(histograms)
        want = np.sum(np.maximum.accumulate(loops(histograms[:LOOPED], order, start), axis=1), axis=0)
        apart = np.abs(local(histograms[:LOOPED]) / want - 1).max()
        print(f"{order:6g} {slow * 1e3:14.3f} {quick * 1e3:14.4f} {slow / quick:7.0f} {apart:19.1e}")


def loops(histograms: np.ndarray, order: float, start: float) -> np.ndarray:
    return np.array([loop(row, order, start) for row in histograms])


def smoothed(local: Callable[[np.ndarray], np.ndarray], histograms: np.ndarray, order: float) -> float:
    return smooth_sensitivity(local(histograms), beta=0.4 / order)


def votes_folder() -> Path:
    return folder() / "pate_votes"


def published() -> None:
    if not votes_folder().is_dir():
        print(f"\nno votes at {votes_folder()}: set OSTRAKA_DATA")
        return
    first = np.load(votes_folder() / "adult_rf_250_teachers.npz")["votes"].sum(axis=0, dtype=int)
    thirty = np.load(votes_folder() / "mnist_svhn_30_samples.npz")
    adult = np.stack([TEACHERS - first, first], axis=1)
    tables = {f"Adult, first {n}": (adult[:n], 1e-5) for n in (100, 500, 1000)}
    tables["MNIST, 15 x 100"] = (np.repeat(thirty["mnist_counts"], 100, axis=0), 1e-5)
    tables["SVHN, 15 x 100"] = (np.repeat(thirty["svhn_counts"], 100, axis=0), 1e-6)
    print(f"\nGNMax(sigma=40); published: mean of {SEEDS} publications ± one standard deviation")
    heads = f"{'answers':18} {'delta':>6} {'classic':>8} {'tight':>6}"
    print(heads + f"{'published':>15}{'GNSS, 2018':>15}{'owner':>7}")
    for name, (counts, delta) in tables.items():
        total, tight = len(counts) * ARGMAX.curve("classic"), len(counts) * ARGMAX.curve()
        classic = Curve(total.orders, total.rdp).epsilon(delta)  # Rényi only, as everybody does it
        mine, theirs = (told(counts, delta=delta, method=method) for method in ("certificate", "smooth"))
        owner = exact_curve(ARGMAX, counts).epsilon(delta)
        print(
            f"{name:18} {delta:6g} {classic:8.3f} {tight.epsilon(delta):6.3f}"
            f"{mine:>15}{theirs:>15}{owner:7.3f}"
        )
    print("\nfirst 500 Adult answers by the public guess, the share of nearly unanimous queries")
    for agreement in (0.3, 0.4, 0.5, 0.6, 2 / 3, 0.75, 0.85):
        print(
            f"  {agreement:.2f}: {told(adult[:500], delta=1e-5, method='certificate', agreement=agreement)}"
        )
    plan = plan_certificate(ARGMAX, n_teachers=TEACHERS, n_classes=2, n_queries=1000, delta=1e-5)
    print(f"\n1,000 answers: distance {seconds(partial(plan.distance, adult[:1000])) * 1e3:.1f} ms")


def told(counts: np.ndarray, **options: object) -> str:
    """Return mean and standard deviation of the published epsilon."""
    votes = Private(counts, Adjacency.one_ballot())
    values = [
        release_epsilon(ARGMAX, votes, rng=np.random.default_rng(seed), **options).epsilon
        for seed in range(SEEDS)
    ]
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}" if np.isfinite(values).all() else "none"


def main() -> None:
    speed()
    if PUBLISHED:
        published()

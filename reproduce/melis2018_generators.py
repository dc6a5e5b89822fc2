"""Chapter 5 of Melis 2018 (private generators): the price it claims, its clusters, and counting queries.

``python -m reproduce melis2018_generators [PART ...]``, parts ``price`` (figures 5.2 and 5.4), ``clusters``
(figure 5.3, MNIST) and ``queries`` (figures 5.5, 5.6 and 5.8, on MSNBC and groceries, since the data of the
thesis, CDR and TRANSIT, were never public). Noise is seeded: a simulation.
"""

from __future__ import annotations

import gzip
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

from bench import _data
from bench._data import folder
from bench._mnist import mnist
from ostraka import Curve
from ostraka.accounting import sampled_gaussian_curve
from ostraka.synth import PrivateKMeans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DELTA = 1e-5
RATE, STEPS, SIGMA_C, SIGMA_K, ITERATIONS = 0.0017, 11_764, 4.0, 40.0, 20
SEEDS, QUERIES = 3, 1_000
QUICK = {"SEEDS": 1, "QUERIES": 50}
QUICK_ARGUMENTS = ["price", "clusters", "queries"]


def claimed(sigma: float) -> float:
    """Equation 5.5: histogram and gradient apart, joined by Hölder's inequality, one cluster for all."""
    best = math.inf
    one, two = (sampled_gaussian_curve(sigma=s, sampling_rate=RATE) for s in (SIGMA_C, sigma))
    orders = np.array(one.orders)

    def moment(curve: Curve, power: float) -> float:
        return power * float(np.interp(1 + power, orders[:-1], np.array(curve.rdp)[:-1]))

    for order in range(1, 33):
        for j in np.arange(0.05, 1.0, 0.1):
            step = j * moment(one, order / j) + (1 - j) * moment(two, order / (1 - j))
            clusters = ITERATIONS * (order**2 + order) / (2 * SIGMA_K**2)
            best = min(best, (STEPS * step + clusters + math.log(1 / DELTA)) / order)
    return best


def honest(sigma: float, n_clusters: int) -> tuple[float, float]:
    """Histogram and gradient as one Gaussian: networks in turn, and all networks in every step."""
    together = (SIGMA_C**-2 + sigma**-2) ** -0.5
    clusters = ITERATIONS * Curve.gaussian(sensitivity=1.0, sigma=SIGMA_K, moves="row")
    prices = []
    for rate, steps in ((n_clusters * RATE, STEPS // n_clusters), (RATE, STEPS)):
        training = sampled_gaussian_curve(sigma=together, sampling_rate=rate, steps=steps)
        prices.append((training + clusters).epsilon(DELTA))
    return prices[0], prices[1]


def price() -> None:
    """What is claimed, and what holds."""
    print("  sigma_G  claimed (5.5)  ten networks in turn  ten networks together")
    for sigma in (0.8, 1.0, 1.2, 1.5, 2.0):
        turn, together = honest(sigma, 10)
        print(f"  {sigma:7.1f}  {claimed(sigma):13.3f}  {turn:20.3f}  {together:21.3f}", flush=True)


def accuracy(found: np.ndarray, y: np.ndarray) -> float:
    """Share of rows in the cluster that is matched to their class."""
    table = np.zeros((10, 10))
    np.add.at(table, (found, y), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(y))


def clusters() -> None:
    """Clustering accuracy of plain and of kernel k-means, which start at ten public rows."""
    private, public, _ = mnist()
    X, test = ((each.X > 0.5).astype(np.float32) for each in (private, public))
    kinds = [("plain", 0), ("rbf", 50), ("rbf", 200)]
    for epsilon in (0.1, 0.5, 2.0):
        said = []
        for kernel, d in kinds:
            model = PrivateKMeans(
                10,
                kernel=kernel,
                n_components=d or 2,
                n_iterations=ITERATIONS,
                epsilon=epsilon,
                delta=DELTA,
                start=test[:10],
            )
            seeds = (np.random.default_rng(seed) for seed in range(SEEDS))
            scores = [accuracy(model.fit(X, rng=rng).predict(test[10:]), public.y[10:]) for rng in seeds]
            said.append(f"{kernel}{f' d = {d}' if d else ''} {np.mean(scores):.3f}")
        print(f"  epsilon {epsilon:g}: accuracy " + ", ".join(said), flush=True)


def msnbc() -> np.ndarray:
    """Which of 17 categories each visitor saw."""
    with gzip.open(folder() / "msnbc" / "msnbc990928.seq.gz", "rt") as file:
        lines = [line.split() for line in file]
    visits = [line for line in lines if line and all(word.isdigit() for word in line)]
    return _sets([[int(word) - 1 for word in line] for line in visits[: _data.MOST_ROWS]], 17)


def groceries() -> np.ndarray:
    """Which of the goods each basket holds."""
    with gzip.open(folder() / "groceries" / "groceries.txt.gz", "rt") as file:
        baskets = [line.strip().split(",") for line in file if line.strip()]
    names = {name: k for k, name in enumerate(sorted({name for basket in baskets for name in basket}))}
    return _sets([[names[name] for name in basket] for basket in baskets[: _data.MOST_ROWS]], len(names))


def _sets(rows: list[list[int]], n_items: int) -> np.ndarray:
    found = np.zeros((len(rows), n_items), dtype=np.float32)
    for k, row in enumerate(rows):
        found[k, row] = 1.0
    return found


def errors(real: np.ndarray, copy: np.ndarray, longest: int) -> list[float]:
    """Mean relative error of conjunctions, in five lengths, with a sanity bound of 0.1 % of the rows."""
    rng = np.random.default_rng(0)
    frequent = real.mean(axis=0)
    found = []
    for group in range(1, 6):
        apart = []
        for _ in range(QUERIES // 5):
            n_items = int(rng.integers(1, max(2, group * longest // 5 + 1)))
            items = rng.choice(real.shape[1], size=n_items, replace=False, p=frequent / frequent.sum())
            true, said = (float(each[:, items].all(axis=1).mean()) for each in (real, copy))
            apart.append(abs(true - said) / max(true, 0.001))
        found.append(float(np.mean(apart)))
    return found


def queries() -> None:
    """Counting queries on sets of items, answered from generated rows."""
    for name, read, longest in (("MSNBC", msnbc, 5), ("groceries", groceries, 5)):
        real, rng = read(), np.random.default_rng(0)
        alone = (rng.random(real.shape) < real.mean(axis=0)).astype(np.float32)
        print(
            f"  {name}, {len(real):,} rows: items independent, without noise: " + _said(real, alone, longest)
        )
        for epsilon in (0.5, 2.0):
            model = PrivateKMeans(50, n_iterations=4, binary=True, epsilon=epsilon, delta=DELTA).fit(
                real, rng=rng
            )
            copy = model.sample(len(real), random_state=0)[0].astype(np.float32)
            print(f"    centres, epsilon {epsilon:g}: " + _said(real, copy, longest), flush=True)


def _said(real: np.ndarray, copy: np.ndarray, longest: int) -> str:
    return " ".join(f"{error:.3f}" for error in errors(real, copy, longest))


PARTS: dict[str, Callable[[], None]] = {"price": price, "clusters": clusters, "queries": queries}


def main(arguments: Sequence[str]) -> None:
    """The named parts, or all."""
    for name in arguments or PARTS:
        print(f"{name}: {PARTS[name].__doc__}")
        PARTS[name]()


if __name__ == "__main__":
    main([])

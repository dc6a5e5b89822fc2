"""Chapter 5 of Melis 2018 (private generators): the price it claims, its clusters, samples, counting queries.

``python -m reproduce melis2018_generators [PART ...]``, parts ``price`` (the epsilon of figure 5.4),
``epochs`` (figure 5.2), ``clusters`` (figure 5.3, MNIST), ``samples`` (figures 5.4 and 5.7, MNIST) and
``queries`` (figures 5.5, 5.6 and 5.8, on MSNBC and groceries, since the data of the thesis, CDR and TRANSIT,
were never public). Noise is seeded: a simulation.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.neighbors import NearestNeighbors

from bench._mnist import mnist
from ostraka import Curve
from ostraka.accounting import sampled_gaussian_curve
from ostraka.synth import DPGM, PrivateKMeans
from ostraka.synth.sgd import RBM, VAE
from reproduce import _melis2018_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DELTA = 1e-5
RATE, STEPS, SIGMA_C, SIGMA_K, ITERATIONS = 0.0017, 11_764, 4.0, 40.0, 20
SEEDS, QUERIES, EPSILONS = 3, 1_000, (0.5, 1.0, 2.0)
TRAINING, SAMPLES, CLUSTERS = 300, 500, 10  # steps; images; networks
EFFORT = _melis2018_queries.Effort()
QUICK = {
    "SEEDS": 1,
    "QUERIES": 50,
    "EPSILONS": (2.0,),
    "TRAINING": 1,
    "SAMPLES": 50,
    "CLUSTERS": 2,
    "EFFORT": _melis2018_queries.Effort(frequent=8, rounds=5, steps=3),
}
QUICK_ARGUMENTS = ["price", "epochs", "clusters", "samples", "queries"]


def claimed(sigma: float, steps: int = STEPS) -> float:
    """Equation 5.5: histogram and gradient apart, joined by Hölder's inequality, one cluster for all."""
    best = math.inf
    printed_curve, two = (sampled_gaussian_curve(sigma=s, sampling_rate=RATE) for s in (SIGMA_C, sigma))
    orders = np.array(printed_curve.orders)

    def moment(curve: Curve, power: float) -> float:
        return power * float(np.interp(1 + power, orders[:-1], np.array(curve.rdp)[:-1]))

    for order in range(1, 33):
        for j in np.arange(0.05, 1.0, 0.1):
            step = j * moment(printed_curve, order / j) + (1 - j) * moment(two, order / (1 - j))
            clusters = ITERATIONS * (order**2 + order) / (2 * SIGMA_K**2)
            best = min(best, (steps * step + clusters + math.log(1 / DELTA)) / order)
    return best


def honest(sigma: float, n_clusters: int, n_steps: int = STEPS) -> tuple[float, float]:
    """Histogram and gradient as one Gaussian: networks in turn, and all networks in every step."""
    together = (SIGMA_C**-2 + sigma**-2) ** -0.5
    clusters = ITERATIONS * Curve.gaussian(sensitivity=1.0, sigma=SIGMA_K, moves="row")
    prices = []
    for rate, steps in ((n_clusters * RATE, n_steps // n_clusters), (RATE, n_steps)):
        training = sampled_gaussian_curve(sigma=together, sampling_rate=rate, steps=steps)
        prices.append((training + clusters).epsilon(DELTA))
    return prices[0], prices[1]


def price() -> None:
    """What is claimed, and what holds."""
    print("  sigma_G  claimed (5.5)  ten networks in turn  ten networks together")
    for sigma in (0.8, 1.0, 1.2, 1.5, 2.0):
        turn, together = honest(sigma, 10)
        print(f"  {sigma:7.1f}  {claimed(sigma):13.3f}  {turn:20.3f}  {together:21.3f}", flush=True)


def epochs() -> None:
    """Figure 5.2: epsilon against epochs of training, sigma_G = 1."""
    print("  epochs  claimed (5.5)  ten networks in turn  ten networks together")
    for number in (5, 10, 20, 40):
        steps = number * math.ceil(1 / RATE)
        turn, together = honest(1.0, 10, steps)
        print(f"  {number:6d}  {claimed(1.0, steps):13.3f}  {turn:20.3f}  {together:21.3f}", flush=True)


def accuracy(guesses: np.ndarray, y: np.ndarray) -> float:
    """Share of rows in the cluster that is matched to their class."""
    table = np.zeros((10, 10))
    np.add.at(table, (guesses, y), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(y))


def clusters() -> None:
    """Clustering accuracy of plain and of kernel k-means, which start at ten public rows."""
    private, public, _ = mnist()
    X, test = ((digits.X > 0.5).astype(np.float32) for digits in (private, public))
    kinds = [("plain", 0), ("rbf", 50), ("rbf", 200)]
    for epsilon in (0.1, 0.5, 2.0):
        lines = []
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
            lines.append(f"{kernel}{f' d = {d}' if d else ''} {np.mean(scores):.3f}")
        print(f"  epsilon {epsilon:g}: accuracy " + ", ".join(lines), flush=True)


def queries() -> None:
    """Figures 5.5, 5.6, 5.8: mean relative errors of counting queries in five groups of lengths."""
    _melis2018_queries.compare(QUERIES, EPSILONS, EFFORT)


def samples() -> None:
    """Figures 5.4 and 5.7: how far samples of the mixtures are from real images, at the honest price 1.74."""
    private, public, _ = mnist()
    X, real = ((part.X > 0.5).astype(np.float32) for part in (private, public))
    half = len(real) // 2
    near = NearestNeighbors(n_neighbors=1, n_jobs=1).fit(real[:half])
    kinds: dict[str, tuple[int, Any]] = {
        "VAE without clustering": (1, VAE(n_features=784, hidden=(200,), latent=2)),
        "VAE with clustering": (CLUSTERS, VAE(n_features=784, hidden=(200,), latent=2)),
        "RBM with clustering": (CLUSTERS, RBM(n_features=784, hidden=200)),
        "VAE of two layers with clustering": (CLUSTERS, VAE(n_features=784, hidden=(200, 200), latent=2)),
    }
    sheets = {"real images": real[half : half + SAMPLES]}
    for name, (k, network) in kinds.items():
        model = DPGM(k, generator=network, binary=True, steps=TRAINING, epsilon=1.74, delta=DELTA)
        sheets[name] = model.fit(X, rng=np.random.default_rng(0)).sample(SAMPLES, random_state=0)[0]
        centres = model.cluster_centers_[np.random.default_rng(0).integers(0, k, SAMPLES)]
        sheets[f"  its centres alone ({k})"] = np.random.default_rng(1).random(centres.shape) < centres
    for name, rows in sheets.items():
        distances, place = near.kneighbors(rows.astype(np.float32))
        digits = np.bincount(public.y[:half][place[:, 0]], minlength=10) / len(rows)
        print(
            f"  {name}: {np.mean(distances**2):.0f} of 784 pixels differ from the nearest real image; "
            f"digits nearest to them: {np.sum(digits > 0.02)} of 10",
            flush=True,
        )


PARTS: dict[str, Callable[[], None]] = {
    "price": price,
    "epochs": epochs,
    "clusters": clusters,
    "samples": samples,
    "queries": queries,
}


def main(arguments: Sequence[str]) -> None:
    """The named parts, or all."""
    parser = argparse.ArgumentParser(prog="reproduce melis2018_generators")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    for name in parser.parse_args(arguments).parts or PARTS:
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main([])

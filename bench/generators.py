"""Audits of private generators: what canaries show of the price, in worlds with them and in worlds without.

Each canary is in the private rows or not by a fair coin, and one run serves all of them. White box: the noisy
sums. Black box: the distance to the nearest generated row. In the null worlds the coins decide nothing. The
noise is seeded: a simulation. At the end, how well copies of MNIST by noisy clusters teach a classifier.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

from bench._mnist import mnist
from ostraka import Adjacency, Curve, Private
from ostraka.accounting import calibrate
from ostraka.attacks.inclusion import nearest_scores, sum_scores
from ostraka.audits import one_run_lower_bound
from ostraka.mechanisms import GaussianSums
from ostraka.synth import PrivateKMeans

DELTA = 1e-5
CANARIES, RUNS, NULLS, SUMS, COPIES = 5_000, 200, 1_000, 20, 3
FIRST = 100  # seed of the white-box audits: other numbers of guesses were tried on seeds 0 to 19
SAMPLES = 10_000  # rows of a copy of MNIST
QUICK = {"CANARIES": 200, "RUNS": 2, "NULLS": 20, "SUMS": 1, "COPIES": 1, "SAMPLES": 200}
ONE_ROW = Adjacency(moves="row", relation="add-or-remove")


def sums_of(epsilon: float, included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noisy sums of orthogonal canaries, one a column, at this price."""
    n = len(included)
    sigma = calibrate(
        lambda noise: GaussianSums(n_columns=n, sigma=noise), n_answers=1, epsilon=epsilon, delta=DELTA
    )
    rows = np.eye(n, dtype=np.float32)[included]
    return GaussianSums(n_columns=n, sigma=sigma).release(Private(rows, ONE_ROW), rng=rng)


def white_box(epsilon: float) -> None:
    """The f-DP audit of the claimed Gaussian, with as many guesses as are usual (one canary in eight)."""
    claim = Curve.gaussian(
        sensitivity=1.0,
        sigma=calibrate(
            lambda noise: GaussianSums(n_columns=CANARIES, sigma=noise),
            n_answers=1,
            epsilon=epsilon,
            delta=DELTA,
        ),
    )
    found = []
    for seed in range(FIRST, FIRST + SUMS):
        rng = np.random.default_rng(seed)
        included = rng.random(CANARIES) < 0.5
        scores = sum_scores(sums_of(epsilon, included, rng), np.eye(CANARIES), included)
        bound = one_run_lower_bound(scores, delta=DELTA, curve=claim, rng=rng)
        found.append(bound.epsilon / epsilon)
    print(
        f"  white box, sums at epsilon {epsilon:g}, {CANARIES:,} canaries, {SUMS} runs: lower bound "
        f"{np.mean(found):.3f} of the price (least {min(found):.3f}, most {max(found):.3f})",
        flush=True,
    )


def clusters(epsilon: float, rng: np.random.Generator, *, null: bool) -> float:
    """Lower bound from one run of k-means with far canaries; in a null world the coins decide nothing."""
    n, d = 60, 60
    rows = np.abs(rng.normal(0.2, 0.05, (300, d)))
    canaries = np.eye(d)[:n] * 5
    included = rng.random(n) < 0.5
    if included.all() or not included.any():
        included[0] = ~included[0]
    inside = rng.random(n) < 0.5 if null else included
    model = PrivateKMeans(n_clusters=20, n_iterations=2, epsilon=epsilon, delta=DELTA).fit(
        np.concatenate([rows, canaries[inside]]), rng=rng
    )
    scores = nearest_scores(model.cluster_centers_, canaries, included)
    return one_run_lower_bound(scores, delta=DELTA, guesses=n // 4, rng=rng).epsilon


def copies(epsilon: float) -> None:
    """Classifiers learn from labelled samples of noisy clusters of MNIST, and are judged on real images."""
    private, _, new = mnist()
    found = []
    for seed in range(COPIES):
        model = PrivateKMeans(n_clusters=10, epsilon=epsilon, delta=DELTA, random_state=seed).fit(
            private.X, private.y, classes=list(range(10)), rng=np.random.default_rng(seed)
        )
        rows, labels = model.sample(SAMPLES, random_state=seed)
        learners = (
            KNeighborsClassifier(n_neighbors=1),
            MLPClassifier((100,), max_iter=20, random_state=seed),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs, and no more
            fitted = [learner.fit(rows, labels) for learner in learners]
        found.append([learner.score(new.X, new.y) for learner in fitted])
    near, network = np.mean(found, axis=0)
    print(
        f"  MNIST, 10 clusters a class at epsilon {epsilon:g}, {SAMPLES:,} samples, {COPIES} seeds: "
        f"right on {len(new.y):,} real images {near:.3f} by the nearest sample, {network:.3f} by a network",
        flush=True,
    )


def main() -> None:
    """White box, then black box, then null worlds, then copies of MNIST."""
    for epsilon in (1.0, 2.0):
        white_box(epsilon)
    start = time.perf_counter()
    lower = [clusters(1.0, np.random.default_rng(seed), null=False) for seed in range(RUNS)]
    print(
        f"  black box, k-means at epsilon 1, {RUNS} runs: lower bound above it in "
        f"{sum(bound > 1.0 for bound in lower)}, largest {max(lower):.3f}"
    )
    lower = [clusters(1.0, np.random.default_rng(10_000 + seed), null=True) for seed in range(NULLS)]
    print(
        f"  null worlds, k-means, {NULLS:,} runs: leakage claimed in "
        f"{np.mean([bound > 0 for bound in lower]):.1%} ({time.perf_counter() - start:.0f} s for both)",
        flush=True,
    )
    copies(1.0)


if __name__ == "__main__":
    main()

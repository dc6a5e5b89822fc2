"""White-box audits of noisy sums, by 5,000 canaries in one release; and copies of MNIST by noisy clusters.

Each canary is in the private rows or not by a fair coin, and has a column of its own. Bounds hold however
canaries depend on one another, or, where said, for canaries whose noise is independent, as it is here. The
noise is seeded: a simulation. At the end, how well copies of MNIST teach a classifier. Audits of each
generator: ``python -m bench generator_audits``.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

from bench._mnist import mnist
from ostraka import Adjacency, Curve, Private
from ostraka.accounting import calibrate
from ostraka.attacks.inclusion import sum_scores
from ostraka.audits import one_run_lower_bound
from ostraka.mechanisms import GaussianSums
from ostraka.synth import PrivateKMeans

DELTA = 1e-5
CANARIES, SUMS, COPIES = 5_000, 100, 3
FIRST = 100  # seed of the white-box audits: other numbers of guesses were tried on seeds 0 to 59
DEPENDENT = "however canaries depend on one another, 95 %"
SEPARATE = {"independent canaries, 95 %": 0.95, "independent canaries, 99.9 %": 0.999}
SAMPLES = 10_000  # rows of a copy of MNIST
QUICK = {"CANARIES": 200, "SUMS": 1, "COPIES": 1, "SAMPLES": 200}
ONE_ROW = Adjacency(moves="row", relation="add-or-remove")


def sums_of(epsilon: float, included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noisy sums of orthogonal canaries, one a column, at this price."""
    n = len(included)
    sigma = calibrate(
        lambda noise: GaussianSums(n_columns=n, sigma=noise), n_answers=1, epsilon=epsilon, delta=DELTA
    )
    rows = np.eye(n, dtype=np.float32)[included]
    return GaussianSums(n_columns=n, sigma=sigma).release(Private(rows, ONE_ROW), rng=rng)


def claimed(epsilon: float) -> Curve:
    """The Gaussian curve that noisy sums of orthogonal canaries are priced by."""
    sigma = calibrate(
        lambda noise: GaussianSums(n_columns=CANARIES, sigma=noise),
        n_answers=1,
        epsilon=epsilon,
        delta=DELTA,
    )
    return Curve.gaussian(sensitivity=1.0, sigma=sigma)


def white_box(epsilon: float) -> None:
    """The audit of the claimed Gaussian by one run, however canaries depend, and for independent ones."""
    claim = claimed(epsilon)
    found: dict[str, list[float]] = {name: [] for name in (DEPENDENT, *SEPARATE)}
    for seed in range(FIRST, FIRST + SUMS):
        rng = np.random.default_rng(seed)
        included = rng.random(CANARIES) < 0.5
        scores = sum_scores(sums_of(epsilon, included, rng), np.eye(CANARIES), included)
        bound = one_run_lower_bound(scores, delta=DELTA, curve=claim, rng=rng)
        found[DEPENDENT].append(bound.epsilon / epsilon)
        for name, confidence in SEPARATE.items():
            bound = one_run_lower_bound(
                scores, delta=DELTA, curve=claim, independent=True, confidence=confidence
            )
            found[name].append(bound.epsilon / epsilon)
    print(f"  white box, noisy sums at epsilon {epsilon:g}, {CANARIES:,} canaries, {SUMS} runs:")
    for name, shares in found.items():
        print(f"    {name}: {_shares(shares)}", flush=True)


def _shares(shares: list[float]) -> str:
    return (
        f"lower bound {np.mean(shares):.3f} of the price (least {min(shares):.3f}, most {max(shares):.3f}), "
        f"above it in {sum(share > 1 for share in shares)} of {len(shares)}"
    )


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
    """White box at two prices, then copies of MNIST."""
    for epsilon in (1.0, 2.0):
        white_box(epsilon)
    copies(1.0)


if __name__ == "__main__":
    main()

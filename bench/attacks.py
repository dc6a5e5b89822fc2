"""Membership attacks: references in stacks against one by one, and large scores.

One by one means two loops: a ``TorchClassifier`` fitted for each reference, and scikit-learn's
``MLPClassifier``, whose arithmetic is the same. Every loop must compute the matrix products, which are timed
alone.
"""

from __future__ import annotations

import math
import resource
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from ostraka.attacks import ReferenceModels
from ostraka.networks import TorchClassifier

N_MODELS, N_ROWS, N_FEATURES, EPOCHS, ALONE = 32, 2_000, 784, 20, 4
HIDDEN, BATCH = 128, 128
LARGE = (256, 10_000)
METHODS = ("hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss")
QUICK = {
    "N_MODELS": 3,
    "N_ROWS": 200,
    "N_FEATURES": 6,
    "EPOCHS": 1,
    "ALONE": 1,
    "LARGE": (30, 100),
}


def network(n_features: int, n_classes: int) -> object:
    """784-128-10."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(n_features, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, n_classes)
    )


def stacks() -> None:
    """Train reference models in stacks with the attack, and the same networks one by one."""
    rng = np.random.default_rng(0)
    X, y = rng.random((N_ROWS, N_FEATURES)).astype(np.float32), np.arange(N_ROWS) % 10
    classifier = TorchClassifier(network, epochs=EPOCHS, n_threads=1)
    ReferenceModels(classifier, n_models=2, random_state=0).fit(X, y)  # compiles
    start = time.process_time()
    references = ReferenceModels(classifier, n_models=N_MODELS, random_state=0).fit(X, y)
    references.scores(rng.random(N_ROWS), rng.random(N_ROWS) < 0.5)
    together, start = time.process_time() - start, time.process_time()
    for chosen in references.included[:ALONE]:
        ReferenceModels.true_label_confidences(classifier.fit(X[chosen], y[chosen]), X, y)
    alone, start = (time.process_time() - start) / ALONE * N_MODELS, time.process_time()
    for chosen in references.included[:ALONE]:
        perceptron = MLPClassifier((HIDDEN,), batch_size=min(BATCH, int(chosen.sum())), max_iter=EPOCHS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs, and no more
            ReferenceModels.true_label_confidences(perceptron.fit(X[chosen], y[chosen]), X, y)
    sklearn = (time.process_time() - start) / ALONE * N_MODELS
    print(
        f"{N_MODELS} references and the attack: {together:.1f} s CPU, one by one {alone:.1f} s, "
        f"by scikit-learn {sklearn:.1f} s, matrix products alone {products():.1f} s",
        flush=True,
    )


def products() -> float:
    """Seconds of CPU for the first layer's products of all references: outputs, and gradient of weights."""
    rng = np.random.default_rng(0)
    rows, weights, back = (
        rng.random(shape).astype(np.float32)
        for shape in ((BATCH, N_FEATURES), (N_FEATURES, HIDDEN), (BATCH, HIDDEN))
    )
    steps = N_MODELS * EPOCHS * math.ceil(N_ROWS / 2 / BATCH)
    timed = max(1, steps // 20)
    start = time.process_time()
    for _ in range(timed):
        rows @ weights
        rows.T @ back
    return (time.process_time() - start) / timed * steps


def large() -> None:
    """Scores of many rows and references."""
    rng = np.random.default_rng(0)
    included = rng.random(LARGE) < 0.5
    references = ReferenceModels.from_confidences(rng.random(LARGE), included)
    target, member = rng.random(LARGE[1]), rng.random(LARGE[1]) < 0.5
    for method in METHODS:
        start = time.process_time()
        references.scores(target, member, method=method)
        print(f"{LARGE[1]} rows, {LARGE[0]} references, {method}: {time.process_time() - start:.2f} s CPU")
    print(f"memory of the process: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


def main() -> None:
    """Run both benchmarks."""
    large()
    stacks()

"""Membership attacks: references in stacks against one by one, large scores, and scores of equal worlds.

In equal worlds memberships change nothing: the mean AUC over many draws of the coins must be 0.5, within what
chance allows. The interval is 6.1 standard errors of the rank sum, which is missed once in 10^9 runs.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from ostraka.attacks import ReferenceModels
from ostraka.networks import TorchClassifier

N_MODELS, N_ROWS, N_FEATURES, EPOCHS, ALONE = 32, 2_000, 784, 20, 4
LARGE = (256, 10_000)
RUNS, NULL_ROWS, REFERENCES = 1_000, 300, (2, 4, 8, 31)
METHODS = ("hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss")
QUICK = {
    "N_MODELS": 3,
    "N_ROWS": 200,
    "N_FEATURES": 6,
    "EPOCHS": 1,
    "ALONE": 1,
    "LARGE": (30, 100),
    "RUNS": 3,
    "REFERENCES": (4,),
}


def network(n_features: int, n_classes: int) -> object:
    """784-128-10."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(n_features, 128), torch.nn.ReLU(), torch.nn.Linear(128, n_classes)
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
    alone = (time.process_time() - start) / ALONE * N_MODELS
    print(f"{N_MODELS} references and the attack: {together:.1f} s CPU, one by one {alone:.1f} s CPU")


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


def equal_worlds() -> None:
    """Return the mean AUC if membership changes nothing."""
    rng = np.random.default_rng(1)
    level = rng.normal(0, 2, NULL_ROWS)
    for n_models in REFERENCES:
        found = {method: [] for method in METHODS}  # type: dict[str, list[float]]
        error = []
        for _ in range(RUNS):
            p = 1 / (1 + np.exp(-(level + rng.normal(size=(n_models + 1, NULL_ROWS)))))
            included = rng.random((n_models, NULL_ROWS)) < 0.5
            one_sided = included.all(axis=0) | ~included.any(axis=0)
            while one_sided.any():
                included[:, one_sided] = rng.random((n_models, int(one_sided.sum()))) < 0.5
                one_sided = included.all(axis=0) | ~included.any(axis=0)
            member = rng.random(NULL_ROWS) < 0.5
            references = ReferenceModels.from_confidences(p[1:], included)
            for method in METHODS:
                found[method].append(references.scores(p[0], member, method=method).auc())
            error.append((NULL_ROWS + 1) / (12 * member.sum() * (~member).sum()))
        band = 6.1 * np.sqrt(np.mean(error) / RUNS)
        means = ", ".join(f"{method} {np.mean(aucs):.4f}" for method, aucs in found.items())
        print(f"{n_models} references, {RUNS} runs, 0.5 ± {band:.4f}: {means}", flush=True)


def main() -> None:
    """Run all three benchmarks."""
    large()
    stacks()
    equal_worlds()

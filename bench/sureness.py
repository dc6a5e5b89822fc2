"""Whether students by counts are as sure as they are right: four tables as numbers, and digits as images.

For each table and epsilon: accuracy, the mean probability of the likeliest class, and the log loss, on rows
that were not seen; beside the log loss of the private classes' frequencies, which takes no model. A student
that is too sure of itself loses more than they do. Relation zero-out, delta 1 / (10 rows), means over three
splits of the tables (``bench/_tables.py``) and deals of the digits. The noise has no seed.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.metrics import log_loss

from bench import _tables
from bench.digits import dealt
from bench.tables import numeric
from ostraka import PATEClassifier
from ostraka.voters import GraphCells
from ostraka.voters.rows import FeatureCells

__all__ = ["main"]

TABLES, EPSILONS, SPLITS = ("spam7", "diamonds", "hpc", "cells", "digits"), (0.25, 1.0, 3.0), 3
QUICK = {"TABLES": ("digits",), "EPSILONS": (1.0,), "SPLITS": 1}


def rows_of(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """Private rows and labels, public rows, new rows and labels."""
    if name == "digits":
        X, y, (public, new, private) = dealt(seed)
        return X[private], y[private], X[public], X[new], y[new]
    split = _tables.split(name, seed)
    private, public, new = numeric(split)
    return private, split.y, public, new, split.truth


def measured(name: str, epsilon: float, seed: int) -> list[float]:
    """Accuracy, sureness, log loss, and log loss of frequencies."""
    private, y, public, new, truth = rows_of(name, seed)
    classes = np.arange(max(y.max(), truth.max()) + 1)
    model = PATEClassifier(
        way="counts",
        cells=GraphCells(image_shape=(8, 8)) if name == "digits" else FeatureCells(),
        epsilon=epsilon,
        delta=1 / (10 * len(y)),
        relation="zero-out",
        classes=classes,
        allow_overlap=True,
        random_state=seed,
    ).fit(private, y, X_public=public)
    sure = np.clip(model.predict_proba(new), 1e-6, 1)
    often = np.tile((np.bincount(y, minlength=len(classes)) + 1) / (len(y) + len(classes)), (len(new), 1))
    losses = [float(log_loss(truth, probabilities, labels=classes)) for probabilities in (sure, often)]
    return [float((model.predict(new) == truth).mean()), float(sure.max(axis=1).mean()), *losses]


def main() -> None:
    """Print a line for each table and epsilon."""
    warnings.simplefilter("ignore")
    print("table     epsilon  accuracy  sureness  log loss  of frequencies")
    for name in TABLES:
        for epsilon in EPSILONS:
            means = np.mean([measured(name, epsilon, seed) for seed in range(SPLITS)], axis=0)
            print(f"{name:<10}{epsilon:7g}" + "".join(f"{mean:10.3f}" for mean in means), flush=True)

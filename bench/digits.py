"""Digits: what a private student learns from 1,297 rows, over ten seeds.

Each seed deals scikit-learn's 1,797 digits afresh: 1,297 private rows, 350 public ones whose
labels are not read, and 150 that are not read at all until the student is scored on them. Teachers
answer by argmaxes (``way="argmax"``) with the defaults of that way. The noise has no seed: runs differ.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_digits

from ostraka import PATEClassifier

SEEDS = 10
WAYS: dict[str, dict[str, object]] = {
    "typical rows first, then the least sure": {},
    "random rows": {"asks": "random"},
    "random rows, twice as many": {"asks": "random", "n_answers": 200},
}
QUICK = {"SEEDS": 2, "N_PUBLIC": 120, "WAYS": {"random rows": {"asks": "random"}}}
N_PUBLIC, N_NEW = 350, 150
EPSILON, DELTA = 3.6, 1e-4


def one(seed: int, **settings: object) -> dict[str, float]:
    """Return the figures of one run."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    public, new, private = np.split(order, [N_PUBLIC, N_PUBLIC + N_NEW])
    start = time.perf_counter()
    model = PATEClassifier(
        way="argmax", epsilon=EPSILON, delta=DELTA, classes=range(10), random_state=seed, **settings
    ).fit(X[private], y[private], X_public=X[public])
    seconds = time.perf_counter() - start
    result = model.evaluate(X[new], y[new], X_private=X[private], y_private=y[private])
    return {
        "student": result.utility["student"],
        **result.owner["utility"],
        "answers": float(model.plan_.n_answers),
        "epsilon": result.upper["epsilon"],
        "these votes": result.owner["epsilon_these_votes"],
        "seconds": seconds,
    }


def main() -> None:
    """Ten seeds with typical questions, and with questions at random for comparison."""
    for name, settings in WAYS.items():
        runs = [one(seed, **settings) for seed in range(SEEDS)]
        print(f"{name}:")
        for what in runs[0]:
            values = np.array([run[what] for run in runs])
            error = values.std(ddof=1) / SEEDS**0.5
            spread = f"{values.min():.4f} to {values.max():.4f}"
            print(f"  {what:<12} {values.mean():8.4f} ± {error:.4f}   ({spread})")


if __name__ == "__main__":
    main()

"""Digits: what a private student learns from 1,297 rows, over twenty and ten seeds.

Each seed deals scikit-learn's 1,797 digits afresh: 1,297 private rows, 350 public ones whose
labels are not read, and 150 that are not read at all until the student is scored on them. First
``PATEClassifier(epsilon=1)`` with all its defaults, then teachers who answer by argmaxes
(``way="argmax"``) with the defaults of that way. The noise has no seed: runs differ.
``python -m bench.digits defaults`` measures the first alone.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.datasets import load_digits

from ostraka import PATEClassifier

SEEDS, DEALS = 10, 20
WAYS: dict[str, dict[str, object]] = {
    "typical rows first, then the least sure": {},
    "random rows": {"asks": "random"},
    "random rows, twice as many": {"asks": "random", "n_answers": 200},
}
QUICK = {"SEEDS": 2, "DEALS": 2, "N_PUBLIC": 120, "WAYS": {"random rows": {"asks": "random"}}}
N_PUBLIC, N_NEW = 350, 150
EPSILON, DELTA = 3.6, 1e-4


def dealt(seed: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The rows, their labels, and which are public, new and private."""
    X, y = load_digits(return_X_y=True)
    return X, y, np.split(np.random.default_rng(seed).permutation(len(y)), [N_PUBLIC, N_PUBLIC + N_NEW])


def by_default(seed: int) -> float:
    """Accuracy on new rows where nothing but the budget is typed."""
    X, y, (public, new, private) = dealt(seed)
    model = PATEClassifier(epsilon=1.0, random_state=seed)
    return float(model.fit(X[private], y[private], X_public=X[public]).score(X[new], y[new]))


def one(seed: int, **settings: object) -> dict[str, float]:
    """Return the figures of one run."""
    X, y, (public, new, private) = dealt(seed)
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
    """The defaults; then typical questions, and questions at random for comparison."""
    print(f"PATEClassifier(epsilon=1), {DEALS} deals:")
    show("student", [by_default(seed) for seed in range(DEALS)])
    if "defaults" in sys.argv[1:]:
        return
    for name, settings in WAYS.items():
        runs = [one(seed, **settings) for seed in range(SEEDS)]
        print(f"{name}:")
        for what in runs[0]:
            show(what, [run[what] for run in runs])


def show(what: str, numbers: list[float]) -> None:
    """Print a mean with its standard error and the range."""
    values = np.array(numbers)
    error = values.std(ddof=1) / len(values) ** 0.5
    print(f"  {what:<12} {values.mean():8.4f} ± {error:.4f}   ({values.min():.4f} to {values.max():.4f})")


if __name__ == "__main__":
    main()

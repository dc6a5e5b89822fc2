"""Controls of the learners of tables: shuffled labels, hardly any noise, and lower bounds below upper ones.

- **Shuffled labels** say nothing, so areas under the curve must be a half on average over shuffles. A
  single shuffle may be far from it: the model is some direction in few dimensions.
- **Hardly any noise**: as epsilon grows, areas must come near logistic regression without privacy.
- **Bounds**: each of many runs is audited by a simulated adversary. Its lower bound holds with the stated
  confidence, so it may be above the upper one in a small share of runs at the most.

Rows are made by ``sklearn.datasets.make_classification``. The noise has no seed: runs differ.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from ostraka import PATEClassifier
from ostraka.learn import PATERegressor

SHUFFLES, RUNS, TRIALS = 100, 200, 1000
EPSILONS = (0.25, 1.0, 5.0, 20.0)
CONFIDENCE = 0.95
QUICK = {"SHUFFLES": 3, "RUNS": 2, "TRIALS": 100, "EPSILONS": (1.0,)}
_PUBLIC, _PRIVATE = slice(0, 400), slice(400, 2400)
_NEW = slice(2400, None)
_DELTA = 1e-5


def table() -> tuple[np.ndarray, np.ndarray]:
    """Rows of twelve numbers, and two classes; six numbers say something."""
    X, y = make_classification(6000, 12, n_informative=6, flip_y=0.2, class_sep=0.7, random_state=0)
    return X, y


def area(y: np.ndarray, *, epsilon: float) -> float:
    """Area under the curve of the filter that learned from these labels, by those of new rows."""
    X, truth = table()
    model = PATEClassifier(way="filter", epsilon=epsilon, delta=_DELTA, relation="zero-out", classes=[0, 1])
    sure = model.fit(X[_PRIVATE], y[_PRIVATE], X_public=X[_PUBLIC]).predict_proba(X[_NEW])
    return float(roc_auc_score(truth[_NEW], sure[:, 1]))


def bounds(run: int) -> tuple[float, float]:
    """Lower and upper epsilon of one run; every other one learns numbers."""
    X, y = table()
    epsilon = (0.25, 1.0, 3.0)[run % 3]
    settings: dict[str, Any] = {"epsilon": epsilon, "delta": _DELTA}
    model = (
        PATERegressor(bounds=(0.0, 1.0), **settings)
        if run % 2
        else PATEClassifier(way="filter", classes=[0, 1], **settings)
    )
    model.fit(X[400:1000], y[400:1000], X_public=X[:200])
    result = model.audit(trials=TRIALS, confidence=CONFIDENCE)
    return float((result.lower or {})["epsilon"]), float(result.upper["epsilon"])


def main() -> None:
    """Print the three controls."""
    warnings.simplefilter("ignore")
    X, y = table()
    areas = [area(np.random.default_rng(seed).permutation(y), epsilon=1.0) for seed in range(SHUFFLES)]
    error = float(np.std(areas)) / math.sqrt(SHUFFLES)
    spread = f"from {min(areas):.2f} to {max(areas):.2f}"
    print(f"shuffled labels, {SHUFFLES} shuffles: area {np.mean(areas):.3f} ± {error:.3f}, {spread}")
    alone = LogisticRegression().fit(X[_PRIVATE], y[_PRIVATE]).predict_proba(X[_NEW])
    shown = ", ".join(f"{area(y, epsilon=epsilon):.3f} at {epsilon:g}" for epsilon in EPSILONS)
    print(f"as epsilon grows: area {shown}; {roc_auc_score(y[_NEW], alone[:, 1]):.3f} without privacy")
    pairs = np.array([bounds(run) for run in range(RUNS)])
    above = int((pairs[:, 0] > pairs[:, 1]).sum())
    chance = binomtest(above, RUNS, 1 - CONFIDENCE, alternative="greater").pvalue
    share = float(np.mean(pairs[:, 0] / pairs[:, 1]))
    print(
        f"bounds: lower above upper in {above} of {RUNS} runs, where {1 - CONFIDENCE:.0%} may be "
        f"(probability of so many or more {chance:.2g}); lower is {share:.2f} of upper on average"
    )

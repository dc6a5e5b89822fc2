"""What ``ostraka plan`` forecasts beside what real runs give: ways and budgets on three public tables.

Each way is tried as ``ostraka plan`` does it, on three samples of 30 % of a table, which stand for similar
public rows. Then it learns from 35 % of the rows, with 20 % as public ones, and is measured on the others.
Printed are the expected accuracy with its range over the samples, and the mean accuracy over fresh deals.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from ostraka import BudgetExceeded, PATEClassifier
from ostraka.learn.ways.choose import forecast, proxy_worlds
from ostraka.learn.ways.plan import Facts

TABLES = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}
WAYS = ("counts", "filter", "rounds")
EPSILONS = (0.5, 1.0, 4.0)
DEALS = 5
QUICK = {"TABLES": {"wine": load_wine}, "WAYS": ("filter",), "EPSILONS": (4.0,), "DEALS": 1}
_PROXY, _PRIVATE, _PUBLIC = 0.3, 0.35, 0.2  # shares of the rows; the others measure


class Seen(NamedTuple):
    """One way at one budget: expected accuracy with its range, and the accuracies of real runs."""

    expected: tuple[float, float, float] | None
    accuracies: list[float]


def main() -> None:
    """Print a line for each table, way and budget."""
    warnings.simplefilter("ignore")
    print(f"{'table':14}{'way':9}{'epsilon':>8}  {'expected (range)':20}{'seen':>7}  runs")
    for name, load in TABLES.items():
        X, y = load(return_X_y=True)
        for method in WAYS:
            for epsilon in EPSILONS:
                comparison = compared(X, y, method=method, epsilon=epsilon)
                text = "no hope"
                if comparison.expected is not None:
                    low, best, high = comparison.expected
                    text = f"{best:.3f} ({low:.3f} to {high:.3f})"
                got = f"{np.mean(comparison.accuracies):7.3f}" if comparison.accuracies else "      -"
                print(
                    f"{name:14}{method:9}{epsilon:8g}  {text:20}{got}  {len(comparison.accuracies)}",
                    flush=True,
                )


def compared(X: np.ndarray, y: np.ndarray, *, method: str, epsilon: float) -> Seen:
    """Plan from the proxy, then run on fresh deals of the same rows."""
    n_rows, n_classes = len(y), len(np.unique(y))
    ends = np.cumsum([round(share * n_rows) for share in (_PROXY, _PRIVATE, _PUBLIC)])
    delta = min(1e-5, 0.1 / n_rows)
    model = PATEClassifier(way=method, epsilon=epsilon, delta=delta, random_state=0)
    expected, accuracies = None, []
    for deal in range(DEALS):
        order = np.random.default_rng(deal).permutation(n_rows)
        proxy, private, public, new = np.split(order, ends)
        if deal == 0:
            facts = Facts(
                n_units=len(private),
                n_classes=n_classes,
                n_public=len(public),
                grouped=False,
                epsilon=epsilon,
                delta=delta,
            )
            hope = forecast(model, proxy_worlds(X[proxy], y[proxy], facts, seed=0), unit="row", seed=0)
            if hope.accuracy is not None:
                expected = hope.accuracy.low, hope.accuracy.best, hope.accuracy.high
        try:
            fitted = model.set_params(random_state=deal).fit(X[private], y[private], X_public=X[public])
        except (BudgetExceeded, ValueError):  # no noise makes this way fit
            break
        accuracies.append(float(fitted.score(X[new], y[new])))
    return Seen(expected, accuracies)

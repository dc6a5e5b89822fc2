"""Synthetic tables on UCI Adult: what boosted trees learn from the copy, scored on the real test rows.

Edges are written by hand, categories are those of UCI's documentation. Five seeds a price. The noise is
seeded: a simulation, to be repeated. Seconds are of the fit, on the wall.
"""

from __future__ import annotations

import csv
import gzip
import time
from typing import TYPE_CHECKING

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from bench import _data
from bench._data import folder
from ostraka.synth import Schema, TableGenerator

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
LEFT_OUT = ("fnlwgt", "education-num")
EDGES = {
    "age": [0, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 120],
    "capital-gain": [0, 1, 3000, 5000, 7000, 10_000, 20_000, 100_000],
    "capital-loss": [0, 1, 1500, 1800, 2000, 2200, 5000],
    "hours-per-week": [0, 20, 30, 35, 40, 41, 46, 51, 60, 100],
}
DELTA, TARGET = 1e-5, "income"
SEEDS, SCORED = 5, True
QUICK = {"SEEDS": 1, "SCORED": False}


def read(name: str) -> dict[str, list[str]]:
    """Columns of one file of Adult, without the full stop after a label."""
    with gzip.open(folder() / "adult" / name, "rt") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == len(NAMES)]
        rows = rows[: _data.MOST_ROWS]
    table = zip(NAMES, zip(*rows, strict=True), strict=True)
    return {name: [cell.rstrip(".") for cell in cells] for name, cells in table if name not in LEFT_OUT}


def schema_of(*tables: dict[str, list[str]]) -> Schema:
    """Edges above; categories as UCI documents them, which are those of both files."""
    kinds = {name: sorted(set().union(*(table[name] for table in tables))) for name in tables[0]}
    return Schema.from_dict(
        {
            name: {"edges": EDGES[name], "whole": True} if name in EDGES else {"categories": kinds[name]}
            for name in tables[0]
        }
    )


def scored(codes: np.ndarray, real: np.ndarray) -> tuple[float, float]:
    """Accuracy and AUC on real rows of boosted trees that learned from ``codes``; the label is last."""
    model = HistGradientBoostingClassifier(random_state=0).fit(codes[:, :-1], codes[:, -1])
    chance = model.predict_proba(real[:, :-1])[:, 1]
    return float(np.mean((chance > 0.5) == real[:, -1])), float(roc_auc_score(real[:, -1], chance))


def distance(real: np.ndarray, copy: np.ndarray, sizes: Sequence[int]) -> float:
    """Mean total variation distance of the tables of two columns."""
    far = []
    for a in range(len(sizes)):
        for b in range(a):
            tables = [
                np.bincount(rows[:, a] * sizes[b] + rows[:, b], minlength=sizes[a] * sizes[b]) / len(rows)
                for rows in (real, copy)
            ]
            far.append(np.abs(tables[0] - tables[1]).sum() / 2)
    return float(np.mean(far))


def main() -> None:
    """Two prices, five seeds each."""
    train, test = read("adult.data.gz"), read("adult.test.gz")
    schema = schema_of(train, test)
    codes, real = schema.encode(train), schema.encode(test)
    if SCORED:
        print("  the real rows: accuracy {:.4f}, AUC {:.4f}".format(*scored(codes, real)))
    for epsilon in (0.1, 1.0):
        found = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            start = time.perf_counter()
            made = TableGenerator(schema, target=TARGET, epsilon=epsilon, delta=DELTA).fit(train, rng=rng)
            seconds = time.perf_counter() - start
            copy = made.sample_codes(len(codes), rng=rng)
            found.append((*scored(copy, real), distance(codes, copy, schema.sizes), seconds))
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
        print(
            f"  epsilon {epsilon:g}: accuracy {mean[0]:.4f} ± {spread[0]:.4f}, "
            f"AUC {mean[1]:.4f} ± {spread[1]:.4f}, "
            f"pairs of columns {mean[2]:.3f} apart, fit {mean[3]:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()

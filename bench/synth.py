"""Synthetic tables on UCI Adult: what boosted trees learn from the copy, scored on the real test rows.

Edges are written by hand, categories are those of UCI's documentation. Five seeds a price. The noise is
seeded: a simulation, to be repeated. Seconds of the fit are of processor time. Then Diabetes 130 with a row
as the unit. Beside them the figures of AIM, as they were measured (docs/synthetic.md). What a newcomer gets,
who sets nothing: ``python -m bench copies``.

``python -m bench.synth FOLDER`` writes the coded rows (``codes.csv``) and the number of codes of each column
(``sizes.csv``) there for another generator, and scores the copies of them that it finds (``copy*.csv``).
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from bench import _data
from bench._data import folder
from ostraka.core.mechanisms.particles import tallied
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
SEEDS, SCORED, EPSILONS = 5, True, (0.1, 1.0, 3.0)
WIDE = True  # Diabetes 130, too
QUICK = {"SEEDS": 1, "SCORED": False, "EPSILONS": (1.0,), "WIDE": False}
AIM = {0.1: "0.8336, 0.8769, 0.0604, 0.1146; 243 s", 1.0: "0.8531, 0.9014, 0.0191, 0.0456; 532 s"}
_FIGURES = "accuracy {:.4f}, AUC {:.4f}, pairs of columns {:.4f} apart, triples {:.4f}"


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


def distance(real: np.ndarray, copy: np.ndarray, sizes: Sequence[int], *, n_columns: int = 2) -> float:
    """Mean total variation distance of the tables of so many columns."""
    chosen = list(combinations(range(len(sizes)), n_columns))
    tables = [
        tallied(np.column_stack([rows, np.ones(len(rows), dtype=rows.dtype)]).T, sizes, chosen)
        for rows in (real, copy)
    ]
    distances = [np.abs(a / len(real) - b / len(copy)).sum() / 2 for a, b in zip(*tables, strict=True)]
    return float(np.mean(distances))


class Adult(NamedTuple):
    """Both files of Adult, and their codes."""

    train: dict[str, list[str]]
    schema: Schema
    codes: np.ndarray
    real: np.ndarray

    def judged(self, copy: np.ndarray) -> tuple[float, float, float, float]:
        """Accuracy and AUC of what trees learn from a copy; how far its pairs and triples of columns are."""
        pairs, triples = (distance(self.codes, copy, self.schema.sizes, n_columns=n) for n in (2, 3))
        return (*scored(copy, self.real), pairs, triples)


def adult() -> Adult:
    """Adult from its two files."""
    train, test = read("adult.data.gz"), read("adult.test.gz")
    schema = schema_of(train, test)
    return Adult(train, schema, schema.encode(train), schema.encode(test))


def copies(where: Path) -> None:
    """Write the coded rows, and score the copies of another generator."""
    data = adult()
    names = ",".join(data.train)
    for name, rows in (("codes", data.codes), ("sizes", np.array([data.schema.sizes]))):
        np.savetxt(where / f"{name}.csv", rows, fmt="%d", delimiter=",", header=names, comments="")
    for path in sorted(where.glob("copy*.csv")):
        rows = np.loadtxt(path, dtype=np.int64, delimiter=",", skiprows=1)
        print(f"  {path.name}: " + _FIGURES.format(*data.judged(rows)), flush=True)


def main() -> None:
    """Three prices, two methods, five seeds each; then a wider table."""
    data = adult()
    if SCORED:
        print("  the real rows: accuracy {:.4f}, AUC {:.4f}".format(*scored(data.codes, data.real)))
    for epsilon in EPSILONS:
        for method in ("particles", "forest"):
            distances = []
            for seed in range(SEEDS):
                rng, start = np.random.default_rng(seed), time.process_time()
                generator = TableGenerator(
                    data.schema, target=TARGET, epsilon=epsilon, delta=DELTA, method=method
                )
                copy = generator.fit(data.train, rng=rng).sample_codes(len(data.codes), rng=rng)
                seconds = time.process_time() - start
                distances.append((*data.judged(copy), seconds))
            mean, spread = np.mean(distances, axis=0), np.std(distances, axis=0)
            print(
                f"  epsilon {epsilon:g}, {method}: {_FIGURES.format(*mean[:4])}; "
                f"fit and sample {mean[4]:.2f} s; accuracies ± {spread[0]:.4f}, "
                f"AUC ± {spread[1]:.4f}, pairs ± {spread[2]:.4f}",
                flush=True,
            )
        if epsilon in AIM:
            print(f"  epsilon {epsilon:g}, AIM (one seed, in the same order): {AIM[epsilon]}", flush=True)
    if WIDE:
        wide()


def wide() -> None:
    """Diabetes 130, the unit a row, epsilon 1."""
    from bench import diabetes130

    table, _ = diabetes130.read()
    schema = diabetes130.schema_of(table)
    codes = schema.encode(table)
    for method in ("particles", "forest"):
        rng, start = np.random.default_rng(0), time.process_time()
        generator = TableGenerator(schema, target=diabetes130.TARGET, epsilon=1.0, delta=DELTA, method=method)
        copy = generator.fit(table, rng=rng).sample_codes(len(codes), rng=rng)
        seconds = time.process_time() - start
        gaps = [distance(codes, copy, schema.sizes, n_columns=n) for n in (2, 3)]
        print(
            f"  Diabetes 130, {len(codes):,} rows of {len(schema.columns)} columns, epsilon 1, {method}, "
            f"one seed: pairs {gaps[0]:.4f} apart, triples {gaps[1]:.4f}; fit and sample {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    copies(Path(sys.argv[1])) if sys.argv[1:] else main()

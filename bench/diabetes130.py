"""Synthetic tables by patient: hospital encounters of diabetics (UCI Diabetes 130), scored on other patients.

The unit is a patient with all encounters. Boosted trees learn from the copy whether a patient came back, and
are scored on the real encounters of a fifth of the patients, whom no generator saw. Edges are written by
hand, categories are those of UCI's documentation. Noise is seeded: a simulation. Seconds are on the wall.
"""

from __future__ import annotations

import csv
import gzip
import time

import numpy as np

from bench import _data
from bench._data import folder
from bench.synth import distance, scored
from ostraka.synth import Schema, TableGenerator

DELTA, TARGET, PERSON = 1e-5, "readmitted", "patient_nbr"
EDGES = {
    "time_in_hospital": [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15],
    "num_lab_procedures": [0, 10, 20, 30, 40, 50, 60, 70, 80, 140],
    "num_procedures": [0, 1, 2, 3, 4, 5, 7],
    "num_medications": [0, 5, 8, 11, 14, 17, 20, 25, 30, 90],
    "number_outpatient": [0, 1, 2, 3, 5, 50],
    "number_emergency": [0, 1, 2, 3, 5, 80],
    "number_inpatient": [0, 1, 2, 3, 4, 5, 8, 25],
    "number_diagnoses": [0, 3, 4, 5, 6, 7, 8, 9, 10, 20],
}
DIAGNOSES = [0, 140, 240, 250, 251, 280, 290, 320, 390, 460, 520, 580, 630, 680, 710, 740, 780, 800, 1000]
TEXTS = [
    "race",
    "gender",
    "age",
    "admission_type_id",
    "discharge_disposition_id",
    "admission_source_id",
    "medical_specialty",
    "max_glu_serum",
    "A1Cresult",
    "metformin",
    "glipizide",
    "glyburide",
    "pioglitazone",
    "rosiglitazone",
    "insulin",
    "change",
    "diabetesMed",
]
SEEDS, SCORED, EPSILONS = 3, True, (0.1, 1.0)
QUICK = {"SEEDS": 1, "SCORED": False, "EPSILONS": (1.0,)}


def read() -> tuple[dict[str, list[str]], np.ndarray]:
    """Columns, and the patient of each encounter. Diagnoses are grouped; V and E codes count as 999."""
    with gzip.open(folder() / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))[: _data.MOST_ROWS]
    table = {name: [row[name] for row in rows] for name in (*TEXTS, *EDGES)}
    for name in ("diag_1", "diag_2"):
        codes = [row[name] for row in rows]
        table[name] = [code if code.replace(".", "").isdigit() else "999" for code in codes]
    table[TARGET] = ["no" if row[TARGET] == "NO" else "yes" for row in rows]
    return table, np.array([row[PERSON] for row in rows])


def schema_of(table: dict[str, list[str]]) -> Schema:
    """Edges above; categories as UCI documents them, which are those of the file."""
    edges = EDGES | {"diag_1": DIAGNOSES, "diag_2": DIAGNOSES}
    return Schema.from_dict(
        {
            name: {"edges": edges[name], "whole": True}
            if name in edges
            else {"categories": sorted(set(cells))}
            for name, cells in table.items()
        }
    )


def main() -> None:
    """Two prices, three seeds each."""
    table, patients = read()
    schema = schema_of(table)
    codes = schema.encode(table)
    kinds, who = np.unique(patients, return_inverse=True)
    new = (np.random.default_rng(0).random(kinds.size) < 0.2)[who]
    train, groups = {name: np.array(cells)[~new] for name, cells in table.items()}, patients[~new]
    n_train = int((~new).sum())
    print(f"  {n_train:,} encounters of {len(set(groups)):,} patients, {len(schema.columns)} columns")
    if SCORED:
        print("  the real rows: accuracy {:.4f}, AUC {:.4f}".format(*scored(codes[~new], codes[new])))
        print(f"  always the larger class: accuracy {np.bincount(codes[new][:, -1]).max() / new.sum():.4f}")
    for epsilon in EPSILONS:
        accuracies = []
        for seed in range(SEEDS):
            rng, start = np.random.default_rng(seed), time.perf_counter()
            generator = TableGenerator(schema, target=TARGET, epsilon=epsilon, delta=DELTA)
            generator.fit(train, groups=groups, rng=rng)
            seconds = time.perf_counter() - start
            copy = generator.sample_codes(n_train, rng=rng)
            accuracies.append((*scored(copy, codes[new]), distance(codes[~new], copy, schema.sizes), seconds))
        mean, spread = np.mean(accuracies, axis=0), np.std(accuracies, axis=0)
        print(
            f"  epsilon {epsilon:g}, by patient: accuracy {mean[0]:.4f} ± {spread[0]:.4f}, "
            f"AUC {mean[1]:.4f} ± {spread[1]:.4f}, pairs of columns {mean[2]:.3f} apart, fit {mean[3]:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Fixed records of runs and of collections, from which pages, drawings and terminals are recorded."""

import json

import numpy as np

from ostraka.collect import Grid, Histogram, Pairs, Task, Tree, Vector
from ostraka.collect.encodings import Histograms, Sum
from ostraka.collect.show import Collected
from ostraka.collect.task import Question
from ostraka.core.result import Result


def bound(says, *epsilon, answers=(1, 2, 3), both=True):
    return {"says": says, "both_directions": both, "answers": list(answers), "epsilon": list(epsilon)}


BOUNDS = {
    "classic": bound("any votes", 1.0, 1.5, 2.25),
    "gaussian": bound("any votes", 0.75, 1.25, 1.75),
    "tight": bound("any votes", 0.5, 0.875, 1.375),
    "adaptive": bound("any votes, no answers known", 0.5, 1.0, "inf"),
}
OF_THESE_VOTES = {
    "exact": bound("these votes", 0.0, 0.125, 0.5004),
    "papernot2018": bound("these votes", 0.25, 1.2, answers=(1, 3), both=False),
    "moments2017": bound("these votes", 2.5, answers=(3,)),
    "somebody's": bound("these votes", 1.0, 2.0, answers=(1, 3)),
}
REPEATS = {"repeats": [1, 10, 1000], "share_wrong": [0.4, 0.25, 0.1], "share_wrong_least": [0.3, 0.06, 0.004]}
STUDENTS = {"epsilon": [1.0, 2.0, 3.65], "accuracy": [0.5, 0.8, 0.893]}
COST = [0.1, 0.25, 0.0625, 0.002, 0.2]
AUDIT = [
    {
        "name": name,
        "confidence": 0.95,
        "measures": [
            *(
                {"what": f"order {o}", "upper": 0.1 * o, "exact": exact, "lower": 0.01 * o}
                for o in (2, 8, 32)
            ),
            {"what": "epsilon at delta 1e-05", "upper": upper, "exact": exact, "lower": 0.25},
        ],
    }
    for name, upper, exact in (
        ("an adversary who replaces a record", "inf", None),
        ("twins", 1.25, 0.5),
    )
]
CLASSES = ["well", "ill", "mild", "grave", "a", "b", "c", "d", "e", "f", "g", "h", "i"]

RUNS = {
    "a classifier with everything": Result(
        kind="learn",
        settings={
            "n_rows": 12_970, "n_units": 1297, "unit": "person", "relation": "replace-one", "n_teachers": 250,
            "n_classes": 3, "mechanism": "GNMax(sigma=18.0)", "screen": None, "epsilon": 3.7, "seed": 0,
            "columns": [f"column {k}" for k in range(14)], "consistent": True,
            "sizes": {"trees": 1200, "deep": 3},
        },
        upper={
            "epsilon": 3.64991, "delta": 1e-4, "accountant": "tight Rényi curves", "simulation": False,
            "noise": "ChaCha20 keyed by the operating system", "horizon": "200 answers", "bounds": BOUNDS,
            "not_protected": ["the number of rows"], "answers_left": 1234,
            "table": {"epsilon": 4.0004, "delta": 2e-4, "releases": 2, "others": 3},
        },
        lower={"epsilon": 0.12399, "confidence": 0.95, "trials": 20_000, "note": "Of the worst votes."},
        utility={
            "student": 0.893, "balanced": 0.75, "non_private": 0.9, "majority": None, "answered": 1200,
            "abstained": 12, "auc": 0.91249, "calibration_error": 0.03149,
            "recall": dict(zip(CLASSES, np.linspace(0.4, 1, 13).tolist(), strict=True)),
        },
        series={"confusion": np.eye(13, dtype=int).tolist()},
        owner={
            "epsilon_these_votes": 2.7431, "utility": {"plurality": 0.765, "one_teacher": 0.6},
            "consensus": [0.75, 1.0], "bounds": OF_THESE_VOTES,
        },
        notes=("A note.", "the number of rows"),
    ),
    "a weak regressor": Result(
        kind="learn",
        settings={"unit": "row", "relation": "zero-out", "way": "rounds", "n_answers": 1_000_000},
        upper={"epsilon": 3.0001, "delta": 0.0, "curve": None} | {"accountant": "a sum"},
        lower={"epsilon": 2.98765},
        utility={
            "r2": 0.87654, "mean_absolute_error": 1234.567, "root_mean_square_error": None,
            "half_widths": {"0.5": 1.25, "0.9": 12345.678}, "intervals": {"0.9": {"coverage": 0.912}},
        },
    ),
    "twelve classes in public": Result(
        kind="learn",
        settings={"unit": "label", "relation": "add-or-remove", "epsilon": 2.0},
        upper={"epsilon": 3.0, "delta": 1e-5},
        lower={"epsilon": 0.6, "note": "A test"},
        utility={"student": None, "recall": dict.fromkeys(CLASSES[:12], 0.9)},
        series={"confusion": (1234 * np.eye(12, dtype=int)).tolist()},
    ),
    "a simulation": Result(
        kind="learn",
        settings={"unit": "person", "relation": "replace-one"},
        upper={"epsilon": 9.0, "delta": 1e-5, "simulation": True},
        utility={"student": 0.5, "recall": {"ill": 0.25}},
        owner={"epsilon_these_votes": "inf"},
    ),
}  # fmt: skip
del RUNS["a weak regressor"].upper["curve"]


def collected(encoding, sums, *, people, question=None, **more):
    """A released round of so many people."""
    task = Task(encoding, sigma=5.0, noise="tally", tally="ab" * 32, question=question)
    record = {
        "task": json.loads(task.to_json()), "sums": np.asarray(sums, float).tolist(), "variance": 4.0,
        "n_survivors": people, "epsilon": 1.0, "delta": 1e-6, **more,
    }  # fmt: skip
    return Collected(record)


def summed(encoding, values, noise=0):
    """The sums of the values, and a noise that is the same each time."""
    plain = np.sum([encoding.encode(value).astype(np.int32) for value in values], axis=0, dtype=np.int64)
    return plain + np.rint(noise * np.sin(np.arange(len(plain))))


QUESTION = Question(
    text={"en": "How do you get to work?", "de": "Wie kommen Sie zur Arbeit?"},
    title={"en": "Ways to work", "de": "Arbeitswege"},
    purpose={"en": "To plan bus lines.", "de": "Um Busse zu planen."},
    controller="City of Example", contact="data@example.org", epsilon=40.0, series=40.0, delta=1e-6,
    choices={"en": ["by bus", "by bicycle", "on foot"], "de": ["Bus", "Rad", "zu Fuß"]},
)  # fmt: skip
MINUTES = Question(
    text={"en": "How long is your way?"}, title={"en": "Ways"}, purpose={"en": "To plan."},
    unit={"en": "minutes"}, controller="City", contact="x@example.org", epsilon=100.0, series=100.0,
    delta=1e-6,
)  # fmt: skip
AGES = [20 + (7 * k) % 41 for k in range(120)]
_TREE, _WIDE = Tree(0, 64, fanout=4), Tree(0, 1000, fanout=10)
_CELLS, _FINE = Histogram(18, 96, cells=13), Histogram(0, 10, cells=100)
_CHOICES, _PARTS = Histogram(0, 3, cells=3), Histograms([(0, 2, 2), (10, 40, 3)])
_GRID, _SUM, _VECTOR = (
    Grid(x=(0, 2), y=(0, 1), shape=(2, 3)),
    Sum(0, 255),
    Vector(cells=45, clip=16.0, grid=16),
)
_PAIRS = Pairs(items=4, at_most=2)
_PLACES = [(1.5, 0.9)] * 7 + [(0.1, 0.4)] * 4
_BASKETS = [[0, 1]] * 90 + [[2, 3]] * 50 + [[0, 3]] * 20
COLLECTED = {
    "ages by a tree": collected(_TREE, summed(_TREE, AGES, 3), people=120, question=MINUTES),
    "a wide tree": collected(_WIDE, summed(_WIDE, [7 * age for age in AGES], 2), people=120),
    "a vague tree": collected(_TREE, summed(_TREE, [3, 60], 9), people=2, variance=400.0),
    "cells": collected(_CELLS, summed(_CELLS, AGES, 2), people=120),
    "fine cells": collected(_FINE, summed(_FINE, [age / 10 for age in AGES], 1), people=120),
    "choices": collected(_CHOICES, [50, -3, 70], people=117, question=QUESTION, unit="person"),
    "two questions": collected(_PARTS, [30, 70, 40, 45, 15], people=100),
    "a map": collected(_GRID, summed(_GRID, _PLACES, 1), people=11, simulation=True),
    "a number": collected(_SUM, summed(_SUM, [3, 4, 8]), people=3),
    "a vague number": collected(_SUM, summed(_SUM, [3, 4, 8]), people=3, variance=9e4),
    "vectors": collected(_VECTOR, summed(_VECTOR, [np.arange(45) % 3] * 6, 3), people=6, question=None),
    "baskets": collected(_PAIRS, summed(_PAIRS, _BASKETS, 1), people=160),
}
ROUNDS = {
    "of a map": [
        collected(_GRID, summed(_GRID, _PLACES[:n], 1), people=n, variance=float(n)) for n in (9, 5)
    ],
    "of cells": [collected(_CELLS, summed(_CELLS, AGES[:n], 2), people=n) for n in (120, 60, 30)],
}

"""Many small teachers: those trained together and voting in one product, against one by one.

Each teacher has 20 rows of Gaussian classes. "One by one" is scikit-learn in a loop, for
as many teachers as ``ALONE``, and its time is scaled. Both run on one thread, in one run.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid

from ostraka import TeacherEnsemble
from ostraka.voters import partition

ROWS, PUBLIC, ALONE = 20, 200, 250
CASES = ((1000, 20, 2), (5000, 20, 2), (1000, 20, 5))  # teachers, features, classes
QUICK = {"CASES": ((100, 5, 2),), "ALONE": 5}
OTHERS = (RidgeClassifier(), GaussianNB(), NearestCentroid())
KEY = b"no secret: figures are to come again"


def compare(estimator: Any, n_teachers: int, n_features: int, n_classes: int) -> None:
    """Print seconds, ratios and the share of votes that differ."""
    rng = np.random.default_rng(0)
    n_rows = n_teachers * ROWS
    centres = rng.normal(size=(n_classes, n_features))
    y = rng.integers(0, n_classes, n_rows)
    X = centres[y] + rng.normal(size=(n_rows, n_features))
    public = centres[rng.integers(0, n_classes, PUBLIC)] + rng.normal(size=(PUBLIC, n_features))
    manifest = partition(n_rows, n_teachers=n_teachers, key=KEY)
    ensemble = TeacherEnsemble(estimator, n_teachers=n_teachers, n_jobs=1)
    start = time.perf_counter()
    ensemble.fit(X, y, classes=range(n_classes), manifest=manifest)
    trained = time.perf_counter()
    ballots = ensemble.predictions(public)
    voted = time.perf_counter()
    alone, fit, vote = min(ALONE, n_teachers), 0.0, 0.0
    differ = 0.0
    for number, rows in enumerate(manifest.rows()[:alone]):
        begin = time.perf_counter()
        model = clone(estimator).fit(X[rows], y[rows])
        middle = time.perf_counter()
        cast = model.predict(public)
        vote += time.perf_counter() - middle
        fit += middle - begin
        differ += float((cast != ballots[number]).mean())
    scale = n_teachers / alone
    ours = trained - start, voted - trained
    name = "" if isinstance(estimator, LogisticRegression) else f"{type(estimator).__name__}, "
    print(
        f"  {name}{n_teachers} teachers, {n_features} features, {n_classes} classes: fit {ours[0]:.2f} s, "
        f"votes on {PUBLIC} rows {ours[1]:.2f} s; one by one {fit * scale:.2f} and {vote * scale:.2f} s: "
        f"{fit * scale / ours[0]:.1f} and {vote * scale / ours[1]:.1f} times as long; "
        f"{differ / alone:.2%} of votes differ",
        flush=True,
    )


def main() -> None:
    """Small and large ensembles, two and five classes; then other estimators in the first ensemble."""
    with threadpoolctl.threadpool_limits(1):
        compare(LogisticRegression(), 50, 20, 2)  # the first use loads libraries
        for case in CASES:
            compare(LogisticRegression(), *case)
        for estimator in OTHERS:
            compare(estimator, *CASES[0])


if __name__ == "__main__":
    main()

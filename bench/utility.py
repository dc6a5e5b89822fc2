"""Accuracy for an epsilon by noisy counts: digits, Adult, diabetes by patient, and MNIST.

``python -m bench utility`` runs all of it; ``python -m bench.utility NAME [--quick]`` one data set.
Settings were chosen on other deals: digits on deals 100 to 109, Adult on ``adult.data`` alone. Noise is
seeded here, so that a figure can be repeated: a simulation. Each run is priced by the curve of its
mechanism, as a release is.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import sys
import time
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bench._data import folder
from ostraka import ABSTAIN
from ostraka.accounting import calibrate
from ostraka.mechanisms import NoisyCounts
from ostraka.students import AugmentedSVM, MomentLogistic, SmoothedCounts
from ostraka.voters import GraphCells, QuantileCells, RowVoter
from ostraka.voters.rows import own_features

_ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    "income",
)
_ADULT_LEFT_OUT = {"fnlwgt", "education", "income"}  # a survey's weight, the text of education-num, the label
# Five of 47 columns, chosen on seeds 100 and 101: every further column adds noise to all.
_DIABETES = ("number_inpatient", "number_emergency", "discharge_disposition_id", "time_in_hospital", "age")
_PARTS = 12
RELATIONS: tuple[Literal["replace-one", "zero-out"], ...] = ("replace-one", "zero-out")
_IMAGE_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)


def noise(epsilon: float, delta: float, reach: float) -> float:
    """The least sigma for one table which a unit moves by ``reach``."""
    return calibrate(
        lambda sigma: NoisyCounts(sigma=sigma, l2=reach), n_answers=1, epsilon=epsilon, delta=delta
    )


def counted(voter: RowVoter, *, epsilon: float, delta: float, seed: int) -> tuple[np.ndarray, float]:
    """Released counts and their noise, both in ballots."""
    sensitivity = voter.adjacency_.l2
    sigma = noise(epsilon, delta, sensitivity)
    released = NoisyCounts(sigma=sigma, l2=sensitivity).release(voter.vote(), rng=np.random.default_rng(seed))
    return released / voter.ballot_, sigma / voter.ballot_


def posterior(voter: RowVoter, *, epsilon: float, seed: int) -> SmoothedCounts:
    """Labels by one release of counts of ``GraphCells`` or ``FeatureCells``; delta 1e-5."""
    counts, sigma = counted(voter, epsilon=epsilon, delta=1e-5, seed=seed)
    cells: Any = voter.cells
    lines, size = (cells.features_, cells.resolution) if own_features(cells) else (cells.codebooks_[0], 1)
    return SmoothedCounts().fit(
        lines, counts / size, sigma=sigma / size, n_units=voter.n_units_, features=cells.features_
    )


def said(name: str, epsilon: object, shares: list[float], seconds: list[float] | None = None) -> None:
    """Print a mean with its spread."""
    spread = float(np.std(shares, ddof=1)) if len(shares) > 1 else 0.0
    took = "" if seconds is None else f"   {np.mean(seconds):.2f} s of one core"
    print(
        f"  {name:<46} epsilon {epsilon!s:<5} {np.mean(shares):.4f} ± {spread:.4f} ({len(shares)}){took}",
        flush=True,
    )


def digits(*, quick: bool) -> None:
    """350 public, 150 new and 1,297 private rows; delta 1e-4; deals 0 to 29."""
    all_settings = ((0.25, 8.0), (0.5, 8.0), (1.0, 4.0), (2.0, 4.0), (3.6, 4.0))
    settings = all_settings[2:3] if quick else all_settings
    for relation, (epsilon, smoothing) in itertools.product(RELATIONS, settings):
        runs = [_one_deal(deal, epsilon, smoothing, relation) for deal in range(1 if quick else 30)]
        said(f"digits, {relation}", epsilon, [run[0] for run in runs], [run[2] for run in runs])
        said(f"digits, {relation}, shuffled labels", epsilon, [run[1] for run in runs])
    ceiling = []
    for deal in range(1 if quick else 30):
        X, y, (public, new, _) = _dealt(deal)
        best = AugmentedSVM(image_shape=(8, 8)).fit(X[public], y[public])
        ceiling.append(best.score(X[new], y[new]))
    said("digits, true public labels", "none", ceiling)


def _dealt(deal: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    X, y = load_digits(return_X_y=True)
    return X, y, np.split(np.random.default_rng(deal).permutation(len(y)), [350, 500])


def _one_deal(deal: int, epsilon: float, smoothing: float, relation: Any) -> tuple[float, float, float]:
    """Accuracy on new rows, the same where private labels are shuffled, and seconds of a fit."""
    X, y, (public, new, private) = _dealt(deal)
    accuracies, seconds = [], []
    for labels in (y[private], np.random.default_rng(deal).permutation(y[private])):
        start = time.process_time()
        cells = GraphCells(image_shape=(8, 8), time=smoothing).fit(X[public])
        voter = RowVoter(cells=cells, relation=relation).fit(X[private], labels, classes=range(10))
        counts, sigma = counted(voter, epsilon=epsilon, delta=1e-4, seed=10**6 + deal)
        soft = SmoothedCounts().fit(
            cells.codebooks_[0], counts, sigma=sigma, n_units=len(private), features=cells.features_
        )
        weight = soft.margin_ / soft.margin_.mean()
        student = AugmentedSVM(image_shape=(8, 8)).fit(X[public], soft.labels_, weight)
        accuracies.append(float(student.score(X[new], y[new])))
        seconds.append(time.process_time() - start)
    return accuracies[0], accuracies[1], seconds[0]


def adult(*, quick: bool) -> None:
    """2,000 public and 14,281 new rows of adult.test, all of adult.data private; delta 1e-5; seeds 0 to 9."""
    (table, y), (test, y_test) = (_adult(name) for name in ("adult.data.gz", "adult.test.gz"))
    for relation, epsilon in itertools.product(RELATIONS, (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0)):
        accuracies: list[float] = []
        seconds: list[float] = []
        shuffled: list[float] = []
        for seed in range(1 if quick else 10):
            order = np.random.default_rng(seed).permutation(len(y_test))
            public, new = test.take(order[:2000]), test.take(order[2000:])
            start = time.process_time()
            cells = QuantileCells().fit(public)
            for labels, scores in ((y, accuracies), (np.random.default_rng(seed).permutation(y), shuffled)):
                voter = RowVoter(cells=cells, relation=relation).fit(table, labels, classes=[0, 1])
                counts, sigma = counted(voter, epsilon=epsilon, delta=1e-5, seed=10**6 + seed)
                model = MomentLogistic().fit(cells.lines(public), counts, sigma=sigma, n_units=len(labels))
                scores.append(float((model.predict(cells.lines(new)) == y_test[order[2000:]]).mean()))
                if scores is accuracies:
                    seconds.append(time.process_time() - start)
        said(f"Adult, {relation}", epsilon, accuracies, seconds)
        said(f"Adult, {relation}, shuffled labels", epsilon, shuffled)
    cells = QuantileCells().fit(test.take(order[:2000]))
    classifier = LogisticRegression(max_iter=300).fit(cells.lines(table), y)
    said("Adult, no privacy, logistic", "none", [classifier.score(cells.lines(new), y_test[order[2000:]])])


def adult_deal(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The private rows and the new ones of one deal, as 0 and 1 in bins of its public rows; for rivals."""
    (table, y), (test, y_test) = (_adult(name) for name in ("adult.data.gz", "adult.test.gz"))
    order = np.random.default_rng(seed).permutation(len(y_test))
    cells = QuantileCells().fit(test.take(order[:2000]))
    new = order[2000:]
    return cells.lines(table) > 0, y, cells.lines(test.take(new)) > 0, y_test[new]


def _adult(name: str) -> tuple[pa.Table, np.ndarray]:
    with gzip.open(folder() / "adult" / name, "rt") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == len(_ADULT)]
    return _typed(_ADULT, rows, _ADULT_LEFT_OUT), np.array(
        [row[-1].startswith(">50K") for row in rows]
    ).astype(int)


def _typed(names: Any, rows: list[list[str]], left_out: set[str]) -> pa.Table:
    """Columns of numbers where every cell is one, otherwise of text; "?" is missing."""
    table: dict[str, Any] = {}
    for place, name in enumerate(names):
        if name not in left_out:
            cells = [None if row[place] == "?" else row[place] for row in rows]
            try:
                table[name] = [None if cell is None else float(cell) for cell in cells]
            except ValueError:
                table[name] = cells
    return pa.table(table)


def diabetes(*, quick: bool) -> None:
    """Readmission within 30 days; one person is protected; 3,000 public patients, a fifth new; delta 1e-6."""
    runs = [_one_hospital(seed) for seed in range(1 if quick else 5)]
    for name, epsilon in runs[0]:
        said(f"diabetes, {name}, AUC", epsilon, [run[name, epsilon] for run in runs])


@lru_cache(maxsize=1)
def _hospitals() -> tuple[pa.Table, np.ndarray, np.ndarray]:
    with gzip.open(folder() / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        names, *rows = list(csv.reader(file))
    for row in rows:  # codes, not amounts
        for name in ("discharge_disposition_id", "admission_type_id", "admission_source_id"):
            row[names.index(name)] = "code " + row[names.index(name)]
    table = _typed(names, rows, {"encounter_id", "patient_nbr", "readmitted"})
    people = np.array([int(row[names.index("patient_nbr")]) for row in rows])
    return table, np.array([row[names.index("readmitted")] == "<30" for row in rows]).astype(int), people


def hospital_deal(seed: int) -> tuple[QuantileCells, tuple[Any, ...], tuple[Any, ...], Any]:
    """Bins of five columns; private encounters, labels and patients; new encounters, labels; public ones."""
    table, y, people = _hospitals()
    dealt = np.random.default_rng(seed).permutation(np.unique(people))
    place = np.empty(people.max() + 1, dtype=int)
    place[dealt] = np.arange(len(dealt))
    rank = place[people]
    public, new = rank < 3000, (rank >= 3000) & (rank < 3000 + len(dealt) // 5)
    private = ~public & ~new
    public_table, fresh, private_features = (table.filter(pa.array(part)) for part in (public, new, private))
    cells = QuantileCells(columns=_DIABETES, least=20).fit(public_table)
    return cells, (private_features, y[private], people[private]), (fresh, y[new]), public_table


def _one_hospital(seed: int) -> dict[tuple[str, object], float]:
    """AUC at each epsilon, and of logistic regression on bins of all columns without privacy."""
    cells, (private_features, y, people), (fresh, y_new), public_table = hospital_deal(seed)
    areas: dict[tuple[str, object], float] = {}
    for relation, epsilon in itertools.product(RELATIONS, (0.25, 0.5, 1.0, 2.0, 4.0)):
        voter = RowVoter(cells=cells, units=_PARTS, relation=relation)
        voter.fit(private_features, y, people, classes=[0, 1])
        counts, sigma = counted(voter, epsilon=epsilon, delta=1e-6, seed=10**6 + seed)
        model = MomentLogistic(penalty=10.0).fit(
            cells.lines(public_table), counts, sigma=sigma, n_units=voter.n_units_
        )
        areas[relation, epsilon] = float(roc_auc_score(y_new, model.predict_proba(cells.lines(fresh))[:, 1]))
    every = QuantileCells(least=20).fit(public_table)
    classifier = LogisticRegression(max_iter=200).fit(every.lines(private_features), y)
    areas["no privacy", "none"] = float(
        roc_auc_score(y_new, classifier.predict_proba(every.lines(fresh))[:, 1])
    )
    return areas


def images(name: str, limit: int = -1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, at most so many, and test images, flattened, with their labels."""
    parts = []
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        with gzip.open(folder() / name / f"{part}-ubyte.gz") as file:
            start, size = (16, 784) if "idx3" in part else (8, 1)
            raw = file.read(start + size * limit if part.startswith("train") and limit >= 0 else -1)
        pixels = np.frombuffer(raw, np.uint8, offset=start)
        parts.append(pixels.reshape(-1, 784) / 255.0 if "idx3" in part else pixels.astype(int))
    return tuple(parts)  # type: ignore[return-value]


def mnist(*, quick: bool, name: str = "mnist") -> None:
    """9,000 public test images, the last 1,000 new, 60,000 private; delta 1e-5; three draws of noise."""
    voter, (public, y_public, new, y_new) = _image_voter(name, quick=quick)
    for epsilon in _IMAGE_EPSILONS:
        right, accuracies = [], []
        for seed in range(3):
            soft = posterior(voter, epsilon=epsilon, seed=10**6 + seed)
            right.append(float((soft.labels_ == y_public).mean()))
            if seed == 0:
                weight = soft.margin_ / soft.margin_.mean()
                student = AugmentedSVM(penalty=5.0).fit(public, soft.labels_, weight)
                accuracies.append(student.score(new, y_new))
        said(f"{name}, labels of public images", epsilon, right)
        said(f"{name}, student without small changes", epsilon, accuracies)


def mnist_fixmatch(*, quick: bool) -> None:
    """FixMatch on the labels of which the posterior is sure; the same rows; every draw is printed."""
    from ostraka.students import FixMatch

    voter, (public, y_public, new, y_new) = _image_voter("mnist", quick=quick)
    for seed in range(1 if quick else 3):
        for epsilon in _IMAGE_EPSILONS[:1] if quick else _IMAGE_EPSILONS:
            sure = posterior(voter, epsilon=epsilon, seed=10**6 + seed).sure_labels()
            answered = sure != ABSTAIN
            right = float((sure == y_public)[answered].mean())
            start = time.process_time()
            student = FixMatch.of_images(public, (28, 28), n_steps=20 if quick else 1500, random_state=seed)
            student.set_params(network__n_threads=1)
            student.fit(public, sure, classes=range(10))
            took = [time.process_time() - start]
            print(f"    draw {seed}: {answered.sum()} labels, of which {right:.4f} are right", flush=True)
            said("mnist, FixMatch, new images", epsilon, [student.score(new, y_new)], took)
            said("mnist, FixMatch, public images", epsilon, [student.score(public, y_public)])


def _image_voter(name: str, *, quick: bool) -> tuple[RowVoter, tuple[np.ndarray, ...]]:
    """The voter of the private images; public ones and new ones with their labels, which only score."""
    X, y, X_test, y_test = images(name)
    n_public, n_private = (1000, 2000) if quick else (9000, len(y))
    start = time.perf_counter()
    cells = GraphCells(image_shape=(28, 28), time=4.0, n_features=60 if quick else 200)
    cells.fit(X_test[:n_public])
    voter = RowVoter(cells=cells).fit(X[:n_private], y[:n_private], classes=range(10))
    print(f"  cells and codes: {time.perf_counter() - start:.0f} s", flush=True)
    return voter, (X_test[:n_public], y_test[:n_public], X_test[9000:], y_test[9000:])


DATA = {
    "digits": digits,
    "adult": adult,
    "diabetes": diabetes,
    "mnist": mnist,
    "mnist-fixmatch": mnist_fixmatch,
}
NAMES: tuple[str, ...] = tuple(DATA)
QUICKLY = False
QUICK = {"NAMES": ("digits",), "QUICKLY": True}


def main() -> None:
    """Run the data sets of NAMES."""
    for name in NAMES:
        print(f"{name}: {(DATA[name].__doc__ or '').splitlines()[0]}", flush=True)
        DATA[name](quick=QUICKLY)


if __name__ == "__main__":
    NAMES, QUICKLY = tuple(name for name in sys.argv[1:] if name != "--quick") or NAMES, "--quick" in sys.argv
    main()

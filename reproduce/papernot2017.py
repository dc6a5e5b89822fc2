"""PATE as Papernot et al. 2017 (arXiv:1610.05755) report it: figures 2 to 4, appendices B and C.

``python -m reproduce.papernot2017 [2] [3] [4] [B] [C] [siamese] [readings] [--out FOLDER]`` prints the
tables, and writes each as JSON and as a figure where a folder is given. The students of figure 4:
``python -m reproduce.papernot2017_students``.
``siamese``: the first attempt of appendix B.2. ``readings``: Diabetes of appendix C under four readings of
what is to be told apart.
Accuracies of noisy labels are exact, not sampled. docs/record/student-reproduction.md says what differs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench._data import folder
from bench._mnist import ensemble, mnist
from ostraka import Adjacency, Budget, Ledger, LNMax, Private, TeacherEnsemble, count_votes, release
from ostraka.accounting import exact_curve, moments2017_curve
from ostraka.learn.students.distil import uncertainty_sampling
from ostraka.networks import TorchClassifier
from reproduce import _drawing

if TYPE_CHECKING:
    from collections.abc import Callable

DELTA, N_CLASSES = 1e-5, 10
QUICK = {"NOISY": (5,), "SIZES": (5,), "FORESTS": 5, "ASKED": (20,), "TREES": 5}
QUICK_ARGUMENTS = ["2", "4"]
GAMMAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # the paper's inverse scale of the Laplace noise
NOISY, SIZES = (10, 100, 250), (5, 10, 25, 50, 100, 250)
DISTILLED, TEMPERATURES = (100, 250, 500, 1000, 2500, 5000, 9000), (1.0, 5.0)
ASKED = (100, 500, 1000)
FIRST, MORE, ROUNDS, SEEDS = 200, 100, 3, 2
LONG = 1500  # steps of a student that learns once
SURE, POSSIBLE = 0.9, 0.1  # scores of the binary experts
SIAMESE, BAR = (200, 500), 4.0  # answers; squared distance at which a pair is as likely alike as not
FORESTS, TREES, N_ASKED, SCALE = 250, 100, 500, 20.0
PAPERS_ROWS = 34_104, 12_702  # of Diabetes, private and others, balanced
READINGS: dict[str, tuple[set[str], set[str]]] = {
    "within thirty days, or not": ({"<30"}, {">30", "NO"}),
    "within thirty days, or never": ({"<30"}, {"NO"}),
    "within thirty days, or later": ({"<30"}, {">30"}),
    "ever, or never": ({"<30", ">30"}, {"NO"}),
}
DIABETES = (
    "gender", "age", "admission_type_id", "discharge_disposition_id", "admission_source_id",
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient",
    "number_emergency", "number_inpatient", "number_diagnoses", "max_glu_serum", "A1Cresult", "insulin",
    "change", "diabetesMed",
)  # fmt: skip


def voted(n_teachers: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Votes on all test images, their labels, and how often one teacher is right."""
    _, public, new = mnist()
    y = np.concatenate([public.y, new.y])
    predictions = ensemble(n_teachers).predictions(np.concatenate([public.X, new.X]))
    return count_votes(predictions, n_classes=N_CLASSES), y, float((predictions == y).mean())


def gaps(counts: np.ndarray) -> np.ndarray:
    """Votes between the most and the second most frequent class."""
    ranked = np.sort(counts, axis=1)
    return ranked[:, -1] - ranked[:, -2]


def figures_2_and_3(sizes: tuple[int, ...]) -> dict[str, Any]:
    """What noise leaves of the labels, and how certain teachers are, by how many they are."""
    records = {}
    print(f"{'teachers':>8} {'one':>6} {'most':>6} {'gap':>6} | " + " ".join(f"{g:>6g}" for g in GAMMAS))
    for n_teachers in sizes:
        counts, y, n_unanimous = voted(n_teachers)
        noisy = [
            float(np.exp(LNMax(scale=1 / gamma).log_outcomes(counts))[np.arange(len(y)), y].mean())
            for gamma in GAMMAS
        ]
        record = {
            "one teacher": n_unanimous,
            "plurality": float((counts.argmax(axis=1) == y).mean()),
            "gap": float(gaps(counts).mean() / n_teachers),
            "noisy": noisy,
        }
        records[str(n_teachers)] = record
        numbers = (n_unanimous, record["plurality"], record["gap"])
        print(
            f"{n_teachers:>8} "
            + " ".join(f"{v:6.3f}" for v in numbers)
            + " | "
            + " ".join(f"{v:6.3f}" for v in noisy),
            flush=True,
        )
    return records


def prices(counts: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Figure 4's epsilon by the paper's mechanism and accountant, and the exact price of the same answers."""
    mechanism, records = LNMax(scale=SCALE), {}
    for n in ASKED:
        rows = np.random.default_rng(0).permutation(len(y))[:n]
        law = np.exp(mechanism.log_outcomes(counts[rows]))
        promised = (n * mechanism.curve()).epsilon(DELTA)  # infinite once float64 alone uses up delta
        records[str(n)] = record = {
            "answers right": float(law[np.arange(n), y[rows]].mean()),
            "epsilon, whatever the votes": promised if math.isfinite(promised) else None,
            "epsilon of 2017": moments2017_curve(mechanism, counts[rows]).epsilon(DELTA),
            "epsilon, exact": exact_curve(mechanism, counts[rows]).epsilon(DELTA),
        }
        print(
            f"{n} answers: " + ", ".join(f"{name} {value:.3f}" for name, value in record.items()), flush=True
        )
    return records


def student(seed: int, *, n_rows: int, steps: int = 600) -> TorchClassifier:
    """Learns from answered rows only, as in appendix B; so many steps whatever their number."""
    size = min(64, n_rows)
    return TorchClassifier(
        "perceptron",
        epochs=max(1, steps * size // n_rows),
        batch_size=size,
        learning_rate=1e-3,
        n_threads=1,
        random_state=seed,
    )


def taught_softly(X: np.ndarray, targets: np.ndarray, *, temperature: float, seed: int) -> TorchClassifier:
    """Distillation (Hinton et al. 2015, arXiv:1503.02531): cross entropy with soft labels, both softened."""
    import torch

    network, soft = student(seed, n_rows=len(X), steps=LONG), torch.as_tensor(targets, dtype=torch.float32)
    network.classes_, network.n_features_in_ = np.arange(N_CLASSES), X.shape[1]

    def loss(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        log_probabilities = torch.log_softmax(logits / temperature, dim=1)
        return -(temperature**2) * (soft[rows] * log_probabilities).sum(dim=1).mean()

    return network.minimise(X, loss, name="soft labels")


def soft_votes(teachers: TeacherEnsemble, X: np.ndarray) -> dict[float, np.ndarray]:
    """The mean of all teachers' probabilities, at each temperature."""
    from scipy.special import softmax

    total = {temperature: np.zeros((len(X), N_CLASSES)) for temperature in TEMPERATURES}
    for teacher in teachers.teachers_:
        weights = {name: np.asarray(tensor) for name, tensor in teacher.model.weights.items()}
        hidden = np.maximum(X @ weights["0.weight"].T + weights["0.bias"], 0)
        logits = hidden @ weights["2.weight"].T + weights["2.bias"]
        for temperature, sums in total.items():
            sums[:, teacher.model.present] += softmax(logits / temperature, axis=1)
    return {temperature: sums / len(teachers.teachers_) for temperature, sums in total.items()}


def distillation(teachers: TeacherEnsemble, counts: np.ndarray) -> dict[str, Any]:
    """B.1: a student of the plurality beside students of whole probability vectors. Without noise."""
    _, public, new = mnist()
    labels = counts.argmax(axis=1)
    soft = soft_votes(teachers, public.X)
    order = np.random.default_rng(0).permutation(len(labels))
    shares: dict[str, list[float]] = {name: [] for name in ("labels", *(f"T = {t:g}" for t in TEMPERATURES))}
    for n in DISTILLED:
        rows = np.sort(order[:n])
        plain = student(0, n_rows=n, steps=LONG).fit(public.X[rows], labels[rows])
        shares["labels"].append(float(plain.score(new.X, new.y)))
        for temperature, targets in soft.items():
            network = taught_softly(public.X[rows], targets[rows], temperature=temperature, seed=0)
            shares[f"T = {temperature:g}"].append(float(network.score(new.X, new.y)))
    show_curves("B.1, answers", DISTILLED, shares)
    return {"answers": DISTILLED, "accuracy": shares}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A student about to ask: all rows, their labels, which of these it knows, and which it may ask about."""

    X: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    others: np.ndarray
    seed: int

    def by_chance(self) -> np.ndarray:
        return np.random.default_rng([self.seed, len(self.rows)]).permutation(self.others)[:MORE]

    def by_confidence(self) -> np.ndarray:
        """Rows whose likeliest class is least likely: "unconfident first"."""
        return self.others[np.argsort(self.said().max(axis=1), kind="stable")[:MORE]]

    def by_margin(self) -> np.ndarray:
        """As :func:`ostraka.students.uncertainty_sampling` chooses."""
        return self.others[uncertainty_sampling(self.said(), n=MORE, among=np.arange(len(self.others)))]

    def by_experts(self) -> np.ndarray:
        """Rows whose own expert is unsure, those first that the most experts think possible."""
        labelled_rows, labels = self.X[self.rows], self.labels[self.rows]
        experts = [
            student(self.seed, n_rows=len(labelled_rows), steps=200).fit(labelled_rows, labels == k)
            for k in range(N_CLASSES)
        ]
        opinions = np.stack([expert.predict_proba(self.X[self.others])[:, 1] for expert in experts], axis=1)
        possible = (opinions > POSSIBLE).sum(axis=1)
        return self.others[np.lexsort((opinions.max(axis=1), -possible, opinions.max(axis=1) >= SURE))[:MORE]]

    def said(self) -> np.ndarray:
        """What a student of the known rows says of the others."""
        model = student(self.seed, n_rows=len(self.rows)).fit(self.X[self.rows], self.labels[self.rows])
        return model.predict_proba(self.X[self.others])


CHOICES: dict[str, Callable[[Asking], np.ndarray]] = {
    "any rows": Asking.by_chance,
    "binary experts": Asking.by_experts,
    "least confident first": Asking.by_confidence,
    "smallest margin first": Asking.by_margin,
}


def active(counts: np.ndarray) -> dict[str, Any]:
    """B.2: what is asked next; answers without noise, as in B.1, and with the noise of the paper."""
    votes = Private(counts, Adjacency.one_ballot())
    answers = [FIRST + MORE * k for k in range(ROUNDS + 1)]
    records = {}
    for noise in (None, LNMax(scale=SCALE)):
        title = "no noise" if noise is None else repr(noise)
        shares = {name: np.zeros((SEEDS, len(answers))) for name in CHOICES}
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            labels = counts.argmax(axis=1) if noise is None else noise.release(votes, rng=rng)
            for name, choose in CHOICES.items():
                shares[name][seed] = learning_curve(labels, choose, seed=seed)
        means = {name: curve.mean(axis=0).tolist() for name, curve in shares.items()}
        show_curves(f"B.2, {title}, answers", answers, means)
        records[title] = {"answers": answers, "accuracy": means}
    return records


def learning_curve(labels: np.ndarray, choose: Callable[[Asking], np.ndarray], *, seed: int) -> list[float]:
    """Accuracy of students of more and more answers."""
    _, public, new = mnist()
    rows = np.random.default_rng(seed).permutation(len(labels))[:FIRST]
    accuracy = []
    for step in range(ROUNDS + 1):
        if step:
            others = np.setdiff1d(np.arange(len(labels)), rows)
            choice = choose(Asking(X=public.X, labels=labels, rows=rows, others=others, seed=seed))
            rows = np.concatenate([rows, choice])
        model = student(seed, n_rows=len(rows)).fit(public.X[rows], labels[rows])
        accuracy.append(float(model.score(new.X, new.y)))
    return accuracy


def siamese() -> dict[str, Any]:
    """B.2: does a network that compares images know which unanswered image is of an answered one's class?

    Two copies of one perceptron turn images into 32 numbers; a logistic model of their squared distance says
    whether two images are of one class. It learns from all pairs of the images that were answered, by the
    labels that the authors saved. An image is matched where its nearest answered image is of its class with
    the stated chance; a student then learns from the matched ones, too.
    """
    import torch

    _, public, new = mnist()
    with np.load(folder() / "pate_votes" / "papernot_mnist_student.npz") as saved:
        labels = saved["student_labels"].astype(np.int64)[: len(public.y)]
    records: dict[str, Any] = {"asked": []}
    for n_asked in SIAMESE:
        rows = np.random.default_rng(0).permutation(len(labels))[:n_asked]
        known_labels = torch.as_tensor(labels[rows])
        twin = TorchClassifier(
            "perceptron",
            epochs=max(1, LONG * 100 // n_asked),
            batch_size=min(100, n_asked),
            learning_rate=1e-3,
            n_threads=1,
            random_state=0,
        )
        twin.classes_, twin.n_features_in_ = np.arange(32), public.X.shape[1]

        def apart(codes: Any, batch: Any, label_tensor: Any = known_labels) -> Any:
            distances = torch.cdist(codes, codes).square()
            pairs = ~torch.eye(len(batch), dtype=torch.bool)
            alike = (label_tensor[batch][:, None] == label_tensor[batch]).float()
            return torch.nn.functional.binary_cross_entropy_with_logits(
                (BAR - distances)[pairs], alike[pairs]
            )

        twin.minimise(public.X[rows], apart, name="siamese")
        labelled_codes, every = twin.logits(public.X[rows]), twin.logits(public.X)
        distances = ((every[:, None] - labelled_codes[None]) ** 2).sum(axis=2)
        nearest, chance = distances.argmin(axis=1), 1 / (1 + np.exp(distances.min(axis=1) - BAR))
        inferred = labels[rows][nearest]
        others = np.setdiff1d(np.arange(len(labels)), rows)
        record: dict[str, Any] = {"asked": n_asked}
        for sure in (0.5, SURE):
            matched = others[chance[others] >= sure]
            pool = np.concatenate([rows, matched])
            training_labels = np.concatenate([labels[rows], inferred[matched]])
            taught = student(0, n_rows=len(pool), steps=LONG).fit(public.X[pool], training_labels)
            record[f"matched at {sure:g}"] = len(matched) / len(others)
            record[f"right at {sure:g}"] = float((inferred[matched] == public.y[matched]).mean())
            record[f"student at {sure:g}"] = float(taught.score(new.X, new.y))
        alone = student(0, n_rows=n_asked, steps=LONG).fit(public.X[rows], labels[rows])
        record["student of the answers alone"] = float(alone.score(new.X, new.y))
        records["asked"].append(record)
        print("siamese: " + ", ".join(f"{name} {value:.3g}" for name, value in record.items()), flush=True)
    return records


def show_curves(title: str, x: Any, curves: dict[str, list[float]]) -> None:
    print(f"{title:>30} " + " ".join(f"{value:>6g}" for value in x))
    for name, values in curves.items():
        print(f"{name:>30} " + " ".join(f"{v:6.3f}" for v in values), flush=True)


def integers(columns: list[np.ndarray]) -> np.ndarray:
    """The paper's only preparation: each category an integer; numbers stay."""
    cells = []
    for column in columns:
        try:
            cells.append(column.astype(np.float64))
        except ValueError:
            cells.append(np.unique(column, return_inverse=True)[1].astype(np.float64))
    return np.stack(cells, axis=1)


def census() -> tuple[np.ndarray, np.ndarray, int, int]:
    """Rows, labels, how many of them are the teachers', and how many of the last the student is scored on."""
    from bench.adult import read

    (cells, y), (test_cells, y_more) = read("adult.data.gz"), read("adult.test.gz")
    table = np.concatenate([cells, test_cells]).astype(str)
    return integers(list(table.T)), np.concatenate([y, y_more]), len(y), 11_282


def readmissions(
    classes: tuple[set[str], set[str]] = ({"<30"}, {">30", "NO"}),
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The same for patients who came back: as many rows of either class, at most as many as the paper has."""
    with gzip.open(folder() / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        lines = list(csv.DictReader(file))
    known_labels = np.array([line["readmitted"] for line in lines])
    rng = np.random.default_rng(0)
    sides = [np.flatnonzero(np.isin(known_labels, list(side))) for side in classes]
    n_each = min(*map(len, sides), sum(PAPERS_ROWS) // 2)
    balanced = rng.permutation(
        np.concatenate([rng.choice(side, size=n_each, replace=False) for side in sides])
    )
    columns = [np.array([lines[row][name] for row in balanced]) for name in DIABETES]
    n_train = round(len(balanced) * PAPERS_ROWS[0] / sum(PAPERS_ROWS))
    return (
        integers(columns),
        np.isin(known_labels[balanced], list(classes[0])).astype(int),
        n_train,
        (len(balanced) - n_train) // 2,
    )


def forests(name: str, table: tuple[np.ndarray, np.ndarray, int, int]) -> dict[str, Any]:
    """Appendix C: 250 forests, 500 answers with Laplace noise of scale 20, and a forest that learns them."""
    from sklearn.ensemble import RandomForestClassifier

    X, y, n_train, n_new = table
    start = time.perf_counter()
    teachers = TeacherEnsemble(RandomForestClassifier(TREES), n_teachers=FORESTS, random_state=0, n_jobs=1)
    teachers.fit(X[:n_train], y[:n_train], classes=[0, 1])
    queries = slice(n_train, n_train + N_ASKED)
    votes = teachers.vote(X[queries])
    mechanism = LNMax(scale=SCALE)
    price = (N_ASKED * mechanism.curve()).epsilon(DELTA)
    ledger = Ledger(":memory:", budget=Budget(epsilon=price * 1.001, delta=DELTA, adaptive=False))
    answers = release(mechanism, votes, ledger=ledger, rng=np.random.default_rng(0))
    learned = RandomForestClassifier(TREES, random_state=0).fit(X[queries], answers)
    alone = RandomForestClassifier(TREES, random_state=0).fit(X[:n_train], y[:n_train])
    counts = votes.open()
    record = {
        "rows": [n_train, len(y) - n_train, n_new],
        "student": float(learned.score(X[-n_new:], y[-n_new:])),
        "plurality, asked": float((counts.argmax(axis=1) == y[queries]).mean()),
        "answers right": float((answers == y[queries]).mean()),
        "non-private": float(alone.score(X[-n_new:], y[-n_new:])),
        "commonest": float(max(np.bincount(y[-n_new:])) / n_new),
        "epsilon, whatever the votes": price,
        "epsilon of 2017": moments2017_curve(mechanism, counts).epsilon(DELTA),
        "epsilon, exact": exact_curve(mechanism, counts).epsilon(DELTA),
        "seconds": time.perf_counter() - start,
    }
    print(
        f"{name}: {n_train:,} private rows, "
        + ", ".join(f"{k} {v:.3f}" for k, v in record.items() if isinstance(v, float)),
        flush=True,
    )
    return record


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["2", "3", "4", "B", "C"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments or [])
    records: dict[str, Any] = {}
    if {"2", "3"} & set(options.parts):
        records["figures 2 and 3"] = figures_2_and_3(SIZES if "3" in options.parts else NOISY)
    if {"4", "B"} & set(options.parts):
        teachers = ensemble(FORESTS)
        counts = teachers.vote(mnist()[1].X).open()
    if "4" in options.parts:
        records["figure 4"] = prices(counts, mnist()[1].y)
    if "B" in options.parts:
        records["B.1"] = distillation(teachers, counts)
        records["B.2"] = active(counts)
    if "C" in options.parts:
        records["C"] = {
            name: forests(name, read()) for name, read in (("Adult", census), ("Diabetes", readmissions))
        }
    if "siamese" in options.parts:
        records["siamese"] = siamese()
    if "readings" in options.parts:
        records["readings"] = {
            name: forests(name, readmissions(classes)) for name, classes in READINGS.items()
        }
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, record in records.items():
            file = options.out / f"001_{name.replace(' ', '_').replace('.', '')}.json"
            file.write_text(json.dumps(record, indent=1) + "\n")
        draw(records, options.out)


def draw(records: dict[str, Any], folder: Path) -> None:
    """Figures 2, 3 and 5, and what is asked next, as far as they were measured."""
    if "figures 2 and 3" in records:
        record = records["figures 2 and 3"]
        noisy = {f"{n} teachers": curve["noisy"] for n, curve in record.items() if int(n) in NOISY}
        certain = {"gap": [entry["gap"] for entry in record.values()]}
        panels = {
            "figure 2": {
                "x": GAMMAS,
                "x label": "gamma = 1 / scale, per vote",
                "y label": "labels right",
                "curves": noisy,
            },
            "figure 3": {
                "x": [int(n) for n in record],
                "x label": "teachers",
                "y label": "gap / teachers",
                "curves": certain,
            },
        }
        _drawing.panels(folder / "001-figures-2-and-3.svg", panels)
    if "B.1" in records:
        known_labels = {
            "B.1": records["B.1"],
            **{f"B.2, {noise}": entry for noise, entry in records["B.2"].items()},
        }
        panels = {
            title: {
                "x": entry["answers"],
                "x label": "answers",
                "y label": "accuracy",
                "curves": entry["accuracy"],
                "scale": "log" if title == "B.1" else "linear",
            }
            for title, entry in known_labels.items()
        }
        _drawing.panels(folder / "001-appendix-B.svg", panels)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

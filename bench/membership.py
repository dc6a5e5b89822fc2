"""Membership statistics on Fashion, CIFAR, Adult and TREC with 2 to 31 references, paired by target.

32 networks with one hidden layer train on rows that independent coins chose. Each of 16 is a target in turn,
with so many of the others as its references. Only rows that some of these have and some have not are scored,
by every method. The interval of a difference between two methods is of a bootstrap over targets. Targets
share rows and references, and no other networks were trained: it holds for these rows only.
"""

from __future__ import annotations

import csv
import gzip
import time

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bench import _data
from bench._data import folder
from bench.adult import LABEL, NUMBERS, read
from ostraka.attacks import ReferenceModels
from ostraka.networks import TorchClassifier
from ostraka.scores import Scores

NETWORKS, TARGETS, HIDDEN, BATCH, DRAWS = 32, 16, 128, 32, 2_000
REFERENCES = (2, 4, 8, 16, 31)
METHODS = ("hierarchical", "lira", "lira-fixed", "rmia", "student-t")
EPOCHS = {"fashion": 20, "cifar": 20, "adult": 60, "trec": 20}
QUICK = {"NETWORKS": 5, "TARGETS": 3, "DRAWS": 20, "REFERENCES": (4,), "EPOCHS": {"trec": 1}}


def fashion() -> tuple[np.ndarray, np.ndarray]:
    """4,000 images, 10 kinds of clothes."""
    files = (("images-idx3", 16, (-1, 784)), ("labels-idx1", 8, (-1,)))
    parts = []
    for name, skip, shape in files:
        with gzip.open(folder() / "fashion_mnist" / f"train-{name}-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=skip).reshape(shape)[:4_000])
    return parts[0] / np.float32(255), parts[1]


def cifar() -> tuple[np.ndarray, np.ndarray]:
    """2,000 images of 3,072 numbers, 10 kinds of things."""
    with np.load(folder() / "cifar10" / "cifar10_5000_2000.npz") as file:
        return file["x_train"][:2_000].reshape(-1, 3072) / np.float32(255), file["y_train"][:2_000]


def adult() -> tuple[np.ndarray, np.ndarray]:
    """4,000 persons, and whether their income is above 50,000."""
    cells, y = read("adult.data.gz")
    cells, y = cells[:4_000], y[:4_000]
    kinds = [column for column in range(LABEL) if column not in NUMBERS]
    encode = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(sparse_output=False), kinds))
    return np.asarray(encode.fit_transform(cells), dtype=np.float32), y


def trec() -> tuple[np.ndarray, np.ndarray]:
    """2,000 questions as bags of the words that occur twice, 6 kinds of answers."""
    with gzip.open(folder() / "trec" / "train.csv.gz", "rt", encoding="utf-8", errors="replace") as file:
        table = [row for row in csv.reader(file) if len(row) == 3][1:][: _data.MOST_ROWS or 2_000]
    bags = CountVectorizer(min_df=2, binary=True).fit_transform([row[2] for row in table])
    return bags.toarray().astype(np.float32), np.array([row[0] for row in table])


def network(n_features: int, n_classes: int) -> object:
    """One hidden layer."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(n_features, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, n_classes)
    )


def trained(name: str, X: np.ndarray, y: np.ndarray, *, epochs: int) -> ReferenceModels:
    """All networks of one data set, on rows without copies."""
    _, first = np.unique(X, axis=0, return_index=True)
    X, y = X[np.sort(first)], y[np.sort(first)]
    start = time.process_time()
    classifier = TorchClassifier(network, epochs=epochs, batch_size=BATCH, n_threads=1)
    models = ReferenceModels(classifier, n_models=NETWORKS, random_state=0).fit(X, y)
    inside, outside = (models.confidences_[chosen].mean() for chosen in (models.included, ~models.included))
    print(
        f"\n{name}: {X.shape[0]:,} rows of {X.shape[1]:,} numbers, mean confidence {inside:.3f} with the row "
        f"and {outside:.3f} without; {NETWORKS} networks in {time.process_time() - start:.0f} s CPU",
        flush=True,
    )
    return models


def rates(models: ReferenceModels, n_references: int) -> dict[str, np.ndarray]:
    """AUC and the true positive rates at 0.1 and 1 %, (n_targets, 3), of each method."""
    rng = np.random.default_rng(n_references)
    rates_by_method: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    for target in range(TARGETS):
        others = rng.choice(np.delete(np.arange(NETWORKS), target), n_references, replace=False)
        included = models.included[others]
        split = included.any(axis=0) & ~included.all(axis=0)
        references = ReferenceModels.from_confidences(
            models.confidences_[others][:, split], included[:, split]
        )
        member, target_says = models.included[target, split], models.confidences_[target, split]
        for method in METHODS:
            statistics = references.statistics(target_says, method=method)
            scores = Scores.of(members=statistics[member], others=statistics[~member])
            rates_by_method[method].append([scores.auc(), scores.tpr(fpr=0.001), scores.tpr(fpr=0.01)])
    return {method: np.array(method_rates) for method, method_rates in rates_by_method.items()}


def against_the_best(rates: dict[str, np.ndarray], column: int) -> str:
    """The hierarchical statistic less the best other one by its mean, and a 95 % interval over targets."""
    means = {
        method: method_rates[:, column].mean()
        for method, method_rates in rates.items()
        if method != "hierarchical"
    }
    best = max(means, key=lambda method: means[method])
    gaps = rates["hierarchical"][:, column] - rates[best][:, column]
    draws = np.random.default_rng(0).integers(len(gaps), size=(DRAWS, len(gaps)))
    low, high = np.quantile(gaps[draws].mean(axis=1), (0.025, 0.975))
    verdict = "below" if high < 0 else "above" if low > 0 else "equal"
    return f"{gaps.mean():+.4f} ({low:+.4f} to {high:+.4f}) against {best}: {verdict}"


def main() -> None:
    """All data sets."""
    for name, epochs in EPOCHS.items():
        models = trained(name, *globals()[name](), epochs=epochs)
        for n_references in REFERENCES:
            table = rates(models, n_references)
            print(f"  {n_references} references")
            for method, method_rates in table.items():
                auc, strict, usual = method_rates.mean(axis=0)
                print(f"    {method}: AUC {auc:.3f}, TPR at 0.1 % {strict:.2%}, at 1 % {usual:.2%}")
            for column, what in enumerate(("AUC", "TPR at 0.1 %", "TPR at 1 %")):
                print(f"    hierarchical, {what}: {against_the_best(table, column)}", flush=True)

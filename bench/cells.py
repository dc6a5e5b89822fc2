"""Accuracy of labels of public rows by ``GraphCells``, by ``FeatureCells`` and by features wholly whitened.

All rows are training rows, since the rule by which ``PATEClassifier`` chooses cells was set on them: images
of MNIST and Fashion-MNIST, and texts of TREC and AG News as 150 components of words and pairs of words. They
are split into public and private rows with seed 100. A line has three numbers, one for each kind of cells:
the share of public rows which get their true label, a mean over three draws of noise. ``FeatureCells``
whitens features by half; the third number is of a subclass which whitens them wholly. ``*`` marks lines
where ``PATEClassifier`` takes ``FeatureCells`` by default. Delta is 1e-5. Noise is seeded: a simulation.
"""

from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from bench import _data
from bench._data import folder
from bench.utility import images, posterior
from ostraka.learn.ways.choose import best_cells
from ostraka.learn.ways.plan import Facts
from ostraka.voters import GraphCells, RowVoter
from ostraka.voters.rows import FeatureCells

if TYPE_CHECKING:
    from collections.abc import Iterator

DEAL, DRAWS = 100, 3
N_PRIVATE: tuple[int, ...] = (3000, 20_000)
EPSILONS: tuple[float, ...] = (0.25, 1.0, 4.0)
N_PUBLIC = {"TREC": (1500,), "AG News": (1000, 2000), "MNIST": (350, 1000, 3000), "Fashion": (1000, 3000)}
QUICK = {"DRAWS": 1, "N_PRIVATE": (300,), "EPSILONS": (4.0,), "N_PUBLIC": {"TREC": (100,)}}


class WhitenedCells(FeatureCells):
    """Features that are wholly whitened."""

    whitening_power: ClassVar[float] = 0.5


def main() -> None:
    """All data sets, numbers of public and of private rows, and budgets."""
    for name, sizes in N_PUBLIC.items():
        for n_public in sizes:
            for line in compared(name, n_public):
                print(line, flush=True)


def compared(name: str, n_public: int) -> Iterator[str]:
    """A line for each number of private rows and each epsilon."""
    X, y = rows_of(name, n_public)
    public, truth, n_classes = X[:n_public], y[:n_public], int(y.max()) + 1
    kinds: list[Any] = [cells.fit(public) for cells in (GraphCells(), FeatureCells(), WhitenedCells())]
    for n in sorted({min(size, len(y) - n_public) for size in N_PRIVATE}):
        private = slice(n_public, n_public + n)
        voters = [
            RowVoter(cells=cells).fit(X[private], y[private], classes=range(n_classes)) for cells in kinds
        ]
        for epsilon in EPSILONS:
            accuracies = [accuracy(voter, epsilon, truth) for voter in voters]
            facts = Facts(n_units=n, n_classes=n_classes, grouped=False, epsilon=epsilon, delta=1e-5)
            mark = "*" if isinstance(best_cells(None, public, facts)[0], FeatureCells) else " "
            yield f"  {mark} {name:<8} {n_public} public, {n} private, epsilon {epsilon:<5} " + " ".join(
                f"{each:.3f}" for each in accuracies
            )


def accuracy(voter: RowVoter, epsilon: float, truth: np.ndarray) -> float:
    """Share of public rows which get their true label, a mean over draws of noise."""
    draws = (posterior(voter, epsilon=epsilon, seed=draw) for draw in range(DRAWS))
    return float(np.mean([(soft.labels_ == truth).mean() for soft in draws]))


def rows_of(name: str, n_public: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows as numbers, public ones first, and labels."""
    limit = _data.MOST_ROWS or n_public + max(N_PRIVATE)
    if name in {"MNIST", "Fashion"}:
        X, y, _, _ = images({"MNIST": "mnist", "Fashion": "fashion_mnist"}[name])
        order = np.random.default_rng(DEAL).permutation(len(y))[:limit]
        return X[order], y[order]
    path, column, kind = {"TREC": ("trec", 2, 0), "AG News": ("ag_news", 1, 0)}[name]
    with gzip.open(folder() / path / "train.csv.gz", "rt", encoding="utf-8") as file:
        table = list(csv.reader(file))[1:]
    table = [table[row] for row in np.random.default_rng(DEAL).permutation(len(table))[:limit]]
    texts, y = [row[column] for row in table], np.unique([row[kind] for row in table], return_inverse=True)[1]
    words = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[?!]", min_df=2
    )
    embedding = make_pipeline(words, TruncatedSVD(min(150, n_public // 2), random_state=0)).fit(
        texts[:n_public]
    )
    return np.asarray(normalize(embedding.transform(texts))), y


if __name__ == "__main__":
    main()

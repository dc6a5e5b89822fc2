"""Where ballots go: the graph of public rows, or features of each row's own, on rows that choose settings.

Training images of MNIST and Fashion-MNIST, training texts of TREC and of AG News,
as 150 components of words and pairs of words, deal 100 of each. A line has the share of public rows
whose label is right, over three draws of noise: by ``GraphCells``, by ``FeatureCells``, and by features that
are wholly whitened. ``*`` marks lines where ``PATEClassifier`` takes features unasked: the rule was chosen
here. Delta is 1e-5. Noise is seeded: a simulation.
"""

from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from bench import _data
from bench._data import folder
from bench.utility import counted, images
from ostraka.pate._cells import Facts, best_cells
from ostraka.students import SmoothedCounts
from ostraka.voters import GraphCells, RowVoter, features
from ostraka.voters.features import FeatureCells
from ostraka.voters.rows import own_features

if TYPE_CHECKING:
    from collections.abc import Iterator

DEAL, DRAWS = 100, 3
N_PRIVATE: tuple[int, ...] = (3000, 20_000)
EPSILONS: tuple[float, ...] = (0.25, 1.0, 4.0)
N_PUBLIC = {"TREC": (1500,), "AG News": (1000, 2000), "MNIST": (350, 1000, 3000), "Fashion": (1000, 3000)}
QUICK = {"DRAWS": 1, "N_PRIVATE": (300,), "EPSILONS": (4.0,), "N_PUBLIC": {"TREC": (100,)}}


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
    kinds: list[Any] = [GraphCells().fit(public)]
    for power in (features._WHITENED, 0.5):  # noqa: SLF001  (the setting that is compared)
        with_power, features._WHITENED = features._WHITENED, power  # noqa: SLF001
        kinds.append(FeatureCells().fit(public))
        features._WHITENED = with_power  # noqa: SLF001
    for n in sorted({min(each, len(y) - n_public) for each in N_PRIVATE}):
        own = slice(n_public, n_public + n)
        voters = [RowVoter(cells=cells).fit(X[own], y[own], classes=range(n_classes)) for cells in kinds]
        for epsilon in EPSILONS:
            found = [
                np.mean([(labels(voter, epsilon, k) == truth).mean() for k in range(DRAWS)])
                for voter in voters
            ]
            facts = Facts(n_units=n, n_classes=n_classes, grouped=False, epsilon=epsilon, delta=1e-5)
            mark = "*" if isinstance(best_cells(None, public, facts)[0], FeatureCells) else " "
            yield f"  {mark} {name:<8} {n_public} public, {n} private, epsilon {epsilon:<5} " + " ".join(
                f"{each:.3f}" for each in found
            )


def labels(voter: RowVoter, epsilon: float, seed: int) -> np.ndarray:
    """Labels of the public rows from one release."""
    cells: Any = voter.cells
    counts, sigma = counted(voter, epsilon=epsilon, delta=1e-5, seed=seed)
    own = own_features(cells)
    lines, size = (cells.features_, cells.resolution) if own else (cells.codebooks_[0], 1)
    soft = SmoothedCounts().fit(
        lines, counts / size, sigma=sigma / size, n_units=voter.n_units_, features=cells.features_
    )
    return soft.labels_


def rows_of(name: str, n_public: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows as numbers, public ones first, and labels."""
    most = _data.MOST_ROWS or n_public + max(N_PRIVATE)
    if name in {"MNIST", "Fashion"}:
        X, y, _, _ = images({"MNIST": "mnist", "Fashion": "fashion_mnist"}[name])
        order = np.random.default_rng(DEAL).permutation(len(y))[:most]
        return X[order], y[order]
    path, column, kind = {"TREC": ("trec", 2, 0), "AG News": ("ag_news", 1, 0)}[name]
    with gzip.open(folder() / path / "train.csv.gz", "rt", encoding="utf-8") as file:
        table = list(csv.reader(file))[1:]
    table = [table[row] for row in np.random.default_rng(DEAL).permutation(len(table))[:most]]
    texts, y = [row[column] for row in table], np.unique([row[kind] for row in table], return_inverse=True)[1]
    words = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[?!]", min_df=2
    )
    made = make_pipeline(words, TruncatedSVD(min(150, n_public // 2), random_state=0)).fit(texts[:n_public])
    return np.asarray(normalize(made.transform(texts))), y


if __name__ == "__main__":
    main()

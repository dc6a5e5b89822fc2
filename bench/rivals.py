"""Rivals on digits, Diabetes 130 by patient and TREC: logistic regression by DP-SGD, on the features of ours.

Digits (delta 1e-4) and diabetes (1e-6) have the rows of ``bench utility``; there a rival gets the first
encounter of each patient, so that one row is one patient. TREC (1e-5): 1,500 questions of the training file
are public and keep no label, the other 3,952 are private, the 500 of the test file are new, and features are
100 components of words and pairs of words of the public questions. The rival is Opacus with the clip and the
learning rate that are best **on the reported rows**; its neighbours add or remove a row. Without Opacus only
ours runs.
``python -m bench.rivals FOLDER`` also writes the deals for ``python -m bench.dp_logistic FOLDER``.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from bench import _data, dp_sgd
from bench._data import folder
from bench._ways import as_lines, each_way
from bench.dp_logistic import scored
from bench.utility import hospital_deal, said
from ostraka.voters import GraphCells

if TYPE_CHECKING:
    from collections.abc import Iterator

EPSILONS = (0.5, 1.0, 2.0)
RATES = (
    (1.0, 0.03),
    (1.0, 0.1),
    (1.0, 0.5),
    (1.0, 2.0),
    (1.0, 8.0),
    (0.3, 0.4),
    (0.3, 1.7),
    (0.3, 7.0),
)  # after the clip
DEALS = {"trec": 10, "digits": 5, "diabetes": 2}
RIVAL_DEALS = 3
DELTAS = {"digits": 1e-4, "trec": 1e-5, "diabetes": 1e-6}
FOLDER: str | None = None
N_PUBLIC, N_COMPONENTS = 1500, 100
QUICK = {"DEALS": {"digits": 1, "trec": 1}, "EPSILONS": (1.0,), "N_PUBLIC": 200, "N_COMPONENTS": 20}


class Deal(NamedTuple):
    """Private rows of a length that is known beforehand, and new ones."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    longest: float


def main() -> None:
    """Ours on TREC, and the rival on all."""
    for name, n_deals in DEALS.items():
        deals = list(DATA[name](n_deals))
        if FOLDER is not None:
            for k, deal in enumerate(deals[:RIVAL_DEALS]):
                np.savez(Path(FOLDER) / f"{name}-{k}.npz", **deal._asdict())
        if importlib.util.find_spec("opacus") is None:
            print(f"  {name}: Opacus is not installed (docs/when-not.md)")
        else:
            rival(name, deals[:RIVAL_DEALS])


def digits(n_deals: int) -> Iterator[Deal]:
    """Features of the nearest public image in the graph, as ours have."""
    X, y = load_digits(return_X_y=True)
    for deal in range(n_deals):
        public, new, private = np.split(np.random.default_rng(deal).permutation(len(y)), [350, 500])
        cells = GraphCells(image_shape=(8, 8), time=4.0).fit(X[public])
        lines = cells.codebooks_[0] / cells.resolution
        rows, fresh = (lines[cells.codes(X[part])[:, 0]] for part in (private, new))
        yield Deal(rows, y[private], fresh, y[new], 1.0)


def diabetes(n_deals: int) -> Iterator[Deal]:
    """The first encounter of each private patient, all encounters of new ones, in bins of five columns."""
    for seed in range(n_deals):
        cells, (private_features, y, people), (fresh, y_new), _ = hospital_deal(seed)
        first = np.unique(people, return_index=True)[1]
        rows, new = cells.lines(private_features)[first], cells.lines(fresh)
        yield Deal(
            (rows > 0).astype(float), y[first], (new > 0).astype(float), y_new, len(cells.columns) ** 0.5
        )


def trec(n_deals: int) -> Iterator[Deal]:
    """Six kinds of questions; prints what ours learns."""
    (texts, y), (new, truth) = questions("train"), questions("test")
    accuracies: dict[tuple[str, float], list[float]] = {}
    mixed: dict[str, list[float]] = {}
    for deal in range(n_deals):
        public, private = np.split(np.random.default_rng(deal).permutation(len(texts)), [N_PUBLIC])
        public_texts = [texts[row] for row in public]
        words = TfidfVectorizer(
            ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[?!]", min_df=2
        )
        features = make_pipeline(words, TruncatedSVD(N_COMPONENTS, random_state=0)).fit(public_texts)
        public_features, private_features = (
            features.transform(part_texts) for part_texts in (public_texts, [texts[row] for row in private])
        )
        fresh = features.transform(new)
        voters = partial(each_way, public_features, private_features, fresh=fresh, n_features=N_COMPONENTS)
        for voting in voters(y[private]):
            for epsilon in (*EPSILONS, 20.0):
                right = voting.right(epsilon, 10**6 + deal, truth).mean()
                accuracies.setdefault((voting.name, epsilon), []).append(float(right))
        for voting in voters(np.random.default_rng(0).permutation(y[private])):
            right = voting.right(1.0, 10**6 + deal, truth).mean()
            mixed.setdefault(voting.name, []).append(float(right))
        rows, fresh = (
            as_lines(public_features, part, n_features=N_COMPONENTS) for part in (private_features, fresh)
        )
        yield Deal(rows, y[private], fresh, truth, 1.0)
    for (name, epsilon), shares in accuracies.items():
        said(f"TREC, {name}", epsilon, shares)
    for name, shares in mixed.items():
        said(f"TREC, shuffled labels, {name}", 1.0, shares)


def questions(name: str) -> tuple[list[str], np.ndarray]:
    """TREC's questions, and which of six kinds each is."""
    with gzip.open(folder() / "trec" / f"{name}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))[: _data.MOST_ROWS]
    kinds = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    return [row["text"] for row in rows], np.array([kinds.index(row["coarse"]) for row in rows])


def rival(name: str, deals: list[Deal]) -> None:
    """Logistic regression by DP-SGD, one training for each clip, learning rate and deal."""
    for epsilon in EPSILONS:
        scores, start = {}, time.process_time()
        for clip, rate in RATES:
            accuracies = [
                _trained(name, deal, epsilon=epsilon, clip=clip, rate=rate, seed=k)
                for k, deal in enumerate(deals)
            ]
            scores[clip, rate] = accuracies
            print(
                f"    Opacus, {name}, {epsilon:g}, clip {clip:g}, rate {rate:g}: {np.mean(accuracies):.4f}",
                flush=True,
            )
        best = max(scores.values(), key=lambda accuracies: float(np.mean(accuracies)))
        said(f"Opacus, {name}", epsilon, best, [time.process_time() - start])


def _trained(name: str, deal: Deal, *, epsilon: float, clip: float, rate: float, seed: int) -> float:
    import torch

    network: Any = dp_sgd.linear(deal.X.shape[1], int(deal.y.max()) + 1)
    scaled = deal.X / deal.longest
    dp_sgd.private_fit(
        network,
        scaled,
        deal.y,
        epsilon=epsilon,
        rate=rate,
        name=name,
        seed=seed,
        delta=DELTAS[name],
        clip=clip,
    )
    with torch.no_grad():
        scores = network(torch.as_tensor(deal.X_new / deal.longest, dtype=torch.float32)).numpy()
    return scored(scores, deal.y_new)


DATA = {"digits": digits, "trec": trec, "diabetes": diabetes}

if __name__ == "__main__":
    FOLDER = sys.argv[1] if len(sys.argv) > 1 else None
    main()

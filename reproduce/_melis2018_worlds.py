"""Data at hand for chapter 7 of Melis 2018, and an observer beside a party with the property."""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bench._data import folder
from bench.adult import read
from ostraka.attacks import Collaboration, PropertyInference
from ostraka.audit.attacks.parties import NoisySum, PartyRows
from ostraka.networks import TorchClassifier

if TYPE_CHECKING:
    from ostraka.audit.attacks.parties import Observations

ROUNDS, BATCH, RATE, WIDTH = 240, 64, 0.05, 32
EPSILON, DELTA = 8.0, 1e-5  # for a whole party
RACE, SEX, MARITAL, FINAL_WEIGHT = 8, 9, 5, 2
NUMBERS = (0, 4, 10, 11, 12)
SOURCE = "reuters"


def noisy_sum(rounds: int, *, clip: float) -> NoisySum:
    """With the smallest noise on a grid whose rounds cost no more than epsilon."""
    for multiplier in np.geomspace(0.5, 100, 200):
        noisy = NoisySum(clip=clip, noise_multiplier=float(multiplier))
        if (rounds * noisy.curve()).epsilon(delta=DELTA) <= EPSILON:
            return noisy
    raise ValueError("no noise on the grid is enough")


class Task(NamedTuple):
    """Rows, labels of the main task, and the property that it is not about."""

    X: np.ndarray
    y: np.ndarray
    has: np.ndarray

    @property
    def correlation(self) -> float:
        """Of the main label and the property; the largest of a class, for several classes."""
        correlations = [np.corrcoef(self.y == code, self.has)[0, 1] for code in np.unique(self.y)[1:]]
        return float(max(correlations, key=abs))


def adult(*, main: str = "income", inferred: str = "black") -> Task:
    """Features without race, sex and what is learned or inferred; income, or another column."""
    cells, y = read("adult.data.gz")
    attributes = {
        "income": y == 1,
        "black": cells[:, RACE] == "Black",
        "woman": cells[:, SEX] == "Female",
        "married": cells[:, MARITAL] == "Married-civ-spouse",
    }
    hidden = {RACE, SEX, FINAL_WEIGHT}
    if "married" in (main, inferred):
        hidden |= {MARITAL, 7}  # the relationship says it, too
    kinds = [column for column in range(14) if column not in NUMBERS and column not in hidden]
    encode = make_column_transformer(
        (StandardScaler(), list(NUMBERS)),
        (
            OneHotEncoder(sparse_output=False, min_frequency=50, handle_unknown="infrequent_if_exist"),
            kinds,
        ),
    )
    X = np.asarray(encode.fit_transform(cells), dtype=np.float32)
    return Task(X, attributes[main].astype(int), attributes[inferred])


@cache
def _texts(name: str) -> list[tuple[str, list[str]]]:
    """Labels and words of AG News or TREC."""
    with gzip.open(folder() / name / "train.csv.gz", "rt", encoding="utf-8", errors="replace") as file:
        table = [row for row in csv.reader(file) if len(row) > 1][1:]
    return [(min(row, key=len), re.findall(r"[a-z]+", max(row, key=len).lower())) for row in table]


def news(*, n_words: int = 4_000) -> Task:
    """Which of the most frequent words are in a report of AG News; topic; whether Reuters reported it.

    The names of agencies are no features. Of words in as many reports, the first of the alphabet come first.
    """
    texts = _texts("ag_news")
    counts = Counter(word for _, words in texts for word in set(words) if word not in {SOURCE, "ap", "afp"})
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:n_words]
    place = {word: number for number, word in enumerate(frequent)}
    X = np.zeros((len(texts), len(place)), dtype=np.float32)
    for row, (_, words) in enumerate(texts):
        X[row, [place[word] for word in words if word in place]] = 1.0
    topics = sorted({topic for topic, _ in texts})
    y = np.array([topics.index(topic) for topic, _ in texts])
    return Task(X, y, np.array([SOURCE in words for _, words in texts]))


def faces() -> Task:
    """Small faces of ORL: whether the person's number is odd; property, one of eight of the forty people."""
    with np.load(folder() / "orl_faces" / "orl_faces.npz") as saved:
        X, who = saved["images"][:, ::4, ::4].reshape(400, -1) / np.float32(127.5) - 1, saved["subject"]
    return Task(X.astype(np.float32), who.astype(int) % 2, np.isin(who % 10, (0, 1)))


def clothes() -> Task:
    """Images of Fashion: for feet or not; property, sneakers and T-shirts."""
    with gzip.open(folder() / "fashion_mnist" / "train-images-idx3-ubyte.gz") as file:
        X = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784) / np.float32(255)
    with gzip.open(folder() / "fashion_mnist" / "train-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)
    X, y = X[:10_000], y[:10_000]
    return Task(X, np.isin(y, (5, 7, 9)).astype(int), np.isin(y, (0, 7)))


def pictures() -> Task:
    """The subset of CIFAR-10, every second pixel: animal or vehicle; property, birds and ships."""
    with np.load(folder() / "cifar10" / "cifar10_5000_2000.npz") as saved:
        X, y = saved["x_train"][:, ::2, ::2].reshape(5000, -1) / np.float32(127.5) - 1, saved["y_train"]
    return Task(X.astype(np.float32), np.isin(y, (0, 1, 8, 9)).astype(int), np.isin(y, (2, 8)))


def perceptron(n_features: int, n_classes: int, *, dropout: float = 0.0) -> Any:
    """One hidden layer."""
    import torch

    hidden = [torch.nn.Linear(n_features, WIDTH), torch.nn.ReLU()]
    if dropout:
        hidden.append(torch.nn.Dropout(dropout))
    return torch.nn.Sequential(*hidden, torch.nn.Linear(WIDTH, n_classes))


class World(NamedTuple):
    """A collaboration, as its observer sees it, and the observer's attack."""

    run: Observations
    attack: PropertyInference
    accuracy: float  # of rows that nobody trained on; NaN if none were kept
    own: Task  # the observer's rows


def world(
    task: Task,
    *,
    n_parties: int,
    quick: bool,
    schedule: np.ndarray | None = None,
    joins: int = 0,
    share: float = 1.0,
    seed: int = 0,
    n_kept: int = 0,
    dropout: float = 0.0,
    rate: float = RATE,
    main_weight: float | None = None,
    **settings: Any,
) -> World:
    """The observer, one party with the property, and others without it learn the main task."""
    X, y, has = task
    rounds = 20 if quick else ROUNDS
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    others_kept, order = order[:n_kept], order[n_kept:]
    ours, remainder = np.array_split(order, 2)
    target, others = np.array_split(remainder, 2)
    others = others[~has[others]]
    schedule = rng.permutation(np.arange(rounds) % 2) * share if schedule is None else schedule
    mine = {} if main_weight is None else {"has_property": has[ours]}
    parties = [
        PartyRows(X=X[ours], y=y[ours], **mine),
        PartyRows(X=X[target], y=y[target], has_property=has[target], schedule=schedule, joins=joins),
        *(PartyRows(X=X[p], y=y[p]) for p in np.array_split(others, max(n_parties - 2, 1))[: n_parties - 2]),
    ]
    network = TorchClassifier(
        partial(perceptron, dropout=dropout),
        batch_size=BATCH,
        learning_rate=rate,
        random_state=seed,
        n_threads=1,
    )
    together = Collaboration(network, n_rounds=rounds, random_state=seed, **settings)
    run = together.fit(parties, observer=0, main_weight=main_weight)
    forest = RandomForestClassifier(50, random_state=0)
    attack = PropertyInference(forest, n_batches=2 if quick else 8, random_state=seed)
    rows = [(X[part], y[part]) for part in (ours[has[ours]], ours[~has[ours]])]
    accuracy = (
        float((run.network.predict(X[others_kept]) == y[others_kept]).mean()) if n_kept else float("nan")
    )
    return World(
        run,
        attack.fit(run, rows[0], rows[1]),
        accuracy,
        Task(X[ours], y[ours], has[ours]),
    )

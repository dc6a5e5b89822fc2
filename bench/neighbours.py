"""Private-kNN on Fashion-MNIST and SST-2, at publishable epsilon, beside 250 teachers on the same features.

Features need no download: edge directions of images, and tf-idf of sentences, both reduced by what public
rows show. A thousand questions (872 on SST-2), delta 1e-5. Settings of Chadha et al. 2024 (k 200, sampling
rate 0.2, sigma 30 and 20), and noise calibrated to round epsilons. Samples and noise are the operating
system's. Last, the exact cost for the sentences at hand, which only their owner may see.
"""

from __future__ import annotations

import csv
import gzip
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bench import _data
from bench._data import folder
from ostraka import ABSTAIN, Budget, GNMax, Ledger, TeacherEnsemble, Threshold, confident, release
from ostraka.accounting import calibrate
from ostraka.mechanisms import Subsampled
from ostraka.voters import NeighbourVoter

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka import Private

DELTA = 1e-5
K, RATE = 200, 0.2
TEACHERS, TEACHERS_SIGMA = 250, 40.0
DRAWS, OWNED = 5, 10
QUICK = {"EPSILONS": (1.0,), "DRAWS": 1, "OWNED": 1, "K": 20, "SETTINGS": ((20, 0.2),), "TEACHERS": 10}
SETTINGS = ((K, RATE), (K, 0.05), (50, 0.05))
EPSILONS = (0.1, 0.25, 0.5, 1.0)
PARTS = ("images-idx3", "labels-idx1")


def images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [0, 1], one row an image, and labels."""
    raw = [
        gzip.decompress((folder() / "fashion_mnist" / f"{name}-{part}-ubyte.gz").read_bytes())
        for part in PARTS
    ]
    pixels, labels = (np.frombuffer(b, np.uint8, offset=4 + 4 * b[3]) for b in raw)
    return pixels.reshape(len(labels), -1) / np.float32(255), labels.astype(int)


def edges(pixels: np.ndarray) -> np.ndarray:
    """How much of each of 8 edge directions there is in each of 49 squares (after Dalal and Triggs 2005)."""
    squares = np.asarray(pixels, dtype=np.float32).reshape(-1, 28, 28)
    down, right = np.gradient(squares, axis=(1, 2))
    length, turn = np.hypot(down, right), np.arctan2(down, right) % np.pi * (8 / np.pi)
    shares = [
        (length * np.clip(1 - np.abs((turn - at + 4) % 8 - 4), 0, None)).reshape(-1, 7, 4, 7, 4).sum((2, 4))
        for at in range(8)
    ]
    table = np.stack(shares, axis=-1)
    return np.sqrt(table / (table.sum(axis=-1, keepdims=True) + 0.3)).reshape(len(squares), -1)


def sentences(name: str) -> tuple[list[str], np.ndarray]:
    """Sentences and whether they praise."""
    with gzip.open(folder() / "sst2" / f"{name}.tsv.gz", "rt") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows if row[-1] in {"0", "1"}][: _data.MOST_ROWS]
    return [row[0] for row in rows], np.array([int(row[-1]) for row in rows])


def fashion() -> dict[str, Any]:
    """60,000 private images; of the 10,000 others 5,000 shape the features and 1,000 are asked."""
    (X, y), (X_open, y_open) = images("train"), images("t10k")
    X, y = X[: _data.MOST_ROWS], y[: _data.MOST_ROWS]
    return {
        "X": X,
        "y": y,
        "asked": X_open[5000:6000],
        "truth": y_open[5000:6000],
        "transformer": make_pipeline(FunctionTransformer(edges), PCA(64, random_state=0)).fit(
            X_open[:5000][: _data.MOST_ROWS]
        ),
        "metric": "euclidean",
        "sigma": 30.0,
    }


def sst2() -> dict[str, Any]:
    """A quarter of the training sentences, without labels, shapes the features; the others are private."""
    (texts, y), (questions, truth) = sentences("train"), sentences("dev")
    order = np.random.default_rng(0).permutation(len(texts))
    public, private = np.split(order, [len(order) // 4])
    transformer = make_pipeline(
        TfidfVectorizer(min_df=2, sublinear_tf=True), TruncatedSVD(50, random_state=0)
    ).fit([texts[at] for at in public])
    return {
        "X": [texts[at] for at in private],
        "y": y[private],
        "asked": questions,
        "truth": truth,
        "transformer": transformer,
        "metric": "cosine",
        "sigma": 20.0,
    }


def answered(
    votes: Private, truth: np.ndarray, ask: Callable[[Private, Ledger], np.ndarray]
) -> tuple[float, float, float]:
    """Accuracy of what was answered, its share, and epsilon: means over draws of sample and noise."""
    answers = []
    for _ in range(DRAWS):
        with Ledger(":memory:", budget=Budget(epsilon=100.0, delta=DELTA)) as ledger:
            labels = ask(votes, ledger)
            is_answered = labels != ABSTAIN
            answers.append(((labels == truth)[is_answered].mean(), is_answered.mean(), ledger.epsilon()))
    accuracy, share, epsilon = np.mean(answers, axis=0)
    return float(accuracy), float(share), float(epsilon)


def sampled(sigma: float, rate: float) -> Subsampled:
    return Subsampled(mechanism=GNMax(sigma=sigma), sampling_rate=rate)


def line(name: str, result: tuple[float, float, float]) -> None:
    accuracy, share, epsilon = result
    print(f"  {name:52} epsilon {epsilon:6.3f}  answered {share:6.1%}  right {accuracy:6.1%}", flush=True)


def neighbours(data: dict[str, Any], k: int, rate: float) -> Private:
    """The votes, and what they would say without noise."""
    start = time.perf_counter()
    voter = NeighbourVoter(k=k, sampling_rate=rate, metric=data["metric"])
    votes = voter.fit(data["X"], data["y"], classes=np.unique(data["y"])).vote(data["asked"])
    search = time.perf_counter() - start
    start = time.perf_counter()
    plain = votes.open().argmax(axis=1)  # the owner's view: no noise
    draw = time.perf_counter() - start
    right = (plain == data["truth"]).mean()
    print(f"  k {k}, rate {rate}: no noise {right:.1%}; fit and search {search:.1f} s, one draw {draw:.2f} s")
    return votes


def compared(data: dict[str, Any]) -> None:
    """The paper's setting with and without a screen, and calibrated noise for three others."""
    truth, n = data["truth"], len(data["truth"])
    for k, rate in SETTINGS:
        votes = neighbours(data, k, rate)
        if (k, rate) == (K, RATE):
            as_published(votes, truth, data["sigma"])
        for epsilon in EPSILONS:
            sigma = calibrate(lambda s, q=rate: sampled(s, q), n_answers=n, epsilon=epsilon, delta=DELTA)
            mechanism = sampled(sigma, rate)
            result = answered(votes, truth, lambda v, b, m=mechanism: release(m, v, ledger=b))
            line(f"k {k}, rate {rate}, sigma {sigma:.1f}", result)


def as_published(votes: Private, truth: np.ndarray, sigma: float) -> None:
    """Chadha et al. 2024, and the same behind a screen, which has samples of its own."""
    argmax = sampled(sigma, RATE)
    result = answered(votes, truth, lambda v, b: release(argmax, v, ledger=b))
    line(f"k {K}, rate {RATE}, sigma {sigma:.1f}, as in the paper", result)
    screen = Subsampled(mechanism=Threshold(at=0.6 * K, sigma=60.0), sampling_rate=RATE)
    result = answered(votes, truth, lambda v, b: confident(v, screen=screen, argmax=argmax, ledger=b))
    line(f"the same behind a screen at {0.6 * K:.0f}, sigma 60", result)


def owners(data: dict[str, Any], n: int) -> None:
    """The exact cost of the first questions, for these rows."""
    voter = NeighbourVoter(k=K, sampling_rate=RATE, metric=data["metric"])
    voter.fit(data["X"], data["y"], classes=np.unique(data["y"]))
    start = time.perf_counter()
    exact = voter.exact_curve(data["asked"][:n], mechanism=GNMax(sigma=data["sigma"]))
    seconds = (time.perf_counter() - start) / n
    price = n * sampled(data["sigma"], RATE).curve()
    print(f"  {n} questions: epsilon {price.epsilon(delta=DELTA):.4f} for any data", end=", ")
    print(f"{exact.epsilon(delta=DELTA):.4f} for these (owner); {seconds:.1f} s a question")
    for order in (2.0, 8.0, 32.0):
        at = price.orders.index(order)
        print(f"    order {order:.0f}: {exact.rdp[at] / price.rdp[at]:.3f} of the price")


def teachers(data: dict[str, Any]) -> None:
    """PATE on the same features."""
    start = time.perf_counter()
    ensemble = TeacherEnsemble(LogisticRegression(max_iter=500), n_teachers=TEACHERS, n_jobs=1)
    votes = ensemble.fit(data["X"], data["y"], classes=np.unique(data["y"])).vote(data["asked"])
    right = (votes.open().argmax(axis=1) == data["truth"]).mean()
    print(f"  {TEACHERS} teachers: no noise {right:.1%}; {time.perf_counter() - start:.1f} s")
    n = len(data["truth"])
    for sigma in (TEACHERS_SIGMA, calibrate(GNMax, n_answers=n, epsilon=1.0, delta=DELTA)):
        mechanism = GNMax(sigma=sigma)
        result = answered(votes, data["truth"], lambda v, b, m=mechanism: release(m, v, ledger=b))
        line(f"{TEACHERS} teachers, sigma {sigma:.1f}", result)


def main() -> None:
    for name, load in (("Fashion-MNIST", fashion), ("SST-2", sst2)):
        data = load()
        for part in ("X", "asked"):  # once: NeighbourVoter(transformer=…) would do the same each time
            data[part] = data["transformer"].transform(data[part])
        print(f"{name}: {len(data['y']):,} private rows, {len(data['truth'])} questions, delta {DELTA}")
        compared(data)
        teachers(data)
        if len(np.unique(data["y"])) == 2:
            owners(data, OWNED)


if __name__ == "__main__":
    main()

"""ALIBI against its rivals as Malek et al. 2021 (arXiv:2106.03408) report it: table 2, and what it memorises.

``python -m reproduce.malek2021 [fashion] [pairs] [cifar] [canaries] [overhead] [--out FOLDER]`` prints
tables.
Where a folder is given, every run is kept there as it ends, so that an interrupted command goes on, and
the figure is drawn from what was kept. Noise has no seed: runs differ.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from bench import _data
from bench._data import folder
from ostraka.attacks import Canaries
from ostraka.audits import one_run_lower_bound
from ostraka.learn.students.labels import posterior
from ostraka.nets.generative import perceptron, wide_resnet
from ostraka.networks import TorchClassifier
from ostraka.students import ALIBI, MultiStage
from reproduce import _drawing

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS, PAIRS = 3, 8
QUICK = {"N_CANARIES": 50, "N_ROWS": 400, "PAIRS": 1, "REPEATS": 2}
QUICK_ARGUMENTS = ["overhead"]
EPSILONS = {
    "fashion": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    "cifar": (3.0, 4.0, 6.0, 8.0),
    "pairs": (6.0, 8.0),
    "canaries": (2.0, 4.0, 8.0),
}
N_COMPONENTS = 100  # of the images, which are public
N_CANARIES, N_ROWS = 2_000, 12_000
REPEATS = 15  # of a measured time
METHODS: dict[str, Callable[..., Any]] = {
    "ALIBI, Laplace": partial(ALIBI, mechanism="laplace"),
    "ALIBI, response": partial(ALIBI, mechanism="response"),
    "LP-2ST": partial(MultiStage, shares=(0.6, 0.4)),
    "plain response": partial(MultiStage, shares=(1.0,)),
}
# Epochs: by a seed that is not counted, the best of 5, 10 and 20 at epsilon 1, 10 and 20 at 2, 20 and 40 at 4
SHORT = {
    "ALIBI, Laplace": {1.0: 10, 4.0: 20, 5.0: 20},
    "ALIBI, response": {1.0: 5},
    "LP-2ST": {1.0: 5},
    "plain response": {1.0: 5},
}
EPOCHS = {
    "fashion": {
        method: {epsilon: 40 if epsilon >= 4 else 20 for epsilon in EPSILONS["fashion"]} | SHORT[method]
        for method in METHODS
    },
    "cifar": {method: dict.fromkeys(EPSILONS["cifar"], 12) for method in METHODS},
}
PARTS = ("fashion", "pairs", "cifar", "canaries", "overhead")


class Images(NamedTuple):
    """Rows to learn from and to be scored on, and their classes."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@cache
def raw() -> Images:
    """Fashion-MNIST, 784 numbers in [0, 1] an image."""
    parts = []
    for part in ("train", "t10k"):
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8)):
            with gzip.open(folder() / "fashion_mnist" / f"{part}-{kind}-ubyte.gz") as file:
                parts.append(np.frombuffer(file.read(), dtype=np.uint8, offset=offset))
    limit = _data.MOST_ROWS
    pixels = (parts[0].reshape(-1, 784)[:limit], parts[2].reshape(-1, 784))
    X, X_test = (each.astype(np.float32) / 255 for each in pixels)
    return Images(X, parts[1].astype(np.int64)[:limit], X_test, parts[3].astype(np.int64))


@cache
def fashion() -> Images:
    """Fashion-MNIST, its images turned to their first principal components, all divided by one number."""
    images = raw()
    mean = images.X.mean(axis=0)
    variance, axes = np.linalg.eigh(np.cov(images.X, rowvar=False))
    axes = axes[:, ::-1][:, :N_COMPONENTS] / np.sqrt(variance[-1])
    X, X_test = (((rows - mean) @ axes).astype(np.float32) for rows in (images.X, images.X_test))
    return Images(X, images.y, X_test, images.y_test)


@cache
def cifar() -> Images:
    """The subset of CIFAR-10: 5,000 images to learn from, and 2,000."""
    with np.load(folder() / "cifar10" / "cifar10_5000_2000.npz") as saved:
        rows = [
            (saved[name].transpose(0, 3, 1, 2).reshape(-1, 3072) / 127.5 - 1).astype(np.float32)
            for name in ("x_train", "x_test")
        ]
        return Images(rows[0], saved["y_train"].astype(int), rows[1], saved["y_test"].astype(int))


def small_network(epochs: int, *, seed: int, width: int = 256) -> TorchClassifier:
    return TorchClassifier(
        partial(perceptron, hidden=(width,)),
        epochs=epochs,
        batch_size=1024,
        learning_rate=4e-3,
        schedule="cosine",
        n_threads=1,
        random_state=seed,
    )


def flipped(rows: torch.Tensor) -> torch.Tensor:
    """Mirror every other image, and shift all by up to four cells."""
    images = rows.reshape(-1, 3, 32, 32)
    images = torch.where(torch.rand(len(rows), 1, 1, 1) < 0.5, images.flip(3), images)
    across, down = (int(shift) for shift in torch.randint(-4, 5, (2,)))
    return torch.roll(images, (down, across), (2, 3)).reshape(rows.shape)


def wide_network(epochs: int, *, seed: int) -> TorchClassifier:
    return TorchClassifier(
        partial(wide_resnet, depth=10, widen=1),
        epochs=epochs,
        batch_size=64,
        learning_rate=0.05,
        optimizer=partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
        schedule="cosine",
        augment=flipped,
        n_threads=1,
        random_state=seed,
    )


@dataclass(slots=True)
class Kept:
    """Finished runs by name, each saved to a file when it ends."""

    path: Path | None
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.runs = json.loads(self.path.read_text())

    def run(self, name: str, compute: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        """Return the saved result of this run, or run it."""
        if name not in self.runs:
            start = time.perf_counter()
            self.runs[name] = compute(*arguments)
            self.runs[name]["seconds"] = round(time.perf_counter() - start, 1)
            print(f"  {name}: {self.runs[name]}", flush=True)
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.runs, indent=1))
        return self.runs[name]


def accuracy(data: Images, method: str, epsilon: float, network: TorchClassifier) -> dict[str, Any]:
    """One training, from the charge to the score."""
    model = METHODS[method](network, epsilon=epsilon).fit(data.X, data.y, classes=range(10))
    answers = model.answers_
    right = (answers if answers.ndim == 1 else answers.argmax(axis=1)) == data.y
    return {"accuracy": model.score(data.X_test, data.y_test), "answers right": float(right.mean())}


def table(
    part: str, data: Images, make: Callable[..., TorchClassifier], seeds: int, store: Kept
) -> dict[str, dict[float, np.ndarray]]:
    """Accuracy of every method at every epsilon, in percent, shape (seeds,) each."""
    cells_by_method: dict[str, dict[float, np.ndarray]] = {method: {} for method in METHODS}
    for epsilon in EPSILONS[part]:
        for method in METHODS:
            epochs = EPOCHS[part][method][epsilon]
            runs = [
                store.run(
                    f"{part}, {method}, epsilon {epsilon:g}, seed {seed}, {epochs} epochs",
                    accuracy,
                    data,
                    method,
                    epsilon,
                    make(epochs, seed=seed),
                )
                for seed in range(seeds)
            ]
            cells_by_method[method][epsilon] = 100 * np.array([run["accuracy"] for run in runs])
    print("| method | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS[part]) + " |")
    print("|---|" + "---|" * len(EPSILONS[part]))
    for method, cells in cells_by_method.items():
        spread = [
            f"{accuracies.mean():.2f}" + (f" ± {accuracies.std(ddof=1):.2f}" if seeds > 1 else "")
            for accuracies in cells.values()
        ]
        print(f"| {method} | " + " | ".join(spread) + " |")
    return cells_by_method


def paired(epsilon: float, seed: int) -> dict[str, Any]:
    """ALIBI and plain response from the same answers, and LP-2ST: networks that begin alike."""
    data, models = fashion(), {}
    for method in ("ALIBI, response", "LP-2ST"):
        network = small_network(EPOCHS["fashion"][method][epsilon], seed=seed)
        models[method] = METHODS[method](network, epsilon=epsilon).fit(data.X, data.y, classes=range(10))
    network = small_network(EPOCHS["fashion"]["plain response"][epsilon], seed=seed)
    models["plain response"] = network.fit(data.X, models["ALIBI, response"].answers_)
    return {method: model.score(data.X_test, data.y_test) for method, model in models.items()}


def pairs(store: Kept) -> None:
    """Where methods are so close that chance hides them: differences of pairs, and their standard errors."""
    print("| ε | ALIBI, response | above plain response by | above LP-2ST by |\n|---|---|---|---|")
    for epsilon in EPSILONS["pairs"]:
        runs = [
            store.run(f"pairs, epsilon {epsilon:g}, seed {seed}", paired, epsilon, seed)
            for seed in range(PAIRS)
        ]
        ours, plain, staged = (
            100 * np.array([run[method] for run in runs])
            for method in ("ALIBI, response", "plain response", "LP-2ST")
        )
        cells = [
            f"{(ours - model).mean():+.2f} ({(ours - model).std(ddof=1) / PAIRS**0.5:.2f})"
            for model in (plain, staged)
        ]
        print(f"| {epsilon:g} | {ours.mean():.2f} | {' | '.join(cells)} |")


def memorised(epsilon: float, mechanism: str, seed: int) -> dict[str, Any]:
    """What a network trained for long on canaries reveals of them, and what the answers reveal."""
    data, rng = fashion(), np.random.default_rng(seed)
    X, y = data.X[:N_ROWS], data.y[:N_ROWS]
    planted = Canaries.draw(y, n_classes=10, n=N_CANARIES, rng=rng)
    model = ALIBI(memorising_network(seed), epsilon=epsilon, mechanism=mechanism)
    model.fit(X, planted.plant(y), classes=range(10))
    probabilities = model.predict_proba(X[planted.positions])
    known = model.mechanism_.posterior(model.answers_[planted.positions], np.full(10, 0.1))
    of_model, of_answers = (
        one_run_lower_bound(planted.scores(law), delta=0.0, game="labels") for law in (probabilities, known)
    )
    return {
        "accuracy": model.score(data.X_test, data.y_test),
        "of the model": of_model.epsilon,
        "right": of_model.right,
        "guesses": of_model.guesses,
        "of the answers": of_answers.epsilon,
    }


def memorising_network(seed: int) -> TorchClassifier:
    return TorchClassifier(
        partial(perceptron, hidden=(512,)),
        epochs=40,
        learning_rate=2e-3,
        n_threads=1,
        random_state=seed,
    )


def canaries(seeds: int, store: Kept) -> None:
    """Lower bounds beside the proven epsilon, run by run."""
    print(
        "| ε | mechanism | seed | accuracy | of the model | right / guesses | share of ε | of the answers |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for epsilon in EPSILONS["canaries"]:
        for mechanism in ("laplace", "response"):
            for seed in range(seeds):
                run = store.run(
                    f"canaries, {mechanism}, epsilon {epsilon:g}, seed {seed}",
                    memorised,
                    epsilon,
                    mechanism,
                    seed,
                )
                lower, share = run["of the model"], f"{run['of the model'] / epsilon:.0%}"
                print(
                    f"| {epsilon:g} | {mechanism} | {seed} | {run['accuracy']:.3f} | {lower:.2f} | "
                    f"{run['right']} / {run['guesses']} | {share} | {run['of the answers']:.2f} |"
                )
                if not epsilon / 3 <= lower <= epsilon:
                    print(f"  NOT between a third of {epsilon:g} and {epsilon:g}")


def seconds_a_step(network: TorchClassifier, data: Images, n_rows: int, *, bayes: bool) -> float:
    """Processor time of one step of ordinary training, or of ALIBI's, after the answers are there."""
    X, y = data.X[:n_rows], data.y[:n_rows]
    network.classes_, network.n_features_in_ = np.arange(10), X.shape[1]
    targets = torch.as_tensor(y)
    log_likelihoods = np.random.default_rng(0).laplace(size=(n_rows, 10)).clip(-1, 1).astype(np.float32)
    likely, entropy = torch.as_tensor(log_likelihoods), torch.nn.functional.cross_entropy
    losses: dict[bool, Any] = {
        False: lambda logits, rows: entropy(logits, targets[rows]),
        True: lambda logits, rows: entropy(logits, posterior(likely[rows], logits)),
    }
    start = time.process_time()
    network.minimise(X, losses[bayes], name="overhead")
    return (time.process_time() - start) / (network.epochs * (n_rows // network.batch_size))


def overhead() -> None:
    """ALIBI's steps over ordinary ones, taken in turns on one thread; the smallest of several counts."""
    print("| network | ordinary step | ALIBI's step | ratio |\n|---|---|---|---|")
    for name, batch_size, n_rows in (("perceptron", 128, 12_800), ("convolutional", 128, 2_560)):
        data = raw()
        network = TorchClassifier(name, epochs=1, batch_size=batch_size, n_threads=1, random_state=0)
        times = [
            [seconds_a_step(network, data, n_rows, bayes=bayes) for bayes in (False, True)]
            for _ in range(REPEATS)
        ]
        plain, ours = np.min(times, axis=0)
        print(f"| {name} | {1e6 * plain:.0f} µs | {1e6 * ours:.0f} µs | {ours / plain:.3f} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m reproduce.malek2021", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all, if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments or [])
    store = Kept(None if chosen.out is None else chosen.out / "malek2021.json")
    for part in chosen.parts or PARTS:
        print(f"\n### {part}", flush=True)
        if part == "overhead":
            overhead()
        elif part == "canaries":
            canaries(chosen.seeds, store)
        elif part == "pairs":
            pairs(store)
        else:
            data, make = (cifar(), wide_network) if part == "cifar" else (fashion(), small_network)
            cells_by_method = table(part, data, make, chosen.seeds, store)
            if chosen.out is not None:
                name = "label_learning_cifar" if part == "cifar" else "label_learning"
                _drawing.accuracies(chosen.out / f"{name}.svg", cells_by_method)


if __name__ == "__main__":
    main(sys.argv[1:])

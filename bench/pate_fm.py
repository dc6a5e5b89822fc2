"""PATE-FM beside ALIBI and training without privacy: accuracy, epsilon, what is memorised, processor time.

``python -m bench.pate_fm [--teachers N] [--rows N] [--out FOLDER]``. The labels of the first rows of
MNIST are private, their features public; some labels are canaries, wrong ones planted before any training,
so every line was trained on the same labels. Images are halved to 14 × 14. Scored on the 10,000 test images.
One thread computes. Noise has no seed: runs differ. Malek et al. 2021 (arXiv:2106.03408), table 1, 6.3 and 7.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench._mnist import Images, mnist
from ostraka import GNMax, Threshold
from ostraka.attacks import Canaries
from ostraka.audits import one_run_lower_bound
from ostraka.networks import TorchClassifier
from ostraka.pate import PATEFM
from ostraka.students import ALIBI, FixMatch, ImageAugment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.result import Result

N_ROWS, N_TEACHERS, N_CANARIES = 6_000, 40, 300
DELTA = 1e-5
QUICK = {"N_ROWS": 200, "N_TEACHERS": 2, "N_CANARIES": 20, "EPSILONS": (4.0,), "N_ANSWERS": 5}
EPSILONS = (1.0, 2.0, 4.0)  # ALIBI's, pure
MECHANISM, SCREEN = GNMax(sigma=10.0), Threshold(at=20.0, sigma=30.0, noise="every")
N_ANSWERS, N_QUERIES = 50, 80
AUGMENT = ImageAugment(shape=(1, 14, 14), strength=0.5)


def small(_n_features: int, n_classes: int) -> Any:
    """Two convolutions of stride two."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, AUGMENT.shape),
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, n_classes),
    )


def matching(epochs: int) -> FixMatch:
    """Teachers and student: the same network, the student for longer."""
    network = TorchClassifier(
        small, epochs=epochs, batch_size=16, learning_rate=1e-2, schedule="cosine", n_threads=1
    )
    return FixMatch(network, augment=AUGMENT, threshold=0.8)


def plain(seed: int) -> TorchClassifier:
    """The same network, trained on all labels there are."""
    return TorchClassifier(
        small,
        epochs=30,
        batch_size=64,
        learning_rate=3e-3,
        schedule="cosine",
        n_threads=1,
        random_state=seed,
    )


def private_and_test(n_rows: int) -> tuple[Images, Images]:
    train, public, new = mnist()
    test = Images(halved(np.concatenate([public.X, new.X])), np.concatenate([public.y, new.y]))
    return Images(halved(train.X[:n_rows]), train.y[:n_rows]), test


def halved(rows: np.ndarray) -> np.ndarray:
    """Means of two by two pixels."""
    return rows.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)


def pate_fm(n_teachers: int, seed: int) -> PATEFM:
    return PATEFM(
        matching(6),
        student=matching(30),
        n_teachers=n_teachers,
        mechanism=MECHANISM,
        screen=SCREEN,
        n_answers=N_ANSWERS,
        n_queries=N_QUERIES,
        epsilon=10.0,
        delta=DELTA,
        classes=range(10),
        n_jobs=1,
        random_state=seed,
    )


def measured(model: Any, data: Images, planted: Canaries, test: Images, *, delta: float) -> dict[str, float]:
    """Train on the planted labels; what came of it, and what it gives away of the canaries."""
    start = time.process_time()
    model.fit(data.X, planted.plant(data.y))
    seconds = time.process_time() - start
    probabilities = model.predict_proba(data.X[planted.positions])
    bound = one_run_lower_bound(planted.scores(probabilities), delta=delta, game="labels")
    return {
        "accuracy": float(model.score(test.X, test.y)),
        "lower": bound.epsilon,
        "right": bound.right,
        "guesses": bound.guesses,
        "seconds": seconds,
    }


def of_ballots(model: PATEFM, result: Result, y: np.ndarray) -> dict[str, Any]:
    """What the teachers knew, and how good their answers were."""
    answered = model.labels_ >= 0
    return {
        **result.owner["utility"],
        "asked": len(model.asked_),
        "answered": int(answered.sum()),
        "answers right": float((model.labels_ == y)[answered].mean()),
        "epsilon of these votes": result.owner["epsilon_these_votes"],
    }


def row(name: str, epsilon: float | None, figures: dict[str, float], unit: float) -> str:
    words = "none" if epsilon is None else f"{epsilon:.2f}"
    return (
        f"| {name} | {100 * figures['accuracy']:.1f} % | {words} | {figures['lower']:.2f} | "
        f"{figures['right']:.0f} / {figures['guesses']:.0f} | {figures['seconds']:.0f} s | "
        f"{figures['seconds'] / unit:.1f} × |"
    )


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pate_fm", description=__doc__)
    parser.add_argument("--teachers", type=int, default=N_TEACHERS)
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(list(arguments))
    data, test = private_and_test(options.rows)
    planted = Canaries.draw(data.y, n_classes=10, n=N_CANARIES, rng=np.random.default_rng(options.seed))
    plain(options.seed).set_params(epochs=1).fit(data.X[:64], data.y[:64])  # torch loads its parts
    figures: dict[str, Any] = {}
    print("| training | accuracy | ε proven | ε at least | right / guesses | processor | of ALIBI's |")
    print("|---|---|---|---|---|---|---|", flush=True)
    lines = {
        f"ALIBI, ε = {epsilon:g}": (ALIBI(plain(options.seed), epsilon=epsilon), epsilon)
        for epsilon in EPSILONS
    }
    lines["no privacy"] = (plain(options.seed), None)
    for name, (model, epsilon) in lines.items():
        figures[name] = measured(model, data, planted, test, delta=0.0)
        unit = figures[f"ALIBI, ε = {EPSILONS[0]:g}"]["seconds"]
        print(row(name, epsilon, figures[name], unit), flush=True)
    model = pate_fm(options.teachers, options.seed)
    figures["PATE-FM"] = measured(model, data, planted, test, delta=DELTA)
    print(row(f"PATE-FM, {options.teachers} teachers", model.plan_.epsilon, figures["PATE-FM"], unit))
    result = model.evaluate(test.X, test.y)
    figures["ballots"] = of_ballots(model, result, data.y)
    print("\n" + json.dumps(figures["ballots"], indent=1), flush=True)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "pate_fm.json").write_text(json.dumps(figures, indent=1))
        (options.out / "pate_fm_result.json").write_text(result.public().to_json())


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

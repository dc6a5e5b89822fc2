"""Students on MNIST: what 250 teachers' few noisy answers are worth to each, and what they cost.

``python -m benchmarks.students [--answers N] [--sigma S] [--students NAME ...] [--seeds N] [--out FILE]``.
The teachers learn from the 60,000 training images. The student sees the first 9,000 test images, and is
scored on the last 1,000. Which images to ask about is chosen by how they lie, before anything is asked. The
noise is seeded: a simulation, to be repeated. Papernot et al. 2017 (arXiv:1610.05755, section 4.2) report
98.00 % at epsilon 2.04 with 100 answers, 98.10 % at 8.03 with 1,000, for these votes, at delta 1e-5.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks._mnist import ensemble, mnist

from ostraka import ABSTAIN, Budget, GNMax, Ledger, TorchClassifier, release
from ostraka.accounting import exact_curve, papernot2018_curve
from ostraka.students import Distilled, FeatureMatchingGAN, FixMatch, ImageAugment, typical

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka import Private

DELTA, N_TEACHERS, N_CLASSES = 1e-5, 250, 10
AUGMENT = ImageAugment(shape=(1, 28, 28))


def strided(n_features: int, n_classes: int, *, width: int = 16) -> Any:
    """Two convolutions of stride two instead of pooling: as good here as "convolutional", and faster."""
    from torch import nn

    side = round(n_features**0.5)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, width, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * (side // 4) ** 2, n_classes),
    )


def network(seed: int, **settings: Any) -> TorchClassifier:
    return TorchClassifier(strided, schedule="cosine", n_threads=1, random_state=seed, **settings)


def fixmatch(seed: int) -> FixMatch:
    return FixMatch(network(seed, epochs=40, batch_size=16, learning_rate=2e-3), augment=AUGMENT)


def gan(seed: int) -> FeatureMatchingGAN:
    return FeatureMatchingGAN(random_state=seed)


def spreading(seed: int) -> Distilled:
    return Distilled("spreading", random_state=seed)


def distilled(seed: int) -> Distilled:
    """The same network on the answered rows only, moved about a little."""
    return Distilled(network(seed, epochs=300, batch_size=50, learning_rate=2e-3, augment=AUGMENT.weak))


STUDENTS: dict[str, Callable[[int], Any]] = {
    "FixMatch": fixmatch,
    "FeatureMatchingGAN": gan,
    "Spreading": spreading,
    "distilled": distilled,
}


def typical_rows(X: np.ndarray, *, n: int, seed: int) -> np.ndarray:
    """Which public rows to ask about, by their first fifty principal components."""
    from sklearn.decomposition import PCA

    return typical(PCA(50, random_state=seed).fit_transform(X), n=n, random_state=seed)


def asked(
    votes: Private, rows: np.ndarray, mechanism: GNMax, *, seed: int
) -> tuple[np.ndarray, dict[str, float]]:
    """The answers, paid for, and every epsilon that they have."""
    promised = (len(rows) * mechanism.curve()).epsilon(DELTA)
    ledger = Ledger(":memory:", budget=Budget(epsilon=promised * 1.001, delta=DELTA))
    answers = release(mechanism, votes[rows], ledger=ledger, rng=np.random.default_rng(seed))
    counts = votes[rows].open()
    return answers, {
        "publishable": promised,
        "exact": exact_curve(mechanism, counts).epsilon(DELTA),
        "bound of 2018": papernot2018_curve(mechanism, counts).epsilon(DELTA),
    }


def row(name: str, votes: Private, mechanism: GNMax, *, n_answers: int, seed: int) -> dict[str, Any]:
    """One student of so many answers."""
    _, public, new = mnist()
    rows = typical_rows(public.X, n=n_answers, seed=seed)
    answers, epsilon = asked(votes, rows, mechanism, seed=seed)
    labels = np.full(len(public.y), ABSTAIN)
    labels[rows] = answers
    start = time.perf_counter()
    student = STUDENTS[name](seed).fit(public.X, labels, classes=range(N_CLASSES))
    return {
        "student": name,
        "answers": n_answers,
        "mechanism": repr(mechanism),
        "seed": seed,
        "accuracy": float((student.predict(new.X) == new.y).mean()),
        "on public rows": float((student.predict(public.X) == public.y).mean()),
        "answers right": float((answers == public.y[rows]).mean()),
        "epsilon": epsilon,
        "seconds": time.perf_counter() - start,
    }


def show(record: dict[str, Any]) -> None:
    epsilon = record["epsilon"]
    print(
        f"{record['student']:<20} {record['answers']:>5} {record['mechanism']:<18} seed {record['seed']}: "
        f"{record['accuracy']:.4f} ({record['on public rows']:.4f} on public rows), answers right "
        f"{record['answers right']:.3f}, epsilon {epsilon['publishable']:.3f}, for these votes "
        f"{epsilon['exact']:.3f} (2018: {epsilon['bound of 2018']:.3f}); {record['seconds']:.0f} s",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--sigma", type=float, default=40.0)
    parser.add_argument("--students", nargs="+", default=list(STUDENTS), choices=list(STUDENTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args([] if arguments is None else arguments)
    _, public, _ = mnist()
    votes = ensemble(N_TEACHERS).vote(public.X)
    mechanism = GNMax(sigma=given.sigma)
    for name in given.students:
        for seed in range(given.seeds):
            record = row(name, votes, mechanism, n_answers=given.answers, seed=seed)
            show(record)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

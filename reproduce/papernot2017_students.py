"""Students on MNIST: what 250 teachers' few noisy answers are worth to each, and what they cost.

``python -m reproduce.papernot2017_students [--ask N] [--sigma S] [--laplace SCALE] [--screen AT SIGMA]
[--students NAME ...] [--seeds N] [--teachers NAME] [--epochs N]`` prints, and with ``--out FILE`` keeps, a
line a student. ``--published`` takes the hundred answers that the authors saved in place of those of
teachers here. PATE-G has the networks of Salimans et al. 2016 (arXiv:1606.03498) for MNIST, and learns in
``--epochs`` passes.

The teachers learn from the 60,000 training images. The student sees the first 9,000 test images, and is
scored on the last 1,000. Which images to ask about is chosen by how they lie, before anything is asked. The
noise is seeded: a simulation, to be repeated. Papernot et al. 2017 (arXiv:1610.05755, section 4.2) report
98.00 % at epsilon 2.04 with 100 answers, 98.10 % at 8.03 with 1,000, for these votes, at delta 1e-5.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench._data import folder
from bench._mnist import ensemble, mnist
from ostraka import ABSTAIN, Budget, Confident, GNMax, Ledger, LNMax, Threshold, confident, release
from ostraka.accounting import exact_curve, papernot2018_curve, release_epsilon
from ostraka.learn.students.distil import typical
from ostraka.networks import TorchClassifier
from ostraka.students import Distilled, FeatureMatchingGAN, FixMatch, ImageAugment

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka import Private

DELTA, N_TEACHERS, N_CLASSES = 1e-5, 250, 10
PUBLISHED_SCALE = 20.0  # of the Laplace noise in the authors' answers
QUICK = {"N_TEACHERS": 25}
QUICK_ARGUMENTS = ["--ask=20", "--students=Spreading", "--epochs=1"]
AUGMENT = ImageAugment(shape=(1, 28, 28), strength=0.5)  # at full strength digits take twice as long


def strided(n_features: int, n_classes: int, *, width: int = 16, normalised: bool = True) -> Any:
    """Two convolutions of stride two instead of pooling: twice as fast as "convolutional"."""
    from torch import nn

    side = round(n_features**0.5)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, width, 5, stride=2, padding=2, bias=not normalised),
        nn.BatchNorm2d(width) if normalised else nn.Identity(),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5, stride=2, padding=2, bias=not normalised),
        nn.BatchNorm2d(2 * width) if normalised else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * (side // 4) ** 2, n_classes),
    )


def network(seed: int, **settings: Any) -> TorchClassifier:
    return TorchClassifier(strided, schedule="cosine", n_threads=1, random_state=seed, **settings)


def fixmatch(seed: int) -> FixMatch:
    settings = network(seed, epochs=60, batch_size=16, learning_rate=6e-3)
    return FixMatch(settings, augment=AUGMENT, threshold=0.9)


def gan(seed: int) -> FeatureMatchingGAN:
    return FeatureMatchingGAN(random_state=seed)


def pate_g(seed: int, *, epochs: int) -> FeatureMatchingGAN:
    """The published widths of both networks."""
    import torch

    from ostraka.nets.generative import NoisyPerceptron

    classifier = TorchClassifier(
        partial(NoisyPerceptron, hidden=(1000, 500, 250, 250, 250)),
        epochs=epochs,
        batch_size=100,
        learning_rate=3e-3,
        optimizer=partial(torch.optim.Adam, betas=(0.5, 0.999)),
        schedule="cosine",
        n_threads=1,
    )
    return FeatureMatchingGAN(classifier, generator=(500, 500), random_state=seed)


def spreading(seed: int) -> Distilled:
    return Distilled("spreading", random_state=seed)


def distilled(seed: int) -> Distilled:
    """The same network on the answered rows only, moved about a little."""
    return Distilled(network(seed, epochs=300, batch_size=50, learning_rate=2e-3, augment=AUGMENT.weak))


def convolutional_teacher() -> TorchClassifier:
    """Convolutions, and images that are moved a little: five minutes for 250, and half the errors."""
    return TorchClassifier(
        partial(strided, normalised=False),
        epochs=30,
        batch_size=16,
        learning_rate=3e-3,
        schedule="cosine",
        augment=AUGMENT.weak,
        n_threads=1,
    )


STUDENTS: dict[str, Callable[..., Any]] = {
    "FixMatch": fixmatch,
    "FeatureMatchingGAN": gan,
    "PATE-G": pate_g,
    "Spreading": spreading,
    "distilled": distilled,
}


def typical_rows(X: np.ndarray, *, n: int, seed: int) -> np.ndarray:
    """Which public rows to ask about, by their first fifty principal components."""
    from sklearn.decomposition import PCA

    return typical(PCA(50, random_state=seed).fit_transform(X), n=n, random_state=seed)


def asked(
    votes: Private, mechanism: GNMax | LNMax, screen: Threshold | None, *, seed: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Answers to every row, behind a screen to those with a clear plurality; and every epsilon of theirs."""
    rng = np.random.default_rng(seed)
    every = mechanism.curve() if screen is None else mechanism.curve() + screen.curve()
    budget = Budget(epsilon=(len(votes) * every).epsilon(DELTA) * 1.001, delta=DELTA, adaptive=False)
    ledger = Ledger(":memory:", budget=budget)
    if screen is None:
        answers, law, answered = release(mechanism, votes, ledger=ledger, rng=rng), mechanism, None
    else:
        answers = confident(votes, screen=screen, argmax=mechanism, ledger=ledger, rng=rng)
        law, answered = Confident(screen=screen, argmax=mechanism), answers != ABSTAIN
    counts = votes.open()
    published = release_epsilon(law, votes, delta=DELTA, answered=answered, rng=rng)
    return answers, {
        "whatever the votes": ledger.epsilon(),
        "published": published.epsilon,
        "bound of 2018": papernot2018_curve(law, counts).epsilon(DELTA),
        "exact": exact_curve(law, counts).epsilon(DELTA),
    }


class Answers(NamedTuple):
    """What the student is told: which public rows were asked, their answers, and what these cost."""

    rows: np.ndarray
    labels: np.ndarray
    epsilon: dict[str, float]
    question: str


def of_teachers(
    votes: Private, mechanism: GNMax | LNMax, screen: Threshold | None, *, n_asked: int, seed: int
) -> Answers:
    """Answers of teachers here, to typical rows."""
    _, public, _ = mnist()
    rows = typical_rows(public.X, n=n_asked, seed=seed)
    labels, epsilon = asked(votes[rows], mechanism, screen, seed=seed)
    return Answers(rows, labels, epsilon, repr(mechanism) if screen is None else f"{screen!r}, {mechanism!r}")


def published() -> Answers:
    """The hundred answers that the authors saved; their votes are unknown, and so is a price by votes."""
    with np.load(folder() / "pate_votes" / "papernot_mnist_student.npz") as saved:
        rows, labels = saved["query_indices"].astype(int), saved["student_labels"].astype(int)
    _, public, _ = mnist()
    rows = rows[rows < len(public.y)]
    mechanism = LNMax(scale=PUBLISHED_SCALE)
    price = (len(rows) * mechanism.curve()).epsilon(DELTA)
    return Answers(rows, labels[rows], {"whatever the votes": price}, f"published, {mechanism!r}")


def row(name: str, answers: Answers, *, seed: int, epochs: int) -> dict[str, Any]:
    """One student of these answers."""
    _, public, new = mnist()
    labels = np.full(len(public.y), ABSTAIN)
    labels[answers.rows] = answers.labels
    answered = answers.labels != ABSTAIN
    start = time.process_time()
    settings = {"epochs": epochs} if name == "PATE-G" else {}
    student = STUDENTS[name](seed, **settings).fit(public.X, labels, classes=range(N_CLASSES))
    return {
        "student": name,
        "asked": len(answers.rows),
        "answered": int(answered.sum()),
        "mechanism": answers.question,
        "seed": seed,
        "accuracy": float((student.predict(new.X) == new.y).mean()),
        "on public rows": float((student.predict(public.X) == public.y).mean()),
        "answers right": float((answers.labels == public.y[answers.rows])[answered].mean()),
        "epsilon": answers.epsilon,
        "seconds": time.process_time() - start,
    }


def show(record: dict[str, Any]) -> None:
    epsilon = record["epsilon"]
    print(
        f"{record['student']}, seed {record['seed']}, {record['answered']} of {record['asked']} answers, "
        f"{record['mechanism']}: {record['accuracy']:.4f} ({record['on public rows']:.4f} on public "
        f"rows), answers right {record['answers right']:.3f}, {record['seconds']:.0f} s of processor; "
        "epsilon " + ", ".join(f"{name} {value:.3f}" for name, value in epsilon.items()),
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ask", type=int, default=50, help="questions")
    parser.add_argument("--sigma", type=float, default=40.0)
    parser.add_argument("--laplace", type=float, help="scale of Laplace noise, instead of --sigma")
    parser.add_argument("--published", action="store_true", help="the answers that the authors saved")
    parser.add_argument("--screen", type=float, nargs=2, metavar=("AT", "SIGMA"))
    parser.add_argument("--students", nargs="+", default=list(STUDENTS), choices=list(STUDENTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--teachers", default="perceptron", choices=["perceptron", "convolutional"])
    parser.add_argument(
        "--epochs", type=int, default=120, help="of PATE-G; its authors have 300 of 60,000 images"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments or [])
    screen = Threshold(at=options.screen[0], sigma=options.screen[1]) if options.screen else None
    if options.published:
        answers_by_seed = dict.fromkeys(range(options.seeds), published())
    else:
        _, public, _ = mnist()
        teacher = convolutional_teacher() if options.teachers == "convolutional" else None
        votes = ensemble(N_TEACHERS, network=teacher).vote(public.X)
        mechanism = LNMax(scale=options.laplace) if options.laplace else GNMax(sigma=options.sigma)
        answers_by_seed = {
            seed: of_teachers(votes, mechanism, screen, n_asked=options.ask, seed=seed)
            for seed in range(options.seeds)
        }
    for name in options.students:
        for seed, answers in answers_by_seed.items():
            record = row(name, answers, seed=seed, epochs=options.epochs)
            show(record)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

"""Trainings on a GPU against one core: classifiers, FixMatch, reference models, generators.

``python -m bench devices`` trains each on made-up images of CIFAR's shape, once to warm up and
then a few times, and prints seconds of wall time, their least, and the ratio. Without a GPU only the core is
timed. Both run on the same machine, the core with one thread.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from ostraka import ABSTAIN
from ostraka.audit.attacks.generators import TargetGenerator
from ostraka.audit.attacks.membership import train_references
from ostraka.networks import TorchClassifier
from ostraka.students import FixMatch

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, TURNS, REFERENCES, SIDE = 1_280, 2, 32, 32
QUICK = {"ROWS": 64, "TURNS": 1, "REFERENCES": 2, "SIDE": 8}


def trainings() -> dict[str, Callable[[str], object]]:
    """Each a function of the device."""
    rng = np.random.default_rng(0)
    rows = rng.random((ROWS, 3 * SIDE * SIDE)).astype(np.float32)
    classes = rng.integers(0, 10, ROWS)
    labels = np.where(np.arange(ROWS) % 10 == 0, classes, ABSTAIN)

    def network(device: str, module: str = "convolutional", size: int = 64) -> TorchClassifier:
        return TorchClassifier(module, epochs=1, batch_size=size, device=device, n_threads=1, random_state=0)

    def references(device: str) -> object:
        included = rng.random((REFERENCES, ROWS)) < 0.5
        return train_references(
            network(device, "perceptron"),
            rows,
            classes,
            included=included,
            seeds=np.arange(REFERENCES),
            saved=None,
            progress=None,
        )

    def generator(kind: str, device: str) -> object:
        return TargetGenerator(kind, epochs=1, device=device, random_state=0).fit(rows)

    return {
        "convolutional": lambda device: network(device).fit(rows, classes),
        "wide-resnet": lambda device: network(device, "wide-resnet").fit(rows, classes),
        "FixMatch, convolutional": lambda device: FixMatch(network(device, size=16)).fit(rows, labels),
        "references, perceptron": references,
        **{kind: partial(generator, kind) for kind in ("dcgan", "dcgan-vae", "began")},
    }


def main() -> None:
    """Print a line for each."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for name, train in trainings().items():
        seconds = {device: _least(partial(train, device)) for device in devices}
        ratio = f", {seconds['cpu'] / seconds['cuda']:.1f} times" if "cuda" in seconds else ""
        print(f"{name}: " + ", ".join(f"{s:.3f} s on {d}" for d, s in seconds.items()) + ratio, flush=True)


def _least(train: Callable[[], object]) -> float:
    """Seconds of wall time; the first turn, which loads and compiles, does not count."""
    times = []
    for _ in range(TURNS + 1):
        begin = time.perf_counter()
        train()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


if __name__ == "__main__":
    main()

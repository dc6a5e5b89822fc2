"""MNIST as Papernot et al. 2017 divide it, and what ensembles of teachers vote. Nothing is downloaded."""

from __future__ import annotations

import gzip
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bench import _data
from bench._data import folder
from ostraka import TeacherEnsemble
from ostraka.networks import TorchClassifier
from ostraka.voters import partition

_DEAL = b"to be repeated: no secret"
N_PUBLIC = 9_000  # test images that the student may see; it is scored on the last thousand


class Images(NamedTuple):
    """Rows of 784 numbers in [0, 1], and their classes."""

    X: np.ndarray
    y: np.ndarray


@lru_cache(maxsize=1)
def mnist() -> tuple[Images, Images, Images]:
    """The teachers' 60,000 images, the public 9,000, and the 1,000 that nobody learns from."""
    parts = []
    for part in ("train", "t10k"):
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8)):
            with gzip.open(folder() / "mnist" / f"{part}-{kind}-ubyte.gz") as file:
                parts.append(np.frombuffer(file.read(), dtype=np.uint8, offset=offset))
    X, y, X_test, y_test = parts
    n_rows = _data.MOST_ROWS
    X, y = X.reshape(-1, 784)[:n_rows], y[:n_rows]
    rows, test = ((images.reshape(-1, 784) / 255).astype(np.float32) for images in (X, X_test))
    y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    public, new = slice(N_PUBLIC), slice(N_PUBLIC, None)
    return (
        Images(rows, y),
        Images(test[public][:n_rows], y_test[public][:n_rows]),
        Images(test[new], y_test[new]),
    )


def ensemble(n_teachers: int, *, seed: int = 0, network: TorchClassifier | None = None) -> TeacherEnsemble:
    """Teachers of one hidden layer, if no other: larger batches and fewer epochs where each has many rows."""
    private, _, _ = mnist()
    many = len(private.y) // n_teachers
    network = network or TorchClassifier(
        "perceptron",
        epochs=max(4, min(20, 60_000 // many)),
        batch_size=16 if many < 1_000 else 64,
        learning_rate=2e-3,
        n_threads=1,
    )
    dealt = partition(len(private.y), n_teachers=n_teachers, key=_DEAL)
    return TeacherEnsemble(network, n_teachers=n_teachers, random_state=seed).fit(
        private.X, private.y, classes=range(10), manifest=dealt
    )

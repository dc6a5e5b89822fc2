"""Where the shared data sets are, and readers of them that several commands use. Nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ostraka import GNMax

__all__ = ["ask", "folder", "histograms"]


def folder() -> Path:
    """The folder of the shared data sets: OSTRAKA_DATA, or ``shared/data`` beside the checkout."""
    return Path(os.environ.get("OSTRAKA_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def histograms(name: str) -> np.ndarray:
    """The 15 histograms of one data set of Wang et al. 2022: five of high, of median and of low consensus."""
    with np.load(folder() / "pate_votes" / "mnist_svhn_30_samples.npz") as file:
        return file[f"{name}_counts"].astype(float)


def ask(mechanism: GNMax, votes: np.ndarray, n_answers: int, seed: int) -> np.ndarray:
    """How often each class is the answer, in a simulation."""
    q = np.exp(mechanism.log_outcomes(votes[None])[0])
    return np.random.default_rng(seed).multinomial(n_answers, q / q.sum())

"""Paths and readers of the shared data sets. Nothing is downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from ostraka import GNMax

__all__ = ["ask", "folder", "histograms", "shrink"]

MOST_ROWS: int | None = None  # of a data set; None: all of them
_QUICK_ROWS = 600


def folder() -> Path:
    """The folder of the shared data sets: OSTRAKA_DATA, or ``shared/data`` beside the checkout."""
    return Path(os.environ.get("OSTRAKA_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def histograms(name: str) -> np.ndarray:
    """The 15 histograms of one data set of Wang et al. 2022: five of high, of median and of low consensus."""
    with np.load(folder() / "pate_votes" / "mnist_svhn_30_samples.npz") as file:
        return file[f"{name}_counts"].astype(float)


def ask(mechanism: GNMax, votes: np.ndarray, n_answers: int, seed: int) -> np.ndarray:
    """Simulate repeated answers, and count the answers of each class."""
    q = np.exp(mechanism.log_outcomes(votes[None])[0])
    return np.random.default_rng(seed).multinomial(n_answers, q / q.sum())


def shrink(module: ModuleType) -> None:
    """Give a command its smallest form: the settings in its ``QUICK``, and few rows of every data set."""
    sys.modules[__name__].MOST_ROWS = _QUICK_ROWS  # type: ignore[attr-defined]
    for name, value in module.QUICK.items():
        getattr(module, name)  # a setting that does not exist is a mistake
        setattr(module, name, value)

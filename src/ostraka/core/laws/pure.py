"""Fixed pairs of laws with pure differential privacy: of responses, and of counts with Laplace noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ostraka.core.laws.cover import Pairs
from ostraka.core.laws.law import LAPLACE_COUNT, Law

_OUTWARD = 1e-12


class Losses(NamedTuple):
    """Masses under P and under Q, and the cell of a grid of losses log P / Q in which each lies.

    The other way round they are the same: losses change their sign.
    """

    cells: np.ndarray
    p: np.ndarray
    q: np.ndarray


def losses(law: Law, step: float) -> Losses:
    """The losses of one use; cell i is from i to i + 1 steps."""
    if law.kind == LAPLACE_COUNT:
        return _laplace(law.size, step)
    # the answer is one label, the other, or any of the rest, which tells nothing
    others = law.n_classes - 1
    true = 1 / (1 + others * math.exp(-law.size))
    wrong = 1 / (math.exp(law.size) + others)
    neither = max(0.0, 1 - true - wrong) if others > 1 else 0.0
    p = np.array([true, wrong, neither])
    cells = np.floor(np.array([law.size, -law.size, 0.0]) / step)
    return Losses(cells.astype(np.int64), p, p[[1, 0, 2]])


def _laplace(epsilon: float, step: float) -> Losses:
    """Noise of scale 1 on a count that moves by epsilon: both ends are atoms, between them losses spread."""
    inner = np.arange(math.floor(-epsilon / step) + 1, math.ceil(epsilon / step)) * step
    edges = np.concatenate([[-epsilon], np.clip(inner, -epsilon, epsilon), [epsilon]])
    a, b = edges[:-1], edges[1:]
    share = -np.expm1((a - b) / 2) / 2
    cells = np.floor(np.concatenate([[-epsilon, epsilon], (a + b) / 2]) / step)
    rare = math.exp(-epsilon) / 2
    return Losses(
        cells.astype(np.int64),
        np.concatenate([[rare, 0.5], np.exp((b - epsilon) / 2) * share]),
        np.concatenate([[0.5, rare], np.exp(-(a + epsilon) / 2) * share]),
    )


def pair(law: Law, step: float) -> Pairs:
    """One use as outcomes, one for each cell of the grid, which is split between the cell's ends later."""
    _, p, q = losses(law, step)
    return Pairs(p[None], (q - p)[None] * (1 + _OUTWARD), np.zeros(1))

"""The posterior of the votes from any outcome map: Metropolis walks over whole votes, many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["walk"]

_WALKERS = 64
_STEPS, _SETTLING = 1_500, 300


def walk(
    start: np.ndarray,
    answers: np.ndarray,
    mechanism: BallotMechanism,
    *,
    reach: np.ndarray,
    prior: tuple[np.ndarray, np.ndarray],
    unit: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return times at each count, shape (n_classes, n_counts), and the likeliest votes visited.

    ``prior``: log weights of a count of a class like the others and of the leader, one row a hypothesis.
    """
    rng = np.random.default_rng(seed)
    own, leader = prior
    n_classes, walkers = len(start), np.arange(_WALKERS)
    seen = np.zeros((n_classes, own.shape[1]))

    def weigh(votes: np.ndarray) -> np.ndarray:
        alike = own[:, votes]  # hypotheses, walkers, classes
        each = alike.sum(axis=2, keepdims=True) - alike + leader[:, votes]
        logs = np.maximum(mechanism.log_outcomes(votes * unit), -1e6)  # what is impossible is unlikely
        return np.asarray(logs @ answers + logsumexp(each, axis=(0, 2)))

    here = np.tile(start, (_WALKERS, 1))
    weight = weigh(here)
    best, most = start, float(weight[0])
    for step in range(_STEPS):
        giver = rng.integers(n_classes, size=_WALKERS)
        taker = (giver + rng.integers(1, n_classes, size=_WALKERS)) % n_classes
        size = np.ceil(np.abs(rng.normal(size=_WALKERS)) * reach[giver, taker]).astype(np.int64)
        there = here.copy()
        there[walkers, giver] -= size
        there[walkers, taker] += size
        inside = there[walkers, giver] >= 0
        there[~inside] = here[~inside]
        found = weigh(there)
        moves = inside & (np.log(rng.random(_WALKERS)) < found - weight)
        here[moves], weight[moves] = there[moves], found[moves]
        if weight.max() > most:
            best, most = here[weight.argmax()].copy(), float(weight.max())
        if step >= _SETTLING:
            for k in range(n_classes):
                seen[k] += np.bincount(here[:, k], minlength=seen.shape[1])
    return seen, best

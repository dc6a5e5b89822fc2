"""The outcome law for attacks: log probabilities, their gradient, and Fisher information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.mechanisms.protocols import HasInformation, abstains, gradient, parts

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["argmax_of", "has_abstain", "information", "law", "tangent"]


def argmax_of(mechanism: BallotMechanism) -> BallotMechanism:
    """The part that answers."""
    return parts(mechanism)[1]


def has_abstain(mechanism: BallotMechanism) -> bool:
    """Whether "no answer" is one of the outcomes; it is the last."""
    return abstains(mechanism)


def law(mechanism: BallotMechanism, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log probability of each outcome, shape (n, n_outcomes), and its gradient by the counts (last axis).

    Outcomes are the classes and, with a screen, "no answer" last.
    """
    return gradient(mechanism, counts)


def information(mechanism: BallotMechanism, counts: np.ndarray) -> np.ndarray:
    """Fisher information of one answer, shape (n, n_classes, n_classes), per vote squared."""
    if isinstance(mechanism, HasInformation):
        return mechanism.information(counts)
    log_q, slope = law(mechanism, counts)
    weighted: np.ndarray = slope * np.exp(log_q)[..., None]
    return np.asarray(np.swapaxes(slope, 1, 2) @ weighted)


def tangent(n_classes: int) -> np.ndarray:
    """Orthonormal basis of the changes that keep the number of votes, shape (n_classes, n_classes - 1)."""
    steps = np.eye(n_classes)[:, 1:] - 1 / n_classes
    basis: np.ndarray = np.linalg.qr(steps)[0]
    return basis

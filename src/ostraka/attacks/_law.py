"""The outcome law as an attacker reads it: log probabilities, their slope by the votes, information."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from ostraka.mechanisms import GNMax, LNMax, Threshold

__all__ = ["Ballot", "argmax_of", "has_abstain", "information", "law", "screen_of", "tangent"]

Ballot = GNMax | LNMax | tuple[Threshold, GNMax]

_HALF_LOG_2PI = 0.9189385332046727


def argmax_of(mechanism: Ballot) -> GNMax | LNMax:
    """The part that answers."""
    argmax = mechanism[1] if isinstance(mechanism, tuple) and len(mechanism) == 2 else mechanism
    if not isinstance(argmax, GNMax | LNMax):
        raise TypeError(f"mechanism must be GNMax, LNMax or (Threshold, GNMax), got {mechanism!r}")
    return argmax


def screen_of(mechanism: Ballot) -> Threshold | None:
    """The part that refuses, if there is one."""
    if not isinstance(mechanism, tuple):
        return None
    if len(mechanism) != 2 or not isinstance(mechanism[0], Threshold):
        raise TypeError(f"mechanism must be GNMax, LNMax or (Threshold, GNMax), got {mechanism!r}")
    return mechanism[0]


def has_abstain(mechanism: Ballot) -> bool:
    """Whether "no answer" is one of the outcomes; it is the last."""
    return screen_of(mechanism) is not None


def law(mechanism: Ballot, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log probability of each outcome, shape (n, n_outcomes), and its slope by each count (last axis).

    Outcomes are the classes and, with a screen, "no answer" last.
    """
    log_q, slope = argmax_of(mechanism).log_outcomes_gradient(counts)
    screen = screen_of(mechanism)
    if screen is None:
        return log_q, slope
    log_pass, log_stop = screen.log_outcomes(counts).T
    by_stop = _slope_of_stop(screen, counts)
    with np.errstate(over="ignore"):
        odds = np.exp(np.minimum(log_stop - log_pass, 700.0))
    by_pass = -odds[:, None] * by_stop
    logs = np.concatenate([log_q + log_pass[:, None], log_stop[:, None]], axis=1)
    slopes = np.concatenate([slope + by_pass[:, None, :], by_stop[:, None, :]], axis=1)
    return logs, slopes


def information(mechanism: Ballot, counts: np.ndarray) -> np.ndarray:
    """Fisher information of one answer, shape (n, n_classes, n_classes), per vote squared."""
    log_q, slope = law(mechanism, counts)
    weighted: np.ndarray = slope * np.exp(log_q)[..., None]
    return np.asarray(np.swapaxes(slope, 1, 2) @ weighted)


def tangent(n_classes: int) -> np.ndarray:
    """Orthonormal basis of the changes that keep the number of votes, shape (n_classes, n_classes - 1)."""
    steps = np.eye(n_classes)[:, 1:] - 1 / n_classes
    basis: np.ndarray = np.linalg.qr(steps)[0]
    return basis


def _slope_of_stop(screen: Threshold, counts: np.ndarray) -> np.ndarray:
    """Slope of log P(no answer) by each count, shape (n, n_classes)."""
    gap = (screen.at - counts) / screen.sigma
    hazard = -np.exp(-(gap**2) / 2 - _HALF_LOG_2PI - log_ndtr(gap)) / screen.sigma
    if screen.noise == "every":
        return np.asarray(hazard)
    top = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(np.where(top, hazard, 0.0) / top.sum(axis=1, keepdims=True))

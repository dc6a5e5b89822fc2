"""Maximum-likelihood estimate of the votes, by projected Newton steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.mechanisms.protocols import abstains, gradient

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["most_likely"]

_ENOUGH = 1e-7  # nats that another step could still gain
_MOST_STEPS = 60
_FLAT = 1e-12  # curvature where answers say nothing at all


def most_likely(answers: np.ndarray, total: float, mechanism: BallotMechanism) -> np.ndarray:
    """Votes, not negative and adding up to ``total``, that maximise the likelihood of the answers.

    Without a screen the likelihood is log-concave in the votes (noise with a log-concave density,
    Prékopa 1973), so what is found is the only maximum.
    """
    from ostraka.attacks._steps import best_steps  # noqa: PLC0415  (compiled code, loaded when needed)

    n_classes = len(answers) - abstains(mechanism)
    seen = answers[:n_classes] + 1.0
    votes: np.ndarray = total * seen / seen.sum()
    gain, slope, curvature = _model(answers, votes, mechanism)
    damping = 0.0
    for _ in range(_MOST_STEPS):
        ridge = (damping + 1e-12) * np.trace(curvature) / n_classes + _FLAT
        [step] = best_steps(votes, slope[None], curvature + ridge * np.eye(n_classes))
        promised = float(slope @ step)
        if promised < _ENOUGH:
            if damping == 0 or promised < _ENOUGH * 1e-3:
                break
            damping = 0.0
            continue
        size = 1.0
        while size > 1e-6:
            tried = np.maximum(votes + size * step, 0.0)
            found = _model(answers, tried, mechanism)
            if found[0] >= gain + 1e-4 * size * promised:
                break
            size *= 0.5 if size > 0.3 else 0.25
        else:
            break
        damping = 0.0 if size == 1.0 else max(2 * damping, 1e-3)
        votes = tried * (total / tried.sum())
        gain, slope, curvature = found
    return votes


def _model(
    answers: np.ndarray, votes: np.ndarray, mechanism: BallotMechanism
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log likelihood, its gradient, and the expected curvature (Fisher information)."""
    logs, slopes = gradient(mechanism, votes[None])
    log_q, slope = logs[0], slopes[0]
    seen = answers > 0
    weighted = slope * (answers.sum() * np.exp(log_q))[:, None]
    return float(answers[seen] @ log_q[seen]), answers[seen] @ slope[seen], slope.T @ weighted

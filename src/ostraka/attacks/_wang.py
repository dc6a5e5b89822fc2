"""The vote recovery of Wang et al. 2022, with exact probabilities, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.mechanisms.protocols import gradient, parts

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["descend"]

_MOST_STEPS = 100
_LONG, _SHORT = 10.0, 1.0  # votes


def descend(answers: np.ndarray, n_teachers: int, mechanism: BallotMechanism) -> np.ndarray:
    """Votes whose outcome law points where the answers' frequencies point: steps of ten votes, then of one.

    Source: Wang et al. 2022, arXiv:2209.10732, Algorithm 2, and the authors' public code for what
    the text leaves open: both vectors are scaled to length one, the start is an even vote, and it
    ends with the first step that makes a count negative, or a short one that does not come nearer
    (that step included, as there). It knows no screen.
    """
    votes: np.ndarray = np.full(len(answers), n_teachers / len(answers))
    aim = answers / np.linalg.norm(answers)
    stride = _LONG
    distance, slope = _distance(votes, aim, mechanism)
    for _ in range(_MOST_STEPS):
        length = float(np.linalg.norm(slope))
        if length == 0:
            break
        tried = votes - stride / length * slope
        found, steeper = _distance(tried, aim, mechanism)
        if found > distance and stride == _LONG:
            stride = _SHORT
            continue
        ends = found > distance or bool((tried < 0).any())
        votes, distance, slope = tried, found, steeper
        if ends:
            break
    votes += (n_teachers - votes.sum()) / len(votes)
    return votes


def _distance(votes: np.ndarray, aim: np.ndarray, mechanism: BallotMechanism) -> tuple[float, np.ndarray]:
    logs, slopes = gradient(parts(mechanism)[1], votes[None])
    q = np.exp(logs[0])
    by_votes = slopes[0] * q[:, None]
    length = float(np.linalg.norm(q))
    gap = q / length - aim
    distance = float(np.linalg.norm(gap))
    if distance == 0:
        return 0.0, np.zeros(len(votes))
    by_q = (gap - q * (gap @ q) / length**2) / (length * distance)
    return distance, by_q @ by_votes

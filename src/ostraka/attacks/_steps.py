"""Compiled: the best step of a quadratic model over votes that stay >= 0 and keep their sum."""

from __future__ import annotations

import numba as nb
import numpy as np

__all__ = ["best_step", "total_step"]


@nb.njit(cache=True, nogil=True)
def best_step(votes: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """The d that maximises slope d - d' curvature d / 2 with votes + d >= 0 and sum d = 0: active sets."""
    n = votes.size
    step = np.zeros(n)
    fixed = np.zeros(n, np.bool_)
    for _ in range(3 * n):
        level = _solve(votes, slope, curvature, fixed, step)
        below = (votes + step < -1e-12) & ~fixed
        if below.any():
            fixed |= below
            continue
        pull = slope - curvature @ step - level
        worst = -1
        for k in range(n):
            if fixed[k] and pull[k] > 1e-9 and (worst < 0 or pull[k] > pull[worst]):
                worst = k
        if worst < 0:
            break
        fixed[worst] = False
    return step


@nb.njit(cache=True, nogil=True)
def total_step(votes: np.ndarray, slopes: np.ndarray, curvature: np.ndarray) -> float:
    """Mean over slopes, shape (n_draws, n_classes), of the votes moved: half the step's absolute sum."""
    moved = 0.0
    for row in range(slopes.shape[0]):
        moved += np.abs(best_step(votes, slopes[row], curvature)).sum()
    return float(moved / slopes.shape[0] / 2)


@nb.njit(cache=True, nogil=True)
def _solve(
    votes: np.ndarray, slope: np.ndarray, curvature: np.ndarray, fixed: np.ndarray, step: np.ndarray
) -> float:
    """The best step if ``fixed`` counts go to 0; writes it, and returns the price of one more vote."""
    free = np.flatnonzero(~fixed)
    m = free.size
    system, right = np.zeros((m + 1, m + 1)), np.zeros(m + 1)
    for k in range(votes.size):
        if fixed[k]:
            step[k] = -votes[k]
            right[m] += votes[k]
    for a in range(m):
        right[a] = slope[free[a]]
        for k in range(votes.size):
            if fixed[k]:
                right[a] -= curvature[free[a], k] * step[k]
        for b in range(m):
            system[a, b] = curvature[free[a], free[b]]
        system[a, m] = system[m, a] = 1.0
    solved = np.linalg.solve(system, right)
    for a in range(m):
        step[free[a]] = solved[a]
    return float(solved[m])

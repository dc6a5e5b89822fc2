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
        below = False
        for k in range(n):
            if not fixed[k] and votes[k] + step[k] < -1e-12:
                fixed[k] = below = True
        if below:
            continue
        worst, strongest = -1, 1e-9
        for k in range(n):
            if fixed[k]:
                pull = slope[k] - level
                for j in range(n):
                    pull -= curvature[k, j] * step[j]
                if pull > strongest:
                    worst, strongest = k, pull
        if worst < 0:
            break
        fixed[worst] = False
    return step


@nb.njit(cache=True, nogil=True)
def total_step(votes: np.ndarray, slopes: np.ndarray, curvature: np.ndarray) -> float:
    """Mean over slopes, shape (n_draws, n_classes), of the votes moved: half the step's absolute sum."""
    moved = 0.0
    for row in range(slopes.shape[0]):
        for change in best_step(votes, slopes[row], curvature):
            moved += abs(change)
    return float(moved / slopes.shape[0] / 2)


@nb.njit(cache=True, nogil=True)
def _solve(
    votes: np.ndarray, slope: np.ndarray, curvature: np.ndarray, fixed: np.ndarray, step: np.ndarray
) -> float:
    """The best step if ``fixed`` counts go to 0; writes it, and returns the price of one more vote."""
    free, m = np.empty(votes.size, np.int64), 0
    for k in range(votes.size):
        if not fixed[k]:
            free[m] = k
            m += 1
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
    _eliminate(system, right)
    for a in range(m):
        step[free[a]] = right[a]
    return float(right[m])


@nb.njit(cache=True, nogil=True)
def _eliminate(system: np.ndarray, right: np.ndarray) -> None:
    """Solve in place, the largest pivot first; by hand, as LAPACK's solver takes five seconds to compile."""
    n = right.size
    for column in range(n):
        best = column
        for row in range(column + 1, n):
            if abs(system[row, column]) > abs(system[best, column]):
                best = row
        for j in range(n):
            system[column, j], system[best, j] = system[best, j], system[column, j]
        right[column], right[best] = right[best], right[column]
        for row in range(column + 1, n):
            factor = system[row, column] / system[column, column]
            for j in range(column, n):
                system[row, j] -= factor * system[column, j]
            right[row] -= factor * right[column]
    for row in range(n - 1, -1, -1):
        for j in range(row + 1, n):
            right[row] -= system[row, j] * right[j]
        right[row] /= system[row, row]

"""Compiled: the best step of a quadratic model over votes that stay >= 0 and keep their sum."""

from __future__ import annotations

import numpy as np

from ostraka.core.compiled import kernel


@kernel("f8[::1], f8[:,::1], f8[:,::1]")
def best_steps(votes: np.ndarray, slopes: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """For each gradient g the d that maximises g d - d' curvature d / 2 with votes + d >= 0 and sum d = 0.

    By active sets. Shapes (n_classes,), (n_slopes, n_classes), (n_classes, n_classes); as ``slopes``.
    """
    n, steps = votes.size, np.empty(slopes.shape)
    for row in range(slopes.shape[0]):
        slope, step, fixed = slopes[row], steps[row], np.zeros(n, np.int64)
        for _ in range(3 * n):
            level = _solve(votes, slope, curvature, fixed, step)
            below = False
            for k in range(n):
                if fixed[k] == 0 and votes[k] + step[k] < -1e-12:
                    fixed[k], below = 1, True
            if below:
                continue
            worst, strongest = -1, 1e-9
            for k in range(n):
                if fixed[k] == 1:
                    pull = slope[k] - level
                    for j in range(n):
                        pull -= curvature[k, j] * step[j]
                    if pull > strongest:
                        worst, strongest = k, pull
            if worst < 0:
                break
            fixed[worst] = 0
    return steps


@kernel()
def _solve(
    votes: np.ndarray, slope: np.ndarray, curvature: np.ndarray, fixed: np.ndarray, step: np.ndarray
) -> float:
    """The best step if ``fixed`` counts go to 0; writes it, and returns the price of one more vote."""
    free, m = np.empty(votes.size, np.int64), 0
    for k in range(votes.size):
        if fixed[k] == 0:
            free[m] = k
            m += 1
    system, right = np.empty((m + 1, m + 1)), np.empty(m + 1)
    system[m, m] = right[m] = 0.0
    for k in range(votes.size):
        if fixed[k] == 1:
            step[k] = -votes[k]
            right[m] += votes[k]
    for a in range(m):
        right[a] = slope[free[a]]
        for k in range(votes.size):
            if fixed[k] == 1:
                right[a] -= curvature[free[a], k] * step[k]
        for b in range(m):
            system[a, b] = curvature[free[a], free[b]]
        system[a, m] = system[m, a] = 1.0
    _eliminate(system, right)
    for a in range(m):
        step[free[a]] = right[a]
    return float(right[m])


@kernel(error_model="python")  # a division by zero must not go unseen
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

"""Ballots of residuals: what a public model gets wrong about each row, in integers of bounded length."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

_ROWS = 8192  # at a time


def residual_sums(
    lines: np.ndarray, labels: np.ndarray, coef: np.ndarray, *, resolution: int, clip: float, parts: int
) -> np.ndarray:
    """Sum over rows of each line times its residual, int64 of shape (n_features, n_classes).

    A residual is the row's class, as zeros and a one, less the probabilities that ``coef`` gives, at most
    ``clip`` long, in ``parts`` of it. Products of whole numbers in floats are exact while their sums are
    below 2^53, so a row adds the same whatever the rows beside it hold. How its residual is rounded may
    depend on its place and on the number of rows, which neighbours share.
    """
    own = np.eye(coef.shape[1])
    sums = np.zeros(coef.shape)
    for start in range(0, len(lines), _ROWS):
        some = lines[start : start + _ROWS].astype(np.float64)
        # a warning would tell that some row overflows; such rows count nothing
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            apart = own[labels[start : start + _ROWS]] - softmax(some @ coef / resolution, axis=1)
            length = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), clip)
            residuals = shortened(apart * (parts / length), parts)
        sums += some.T @ residuals
    return sums.astype(np.int64)


def shortened(rows: np.ndarray, longest: int) -> np.ndarray:
    """Rows of whole numbers, each at most ``longest`` long: rounded, or towards zero where that is too long.

    A row that is still too long, or not finite, is all zeros. Squares of whole numbers are exact, so the
    comparison is.
    """
    whole = np.rint(rows)
    for again in (np.trunc, np.zeros_like):
        far = ~(np.einsum("ij,ij->i", whole, whole) <= longest**2)
        whole[far] = again(rows[far])
    return np.asarray(whole)

"""The label of a generated row: a logistic model whose expected counts are the noisy ones."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax

__all__ = ["Labels", "fitted"]

_MOST_STEPS = 100
_TRUST = 0.005  # how strongly noise in a count pulls its weight to zero; chosen on a part of one table


class Labels(NamedTuple):
    """Log odds of the classes: one number for each code of each column. Public."""

    weights: list[np.ndarray]  # one (n_codes, n_classes) a column

    def logits(self, codes: np.ndarray) -> np.ndarray:
        """Log odds of each row, shape (n_rows, n_classes)."""
        return np.asarray(sum(table[codes[:, j]] for j, table in enumerate(self.weights)))

    def draw(self, codes: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, by its chance."""
        logits = self.logits(codes)
        return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(axis=1), dtype=np.int64)


def fitted(codes: np.ndarray, counts: list[np.ndarray], *, sigma: float) -> Labels:
    """The model of maximal entropy whose counts of (code, class) over ``codes`` are the given shares.

    ``counts``: rows of each code by class, one table a column, with noise of standard deviation ``sigma``.
    The penalty on a weight is proportional to the variance of its count (Dudik, Phillips and Schapire 2007,
    JMLR 8: relaxed maximum entropy).
    """
    n_classes = counts[0].shape[1]
    starts = np.cumsum([0, *(len(table) for table in counts)])
    place = (codes + starts[:-1]).ravel()
    rows = np.arange(0, place.size + 1, codes.shape[1])
    which = csr_matrix((np.ones(place.size), place, rows), shape=(len(codes), starts[-1]))
    shares = np.concatenate([table / np.maximum(table.sum(axis=1, keepdims=True), 1e-9) for table in counts])
    wanted = np.bincount(place, minlength=starts[-1])[:, None] * shares
    scale = len(codes) / max(1.0, float(counts[0].sum()))
    penalty = _TRUST * ((sigma * scale) ** 2 + 1.0)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, n_classes)
        logits = which @ weights
        logs = log_softmax(logits, axis=1)
        value = float(
            (logits - logs)[:, 0].sum() - (wanted * weights).sum() + 0.5 * penalty * (weights**2).sum()
        )
        return value, (which.T @ np.exp(logs) - wanted + penalty * weights).ravel()

    options = {"maxiter": _MOST_STEPS, "ftol": 1e-9}
    best = minimize(loss, np.zeros(starts[-1] * n_classes), jac=True, method="L-BFGS-B", options=options)
    weights = best.x.reshape(-1, n_classes)
    return Labels([weights[a:b] for a, b in pairwise(starts)])

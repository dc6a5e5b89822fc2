"""Logistic regression by noisy gradients, one released table a round, with the covariance of public rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ostraka import _check

__all__ = ["GradientLogistic"]

# Chosen on training rows of Fashion-MNIST and TREC, and on SST-2 (docs/noisy-counts.md).
_CURVATURE = 0.1  # of the log likelihood, per variance of a feature
_DAMPING = 200.0  # variance that is added, per noise
_MOMENTUM = 0.5
_LATER = 0.5  # share of the rounds whose coefficients are averaged


class GradientLogistic:
    """Logistic regression which learns from one noisy gradient a round, as differential privacy pays for it.

    Each round asks private rows what the model of the rounds before gets wrong (the gradient of the log
    likelihood, see :meth:`ostraka.voters.RowVoter.residuals`), and takes a step of Newton's method whose
    curvature comes from public rows. Directions that the noise drowns are damped. The coefficients are the
    average over the later rounds.

    Parameters
    ----------
    X : array of shape (n_public, n_features)
        Features of public rows. Public.
    n_classes, n_rounds : int
    noise : float >= 0
        Standard deviation of each number in the average of all rounds' mean gradients. Public.

    Attributes
    ----------
    coef_ : float64 array, shape (n_features, n_classes)
        Log odds for each feature: to pose the next round with, and after the last one the average.

    Notes
    -----
    A step is ``coef += M v``, with ``v = 0.5 v + g`` for the mean gradient g, and M the inverse of
    0.1 (C + 200 s I): C is the second moment of the public features, and s the noise of g, times the square
    root of the rounds that it is averaged over. Everything here is a function of released tables.
    Source: gradient descent with clipped gradients as in Abadi et al. 2016, arXiv:1607.00133, with all rows
    in each step.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(500, 3))
    >>> y = (rows[:, 0] > 0).astype(int)
    >>> model = GradientLogistic(rows[:100], n_classes=2, n_rounds=20, noise=1e-3)
    >>> for _ in range(20):
    ...     odds = rows @ model.coef_
    ...     sure = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    ...     model = model.step(rows.T @ (np.eye(2)[y] - sure) / len(rows))
    >>> float((model.predict(rows) == y).mean()) > 0.95
    True
    """

    def __init__(self, X: Any, *, n_classes: int, n_rounds: int, noise: float) -> None:
        _check.integer(n_classes=n_classes, least=1)
        _check.integer(n_rounds=n_rounds, least=1)
        _check.nonnegative(noise=noise)
        rows = np.asarray(X, dtype=np.float64)
        values, self._axes = np.linalg.eigh(rows.T @ rows / len(rows))
        least = max(_DAMPING * noise, 1e-9 * float(values[-1]), 1e-300)
        self._inverse = 1 / (_CURVATURE * (np.maximum(values, 0.0) + least))
        self._left, self._later = n_rounds, max(1, round(_LATER * n_rounds))
        self.coef_ = np.zeros((rows.shape[1], n_classes))
        self._velocity, self._sum = np.zeros_like(self.coef_), np.zeros_like(self.coef_)

    def step(self, gradient: Any) -> Self:
        """Take the mean gradient of one round, shape (n_features, n_classes); the last round averages.

        Raises
        ------
        ValueError
            No round is left, or the gradient has another shape or is not finite.
        """
        table = np.asarray(gradient, dtype=np.float64)
        if table.shape != self.coef_.shape or not np.isfinite(table).all():
            raise ValueError(
                f"gradient must be finite numbers of shape {self.coef_.shape}, got shape {table.shape}"
            )
        if not self._left:
            raise ValueError("all rounds were taken: start with a new one")
        turned = self._axes @ (self._inverse[:, None] * (self._axes.T @ table))
        self._velocity = _MOMENTUM * self._velocity + turned
        self.coef_ = self.coef_ + self._velocity
        if self._left <= self._later:
            self._sum += self.coef_
        self._left -= 1
        if not self._left:
            self.coef_ = self._sum / self._later
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class index of rows by their features; int64."""
        return np.asarray((np.asarray(X, dtype=np.float64) @ self.coef_).argmax(axis=1))

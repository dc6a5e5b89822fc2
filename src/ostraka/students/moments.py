"""Logistic regression from public rows and noisy counts of private ones, which are its moments."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ostraka import _check

__all__ = ["MomentLogistic"]

_MOST_CELLS = 1500  # for standard errors
_ITERATIONS = 200


class MomentLogistic(ClassifierMixin, BaseEstimator):
    """Logistic regression whose covariates are public rows and whose labels are noisy private counts.

    Logistic regression needs labels only through the sums of each covariate over each class. Where
    covariates are bins, these sums are counts, which one release of noisy counts gives for all private rows.

    Parameters
    ----------
    penalty : float > 0, default 3
        Precision of the prior of each coefficient: N(0, 1 / penalty), in log odds.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : float64 array, shape (n_cells, n_classes)
        Log odds that each cell adds.
    intercept_ : float64 array, shape (n_classes,)
    standard_errors_ : float64 array, shape (n_cells, n_classes), or None
        Of the log odds which each cell adds to a class against the others, from the noise alone: exact to
        first order for two classes, an approximation for more. None above 1,500 cells.

    Notes
    -----
    The mode of the posterior of the coefficients. Its likelihood is Gaussian: the noisy count of a class in
    a cell, divided by the cell's size and multiplied by its number of public rows, is the sum of the
    probabilities over these public rows, plus the noise, plus the chance which rows are public. A cell's size
    is the average of its noisy total and of what public rows let expect, weighted by their variances. So
    cells with few rows count little, and more noise means a simpler model.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bins = rng.integers(0, 2, size=3000)
    >>> y = (rng.random(3000) < np.where(bins, 0.9, 0.2)).astype(int)
    >>> counts = np.array([[np.sum((bins == b) & (y == c)) for c in (0, 1)] for b in (0, 1)])
    >>> model = MomentLogistic().fit(np.eye(2)[bins[:100]], counts, sigma=5.0, n_units=3000)
    >>> model.predict_proba(np.eye(2)).round(1)
    array([[0.8, 0.2],
           [0.1, 0.9]])
    """

    def __init__(self, *, penalty: float = 3.0) -> None:
        self.penalty = penalty

    def fit(self, X: Any, counts: Any, *, sigma: float, n_units: float, classes: Any = None) -> Self:
        """Find the coefficients whose moments over the public rows explain the noisy counts.

        Parameters
        ----------
        X : array of shape (n_public, n_cells)
            Public rows: the line that each would add to the counts, in ballots.
        counts : array of shape (n_cells, n_classes), in ballots
            Released noisy counts.
        sigma : float >= 0, in ballots
            Standard deviation of their noise. Public.
        n_units : float > 0
            Number of private units. Public.
        classes : array of shape (n_classes,), optional
            Names of the classes. None: their numbers.

        Raises
        ------
        ValueError
            Shapes that do not fit, or numbers out of range.
        """
        _check.positive(penalty=self.penalty, n_units=n_units)
        _check.nonnegative(sigma=sigma)
        lines, table = np.asarray(X, dtype=np.float64), np.asarray(counts, dtype=np.float64)
        if table.ndim != 2 or lines.ndim != 2 or lines.shape[1] != len(table):
            raise ValueError(
                f"X must have a column and counts a row for each cell, got {lines.shape}, {table.shape}"
            )
        if not (np.isfinite(lines).all() and np.isfinite(table).all()):
            raise ValueError("X and counts must be finite")
        self.classes_ = np.arange(table.shape[1]) if classes is None else np.asarray(classes)
        if len(self.classes_) != table.shape[1]:
            raise ValueError(f"counts must have a column for each of {len(self.classes_)} classes")
        self.n_features_in_ = len(table)
        whole = np.maximum(table.sum(axis=0), 1.0)
        whole /= whole.sum()
        moments, variance, noise = _moments(lines, table, whole, sigma, n_units)
        self._solve(lines, moments, variance, whole)
        self.standard_errors_ = self._errors(lines, variance, noise)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes), for rows as in training."""
        check_is_fitted(self, "coef_")
        return np.asarray(softmax(np.asarray(X, dtype=np.float64) @ self.coef_ + self.intercept_, axis=1))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _solve(self, lines: np.ndarray, moments: np.ndarray, variance: np.ndarray, whole: np.ndarray) -> None:
        """Minimise the negative log posterior by a quasi-Newton method."""
        design = np.column_stack([lines, np.ones(len(lines))])
        shape = len(moments) + 1, moments.shape[1]
        precision = np.full((shape[0], 1), self.penalty)
        precision[-1] = 1e-3  # of the intercept: nearly none

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            beta = flat.reshape(shape)
            sure = softmax(design @ beta, axis=1)
            apart = lines.T @ sure - moments
            pull = apart / variance[:, None]
            each = lines @ pull
            gradient = design.T @ (sure * (each - (sure * each).sum(axis=1, keepdims=True)))
            value = (apart * pull).sum() / 2 + (precision * beta**2).sum() / 2
            return float(value), (gradient + precision * beta).ravel()

        start = np.zeros(shape)
        start[-1] = np.log(whole)
        found = minimize(
            loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS, "maxcor": 30}
        )
        beta = found.x.reshape(shape)
        self.coef_, self.intercept_ = beta[:-1], beta[-1]

    def _errors(self, lines: np.ndarray, variance: np.ndarray, noise: np.ndarray) -> np.ndarray | None:
        """Standard errors of the coefficients by the noise alone, from the posterior's curvature."""
        n_cells, n_classes = self.coef_.shape
        if n_cells > _MOST_CELLS:
            return None
        sure = softmax(lines @ self.coef_ + self.intercept_, axis=1)
        errors = np.empty(self.coef_.shape)
        for c in range(n_classes):
            moved = (lines * (sure[:, c] * (1 - sure[:, c]))[:, None]).T @ lines
            pull = moved / variance
            # the class and the others are two noisy sums of one log odds, whose prior has half the precision
            curvature = 2 * pull @ moved + self.penalty / 2 * np.eye(n_cells)
            reaction = np.linalg.solve(curvature, pull)
            errors[:, c] = np.sqrt(2 * (reaction**2 @ noise))
        return errors


def _moments(
    lines: np.ndarray, table: np.ndarray, whole: np.ndarray, sigma: float, n_units: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts brought to the scale of the public rows; each cell's variance, and its part from the noise."""
    public = lines.sum(axis=0)
    factor = n_units / len(lines)
    expected, total = public * factor, table.sum(axis=1)
    by_chance, by_noise = expected * factor + 1, table.shape[1] * sigma**2 + 1e-9
    size = np.maximum((expected * by_noise + total * by_chance) / (by_chance + by_noise), 1.0)
    spread = float((whole * (1 - whole)).max())
    noise = (sigma / size * public) ** 2
    return table / size[:, None] * public[:, None], noise + public * spread + 1e-6, noise

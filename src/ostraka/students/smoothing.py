"""Labels of public rows from noisy counts: a smooth function on their graph, with its uncertainty."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka._images import INVARIANCES, augmented, transforms
from ostraka.door import ABSTAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AugmentedSVM", "SmoothedCounts"]

_LEAST_OF_A_CLASS = 0.1  # of its rows which keep their label, so that no class is lost
_SCALES = tuple(2.0**k for k in np.arange(-8.0, 4.5, 0.5))


class SmoothedCounts(BaseEstimator):
    """Posterior shares of each class at each public row, given noisy counts of private rows.

    Parameters
    ----------
    scale : float > 0, optional
        Prior standard deviation of each coefficient of the features. None: the one of 2^-8, …, 2^4 under
        which the released counts are likeliest.

    Attributes
    ----------
    shares_ : float64 array, shape (n_public, n_classes)
        Posterior mean, less the mean over classes. The largest is the likeliest class.
    deviation_ : float64 array, shape (n_public,)
        Posterior standard deviation of each share at the row.
    labels_ : int64 array, shape (n_public,)
        The likeliest class.
    margin_ : float64 array, shape (n_public,)
        The largest share less the second: a weight for students.
    confidence_ : float64 array, shape (n_public,)
        Probability that the likeliest class is above the second, in [0.5, 1].
    probability_ : float64 array, shape (n_public,)
        Posterior mean of the share of the likeliest class, in [0, 1]: how likely the label is right.
    scale_ : float
        The prior standard deviation.
    coef_ : float64 array, shape (n_features, n_classes)
        Posterior mean of the coefficients of the features: what :meth:`predict` uses.

    Notes
    -----
    Model: the share of a class at row x is F(x) b, for the smooth features F of the graph, with prior b ~
    N(0, scale²). The counts are a sum of public lines over the private rows, which lie as the public rows
    do, plus N(0, sigma²) on each count. Everything is then normal, and the posterior exact.

    Examples
    --------
    >>> lines = np.eye(2)[[0, 0, 1, 1]]
    >>> found = SmoothedCounts().fit(lines, [[90, 12], [20, 95]], sigma=3.0, n_units=200, features=lines)
    >>> found.labels_
    array([0, 0, 1, 1])
    """

    def __init__(self, *, scale: float | None = None) -> None:
        self.scale = scale

    def fit(self, X: Any, counts: Any, *, sigma: float, n_units: float, features: Any) -> Self:
        """Condition on the counts.

        Parameters
        ----------
        X : array of shape (n_public, n_cells)
            The line that each public row would add to the counts, in ballots. Public.
        counts : array of shape (n_cells, n_classes), in ballots
            Released noisy counts.
        sigma : float > 0, in ballots
            Standard deviation of their noise. Public.
        n_units : float > 0
            Number of private units. Public.
        features : array of shape (n_public, n_features)
            Smooth features of the public rows. Public.
        """
        _check.positive(sigma=sigma, n_units=n_units)
        lines, table, smooth = (np.asarray(each, dtype=np.float64) for each in (X, counts, features))
        if table.ndim != 2 or lines.shape != (len(smooth), len(table)):
            raise ValueError(
                f"X must have shape (n_public, n_cells), got {lines.shape} for {len(smooth)} rows of "
                f"features and counts of shape {table.shape}"
            )
        reached = n_units / len(lines) * lines.T @ smooth
        values, vectors = np.linalg.eigh(reached @ reached.T)
        centred = vectors.T @ (table - table.mean(axis=1, keepdims=True))
        self.scale_ = self.scale or _likeliest(np.maximum(values, 0.0), centred, sigma)
        noise = np.maximum(values, 0.0) * self.scale_**2 + sigma**2
        weights = self.scale_**2 * (reached.T @ vectors)
        self.coef_ = weights @ (centred / noise[:, None])
        self.shares_ = smooth @ self.coef_
        left = self.scale_**2 * np.einsum("ij,ij->i", smooth, smooth)
        known = smooth @ weights
        self.deviation_ = np.sqrt(np.maximum(left - (known**2 / noise).sum(axis=1), 1e-12))
        self.labels_ = self.shares_.argmax(axis=1).astype(np.int64)
        two = np.sort(self.shares_, axis=1)[:, -2:]
        self.confidence_ = ndtr((two[:, 1] - two[:, 0]) / (np.sqrt(2) * self.deviation_))
        self.margin_ = two[:, 1] - two[:, 0]
        self.probability_ = np.clip(two[:, 1] + 1 / table.shape[1], 0.0, 1.0)
        return self

    def predict(self, features: Any) -> np.ndarray:
        """The likeliest class of rows by their features, which are those that were fitted; int64."""
        check_is_fitted(self, "coef_")
        return np.asarray((np.asarray(features, dtype=np.float64) @ self.coef_).argmax(axis=1))

    def sure_labels(self, *, right: float = 0.95) -> np.ndarray:
        """The labels of the rows of which the posterior is surest, for students who need few wrong ones.

        Parameters
        ----------
        right : float in (0, 1]
            As many labels as are right at this rate, as the posterior expects; and of each class at least
            a tenth of the rows. No true label is used.

        Returns
        -------
        int64 array, shape (n_public,)
            ``labels_``, and ``ABSTAIN`` at all other rows.

        Notes
        -----
        Smooth features shrink the shares near the border of two classes, so that the expectation is low: of
        MNIST's labels at an expected 0.95, 0.99 are right (docs/noisy-counts.md).
        """
        check_is_fitted(self, "probability_")
        if not 0 < right <= 1:
            raise ValueError(f"right must be > 0 and <= 1, got {right!r}")
        order = np.argsort(-self.probability_, kind="stable")
        mean = np.cumsum(self.probability_[order]) / np.arange(1, len(order) + 1)
        sure = np.zeros(len(order), dtype=bool)
        sure[order[mean >= right]] = True
        for label in np.unique(self.labels_):
            own = order[self.labels_[order] == label]
            sure[own[: math.ceil(_LEAST_OF_A_CLASS * len(own))]] = True
        return np.where(sure, self.labels_, ABSTAIN)


class AugmentedSVM(ClassifierMixin, BaseEstimator):
    """A support vector machine on public rows and, for images, on small changes of them.

    Parameters
    ----------
    image_shape : (height, width), optional
        Rows are grey images. None: no small changes.
    invariances : sequence of {"shift", "rotate", "scale", "shear"}
        Small changes which leave the class as it is.
    penalty : float > 0
        C of the machine.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> AugmentedSVM(image_shape=(8, 8)).fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.9
    True
    """

    def __init__(
        self,
        *,
        image_shape: tuple[int, int] | None = None,
        invariances: Sequence[str] = INVARIANCES,
        penalty: float = 1.0,
    ) -> None:
        self.image_shape = image_shape
        self.invariances = invariances
        self.penalty = penalty

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn; every change of a row has its label and its weight."""
        _check.positive(penalty=self.penalty)
        rows, labels = np.asarray(X, dtype=np.float64).reshape(len(X), -1), np.asarray(y)
        self.classes_ = np.unique(labels)
        self.n_features_in_ = rows.shape[1]
        if len(self.classes_) == 1:
            return self
        changes = [] if self.image_shape is None else transforms(self.image_shape, self.invariances)
        many = augmented(rows, changes) if changes else rows
        n = max(1, len(changes))
        # 4 over the median of squared distances: 2 (|x|² - mean²) on average
        spread = 2 * float(rows.var(axis=0).sum()) or 1.0
        weight = None if sample_weight is None else np.tile(np.asarray(sample_weight, dtype=np.float64), n)
        self.model_ = SVC(C=self.penalty, gamma=4 / spread).fit(many, np.tile(labels, n), weight)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of each class against the others; for two classes, of the second."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.decision_function(self._rows(X)))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        check_is_fitted(self, "classes_")
        if len(self.classes_) == 1:
            return np.full(len(X), self.classes_[0])
        return np.asarray(self.model_.predict(self._rows(X)))

    def _rows(self, X: Any) -> np.ndarray:
        return np.asarray(X, dtype=np.float64).reshape(len(X), -1)


def _likeliest(values: np.ndarray, centred: np.ndarray, sigma: float) -> float:
    """The prior's scale under which the released counts are likeliest."""

    def surprise(scale: float) -> float:
        variance = values * scale**2 + sigma**2
        return float((centred.shape[1] * np.log(variance) + (centred**2).sum(axis=1) / variance).sum())

    return float(min(_SCALES, key=surprise))

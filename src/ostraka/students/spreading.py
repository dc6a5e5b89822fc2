"""Label spreading on a graph of public rows, extended to new rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelPropagation, LabelSpreading
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.door import ABSTAIN

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["Spreading", "fit_graph"]

_MOST_ROWS = 2000  # in the graph: more rows take quadratic time and do not raise the accuracy
_RIDGE = 0.1


class Spreading(ClassifierMixin, BaseEstimator):
    """Label spreading on the graph of nearest rows, extended to new rows by kernel ridge regression.

    Neighbours outvote a wrong answer. Then a smooth function is fitted to the class distributions of the
    graph, weighted by their confidence. This generalises better than the neighbours of a new row.

    Parameters
    ----------
    n_neighbors : int
        Neighbours of each row in the graph.
    alpha : float in (0, 1)
        The weight of the neighbours' labels; a row's own answer has weight 1 - alpha.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Classes with an answer.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> some = np.where(np.arange(150) % 10 == 0, y, ABSTAIN)
    >>> Spreading().fit(X, some).score(X, y) > 0.8
    True
    """

    learns_from_unanswered = True

    def __init__(self, *, n_neighbors: int = 7, alpha: float = 0.8) -> None:
        self.n_neighbors = n_neighbors
        self.alpha = alpha

    @threadpoolctl.threadpool_limits.wrap(limits=1)  # for small problems more threads take longer
    def fit(self, X: Any, y: Any) -> Self:
        """Fit graph and extension. ``y`` holds class indices, and ``ABSTAIN`` for rows without an answer."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        X, y = _thinned(X, y)
        graph = LabelSpreading(kernel="knn", n_neighbors=self.n_neighbors, alpha=self.alpha, max_iter=100)
        fit_graph(graph, X, y)
        sure = graph.label_distributions_
        sharp = sure**2 / (sure**2).sum(axis=1, keepdims=True)
        smooth = 1 / (X.shape[1] * (X.var() or 1.0))
        self.classes_ = graph.classes_
        self._prior = sharp.mean(axis=0)
        self._extension = KernelRidge(kernel="rbf", gamma=smooth, alpha=_RIDGE)
        self._extension.fit(X, sharp, sample_weight=sure.max(axis=1) ** 2 + 1e-3)
        return self

    @threadpoolctl.threadpool_limits.wrap(limits=1)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, shape (n_rows, n_classes)."""
        check_is_fitted(self, "classes_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        # far from all rows the regression is 0: then the most frequent answer counts
        sure = self._extension.predict(X).clip(min=0) + 1e-9 * self._prior
        return np.asarray(sure / sure.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


def fit_graph(graph: LabelPropagation | LabelSpreading, X: np.ndarray, y: np.ndarray) -> None:
    """Fit in place, without warnings. Rows that no answer reaches get that of the nearest answered row."""
    answered = np.flatnonzero(y != ABSTAIN)
    graph.set_params(n_neighbors=max(1, min(graph.n_neighbors, len(X) - 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence, and about rows that no answer reaches
        graph.fit(X, y)
    sure = graph.label_distributions_
    lost = np.flatnonzero(~(sure.sum(axis=1) > 0))  # NaN is lost too
    if len(lost):
        near = NearestNeighbors(n_neighbors=1).fit(X[answered]).kneighbors(X[lost], return_distance=False)
        sure[lost] = y[answered][near] == graph.classes_
        graph.transduction_[lost] = y[answered][near[:, 0]]


def _thinned(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All answered rows and a fixed selection of the others, at most ``_MOST_ROWS`` together."""
    if len(y) <= _MOST_ROWS:
        return X, y
    order = np.random.default_rng(0).permutation(len(y))
    kept = np.sort(order[np.argsort(y[order] == ABSTAIN, kind="stable")][:_MOST_ROWS])
    return X[kept], y[kept]

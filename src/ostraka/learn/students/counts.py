"""Students whose covariates are public rows, and whose labels are noisy counts, gradients, or few answers.

:class:`MomentLogistic` learns from counts, which are its moments. :class:`SmoothedCounts` labels public rows
by a smooth function on their graph, with its uncertainty; :class:`AugmentedSVM` learns these labels.
:class:`GradientLogistic` takes one released table of gradients a round. :class:`Spreading` spreads the few
labels that there are on a graph, and from there to new rows.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelPropagation, LabelSpreading
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.core import check
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.core.numeric import one_thread
from ostraka.data.nearest import INVARIANCES, augmented, transforms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sklearn.utils import Tags

_MOST_CELLS = 1500  # for standard errors
_ITERATIONS = 200
_LEAST_OF_A_CLASS = 0.1  # of its rows which keep their label, so that no class is lost
_SCALES = tuple(2.0**k for k in np.arange(-8.0, 4.5, 0.5))
_MOST_ROWS = 2000  # in the graph: more rows take quadratic time and do not raise the accuracy
_RIDGE = 0.1
# Chosen on training rows of Fashion-MNIST and TREC, and on SST-2 (docs/noisy-counts.md).
_CURVATURE = 0.1  # of the log likelihood, per variance of a feature
_DAMPING = 200.0  # variance that is added, per noise
_MOMENTUM = 0.5
_LATER = 0.5  # share of the rounds whose coefficients are averaged


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
        check.positive(penalty=self.penalty, n_units=n_units)
        check.nonnegative(sigma=sigma)
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
        priors = np.maximum(table.sum(axis=0), 1.0)
        priors /= priors.sum()
        # counts brought to the scale of the public rows; each cell's variance, and its part from the noise
        public, factor, total = lines.sum(axis=0), n_units / len(lines), table.sum(axis=1)
        expected = public * factor
        by_chance, by_noise = expected * factor + 1, table.shape[1] * sigma**2 + 1e-9
        size = np.maximum((expected * by_noise + total * by_chance) / (by_chance + by_noise), 1.0)
        noise = (sigma / size * public) ** 2
        moments = table / size[:, None] * public[:, None]
        variance = noise + public * float((priors * (1 - priors)).max()) + 1e-6
        design = np.column_stack([lines, np.ones(len(lines))])
        shape = len(moments) + 1, moments.shape[1]
        precision = np.full((shape[0], 1), self.penalty)
        precision[-1] = 1e-3  # of the intercept: nearly none

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            beta = flat.reshape(shape)
            sure = softmax(design @ beta, axis=1)
            apart = lines.T @ sure - moments
            pull = apart / variance[:, None]
            slopes = lines @ pull
            gradient = design.T @ (sure * (slopes - (sure * slopes).sum(axis=1, keepdims=True)))
            value = (apart * pull).sum() / 2 + (precision * beta**2).sum() / 2
            return float(value), (gradient + precision * beta).ravel()

        # the mode: the negative log posterior is minimised by a quasi-Newton method
        start = np.zeros(shape)
        start[-1] = np.log(priors)
        solution = minimize(
            loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS, "maxcor": 30}
        )
        beta = solution.x.reshape(shape)
        self.coef_, self.intercept_ = beta[:-1], beta[-1]
        self.standard_errors_ = None
        if len(table) > _MOST_CELLS:
            return self
        # errors by the noise alone, from the posterior's curvature
        sure = softmax(lines @ self.coef_ + self.intercept_, axis=1)
        self.standard_errors_ = np.empty(self.coef_.shape)
        for c in range(table.shape[1]):
            moved = (lines * (sure[:, c] * (1 - sure[:, c]))[:, None]).T @ lines
            pull = moved / variance
            # the class and the others are two noisy sums of one log odds, whose prior has half the precision
            curvature = 2 * pull @ moved + self.penalty / 2 * np.eye(len(table))
            reaction = np.linalg.solve(curvature, pull)
            self.standard_errors_[:, c] = np.sqrt(2 * (reaction**2 @ noise))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes), for rows as in training."""
        check_is_fitted(self, "coef_")
        return np.asarray(softmax(np.asarray(X, dtype=np.float64) @ self.coef_ + self.intercept_, axis=1))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


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
        check.positive(sigma=sigma, n_units=n_units)
        lines, table, smooth = (np.asarray(values, dtype=np.float64) for values in (X, counts, features))
        if self.scale is not None:
            check.positive(scale=self.scale)
        if not np.isfinite(table).all():
            raise ValueError("counts must be finite")
        if table.ndim != 2 or lines.shape != (len(smooth), len(table)):
            raise ValueError(
                f"X must have shape (n_public, n_cells), got {lines.shape} for {len(smooth)} rows of "
                f"features and counts of shape {table.shape}"
            )
        reached = n_units / len(lines) * lines.T @ smooth
        values, vectors = np.linalg.eigh(reached @ reached.T)
        centred = vectors.T @ (table - table.mean(axis=1, keepdims=True))
        values = np.maximum(values, 0.0)

        def surprise(scale: float) -> float:
            variance = values * scale**2 + sigma**2
            return float((centred.shape[1] * np.log(variance) + (centred**2).sum(axis=1) / variance).sum())

        self.scale_ = self.scale or float(min(_SCALES, key=surprise))
        noise = values * self.scale_**2 + sigma**2
        weights = self.scale_**2 * (reached.T @ vectors)
        self.coef_ = weights @ (centred / noise[:, None])
        self.shares_ = smooth @ self.coef_
        prior_variance = self.scale_**2 * np.einsum("ij,ij->i", smooth, smooth)
        loadings = smooth @ weights
        self.deviation_ = np.sqrt(np.maximum(prior_variance - (loadings**2 / noise).sum(axis=1), 1e-12))
        self.labels_ = self.shares_.argmax(axis=1).astype(np.int64)
        second, first = np.sort(self.shares_, axis=1)[:, -2:].T
        self.margin_ = first - second
        self.confidence_ = ndtr(self.margin_ / (np.sqrt(2) * self.deviation_))
        self.probability_ = np.clip(first + 1 / table.shape[1], 0.0, 1.0)
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
        check.share(one=True, right=right)
        order = np.argsort(-self.probability_, kind="stable")
        mean = np.cumsum(self.probability_[order]) / np.arange(1, len(order) + 1)
        sure = np.zeros(len(order), dtype=bool)
        sure[order[mean >= right]] = True
        for label in np.unique(self.labels_):
            rows = order[self.labels_[order] == label]
            sure[rows[: math.ceil(_LEAST_OF_A_CLASS * len(rows))]] = True
        return np.where(sure, self.labels_, ABSTAIN)


@dataclass(kw_only=True, eq=False, repr=False)
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

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    present_ : integer array
        Indices of those that have a label, in the order of ``model_``.
    model_ : sklearn.svm.SVC
        Not there where all labels are of one class.
    sharpness_ : float
        Factor of the scores whose softmax :meth:`predict_proba` is: see :func:`sharpness`. 1 until it is set.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> AugmentedSVM(image_shape=(8, 8)).fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.9
    True
    """

    image_shape: tuple[int, int] | None = None
    invariances: Sequence[str] = INVARIANCES
    penalty: float = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Learn; every change of a row has its label and its weight. ``classes``: also those without one."""
        check.positive(penalty=self.penalty)
        rows, labels = np.asarray(X, dtype=np.float64).reshape(len(X), -1), np.asarray(y)
        names = np.unique(labels)
        self.classes_ = names if classes is None else np.asarray(classes)
        if not np.isin(names, self.classes_).all():
            raise ValueError("classes must hold every label of y")
        order = np.argsort(self.classes_)
        self.present_ = order[np.searchsorted(self.classes_[order], names)]
        self.sharpness_ = 1.0
        self.n_features_in_ = rows.shape[1]
        if len(self.present_) == 1:
            return self
        changes = [] if self.image_shape is None else transforms(self.image_shape, self.invariances)
        many = augmented(rows, changes) if changes else rows
        n = max(1, len(changes))
        # 4 over the median of squared distances: 2 (|x|² - mean²) on average
        spread = 2 * float(rows.var(axis=0).sum()) or 1.0
        weight = None if sample_weight is None else np.tile(np.asarray(sample_weight, dtype=np.float64), n)
        machine = SVC(C=self.penalty, gamma=4 / spread, break_ties=True)  # the class with the largest score
        self.model_ = machine.fit(many, np.tile(labels, n), weight)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of each present class against the others; for two classes, of the second."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.decision_function(self._rows(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes); 0 for classes without a label."""
        check_is_fitted(self, "classes_")
        sure = np.zeros((len(X), len(self.classes_)))
        if len(self.present_) == 1:
            sure[:, self.present_] = 1.0
        else:
            scores = two_columns(self.decision_function(X))
            sure[:, self.present_] = softmax(self.sharpness_ * scores, axis=1)
        return sure

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row: the likeliest."""
        check_is_fitted(self, "classes_")
        if not hasattr(self, "model_"):
            return np.full(len(X), self.classes_[self.present_[0]])
        return np.asarray(self.model_.predict(self._rows(X)))

    def _rows(self, X: Any) -> np.ndarray:
        return np.asarray(X, dtype=np.float64).reshape(len(X), -1)


def two_columns(scores: np.ndarray) -> np.ndarray:
    """Scores of each class, shape (n_rows, n_classes), where scikit-learn has one column for two classes."""
    return scores if scores.ndim > 1 else np.column_stack([np.zeros_like(scores), scores])


def sharpness(scores: Any, *, confidence: float) -> float:
    """The factor of scores whose softmax is as sure as this on average.

    Scores say which class is likeliest, but not how likely. The factor changes nothing about the first.

    Parameters
    ----------
    scores : array of shape (n_public, n_classes), or of shape (n_public,) for two classes
        Of public rows.
    confidence : float in [0, 1]
        How likely the likeliest class is right on average, as :class:`SmoothedCounts` expects it.

    Returns
    -------
    float
        Of 2^-6, 2^-5.75, …, 2^10 the nearest.

    Examples
    --------
    >>> sharpness([[0.0, 1.0], [2.0, 1.0]], confidence=0.731)
    1.0
    """
    check.share(one=True, confidence=confidence)
    columns = two_columns(np.asarray(scores, dtype=np.float64))
    factors = 2.0 ** np.arange(-6.0, 10.25, 0.25)
    sure = [softmax(factor * columns, axis=1).max(axis=1).mean() for factor in factors]
    return float(factors[np.abs(np.array(sure) - confidence).argmin()])


@dataclass(kw_only=True, eq=False, repr=False)
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

    n_neighbors: int = 7
    alpha: float = 0.8

    @one_thread()
    def fit(self, X: Any, y: Any) -> Self:
        """Fit graph and extension. ``y`` holds class indices, and ``ABSTAIN`` for rows without an answer."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        if len(y) > _MOST_ROWS:  # all answered rows, and a fixed selection of the others
            order = np.random.default_rng(0).permutation(len(y))
            rows = np.sort(order[np.argsort(y[order] == ABSTAIN, kind="stable")][:_MOST_ROWS])
            X, y = X[rows], y[rows]
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

    @one_thread()
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
        check.integer(n_classes=n_classes, least=1)
        check.integer(n_rounds=n_rounds, least=1)
        check.nonnegative(noise=noise)
        rows = np.asarray(X, dtype=np.float64)
        values, self._axes = np.linalg.eigh(rows.T @ rows / len(rows))
        least = max(_DAMPING * noise, 1e-9 * float(values[-1]), 1e-300)
        self._inverse = 1 / (_CURVATURE * (np.maximum(values, 0.0) + least))
        self._rounds_left, self._later = n_rounds, max(1, round(_LATER * n_rounds))
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
        if not self._rounds_left:
            raise ValueError("all rounds were taken: start with a new one")
        turned = self._axes @ (self._inverse[:, None] * (self._axes.T @ table))
        self._velocity = _MOMENTUM * self._velocity + turned
        self.coef_ = self.coef_ + self._velocity
        if self._rounds_left <= self._later:
            self._sum += self.coef_
        self._rounds_left -= 1
        if not self._rounds_left:
            self.coef_ = self._sum / self._later
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class index of rows by their features; int64."""
        return np.asarray((np.asarray(X, dtype=np.float64) @ self.coef_).argmax(axis=1))

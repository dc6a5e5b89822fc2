"""Scores whose largest is a scikit-learn model's prediction, as one product of terms of a row and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LINEAR", "Scores", "Terms", "linear_scores", "terms_of"]

LINEAR = {  # predict the class of the largest score; of two classes the second, where its score is above 0
    "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.linear_model._ridge.RidgeClassifier",
    "sklearn.linear_model._stochastic_gradient.SGDClassifier",
    "sklearn.svm._classes.LinearSVC",
}


class Scores(NamedTuple):
    """One model's weights, (n_present, n_terms), and offsets, (n_present,).

    ``size`` bounds what adds up to an offset, in absolute values. Rounding errors are a share of it.
    """

    weights: np.ndarray
    offsets: np.ndarray
    size: float


class Terms(NamedTuple):
    """What to multiply, the same for all models: terms of rows, (n_rows, n_terms); and a model's scores."""

    of_rows: Callable[[np.ndarray], np.ndarray]
    of_model: Callable[[Any], Scores | None]


def terms_of(models: Sequence[Any]) -> Terms | None:
    """Return the terms for models of one kind with the same settings, or None for another kind."""
    kinds = {_kind(model) for model in models}
    if kinds <= LINEAR:
        return Terms(lambda X: X, _linear)
    if len(kinds) > 1:
        return None
    make = _MADE.get(kinds.pop())
    return None if make is None else make(models)


def linear_scores(model: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights (n_present, n_features) and offsets (n_present,) whose largest score is the prediction."""
    if _kind(model) not in LINEAR or not _plain(model.coef_):
        return None
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        return None
    coef = np.atleast_2d(model.coef_)
    intercept = np.broadcast_to(model.intercept_, len(coef))  # some have a 0 where none was fitted
    if len(coef) > 1:
        return coef, intercept
    ahead = coef[0]  # of two classes: how far the second is ahead of the first
    return np.stack([np.zeros_like(ahead), ahead]), np.array([0.0, intercept[0]])


def _linear(model: Any) -> Scores | None:
    found = linear_scores(model)
    return None if found is None else Scores(*found, float(np.abs(found[1]).max()))


def _normal(models: Sequence[Any]) -> Terms | None:
    """Gaussian naive Bayes: log likelihoods are quadratic; rows and means are moved by one middle."""
    if not all(_plain(model.theta_) and _plain(model.var_) for model in models):
        return None
    middle = np.mean([model.theta_.mean(axis=0) for model in models], axis=0)

    def of_model(model: Any) -> Scores | None:
        means, precisions, spread = model.theta_ - middle, 1 / model.var_, np.log(2 * np.pi * model.var_)
        prior, away = np.log(model.class_prior_), (means**2 * precisions).sum(axis=1) / 2
        size = np.abs(prior) + np.abs(spread).sum(axis=1) / 2 + away
        weights = np.concatenate([means * precisions, -precisions / 2], axis=1)
        return _finite(weights, prior - spread.sum(axis=1) / 2 - away, size)

    return Terms(lambda X: _squared(X - middle), of_model)


def _nearest(models: Sequence[Any]) -> Terms | None:
    """Nearest centroids: minus half of squared distances, whose terms scikit-learn adds up, too."""
    if not all(_plain(model.centroids_) and _alike(model) for model in models):
        return None

    def of_model(model: Any) -> Scores | None:
        away = (model.centroids_**2).sum(axis=1) / 2
        halves = np.full_like(model.centroids_, -0.5)
        return _finite(np.concatenate([model.centroids_, halves], axis=1), -away, away)

    return Terms(_squared, of_model)


def _counted(models: Sequence[Any]) -> Terms | None:
    """Multinomial naive Bayes: log probabilities are weights."""
    return Terms(lambda X: X, _multinomial) if all(_plain(one.feature_log_prob_) for one in models) else None


def _multinomial(model: Any) -> Scores | None:
    return _finite(model.feature_log_prob_, model.class_log_prior_, np.abs(model.class_log_prior_))


def _binary(models: Sequence[Any]) -> Terms | None:
    """Bernoulli naive Bayes: each feature is 1 above a threshold, which all models must share, else 0."""
    thresholds = {model.binarize for model in models}
    if len(thresholds) > 1 or not all(_plain(model.feature_log_prob_) for model in models):
        return None
    threshold = thresholds.pop()

    def of_model(model: Any) -> Scores | None:
        absent = np.log(1 - np.exp(model.feature_log_prob_))  # rounded as by scikit-learn
        size = np.abs(model.class_log_prior_) + np.abs(absent).sum(axis=1)
        weights = model.feature_log_prob_ - absent
        return _finite(weights, model.class_log_prior_ + absent.sum(axis=1), size)

    return Terms(lambda X: X if threshold is None else (threshold < X).astype(np.float64), of_model)


def _squared(X: np.ndarray) -> np.ndarray:
    return np.concatenate([X, X**2], axis=1)


def _finite(weights: np.ndarray, offsets: np.ndarray, size: np.ndarray) -> Scores | None:
    known = np.isfinite(weights).all() and np.isfinite(offsets).all() and np.isfinite(size).all()
    return Scores(weights, offsets, float(size.max())) if known else None


def _plain(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float64


def _alike(model: Any) -> bool:
    """Whether the nearest centroid is the prediction: Euclidean distances, and no class is more probable."""
    even = np.isclose(model.class_prior_, 1 / len(model.centroids_)).all()  # as scikit-learn asks
    return model.metric == "euclidean" and bool(even)


def _kind(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


_MADE: dict[str, Callable[[Sequence[Any]], Terms | None]] = {
    "sklearn.naive_bayes.BernoulliNB": _binary,
    "sklearn.naive_bayes.GaussianNB": _normal,
    "sklearn.naive_bayes.MultinomialNB": _counted,
    "sklearn.neighbors._nearest_centroid.NearestCentroid": _nearest,
}

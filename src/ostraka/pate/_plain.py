"""The student as a plain scikit-learn model, which loads and predicts where this library is not installed."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import _safe_indexing

from ostraka.door import ABSTAIN
from ostraka.networks import TorchClassifier
from ostraka.pate._binned import binned
from ostraka.pate._counts_student import BinnedStudent
from ostraka.pate._perceptron import perceptron
from ostraka.students import Distilled
from ostraka.students.spreading import Spreading

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["by_name", "plain"]


def plain(student: Any, X: Any, labels: np.ndarray) -> Any:
    """A scikit-learn classifier that predicts what the student predicts.

    Parameters
    ----------
    student : Distilled, or a student of counts
        Fitted.
    X, labels
        What it was fitted to: public rows, and class indices or ``ABSTAIN``.

    Raises
    ------
    ValueError
        The student is of another library, or a fit to the labels' names predicts something else.
    """
    if isinstance(student, BinnedStudent):
        return binned(student.cells, student.model)
    if isinstance(student, Pipeline):
        _require_sklearn(student)
        return student
    if not isinstance(student, Distilled):
        return _inside(student, X)
    classes, model = student.classes_, student.model_
    if model is None:
        same = classes[labels[labels != ABSTAIN][0]]
        rows = _safe_indexing(X, np.arange(len(classes)) % X.shape[0])
        return DummyClassifier(strategy="constant", constant=same).fit(rows, classes)
    if isinstance(model, Spreading):
        made = _spread(model, classes)
    elif isinstance(network := getattr(model, "model_", model), TorchClassifier):
        made = perceptron(network, classes[network.classes_])
    elif type(model).__module__.partition(".")[0] == "sklearn":
        made = _refitted(model, X, labels, classes)
    else:
        raise ValueError(f"{type(model).__name__} is no scikit-learn model: keep the student as it is")
    if not np.array_equal(made.predict(X), student.predict(X)):
        raise ValueError(f"{type(model).__name__} predicts something else when it is fitted again")
    return made


def by_name(model: Any, X: np.ndarray | None, *, columns: Sequence[str], encoder: Any = None) -> Pipeline:
    """Put a step before the model which selects its columns by name.

    Parameters
    ----------
    model : fitted classifier
        Of features, as ``encoder`` makes them of the columns.
    X : array of shape (n_rows, n_features)
        Public features; looked at only where there is no encoder.
    columns : sequence of str
    encoder : fitted ColumnTransformer, optional
        None: the columns are the features.
    """
    if encoder is None:
        rows = np.zeros((1, len(columns))) if X is None else X
        encoder = ColumnTransformer([("numbers", "passthrough", list(range(len(columns))))]).fit(rows)
    named = copy.deepcopy(encoder)
    named.feature_names_in_ = np.array(columns, dtype=object)
    for _, step, places in named.transformers_:
        if isinstance(places, int):
            continue  # a step that takes one column of text, whatever its name
        for part in (step, *(getattr(step, "named_steps", None) or {}).values()):
            if hasattr(part, "n_features_in_") and not isinstance(part, Pipeline):
                part.feature_names_in_ = named.feature_names_in_[places]
                break
    return Pipeline([("columns", named), ("student", model)])


def _inside(student: Any, X: Any) -> Any:
    """Return the scikit-learn model inside a student of counts, if that model alone decides."""
    if len(student.classes_) == 1:
        rows = np.zeros((1, student.n_features_in_))
        return DummyClassifier(strategy="constant", constant=student.classes_[0]).fit(rows, student.classes_)
    made: Any = getattr(student, "model_", None)
    ours = type(made).__module__.partition(".")[0] != "sklearn"
    if ours or (X is not None and not np.array_equal(made.predict(np.asarray(X)), student.predict(X))):
        raise ValueError(f"{type(student).__name__} is no scikit-learn model: keep the student as it is")
    return made


def _require_sklearn(made: Pipeline) -> None:
    """Raise ValueError if a step is not of scikit-learn, or calls a function, which may be anybody's."""
    for _, step in made.steps:
        if isinstance(step, Pipeline):
            _require_sklearn(step)
        elif type(step).__module__.partition(".")[0] != "sklearn" or getattr(step, "func", None):
            raise ValueError(f"{type(step).__name__} is no scikit-learn model: keep the student as it is")


def _refitted(model: Any, X: Any, labels: np.ndarray, classes: np.ndarray) -> Any:
    """The same model, fitted to names of classes instead of their indices."""
    answered = np.flatnonzero(labels != ABSTAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a classifier thinks of so few rows helps nobody
        if isinstance(model, SelfTrainingClassifier):
            named = np.full(len(labels), ABSTAIN, dtype=object)
            named[answered] = classes[labels[answered]]
            return clone(model).fit(X, named)
        return clone(model).fit(_safe_indexing(X, answered), classes[labels[answered]])


def _spread(model: Spreading, classes: np.ndarray) -> Pipeline:
    """Return kernel ridge regression and the choice of the largest score, as steps that scikit-learn has."""
    # Nystroem multiplies kernels by a matrix, here the dual coefficients; a linear classifier with
    # coefficients of one takes the largest
    ridge = model._extension  # noqa: SLF001  (its fitted parts are the model)
    known = classes[model.classes_]
    n = len(known)
    scores = Nystroem(kernel="rbf", gamma=ridge.gamma, n_components=len(ridge.X_fit_))
    scores.components_, scores.normalization_ = ridge.X_fit_, ridge.dual_coef_.T
    scores.component_indices_ = np.arange(len(ridge.X_fit_))
    scores.n_features_in_ = ridge.X_fit_.shape[1]
    positive = MinMaxScaler(feature_range=(0.0, 1e300), clip=True)  # clips at zero, and scales by one
    positive.scale_, positive.min_, positive.n_features_in_ = np.ones(n), np.zeros(n), n
    largest = SGDClassifier(loss="modified_huber")
    weights, prior = 2.0 * np.eye(n), 2e-9 * model._prior - 1.0  # noqa: SLF001
    if n == 2:  # one row decides between two classes
        weights, prior = np.array([[-1.0, 1.0]]), np.array([1e-9 * (model._prior[1] - model._prior[0])])  # noqa: SLF001
    largest.coef_, largest.intercept_, largest.classes_ = weights, prior, known
    largest.n_features_in_, largest.t_, largest.n_iter_ = n, 1.0, 1
    return make_pipeline(scores, positive, largest)

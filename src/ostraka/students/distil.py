"""A student that is trained on public rows and released labels. It uses no private data."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.door import ABSTAIN
from ostraka.students._answers import coded
from ostraka.students.spreading import Spreading, fit_graph

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["Distilled"]

_GRAPHS = (LabelPropagation, LabelSpreading)
_NAMES = ("auto", "boosting", "self-training", "spreading")
_FOLDS = 5
_ENOUGH_TO_CHOOSE = 8 * _FOLDS  # answers; with fewer, a fold is too small to compare two students


def _has_probabilities(student: Distilled) -> bool:
    model = getattr(student, "model_", student.estimator)
    return model is None or isinstance(model, str) or hasattr(model, "predict_proba")


class Distilled(ClassifierMixin, BaseEstimator):
    """A classifier that learns from public rows, of which only some have a released label.

    Parameters
    ----------
    estimator : str or scikit-learn classifier, default "auto"
        ``"spreading"``: label spreading on the graph of nearest public rows, which corrects wrong answers
        where the classes form clusters. ``"boosting"``: shallow trees on the answered rows, for tables.
        ``"self-training"``: the same, then also on its most confident predictions. ``"auto"``: spreading
        or boosting, whichever predicts held-out answers better; this has no privacy cost. A
        semi-supervised classifier of scikit-learn gets all rows, and so does one with the attribute
        ``learns_from_unanswered = True``, such as :class:`FeatureMatchingGAN`; others get the answered
        rows only.
    random_state : int, numpy.random.RandomState or None
        Seeds the training of the named students, and how "auto" splits.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    model_ : fitted classifier, or None
        None if all answers were the same class, which is then the only prediction.
    name_ : str
        The name of the student, or the class name of ``estimator``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> some = np.where(np.arange(150) % 5 == 0, y, ABSTAIN)
    >>> student = Distilled("spreading").fit(X, some, classes=["setosa", "versicolor", "virginica"])
    >>> student.predict(X[:2])
    array(['setosa', 'setosa'], dtype='<U10')
    """

    def __init__(
        self, estimator: Any = "auto", *, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, classes: Any = None) -> Self:
        """Learn from the answered rows and from the distribution of the others.

        Parameters
        ----------
        X : array or data frame, shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Public, already released. With ``classes``: indices into it, as mechanisms return them.
            Without: the labels. ``ABSTAIN`` (-1; for text also None) where there is no answer.
        classes : array of shape (n_classes,), optional
            Names of all classes, including those without an answer.

        Raises
        ------
        ValueError
            No row has an answer, an index is not in ``range(n_classes)``, or shapes do not match.
        """
        if y is None:
            raise ValueError("Distilled requires y to be passed, but the target y is None")
        X = self._validated(X, reset=True)
        self.classes_, codes = coded(y, classes, n_rows=X.shape[0])
        self._seen = seen = np.unique(codes[codes != ABSTAIN])
        self.name_ = self._chosen(X, codes)
        self.model_ = None if len(seen) == 1 else _fitted(self._named(self.name_), X, codes)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row, of any rows."""
        X = self._validated(X)
        if self.model_ is None:
            return np.full(X.shape[0], self.classes_[self._seen[0]])
        return np.asarray(self.classes_[self.model_.predict(X)])

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, shape (n_rows, n_classes); 0 for classes without an answer."""
        X = self._validated(X)
        probabilities = np.zeros((X.shape[0], len(self.classes_)))
        probabilities[:, self._seen] = 1.0 if self.model_ is None else self.model_.predict_proba(X)
        return probabilities

    def _validated(self, X: Any, *, reset: bool = False) -> Any:
        """Check the rows: a data frame stays unchanged, other inputs become finite numbers."""
        if not reset:
            check_is_fitted(self, "classes_")
        allow_nan = get_tags(self).input_tags.allow_nan
        checks = {"ensure_all_finite": "allow-nan" if allow_nan else True}
        validated = validate_data(self, X, reset=reset, skip_check_array=hasattr(X, "iloc"), **checks)
        return X if hasattr(X, "iloc") else validated

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if not isinstance(self.estimator, str):
            tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags

    def _chosen(self, X: Any, codes: np.ndarray) -> str:
        """The name of the student to use, or the class name of the given estimator."""
        if not isinstance(self.estimator, str):
            return type(self.estimator).__name__
        if self.estimator not in _NAMES:
            raise ValueError(
                f"estimator must be a classifier or one of {', '.join(_NAMES)}, got {self.estimator!r}"
            )
        if self.estimator != "auto":
            return self.estimator
        if (codes != ABSTAIN).sum() < _ENOUGH_TO_CHOOSE:
            return "spreading"
        return max(("spreading", "boosting"), key=lambda name: self._agreement(name, X, codes))

    def _agreement(self, name: str, X: Any, codes: np.ndarray) -> float:
        """The share of held-out answers that a student predicts from the others."""
        answered = np.flatnonzero(codes != ABSTAIN)
        predicted = np.full(len(codes), ABSTAIN)
        for _, held in KFold(_FOLDS, shuffle=True, random_state=_integer(self.random_state)).split(answered):
            others = codes.copy()
            others[answered[held]] = ABSTAIN
            one = others[others != ABSTAIN]
            asked = _safe_indexing(X, answered[held])
            constant = (one == one[0]).all()
            predicted[answered[held]] = (
                one[0] if constant else _fitted(self._named(name), X, others).predict(asked)
            )
        return float(accuracy_score(codes[answered], predicted[answered]))

    def _named(self, name: str) -> Any:
        """A new classifier, seeded unless it has its own seed."""
        seed = _integer(self.random_state)
        if not isinstance(self.estimator, str):
            model = clone(self.estimator)
            unseeded = [
                name
                for name, value in model.get_params().items()
                if value is None and name.split("__")[-1] == "random_state"
            ]
            return model.set_params(**dict.fromkeys(unseeded, seed)) if unseeded else model
        if name == "spreading":
            return Spreading()
        # a round grows one tree for each class, so that many classes get fewer rounds
        rounds = max(20, 120 // len(self._seen))
        boosting = GradientBoostingClassifier(n_estimators=rounds, max_depth=2, random_state=seed)
        return boosting if name == "boosting" else SelfTrainingClassifier(boosting, threshold=0.95)


def _fitted(model: Any, X: Any, codes: np.ndarray) -> Any:
    """Fit without warnings, on all rows if the model can use unanswered ones."""
    if isinstance(model, _GRAPHS):
        fit_graph(model, np.asarray(X, dtype=np.float64), codes)
        return model
    answered = codes != ABSTAIN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the small number of rows
        if isinstance(model, SelfTrainingClassifier) or getattr(model, "learns_from_unanswered", False):
            return model.fit(X, codes)
        return model.fit(_safe_indexing(X, np.flatnonzero(answered)), codes[answered])


def _integer(random_state: int | np.random.RandomState | None) -> int | None:
    """One seed for several uses, so that two students are compared on the same folds."""
    return (
        random_state
        if random_state is None or isinstance(random_state, int | np.integer)
        else int(random_state.randint(2**31 - 1))
    )

"""Students: what public rows and released labels are distilled into. Nothing here is private."""

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
_ENOUGH_TO_CHOOSE = 8 * _FOLDS  # answers; below, a fold holds too few to tell two students apart


def _can_say_how_sure(student: Distilled) -> bool:
    model = getattr(student, "model_", student.estimator)
    return model is None or isinstance(model, str) or hasattr(model, "predict_proba")


class Distilled(ClassifierMixin, BaseEstimator):
    """A classifier from public rows of which only some were answered.

    Parameters
    ----------
    estimator : str or scikit-learn classifier, default "auto"
        ``"spreading"``: labels spread over the graph of nearest public rows, answered or not;
        repairs wrong answers where the classes form clusters. ``"boosting"``: shallow trees on
        the answered rows; for tables. ``"self-training"``: the same, then on its own surest
        guesses for the other rows. ``"auto"``: spreading or boosting, whichever predicts held-out
        answers better; that uses released labels only, and so costs no privacy. A semi-supervised
        classifier of scikit-learn gets all rows, and so does one that says
        ``learns_from_unanswered = True``, as :class:`FeatureMatchingGAN` does; any other only the
        answered ones.
    random_state : int, numpy.random.RandomState or None
        Seeds the training of the named students, and how "auto" splits.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    model_ : fitted classifier, or None
        None if all answers were the same: the student then always says that.
    name_ : str
        Which of the named students it is, or the class of ``estimator``.

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
        """Learn from the answered rows, and from where the others lie.

        Parameters
        ----------
        X : array or data frame, shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Public, already released. With ``classes``: indices into it, as the mechanisms answer.
            Without: the labels themselves. ``ABSTAIN`` (-1; among text also None) where unanswered.
        classes : array of shape (n_classes,), optional
            Names of the classes, also of those that nobody answered.

        Raises
        ------
        ValueError
            No row was answered, an index is not in ``range(n_classes)``, or shapes do not match.
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

    @available_if(_can_say_how_sure)
    def predict_proba(self, X: Any) -> np.ndarray:
        """How sure it is of each class, shape (n_rows, n_classes); zero for a class nobody answered."""
        X = self._validated(X)
        sure = np.zeros((X.shape[0], len(self.classes_)))
        sure[:, self._seen] = 1.0 if self.model_ is None else self.model_.predict_proba(X)
        return sure

    def _validated(self, X: Any, *, reset: bool = False) -> Any:
        """A data frame as it came, anything else as finite numbers."""
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
        """Which named student, or what the estimator given is called."""
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
        """Share of held-out answers that a student predicts from the others."""
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
        """A fresh classifier, seeded unless it has a seed of its own."""
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
        # each round grows a tree a class: fewer rounds for many classes, or choosing takes longest of all
        rounds = max(20, 120 // len(self._seen))
        boosting = GradientBoostingClassifier(n_estimators=rounds, max_depth=2, random_state=seed)
        return boosting if name == "boosting" else SelfTrainingClassifier(boosting, threshold=0.95)


def _fitted(model: Any, X: Any, codes: np.ndarray) -> Any:
    """Fit quietly, on all rows if the model can use unanswered ones."""
    if isinstance(model, _GRAPHS):
        fit_graph(model, np.asarray(X, dtype=np.float64), codes)
        return model
    answered = codes != ABSTAIN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a classifier thinks of so few rows helps nobody
        if isinstance(model, SelfTrainingClassifier) or getattr(model, "learns_from_unanswered", False):
            return model.fit(X, codes)
        return model.fit(_safe_indexing(X, np.flatnonzero(answered)), codes[answered])


def _integer(random_state: int | np.random.RandomState | None) -> int | None:
    """One seed for several uses, so that two students compared see the same folds."""
    return (
        random_state
        if random_state is None or isinstance(random_state, int | np.integer)
        else int(random_state.randint(2**31 - 1))
    )

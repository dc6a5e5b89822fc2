"""The student of public rows and released labels, and which of these rows to ask about. Nothing is private.

:class:`Distilled` learns from labels of which some are missing. Query strategies choose typical rows first
(:func:`typical`), then those that the student is least sure of (:func:`uncertainty_sampling`).
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.core import check
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.core.numeric import one_thread
from ostraka.core.randomness import seed_of
from ostraka.data.labels import Labels, column, one_type
from ostraka.learn.students.counts import Spreading, fit_graph

if TYPE_CHECKING:
    from sklearn.utils import Tags

_GRAPHS = (LabelPropagation, LabelSpreading)
_NAMES = ("auto", "boosting", "self-training", "spreading")
_FOLDS = 5
_ENOUGH_TO_CHOOSE = 8 * _FOLDS  # answers; with fewer, a fold is too small to compare two students
_NEAR = 10
_AT_ONCE, _IN_A_PART = 1000, 100  # clusters found among all rows, and among those of a part of them


def _has_probabilities(student: Distilled) -> bool:
    model = getattr(student, "model_", student.estimator)
    return model is None or isinstance(model, str) or hasattr(model, "predict_proba")


@dataclass(eq=False, repr=False)
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

    estimator: Any = "auto"
    _: KW_ONLY
    random_state: int | np.random.RandomState | None = None

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
        self._seen = np.unique(codes[codes != ABSTAIN])
        if not isinstance(self.estimator, str):
            self.name_ = type(self.estimator).__name__
        elif self.estimator not in _NAMES:
            raise ValueError(
                f"estimator must be a classifier or one of {', '.join(_NAMES)}, got {self.estimator!r}"
            )
        elif self.estimator != "auto":
            self.name_ = self.estimator
        elif (codes != ABSTAIN).sum() < _ENOUGH_TO_CHOOSE:
            self.name_ = "spreading"
        else:  # whichever predicts more held-out answers from the others
            answered, right = np.flatnonzero(codes != ABSTAIN), {"spreading": 0.0, "boosting": 0.0}
            for name in right:
                predicted = np.full(len(codes), ABSTAIN)
                folds = KFold(_FOLDS, shuffle=True, random_state=seed_of(self.random_state))
                for _, fold in folds.split(answered):
                    rows, others = answered[fold], codes.copy()
                    others[rows] = ABSTAIN
                    labels = np.unique(others[others != ABSTAIN])
                    if len(labels) == 1:
                        predicted[rows] = labels[0]
                    else:
                        model = _fitted(self._named(name), X, others)
                        predicted[rows] = model.predict(_safe_indexing(X, rows))
                right[name] = float((codes[answered] == predicted[answered]).mean())
            self.name_ = max(right, key=lambda name: right[name])
        self.model_ = None if len(self._seen) == 1 else _fitted(self._named(self.name_), X, codes)
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

    def _named(self, name: str) -> Any:
        """A new classifier, seeded unless it has its own seed."""
        seed = seed_of(self.random_state)
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


def coded(y: Any, classes: Any, *, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and each row's class index or ABSTAIN. At least one row must have an answer."""
    if classes is None:
        answers = column(y)
        answered = np.array([label is not None and str(label) != str(ABSTAIN) for label in answers.tolist()])
        names, codes = np.empty(0), np.full(len(answers), ABSTAIN, dtype=np.int64)
        if answered.any():
            labels = Labels.of(answers[answered])
            names, codes[answered] = labels.classes, labels.encode(answers[answered])
    else:
        names, codes = np.asarray(classes), one_type(y)
        if codes.dtype.kind not in "iu" or codes.min() < ABSTAIN or codes.max() >= len(names):
            raise ValueError(f"y must hold indices of {len(names)} classes, or {ABSTAIN} where unanswered")
    if len(codes) != n_rows:
        raise ValueError(f"y must have one label for each of {n_rows} rows, got {len(codes)}")
    if (codes == ABSTAIN).all():
        raise ValueError(
            f"y must hold an answer for one row or more, but all {len(codes)} are unanswered: "
            "ask more, or lower the threshold of the screen"
        )
    return names, codes.astype(np.int64)


def schedule(*, n_answers: int) -> tuple[int, ...]:
    """Batch sizes of active learning: half of the answers first, the rest in five steps.

    Parameters
    ----------
    n_answers : int >= 1
        Total number of answers. Public.

    Returns
    -------
    tuple of int
        Sums to ``n_answers``. The first batch is for :func:`typical` rows, the others for
        :func:`uncertainty_sampling`.

    Examples
    --------
    >>> schedule(n_answers=100)
    (50, 10, 10, 10, 10, 10)
    """
    check.integer(n_answers=n_answers, least=1)
    first = -(-n_answers // 2)
    ends = np.unique(np.linspace(first, n_answers, 6).round().astype(int))
    return tuple(np.diff(ends, prepend=0).tolist())


def uncertainty_sampling(probabilities: Any, *, n: int, among: Any) -> np.ndarray:
    """Uncertainty sampling by margin: rows whose two likeliest classes have the closest probabilities.

    Parameters
    ----------
    probabilities : array of shape (n_rows, n_classes)
        The student's class probabilities. Public.
    n : int
        Number of rows.
    among : integer array
        The rows to choose from; all of them if there are ``n`` or fewer.

    Returns
    -------
    integer array, ascending
        Rows, from ``among``. The same input gives the same rows.

    Notes
    -----
    Source: Papernot et al. 2017, arXiv:1610.05755, appendix B.2, chooses the lowest confidence. The margin is
    the same for two classes, and better for ten classes with noisy answers.

    Examples
    --------
    >>> uncertainty_sampling([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], n=1, among=[0, 2])
    array([2])
    """
    check.integer(n=n)
    rows = np.unique(np.asarray(among, dtype=np.int64))
    ranked = np.sort(np.asarray(probabilities, dtype=np.float64)[rows], axis=1)
    margin = ranked[:, -1] - ranked[:, -2]
    return np.sort(rows[np.argsort(margin, kind="stable")[:n]])


@one_thread()
def typical(X: Any, *, n: int, random_state: int) -> np.ndarray:
    """Typical rows: of each of ``n`` clusters, the row in the densest place.

    Teachers agree more often on rows in dense places, so that answers are more often right and cost less.
    One row for each cluster covers all regions.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Public.
    n : int
        Number of rows.
    random_state : int
        Seeds the initial clusters.

    Returns
    -------
    integer array, ascending
        ``n`` different rows; all rows if there are ``n`` or fewer.

    Examples
    --------
    >>> typical([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]], n=2, random_state=0)
    array([2, 3])
    """
    check.integer(n=n, least=1)
    points = np.asarray(X, dtype=np.float64)
    if len(points) <= n:
        return np.arange(len(points))
    cluster, sparse = _clustered(points, n, random_state)
    order = np.lexsort((sparse, cluster))  # the first row of each cluster is in its densest place
    first = np.r_[True, np.diff(cluster[order]) > 0]
    return np.sort(np.concatenate([order[first], order[~first]])[:n])


def _clustered(points: np.ndarray, n: int, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's cluster, and its mean distance to its neighbours."""
    # time grows with rows times clusters, so many clusters are found in parts: a few clusters of all rows
    # first, in each of which the rows get their share of the clusters and have their neighbours
    if n <= _AT_ONCE:
        neighbours = NearestNeighbors(n_neighbors=min(_NEAR, len(points) - 1)).fit(points)
        return _clusters(points, n, random_state), neighbours.kneighbors()[0].mean(axis=1)
    part_of = _clusters(points, -(-n // _IN_A_PART), random_state)
    cluster, sparse, n_clusters = np.zeros(len(points), dtype=np.int64), np.zeros(len(points)), 0
    for part in np.unique(part_of):
        rows = np.flatnonzero(part_of == part)
        share = max(1, round(n * len(rows) / len(points)))
        if len(rows) > share:
            numbers, distances = _clustered(points[rows], min(share, _AT_ONCE), random_state)
        else:
            numbers, distances = np.arange(len(rows)), np.zeros(len(rows))
        cluster[rows], sparse[rows] = n_clusters + numbers, distances
        n_clusters += int(numbers.max()) + 1
    return cluster, sparse


def _clusters(points: np.ndarray, n: int, random_state: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # there are fewer different rows than clusters
        kmeans = KMeans(n_clusters=n, init=_far_apart, n_init=1, random_state=random_state)
        return np.asarray(kmeans.fit_predict(points))


def _far_apart(points: np.ndarray, n: int, random_state: np.random.RandomState) -> np.ndarray:
    """Initial centres by greedy k-means++ (Arthur and Vassilvitskii 2007), each the best of a few draws.

    Draws and arithmetic are scikit-learn's, so that rows are the same; its checks at each centre take longer.
    """
    lengths, columns, ones = np.einsum("ij,ij->i", points, points), points.T, np.ones((len(points), 1))

    def squares(rows: np.ndarray) -> np.ndarray:
        distances: np.ndarray = -2 * (points[rows] @ columns)
        distances += lengths[rows, None]
        distances += lengths
        np.maximum(distances, 0.0, out=distances)
        return distances

    chosen = np.empty(n, dtype=np.int64)
    chosen[0] = random_state.choice(len(points), p=ones[:, 0] / ones.sum())
    nearest = squares(chosen[:1])[0]
    total = nearest @ ones[:, 0]
    n_draws = 2 + int(np.log(n))
    for k in range(1, n):
        candidates = np.searchsorted(np.cumsum(nearest), random_state.uniform(size=n_draws) * total)
        candidates = np.minimum(candidates, len(points) - 1)
        closer = np.minimum(squares(candidates), nearest)
        totals = closer @ ones
        best = totals.argmin()
        total, nearest, chosen[k] = totals[best], closer[best], candidates[best]
    return points[chosen]

"""Students of one table of noisy counts, and their trial before the table is paid for."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ostraka import _check
from ostraka.students import AugmentedSVM, Distilled, MomentLogistic, SmoothedCounts
from ostraka.voters import QuantileCells
from ostraka.voters.rows import own_features

if TYPE_CHECKING:
    from ostraka.pate._counts import CountsPlan
    from ostraka.voters.features import FeatureCells

__all__ = ["FEATURED", "BinnedStudent", "expected_labels", "featured", "taught", "try_to_teach"]

FEATURED = "linear model of public features"

_FIXMATCH = "fixmatch"
_ROWS_OF_A_TRIAL = 10  # for each class
_TWO = 2  # classes have one linear function


class BinnedStudent(ClassifierMixin, BaseEstimator):
    """Public bins and a classifier of their lines, as one classifier of rows."""

    def __init__(self, cells: QuantileCells, model: MomentLogistic) -> None:
        self.cells = cells
        self.model = model

    @property
    def classes_(self) -> np.ndarray:
        """The classes."""
        check_is_fitted(self.model, "classes_")
        return self.model.classes_

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002  (as scikit-learn calls it)
        """Do nothing, because both parts are fitted already."""
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, shape (n_rows, n_classes)."""
        return self.model.predict_proba(self.cells.lines(X))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return self.model.predict(self.cells.lines(X))


def taught(
    cells: Any,
    public: Any,
    counts: np.ndarray,
    *,
    plan: CountsPlan,
    classes: np.ndarray,
    kind: Any = None,
    seed: int = 0,
    most_images: int | None = None,
) -> tuple[Any, np.ndarray]:
    """Return the student of released counts, and the class index it was given for each public row.

    Without ``kind``, the student of the cells' own. A named student or a classifier gets the labels of which
    the posterior is sure, and all other public rows without a label. ``most_images`` is for trials.
    """
    if isinstance(cells, QuantileCells):
        table = counts / plan.ballot
        model = MomentLogistic()
        lines = cells.lines(public)
        model.fit(lines, table, sigma=plan.sigma, n_units=plan.n_units, classes=classes)
        return BinnedStudent(cells, model), model.predict_proba(lines).argmax(axis=1)
    labels = _posterior(cells, counts, plan)
    rows = np.asarray(public)
    if kind is not None:
        sure = labels.sure_labels()
        return _distilled(kind, cells, rows, seed=seed).fit(rows, sure, classes=classes), sure
    if own_features(cells):
        return featured(cells, labels.coef_, classes), labels.labels_
    student = AugmentedSVM(image_shape=cells.image_shape, invariances=cells.invariances)
    weight = labels.margin_ / max(float(labels.margin_.mean()), 1e-300)
    some = slice(most_images)
    return student.fit(rows[some], classes[labels.labels_[some]], weight[some]), labels.labels_


def expected_labels(cells: Any, public: Any, counts: np.ndarray, *, plan: CountsPlan) -> np.ndarray:
    """The likeliest class index of each public row given released counts."""
    if isinstance(cells, QuantileCells):
        return taught(cells, public, counts, plan=plan, classes=np.arange(counts.shape[1]))[1]
    return np.asarray(_posterior(cells, counts, plan).labels_)


def _posterior(cells: Any, counts: np.ndarray, plan: CountsPlan) -> SmoothedCounts:
    """Condition on counts, whose lines have one length where features are the row's own."""
    own = own_features(cells)
    lines, size = (cells.features_, cells.reach_ / 2) if own else (cells.codebooks_[0], 1)
    return SmoothedCounts().fit(
        lines,
        counts / plan.ballot / size,
        sigma=plan.sigma / size,
        n_units=plan.n_units,
        features=cells.features_,
    )


def try_to_teach(
    cells: Any, public: Any, *, plan: CountsPlan, classes: np.ndarray, kind: Any, seed: int
) -> None:
    """Teach the student made-up labels, so that a failure comes before the charge.

    Raises
    ------
    ImportError
        The student needs torch, which is not installed.
    ValueError
        The student cannot learn, or cannot take the place of the one that bins have.
    """
    if kind is not None and isinstance(cells, QuantileCells):
        raise ValueError(
            f"student must be None for a table of bins, which has a student of its own, got {kind!r}"
        )
    if kind == _FIXMATCH:
        _check.require("torch", extra="torch")
    made_up = np.random.default_rng(0).integers(0, plan.n_units, size=(plan.n_cells, len(classes)))
    try:
        if kind is None:
            few = _ROWS_OF_A_TRIAL * len(classes)
            taught(cells, public, made_up, plan=plan, classes=classes, most_images=few)[0].predict(public)
        else:
            few = min(len(public), _ROWS_OF_A_TRIAL * len(classes))
            rows = np.asarray(_safe_indexing(public, np.arange(few)))
            trial = _distilled(kind, cells, rows, seed=seed, n_steps=1)
            trial.fit(rows, np.arange(few) % len(classes), classes=classes).predict(rows)
    except Exception as error:
        raise ValueError(f"the student cannot learn from public rows and made-up counts: {error}") from error


def featured(cells: FeatureCells, weights: np.ndarray, classes: np.ndarray) -> Pipeline:
    """Return the posterior's linear function of the features, in steps that scikit-learn has."""
    whitening = PCA(cells.whitening_.shape[1])
    whitening.mean_, whitening.components_ = cells.middle_, cells.whitening_.T
    whitening.n_features_in_ = len(cells.middle_)
    if len(classes) == _TWO:
        weights = weights[:, 1:] - weights[:, :1]
    largest = LinearSVC()
    largest.coef_ = np.sqrt(1 - cells.constant**2) * weights[:-1].T
    largest.intercept_ = cells.constant * weights[-1]
    largest.classes_, largest.n_features_in_ = classes, len(weights) - 1
    steps = (_named(cells), whitening, Normalizer(), largest)
    return Pipeline(list(zip(("features", "whitening", "length", "weights"), steps, strict=True)))


def _named(cells: FeatureCells) -> Any:
    """The transformer; the default one, which was fitted on arrays, with the names of the columns."""
    names = getattr(cells, "feature_names_in_", None)
    if cells.transform is not None or names is None:
        return cells.transform_
    named = copy.deepcopy(cells.transform_)
    named[0].feature_names_in_ = names
    return named


def _distilled(
    kind: Any, cells: Any, rows: np.ndarray, *, seed: int, n_steps: int | None = None
) -> Distilled:
    """Return the student that the user named or made."""
    if isinstance(kind, Distilled):
        given: Distilled = clone(kind)
        return given
    if isinstance(kind, str) and kind == _FIXMATCH:
        from ostraka.students import FixMatch  # noqa: PLC0415  (needs torch)

        steps = {} if n_steps is None else {"n_steps": n_steps}
        shape = getattr(cells, "image_shape", None)
        kind = FixMatch() if shape is None else FixMatch.of_images(rows, shape, **steps)
    return Distilled(kind, random_state=seed)

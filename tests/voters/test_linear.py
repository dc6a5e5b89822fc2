"""One matrix votes as its teachers do, one by one: ties, failures and one-class teachers included."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from ostraka import TeacherEnsemble, count_votes
from ostraka.voters._linear import LinearTeachers


def fitted(n_classes: int, n_features: int, *, n_teachers: int = 30, seed: int = 0) -> TeacherEnsemble:
    rng = np.random.default_rng(seed)
    n = 6 * n_teachers * n_classes
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n_classes, n_features))[y] + rng.normal(size=(n, n_features))
    ensemble = TeacherEnsemble(LogisticRegression(), n_teachers=n_teachers, n_jobs=1, random_state=0)
    return ensemble.fit(X, y, classes=range(n_classes))


def linear(ensemble: TeacherEnsemble) -> LinearTeachers | None:
    return LinearTeachers.of(
        ensemble.teachers_, n_classes=len(ensemble.classes_), n_features=ensemble.n_features_in_
    )


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "estimator",
    [
        RidgeClassifier(),
        RidgeClassifier(fit_intercept=False),
        SGDClassifier(max_iter=20, tol=None),
        LinearSVC(C=0.1),
        LinearSVC(C=0.1, fit_intercept=False),
    ],
    ids=str,
)
def test_other_linear_teachers_vote_in_one_product_too(estimator, n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 400)
    X = rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(400, 3))
    ensemble = TeacherEnsemble(estimator, n_teachers=10, n_jobs=1, random_state=0)
    ensemble.fit(X, y, classes=range(n_classes + 1))
    assert linear(ensemble) is not None
    np.testing.assert_array_equal(ensemble.vote(X[:50]).open(), one_by_one(ensemble, X[:50]))


def one_by_one(ensemble: TeacherEnsemble, X: np.ndarray) -> np.ndarray:
    """Each row alone: what is promised, whatever else is in the batch."""
    ballots = np.array([[teacher.codes(row[None])[0] for row in X] for teacher in ensemble.teachers_])
    return count_votes(ballots, n_classes=len(ensemble.classes_))


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 1), (2, 7), (3, 5), (10, 16)])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e9])
def test_votes_are_those_of_the_ensemble(n_classes, n_features, size):
    ensemble = fitted(n_classes, n_features)
    X = np.random.default_rng(1).normal(size=(12, n_features)) * size
    X = np.concatenate([X, np.zeros((1, n_features))])
    np.testing.assert_array_equal(linear(ensemble).counts(X), one_by_one(ensemble, X))
    np.testing.assert_array_equal(ensemble.vote(X).open(), one_by_one(ensemble, X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_ties_and_near_ties_go_where_the_teacher_itself_puts_them(n_classes):
    ensemble = fitted(n_classes, 2)
    rng = np.random.default_rng(2)
    for teacher in ensemble.teachers_:
        if teacher.model is not None:
            teacher.model.coef_ = np.round(teacher.model.coef_)  # so that rows of whole numbers tie
            teacher.model.intercept_ = np.zeros_like(teacher.model.intercept_)
    X = rng.integers(-3, 4, size=(24, 2)).astype(float)
    X[::2] *= 1 + 2.0**-52
    together, alone = linear(ensemble), []
    asked = together._asked
    together._asked = lambda *given: alone.append(1) or asked(*given)
    np.testing.assert_array_equal(together.counts(X), one_by_one(ensemble, X))
    assert alone, "there are ties"
    np.testing.assert_array_equal(
        count_votes(together.predictions(X), n_classes=n_classes), together.counts(X)
    )


def test_teachers_that_failed_or_know_one_class_cast_the_ballot_they_always_cast():
    ensemble = fitted(3, 4)
    ensemble.teachers_[0] = ensemble.teachers_[0]._replace(model=None)
    ensemble.teachers_[1] = ensemble.teachers_[1]._replace(model=None, present=np.array([2]))
    ensemble._failed[0] = True  # it is known to have failed: no warning
    X = np.random.default_rng(3).normal(size=(20, 4))
    np.testing.assert_array_equal(linear(ensemble).counts(X), one_by_one(ensemble, X))


def test_votes_do_not_depend_on_the_rest_of_the_batch():
    ensemble = fitted(5, 8)
    X = np.random.default_rng(4).normal(size=(33, 8))
    whole = linear(ensemble).counts(X)
    for rows in (slice(0, 1), slice(5, 7), slice(32, None, -3)):
        np.testing.assert_array_equal(linear(ensemble).counts(X[rows]), whole[rows])


class Own(ClassifierMixin, BaseEstimator):
    """Not scikit-learn's."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


class Subclass(LogisticRegression):
    """Predicts otherwise than its weights say."""

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


@pytest.mark.parametrize("estimator", [DecisionTreeClassifier(), Own(), Subclass()])
def test_other_teachers_are_not_stacked(estimator):
    X = np.random.default_rng(0).normal(size=(200, 3))
    ensemble = TeacherEnsemble(estimator, n_teachers=5, n_jobs=1)
    assert linear(ensemble.fit(X, (X[:, 0] > 0).astype(int), classes=[0, 1])) is None

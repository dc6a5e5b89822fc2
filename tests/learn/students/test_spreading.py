"""Spreading: repairs wrong answers, reaches every row, and speaks about rows it has not seen."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading

from ostraka import ABSTAIN
from ostraka.learn.students import counts as spreading
from ostraka.learn.students.counts import Spreading
from tests.learn.students.conftest import checks_of_scikit_learn

CENTRES = [[0, 0], [8, 0], [0, 8]]


def blobs(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(n_samples=n, centers=CENTRES, random_state=0)


@checks_of_scikit_learn(
    Spreading(), expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 means unanswered"}
)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


def test_neighbours_outvote_wrong_answers():
    X, y = blobs()
    rng = np.random.default_rng(0)
    answers = np.where(rng.random(150) < 0.3, rng.integers(0, 3, 150), y)  # a fifth is wrong
    answers[rng.random(150) < 0.4] = ABSTAIN
    assert (answers[answers >= 0] == y[answers >= 0]).mean() < 0.9
    assert Spreading().fit(X, answers).score(X, y) == 1.0


def test_new_digits_are_classified_better_than_by_the_answered_ones_alone():
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    answers = np.full(400, ABSTAIN)
    questions = rng.permutation(400)[:100]
    answers[questions] = np.where(rng.random(100) < 0.25, rng.integers(0, 10, 100), y[questions])
    alone = KNeighborsClassifier(5).fit(X[questions], answers[questions]).score(X[400:], y[400:])
    assert Spreading().fit(X[:400], answers).score(X[400:], y[400:]) > alone + 0.03


def test_parts_of_the_graph_without_an_answer_take_the_nearest_one():
    X, y = blobs()
    answers = np.full(150, ABSTAIN)
    answers[np.flatnonzero(y == 0)[0]], answers[np.flatnonzero(y == 1)[0]] = 0, 1
    student = Spreading().fit(X, answers)
    predicted = student.predict(X)
    assert (predicted[y < 2] == y[y < 2]).all()
    assert set(predicted[y == 2].tolist()) <= {0, 1}
    assert np.isfinite(student.predict_proba(X)).all()


def test_far_from_every_row_it_says_the_commonest_answer():
    X, y = blobs()
    answers = np.where(y == 2, 2, ABSTAIN)
    answers[np.flatnonzero(y == 0)[:2]] = 0
    sure = Spreading().fit(X[y != 1], answers[y != 1]).predict_proba(np.array([[1e6, 1e6]]))
    assert np.isfinite(sure).all()
    assert sure.argmax() == np.bincount(y[y != 1] == 2).argmax()


def test_equal_rows_and_fewer_rows_than_neighbours_are_no_trouble():
    equal = Spreading().fit(np.zeros((6, 2)), np.array([0, 0, 1, -1, -1, -1]))
    assert equal.predict([[0.0, 0.0]]).tolist() == [0]
    pair = Spreading().fit(np.array([[0.0], [9.0]]), np.array([0, 1]))
    assert pair.predict([[1.0], [8.0]]).tolist() == [0, 1]


def test_a_large_public_table_is_thinned_but_keeps_every_answer(monkeypatch):
    monkeypatch.setattr(spreading, "_MOST_ROWS", 60)
    X, y = blobs()
    answers = np.full(150, ABSTAIN)
    answers[100:150] = y[100:150]
    fitted = Spreading().fit(X, answers)
    rows = fitted._extension.X_fit_
    assert len(rows) == 60
    assert (X[100:150][:, None] == rows[None]).all(axis=2).any(axis=1).all()
    assert fitted.score(X, y) == 1.0


def test_it_is_spreading_and_kernel_ridge_of_scikit_learn():
    X, y = load_digits(n_class=4, return_X_y=True)
    X, y = X[:200], np.where(np.arange(200) % 5 == 0, y[:200], ABSTAIN)
    student = Spreading(n_neighbors=5, alpha=0.6).fit(X, y)
    graph = LabelSpreading(kernel="knn", n_neighbors=5, alpha=0.6, max_iter=100).fit(X, y)
    sharp = graph.label_distributions_**2 / (graph.label_distributions_**2).sum(axis=1, keepdims=True)
    ridge = KernelRidge(kernel="rbf", gamma=1 / (64 * X.var()), alpha=0.1)
    ridge.fit(X, sharp, sample_weight=graph.label_distributions_.max(axis=1) ** 2 + 1e-3)
    expected = np.maximum(ridge.predict(X), 0) + 1e-9 * sharp.mean(axis=0)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(student.predict_proba(X), expected, atol=1e-10)
    np.testing.assert_array_equal(student.predict(X), expected.argmax(axis=1))

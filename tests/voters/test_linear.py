"""One matrix votes as its teachers do, one by one: ties, failures and one-class teachers included."""

import copy
import functools
import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from ostraka import TeacherEnsemble, count_votes
from ostraka.voters import kinds
from ostraka.voters.kinds import LinearTeachers, Terms
from ostraka.voters.voting import Shard, train, vote

BY_SCORES = [  # whose scores are products of terms of a row
    LinearDiscriminantAnalysis(),
    GaussianNB(),
    GaussianNB(var_smoothing=1e-3),
    NearestCentroid(),
    NearestCentroid(shrink_threshold=0.2),
    BernoulliNB(),
    BernoulliNB(binarize=0.5, fit_prior=False),
    MultinomialNB(),
]


@functools.cache
def fitted(n_classes: int, n_features: int) -> TeacherEnsemble:
    """The same for all tests: whoever changes a teacher takes a copy."""
    rng = np.random.default_rng(0)
    n = 90 * n_classes
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n_classes, n_features))[y] + rng.normal(size=(n, n_features))
    ensemble = TeacherEnsemble(LogisticRegression(), n_teachers=15, n_jobs=1, random_state=0)
    return ensemble.fit(X, y, classes=range(n_classes))


def linear(ensemble: TeacherEnsemble) -> LinearTeachers | None:
    return LinearTeachers.of(
        ensemble.teachers_, n_classes=len(ensemble.classes_), n_features=ensemble.n_features_in_
    )


@pytest.mark.parametrize("n_classes", [pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize(
    "estimator",
    [
        RidgeClassifier(),
        RidgeClassifier(fit_intercept=False),
        SGDClassifier(max_iter=20, tol=None),
        LinearSVC(C=0.1),
        LinearSVC(C=0.1, fit_intercept=False),
        *BY_SCORES,
    ],
    ids=str,
)
def test_other_linear_teachers_vote_in_one_product_too(estimator, n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 400)
    X = rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(400, 3))
    X = np.abs(X) if isinstance(estimator, MultinomialNB) else X
    ensemble = TeacherEnsemble(estimator, n_teachers=10, n_jobs=1, random_state=0)
    ensemble.fit(X, y, classes=range(n_classes + 1))
    assert linear(ensemble) is not None
    np.testing.assert_array_equal(ensemble.vote(X[:15]).open(), one_by_one(ensemble, X[:15]))


def one_by_one(ensemble: TeacherEnsemble, X: np.ndarray) -> np.ndarray:
    """Each row alone: what is promised, whatever else is in the batch."""
    ballots = np.array([[teacher.codes(row[None])[0] for row in X] for teacher in ensemble.teachers_])
    return count_votes(ballots, n_classes=len(ensemble.classes_))


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 1), (2, 7), (3, 5), (10, 16)])
@pytest.mark.parametrize("size", [pytest.param(1e-6, marks=pytest.mark.slow), 1.0, 1e9])
def test_votes_are_those_of_the_ensemble(n_classes, n_features, size):
    ensemble = fitted(n_classes, n_features)
    X = np.random.default_rng(1).normal(size=(12, n_features)) * size
    X = np.concatenate([X, np.zeros((1, n_features))])
    expected = one_by_one(ensemble, X)
    np.testing.assert_array_equal(linear(ensemble).counts(X), expected)
    np.testing.assert_array_equal(ensemble.vote(X).open(), expected)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_ties_and_near_ties_go_where_the_teacher_itself_puts_them(n_classes):
    ensemble = copy.deepcopy(fitted(n_classes, 2))
    rng = np.random.default_rng(2)
    for teacher in ensemble.teachers_:
        if teacher.model is not None:
            teacher.model.coef_ = np.round(teacher.model.coef_)  # so that rows of whole numbers tie
            teacher.model.intercept_ = np.zeros_like(teacher.model.intercept_)
    X = rng.integers(-3, 4, size=(24, 2)).astype(float)
    X[::2] *= 1 + 2.0**-52
    together, alone = linear(ensemble), []
    plain_asked = together._asked
    together._asked = lambda *arguments: alone.append(1) or plain_asked(*arguments)
    np.testing.assert_array_equal(together.counts(X), one_by_one(ensemble, X))
    assert alone, "there are ties"
    np.testing.assert_array_equal(
        count_votes(together.predictions(X), n_classes=n_classes), together.counts(X)
    )


def alone_in(together: LinearTeachers) -> list[int]:
    """Teachers that are asked alone, from now on."""
    alone, plain_asked = [], together._asked
    together._asked = lambda *arguments: alone.append(arguments[2]) or plain_asked(*arguments)
    return alone


@pytest.mark.parametrize("estimator", BY_SCORES, ids=str)
@pytest.mark.parametrize("place", [pytest.param(0.0, marks=pytest.mark.slow), 1e6])
def test_rows_of_few_whole_numbers_tie_and_go_where_the_teacher_itself_puts_them(estimator, place):
    rng = np.random.default_rng(5)
    X = rng.integers(0, 3, size=(120, 4)) + place  # some classes are missing, some features constant
    ensemble = TeacherEnsemble(estimator, n_teachers=15, n_jobs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some teachers may fail
        ensemble.fit(X, rng.integers(0, 3, 120), classes=range(4))
    queries = rng.integers(0, 3, size=(12, 4)) + place
    together = linear(ensemble)
    alone = alone_in(together)
    expected = one_by_one(ensemble, queries)
    np.testing.assert_array_equal(together.counts(queries), expected)
    np.testing.assert_array_equal(count_votes(together.predictions(queries), n_classes=4), expected)
    plain = isinstance(estimator, NearestCentroid) and estimator.shrink_threshold is None
    assert alone or not plain, "there are ties"  # centroids that shrink lie off the grid
    np.testing.assert_array_equal(together.counts(queries[::-3]), expected[::-3])


@pytest.mark.parametrize("estimator", [GaussianNB(), NearestCentroid()], ids=str)
def test_few_teachers_are_asked_alone_where_rows_do_not_tie(estimator):
    rng = np.random.default_rng(6)
    y = rng.integers(0, 3, 400)
    X = (rng.normal(size=(3, 5))[y] + rng.normal(size=(400, 5))) * 10.0 ** np.arange(-2, 3) + 1e3
    X[:, 3] = rng.integers(0, 50, 400) == 0  # constant in many shards
    ensemble = TeacherEnsemble(estimator, n_teachers=20, n_jobs=1).fit(X[:300], y[:300], classes=range(3))
    together = linear(ensemble)
    alone = alone_in(together)
    np.testing.assert_array_equal(together.counts(X[300:308]), one_by_one(ensemble, X[300:308]))
    assert len(alone) < 5


def with_weights(n_classes: int, weights) -> TeacherEnsemble:
    """An ensemble whose teachers have weights of their own: what ``weights`` makes of a random matrix."""
    ensemble, rng = copy.deepcopy(fitted(n_classes, 3)), np.random.default_rng(10)
    for teacher in ensemble.teachers_:
        teacher.model.coef_ = weights(rng.normal(size=(n_classes, 3)))
        teacher.model.intercept_ = np.zeros(n_classes)
    return ensemble


@pytest.mark.parametrize("share", [0.1, 0.2, 9.0])  # so one, three and all teachers have two that are near
def test_64_bits_decide_what_32_bits_leave_open(share):
    ensemble = with_weights(
        3,
        lambda shard_rows: np.stack(
            [
                shard_rows[0],
                shard_rows[0] * (1 + (5e-8 if abs(shard_rows[2, 2]) < share else 1) * shard_rows[1]),
                shard_rows[2],
            ]
        ),
    )
    X, together = np.random.default_rng(11).normal(size=(60, 3)), linear(ensemble)
    alone, expected = alone_in(together), one_by_one(ensemble, X)
    np.testing.assert_array_equal(together.counts(X), expected)
    for row in range(20):
        np.testing.assert_array_equal(together.counts(X[row : row + 1])[0], expected[row])
    assert not alone


@pytest.mark.parametrize(
    ("n_rows", "n_near", "cells", "looked_at"),
    [
        *((1, 0, 2**18, []), (1, 1, 2**18, [1]), (1, 2, 2**18, []), (8, 1, 2**18, [8]), (8, 2, 2**18, [])),
        *((1, 1, 1, []), (1, 1, 2, [1])),  # whose weights of 3 classes and columns fit, or do not
    ],
)
def test_pairs_of_a_row_and_a_teacher_are_looked_at_one_by_one_up_to_an_eighth(
    n_rows, n_near, cells, *, looked_at, monkeypatch
):
    numbers = itertools.count()

    def weights(some):
        first = np.abs(some[0])
        ahead = first * (1 + (5e-8 if next(numbers) < n_near else 1) * np.abs(some[1]))
        return np.stack([first, ahead, -first])

    ensemble, X = with_weights(3, weights), np.abs(np.random.default_rng(11).normal(size=(n_rows, 3)))
    n_pairs, einsum = [], np.einsum
    together, expected = linear(ensemble), one_by_one(ensemble, X)
    monkeypatch.setattr(kinds, "_CELLS", cells)
    monkeypatch.setattr(np, "einsum", lambda *given: n_pairs.append(len(given[1])) or einsum(*given))
    np.testing.assert_array_equal(together.counts(X), expected)
    assert n_pairs == looked_at


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        # the second class has 1e38, but half of its sum has more than 32 bits can hold; the third has 2e38
        ([[0.0, 0.0, 0.0], [2e19, 2e19, -3e19], [2e19, 0.0, 0.0]], [1e19, 1e19, 1e19]),
        # one weight alone is more than that: the second class has 1e30, the third 5e30
        ([[0.0, 0.0, 0.0], [1e40, 0.0, 0.0], [0.0, 1e38, 0.0]], [1e-10, 5e-8, 0.0]),
    ],
)
def test_no_number_overflows_in_32_bits(columns, row):
    ensemble = with_weights(3, lambda shard_rows: np.array(columns) * np.sign(shard_rows[0, 0]))
    X = np.tile(row, (9, 1))
    np.testing.assert_array_equal(linear(ensemble).counts(X), one_by_one(ensemble, X))


def test_weights_too_small_for_32_bits_are_told_apart_by_64():
    """Rounded to their smallest numbers, 1.4e-45 apart, the second class would have 1.4 times the first."""
    columns = np.array([[2.09e-45, 2.09e-45, 0.0], [2.11e-45, 1.0e-45, 0.0], [-1e-40, 0.0, 0.0]])
    ensemble = with_weights(3, lambda shard_rows: columns * np.sign(shard_rows[0, 0]))
    X = np.ones((9, 3))
    expected = one_by_one(ensemble, X)
    assert expected[0, 0] > 0
    np.testing.assert_array_equal(linear(ensemble).counts(X), expected)


@pytest.mark.parametrize(
    ("at_once", "sizes"), [(1, [1] * 7), (134, [2, 2, 2, 1]), (135, [3, 3, 1]), (2**18, [7])]
)
def test_so_many_scores_are_held_at_once(at_once, sizes, monkeypatch):
    """A row has those of 3 classes and 15 teachers; it votes the same in any block."""
    ensemble, X = fitted(3, 5), np.random.default_rng(1).normal(size=(7, 5))
    monkeypatch.setattr(kinds, "_CELLS", at_once)
    together = linear(ensemble)
    blocks = [(rows.start, rows.stop) for rows, _ in together._near(X)]
    stops = np.cumsum(sizes)
    assert blocks == list(zip(stops - sizes, stops, strict=True))
    expected = one_by_one(ensemble, X)
    np.testing.assert_array_equal(together.counts(X), expected)
    np.testing.assert_array_equal(count_votes(together.predictions(X), n_classes=3), expected)


@pytest.mark.parametrize("n_teachers", [2**16 - 1, 2**16, 2**16 + 1])
def test_votes_of_many_teachers_are_counted_whole(n_teachers):
    weights = np.zeros((2, 1, n_teachers))
    weights[1, 0] = 1.0
    teachers = LinearTeachers(
        [None] * n_teachers,
        Terms(lambda X: X, lambda _model: None),
        weights,
        np.zeros((2, n_teachers)),
        np.zeros(n_teachers),
    )
    assert teachers.counts(np.ones((1, 1))).tolist() == [[0, n_teachers]]


@pytest.mark.parametrize("estimator", [LogisticRegression(), GaussianNB(), NearestCentroid()], ids=str)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_no_ballot_is_lost_where_scores_overflow(estimator):
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(300, 4))
    ensemble = TeacherEnsemble(estimator, n_teachers=8, n_jobs=1).fit(X, y, classes=range(3))
    for size in (1e160, 1e300, 1.7e308):
        queries = rng.uniform(-1, 1, size=(6, 4)) * size
        np.testing.assert_array_equal(linear(ensemble).counts(queries), one_by_one(ensemble, queries))


@pytest.mark.parametrize(
    "estimator",
    [
        NearestCentroid(metric="manhattan"),
        NearestCentroid(priors="empirical"),
        GaussianNB(var_smoothing=0.0),
        GaussianNB(priors=[0.0, 1.0]),
        BernoulliNB(alpha=0.0, force_alpha=True),
        MultinomialNB(alpha=0.0, force_alpha=True),
    ],
    ids=str,
)
def test_scores_of_another_form_are_not_stacked(estimator):
    rng = np.random.default_rng(8)
    X, y = np.abs(rng.normal(size=(200, 3))) - 0.5, rng.permutation(np.arange(200) % 2)
    X = X + 0.5 if isinstance(estimator, MultinomialNB) else X
    y[X[:, 2] > 0.2] = 1  # so that priors differ
    X[:, 1] = 7.0  # of no variance
    ensemble = TeacherEnsemble(estimator, n_teachers=5, n_jobs=1).fit(X, y, classes=[0, 1])
    assert linear(ensemble) is None


def test_scores_add_up_to_log_likelihoods_and_their_size_is_that_of_all_that_adds_up():
    rng = np.random.default_rng(12)
    X, y = np.abs(rng.normal(size=(60, 4))), np.arange(60) % 3
    normal, centroids, counted, binary = (
        model.fit(X, y)
        for model in (GaussianNB(), NearestCentroid(), MultinomialNB(), BernoulliNB(binarize=0.5))
    )
    moved = (normal.theta_ - normal.theta_.mean(axis=0)) ** 2 / normal.var_
    absent = np.log(1 - np.exp(binary.feature_log_prob_))
    sizes = {
        normal: np.abs(np.log(normal.class_prior_))
        + np.abs(np.log(2 * np.pi * normal.var_)).sum(axis=1) / 2
        + moved.sum(axis=1) / 2,
        centroids: (centroids.centroids_**2).sum(axis=1) / 2,
        counted: np.abs(counted.class_log_prior_),
        binary: np.abs(binary.class_log_prior_) + np.abs(absent).sum(axis=1),
    }
    for model, size in sizes.items():
        terms = kinds.terms_of([model])
        weights, offsets, stated = terms.of_model(model)
        assert stated == pytest.approx(size.max(), rel=1e-12)
        scores = terms.of_rows(X) @ weights.T + offsets
        if model is centroids:  # minus half of a squared distance
            expected = -((X[:, None] - centroids.centroids_) ** 2).sum(axis=2) / 2
        else:
            expected = model.predict_joint_log_proba(X)
        np.testing.assert_allclose(scores, expected, rtol=1e-9)


@pytest.mark.parametrize("threshold", [0.5, -0.5])
def test_a_model_with_other_settings_is_asked_alone(threshold):
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    ensemble = TeacherEnsemble(BernoulliNB(), n_teachers=5, n_jobs=1).fit(X, y, classes=[0, 1])
    ensemble.teachers_[3].model.binarize = threshold
    together = linear(ensemble)
    alone = alone_in(together)
    np.testing.assert_array_equal(together.counts(X[:20]), one_by_one(ensemble, X[:20]))
    assert alone.count(3) == 20


@pytest.mark.filterwarnings("ignore:invalid value")
def test_models_of_other_numbers_of_another_kind_or_not_finite_are_asked_alone():
    ensemble, X = copy.deepcopy(fitted(3, 5)), np.random.default_rng(1).normal(size=(6, 5))
    models = [teacher.model for teacher in ensemble.teachers_]
    models[3].coef_ = models[3].coef_.astype(np.float32)
    models[7].coef_ = np.full_like(models[7].coef_, np.inf)
    models[8].intercept_ = np.full_like(models[8].intercept_, np.nan)
    naive = GaussianNB().fit(X, np.arange(6) % 3)
    ensemble.teachers_[5] = ensemble.teachers_[5]._replace(model=naive)
    together = linear(ensemble)
    alone = alone_in(together)
    np.testing.assert_array_equal(together.counts(X), one_by_one(ensemble, X))
    assert sorted(alone) == [*[3] * 6, *[5] * 6, *[7] * 6, *[8] * 6]


@pytest.mark.parametrize(
    "estimator",
    [
        *BY_SCORES[::2],
        LogisticRegression(),
        RidgeClassifier(),
        *(pytest.param(value, marks=pytest.mark.slow) for value in BY_SCORES[1::2]),
    ],
    ids=str,
)
def test_one_row_moves_the_ballot_of_its_own_teacher_only(estimator):
    # classes are mirror images, and so are both halves of a question: rounding alone decides all ballots
    rng = np.random.default_rng(0)
    X, y = np.abs(rng.normal(size=(10, 8, 33))), np.repeat([0, 1], 4)
    X[:, 4:] = X[:, :4, ::-1]
    queries = np.abs(rng.normal(size=(12, 33)))
    queries += queries[:, ::-1]
    votes = []
    for value in (1.0, 1.7e308, 1e160):
        X[7, 1, 2] = value
        seeds = np.random.SeedSequence(0).spawn(len(X))
        shards = [Shard(X[k], y, seeds[k], 0) for k in range(len(X))]
        teachers = train(estimator, shards)
        stacked = LinearTeachers.of(teachers, n_classes=2, n_features=33)
        assert stacked is not None, "a teacher that is not finite does not change how the others are asked"
        ballots = [ballots_of_query.codes for ballots_of_query in vote(queries, 2, teachers)]
        votes.append(count_votes(np.array(ballots), n_classes=2))
    for hostile in votes[1:]:
        assert np.abs(hostile - votes[0]).sum(axis=1).max() <= 2


def test_teachers_that_failed_or_know_one_class_cast_the_ballot_they_always_cast():
    ensemble = copy.deepcopy(fitted(3, 4))
    ensemble.teachers_[0] = ensemble.teachers_[0]._replace(model=None)
    ensemble.teachers_[1] = ensemble.teachers_[1]._replace(model=None, present=np.array([2]))
    ensemble._failed[0] = True  # it is known to have failed: no warning
    X = np.random.default_rng(3).normal(size=(20, 4))
    np.testing.assert_array_equal(linear(ensemble).counts(X), one_by_one(ensemble, X))


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

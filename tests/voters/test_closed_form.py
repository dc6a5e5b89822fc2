"""Ridge, naive Bayes and nearest centroids of many shards: scikit-learn's solutions, each shard alone."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid

from ostraka import TeacherEnsemble
from ostraka.voters import kinds as _kinds
from ostraka.voters import partition
from ostraka.voters.kinds import fit_together
from tests.voters import shards as made_up
from tests.voters.shards import changed_by_another, together

shard = partial(made_up.shard, middle=3.0)  # so that an intercept matters
KEY = b"a key of thirty-two bytes, or so"
ESTIMATORS = [
    RidgeClassifier(),
    RidgeClassifier(alpha=1e-3, fit_intercept=False),
    RidgeClassifier(alpha=100.0),
    GaussianNB(),
    GaussianNB(var_smoothing=1e-2),
    NearestCentroid(),
]


def fitted(estimator, shards):
    return together(fit_together, estimator, shards)


def learned(model):
    """Everything that training has set."""
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def same(first, second):
    return all(np.array_equal(value, learned(second)[name]) for name, value in learned(first).items())


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
@pytest.mark.parametrize(
    "n_classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(7, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("integer", [False, True], ids=["floats", "whole numbers"])
def test_solutions_are_those_of_scikit_learn(estimator, n_classes, integer):
    shards = [shard(n_classes, n_rows=20 + k, seed=k, spread=10.0**k) for k in range(4)]
    shards.append(shard(n_classes, n_rows=16, n_features=40))  # more features than rows
    if integer:
        shards = [(np.round(50 * X).astype(np.int64), codes) for X, codes in shards]
    for (X, codes), model in zip(shards, fitted(estimator, shards), strict=True):
        if model is None:
            assert X.shape[1] > len(X)
            assert isinstance(estimator, RidgeClassifier)
            continue
        exact = type(estimator)(**estimator.get_params()).fit(X, codes)
        assert type(model) is type(exact)
        assert vars(model).keys() == vars(exact).keys()
        for name, value in learned(exact).items():
            ours = getattr(model, name)
            if isinstance(value, np.ndarray):
                assert (ours.shape, ours.dtype) == (value.shape, value.dtype), name
                np.testing.assert_allclose(ours, value, rtol=1e-6, atol=1e-9 * np.abs(value).max())
            elif value is not None and not isinstance(value, str):
                assert ours == pytest.approx(value, rel=1e-12)
        np.testing.assert_array_equal(model.predict(X), exact.predict(X))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_no_shard_changes_another_by_a_bit(estimator, n_classes, monkeypatch):
    shards, changed = changed_by_another(
        lambda shard_list: fitted(estimator, shard_list), same, n_classes, middle=3.0
    )
    assert not changed
    before = fitted(estimator, shards)
    monkeypatch.setattr(_kinds, "_NUMBERS_OF_SHARDS", 300)  # in other parts
    assert all(map(same, fitted(estimator, shards), before))


@pytest.mark.parametrize(
    ("n_numbers", "sizes"), [(1, [1] * 5), (359, [2, 2, 1]), (360, [3, 2]), (2**20, [5])]
)
def test_so_many_shards_are_solved_at_once_as_have_so_many_numbers(n_numbers, sizes, monkeypatch):
    """One at least; each has 120."""
    at_once, solve = [], _kinds._naive_bayes

    def noted(estimator, shards):
        at_once.append(len(shards.rows))
        return solve(estimator, shards)

    monkeypatch.setattr(_kinds, "_naive_bayes", noted)
    monkeypatch.setattr(_kinds, "_NUMBERS_OF_SHARDS", n_numbers)
    fitted(GaussianNB(), [shard(2, seed=k) for k in range(5)])
    assert at_once == sizes


@pytest.mark.parametrize(
    ("n_rows", "n_features", "is_solved"),
    [(150, 128, True), (150, 129, False), (20, 20, True), (20, 21, False)],
)
def test_ridge_of_128_features_and_no_more_than_rows_is_solved_here(n_rows, n_features, is_solved):
    (model,) = fitted(RidgeClassifier(), [shard(2, n_rows=n_rows, n_features=n_features)])
    assert (model is not None) == is_solved


def test_equations_whose_solution_does_not_solve_them_are_left_to_scikit_learn():
    """Columns that differ by rounding alone, and nearly no penalty: many of 60 solutions are no solutions."""
    shards = [shard(3, n_rows=40, n_features=4, seed=seed) for seed in range(60)]
    for k, (X, _) in enumerate(shards):
        X[:, 1] = X[:, 0] * (1 + 1e-10 * np.random.default_rng(k).normal(size=40))
    models = fitted(RidgeClassifier(alpha=1e-30, fit_intercept=False), shards)
    for (X, codes), model in zip(shards, models, strict=True):
        if model is not None:
            side = X.T @ (2.0 * np.eye(3)[codes] - 1)
            assert np.abs(X.T @ X @ model.coef_.T - side).max() < 1e-8 * np.abs(side).max()
    assert 0 < sum(model is None for model in models) < 60


@pytest.mark.parametrize("estimator", [GaussianNB(), NearestCentroid(), RidgeClassifier()], ids=str)
def test_what_overflows_is_left_to_scikit_learn(estimator):
    assert fitted(estimator, [shard(2, spread=1e200), shard(2)])[0] is None


def test_centroids_of_equal_rows_are_left_to_scikit_learn_which_refuses_them():
    assert fitted(NearestCentroid(), [(np.zeros((20, 6)), np.arange(20) % 2)]) == [None]


class Bayes(GaussianNB):
    """May do anything."""


class Logistic(LogisticRegression):
    """May do anything."""


@pytest.mark.parametrize(
    "estimator",
    [
        RidgeClassifier(class_weight="balanced"),
        RidgeClassifier(solver="saga"),
        RidgeClassifier(positive=True, solver="lbfgs"),
        RidgeClassifier(alpha=0.0),
        RidgeClassifier(alpha=np.ones(1)),
        GaussianNB(priors=np.full(2, 0.5)),
        GaussianNB(var_smoothing=-1.0),
        NearestCentroid(metric="manhattan"),
        NearestCentroid(shrink_threshold=0.1),
        NearestCentroid(priors="empirical"),
        Bayes(),
        LogisticRegression(solver="saga"),
        LogisticRegression(class_weight="balanced"),
        LogisticRegression(C=np.inf),
        LogisticRegression(warm_start=True),
        LogisticRegression(max_iter=1),
        Logistic(),
    ],
    ids=str,
)
def test_other_settings_are_left_to_scikit_learn(estimator):
    assert fitted(estimator, [made_up.shard(2)]) == [None]


@pytest.mark.parametrize(
    "rows",
    [scipy.sparse.csr_matrix(shard(2)[0]), shard(2)[0].astype(np.float32), shard(2, n_features=200)[0]],
    ids=["sparse", "float32", "wide"],
)
@pytest.mark.parametrize("estimator", [RidgeClassifier(), LogisticRegression()], ids=str)
def test_other_rows_are_left_to_scikit_learn(rows, estimator):
    assert fit_together(estimator, [rows], [shard(2)[1]]) == [None]


@pytest.mark.parametrize(
    "estimator",
    [GaussianNB(), NearestCentroid(), RidgeClassifier(), LogisticRegression(tol=1e-8, max_iter=1000)],
    ids=str,
)
def test_an_ensemble_uses_it_for_shards_that_lack_classes_and_votes_as_scikit_learn_does(
    estimator, monkeypatch
):
    X, y = shard(5, n_rows=400, n_features=4)
    manifest = partition(400, n_teachers=60, key=KEY)

    def predictions():
        ensemble = TeacherEnsemble(estimator, n_teachers=60, n_jobs=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a shard with one row a class has no nearest centroids
            return ensemble.fit(X, y, classes=range(6), manifest=manifest).predictions(X)

    ours = predictions()
    monkeypatch.setattr(_kinds, "fit_together", lambda _estimator, shards, _codes: [None] * len(shards))
    assert (ours != predictions()).mean() < 1e-3

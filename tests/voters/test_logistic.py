"""Logistic regressions of many shards: scikit-learn's solutions, and no shard changes another by a bit."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from ostraka.voters.kinds import fit_together
from tests.voters.shards import changed_by_another, shard, together


def fitted(estimator, shards):
    return together(fit_together, estimator, shards)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("options", [{}, {"C": 1e-3}, {"C": 100.0}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("spread", [pytest.param(1.0, marks=pytest.mark.slow), 10.0])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_solutions_are_those_of_scikit_learn(n_classes, options, spread):
    shards = [shard(n_classes, n_rows=20 + k, seed=k, spread=spread) for k in range(9)]
    models = fitted(LogisticRegression(tol=1e-6, **options), shards)
    exact = LogisticRegression(tol=1e-10, max_iter=20_000, solver="newton-cholesky", **options)
    for (X, codes), model in zip(shards, models, strict=True):
        exact.fit(X, codes)
        scale = np.abs(exact.coef_).max()
        np.testing.assert_allclose(model.coef_, exact.coef_, rtol=1e-4, atol=1e-5 * scale)
        np.testing.assert_allclose(model.intercept_, exact.intercept_, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(model.predict(X), exact.predict(X))
        np.testing.assert_allclose(model.predict_proba(X), exact.predict_proba(X), atol=1e-4)


def test_the_gradient_is_below_the_tolerance_of_scikit_learn():
    shards = [shard(2, seed=k) for k in range(50)]
    for (X, codes), model in zip(shards, fitted(LogisticRegression(), shards), strict=True):
        residual = model.predict_proba(X)[:, 1] - codes
        gradient = np.append(residual @ X + model.coef_[0], residual.sum())
        assert np.abs(gradient).max() / len(X) <= 1e-7


def same(first, second):
    return all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("coef_", "intercept_")
    )


@pytest.mark.parametrize("n_classes", [2, 4])
def test_no_shard_changes_another_by_a_bit(n_classes):
    shards, changed = changed_by_another(
        lambda shard_list: fitted(LogisticRegression(), shard_list), same, n_classes
    )
    assert not changed
    before = fitted(LogisticRegression(), shards)
    alone = [fitted(LogisticRegression(), [each])[0] for each in shards]
    assert all(map(same, alone, before))


def test_a_singular_shard_is_left_to_scikit_learn_and_changes_no_other(monkeypatch):
    failures, solve = [], np.linalg.solve

    def watched(*systems):
        try:
            return solve(*systems)
        except np.linalg.LinAlgError:
            failures.append(systems)
            raise

    monkeypatch.setattr(np.linalg, "solve", watched)
    estimator = LogisticRegression(C=1e200)  # without a penalty, equal columns have no unique solution
    shards = [shard(2, n_rows=80, n_features=2, seed=k) for k in range(10)]
    before = fitted(estimator, shards)
    assert not failures
    assert sum(teacher is not None for teacher in before) > 5
    singular = (np.repeat(np.arange(80.0)[:, None] % 2, 2, axis=1), np.arange(80) % 3 % 2)
    after = fitted(estimator, [*shards[:5], singular, *shards[5:]])
    assert failures
    assert after.pop(5) is None
    for first, second in zip(before, after, strict=True):
        assert first is second is None or same(first, second)


def by_newton(X, codes, *, C, tol, intercept):
    """Newton's method for one shard, row by row: parameters and the number of steps, none of them halved."""
    rows = np.column_stack([X, np.full(len(X), float(intercept))])
    n_classes, n_columns = codes.max() + 1, X.shape[1] + 1
    n_outputs = 1 if n_classes == 2 else n_classes
    penalty = np.tile([*np.full(X.shape[1], 1 / C), 0.0 if intercept else 1 / C], (n_outputs, 1))
    coupled = np.kron(np.ones((n_outputs, n_outputs)), np.diag(np.eye(n_columns)[-1])) * (n_outputs > 1)

    def chances(theta):
        odds = rows @ theta.T
        return softmax(np.column_stack([np.zeros(len(X)), odds]) if n_outputs == 1 else odds, axis=1)

    def loss(theta):
        return -np.log(chances(theta)[np.arange(len(X)), codes]).sum() + (penalty * theta**2).sum() / 2

    theta = np.zeros((n_outputs, n_columns))
    for step in range(100):
        sure = chances(theta)[:, -n_outputs:]
        apart = sure - (np.eye(n_classes)[codes][:, -n_outputs:])
        gradient = (apart.T @ rows + penalty * theta).ravel()
        if np.abs(gradient).max() <= 1e-3 * tol * len(X):
            return theta, step
        hessian = sum(
            np.kron(np.diag(p) - np.outer(p, p), np.outer(row, row))
            for p, row in zip(sure, rows, strict=True)
        )
        direction = np.linalg.solve(hessian + np.diag(penalty.ravel()) + coupled, gradient)
        moved = theta - direction.reshape(theta.shape)
        assert loss(moved) <= loss(theta) - 1e-4 * direction @ gradient + 1e-12
        theta = moved
    raise AssertionError("it did not converge")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("options", [{"C": 0.3}, {"C": 50.0, "fit_intercept": False}, {"C": 1e4}], ids=str)
def test_steps_are_those_of_newtons_method(n_classes, options):
    shards = [shard(n_classes, n_rows=20 + k, seed=k, spread=3.0) for k in range(6)]
    estimator = LogisticRegression(tol=1e-5, **options)
    most = 0
    for (X, codes), model in zip(shards, fitted(estimator, shards), strict=True):
        intercept = options.get("fit_intercept", True)
        theta, n_steps = by_newton(X, codes, C=options["C"], tol=1e-5, intercept=intercept)
        np.testing.assert_allclose(model.coef_, theta[:, :-1], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.intercept_, theta[:, -1] * intercept, rtol=1e-6, atol=1e-9)
        assert model.n_iter_.tolist() == [n_steps]
        assert model.classes_.tolist() == list(range(n_classes))
        most = max(most, n_steps)
        for n_most, converged in ((n_steps, True), (n_steps - 1, False)):
            (shortened,) = fitted(LogisticRegression(tol=1e-5, max_iter=n_most, **options), [(X, codes)])
            assert (shortened is not None) == converged
    assert most >= 4


@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_classes", "is_solved"),
    [
        *((16, 127, 2, True), (16, 128, 2, False), (24, 31, 4, True), (24, 32, 4, False)),
        *((2000, 1, 2, True), (1993, 1, 2, True), (2001, 1, 2, False)),
    ],
)
def test_shards_of_128_parameters_and_2000_rows_at_most_are_solved_here(
    n_rows, n_features, n_classes, is_solved
):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(n_rows, n_features)), np.arange(n_rows) % n_classes
    (model,) = fitted(LogisticRegression(), [(X, codes)])
    assert (model is not None) == is_solved


@pytest.mark.parametrize(
    "options",
    [
        *({"solver": "saga"}, {"class_weight": "balanced"}, {"warm_start": True}, {"dual": True}),
        *({"C": np.inf}, {"C": 0.0}, {"tol": 0.0}, {"max_iter": 0}, {"l1_ratio": 0.5}),
    ],
    ids=str,
)
def test_other_settings_are_left_to_scikit_learn(options):
    assert fitted(LogisticRegression(**options), [shard(2)]) == [None]
    usual = {"verbose": 1, "n_jobs": 2, "random_state": 3}  # which change no solution
    assert fitted(LogisticRegression(**usual), [shard(2)]) != [None]

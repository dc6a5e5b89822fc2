"""Logistic regressions of many shards: scikit-learn's solutions, and no shard changes another by a bit."""

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from ostraka.voters import kinds
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


def by_newton(X, codes, *, C, tol, intercept, stretch=1):
    """Newton's method for one shard, row by row: parameters, the number of steps and of halvings."""
    rows = np.column_stack([X, np.full(len(X), float(intercept))])
    n_classes, n_columns = codes.max() + 1, X.shape[1] + 1
    n_outputs = 1 if n_classes == 2 else n_classes
    penalty = np.tile([*np.full(X.shape[1], 1 / C), 0.0 if intercept else 1 / C], (n_outputs, 1))
    coupled = np.kron(np.ones((n_outputs, n_outputs)), np.diag(np.eye(n_columns)[-1])) * (n_outputs > 1)

    def log_chances(theta):
        odds = rows @ theta.T
        return log_softmax(np.column_stack([np.zeros(len(X)), odds]) if n_outputs == 1 else odds, axis=1)

    def loss(theta):
        return -log_chances(theta)[np.arange(len(X)), codes].sum() + (penalty * theta**2).sum() / 2

    theta, halvings = np.zeros((n_outputs, n_columns)), 0
    for step in range(100):
        sure = np.exp(log_chances(theta)[:, -n_outputs:])
        apart = sure - (np.eye(n_classes)[codes][:, -n_outputs:])
        gradient = (apart.T @ rows + penalty * theta).ravel()
        if np.abs(gradient).max() <= 1e-3 * tol * len(X):
            return theta, step, halvings
        hessian = sum(
            np.kron(np.diag(p) - np.outer(p, p), np.outer(row, row))
            for p, row in zip(sure, rows, strict=True)
        )
        direction = np.linalg.solve(hessian + np.diag(penalty.ravel()) + coupled, gradient)
        size, before, direction = 1.0, loss(theta), stretch * direction
        while not (
            loss(moved := theta - size * direction.reshape(theta.shape))
            <= before - 1e-4 * size * direction @ gradient + 1e-12 * before
        ):
            size, halvings = size / 2, halvings + 1
        theta = moved
    raise AssertionError("it did not converge")


def shorten(monkeypatch, stretch):
    """Curvatures that make every step of Newton's method too long by this factor."""
    derivatives = kinds._derivatives

    def flattened(*problem):
        loss, gradient, curvature = derivatives(*problem)
        return loss, gradient, curvature / stretch

    monkeypatch.setattr(kinds, "_derivatives", flattened)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("stretch", "tol"), [(1, 1e-5), (5, 1e-2)])
@pytest.mark.parametrize("options", [{"C": 0.3}, {"C": 50.0, "fit_intercept": False}, {"C": 1e4}], ids=str)
def test_steps_are_those_of_newtons_method(n_classes, options, stretch, tol, monkeypatch):
    """Steps that are too long for once are halved until the loss falls."""
    shorten(monkeypatch, stretch)
    shards = [shard(n_classes, n_rows=20 + k, seed=k, spread=3.0) for k in range(6)]
    estimator = LogisticRegression(tol=tol, **options)
    most = halvings = 0
    for (X, codes), model in zip(shards, fitted(estimator, shards), strict=True):
        intercept = options.get("fit_intercept", True)
        theta, n_steps, n_halvings = by_newton(
            X, codes, C=options["C"], tol=tol, intercept=intercept, stretch=stretch
        )
        np.testing.assert_allclose(model.coef_, theta[:, :-1], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.intercept_, theta[:, -1] * intercept, rtol=1e-6, atol=1e-9)
        assert model.n_iter_.tolist() == [n_steps]
        assert model.classes_.tolist() == list(range(n_classes))
        most, halvings = max(most, n_steps), halvings + n_halvings
        for n_most, converged in ((n_steps, True), (n_steps - 1, False)):
            (shortened,) = fitted(LogisticRegression(tol=tol, max_iter=n_most, **options), [(X, codes)])
            assert (shortened is not None) == converged
    assert most >= 4
    assert (halvings > 0) == (stretch > 1)


@pytest.mark.parametrize(("stretch", "is_solved"), [(1.25 * 2**29, True), (1.25 * 2**30, False)])
def test_a_step_is_halved_29_times_and_then_left_to_scikit_learn(stretch, is_solved, monkeypatch):
    shorten(monkeypatch, stretch)
    (model,) = fitted(LogisticRegression(), [shard(2)])
    assert (model is not None) == is_solved


@pytest.mark.parametrize(
    ("n_numbers", "sizes"), [(1, [1] * 7), (914, [2, 2, 2, 1]), (915, [3, 3, 1]), (2**18, [7])]
)
def test_so_many_shards_are_solved_at_once_as_hold_so_many_numbers(n_numbers, sizes, monkeypatch):
    """Rows of 5 columns, padded to 16, and a system of 15 equations: 305 numbers a shard."""
    at_once, solved = [], kinds._solved

    def noted(problem, *settings):
        at_once.append(len(problem.rows))
        return solved(problem, *settings)

    monkeypatch.setattr(kinds, "_solved", noted)
    monkeypatch.setattr(kinds, "_NUMBERS_AT_ONCE", n_numbers)
    shards = [shard(3, n_rows=10 + k, n_features=4, seed=k) for k in range(7)]
    alone = [fitted(LogisticRegression(), [some])[0] for some in shards]
    at_once.clear()
    together_too = fitted(LogisticRegression(), shards)
    assert at_once == sizes
    assert all(map(same, together_too, alone))


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

"""Logistic regressions of many shards: scikit-learn's solutions, and no shard changes another by a bit."""

import numpy as np
import pytest
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

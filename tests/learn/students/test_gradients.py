"""Logistic regression by gradients: without noise it finds what scikit-learn finds."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from ostraka.learn.students.counts import GradientLogistic

RNG = np.random.default_rng(1)
ROWS = RNG.normal(size=(3000, 4)) * [1.0, 0.7, 0.4, 0.2]
TRUTH = RNG.normal(size=(4, 3)) * 2
LABELS = np.array([RNG.choice(3, p=p) for p in softmax(ROWS @ TRUTH, axis=1)])


def learned(rows=ROWS, labels=LABELS, *, n_rounds=200, noise=0.0):
    model = GradientLogistic(rows[:1000], n_classes=3, n_rounds=n_rounds, noise=noise)
    for _ in range(n_rounds):
        apart = np.eye(3)[labels] - softmax(rows @ model.coef_, axis=1)
        noises = noise * n_rounds**0.5 * RNG.normal(size=model.coef_.shape)
        model.step(rows.T @ apart / len(rows) + noises)
    return model


def test_finds_what_logistic_regression_of_scikit_learn_finds():
    oracle = LogisticRegression(C=1e6, fit_intercept=False, max_iter=2000).fit(ROWS, LABELS)
    model = learned()
    contrasts = model.coef_ - model.coef_.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        contrasts, oracle.coef_.T - oracle.coef_.T.mean(axis=1, keepdims=True), atol=0.05
    )
    assert (model.predict(ROWS) == oracle.predict(ROWS)).mean() > 0.99


def test_a_few_rounds_are_nearly_as_good():
    exact, shortened = learned(), learned(n_rounds=12)
    assert (shortened.predict(ROWS) == exact.predict(ROWS)).mean() > 0.95


def test_directions_that_the_noise_drowns_are_damped():
    quiet, loud = learned(n_rounds=12), learned(n_rounds=12, noise=0.01)
    assert np.linalg.norm(loud.coef_[3]) < np.linalg.norm(quiet.coef_[3])
    assert (loud.predict(ROWS) == LABELS).mean() > 0.8 * (quiet.predict(ROWS) == LABELS).mean()


def test_the_end_is_the_average_of_the_later_rounds():
    model = GradientLogistic(ROWS, n_classes=3, n_rounds=4, noise=0.0)
    gradient, passed = RNG.normal(size=(4, 3)), []
    velocity = coef = np.zeros((4, 3))
    curve = np.linalg.inv(0.1 * ROWS.T @ ROWS / len(ROWS))
    for _ in range(4):
        velocity = 0.5 * velocity + curve @ gradient
        coef = coef + velocity
        passed.append(coef)
        model.step(gradient)
    np.testing.assert_allclose(model.coef_, np.mean(passed[2:], axis=0), rtol=1e-6)


@pytest.mark.parametrize("gradient", [np.zeros((3, 3)), np.full((4, 3), np.nan)])
def test_a_gradient_of_another_shape_or_not_finite_is_refused(gradient):
    with pytest.raises(ValueError, match="gradient must be finite numbers of shape"):
        GradientLogistic(ROWS, n_classes=3, n_rounds=2, noise=0.0).step(gradient)


def test_more_rounds_than_planned_are_refused():
    with pytest.raises(ValueError, match="all rounds were taken"):
        learned(n_rounds=1).step(np.zeros((4, 3)))

"""Models as whole numbers: they vote as in the clear, whatever they were trained on."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler

from ostraka.parties.models import check_supported, fixed_model
from ostraka.secure.agreement import INPUT_BITS, Agreement, SecretQuestions, fixed_rows
from ostraka.secure.keys import Identity
from ostraka.voters.voting import Shard, Teacher, train, vote

X, Y = load_digits(return_X_y=True)
QUESTIONS = np.concatenate([X[:1500], np.random.default_rng(0).uniform(0, 16, (3500, 64))])


def agreed(hidden=0, *, n_features=64, n_classes=10, input_range=(0, 16)) -> Agreement:
    secret = SecretQuestions(dealer=Identity.fresh().public_key, input_range=input_range, hidden=hidden)
    return Agreement(
        members={name: Identity.fresh().public_key for name in "abc"},
        aggregator=Identity.fresh().public_key,
        classes=range(n_classes),
        n_features=n_features,
        sigma=2.0,
        noise="parties",
        secret=secret,
    )


def scores(model, agreement, rows) -> np.ndarray:
    """What both sides compute, without sides: whole numbers, and no sum beyond 63 bits."""
    values = fixed_rows(rows, agreement.secret).view(np.int64)
    for number, (weights, offsets) in enumerate(model.layers):
        w, b = weights.view(np.int64), offsets.view(np.int64)
        largest = 2**INPUT_BITS if number == 0 else int(0.9 * 2**30)
        worst = (np.abs(w).astype(object).sum(axis=0) * largest + np.abs(b).astype(object)).max()
        assert worst < 2**62
        values = values @ w + b
        if number + 1 < len(model.layers):
            values = np.maximum(values, 0) >> 32
    return values


def teacher_of(estimator, keep=range(10)) -> Teacher:
    rows = np.flatnonzero(np.isin(Y, list(keep)))[:400]
    return train(estimator, [Shard(X[rows], Y[rows], np.random.SeedSequence(0), 4)])[0]


@pytest.mark.parametrize("keep", [range(10), (3, 7), (1, 2, 5)])
@pytest.mark.parametrize(
    ("estimator", "hidden"),
    [
        (LogisticRegression(max_iter=30), 0),
        (RidgeClassifier(), 0),
        (SGDClassifier(), 10),
        (make_pipeline(StandardScaler(), RidgeClassifier()), 0),
        (make_pipeline(MinMaxScaler(), StandardScaler(), RidgeClassifier()), 12),
        (MLPClassifier((16,), max_iter=15), 16),
        (make_pipeline(StandardScaler(), MLPClassifier(9, max_iter=15)), 64),
    ],
)
def test_votes_are_the_clear_ones(estimator, hidden, keep):
    agreement, teacher = agreed(hidden), teacher_of(estimator, keep)
    check_supported(estimator, agreement)
    votes = scores(fixed_model(teacher, agreement), agreement, QUESTIONS).argmax(axis=1)
    clear = vote(QUESTIONS, 10, [teacher])[0].codes
    assert (votes != clear).sum() <= 1  # of 5,000


@pytest.mark.parametrize("hidden", [0, 3, 64])
@pytest.mark.parametrize("present", [[], [7]])
def test_a_model_that_failed_or_saw_one_class_votes_it(hidden, present):
    agreement = agreed(hidden)
    teacher = Teacher(None, np.array(present, dtype=int), np.random.SeedSequence(0), 4)
    votes = scores(fixed_model(teacher, agreement), agreement, QUESTIONS[:9]).argmax(axis=1)
    np.testing.assert_array_equal(votes, present[0] if present else 4)


def test_weights_that_are_no_numbers_count_as_failed():
    teacher = teacher_of(RidgeClassifier())
    teacher.model.coef_[3, 5] = np.nan
    votes = scores(fixed_model(teacher, agreed()), agreed(), QUESTIONS[:9]).argmax(axis=1)
    np.testing.assert_array_equal(votes, 4)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_size_of_weights_does_not_matter(size):
    agreement, teacher = agreed(), teacher_of(RidgeClassifier())
    clear = vote(QUESTIONS, 10, [teacher])[0].codes
    teacher.model.coef_ *= size
    teacher.model.intercept_ *= size
    votes = scores(fixed_model(teacher, agreement), agreement, QUESTIONS).argmax(axis=1)
    assert (votes != clear).sum() <= 1


@pytest.mark.parametrize(
    ("estimator", "hidden"),
    [
        (GaussianNB(), 0),
        (LinearRegression(), 0),
        (RidgeClassifier(), 9),
        (MLPClassifier((8,)), 0),
        (MLPClassifier((9,)), 8),
        (MLPClassifier((4, 4)), 8),
        (MLPClassifier((4,), activation="tanh"), 8),
        (make_pipeline(PolynomialFeatures(), RidgeClassifier()), 0),
        (make_pipeline(MinMaxScaler(clip=True), RidgeClassifier()), 0),
        (make_pipeline(StandardScaler(), GaussianNB()), 0),
    ],
)
def test_other_estimators_are_refused(estimator, hidden):
    with pytest.raises(ValueError, match=r"secret questions|hidden units"):
        check_supported(estimator, agreed(hidden))


@pytest.mark.parametrize("row", [[-0.1, 1.0], [0.0, 16.1], [np.nan, 0.0], [0.0, np.inf]])
def test_rows_out_of_range_are_refused_without_their_values(row):
    secret = agreed(n_features=2).secret
    with pytest.raises(ValueError, match="input_range") as caught:
        fixed_rows(np.array([row]), secret)
    assert "0.1" not in str(caught.value)
    assert "16.1" not in str(caught.value)

"""Answers of labels as a user meets them; laws in whole numbers, every draw counted."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from ostraka import Adjacency, Budget, Ledger, Private, release
from ostraka.core.mechanisms import exact as _whole
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace, PriorResponse, RandomizedResponse
from tests.false_alarm import FALSE_ALARM

N = 200_000


class Counting:
    """A generator that goes through every whole number below its bound, row by row, again and again."""

    def __init__(self, rows):
        self.rows = rows

    def integers(self, low, high, size=None):
        assert low == 0
        assert size in (None, (self.rows,))
        return np.arange(self.rows) % high


def labels(values):
    return Private(np.asarray(values), Adjacency.one_label())


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("true", [0, 1, 3])
def test_every_draw_there_is_makes_the_true_class_keep_times_and_each_other_other_times(true, monkeypatch):
    monkeypatch.setattr(_whole, "weights", lambda epsilon, k: (7, 2))
    answers = RandomizedResponse(n_classes=4, epsilon=1.0).release(labels([true] * 13), rng=Counting(13))
    counts = np.bincount(answers, minlength=4)
    assert counts[true] == 7
    assert (np.delete(counts, true) == 2).all()


@pytest.mark.parametrize(("true", "expected"), [(2, [2, 0, 7, 2]), (0, [7, 0, 2, 2]), (3, [2, 0, 2, 7])])
def test_every_draw_there_is_of_a_row_with_three_kept_classes(true, expected, monkeypatch):
    monkeypatch.setattr(_whole, "weights", lambda epsilon, k: (7, 2))
    prior = [[0.33, 0.01, 0.33, 0.33]] * 11
    mechanism = PriorResponse(prior=prior, epsilon=1.0)
    assert set(mechanism.kept.tolist()) == {3}
    answers = mechanism.release(labels([true] * 11), rng=Counting(11))
    assert np.bincount(answers, minlength=4).tolist() == expected


def test_a_label_that_was_not_kept_answers_with_each_kept_class_alike():
    mechanism = PriorResponse(prior=[[0.33, 0.01, 0.33, 0.33]] * 12, epsilon=1.0)
    answers = mechanism.release(labels([1] * 12), rng=Counting(12))
    assert np.bincount(answers, minlength=4).tolist() == [4, 0, 4, 4]


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism", [OneHotLaplace(n_classes=3, scale=2.0), OneHotGaussian(n_classes=3, sigma=2.0)]
)
def test_noise_has_its_law_about_the_one_hot_row_and_three_percent_off_is_noticed(mechanism):
    answers = mechanism.release(labels([1] * N), rng=rng(6))
    noise = (answers - np.array([0.0, 1.0, 0.0])).ravel()
    grain = _whole.grain(2.0)

    def tail(scale):  # beyond the cell that ends at 2
        gaussian = isinstance(mechanism, OneHotGaussian)
        return math.erfc(2 / scale / math.sqrt(2)) / 2 if gaussian else math.exp(-2 / scale) / 2

    for side in (noise, -noise):
        hits = int((side > 2.0).sum())
        assert binomtest(hits, noise.size, tail(2.0)).pvalue > FALSE_ALARM
        assert binomtest(hits, noise.size, tail(2.06)).pvalue < FALSE_ALARM
        assert binomtest(hits, noise.size, tail(1.94)).pvalue < FALSE_ALARM
    assert binomtest(int((noise > 0).sum()), noise.size, 0.5).pvalue > FALSE_ALARM
    assert abs(np.corrcoef(answers.T) - np.eye(3)).max() < 7 / math.sqrt(N)
    np.testing.assert_array_equal(noise / grain - 0.5, np.rint(noise / grain - 0.5))


def test_rows_follow_equation_3_of_the_paper_as_printed_and_bayes_rule():
    o, prior = rng(1).normal(size=(50, 4)) * 3, rng(2).dirichlet([1.0] * 4, size=50)
    away = o[:, None] - np.eye(4)
    for mechanism, printed in (
        (OneHotLaplace(n_classes=4, scale=1.7), -abs(away).sum(axis=2) / 1.7),
        (OneHotGaussian(n_classes=4, sigma=1.7), -(away**2).sum(axis=2) / (2 * 1.7**2)),
    ):
        joint = np.exp(printed) * prior
        expected = joint / joint.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(mechanism.posterior(o, prior), expected, rtol=1e-12)


def unknown(mechanism, truth):
    """Mean of minus log posterior of the true label under a flat prior, nats."""
    answers = mechanism.release(labels(truth), rng=rng(8))
    after = mechanism.posterior(answers, [0.1] * 10)
    return -np.log(after[np.arange(len(truth)), truth]).mean()


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_which_answer_tells_more_depends_on_epsilon(epsilon):
    """The table of docs/label-privacy.md: the differences are seven standard errors or more."""
    truth = rng(7).integers(0, 10, 40_000)
    table = {0.5: (2.287, 2.277), 1.0: (2.228, 2.209), 2.0: (1.895, 1.974), 4.0: (0.715, 1.364)}
    plain = unknown(RandomizedResponse(n_classes=10, epsilon=epsilon), truth)
    rows = unknown(OneHotLaplace(n_classes=10, scale=2 / epsilon), truth)
    assert (plain, rows) == pytest.approx(table[epsilon], abs=0.025)
    assert (plain < rows) == (epsilon >= 2)


def test_a_prior_that_knows_keeps_few_classes_and_one_that_does_not_keeps_all():
    sharp, flat = [0.98] + [0.02 / 9] * 9, [0.1] * 10
    assert PriorResponse(prior=[sharp, flat], epsilon=1.0).kept.tolist() == [1, 10]
    assert PriorResponse(prior=[sharp, flat], epsilon=8.0).kept.tolist() == [10, 10]


def test_a_flat_prior_is_plain_randomised_response():
    flat = PriorResponse(prior=[[0.25] * 4] * 3, epsilon=1.3)
    plain = RandomizedResponse(n_classes=4, epsilon=1.3)
    np.testing.assert_allclose(flat.log_likelihood([0, 1, 3]), plain.log_likelihood([0, 1, 3]), rtol=1e-14)


def test_a_better_prior_may_be_used_after_the_answer():
    prior, newer = [[0.5, 0.4, 0.1]] * 2, [[0.1, 0.1, 0.8]] * 2
    after = PriorResponse(prior=prior, epsilon=1.0).posterior([0, 1], newer)
    assert (after[:, 2] > 0.5).all()


def test_answers_of_another_prior_and_labels_of_another_length_are_refused():
    mechanism = PriorResponse(prior=[[0.5, 0.49, 0.01]] * 2, epsilon=1.0)
    with pytest.raises(ValueError, match="of another prior"):
        mechanism.log_likelihood([2, 0])
    with pytest.raises(ValueError, match="answers must be one for each of 2 rows"):
        mechanism.log_likelihood([0])
    with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
        with pytest.raises(ValueError, match="labels must be one for each of 2 rows"):
            release(mechanism, labels([0, 1, 1]), ledger=ledger)
        assert ledger.count() == 0


def test_priors_are_told_apart_by_a_digest_and_the_price_does_not_depend_on_them():
    response = PriorResponse(prior=[[0.5, 0.4, 0.1]], epsilon=1.0)
    two = PriorResponse(prior=[[0.5, 0.1, 0.4]], epsilon=1.0)
    assert response != two
    assert repr(response) != repr(two)
    assert response.curve() == two.curve() == RandomizedResponse(n_classes=2, epsilon=1.0).curve()
    assert response == PriorResponse(prior=np.array([[0.5, 0.4, 0.1]]), epsilon=1.0)


def test_a_prior_cannot_be_changed_behind_the_mechanism():
    mine = np.array([[0.5, 0.4, 0.1]])
    mechanism = PriorResponse(prior=mine, epsilon=1.0)
    mine[:] = [[0.0, 0.0, 1.0]]
    assert mechanism.prior.tolist() == [[0.5, 0.4, 0.1]]
    with pytest.raises(ValueError, match="read-only"):
        mechanism.prior[0, 0] = 1.0

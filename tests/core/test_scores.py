"""Scores: rates against scikit-learn's, intervals against known laws, and what is refused."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score, roc_curve

from ostraka.audits import epsilon_lower_bound
from ostraka.core.scores import Rate
from ostraka.scores import Scores
from tests.false_alarm import FALSE_ALARM

rng = np.random.default_rng(0)
MEMBERS, OTHERS = rng.normal(1, 1, 300).round(1), rng.normal(0, 1, 200).round(1)
SCORES = Scores.of(members=MEMBERS, others=OTHERS)


def test_the_roc_is_scikit_learns():
    labels, pooled = np.repeat([1, 0], [MEMBERS.size, OTHERS.size]), np.concatenate([MEMBERS, OTHERS])
    false, true, _ = roc_curve(labels, pooled, drop_intermediate=False)
    ours = SCORES.roc()
    np.testing.assert_allclose(ours, (false, true))
    area = pytest.approx(roc_auc_score(labels, pooled))
    assert area == np.trapezoid(ours[1], ours[0])
    assert area == SCORES.auc()


def test_the_rate_at_a_false_positive_rate_is_reached_and_not_interpolated():
    false, true = SCORES.roc()
    assert SCORES.tpr(fpr=0.0) == true[false == 0].max()
    assert SCORES.tpr(fpr=1.0) == 1.0
    assert SCORES.tpr(fpr=0.1) <= np.interp(0.1, false, true)


def test_the_advantage_is_the_largest_gap():
    false, true = SCORES.roc()
    assert SCORES.advantage() == max(t - f for t, f in zip(true, false, strict=True))


def test_counts_add_up():
    assert SCORES.members.sum() == 300
    assert SCORES.others.sum() == 200
    with pytest.raises(ValueError, match="read-only"):
        SCORES.members[0] = 5
    with pytest.raises(FrozenInstanceError):
        SCORES.members = SCORES.others


@pytest.mark.parametrize(
    ("values", "members", "others", "words"),
    [
        ([1.0, 1.0], [1, 1], [1, 1], "increasing"),
        ([0.0, np.nan], [1, 1], [1, 1], "finite"),
        ([0.0, np.inf], [1, 1], [1, 1], "finite"),
        ([[0.0, 1.0]], [1, 1], [1, 1], "in one dimension"),
        ([0.0, 1.0], [1, -1], [1, 1], "members must be integers"),
        ([0.0, 1.0], [1, 1], [0, 0], "others must be integers"),
        ([0.0, 1.0], [1, 1, 1], [1, 1], "one count for each"),
    ],
)
def test_what_makes_no_sense_is_refused(values, members, others, words):
    with pytest.raises(ValueError, match=words):
        Scores(values=values, members=members, others=others)
    with pytest.raises(ValueError, match="finite"):
        Scores.of(members=[np.inf], others=[0.0])


# --- rates with intervals ---


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n", "fpr", "shift"),
    [(3000, 0.01, 1.0), pytest.param(6000, 0.001, 2.0, marks=pytest.mark.slow), (500, 0.001, 2.0)],
)
def test_the_interval_holds_the_rate_of_a_known_law(n, fpr, shift):
    """Normal scores: the rate is Phi(shift - z). Both the threshold and the members are random."""
    rng, missed, confidence = np.random.default_rng(7), 0, 0.8
    truth = norm.cdf(shift - norm.isf(fpr))
    for _ in range(200):
        scores = Scores.of(members=rng.normal(shift, 1, n), others=rng.normal(size=n))
        interval = scores.rate(fpr=fpr, confidence=confidence)
        missed += not interval.low <= truth <= interval.high
        assert interval.low <= interval.tpr <= interval.high
    assert binomtest(missed, 200, 1 - confidence, alternative="greater").pvalue > FALSE_ALARM


@pytest.mark.statistical
def test_scores_of_equal_worlds_have_the_false_positive_rate():
    """Nothing leaks, scores are tied: the true positive rate is the false positive rate, or below it."""
    rng, claims = np.random.default_rng(9), 0
    for _ in range(300):
        scores = Scores.of(members=rng.normal(size=800).round(1), others=rng.normal(size=800).round(1))
        claims += scores.rate(fpr=0.05, confidence=0.9).low > 0.05
    assert binomtest(claims, 300, 0.05, alternative="greater").pvalue > FALSE_ALARM


def test_few_others_know_no_strict_threshold():
    clear = {"members": np.ones(5000), "others": np.zeros(4000)}
    assert Scores.of(**clear).rate(fpr=0.001).low == 0.0
    clear["others"] = np.zeros(5000)
    interval = Scores.of(**clear).rate(fpr=0.001)
    assert interval.low > 0.99
    assert math.log(4 / 0.05) / 0.001 < 5000


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("runs", "n_most", "n_more"), [(40, 18, 2), pytest.param(100, 35, 5, marks=pytest.mark.slow)]
)
def test_targets_are_drawn_again_as_wholes(runs, n_most, n_more):
    """Effects differ between targets: the interval over targets holds, that for independent scores not."""
    fpr, shift, spread, n_targets, n_each = 0.1, 0.5, 1.0, 40, 50
    truth = norm.cdf((shift - norm.isf(fpr)) / math.sqrt(1 + spread**2))
    rng, missed = np.random.default_rng(10), np.zeros(2, dtype=int)
    for _ in range(runs):
        targets = [
            Scores.of(members=rng.normal(effect, 1, n_each), others=rng.normal(size=n_each))
            for effect in rng.normal(shift, spread, n_targets)
        ]
        over = Scores.rate_over_targets(targets, fpr=fpr, confidence=0.8, n_resamples=100, rng=rng)
        together = Scores.of(
            members=np.concatenate([np.repeat(t.values, t.members) for t in targets]),
            others=np.concatenate([np.repeat(t.values, t.others) for t in targets]),
        ).rate(fpr=fpr, confidence=0.8)
        assert over.tpr == together.tpr
        assert over.low <= together.low <= together.high <= over.high
        missed += [not interval.low <= truth <= interval.high for interval in (over, together)]
    assert missed[0] <= n_most  # asymptotic: a fifth is nominal
    assert missed[1] > missed[0] + n_more


def test_rates_of_targets_have_intervals_of_their_own_and_are_no_scores():
    rng = np.random.default_rng(11)
    targets = [Scores.of(members=rng.normal(e, 1, 300), others=rng.normal(size=300)) for e in (0.0, 3.0)]
    intervals = [target.rate(fpr=0.1) for target in targets]
    assert intervals[0].high < intervals[1].low
    for rate in (*intervals, Scores.rate_over_targets(targets * 5, fpr=0.1, rng=rng)):
        assert isinstance(rate, Rate)
        with pytest.raises(ValueError, match="integers >= 0"):
            epsilon_lower_bound(rate, rate, delta=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"fpr": 0.0}, "fpr must be > 0 and < 1"), ({"fpr": 0.1, "confidence": 1.0}, "confidence must be")],
)
def test_rates_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        SCORES.rate(**settings)
    with pytest.raises(ValueError, match=words):
        Scores.rate_over_targets([SCORES] * 10, **settings, rng=rng)
    with pytest.raises(ValueError, match="10 or more"):
        Scores.rate_over_targets([SCORES] * 9, fpr=0.1, rng=rng)

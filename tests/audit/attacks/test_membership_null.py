"""Null calibration of membership statistics: memberships that change nothing are not found.

The AUC and rates of equal worlds are inside exact bands. At length: ``python -m bench equal_worlds``.
"""

import numpy as np
import pytest
from scipy import stats

from bench import equal_worlds
from ostraka.audit.attacks.membership import draw_coins
from tests.audit.attacks.membership_worlds import METHODS, references, world
from tests.false_alarm import FALSE_ALARM


def members_on_top(statistic, member, share):
    """Members among the highest scores; ties are broken without looking at memberships."""
    top = np.argsort(-statistic, kind="stable")[: int(share * len(statistic))]
    return int(member[top].sum()), len(top)


def test_a_planted_leak_is_found_and_members_are_on_top():
    confidences, included = world(np.random.default_rng(5), 4, 3000, effect=1.5)
    for method in METHODS:
        statistics = references(confidences, included).statistics(confidences[0], method=method)
        hits, trials = members_on_top(statistics, included[0], 0.5)
        above = stats.binomtest(hits, trials, 0.5, alternative="greater")
        assert above.pvalue < FALSE_ALARM, method


@pytest.mark.parametrize(("n_models", "n_rows"), [(4, 3000), (64, 100)])
def test_a_balanced_design_of_many_models_is_refused_for_few_rows(n_models, n_rows):
    rng = np.random.default_rng(11)
    included = rng.random((n_models, n_rows)).argsort(axis=0) < n_models // 2
    confidences = rng.random((n_models, n_rows))
    with pytest.raises(ValueError, match="exactly half"):
        references(confidences, included).scores(confidences[0], included[0])


def test_a_target_that_is_the_rest_of_one_reference_is_refused():
    confidences, included = world(np.random.default_rng(7), 5, 200, effect=0.0)
    with pytest.raises(ValueError, match="depend on those of the references"):
        references(confidences, included).scores(confidences[0], ~included[2])


# Independent coins, and exact bands.


def test_rows_are_in_as_many_references_as_independent_coins_say():
    coins = draw_coins(np.random.default_rng(15), 8, 20_000)
    logits = np.bincount(coins.sum(axis=0), minlength=9)
    expected = stats.binom.pmf(np.arange(9), 8, 0.5)[1:-1]  # rows in all or in none are tossed again
    assert logits[[0, 8]].tolist() == [0, 0]
    assert stats.chisquare(logits[1:-1], 20_000 * expected / expected.sum()).pvalue > FALSE_ALARM


@pytest.mark.parametrize("n_models", [2, 4, pytest.param(31, marks=pytest.mark.slow)])
def test_auc_and_rates_of_equal_worlds_are_inside_exact_bands(n_models):
    assert equal_worlds.FALSE_ALARM <= FALSE_ALARM
    assert equal_worlds.outside(n_models, 12, 1_100, seed=1) == []


def test_the_band_of_members_detected_is_that_of_the_negative_hypergeometric_law():
    """One run: scipy's own quantiles. Many: the mean and variance of the law, which all but give the band."""
    single = equal_worlds.hits_band([(1000, 1100)], 0.01)
    law = stats.nhypergeom(2100, 1000, 12)
    assert single == (law.ppf(equal_worlds.FALSE_ALARM / 2), law.isf(equal_worlds.FALSE_ALARM / 2))
    low, high = equal_worlds.hits_band([(1000, 1100)] * 400, 0.01)
    half = stats.norm.isf(equal_worlds.FALSE_ALARM / 2) * np.sqrt(400 * law.var())
    assert (low, high) == pytest.approx((400 * law.mean() - half, 400 * law.mean() + half), rel=0.02)


def test_a_design_where_each_row_is_in_exactly_half_of_all_models_leaves_the_bands(monkeypatch):
    def balanced(rng, n_models, n_rows):
        included = rng.random((n_models + 1, n_rows)).argsort(axis=0) < (n_models + 1) // 2
        return included[0], included[1:]

    monkeypatch.setattr(equal_worlds, "coins", balanced)
    wrong = equal_worlds.outside(3, 60, 2_100, seed=1)
    assert any("student-t: AUC" in sentence for sentence in wrong)

"""Intervals against other people's code and against their promise; each end errs outwards."""

from functools import partial

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.proportion import multinomial_proportions_confint, proportion_confint

from ostraka.audit import intervals

TRIALS = 400
HITS = np.array([0, 1, 17, 200, 399, 400])
HITS_OF_ALL = np.arange(TRIALS + 1)


def bernstein(error):
    share = HITS_OF_ALL / TRIALS
    return intervals.empirical_bernstein(
        share, share * (TRIALS - HITS_OF_ALL) / (TRIALS - 1), TRIALS, error=error
    )


def test_clopper_pearson_is_statsmodels_and_errs_outwards():
    low, high = intervals.clopper_pearson(HITS, TRIALS, error=0.025)
    want = np.array(proportion_confint(HITS, TRIALS, alpha=0.05, method="beta"))
    np.testing.assert_allclose([low, high], want, rtol=1e-9)
    assert (low <= want[0]).all()
    assert (high >= want[1]).all()


def test_clopper_pearson_is_no_wider_than_it_must_be():
    # one hit more at the lower end, and the error is more than allowed
    low, _ = intervals.clopper_pearson(HITS[1:], TRIALS, error=0.05)
    np.testing.assert_allclose(scipy.stats.binom.sf(HITS[1:] - 1, TRIALS, low), 0.05, rtol=1e-6)


def wrong_at_some_time(interval, p, steps=300):
    """Exact: walk along all paths, and drop the mass whose interval misses p at some time."""
    mass, lost = np.array([1.0]), 0.0
    for n in range(1, steps + 1):
        mass = np.concatenate([mass * (1 - p), [0.0]]) + np.concatenate([[0.0], mass * p])
        low, high = interval(np.arange(n + 1), n)
        out = (low > p) | (high < p)
        lost += mass[out].sum()
        mass = np.where(out, 0.0, mass)
    return lost


@pytest.mark.parametrize(
    "p", [pytest.param(0.01, marks=pytest.mark.slow), 0.3, pytest.param(0.5, marks=pytest.mark.slow)]
)
def test_a_confidence_sequence_holds_at_every_number_of_trials_at_once(p):
    # ends beside it: Ville
    assert 0 < wrong_at_some_time(partial(intervals.confidence_sequence, error=0.05), p) <= 0.05
    assert wrong_at_some_time(partial(intervals.clopper_pearson, error=0.025), p) > 0.09


@pytest.mark.parametrize("counts", [[50, 30, 15, 5], [500, 300, 150, 50], [7, 0, 3], [1, 1]])
@pytest.mark.parametrize("method", ["goodman", "sison-glaz"])
def test_simultaneous_intervals_are_those_of_statsmodels(counts, method):
    ours = getattr(intervals, method.replace("-", "_"))
    want = multinomial_proportions_confint(counts, 0.05, method=method)
    np.testing.assert_allclose(np.stack(ours(counts, error=0.05), axis=1), want, rtol=1e-6, atol=1e-9)


def test_empirical_bernstein_is_theorem_4():
    low, high = intervals.empirical_bernstein(0.5, 0.01, 101, error=0.05)
    margin = np.sqrt(2 * 0.01 * np.log(40) / 101) + 7 * np.log(40) / 300
    assert (0.5 - low, high - 0.5) == pytest.approx((margin, margin))


@pytest.mark.parametrize(
    ("p", "error", "ends"),
    [(p, 0.05, partial(intervals.clopper_pearson, HITS_OF_ALL, TRIALS)) for p in (0.001, 0.03, 0.5, 0.97)]
    + [(p, 0.2, bernstein) for p in (0.05, 0.5)],
)
def test_each_end_is_wrong_at_most_as_often_as_said(p, error, ends):
    # no sampling: the binomial probabilities of all the results whose interval misses p
    low, high = ends(error=error)
    mass = scipy.stats.binom.pmf(HITS_OF_ALL, TRIALS, p)
    assert mass[low > p].sum() <= error
    assert mass[high < p].sum() <= error

"""Recovery of released counts, and the leakage meter for tables of counts."""

import numpy as np
import pytest
from scipy.stats import binomtest

from ostraka import Adjacency, Private
from ostraka.attacks import leakage_meter, recover_counts
from ostraka.audit.attacks.votes import cramer_rao, leakage_panel
from ostraka.mechanisms import NoisyCounts
from tests.false_alarm import FALSE_ALARM


@pytest.mark.parametrize("n_releases", [1, 4])
def test_intervals_hold_as_often_as_they_say(n_releases):
    rng = np.random.default_rng(n_releases)
    truth = rng.integers(0, 200, size=(40, 50))
    mechanism = NoisyCounts(sigma=6.0)
    private = Private(truth, Adjacency.vector(l2=1.0))
    releases = np.array([mechanism.release(private, rng=rng) for _ in range(n_releases)])
    recovery = recover_counts(releases, mechanism=mechanism)
    inside = int(((recovery.lower <= truth) & (truth <= recovery.upper)).sum())
    # integers make intervals hold a little more than 95 %
    assert binomtest(inside, truth.size, 0.95, alternative="less").pvalue > FALSE_ALARM
    assert inside < 0.99 * truth.size
    error = np.sqrt(((recovery.mean - truth) ** 2).mean())
    assert error == pytest.approx(6.0 / n_releases**0.5, rel=0.1)


def test_counts_are_not_negative():
    recovery = recover_counts([[-20, 3]], mechanism=NoisyCounts(sigma=5.0))
    assert recovery.lower[0] == recovery.mode[0] == 0
    assert recovery.mean[0] > 0


def test_the_posterior_is_that_of_the_exact_law():
    mechanism, releases = NoisyCounts(sigma=1.5), np.array([[4], [7]])
    counts = np.arange(0, 40)
    logs = mechanism.log_likelihood(releases, np.tile(counts, (2, 1))).sum(axis=0)
    chances = np.exp(logs - logs.max())
    mean = (chances * counts).sum() / chances.sum()
    assert recover_counts(releases, mechanism=mechanism).mean[0] == pytest.approx(mean, rel=1e-12)


def test_the_leakage_meter_reads_tables_of_counts():
    mechanism = NoisyCounts(sigma=20.0)
    leakage = leakage_meter(mechanism, [[150, 60, 40]], n_answers=[0, 1, 100, 10_000])[0]
    assert (np.diff(leakage) < 0).all()
    assert leakage[-1] < 1
    panel = leakage_panel(mechanism, [[150, 60, 40]], n_answers=[1, 100])
    assert panel["votes_wrong"][0] > panel["votes_wrong"][1]
    # a known sum takes a third of the variance of three equal noises
    np.testing.assert_allclose(
        cramer_rao(mechanism, [[150, 60, 40]], n_answers=4), 20 / 2 * np.sqrt(2 / 3), rtol=1e-9
    )


@pytest.mark.parametrize("tables", [[], [[0.5]], np.empty((0, 2), dtype=int)])
def test_refuses_what_is_no_release(tables):
    with pytest.raises(ValueError, match="tables"):
        recover_counts(tables, mechanism=NoisyCounts(sigma=2.0))

"""Epsilon from rates: the paper's equation with its logarithm, both directions, groups, attacks."""

import math

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from ostraka.audits import delta_lower_bound, epsilon_lower_bound, hold_out, renyi_lower_bound
from ostraka.scores import Scores

DELTA = 1e-5


def test_a_fixed_attack_has_equation_one_with_its_logarithm():
    # FN and FP rates with their upper ends, one side each at half the error
    fp = proportion_confint(5, 100, alpha=0.05, method="beta")[1]
    fn = proportion_confint(10, 100, alpha=0.05, method="beta")[1]
    want = max(math.log((1 - DELTA - fn) / fp), math.log((1 - DELTA - fp) / fn))
    got = epsilon_lower_bound([90, 10], [5, 95], delta=DELTA, pilot=([2, 0], [0, 2]))
    assert got.epsilon == pytest.approx(want, rel=1e-6)
    assert got.epsilon <= want


def test_both_directions_count():
    worlds = [1, 9999], [500, 9500]
    first, second = (epsilon_lower_bound(*pair, delta=DELTA).epsilon for pair in (worlds, worlds[::-1]))
    assert first == pytest.approx(second, rel=1e-6)
    assert first > 4


def test_a_delta_of_all_that_differs_explains_everything():
    assert epsilon_lower_bound([600, 400], [500, 500], delta=0.2).epsilon == 0.0


@pytest.mark.parametrize(("group", "delta"), [(2, 0.01), (5, 0.01), (3, 0.0)])
def test_for_a_group_the_bound_solves_the_group_inequality(group, delta):
    counts = [990_000, 10_000], [10_000, 990_000]
    single = epsilon_lower_bound(*counts, delta=delta).epsilon
    many = epsilon_lower_bound(*counts, delta=delta, group=group).epsilon
    low, high = (
        proportion_confint(hits, 1_000_000, alpha=0.025, method="beta") for hits in (990_000, 10_000)
    )
    slope = sum(math.exp(i * many) for i in range(group))
    assert math.exp(group * many) * high[1] + delta * slope == pytest.approx(low[0], rel=1e-9)
    assert many <= single / group * (1 + 1e-9)


def test_randomized_response_is_found_from_below():
    # p = e^eps / (1 + e^eps): pure epsilon-DP, so no bound above epsilon but for the stated 5 %
    epsilon, rng, above = 1.5, np.random.default_rng(4), 0
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    epsilons = []
    for _ in range(400):
        p, q = (rng.multinomial(20_000, law) for law in ((keep, 1 - keep), (1 - keep, keep)))
        epsilons.append(epsilon_lower_bound(p, q, delta=0.0).epsilon)
        above += epsilons[-1] > epsilon
    assert above <= 45  # Binomial(400, 0.05) exceeds 45 with probability below 1e-6
    assert np.mean(epsilons) > 0.95 * epsilon


def test_scores_are_cut_where_the_pilot_says():
    rng = np.random.default_rng(9)
    scores = Scores.of(members=rng.normal(2, 1, 4000), others=rng.normal(0, 1, 4000))
    pilot, proof = hold_out(scores.members, scores.others, rng=rng)
    lower = epsilon_lower_bound(*proof, delta=DELTA, pilot=pilot, ordered=True)
    assert lower.epsilon > 2  # mu = 2 in Gaussian DP leaks far more; every score is its own value here
    assert lower.trials == (3600, 3600)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"delta": 1.0}, "delta"), ({"delta": -0.1}, "delta"), ({"delta": 0.1, "group": 0}, "group")],
)
def test_what_makes_no_sense_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        epsilon_lower_bound([9, 1], [1, 9], **settings)


def hockey_stick(p, q, epsilon):
    """Delta of two laws at an epsilon, in closed form, the larger direction."""
    return max(np.maximum(0, a - math.exp(epsilon) * b).sum() for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.2])
def test_delta_is_below_the_hockey_stick_divergence_and_near_it(epsilon):
    p, q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.2, 0.3, 0.2, 0.3])
    counts = [np.round(1e8 * law).astype(int) for law in (p, q)]
    lower = delta_lower_bound(*counts, epsilon=epsilon)
    assert 0.99 * hockey_stick(p, q, epsilon) < lower.delta <= hockey_stick(p, q, epsilon)
    assert lower.estimate == pytest.approx(hockey_stick(p, q, epsilon))
    assert lower.epsilon == epsilon


def test_delta_and_epsilon_bounds_are_inverse_to_each_other():
    counts = [900, 100], [100, 900]
    delta = delta_lower_bound(*counts, epsilon=1.0).delta
    assert epsilon_lower_bound(*counts, delta=delta).epsilon == pytest.approx(1.0, abs=1e-9)
    group = delta_lower_bound(*counts, epsilon=0.4, group=2).delta
    assert epsilon_lower_bound(*counts, delta=group, group=2).epsilon == pytest.approx(0.4, abs=1e-9)


def test_delta_is_nothing_where_epsilon_explains_all():
    assert delta_lower_bound([900, 100], [100, 900], epsilon=3.0).delta == 0.0
    assert delta_lower_bound([900, 100], [100, 900], epsilon=1e3).delta == 0.0
    for group in (1, 3):
        assert delta_lower_bound([900, 100], [100, 900], epsilon=math.inf, group=group).delta == 0.0
    assert delta_lower_bound([500, 500], [500, 500], epsilon=0.0).delta == 0.0
    with pytest.raises(ValueError, match="epsilon"):
        delta_lower_bound([900, 100], [100, 900], epsilon=-0.1)


def test_scores_are_the_counts_they_hold():
    scores = Scores(values=[0.0, 1.0, 2.0], members=[100, 200, 700], others=[600, 300, 100])
    counts = scores.members, scores.others
    want = epsilon_lower_bound(*counts, delta=DELTA, ordered=True)
    assert epsilon_lower_bound(scores, delta=DELTA) == want
    assert renyi_lower_bound(scores, orders=(2.0,)) == renyi_lower_bound(*counts, orders=(2.0,), ordered=True)
    with pytest.raises(ValueError, match="outcomes_q must not be given"):
        epsilon_lower_bound(scores, counts[1], delta=DELTA)

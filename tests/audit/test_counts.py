"""The audit of counts: from below it comes close to the price, and planted defects are seen."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from ostraka.audits import audit_counts
from ostraka.mechanisms import NoisyCounts


def audited(mechanism, claimed, *, delta=1e-5, seed=0, **settings):
    rng = np.random.default_rng(seed)
    return audit_counts(mechanism, claimed_epsilon=claimed, delta=delta, rng=rng, **settings)


@pytest.mark.parametrize("l2", [1.0, math.sqrt(2), 2.0, math.sqrt(20), math.sqrt(2) * 256])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_the_lower_bound_is_just_below_the_price(mu, l2):
    mechanism = NoisyCounts(sigma=l2 / mu, l2=l2)
    upper = mechanism.curve().epsilon(1e-5)
    finding = audited(mechanism, upper, trials=2000)
    assert finding.verdict == "consistent"
    assert 0.9 * upper < finding.measures[0].lower <= upper


def test_the_exact_value_is_that_of_dp_accounting():
    loss_distribution = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        4.0, value_discretization_interval=1e-4
    )
    pessimistic = loss_distribution.self_compose(2).get_epsilon_for_delta(1e-5)
    finding = audited(NoisyCounts(sigma=4.0), 9.0, trials=200)
    assert pessimistic * 0.998 < finding.measures[0].exact <= pessimistic


def test_two_hundred_audits_never_go_above_the_price():
    mechanism = NoisyCounts(sigma=6.0)
    upper = mechanism.curve().epsilon(1e-4)
    finding = [audited(mechanism, upper, delta=1e-4, trials=300, seed=seed) for seed in range(200)]
    assert all(each.measures[0].lower <= upper and each.verdict == "consistent" for each in finding)


class Louder(NoisyCounts):
    """Draws less noise than it is priced for."""

    def release(self, private, *, rng):
        return NoisyCounts(sigma=0.9 * self.sigma, l2=self.l2).release(private, rng=rng)


class Twice(NoisyCounts):
    """Counts each unit's ballot twice: a planted second ballot a row."""

    def release(self, private, *, rng):
        return super().release(private, rng=rng) + private.open()


@pytest.mark.parametrize(
    ("mechanism", "claimed", "trials"),
    [(Louder(sigma=5.0), 1.1, 20_000), (Twice(sigma=5.0), 1.1, 20_000), (NoisyCounts(sigma=4.5), 1.0, 200)],
    ids=["too little noise", "a second ballot", "a claim too low"],
)
def test_a_broken_promise_is_seen(mechanism, claimed, trials):
    finding = audited(mechanism, claimed, trials=trials)
    assert finding.verdict == "violated"
    if isinstance(mechanism, Twice):  # no law of the mechanism explains what it released
        assert finding.note.endswith("The bound is from the releases alone.")


@pytest.mark.parametrize("sigma", [3.0, 4.5])
def test_the_law_of_a_sum_is_the_convolution_of_its_parts(sigma, monkeypatch):
    from ostraka.audit import runs as counts

    move, mechanism = np.resize([1, -1], 6), NoisyCounts(sigma=sigma)
    short = counts.noise_law(move, mechanism)
    monkeypatch.setattr(counts, "_SMOOTH", math.inf)
    values, chances = counts.noise_law(move, mechanism)
    within = np.isin(values, short[0])
    np.testing.assert_array_equal(values[within], short[0])
    np.testing.assert_allclose(short[1], chances[within], rtol=1e-11, atol=1e-30)


def test_several_tables_have_the_price_of_all():
    mechanism = NoisyCounts(sigma=2500.0, l2=256.0)
    upper = (12 * mechanism.curve()).epsilon(1e-5)
    finding = audited(mechanism, upper, n_tables=12, trials=500)
    assert finding.verdict == "consistent"
    assert 0.99 * upper < finding.measures[0].lower <= upper
    assert audited(mechanism, upper / 2, n_tables=12, trials=500).verdict == "violated"


@pytest.mark.parametrize(
    "wrong", [{"confidence": 2}, {"delta": 0.0}, {"trials": 10}, {"n_tables": 0}], ids=str
)
def test_what_is_no_audit_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        audited(NoisyCounts(sigma=4.5), 1.2, **wrong)

"""Gaussians over Poisson samples against dp-accounting, multi-precision and closed forms: never below."""

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from ostraka import Budget, Curve, Ledger
from ostraka.accounting import sampled_gaussian_curve
from ostraka.core.laws import losses, tables
from ostraka.core.laws.law import PURE, Law


def exact(curve, delta):
    """Epsilon without the Rényi and Gaussian bounds."""
    return tables.of(curve.laws).epsilon(delta)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "interval"),
    [
        pytest.param(1.0, 0.0017, 1000, 1e-4, marks=pytest.mark.slow),
        (1.5, 0.01, 600, 1e-4),
        pytest.param(1.0, 0.1, 100, 1e-4, marks=pytest.mark.slow),
        (5.0, 0.5, 50, 1e-4),
        pytest.param(0.6, 0.01, 1, 1e-3, marks=pytest.mark.slow),
        (20.0, 0.01, 5000, 1e-5),
    ],
)
def test_many_uses_agree_with_dp_accounting(sigma, rate, steps, interval):
    """Its optimistic estimate is below, its pessimistic one within one in two hundred."""
    ours = tables.of(sampled_gaussian_curve(sigma=sigma, sampling_rate=rate, steps=steps).laws)
    how = {"sampling_prob": rate, "value_discretization_interval": interval}
    low = pld.from_gaussian_mechanism(sigma, pessimistic_estimate=False, use_connect_dots=False, **how)
    low, high = (end.self_compose(steps) for end in (low, pld.from_gaussian_mechanism(sigma, **how)))
    for delta in (1e-8, 1e-5, 1e-2):
        assert ours.epsilon(delta) >= low.get_epsilon_for_delta(delta)
        assert ours.epsilon(delta) <= 1.006 * high.get_epsilon_for_delta(delta) + 1e-6


def hockey_stick(epsilon, mu, rate, *, added):
    """Largest P(S) - e^epsilon Q(S) for one use, to 40 digits; ``added``: of Q against P."""
    with mpmath.workdps(40):
        mu, rate, grown = mpmath.mpf(mu), mpmath.mpf(rate), mpmath.exp(mpmath.mpf(epsilon))
        if added:
            odds = 1 / grown - (1 - rate)
            if odds <= 0:
                return 0.0
            at = (mpmath.log(odds / rate) + mu**2 / 2) / mu
            without, with_row = mpmath.ncdf(at), mpmath.ncdf(at - mu)
            return float(without - grown * ((1 - rate) * without + rate * with_row))
        at = (mpmath.log((grown - (1 - rate)) / rate) + mu**2 / 2) / mu
        without, with_row = mpmath.ncdf(-at), mpmath.ncdf(mu - at)
        return float((1 - rate) * without + rate * with_row - grown * without)


@pytest.mark.parametrize(
    ("mu", "rate"), [(1.0, 0.01), (2.0, 0.5), (0.2, 0.1), (0.5, 1.0), (4.0, 1.0), (1.5, 0.9)]
)
def test_one_use_is_never_below_both_exact_directions_and_hardly_above(mu, rate):
    step, start, values = losses.hockey_sticks([Law.sampled(rate, mu**2)])
    table = tables.Table(start, step, values)
    for epsilon in (0.01, 0.1, 0.5, 1.0, 2.0):
        truth = max(hockey_stick(epsilon, mu, rate, added=added) for added in (False, True))
        delta = table.delta(epsilon)
        assert truth <= delta
        assert delta <= truth * 1.002 + 1e-9


@pytest.mark.parametrize("steps", [1, 7, 500])
def test_a_rate_of_one_is_the_gaussian(steps):
    curve = sampled_gaussian_curve(sigma=3.0 * steps**0.5, sampling_rate=1.0, steps=steps)
    truth = Curve.gaussian(sensitivity=1.0, sigma=3.0).epsilon(1e-5)
    assert truth <= exact(curve, 1e-5) <= 1.001 * truth


def test_gaussians_and_samples_compose_as_fixed_pairs():
    """A Gaussian beside samples at rate 1 is again one Gaussian; beside others, dp-accounting says what."""
    gaussian = Curve.gaussian(sensitivity=1.0, sigma=4.0, moves="row")
    total = sampled_gaussian_curve(sigma=4.0, sampling_rate=1.0, steps=3) + gaussian
    truth = Curve.gaussian(sensitivity=1.0, sigma=2.0).epsilon(1e-6)
    assert truth <= exact(total, 1e-6) <= 1.001 * truth
    mixed = sampled_gaussian_curve(sigma=1.0, sampling_rate=0.02, steps=200) + gaussian
    theirs = pld.from_gaussian_mechanism(1.0, sampling_prob=0.02).self_compose(200)
    truth = theirs.compose(pld.from_gaussian_mechanism(4.0)).get_epsilon_for_delta(1e-6)
    assert mixed.epsilon(1e-6) == pytest.approx(truth, rel=2e-3)


@pytest.mark.parametrize("sigma", [0.3, pytest.param(0.1, marks=pytest.mark.slow)])
def test_samples_beside_a_gaussian_that_reveals_much(sigma):
    """Its losses lie so low that one minus their exponential is rounded to one."""
    mixed = sampled_gaussian_curve(sigma=0.5, sampling_rate=0.01, steps=2)
    mixed += Curve.gaussian(sensitivity=1.0, sigma=sigma, moves="row")
    grid = {"value_discretization_interval": 1e-2}  # 1e-5 of these; finer ones have a million losses
    theirs = pld.from_gaussian_mechanism(0.5, sampling_prob=0.01, **grid).self_compose(2)
    truth = theirs.compose(pld.from_gaussian_mechanism(sigma, **grid)).get_epsilon_for_delta(1e-5)
    assert exact(mixed, 1e-5) == pytest.approx(truth, rel=2e-3)


def test_pure_releases_compose_with_samples():
    curve = sampled_gaussian_curve(sigma=1.0, sampling_rate=0.02, steps=50)
    joint = tables.of((*curve.laws, Law(PURE, 0.3, 2)))
    theirs = pld.from_gaussian_mechanism(1.0, sampling_prob=0.02).self_compose(50)
    theirs = theirs.compose(pld.from_randomized_response(2 / (1 + np.exp(0.3)), 2).self_compose(2))
    assert joint.epsilon(1e-6) == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=3e-3)


@pytest.mark.parametrize("rate", [pytest.param(1e-5, marks=pytest.mark.slow), 0.0017, 0.2])
def test_the_curve_is_never_above_its_renyi_bound_and_falls_with_the_rate(rate):
    curve = sampled_gaussian_curve(sigma=1.0, sampling_rate=rate, steps=300)
    renyi = Curve(curve.orders, curve.rdp, "row")
    assert curve.epsilon(1e-5) <= renyi.epsilon(1e-5)
    dearer = sampled_gaussian_curve(sigma=1.0, sampling_rate=1.1 * rate, steps=300)
    assert curve.epsilon(1e-5) <= dearer.epsilon(1e-5)


def test_a_ledger_keeps_what_composes_exactly(tmp_path):
    curve = sampled_gaussian_curve(sigma=1.0, sampling_rate=0.01, steps=100)
    assert Curve.from_dict(curve.to_dict()) == curve

    class Step:
        def curve(self):
            return curve

        def __repr__(self):
            return "Step()"

    path = tmp_path / "ledger.sqlite"
    with Ledger(path, budget=Budget(epsilon=5.0, delta=1e-5)) as ledger:
        for key in ("one", "two"):
            ledger.charge(Step(), key=key, uses=1, unit="row", simulation=False)
    with Ledger(path, budget=Budget(epsilon=5.0, delta=1e-5)) as ledger:
        assert ledger.epsilon() == pytest.approx((2 * curve).epsilon(1e-5), rel=1e-9)


@pytest.mark.parametrize("sigma", [1e-3, 0.02, 0.051])
def test_so_little_noise_is_priced_by_other_bounds_and_never_nan(sigma):
    curve = sampled_gaussian_curve(sigma=sigma, sampling_rate=0.05, steps=300)
    assert curve.epsilon(1e-5) > 100

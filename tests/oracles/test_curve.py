"""Conversions of a curve against multi-precision, dp-accounting and OpenDP: never below, hardly above."""

import math

import mpmath as mp
import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from dp_accounting.rdp import rdp_privacy_accountant

from ostraka.core import curve as _conversions
from ostraka.core.curve import ORDERS, Curve

FINITE = ORDERS[:-1]


def gaussian_delta(epsilon, mu):
    """Dong et al. 2019, Corollary 1, with as many digits as its difference loses, and 50 more."""
    e, mu = mp.mpf(epsilon), mp.mpf(mu)
    a, b = mu / 2 - e / mu, -mu / 2 - e / mu
    with mp.workdps(60 + int(min(a, 0) ** 2 / 4)):
        return mp.erfc(-a / mp.sqrt(2)) / 2 - mp.exp(e) * mp.erfc(-b / mp.sqrt(2)) / 2


def settings(n):
    """Squared shifts and deltas over everything that may be asked, and beyond."""
    rng = np.random.default_rng(11)
    return zip(np.exp(rng.uniform(-12, 5, n)), np.exp(rng.uniform(math.log(1e-40), -0.1, n)), strict=True)


def rdp_epsilon(curve, delta):
    """Canonne et al. 2020, Proposition 12, as printed."""
    pairs = [(mp.mpf(o), mp.mpf(r)) for o, r in zip(curve.orders, curve.rdp, strict=True) if o < math.inf]
    return max(
        mp.mpf(0),
        min(r + mp.log1p(-1 / o) - (mp.log(mp.mpf(delta)) + mp.log(o)) / (o - 1) for o, r in pairs),
    )


def rdp_delta(curve, epsilon):
    pairs = [(mp.mpf(o), mp.mpf(r)) for o, r in zip(curve.orders, curve.rdp, strict=True) if o < math.inf]
    return min(mp.mpf(1), *(mp.exp((o - 1) * (r - epsilon)) * (1 - 1 / o) ** (o - 1) / o for o, r in pairs))


def test_gaussian_delta_is_never_below_the_truth():
    with mp.workdps(50):
        for mu, delta in settings(250):
            for epsilon in (0.0, mu * mu / 2, mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))):
                want, got = gaussian_delta(epsilon, mu), _conversions.gaussian_delta(epsilon, mu)
                assert want <= got <= max(want * (1 + mp.mpf("1e-5")), 5e-324)


def test_gaussian_epsilon_is_never_below_the_truth_and_within_1e_9_above():
    with mp.workdps(50):
        for mu, delta in settings(200):
            epsilon = _conversions.gaussian_epsilon(mu * mu, delta)
            assert gaussian_delta(epsilon, mu) <= delta
            shorter = epsilon * (1 - 1e-9) - 1e-12
            assert shorter < 0 or gaussian_delta(shorter, mu) > delta


def test_a_gaussian_that_hides_nothing_proves_nothing_rather_than_too_much():
    with mp.workdps(50):
        for mu in (1e3, 1e5, 2e6, 3e7, 1e8, 1e200):
            for delta in (1e-9, 0.3, 0.9):
                epsilon = _conversions.gaussian_epsilon(mu * mu, delta)
                assert epsilon == math.inf or gaussian_delta(epsilon, mu) <= delta
    assert _conversions.gaussian_epsilon(1e10, 1e-5) < math.inf
    assert (
        _conversions.gaussian_epsilon(math.inf, 0.9) == _conversions.gaussian_epsilon(1e16, 0.3) == math.inf
    )


@pytest.mark.parametrize(("sigma", "delta"), [(40.0, 1e-5), (3.0, 1e-9), (0.5, 1e-3), (1000.0, 0.3)])
def test_gaussian_composition_agrees_with_dp_accounting(sigma, delta):
    for n in (1, 100, 5000):
        ours = (n * Curve.gaussian(sensitivity=1.0, sigma=sigma)).epsilon(delta)
        theirs = get_epsilon_gaussian(sigma / math.sqrt(n), delta)
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-11)


def test_renyi_conversions_are_never_below_the_truth():
    rng = np.random.default_rng(12)
    with mp.workdps(50):
        for mu, delta in settings(80):
            wobble = rng.uniform(0.5, 1.5, len(ORDERS)).cumsum() / np.arange(1, len(ORDERS) + 1)
            curve = Curve(ORDERS, tuple(np.minimum(mu, np.array(ORDERS) * mu**2 * wobble).tolist()))
            want, got = min(rdp_epsilon(curve, delta), mp.mpf(curve.rdp[-1])), curve.epsilon(delta)
            assert want <= got <= want * (1 + mp.mpf("1e-9")) + mp.mpf("1e-14")
            epsilon = got * rng.uniform(0.2, 1.0)
            if epsilon < curve.rdp[-1]:
                want, got = rdp_delta(curve, mp.mpf(epsilon)), curve.delta(epsilon)
                assert want <= got <= max(want * (1 + mp.mpf("1e-9")), 5e-324)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
@pytest.mark.parametrize("sigma", [1.5, 40.0])
def test_renyi_conversion_agrees_with_dp_accounting_and_opendp(sigma, delta):
    rho = 100 / (2 * sigma**2)
    curve = Curve(ORDERS, tuple(order * rho for order in ORDERS))
    theirs, _ = rdp_privacy_accountant.compute_epsilon(FINITE, curve.rdp[:-1], delta)
    assert curve.epsilon(delta) == pytest.approx(theirs, rel=1e-12, abs=0)
    theirs, _ = rdp_privacy_accountant.compute_delta(FINITE, curve.rdp[:-1], theirs / 2)
    assert curve.delta(curve.epsilon(delta) / 2) == pytest.approx(theirs, rel=1e-9, abs=0)
    # OpenDP minimises over every order: ours may be a little above, never below
    dp.enable_features("contrib")
    noise = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=sigma)
    best = dp.c.make_zCDP_to_approxDP(noise).map(10).epsilon(delta)
    assert best * (1 - 1e-9) <= curve.epsilon(delta) <= best * 1.01


def test_pure_privacy_is_kept_by_the_order_infinity():
    curve = Curve((2.0, math.inf), (0.2, 0.25))
    assert (40 * curve).epsilon(1e-9) == pytest.approx(10.0)  # order 2 proves 8 + log(1e9 / 2) - log 2
    assert curve.delta(0.25) == 0
    assert curve.delta(0.2499) > 0


def test_epsilon_and_delta_are_inverse():
    for curve in (
        100 * Curve.gaussian(sensitivity=1.0, sigma=40.0),
        Curve(ORDERS, tuple(order / 50 for order in ORDERS)),
        Curve(ORDERS, tuple(order / 50 for order in ORDERS), slack=1e-12),
    ):
        for delta in (1e-3, 1e-6, 1e-9):
            epsilon = curve.epsilon(delta)
            assert curve.delta(epsilon) <= delta * (1 + 1e-11)
            assert curve.delta(epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("slack", [1e-12, 1e-9, 1e-7])
def test_slack_is_paid_from_delta_in_full(slack):
    """(epsilon, delta) of what is priced is (epsilon, delta + (1 + e^epsilon) slack) of what is sampled."""
    priced = Curve(ORDERS, tuple(order / 200 for order in ORDERS), mu_squared=0.01)
    sampled = Curve(ORDERS, priced.rdp, mu_squared=0.01, slack=slack)
    with mp.workdps(50):
        for delta in (1e-5, 1e-6, 1e-3):
            epsilon = sampled.epsilon(delta)
            paid = (1 + mp.exp(epsilon)) * mp.mpf(slack)
            ideal = min(rdp_delta(priced, mp.mpf(epsilon)), gaussian_delta(epsilon, 0.1))
            assert ideal + paid <= delta
            shorter = epsilon * (1 - 1e-6)
            assert min(rdp_delta(priced, mp.mpf(shorter)), gaussian_delta(shorter, 0.1)) + paid > delta
            assert ideal + paid <= sampled.delta(epsilon) <= delta * (1 + 1e-9)
    assert sampled.epsilon(2.1 * slack) == math.inf
    assert sampled.delta(50.0) <= sampled.delta(5.0) * (1 + 1e-9) < 1e-5


def test_just_as_much_slack_as_delta_can_bear_still_proves_what_it_says():
    """At the largest slack that leaves a proof, epsilon solves a fixed point that only just exists."""
    low, high = 1e-9, 1e-5
    with mp.workdps(50):
        for _ in range(60):
            slack = math.sqrt(low * high)
            curve = Curve((2.0, 30.0), (0.4, 3.0), slack=slack)
            epsilon = curve.epsilon(1e-5)
            if epsilon < math.inf:
                assert rdp_delta(curve, mp.mpf(epsilon)) + (1 + mp.exp(epsilon)) * slack <= 1e-5
            low, high = (slack, high) if epsilon < math.inf else (low, slack)
    assert high / low < 1 + 1e-9


def test_more_slack_than_delta_proves_nothing():
    curve = Curve.zero()
    assert Curve(curve.orders, curve.rdp, mu_squared=0.0, slack=1e-6).epsilon(1e-6) == math.inf
    assert Curve(curve.orders, curve.rdp, mu_squared=0.0, slack=1e-6).delta(0.0) == pytest.approx(
        2e-6, rel=1e-9, abs=0
    )

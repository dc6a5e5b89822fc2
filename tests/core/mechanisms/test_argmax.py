"""GNMax and LNMax as a user meets them. Laws are checked in tests/oracles, habits in tests/contracts."""

import math

import numpy as np
import pytest

from ostraka import Confident, GNMax, LNMax, Private, Threshold
from ostraka.mechanisms import NoisyCounts

both_noises = pytest.mark.parametrize("mechanism", [GNMax(sigma=7.0), LNMax(scale=7.0)], ids=str)


def test_the_classic_price_is_order_over_sigma_squared():
    tight, curve = (GNMax(sigma=7.0).curve(bound) for bound in ("tight", "classic"))
    for order, rdp in zip(curve.orders[:-1], curve.rdp[:-1], strict=True):
        assert rdp == pytest.approx(order / 49, rel=1e-12)
    assert curve.mu_squared == tight.mu_squared == pytest.approx(2 / 49)
    assert curve.slack == 0


@pytest.mark.parametrize("noise", [5e-324, 1e-308, 1e-300, 1e-160, 1e-154, 1e-100])
def test_noise_too_small_for_float64_has_a_price_that_no_budget_pays(noise):
    screened = Confident(screen=Threshold(at=3, sigma=noise), argmax=GNMax(sigma=noise))
    for mechanism in (GNMax(sigma=noise), LNMax(scale=noise), screened, NoisyCounts(sigma=noise)):
        assert mechanism.curve().epsilon(delta=1e-5) > 1e99
        assert (3 * mechanism.curve()).epsilon(delta=1e-5) > 1e99
    assert (3 * GNMax(sigma=noise).curve("exact")).epsilon(delta=1e-5) > 1e99


def test_lnmax_is_pure_and_no_gaussian_dominates_it():
    curve = LNMax(scale=7.0).curve()
    assert curve.orders[-1] == math.inf
    assert curve.rdp[-1] == pytest.approx(2 / 7, rel=1e-15)
    assert curve.mu_squared == math.inf
    assert max(curve.rdp) == curve.rdp[-1]


def test_hundred_answers_at_sigma_40_cost_1_07_and_by_renyi_1_16():
    for bound, cost in (((), 1.071), (("tight",), 1.162), (("classic",), 1.356)):
        curve = 100 * GNMax(sigma=40.0).curve(*bound)
        assert curve.epsilon(delta=1e-5) == pytest.approx(cost, abs=2e-3)


@both_noises
def test_gradient_comes_with_the_law_and_one_row_a_query(mechanism):
    counts = np.random.default_rng(1).multinomial(60, [0.5, 0.3, 0.2], size=9)
    log_p, slope = mechanism.log_outcomes_gradient(counts)
    assert (log_p.shape, slope.shape) == ((9, 3), (9, 3, 3))
    np.testing.assert_allclose(log_p, mechanism.log_outcomes(counts), rtol=1e-12)
    step = 1e-5
    for i in range(3):
        moved = counts + step * (np.arange(3) == i)
        difference = (mechanism.log_outcomes(moved) - log_p) / step
        np.testing.assert_allclose(slope[..., i], difference, atol=1e-5)


@both_noises
def test_what_all_classes_have_in_common_decides_nothing(mechanism):
    counts = np.random.default_rng(2).multinomial(60, [0.5, 0.3, 0.2], size=500)
    close, many = (
        mechanism.release(Private(counts + shift, mechanism.promise), rng=np.random.default_rng(3))
        for shift in (0, 2**50)
    )
    np.testing.assert_array_equal(close, many)


@both_noises
def test_whole_and_fractional_votes_of_any_dtype_are_votes(mechanism):
    rows = [[3, 1], [0, 9]]
    laws = [mechanism.log_outcomes(np.array(rows, dtype=dtype)) for dtype in (np.uint8, np.int64, np.float32)]
    for law in (*laws, mechanism.log_outcomes(rows), mechanism.log_outcomes(np.array(rows).T.copy().T)):
        np.testing.assert_array_equal(law, laws[0])


@both_noises
def test_no_queries_are_no_answers(mechanism):
    nothing = np.empty((0, 3))
    assert mechanism.log_outcomes(nothing).shape == (0, 3)
    answers = mechanism.release(Private(nothing, mechanism.promise), rng=np.random.default_rng(0))
    assert answers.shape == (0,)

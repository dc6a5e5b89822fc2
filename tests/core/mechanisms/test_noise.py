"""The compiled scalar functions against scipy and multi-precision, from the far left to the far right."""

import mpmath as mp
import numpy as np
import pytest

from ostraka.core.kernels.outcome import GAUSSIAN, LAPLACE, log_cdf, log_pdf, score, sort_down

PLACES = [-1e4, -700.0, -38.5, -16.001, -15.999, -9.03, -2.0, -0.03, 0.0, 0.03, 1.0, 8.999, 9.001, 20.0, 37.9]


def normal(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2 if x < 0 else 1 - mp.erfc(x / mp.sqrt(2)) / 2


def laplace(x):
    return mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2


@pytest.mark.parametrize("x", PLACES)
def test_log_cdf_keeps_its_relative_accuracy_at_both_ends(x):
    with mp.workdps(1000 if x > 9 else 40):
        for kind, cdf in ((GAUSSIAN, normal), (LAPLACE, laplace)):
            want = mp.log(cdf(mp.mpf(x)))
            relative = 2e-15 if x < 9 else 2e-16 * x * x  # a rounding of x itself moves the tail by x squared
            assert abs(log_cdf(kind, x) - want) <= relative * abs(want) + (1e-16 if x < 9 else 1e-307)


@pytest.mark.parametrize("x", PLACES)
def test_density_and_score_agree_with_their_definitions(x):
    with mp.workdps(40):
        x = mp.mpf(x)
        for kind, pdf, cdf in ((GAUSSIAN, mp.npdf(x), normal(x)), (LAPLACE, mp.exp(-abs(x)) / 2, laplace(x))):
            assert log_pdf(kind, float(x)) == pytest.approx(float(mp.log(pdf)), rel=1e-15)
            assert score(kind, float(x)) == pytest.approx(float(pdf / cdf), rel=1e-6 if x < -100 else 1e-12)


def test_beyond_what_float64_can_tell_from_certainty_nothing_is_left():
    assert log_cdf(GAUSSIAN, 40.0) == 0.0
    assert log_cdf(GAUSSIAN, np.inf) == 0.0


def test_sorting_keeps_equals_in_order_and_says_where_each_came_from():
    values = np.array([3.0, 7.0, 3.0, 9.0, 7.0])
    origin = sort_down(values)
    np.testing.assert_array_equal(values, [9, 7, 7, 3, 3])
    np.testing.assert_array_equal(origin, [3, 1, 4, 0, 2])

"""Threshold as a user meets it. Its law is checked in tests/oracles, its habits in tests/contracts."""

import numpy as np
import pytest

from ostraka import Private, Threshold


def test_classic_prices_are_of_what_the_threshold_is_applied_to():
    largest, every = (
        Threshold(at=3, sigma=7.0, noise=noise).curve("classic") for noise in ("largest", "every")
    )
    for order, a, b in zip(largest.orders[:-1], largest.rdp[:-1], every.rdp[:-1], strict=True):
        assert a == pytest.approx(order / 98, rel=1e-12)
        assert b == pytest.approx(order / 49, rel=1e-12)
    assert largest.mu_squared == pytest.approx(1 / 49)
    assert every.mu_squared == pytest.approx(2 / 49)


def test_tight_prices_are_about_2_over_pi_of_one_count_for_either_noise():
    for noise in ("largest", "every"):
        curve = Threshold(at=3, sigma=150.0, noise=noise).curve()
        for order, rdp in zip(curve.orders, curve.rdp, strict=True):
            if 2 <= order <= 32:
                assert 0.6364 <= rdp / (order / (2 * 150.0**2)) <= 0.645


def test_where_the_threshold_lies_changes_answers_but_not_the_price():
    low, high = (Threshold(at=at, sigma=20.0) for at in (10, 90))
    assert low.curve() == high.curve()
    assert low.log_outcomes([[50, 50]])[0, 0] > high.log_outcomes([[50, 50]])[0, 0]


@pytest.mark.parametrize("noise", ["largest", "every"])
def test_far_from_the_threshold_the_answer_is_certain(noise):
    screen = Threshold(at=100, sigma=1.0, noise=noise)
    rows = Private([[500, 0], [20, 80], [0, 100000]], screen.promise)
    np.testing.assert_array_equal(screen.release(rows, rng=np.random.default_rng(0)), [True, False, True])


def test_one_class_is_no_vote():
    with pytest.raises(ValueError, match="two classes or more"):
        Threshold(at=1, sigma=1.0).log_outcomes([[3]])

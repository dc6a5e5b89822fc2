"""Noise of parties: the law is Skellam's, the price is that law's exact divergence, rounded up."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from ostraka import GNMax, Private
from ostraka.curve import ORDERS
from ostraka.mechanisms import SkellamMax, skellam

FALSE_ALARM = 1e-9  # chance that a right sampler fails one comparison
mpmath.mp.dps = 50


def divergence(variance: float, order: float) -> mpmath.mpf:
    """Of one ballot: two counts moved by one, each with Skellam noise. From Bessel functions alone."""
    log_density = [
        mpmath.log(mpmath.besseli(k, variance)) - variance
        for k in range(int(3 * order + 60 * variance**0.5) + 40)
    ]
    reach = len(log_density) - 1
    total = mpmath.fsum(
        mpmath.exp(order * log_density[abs(k)] + (1 - order) * log_density[abs(k - 1)])
        for k in range(1 - reach, reach)
    )
    return 2 * mpmath.log(total) / (order - 1)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0, 6.3])
def test_the_price_is_the_exact_divergence_rounded_up(sigma):
    rdp = skellam.skellam_rdp(sigma**2)
    for place in (0, 5, 20, 33):
        excess = mpmath.mpf(rdp[place]) - divergence(sigma**2, ORDERS[place])
        assert 0 < excess < 1e-9


def test_the_price_nears_that_of_gaussian_noise_as_sigma_grows():
    ratios = []
    for sigma in (5.0, 20.0, 80.0):
        ours, gaussian = SkellamMax(sigma=sigma).curve(), GNMax(sigma=sigma).curve("classic")
        ratios.append(ours.rdp[20] / gaussian.rdp[20])
    assert abs(ratios[0] - 1) > abs(ratios[1] - 1)
    assert ratios[1:] == pytest.approx([1, 1], abs=1e-3)
    assert ours.rdp[-1] == math.inf  # no pure differential privacy


def test_large_sigma_is_summed_far_enough():
    ours, gaussian = SkellamMax(sigma=1000.0).curve(), GNMax(sigma=1000.0).curve("classic")
    assert ours.rdp[:-1] == pytest.approx(gaussian.rdp[:-1], rel=1e-3)


@pytest.mark.parametrize("mean", [0.0005, 0.4, 4.0, 300.0])
def test_thresholds_are_the_poisson_distribution_to_64_bits(mean):
    thresholds = skellam._thresholds(mean)
    for k in {0, len(thresholds) // 2, len(thresholds) - 1}:
        below = mpmath.nsum(lambda j: mpmath.exp(-mean) * mpmath.mpf(mean) ** j / mpmath.factorial(j), [0, k])
        assert 0 <= below * 2**64 - int(thresholds[k]) < 2
    assert np.all(np.diff(thresholds.astype(object)) >= 0)


@pytest.mark.statistical
@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize("variance", [0.3, 8.0, 200.0])
def test_draws_are_skellam_and_neither_narrower_nor_wider(variance):
    draws = skellam.skellam(variance, (400, 500))
    assert draws.dtype == np.int64
    assert np.abs(draws).max() <= skellam.largest_draw(variance)
    assert fits(draws, variance)
    assert not fits(draws, 0.95 * variance)
    assert not fits(draws, 1.06 * variance)


def fits(draws: np.ndarray, variance: float) -> bool:
    """Chi-squared over values expected often enough, the tails together."""
    law = stats.skellam(variance / 2, variance / 2)
    reach = next(k for k in range(1000) if law.sf(k) * draws.size < 25)
    edges = np.arange(-reach, reach + 1)
    expected = np.concatenate([[law.cdf(-reach - 1)], law.pmf(edges), [law.sf(reach)]]) * draws.size
    seen = np.bincount(np.clip(draws.ravel(), -reach - 1, reach + 1) + reach + 1, minlength=len(expected))
    return stats.chisquare(seen, expected * draws.size / expected.sum()).pvalue > FALSE_ALARM


def test_release_adds_nothing_and_breaks_ties_by_its_generator():
    mechanism = SkellamMax(sigma=3.0)
    votes = Private([[5, -3, 4], [2, 2, -9]] * 200, mechanism.promise)
    answers = mechanism.release(votes, rng=np.random.default_rng(0))
    assert set(answers[::2]) == {0}
    assert set(answers[1::2]) == {0, 1}
    assert answers.dtype == np.int64
    assert mechanism.uses(votes) == 400


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 10_001.0, "2"])
def test_noise_of_another_kind_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must"):
        SkellamMax(sigma=sigma)

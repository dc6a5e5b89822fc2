"""A Gaussian dominates Skellam noise that moves by whole numbers: against Bessel functions and whole laws."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from ostraka.core.mechanisms import skellam
from ostraka.core.mechanisms.skellam import SkellamSum
from tests.core.mechanisms.test_skellam import moves

SIGMAS = [0.6, 1.0, 1.6, 5.0, 17.3]


def law(variance: float, reach: int) -> list[mpmath.mpf]:
    """Probabilities of -reach, …, reach, from Bessel functions alone."""
    half = [mpmath.exp(-variance) * mpmath.besseli(k, variance) for k in range(reach + 1)]
    return half[:0:-1] + half


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_shift_is_the_largest_step_of_the_exact_quantiles(sigma):
    reach = math.ceil(13 * sigma) + 25
    with mpmath.workdps(60):
        below = list(itertools.accumulate(law(sigma**2, reach)))[2:-2]
        near = [stats.norm.ppf(float(chance)) for chance in below]
        z = [
            float(mpmath.findroot(lambda x, a=chance: mpmath.ncdf(x) - a, start))
            for chance, start in zip(below, near, strict=True)
            if abs(start) < 8
        ]
    for shift in (1, 2, 5):
        largest = max(np.subtract(z[shift:], z[:-shift]))
        shift_of_table = skellam.shift_mu(sigma**2, shift)
        assert 0 < shift_of_table - largest < 2e-9 * largest + 2e-10


@pytest.mark.parametrize("sigma", [*SIGMAS[:-1], pytest.param(SIGMAS[-1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("shift", [1, 3])
def test_the_gaussian_gives_away_more_at_every_epsilon_and_a_narrower_one_would_not(sigma, shift):
    reach = math.ceil(14 * sigma) + 30 + shift
    with mpmath.workdps(60):
        p = law(sigma**2, reach)
        pairs = [(p[k - shift], p[k]) for k in range(shift, len(p))]
        mu, wrong = mpmath.mpf(skellam.shift_mu(sigma**2, shift)), 0
        for epsilon in np.linspace(0, 6 * float(mu), 40):
            ours = mpmath.fsum(max(0, one - mpmath.exp(epsilon) * two) for one, two in pairs)
            gaussian, narrower = (
                mpmath.ncdf(-epsilon / m + m / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / m - m / 2)
                for m in (mu, 0.999 * mu)
            )
            assert ours <= gaussian + mpmath.mpf(2) ** -100
            wrong += ours > narrower
        assert wrong


def whole_delta(sigma: float, move: tuple[int, ...], epsilon: float) -> float:
    """The hockey-stick divergence of cells that move at once, summed over all their values."""
    at = np.arange(-math.ceil(9 * sigma) - 8, math.ceil(9 * sigma) + 9)
    noise = stats.skellam(sigma**2 / 2, sigma**2 / 2)
    p, two = np.ones(1), np.ones(1)
    for shift in move:
        p = np.multiply.outer(p, noise.pmf(at - shift)).ravel()
        two = np.multiply.outer(two, noise.pmf(at)).ravel()
    return float(np.maximum(p - math.exp(epsilon) * two, 0).sum())


@pytest.mark.parametrize(
    ("sigma", "l1", "l2"), [(1.0, 3, 3), (4.0, 3, 3**0.5), (3.0, 4, 6**0.5), (2.0, 4, 3.2)]
)
def test_the_price_covers_whole_moves_of_several_cells(sigma, l1, l2):
    curve = SkellamSum(sigma=sigma, l1=l1, l2=l2).curve()
    for move in moves(l1, l2, int(min(l1, l2))):
        if len(move) <= 3:
            for epsilon in (0.1, 0.7, 2.0):
                assert whole_delta(sigma, move, epsilon) <= curve.delta(epsilon)


def test_the_price_is_near_the_whole_law_and_below_that_of_renyi():
    sigma, delta = 8.0, 1e-6
    curve = SkellamSum(sigma=sigma, l1=3, l2=3**0.5).curve()
    epsilon = curve.epsilon(delta)
    assert whole_delta(sigma, (1, 1, 1), 0.97 * epsilon) > delta
    renyi = min(
        rdp + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        for order, rdp in zip(curve.orders[:-1], curve.rdp[:-1], strict=True)
    )
    assert epsilon < 0.95 * renyi


def test_many_rounds_cost_what_one_gaussian_of_their_shifts_costs():
    curve = SkellamSum(sigma=100.0, l1=2, l2=2**0.5).curve()
    mu = 8 * math.sqrt(2) / 100
    epsilon = (64 * curve).epsilon(1e-6)
    exact = stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * stats.norm.cdf(
        -epsilon / mu - mu / 2
    )
    assert 0.99e-6 < exact < 1e-6

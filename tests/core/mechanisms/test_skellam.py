"""Noise of parties: the law is Skellam's, the price is that law's exact divergence, rounded up."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from ostraka import Budget, GNMax, Ledger, Private, release
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms import skellam
from ostraka.core.mechanisms.skellam import SkellamSum
from ostraka.mechanisms import SkellamMax
from tests.false_alarm import FALSE_ALARM

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


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0, pytest.param(6.3, marks=pytest.mark.slow)])
def test_the_price_is_the_exact_divergence_rounded_up(sigma):
    rdp = skellam.skellam_rdp(sigma**2)
    for place in (0, 5, 20, 33):
        excess = mpmath.mpf(rdp[place]) - divergence(sigma**2, ORDERS[place])
        assert 0 < excess < 1e-9


def test_the_price_nears_that_of_gaussian_noise_as_sigma_grows():
    ratios = []
    for sigma in (5.0, 20.0, 80.0, 1000.0):
        ours, gaussian = SkellamMax(sigma=sigma).curve(), GNMax(sigma=sigma).curve("classic")
        ratios.append(ours.rdp[20] / gaussian.rdp[20])
    assert abs(ratios[0] - 1) > abs(ratios[1] - 1)
    assert ratios[1:] == pytest.approx([1, 1, 1], abs=1e-3)
    assert ours.rdp[:-1] == pytest.approx(gaussian.rdp[:-1], rel=1e-3)  # large sigma is summed far enough
    assert ours.rdp[-1] == math.inf  # no pure differential privacy


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
    tally = np.bincount(np.clip(draws.ravel(), -reach - 1, reach + 1) + reach + 1, minlength=len(expected))
    return stats.chisquare(tally, expected * draws.size / expected.sum()).pvalue > FALSE_ALARM


def test_release_adds_nothing_and_breaks_ties_by_its_generator():
    mechanism = SkellamMax(sigma=3.0)
    votes = Private([[5, -3, 4], [2, 2, -9]] * 200, mechanism.promise)
    answers = mechanism.release(votes, rng=np.random.default_rng(0))
    assert set(answers[::2]) == {0}
    assert set(answers[1::2]) == {0, 1}
    assert answers.dtype == np.int64
    assert mechanism.uses(votes) == 400


# sums of vectors


def moves(l1: float, l2: float, largest: int) -> list[tuple[int, ...]]:
    """Every multiset of positive cell changes within both norms: signs and places make no difference."""
    if largest == 0:
        return [()]
    vectors = []
    for times in range(int(min(l1 / largest, l2**2 / largest**2 + 1e-9)) + 1):
        norm_left = math.sqrt(max(0.0, l2**2 - times * largest**2))
        vectors += [(largest,) * times + tail for tail in moves(l1 - times * largest, norm_left, largest - 1)]
    return vectors


def exact_shift(variance: float, shift: int, order: float) -> mpmath.mpf:
    """Divergence of one cell moved by ``shift``, from Bessel functions alone."""
    reach = int(2 * shift * order + 60 * variance**0.5) + 40
    log_density = [mpmath.log(mpmath.besseli(k, variance)) - variance for k in range(reach + shift + 1)]
    total = mpmath.fsum(
        mpmath.exp(order * log_density[abs(k)] + (1 - order) * log_density[abs(k - shift)])
        for k in range(-reach, reach + 1)
    )
    return mpmath.log(total) / (order - 1)


@pytest.mark.parametrize(
    ("sigma", "l1", "l2"), [(1.0, 3, 3), (0.6, 6, 3), (2.0, 2, 2**0.5), (3.0, 5, 6**0.5), (1.5, 8, 4.2)]
)
def test_the_price_of_sums_covers_every_move_within_both_norms_and_is_tight(sigma, l1, l2):
    curve = SkellamSum(sigma=sigma, l1=l1, l2=l2).curve()
    largest = int(min(l1, l2))
    with mpmath.workdps(25):
        for place in (0, 9, 20):
            single = [exact_shift(sigma**2, shift, ORDERS[place]) for shift in range(1, largest + 1)]
            costs = [sum(single[k - 1] for k in move) for move in moves(l1, l2, largest)]
            assert max(costs) <= curve.rdp[place]
            assert max(costs) >= 0.72 * curve.rdp[place]  # the rest: fractions of coordinates


@pytest.mark.parametrize(
    ("sigma", "l1", "l2"), [(900.0, 5000.0, 600.0), (5000.0, 40.0, 30.0), (900.0, 9e5, 600.0)]
)
def test_moves_that_are_not_summed_have_the_price_of_theorem_3_5(sigma, l1, l2):
    """Agarwal, Kairouz and Liu 2021, arXiv:2110.04995, at whole orders; others cost as the next."""
    curve, mu = SkellamSum(sigma=sigma, l1=l1, l2=l2).curve(), mpmath.mpf(sigma) ** 2
    l1 = min(l1, l2**2)
    for order, price in zip(curve.orders[:-1], curve.rdp[:-1], strict=True):
        ceiling = math.ceil(order)
        correction = min(((2 * ceiling - 1) * mpmath.mpf(l2) ** 2 + 6 * l1) / (4 * mu**2), 3 * l1 / (2 * mu))
        assert 1 <= price / (ceiling * mpmath.mpf(l2) ** 2 / (2 * mu) + correction) < 1 + 1e-9


def test_a_price_for_one_norm_alone_would_not_cover_the_other():
    # the wrong reading: l1 moves of one, or one move of l2
    narrow, wide = SkellamSum(sigma=2.0, l1=6, l2=6), SkellamSum(sigma=2.0, l1=6, l2=6**0.5)
    assert narrow.curve().rdp[20] > 2 * wide.curve().rdp[20]


def test_large_steps_and_small_noise_are_summed_where_the_mass_lies():
    with mpmath.workdps(25):
        for variance, shift, order in ((1.0, 9, 3), (0.5, 5, 9), (30.0, 12, 20), (4.0, 20, 2)):
            place = ORDERS.index(order)
            excess = mpmath.mpf(skellam.shift_rdp(variance, shift)[place]) - exact_shift(
                variance, shift, order
            )
            assert 0 < excess < 1e-7


def test_sums_that_carry_noise_pass_unchanged_and_others_are_refused():
    mechanism = SkellamSum(sigma=5.0, l1=2, l2=2**0.5)
    with Ledger(":memory:", budget=Budget(epsilon=10.0, delta=1e-6)) as ledger:
        answer = release(mechanism, Private(np.arange(4), mechanism.promise), ledger=ledger)
        assert answer.tolist() == [0, 1, 2, 3]
        assert len(ledger.entries()) == 1
        others = [
            SkellamSum(sigma=5.0, l1=2, l2=2**0.5, adds=True),
            SkellamSum(sigma=4.0, l1=2, l2=2**0.5),
            SkellamSum(sigma=5.0, l1=20, l2=20**0.5),
        ]
        for stranger in others:
            with pytest.raises(ValueError, match="hides"):
                release(mechanism, Private(np.arange(4), stranger.promise), ledger=ledger)
        with pytest.raises(ValueError, match="whole numbers"):
            mechanism.release(Private(np.ones(4), mechanism.promise), rng=np.random.default_rng(0))


@pytest.mark.statistical
def test_noise_added_at_release_comes_from_the_generator_and_has_the_stated_width():
    mechanism = SkellamSum(sigma=4.0, l1=2, l2=2**0.5, adds=True)
    private = Private(np.zeros(200_000, dtype=np.int64), mechanism.promise)
    first, second, third = (mechanism.release(private, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != third).any()
    assert fits(first, 16.0)
    assert not fits(first, 15.2)


def test_low_bits_decide_where_high_bits_tie(monkeypatch):
    with mpmath.workdps(80):
        threshold = mpmath.fsum(mpmath.exp(-2) * mpmath.mpf(2) ** j / mpmath.factorial(j) for j in range(4))
        high, low, lower = (int(mpmath.floor(threshold * 2**bits)) % 2**64 for bits in (64, 128, 192))
    # draws are counts of thresholds not above the number: 3 just below the fourth, 4 from it on
    fine = [[low - 1], [low], [lower + 1], [low], [lower - 1], [low + 1]]
    words = iter([np.array(half, dtype=np.uint64) for half in ([high] * 4, *fine)])
    monkeypatch.setattr(skellam, "_words", lambda size, rng: next(words))
    assert skellam.skellam(4.0, (2,)).tolist() == [3 - 3, 4 - 4]
    assert next(words, None) is None

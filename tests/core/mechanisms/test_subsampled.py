"""Poisson sampling, never below the truth of any pair in any direction; and ballots of any weight."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.mechanisms.wrapped import Subsampled, Weighted, _quadratic, _without_against_with, amplified

FINITE = np.array(ORDERS[:-1])
RATES = (1e-3, 0.05, 0.4, 0.9)


def divergence(log_p, log_q):
    log_moment = np.logaddexp.reduce(FINITE[:, None] * log_p + (1 - FINITE[:, None]) * log_q, axis=1)
    return np.maximum(log_moment / (FINITE - 1), 0)


def sampled_truth(log_p, log_q, rate):
    """Both directions between the law without the unit and the mixture with it, by definition."""
    mixed = np.logaddexp(log_p + math.log(rate), log_q + math.log1p(-rate))
    directions = (divergence(mixed, log_q), divergence(log_q, mixed))
    reach = max(np.abs(mixed - log_q).max(), 0.0)
    return np.append(np.maximum(*directions), reach)


def own_curve(log_p, log_q):
    """The tightest curve of a mechanism that has these two laws only."""
    rdp = np.maximum(divergence(log_p, log_q), divergence(log_q, log_p))
    return Curve(ORDERS, (*rdp.tolist(), float(np.abs(log_p - log_q).max())))


def random_laws(n, rng):
    """Pairs of laws over two to four outcomes, from nearly equal to far apart, and never symmetric."""
    for _ in range(n):
        size = rng.integers(2, 5)
        q = rng.dirichlet(np.full(size, 0.4)) + 1e-9
        p = q * np.exp(rng.normal(size=size) * 10 ** rng.uniform(-2.5, 0.5))
        yield np.log(p / p.sum()), np.log(q / q.sum())


@pytest.mark.parametrize("rate", RATES)
def test_no_pair_of_laws_exceeds_the_bound_in_either_direction(rate):
    tight = []
    for log_p, log_q in random_laws(40, np.random.default_rng(5)):
        for a, b in ((log_p, log_q), (log_q, log_p)):
            truth = sampled_truth(a, b, rate)
            bound = np.array(amplified(own_curve(a, b), sampling_rate=rate).rdp)
            assert (bound >= truth * (1 - 1e-9) - 1e-13).all()
            tight.append(bound / np.maximum(truth, 1e-12))
    assert np.median(np.array(tight)[:, :60]) < 1.35


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("share", [1e-4, 0.1])
def test_without_against_with_is_reached_where_a_unit_rules_out_an_outcome(rate, share):
    log_q = np.log([share, 1 - share])
    log_p = np.log([share * 1e-12, 1 - share * 1e-12])
    second = float(np.exp(np.logaddexp.reduce(2 * log_p - log_q))) - 1
    truth = divergence(log_q, np.logaddexp(log_p + math.log(rate), log_q + math.log1p(-rate)))
    bound = _quadratic(FINITE - 1, second, rate)
    assert (bound >= truth * (1 - 1e-9) - 1e-14).all()
    assert bound.max() == pytest.approx(truth.max(), rel=0.06)  # -log(1 - q) in the end
    assert bound[0] <= truth[0] * (1 + 1.5 * share)


@pytest.mark.parametrize("rate", [0.5, 0.99, 0.9999])
def test_without_against_with_is_nearly_the_mechanisms_own_where_nearly_everybody_takes_part(rate):
    for log_p, log_q in random_laws(30, np.random.default_rng(6)):
        truth = divergence(log_q, np.logaddexp(log_p + math.log(rate), log_q + math.log1p(-rate)))
        unsampled = np.maximum(divergence(log_q, log_p), divergence(log_p, log_q))
        bound = _without_against_with(FINITE, unsampled, rate)
        assert (bound >= truth * (1 - 1e-9) - 1e-13).all()
    log_p, log_q = np.log([0.4, 0.6]), np.log([0.6, 0.4])
    truth = divergence(log_q, np.logaddexp(log_p + math.log(rate), log_q + math.log1p(-rate)))
    bound = _without_against_with(FINITE, divergence(log_q, log_p), rate)
    assert (bound >= truth * (1 - 1e-9)).all()
    assert bound[20] <= truth[20] * (1 + 2 * (1 - rate))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("mechanism", [GNMax(sigma=4.0), LNMax(scale=3.0), Threshold(at=20, sigma=4.0)])
@pytest.mark.parametrize("votes", [[20, 19, 0], [30, 20, 19], [12, 11, 11], [25, 1, 0], [19, 19, 19]])
def test_sampled_ballots_cost_no_more_than_the_curve(mechanism, rate, votes):
    bound = np.array(Subsampled(mechanism=mechanism, sampling_rate=rate).curve().rdp)
    without = np.array([votes], dtype=float)
    for near in (
        np.add(without, [1, 0, 0]),
        np.add(without, [0, 1, 0]),
        np.add(without, [-1, 1, 0]),
        np.add(without, [1, -1, 0]),
    ):
        log_p, log_q = (mechanism.log_outcomes(histogram)[0] for histogram in (near, without))
        assert (bound >= sampled_truth(log_p, log_q, rate) * (1 - 1e-8)).all()


@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [
        (0.3, 5.0, 1.125),
        (1e-4, 40.0, 1.125),
        (0.01, 0.7, 1.5),
        (0.9, 1.0, 2.75),
        (0.05, 1.0, 30.0),
        (0.2, 2, 96),
    ],
)
def test_the_gaussian_is_exact_at_fractional_orders_too(rate, sigma, order):
    with mpmath.workdps(30):
        q, mu, a = mpmath.mpf(rate), 1 / mpmath.mpf(sigma), mpmath.mpf(order)
        at = [-14, -4, 0, 4, a * mu / 2 + 4, a * mu + 5, a * mu + 14]
        moment = mpmath.quad(
            lambda x: mpmath.npdf(x) * (1 - q + q * mpmath.exp(mu * x - mu * mu / 2)) ** a, at
        )
        truth = float(mpmath.log(moment) / (a - 1))
    curve = amplified(Curve.gaussian(sensitivity=1.0, sigma=sigma), sampling_rate=rate)
    got = curve.rdp[curve.orders.index(order)]
    assert truth * (1 - 1e-12) <= got <= truth * (1 + 1e-7)


def test_without_the_gaussian_shortcut_the_generic_bound_stays_above_the_gaussian():
    for rate in RATES:
        step = Curve.gaussian(sensitivity=1.0, sigma=3.0)
        exact, generic = (
            np.array(amplified(curve, sampling_rate=rate).rdp)
            for curve in (step, replace(step, mu_squared=math.inf))
        )
        assert (generic >= exact * (1 - 1e-12))[:-1].all()


def test_a_higher_rate_never_costs_less_and_one_is_the_mechanism_itself():
    mechanism = GNMax(sigma=6.0)
    costs = [
        np.array(Subsampled(mechanism=mechanism, sampling_rate=q).curve().rdp)
        for q in (0.01, 0.1, 0.5, 0.99, 1)
    ]
    for less, higher in itertools.pairwise(costs):
        assert (less <= higher * (1 + 1e-6)).all()
    assert Subsampled(mechanism=mechanism, sampling_rate=1).curve() == mechanism.curve()


def test_a_tiny_rate_does_not_cancel_below_the_truth():
    # to second order in the rate both directions are order / 2 * rate^2 * (e^(D_2) - 1)
    rate = 1e-7
    second = math.expm1(GNMax(sigma=5.0).curve().rdp[ORDERS.index(2.0)])
    curve = Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=rate).curve()
    for order, rdp in zip(curve.orders, curve.rdp, strict=True):
        if order <= 4:
            assert order / 2 * rate**2 * second * (1 - 1e-4) <= rdp <= order * rate**2 * second


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.8])
def test_hardly_any_noise_overflows_nothing_and_never_costs_more_than_always_taking_part(sigma):
    seldom = Subsampled(mechanism=GNMax(sigma=sigma), sampling_rate=0.1).curve()
    assert all(ours <= plain for ours, plain in zip(seldom.rdp, GNMax(sigma=sigma).curve().rdp, strict=True))


@pytest.mark.parametrize("mechanism", [GNMax(sigma=1e-3), LNMax(scale=1e-3), GNMax(sigma=1e-200)], ids=repr)
def test_a_sample_saves_at_most_the_log_of_its_rate_where_there_is_hardly_any_noise(mechanism):
    """A unit that takes part (chance 0.1, far above delta) is told as surely as without a sample."""
    seldom = Subsampled(mechanism=mechanism, sampling_rate=0.1).curve().epsilon(delta=1e-5)
    always = mechanism.curve().epsilon(delta=1e-4)
    assert seldom >= (always + math.log(0.1)) * (1 - 1e-6)


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_one_use_is_dominated_by_the_sampled_gaussian_and_attains_it(rate):
    """Two classes and every gap: each threshold of the noisy difference is a test of the Gaussian itself."""
    sigma, gaps = 2.0, np.linspace(-12, 12, 481)
    (law,) = Subsampled(mechanism=GNMax(sigma=sigma), sampling_rate=rate).curve().laws
    only = Curve(ORDERS, (math.inf,) * len(ORDERS), "ballot", laws=(law,))
    chance = ndtr((gaps[:, None] + [0.0, 2.0]) / (sigma * math.sqrt(2)))  # without the unit, with it
    without, with_it = (np.stack([column, 1 - column], axis=1) for column in chance.T)
    mixed = (1 - rate) * without + rate * with_it
    for epsilon in (0.02, 0.1, 0.3):
        largest = max(
            hockey_stick(p, q, epsilon)
            for pair in zip(mixed, without, strict=True)
            for p, q in (pair, pair[::-1])
        )
        assert largest <= only.delta(epsilon) <= 1.01 * largest + 1e-9


def test_many_uses_stay_below_their_laws_beside_others():
    """Six uses of the worst gap and a response, by every sequence of answers."""
    sampled, response = Subsampled(mechanism=GNMax(sigma=1.0), sampling_rate=0.3), LNMax(scale=4.0)
    total = 6 * sampled.curve() + 1 * response.curve()
    q, p = (np.array([x, 1 - x]) for x in ndtr(np.array([-1.0, 1.0]) / math.sqrt(2)))
    pairs = [((0.7 * q + 0.3 * p), q)] * 6
    tail = math.exp(-0.5) * (2 + 0.5) / 4  # two classes with Laplace noise, two votes apart: scale 4
    pairs.append((np.array([1 - tail, tail]), np.array([0.5, 0.5])))
    laws = [
        np.array([math.prod(seq) for seq in itertools.product(*each)]) for each in zip(*pairs, strict=True)
    ]
    only = replace(total, rdp=(math.inf,) * len(ORDERS), mu_squared=math.inf)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        truth = max(hockey_stick(*laws, epsilon), hockey_stick(*laws[::-1], epsilon))
        assert truth <= only.delta(epsilon) < 1


def test_a_pure_mechanism_stays_pure_and_all_of_one_sample_is_one_use():
    curve = Subsampled(mechanism=LNMax(scale=5.0), sampling_rate=0.1).curve()
    (law,) = curve.laws
    assert law.kind == "pure"
    assert [law.size, curve.rdp[-1]] == pytest.approx([math.log1p(0.1 * math.expm1(0.4))] * 2, rel=1e-8)
    confident = Confident(screen=Threshold(at=20, sigma=15.0), argmax=GNMax(sigma=10.0))
    (law,) = Subsampled(mechanism=confident, sampling_rate=0.2).curve().laws
    assert (law.rate, law.uses) == (0.2, 1)
    assert law.mu_squared == pytest.approx(1 / 15**2 + 2 / 10**2)
    assert amplified(Curve(ORDERS, (0.1,) * len(ORDERS)), sampling_rate=0.5).laws is None


# ballots of any weight: a change of units, and nothing else

MECHANISMS = [GNMax(sigma=6.0), LNMax(scale=5.0), Threshold(at=30, sigma=8.0, noise="every")]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)


@every_mechanism
@pytest.mark.parametrize("weight", [0.25, 1.0, 3.0])
def test_a_moved_weight_costs_at_most_the_curve(mechanism, weight):
    bound = np.array(Weighted(mechanism=mechanism, weight=weight).curve().rdp)
    for votes in ([30, 29, 0], [33.5, 33, 20], [12, 11, 11]):
        base = mechanism.log_outcomes([votes])[0]
        neighbour = mechanism.log_outcomes([np.add(votes, [-weight, weight, 0])])[0]
        for p, q in ((base, neighbour), (neighbour, base)):
            assert (divergence(p, q) <= bound[:-1] * (1 + 1e-8)).all()


@every_mechanism
def test_a_change_of_units_changes_no_outcome(mechanism):
    heavy = Weighted(mechanism=mechanism, weight=4.0)
    votes = np.array([[40.0, 24.0, 8.0], [28.0, 28.0, 16.0]])
    np.testing.assert_allclose(
        heavy.per_ballot.log_outcomes(heavy.scaled(votes)), mechanism.log_outcomes(votes), rtol=0, atol=1e-9
    )

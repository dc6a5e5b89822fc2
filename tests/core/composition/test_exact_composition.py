"""Exact adaptive composition: never below what strategies reach, and close to the best of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from ostraka import Confident, Curve, GNMax, Threshold
from ostraka.core.laws import tables
from ostraka.core.laws.law import ARGMAX, GAUSSIAN, PURE, SCREEN, Law
from ostraka.core.numeric import up
from tests.core.composition.strategies import gnmax, laws_of, played

DELTA = 1e-5


def threshold(sigma):
    return replace(Threshold(at=100, sigma=sigma).curve(), laws=(Law(SCREEN, up(1 / sigma)),))


def alone(curve):
    """By the other bounds."""
    return replace(curve, laws=None)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_adaptive_strategy_over_all_small_histograms_exceeds_delta(n):
    counts = [[i, j, 5 - i - j] for i in range(6) for j in range(6 - i)]
    pairs = laws_of(GNMax(sigma=4.0), counts if n < 3 else counts[::3])
    total = n * gnmax(4.0)
    epsilons = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    reached = played([pairs], np.exp(epsilons), (n,))
    promised = np.array([total.delta(epsilon=epsilon) for epsilon in epsilons])
    assert (reached <= promised).all()


@pytest.mark.parametrize(("n", "points"), [(2, 81), (3, 25)])
def test_the_best_strategy_comes_within_one_percent_of_epsilon(n, points):
    t, shift = np.linspace(-3.5, 3.5, points), math.sqrt(2) / 8.0
    laws = [np.stack([ndtr(x), ndtr(-x)], axis=-1) for x in (t, t - shift)]
    epsilon = (n * gnmax(8.0)).epsilon(delta=1e-3)
    assert played([np.stack(laws, axis=1)], np.exp(0.99 * epsilon), (n,)) > 1e-3


@pytest.mark.parametrize(
    ("n", "least", "highest"),
    [
        (30, 0.5, 0.5645),
        pytest.param(100, 1.0665, 1.072, marks=pytest.mark.slow),
        pytest.param(250, 1.76, 1.768, marks=pytest.mark.slow),
        pytest.param(500, 2.59, 2.602, marks=pytest.mark.slow),
        (1000, 3.84, 3.87),
    ],
)
def test_figures_of_the_prototype(n, least, highest):
    assert least <= (n * GNMax(sigma=40.0).curve(bound="exact")).epsilon(delta=DELTA) <= highest


def test_a_screen_costs_less_than_its_gaussian_and_its_renyi_price():
    total = 60 * threshold(30.0)
    assert 0.85 < total.epsilon(delta=DELTA) / alone(total).epsilon(delta=DELTA) < 0.97


def test_epsilon_and_delta_are_inverse():
    table = tables.of((Law(ARGMAX, 0.05, 20),))
    for delta in (1e-3, 1e-6):
        assert table.delta(table.epsilon(delta)) == pytest.approx(delta, rel=1e-6)


def test_a_screen_with_noise_on_every_count_composes_exactly_and_holds_for_small_votes():
    screen = Threshold(at=3, sigma=5.0, noise="every")
    assert screen.curve(bound="exact").laws == (Law(SCREEN, up(1 / 5.0)),)
    pairs = laws_of(screen, [[i, j, 4 - i - j] for i in range(5) for j in range(5 - i)])
    epsilons = np.array([0.0, 0.2, 0.5])
    total = 2 * screen.curve(bound="exact")
    reached = played([pairs], np.exp(epsilons), (2,))
    assert (reached <= [total.delta(epsilon=e) for e in epsilons]).all()


# Mixtures ------------------------------------------------------------------------------------------------


def test_a_gaussian_beside_answers_costs_more_than_either_and_less_than_two_gaussians():
    answers = 40 * gnmax(30.0)
    release = Curve.gaussian(sensitivity=1.0, sigma=8.0, moves="ballot")
    epsilon = (answers + release).epsilon(delta=DELTA)
    assert max(answers.epsilon(delta=DELTA), release.epsilon(delta=DELTA)) < epsilon
    assert epsilon < alone(answers + release).epsilon(delta=DELTA)


def test_gaussian_and_pure_parts_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    # the argmaxes are faint: two Gaussians of mu^2 = 2 / 50^2 dominate them
    laws = (Law(ARGMAX, 0.02, 2), Law(GAUSSIAN, 0.25), Law(PURE, 0.3, 2))
    ours = tables.of(tuple(sorted(laws)))
    pure = pld.from_privacy_parameters(_parameters(0.3), value_discretization_interval=1e-4).self_compose(2)
    least, largest = (
        pld.from_gaussian_mechanism(mu_squared**-0.5, value_discretization_interval=1e-4).compose(pure)
        for mu_squared in (0.25, 0.25 + 4 * 0.02**2)
    )
    for epsilon in (0.5, 1.0, 2.0):
        assert least.get_delta_for_epsilon(epsilon) * (1 - 1e-3) <= ours.delta(epsilon)
        assert ours.delta(epsilon) <= largest.get_delta_for_epsilon(epsilon) * 1.002


def _parameters(epsilon):
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return DifferentialPrivacyParameters(epsilon, 0.0)


def test_where_a_law_is_not_known_the_other_bounds_count():
    composed, unknown = 20 * gnmax(20.0), alone(gnmax(20.0))
    assert (composed + unknown).laws is None
    assert (composed + unknown).epsilon(delta=DELTA) == alone(composed + unknown).epsilon(delta=DELTA)


def test_a_curve_remembers_its_laws_in_json_and_old_records_open():
    total = 3 * gnmax(20.0) + 2 * threshold(10.0)
    assert Curve.from_dict(total.to_dict()) == total
    assert total.laws == (Law(ARGMAX, up(0.05), 3), Law(SCREEN, up(0.1), 2))
    old = total.to_dict()
    del old["laws"]
    assert Curve.from_dict(old) == alone(total)


def test_beyond_the_answers_that_are_followed_epsilon_has_no_cliff(monkeypatch):
    monkeypatch.setattr(tables, "_MOST", 100)
    epsilons = [tables.of((Law(ARGMAX, 0.05, n),)).epsilon(DELTA) for n in (99, 100, 101, 102)]
    assert (np.diff(epsilons) > 0.01).all()
    assert (np.diff(epsilons) < 0.04).all()


MECHANISMS = [
    GNMax(sigma=5.0),
    Threshold(at=4.0, sigma=4.0),
    Threshold(at=4.0, sigma=6.0, noise="every"),
    Confident(screen=Threshold(at=4.0, sigma=9.0), argmax=GNMax(sigma=6.0)),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_default_price_is_never_above_the_renyi_price_and_grows_with_answers(mechanism):
    screen = mechanism.curve()
    before = 0.0
    for n in (1, 2, 20):
        spent = (n * screen).epsilon(1e-5)
        assert before < spent <= (n * alone(screen)).epsilon(1e-5)
        before = spent


def test_confident_and_its_parts_cost_the_same():
    screen, argmax = Threshold(at=100, sigma=90.0), GNMax(sigma=30.0)
    combined, parts = Confident(screen=screen, argmax=argmax).curve(), screen.curve() + argmax.curve()
    assert combined == parts
    assert (40 * combined).epsilon(1e-5) == (40 * screen.curve() + 40 * argmax.curve()).epsilon(1e-5)

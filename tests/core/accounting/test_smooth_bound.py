"""The smooth bound: its price against integrals, its bound against the 2018 curve, its failures counted."""

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from randomgen import UserBitGenerator
from scipy.special import ndtr, ndtri

from ostraka.accounting import papernot2018_curve
from ostraka.core.accounting.smooth import (
    SmoothBound,
    local_sensitivities,
    plan_smooth_bound,
    smooth_noise_rdp,
    smooth_sensitivity,
)
from ostraka.core.curve import ORDERS
from ostraka.core.private import Adjacency, Private
from ostraka.mechanisms import Confident, GNMax, LNMax, Threshold

PLAN = SmoothBound(
    mechanism=GNMax(sigma=10.0), n_teachers=100, n_classes=3, n_queries=20, order=4.0, beta=0.05, noise=6.0,
    failure=1e-3,
)  # fmt: skip
ROWS = np.random.default_rng(2).multinomial(100, [0.8, 0.15, 0.05], size=20).astype(float)


class NoNoise(np.random.Generator):
    """A generator whose every word stands for a fixed number of standard deviations."""

    def __init__(self, z):
        word = (int(z < 0) << 63) | int(ndtr(-abs(z)) * 2**64 * (1 - 1e-12))
        super().__init__(UserBitGenerator(lambda _state: word, 64))


def divergence(order, shift, ratio):
    """D(N(0, 1) || N(shift, ratio²)) by quadrature."""
    with mp.workdps(20):

        def integrand(x):
            return mp.npdf(x) ** order * mp.npdf(x, shift, ratio) ** (1 - order)

        integral = mp.quad(integrand, mp.linspace(-30, 30, 13))
        return mp.log(integral) / (order - 1)


@pytest.mark.parametrize(
    ("order", "beta"),
    [(4.0, 0.1), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2.0, 0.05), (8.0, 0.01)))],
)
def test_smooth_noise_costs_no_less_than_any_two_gaussians_it_may_be(order, beta):
    for noise in (3.0, 15.0):
        price = smooth_noise_rdp(order=order, beta=beta, noise=noise)
        worst = max(
            divergence(order, mp.mpf(1) / noise, mp.exp(b)) for b in (-beta, -beta / 2, 0, beta / 2, beta)
        )
        assert worst <= price
        assert price <= 1.2 * worst
        paper = order * math.exp(2 * beta) / noise**2
        paper += (beta * order - math.log(1 - 2 * order * beta) / 2) / (order - 1)
        assert price <= paper * (1 + 1e-9)


def test_smooth_noise_needs_an_order_below_half_the_inverse_of_beta():
    with pytest.raises(ValueError, match="below"):
        smooth_noise_rdp(order=10.0, beta=0.05, noise=10.0)
    assert PLAN.curve().rdp[ORDERS.index(10.0)] == math.inf
    assert PLAN.curve().rdp[ORDERS.index(4.0)] < math.inf


def test_what_is_published_is_the_2018_bound_with_margin_and_noise():
    at = ORDERS.index(4.0)
    cost = papernot2018_curve(PLAN.mechanism, ROWS).rdp[at]
    assert PLAN.cost(ROWS) == pytest.approx(cost, rel=1e-10)
    smooth = smooth_sensitivity(PLAN.sensitivities(ROWS), beta=PLAN.beta)
    votes = Private(ROWS, Adjacency.one_ballot())
    for z in (-2.0, 0.0, 3.0):
        published = float(PLAN.release(votes, rng=NoNoise(z)))
        truth = cost + smooth * PLAN.noise * (z - ndtri(PLAN.failure))
        assert 0 <= published - truth < 2e-6
        assert PLAN.bound(published) == published
    assert PLAN.bound(-0.5) == 0.0
    assert float(PLAN.release(votes, rng=NoNoise(ndtri(PLAN.failure) + 1e-6))) >= cost
    assert float(PLAN.release(votes, rng=NoNoise(ndtri(PLAN.failure) - 0.1))) < cost


def test_the_margin_is_paid_for():
    plain = smooth_noise_rdp(order=4.0, beta=PLAN.beta, noise=PLAN.noise)
    with_margin = PLAN.curve().rdp[ORDERS.index(4.0)]
    narrower = PLAN.noise / (1 - PLAN.noise * ndtri(PLAN.failure) * math.expm1(PLAN.beta))
    assert with_margin == smooth_noise_rdp(order=4.0, beta=PLAN.beta, noise=narrower) > plain


def test_one_ballot_moves_what_is_published_before_noise_by_no_more_than_is_paid_for():
    assert replace(PLAN, n_queries=1).curve().rdp == PLAN.curve().rdp  # of one answer as of many
    plan = replace(PLAN, n_queries=2)
    rng = np.random.default_rng(7)
    steps = []
    for _ in range(60):
        rows = rng.multinomial(100, [0.55, 0.4, 0.05], size=2).astype(float)
        near = rows.copy()
        for row in near:
            giver, taker = rng.permutation(np.flatnonzero(row))[:2]
            row[giver] -= 1
            row[taker] += 1
        base, neighbour = (smooth_sensitivity(plan.sensitivities(r), beta=plan.beta) for r in (rows, near))
        assert abs(math.log(base / neighbour)) <= plan.beta * (1 + 1e-9)
        moved = abs(plan.cost(rows) - plan.cost(near) + plan.margin() * (base - neighbour))
        paid = base * (1 + plan.margin() * math.expm1(plan.beta))
        assert moved <= paid
        steps.append(moved / paid)
    assert max(steps) > 0.1


def test_a_pair_pays_for_the_screen_and_for_what_was_answered():
    pair = Confident(screen=Threshold(at=60, sigma=20.0), argmax=GNMax(sigma=10.0))
    plan = replace(PLAN, mechanism=pair, n_queries=32, n_screened=20)
    answered = np.arange(20) < 12
    stacked = np.concatenate([ROWS, ROWS[answered]])
    truth = papernot2018_curve(pair, ROWS, answered=answered).rdp[ORDERS.index(4.0)]
    assert plan.cost(stacked) == pytest.approx(truth, rel=1e-10)
    parts = [
        local_sensitivities(part, rows, n_teachers=100, order=4.0)
        for part, rows in zip((pair.screen, pair.argmax), (ROWS, ROWS[answered]), strict=True)
    ]
    np.testing.assert_allclose(plan.sensitivities(stacked), parts[0] + parts[1], rtol=1e-12)
    nothing = replace(plan, n_queries=20)
    assert nothing.cost(ROWS) < plan.cost(stacked)
    assert (nothing.sensitivities(ROWS) <= plan.sensitivities(stacked)).all()


@pytest.mark.parametrize("mechanism", [GNMax(sigma=40.0), LNMax(scale=40.0)])
def test_a_plan_beats_its_neighbours(mechanism):
    plan = plan_smooth_bound(
        mechanism, n_teachers=250, n_classes=3, n_queries=300, delta=1e-5, orders=(4.0, 6.0, 9.0)
    )

    def hoped(candidate):
        at = ORDERS.index(candidate.order)
        return candidate.expected() + candidate.curve().rdp[at]

    for change in ({"noise": plan.noise * 3}, {"noise": plan.noise / 3}):
        assert hoped(plan) < hoped(replace(plan, **change))
    assert plan.failure == 5e-6


def test_where_no_order_meets_the_conditions_there_is_no_plan():
    with pytest.raises(ValueError, match="fail at every order"):
        plan_smooth_bound(
            GNMax(sigma=20.0), n_teachers=50, n_classes=10, n_queries=5, delta=1e-5, orders=(20.0, 35.0)
        )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"order": 10.5}, "below"),
        ({"failure": 0.0}, "delta"),
        ({"n_screened": 3}, "n_screened"),
        ({"n_queries": 0}, "n_queries"),
        ({"mechanism": GNMax(sigma=2.0), "order": 8.0}, "condition C6"),
    ],
)
def test_wrong_parameters_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(PLAN, **change)


def test_votes_of_another_shape_are_refused_without_showing_them():
    with pytest.raises(ValueError, match="20 rows of 100 ballots") as caught:
        PLAN.sensitivities(ROWS[:, ::-1][:7])
    assert "7" not in str(caught.value)

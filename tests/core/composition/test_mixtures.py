"""Mixtures with pure, Laplace and Skellam parts: never below strategies, and close to fixed releases."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.signal import fftconvolve

from ostraka import GNMax, LNMax
from ostraka.core.laws import adaptive, limit, losses, tables
from ostraka.core.laws.law import ARGMAX, LAPLACE_COUNT, NEAR_GAUSSIAN, PURE, Law
from ostraka.core.mechanisms.skellam import SkellamSum, log_density
from ostraka.core.numeric import up
from ostraka.mechanisms import (
    NoisyCounts,
    OneHotGaussian,
    OneHotLaplace,
    PriorResponse,
    RandomizedResponse,
    SkellamMax,
)
from tests.core.composition.strategies import laws_of, played

EPSILONS = (0.0, 0.2, 0.7, 1.5)


def told(law, *, epsilon):
    return tables.of((law,)).delta(epsilon)


def exactly_told_by_responses(n_classes, epsilon_of_one, n, epsilon):
    """Every number of true answers and of the one other that tells something, in multi-precision."""
    with mpmath.workdps(30):
        false = 1 / (mpmath.exp(epsilon_of_one) + n_classes - 1)
        true, remainder = false * mpmath.exp(epsilon_of_one), false * (n_classes - 2)
        delta = mpmath.mpf(0)
        for i in range(n + 1):
            for j in range(n + 1 - i if n_classes > 2 else 1):
                last = n - i - j
                places = (i, j, last) if n_classes > 2 else (i, last, 0)
                ways = mpmath.binomial(n, places[0]) * mpmath.binomial(n - places[0], places[1])
                n_ways = ways * (remainder ** places[2] if places[2] else 1)
                p, q = (n_ways * a ** places[0] * b ** places[1] for a, b in ((true, false), (false, true)))
                delta += max(mpmath.mpf(0), p - mpmath.exp(epsilon) * q)
        return float(delta)


@pytest.mark.parametrize(
    ("n_classes", "epsilon_of_one", "n"), [(2, 0.3, 12), (10, 1.0, 8), (3, 0.05, 20), (2, 4.0, 5)]
)
def test_responses_compose_as_by_enumeration(n_classes, epsilon_of_one, n):
    law = Law.response(n_classes, epsilon_of_one)._replace(uses=n)
    for share in (0.0, 0.11, 0.35, 0.77):
        exact = exactly_told_by_responses(n_classes, epsilon_of_one, n, share * n * epsilon_of_one)
        bound = told(law, epsilon=share * n * epsilon_of_one)
        assert exact <= bound <= exact * (1 + 2e-2) + 1e-12


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.5, 0.999, 1.0, 8.0, 25.0, 35.0, 36.5, 60.0, 300.0])
def test_the_gaussian_that_dominates_a_pure_part_is_never_the_smaller_one(epsilon):
    with mpmath.workdps(300):
        half = mpmath.sqrt(mpmath.mpf(Law(PURE, epsilon).mu_squared)) / 2
        tail = mpmath.erfc(half / mpmath.sqrt(2)) / 2  # what the Gaussian leaves below one half
        assert tail <= 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        less = half * (1 - mpmath.mpf("1e-8"))
        assert mpmath.erfc(less / mpmath.sqrt(2)) / 2 > 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))


@pytest.mark.parametrize(
    ("law", "least"),
    [
        (Law("response 1000000000", 1e-3, 10**18), 0.999),
        (Law(PURE, 1e-12, 10**18), 3e-4),
        (Law(PURE, 1e-5, 10**12), 0.999),
        (Law(PURE, 5e-324, 2), 0.0),
        (Law(PURE, 1e-300, 10**9), 0.0),
    ],
)
def test_more_uses_than_numbers_can_follow_leave_a_bound_that_holds_or_none(law, least):
    bound = tables.of((law,))
    assert bound.delta(0.0) >= least
    assert bound.epsilon(1e-5) >= 0


@pytest.mark.parametrize("scale", [0.7, 3.0, 40.0])
def test_two_laplace_counts_are_those_of_the_closed_form(scale):
    law = Law(LAPLACE_COUNT, up(1 / scale), 2)
    faint = Law(PURE, 1e-9)  # two counts alone are left to the Rényi bound
    for share in (0.0, 0.3, 0.8):
        r = (1 - share) * 2 / scale
        exact = -math.expm1(-r / 2) - r / 4 * math.exp(-r / 2)
        assert exact <= tables.of((law, faint)).delta(share * 2 / scale) <= exact * (1 + 6e-3) + 1e-9


def test_laplace_counts_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    once = pld.from_laplace_mechanism(5.0, value_discretization_interval=1e-4, pessimistic_estimate=False)
    theirs = once.self_compose(40)
    ours = tables.of((Law(LAPLACE_COUNT, 0.2, 40), Law(PURE, 1e-9)))
    for epsilon in EPSILONS:
        assert theirs.get_delta_for_epsilon(epsilon) <= ours.delta(epsilon)
        assert ours.delta(epsilon) <= theirs.get_delta_for_epsilon(epsilon) * 1.01


@pytest.mark.parametrize("law", [Law(LAPLACE_COUNT, 0.37), Law.response(7, 0.9), Law(PURE, 12.0)])
@pytest.mark.parametrize("step", [0.01, 0.003])
def test_masses_of_losses_add_up_and_lie_in_their_cells(law, step):
    cells, p, q = losses.pure_cells(law, step)
    assert math.fsum(p) == pytest.approx(1.0, abs=1e-14)
    assert math.fsum(q) == pytest.approx(1.0, abs=1e-14)
    cells, p, q = cells[p > 0], p[p > 0], q[p > 0]  # of two classes there is no rest
    loss = np.log(p / q)
    assert (loss >= cells * step - 1e-9).all()
    assert (loss <= (cells + 1) * step + 1e-9).all()


# Strategies ----------------------------------------------------------------------------------------------


COUNTS = [[4, 0, 0], [2, 2, 0], [3, 1, 0], [1, 1, 2]]


@pytest.mark.parametrize(("sigma", "scale", "epsilon_of_one"), [(4.0, 3.0, 0.4), (7.0, 1.5, 1.2)])
def test_no_strategy_over_argmaxes_laplace_argmaxes_and_responses_exceeds_delta(sigma, scale, epsilon_of_one):
    argmaxes, noisy = laws_of(GNMax(sigma=sigma), COUNTS), laws_of(LNMax(scale=scale), COUNTS[1:])
    true, false = (1 / (1 + 2 * math.exp(-epsilon_of_one)), 1 / (math.exp(epsilon_of_one) + 2))
    response = np.array([[[true, false, false], [false, true, false]]])
    total = (Law(ARGMAX, up(1 / sigma), 1), *LNMax(scale=scale).curve().laws, Law.response(3, epsilon_of_one))
    reached = played((argmaxes, noisy, response), np.exp(EPSILONS), (1, 1, 1))
    promised = np.array([tables.of(total).delta(epsilon) for epsilon in EPSILONS])
    assert (reached <= promised).all()
    assert (reached[:3] >= 0.5 * promised[:3]).all()  # the Laplace counts tell more than their argmax


@pytest.mark.parametrize("pure_uses", [1, 64, 65, 300])
def test_beside_an_argmax_pure_parts_cost_no_less_than_alone_and_more_parts_cost_more(pure_uses):
    pure = Law(PURE, 0.01, pure_uses)
    joint = tables.of(tuple(sorted((Law(ARGMAX, 0.05, 30), pure)))).epsilon(1e-5)
    further = tables.of(tuple(sorted((Law(ARGMAX, 0.05, 30), pure._replace(uses=pure_uses + 1))))).epsilon(
        1e-5
    )
    alone = tables.of((Law(ARGMAX, 0.05, 30),)).epsilon(1e-5)
    assert max(alone, tables.of((pure, Law(PURE, 1e-9))).epsilon(1e-5)) < joint < further


# Skellam noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "n"), [(3.0, 2), (6.0, 5)])
def test_skellam_counts_cost_hardly_more_than_by_convolution(sigma, n):
    half = log_density(sigma**2, 200)
    p = np.exp(np.concatenate([half[:0:-1], half]))
    loss = np.log(p[1:] / p[:-1])  # of noise moved by one, at each place
    step = 1e-4
    places, masses = np.rint(loss / step).astype(int), p[1:]
    once = np.bincount(places - places.min(), weights=masses)
    convolution, start = np.array([1.0]), 0
    for _ in range(2 * n):  # two counts of each row
        convolution, start = np.maximum(0.0, fftconvolve(convolution, once)), start + places.min()
    found = (start + np.arange(convolution.size)) * step
    total = n * SkellamMax(sigma=sigma).curve()
    for epsilon in (0.1, 0.5):
        exact = float((convolution * np.maximum(0.0, -np.expm1(epsilon - found))).sum())
        assert 0.99 * exact <= tables.of(total.laws).delta(epsilon) <= 1.15 * exact


def test_skellam_noise_beside_argmaxes_is_a_gaussian_of_hardly_more():
    argmaxes, counts = 100 * GNMax(sigma=40.0).curve(), 20 * SkellamMax(sigma=40.0).curve()
    like_it = replace(counts, laws=(Law("gaussian", 20 * 2 / 40.0**2),))
    ours, least = ((argmaxes + release).epsilon(1e-5) for release in (counts, like_it))
    assert least <= ours <= 1.001 * least
    assert ours < 0.95 * replace(argmaxes + counts, laws=None).epsilon(1e-5)


def test_what_the_gaussian_of_skellam_noise_does_not_cover_counts():
    law = Law(NEAR_GAUSSIAN, 0.01, 1_000)
    assert limit.beside(law).delta == limit.together((law,)).delta == 1_000 * 2.0**-98
    assert adaptive.fits((law,), epsilon=30.0, delta=1e-5)
    assert not adaptive.fits((law,), epsilon=30.0, delta=1e-27)


# Mechanisms ----------------------------------------------------------------------------------------------


def test_mechanisms_name_their_laws():
    rows = [[0.5, 0.3, 0.2]]
    assert RandomizedResponse(n_classes=2, epsilon=1.0).curve().laws == (Law(PURE, 1.0),)
    assert RandomizedResponse(n_classes=9, epsilon=1.0).curve().laws == (Law("response 9", 1.0),)
    assert PriorResponse(prior=rows, epsilon=1.0).curve().laws == (Law(PURE, 1.0),)
    assert OneHotLaplace(n_classes=3, scale=2.0).curve().laws == (Law(PURE, 1.0),)
    assert LNMax(scale=20.0).curve().laws == (Law(LAPLACE_COUNT, up(1 / 20), 2),)
    for mechanism in (
        OneHotGaussian(n_classes=3, sigma=2.0),
        SkellamSum(sigma=9.0, l1=1.0, l2=1.0),
        NoisyCounts(sigma=9.0),
    ):
        curve = mechanism.curve()
        assert curve.laws == (Law("gaussian", curve.mu_squared),)
    assert [law.uses for law in SkellamMax(sigma=9.0, changed=3).curve().laws] == [3]

"""What one answer may add to delta: the laws of all votes, rectangles which cover them, guessed bounds."""

import math

import mpmath
import numpy as np
import pytest

from ostraka.core.kernels import recursion as kernels
from ostraka.core.laws import answers, cover, curvature, tables
from ostraka.core.laws import cover as families
from ostraka.core.laws import gaussian as envelope
from ostraka.core.laws.gaussian import gaussian_deltas, mirrored
from ostraka.core.laws.law import ARGMAX, SCREEN, Law
from ostraka.core.numeric import up
from tests.core.composition.strategies import argmax_law, gnmax, told_by_repeats

DELTA = 1e-5


def precise_wins(t, u):
    a, b = (u + t) / mpmath.sqrt(2), (u - t) / mpmath.sqrt(2)
    return mpmath.quad(lambda x: mpmath.npdf(x - a) * mpmath.ncdf(x - b), [0, max(1, a), max(2, a) + 12])


@pytest.mark.parametrize(("t", "u"), [(0.3, 1.1), (-2.0, 0.5), (1.5, -1.0), (-4.0, 2.0)])
def test_outcomes_agree_with_multi_precision(t, u):
    mpmath.mp.dps = 25
    point = np.array(t), np.array(u)
    assert float(curvature.wins(*point)) == pytest.approx(float(precise_wins(t, u)), rel=2e-14)
    gained = precise_wins(t, u) - precise_wins(t - 0.05, u)
    assert float(curvature.rise(*point, 0.05)) == pytest.approx(float(gained), rel=5e-14)


def test_bounds_of_derivatives_hold_in_random_rectangles():
    rng = np.random.default_rng(5)
    low_t, low_u = rng.uniform(-5, 5, (2, 300))
    wide_t, wide_u = rng.uniform(0.01, 1, (2, 300))
    bounds = curvature.curvature(curvature.Box(low_t, low_t + wide_t, low_u, low_u + wide_u))
    h = 2e-3

    def slope(t, u):
        return curvature.rise(t + 1e-6, u, 2e-6) / 2e-6

    for _ in range(20):
        t, u = low_t + wide_t * rng.random(300), low_u + wide_u * rng.random(300)
        envelopes = (
            (slope(t + h, u) - slope(t - h, u)) / (2 * h),
            (curvature.wins(t, u + h) - 2 * curvature.wins(t, u) + curvature.wins(t, u - h)) / h**2,
            (slope(t + h, u) - 2 * slope(t, u) + slope(t - h, u)) / h**2,
            (slope(t, u + h) - 2 * slope(t, u) + slope(t, u - h)) / h**2,
        )
        for value, bound in zip(envelopes, bounds, strict=True):
            assert (np.abs(value) <= bound * (1 + 1e-3) + 1e-5).all()


def excess(p, q, odds):
    """Hockey-stick divergences, towards the side on which they are small."""
    odds = odds[:, None]
    return np.where(odds < 1, np.maximum(odds * p - q, 0), np.maximum(q - odds * p, 0)).sum(axis=1)


@pytest.mark.parametrize("shift", [0.003, math.sqrt(2) / 40, 0.3])
@pytest.mark.parametrize("knots", [(np.linspace(-1, 1, 9), np.linspace(0, 2, 7)), families._COARSE[:2]])
def test_the_corners_of_a_rectangle_dominate_every_law_inside(shift, knots):
    t, u = knots
    rng = np.random.default_rng(11)
    pairs = cover.plane_pairs(shift, cover.Grid(t, u))
    at = np.arange(t.size * u.size).reshape(t.size, u.size)
    odds = np.exp(np.linspace(-10, 10, 161) * shift)
    for _ in range(300):
        i, j = rng.integers(t.size - 1), rng.integers(u.size - 1)
        x, y = rng.random(2)
        where = np.array(t[i] + (t[i + 1] - t[i]) * x), np.array(u[j] + (u[j + 1] - u[j]) * y)
        if min(where[1] + where[0], where[1] - where[0]) < -math.sqrt(2) * cover.EDGE:
            continue
        gained, lost = curvature.rise(*where, shift), curvature.rise(shift - where[0], where[1], shift)
        p = np.array(
            [curvature.wins(*where), curvature.wins(-where[0], where[1]), curvature.none_wins(*where)]
        )
        inside = excess(p, p + np.array([-gained, lost, gained - lost]), odds)
        shares = {
            at[i, j]: (1 - x) * (1 - y),
            at[i, j + 1]: (1 - x) * y,
            at[i + 1, j]: x * (1 - y),
            at[i + 1, j + 1]: x * y,
        }
        mixed = sum(
            share * excess(pairs.mass[k], pairs.mass[k] + pairs.difference[k], odds)
            for k, share in shares.items()
        )
        assert (inside <= mixed + 1e-14).all()


# The first answers ---------------------------------------------------------------------------------------


def test_a_pair_that_is_largest_only_between_the_places_where_it_is_tried_counts():
    """Beside the kink of a hinge, a pair of little steps exceeds one of wide ones, and nowhere else."""
    step, reach, points = 0.1, 10, 30
    little, wide = (math.exp(steps * step) for steps in (1, 8))
    changes = (1.0 * (little - 1) / (little + 1), 0.01 * (wide - 1) / (wide + 1))
    masses = [
        (share / (1 + ratio), share * ratio / (1 + ratio)) for share, ratio in ((1.0, little), (0.01, wide))
    ]
    pairs = cover.Pairs(np.array(masses), np.array([[change, -change] for change in changes]), np.zeros(2))
    for kink in range(kernels.APART):
        x = np.arange(-reach - kink, points + reach + kernels.APART) * step
        every = np.maximum(0.0, 1 - np.exp(x))
        subset = every.copy()
        following = answers.Recursion(pairs, step=step, reach=reach)
        following._few = np.array([1])
        following.advance(subset, reach + points)
        way, maps = following._way, following._used
        kernels.advance(every, reach, reach + points, way.offsets, way.weights, maps, way.constants)
        np.testing.assert_allclose(subset, every, rtol=1e-14)


@pytest.mark.parametrize("kind", [ARGMAX, SCREEN])
def test_the_first_answers_are_those_of_all_pairs_at_every_point(kind):
    family = families.argmax_family if kind == ARGMAX else families.screen_family
    shift, reach, points, step = 0.05, 520, 240, 0.05 * 0.05
    following = answers.Recursion(family(shift), step=step, reach=reach)
    way, maps = following._way, following._used
    values = gaussian_deltas(np.arange(points + reach + kernels.APART) * step, shift)
    for _ in range(3):
        subset = mirrored(values, step, reach)
        every = subset.copy()
        following.advance(subset, reach + points)
        kernels.advance(every, reach, reach + points, way.offsets, way.weights, maps, way.constants)
        np.testing.assert_allclose(subset, every, rtol=1e-12)
        values = every[reach:]


# Many answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [24, 25, 150])
@pytest.mark.parametrize(
    ("t", "u"), [(0.0, 1.1), (-0.4, 1.1), pytest.param(0.3, 0.8, marks=pytest.mark.slow)]
)
def test_no_repeated_question_exceeds_delta_and_the_best_comes_near(n, t, u):
    shift = math.sqrt(2) / 25.0
    table = tables.of((Law(ARGMAX, up(1 / 25.0), n),))
    p, q = argmax_law(t, u, shift)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        assert told_by_repeats(p, q, n, epsilon) <= table.delta(epsilon)
    if t == 0 and n == 150:  # of few repeats, losses are few numbers with gaps between them
        assert told_by_repeats(p, q, n, 0.95 * table.epsilon(1e-4)) > 1e-4


def test_the_envelope_exceeds_what_random_laws_add_to_exponential_kinks():
    rng = np.random.default_rng(3)
    shift, step = 0.05, 0.05 * 0.05
    pairs = families.argmax_family(shift, finest=True)
    bound = envelope.Envelope(pairs, shift=shift, step=step)
    j = np.arange(-400, 401)
    odds = np.exp(j * step)
    masses, differences = pairs.mass[::16], pairs.difference[::16]  # some of those that are largest somewhere
    side = np.where(j > 0, 1, -1)[:, None, None] * (masses + differences - odds[:, None, None] * masses)
    gains = np.maximum(0.0, side).sum(axis=2)
    for curve, steepest in ((0.05, 2.0), (0.01, 0.8)):
        polynomial = bound.polynomial(curve, steepest)
        slopes = np.linspace(-steepest, 0, 61)[:, None]
        kinks = np.exp((slopes / shift + 0.5) * j * step - curve / shift**2 * (j * step) ** 2 / 2)
        above = np.polynomial.polynomial.polyval((slopes[:, 0] / steepest) ** 2, polynomial)
        assert (np.log((kinks / odds @ gains).max(axis=1)) <= above).all()
        for slope in (-steepest, -steepest * rng.random(), 0.0):
            kinks = np.exp((slope / shift + 0.5) * j * step - curve / shift**2 * (j * step) ** 2 / 2)
            steepest_ratio = math.exp(np.polynomial.polynomial.polyval((slope / steepest) ** 2, polynomial))
            added = []
            for _ in range(60):
                p, q = argmax_law(rng.uniform(-2, 2), rng.uniform(-0.5, 3), shift)
                side = np.where(j > 0, 1, -1)[:, None] * (q - odds[:, None] * p)
                added.append(float((kinks / odds * np.maximum(0.0, side).sum(axis=1)).sum()))
            assert max(added) <= steepest_ratio
            assert max(added) > 0.9 * steepest_ratio


def test_a_guess_is_raised_to_all_that_one_answer_may_add(monkeypatch):
    guessed, needed, additions = [], [], []
    guess, take, fit = kernels.boxed, kernels.taken, kernels.scaled
    monkeypatch.setattr(kernels, "boxed", lambda *kinks: kept(guessed, guess(*kinks)))
    monkeypatch.setattr(
        kernels, "taken", lambda kinks, added, *arguments: take(kinks, kept(additions, added), *arguments)
    )
    monkeypatch.setattr(
        kernels, "scaled", lambda polynomial, logs, scale: fit(polynomial, kept(needed, logs), scale)
    )
    tables.of((Law(ARGMAX, 1 / 25.0, 34),))
    assert len(guessed) == len(needed) == len(additions) >= 5
    for before, logs, after in zip(guessed, needed, additions, strict=True):
        assert (np.log(after / before) >= logs).all()


def kept(arrays, array):
    arrays.append(array.copy())
    return array


def test_a_state_that_is_not_log_concave_is_refused(monkeypatch):
    arrays = []
    plain_shape = kernels.shape

    def dented(logs, step):
        arrays.append(len(logs))
        return (1.0, *plain_shape(logs, step)[1:])

    monkeypatch.setattr(kernels, "shape", dented)
    total = 30 * gnmax(40.0)
    assert total.epsilon(delta=DELTA) < 0.57  # one by one instead
    assert arrays

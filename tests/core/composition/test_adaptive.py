"""Adaptive budgets: the best strategy under the rule, played exactly, stays below delta and comes near it."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

from ostraka import Budget, GNMax, Threshold
from ostraka.core.laws import adaptive, limit
from ostraka.core.laws.law import ARGMAX, GAUSSIAN, PURE, SCREEN, Law
from ostraka.core.numeric import up

GRID = np.linspace(-6.0, 6.0, 1_201)
ODDS = np.exp(GRID)
PLACES = np.linspace(-3.5, 3.5, 29)


def pairs(shift):
    """Bernoulli(Phi(t)) against Bernoulli(Phi(t - shift)): two classes, or a screen, at many places."""
    x = PLACES + shift / 2
    return np.stack([ndtr(x), ndtr(-x)], axis=1), np.stack([ndtr(x - shift), ndtr(shift - x)], axis=1)


def played(function, shift):
    """The value at each odds if the next question is the best of this mechanism, then as ``function``."""
    best = function
    for p, q in zip(*pairs(shift), strict=True):
        at = [
            np.interp(GRID + math.log(b / a), GRID, function, left=1.0, right=0.0)
            for a, b in zip(p, q, strict=True)
        ]
        best = np.maximum(best, p @ np.array(at))
    return best


def reached(allows, first_law, two, epsilon):
    """The largest P(S) - e^epsilon Q(S) that a strategy reaches which asks what the rule allows."""
    shifts = [math.sqrt(2) / m.sigma if isinstance(m, GNMax) else 1 / m.sigma for m in (first_law, two)]

    @cache
    def value(i, j):
        best = np.maximum(0.0, 1 - ODDS)
        if allows(i + 1, j):
            best = np.maximum(best, played(value(i + 1, j), shifts[0]))
        if allows(i, j + 1):
            best = np.maximum(best, played(value(i, j + 1), shifts[1]))
        return best

    return float(np.interp(epsilon, GRID, value(0, 0)))


CASES = [
    (GNMax(sigma=9.0), GNMax(sigma=16.0), 1.2, 1e-3),
    (GNMax(sigma=12.0), Threshold(at=3, sigma=9.0), 1.0, 1e-3),
]


def rule(first_law, two, budget):
    costs = first_law.curve(), two.curve()

    @cache
    def allows(i, j):
        return budget.allows(i * costs[0] + j * costs[1], first=costs[0])

    return allows


@pytest.mark.parametrize(
    ("first_law", "two", "epsilon", "delta"), [pytest.param(*CASES[0], marks=pytest.mark.slow), *CASES[1:]]
)
def test_no_strategy_exceeds_delta_and_the_best_comes_near(first_law, two, epsilon, delta):
    budget = Budget(epsilon=epsilon, delta=delta, adaptive=True)
    assert 0.6 * delta < reached(rule(first_law, two, budget), first_law, two, epsilon) <= delta


@pytest.mark.parametrize(("first_law", "two", "epsilon", "delta"), CASES[:1])
def test_a_gaussian_a_quarter_too_large_is_seen(first_law, two, epsilon, delta, monkeypatch):
    right = adaptive._allowed
    monkeypatch.setattr(adaptive, "_allowed", lambda *budget: 1.25 * right(*budget))
    monkeypatch.setattr(adaptive._Chain, "exceeds", lambda *_: True)
    budget = Budget(epsilon=epsilon, delta=delta, adaptive=True)
    assert reached(rule(first_law, two, budget), first_law, two, epsilon) > delta


@pytest.mark.parametrize(("free", "most"), [(False, 312), (True, 308)])
def test_freedom_costs_one_mechanism_two_in_a_hundred_answers_at_most(free, most):
    price, budget = GNMax(sigma=40.0).curve(), Budget(epsilon=2.0, delta=1e-5, adaptive=free)
    assert [budget.allows(n * price) for n in (most, most + 1)] == [True, False]


def test_gaussians_cost_what_their_share_of_delta_costs():
    law, epsilon, delta = Law(GAUSSIAN, 0.01), 2.0, 1e-5
    n_allowed = math.floor(adaptive._allowed(epsilon, (1 - 0.011) * delta) / 0.01)
    for n in (n_allowed, n_allowed + 1):
        assert adaptive.fits((law._replace(uses=n),), epsilon=epsilon, delta=delta) == (n == n_allowed)


def test_totals_that_fit_fit_with_less_of_anything():
    rng, (first_law, two) = np.random.default_rng(5), (Law(ARGMAX, up(1 / 20)), Law(SCREEN, up(1 / 30)))

    def fits(i, j):
        return adaptive.fits((first_law._replace(uses=i), two._replace(uses=j)), epsilon=1.0, delta=1e-5)

    verdicts = {(i, j): fits(i, j) for i, j in rng.integers(1, 50, (150, 2)).tolist()}
    assert 10 < sum(verdicts.values()) < 100
    for (i, j), fit in verdicts.items():
        assert not fit or all(verdicts[k] for k in verdicts if k[0] <= i and k[1] <= j)


def test_levels_are_paid_from_the_end_back():
    law = Law(ARGMAX, up(1 / 40))
    levels = limit.levels((law,))
    for mass in np.linspace(0.0, 300 * law.mu_squared, 40):
        assert levels.after(float(levels.before(mass))) == pytest.approx(mass, rel=1e-12)
    for n_left in range(1, 200):
        before, after = (float(levels.before(n * law.mu_squared)) for n in (n_left, n_left - 1))
        least = max((start for start in limit._FINER if after >= start * law.mu_squared), default=None)
        cost = law.mu_squared if least is None else limit.one(law, least).mu_squared
        assert before - after >= cost * (1 - 1e-9)


def test_one_use_of_anything_counts_as_a_gaussian_that_is_larger():
    assert adaptive.fits((Law(PURE, 0.1, 3),), epsilon=1.0, delta=1e-5)
    assert not adaptive.fits((Law(PURE, 0.1, 3_000),), epsilon=1.0, delta=1e-5)
    assert not adaptive.fits((Law("unheard of", 0.1, 1),), epsilon=1.0, delta=1e-5)
    assert adaptive.fits((), epsilon=1.0, delta=1e-5)


def test_a_delta_below_all_that_is_computed_fits_nothing_and_needs_no_warning():
    for law in (Law(ARGMAX, 0.025, 1), Law(GAUSSIAN, 0.1, 3), Law(PURE, 0.1, 5)):
        assert not adaptive.fits((law,), epsilon=2.0, delta=1e-300)
    assert adaptive.fits((Law(GAUSSIAN, 0.0, 3),), epsilon=2.0, delta=1e-300)

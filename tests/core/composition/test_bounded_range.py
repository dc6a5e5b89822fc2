"""Bounded ranges: never below a closed form, strategies or random pairs, and close to the best of them."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, ndtr

from ostraka import Budget, Curve, Ledger
from ostraka.core.laws import answers, limit, tables
from ostraka.core.laws.law import ARGMAX, BOUNDED_RANGE, GAUSSIAN, PURE, Law
from ostraka.core.ledger.budget import RenyiFilter
from ostraka.core.mechanisms.selection import Selection
from tests.core.composition.strategies import played

DELTA = 1e-5


def price(size, uses):
    return tables.of((Law(BOUNDED_RANGE, size, uses),))


def two_points(size, s):
    """The chance of loss s; else the loss is s - size."""
    return np.exp(s) * np.expm1(size - s) / math.expm1(size)


def by_one_loss(size, uses, epsilon, mu=0.0):
    """The same s in every use, beside a Gaussian: a sum over binomial probabilities; the best of many s."""
    k = np.arange(uses + 1)
    best = 0.0
    for s in np.linspace(0.02, 0.98, 97) * size:
        loss_left = epsilon - (uses * s - k * size)
        if mu:
            stick = ndtr(mu / 2 - loss_left / mu) - np.exp(loss_left + log_ndtr(-mu / 2 - loss_left / mu))
        else:
            stick = np.maximum(0.0, -np.expm1(np.minimum(loss_left, 0.0)))
        best = max(best, float(stats.binom.pmf(k, uses, 1 - two_points(size, s)) @ stick))
    return best


@pytest.mark.parametrize(
    ("size", "uses", "least", "highest", "by_renyi"),
    [(0.2160, 64, 3.69, 3.70, 4.00), (1.198, 12, 9.90, 9.95, 11.2), (0.0618, 64, 0.915, 0.918, 1.0)],
)
def test_figures_of_the_derivation(size, uses, least, highest, by_renyi):
    total = uses * Selection(epsilon=size).curve()
    assert least <= total.epsilon(delta=DELTA) <= highest
    assert Curve(total.orders, total.rdp).epsilon(delta=DELTA) == pytest.approx(by_renyi, abs=0.03)


@pytest.mark.parametrize("size", [1e-3, 0.3, 2.0, 7.5])
def test_one_use_has_a_closed_form(size):
    step, values = answers.followed_range(size)(1)
    for k in (0, 1, 7, 24, 47):
        with mpmath.workdps(40):
            span, start = mpmath.mpf(size), mpmath.mpf(step) * k

            def reached(s, whole=span, start=start):
                chance = (mpmath.exp(whole) - mpmath.exp(s)) / (mpmath.exp(whole) - 1)
                return chance * (1 - mpmath.exp(start - s))

            best = mpmath.exp((span + start) / 2)  # where the derivative by e^s is 0
            exact = reached(mpmath.log(best))
            assert exact <= values[k] <= exact * (1 + mpmath.mpf("2e-3")) + 1e-18


@pytest.mark.parametrize(("size", "uses", "points"), [(0.4, 2, 161), (1.5, 3, 25)])
def test_the_best_strategy_of_two_point_laws_is_met_and_never_exceeds_it(size, uses, points):
    s = np.linspace(0, size, points)
    p, q = two_points(size, s), two_points(size, s) * np.exp(-s)
    pairs = np.stack([np.stack([p, 1 - p], -1), np.stack([q, 1 - q], -1)], 1)
    pairs = pairs[1:-1]  # at the ends both laws are the same
    for epsilon in (0.0, 0.3 * size, size):
        reached = float(played([pairs], np.exp([epsilon]), (uses,))[0])
        assert reached <= price(size, uses).delta(epsilon) <= reached * 1.01


@pytest.mark.parametrize("tables_of_pairs", [5, pytest.param(25, marks=pytest.mark.slow)])
def test_thousands_of_random_pairs_of_one_range_never_exceed_the_price(tables_of_pairs):
    rng, n = np.random.default_rng(11), tables_of_pairs  # of 25 pairs, in 8 ways
    for outcomes in (2, 3, 5, 40):
        for size in (0.2, 1.1):
            scores = rng.normal(size=(n, 25, outcomes)) * rng.choice([0.3, 2.0, 8.0], (n, 25, 1))
            moved = rng.choice([0.0, 1.0], (n, 25, outcomes)) * rng.uniform(0.7, 1, (n, 25, 1))
            moved[:, ::2] = rng.uniform(size=(n, 13, outcomes))
            laws = np.stack([scores, scores + size * moved], axis=2)  # (n, 25, 2, outcomes)
            laws = np.exp(laws - laws.max(axis=-1, keepdims=True))
            laws /= laws.sum(axis=-1, keepdims=True)
            bounds = [[price(size, uses).delta(e) for e in (0.0, 0.1, 0.5)] for uses in (1, 2)]
            for pairs in laws:  # 25 pairs: which is asked next, answers decide
                for uses, bound in enumerate(bounds, 1):
                    assert (played([pairs], np.exp([0.0, 0.1, 0.5]), (uses,)) <= bound).all()


@pytest.mark.parametrize(("size", "uses"), [(0.216, 64), (1.198, 12), (0.05, 300)])
def test_many_uses_cost_more_than_any_one_loss_and_hardly_more(size, uses):
    epsilon = price(size, uses).epsilon(DELTA)
    assert by_one_loss(size, uses, epsilon) <= DELTA
    assert by_one_loss(size, uses, 0.96 * epsilon) > DELTA


def test_more_uses_cost_more_also_beyond_those_that_are_followed(monkeypatch):
    epsilons = [price(0.2, n).epsilon(DELTA) for n in range(1, 100)]
    assert (np.diff(epsilons) > 0).all()
    monkeypatch.setattr(tables, "_MOST", 64)
    beyond = [price(0.1, n).epsilon(DELTA) for n in (63, 64, 65, 66)]
    assert (np.diff(beyond) > 0.01).all()
    assert (np.diff(beyond) < 0.04).all()


@pytest.mark.parametrize("size", [1e-6, 0.01, 0.7, 3.0, 20.0, 39.0])
def test_no_pair_tells_more_than_the_gaussian_of_half_a_response(size):
    # chances of the two outcomes have odds that differ by the factor e^size: one number y says which
    with mpmath.workdps(60):

        def z(y):  # the normal quantile of the chance 1 / (1 + e^-y), from the side where it is small
            chance = 1 / (1 + mpmath.exp(mpmath.mpf(abs(y))))
            return mpmath.sign(y) * mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * chance)

        shift = mpmath.sqrt(mpmath.mpf(Law(BOUNDED_RANGE, size).mu_squared))
        apart = [z(y + size / 2) - z(y - size / 2) for y in (0, 0.01, 0.5, 2, 8, 25)]
    assert max(apart) <= shift <= apart[0] * (1 + mpmath.mpf("1e-8"))


@pytest.mark.parametrize("size", [0.05, 0.9])
def test_what_one_use_adds_to_a_gaussian_is_enough_and_hardly_too_much(size):
    law, start = Law(BOUNDED_RANGE, size), 32
    one_use, before = limit.one(law, start), start * law.mu_squared

    def gaussian(x, mu_squared):
        mu = math.sqrt(mu_squared)
        return ndtr(mu / 2 - x / mu) - np.exp(x + log_ndtr(-mu / 2 - x / mu))

    x, s = np.linspace(0, 8 * math.sqrt(before), 200)[:, None], np.linspace(0, size, 333)
    p = two_points(size, s)
    after = (p * gaussian(x - s, before) + (1 - p) * gaussian(x + size - s, before)).max(axis=1)
    assert (after <= gaussian(x[:, 0], before + one_use.mu_squared) + one_use.delta).all()
    assert not (after <= gaussian(x[:, 0], before + 0.99 * one_use.mu_squared) + one_use.delta).all()
    assert 0.249 < one_use.mu_squared / size**2 < 0.2555


@pytest.mark.parametrize(("size", "uses", "mu"), [(0.2, 16, 0.4), (0.6, 5, 1.0), (0.1, 100, 0.3)])
def test_choices_beside_a_gaussian_cost_more_than_one_loss_and_hardly_more(size, uses, mu):
    table = tables.of((Law(BOUNDED_RANGE, size, uses), Law(GAUSSIAN, mu * mu)))
    epsilon = table.epsilon(DELTA)
    assert by_one_loss(size, uses, epsilon, mu) <= DELTA
    assert by_one_loss(size, uses, 0.98 * epsilon, mu) > DELTA


@pytest.mark.parametrize("size", [1e-7, 3.9, 4.1, 12.0, 39.0])
def test_ranges_of_any_size_compose_with_others_and_more_uses_cost_more(size):
    several = [
        tables.of(tuple(sorted([Law(BOUNDED_RANGE, size, n), Law(BOUNDED_RANGE, 0.1, 3)])))
        for n in (1, 2, 900)
    ]
    epsilons = [table.epsilon(DELTA) for table in several]
    assert epsilons[0] <= epsilons[1] <= epsilons[2]
    assert (2 * Selection(epsilon=size).curve()).epsilon(delta=DELTA) <= 2 * size * (1 + 1e-12)


def test_choices_compose_with_every_other_kind_and_each_part_costs_something():
    laws = [Law(BOUNDED_RANGE, 0.2, 16), Law(BOUNDED_RANGE, 0.1, 8), Law(GAUSSIAN, 0.1), Law(PURE, 0.3, 2)]
    laws += [Law(ARGMAX, 0.03, 60), Law.sampled(0.05, 1.0)._replace(uses=30)]
    epsilon = tables.of(tuple(sorted(laws))).epsilon(DELTA)
    for law in laws:
        fewer = tuple(sorted(member for member in laws if member is not law))
        assert tables.of(fewer).epsilon(DELTA) < epsilon < tables.of(fewer).epsilon(DELTA) + 3.0


def test_a_ledger_that_begins_with_choices_allows_more_of_them():
    choice, before = Selection(epsilon=0.25), RenyiFilter(epsilon=2.0, delta=DELTA)
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=DELTA)) as ledger:
        n_choices = next(n for n in range(1, 60) if not ledger.affords(choice, uses=n + 1))
        ledger.charge(choice, uses=n_choices, unit="row", simulation=False)
        assert 1.9 < ledger.epsilon() <= 2.0
        assert ledger.affords(choice, uses=1) is False
    assert not before.fits((n_choices - 1) * choice.curve())


def test_choices_of_the_worst_scores_reach_the_price():
    # two candidates whose scores move against each other: a response with losses of half the range
    both = np.array([0.5 * 1.2, -0.5 * 1.2])
    p, q = (np.exp(scores) / np.exp(scores).sum() for scores in (both / 2, -both / 2))
    reached = played([np.array([[p, q]])], np.exp([0.0, 0.4]), (3,))
    promised = [(3 * Selection(epsilon=1.2).curve()).delta(epsilon) for epsilon in (0.0, 0.4)]
    assert (reached <= promised).all()
    assert (reached > 0.8 * np.array(promised)).all()

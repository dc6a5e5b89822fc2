import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from ostraka import Adjacency, Private
from ostraka.core.mechanisms import selection
from ostraka.core.mechanisms.selection import Selection
from tests.false_alarm import FALSE_ALARM

TRIALS = 20_000
SCORES = np.array([0, 3, 5])


def law(scores, epsilon, sensitivity=1):
    """The definition: exp(epsilon score / 2 Delta), normalised."""
    weights = [math.exp(epsilon * int(score) / (2 * sensitivity)) for score in scores]
    return np.array(weights) / sum(weights)


def plausible(hits, wanted):
    return stats.chisquare(hits, wanted * hits.sum()).pvalue > FALSE_ALARM


def test_candidates_are_chosen_as_often_as_the_definition_says_and_not_as_a_slightly_wrong_one():
    rng = np.random.default_rng(3)
    mechanism = Selection(epsilon=0.8)
    hits = np.bincount([mechanism.choose(SCORES, rng=rng) for _ in range(TRIALS)], minlength=3)
    assert plausible(hits, law(SCORES, 0.8))
    assert not plausible(hits, law(SCORES, 0.9))
    assert not plausible(hits, law(SCORES, 0.7))


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 2)])
def test_acceptance_has_the_exponential_chance(exponent):
    rng = np.random.default_rng(5)
    hits = sum(selection._accepted(exponent, rng) for _ in range(TRIALS))
    assert stats.binomtest(hits, TRIALS, math.exp(-exponent)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_no_neighbour_costs_more_than_the_curve_at_any_order(epsilon):
    curve = Selection(epsilon=epsilon, sensitivity=2).curve()
    orders = [1.5, 2.0, 8.0, 64.0]
    bound = dict(zip(curve.orders, curve.rdp, strict=True))
    worst = dict.fromkeys(orders, 0.0)
    for here in ([0, 0, 0], [0, 4, 9], [0, 20, 20]):
        for move in itertools.product((-2, 0, 2), repeat=3):
            p, q = law(here, epsilon, 2), law(np.add(here, move), epsilon, 2)
            for order in orders:
                cost = logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1)
                worst[order] = max(worst[order], cost)
    for order in orders:
        assert 0 < worst[order] <= bound[order] * (1 + 1e-9)
    assert worst[8.0] > 0.2 * bound[8.0]  # the bound is not far away


def test_scores_that_move_farther_are_refused_at_the_promise():
    promise = Selection(epsilon=1.0, sensitivity=2).promise
    assert Adjacency.vector(linf=2, relation="add-or-remove").within(promise)
    assert not Adjacency.vector(linf=3, relation="add-or-remove").within(promise)
    assert not Adjacency.vector(l2=1, relation="add-or-remove").within(promise)
    assert not Adjacency.vector(linf=2).within(promise)


@pytest.mark.parametrize("scores", [np.zeros((2, 2), dtype=int), np.array([0.5, 1.0])])
def test_scores_must_be_a_row_of_integers(scores):
    private = Private(scores, Adjacency.vector(linf=1, relation="add-or-remove"))
    with pytest.raises(ValueError, match=r"scores must be integers of shape \(n_candidates,\)"):
        Selection(epsilon=1.0).uses(private)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"epsilon": 41.0}, {"sensitivity": 0}, {"relation": "x"}]
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        Selection(**{"epsilon": 1.0, **wrong})

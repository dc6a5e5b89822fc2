import itertools
import math
from fractions import Fraction

import mpmath
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


@pytest.mark.parametrize("trials", [TRIALS, pytest.param(2_000_000, marks=pytest.mark.slow)])
def test_candidates_are_chosen_as_often_as_the_definition_says_and_not_as_a_slightly_wrong_one(trials):
    rng = np.random.default_rng(3)
    mechanism = Selection(epsilon=0.8)
    rate = Fraction(0.8) / 2
    hits = np.bincount(selection.choices(SCORES, trials, rate=rate, rng=rng), minlength=3)
    one_by_one = np.bincount([mechanism.choose(SCORES, rng=rng) for _ in range(TRIALS // 10)], minlength=3)
    assert plausible(one_by_one, law(SCORES, 0.8))
    assert plausible(hits, law(SCORES, 0.8))
    assert not plausible(hits, law(SCORES, 0.9))
    assert not plausible(hits, law(SCORES, 0.7))


class Bits:
    """A generator whose further bits are these."""

    def __init__(self, *words):
        self.words = list(words)

    def integers(self, *_):
        return self.words.pop(0)


@pytest.mark.parametrize(
    "exponent", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(60), Fraction(300)]
)
def test_where_the_first_bits_do_not_decide_further_ones_do_as_multi_precision_says(exponent):
    with mpmath.workprec(8000):
        chance = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        words, remainder = [], chance
        while len(words) < 100:
            remainder = mpmath.ldexp(remainder, 62)
            words.append(int(mpmath.floor(remainder)))
            remainder -= words[-1]
    undecided = next(i for i, word in enumerate(words) if word) + 3  # words that agree with the chance
    below, above = ([*words[:undecided], words[undecided] + side] for side in (-1, 1))
    assert selection.is_below(below[0], exponent, Bits(*below[1:], 0)) is True
    assert selection.is_below(above[0], exponent, Bits(*above[1:], 0)) is False
    assert selection.is_below(2**62 - 1, Fraction(0), Bits()) is True


def test_scores_at_the_ends_of_their_type_do_not_wrap():
    for scores in (
        np.array([-(2**63), 2**63 - 1]),
        np.array([0, 2**64 - 1], dtype=np.uint64),
        np.array([0, 255], dtype=np.uint8),
    ):
        assert (selection.choices(scores, 50, rate=Fraction(1), rng=np.random.default_rng(0)) == 1).all()


def test_floats_decide_only_beside_their_error(monkeypatch):
    # at this exponent the chance is 2^-60 or less, so bits that are all 0 do not decide
    bounds = []
    monkeypatch.setattr(selection, "is_below", lambda *at: bounds.append(at) or len(bounds) > 5)
    rng = type("", (), {"integers": lambda _, bound, size: np.full(size, 0 if bound > 3 else 1)})()
    assert selection.choices(np.array([100, 0]), 1, rate=Fraction(1), rng=rng).tolist() == [1]
    assert {at[:2] for at in bounds} == {(0, Fraction(100))}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_no_neighbour_costs_more_than_the_curve_at_any_order(epsilon):
    curve = Selection(epsilon=epsilon, sensitivity=2).curve()
    orders = [1.5, 2.0, 8.0, 64.0]
    bound = dict(zip(curve.orders, curve.rdp, strict=True))
    worst = dict.fromkeys(orders, 0.0)
    for base in ([0, 0, 0], [0, 4, 9], [0, 20, 20]):
        for move in itertools.product((-2, 0, 2), repeat=3):
            p, q = law(base, epsilon, 2), law(np.add(base, move), epsilon, 2)
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

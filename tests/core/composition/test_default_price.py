"""The default price: never above the Rényi one, never below what random adaptive strategies reach."""

from dataclasses import replace

import numpy as np
import pytest

from ostraka import Confident, GNMax, Threshold
from tests.core.composition.strategies import laws_of

HISTOGRAMS = [(i, j, 6 - i - j) for i in range(7) for j in range(7 - i)]
EPSILONS = np.array([0.0, 0.1, 0.3, 0.7, 1.2])
MECHANISMS = [
    GNMax(sigma=5.0),
    Threshold(at=4.0, sigma=4.0),
    Threshold(at=4.0, sigma=6.0, noise="every"),
    Confident(screen=Threshold(at=4.0, sigma=9.0), argmax=GNMax(sigma=6.0)),
]


def reached(pairs, n, rng):
    """Delta at each epsilon of one strategy, whose next question and end are drawn for every transcript."""
    p, q = np.ones(1), np.ones(1)
    done = []
    for _ in range(n):
        chosen = pairs[rng.integers(len(pairs), size=p.size)]
        p, q = (p[:, None] * chosen[:, 0]).ravel(), (q[:, None] * chosen[:, 1]).ravel()
        ends = rng.random(p.size) < 0.05
        done.append((p[ends], q[ends]))
        p, q = p[~ends], q[~ends]
    p, q = (np.concatenate(each) for each in zip(*done, (p, q), strict=True))
    assert p.sum() == pytest.approx(1.0)
    return np.maximum(0.0, p - np.exp(EPSILONS)[:, None] * q).sum(axis=1)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_no_random_strategy_reaches_more_than_the_default_price_allows(mechanism):
    pairs, rng = laws_of(mechanism, HISTOGRAMS), np.random.default_rng(4)
    for n in (2, 4):
        promised = np.array([(n * mechanism.curve()).delta(epsilon=epsilon) for epsilon in EPSILONS])
        for _ in range(10):
            assert (reached(pairs, n, rng) <= promised).all()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_default_price_is_never_above_the_renyi_price_and_grows_with_answers(mechanism):
    each = mechanism.curve()
    before = 0.0
    for n in (1, 2, 20):
        spent = (n * each).epsilon(1e-5)
        assert before < spent <= (n * replace(each, laws=None)).epsilon(1e-5)
        before = spent


def test_confident_and_its_parts_cost_the_same():
    screen, argmax = Threshold(at=100, sigma=90.0), GNMax(sigma=30.0)
    whole, parts = Confident(screen=screen, argmax=argmax).curve(), screen.curve() + argmax.curve()
    assert whole == parts
    assert (8 * whole).epsilon(1e-5) == (8 * screen.curve() + 8 * argmax.curve()).epsilon(1e-5)

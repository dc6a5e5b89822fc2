"""The default price is never above the Rényi one. The files beside this one play what strategies reach."""

from dataclasses import replace

import pytest

from ostraka import Confident, GNMax, Threshold

MECHANISMS = [
    GNMax(sigma=5.0),
    Threshold(at=4.0, sigma=4.0),
    Threshold(at=4.0, sigma=6.0, noise="every"),
    Confident(screen=Threshold(at=4.0, sigma=9.0), argmax=GNMax(sigma=6.0)),
]


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
    assert (40 * whole).epsilon(1e-5) == (40 * screen.curve() + 40 * argmax.curve()).epsilon(1e-5)

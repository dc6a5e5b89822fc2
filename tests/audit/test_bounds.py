"""What follows from several bounds, and what does not."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

from ostraka import Curve, GNMax
from ostraka.audit.bound import Bound, CanaryBound, EpsilonBound, RenyiBound
from ostraka.audit.cuts import between_boxes, of_coins, of_laws
from ostraka.audits import delta_lower_bound, epsilon_lower_bound, one_run_lower_bound, renyi_lower_bound
from ostraka.scores import Scores

ORDERS = (2.0, 4.0, 32.0)


def bound(p=(900, 100), q=(500, 500), confidence=0.99, orders=ORDERS):
    return renyi_lower_bound(list(p), list(q), orders=orders, confidence=confidence)


def test_composition_adds_direction_by_direction_and_failures():
    first, second = bound(), bound((500, 500), (900, 100), confidence=0.98)
    composition = RenyiBound.compose([first, second])
    np.testing.assert_allclose(composition.forward, np.add(first.forward, second.forward), rtol=1e-11)
    np.testing.assert_allclose(composition.reverse, np.add(first.reverse, second.reverse), rtol=1e-11)
    assert composition.confidence == pytest.approx(0.97)
    assert composition.rdp[0] < first.rdp[0] + second.rdp[0], (
        "the larger of the sums, not the sum of the larger"
    )
    assert "independent" in composition.note


@pytest.mark.parametrize(
    ("lower", "quantity", "law"),
    [
        (renyi_lower_bound([900, 100], [500, 500], orders=ORDERS), "rdp", "2-cut"),
        (epsilon_lower_bound([900, 100], [500, 500], delta=1e-5), "epsilon", "2-cut"),
        (delta_lower_bound([900, 100], [500, 500], epsilon=0.1), "delta", "2-cut"),
        (
            one_run_lower_bound(
                Scores.of(members=[0.9] * 90 + [0.0] * 10, others=[0.0] * 90 + [0.9] * 10),
                delta=0.0,
                game="labels",
            ),
            "epsilon",
            "any-dependence",
        ),
    ],
)
def test_every_audit_returns_one_kind_of_bound(lower, quantity, law):
    assert isinstance(lower, Bound)
    assert (lower.side, lower.quantity, lower.law, lower.method) == ("lower", quantity, law, law)
    assert getattr(lower, quantity) == lower.value
    assert lower.note == lower.sentence
    assert pickle.loads(pickle.dumps(lower)) == copy.copy(lower) == lower
    assert lower.to_dict()["method"] == law
    assert json.loads(json.dumps(lower.to_dict())) == lower.to_dict()
    with pytest.raises(AttributeError, match="has no cost"):
        _ = lower.cost
    assert RenyiBound is EpsilonBound is CanaryBound is Bound


def test_an_outcome_without_a_chance_in_either_world_changes_nothing():
    orders = np.array([*ORDERS, np.inf])
    renyi = of_laws(np.array([0.3, 0.7, 0.0]), np.array([0.4, 0.6, 0.0]), orders)
    np.testing.assert_array_equal(renyi, of_laws(np.array([0.3, 0.7]), np.array([0.4, 0.6]), orders))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RenyiBound.compose([bound(confidence=0.95)] * 30), r"confidence=1 - 0\.05 / 30"),
        (lambda: RenyiBound.compose([bound(), bound(orders=(3.0,))]), "same orders"),
        (lambda: RenyiBound.compose([]), "one or more"),
        (lambda: bound(orders=(1.5,)).per_unit(group=2), "must reach 2"),
        (lambda: bound().exceeds(GNMax(sigma=2.0).curve()), "orders"),
    ],
)
def test_what_cannot_be_promised_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(("group", "c"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_group_says_less_about_one_unit(group, c):
    many = bound()
    per_person = many.per_unit(group=group)
    assert per_person.orders == tuple(order * 2**c for order in ORDERS)
    np.testing.assert_allclose(per_person.rdp, np.array(many.rdp) / 3**c)


def test_illustrated_epsilon_is_the_conversion_of_curves():
    renyi = bound()
    assert renyi.illustrated_epsilon(delta=1e-5) == Curve(ORDERS, renyi.rdp).epsilon(delta=1e-5)


def test_exceeds_names_the_orders():
    renyi = bound()
    low, high = (Curve(ORDERS, tuple(factor * x for x in renyi.rdp)) for factor in (0.9, 1.1))
    assert renyi.exceeds(low) == ORDERS
    assert renyi.exceeds(high) == ()


def test_coins_are_laws_of_two_outcomes_and_infinity_is_the_limit():
    orders = np.array([2.0, 1e7, math.inf])
    got = of_coins(np.array([0.3]), np.array([0.1]), orders)[:, 0]
    assert got[0] == pytest.approx(math.log(0.09 / 0.1 + 0.49 / 0.9))
    assert got[1] == pytest.approx(got[2], rel=1e-5)
    assert got[2] == pytest.approx(math.log(3))


def test_the_divergence_of_coins_grows_as_they_part():
    p, q = np.meshgrid(np.linspace(0.01, 0.99, 50), np.linspace(0.01, 0.99, 50))
    grown = of_coins(np.minimum(p + 0.005, 1), q, np.array(ORDERS)) - of_coins(p, q, np.array(ORDERS))
    assert (grown[:, p >= q] >= -1e-12).all()


@pytest.mark.parametrize("points", [600, pytest.param(3000, marks=pytest.mark.slow)])
def test_no_laws_within_boxes_are_closer_than_said(points):
    rng = np.random.default_rng(7)
    for n in (2, 3, 6):
        p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
        width = rng.uniform(0, 0.05, size=(4, n))
        boxes = (np.maximum(0, p - width[0]), p + width[1], np.maximum(0, q - width[2]), q + width[3])
        least = between_boxes(*boxes, np.array([*ORDERS, math.inf]))
        for _ in range(points):
            # a random point of the boxes that sums to one, along a random direction
            a, b = (
                mid + inside(rng, mid, low, high) for mid, low, high in ((p, *boxes[:2]), (q, *boxes[2:]))
            )
            assert (of_laws(a, b, np.array([*ORDERS, math.inf])) >= least - 1e-12).all()


def inside(rng, mid, low, high):
    step = rng.normal(size=mid.size)
    step -= step.mean()
    with np.errstate(divide="ignore"):
        room = np.where(step > 0, (high - mid) / step, (low - mid) / step)
    return step * room.min() * rng.uniform()

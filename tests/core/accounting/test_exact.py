"""Exact curves as a user meets them. That the numbers are right is shown in tests/oracles."""

import math

import numpy as np
import pytest

from ostraka import Confident, Curve, GNMax, LNMax, Threshold
from ostraka.accounting import exact_curve
from ostraka.core import numeric
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.curve import ORDERS
from ostraka.mechanisms import SkellamMax, Subsampled

SCREEN, ARGMAX = Threshold(at=60, sigma=15.0), GNMax(sigma=10.0)
MECHANISMS = [
    ARGMAX,
    LNMax(scale=10.0),
    SCREEN,
    Confident(screen=SCREEN, argmax=ARGMAX),
    Confident(screen=SCREEN, argmax=LNMax(scale=10.0)),
]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
VOTES = np.random.default_rng(1).multinomial(100, [0.6, 0.3, 0.1], size=200)


@every_mechanism
def test_a_curve_is_the_sum_of_its_queries_just_above(mechanism):
    rdp, curve = exact_rdp(mechanism, VOTES), exact_curve(mechanism, VOTES)
    assert rdp.shape == (200, len(ORDERS))
    assert (np.array(curve.rdp) >= rdp.sum(axis=0)).all()
    np.testing.assert_allclose(curve.rdp, rdp.sum(axis=0), rtol=2e-9)
    halves = exact_curve(mechanism, VOTES[:77]) + exact_curve(mechanism, VOTES[77:])
    np.testing.assert_allclose(curve.rdp, halves.rdp, rtol=1e-12)


@every_mechanism
def test_rows_are_computed_alone_also_in_several_threads(mechanism):
    together = exact_rdp(mechanism, VOTES)
    np.testing.assert_array_equal(together[::40], [exact_rdp(mechanism, [row])[0] for row in VOTES[::40]])


@every_mechanism
def test_the_curve_is_for_the_owner_and_carries_the_slack_of_every_part(mechanism):
    curve = exact_curve(mechanism, VOTES)
    pieces = (mechanism.screen, mechanism.argmax) if isinstance(mechanism, Confident) else (mechanism,)
    assert not curve.publishable
    assert not (curve + Curve.zero()).publishable
    assert curve.moves == "ballot"
    assert curve.slack == pytest.approx(200 * sum(part.curve().slack for part in pieces), rel=1e-12, abs=0)
    assert curve.mu_squared == math.inf


def test_orders_may_be_chosen():
    chosen = exact_rdp(ARGMAX, VOTES[:3], orders=(2, 5.5, math.inf))
    default = exact_rdp(ARGMAX, VOTES[:3])
    np.testing.assert_allclose(
        chosen, default[:, [ORDERS.index(order) for order in (2, 5.5, math.inf)]], rtol=1e-12
    )
    assert exact_curve(ARGMAX, VOTES[:3], orders=(2.0,)).orders == (2.0,)


@pytest.mark.parametrize(
    "orders", [(), (1.0, 2.0), (3.0, 2.0), (2.0, 2.0), (math.nan,), (2.0, math.nan)], ids=str
)
def test_orders_that_are_none_are_refused(orders):
    with pytest.raises(ValueError, match="orders must be above 1 and increasing"):
        exact_rdp(ARGMAX, VOTES, orders=orders)


@pytest.mark.parametrize(
    "stranger", [(SCREEN, ARGMAX), [SCREEN, ARGMAX], "GNMax", None, SkellamMax(sigma=9.0)], ids=str
)
def test_what_is_not_understood_is_refused_not_free(stranger):
    for cost in (exact_rdp, exact_curve):
        with pytest.raises(TypeError, match="mechanism must be a ballot mechanism"):
            cost(stranger, VOTES)


def test_a_sampled_ballot_has_no_exact_cost():
    """The votes are those of a sample, of which the cost of all votes says nothing."""
    sampled = Subsampled(mechanism=ARGMAX, sampling_rate=0.5)
    for cost in (exact_rdp, exact_curve):
        with pytest.raises(ValueError, match="exact costs are for one ballot of a table of votes"):
            cost(sampled, VOTES, relation="add-or-remove")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"counts": [1, 2]}, "counts must have shape"),
        ({"counts": [[1], [2]]}, "two classes or more"),
        ({"counts": [[1, math.nan]]}, "must be finite"),
        ({"counts": VOTES, "relation": "swap"}, "relation must be one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        exact_rdp(Confident(screen=SCREEN, argmax=ARGMAX), **arguments)


def test_no_queries_cost_nothing():
    curve = exact_curve(ARGMAX, np.empty((0, 3)))
    assert set(curve.rdp) == {0.0}
    assert curve.epsilon(1e-9) == 0.0


@pytest.mark.parametrize("digest", ["as it is", "the same for all rows"])
def test_equal_rows_are_found_as_comparing_whole_rows_finds_them(digest, monkeypatch):
    if digest != "as it is":  # then only the comparison tells rows apart
        monkeypatch.setattr(numeric, "_ODD", np.uint64(0))
    rng = np.random.default_rng(0)
    for rows in (
        rng.integers(-2, 3, (500, 3)) / 2,
        rng.normal(size=(50, 2)),
        np.zeros((3, 2)),
        np.empty((0, 2)),
    ):
        rows[::7] = -rows[::7]  # -0.0 among them
        different, places = np.unique(rows, axis=0, return_inverse=True)
        ours, where = numeric.distinct(rows)
        assert np.array_equal(ours, different)
        assert np.array_equal(where, places.ravel())


def test_a_row_a_million_times_costs_a_million_times_as_much():
    votes = np.array([[30.0, 12.0, 8.0], [20.0, 18.0, 12.0]])
    first, second = (exact_curve(GNMax(sigma=5.0), votes[[row]]).rdp for row in (0, 1))
    many = exact_curve(GNMax(sigma=5.0), votes[np.repeat([0, 1, 0], [300_000, 500, 700_000])]).rdp
    np.testing.assert_allclose(many, 1e6 * np.array(first) + 500 * np.array(second), rtol=1e-9)

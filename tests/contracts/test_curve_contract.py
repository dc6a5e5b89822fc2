"""What a curve promises whatever made it: it adds to its like, never errs down, and travels as JSON."""

import json
import math
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ostraka import Curve, GNMax, LNMax, Threshold
from ostraka.accounting import exact_curve, moments2017_curve, papernot2018_curve
from ostraka.core.curve import ORDERS
from ostraka.core.laws.law import Law
from ostraka.core.mechanisms.wrapped import amplified

VOTES = [[60, 30, 10], [100, 0, 0], [34, 33, 33]]
CURVES = {
    "zero": Curve.zero(),
    "gaussian": Curve.gaussian(sensitivity=1.0, sigma=7.0, moves="ballot"),
    "GNMax": GNMax(sigma=20.0).curve(),
    "GNMax, classic": GNMax(sigma=20.0).curve("classic"),
    "LNMax": LNMax(scale=20.0).curve(),
    "Threshold": Threshold(at=50, sigma=30.0).curve(),
    "exact": exact_curve(GNMax(sigma=20.0), VOTES),
    "2018": papernot2018_curve(GNMax(sigma=20.0), VOTES),
    "2017": moments2017_curve(LNMax(scale=20.0), VOTES),
    "amplified": amplified(GNMax(sigma=20.0).curve(), sampling_rate=0.1),
    "one order": Curve((2.0,), (0.3,)),
    "pure": Curve((math.inf,), (0.5,)),
    "nothing known": Curve((2.0, math.inf), (math.inf, math.inf)),
    "a record's": Curve.gaussian(sensitivity=1.0, sigma=7.0),
}
every_curve = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
deltas = st.floats(1e-12, 0.5)
noises = st.floats(0.3, 300.0)
numbers = st.integers(0, 3000)

# Valid in what matters here: (order - 1) rdp grows, as for every Rényi divergence.
curves = st.builds(
    lambda slope, cap, mu, slack: Curve(
        ORDERS, tuple(min(order * slope, cap) for order in ORDERS), mu_squared=mu, slack=slack
    ),
    st.floats(1e-8, 2.0),
    st.floats(1e-3, 50.0),
    st.sampled_from([math.inf, 1e-4, 0.5]),
    st.sampled_from([0.0, 1e-13, 1e-9]),
)


@every_curve
class TestEveryCurve:
    def test_cannot_be_changed(self, curve):
        with pytest.raises(FrozenInstanceError):
            curve.rdp = curve.orders

    def test_travels_as_strict_json_and_comes_back_equal(self, curve):
        text = json.dumps(curve.to_dict(), allow_nan=False)
        assert Curve.from_dict(json.loads(text)) == curve
        assert pickle.loads(pickle.dumps(curve)) == curve

    def test_repeating_is_adding_and_nothing_is_neutral(self, curve):
        twice = curve + curve
        assert (2 * curve).rdp == pytest.approx(twice.rdp, rel=1e-15, abs=0)
        assert (curve * 2).mu_squared == pytest.approx(twice.mu_squared, rel=1e-15, abs=0)
        assert (2 * curve).slack == pytest.approx(twice.slack, rel=1e-15, abs=0)
        nothing = Curve.zero(moves=curve.moves, orders=curve.orders)
        assert (0 * curve).rdp == nothing.rdp
        assert (curve + nothing).rdp == pytest.approx(curve.rdp, rel=1e-15, abs=0)
        assert (1 * curve).epsilon(1e-5) == pytest.approx(curve.epsilon(1e-5), rel=1e-12, abs=0)

    def test_what_depends_on_private_data_stays_unpublishable(self, curve):
        like = Curve.zero(moves=curve.moves, orders=curve.orders)
        kept = [curve + like, like + curve, 5 * curve, 0 * curve, curve.smaller(like), like.smaller(curve)]
        assert {result.publishable for result in kept} == {curve.publishable}
        assert not (replace(curve, publishable=False) + curve).publishable

    def test_sums_round_up(self, curve):
        exact = [
            float(a) if math.isinf(a) else a for a in (sum([x] * 3) for x in map(np.longdouble, curve.rdp))
        ]
        assert all(got >= want for got, want in zip((3 * curve).rdp, exact, strict=True))
        assert all(got >= want for got, want in zip((curve + curve + curve).rdp, exact, strict=True))

    def test_adds_only_to_its_like(self, curve):
        for other in (
            replace(curve, moves="row"),
            Curve((1.0625,), (1.0,), curve.moves),
        ):
            with pytest.raises(ValueError, match="cannot compose"):
                curve + other
            with pytest.raises(ValueError, match="compared"):
                curve.smaller(other)
        for stranger in (1, 0.5, None, "curve"):
            with pytest.raises(TypeError):
                curve + stranger

    def test_epsilon_falls_with_delta_and_delta_with_epsilon(self, curve):
        epsilons = [curve.epsilon(delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3, 0.1)]
        assert epsilons == sorted(epsilons, reverse=True)
        found = np.array([curve.delta(epsilon) for epsilon in (0.0, 0.01, 0.3, 1.0, 4.0, 50.0)])
        assert ((found >= 0) & (found <= 1)).all()
        assert (found[1:] <= found[:-1] * (1 + 1e-9)).all()

    def test_epsilon_is_what_its_best_order_proves_or_less(self, curve):
        if not any(math.isfinite(order) and math.isfinite(r) for order, r in zip(curve.orders, curve.rdp)):  # noqa: B905
            return
        order = curve.best_order(1e-5)
        rdp = curve.rdp[curve.orders.index(order)]
        proves = rdp + math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
        assert curve.slack or curve.epsilon(1e-5) <= max(0, proves) * (1 + 1e-9)


def test_slack_adds_up():
    """No mechanism has slack, so the contract of mechanisms does not see it."""
    curve = replace(GNMax(sigma=20.0).curve(), slack=1e-9)
    for three in (3 * curve, curve + 2 * curve, curve + curve + curve):
        assert 3e-9 <= three.slack <= 3e-9 * (1 + 1e-12)


WRONG = {
    "nan": {"rdp": (math.nan, 1.0)},
    "negative": {"rdp": (-1e-300, 1.0)},
    "fewer": {"rdp": (1.0,)},
    "none": {"rdp": (), "orders": ()},
    "order 1": {"orders": (1.0, 2.0)},
    "order below 1": {"orders": (0.5, 2.0)},
    "falling": {"orders": (3.0, 2.0)},
    "twice the same": {"orders": (2.0, 2.0)},
    "nan order": {"orders": (2.0, math.nan)},
    "nan shift": {"mu_squared": math.nan},
    "negative shift": {"mu_squared": -1.0},
    "nan slack": {"slack": math.nan},
    "negative slack": {"slack": -1e-9},
}


REFUSED = [
    *(("times must be an integer >= 0", times) for times in (-1, 0.5, 2.0, True, math.nan, "2", None)),
    *(("delta must be > 0 and < 1", x) for x in (0.0, 1.0, -1e-5, 2.0, math.nan, "1e-5", None, True)),
    *(("epsilon must be >= 0", epsilon) for epsilon in (-1.0, math.nan, None, "1")),
    *((name, wrong) for name in ("sensitivity", "sigma") for wrong in (0.0, -1.0, math.nan, math.inf)),
]


@pytest.mark.parametrize(("says", "wrong"), REFUSED, ids=repr)
def test_numbers_out_of_range_are_refused_by_name(says, wrong):
    curve, gaussian = CURVES["GNMax"], {"sensitivity": 1.0, "sigma": 1.0}
    calls = {"times": lambda: curve * wrong, "delta": lambda: curve.epsilon(wrong)}
    calls["epsilon"] = lambda: curve.delta(wrong)
    with pytest.raises(ValueError, match=says):
        calls.get(says.split()[0], lambda: Curve.gaussian(**gaussian | {says: wrong}))()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_a_cost_cannot_exist(wrong):
    right = {"orders": (2.0, 3.0), "rdp": (0.1, 0.2)}
    assert Curve(**right)
    with pytest.raises(ValueError, match=r"must be|needs one rdp"):
        Curve(**right | wrong)


def test_nothing_costs_nothing_and_nothing_known_proves_nothing():
    assert Curve.zero().epsilon(1e-9) == Curve.zero().delta(0.0) == 0.0
    assert CURVES["nothing known"].epsilon(0.4) == math.inf
    assert CURVES["nothing known"].delta(100.0) == 1.0
    assert CURVES["gaussian"].delta(math.inf) == 0.0
    assert Curve((2.0,), (math.inf,), mu_squared=0.0).delta(1.0) == 0.0


@given(first=curves, second=curves, delta=deltas)
def test_more_releases_never_cost_less(first, second, delta):
    assert (first + second).epsilon(delta) >= max(first.epsilon(delta), second.epsilon(delta)) * (1 - 1e-12)


@given(curve=curves, n=numbers, n_further=numbers, delta=deltas)
def test_epsilon_grows_with_the_number_of_answers(curve, n, n_further, delta):
    assert (n * curve).epsilon(delta) <= ((n + n_further) * curve).epsilon(delta) * (1 + 1e-12)


@given(curve=curves, delta=deltas, factor=st.floats(1.0, 100.0))
def test_epsilon_never_grows_with_delta(curve, delta, factor):
    assume(delta * factor < 1)
    assert curve.epsilon(delta * factor) <= curve.epsilon(delta)


@given(curve=curves, delta=deltas, keep=st.sets(st.integers(0, len(ORDERS) - 1), min_size=1))
def test_more_orders_never_raise_epsilon_or_delta(curve, delta, keep):
    fewer = replace(
        curve,
        orders=tuple(ORDERS[at] for at in sorted(keep)),
        rdp=tuple(curve.rdp[at] for at in sorted(keep)),
    )
    assert curve.epsilon(delta) <= fewer.epsilon(delta)
    assert curve.delta(0.7) <= fewer.delta(0.7) * (1 + 1e-9)


@given(curve=curves, delta=deltas)
def test_epsilon_and_delta_are_two_readings_of_one_bound(curve, delta):
    epsilon = curve.epsilon(delta)
    if math.isfinite(epsilon):
        assert curve.delta(epsilon) <= delta * (1 + 1e-9)


@given(first=curves, second=curves, delta=deltas)
def test_the_smaller_of_two_bounds_is_no_larger_than_either(first, second, delta):
    smaller = replace(first, slack=second.slack).smaller(second)
    assert smaller.epsilon(delta) <= min(
        replace(first, slack=second.slack).epsilon(delta), second.epsilon(delta)
    )


@given(sigma=noises, factor=st.floats(1.0, 10.0), n=st.integers(1, 3000), delta=deltas)
def test_more_noise_never_costs_more(sigma, factor, n, delta):
    quiet, loud = (n * Curve.gaussian(sensitivity=1.0, sigma=s) for s in (sigma, sigma * factor))
    assert loud.epsilon(delta) <= quiet.epsilon(delta)


def test_the_default_orders_are_dense_enough():
    """A Gaussian's epsilon by our orders is within 0.1 % of the best order's, where epsilon is of use."""
    for mu in (0.01, 0.1, 0.5, 1.5):
        for delta in (1e-4, 1e-6, 1e-9):
            by_ours = Curve(ORDERS, tuple(order * mu**2 / 2 for order in ORDERS)).epsilon(delta)
            dense = np.exp(np.linspace(math.log(1.01), math.log(2e4), 20_000))
            best = dense * mu**2 / 2 + np.log1p(-1 / dense) - (math.log(delta) + np.log(dense)) / (dense - 1)
            assert best.min() * (1 - 1e-9) <= by_ours <= best.min() * 1.001


@pytest.mark.parametrize(
    "law",
    [
        ["gaussian-argmax", 0.05, -5],
        ["gaussian-argmax", 0.05, 0],
        ["gaussian-argmax", 0.05, 2.5],
        ["gaussian-argmax", -0.05, 5],
        ["gaussian-argmax", math.nan, 5],
        # of one answer tells nothing, and had an answer more likely than 1
        *([f"response {n}", 1.0, 5] for n in ("1", "0", "-3", "2.5", "", "9" * 400)),
        *([f"sampled-gaussian {x}", 1.0, 5] for x in ("0x0.0p+0", "0x1.8000000000000p+0", "nan", "half")),
        ["sampled-gaussian -0x1.0000000000000p-1", 1.0, 5],
    ],
)
def test_laws_that_no_release_has_are_refused(law):
    hundred = 100 * GNMax(sigma=20.0).curve()
    refused = r"uses must be|size of a law must be|a response must have|a sampling rate must be"
    with pytest.raises(ValueError, match=refused):
        Curve.from_dict(hundred.to_dict() | {"laws": [law]})
    with pytest.raises(ValueError, match=refused):
        replace(hundred, laws=(Law(*law),))  # added to others, it would take uses back


def test_a_kind_of_law_that_is_not_known_leaves_the_bounds_that_need_none():
    hundred = 100 * GNMax(sigma=20.0).curve()
    newer = Curve.from_dict(hundred.to_dict() | {"laws": [["of-tomorrow 3", 1e-9, 100]]})
    assert newer.epsilon(1e-5) == replace(hundred, laws=None).epsilon(1e-5)


def test_whole_numbers_of_numpy_do_not_wrap_when_they_count_uses():
    many = np.int64(2**61 + 1) * (8 * GNMax(sigma=20.0).curve())
    assert [law.uses for law in many.laws] == [8 * (2**61 + 1)]

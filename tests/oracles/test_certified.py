"""Certified tight prices and the table of them, against searches, multi-precision and random laws."""

import hashlib
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize

from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms import tight

FINITE = np.array(ORDERS[:-1])
TOLERANCE = 1.8e-3  # of the table above the supremum, up to order * shift = 2: chords, halving, rounding
RNG = np.random.default_rng(18)
SHIFTS = np.exp(RNG.uniform(np.log(1.01e-5), np.log(0.49), 36))
SHIFTS = np.append(SHIFTS, [1.1e-7, 3e-6, 0.62, 0.97])


def largest_seen(shift, order):
    """A divergence that some votes reach: the best of a grid, followed upwards."""
    order = np.array([order])
    side = np.arange(-4.0, 6.0, 0.2)
    a, b = (axis.ravel() for axis in np.meshgrid(side - shift * order, side))
    value = tight.argmax_divergence(shift, a, b, order)[:, 0]
    at = int(value.argmax())

    def less(place):
        return -float(tight.argmax_divergence(shift, place[:1], place[1:], order)[0, 0])

    optimum = minimize(less, [a[at], b[at]], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 0})
    return -optimum.fun, optimum.x


def in_multi_precision(a, b, shift, order):
    with mp.workdps(25):

        def law(a, b):
            def wins(a, b):
                peak = max(a, (a + b) / 2, mp.mpf(0))
                edges = sorted({mp.mpf(0), max(peak - 8, mp.mpf(0)), peak, peak + 8, peak + 40})
                return mp.quad(lambda x: mp.npdf(x - a) * mp.ncdf(x - b), edges)

            return wins(a, b), wins(b, a), mp.ncdf(-a) * mp.ncdf(-b)

        a, b, shift, order = (mp.mpf(float(x)) for x in (a, b, shift, order))
        pairs = zip(law(a, b), law(a - shift, b + shift), strict=True)
        return float(mp.log(mp.fsum(p**order * q ** (1 - order) for p, q in pairs)) / (order - 1))


@pytest.mark.parametrize(
    "shift",
    [
        *SHIFTS[:6:2],
        *SHIFTS[-4::2],
        *(pytest.param(value, marks=pytest.mark.slow) for value in (*SHIFTS[1:6:2], *SHIFTS[-3::2])),
    ],
)
def test_the_table_lies_above_what_votes_reach_in_multi_precision_and_hardly_above(shift):
    price = tight.argmax(shift, ORDERS)
    order = float(RNG.choice(FINITE[FINITE * shift <= 2]))
    largest, (a, b) = largest_seen(shift, order)
    exact = in_multi_precision(a, b, shift, order)
    assert exact == pytest.approx(largest, rel=1e-6)
    assert exact < price[ORDERS.index(order)] <= exact * (1 + TOLERANCE)


@pytest.mark.parametrize(
    "shift",
    [pytest.param(shift, marks=[pytest.mark.slow] if n % 3 else []) for n, shift in enumerate(SHIFTS)],
)
def test_no_votes_cost_more_than_the_table_says(shift):
    side = np.arange(-6.0, 6.5, 0.5)
    a, b = (axis.ravel() for axis in np.meshgrid(side, side))
    a, b = a + RNG.uniform(-0.3, 0.3, a.size), b + RNG.uniform(-0.3, 0.3, a.size)
    orders = FINITE[FINITE * shift <= tight.FURTHEST][::6]
    price = dict(zip(ORDERS, tight.argmax(shift, ORDERS), strict=True))
    for place in (0.0, *(-shift * orders)):  # the worst votes of high orders lie further out
        largest = tight.argmax_divergence(shift, a + place, b - place, orders).max(axis=0)
        assert all(value < price[order] for value, order in zip(largest, orders, strict=True))


@pytest.mark.parametrize("shift", [1.3e-5, 0.004, 0.0251, 0.3, 1.7, 5.1])
def test_no_count_costs_more_than_the_table_of_screens_says_and_one_costs_nearly_as_much(shift):
    price, orders = tight.screen(shift, ORDERS), FINITE * shift <= tight.FURTHEST
    t = np.arange(-16.0, 9.0, 0.01)
    largest = tight.screen_divergence(shift, t, FINITE[orders]).max(axis=0)
    assert np.all(largest < price[:-1][orders])
    assert np.all(price[:-1][orders] <= largest * 1.0016)


def test_outside_the_table_nothing_is_said():
    low, high = tight.node(0), tight.node(280)
    for shift in (low * 0.999, high * 1.001):
        assert tight.argmax(shift, ORDERS) is None
    assert tight.argmax(0.1, (2.0, 3.0)) is None
    price = tight.argmax(0.4, ORDERS)
    assert np.all(np.isinf(price) == (np.array(ORDERS) * 0.4 > tight.FURTHEST))
    for shift in (low, high):
        assert np.isfinite(tight.argmax(shift, ORDERS)).any()


@pytest.mark.parametrize("kind", ["argmax", "screen"])
def test_the_file_is_what_its_digest_says_and_what_the_command_writes(kind, monkeypatch, tmp_path):
    path = tight._path(kind)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == tight._DIGESTS[kind]
    table = np.frombuffer(path.read_bytes(), dtype="<u2").reshape(-1, FINITE.size)
    assert len(table) == tight._COLUMNS[kind]
    for column in (3, 83, 141):
        again = tight.tabulate(kind, column)
        assert np.abs(again.astype(int) - table[column]).max() <= 1  # another machine may round otherwise
    torn = tmp_path / "torn.bin"
    torn.write_bytes(b"\0" * path.stat().st_size)  # free of charge
    monkeypatch.setattr(tight, "_path", lambda _: torn)
    tight._shares.cache_clear()
    assert tight._chord(kind, 0.1, ORDERS, 1.0) is None
    tight._shares.cache_clear()


@pytest.mark.parametrize("shift", [0.4, 0.0241, 0.0011])
@pytest.mark.parametrize("price", [tight.gaussian_argmax, tight.gaussian_screen])
def test_prices_are_hardly_above_the_search(shift, price, monkeypatch):
    prices = np.array(price.__wrapped__(shift, ORDERS)[:-1])
    for name in ("argmax", "screen"):
        monkeypatch.setattr(tight, name, lambda *_: None)
    searched = np.array(price.__wrapped__(shift, ORDERS)[:-1])
    assert np.all(prices <= searched * 1.0013)
    assert not np.array_equal(prices, searched)


def test_prices_are_convex_in_the_shift():
    """What chords rest on; the proof is in docs/proof.md."""
    for order in (1.5, 16.0):
        shifts = np.linspace(0.02, 0.11, 4)
        values = [tight.argmax_supremum(shift, np.array([order]))[0] for shift in shifts]
        assert np.all(np.diff(values, 2) > 0)


def test_an_outcome_whose_chance_stays_adds_nothing():
    assert (tight._term(np.array([0.0, 0.5]), np.zeros(2), np.array([2.0, 50.0])) == 0).all()


@pytest.mark.parametrize(
    ("shift", "order"), [(0.0251, 2.0), (0.0251, 52.0), (0.3, 3.0), (0.49, 1.25), (0.95, 2.0)]
)
def test_every_rectangle_is_bounded_by_its_number(shift, order):
    """Random points of random rectangles, many of them around the worst votes of low orders."""
    orders = np.array([order])
    t, u = RNG.uniform(-7, 4, 300), RNG.uniform(-4, 8, 300)
    size = 2.0 ** RNG.integers(-6, 1, (2, 300))
    t[:100], u[:100] = (
        middle - RNG.uniform(0, 1, 100) * side for middle, side in ((0, size[0, :100]), (1.1, size[1, :100]))
    )
    box = tight.Box(t, t + size[0], u, u + size[1])
    bound = tight._excess(tight._plane_corners(math.sqrt(2) * shift, box), orders)[:, 0]
    for _ in range(20):
        x, y = t + RNG.uniform(0, 1, 300) * size[0], u + RNG.uniform(0, 1, 300) * size[1]
        rise = tight.argmax_divergence(shift, (y + x) / math.sqrt(2), (y - x) / math.sqrt(2), orders)[:, 0]
        assert np.all(np.expm1((order - 1) * rise) <= bound * (1 + 1e-7) + 1e-14)


@pytest.mark.parametrize(("shift", "order"), [(0.0251, 2.0), (0.0251, 200.0), (0.3, 3.0)])
def test_what_lies_beyond_the_edges_is_bounded_by_the_formula(shift, order):
    orders = np.array([order])
    line = np.expm1((order - 1) * tight.screen_supremum(math.sqrt(2) * shift, orders))
    bound = tight._far(shift, orders, line)
    edge, tilt = tight._EDGE, (order - 1) * shift
    along = RNG.uniform(-20, 8, 200)
    points = edge + RNG.exponential(0.5, 200)
    ways = [(along, -points), (-points - tilt, along)]  # a, b
    ways += [((points + along) / math.sqrt(2), (points - along) / math.sqrt(2))]  # u large
    ways += [
        ((along + x) / math.sqrt(2), (along - x) / math.sqrt(2))
        for x in (points + shift * 1.5, -points - 1.5 * tilt)
    ]
    for a, b in ways:
        value = tight.argmax_divergence(shift, a, b, orders)[:, 0]
        assert np.all(np.expm1((order - 1) * value) <= bound * (1 + 1e-9))

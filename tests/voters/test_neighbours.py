"""Private-kNN: the k nearest of a fresh sample vote, one unit moves one ballot, and the price covers it."""

import itertools
import math
import pickle
import traceback

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from ostraka import (
    ABSTAIN,
    Adjacency,
    Budget,
    GNMax,
    Ledger,
    LNMax,
    Threshold,
    confident,
    interactive,
    release,
)
from ostraka.core.curve import ORDERS
from ostraka.data import nearest
from ostraka.data.nearest import squared_distances
from ostraka.mechanisms import Subsampled
from ostraka.voters import NeighbourVoter, neighbours
from tests.false_alarm import FALSE_ALARM

TRIALS = 200_000
FINITE = np.array(ORDERS[:-1])
X, Y = load_iris(return_X_y=True)
SECRET = 123.456
# Three crowds far apart: 20 of a crowd take part at rate 0.5, but for a chance of 1.4e-10.
CROWDS, CROWD = np.repeat(np.eye(3) * 9, 100, axis=0), np.repeat(np.arange(3), 100)
PEOPLE = np.array([0, 1, 1, 2, 3, 3, 3, 4, 5, 6])


def ledger(epsilon=1e3):
    return Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=1e-5))


def few(n, seed, n_classes=3, n_features=2):
    """A few rows on a coarse grid, so that many are equally far or equal."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (n, n_features)).astype(float), rng.integers(0, n_classes, n)


def voter(rows, labels, *, groups=None, n_classes=3, **options):
    options = {"k": 3, "sampling_rate": 0.4} | options
    return NeighbourVoter(**options).fit(rows, labels, groups, classes=range(n_classes))


def naive(rows, labels, groups, *, point, k):
    """The ballots of all, by a loop: nearest first, ties by place, the first row of each person."""
    place = np.argsort(groups, kind="stable")
    order = sorted(place, key=lambda row: float(np.sum((rows[row] - point) ** 2)))
    counts, voters_seen = np.zeros(3, dtype=int), set()
    for row in order:
        if groups[row] not in voters_seen and len(voters_seen) < k:
            counts[labels[row]] += 1
            voters_seen.add(groups[row])
    return counts


class Coins:
    """In place of a generator: every way that ``n`` coins can fall, one row each."""

    def __init__(self, n):
        self.sides = np.array(list(itertools.product((0.0, 1.0), repeat=n))).reshape(-1, n)
        self.dealt = 0

    def random(self, shape):
        part = self.sides[self.dealt : self.dealt + shape[0], : shape[1]]
        self.dealt += shape[0]
        assert part.shape == shape
        return part


class InTwoParts:
    """In place of a generator: coins of the nearest two units of every sample, then of the others of some."""

    def __init__(self, sides, some):
        self.parts = [sides[:, :2], *sides[some, None, 2:]]

    def random(self, shape):
        part = self.parts.pop(0)
        assert part.shape == shape
        return part


class Always:
    """In place of a generator: coins of one value."""

    def __init__(self, value):
        self.value = value

    def random(self, shape):
        return np.full(shape, self.value)


def every_sample(model, point):
    """Votes of every sample of the units, from the code itself, with the chance of each."""
    coins = Coins(model._crowd.n_units)
    votes = model.sampled_votes(point, n_trials=len(coins.sides), rng=coins)[0]
    took_part = (coins.sides == 0).sum(axis=1)  # a coin below the rate
    rate, n = model.sampling_rate, model._crowd.n_units
    return votes, rate**took_part * (1 - rate) ** (n - took_part)


def votes_and_chances(model, point):
    votes, chance = every_sample(model, point)
    kinds, which = np.unique(votes, axis=0, return_inverse=True)
    return kinds, np.bincount(which.ravel(), weights=chance)


def log_law(model, mechanism, point):
    """Log probability of every answer, by summing over all samples."""
    kinds, chances = votes_and_chances(model, point)
    terms = mechanism.log_outcomes(kinds) + np.log(chances)[:, None]
    return np.logaddexp.reduce(terms, axis=0)


def divergence(log_p, log_q):
    finite = np.logaddexp.reduce(FINITE[:, None] * log_p + (1 - FINITE[:, None]) * log_q, axis=1)
    return np.append(finite / (FINITE - 1), (log_p - log_q).max())


def largest_divergence(worlds, mechanism, point):
    """Over neighbours and both directions, at every order."""
    largest = np.zeros(len(ORDERS))
    for with_unit, without in worlds:
        log_p, log_q = log_law(with_unit, mechanism, point), log_law(without, mechanism, point)
        largest = np.maximum(largest, np.maximum(divergence(log_p, log_q), divergence(log_q, log_p)))
    return largest


def one_row_more(rows, labels, point, **options):
    """Worlds that differ by a row: each of those given left out, and rows near and far put in."""
    model = voter(rows, labels, **options)
    for out in range(len(rows)):
        yield model, voter(np.delete(rows, out, 0), np.delete(labels, out), **options)
    for at, label in itertools.product((point[0], rows[2], point[0] + 50), range(options["n_classes"])):
        yield voter(np.insert(rows, 3, at, 0), np.insert(labels, 3, label), **options), model


# --- what is counted ---


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 7, 75, 1000])
def test_without_sampling_the_votes_are_the_labels_of_the_nearest_rows(metric, k):
    rng = np.random.default_rng(1)
    rows, labels, points = rng.normal(size=(300, 12)), rng.integers(0, 4, 300), rng.normal(size=(40, 12))
    if metric == "cosine":  # which asks for no length
        rows, points = (table * 10.0 ** rng.integers(-6, 7, (len(table), 1)) for table in (rows, points))
    model = voter(rows, labels, k=k, sampling_rate=1.0, metric=metric, n_classes=4)
    search = NearestNeighbors(n_neighbors=min(k, 300), metric=metric, algorithm="brute").fit(rows)
    want = [np.bincount(labels[near], minlength=4) for near in search.kneighbors(points)[1]]
    np.testing.assert_array_equal(model.vote(points).open(), want)


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 4, 20]), st.booleans())
def test_every_sample_votes_as_a_plain_loop_says(seed, k, grouped):
    rows, labels = few(7, seed)
    people = np.random.default_rng(seed).integers(0, 4, 7) if grouped else np.arange(7)
    point = np.array([[1.0, 1.0]])
    model = voter(rows, labels, k=k, groups=people if grouped else None)
    votes, _ = every_sample(model, point)
    names = np.unique(people)
    depth = model._sampler(point, None).codes.shape[1]
    assert depth == len(names)
    order = [
        people[row]
        for row in sorted(
            np.argsort(people, kind="stable"), key=lambda row: np.sum((rows[row] - point[0]) ** 2)
        )
    ]
    nearest_first = list(dict.fromkeys(order))
    for sides, vote in zip(Coins(len(names)).sides, votes, strict=True):
        present = np.isin(people, [who for who, side in zip(nearest_first, sides, strict=True) if side == 0])
        assert (
            vote.tolist()
            == naive(rows[present], labels[present], people[present], point=point[0], k=k).tolist()
        )


@pytest.mark.parametrize("k", [1, 2, 4])
def test_no_unit_beyond_the_depth_is_missed_or_counted_twice(k, monkeypatch):
    # with a depth of 2 many samples go on beyond it, and must end as if they had known all at once
    rows, labels = few(9, 3)
    point = np.array([[1.0, 1.0]])
    model = voter(rows, labels, k=k)
    want, _ = every_sample(model, point)
    monkeypatch.setattr(neighbours, "_depth", lambda *_: 2)
    sides = Coins(9).sides
    coins = InTwoParts(sides, (sides[:, :2] == 0).sum(axis=1) < k)
    np.testing.assert_array_equal(model.sampled_votes(point, n_trials=512, rng=coins)[0], want)
    assert coins.parts == []


@pytest.mark.parametrize("rate", [0.3, 0.7, 1.0])
def test_the_rate_is_rounded_down_to_what_coins_can_hit(rate):
    """A higher rate would cost more than the price says."""
    model, edge = voter(X, Y, k=200, sampling_rate=rate), math.floor(rate * 2**53)
    for coin, n_ballots in ((edge - 1, 150), (edge, 0)):
        votes = model.sampled_votes(X[:1], n_trials=1, rng=Always(coin / 2**53))
        assert votes.sum() == n_ballots


@pytest.mark.parametrize(("k", "rate"), [(1, 0.01), (30, 0.05), (200, 0.2), (200, 0.9)])
def test_units_beyond_the_depth_are_needed_once_in_a_billion_samples(k, rate):
    from scipy.stats import binom

    depth = neighbours._depth(k, rate, 20.7)
    assert binom.cdf(k - 1, depth, rate) <= 1e-9
    # the least for which Chernoff's bound says so: of fewer than k where a mean is expected
    chernoff = [(mean - k) ** 2 / (2 * mean) for mean in (rate * depth, rate * (depth - 1))]
    assert chernoff[0] >= 20.7 * (1 - 1e-12) > chernoff[1]
    assert neighbours._depth(k, 1.0, 20.7) == k
    few_needed = voter(X, Y, k=5, sampling_rate=0.9)
    assert few_needed._sampler(X[:1], None).codes.shape == (1, neighbours._depth(5, 0.9, 20.7))


@pytest.mark.statistical
def test_votes_are_drawn_by_the_law_of_a_poisson_sample():
    # about 60 comparisons: a correct sampler fails with a chance below 1e-7
    rows, labels = few(9, 8)
    point = np.array([[1.0, 1.0]])
    right = voter(rows, labels, k=3, sampling_rate=0.4)
    samples = right.sampled_votes(point, n_trials=TRIALS, rng=np.random.default_rng(5))[0]

    def plausible(model):
        kinds, chances = votes_and_chances(model, point)
        hits = [int((samples == kind).all(axis=1).sum()) for kind in kinds]
        assert sum(chances) == pytest.approx(1)
        return sum(hits) == TRIALS and all(
            binomtest(hit, TRIALS, min(1.0, chance)).pvalue > FALSE_ALARM
            for hit, chance in zip(hits, chances, strict=True)
        )

    assert plausible(right)
    assert not plausible(voter(rows, labels, k=3, sampling_rate=0.39))
    assert not plausible(voter(rows, labels, k=3, sampling_rate=0.41))
    assert not plausible(voter(rows, labels, k=2, sampling_rate=0.4))
    assert not plausible(voter(rows, labels, k=4, sampling_rate=0.4))


def test_a_smaller_working_memory_changes_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    rows, labels, points = rng.normal(size=(200, 3)), rng.integers(0, 3, 200), rng.normal(size=(31, 3))

    def votes():
        model = voter(rows, labels, k=5)
        return model.vote(points, rng=np.random.default_rng(7)).open()

    want = votes()
    monkeypatch.setattr(nearest, "_CELLS", 1)
    monkeypatch.setattr(nearest, "_LEAST_ROWS", 1)
    monkeypatch.setattr(nearest, "_NUMBERS", 1)
    monkeypatch.setattr(neighbours, "_CELLS", 1)
    np.testing.assert_array_equal(votes(), want)


# --- what one unit moves ---


@pytest.mark.parametrize("groups", [None, PEOPLE])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_one_unit_more_moves_one_ballot_in_every_sample(k, groups):
    point = np.array([[1.0, 1.0]])
    pushed = 0
    for seed in range(8):
        rows, labels = few(len(PEOPLE), seed)
        who = np.arange(len(rows)) if groups is None else groups
        out = np.unique(who)[seed % 5]
        stay = who != out
        model = voter(rows, labels, k=k, groups=groups)
        neighbour_model = voter(
            rows[stay], labels[stay], k=k, groups=None if groups is None else groups[stay]
        )
        # the unit's place among the others, by where its coin alone decides
        votes, _ = every_sample(model, point)
        fewer, _ = every_sample(neighbour_model, point)
        n = model._crowd.n_units
        ranks = [
            place
            for place in range(n)
            if (np.take(votes.reshape(*(2,) * n, 3), 1, axis=place).reshape(-1, 3) == fewer).all()
        ]
        assert ranks, "without the unit, the votes are those of samples it takes no part in"
        moved = np.take(votes.reshape(*(2,) * n, 3), 0, axis=ranks[0]).reshape(-1, 3) - fewer
        assert np.abs(moved).max() <= 1
        assert (np.abs(moved).sum(axis=1) <= 2).all()
        assert set(moved.sum(axis=1).tolist()) <= {0, 1}
        pushed += int((np.abs(moved).sum(axis=1) == 2).sum())
    assert pushed > 0


@pytest.mark.parametrize("n_features", [7, 17, 101])
def test_a_row_put_in_leaves_the_order_of_equally_far_rows_alone(n_features):
    # many equal rows of large norm: a matrix product gives them distances that differ by their place
    rng = np.random.default_rng(4)
    kinds = rng.normal(size=(3, n_features)) + 10
    rows, labels = kinds[rng.integers(0, 3, 257)], rng.integers(0, 5, 257)
    points = rng.normal(size=(17, n_features))
    before = neighbours.Nearest.of(rows.astype(np.float32), labels, None).around(
        points.astype(np.float32), depth=257
    )
    for place in range(0, 257, 32):
        extended = np.insert(rows, place, rng.normal(size=n_features) * 20, 0).astype(np.float32)
        after = neighbours.Nearest.of(extended, np.insert(labels, place, 9), None).around(
            points.astype(np.float32), depth=258
        )
        assert [row[row != 9].tolist() for row in after] == before.tolist()


def distances(rows, point):
    places = np.arange(len(rows))
    return squared_distances(rows, point[None], places, np.zeros_like(places))


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e12, 1e25])
def test_quick_distances_leave_out_no_row_that_is_near(scale):
    rng = np.random.default_rng(9)
    rows = ((rng.normal(size=(500, 6)) + 300) * scale).astype(np.float32)  # far from zero: products cancel
    rows[::50] *= 1e4
    points = ((rng.normal(size=(30, 6)) + 300) * scale).astype(np.float32)
    found = neighbours.Nearest.of(rows, np.arange(500), None).around(points, depth=40)
    for point, codes in zip(points, found, strict=True):
        careful = distances(rows, point)
        assert codes.tolist() == np.argsort(careful, kind="stable")[:40].tolist()


def test_quick_distances_leave_out_no_row_where_rounding_exceeds_what_sets_rows_apart():
    # steps of float32 about 3000, over 200 features: what a product rounds is many times their square
    rng = np.random.default_rng(10)
    step = np.spacing(np.float32(3000))
    rows, points = ((3000 + step * rng.integers(0, 3, (n, 200))).astype(np.float32) for n in (400, 20))
    found = neighbours.Nearest.of(rows, np.arange(400), None).around(points, depth=30)
    for point, codes in zip(points, found, strict=True):
        careful = ((rows.astype(float) - point) ** 2).sum(axis=1)
        assert codes.tolist() == np.argsort(careful, kind="stable")[:30].tolist()


def test_a_row_of_zeros_is_nearer_than_what_points_the_other_way():
    """Of rows of length 1, squared distances are up to 4; zeros are 1 from all of them."""
    rows = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1e-9]])
    model = voter(rows, [0, 1, 2], k=1, sampling_rate=1.0, metric="cosine")
    assert model.vote([[1e-3, 0.0], [0.0, 5.0], [-1.0, -1.0]]).open().tolist() == [
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]


def test_numbers_beyond_measure_are_far_and_nothing_worse():
    rows = np.array([[3e38, 0], [0, 0], [1, 1], [-3e38, 3e38]])
    model = voter(rows, [0, 1, 1, 2], k=2, sampling_rate=1.0)
    assert model.vote([[0.0, 0.0], [3e38, 0]]).open()[0].tolist() == [0, 2, 0]


# --- the price ---


MECHANISMS = [
    GNMax(sigma=1.5),
    LNMax(scale=1.5),
    Threshold(at=2.5, sigma=1.5),
    Threshold(at=2.5, sigma=1.5, noise="every"),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("rate", [0.15, pytest.param(0.6, marks=pytest.mark.slow)])
def test_no_row_added_or_removed_costs_more_than_the_sampled_price(mechanism, rate):
    # exact: every sample of 8 rows, every outcome, every order, both directions
    rows, labels = few(8, 11)
    point = np.array([[1.0, 1.0]])
    bound = np.array(Subsampled(mechanism=mechanism, sampling_rate=rate).curve().rdp)
    for k in (1, 3):
        worlds = one_row_more(rows, labels, point, k=k, sampling_rate=rate, n_classes=3)
        assert (largest_divergence(worlds, mechanism, point) <= bound * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize(("rate", "share"), [(0.6, 0.85), (0.8, 0.95)])
def test_the_sampled_price_is_nearly_reached_and_a_lower_rate_would_not_cover_it(rate, share):
    # all agree but one, who is nearest: in nearly every sample it takes part in, it turns 3:0 into 2:1
    mechanism, point = GNMax(sigma=1.0), np.zeros((1, 2))
    options = {"k": 3, "sampling_rate": rate, "n_classes": 2}
    worlds = one_row_more(np.ones((9, 2)), np.zeros(9, dtype=int), point, **options)
    found = largest_divergence(worlds, mechanism, point)
    right, low = (
        np.array(Subsampled(mechanism=mechanism, sampling_rate=q).curve().rdp) for q in (rate, 0.7 * rate)
    )
    assert found[ORDERS.index(2.0)] >= share * right[ORDERS.index(2.0)]
    assert (found > low).any()


def test_no_person_added_or_removed_costs_more_however_many_rows():
    rows, labels = few(len(PEOPLE), 12)
    point = np.array([[1.0, 1.0]])
    mechanism, rate = GNMax(sigma=1.0), 0.5
    bound = np.array(Subsampled(mechanism=mechanism, sampling_rate=rate).curve().rdp)
    options = {"k": 2, "sampling_rate": rate}
    model = voter(rows, labels, groups=PEOPLE, **options)
    people = [
        (model, voter(rows[stay], labels[stay], groups=PEOPLE[stay], **options))
        for stay in (who != PEOPLE for who in np.unique(PEOPLE))
    ]
    assert (largest_divergence(people, mechanism, point) <= bound * (1 + 1e-9) + 1e-12).all()
    # and groups are what it takes: eight rows of one person, voting one by one, cost more than one ballot
    near, distant = np.zeros((8, 2)), np.ones((2, 2))
    rows, labels = np.concatenate([near, distant]), np.array([0] * 8 + [1] * 2)
    options["k"] = 8
    apart = [(voter(rows, labels, **options), voter(distant, labels[8:], **options))]
    assert (largest_divergence(apart, mechanism, point) > bound * 1.5).any()


@pytest.mark.parametrize("mechanism", [GNMax(sigma=1.0), LNMax(scale=1.0)], ids=str)
def test_a_row_that_is_replaced_costs_no_more_than_the_plain_price(mechanism):
    rows, labels = few(8, 13)
    point = np.array([[1.0, 1.0]])
    model = voter(rows, labels, relation="replace-one", sampling_rate=0.7)
    worlds = []
    for place, at, label in itertools.product((0, 3, 7), ([1.0, 1.0], [0.0, 2.0], [50.0, 0.0]), range(3)):
        replaced_rows, others = rows.copy(), labels.copy()
        replaced_rows[place], others[place] = at, label
        worlds.append((model, voter(replaced_rows, others, relation="replace-one", sampling_rate=0.7)))
    found = largest_divergence(worlds, mechanism, point)
    assert (found <= np.array(mechanism.curve().rdp) * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(
    ("k", "rate"),
    [
        pytest.param(1, 0.3, marks=pytest.mark.slow),
        (2, 0.6),
        pytest.param(3, 0.4, marks=pytest.mark.slow),
        pytest.param(20, 0.7, marks=pytest.mark.slow),
        (3, 0.95),
    ],
)
def test_the_exact_cost_is_the_largest_divergence_over_neighbours_and_directions(mechanism, k, rate):
    # by enumeration of every sample: every unit left out, one of each class put in at every distance
    rows, labels = np.arange(7.0)[:, None], np.array([0, 1, 1, 0, 0, 1, 0])
    point, options = np.array([[-1.0]]), {"k": k, "sampling_rate": rate, "n_classes": 2}
    model = voter(rows, labels, **options)
    worlds = [(model, voter(np.delete(rows, out, 0), np.delete(labels, out), **options)) for out in range(7)]
    worlds += [
        (voter(np.append(rows, [[at - 0.5]], 0), np.append(labels, label), **options), model)
        for at in range(8)
        for label in (0, 1)
    ]
    want = largest_divergence(worlds, mechanism, point)
    got = model.exact_curve(point, mechanism=mechanism)
    assert (np.array(got.rdp) >= want).all()
    np.testing.assert_allclose(got.rdp, want, rtol=1e-7, atol=1e-11)
    assert not got.publishable
    assert got.slack == 0


def test_the_exact_cost_adds_over_queries_and_never_exceeds_the_price():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(400, 2))
    labels = (rows[:, 0] + rng.normal(size=400) > 0).astype(int)
    queries, rate = rng.normal(size=(4, 2)), 0.2
    events = []
    model = voter(
        rows, labels, k=15, sampling_rate=rate, n_classes=2, progress=lambda *what: events.append(what)
    )
    for mechanism in (GNMax(sigma=3.0), Threshold(at=11.0, sigma=3.0)):
        price = np.array(Subsampled(mechanism=mechanism, sampling_rate=rate).curve().rdp)
        single_costs = [
            np.array(model.exact_curve(queries[at : at + 1], mechanism=mechanism).rdp) for at in range(4)
        ]
        assert all((cost <= price).all() for cost in single_costs)
        assert (sum(single_costs) > 0.02 * 4 * price)[ORDERS.index(2.0)]
        np.testing.assert_allclose(
            model.exact_curve(queries, mechanism=mechanism).rdp, sum(single_costs), rtol=1e-9
        )
    assert events[-1] == ("costs", 4, 4)


def test_units_out_of_reach_do_not_change_the_exact_cost(monkeypatch):
    # the nearest of 600 units are followed, against all of them
    rng = np.random.default_rng(4)
    model = voter(rng.normal(size=(600, 1)), rng.integers(0, 2, 600), k=5, sampling_rate=0.5, n_classes=2)
    short = model.exact_curve([[0.0]], mechanism=GNMax(sigma=2.0))
    assert model._sampler([[0.0]], None, rare=80.0).codes.shape[1] < 600
    monkeypatch.setattr(neighbours, "_depth", lambda *_: 600)
    curve = model.exact_curve([[0.0]], mechanism=GNMax(sigma=2.0))
    np.testing.assert_allclose(short.rdp, curve.rdp, rtol=1e-9, atol=1e-12)


def test_the_exact_cost_counts_what_units_out_of_reach_may_change(monkeypatch):
    """A sample reaches them with a chance of e^-80, which is made e^-6 here (docs/neighbours.md)."""
    monkeypatch.setattr(neighbours, "SURELY", 6.0)
    mechanism, codes, point = GNMax(sigma=1.5), np.array([0, 1, 1, 0]), np.array([[-1.0]])
    rows, options = np.arange(4.0)[:, None], {"k": 2, "sampling_rate": 0.4, "n_classes": 2}
    worlds = [voter(rows, codes, **options)]
    worlds += [voter(np.delete(rows, out, 0), np.delete(codes, out), **options) for out in range(4)]
    worlds += [
        voter(np.append(rows, [[at - 0.5]], 0), np.append(codes, label), **options)
        for at in range(5)
        for label in (0, 1)
    ]
    off = math.log1p(
        4 * math.exp(-6) / min(np.exp(log_law(world, mechanism, point)).min() for world in worlds)
    )
    short, whole = (
        neighbours.sampled_rdp(mechanism, codes, k=2, sampling_rate=0.4, orders=ORDERS, whole=is_whole)
        for is_whole in (False, True)
    )
    expected = np.append(off * (2 * FINITE - 1) / (FINITE - 1), 2 * off)
    np.testing.assert_allclose(short - whole, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("k", "rate", "scale", "lost"), [(30, 1.0, 0.05, True), (1, 0.4, 0.05, True), (1, 0.4, 2.0, False)]
)
def test_where_digits_are_lost_the_exact_cost_is_the_price(k, rate, scale, lost):
    # an outcome of chance e^-600, and one that nearly vanishes with the only unit of its class
    labels = np.arange(40) == (0 if k == 1 else 40)
    model = voter(np.arange(40.0)[:, None], labels.astype(int), k=k, sampling_rate=rate, n_classes=2)
    mechanism = LNMax(scale=scale)
    got = np.array(model.exact_curve([[0.0]], mechanism=mechanism).rdp)
    price = np.array(Subsampled(mechanism=mechanism, sampling_rate=rate).curve().rdp)
    assert (got <= price).all()
    assert (got == price).any() == lost


def test_exact_costs_are_refused_for_more_than_two_classes_and_for_what_has_no_law():
    with pytest.raises(ValueError, match="two classes, but there are 3"):
        voter(X, Y).exact_curve(X[:1], mechanism=GNMax(sigma=2.0))
    sampled = Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.2)
    with pytest.raises(TypeError, match="not sampled"):
        voter(X[:100], Y[:100], n_classes=2).exact_curve(X[:1], mechanism=sampled)


def test_the_door_takes_the_sampled_mechanism_and_refuses_what_would_be_too_cheap():
    votes = voter(X, Y, sampling_rate=0.3).vote(X[:2])
    assert votes.adjacency == Adjacency(relation="add-or-remove", sampling_rate=0.3)
    with ledger() as book:
        for rate in (0.3, 0.5, 1.0):
            release(Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=rate), votes, ledger=book)
        for cheap in (Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=0.29), GNMax(sigma=5.0)):
            with pytest.raises(ValueError, match="hides"):
                release(cheap, votes, ledger=book)


def test_prices_of_these_very_votes_do_not_take_votes_that_are_drawn_again():
    from ostraka.accounting import release_epsilon

    votes = voter(X, Y, k=50, sampling_rate=0.9, n_classes=3).vote(X)
    with pytest.raises(ValueError, match="hides"):
        release_epsilon(GNMax(sigma=10.0), votes, delta=1e-5, method="certificate")


def test_rows_that_are_replaced_go_with_the_plain_mechanism_and_no_other():
    votes = voter(X, Y, relation="replace-one").vote(X[:2])
    assert votes.adjacency == Adjacency.one_ballot()
    np.testing.assert_array_equal(votes.open(), votes.open())  # for prices of these very votes
    with ledger() as book:
        assert release(GNMax(sigma=5.0), votes, ledger=book).shape == (2,)
        with pytest.raises(ValueError, match="hides"):
            release(Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=1.0), votes, ledger=book)


# --- fresh samples ---


def test_every_payment_buys_a_sample_of_its_own(monkeypatch):
    draws = []
    draw = neighbours.Sampler.draw
    monkeypatch.setattr(neighbours.Sampler, "draw", lambda self: draws.append(self.shape) or draw(self))
    queries = CROWDS[::20]
    votes = voter(CROWDS, CROWD, k=20, sampling_rate=0.5).vote(queries)
    assert draws == [], "nothing is sampled before it is paid for"
    screen, argmax = (
        Subsampled(mechanism=mechanism, sampling_rate=0.5)
        for mechanism in (Threshold(at=18, sigma=2.0), GNMax(sigma=2.0))
    )
    with ledger() as book:
        answers = confident(votes, screen=screen, argmax=argmax, ledger=book)
        n_answered = int((answers != ABSTAIN).sum())
        assert [entry.uses for entry in book.entries()] == [15, n_answered]
        want = 15 * screen.curve() + n_answered * argmax.curve()
        assert book.epsilon() == pytest.approx(want.epsilon(delta=1e-5), rel=1e-9)
    assert n_answered > 0
    assert (answers[answers != ABSTAIN] == CROWD[::20][answers != ABSTAIN]).all()
    assert draws == [(15, 3), (n_answered, 3)]


def test_answers_paid_twice_come_from_two_samples():
    votes = voter(X, Y, k=150, sampling_rate=0.5).vote(X[:20])
    first, second = votes.open(), votes.open()
    assert (first != second).any(axis=1).sum() > 10
    part = votes[:10]
    assert (part.open() != first[:10]).any()
    assert (part.open() != part.open()).any()
    assert not first.flags.writeable


def test_each_query_has_a_sample_of_its_own():
    votes = voter(X, Y, k=150, sampling_rate=0.5).vote(np.repeat(X[:1], 20, axis=0)).open()
    assert len(np.unique(votes, axis=0)) > 10


def test_each_draw_has_its_own_key_from_the_operating_system(monkeypatch):
    keys = []
    os_keyed = neighbours.os_keyed
    monkeypatch.setattr(neighbours, "os_keyed", lambda: keys.append(1) or os_keyed())
    votes = voter(X, Y).vote(X[:20])
    for _ in range(3):
        votes.open()
    assert len(keys) == 3
    assert type(os_keyed().bit_generator).__name__ == "ChaCha"


def test_a_sample_that_can_be_repeated_hides_nobody():
    model = voter(X, Y, sampling_rate=0.3)
    first, second = (model.vote(X[:5], rng=np.random.default_rng(3)) for _ in range(2))
    assert first.adjacency == Adjacency(relation="add-or-remove", sampling_rate=1.0)
    for votes in (first, second, second):
        np.testing.assert_array_equal(first.open(), votes.open())
    with ledger() as book, pytest.raises(ValueError, match="hides"):
        release(Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=0.3), first, ledger=book)


def test_queries_can_be_selected_before_they_are_sampled():
    model = voter(X, Y, k=150, sampling_rate=1.0)
    votes, counts = model.vote(X[:6]), model.vote(X[:6]).open()
    for rows in (slice(1, 4), [4, 0], np.array([True, False] * 3), 2, -1, slice(0, 0)):
        want = counts[rows if not isinstance(rows, int) else [rows]]
        np.testing.assert_array_equal(votes[rows].open(), want)
        assert votes[rows].adjacency == votes.adjacency
        assert len(votes[rows]) == len(want)
    with pytest.raises(IndexError, match="out of range"):
        votes[6]


def test_votes_give_nothing_away_on_the_way():
    votes = voter(X, Y).vote(X[:4])
    assert repr(votes) == str(votes[:]) == "Private(shape=(4, 3), unit='row')"
    for access in (np.asarray, list, lambda v: v == 0, pickle.dumps, bool):
        with pytest.raises(TypeError, match="opens only"):
            access(votes)
    person = votes.with_adjacency(unit="person")
    assert (person.adjacency.unit, person.shape) == ("person", (4, 3))
    assert (person.open().sum(axis=1) <= 3).all()


def test_interactive_questions_look_at_a_sample_of_their_own():
    model = voter(CROWDS, CROWD, k=20, sampling_rate=0.5)
    votes, guesses = model.vote(CROWDS[[0, 100, 200]]), np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1.0]])
    screen, argmax = (
        Subsampled(mechanism=mechanism, sampling_rate=0.5)
        for mechanism in (Threshold(at=10, sigma=1.5), GNMax(sigma=1.5))
    )
    with ledger() as book:
        answers = interactive(
            votes, guesses, screen=screen, argmax=argmax, n_teachers=20, confidence=0.9, ledger=book
        )
    assert answers.tolist() == [0, 1, 2]


def test_votes_computed_from_an_opened_sample_stay_what_they_are():
    votes = voter(X, Y).vote(X[:4])
    fixed = type(votes)(votes.open() - 1, votes.adjacency)
    np.testing.assert_array_equal(fixed.open(), fixed.open())
    np.testing.assert_array_equal(fixed[1:3].open(), fixed.open()[1:3])
    np.testing.assert_array_equal(fixed.with_adjacency(unit="person").open(), fixed.open())


def test_trials_of_a_query_are_many_and_plain():
    model = voter(X, Y, k=9, sampling_rate=0.3)
    trials = model.sampled_votes(X[:3], n_trials=500)
    assert trials.shape == (3, 500, 3)
    assert type(trials) is np.ndarray
    assert (trials.sum(axis=2) == 9).mean() > 0.99
    assert len(np.unique(trials[1], axis=0)) > 1


# --- features, people, settings ---


class Spy(TransformerMixin, BaseEstimator):
    """Twice the first column, and says what it was asked."""

    def __init__(self, log=None):
        self.asked = log

    def fit(self, X, y=None):
        self.asked.append("fit")
        self.fitted_ = True
        return self

    def transform(self, X):
        self.asked.append(len(X))
        if np.max(X) > 100:
            raise RuntimeError(f"the private value {np.max(X)} is too large")
        return 2 * np.asarray(X)[:, :1]


def test_a_fitted_transformer_is_used_as_it_is_and_never_fitted():
    calls = []
    model = voter(X, Y, transformer=Spy(calls).fit(X[:5]))
    votes = model.vote(X[:10])
    assert calls[0] == "fit"
    assert "fit" not in calls[1:]
    assert votes.shape == (10, 3)
    assert model.n_features_in_ == 1


@pytest.mark.parametrize("unfit", [PCA(2), make_pipeline(PCA(2)), Spy([])])
def test_a_transformer_that_was_not_fitted_is_refused_before_it_sees_a_row(unfit):
    with pytest.raises(ValueError, match="must be fitted on public rows before"):
        voter(X, Y, transformer=unfit)


def test_a_voter_that_is_cloned_needs_its_transformer_frozen():
    pca = PCA(2).fit(X[:20])
    with pytest.raises(ValueError, match="must be fitted on public rows"):
        clone(NeighbourVoter(transformer=pca)).fit(X, Y)
    frozen = clone(NeighbourVoter(transformer=FrozenEstimator(pca))).fit(X, Y)
    assert frozen.n_features_in_ == 2


def test_what_a_transformer_says_about_private_rows_reaches_nobody():
    model = NeighbourVoter(transformer=Spy([]).fit(X))
    model.fit(np.array([[SECRET], [1.0]]), [0, 1])  # what it cannot read is a row of zeros, beside that of 2
    assert model.n_features_in_ == 1
    model.k, model.sampling_rate = 1, 1.0
    assert model.vote([[0.45], [0.7]]).open().tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="cannot read the private rows") as caught:
        model.fit([[SECRET], [SECRET]], [0, 1])
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    model.fit(X, Y)
    with pytest.raises(RuntimeError, match="too large"):  # public rows: what is wrong with them may be said
        model.vote([[SECRET]])


def test_texts_are_compared_by_features_learned_from_public_texts():
    public = ["a good film", "a bad film", "truly good", "truly bad", "no good at all", "so bad it is good"]
    text = make_pipeline(TfidfVectorizer(), TruncatedSVD(3, random_state=0)).fit(public)
    private, labels = ["good", "good good", "bad", "bad film"] * 5, [1, 1, 0, 0] * 5
    model = NeighbourVoter(k=5, sampling_rate=1.0, transformer=text, metric="cosine").fit(private, labels)
    assert model.vote(["a good one", "a bad one"]).open().tolist() == [[0, 5], [5, 0]]


def test_features_of_many_empty_cells_are_refused_with_the_way_out():
    words = TfidfVectorizer().fit(["a good film", "a bad film"])
    with pytest.raises(ValueError, match="TruncatedSVD"):
        NeighbourVoter(transformer=words).fit(["good film", "bad film"], [1, 0])


def test_a_person_with_many_rows_casts_one_ballot_that_of_the_nearest():
    rows = np.array([[0.0], [0.1], [0.2], [1.0], [2.0]])
    labels, people = [0, 0, 0, 1, 2], ["ann", "ann", "ann", "bob", "eve"]
    votes = voter(rows, labels, groups=people, k=2, sampling_rate=1.0).vote([[0.0], [1.1]])
    assert votes.adjacency.unit == "person"
    assert votes.open().tolist() == [[1, 1, 0], [0, 1, 1]]


def test_frames_and_text_labels_are_taken():
    frame = pd.DataFrame(X)
    names = np.array(["setosa", "versicolor", "virginica"])
    model = NeighbourVoter(k=9, sampling_rate=1.0).fit(frame, names[Y])
    assert model.classes_.tolist() == names.tolist()
    assert model.vote(frame[:3]).open().tolist() == [[9, 0, 0]] * 3
    assert model.vote(frame[105:106]).open().tolist() == [[0, 0, 9]]
    assert "taken from the private labels" in model.notes_[0]
    assert model.fit(frame, names[Y], classes=[*names, "albino"]).notes_ == []


def test_progress_tells_of_features_and_neighbours(monkeypatch):
    events = []
    monkeypatch.setattr(nearest, "_CELLS", 1500)
    monkeypatch.setattr(nearest, "_LEAST_ROWS", 1)
    model = voter(X, Y, progress=lambda *what: events.append(what))
    model.vote(X[:25])
    assert events == [
        ("features", 150, 150),
        ("neighbours", 10, 25),
        ("neighbours", 20, 25),
        ("neighbours", 25, 25),
    ]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"k": 0}, "k must be"),
        ({"k": 2.5}, "k must be"),
        ({"sampling_rate": 0}, "sampling_rate must be"),
        ({"sampling_rate": 1.1}, "sampling_rate must be at most 1"),
        ({"sampling_rate": math.nan}, "sampling_rate must be"),
        ({"metric": "manhattan"}, "metric must be one of euclidean, cosine"),
        ({"relation": "swap"}, "relation must be one of"),
        ({"transformer": "pca"}, "method transform, got a str"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, what):
    with pytest.raises(ValueError, match=what):
        voter(X, Y, **options)
    later = voter(X, Y).set_params(**options)
    with pytest.raises(ValueError, match=what):
        later.vote(X)


@pytest.mark.parametrize(
    ("rows", "labels", "groups", "what"),
    [
        ([[SECRET, math.nan]] * 2, [0, 1], None, "must be finite"),
        ([[SECRET, "Smith"]] * 2, [0, 1], None, "must have numbers"),
        ([SECRET, SECRET], [0, 1], None, "shape"),
        (np.empty((0, 2)), [], None, "one row or more"),
        ([[SECRET]] * 2, [0], None, "one label for each of 2 rows"),
        ([[SECRET]] * 2, [0, 1], ["ann"], "one person for each row"),
        ([[SECRET]] * 2, [0, SECRET], None, "declared classes|Unknown label"),
    ],
)
def test_bad_rows_are_refused_without_being_quoted(rows, labels, groups, what):
    with pytest.raises(ValueError, match=what) as caught:
        voter(rows, labels, groups=groups)
    text = "".join(traceback.format_exception(caught.value, chain=True, limit=0))
    assert str(SECRET) not in text
    assert "Smith" not in text


def test_questions_of_another_shape_are_refused():
    model = voter(X, Y)
    with pytest.raises(ValueError, match="X has 2 features, but the private rows have 4"):
        model.vote(X[:, :2])
    with pytest.raises(NotFittedError):
        NeighbourVoter().vote(X)
    with pytest.raises(ValueError, match="n_trials"):
        model.sampled_votes(X[:1], n_trials=0)


@pytest.mark.parametrize("n_units", [99, 100, 300])
def test_replacing_a_unit_never_changes_how_many_ballots_are_cast(n_units):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(n_units, 3)), rng.integers(0, 2, n_units)
    voter = NeighbourVoter(k=200, sampling_rate=1.0, relation="replace-one")
    cast = set()
    for replaced in range(3):
        rows[0], labels[0] = 10.0**replaced, replaced % 2
        votes = voter.fit(rows, labels, classes=[0, 1]).vote(rng.normal(size=(4, 3)))
        cast |= set(votes.open().sum(axis=1).tolist())
    assert cast == {min(200, n_units)}

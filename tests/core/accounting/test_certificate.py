"""Certificates: distances on every small table, the inequality of Theorem 3 by mpmath, and what leaves."""

import itertools
import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import binomtest

from ostraka.core.accounting.publish import (
    UNIT,
    Certificate,
    _claims,
    _guess,
    _raised,
    cost_levels,
    plan_certificate,
    worst,
)
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.private import Adjacency, Private
from ostraka.mechanisms import Confident, GNMax, LNMax, Threshold
from tests.false_alarm import FALSE_ALARM

SMALL = Certificate(
    mechanism=GNMax(sigma=2.0), n_teachers=6, n_classes=2, n_queries=2, order=2.0, noise=1.0, agreement=0.5
)
MANY = Certificate(mechanism=GNMax(sigma=2.0), n_teachers=8, n_classes=3, n_queries=1, order=2.0, noise=1.5)
SCREENED = Confident(screen=Threshold(at=4, sigma=3.0), argmax=GNMax(sigma=2.0))
PAIR = replace(MANY, mechanism=SCREENED, n_teachers=9, n_queries=2, n_screened=1)
BIG = Certificate(
    mechanism=GNMax(sigma=40.0), n_teachers=250, n_classes=2, n_queries=500, order=12.0, noise=8.0
)


def histograms(n_teachers, n_classes):
    rows = itertools.product(range(n_teachers + 1), repeat=n_classes)
    return [row for row in rows if sum(row) == n_teachers]


def every_table(certificate):
    """Every votes table; of a pair, the screened and the answered row are the same query."""
    rows = histograms(certificate.n_teachers, certificate.n_classes)
    if certificate.n_screened:
        return [np.array([row, row], dtype=float) for row in rows]
    return [np.array(table, dtype=float) for table in itertools.product(rows, repeat=certificate.n_queries)]


def one_ballot_apart(table, neighbour):
    return bool((np.abs(table - neighbour).sum(axis=1) <= 2).all())


@pytest.mark.parametrize("certificate", [SMALL, replace(SMALL, mechanism=LNMax(scale=1.0)), MANY, PAIR])
def test_one_ballot_moves_the_distance_by_at_most_one(certificate):
    tables = every_table(certificate)
    distance = [certificate.distance(table) for table in tables]
    steps = [
        abs(distance[i] - distance[j])
        for i, j in itertools.combinations(range(len(tables)), 2)
        if one_ballot_apart(tables[i], tables[j])
    ]
    assert max(steps) == 1
    assert len(set(distance)) > 2


@pytest.mark.parametrize("certificate", [SMALL, MANY, PAIR])
def test_the_guess_worsened_by_the_distance_covers_the_votes_at_every_distance(certificate):
    lowest, guess = _guess(certificate)
    steps = cost_levels(
        certificate.mechanism, n_teachers=certificate.n_teachers, n_classes=certificate.n_classes, order=2.0
    )
    for table in every_table(certificate):
        parts = [(step, step.levels(table if len(steps) == 1 else table[:1])) for step in steps]
        costs = worst(parts, certificate.n_teachers) * UNIT
        at = certificate.distance(table) - lowest + np.arange(len(costs))
        assert (costs <= guess[np.minimum(at, len(guess) - 1)]).all()
        # no smaller distance would do
        tight = at[0] == 0 or any(
            c > guess[x - 1] for c, x in zip(costs, at, strict=True) if 0 < x <= len(guess)
        )
        assert tight


@pytest.mark.parametrize(
    "certificate",
    [
        SMALL,
        MANY,
        PAIR,
        *(
            pytest.param(big, marks=pytest.mark.slow)
            for big in (BIG, replace(BIG, noise=20.0, order=30.0, margin=0.0))
        ),
    ],
)
def test_the_bound_satisfies_the_inequality_of_theorem_3(certificate):
    """E exp(-t U(round(N(x - t, noise²)))) <= exp(-t F(x)), t = order - 1, at every whole x, by mpmath."""
    (lowest, guess), (first, claims) = _guess(certificate), _claims(certificate)
    with mp.workdps(40):
        tilt, noise = mp.mpf(certificate.order) - 1, mp.mpf(certificate.noise)
        values = [mp.exp(-tilt * mp.mpf(claim)) for claim in claims]
        closest = -mp.inf
        for x in range(lowest, lowest + len(guess), max(1, len(guess) // 12)):
            edges = [(first + j + mp.mpf(1) / 2 - (x - tilt)) / noise for j in range(len(claims) - 1)]
            below = [mp.mpf(0), *(mp.ncdf(edge) for edge in edges), mp.mpf(1)]
            total = mp.fsum(v * (b - a) for v, a, b in zip(values, below[:-1], below[1:], strict=True))
            short = mp.log(total) / tilt + mp.mpf(guess[x - lowest])
            assert short <= 0
            closest = max(closest, short)
        assert closest > -0.2 * max(guess)
    assert (np.diff(claims) >= 0).all()


def test_answers_and_certificate_together_are_as_private_as_the_published_epsilon():
    """Every pair of neighbours, the whole joint law: sum of (P - e^eps(u) P')_+ is at most delta."""
    certificate, sigma, delta = SMALL, SMALL.mechanism.sigma, 0.2
    first, claims = _claims(certificate)
    cost = certificate.curve().rdp[ORDERS.index(certificate.order)]
    epsilon = np.array([Curve((2.0,), (claim + cost,)).epsilon(delta) for claim in claims])
    tables = every_table(certificate)
    laws = []
    for table in tables:
        x = (2 * table[:, 0] - 6) / (math.sqrt(2) * sigma)
        law = np.exp(np.add.outer(*(np.stack([log_ndtr(v), log_ndtr(-v)]) for v in x))).ravel()
        edges = (first + np.arange(len(claims) - 1) + 0.5 - certificate.distance(table)) / certificate.noise
        laws.append(np.multiply.outer(law, np.diff(np.concatenate([[0.0], ndtr(edges), [1.0]]))))
    largest = 0.0
    for i, j in itertools.permutations(range(len(tables)), 2):
        if one_ballot_apart(tables[i], tables[j]):
            largest = max(largest, np.clip(laws[i] - np.exp(epsilon) * laws[j], 0, None).sum())
    assert delta / 4 < largest <= delta


def test_answers_may_decide_how_many_questions_are_asked():
    """Theorem 3a: one question if the first class wins, else two and a certificate; every threshold."""
    certificate, sigma, delta = SMALL, SMALL.mechanism.sigma, 0.2
    first, claims = _claims(certificate)
    cost = certificate.curve().rdp[ORDERS.index(2.0)]
    unit_cost = certificate.mechanism.curve().rdp[ORDERS.index(2.0)]
    once, two = (Curve((2.0,), (c,)).epsilon(delta) for c in (unit_cost, 2 * unit_cost + cost))
    published = [min(two, Curve((2.0,), (claim + cost,)).epsilon(delta)) for claim in claims]
    numbers = np.concatenate([[once], published, published])
    tables, laws = every_table(certificate), []
    for table in tables:
        x = (2 * table[:, 0] - 6) / (math.sqrt(2) * sigma)
        edges = (first + np.arange(len(claims) - 1) + 0.5 - certificate.distance(table)) / certificate.noise
        law = np.diff(np.concatenate([[0.0], ndtr(edges), [1.0]]))
        second = np.outer([ndtr(x[1]), ndtr(-x[1])], law).ravel()
        laws.append(np.concatenate([[ndtr(x[0])], ndtr(-x[0]) * second]))
    largest = 0.0
    for i, j in itertools.permutations(range(len(tables)), 2):
        if one_ballot_apart(tables[i], tables[j]):
            for e in np.unique(numbers):
                law = (numbers <= e) * np.clip(laws[i] - np.exp(e) * laws[j], 0, None)
                largest = max(largest, law.sum())
    assert delta / 10 < largest <= delta


@pytest.mark.parametrize(
    "certificate", [SMALL, BIG, replace(BIG, confidence=0.999), replace(BIG, margin=0.0)]
)
def test_the_bound_is_at_least_the_cost_as_often_as_it_says(certificate):
    (lowest, guess), (first, claims) = _guess(certificate), _claims(certificate)
    draws = first + np.arange(len(claims))
    miss = 0.0
    for x in range(lowest, lowest + len(guess), 3):
        chance = np.diff(np.concatenate([[0.0], ndtr((draws[:-1] + 0.5 - x) / certificate.noise), [1.0]]))
        miss = max(miss, chance[claims < guess[x - lowest]].sum())
    assert miss <= certificate.below() <= 1 - certificate.confidence
    assert certificate.below() < miss + 0.02


def test_the_published_number_is_the_distance_with_its_noise():
    table = np.array([[6.0, 0.0], [4.0, 2.0]])
    votes, rng, trials = Private(table, Adjacency.one_ballot()), np.random.default_rng(20), 3000
    published = np.array([SMALL.release(votes, rng=rng) for _ in range(trials)])
    assert published.dtype == np.int64
    at = SMALL.distance(table) + 1

    def plausible(noise, centre):
        chance = ndtr((at + 0.5 - centre) / noise)
        return binomtest(int((published <= at).sum()), trials, chance).pvalue > FALSE_ALARM

    assert plausible(1.0, at - 1)
    assert not plausible(0.7, at - 1)
    assert not plausible(1.5, at - 1)
    assert not plausible(1.0, at)
    assert not plausible(1.0, at - 2)


def test_publishing_costs_a_gaussian_of_sensitivity_one():
    assert BIG.curve().rdp[ORDERS.index(12.0)] == pytest.approx(12 / (2 * 64), rel=1e-12)
    assert BIG.curve().mu_squared == pytest.approx(1 / 64, rel=1e-12)
    assert BIG.curve().publishable
    assert BIG.uses(Private(np.zeros((500, 2)), Adjacency.one_ballot())) == 1


def test_the_bound_is_never_more_than_a_little_above_any_votes_and_never_less_than_nothing():
    cap = 500 * BIG.mechanism.curve().rdp[ORDERS.index(12.0)]
    assert 0 <= BIG.bound(-(10**6)) <= BIG.bound(0) <= BIG.bound(10**6) <= 1.1 * cap
    assert BIG.expected() == pytest.approx(
        np.mean([BIG.bound(k) for k in np.rint(np.random.default_rng(1).normal(scale=8, size=4000))]),
        rel=0.02,
    )


@pytest.mark.parametrize("n_queries", [30, 500])
def test_a_plan_reads_no_votes_and_beats_its_neighbours(n_queries):
    sizes = {"n_teachers": 250, "n_classes": 2, "n_queries": n_queries, "delta": 1e-5}
    plan = plan_certificate(GNMax(sigma=40.0), **sizes)

    def hoped(certificate):
        rdp = certificate.expected() + certificate.curve().rdp[ORDERS.index(certificate.order)]
        return Curve((certificate.order,), (rdp,)).epsilon(1e-5)

    for change in ({"noise": plan.noise * 2}, {"noise": plan.noise / 2}, {"margin": 0.0}, {"margin": 4.0}):
        assert hoped(plan) < hoped(replace(plan, **change))
    elsewhere = plan_certificate(GNMax(sigma=40.0), **sizes, orders=(ORDERS[ORDERS.index(plan.order) + 6],))
    assert hoped(plan) < hoped(elsewhere)
    assert eval(repr(plan)) == plan  # what is published with the number makes the bound again


def test_a_better_guess_is_a_smaller_bound_and_a_wrong_one_still_covers():
    margins = np.concatenate([np.linspace(0, 1, 40), np.linspace(0.9, 1, 160)])
    first = np.rint(125 * (1 + margins))
    counts = np.stack([first, 250 - first], axis=1)
    claims = {}
    for agreement in (0.0, 0.8, 1.0):
        plan = plan_certificate(
            GNMax(sigma=40.0), n_teachers=250, n_classes=2, n_queries=200, delta=1e-5, agreement=agreement
        )
        (scale,) = cost_levels(plan.mechanism, n_teachers=250, n_classes=2, order=plan.order)
        claims[agreement] = plan.bound(plan.distance(counts))
        assert claims[agreement] >= worst([(scale, scale.levels(counts))], 0)[0] * UNIT
    assert claims[0.8] < claims[0.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"order": 4.1}, "order must be a finite one"),
        ({"order": math.inf}, "order must be a finite one"),
        ({"agreement": 1.5}, "agreement"),
        ({"confidence": 1.0}, "confidence"),
        ({"noise": 0.0}, "noise"),
        ({"n_queries": 0}, "n_queries"),
        ({"n_screened": 1}, "n_screened"),
        ({"mechanism": SCREENED, "n_classes": 3}, "n_screened"),
    ],
)
def test_wrong_parameters_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **change)


def test_votes_of_another_shape_are_refused_without_showing_them():
    with pytest.raises(ValueError, match="6 ballots a row") as caught:
        SMALL.distance([[5, 0], [5, 0]])
    assert "5" not in str(caught.value)
    with pytest.raises(ValueError, match="shape"):
        SMALL.distance([[6, 0]])
    with pytest.raises(ValueError, match="larger delta"):
        plan_certificate(GNMax(sigma=2.0), n_teachers=6, n_classes=2, n_queries=2, delta=1e-5, orders=())


def test_the_second_part_of_a_pair_is_read_where_it_stands():
    sure, torn = [9.0, 0.0, 0.0], [5.0, 4.0, 0.0]
    pair = replace(PAIR, n_queries=12, n_screened=6)
    assert pair.distance([sure] * 6 + [torn] * 6) > pair.distance([sure] * 12)
    assert pair.distance([torn] * 6 + [sure] * 6) > pair.distance([sure] * 12)


def test_a_larger_number_is_never_a_smaller_bound_even_on_a_cliff():
    cliff = np.repeat([0.0, 1.0, 5.0, 5.2], 10)
    for noise, margin in itertools.product((1.0, 4.0), (0.0, 2.0)):
        assert (np.diff(_raised(cliff, 3.0, noise, margin)) >= 0).all()

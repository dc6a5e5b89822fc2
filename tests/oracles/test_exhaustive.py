"""Every histogram of few teachers and classes, every neighbour, every order: no bound is ever too low."""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.accounting import moments2017_curve, papernot2018_curve
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.curve import ORDERS

SIZES = {2: 12, 3: 8, 4: 6, 5: 4}  # classes: at most so many teachers
FINITE = np.array(ORDERS[:-1])
ROUNDING = 1e-12  # of the divergences below: 1e-16 of exponents up to 1e4, over order - 1

ARGMAXES = [
    *(GNMax(sigma=sigma) for sigma in (0.5, 2.0, 40.0)),
    *(LNMax(scale=scale) for scale in (0.5, 2.0, 20.0)),
]
SCREENS = [
    Threshold(at=at, sigma=sigma, noise=noise)
    for at, sigma in ((3, 0.5), (4.5, 2.0), (2, 40.0))
    for noise in ("largest", "every")
]
PAIRS = [
    Confident(screen=screen, argmax=GNMax(sigma=sigma))
    for screen, sigma in zip(SCREENS, (0.5, 2.0, 2.0, 0.5, 40.0, 40.0), strict=True)
]
MECHANISMS = [*ARGMAXES, *SCREENS, *PAIRS]


@cache
def histograms(n_classes):
    """All of them, for one teacher and more; and every (from, to) one ballot apart, as rows of indices."""
    rows = [
        row
        for row in itertools.product(range(SIZES[n_classes] + 1), repeat=n_classes)
        if 1 <= sum(row) <= SIZES[n_classes]
    ]
    place = {row: at for at, row in enumerate(rows)}
    pairs = []
    for row in rows:
        for i, j in itertools.permutations(range(n_classes), 2):
            if row[i]:
                moved = list(row)
                moved[i], moved[j] = moved[i] - 1, moved[j] + 1
                pairs.append((place[row], place[tuple(moved)]))
    return np.array(rows, dtype=float), np.array(pairs)


@cache
def silences(n_classes):
    """Every (from, to) where one teacher falls silent, as rows of indices into ``histograms``."""
    rows, _ = histograms(n_classes)
    place = {tuple(row): at for at, row in enumerate(rows)}
    pairs = [
        (at, place[tuple(row - ballot)])
        for at, row in enumerate(rows)
        for ballot in np.eye(n_classes)
        if tuple(row - ballot) in place
    ]
    return np.array(pairs)


def log_law(mechanism, counts):
    if not isinstance(mechanism, Confident):
        return mechanism.log_outcomes(counts)
    passes, stops = mechanism.screen.log_outcomes(counts).T
    return np.concatenate([mechanism.argmax.log_outcomes(counts) + passes[:, None], stops[:, None]], axis=1)


def divergences(log_p, log_q):
    """Rényi divergences of all pairs at all orders, in logs throughout."""
    lam = (log_p - log_q)[:, None]
    terms = log_q[:, None] + FINITE[:, None] * lam
    top = terms.max(axis=2)
    finite = (np.log(np.exp(terms - top[..., None]).sum(axis=2)) + top) / (FINITE - 1)
    return np.concatenate([finite, lam.max(axis=2)], axis=1)


@cache
def all_divergences(mechanism, n_classes):
    """D(M(h) || M(h')) for every ordered pair of neighbours: both directions of each are among them."""
    rows, pairs = histograms(n_classes)
    log_p = log_law(mechanism, rows)
    return divergences(log_p[pairs[:, 0]], log_p[pairs[:, 1]])


def never_above(divergence, bound):
    return bool((divergence <= np.asarray(bound) * (1 + 1e-9) + ROUNDING).all())


def price(mechanism, **bound):
    return mechanism.curve(**bound).rdp


every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)


@every_mechanism
def test_no_divergence_exceeds_the_tight_or_the_classic_price(mechanism):
    tight, classic = price(mechanism), price(mechanism, bound="classic")
    assert np.all(np.array(tight) <= classic)
    for n_classes in SIZES:
        assert never_above(all_divergences(mechanism, n_classes), tight)


@every_mechanism
def test_a_teacher_that_falls_silent_or_speaks_up_costs_no_more_and_exactly_what_is_said(mechanism):
    for n_classes, n_most in SIZES.items():
        rows, _ = histograms(n_classes)
        log_p = log_law(mechanism, rows)
        speaks, silent = silences(n_classes).T
        directions = [divergences(log_p[a], log_p[b]) for a, b in ((speaks, silent), (silent, speaks))]
        assert all(never_above(costs, price(mechanism)) for costs in directions)
        largest = np.zeros((len(rows), len(ORDERS)))
        for found in directions:
            np.maximum.at(largest, speaks, found)
            np.maximum.at(largest, silent, found)
        inner = (rows.sum(axis=1) > 1) & (rows.sum(axis=1) < n_most)  # all neighbours are listed
        exact = exact_rdp(mechanism, rows[inner], relation="add-or-remove")
        np.testing.assert_allclose(exact, largest[inner], rtol=1e-8, atol=ROUNDING)


@pytest.mark.parametrize("mechanism", [*ARGMAXES, *PAIRS[::2]], ids=str)
def test_the_2018_bound_covers_the_direction_it_claims(mechanism):
    answered = {"answered": [True]} if isinstance(mechanism, Confident) else {}
    bound = cache(lambda row: papernot2018_curve(mechanism, [row], **answered).rdp)
    for n_classes in SIZES:
        rows, pairs = histograms(n_classes)
        bounds = np.array([bound(tuple(sorted(row, reverse=True))) for row in rows])
        assert never_above(all_divergences(mechanism, n_classes), bounds[pairs[:, 0]])


@pytest.mark.parametrize("mechanism", [m for m in ARGMAXES if isinstance(m, LNMax)], ids=str)
def test_the_2017_moments_cover_the_direction_they_claim(mechanism):
    bound = cache(lambda row: moments2017_curve(mechanism, [row]).rdp)
    orders = [ORDERS.index(order) for order in moments2017_curve(mechanism, [[1, 0]]).orders]
    for n_classes in SIZES:
        rows, pairs = histograms(n_classes)
        bounds = np.array([bound(tuple(sorted(row, reverse=True))) for row in rows])
        assert never_above(all_divergences(mechanism, n_classes)[:, orders], bounds[pairs[:, 0]])


def test_the_tight_price_is_nearly_reached():
    for mechanism, share in ((GNMax(sigma=2.0), 0.95), (LNMax(scale=2.0), 0.8), (SCREENS[2], 0.95)):
        largest = np.max([all_divergences(mechanism, n_classes).max(axis=0) for n_classes in SIZES], axis=0)
        at = ORDERS.index(2.0)
        assert largest[at] >= share * price(mechanism)[at]


def test_one_law_for_screen_and_answer_is_cheaper_than_two_payments():
    screen, argmax = PAIRS[2].screen, PAIRS[2].argmax
    rows, _ = histograms(3)
    at = [ORDERS.index(order) for order in (2.0, 8.0, math.inf)]
    first, second = (exact_rdp(m, rows)[:, at] for m in (Confident(screen=screen, argmax=argmax), argmax))
    assert (first <= exact_rdp(screen, rows)[:, at] + second + ROUNDING).all()
    assert first.sum() < 0.95 * (exact_rdp(screen, rows)[:, at] + second).sum()

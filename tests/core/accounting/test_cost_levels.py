"""Costs by level against closed forms and quadrature; worst cases against every table of a few ballots."""

import itertools
import math
from functools import lru_cache

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from ostraka.core.accounting.publish import UNIT, _censored_gaussian, _censored_pure, cost_levels, worst
from ostraka.core.accounting.smooth import check_ballots
from ostraka.core.curve import ORDERS
from ostraka.mechanisms import Confident, GNMax, LNMax, Threshold

ROUNDING = 1e-7  # relative, what costs may be above the truth
FLOOR = 2e-11  # nats, likewise: one unit and what cancels


def renyi(log_p, log_q, order):
    return logsumexp(order * log_p + (1 - order) * log_q, axis=-1) / (order - 1)


def gaussian_law(gap, sigma):
    """Two classes, GNMax: the closed form, in logs."""
    x = np.asarray(gap, dtype=float) / (math.sqrt(2) * sigma)
    return np.stack([log_ndtr(x), log_ndtr(-x)], axis=-1)


def quadrature_law(counts, sigma):
    """Any number of classes, GNMax: the trapezoid rule on E_z prod_i Phi(z + (h_k - h_i) / sigma)."""
    z = np.linspace(-12, 12, 801)
    gaps = (counts[..., :, None] - counts[..., None, :])[..., None] / sigma
    log_beats = log_ndtr(gaps + z).sum(axis=-2) - log_ndtr(z)
    return logsumexp(log_beats - z**2 / 2 - math.log(2 * math.pi) / 2 + math.log(z[1] - z[0]), axis=-1)


def tables(n_teachers, n_classes):
    """Every histogram of so many ballots."""
    rows = itertools.product(range(n_teachers + 1), repeat=n_classes)
    return np.array([row for row in rows if sum(row) == n_teachers])


def moves(row):
    """Every histogram one ballot away."""
    for giver, taker in itertools.permutations(range(len(row)), 2):
        if row[giver] > 0:
            near = row.copy()
            near[giver] -= 1
            near[taker] += 1
            yield near


@pytest.mark.parametrize("order", [2.0, 8.0, 17.0])
def test_two_classes_cost_their_largest_divergence_rounded_up(order):
    n_teachers, sigma = 30, 7.0
    (scale,) = cost_levels(GNMax(sigma=sigma), n_teachers=n_teachers, n_classes=2, order=order)
    with mp.workdps(50):

        def divergence(a, b):
            p, q = (mp.ncdf((2 * x - n_teachers) / (mp.sqrt(2) * sigma)) for x in (a, b))
            return mp.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (
                order - 1
            )

        for first in range(n_teachers + 1):
            others = [x for x in (first - 1, first + 1) if 0 <= x <= n_teachers]
            truth = max(max(divergence(first, x), divergence(x, first)) for x in others)
            got = int(scale.cost[first]) * mp.mpf(UNIT)
            assert truth <= got <= truth * (1 + ROUNDING) + FLOOR


def test_where_two_classes_stand_is_the_first_count():
    counts = np.array([[30.0, 0.0], [7.0, 23.0]])
    (scale,) = cost_levels(LNMax(scale=9.0), n_teachers=30, n_classes=2, order=4.0)
    assert scale.levels(counts).tolist() == [30, 7]


@pytest.mark.parametrize(
    "mechanism",
    [
        GNMax(sigma=2.0),
        LNMax(scale=2.0),
        Confident(screen=Threshold(at=4, sigma=2.0), argmax=GNMax(sigma=2.0)),
    ],
)
def test_the_worst_case_within_k_ballots_is_found_by_looking_at_every_table(mechanism):
    n_teachers, n_queries, order = 5, 2, 4.0
    (scale,) = cost_levels(mechanism, n_teachers=n_teachers, n_classes=2, order=order)
    everything = np.array(list(itertools.product(range(n_teachers + 1), repeat=n_queries)))
    costs = scale.cost[everything].sum(axis=1)
    for table in everything:
        distances = np.abs(everything - table).max(axis=1)
        truth = [costs[distances <= k].max() for k in range(n_teachers + 1)]
        assert worst([(scale, table)], n_teachers).tolist() == truth


def test_no_data_set_within_k_teachers_costs_more_than_the_worst_case():
    n_teachers, n_queries = 4, 2
    (scale,) = cost_levels(GNMax(sigma=1.5), n_teachers=n_teachers, n_classes=2, order=3.0)
    # every way the teachers can vote: one row a data set, one column a teacher, bits are queries
    votes = np.array(list(itertools.product(range(2**n_queries), repeat=n_teachers)))
    first = np.stack([(votes >> query & 1).sum(axis=1) for query in range(n_queries)], axis=1)
    costs = scale.cost[first].sum(axis=1)
    reached = 0
    for data in range(0, len(votes), 7):
        bound = worst([(scale, first[data])], n_teachers)
        apart = (votes != votes[data]).sum(axis=1)
        truth = [costs[apart <= k].max() for k in range(n_teachers + 1)]
        assert (bound >= truth).all()
        reached += bound.tolist() == truth
    assert reached > 0


@lru_cache
def pairs(mechanism, n_teachers, n_classes):
    """Every histogram, and the laws of all pairs one ballot apart: where from, law, neighbour's law."""
    rows = tables(n_teachers, n_classes)
    law = (
        quadrature_law(rows, mechanism.sigma)
        if isinstance(mechanism, GNMax)
        else mechanism.log_outcomes(rows)
    )
    place = {tuple(row): i for i, row in enumerate(rows.tolist())}
    steps = [(i, place[tuple(near.tolist())]) for i, row in enumerate(rows) for near in moves(row)]
    base, neighbour = np.array(steps).T
    return rows, base, law[base], law[neighbour]


@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
@pytest.mark.parametrize(
    ("mechanism", "n_teachers", "n_classes"),
    [
        (GNMax(sigma=2.0), 14, 3),
        (GNMax(sigma=6.0), 14, 3),
        (GNMax(sigma=3.0), 9, 4),
        (LNMax(scale=2.0), 14, 3),
        (LNMax(scale=8.0), 14, 3),
        (LNMax(scale=3.0), 9, 4),
    ],
)
def test_no_histogram_of_many_classes_costs_more_than_its_level(order, mechanism, n_teachers, n_classes):
    (scale,) = cost_levels(mechanism, n_teachers=n_teachers, n_classes=n_classes, order=order)
    rows, base, law, near = pairs(mechanism, n_teachers, n_classes)
    truth = np.zeros(len(rows))
    np.maximum.at(truth, base, np.maximum(renyi(law, near, order), renyi(near, law, order)))
    got = scale.cost[scale.levels(rows.astype(float))] * UNIT
    assert (truth <= got * (1 + 1e-9) + 1e-12).all()
    assert (got / truth).min() < 2  # and somewhere it is not much more


@pytest.mark.parametrize("order", [1.5, 16.0])
def test_the_cost_of_a_level_is_that_of_its_lower_end(order):
    """Of Theorem 6: of the largest tail at the level, and no larger one."""
    mechanism, rows = LNMax(scale=2.0), tables(14, 3).astype(float)
    (scale,) = cost_levels(mechanism, n_teachers=14, n_classes=3, order=order)
    rest = logsumexp(np.sort(mechanism.log_outcomes(rows), axis=1)[:, :-1], axis=1)
    pure, levels = mechanism.curve().rdp[-1], scale.levels(rows)
    assert levels.tolist() == np.floor(-rest / pure * scale.pace).astype(int).tolist()
    bound = _censored_pure(-levels / scale.pace * pure, pure, order)
    wanted = np.minimum(bound, mechanism.curve().rdp[ORDERS.index(order)])
    np.testing.assert_allclose(scale.cost[levels] * UNIT, wanted, rtol=1e-5, atol=FLOOR)


@pytest.mark.parametrize("order", [1.25, 4.0, 16.0])
@pytest.mark.parametrize("shift", [0.03, 0.4])
def test_a_censored_gaussian_is_bounded_however_its_tail_is_divided(order, shift):
    """Theorem 5 by the formula for one division, in 30 digits; the code looks at 16 cells of divisions."""
    z = np.array([-6.0, -3.0, -1.0, -0.2])
    got = _censored_gaussian(z, shift, order)
    with mp.workdps(30):
        mu, a = mp.mpf(shift), mp.mpf(order)
        scale = mp.exp(a * (a - 1) * mu**2 / 2)
        for point, bound in zip(z, got, strict=True):
            q, largest = mp.ncdf(mp.mpf(point)), 0
            for share in (0.001, 0.25, 0.5, 0.75, 0.999):
                # likelier under the neighbour above x, less likely below y
                x, y = mp.mpf(-ndtri(float(q * share))), mp.mpf(ndtri(float(q * (1 - share))))
                mass, moved = mp.ncdf(x) - mp.ncdf(y), mp.ncdf(x - mu) - mp.ncdf(y - mu)
                forth = scale * (mp.ncdf(-x - (a - 1) * mu) + mp.ncdf(y + (a - 1) * mu))
                back = scale * (mp.ncdf(-x + a * mu) + mp.ncdf(y - a * mu))
                forth += mass**a * moved ** (1 - a)
                back += moved**a * mass ** (1 - a)
                largest = max(largest, mp.log(forth) / (a - 1), mp.log(back) / (a - 1))
            assert largest * (1 - mp.mpf("1e-6")) <= bound + 1e-13
            assert bound <= largest * mp.mpf("1.15") + 1e-13


@pytest.mark.parametrize(
    "order", [1.25, pytest.param(4.0, marks=pytest.mark.slow), pytest.param(16.0, marks=pytest.mark.slow)]
)
def test_one_outcome_of_a_pure_mechanism_bounds_every_such_mechanism(order):
    """Theorem 6 against random laws whose ratios stay within e^±pure."""
    rng, pure = np.random.default_rng(8), 0.3
    for log_q in (-6.0, -2.0, -0.9):
        bound = _censored_pure(np.array([log_q]), pure, order)[0]
        closest = math.inf
        for _ in range(300):
            tail = rng.dirichlet(np.full(3, 0.5)) * math.exp(log_q)
            ratio = np.exp(pure * rng.choice([-1.0, 0.3, 1.0], size=3))
            p = np.log([1 - tail.sum(), *tail])
            q = np.log([1 - (tail * ratio).sum(), *(tail * ratio)])
            truth = max(renyi(p, q, order), renyi(q, p, order))
            assert truth <= bound + 1e-13
            closest = min(closest, bound / truth)
        assert closest < 1.001


@pytest.mark.parametrize(
    ("mechanism", "n_teachers", "n_classes"),
    [
        (GNMax(sigma=2.0), 14, 3),
        (GNMax(sigma=9.0), 9, 4),
        (LNMax(scale=3.0), 14, 3),
        (LNMax(scale=0.5), 9, 4),
    ],
)
def test_no_ballot_moves_a_query_further_than_the_reach(mechanism, n_teachers, n_classes):
    (scale,) = cost_levels(mechanism, n_teachers=n_teachers, n_classes=n_classes, order=2.0)
    furthest = 0
    for row in tables(n_teachers, n_classes):
        near = np.array(list(moves(row)), dtype=float)
        steps = np.abs(scale.levels(near) - scale.levels(row[None].astype(float))[0])
        assert steps.max() <= scale.reach
        furthest = max(furthest, steps.max())
    assert furthest > scale.reach / 2


def test_screens_of_many_classes_cost_their_largest_divergence():
    screen, order, n_teachers = Threshold(at=8.5, sigma=2.0), 5.0, 12
    scale, _ = cost_levels(
        Confident(screen=screen, argmax=GNMax(sigma=3.0)), n_teachers=n_teachers, n_classes=3, order=order
    )
    rows = tables(n_teachers, 3)
    for row in rows:
        largest = np.array([near.max() for near in moves(row)])
        passes = np.array([ndtr((v - 8.5) / 2.0) for v in (row.max(), *largest)])
        law = np.log(np.stack([passes, 1 - passes], axis=1))
        truth = max(renyi(law[0], law[1:], order).max(), renyi(law[1:], law[0], order).max())
        got = scale.cost[scale.levels(row[None].astype(float))[0]] * UNIT
        assert truth <= got * (1 + 1e-9) + 1e-12
        assert np.abs(largest - row.max()).max() <= scale.reach


@pytest.mark.parametrize("mechanism", [GNMax(sigma=2.0), LNMax(scale=2.0)])
def test_no_rung_costs_more_than_any_votes_can(mechanism):
    order = 6.0
    cap = mechanism.curve().rdp[ORDERS.index(order)]
    for n_classes in (2, 3, 8):
        (scale,) = cost_levels(mechanism, n_teachers=40, n_classes=n_classes, order=order)
        assert scale.cost.max() * UNIT <= cap * (1 + ROUNDING) + FLOOR


def test_parts_add_up():
    parts = cost_levels(
        Confident(screen=Threshold(at=9, sigma=3.0), argmax=GNMax(sigma=3.0)),
        n_teachers=12,
        n_classes=3,
        order=4.0,
    )
    counts = np.array([[9.0, 2.0, 1.0], [5.0, 4.0, 3.0]])
    levels = [part.levels(counts) for part in parts]
    total = worst(list(zip(parts, levels, strict=True)), 12)
    single_costs = [worst([pair], 12) for pair in zip(parts, levels, strict=True)]
    assert total.tolist() == (single_costs[0] + single_costs[1]).tolist()
    assert total[0] == sum(int(part.cost[level].sum()) for part, level in zip(parts, levels, strict=True))


@pytest.mark.parametrize("counts", [[[3, 2], [4, 2]], [[2.5, 2.5]], [[-1, 6]], [[1, 0]], np.zeros((0, 2))])
def test_rows_that_are_not_ballots_are_refused_without_showing_them(counts):
    with pytest.raises(ValueError, match="whole ballots") as caught:
        check_ballots(np.array(counts, dtype=float))
    assert not any(character.isdigit() for character in str(caught.value))


def test_what_cannot_be_priced_is_refused():
    with pytest.raises(ValueError, match="noise='largest'"):
        cost_levels(Threshold(at=3, sigma=1.0, noise="every"), n_teachers=5, n_classes=3, order=2.0)
    with pytest.raises(ValueError, match="million nats"):
        cost_levels(GNMax(sigma=1e-4), n_teachers=5, n_classes=2, order=ORDERS[-2])
    (scale,) = cost_levels(GNMax(sigma=0.05), n_teachers=5, n_classes=2, order=40.0)
    with pytest.raises(OverflowError, match="in parts"):
        worst([(scale, np.zeros(2**17, dtype=np.int64))], 1)

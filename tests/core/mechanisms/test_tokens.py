import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp

from ostraka import Adjacency, Budget, BudgetExceeded, Ledger, Private, release
from ostraka.core.mechanisms.selection import TokenDraw
from tests.false_alarm import FALSE_ALARM

PUBLIC = (-0.4, -1.8, -2.5, -3.0)
DOCUMENTS = np.array([[2.0, -1.0, 0.3, 0.0], [-3.0, 1.0, 0.0, 9.0], [0.2, 0.1, -0.7, 0.4]])


def draw_of(**settings):
    return TokenDraw(**{"clip": 1.5, "n_documents": 3, "temperature": 0.8, "public": PUBLIC} | settings)


def law(draw, rows):
    return draw.log_outcomes(draw.contributions(rows).sum(axis=0))


def by_definition(draw, rows):
    """Softmax of the public logits plus the mean of what is clipped around the middle, without a grid."""
    rows = np.asarray(rows)
    middle = (rows.max(axis=1, keepdims=True) + rows.min(axis=1, keepdims=True)) / 2
    mean = np.clip(rows - middle, -draw.clip, draw.clip).sum(axis=0) / draw.n_documents
    return log_softmax((np.array(draw.public) + mean) / draw.temperature)


def plausible(hits, log_law):
    return stats.chisquare(hits, np.exp(log_law) * hits.sum()).pvalue > FALSE_ALARM


def test_tokens_are_drawn_as_often_as_their_law_says_and_not_as_a_slightly_wrong_one():
    draw, rng = draw_of(), np.random.default_rng(4)
    private = Private(draw.contributions(DOCUMENTS).sum(axis=0), draw.promise)
    tally = np.bincount([draw.release(private, rng=rng)[0] for _ in range(4000)], minlength=4)
    assert plausible(tally, law(draw, DOCUMENTS))
    hits = np.bincount(draw.tokens(private, size=1_000_000, rng=rng), minlength=4)
    assert plausible(hits, law(draw, DOCUMENTS))
    for wrong in (draw_of(temperature=0.9), draw_of(n_documents=4), draw_of(clip=1.0)):
        assert not plausible(hits, law(wrong, DOCUMENTS))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.4])
def test_the_law_is_a_softmax_of_public_logits_and_clipped_means_but_for_the_grid(temperature):
    draw = draw_of(temperature=temperature)
    np.testing.assert_allclose(law(draw, DOCUMENTS), by_definition(draw, DOCUMENTS), atol=2e-3)
    fine = replace(draw, steps=2**20)
    np.testing.assert_allclose(law(fine, DOCUMENTS), by_definition(fine, DOCUMENTS), atol=1e-5)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_no_neighbour_exceeds_the_range_and_the_worst_reaches_it(relation):
    draw, rng = draw_of(relation=relation), np.random.default_rng(7)
    shapes = [np.array(signs) * 5.0 for signs in itertools.product((-1, 1), repeat=4)]
    shapes += [rng.normal(size=4) * scale for scale in (0.2, 1.0, 30.0) for _ in range(10)]
    ranges, curve = [], draw.curve()
    laws = [law(draw, [*DOCUMENTS, shape]) for shape in shapes]
    for mine in laws:
        for neighbour in [law(draw, [*DOCUMENTS, np.zeros(4)])] if relation == "zero-out" else laws[:16]:
            losses = mine - neighbour
            ranges.append(np.ptp(losses))
            for order, bound in list(zip(curve.orders, curve.rdp, strict=True))[::40]:
                assert logsumexp(order * losses + neighbour) / (order - 1) <= bound + 1e-12
    assert max(ranges) <= draw.range * (1 + 1e-12)
    assert max(ranges) > 0.999 * draw.range
    assert draw.range == pytest.approx((1 if relation == "zero-out" else 2) * 2 * 1.5 / (3 * 0.8), rel=1e-12)


def test_a_document_counts_the_same_whatever_the_others_are():
    draw, rng = draw_of(), np.random.default_rng(1)
    mine = rng.normal(size=(1, 300)) * 3
    alone = draw.contributions(mine)[0]
    for others in (rng.normal(size=(40, 300)), np.full((3, 300), np.nan), np.full((7, 300), 1e300)):
        assert (draw.contributions(np.concatenate([others, mine, others]))[len(others)] == alone).all()
    assert np.abs(alone).max() <= draw.steps


def test_only_the_shape_of_a_documents_numbers_counts_and_numbers_that_are_none_count_nothing():
    draw = draw_of()
    moved = draw.contributions(DOCUMENTS + 1024.0)
    assert np.abs(moved - draw.contributions(DOCUMENTS)).max() <= 1  # rounding of the sum
    assert not draw.contributions([[1.0, np.nan, 2.0], [np.inf, 0.0, 1.0], [3.0, 3.0, 3.0]]).any()
    extreme = draw.contributions([[0.0, 1e308, -1e308]])
    assert extreme.tolist() == [[0, draw.steps, -draw.steps]]


def test_what_a_draw_costs_one_document_is_never_less_than_it_tells_and_hardly_more():
    draw, rng = draw_of(), np.random.default_rng(2)
    for scale in (0.05, 0.5, 4.0):
        worst = 0.0
        for _ in range(120):
            mine = rng.choice([-scale, scale], size=4)
            cost = float(draw.cost(draw.contributions([mine]))[0])
            losses = law(draw, [*DOCUMENTS, mine]) - law(draw, DOCUMENTS)
            for order in (1.0001, 2.0, 16.0):
                tells = logsumexp(order * losses + law(draw, DOCUMENTS)) / (order - 1)
                assert tells <= order * cost * (1 + 1e-9) + 1e-11
                worst = max(worst, tells / (order * cost) if cost else 0.0)
        assert worst > 0.5
    assert draw.cost(np.zeros((2, 4), dtype=int)).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="zero-out"):
        draw_of(relation="replace-one").cost(np.zeros((2, 4), dtype=int))


def test_the_door_charges_before_it_draws_and_refuses_sums_that_may_move_farther():
    draw = draw_of()
    sums = draw.contributions(DOCUMENTS).sum(axis=0)
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5, adaptive=False)) as ledger:
        rng = np.random.default_rng(0)
        assert release(draw, Private(sums, draw.promise), ledger=ledger, rng=rng) in range(4)
        assert ledger.unit == "row (zero-out)"
        with pytest.raises(ValueError, match="hides"):
            release(draw, Private(sums, Adjacency.vector(linf=4097.0, relation="zero-out")), ledger=ledger)
        with pytest.raises(ValueError, match="hides"):
            release(draw, Private(sums, Adjacency.vector(linf=1.0)), ledger=ledger)
        with pytest.raises(BudgetExceeded):
            release(draw_of(clip=30.0), Private(sums, draw.promise), ledger=ledger, rng=rng)


def test_its_price_does_not_depend_on_the_place_and_has_no_slack():
    draw = draw_of()
    assert hash(draw) == hash(draw.at(np.array(PUBLIC)))
    assert draw.curve() == draw.at([]).curve()
    assert draw.curve().slack == 0
    assert (12 * draw.curve()).epsilon(delta=1e-5) < 0.95 * 12 * draw.range


def test_sums_of_another_shape_are_refused():
    draw = draw_of()
    for sums in (np.zeros((2, 4), dtype=int), np.zeros(4)):
        with pytest.raises(ValueError, match="integers of shape"):
            draw.uses(Private(sums, draw.promise))
    with pytest.raises(ValueError, match="4 candidates"):
        draw.uses(Private(np.zeros(3, dtype=int), draw.promise))

"""Mechanisms made of mechanisms: every pair and triple is priced above all divergences, or refused."""

import contextlib
import itertools
import math
import time
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

from ostraka import (
    Adjacency,
    Budget,
    BudgetExceeded,
    Confident,
    GNMax,
    Ledger,
    LNMax,
    Private,
    Threshold,
    release,
)
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms.screen import AgainstGuesses
from ostraka.mechanisms import RandomizedResponse, SkellamMax, Subsampled, Weighted
from tests.threads import at_once

RATE, WEIGHT, TEACHERS = 0.3, 2.0, 5
AT = [ORDERS.index(order) for order in (1.125, 2.0, 3.0, 8.0, 32.0)]
BASES = (GNMax(sigma=1.5), LNMax(scale=1.5), Threshold(at=3.0, sigma=1.5))
SCREEN = Threshold(at=3.0, sigma=2.0)


def weighted(inner):
    return Weighted(mechanism=inner, weight=WEIGHT)


def subsampled(inner):
    return Subsampled(mechanism=inner, sampling_rate=RATE)


def screened(inner):
    """The inner mechanism behind a screen that is wrapped as it is."""
    return Confident(screen=like(inner, SCREEN), argmax=inner)


def against(inner):
    return AgainstGuesses(mechanism=inner, guesses=[[0.5, 0.5]], n_teachers=5)


def like(inner, screen):
    if isinstance(inner, Weighted):
        return weighted(like(inner.mechanism, screen))
    if isinstance(inner, Subsampled):
        return subsampled(like(inner.mechanism, screen))
    return screen


WRAPPERS = (weighted, subsampled, screened)
CHAINS = [chain for size in (1, 2, 3) for chain in itertools.product(WRAPPERS, repeat=size)]


def made(base, chain):
    """Innermost wrapper first."""
    for wrap in chain:
        base = wrap(base)
    return base


def some_are_refused(chain):
    return chain.count(subsampled) > 1 or chain.count(screened) > 1


@cache
def moves(weight, relation):
    """What ballots of this weight in all can do to three counts, however they are split."""
    steps = range(-weight, weight + 1)
    vectors = []
    for change in itertools.product(steps, repeat=3):
        gained, lost = sum(max(c, 0) for c in change), -sum(min(c, 0) for c in change)
        allowed = gained == lost if relation == "replace-one" else max(gained, lost) <= weight
        if any(change) and allowed and gained <= weight:
            vectors.append(change)
    return np.array(vectors, dtype=float)


@cache
def pairs(weight, relation):
    """All votes of a few teachers, and every neighbour of each."""
    rows = [row for row in itertools.product(range(TEACHERS + 1), repeat=3) if 0 < sum(row) <= TEACHERS]
    base = np.repeat(np.array(rows, dtype=float), len(moves(weight, relation)), axis=0)
    neighbour = base + np.tile(moves(weight, relation), (len(rows), 1))
    valid = (neighbour >= 0).all(axis=1)
    return base[valid], neighbour[valid]


def laws(mechanism, without, with_unit_counts):
    """Outcome laws of two neighbours: a unit that takes part by chance does so in the second only."""
    if isinstance(mechanism, Weighted):
        return laws(mechanism.mechanism, without, with_unit_counts)
    if isinstance(mechanism, Subsampled):
        p, q = laws(mechanism.mechanism, without, with_unit_counts)
        return p, (1 - mechanism.sampling_rate) * p + mechanism.sampling_rate * q
    if isinstance(mechanism, Confident):  # each part sees a sample of its own, if any
        screens, answers = (
            laws(mechanism.screen, without, with_unit_counts),
            laws(mechanism.argmax, without, with_unit_counts),
        )
        return tuple(
            np.concatenate([s[:, :1] * a, s[:, 1:]], axis=1) for s, a in zip(screens, answers, strict=True)
        )
    return np.exp(mechanism.log_outcomes(without)), np.exp(mechanism.log_outcomes(with_unit_counts))


def largest(mechanism):
    """Over all votes and neighbours, both directions; one number an order."""
    promise = mechanism.promise
    p, q = laws(mechanism, *pairs(round(promise.at_most), promise.relation))
    vectors = []
    for order in np.array(ORDERS)[AT]:
        directions = [(a**order * b ** (1 - order)).sum(axis=1).max() for a, b in ((p, q), (q, p))]
        vectors.append(math.log(max(directions)) / (order - 1))
    return np.array(vectors)


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param(chain, marks=[pytest.mark.slow] if len(chain) == 3 and n % 3 else [])
        for n, chain in enumerate(CHAINS)
    ],
    ids=lambda chain: "-".join(wrap.__name__ for wrap in chain),
)
def test_every_pair_and_triple_of_wrappers_is_priced_above_all_divergences_or_refused(chain):
    for base in BASES:
        if some_are_refused(chain) or (screened in chain and base is BASES[2]):
            with pytest.raises((TypeError, ValueError)):
                made(base, chain)
            continue
        mechanism = made(base, chain)
        price = np.array(mechanism.curve().rdp)[AT]
        assert (largest(mechanism) <= price * (1 + 1e-9) + 1e-12).all(), mechanism
        assert mechanism.promise.at_most == WEIGHT ** chain.count(weighted)
        assert mechanism.promise.sampling_rate == RATE ** chain.count(subsampled)


def test_prices_are_not_far_above_what_can_happen():
    for chain, share in (((weighted,), 0.8), ((weighted, weighted), 0.3), ((screened,), 0.25)):
        mechanism = made(GNMax(sigma=1.5), chain)
        assert largest(mechanism)[1] > share * mechanism.curve().rdp[AT[1]]


def test_ten_ballots_of_a_sample_cost_what_they_reveal():
    """A tenth of the noise hides ten ballots; before, they were charged as one."""
    mechanism = Weighted(mechanism=Subsampled(mechanism=GNMax(sigma=20.0), sampling_rate=0.1), weight=10.0)
    sampled_once = Subsampled(mechanism=GNMax(sigma=2.0), sampling_rate=0.1)
    assert mechanism.curve() == sampled_once.curve()
    assert (2000 * mechanism.curve()).epsilon(delta=1e-5) > 17
    ten = Adjacency(at_most=10.0, relation="add-or-remove", sampling_rate=0.1)
    samples = [Private([[30, 10]], ten), Private([[10, 30]], ten)]
    with Ledger(":memory:", budget=Budget(epsilon=1.31, delta=1e-5, adaptive=False)) as ledger:
        spent = [release(mechanism, votes, ledger=ledger) for votes in samples]
        assert len(spent) == 2
        assert ledger.epsilon() == pytest.approx((2 * sampled_once.curve()).epsilon(delta=1e-5), rel=1e-9)


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        (
            lambda: Weighted(mechanism=RandomizedResponse(n_classes=3, epsilon=1.0), weight=50.0),
            "noise is in",
        ),
        (lambda: Weighted(mechanism=SkellamMax(sigma=9.0), weight=2.0), "noise is in votes"),
        (lambda: Weighted(mechanism="GNMax", weight=2.0), "noise is in votes"),
        (lambda: subsampled(subsampled(GNMax(sigma=9.0))), "product of the rates"),
        (lambda: subsampled(weighted(subsampled(GNMax(sigma=9.0)))), "product of the rates"),
        (lambda: subsampled(SkellamMax(sigma=9.0)), "exact counts"),
        (lambda: subsampled(RandomizedResponse(n_classes=3, epsilon=1.0)), "exact counts"),
        (lambda: subsampled(None), "exact counts"),
        (lambda: weighted(screened(against(GNMax(sigma=9.0)))), "noise is in votes"),
        (lambda: weighted(GNMax), "noise is in votes"),
        (lambda: Confident(screen=SCREEN, argmax=weighted(GNMax(sigma=9.0))), "hide the same change"),
        (lambda: Confident(screen=subsampled(SCREEN), argmax=GNMax(sigma=9.0)), "hide the same change"),
    ],
)
def test_wrappers_that_cannot_be_priced_are_refused_when_they_are_made(wrap, says):
    with pytest.raises(ValueError, match=says):
        wrap()


@pytest.mark.parametrize("wrap", [subsampled, against])
@pytest.mark.parametrize("inner", [GNMax, 3, "GNMax"])
def test_wrappers_of_no_mechanism_are_refused_when_they_are_made(wrap, inner):
    with pytest.raises((TypeError, ValueError), match="mechanism must"):
        wrap(inner)


def test_two_payments_from_one_stored_sample_are_refused_before_the_charge():
    """With epsilon 1 each at rate q, two answers of one sample cost log(1 + q (e^2 - 1)), not twice one's."""
    votes = Private([[4, 1]], Adjacency(relation="add-or-remove", sampling_rate=RATE))
    confident = Confident(screen=subsampled(SCREEN), argmax=subsampled(GNMax(sigma=9.0)))
    sampled_once = subsampled(Confident(screen=SCREEN, argmax=GNMax(sigma=9.0)))
    assert confident.curve().epsilon(1e-5) < sampled_once.curve().epsilon(1e-5)
    with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        with pytest.raises(ValueError, match="prices one sample for both"):
            release(confident, votes, ledger=ledger)
        assert ledger.epsilon() == 0
        release(sampled_once, votes, ledger=ledger)
        assert ledger.epsilon() == pytest.approx(sampled_once.curve().epsilon(1e-5))


@pytest.fixture
def book():
    with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
        yield ledger


STORED = Adjacency(relation="add-or-remove", sampling_rate=RATE)
ONE, FULL = subsampled(GNMax(sigma=9.0)), Subsampled(mechanism=GNMax(sigma=9.0), sampling_rate=1.0)


@pytest.mark.parametrize(
    "again",
    [
        lambda votes: votes,
        lambda votes: votes[1:],
        lambda votes: votes[[2]],
        lambda votes: votes.with_adjacency(unit="row"),
        lambda votes: votes.with_adjacency(sampling_rate=1.0).with_adjacency(sampling_rate=RATE)[1:2],
    ],
)
def test_a_second_answer_from_a_stored_sample_is_refused_before_the_charge(again, book):
    votes = Private([[4, 1], [1, 4], [3, 2]], STORED)
    release(ONE, votes, ledger=book)
    with pytest.raises(ValueError, match=r"stored sample was answered from before.*sampling_rate=1\.0"):
        release(ONE, again(votes), ledger=book)
    assert len(book.entries()) == 1
    release(FULL, again(votes), ledger=book)


def test_after_an_answer_at_the_full_price_none_is_sampled(book):
    votes = Private([[4, 1]], STORED)
    release(FULL, votes.with_adjacency(sampling_rate=1.0), ledger=book)
    with pytest.raises(ValueError, match="answered from before"):
        release(ONE, votes, ledger=book)


def test_one_table_declared_a_sample_twice_is_one_sample(book):
    votes = Private([[4, 1], [1, 4]], Adjacency(relation="add-or-remove"))
    release(ONE, votes.with_adjacency(sampling_rate=RATE), ledger=book)
    with pytest.raises(ValueError, match="answered from before"):
        release(ONE, votes[1:].with_adjacency(sampling_rate=RATE), ledger=book)
    assert len(book.entries()) == 1


@pytest.mark.parametrize("changes", [{"sampling_rate": RATE}, {"moves": "label"}])
def test_rows_that_repeat_are_not_declared_a_sample_or_labels(changes):
    votes = Private([[4, 1], [1, 4]], Adjacency(relation="add-or-remove"))
    with pytest.raises(ValueError, match="rows must not repeat"):
        votes[[0, 0]].with_adjacency(**changes)
    assert len(votes[[1, 0]].with_adjacency(**changes)) == 2


@pytest.mark.parametrize("first", [slice(None), slice(None, None, -2), [3, 1, 4], np.arange(6) % 2 == 0, ...])
@pytest.mark.parametrize("then", [1, -1, slice(1, 3), slice(5, None, -1), [2, 0], np.array([], int)])
def test_rows_of_rows_take_their_own_rows_of_the_sample(first, then):
    votes, rows = Private(np.ones((6, 2), int), STORED), np.atleast_1d(np.arange(6)[first][then])
    votes[first][then].take_sample(at_most_once=True)
    for row in range(6):
        refused = pytest.raises(ValueError, match="answered from before")
        with refused if row in rows else contextlib.nullcontext():
            votes[row].check_sample()


def test_threads_get_one_sampled_answer_from_one_stored_sample(monkeypatch):
    votes, answered = Private([[4, 1]], STORED), []
    sample = type(votes._sample)
    check = sample.check
    monkeypatch.setattr(sample, "check", lambda self: (check(self), time.sleep(0.01)))

    def take():
        with contextlib.suppress(ValueError):
            votes[:].take_sample(at_most_once=True)
            answered.append(1)

    with at_once(*[take] * 8):
        pass
    assert len(answered) == 1


def test_each_row_of_a_stored_sample_is_a_sample_of_its_own(book):
    votes = Private([[4, 1], [1, 4], [3, 2]], STORED)
    for rows in ([0], [2], [1]):
        release(ONE, votes[rows], ledger=book)
    assert book.epsilon() == pytest.approx((3 * ONE.curve()).epsilon(1e-5), rel=1e-9)


def test_a_stored_answer_comes_back_and_a_refused_charge_takes_no_sample(book):
    votes = Private([[4, 1], [1, 4], [3, 2]], STORED)
    with pytest.raises(BudgetExceeded):
        release(subsampled(GNMax(sigma=0.1)), votes, ledger=book)
    first = release(ONE, votes, ledger=book, key="once")
    assert release(ONE, votes, ledger=book, key="once").tolist() == first.tolist()
    with pytest.raises(ValueError, match="answered from before"):
        release(ONE, votes, ledger=book, key="twice")
    assert len(book.entries()) == 1


def test_a_full_answer_after_a_sampled_one_costs_at_most_the_sum_of_both():
    """Both outcomes from one sample, whatever the rest of it: enumerated, in both directions."""
    inner = GNMax(sigma=1.5)
    with_unit, without = (inner.log_outcomes([votes])[0] for votes in ([3, 3], [3, 2]))
    with_unit, without = (np.add.outer(log_law, log_law).ravel() for log_law in (with_unit, without))
    pair = np.logaddexp(math.log(RATE) + with_unit, math.log1p(-RATE) + without), without
    bound = subsampled(inner).curve() + inner.curve()
    for order, limit in zip(bound.orders[:-1], bound.rdp[:-1], strict=True):
        for p, q in (pair, pair[::-1]):
            assert logsumexp(order * p + (1 - order) * q) / (order - 1) <= limit


def test_a_weighted_mechanism_that_is_weighted_counts_for_both():
    twice = weighted(weighted(GNMax(sigma=12.0)))
    assert twice.promise.at_most == 4.0
    assert twice.curve() == GNMax(sigma=3.0).curve()

"""The paired audit: tangents of the divergence lie below it, and close."""

import numpy as np
import pytest

from ostraka import Adjacency, GNMax, Private
from ostraka.audit.intervals import empirical_bernstein
from ostraka.audit.votes import bound_pairs
from ostraka.audits import votes_lower_bound
from tests.audit.games import divergence

ORDERS = (1.5, 2.0, 8.0, 32.0, np.inf)
SIGMA = 8.0
MECHANISM = GNMax(sigma=SIGMA)


def paired_lower_bound(mechanism, *worlds, **settings):
    return votes_lower_bound(mechanism, *worlds, paired=True, **settings)


def votes(array):
    return Private(array, Adjacency.one_ballot())


def draws(rng, n, effect):
    """A hundred teachers; with probability ``effect`` the target turns one ballot from class 0 to class 1."""
    without = rng.multinomial(99, [0.5, 0.4, 0.1], size=n) + np.array([1, 0, 0])
    turned = (rng.random(n) < effect)[:, None]
    return without + turned * np.array([-1, 1, 0]), without


def divergences(p, q):
    return np.array([*(divergence(p, q, order) for order in ORDERS[:-1]), np.log(p / q).max()])


def truth(effect):
    """Means over many draws, with the target's effect integrated out."""
    shared = draws(np.random.default_rng(99), 20_000, 0.0)[1]
    laws = [np.exp(MECHANISM.log_outcomes(shared + move)) for move in ([-1, 1, 0], [0, 0, 0])]
    p, q = effect * laws[0].mean(axis=0) + (1 - effect) * laws[1].mean(axis=0), laws[1].mean(axis=0)
    return divergences(p, q), divergences(q, p)


FIXED = np.tile([50, 40, 10], (4_000, 1)), np.tile([49, 41, 10], (4_000, 1))


def test_fixed_votes_are_seen_almost_exactly():
    first, second = FIXED
    lower = paired_lower_bound(MECHANISM, votes(first), votes(second), orders=ORDERS)
    p, q = np.exp(MECHANISM.log_outcomes([first[0], second[0]]))
    assert (np.array(lower.forward[:-1]) > 0.9 * divergences(p, q)[:-1]).all()
    assert (np.array(lower.forward) <= divergences(p, q)).all()
    assert (np.array(lower.reverse) <= divergences(q, p)).all()


@pytest.mark.statistical
def test_it_is_below_the_truth_as_often_as_it_says():
    """At confidence 0.5, 60 runs: more than 53 wrong ones have probability below 1e-9."""
    exact, rng = truth(0.5), np.random.default_rng(1)
    wrong = 0
    for _ in range(60):
        worlds = map(votes, draws(rng, 60, 0.5))
        lower = paired_lower_bound(MECHANISM, *worlds, orders=ORDERS, confidence=0.5)
        wrong += any(
            (np.array(low) > high).any()
            for low, high in zip((lower.forward, lower.reverse), exact, strict=True)
        )
    assert wrong <= 53


def test_a_few_thousand_pairs_see_what_separate_draws_do_not():
    worlds = [votes(world) for world in draws(np.random.default_rng(2), 4000, 0.5)]
    paired = paired_lower_bound(MECHANISM, *worlds, orders=ORDERS)
    separate = votes_lower_bound(MECHANISM, *worlds, orders=ORDERS)
    exact = np.maximum(*truth(0.5))
    assert (np.array(paired.rdp[:-1]) > 0.5 * exact[:-1]).all()
    assert max(separate.rdp) == 0
    assert (np.diff(paired.rdp) >= 0).all()
    assert (paired.method, paired.trials) == ("paired", (4000, 4000))


@pytest.mark.parametrize("turn", [1, -1], ids=["as in the pilot", "against the pilot"])
def test_what_is_averaged_stays_in_its_range(monkeypatch, turn):
    """The inequality needs numbers from 0 to 1: here the ballot moves in every pair."""
    from ostraka.audit import votes as paired

    averages = []

    def spy(mean, variance, trials, *, error):
        averages.append(float(mean))
        return empirical_bernstein(mean, variance, trials, error=error)

    monkeypatch.setattr(paired, "empirical_bernstein", spy)
    pilot = [world[:10] for world in FIXED]
    worlds_rest = [world[10:50] for world in FIXED[::turn]]
    paired_lower_bound(
        MECHANISM,
        *(votes(np.concatenate(parts)) for parts in zip(pilot, worlds_rest, strict=True)),
        orders=ORDERS,
    )
    assert len(averages) == 8
    assert min(averages) >= 0
    assert max(averages) <= 1


def test_equal_worlds_leak_nothing():
    votes_alike = draws(np.random.default_rng(3), 1000, 0.0)[1]
    assert set(paired_lower_bound(MECHANISM, votes(votes_alike), votes(votes_alike)).rdp) == {0.0}


@pytest.mark.statistical
def test_worlds_that_differ_by_chance_only_are_seldom_said_to_leak():
    """200 runs at confidence 0.95: more than 34 claims have probability below 1e-9."""
    rng, claims = np.random.default_rng(4), 0
    shared = draws(rng, 5_000, 0.0)[1]
    turn = np.array([-1, 1, 0])
    laws = np.exp(MECHANISM.log_outcomes(np.concatenate([shared, shared + turn])))
    for _ in range(200):
        rows = rng.integers(5_000, size=50)
        p, q = (laws[rows + 5_000 * (rng.random(50) < 0.5)] for _ in range(2))
        lower = bound_pairs(p, q, reach=MECHANISM.curve().delta(0.0), orders=(2.0, 8.0), confidence=0.95)
        claims += max(lower.rdp) > 0
    assert claims <= 34


@pytest.mark.parametrize(
    "neighbours", [[[2, 0, 0]], [[3, 0, 0], [1, 2, 0]], [[4, 4, 4]], [[3.5, 1.5, 0]]], ids=str
)
def test_a_pair_differs_in_one_ballot_at_most(neighbours):
    world = np.tile([2.0, 2.0, 0.0], (12, 1))
    two = world.copy()
    two[: len(neighbours)] = neighbours
    with pytest.raises(ValueError, match="one ballot at most"):
        paired_lower_bound(MECHANISM, votes(world), votes(two))


def test_pairs_must_match_and_a_ballot_may_appear_or_disappear():
    for world, n_second in ((9, 9), (12, 13)):
        with pytest.raises(ValueError, match="ten or more pairs"):
            paired_lower_bound(MECHANISM, votes(np.ones((world, 2))), votes(np.ones((n_second, 2))))
    world = np.tile([2, 2, 0], (12, 1))
    assert paired_lower_bound(MECHANISM, votes(world), votes(world - [1, 0, 0])).trials == (12, 12)

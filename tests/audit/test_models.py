"""Modelled votes: their law without sampling, and bounds from draws."""

import numpy as np
import pytest
from scipy.stats import binomtest, multinomial

from ostraka import GNMax, LNMax
from ostraka.audit.votes import VoteModel, gaussian_argmax_law
from tests.audit.games import larger
from tests.false_alarm import FALSE_ALARM

LAW, ONE = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])


def by_enumeration(mechanism, n, law, moves, weights):
    """Sum over every possible vote: slow, and without any generating function."""
    total = 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            votes = np.array([a, b, n - a - b])
            laws = np.exp(mechanism.log_outcomes(votes + moves))
            total = total + multinomial.pmf(votes, n, law) * (weights @ laws)
    return total


@pytest.mark.parametrize(("n_teachers", "sigma"), [(1, 0.7), (7, 2.0), (13, 9.0)])
def test_the_law_of_random_shards_is_that_of_every_possible_vote(n_teachers, sigma):
    model, mechanism = VoteModel.random_shards(LAW, ONE, n_teachers=n_teachers), GNMax(sigma=sigma)
    for outcome_law, teacher_law in zip(model.outcome_laws(mechanism), (ONE, LAW), strict=True):
        want = by_enumeration(mechanism, n_teachers - 1, LAW, np.eye(3), teacher_law)
        np.testing.assert_allclose(outcome_law, want, rtol=0, atol=1e-12)


def test_the_law_of_neighbours_may_take_a_ballot_away():
    mechanism, last = GNMax(sigma=2.0), np.array([0.2, 0.3, 0.5])
    model = VoteModel.neighbours(LAW, last, n_neighbours=6, label=2, reached=0.4)
    ballot = np.eye(3)
    want = 0.6 * by_enumeration(mechanism, 6, LAW, np.zeros((1, 3)), np.ones(1))
    want = want + 0.4 * by_enumeration(mechanism, 6, LAW, ballot[2] - ballot, last)
    np.testing.assert_allclose(model.outcome_laws(mechanism)[0], want, rtol=0, atol=1e-12)


def test_the_law_is_what_sampling_gives_and_no_other():
    model, mechanism = VoteModel.random_shards(LAW, ONE, n_teachers=40), GNMax(sigma=6.0)
    votes, _ = model.worlds(n_draws=100_000, rng=np.random.default_rng(3))
    wins = int((mechanism.release(votes, rng=np.random.default_rng(4)) == 0).sum())
    right, loud, quiet = (model.outcome_laws(GNMax(sigma=s))[0][0] for s in (6.0, 7.0, 5.2))
    assert binomtest(wins, 100_000, right).pvalue > FALSE_ALARM
    assert binomtest(wins, 100_000, loud).pvalue < FALSE_ALARM
    assert binomtest(wins, 100_000, quiet).pvalue < FALSE_ALARM


def test_parties_who_always_say_the_same_are_fixed_votes():
    model = VoteModel.fixed_parties(np.eye(3)[[0, 0, 1, 2, 0]], [0, 1, 0])
    p, q = model.outcome_laws(GNMax(sigma=2.0))
    np.testing.assert_allclose(np.log([p, q]), GNMax(sigma=2.0).log_outcomes([[2, 2, 1], [3, 1, 1]]))


def test_votes_of_parties_have_their_means():
    laws = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.0, 1.0], [0.25, 0.25, 0.5]])
    model = VoteModel.fixed_parties(laws, ONE, party=1)
    present, absent = (w.open() for w in model.worlds(n_draws=100_000, rng=np.random.default_rng(0)))
    for votes, party_law in ((present, ONE), (absent, laws[1])):
        want = laws.sum(axis=0) - laws[1] + party_law
        assert np.abs(votes.mean(axis=0) - want).max() < 7 * np.sqrt(4 / 100_000)
        assert set(votes.sum(axis=1)) == {4}
    assert np.abs(present - absent).sum(axis=1).max() == 2


@pytest.mark.parametrize(
    "mechanism",
    [GNMax(sigma=6.0), pytest.param(LNMax(scale=6.0), marks=pytest.mark.slow)],
    ids=["gaussian", "laplace"],
)
def test_draws_certify_most_of_the_leak_and_never_more(mechanism):
    model = VoteModel.random_shards(LAW, ONE, n_teachers=40)
    orders = (2.0, 8.0, 32.0)
    lower = model.lower_bound(mechanism, orders=orders, n_draws=5000, rng=np.random.default_rng(5))
    if isinstance(mechanism, GNMax):
        p, q = model.outcome_laws(mechanism)
    else:
        votes = model.draw(n_draws=20_000, rng=np.random.default_rng(6))
        laws = [np.exp(mechanism.log_outcomes(votes + move)).mean(axis=0) for move in np.eye(3)]
        p, q = ONE @ laws, LAW @ laws
    for order, low in zip(orders, lower.rdp, strict=True):
        exact = larger(p, q, order)
        assert 0.6 * exact < low < exact


def test_a_target_without_effect_leaks_nothing():
    lower = VoteModel.random_shards(LAW, LAW, n_teachers=40).lower_bound(
        GNMax(sigma=2.0), rng=np.random.default_rng(0)
    )
    assert set(lower.rdp) == {0.0}


@pytest.mark.parametrize("n_classes", [2, 5, 20, 60])
def test_the_integral_is_fine_enough_for_many_classes(n_classes):
    """Equal counts are the hardest; without random ballots the law is the outcome map's."""
    law = gaussian_argmax_law(0, np.full(n_classes, 1 / n_classes), np.zeros((1, n_classes)), sigma=3.0)
    np.testing.assert_allclose(law, np.full((1, n_classes), 1 / n_classes), rtol=0, atol=1e-12)
    votes = 4.0 * np.arange(n_classes)[None]
    law = gaussian_argmax_law(0, np.full(n_classes, 1 / n_classes), votes, sigma=3.0)
    np.testing.assert_allclose(law, np.exp(GNMax(sigma=3.0).log_outcomes(votes)), rtol=0, atol=1e-12)


def test_answers_are_independent_only_where_nobody_s_vote_is_random():
    """Planted: it is enough that the target's vote is certain; then answers pass for independent."""
    sure = np.eye(3)[1]
    models = [VoteModel.fixed_parties([sure, third, sure], sure) for third in (sure, LAW)]
    models += [VoteModel.random_shards(law, sure, n_teachers=4) for law in (sure, LAW)]
    assert [model.certain for model in models] == [True, False, True, False]


def test_exact_laws_are_refused_where_there_are_none():
    parties = VoteModel.fixed_parties([LAW, LAW], ONE)
    with pytest.raises(ValueError, match="without parties whose ballots are random"):
        parties.outcome_laws(GNMax(sigma=2.0))
    with pytest.raises(ValueError, match="Gaussian noise"):
        VoteModel.random_shards(LAW, ONE, n_teachers=3).outcome_laws(LNMax(scale=2.0))


@pytest.mark.parametrize("law", [[0.5, 0.4], [1.5, -0.5], [[1.0]], [np.nan, 1.0]])
def test_a_law_sums_to_one(law):
    with pytest.raises(ValueError, match="sum to 1"):
        VoteModel.random_shards(law, law, n_teachers=3)

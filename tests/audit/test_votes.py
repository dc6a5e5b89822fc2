"""The audit with the outcome map: below the truth, above what sampled answers certify."""

from itertools import product

import numpy as np
import pytest

from ostraka import Adjacency, GNMax, Private
from ostraka.audit.votes import VoteModel
from ostraka.audits import renyi_lower_bound, votes_lower_bound
from tests.audit.games import larger

MECHANISM = GNMax(sigma=2.0)
LAW, ONE, K = np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 0.0]), 6
ORDERS = (2.0, 8.0)


def answer_law(ballot):
    """Exact law of an answer: over all ballots of five teachers and one special one."""
    total = np.zeros(3)
    for ballots in product(range(3), repeat=K):
        weight = np.prod(LAW[list(ballots[1:])]) * ballot[ballots[0]]
        total += weight * np.exp(MECHANISM.log_outcomes([np.bincount(ballots, minlength=3)])[0])
    return total


P, Q = answer_law(ONE), answer_law(LAW)
EXACT = np.array([larger(P, Q, order) for order in ORDERS])


def modelled_votes(law, *, n_teachers, n_draws, target_law=None, rng):
    """Ballots of a fitted law, one of them by another law."""
    model = VoteModel.random_shards(law, law if target_law is None else target_law, n_teachers=n_teachers)
    return model.worlds(n_draws=n_draws, rng=rng)[0]


def draws(n, seed):
    rng = np.random.default_rng(seed)
    return [
        modelled_votes(LAW, n_teachers=K, n_draws=n, target_law=target_law, rng=rng)
        for target_law in (ONE, None)
    ]


def test_it_is_below_the_truth_and_above_what_answers_certify():
    n = 100_000
    white = votes_lower_bound(MECHANISM, *draws(n, 1), orders=ORDERS)
    rng = np.random.default_rng(2)
    black = renyi_lower_bound(rng.multinomial(n, P), rng.multinomial(n, Q), orders=ORDERS)
    assert (np.array(white.rdp) <= EXACT).all()
    assert (np.array(white.rdp) > 0.8 * EXACT).all()
    assert (np.array(white.rdp) > black.rdp).all()


def test_fixed_votes_need_hardly_any_draws():
    # no randomness in training: each draw is the exact probability; only the seventh term is left
    votes = [Private(np.tile(h, (20_000, 1)), Adjacency.one_ballot()) for h in ([5, 4], [4, 5])]
    lower = votes_lower_bound(MECHANISM, *votes, orders=(2.0,))
    p, q = np.exp(MECHANISM.log_outcomes([[5, 4], [4, 5]]))
    truth = np.log(np.sum(p**2 / q))
    assert 0.95 * truth < lower.rdp[0] <= truth


@pytest.mark.statistical
@pytest.mark.parametrize(("runs", "ceiling"), [(50, 13), pytest.param(200, 28, marks=pytest.mark.slow)])
def test_it_claims_nothing_where_worlds_do_not_differ(runs, ceiling):
    """Binomial(runs, 0.05) exceeds ``most`` with probability below 1e-5."""
    claims = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        worlds = [modelled_votes(LAW, n_teachers=K, n_draws=300, rng=rng) for _ in range(2)]
        claims += votes_lower_bound(MECHANISM, *worlds, orders=ORDERS).rdp[0] > 0
    assert claims <= ceiling


def test_what_makes_no_sense_is_refused():
    rng = np.random.default_rng(0)
    two, three = (modelled_votes([1 / n] * n, n_teachers=3, n_draws=5, rng=rng) for n in (2, 3))
    with pytest.raises(ValueError, match="same classes"):
        votes_lower_bound(MECHANISM, two, three)
    with pytest.raises(ValueError, match="two or more draws"):
        votes_lower_bound(MECHANISM, two[:1], two)

"""The audit of a whole run: what the strongest adversary certifies, beside what is exactly so."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from ostraka import GNMax, LNMax, Threshold
from ostraka.audits import audit_run
from ostraka.audits.runs import worst_case_votes

RUN = {"n_answers": 40, "n_teachers": 60, "n_classes": 3, "delta": 1e-4, "trials": 4_000}


def lower(mechanism, *, seed=0, **changes):
    rng = np.random.default_rng(seed)
    found = audit_run(mechanism, **{"claimed_epsilon": 99.0, **RUN, **changes}, rng=rng)
    return found.measures[0].lower


@pytest.mark.parametrize("mechanism", [GNMax(sigma=8.0), LNMax(scale=5.0)])
@pytest.mark.parametrize("screen", [None, Threshold(at=35, sigma=6.0)])
def test_a_sound_mechanism_is_never_above_its_promise(mechanism, screen):
    promised = RUN["n_answers"] * mechanism.curve()
    if screen is not None:
        promised = promised + RUN["n_answers"] * screen.curve()
    found = lower(mechanism, screen=screen)
    assert 0.2 * promised.epsilon(RUN["delta"]) < found <= promised.epsilon(RUN["delta"])


def exact_epsilon(p, q, n, delta):
    """Smallest epsilon of n coins of p against n coins of q, by bisection on the hockey-stick divergence."""
    heads = np.arange(n + 1)
    log_p, log_q = binom.logpmf(heads, n, p), binom.logpmf(heads, n, q)
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        beyond = log_p > middle + log_q
        excess = (np.exp(log_p[beyond]) - math.exp(middle) * np.exp(log_q[beyond])).sum()
        low, high = (middle, high) if excess > delta else (low, middle)
    return high


def test_of_two_classes_it_certifies_most_of_the_exact_epsilon_and_never_more():
    # two classes: each answer is a coin, so a run is a binomial law and epsilon at delta is known exactly
    mechanism = GNMax(sigma=8.0)
    worlds = worst_case_votes(mechanism, n_teachers=60, n_classes=2)
    p, q = (math.exp(mechanism.log_outcomes(world[None])[0, 0]) for world in worlds)
    exact = max(exact_epsilon(p, q, 40, 1e-2), exact_epsilon(1 - q, 1 - p, 40, 1e-2))
    above = 0
    for seed in range(10):
        found = lower(mechanism, n_classes=2, delta=1e-2, trials=20_000, seed=seed)
        above += found > exact
        assert found > 0.6 * exact
    assert above <= 4  # each with probability at most 0.05: chance of more than 4 of 10 below 7e-5


def test_half_the_noise_is_a_broken_promise():
    class Broken(GNMax):
        def release(self, private, *, rng):
            return GNMax(sigma=self.sigma / 2.5).release(private, rng=rng)

    promised = (RUN["n_answers"] * GNMax(sigma=8.0).curve()).epsilon(RUN["delta"])
    settings = {**RUN, "trials": 20_000, "claimed_epsilon": promised}
    found = audit_run(Broken(sigma=8.0), **settings, rng=np.random.default_rng(0))
    assert found.verdict == "violated"
    assert "The promise is broken" in found.sentence
    sound = audit_run(GNMax(sigma=8.0), **settings, rng=np.random.default_rng(0))
    assert sound.verdict == "consistent"


def test_the_worst_case_votes_are_a_tie_and_one_ballot_apart():
    votes, moved = worst_case_votes(GNMax(sigma=8.0), n_teachers=60, n_classes=4)
    assert votes.tolist() == [30, 30, 0, 0]
    assert (moved - votes).tolist() == [-1, 1, 0, 0]


def test_behind_a_screen_they_are_where_both_tell():
    alone, _ = worst_case_votes(GNMax(sigma=50.0), n_teachers=100, n_classes=2)
    screened, _ = worst_case_votes(
        GNMax(sigma=50.0), n_teachers=100, n_classes=2, screen=Threshold(at=80, sigma=5.0)
    )
    assert alone[0] == 50
    assert 70 <= screened[0] <= 90


def test_trials_are_fewer_where_a_run_is_long():
    found = audit_run(
        GNMax(sigma=200.0), n_answers=1_000, n_teachers=10, n_classes=20, claimed_epsilon=9.0, delta=1e-4
    )
    assert found.trials == 1_000


@pytest.mark.parametrize(
    "wrong", [{"n_answers": 0}, {"n_teachers": 0}, {"n_classes": 1}, {"delta": 0.0}, {"trials": 10}], ids=str
)
def test_what_is_no_run_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        audit_run(GNMax(sigma=8.0), claimed_epsilon=1.0, **{**RUN, **wrong})

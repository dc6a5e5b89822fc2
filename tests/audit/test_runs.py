"""The audit of a whole run: what the strongest adversary certifies, beside what is exactly so."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.audit.runs import finding_of, run_laws, worst_case_votes
from ostraka.audits import audit_run, epsilon_lower_bound

RUN = {"n_answers": 40, "n_teachers": 60, "n_classes": 3, "delta": 1e-4, "trials": 4_000}


def lower(mechanism, *, seed=0, **changes):
    rng = np.random.default_rng(seed)
    finding = audit_run(mechanism, **{"claimed_epsilon": 99.0, **RUN, **changes}, rng=rng)
    return finding.measures[0].lower


@pytest.mark.parametrize("mechanism", [GNMax(sigma=8.0), LNMax(scale=5.0)])
@pytest.mark.parametrize("screen", [None, Threshold(at=35, sigma=6.0)])
def test_a_sound_mechanism_is_never_above_its_promise(mechanism, screen):
    if screen is not None:
        mechanism = Confident(screen=screen, argmax=mechanism)
    promised = RUN["n_answers"] * mechanism.curve()
    epsilon = lower(mechanism)
    assert (
        (0.35 if screen else 0.75) * promised.epsilon(RUN["delta"])
        < epsilon
        <= promised.epsilon(RUN["delta"])
    )


def smallest_epsilon(excess, delta):
    """Where the hockey-stick divergence, which falls with epsilon, is delta: by bisection."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high


def exact_epsilon(p, q, n, delta):
    """Of n coins of p against n coins of q."""
    heads = np.arange(n + 1)
    log_p, log_q = binom.logpmf(heads, n, p), binom.logpmf(heads, n, q)

    def excess(epsilon):
        excess_outcomes = log_p > epsilon + log_q
        return (np.exp(log_p[excess_outcomes]) - math.exp(epsilon) * np.exp(log_q[excess_outcomes])).sum()

    return smallest_epsilon(excess, delta)


@pytest.mark.parametrize(
    ("sigma", "n_answers", "delta"), [(8.0, 40, 1e-2), (8.0, 40, 1e-7), (40.0, 1000, 1e-5)]
)
def test_of_two_classes_it_certifies_nearly_all_of_the_exact_epsilon_and_never_more(sigma, n_answers, delta):
    # two classes: each answer is a coin, so a run is a binomial law and epsilon at delta is known exactly
    mechanism = GNMax(sigma=sigma)
    worlds = worst_case_votes(mechanism, n_teachers=60, n_classes=2)
    p, q = (math.exp(mechanism.log_outcomes(world[None])[0, 0]) for world in worlds)
    exact = max(exact_epsilon(*pair, n_answers, delta) for pair in ((p, q), (1 - q, 1 - p)))
    epsilon = lower(mechanism, n_classes=2, delta=delta, n_answers=n_answers, trials=100)
    assert 0.99 * exact < epsilon <= exact


def product_epsilon(p, q, n, delta):
    """Of n answers of few outcomes, by enumeration of all sequences."""
    log_p, log_q = (np.log(law) for law in (p, q))
    for _ in range(n - 1):
        log_p, log_q = (np.add.outer(a, np.log(b)).ravel() for a, b in ((log_p, p), (log_q, q)))
    directions = (log_p, log_q), (log_q, log_p)
    return smallest_epsilon(
        lambda epsilon: max(np.maximum(0, np.exp(a) - np.exp(epsilon + b)).sum() for a, b in directions),
        delta,
    )


def test_the_law_of_a_run_is_that_of_all_sequences_of_answers():
    rng = np.random.default_rng(0)
    for _ in range(5):
        p, q = rng.dirichlet(np.ones(4), size=2)
        exact = product_epsilon(p, q, 6, 1e-3)
        laws = run_laws(np.log(p), np.log(q), n_answers=6)
        assert 0.98 * exact < laws.epsilon(1e-3) <= exact
        assert laws.p.sum() == pytest.approx(1)


def test_equal_worlds_and_a_large_delta_have_no_epsilon():
    law = np.log([0.5, 0.3, 0.2])
    assert run_laws(law, law, n_answers=100).epsilon(1e-9) == 0.0
    assert run_laws(law, np.log([0.3, 0.5, 0.2]), n_answers=1).epsilon(0.3) == 0.0


def test_an_impossible_outcome_leaves_a_finite_bound():
    log_laws = np.array([-1e300, 0.0]), np.array([math.log(0.5), math.log(0.5)])
    assert run_laws(*log_laws, n_answers=3).epsilon(1e-5) > 10


def test_a_certified_epsilon_is_most_of_the_price():
    """100 and 1,000 answers at sigma 40: exact adaptive composition gives 1.07 and 3.87."""
    for n_answers, exact in ((100, 1.072), (1000, 3.87)):
        run = {"n_answers": n_answers, "n_teachers": 250, "n_classes": 10, "delta": 1e-5, "trials": 200}
        finding = audit_run(GNMax(sigma=40.0), claimed_epsilon=9.0, **run, rng=np.random.default_rng(0))
        assert 0.9 * exact < finding.measures[0].lower <= exact


def test_runs_whose_noise_is_shared_do_not_follow_the_exact_law():
    class Shared(GNMax):
        """Every answer alone has the right law; within a release all answers share their noise."""

        def release(self, private, *, rng):
            counts = private.open()
            return (counts + rng.normal(scale=self.sigma, size=counts.shape[1])).argmax(axis=1)

    finding = audit_run(Shared(sigma=8.0), **RUN, claimed_epsilon=99.0, rng=np.random.default_rng(0))
    assert finding.verdict == "violated"
    assert "do not follow the law" in finding.sentence


def test_half_the_noise_is_a_broken_promise():
    class Broken(GNMax):
        def release(self, private, *, rng):
            return GNMax(sigma=self.sigma / 2.5).release(private, rng=rng)

    promised = (RUN["n_answers"] * GNMax(sigma=8.0).curve()).epsilon(RUN["delta"])
    settings = {**RUN, "trials": 20_000, "claimed_epsilon": promised}
    finding = audit_run(Broken(sigma=8.0), **settings, rng=np.random.default_rng(0))
    assert finding.verdict == "violated"
    assert "The promise is broken" in finding.sentence
    assert finding.method == "2-cut"
    sound = audit_run(GNMax(sigma=8.0), **settings, rng=np.random.default_rng(0))
    assert sound.verdict == "consistent"


def test_the_worst_case_votes_are_a_tie_and_one_ballot_apart():
    votes, moved = worst_case_votes(GNMax(sigma=8.0), n_teachers=60, n_classes=4)
    assert votes.tolist() == [30, 30, 0, 0]
    assert (moved - votes).tolist() == [-1, 1, 0, 0]


def test_behind_a_screen_they_are_where_both_tell():
    alone, _ = worst_case_votes(GNMax(sigma=50.0), n_teachers=100, n_classes=2)
    screened, _ = worst_case_votes(
        Confident(screen=Threshold(at=80, sigma=5.0), argmax=GNMax(sigma=50.0)), n_teachers=100, n_classes=2
    )
    assert alone[0] == 50
    assert 70 <= screened[0] <= 90


def test_trials_are_fewer_where_a_run_is_long():
    finding = audit_run(
        GNMax(sigma=200.0), n_answers=1_000, n_teachers=10, n_classes=20, claimed_epsilon=9.0, delta=1e-4
    )
    assert finding.trials == 500


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_answers": 0},
        {"n_teachers": 0},
        {"n_classes": 1},
        {"delta": 0.0},
        {"trials": 10},
        {"confidence": 2},
    ],
    ids=str,
)
def test_what_is_no_run_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        audit_run(GNMax(sigma=8.0), claimed_epsilon=1.0, **{**RUN, **wrong})


def test_beside_an_exact_law_chance_decides_as_seldom_as_is_printed():
    """Counts two deviations above their law follow it, and break no promise that the law keeps."""
    laws = np.array([0.6, 0.4]), np.array([0.4, 0.6])
    counts = np.array([345, 655])[::-1], np.array([345, 655])
    settings = {"name": "run", "delta": 0.0, "trials": 1000, "note": ""}
    assert epsilon_lower_bound(*counts, delta=0.0).epsilon > np.log(1.5)  # at 95 %
    finding = finding_of(counts, laws, exact=np.log(1.5), claimed=np.log(1.5), confidence=0.95, **settings)
    assert (finding.verdict, finding.measures[0].lower) == ("consistent", np.log(1.5))

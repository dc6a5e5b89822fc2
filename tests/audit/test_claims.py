"""Audits of a claim: sound mechanisms pass, broken ones do not, and too few trials say so."""

import numpy as np
import pytest

from ostraka import GNMax, LNMax, Threshold
from ostraka.audit.claims import sample_outcomes
from ostraka.audits import audit_answers, audit_mechanism

VOTES, NEIGHBOUR = [14, 12, 10, 8, 6], [13, 13, 10, 8, 6]


@pytest.mark.parametrize(
    ("mechanism", "votes", "neighbour"),
    [
        (GNMax(sigma=2.0), VOTES, NEIGHBOUR),
        (LNMax(scale=2.0), VOTES, NEIGHBOUR),
        (Threshold(at=13.0, sigma=1.5), [14, 3], [13, 4]),
        (Threshold(at=13.0, sigma=1.5, noise="every"), [14, 3], [13, 4]),
    ],
    ids=lambda value: repr(value) if hasattr(value, "curve") else "",
)
def test_a_sound_mechanism_is_consistent(mechanism, votes, neighbour):
    finding = audit_mechanism(
        mechanism, votes, neighbour, trials=400_000, confidence=1 - 1e-6, rng=np.random.default_rng(1)
    )
    assert finding.verdict == "consistent", finding.sentence
    assert all(0 < m.lower <= m.exact <= m.upper for m in finding.measures)


@pytest.mark.parametrize(
    ("sigma", "trials", "verdict", "words"),
    [
        (1.0, 400_000, "violated", "promise is broken"),
        (1.9, 400_000, "violated", "promise is broken"),
        (2.1, 400_000, "violated", "outcome map"),
        (2.0, 2_000, "inconclusive", "take more trials"),
    ],
)
def test_other_noise_than_priced_is_a_violation_and_too_few_trials_say_so(sigma, trials, verdict, words):
    def sample(world):
        return sample_outcomes(GNMax(sigma=sigma), world, trials=trials, rng=np.random.default_rng(2))

    finding = audit_mechanism(GNMax(sigma=2.0), VOTES, NEIGHBOUR, trials=trials, sample=sample)
    assert finding.verdict == verdict
    assert words in finding.sentence


@pytest.mark.parametrize(
    ("neighbour", "orders", "words"),
    [
        (VOTES, (2.0,), "neighbour"),
        ([12, 14, 10, 8, 6], (2.0,), "neighbour"),
        ([13, 13, 9, 9, 6], (2.0,), "neighbour"),
        ([14, 12, 10, 8], (2.0,), "neighbour"),
        ([13, 11, 10, 8, 6], (2.0,), "neighbour"),
        (NEIGHBOUR, (2.0001,), r"2\.0001"),
    ],
)
def test_only_neighbours_are_audited_at_orders_of_the_curve(neighbour, orders, words):
    with pytest.raises(ValueError, match=words):
        audit_mechanism(GNMax(sigma=2.0), VOTES, neighbour, trials=10, orders=orders)


def test_sampling_counts_every_answer_also_on_several_cores():
    assert sample_outcomes(GNMax(sigma=2.0), VOTES, trials=25_001).sum() == 25_001
    with pytest.raises(ValueError, match="one count a class"):
        sample_outcomes(GNMax(sigma=2.0), [VOTES], trials=10)


@pytest.mark.parametrize(
    ("tallies", "claim", "verdict"),
    [
        (([990, 10], [20, 980]), 3.0, "violated"),
        (([990, 10], [20, 980]), 4.2, "inconclusive"),  # rates say 4.6, certain is about 3.8
        (([990, 10], [20, 980]), 5.0, "consistent"),
        (([9, 1], [1, 9]), 3.0, "inconclusive"),  # ten answers cannot contradict 3
        (([500, 500], [500, 500]), 1.0, "consistent"),
    ],
)
def test_answers_are_held_to_a_claim(tallies, claim, verdict):
    assert audit_answers(*tallies, claimed_epsilon=claim, delta=1e-5).verdict == verdict


def test_many_outcomes_are_audited_with_a_pilot():
    rng = np.random.default_rng(0)
    p = np.r_[np.full(20, 0.045), np.full(20, 0.005)]
    counts = [rng.multinomial(20_000, law) for law in (p, p[::-1])]
    finding = audit_answers(*counts, claimed_epsilon=1.0, delta=1e-5, rng=rng)
    assert finding.verdict == "violated"
    assert finding.trials == 18_000
    assert finding.to_dict()["measures"][0]["exact"] is None

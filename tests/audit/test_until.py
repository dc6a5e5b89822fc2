"""Audits that stop early: as soon as it is clear, never sooner, and never misled by answers that repeat."""

import numpy as np
import pytest

from ostraka import GNMax
from ostraka.audit.claims import sample_outcomes
from ostraka.audits import audit_until


def coin(rate, seed, supply=10**9):
    rng, supplies = np.random.default_rng(seed), [supply]

    def ask(n):
        n = min(n, supplies[0])
        supplies[0] -= n
        heads = rng.binomial(n, rate)
        return np.array([heads, n - heads])

    return ask


def audit(p, q, **settings):
    defaults = {"promise": 1.0, "delta": 1e-5, "max_trials": 10**6, "first": 200}
    return audit_until(coin(p, 1), coin(q, 2), **{**defaults, **settings})


def test_a_clear_violation_stops_at_once():
    finding = audit(0.95, 0.05)
    assert (finding.verdict, finding.trials) == ("violated", 200)


def test_a_promise_nearly_used_up_stops_before_the_end():
    finding = audit(np.e / (1 + np.e), 1 / (1 + np.e), promise=1.05, wanted=0.85)
    assert finding.verdict == "consistent"
    assert 0.85 * 1.05 <= finding.measures[0].lower <= 1
    assert finding.trials < 10**5


def test_what_never_comes_near_asks_to_the_end():
    states = []
    finding = audit(0.5, 0.49, max_trials=10_000, progress=lambda *state: states.append(state))
    assert (finding.verdict, finding.trials, finding.method) == ("consistent", 10_000, "2-cut-anytime")
    assert states[0] == (200, 10_000)
    assert states[-1] == (10_000, 10_000)


@pytest.mark.statistical
@pytest.mark.parametrize(("runs", "bound"), [(12, 8), pytest.param(40, 15, marks=pytest.mark.slow)])
def test_looking_often_does_not_make_a_kept_promise_look_broken(runs, bound):
    """At confidence 0.95, each run with a dozen looks: more than ``most`` have probability below 1e-9."""
    broken = 0
    for seed in range(runs):
        settings = {"promise": 1e-9, "delta": 0.0, "max_trials": 4000, "first": 2, "wanted": 9.0}
        finding = audit_until(coin(0.5, [seed, 0]), coin(0.5, [seed, 1]), **settings)
        broken += finding.verdict == "violated"
    assert broken <= bound


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (1.0, 0.0)], ids=["equal", "different"])
def test_answers_that_never_change_prove_nothing(p, q):
    finding = audit(p, q)
    assert (finding.verdict, finding.trials) == ("inconclusive", 200)
    assert "one question has one answer" in finding.sentence
    assert finding.measures == ()


def test_a_supply_that_ends_ends_the_audit():
    settings = {"promise": 1.0, "delta": 1e-5, "max_trials": 10**6, "first": 200}
    assert audit_until(coin(0.6, 1, supply=300), coin(0.5, 2, supply=900), **settings).trials == 300
    with pytest.raises(ValueError, match="none to be had"):
        audit_until(coin(0.6, 1, supply=0), coin(0.5, 2), **settings)


def test_a_mechanism_is_held_to_its_curve():
    mechanism, rng = GNMax(sigma=2.0), np.random.default_rng(3)

    def ask(votes):
        return lambda n: sample_outcomes(mechanism, votes, trials=n, rng=rng)

    worlds = ask([5, 4]), ask([4, 5])
    sound = audit_until(*worlds, promise=mechanism.curve(), wanted=0.8, max_trials=10**6)
    assert sound.verdict == "consistent"
    assert sound.trials < 10**6
    assert max(m.lower / m.upper for m in sound.measures) >= 0.8
    broken = audit_until(*worlds, promise=GNMax(sigma=4.0).curve(), max_trials=10**6)
    assert broken.verdict == "violated"
    silent = audit_until(ask([5, 4]), ask([5, 4]), promise=mechanism.curve(), max_trials=1000)
    assert silent.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delta": None}, "together with its delta"),
        ({"promise": GNMax(sigma=2.0).curve()}, "together with its delta"),
        ({"promise": float("nan")}, "promise must be >= 0"),
        ({"promise": -1.0}, "promise must be >= 0"),
    ],
)
def test_a_promise_is_a_curve_or_an_epsilon_with_its_delta(settings, words):
    with pytest.raises(ValueError, match=words):
        audit(0.6, 0.5, **settings)

"""What audits are worth: no claims of equal worlds, none above the truth, all defects detected."""

import numpy as np
import pytest
from scipy.stats import binomtest

from ostraka import GNMax
from ostraka.accounting import exact_curve
from ostraka.audit.cuts import renyi_estimate
from ostraka.audit.library import DEFECTS, SOUND, mutation_score
from ostraka.audits import audit_library, epsilon_lower_bound, renyi_lower_bound
from tests.false_alarm import FALSE_ALARM

RUNS = 1000
METHODS = ["2-cut", "2-cut-anytime", "k-cut"]
NULL = np.exp(GNMax(sigma=2.0).log_outcomes([[14, 12, 10, 8, 6]]))[0]


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [200, pytest.param(RUNS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_equal_worlds_leak_in_at_most_five_per_cent_of_all_runs(method, runs, record_property):
    rng = np.random.default_rng(METHODS.index(method))
    claims = sum(
        renyi_lower_bound(*rng.multinomial(20_000, NULL, size=2), orders=(2.0, 32.0), method=method).rdp
        != (0.0, 0.0)
        for _ in range(runs)
    )
    record_property("claims", claims)
    assert binomtest(claims, runs, 0.05, alternative="greater").pvalue > FALSE_ALARM
    assert claims <= 0.05 * runs, "these runs themselves"


@pytest.mark.statistical
def test_equal_worlds_have_no_epsilon():
    rng = np.random.default_rng(3)
    bounds = [
        epsilon_lower_bound(*rng.multinomial(20_000, NULL, size=2), delta=1e-5).epsilon for _ in range(RUNS)
    ]
    assert sum(value > 0 for value in bounds) <= 0.05 * RUNS


def test_the_bootstrap_finds_leakage_in_every_pair_of_equal_worlds():
    # power of the null test, and why the bootstrap is an estimate and no bound
    rng, claims = np.random.default_rng(4), 0
    for _ in range(40):
        counts = rng.multinomial(20_000, NULL, size=2)
        claims += renyi_estimate(*counts, orders=(2.0,), method="k-cut-bootstrap", rng=rng)[0] > 0
    assert claims == 40


def worlds(rng):
    """Random neighbouring votes, and how noisy."""
    counts = rng.integers(0, 15, size=rng.integers(2, 7))
    counts[0] += 1
    giver, taker = int(rng.choice(np.flatnonzero(counts))), 0
    while taker == giver:
        taker += 1
    near = counts.copy()
    near[giver] -= 1
    near[taker] += 1
    return counts, near, float(rng.choice([1.0, 2.0, 5.0, 10.0]))


@pytest.mark.statistical
@pytest.mark.parametrize("settings", [100, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["2-cut", "k-cut"])
def test_lower_bounds_stay_below_upper_bounds_in_random_settings(method, settings):
    rng, orders, above, over_promise = np.random.default_rng(5), (2.0, 8.0, 32.0), 0, 0
    for _ in range(settings):
        counts, near, sigma = worlds(rng)
        mechanism = GNMax(sigma=sigma)
        laws = np.exp(mechanism.log_outcomes([counts, near]))
        tallies = [rng.multinomial(10**6, law / law.sum()) for law in laws]
        bounds = renyi_lower_bound(*tallies, orders=orders, method=method)
        exact = exact_curve(mechanism, [counts], orders=orders).rdp
        curve = mechanism.curve()
        above += any(low > high for low, high in zip(bounds.rdp, exact, strict=True))
        over_promise += any(
            low > curve.rdp[curve.orders.index(order)] for low, order in zip(bounds.rdp, orders, strict=True)
        )
    assert above <= 0.05 * settings
    assert over_promise <= above


@pytest.mark.usefixtures("same_draws")  # each finding errs with a chance of 1.1e-4
def test_a_sound_build_is_consistent_also_in_the_stand_ins_of_the_defects():
    for system in (None, SOUND):
        verdicts = {finding.name: finding.verdict for finding in audit_library(system, trials=300_000)}
        assert set(verdicts.values()) == {"consistent"}, verdicts


@pytest.mark.slow
@pytest.mark.usefixtures("same_draws")
def test_every_planted_defect_is_detected(capsys):
    detected = mutation_score(trials=100_000)
    assert list(detected) == list(DEFECTS)
    assert [name for name, by in detected.items() if not by] == []

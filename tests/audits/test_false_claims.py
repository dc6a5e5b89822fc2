"""Every method with a confidence, on skewed laws; ``python -m bench false_claims`` takes 2,000 runs."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from tests.false_alarm import FALSE_ALARM


@pytest.fixture(scope="module")
def bench():
    repository = str(Path(__file__).resolve().parents[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(repository)
        yield importlib.import_module("bench.false_claims")
    sys.modules.pop("bench.false_claims", None)


@pytest.mark.statistical
@pytest.mark.parametrize(("part", "runs"), [("outcomes", 12), ("votes", 5), ("canaries", 8)])
def test_bounds_on_skewed_laws_are_above_the_truth_in_at_most_five_per_cent(bench, part, runs):
    found = getattr(bench, f"wrong_{part}")(runs)
    allowed = binom.isf(FALSE_ALARM / len(found), runs, 0.05)
    assert {key: count for key, count in found.items() if count > allowed} == {}


@pytest.mark.statistical
def test_rates_without_an_interval_are_found_out(bench):
    """The runs can tell: plain rates instead of intervals make false claims far too often."""
    p, q = bench.PAIRS["power"]
    rng, wrong, runs = np.random.default_rng(0), 0, 60
    for _ in range(runs):
        counts = rng.multinomial(200, p), rng.multinomial(200, q)
        rates = [c / c.sum() for c in counts]  # no interval at all
        wrong += bench.delta_at(bench.EPSILON, *rates) > bench.delta_at(bench.EPSILON, p, q)
    assert wrong > binom.isf(FALSE_ALARM, runs, 0.05)

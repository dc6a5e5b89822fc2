"""Every method with a confidence, on skewed laws; ``python -m bench false_claims`` takes 2,000 runs."""

import importlib
import itertools
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
@pytest.mark.parametrize(
    ("part", "runs"),
    [
        pytest.param("outcomes", 12, marks=pytest.mark.slow),
        ("outcomes", 3),
        ("votes", 5),
        ("joint", 4),
        ("canaries", 4),
    ],
)
def test_bounds_on_skewed_laws_are_above_the_truth_in_at_most_five_per_cent(bench, part, runs):
    wrong = getattr(bench, f"wrong_{part}")(runs)
    allowed = binom.isf(FALSE_ALARM / len(wrong), runs, 0.05)
    assert {key: count for key, count in wrong.items() if count > allowed} == {}


def test_the_law_of_answers_to_two_questions_is_the_sum_over_all_ballots(bench, monkeypatch):
    monkeypatch.setattr(bench, "TEACHERS", 3)
    others, target = (
        [pair for share, pair in part for _ in range(share)] for part in bench.POOLS["near copy"]
    )
    for last, law in zip((target, others), bench.answers_together("near copy", (1, 1)), strict=True):
        expected = np.zeros((2, 2))
        ballots = [np.array(part) for part in (others, others, last)]
        for pairs in itertools.product(*(np.unique(part, axis=0, return_counts=True)[0] for part in ballots)):
            share = np.prod(
                [(part == pair).all(axis=1).mean() for part, pair in zip(ballots, pairs, strict=True)]
            )
            votes = np.sum(pairs, axis=0)
            answers = [np.exp(bench.MECHANISM.log_outcomes([[3 - v, v]])[0]) for v in votes]
            expected += share * np.outer(*answers)
        np.testing.assert_allclose(law, expected.ravel(), rtol=1e-9)


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

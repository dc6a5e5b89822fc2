"""The memorisation audit on real models: table 1 of Malek et al. 2021, digit by digit, and what holds."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from ostraka.audits import one_run_lower_bound
from tests.false_alarm import FALSE_ALARM

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def paper(data_dir):
    if not (data_dir / "alibi_confs").is_dir():
        pytest.skip(f"the confidences of Malek et al. 2021 are not in {data_dir}")
    module = importlib.import_module("reproduce.malek2021_memorisation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSTRAKA_DATA", str(data_dir))
        yield module


def test_every_printed_interval_is_computed(paper):
    wrong = {}
    for row in paper.TABLE_1:
        low, high, _ = paper.authors_interval(*paper.saved(row.saved))
        if (f"{low:.1f}", f"{high:.1f}") != tuple(f"{end:.1f}" for end in row.printed):
            wrong[row.saved] = (low, high)
    assert wrong == {}
    assert len(paper.TABLE_1) == 13


def test_bounds_that_hold_are_below_every_promise_and_a_third_of_it_for_alibi(paper):
    for row in paper.TABLE_1:
        for bound in paper.bounds(*paper.saved(row.saved), delta=row.delta).values():
            assert bound.epsilon <= row.epsilon
        if row.algorithm == "ALIBI" and row.epsilon > 2:
            cuts = paper.bounds(*paper.saved(row.saved), delta=row.delta)["several cuts"]
            assert cuts.epsilon > row.epsilon / 3


def test_models_of_pate_were_not_seen_to_memorise(paper):
    bounds = [
        paper.bounds(*paper.saved(row.saved), delta=row.delta)["several cuts"].epsilon
        for row in paper.TABLE_1
        if row.algorithm == "PATE-FM"
    ]
    assert bounds == [0.0] * 6


def test_canaries_of_the_authors_are_uniform_wrong_labels(paper):
    planted, _ = paper.saved("cifar10_RR_H")
    with np.load(paper.folder() / "alibi_confs" / "alibi_confs.npz") as arrays:
        step = (arrays["cifar10_canary_labels"].astype(int) - arrays["cifar10_true_labels"]) % 10
    assert (planted.positions.sum(), planted.labels.sum()) == (25165634, 4641)  # their check sums
    assert sorted(set(step.tolist())) == list(range(1, 10))


def test_a_shuffled_model_shows_nothing(paper):
    """The same confidences on other rows: whatever was seen came from the training labels."""
    planted, probabilities = paper.saved("cifar10_RR_H")
    shuffled = probabilities[np.random.default_rng(0).permutation(len(probabilities))]
    assert one_run_lower_bound(planted.scores(probabilities), delta=0.0, game="labels").epsilon > 3
    assert one_run_lower_bound(planted.scores(shuffled), delta=0.0, game="labels").epsilon == 0.0


@pytest.mark.statistical
def test_where_labels_are_redrawn_the_bounds_are_silent_and_the_printed_ones_are_not(paper):
    rng, authors, ours = np.random.default_rng(1), 0, 0
    for name in ("cifar10_RR_M", "cifar100_RR_M", "cifar100_PATE_H"):
        planted, probabilities = paper.saved(name)
        for _ in range(30):
            game = paper.redrawn(planted, rng=rng)
            authors += paper.authors_interval(game, probabilities)[0] > 0
            ours += one_run_lower_bound(game.scores(probabilities), delta=0.0, game="labels").epsilon > 0
    assert binomtest(ours, 90, 0.05, alternative="greater").pvalue > FALSE_ALARM
    assert ours <= 9  # these draws themselves
    assert authors > 60

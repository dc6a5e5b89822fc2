"""Canaries: a fair game, planted where it says, scored as by hand; nothing about labels is printed."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from ostraka.attacks import Canaries
from tests.false_alarm import FALSE_ALARM

LABELS = np.arange(600) % 6


def drawn(*, n=200, seed=0, **changes):
    return Canaries.draw(LABELS, **{"n_classes": 6, "n": n, "rng": np.random.default_rng(seed), **changes})


def example(**changes):
    arguments = {"positions": [4, 0], "labels": [1, 2], "decoys": [[2, 3], [0, 1]], "n_classes": 4}
    return Canaries(**{**arguments, **changes})


@pytest.mark.parametrize("n_decoys", [None, 1, 3])
def test_candidates_are_different_wrong_classes(n_decoys):
    planted = drawn(n_decoys=n_decoys)
    candidates = np.column_stack([planted.labels, planted.decoys, LABELS[planted.positions]])
    assert planted.decoys.shape == (200, n_decoys or 4)
    assert all(len(set(row)) == len(row) for row in candidates.tolist())
    assert set(candidates.ravel()) == set(range(6))


def test_planting_changes_the_canaries_and_nothing_else():
    planted, before = drawn(), LABELS.copy()
    after = planted.plant(LABELS)
    assert set(np.flatnonzero(after != LABELS)) == set(planted.positions)
    np.testing.assert_array_equal(after[planted.positions], planted.labels)
    np.testing.assert_array_equal(LABELS, before)


def test_all_rows_can_be_canaries_and_none_twice():
    assert sorted(drawn(n=600).positions) == list(range(600))


def test_the_generator_alone_decides():
    first, second, third = drawn(seed=3), drawn(seed=3), drawn(seed=4)
    for name in ("positions", "labels", "decoys"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.labels, third.labels)


def fair(true, label, decoy, *, n_classes):
    """Whether every true class with every ordered pair of wrong ones came as often, and alike."""
    pairs = list(itertools.permutations(range(n_classes), 3))
    tally = np.zeros((n_classes,) * 3)
    np.add.at(tally, (true, label, decoy), 1)
    return chisquare([tally[pair] for pair in pairs]).pvalue > FALSE_ALARM


@pytest.mark.statistical
def test_label_and_decoy_are_exchangeable_and_uniform():
    labels = np.arange(100_000) % 5
    planted = Canaries.draw(
        labels, n_classes=5, n=100_000, rng=np.random.default_rng(1), n_decoys=1
    )  # every row once, so that true classes are exactly even
    true, label, decoy = labels[planted.positions], planted.labels, planted.decoys[:, 0]
    assert fair(true, label, decoy, n_classes=5)
    # slightly wrong: the larger class is the label, or the decoy, in one game of twenty more
    corrupted_rows = np.random.default_rng(2).random(label.size) < 0.05
    high, low = np.maximum(label, decoy), np.minimum(label, decoy)
    for first, second in ((high, low), (low, high)):
        skewed = np.where(corrupted_rows, first, label), np.where(corrupted_rows, second, decoy)
        assert not fair(true, *skewed, n_classes=5)


@pytest.mark.statistical
def test_rows_are_chosen_uniformly():
    tally = np.zeros(600)
    for seed in range(500):
        tally[drawn(n=60, seed=seed).positions] += 1
    assert chisquare(tally).pvalue > FALSE_ALARM  # without replacement: even closer than the test thinks
    assert not chisquare(tally + 40 * (np.arange(600) < 60)).pvalue > FALSE_ALARM


def test_scores_are_those_of_a_loop():
    planted = drawn(n_decoys=3)
    probabilities = np.random.default_rng(5).dirichlet(np.full(6, 0.3), size=200)
    members, others = [], []
    for row, label, decoys in zip(probabilities, planted.labels, planted.decoys, strict=True):
        for candidate in (label, *decoys):
            wins = all(row[candidate] > row[c] for c in (label, *decoys) if c != candidate)
            (members if candidate == label else others).append(row[candidate] if wins else 0.0)
    scores = planted.scores(probabilities)
    indices = sorted({*members, *others})
    np.testing.assert_array_equal(scores.values, indices)
    np.testing.assert_array_equal(scores.members, [members.count(v) for v in indices])
    np.testing.assert_array_equal(scores.others, [others.count(v) for v in indices])


def test_what_is_said_of_the_true_class_does_not_count():
    scores = example().scores([[0.9, 0.08, 0.02, 0.0], [0.1, 0.0, 0.05, 0.85]])
    assert scores.values.tolist() == [0.0, 0.08, 0.1]
    assert scores.members.tolist() == [1, 1, 0]
    assert scores.others.tolist() == [3, 0, 1]


def test_where_the_likeliest_are_tied_nothing_is_pointed_at():
    scores = example().scores([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert scores.values.tolist() == [0.0]
    assert (scores.members.tolist(), scores.others.tolist()) == ([2], [4])


def test_half_precision_is_precise_enough():
    planted = Canaries.draw(np.zeros(50, int), n_classes=100, n=50, rng=np.random.default_rng(0))
    probabilities = np.random.default_rng(0).dirichlet(np.full(100, 0.1), size=50).astype(np.float16)
    assert planted.scores(probabilities).members.sum() == 50


@pytest.mark.parametrize(
    ("probabilities", "says"),
    [
        ([[2.0, -1.0, 0.0, 0.0]] * 2, "logits"),
        ([[2.0, 1.0, 0.0, 3.0]] * 2, "logits"),
        ([[np.nan, 0.5, 0.5, 0.0]] * 2, "sum to 1"),
        ([[0.25] * 4], "shape"),
        ([[0.5] * 2] * 2, "shape"),
        ([["a", "b", "c", "d"]] * 2, "numbers"),
    ],
)
def test_what_is_no_probability_is_refused(probabilities, says):
    with pytest.raises(ValueError, match=says):
        example().scores(probabilities)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_classes": 2}, "n_classes must be an integer >= 3"),
        ({"n": 0}, "n must be an integer >= 1"),
        ({"n": 601}, "at most the number of rows, 600"),
        ({"n_decoys": 0}, "n_decoys must be an integer >= 1"),
        ({"n_decoys": 5}, "n_decoys must be at most 4"),
        ({"n_classes": 5}, "labels must be from 0 to 4"),
    ],
)
def test_games_that_cannot_be_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        drawn(**changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"positions": [4, 4]}, "2 different rows"),
        ({"positions": [4, -1]}, "2 different rows"),
        ({"positions": [4]}, "one row a canary"),
        ({"labels": [1.0, 2.0]}, "labels must be integers in 1 dimension"),
        ({"labels": [1, 4]}, "classes from 0 to 3"),
        ({"decoys": [[2, 3], [0, -1]]}, "classes from 0 to 3"),
        ({"decoys": [[2, 3], [0, 2]]}, "must be different classes"),
        ({"decoys": [2, 3]}, "decoys must be integers in 2 dimensions"),
        ({"decoys": np.empty((2, 0), int)}, "one row a canary"),
    ],
)
def test_arrays_that_are_no_game_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        example(**changes)


@pytest.mark.parametrize("labels", [[0, 1, 2], [[0] * 6], [0.5] * 6])
def test_labels_that_are_not_those_of_all_rows_are_refused(labels):
    with pytest.raises(ValueError, match="labels must be"):
        example().plant(labels)


def test_labels_do_not_print_and_do_not_change():
    planted = drawn()
    assert repr(planted) == "<Canaries: 200, of 6 classes, 4 decoys each>"
    with pytest.raises(ValueError, match="read-only"):
        planted.labels[0] = 0

"""Counting ballots."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ostraka import ABSTAIN, count_votes
from ostraka.voters import voting

ballots = npst.arrays(
    st.sampled_from([np.uint8, np.int32, np.int64]),
    st.tuples(st.integers(1, 30), st.integers(1, 12)),
    elements=st.integers(0, 6),
)


@given(ballots)
def test_counts_are_what_counting_by_hand_gives(predictions):
    counts = count_votes(predictions, n_classes=7)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[Counter(query.tolist())[k] for k in range(7)] for query in predictions.T]


@pytest.mark.parametrize("n_classes", [2, 32, 33])
@pytest.mark.parametrize("n_teachers", [255, 256, 700])
def test_unanimous_ballots_of_many_teachers_are_counted_whole(n_teachers, n_classes, monkeypatch):
    monkeypatch.setattr(voting, "_AT_ONCE", 3 * n_teachers)  # parts of three queries
    ballots = np.tile(np.arange(7, dtype=np.uint8) % n_classes, (n_teachers, 1))
    counts = count_votes(ballots, n_classes=n_classes)
    assert (counts == n_teachers * np.eye(n_classes, dtype=int)[np.arange(7) % n_classes]).all()


@pytest.mark.parametrize(
    ("predictions", "match"),
    [
        ([0, 1], "shape"),
        (np.zeros((0, 3), dtype=int), "shape"),
        ([[0.0, 1.0]], "integer class indices"),
        ([["a", "b"]], "integer class indices"),
        ([[0, 3]], r"range\(3\)"),
        ([[0, ABSTAIN]], "may not abstain"),
    ],
)
def test_what_are_no_ballots_is_refused(predictions, match):
    with pytest.raises(ValueError, match=match):
        count_votes(predictions, n_classes=3)


@pytest.mark.parametrize("n_classes", [1, 0, -1, 2.0, True])
def test_fewer_than_two_classes_are_refused(n_classes):
    with pytest.raises(ValueError, match="n_classes"):
        count_votes([[0]], n_classes=n_classes)

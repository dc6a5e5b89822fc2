"""The consensus test."""

import numpy as np
import pytest

from ostraka.attacks import consensus_test

COUNTS = np.array([[90, 10], [60, 40], [55, 45], [99, 1], [70, 30], [80, 20]])
MEMBERS = np.array([False, True, True, False, False, True])


def test_rates_are_counted_group_by_group():
    test_result = consensus_test(COUNTS, MEMBERS)
    assert (test_result.recall, test_result.false_alarm) == (2 / 3, 1 / 3)
    assert test_result.precision == pytest.approx((2 / 3) / (2 / 3 + 1 / 3))
    assert (test_result.n_members, test_result.n_others) == (3, 3)


def test_precision_does_not_depend_on_how_many_others_there_are():
    many = np.concatenate([COUNTS, np.repeat(COUNTS[~MEMBERS], 9, axis=0)])
    member = np.concatenate([MEMBERS, np.zeros(27, dtype=bool)])
    assert consensus_test(many, member).precision == pytest.approx(consensus_test(COUNTS, MEMBERS).precision)


def test_consensus_is_a_share_of_the_votes_cast():
    assert consensus_test(COUNTS / 7, MEMBERS).recall == consensus_test(COUNTS, MEMBERS).recall


def test_exactly_the_limit_counts_as_agreement():
    assert consensus_test([[75, 25], [74, 26]], [True, False]).recall == 0


def test_nobody_called_has_no_precision():
    assert consensus_test(COUNTS, MEMBERS, at=0.1).precision is None


def test_scores_rank_by_disagreement():
    assert consensus_test(COUNTS, MEMBERS).scores.advantage() == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("counts", "members", "at", "words"),
    [
        (COUNTS, MEMBERS[:3], 0.75, "members must be bool of shape"),
        (COUNTS, MEMBERS.astype(int), 0.75, "members must be bool"),
        (COUNTS, np.ones(6, bool), 0.75, "both members"),
        (COUNTS, MEMBERS, 1.0, "at must be"),
        (COUNTS * 0, MEMBERS, 0.75, "a vote in every row"),
        (-COUNTS, MEMBERS, 0.75, ">= 0"),
        (COUNTS[:, :1], MEMBERS, 0.75, "two classes"),
    ],
)
def test_bad_input_is_refused_with_its_reason(counts, members, at, words):
    with pytest.raises(ValueError, match=words):
        consensus_test(counts, members, at=at)

"""Scores: rates against scikit-learn's, and what is refused."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from ostraka.scores import Scores

rng = np.random.default_rng(0)
MEMBERS, OTHERS = rng.normal(1, 1, 300).round(1), rng.normal(0, 1, 200).round(1)
SCORES = Scores.of(members=MEMBERS, others=OTHERS)


def test_the_roc_is_scikit_learns():
    labels = np.repeat([1, 0], [MEMBERS.size, OTHERS.size])
    false, true, _ = roc_curve(labels, np.concatenate([MEMBERS, OTHERS]), drop_intermediate=False)
    ours = SCORES.roc()
    np.testing.assert_allclose(ours, (false, true))
    assert np.trapezoid(ours[1], ours[0]) == pytest.approx(
        roc_auc_score(labels, np.concatenate([MEMBERS, OTHERS]))
    )


def test_the_rate_at_a_false_positive_rate_is_reached_and_not_interpolated():
    false, true = SCORES.roc()
    assert SCORES.tpr(fpr=0.0) == true[false == 0].max()
    assert SCORES.tpr(fpr=1.0) == 1.0
    assert SCORES.tpr(fpr=0.1) <= np.interp(0.1, false, true)


def test_the_advantage_is_the_largest_gap():
    false, true = SCORES.roc()
    assert SCORES.advantage() == max(t - f for t, f in zip(true, false, strict=True))


def test_counts_add_up():
    assert SCORES.members.sum() == 300
    assert SCORES.others.sum() == 200
    with pytest.raises(ValueError, match="read-only"):
        SCORES.members[0] = 5


@pytest.mark.parametrize(
    ("values", "members", "others", "words"),
    [
        ([1.0, 1.0], [1, 1], [1, 1], "increasing"),
        ([0.0, np.nan], [1, 1], [1, 1], "finite"),
        ([0.0, 1.0], [1, -1], [1, 1], "members must be integers"),
        ([0.0, 1.0], [1, 1], [0, 0], "others must be integers"),
        ([0.0, 1.0], [1, 1, 1], [1, 1], "one count for each"),
    ],
)
def test_what_makes_no_sense_is_refused(values, members, others, words):
    with pytest.raises(ValueError, match=words):
        Scores(values=values, members=members, others=others)


def test_scores_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        Scores.of(members=[np.inf], others=[0.0])

"""Vote recovery: right estimates, honest intervals, clear refusals."""

import numpy as np
import pytest

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.attacks import recover_votes

METHODS = ("posterior", "maximum-likelihood", "wang2022")
GAUSSIAN = GNMax(sigma=40.0)
SCREENED = Confident(screen=Threshold(at=200, sigma=150.0), argmax=GAUSSIAN)
VOTES = np.array([120, 80, 30, 20])


def expected(mechanism, votes, n_answers):
    """As many answers as expected: no chance in it."""
    return np.round(n_answers * np.exp(law(mechanism, votes)))


def law(mechanism, votes):
    if not isinstance(mechanism, Confident):
        return mechanism.log_outcomes(votes[None])[0]
    screen, argmax = mechanism.screen, mechanism.argmax
    passes, stops = screen.log_outcomes(votes[None])[0]
    return np.append(argmax.log_outcomes(votes[None])[0] + passes, stops)


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize(
    "mechanism",
    [
        GAUSSIAN,
        LNMax(scale=20.0),
        SCREENED,
        Confident(screen=Threshold(at=100, sigma=30.0, noise="every"), argmax=GAUSSIAN),
    ],
    ids=["gnmax", "lnmax", "confident", "confident, noise on every count"],
)
def test_many_answers_give_the_votes_away(mechanism, method):
    recovery = recover_votes(
        expected(mechanism, VOTES, 2_000_000), n_teachers=250, mechanism=mechanism, method=method
    )
    np.testing.assert_allclose(recovery.mean, VOTES, atol=0.6)
    np.testing.assert_allclose(recovery.mode, VOTES, atol=1)
    assert recovery.mode.sum() == 250
    assert recovery.mean.sum() == pytest.approx(250)
    assert recovery.note == "" or method != "posterior"
    assert ((recovery.lower <= VOTES + 0.5) & (recovery.upper >= VOTES - 0.5)).all()


def test_the_papers_algorithm_comes_close_where_no_count_is_near_zero():
    recovery = recover_votes(
        expected(GAUSSIAN, VOTES, 10**6), n_teachers=250, mechanism=GAUSSIAN, method="wang2022"
    )
    assert np.abs(recovery.mean - VOTES).sum() / 500 < 0.02
    assert np.isnan(recovery.lower).all()
    assert "no intervals" in recovery.note


@pytest.mark.parametrize("method", METHODS)
def test_the_same_answers_give_the_same_votes(method):
    first, second = (
        recover_votes([900, 80, 20], n_teachers=100, mechanism=GAUSSIAN, method=method) for _ in range(2)
    )
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.lower, second.lower)


@pytest.mark.parametrize("method", METHODS[:2])
def test_classes_change_places_with_their_answers(method):
    answers = np.array([700, 250, 40, 10])
    order = np.array([2, 0, 3, 1])
    recovery = recover_votes(answers, n_teachers=250, mechanism=GAUSSIAN, method=method)
    moved = recover_votes(answers[order], n_teachers=250, mechanism=GAUSSIAN, method=method)
    np.testing.assert_allclose(moved.mean, recovery.mean[order], atol=1.0 if method == "posterior" else 1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_without_the_number_of_teachers_counts_are_relative_to_their_mean(method):
    recovery = recover_votes(
        expected(GAUSSIAN, VOTES, 10**6), n_teachers=None, mechanism=GAUSSIAN, method=method
    )
    assert recovery.relative
    assert "relative to the mean" in recovery.note
    np.testing.assert_allclose(recovery.mean, VOTES - VOTES.mean(), atol=5.0 if method == "wang2022" else 2.0)


def test_a_relative_answer_does_not_depend_on_the_level_of_the_votes():
    low, high = (
        recover_votes(expected(GAUSSIAN, VOTES + lift, 10**5), n_teachers=None, mechanism=GAUSSIAN)
        for lift in (0, 500)
    )
    np.testing.assert_allclose(low.mean, high.mean, atol=1e-9)


def test_a_class_never_seen_has_no_lower_end_when_teachers_are_not_counted():
    recovery = recover_votes([600, 400, 0], n_teachers=None, mechanism=GAUSSIAN)
    assert recovery.lower[2] == -np.inf
    assert np.isfinite(recovery.upper[2])
    assert "never seen" in recovery.note


def test_only_refusals_still_bound_the_largest_count():
    recovery = recover_votes(
        [0, 0, 0, 300],
        n_teachers=250,
        mechanism=Confident(screen=Threshold(at=120, sigma=10.0), argmax=GAUSSIAN),
        prior="alike",
    )
    assert (recovery.upper < 115).all()


def test_too_little_information_gives_the_prior_and_says_so():
    recovery = recover_votes([2, 1, 0], n_teachers=30, mechanism=GNMax(sigma=5_000.0), prior=1.0)
    assert "this is the prior" in recovery.note
    np.testing.assert_allclose(recovery.mean, 10, atol=1.0)
    # one count of a flat prior on three: P[h <= 24] > 0.95 with the triangular law 2 (31 - h) / (31 * 32)
    np.testing.assert_allclose(recovery.upper, 24, atol=1)
    np.testing.assert_array_equal(recovery.lower, 0)


@pytest.mark.parametrize("method", METHODS)
def test_next_to_no_noise_tells_who_leads_and_no_more(method):
    answers = [0, 10_000, 0, 0]
    recovery = recover_votes(answers, n_teachers=250, mechanism=GNMax(sigma=0.5), method=method)
    assert np.isfinite(recovery.mean).all()
    assert recovery.mean.argmax() == 1
    assert recovery.mean.sum() == pytest.approx(250)


@pytest.mark.parametrize(
    ("answers", "given", "words"),
    [
        ([5, -1, 3], {}, "whole numbers"),
        ([5, 1.5, 3], {}, "whole numbers"),
        ([5, np.nan, 3], {}, "whole numbers"),
        ([0, 0, 0], {}, "one answer or more, got none"),
        ([7], {}, "two classes or more"),
        ([[5, 3]], {}, r"shape \(n_outcomes,\)"),
        (["many", "few"], {}, "must be numbers"),
        ([5, 1, 3], {"n_classes": 2}, "got 3 outcomes"),
        ([5, 1, 3], {"n_classes": 2}, "needs a screen"),
        ([5, 3], {"mechanism": SCREENED}, "two classes or more and how often"),
        ([5, 1, 3], {"mechanism": SCREENED, "n_classes": 3}, "3 classes and no answer"),
        ([5, 1, 3], {"n_teachers": 0}, "n_teachers must be"),
        ([5, 1, 3], {"prior": "flat"}, "prior must be one of leader, alike"),
        ([5, 1, 3], {"prior": -1.0}, "prior must be finite and > 0"),
        ([5, 1, 3], {"method": "guess"}, "method must be one of"),
        ([0, 0, 9], {"mechanism": SCREENED, "method": "wang2022"}, "every question was refused"),
        ([0, 0, 9], {"mechanism": SCREENED, "n_teachers": None}, "every question was refused"),
    ],
)
def test_bad_input_is_refused_with_its_reason(answers, given, words):
    settings = {"n_teachers": 250, "mechanism": GAUSSIAN, **given}
    with pytest.raises(ValueError, match=words):
        recover_votes(answers, **settings)


@pytest.mark.parametrize("mechanism", [Threshold(at=3, sigma=1.0), (GAUSSIAN, GAUSSIAN), "gnmax"])
def test_what_is_not_a_ballot_is_refused(mechanism):
    with pytest.raises(TypeError, match="mechanism must be a ballot mechanism"):
        recover_votes([5, 3], n_teachers=10, mechanism=mechanism)


def drawn_from_the_prior(rng, *, n_classes, n_teachers):
    """A draw from prior="leader", written from its description and not from its code."""
    remainder = rng.binomial(n_teachers, rng.beta(rng.choice([0.1, 1.0]), 1))
    shares = rng.dirichlet(np.full(n_classes - 1, rng.choice(np.geomspace(0.03, 30.0, 13))))
    others = rng.multinomial(remainder, shares / shares.sum())
    return rng.permutation(np.append(n_teachers - remainder, others))


@pytest.mark.statistical
@pytest.mark.parametrize("n", [20, pytest.param(120, marks=pytest.mark.slow)])
def test_credible_intervals_hold_the_votes_as_often_as_they_say(n):
    """For n histograms of ten classes, hits within one are dependent: a histogram's mean hit is one draw.

    Hoeffding: |mean - truth| > 0.3 has probability below 1e-9 at n = 120, and > 0.74 at n = 20; the seed is
    fixed, so the tighter limits below, four standard errors, either always hold or never.
    """
    rng = np.random.default_rng(11)
    coverage, wide = [], []
    for _ in range(n):
        votes = drawn_from_the_prior(rng, n_classes=10, n_teachers=250)
        q = np.exp(law(GAUSSIAN, votes))
        recovery = recover_votes(rng.multinomial(1000, q / q.sum()), n_teachers=250, mechanism=GAUSSIAN)
        coverage.append(np.mean((recovery.lower <= votes) & (votes <= recovery.upper)))
        wide.append(np.mean((recovery.lower + 2 <= votes) & (votes <= recovery.upper - 2)))
    assert abs(np.mean(coverage) - 0.9525) < 0.0325 * np.sqrt(120 / n)
    assert np.mean(wide) < 0.9  # intervals shorter by two votes at each end would be noticed

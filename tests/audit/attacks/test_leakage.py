"""The information bound and the leakage meter."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.attacks import leakage_meter, recover_votes
from ostraka.audit.attacks.votes import cramer_rao, leakage_panel

GAUSSIAN = GNMax(sigma=40.0)
INSIDE = np.array([[45.0, 60, 50, 35, 60]])


def simulated(mechanism, votes, *, n_answers, seed, method):
    q = np.exp(mechanism.log_outcomes(votes[None])[0])
    answers = np.random.default_rng(seed).multinomial(n_answers, q / q.sum())
    return recover_votes(answers, n_teachers=int(votes.sum()), mechanism=mechanism, method=method).mean


def test_two_classes_have_the_bound_of_a_coin():
    gap, sigma, n = 30.0, 40.0, 10_000
    slope = norm.pdf(gap / (sigma * math.sqrt(2))) / (sigma * math.sqrt(2))
    p = norm.cdf(gap / (sigma * math.sqrt(2)))
    by_gap = math.sqrt(p * (1 - p) / n) / slope
    bound = cramer_rao(GNMax(sigma=sigma), [[140, 110]], n_answers=n)
    np.testing.assert_allclose(bound, [[by_gap / 2, by_gap / 2]], rtol=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [GAUSSIAN, LNMax(scale=20.0), Confident(screen=Threshold(at=60, sigma=20.0), argmax=GAUSSIAN)],
)
def test_the_bound_is_the_inverse_of_a_numerical_information(mechanism):
    screen, argmax = (
        (mechanism.screen, mechanism.argmax) if isinstance(mechanism, Confident) else (None, mechanism)
    )
    votes = np.array([70.0, 50, 30])

    def outcomes(h):
        q = np.exp(argmax.log_outcomes(h[None])[0])
        passes, stops = np.exp(screen.log_outcomes(h[None])[0]) if screen else (1.0, None)
        return np.append(passes * q, [] if stops is None else [stops])

    moves = np.array([[1.0, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    slopes = np.array([(outcomes(votes + 1e-4 * d) - outcomes(votes - 1e-4 * d)) / 2e-4 for d in moves])
    covariance = moves.T @ np.linalg.inv((slopes / outcomes(votes)) @ slopes.T) @ moves
    got = cramer_rao(mechanism, votes[None], n_answers=100)[0]
    np.testing.assert_allclose(got, np.sqrt(np.diag(covariance) / 100), rtol=1e-4)


def test_counts_of_zero_are_known_and_help_with_the_rest():
    with_zero = cramer_rao(GAUSSIAN, [[150, 100, 0]], n_answers=1000)[0]
    assert with_zero[2] == 0
    barely = cramer_rao(GAUSSIAN, [[150, 100, 1e-9]], n_answers=1000)[0]
    assert (with_zero[:2] < barely[:2]).all()


@pytest.mark.statistical
def test_maximum_likelihood_reaches_the_bound_where_it_is_valid():
    """The mean of 60 * 4 squared standardised errors: its own deviation is 0.09, and the seeds are fixed."""
    errors = np.array(
        [
            simulated(GAUSSIAN, INSIDE[0], n_answers=10_000, seed=seed, method="maximum-likelihood")
            - INSIDE[0]
            for seed in range(60)
        ]
    )
    bound = cramer_rao(GAUSSIAN, INSIDE, n_answers=10_000)[0]
    ratio = math.sqrt((errors**2).sum() / 60 / (bound**2).sum())
    assert 0.85 < ratio < 1.15


@pytest.mark.parametrize("n_answers", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_meter_says_on_average_what_the_best_attack_reaches(n_answers):
    questions = np.array(
        [
            [214, 8, 7, 6, 4, 4, 4, 2, 1, 0],
            [117, 99, 10, 7, 4, 4, 4, 4, 1, 0],
            [161, 30, 19, 12, 10, 7, 6, 4, 1, 0],
            [232, 10, 3, 2, 1, 1, 1, 0, 0, 0],
            [184, 61, 3, 2, 0, 0, 0, 0, 0, 0],
            [109, 73, 19, 19, 10, 10, 7, 2, 1, 0],
        ]
    )
    wrong = (
        np.array(
            [
                [
                    np.abs(
                        simulated(GAUSSIAN, votes, n_answers=n_answers, seed=seed, method="posterior") - votes
                    ).sum()
                    for seed in range(2)
                ]
                for votes in questions
            ]
        ).mean(axis=1)
        / 2
    )
    ratio = leakage_meter(GAUSSIAN, questions, n_answers=n_answers) / wrong
    assert 0.7 < np.exp(np.log(ratio).mean()) < 1.4
    assert ratio.min() > 1 / 3.5
    assert ratio.max() < 3.5


def test_the_meter_falls_with_every_answer_and_tends_to_the_bound():
    leakage = leakage_meter(GAUSSIAN, INSIDE, n_answers=[0, 1, 100, 10_000, 1_000_000, 10**8])[0]
    assert (np.diff(leakage) <= 0).all()
    bound = cramer_rao(GAUSSIAN, INSIDE, n_answers=10**8)[0]
    assert leakage[-1] == pytest.approx(bound.sum() * math.sqrt(2 / math.pi) / 2, rel=0.1)


def test_more_noise_leaks_more_up_to_a_point():
    one_sided = [[214, 8, 7, 6, 4, 4, 4, 2, 1, 0]]
    leakage = [
        leakage_meter(GNMax(sigma=s), one_sided, n_answers=10_000)[0] for s in (5.0, 40.0, 100.0, 3000.0)
    ]
    assert leakage[0] > leakage[1] > leakage[2]
    assert leakage[3] > leakage[2]


def test_the_meter_takes_many_questions_at_once():
    votes = np.array([[150, 60, 40], [100, 100, 50]])
    leakages = leakage_meter(GAUSSIAN, votes, n_answers=[10, 100])
    second_question = leakage_meter(GAUSSIAN, votes[1:], n_answers=100)
    assert leakages.shape == (2, 2)
    assert leakages[1, 1] == second_question[0]


def test_the_panel_is_plain_and_says_what_repeats_cost():
    panel = leakage_panel(GAUSSIAN, INSIDE, n_answers=[1, 100])
    assert all(type(value) in (list, float, int) for value in panel.values())
    assert panel["epsilon"][1] == pytest.approx((100 * GAUSSIAN.curve()).epsilon(1e-5))
    assert panel["votes_wrong"][1] == pytest.approx(leakage_meter(GAUSSIAN, INSIDE, n_answers=100)[0])
    assert panel["share_wrong"][1] == pytest.approx(panel["votes_wrong"][1] / 250)


def test_the_panel_of_a_screened_ballot_pays_for_both():
    screen = Threshold(at=60, sigma=20.0)
    panel = leakage_panel(Confident(screen=screen, argmax=GAUSSIAN), INSIDE, n_answers=10)
    assert panel["epsilon"] == [(10 * (screen.curve() + GAUSSIAN.curve())).epsilon(1e-5)]


@pytest.mark.parametrize(
    ("votes", "n_answers", "words"),
    [
        ([[3, -1]], 5, "must be >= 0"),
        ([[0, 0]], 5, "a vote in every row"),
        ([[3, 1]], -1, "n_answers must be an integer"),
        ([[3, 1]], 1.5, "n_answers must be an integer"),
        ([[3, 1]], [[1]], "n_answers must be an integer"),
    ],
)
def test_bad_input_is_refused_with_its_reason(votes, n_answers, words):
    with pytest.raises(ValueError, match=words):
        leakage_meter(GAUSSIAN, votes, n_answers=n_answers)

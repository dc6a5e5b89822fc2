"""Canaries that do not depend on one another: a tighter bound, and what it takes for granted."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import beta, binomtest, norm

from ostraka import Curve
from ostraka.audit.one_run import gaussian_end, sign_guesses, surest_tail
from ostraka.audits import one_run_lower_bound
from ostraka.scores import Scores
from tests.audit.games import DELTA, gaussian_game, gaussian_mu, never_above
from tests.false_alarm import FALSE_ALARM


def test_independent_guesses_give_the_epsilon_of_their_share_by_other_libraries():
    """1,100 of 2,000 right: Clopper and Pearson by scipy's beta law, epsilon by its normal law."""
    scores = Scores.of(members=[1.0] * 550 + [-1.0] * 450, others=[-1.0] * 550 + [1.0] * 450)
    share = beta.ppf(0.05, 1100, 901)
    pure = one_run_lower_bound(scores, delta=0.0, independent=True)
    assert (pure.right, pure.guesses, pure.method) == (1100, 2000, "independent")
    assert pure.epsilon == pytest.approx(math.log(share / (1 - share)), rel=1e-7)
    near = one_run_lower_bound(scores, delta=0.01, independent=True).epsilon
    assert (math.exp(near) + 0.01) / (math.exp(near) + 1) == pytest.approx(share, rel=1e-7)
    curve = Curve.gaussian(sensitivity=1.0, sigma=1.0)
    claimed = one_run_lower_bound(scores, delta=DELTA, curve=curve, independent=True, guesses=2000)
    assert claimed.method == "independent-gaussian"
    assert gaussian_mu(claimed.epsilon) == pytest.approx(2 * norm.ppf(share), rel=1e-5)


@cache
def _end(right, guesses, n, error):
    return gaussian_end(right, guesses, n, separate=True, delta=DELTA, error=error)


def epsilons(games, *, confidence, guesses=None, rng=None):
    """The bound of each game. It depends on the number of right guesses alone, so that each number's is
    computed once; of the first game it is the public function's."""
    records = [sign_guesses([game], guesses=guesses, half=True, rng=rng) for game in games]
    (size,), n = records[0].numbers, records[0].n_canaries
    ends = [_end(int(record.right[0]), int(size), n, 1 - confidence) for record in records]
    settings = {"curve": Curve.gaussian(sensitivity=1.0, sigma=1.0), "independent": True, "rng": rng}
    if rng is None:  # else the lots would be others
        first = one_run_lower_bound(games[0], delta=DELTA, confidence=confidence, guesses=guesses, **settings)
        assert (first.epsilon, first.guesses) == (ends[0], size)
    return np.array(ends)


def centred(mu, n, *, seed):
    """A game with its middle of both worlds at 0, above which a canary is guessed to be in."""
    game = gaussian_game(mu, n, seed=seed)
    return replace(game, values=game.values - mu / 2)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_independent_games_certify_more_of_a_gaussian_claim_and_err_as_seldom_as_said(epsilon):
    games = [centred(gaussian_mu(epsilon), 5000, seed=seed) for seed in range(60)]
    bounds = epsilons(games, confidence=0.9)
    assert never_above(bounds, epsilon, confidence=0.9)
    assert max(bounds) > epsilon, "at confidence 0.9 a bound that never errs is too small"
    assert np.mean(bounds) > 0.7 * epsilon


@pytest.mark.statistical
def test_the_surer_half_certifies_more_than_all_guesses():
    games = [centred(gaussian_mu(1.0), 5000, seed=seed) for seed in range(40)]
    usual, half, every = (epsilons(games, confidence=0.999, guesses=k) for k in (None, 2500, 5000))
    assert (usual == half).all()
    assert never_above(half, 1.0, confidence=0.999)
    assert half.mean() > 0.59 > every.mean() - 0.01
    assert (half - every).mean() > 0


@pytest.mark.parametrize("settings", [{}, {"independent": True}, {"independent": True, "guesses": 5000}])
def test_the_estimate_of_a_claimed_gaussian_lies_between_its_ends_and_near_the_truth(settings):
    mu = gaussian_mu(1.0)
    game = gaussian_game(mu, 5000, seed=0)
    middle = replace(game, values=game.values - mu / 2)
    curve = Curve.gaussian(sensitivity=mu, sigma=1.0)
    lower = one_run_lower_bound(middle, delta=DELTA, curve=curve, **settings)
    assert lower.interval[0] <= lower.epsilon < lower.estimate < lower.interval[1]
    assert lower.interval[0] < 1 < lower.interval[1]
    assert lower.estimate == pytest.approx(1.0, abs=0.25)


def test_both_ends_of_a_gaussian_claim_are_clopper_and_pearsons_if_all_are_guessed():
    scores = Scores.of(members=[1.0] * 550 + [-1.0] * 450, others=[-1.0] * 550 + [1.0] * 450)
    curve = Curve.gaussian(sensitivity=1.0, sigma=1.0)
    settings = {"delta": DELTA, "curve": curve, "independent": True, "guesses": 2000}
    low, high = (gaussian_mu(end) for end in one_run_lower_bound(scores, **settings).interval)
    assert low == pytest.approx(2 * norm.ppf(beta.ppf(0.025, 1100, 901)), rel=1e-5)
    assert high == pytest.approx(2 * norm.ppf(beta.ppf(0.975, 1101, 900)), rel=1e-5)
    sure = Scores.of(members=[1.0] * 50, others=[-1.0] * 50)
    assert one_run_lower_bound(sure, delta=DELTA, curve=curve, independent=True).interval[1] == math.inf


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_the_surer_half_refutes_a_true_claim_as_often_as_said_and_hardly_less(epsilon):
    """2,000 games of 5,000 canaries: the true mu is refuted in 5 %, 1 % and 0.1 % of them."""
    mu, rng, right = gaussian_mu(epsilon), np.random.default_rng(0), []
    for _ in range(20):
        scores = rng.normal(mu / 2, 1, (100, 5000))
        surest = np.argpartition(-np.abs(scores), 2500, axis=1)[:, :2500]
        right += (np.take_along_axis(scores, surest, axis=1) > 0).sum(axis=1).tolist()
    tail = {number: surest_tail(mu, number, 2500, 5000) for number in set(right)}
    tails = np.array([tail[number] for number in right])
    for error in (0.05, 0.01, 0.001):
        above = int((tails <= error).sum())
        assert binomtest(above, 2000, error, alternative="greater").pvalue > FALSE_ALARM
    assert (tails <= 0.05).mean() > 0.025, "a bound that errs less often is smaller than it must be"


@pytest.mark.statistical
def test_which_of_equally_sure_guesses_are_made_is_drawn_by_lot():
    """Signs alone: all are equally sure, and members come first in every list. No bound is above."""
    games = []
    for seed in range(60):
        game = centred(gaussian_mu(1.0), 2000, seed=seed)
        games.append(
            Scores.of(
                members=np.repeat(np.sign(game.values), game.members),
                others=np.repeat(np.sign(game.values), game.others),
            )
        )
    bounds = epsilons(games, confidence=0.9, rng=np.random.default_rng(0))
    assert never_above(bounds, 1.0, confidence=0.9)
    assert np.mean(bounds) < 0.6


def test_games_that_depend_on_one_another_are_not_for_the_independent_bound():
    """Once in twenty runs everything is told: (0, 1/20)-DP, which the usual bound keeps and this one not."""
    n, coins = 1000, np.random.default_rng(0).random(1000) < 0.5
    signs = np.where(coins, 1.0, -1.0)
    scores = Scores.of(members=signs[coins], others=signs[~coins])
    assert one_run_lower_bound(scores, delta=0.05, guesses=n).epsilon == 0
    taken_at_word = one_run_lower_bound(scores, delta=0.05, independent=True)
    assert taken_at_word.epsilon > 3
    assert "assumed and not checked" in taken_at_word.note


def test_scores_of_zero_are_wrong_guesses():
    scores = Scores.of(members=[0.0] * 100, others=[0.0] * 100)
    lower = one_run_lower_bound(scores, delta=0.0, independent=True)
    assert (lower.right, lower.guesses, lower.epsilon) == (0, 200, 0.0)

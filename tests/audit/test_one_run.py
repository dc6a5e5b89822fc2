"""One training with canaries: published figures, coverage, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from statsmodels.stats.proportion import proportion_confint

from ostraka import Curve, GNMax
from ostraka.audit.one_run import inclusion_guesses
from ostraka.audits import audit_canaries, one_run_lower_bound
from ostraka.mechanisms import RandomizedResponse
from ostraka.scores import Scores
from tests.audit.games import DELTA, game, gaussian_game, gaussian_mu, never_above, response_game
from tests.false_alarm import FALSE_ALARM


def bound(n, guesses, right, delta, **settings):
    return one_run_lower_bound(game(n, guesses, right), delta=delta, guesses=guesses, **settings)


# --- published figures ---


@pytest.mark.parametrize(
    ("counts", "peer", "floor"),
    [
        # jax-privacy 2.0.0: _epsilon_one_run(0, n, guesses, right, 0.05, delta)
        ((1000, 100, 100, 1e-4), 3.20230, 3.1),
        ((10_000, 500, 499, 1e-5), 4.48235, 4.4),
        ((1000, 1000, 650, 1e-3), 0.47509, 0.47),
        ((10_000, 10_000, 7400, 1e-3), 0.89255, 0.89),
    ],
)
def test_steinke_is_what_jax_privacy_computes_or_better(counts, peer, floor):
    n, guesses, right, delta = counts
    lower = bound(n, guesses, right, delta)
    assert lower.epsilon >= max(floor, peer - 1e-4)
    assert lower.epsilon <= 1.01 * peer, "the smaller of two tails, of which one is the peer's"
    assert (lower.method, lower.right, lower.guesses, lower.n_canaries) == ("steinke", right, guesses, n)


def test_without_delta_the_ends_are_those_of_statsmodels():
    """Planted: one guess more counts as right, or one of two ends has the whole error."""
    lower = one_run_lower_bound(game(1000, 200, 160), delta=0.0, guesses=[200, 400])
    assert (lower.right, lower.guesses, lower.n_cuts) == (160, 200, 2)
    for alpha, end, ours in (
        (0.1, 0, lower.epsilon),
        (0.05, 0, lower.interval[0]),
        (0.05, 1, lower.interval[1]),
    ):
        share = proportion_confint(160, 200, alpha=alpha / 2, method="beta")[end]
        assert ours == pytest.approx(math.log(share / (1 - share)), rel=1e-9)


def any_dependence(n, guesses, right, delta):
    """The same counts as a game about labels, where the number of guesses may depend on the output."""
    scores = Scores.of(
        members=[1.0] * right + [0.0] * (n - right),
        others=[1.0] * (guesses - right) + [0.0] * (n - guesses + right),
    )
    lower = one_run_lower_bound(scores, delta=delta, at=0.5, game="labels")
    assert lower.method == "any-dependence"
    return lower.epsilon


@pytest.mark.parametrize(
    ("n", "guesses", "right", "delta", "floor"),
    [(1000, 100, 100, 1e-4, 2.6), (10_000, 500, 499, 1e-5, 4.0), (1000, 1000, 650, 1e-3, 0.38)],
)
def test_without_assumptions_delta_is_spent_nearest_to_what_was_seen(n, guesses, right, delta, floor):
    lower = any_dependence(n, guesses, right, delta)
    assert floor <= lower < bound(n, guesses, right, delta).epsilon


@pytest.mark.parametrize(
    ("n", "guesses", "right", "peer"),
    [(1000, 125, 110, 2.34133), (1000, 250, 216, 2.51548), (400, 100, 90, 2.80053)],
)
def test_a_claimed_gaussian_curve_is_refuted_as_jax_privacy_computes(n, guesses, right, peer):
    # jax-privacy 2.0.0: _epsilon_one_run_fdp(0, n, guesses, right, 0.05, 1e-5)
    claim = Curve.gaussian(sensitivity=1.0, sigma=1.0)
    assert bound(n, guesses, right, DELTA, curve=claim).epsilon == pytest.approx(peer, abs=2e-5)


# --- coverage and power ---


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_randomised_response_is_found_from_below(epsilon):
    """Binary scores: nearly all are tied, and lots are drawn."""
    bounds = [
        one_run_lower_bound(
            response_game(epsilon, 1000, seed=s),
            delta=0.0,
            guesses=1000,
            confidence=0.8,
            rng=np.random.default_rng(s),
        ).epsilon
        for s in range(150)
    ]
    assert never_above(bounds, epsilon, confidence=0.8)
    assert np.mean(bounds) >= 0.85 * epsilon
    assert max(bounds) > epsilon, "at confidence 0.8 a bound that never errs is too small"


@pytest.mark.statistical
@pytest.mark.parametrize(
    "epsilon", [2.0, pytest.param(4.0, marks=pytest.mark.slow), pytest.param(8.0, marks=pytest.mark.slow)]
)
def test_a_claimed_gaussian_curve_is_certified_from_below(epsilon):
    """1,000 canaries, an eighth guessed. The peer's figures at confidence 0.95: 0.96, 1.97, 4.16."""
    mu = gaussian_mu(epsilon)
    curve = Curve.gaussian(sensitivity=mu, sigma=1.0)
    assert curve.epsilon(DELTA) == pytest.approx(epsilon, abs=1e-6)
    bounds = [
        one_run_lower_bound(gaussian_game(mu, 1000, seed=s), delta=DELTA, curve=curve).epsilon
        for s in range(20)
    ]
    assert max(bounds) <= epsilon
    assert np.mean(bounds) >= {2.0: 0.96, 4.0: 1.97, 8.0: 4.16}[epsilon]
    without = [one_run_lower_bound(gaussian_game(mu, 1000, seed=s), delta=DELTA).epsilon for s in range(20)]
    assert np.mean(without) < 0.75 * np.mean(bounds)


@pytest.mark.statistical
@pytest.mark.parametrize("mu", [1e-3, 0.5])
def test_true_gaussian_claims_are_refuted_as_seldom_as_said(mu):
    """A verdict depends on the number of right guesses alone: each number's is asked for once."""
    curve, verdicts, claims = Curve.gaussian(sensitivity=mu, sigma=1.0), {}, 0
    for seed in range(150):
        scores = gaussian_game(mu, 300, seed=seed)
        right = int(inclusion_guesses([scores], guesses=100, rng=np.random.default_rng(0)).right[0])
        if right not in verdicts:
            verdicts[right] = audit_canaries(
                scores, delta=DELTA, curve=curve, confidence=0.5, guesses=100
            ).verdict
        claims += verdicts[right] == "violated"
    assert binomtest(claims, 150, 0.5, alternative="greater").pvalue > FALSE_ALARM


GAUSSIAN = Curve.gaussian(sensitivity=1.0, sigma=1.0)
SURE = Scores.of(members=[0.9] * 20, others=[0.0] * 20)


@pytest.mark.parametrize(
    "curve",
    [
        replace(GAUSSIAN, rdp=tuple(0.9 * value for value in GAUSSIAN.rdp)),
        GNMax(sigma=40.0).curve(),
        RandomizedResponse(n_classes=2, epsilon=1.0).curve(),
        Curve.zero(),
    ],
    ids=["less than dominated", "argmax", "response", "nothing"],
)
def test_curves_that_are_not_gaussian_are_refused(curve):
    with pytest.raises(ValueError, match="curve must be that of a Gaussian mechanism"):
        one_run_lower_bound(gaussian_game(1.0, 100, seed=0), delta=DELTA, curve=curve)


@pytest.mark.statistical
def test_what_delta_gives_away_all_at_once_is_no_epsilon():
    """(0, delta)-DP: with probability delta all coins are told, and else nothing leaks."""
    n, delta, runs = 200, 2e-3, 300
    rng, above = np.random.default_rng(6), 0
    for _ in range(runs):
        included = rng.random(n) < 0.5
        seen = included + 0.0 if rng.random() < delta else rng.random(n)
        scores = Scores.of(members=seen[included], others=seen[~included])
        above += one_run_lower_bound(scores, delta=delta, confidence=0.9, rng=rng).epsilon > 0
    assert binomtest(above, runs, 0.1, alternative="greater").pvalue > FALSE_ALARM


# --- the games ---


def test_ties_are_drawn_by_lot_and_nothing_else_is():
    scores = response_game(2.0, 400, seed=1)
    lots = {
        one_run_lower_bound(scores, delta=0.0, guesses=100, rng=np.random.default_rng(s)).right
        for s in range(20)
    }
    assert len(lots) > 1
    plain = gaussian_game(1.0, 400, seed=1)
    assert len({one_run_lower_bound(plain, delta=0.0, guesses=100).right for _ in range(5)}) == 1


def test_the_surest_on_both_sides_are_guessed():
    scores = Scores.of(members=[9.0, 8.0, 7.0, 0.1, -5.0], others=[-9.0, -8.0, 0.2, 0.0, 6.0])
    lower = one_run_lower_bound(scores, delta=0.0, guesses=6)
    assert (lower.right, lower.guesses) == (5, 6)  # in: 9, 8, 7; out: -9, -8, -5


def test_planned_guesses_of_labels_count_what_is_missing_as_wrong():
    scores = Scores.of(members=[0.9] * 40 + [0.0] * 60, others=[0.9] * 10 + [0.0] * 90)
    lower = one_run_lower_bound(scores, delta=1e-4, game="labels", guesses=80)
    assert (lower.right, lower.guesses, lower.method, lower.at) == (40, 80, "steinke", None)
    fewer = one_run_lower_bound(scores, delta=1e-4, game="labels", guesses=30)
    assert (fewer.right, fewer.guesses) == (0, 30), "fifty tied guesses are not split"


def test_more_candidates_need_no_fair_coins():
    scores = Scores.of(members=[0.9] * 90 + [0.0] * 10, others=[0.9] * 10 + [0.0] * 790)
    lower = one_run_lower_bound(scores, delta=1e-5, game="labels", guesses=100)
    assert (lower.method, lower.n_candidates) == ("any-dependence", 9)
    assert lower.epsilon > one_run_lower_bound(scores, delta=1e-5, game="labels").epsilon - 1e-9


def test_several_trainings_are_pooled():
    runs = [gaussian_game(1.0, 200, seed=s) for s in range(3)]
    lower = one_run_lower_bound(runs, delta=DELTA, guesses=90)
    assert (lower.n_canaries, lower.guesses) == (600, 90)


def test_a_false_gaussian_claim_is_violated_and_a_true_one_is_not():
    scores = gaussian_game(2.0, 2000, seed=3)
    false, true = (
        audit_canaries(scores, delta=DELTA, curve=Curve.gaussian(sensitivity=1.0, sigma=s))
        for s in (1.0, 0.5)
    )
    assert (false.verdict, true.verdict) == ("violated", "consistent")
    assert "Gaussian" in false.note


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"scores": Scores.of(members=[1.0] * 90, others=[0.0] * 10)}, "fair coin"),
        ({"scores": Scores.of(members=[0.9, 0.8, 0.0] * 20, others=[0.0] * 60)}, "say game='labels'"),
        ({"scores": []}, "one training or more"),
        ({"scores": ([1.0, 2.0], [0.0, 1.0])}, "scores must be Scores"),
        ({"guesses": 0}, "guesses must be whole numbers from 1 to 100"),
        ({"guesses": 101}, "guesses must be whole numbers from 1 to 100"),
        ({"guesses": 2.5}, "guesses must be whole numbers"),
        ({"guesses": ()}, "guesses must be whole numbers"),
        ({"independent": True, "guesses": 10}, "independent must only"),
        ({"independent": True, "game": "labels"}, "independent must only"),
        ({"at": 0.5}, "at must only be given for labels"),
        ({"game": "coins"}, "game must be one of"),
        ({"delta": 1.0}, "delta must be"),
        ({"curve": GAUSSIAN, "delta": 0.0}, "delta must be > 0 with a curve"),
        ({"scores": SURE, "game": "labels", "curve": GAUSSIAN}, "fixed in advance"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, words):
    arguments = {"scores": gaussian_game(1.0, 100, seed=0), "delta": DELTA, **settings}
    with pytest.raises(ValueError, match=words):
        one_run_lower_bound(arguments.pop("scores"), **arguments)


@pytest.mark.parametrize(
    "claims", [{}, {"claimed_epsilon": 1.0, "curve": Curve.gaussian(sensitivity=1, sigma=1)}]
)
def test_a_claim_is_an_epsilon_or_a_curve(claims):
    with pytest.raises(ValueError, match="either claimed_epsilon or curve"):
        audit_canaries(gaussian_game(1.0, 100, seed=0), delta=DELTA, **claims)

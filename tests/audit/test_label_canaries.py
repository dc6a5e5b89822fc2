"""Canaries with other labels: against other code and all small mechanisms, below the truth, not blind."""

import json
import math
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

from ostraka import Adjacency, Private
from ostraka.attacks import Canaries
from ostraka.audits import audit_canaries, one_run_lower_bound
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace, RandomizedResponse
from ostraka.scores import Scores
from tests.audit.games import never_above

N = 1000


def bound_of(scores, *, delta=0.0, **settings):
    return one_run_lower_bound(scores, delta=delta, game="labels", **settings)


def game(right, wrong, *, abstained=0, n_decoys=1, score=0.9):
    """Scores of a game with that many right and wrong guesses, all equally sure."""
    n = right + wrong + abstained
    return Scores.of(
        members=[score] * right + [0.0] * (n - right),
        others=[score] * wrong + [0.0] * (n_decoys * n - wrong),
    )


def attacked(mechanism, *, seed, n=N, n_decoys=None, n_classes=10):
    """Scores of the strongest adversary: she sees the released answers, and knows which labels may be."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, size=n)
    planted = Canaries.draw(labels, n_classes=n_classes, n=n, rng=rng, n_decoys=n_decoys)
    answers = mechanism.release(Private(planted.plant(labels), Adjacency.one_label()), rng=rng)
    candidates = np.column_stack([planted.labels, planted.decoys])
    prior = np.zeros((n, n_classes))
    np.put_along_axis(prior, candidates, 1 / candidates.shape[1], axis=1)
    return planted.scores(mechanism.posterior(answers[planted.positions], prior))


def converted(share, n_candidates):
    return max(0.0, float(mpmath.log(n_candidates - 1) + mpmath.log(share / (1 - mpmath.mpf(share)))))


# --- the number itself, by other people's code ---


@pytest.mark.parametrize(("right", "wrong"), [(60, 40), (99, 1), (400, 500), (1000, 0)])
@pytest.mark.parametrize("n_decoys", [1, 8])
def test_both_ends_are_clopper_and_pearsons(right, wrong, n_decoys):
    scores = game(right, wrong, abstained=7, n_decoys=n_decoys)
    bound = bound_of(scores, at=0.5)
    one_sided = proportion_confint(right, right + wrong, alpha=0.10, method="beta")[0]
    low, high = proportion_confint(right, right + wrong, alpha=0.05, method="beta")
    assert bound.epsilon == pytest.approx(converted(one_sided, n_decoys + 1), rel=1e-6)
    assert bound.epsilon <= converted(one_sided, n_decoys + 1)
    assert bound.interval[0] == pytest.approx(converted(low, n_decoys + 1), rel=1e-6)
    assert bound.interval[1] == pytest.approx(converted(high, n_decoys + 1) if wrong else math.inf, rel=1e-6)
    assert (bound.right, bound.guesses, bound.n_canaries) == (right, right + wrong, right + wrong + 7)
    assert (bound.n_candidates, bound.n_cuts, bound.at) == (n_decoys + 1, 1, 0.5)


def test_the_estimate_is_the_log_of_the_odds():
    bound = bound_of(game(90, 10, n_decoys=8))
    assert bound.estimate == pytest.approx(math.log(9) + math.log(8))
    assert bound_of(game(50, 0)).estimate == math.inf
    assert bound_of(game(10, 90)).estimate == 0.0


def test_several_cuts_share_the_error():
    scores = Scores.of(
        members=[0.99] * 50 + [0.6] * 30 + [0.0] * 40, others=[0.99] * 2 + [0.6] * 38 + [0.0] * 80
    )
    cuts = bound_of(scores, at=(0.5, 0.95))
    want = proportion_confint(50, 52, alpha=0.05, method="beta")[0]  # half of it at this end, for two cuts
    assert cuts.epsilon == pytest.approx(converted(want, 2), rel=1e-6)
    assert (cuts.at, cuts.n_cuts, cuts.right, cuts.guesses) == (0.95, 2, 50, 52)
    ends = proportion_confint(50, 52, alpha=0.025, method="beta")
    assert cuts.interval == pytest.approx([converted(end, 2) for end in ends], rel=1e-6)


def test_by_itself_it_tries_all_guesses_and_the_surer_halves_down_to_thirty():
    rng = np.random.default_rng(0)
    sure, right = rng.random(200), rng.random(200) < 0.7
    scores = Scores.of(members=np.where(right, sure, 0.0), others=np.where(right, 0.0, sure))
    tops = [np.sort(sure)[-k] for k in (200, 100, 50)]  # 25 would be too few
    got, named = (bound_of(scores, at=at) for at in (None, tuple(tops)))
    assert got == named
    assert got.n_cuts == 3


def test_where_to_cut_does_not_depend_on_who_is_right():
    rng = np.random.default_rng(1)
    sure = rng.random(300).round(2)  # with ties
    cuts = set()
    for share in (0.0, 0.5, 1.0):
        right = rng.random(300) < share
        scores = Scores.of(members=np.where(right, sure, 0.0), others=np.where(right, 0.0, sure))
        cuts.add(bound_of(scores).n_cuts)
    assert len(cuts) == 1


def test_guesses_that_tie_are_made_together():
    bound = bound_of(game(300, 100))
    assert (bound.n_cuts, bound.guesses) == (1, 400)


@pytest.mark.parametrize("at", [None, 0.99])
def test_without_a_guess_nothing_is_known(at):
    scores = game(0, 0, abstained=20) if at is None else game(15, 5)
    bound = bound_of(scores, delta=1e-5, at=at)
    assert (bound.epsilon, bound.interval, bound.estimate, bound.guesses) == (0.0, (0.0, math.inf), 0.0, 0)


def test_trainings_are_pooled():
    runs = [game(40, 10), game(35, 15), game(45, 5)]
    pooled = bound_of(runs, at=0.5)
    single_training = bound_of(game(120, 30), at=0.5)
    assert pooled == single_training
    assert pooled.method == "any-dependence"


def test_one_canary_in_each_of_many_trainings_is_told_apart():
    runs = [game(1, 0)] * 80 + [game(0, 1)] * 20
    many, single = (bound_of(scores) for scores in (runs, game(80, 20)))
    assert (many.method, single.method) == ("many-runs", "any-dependence")
    assert many.epsilon == single.epsilon


# --- delta ---


def test_delta_is_paid_by_a_share_of_the_error_that_is_fixed_in_advance():
    """By mpmath: E max(0, 1 - (v - B)_+ / i) + n delta / i is the error at the bound."""
    n, delta, right, error = 1000, 1e-4, 850, 0.05
    bound = bound_of(game(right, n - right), delta=delta, at=0.5)
    i = mpmath.mpf(n * delta) / (0.65 * error)
    share = 1 / (1 + mpmath.exp(-bound.epsilon))
    total = n * mpmath.mpf(delta) / i
    for hits in range(n + 1):
        part = max(mpmath.mpf(0), 1 - mpmath.mpf(max(0, right - hits)) / i)
        if part:
            total += part * mpmath.binomial(n, hits) * share**hits * (1 - share) ** (n - hits)
    assert float(total) == pytest.approx(error, rel=1e-6)
    assert total <= error


def test_delta_costs_less_where_trainings_are_independent():
    delta, error = 1e-3, 0.05
    bound = bound_of([game(1, 0)] * 800 + [game(0, 1)] * 200, delta=delta)
    failures = next(j for j in range(99) if binom.sf(j, 1000, delta) <= 0.2 * error)
    error_left = error - binom.sf(failures, 1000, delta)
    want = proportion_confint(800 - failures, 1000, alpha=2 * error_left, method="beta")[0]
    assert bound.epsilon == pytest.approx(converted(want, 2), rel=1e-6)
    assert bound.epsilon > bound_of(game(800, 200), delta=delta).epsilon


def test_a_delta_that_may_give_everything_away_leaves_nothing_to_say():
    assert bound_of(game(1000, 0), delta=0.5).epsilon == 0.0
    assert bound_of(game(1000, 0)).epsilon > 5


@pytest.mark.parametrize("together", [False, True])
def test_labels_given_away_with_probability_delta_are_no_epsilon(together):
    """(0, delta)-DP: each label is told with probability delta, by itself or all of them at once."""
    n, delta, runs = 400, 0.002, 400
    rng, epsilons = np.random.default_rng(6), []
    for _ in range(runs):
        leaks = np.full(n, rng.random() < delta) if together else rng.random(n) < delta
        right = int((leaks | (rng.random(n) < 0.5)).sum())
        epsilons.append(bound_of(game(right, n - right), delta=delta).epsilon)
    assert never_above(epsilons, 0.0)


# --- validity, without chance: every outcome of small mechanisms ---


@cache
def claim(right, wrong, n_decoys, confidence):
    return bound_of(game(right, wrong, n_decoys=n_decoys), confidence=confidence).epsilon


def coverage(steps, *, epsilon, n_candidates, confidence):
    """P(bound > epsilon) of one run in which P(answer) ~ e^(epsilon g(right)), g falling by given steps.

    Exactly epsilon-DP if no step is above 1: one label changes the number of right guesses by 1 at most,
    and the normaliser is the same for all labels. The guesses depend on one another unless g is linear.
    """
    m = len(steps)
    g = np.concatenate([[0.0], np.cumsum(steps)])
    ways = np.array([math.comb(m, right) * (n_candidates - 1) ** (m - right) for right in range(m + 1)])
    law = ways * np.exp(epsilon * (g - g.max()))
    law /= law.sum()
    above = [claim(right, m - right, n_candidates - 1, confidence) > epsilon for right in range(m + 1)]
    return float(law[above].sum())


@pytest.mark.parametrize("n_candidates", [5, 2])
def test_dependent_guesses_of_one_run_do_not_fool_it(n_candidates):
    rng, worst = np.random.default_rng(8), 0.0
    shapes = [np.ones(12), -np.ones(12), *rng.choice([-1.0, 0.0, 1.0], size=(40, 12))]
    for steps in (*shapes, *(np.sort(rng.uniform(-1, 1, 12)) for _ in range(20))):
        for confidence in (0.6, 0.8, 0.95):
            share = coverage(np.asarray(steps), epsilon=1.0, n_candidates=n_candidates, confidence=confidence)
            assert share <= 1 - confidence
            worst = max(worst, share / (1 - confidence))
    assert worst > 0.3  # not by being blind


def test_a_mechanism_that_breaks_its_promise_is_seen_more_often_than_allowed():
    assert coverage(np.full(60, 1.5), epsilon=1.0, n_candidates=2, confidence=0.95) > 0.2


# --- validity and power, by seeded runs ---


@pytest.mark.statistical
@pytest.mark.parametrize("n_decoys", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_a_model_that_knows_nothing_shows_nothing(n_decoys):
    labels, epsilons = np.arange(200) % 10, []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        planted = Canaries.draw(labels, n_classes=10, n=200, rng=rng, n_decoys=n_decoys)
        probabilities = rng.dirichlet(np.full(10, 0.2), size=200)
        epsilons.append(bound_of(planted.scores(probabilities)).epsilon)
    assert never_above(epsilons, 0.0)
    assert np.mean(np.array(epsilons) > 0) < 0.05  # these runs themselves


RESPONSES = {epsilon: RandomizedResponse(n_classes=10, epsilon=epsilon) for epsilon in (0.5, 1.0, 4.0, 6.0)}
LAPLACE = {epsilon: OneHotLaplace(n_classes=10, scale=2 / epsilon) for epsilon in (0.5, 1.0, 4.0, 6.0)}
GAUSSIAN = OneHotGaussian(n_classes=10, sigma=2.0)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "epsilon", "part", "n_decoys", "delta", "runs"),
    [
        (RESPONSES[1.0], 1.0, 0.75, None, 0.0, 100),
        (RESPONSES[4.0], 4.0, 0.93, None, 0.0, 100),
        (LAPLACE[1.0], 1.0, 0.6, 1, 0.0, 100),
        (LAPLACE[4.0], 4.0, 0.7, 1, 0.0, 100),
        (GAUSSIAN, GAUSSIAN.curve().epsilon(delta=1e-4), 0.25, 1, 1e-4, 30),
        pytest.param(RESPONSES[0.5], 0.5, 0.5, None, 0.0, 100, marks=pytest.mark.slow),
        pytest.param(RESPONSES[6.0], 6.0, 0.9, None, 0.0, 100, marks=pytest.mark.slow),
        pytest.param(LAPLACE[0.5], 0.5, 0.5, 1, 0.0, 100, marks=pytest.mark.slow),
        pytest.param(LAPLACE[6.0], 6.0, 0.65, 1, 0.0, 100, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_releases_are_found_from_below(mechanism, epsilon, *, part, n_decoys, delta, runs):
    games = [attacked(mechanism, seed=seed, n_decoys=n_decoys) for seed in range(runs)]
    epsilons = np.array([bound_of(scores, delta=delta).epsilon for scores in games])
    assert never_above(epsilons, epsilon)
    assert epsilons.mean() >= part * epsilon


@pytest.mark.statistical
def test_many_canaries_show_nearly_all_of_laplace_rows():
    scores = attacked(OneHotLaplace(n_classes=10, scale=1.0), seed=0, n=100_000, n_decoys=1)
    assert 0.93 * 2.0 < bound_of(scores).epsilon < 2.0


@pytest.mark.parametrize(
    ("broken", "sound"),
    [
        (OneHotLaplace(n_classes=10, scale=0.8), OneHotLaplace(n_classes=10, scale=1.0)),
        (RandomizedResponse(n_classes=10, epsilon=2.2), RandomizedResponse(n_classes=10, epsilon=2.0)),
    ],
)
def test_too_little_noise_is_found_out(broken, sound):
    verdicts = [
        audit_canaries(
            attacked(mechanism, seed=1, n=20_000, n_decoys=1),
            claimed_epsilon=2.0,
            delta=0.0,
            confidence=0.999,
            game="labels",
        ).verdict
        for mechanism in (broken, sound)
    ]
    assert verdicts[0] == "violated"
    assert verdicts[1] != "violated"


# --- verdicts ---


@pytest.mark.parametrize(
    ("scores", "claimed", "verdict", "says"),
    [
        (game(95, 5), 1.0, "violated", "95 of 100 guesses are right, which takes an epsilon of at least"),
        (game(20, 0), 6.0, "inconclusive", "So few canaries cannot contradict an epsilon of 6"),
        (game(79, 21), 1.2, "inconclusive", "above the claim of 1.2; but chance could be the reason"),
        (game(55, 45), 2.0, "consistent", "That is no proof"),
    ],
)
def test_a_claim_gets_a_verdict_and_a_sentence(scores, claimed, verdict, says):
    finding = audit_canaries(scores, claimed_epsilon=claimed, delta=0.0, game="labels")
    assert finding.verdict == verdict
    assert says in finding.sentence
    assert finding.measures[0].lower == bound_of(scores).epsilon
    assert (finding.measures[0].upper, finding.trials, finding.method) == (
        claimed,
        finding.trials,
        "any-dependence",
    )


def test_a_bound_is_plain_json():
    bound = bound_of(game(40, 0))
    record = json.loads(json.dumps(bound.to_dict(), allow_nan=False))
    assert record["estimate"] == record["interval"][1] == "inf"
    assert set(record) == {*bound.details, "epsilon", "confidence", "trials", "method", "note"}


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scores": []}, "one training or more"),
        ({"scores": [game(5, 5), game(5, 5, n_decoys=2)]}, "as many decoys for each canary"),
        ({"scores": Scores.of(members=[0.5, 0.0], others=[0.0] * 3)}, "as many decoys"),
        ({"scores": Scores.of(members=[0.5, 0.4], others=[0.3, 0.2])}, "one candidate of each canary"),
        ({"scores": Scores.of(members=[-0.5, 0.4], others=[0.0, 0.0])}, "one candidate of each canary"),
        ({"delta": -0.1}, "delta must be >= 0 and < 1"),
        ({"delta": 1.0}, "delta must be >= 0 and < 1"),
        ({"delta": math.nan}, "delta must be >= 0 and < 1"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"at": 0.0}, "at must be finite and > 0"),
        ({"at": ()}, "at must be finite and > 0"),
        ({"at": (0.5, math.inf)}, "at must be finite and > 0"),
    ],
)
def test_what_cannot_be_is_refused(changes, says):
    arguments = {"scores": game(5, 5), "delta": 0.0, **changes}
    with pytest.raises(ValueError, match=says):
        bound_of(arguments.pop("scores"), **arguments)


def test_a_claim_below_nothing_is_refused():
    with pytest.raises(ValueError, match="claimed_epsilon must be >= 0"):
        audit_canaries(game(5, 5), claimed_epsilon=-1.0, delta=0.0, game="labels")

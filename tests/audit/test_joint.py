"""Teachers that are trained once: all their answers together, against sums over all votes and answers."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom, multinomial

from ostraka import GNMax
from ostraka.audit.adversaries import AdversarialQueries, adversarial_queries, measure_leak
from ostraka.audit.votes import BallotPool, VoteModel, joint_bound, repeated, vote_cap
from ostraka.audits import audit_adversary
from tests.audit.games import divergence, larger
from tests.audit.test_adversaries import ADVERSARIES, CAPC, KNN, LABELS, MECHANISM, PATE, QUERIES

TEACHERS, SIGMA = 250, 40.0
PAIRS = [(0.5, 0.95), (0.6, 0.2), (0.97, 0.1)]


def two_classes(before, after, n_answers):
    """Laws of the first class's answers, by binomials alone: with the target, and without."""
    votes = np.arange(TEACHERS + 1)
    first = ndtr((2 * votes - TEACHERS) / (np.sqrt(2) * SIGMA))
    likelihoods = binom.pmf(np.arange(n_answers + 1), n_answers, first[:, None])
    others = binom.pmf(votes, TEACHERS - 1, before)
    with_target = after * np.append(0, others[:-1]) + (1 - after) * others
    return with_target @ likelihoods, binom.pmf(votes, TEACHERS, before) @ likelihoods


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def model(request):
    before, after = request.param
    law, target_law = [before, 1 - before], [after, 1 - after]
    return request.param, VoteModel.random_shards(law, target_law, n_teachers=TEACHERS)


@pytest.mark.parametrize("n_answers", [1, 10, 100, 1000])
def test_the_joint_bound_is_below_the_exact_law_and_at_least_95_percent_of_it(model, n_answers):
    (before, after), votes = model
    law = repeated(votes, GNMax(sigma=SIGMA), n_answers=n_answers)
    p, q = two_classes(before, after, n_answers)
    settings = {"trials": 10**8, "confidence": 0.95, "rng": np.random.default_rng(n_answers)}
    low = law.bound(orders=(2.0, 8.0), **settings).rdp
    exact, cap = law.divergences((2.0, 8.0)), vote_cap(votes, (2.0, 8.0))
    for place, order in enumerate((2.0, 8.0)):
        truth = larger(p, q, order)
        assert exact[place] == pytest.approx(truth, rel=1e-6, abs=1e-12)
        assert 0.95 * truth <= low[place] <= truth * (1 + 1e-9)
        assert truth <= cap[place]


def test_one_question_asked_a_thousand_times_leaks_what_it_does_and_no_product():
    """The certified bound was .1356 when single answers were added up, and the exact law gives .0032."""
    votes = VoteModel.random_shards([0.5, 0.5], [0.95, 0.05], n_teachers=TEACHERS)

    class System:
        def expected(self, queries):
            return np.full((len(queries), 2), TEACHERS / 2)

        def models(self, queries, rows, labels):
            return [votes] * len(queries)

    asked = AdversarialQueries(
        queries=np.zeros((1, 1)), rows=np.zeros((1, 1)), labels=np.zeros(1, int), repeated=True
    )
    settings = {"n_answers": 1000, "orders": (2.0,), "rng": np.random.default_rng(0)}
    leak = measure_leak(System(), asked, GNMax(sigma=SIGMA), **settings)
    truth = larger(*two_classes(0.5, 0.95, 1000), 2.0)
    assert 0.0029 < leak.bound.rdp[0] <= truth < 0.00327
    assert leak.exact[0] == pytest.approx(truth, rel=1e-9)
    assert truth < leak.cap[0] < 0.00327
    assert leak.anew.rdp[0] > 0.13
    assert not leak.independent
    finding = audit_adversary("Nat-AdvQ", System(), GNMax(sigma=SIGMA), np.zeros((1, 1)), [0], **settings)
    assert finding.sentence.startswith(
        "One question asked 1,000 times. Trained once, this system was seen to"
    )
    assert "in this model, answers to this question alone can never show more than 0.4" in finding.sentence
    assert "Were teachers trained anew for each answer" in finding.sentence
    once = finding.measures[0]
    assert once.lower < once.exact < once.cap < once.anew_lower < once.anew_exact < once.upper


@pytest.mark.parametrize(("n_teachers", "n_answers"), [(2, 4), (4, 3), (5, 2)])
def test_the_joint_law_is_the_sum_over_every_vote_and_every_sequence(n_teachers, n_answers):
    law, target_law, mechanism = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7]), GNMax(sigma=1.5)
    model = VoteModel.random_shards(law, target_law, n_teachers=n_teachers)
    sequences = list(itertools.product(range(3), repeat=n_answers))
    worlds = []
    for last in (target_law, law):
        total = np.zeros(len(sequences))
        for ballots in itertools.product(range(3), repeat=n_teachers):
            weight = np.prod(law[list(ballots[1:])]) * last[ballots[0]]
            outcome = np.exp(mechanism.log_outcomes([np.bincount(ballots, minlength=3)])[0])
            total += weight * np.array([np.prod(outcome[list(s)]) for s in sequences])
        worlds.append(total)
    orders = (2.0, 8.0, 32.0)
    want = [larger(*worlds, order) for order in orders]
    divergences = repeated(model, mechanism, n_answers=n_answers).divergences(orders)
    np.testing.assert_allclose(divergences, want, rtol=0, atol=1e-12)
    if n_answers == 3:
        np.testing.assert_allclose(want[0], 0.15390, atol=1e-5)


@pytest.mark.parametrize(
    ("law", "target_law"),
    [
        ([0.5, 0.3, 0.2], [0.1, 0.2, 0.7]),
        ([0.5, 0.4999, 0.0001], [0.4, 0.5, 0.1]),
        ([0.5, 0.5, 0], [0.5, 0.4999, 0.0001]),
        ([0.5, 0.3, 0.2], [0.0, 0.0, 1.0]),
    ],
)
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 32.0])
def test_the_cap_is_the_divergence_of_the_votes_themselves(law, target_law, order):
    law, target_law, n = np.array(law), np.array(target_law), 4
    model = VoteModel.random_shards(law, target_law, n_teachers=n)
    votes = [v for v in itertools.product(range(n + 1), repeat=3) if sum(v) == n]
    without = np.array([multinomial.pmf(v, n, law) for v in votes])
    present = np.array(
        [
            sum(
                target_law[c] * multinomial.pmf(np.array(v) - np.eye(3)[c], n - 1, law)
                for c in range(3)
                if v[c]
            )
            for v in votes
        ]
    )
    cap = vote_cap(model, (order,))[0]
    if (present[without == 0] > 0).any():
        assert cap == np.inf
        return
    keep = without > 0
    forward = divergence(present[keep], without[keep], order)
    if (present[keep] == 0).any():
        assert cap == np.inf
        return
    reverse = divergence(without[keep], present[keep], order)
    if order.is_integer():
        assert cap == pytest.approx(max(forward, reverse), rel=1e-8)
    assert cap >= max(forward, reverse)


@pytest.mark.parametrize(
    "shared",
    [{"moves": 2 * np.eye(2, dtype=int)}, {"fixed": np.array([1, 0])}, {"parties": np.full((1, 2), 0.5)}],
)
def test_votes_that_are_no_independent_ballots_have_the_cap_of_the_target_alone(shared):
    target_law, law = np.array([0.2, 0.8]), np.array([0.7, 0.3])
    model = VoteModel.random_shards(law, target_law, n_teachers=5)
    assert vote_cap(model, (2.0,))[0] < vote_cap(dataclasses.replace(model, **shared), (2.0,))[0]
    cap = vote_cap(dataclasses.replace(model, **shared), (2.0,))[0]
    assert cap == pytest.approx(larger(target_law, law, 2.0), rel=1e-9)


def test_a_small_ratio_is_integrated_to_its_end():
    model = VoteModel.random_shards([0.9998, 0.0002], [0.0002, 0.9998], n_teachers=3)
    votes = np.arange(4)
    without = binom.pmf(votes, 3, 0.9998)
    others = binom.pmf(votes, 2, 0.9998)
    present = 0.0002 * np.append(0, others[:-1]) + 0.9998 * others
    assert vote_cap(model, (8.0,))[0] == pytest.approx(larger(present, without, 8.0), rel=1e-8)


def test_draws_of_votes_certify_most_of_the_exact_law():
    votes = VoteModel.random_shards([0.5, 0.5], [0.95, 0.05], n_teachers=TEACHERS)

    def draw(n, rng):
        return tuple(world.open()[:, None] for world in votes.worlds(n_draws=n, rng=rng))

    settings = {"orders": (2.0, 8.0), "confidence": 0.95, "rng": np.random.default_rng(0)}
    low = joint_bound(draw, GNMax(sigma=SIGMA), [1000], n_draws=200_000, **settings)
    p, q = two_classes(0.5, 0.95, 1000)
    assert 0.75 * larger(p, q, 2.0) < low.rdp[0] <= larger(p, q, 2.0)
    assert 0.5 * larger(p, q, 8.0) < low.rdp[1] <= larger(p, q, 8.0)
    assert (low.method, low.trials) == ("joint", (200_000, 200_000))


def test_natural_questions_are_audited_together():
    """Two copies of one question are that question asked twice, whatever the votes on both share."""
    first = np.stack([np.arange(4000) % 2] * 2, axis=1)
    ballots = np.where(np.arange(4000) >= 3800, 1, 0)[:, None].repeat(2, axis=1)
    pool = BallotPool(others=first[None], each=TEACHERS - 1, present=ballots, absent=first, n_classes=2)
    mechanism = GNMax(sigma=4.0)
    settings = {"orders": (2.0,), "confidence": 0.95, "rng": np.random.default_rng(1)}
    low = joint_bound(pool.sampler(), mechanism, [1, 1], n_draws=100_000, **settings).rdp[0]
    model = VoteModel.random_shards([0.5, 0.5], [0.95, 0.05], n_teachers=TEACHERS)
    twice, once = (repeated(model, mechanism, n_answers=n).divergences((2.0,))[0] for n in (2, 1))
    assert 0.7 * twice < low <= twice < 2 * once


@pytest.mark.statistical
@pytest.mark.parametrize(
    "times",
    [[1, 2], pytest.param([40, 30], marks=pytest.mark.slow)],
    ids=["by release", "by the outcome map"],
)
def test_worlds_that_differ_by_chance_only_are_seldom_said_to_leak(times):
    """150 runs at confidence 0.9: more than 41 claims have probability below 1e-9."""
    rng, claims = np.random.default_rng(3), 0
    for _ in range(150):
        ballots = rng.integers(0, 2, (300, 2))
        pool = BallotPool(
            others=ballots[None], each=9, present=ballots, absent=ballots[rng.permutation(300)], n_classes=2
        )
        lower = joint_bound(
            pool.sampler(), GNMax(sigma=1.0), times, n_draws=300, orders=(2.0, 8.0), confidence=0.9, rng=rng
        )
        claims += max(lower.rdp) > 0
    assert claims <= 41


@pytest.mark.statistical
def test_bounds_of_repeated_questions_are_below_the_law_as_often_as_they_say():
    """100 runs at confidence 0.5: more than 81 wrong ones have probability below 1e-9."""
    model, rng = VoteModel.random_shards([0.5, 0.5], [0.9, 0.1], n_teachers=12), np.random.default_rng(4)
    law = repeated(model, GNMax(sigma=2.0), n_answers=30)
    exact, orders = law.divergences((2.0, 8.0)), (2.0, 8.0)
    runs = [law.bound(trials=200, orders=orders, confidence=0.5, rng=rng).rdp for _ in range(100)]
    assert sum(bool((np.array(low) > exact).any()) for low in runs) <= 81
    assert np.mean(runs) > 0


def test_what_a_system_says_of_its_training_decides_which_law_is_read():
    def leak(system, adversary):
        rng = np.random.default_rng(1)
        queries = adversarial_queries(
            adversary, system, QUERIES, LABELS, mechanism=MECHANISM, n_candidates=4, rng=rng
        )
        return measure_leak(system, queries, MECHANISM, orders=(2.0,), trials=20_000, rng=rng)

    for adversary in (*ADVERSARIES, "Pois-PairQ"):
        once, parties = leak(PATE, adversary), leak(CAPC, adversary)
        assert not once.independent
        assert once.bound.rdp[0] <= once.anew_exact[0]
        # parties who keep their rows and learn without chance: the votes are certain, and answers independent
        assert parties.independent
        assert parties.cap is None
        assert parties.bound.rdp == parties.anew.rdp
    assert leak(KNN, "Pois-AdvQ").independent
    with pytest.raises(ValueError, match="pool of ballots"):
        leak(KNN, "Pois-PairQ")


def test_without_a_pool_several_questions_count_as_the_best_one():
    class Poolless:
        expected, models = PATE.expected, PATE.models

    rng = np.random.default_rng(2)
    queries = adversarial_queries(
        "Pois-NatQ", PATE, QUERIES, LABELS, mechanism=MECHANISM, n_candidates=4, rng=rng
    )
    leak = measure_leak(Poolless(), queries, MECHANISM, orders=(2.0,), rng=rng)
    models = PATE.models(queries.queries, queries.rows, queries.labels)
    best = max(repeated(model, MECHANISM, n_answers=1).divergences((2.0,))[0] for model in models)
    assert 0.9 * best < leak.bound.rdp[0] <= best


def test_columns_of_one_page_are_converted_in_one_way():
    """4.582 and 4.391 stood above a promise of 4.322, which had another conversion."""
    rng = np.random.default_rng(3)
    finding = audit_adversary(
        "Pois-AdvQ", CAPC, MECHANISM, QUERIES, LABELS, n_answers=1000, delta=1e-6, rng=rng
    )
    measure = finding.measures[-1]
    assert "illustration" in measure.what
    assert measure.lower <= measure.exact <= measure.upper

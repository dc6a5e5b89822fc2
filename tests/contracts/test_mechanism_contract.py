"""What every mechanism owes: a value, one price, noise from ``rng`` alone, and its law where it states one.

A new mechanism is one more line in MECHANISMS, RESPONSES or SUMS.
"""

import copy
import inspect
import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from scipy.stats import binomtest

import ostraka.mechanisms
from ostraka import (
    Adjacency,
    Budget,
    BudgetExceeded,
    Confident,
    GNMax,
    Ledger,
    LNMax,
    Private,
    Threshold,
    release,
)
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.mechanisms.adaptive import AdaptiveMarginals
from ostraka.core.mechanisms.counts import NoisyCounts, NoisyMarginals, TreeMarginals
from ostraka.core.mechanisms.law import outcome_places
from ostraka.core.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.core.mechanisms.selection import Selection, TokenDraw
from ostraka.core.mechanisms.skellam import SkellamMax, SkellamSum
from ostraka.core.mechanisms.sums import GaussianSums, OneHotGaussian, OneHotLaplace
from ostraka.core.mechanisms.trials import BestTrial
from ostraka.core.mechanisms.wrapped import Subsampled, Weighted
from tests.false_alarm import FALSE_ALARM

TRIALS = 200_000
HISTOGRAM = [60.0, 50.0, 25.0]
TIE = [60.0, 60.0, 25.0]  # where counts come with their noise, chance decides ties only

MECHANISMS = [
    GNMax(sigma=20.0),
    LNMax(scale=15.0),
    Threshold(at=70.0, sigma=25.0),
    Threshold(at=70.0, sigma=25.0, noise="every"),
    Confident(screen=Threshold(at=70.0, sigma=25.0), argmax=GNMax(sigma=20.0)),
    Weighted(mechanism=GNMax(sigma=20.0), weight=2.0),
    Subsampled(mechanism=LNMax(scale=15.0), sampling_rate=0.1),
    SkellamMax(sigma=20.0),
]
LABELS = np.arange(40) % 3
RESPONSES = [
    RandomizedResponse(n_classes=3, epsilon=0.7),
    PriorResponse(prior=[[0.4, 0.35, 0.25]] * len(LABELS), epsilon=0.7),
    OneHotLaplace(n_classes=3, scale=3.0),
    OneHotGaussian(n_classes=3, sigma=2.0),
]
SUMS = [
    NoisyCounts(sigma=3.0),
    GaussianSums(n_columns=3, sigma=5.0),
    SkellamSum(sigma=5.0, l1=2.0, l2=1.5, adds=True),
    BestTrial(
        settings=(GaussianSums(n_columns=3, sigma=5.0), GaussianSums(n_columns=3, sigma=8.0)), n_trials=4.0
    ),
]
CODES = [[2, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
INNER = [  # parts of generators and writers, each with data that it answers from
    (Selection(epsilon=0.4), [3, 3, 5]),
    (TokenDraw(clip=1.5, n_documents=3, public=(-0.7, -0.7)), [0, 4]),
    (NoisyMarginals(sizes=(3, 2, 2), columns=((0,), (0, 1)), sigma=5.0), CODES),
    (TreeMarginals(sizes=(3, 2, 2), target=0, sigma_pairs=5.0, sigma_triples=5.0, select_epsilon=0.4), CODES),
    (
        AdaptiveMarginals(
            sizes=(3, 2, 2), target=None, sigma_first=6.0, sigma=5.0, select_epsilon=0.4, n_pick=1
        ),
        CODES,
    ),
]
BALLOTS = [m for m in MECHANISMS if hasattr(m, "log_outcomes") and m.promise.sampling_rate == 1]
every_mechanism = pytest.mark.parametrize(
    "mechanism",
    [*MECHANISMS, *RESPONSES, *SUMS, *(mechanism for mechanism, _ in INNER)],
    ids=lambda mechanism: repr(mechanism)[:60],
)
every_vote = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
every_ballot = pytest.mark.parametrize("mechanism", BALLOTS, ids=str)


def votes(mechanism, rows):
    return Private(rows, mechanism.promise)


def data(mechanism, **changes):
    """Data that the mechanism answers from; ``changes`` of what one unit may change."""
    if mechanism in RESPONSES:
        values = LABELS
    elif isinstance(mechanism, GaussianSums | BestTrial):
        values = [[0.5, -0.25, 0.0]] * 9
    elif inner := [values for part, values in INNER if part == mechanism]:
        values = np.array(*inner)
    else:
        values = np.array(TIE, dtype=np.int64) if mechanism in SUMS else [TIE] * 50
    return Private(values, replace(mechanism.promise, **changes))


def numbers(released):
    """All numbers of a release, which is an array or named ones."""
    if isinstance(released, dict):
        return np.concatenate([np.ravel(released[name]) for name in sorted(released)])
    return released


def noise_fields(mechanism):
    return [field.name for field in fields(mechanism) if field.name in {"sigma", "scale"}]


def noised(mechanism, factor):
    """The same with so many times the noise."""
    if isinstance(mechanism, Confident):
        return replace(
            mechanism, screen=noised(mechanism.screen, factor), argmax=noised(mechanism.argmax, factor)
        )
    if isinstance(mechanism, Weighted):
        return replace(mechanism, mechanism=noised(mechanism.mechanism, factor))
    [name] = noise_fields(mechanism)
    return replace(mechanism, **{name: factor * getattr(mechanism, name)})


def test_every_public_mechanism_is_held_to_the_contract():
    exported = {getattr(ostraka.mechanisms, name) for name in ostraka.mechanisms.__all__}
    named = {kind for kind in exported if not getattr(kind, "_is_protocol", False)}
    assert named <= {type(mechanism) for mechanism in (*MECHANISMS, *RESPONSES, *SUMS)}


@every_mechanism
class TestEveryMechanism:
    def test_is_a_value(self, mechanism):
        again = copy.deepcopy(mechanism)
        assert again == pickle.loads(pickle.dumps(mechanism)) == replace(mechanism) == mechanism != object()
        assert (hash(again), repr(again)) == (hash(mechanism), repr(mechanism))
        if not isinstance(mechanism, PriorResponse):  # whose name has a digest of the prior
            assert eval(repr(mechanism), vars(ostraka.mechanisms) | globals()) == mechanism

    def test_other_parameters_make_another_value_under_another_name(self, mechanism):
        for field in fields(mechanism):
            value = getattr(mechanism, field.name)
            if field.init and type(value) is float and field.name != "sampling_rate":
                changed = replace(mechanism, **{field.name: 2 * value})
                assert changed != mechanism
                assert repr(changed) != repr(mechanism)

    def test_cannot_be_changed(self, mechanism):
        for field in fields(mechanism):
            with pytest.raises(FrozenInstanceError):
                setattr(mechanism, field.name, 1.0)
        with pytest.raises((AttributeError, TypeError)):
            mechanism.cache = {}

    def test_is_made_from_named_parameters_only(self, mechanism):
        parameters = inspect.signature(type(mechanism)).parameters.values()
        assert {p.kind for p in parameters} == {inspect.Parameter.KEYWORD_ONLY}

    def test_price_reads_the_fields_only_and_may_be_published(self, mechanism):
        curve = mechanism.curve()
        assert list(inspect.signature(mechanism.curve).parameters) in ([], ["bound"])
        mechanism.release(data(mechanism), rng=np.random.default_rng(0))
        assert mechanism.curve() == curve == replace(mechanism).curve()
        assert curve.publishable
        assert curve.moves == mechanism.promise.moves
        assert 0 < curve.epsilon(delta=1e-5) < math.inf

    def test_all_noise_comes_from_rng(self, mechanism):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        answers = (
            numbers(mechanism.release(data(mechanism), rng=np.random.default_rng(max(7, seed))))
            for seed in range(6, 40)
        )
        first = next(answers)
        np.testing.assert_array_equal(first, next(answers))
        assert any((first != other).any() for other in answers)
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
        assert inspect.signature(mechanism.release).parameters["rng"].default is inspect.Parameter.empty

    def test_answers_are_plain_and_the_data_is_not_touched(self, mechanism):
        private = data(mechanism)
        answers = numbers(mechanism.release(private, rng=np.random.default_rng(1)))
        assert type(answers) is np.ndarray
        assert answers.dtype in (np.int64, np.float64, np.bool_)
        np.testing.assert_array_equal(private.open(), data(mechanism).open())

    def test_the_door_is_shut_to_data_that_can_change_more(self, mechanism):
        promise = mechanism.promise
        wider = [
            {"at_most": promise.at_most * 1.001},
            {"l2": promise.l2 * 1.001},
            {"moves": "ballot" if promise.moves == "label" else "label"},
            {"relation": "replace-one" if promise.relation == "add-or-remove" else "add-or-remove"},
            {"sampling_rate": min(1.0, promise.sampling_rate * 2)},
        ]
        with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
            release(mechanism, data(mechanism, unit="party"), ledger=ledger)
            paid = len(ledger.entries())
            for changes in wider:
                try:
                    private = data(mechanism, **changes)
                except ValueError:  # no data moves so
                    continue
                if not private.adjacency.within(promise):
                    with pytest.raises(ValueError, match="hides"):
                        release(mechanism, private, ledger=ledger)
            assert len(ledger.entries()) == paid

    def test_a_budget_for_one_release_buys_one(self, mechanism):
        def private():  # anew each time: a sample is answered from once
            return votes(mechanism, [TIE]) if mechanism in MECHANISMS else data(mechanism)

        epsilon = mechanism.curve().epsilon(1e-5) * (1 + 1e-9)
        with Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=1e-5, adaptive=False)) as ledger:
            first = release(mechanism, private(), ledger=ledger, key="once")
            with pytest.raises(BudgetExceeded):
                release(mechanism, private(), ledger=ledger)
            again = release(mechanism, private(), ledger=ledger, key="once")
            np.testing.assert_array_equal(numbers(again), numbers(first))


@pytest.mark.parametrize("mechanism", [*SUMS, *(mechanism for mechanism, _ in INNER)], ids=repr)
def test_all_of_a_release_is_one_use(mechanism):
    """Planted: it is none, and costs nothing."""
    assert mechanism.uses(data(mechanism)) == 1


@every_vote
class TestEveryMechanismOfVotes:
    def test_answers_are_drawn_exactly_and_the_price_has_no_slack(self, mechanism):
        assert mechanism.curve().slack == 0

    def test_n_uses_cost_n_times_one_use(self, mechanism):
        once = mechanism.curve()
        for name in ("rdp", "slack", "mu_squared"):
            repeated, added = getattr(3 * once, name), getattr(once + once + once, name)
            assert repeated == pytest.approx(added, rel=1e-14, abs=0)
        with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
            release(mechanism, votes(mechanism, [HISTOGRAM] * 3), ledger=ledger)
            if isinstance(mechanism, Confident):  # stage by stage: at most one use of both
                assert (np.array(ledger.spent().rdp) <= np.array((3 * once).rdp) * (1 + 1e-9)).all()
                return
            assert ledger.spent().rdp == pytest.approx((3 * once).rdp, rel=1e-9, abs=0)
            assert ledger.spent().slack == pytest.approx(3 * once.slack, rel=1e-3, abs=0)

    def test_every_query_is_one_use_with_noise_of_its_own(self, mechanism):
        for n in (1, 7):
            assert mechanism.uses(votes(mechanism, [HISTOGRAM] * n)) == n
        assert mechanism.uses(votes(mechanism, np.empty((0, 3)))) == 0
        answers = mechanism.release(votes(mechanism, [TIE] * 200), rng=np.random.default_rng(9))
        assert answers.shape == (200,)
        assert len(set(answers.tolist())) > 1


@every_ballot
class TestEveryBallot:
    """Mechanisms that state the law of their outcomes."""

    @pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, "1", True, None], ids=repr)
    def test_noise_that_is_no_noise_is_refused(self, mechanism, wrong):
        for name in noise_fields(mechanism):
            with pytest.raises(ValueError, match=f"{name} must be finite and > 0"):
                replace(mechanism, **{name: wrong})

    def test_another_bound_is_refused_by_name(self, mechanism):
        with pytest.raises(ValueError, match=r"bound must be one of .*tight, classic.*, got 'loose'"):
            mechanism.curve(bound="loose")

    def test_less_noise_never_costs_less(self, mechanism):
        for bound in ("tight", "classic"):
            quiet, loud = (noised(mechanism, factor).curve(bound) for factor in (0.99, 1.01))
            assert all(a >= b for a, b in zip(quiet.rdp, loud.rdp, strict=True))
            assert quiet.epsilon(1e-5) > loud.epsilon(1e-5)

    def test_outcome_law_is_a_law(self, mechanism):
        rows = np.random.default_rng(2).multinomial(135, [0.5, 0.3, 0.2], size=20)
        log_p = mechanism.log_outcomes(rows)
        assert log_p.shape == (20, {Threshold: 2, Confident: 4}.get(type(mechanism), 3))
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-9)

    @pytest.mark.statistical
    def test_answers_follow_the_law_and_5_percent_less_or_more_noise_is_noticed(self, mechanism):
        many = votes(mechanism, np.repeat([HISTOGRAM], TRIALS, axis=0))
        answers = mechanism.release(many, rng=np.random.default_rng(20))

        def plausible(factor):
            chances = np.exp(noised(mechanism, factor).log_outcomes([HISTOGRAM])[0])
            hits = np.bincount(outcome_places(answers, len(chances)), minlength=len(chances)).tolist()
            tests = (binomtest(n, TRIALS, p) for n, p in zip(hits, chances.tolist(), strict=True))
            return min(test.pvalue for test in tests) > FALSE_ALARM

        assert plausible(1.0)
        assert not plausible(0.95)
        assert not plausible(1.05)

    @pytest.mark.statistical
    def test_every_outcome_comes_as_often_as_the_law_says(self, mechanism):
        for seed, row in enumerate(([40.0, 40.0, 40.0], [90.0, 30.0, 29.0])):
            many = votes(mechanism, np.repeat([row], TRIALS // 4, axis=0))
            answers = mechanism.release(many, rng=np.random.default_rng(seed))
            chances = np.exp(mechanism.log_outcomes([row])[0])
            places = outcome_places(answers, len(chances))
            for outcome, chance in enumerate(chances):
                hits = int((places == outcome).sum())
                assert binomtest(hits, TRIALS // 4, float(chance)).pvalue > FALSE_ALARM

    def test_exact_cost_is_within_the_price(self, mechanism):
        rows = np.random.default_rng(3).multinomial(30, [0.5, 0.3, 0.2], size=30)
        exact = exact_rdp(mechanism, rows)
        for bound in ("tight", "classic"):
            assert (exact <= np.array(mechanism.curve(bound).rdp) * (1 + 1e-9)).all()

    @pytest.mark.parametrize(
        "rows", [[[1.0, math.nan]], [[math.inf, 1.0]], [[1.0]], [1.0, 2.0], [[["1"]]], [["a", "b"]]], ids=str
    )
    def test_votes_that_are_no_votes_are_refused(self, mechanism, rows):
        with pytest.raises(ValueError, match="counts"):
            mechanism.log_outcomes(rows)
        with pytest.raises(ValueError, match="counts"):
            mechanism.release(Private(rows, Adjacency.one_ballot()), rng=np.random.default_rng(0))


def answers_of(mechanism, row, seed=0, n=20_000):
    return mechanism.release(votes(mechanism, np.repeat([row], n, axis=0)), rng=np.random.default_rng(seed))


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [GNMax(sigma=0.2), LNMax(scale=0.2)], ids=str)
def test_noise_is_not_cut_to_whole_votes(mechanism):
    """With a noise far below one vote, a lead of a third of a vote must still be beaten at times."""
    answers = answers_of(mechanism, [10.0, 10.0 + 1 / 3])
    chance = math.exp(mechanism.log_outcomes([[10.0, 10.0 + 1 / 3]])[0, 0])
    assert binomtest(int((answers == 0).sum()), len(answers), chance).pvalue > FALSE_ALARM
    assert answers_of(mechanism, [10, 10]).mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("mechanism", [GNMax(sigma=3.0), LNMax(scale=3.0)], ids=str)
def test_every_class_has_noise_of_its_own(mechanism):
    """One noise for all classes would never change the plurality."""
    assert (answers_of(mechanism, [12.0, 10.0]) == 1).mean() > 0.2


def test_a_screen_on_the_largest_count_has_one_noise_and_a_screen_on_every_count_one_each():
    level = [50.0] * 10
    largest, every = (Threshold(at=60.0, sigma=10.0, noise=noise) for noise in ("largest", "every"))
    assert answers_of(largest, level).mean() == pytest.approx(0.1587, abs=0.02)
    assert answers_of(every, level).mean() == pytest.approx(1 - 0.8413**10, abs=0.02)


def test_weights_and_samples_answer_as_the_mechanism_they_carry():
    inner = GNMax(sigma=20.0)
    for outer in (Weighted(mechanism=inner, weight=2.0), Subsampled(mechanism=inner, sampling_rate=0.1)):
        np.testing.assert_array_equal(
            answers_of(outer, HISTOGRAM, seed=4), answers_of(inner, HISTOGRAM, seed=4)
        )

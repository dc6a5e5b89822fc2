"""Labels asked in stages: the law of every stage, the price of one, and what a crash in between costs."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binomtest, chisquare

from ostraka import Adjacency, Budget, Ledger, Private, release
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms.wrapped import NOT_YET, StagedResponse
from ostraka.mechanisms import PriorResponse, RandomizedResponse
from tests.false_alarm import FALSE_ALARM

EPSILON = 1.3
ROOM = EPSILON * (1 + 1e-9)  # the ledger rounds a price up
SHARP = [
    [0.5, 0.45, 0.05],
    [0.4, 0.01, 0.59],
    [0.02, 0.51, 0.47],
]  # after the first answer; two kept of three


def private(labels):
    return Private(labels, Adjacency.one_label())


def by_first_answer(stage, answers):
    """Advice that depends on what the first label answered."""
    return np.tile(SHARP[answers[0]], (int((np.arange(len(answers)) > 0).sum()), 1))


def one_then(n, advise=by_first_answer):
    return StagedResponse(stage=[0] + [1] * (n - 1), n_classes=3, epsilon=EPSILON, advise=advise)


def law(labels, sharp=SHARP):
    """Chance of each pair of answers, from the definitions of both responses and nothing of ours."""
    true = math.exp(EPSILON)
    chances = {}
    for first, second in itertools.product(range(3), repeat=2):
        chance = (true if first == labels[0] else 1) / (true + 2)
        candidates = sorted(np.argsort(sharp[first])[1:].tolist())
        if second not in candidates:
            two = 0.0
        elif labels[1] in candidates:
            two = (true if second == labels[1] else 1) / (true + 1)
        else:
            two = 0.5
        chances[first, second] = chance * two
    return chances


@pytest.mark.statistical
@pytest.mark.parametrize(
    "labels", [(1, 2), *(pytest.param(labels, marks=pytest.mark.slow) for labels in ((0, 0), (2, 1)))]
)
def test_stages_answer_by_their_own_laws_and_the_advice(labels):
    mechanism, rng = one_then(2), np.random.default_rng(11)
    expected = law(labels)
    tally = dict.fromkeys(expected, 0)
    for _ in range(2500):
        tally[tuple(mechanism.release(private(labels), rng=rng).tolist())] += 1
    possible = [pair for pair, chance in expected.items() if chance > 0]
    assert sum(tally[pair] for pair in possible) == 2500
    counts = [tally[pair] for pair in possible]
    assert chisquare(counts, [2500 * expected[pair] for pair in possible]).pvalue > FALSE_ALARM
    for wrong in (0.8, 1.25):  # power: first answers 20 % too seldom, or too often, right would be seen
        right = sum(tally[pair] for pair in possible if pair[0] == labels[0])
        chance = wrong * math.exp(EPSILON) / (math.exp(EPSILON) + 2)
        assert binomtest(right, 2500, chance).pvalue < FALSE_ALARM


@pytest.mark.parametrize("sharp", [SHARP, pytest.param(SHARP[:1] * 3, marks=pytest.mark.slow)])
def test_the_whole_costs_one_epsilon_and_not_less(sharp):
    """Over all pairs of neighbours and all answers, with advice that hangs on answers."""
    curve = one_then(2).curve()
    worst = dict.fromkeys(ORDERS, 0.0)
    largest = 0.0
    for labels in itertools.product(range(3), repeat=2):
        for place, label in itertools.product(range(2), range(3)):
            changed = list(labels)
            changed[place] = label
            p, q = law(labels, sharp), law(changed, sharp)
            assert {pair for pair in p if p[pair] > 0} == {pair for pair in q if q[pair] > 0}
            pairs = [(p[pair], q[pair]) for pair in p if p[pair] > 0]
            largest = max(largest, *(math.log(one / two) for one, two in pairs))
            for order in ORDERS[:-1]:
                terms = [math.log(two) + order * math.log(one / two) for one, two in pairs]
                worst[order] = max(worst[order], float(logsumexp(terms)) / (order - 1))
    assert largest == pytest.approx(EPSILON, rel=1e-12) == curve.rdp[-1]
    for order, bound in zip(ORDERS[:-1], curve.rdp[:-1], strict=True):
        assert worst[order] <= bound * (1 + 1e-9)
    if sharp[0] == sharp[1]:  # nothing is charged for nothing
        assert worst[2.0] == pytest.approx(curve.rdp[ORDERS.index(2.0)], rel=1e-9)
    assert curve.rdp == PriorResponse(prior=[SHARP[0]], epsilon=EPSILON).curve().rdp
    assert one_then(2).delta(0.5) == PriorResponse(prior=[SHARP[0]], epsilon=EPSILON).delta(0.5)


def test_one_stage_is_randomised_response():
    labels = private(np.arange(50) % 3)
    staged = StagedResponse(stage=np.zeros(50, dtype=int), n_classes=3, epsilon=0.7, advise=by_first_answer)
    plain = RandomizedResponse(n_classes=3, epsilon=0.7)
    first, second = (mechanism.release(labels, rng=np.random.default_rng(5)) for mechanism in (staged, plain))
    np.testing.assert_array_equal(first, second)


def test_advice_sees_earlier_answers_only_and_cannot_change_them():
    views = []

    def advise(stage, answers):
        views.append((stage, answers.copy()))
        answers[:] = 0
        return np.full((2, 3), 1 / 3)

    mechanism = StagedResponse(stage=[1, 0, 2, 0, 1, 2], n_classes=3, epsilon=30.0, advise=advise)
    answers = mechanism.release(private([2, 1, 2, 1, 2, 2]), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(answers, [2, 1, 2, 1, 2, 2])
    assert [stage for stage, _ in views] == [1, 2]
    np.testing.assert_array_equal(views[0][1], [NOT_YET, 1, NOT_YET, 1, NOT_YET, NOT_YET])
    np.testing.assert_array_equal(views[1][1], [2, 1, NOT_YET, 1, 2, NOT_YET])


def test_the_door_charges_all_stages_once():
    mechanism = one_then(30)
    with Ledger(":memory:", budget=Budget(epsilon=ROOM, delta=1e-6)) as ledger:
        first = release(mechanism, private(np.arange(30) % 3), ledger=ledger, key="labels")
        again = release(mechanism, private(np.arange(30) % 3), ledger=ledger, key="labels")
        np.testing.assert_array_equal(first, again)
        assert ledger.count() == 1
        assert ledger.epsilon() <= ROOM
        assert ledger.unit == "label"


def test_a_crash_between_stages_costs_nothing_more_and_leaves_no_answer():
    broken = True

    def advise(stage, answers):
        if broken:
            raise KeyboardInterrupt
        return by_first_answer(stage, answers)

    mechanism, labels = one_then(30, advise), private(np.arange(30) % 3)
    with Ledger(":memory:", budget=Budget(epsilon=ROOM, delta=1e-6)) as ledger:
        with pytest.raises(KeyboardInterrupt):
            release(mechanism, labels, ledger=ledger, key="labels")
        assert ledger.count() == 1
        assert ledger.answer(1) is None
        broken = False
        answers = release(mechanism, labels, ledger=ledger, key="labels")
        assert ledger.count() == 1
        np.testing.assert_array_equal(ledger.answer(1), answers)


def test_it_is_known_by_what_is_public():
    first, second = one_then(5), one_then(5)
    assert first == second
    assert hash(first) == hash(second)
    assert first != one_then(6)
    assert first != one_then(5, advise=print)
    assert repr(first) == repr(one_then(5, advise=print))  # advice has no price, so the ledger ignores it
    assert first != object()
    assert "5 in 2 stages" in repr(first)
    with pytest.raises(ValueError, match="read-only"):
        first.stage[0] = 1


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 3], [0.5, 1.0, 2.0], [0, 1, -1]])
def test_wrong_labels_are_refused_before_a_charge(labels):
    with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-6)) as ledger:
        with pytest.raises(ValueError, match="labels must be"):
            release(one_then(3), private(labels), ledger=ledger)
        assert ledger.count() == 0


@pytest.mark.parametrize(
    ("advice", "message"),
    [([[0.5, 0.5]] * 2, r"shape \(2, 3\) in stage 1"), ([[2.0, 0, 0]] * 2, "prior must be")],
)
def test_advice_of_another_shape_or_without_probabilities_is_refused(advice, message):
    with pytest.raises(ValueError, match=message):
        one_then(3, lambda *_: advice).release(private([0, 1, 2]), rng=np.random.default_rng(0))


def test_no_labels_are_no_use():
    empty = StagedResponse(stage=np.empty(0, dtype=int), n_classes=3, epsilon=1.0, advise=by_first_answer)
    assert empty.uses(private(np.empty(0, dtype=int))) == 0
    assert empty.release(private(np.empty(0, dtype=int)), rng=np.random.default_rng(0)).shape == (0,)

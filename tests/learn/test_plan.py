"""Plans: within the budget by their own evaluation, close to it, and refused with what to type."""

import math

import pytest

from ostraka import BudgetExceeded, GNMax, LNMax, PATEClassifier, Threshold
from ostraka.learn.ways.plan import Plan

PUBLIC = {"n_units": 1297, "n_classes": 10, "n_public": 350}


def planned(**choices) -> Plan:
    numbers = {name: choices.pop(name, value) for name, value in PUBLIC.items()}
    return PATEClassifier(**{"way": "argmax", "epsilon": 3.6, "delta": 1e-4, **choices}).plan(**numbers)


@pytest.mark.parametrize("screen", [None, Threshold(at=60, sigma=40.0)], ids=["open", "screened"])
@pytest.mark.parametrize(("epsilon", "n_answers"), [(0.5, None), (3.6, 200)])
def test_the_noise_found_spends_all_of_epsilon_but_half_a_percent_and_never_more(screen, epsilon, n_answers):
    plan = planned(screen=screen, epsilon=epsilon, n_answers=n_answers, n_teachers=250)
    assert plan.epsilon == (plan.n_answers * plan.mechanism.curve()).epsilon(delta=1e-4)
    assert 0.995 * epsilon < plan.epsilon <= epsilon
    assert n_answers in {None, plan.n_answers}


@pytest.mark.parametrize("sigma", [10.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
def test_with_a_mechanism_given_one_answer_more_would_not_fit(sigma, epsilon):
    plan = planned(mechanism=GNMax(sigma=sigma), epsilon=epsilon, n_public=10**6)
    assert plan.n_answers >= 1
    assert plan.curve().epsilon(1e-4) <= epsilon
    assert plan.curve(plan.n_answers + 1).epsilon(1e-4) > epsilon


@pytest.mark.parametrize(("n_units", "teachers"), [(3, 3), (20, 5), (1297, 100), (32_561, 250)])
def test_auto_takes_a_teacher_for_thirteen_units_within_reason(n_units, teachers):
    assert planned(n_units=n_units, delta=1e-6, epsilon=6.0).n_teachers == teachers


@pytest.mark.parametrize(
    ("choices", "n_answers"),
    [({}, 100), ({"n_classes": 15}, 150), ({"n_public": 40}, 40), ({"n_teachers": 250, "epsilon": 1.0}, 100)],
)
def test_without_a_wish_it_asks_a_hundred_times_or_ten_times_a_class(choices, n_answers):
    assert planned(**choices).n_answers == n_answers


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        (
            {"epsilon": 0.01},
            r"epsilon=0.01 at delta=0.0001 is too small for n_answers=1: .* use a larger epsilon",
        ),
        ({"n_answers": 300, "n_teachers": 5}, "n_answers=300: noise would drown all 5 teachers"),
        (
            {"mechanism": GNMax(sigma=1.0)},
            r"does not pay for 1 × GNMax\(sigma=1.0\).*: use more noise, or a larger",
        ),
        ({"mechanism": GNMax(sigma=18.0), "n_answers": 250}, r"use n_answers=22\d or fewer, more noise"),
        ({"screen": Threshold(at=60, sigma=1.0)}, "is too small for n_answers=1"),
    ],
)
def test_an_epsilon_too_small_is_refused_with_what_to_type(choices, match):
    with pytest.raises(BudgetExceeded, match=match) as caught:
        planned(**choices)
    assert caught.value.asked > caught.value.left == choices.get("epsilon", 3.6)


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"delta": 1e-3}, r"delta must be below 1 / 1297 units, got 0.001.*use delta=8e-05"),
        ({"delta": 0.0}, "delta must be > 0"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"n_answers": 0}, "n_answers must be"),
        ({"n_answers": 351}, "n_answers=351 must be at most the 350 public rows"),
        ({"n_teachers": 0}, "n_teachers must be"),
        ({"n_teachers": "many"}, "n_teachers must be"),
    ],
)
def test_numbers_out_of_range_are_refused(choices, match):
    with pytest.raises(ValueError, match=match):
        planned(**choices)


def test_what_is_no_ballot_mechanism_is_refused():
    with pytest.raises(TypeError, match="must be a ballot mechanism, such as GNMax"):
        planned(mechanism="gnmax")


def test_fewer_answers_are_asked_where_teachers_would_not_be_heard_and_other_mechanisms_are_planned_alike():
    plan = planned(epsilon=0.5)
    assert 1 < plan.n_answers < 100
    assert plan.mechanism.sigma < plan.n_teachers / 4
    # pure differential privacy: 20 answers at 2/20 each cost 2.0 exactly, and Rényi composition less
    assert planned(mechanism=LNMax(scale=20.0), epsilon=2.0).n_answers >= 20


def test_an_epsilon_beyond_what_floating_point_can_promise_takes_the_least_noise_that_can():
    plan = planned(epsilon=80.0)
    assert 0 < plan.epsilon < 80
    assert plan.mechanism.sigma >= 0.5

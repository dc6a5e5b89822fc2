"""The exact (epsilon, delta) of answers to given votes, against enumeration of all transcripts."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.accounting import exact_curve, exact_profile
from ostraka.core.accounting import bounds as module
from ostraka.core.accounting.bounds import exact_profiles
from ostraka.core.mechanisms.screen import AgainstGuesses
from ostraka.mechanisms import Weighted

VOTES = np.array([[9, 5, 2], [12, 3, 1], [6, 6, 4]])
ARGMAX = GNMax(sigma=2.0)
PAIR = Confident(screen=Threshold(at=8, sigma=2.0), argmax=ARGMAX)
EPSILONS = (0.0, 0.3, 1.5)


def moved(row):
    """Every neighbour of one row."""
    for i, j in itertools.permutations(range(len(row)), 2):
        if row[i] >= 1:
            yield [count - (k == i) + (k == j) for k, count in enumerate(row)]


@functools.lru_cache
def laws(mechanism, row):
    """Law of the row and of each of its neighbours."""
    return [np.exp(mechanism.log_outcomes([histogram]))[0] for histogram in (row, *moved(row))]


def recursion(mechanism, votes, v, *, swapped):
    """w_n(v) as the page writes it, without a grid: all outcomes and all neighbours, the last row first."""
    if not len(votes):
        return max(0.0, 1 - v)
    base, *others = laws(mechanism, tuple(votes[-1]))
    best = 0.0
    for neighbour in others:
        p, q = (base, neighbour) if swapped else (neighbour, base)
        remainder = (
            a * recursion(mechanism, votes[:-1], v * b / a, swapped=swapped)
            for a, b in zip(p, q, strict=True)
        )
        best = max(best, math.fsum(remainder))
    return best


@pytest.mark.parametrize("mechanism", [ARGMAX, LNMax(scale=3.0), PAIR], ids=str)
def test_two_answers_are_the_recursion_of_the_page_and_never_below_it(mechanism):
    votes = VOTES[:2] if mechanism is PAIR else VOTES[1:]
    profile = exact_profile(mechanism, votes)
    for epsilon in EPSILONS:
        wanted = max(
            recursion(mechanism, votes, math.exp(epsilon), swapped=direction) for direction in (False, True)
        )
        got = profile.delta(epsilon)
        assert wanted <= got <= wanted * 1.001 + 1e-9


def test_both_directions_count():
    profile = exact_profile(GNMax(sigma=3.0), [[9, 1]] * 20)
    first, second = (table.epsilon(1e-3) for table in profile.tables)
    assert abs(first - second) > 0.01
    assert profile.epsilon(1e-3) == max(first, second)


def test_it_is_below_the_renyi_curve_of_the_same_votes():
    votes = np.random.default_rng(0).multinomial(250, [0.5, 0.2, 0.2, 0.1], size=60)
    exact, renyi = exact_profile(GNMax(sigma=40.0), votes), exact_curve(GNMax(sigma=40.0), votes)
    assert 0.8 < exact.epsilon(1e-5) / renyi.epsilon(1e-5) < 0.97
    assert not exact.publishable


def test_first_rows_cost_less_and_repeats_are_repeated_rows():
    first, all_rows = exact_profiles(ARGMAX, VOTES.astype(float), at=[1, 3])
    assert first.epsilon(1e-3) < all_rows.epsilon(1e-3)
    assert all_rows.epsilon(1e-3) == pytest.approx(exact_profile(ARGMAX, VOTES).epsilon(1e-3))
    [twice] = exact_profiles(ARGMAX, VOTES.astype(float), at=[3], answers_per_query=2)
    repeated = exact_profile(ARGMAX, np.repeat(VOTES, 2, axis=0))
    assert twice.epsilon(1e-3) == pytest.approx(repeated.epsilon(1e-3))


def test_votes_that_nobody_can_move_and_no_votes_tell_nothing():
    for votes in (np.zeros((3, 4)), np.empty((0, 4))):
        assert exact_profile(ARGMAX, votes).epsilon(1e-9) == 0.0
        assert exact_profile(ARGMAX, votes).delta(0.0) < 1e-12


class Law:
    """A law that gives a class without votes no chance: shares of the votes."""

    promise = ARGMAX.promise

    def curve(self):
        return ARGMAX.curve()

    def log_outcomes(self, counts):
        counts = np.asarray(counts, dtype=float)
        with np.errstate(divide="ignore"):
            return np.log(counts / counts.sum(axis=1, keepdims=True))


def test_an_answer_that_only_one_world_gives_counts_as_told():
    profile = exact_profile(Law(), [[4, 0]])
    assert profile.delta(5.0) == pytest.approx(0.25, rel=1e-6)  # the second class wins in the neighbour only
    assert profile.epsilon(0.1) == math.inf


def test_weights_and_guesses_are_those_of_the_mechanism():
    heavy = Weighted(mechanism=GNMax(sigma=4.0), weight=2.0)
    assert exact_profile(heavy, 2 * VOTES).epsilon(1e-3) == pytest.approx(
        exact_profile(ARGMAX, VOTES).epsilon(1e-3)
    )
    gate = AgainstGuesses(mechanism=Threshold(at=4, sigma=2.0), guesses=np.eye(3), n_teachers=16)
    mechanism = Confident(screen=gate, argmax=ARGMAX)
    shifted = [np.exp(mechanism.log_outcomes(VOTES))]
    for i, j in itertools.permutations(range(3), 2):
        near = VOTES - np.eye(3, dtype=int)[i] + np.eye(3, dtype=int)[j]
        shifted.append(np.exp(mechanism.log_outcomes(near)))
    guess_chances = [
        max(0.5 * np.abs(shifted[0][row] - neighbour[row]).sum() for neighbour in shifted[1:])
        for row in range(3)
    ]
    for row in range(3):
        [*_, last] = exact_profiles(mechanism, VOTES.astype(float), at=[1, 2, 3])
        assert last.delta(0.0) >= guess_chances[row]


def test_add_or_remove_tells_less_than_moving():
    moves, adds = (
        exact_profile(ARGMAX, VOTES, relation=relation).epsilon(1e-3)
        for relation in ("replace-one", "add-or-remove")
    )
    assert adds < moves


def test_what_has_slack_or_too_many_neighbours_is_refused_with_the_way_out(monkeypatch):
    class Rounded(Law):
        def curve(self):
            return dataclasses.replace(ARGMAX.curve(), slack=1e-12)

    assert exact_profiles(Law(), VOTES.astype(float), at=[3]) is not None
    with pytest.raises(ValueError, match="exact_curve takes any"):
        exact_profile(Rounded(), VOTES)
    monkeypatch.setattr(module, "_MOST_PAIRS", 10)
    assert exact_profiles(ARGMAX, VOTES.astype(float), at=[3]) is None
    with pytest.raises(ValueError, match="exact_curve takes any"):
        exact_profile(ARGMAX, VOTES)


def test_each_row_keeps_its_own_guesses():
    votes, guesses = np.array([[90, 10], [10, 90], [50, 50]]), np.array([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])

    def profile(order):
        screen = AgainstGuesses(mechanism=Threshold(at=20, sigma=5.0), guesses=guesses[order], n_teachers=100)
        return exact_profile(Confident(screen=screen, argmax=GNMax(sigma=5.0)), votes[order])

    epsilons = {profile(list(order)).epsilon(1e-5) for order in itertools.permutations(range(3))}
    assert max(epsilons) - min(epsilons) < 1e-3 * max(epsilons)
    # guesses of one half take 50 from every count, which is a bar that is 50 higher
    half = AgainstGuesses(mechanism=Threshold(at=20, sigma=5.0), guesses=np.full((3, 2), 0.5), n_teachers=100)
    higher = Confident(screen=Threshold(at=70, sigma=5.0), argmax=GNMax(sigma=5.0))
    shifted = exact_profile(Confident(screen=half, argmax=GNMax(sigma=5.0)), votes)
    assert shifted.epsilon(1e-5) == pytest.approx(exact_profile(higher, votes).epsilon(1e-5))

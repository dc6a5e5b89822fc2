"""Every bound at once: the same numbers as each alone, in the order the proofs promise."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.accounting import exact_curve, moments2017_curve, papernot2018_curve
from ostraka.core.accounting.bounds import every_bound
from ostraka.core.mechanisms.screen import AgainstGuesses

VOTES = np.array([[180, 40, 30], [90, 80, 80], [240, 5, 5], [125, 124, 1]])
CONFIDENT = Confident(screen=Threshold(at=160, sigma=60.0), argmax=GNMax(sigma=30.0))
DELTA = 1e-5


def named(bounds):
    return {bound.name: bound for bound in bounds}


@pytest.mark.parametrize(
    ("mechanism", "names"),
    [
        (
            GNMax(sigma=30.0),
            ["classic", "gaussian", "tight", "adaptive", "papernot2018", "exact", "composed"],
        ),
        (LNMax(scale=20.0), ["classic", "tight", "moments2017", "papernot2018", "exact", "composed"]),
        (Threshold(at=160, sigma=60.0), ["classic", "gaussian", "tight", "adaptive", "exact", "composed"]),
        (CONFIDENT, ["classic", "gaussian", "tight", "adaptive", "papernot2018", "exact", "composed"]),
        (
            Confident(screen=Threshold(at=160, sigma=60.0, noise="every"), argmax=GNMax(sigma=30.0)),
            ["classic", "gaussian", "tight", "adaptive", "exact", "composed"],
        ),
    ],
)
def test_every_mechanism_has_its_bounds_and_only_those_for_any_votes_are_publishable(mechanism, names):
    bounds = every_bound(mechanism, VOTES)
    assert [bound.name for bound in bounds] == names
    for bound in bounds:
        assert bound.publishable == (bound.name in {"classic", "gaussian", "tight", "adaptive"})
        assert bound.both_directions == (bound.name not in {"moments2017", "papernot2018"})


def test_each_number_is_that_of_the_function_of_its_own():
    bounds = named(every_bound(LNMax(scale=20.0), VOTES, answers_per_query=7))
    for name, cost in (
        ("moments2017", moments2017_curve),
        ("papernot2018", papernot2018_curve),
        ("exact", exact_curve),
    ):
        alone = 7 * cost(LNMax(scale=20.0), VOTES)
        assert bounds[name].curves[-1].rdp == pytest.approx(alone.rdp, rel=1e-12)
        assert bounds[name].answers == (28,)


def test_the_gaussian_number_is_the_closed_form():
    # Dong, Roth and Su 2019, Cor. 1, with mu^2 = 2 n / sigma^2
    mu = math.sqrt(2 * 100) / 30.0
    want = brentq(
        lambda e: norm.cdf(-e / mu + mu / 2) - math.exp(e) * norm.cdf(-e / mu - mu / 2) - DELTA, 0, 20
    )
    got = named(every_bound(GNMax(sigma=30.0), np.tile(VOTES, (25, 1))))["gaussian"].epsilon(DELTA)[-1]
    assert got == pytest.approx(want, rel=1e-4)


def test_the_classic_number_is_the_rdp_of_the_noisy_counts():
    orders = np.linspace(1.01, 200, 20_000)
    n = 100
    rdp = n * orders / 30.0**2
    want = (rdp + np.log1p(-1 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1)).min()
    got = named(every_bound(GNMax(sigma=30.0), np.tile(VOTES, (25, 1))))["classic"].epsilon(DELTA)[-1]
    assert want * (1 - 1e-9) <= got <= want * 1.002


def test_epsilon_grows_with_the_answers_and_ends_at_the_whole():
    bounds = every_bound(GNMax(sigma=30.0), VOTES)
    for bound, all_of_it in zip(every_bound(GNMax(sigma=30.0), VOTES, at=[1, 2, 4]), bounds, strict=True):
        steps = bound.epsilon(DELTA)
        assert bound.answers == (1, 2, 4)
        assert all(a < b for a, b in itertools.pairwise(steps))
        assert steps[-1] == pytest.approx(all_of_it.epsilon(DELTA)[-1], rel=1e-9)


def test_interactive_screens_look_at_the_surprise():
    guesses = np.eye(3)[[0, 0, 0, 0]]
    gate = AgainstGuesses(mechanism=CONFIDENT.screen, guesses=guesses, n_teachers=250)
    interactive = Confident(screen=gate, argmax=CONFIDENT.argmax)
    plain, surprised = (named(every_bound(mechanism, VOTES)) for mechanism in (CONFIDENT, interactive))
    alone = exact_curve(interactive, VOTES)
    assert surprised["exact"].curves[-1].rdp == pytest.approx(alone.rdp, rel=1e-12)
    assert surprised["exact"].curves[-1].rdp != plain["exact"].curves[-1].rdp
    assert surprised["papernot2018"].curves[-1].rdp != plain["papernot2018"].curves[-1].rdp
    assert surprised["tight"] == plain["tight"]


@pytest.mark.parametrize("at", [[], [0, 1], [2, 2], [3, 1], [5], [1.5]])
def test_places_to_look_must_be_whole_and_in_order(at):
    with pytest.raises(ValueError, match=r"at must be (an integer|increasing)"):
        every_bound(GNMax(sigma=30.0), VOTES, at=at)

"""Many answers against one Gaussian: the increments hold, and nothing jumps where they take over."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from ostraka import Confident, GNMax, Threshold
from ostraka.core.laws import limit, tables
from ostraka.core.laws.law import ARGMAX, SCREEN, Law
from ostraka.core.numeric import up
from tests.core.composition.strategies import argmax_law, laws_of, played, told_by_repeats

DELTA = 1e-5


def gaussian(x, mu):
    """Delta of a Gaussian at odds e^x."""
    return ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-x / mu - mu / 2)


def screen_law(t, _, shift):
    return np.array([ndtr(t), ndtr(-t)]), np.array([ndtr(t - shift), ndtr(shift - t)])


@pytest.mark.parametrize(("kind", "law_at"), [(ARGMAX, argmax_law), (SCREEN, screen_law)])
@pytest.mark.parametrize("sigma", [9.0, 40.0])
@pytest.mark.parametrize("start", limit.STARTS)
def test_one_answer_beside_a_gaussian_tells_no_more_than_a_larger_gaussian(kind, law_at, sigma, start):
    law = Law(kind, up(1 / sigma))
    shift, part = math.sqrt(law.mu_squared), limit.one(law, start)
    before = start * law.mu_squared
    x = np.linspace(-5, 7, 121) * math.sqrt(before)
    ceiling = gaussian(x, math.sqrt(before + part.mu_squared)) + part.delta
    rng, closest = np.random.default_rng(6), 0.0
    places = [(0.0, 1.1), (shift / 2, 1.1), (0.0, 9.0), *rng.uniform([-5, -3], [5, 6], (200, 2))]
    for t, u in places:
        p, q = law_at(t, u, shift)
        delta = (p * gaussian(x[:, None] + np.log(q / p), math.sqrt(before))).sum(axis=1)
        assert (delta <= ceiling + 1e-15).all()
        grown = delta - gaussian(x, math.sqrt(before))
        closest = max(closest, (grown / (ceiling - gaussian(x, math.sqrt(before))))[60])
    assert closest > 0.85  # the most of one law in the middle, where the largest of all x counts


def test_a_size_a_hair_above_a_node_takes_the_next_one():
    node = limit.node(40)
    laws = [limit.rounded((Law(ARGMAX, size),)) for size in (node, np.nextafter(node, 1))]
    assert [law.size for (law,) in laws] == [node, limit.node(41)]


def test_a_larger_gaussian_lies_above_its_function_between_the_grid_points_too():
    """A piecewise linear function which touches a Gaussian from above at its kinks."""
    step, mu = 0.05, 0.7
    values = gaussian(np.arange(140) * step, mu)
    gaussians = limit.larger_gaussian(values, step, least=0.4 * mu**2, highest=2 * mu**2)
    with mpmath.workdps(40):
        for i, share in itertools.product((0, 3, 40, 90), (0.0, 0.25, 0.5, 0.9)):
            low, high = mpmath.exp(i * mpmath.mpf(step)), mpmath.exp((i + 1) * mpmath.mpf(step))
            odds = low + share * (high - low)
            chord = values[i] + share * (values[i + 1] - values[i])
            root = mpmath.sqrt(gaussians.mu_squared)
            z = mpmath.log(odds) / root
            above = mpmath.ncdf(root / 2 - z) - odds * mpmath.ncdf(-z - root / 2)
            assert above + gaussians.delta >= chord
    assert gaussians.mu_squared < 1.01 * mu**2
    assert limit.larger_gaussian(values, step, least=0.4 * mu**2, highest=0.99 * mu**2) is None


def test_beyond_the_answers_that_are_followed_a_repeated_question_stays_below_and_comes_near():
    n, sigma = 700, 40.0
    table = tables.of((Law(ARGMAX, up(1 / sigma), n),))
    p, q = argmax_law(0.0, 1.1, math.sqrt(2) / sigma)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        assert told_by_repeats(p, q, n, epsilon) <= table.delta(epsilon)
    assert told_by_repeats(p, q, n, 0.99 * table.epsilon(1e-5)) > 1e-5


@pytest.mark.parametrize(
    "sigma", [9.0, pytest.param(16.0, marks=pytest.mark.slow), pytest.param(40.0, marks=pytest.mark.slow)]
)
def test_epsilon_rises_with_every_answer_and_has_no_cliff(sigma):
    counts = [62, 63, 64, 65, 66, 67, 510, 511, 512, 513, 514, 515]
    epsilons = np.array([(n * GNMax(sigma=sigma).curve(bound="exact")).epsilon(DELTA) for n in counts])
    assert (np.diff(epsilons) > 0).all()
    assert (
        epsilons[3] - epsilons[2] < (0.09 if sigma < 10 else 0.035) * epsilons[2]
    )  # little noise: 64, then a Gaussian
    assert epsilons[9] - epsilons[8] < 0.005 * epsilons[8]


# Confident ----------------------------------------------------------------------------------------------

QUESTION = Confident(screen=Threshold(at=3.0, sigma=6.0), argmax=GNMax(sigma=4.0))


def exact(question):
    """The price of a screen and an argmax by exact composition."""
    return question.screen.curve(bound="exact") + question.argmax.curve(bound="exact")


@pytest.mark.parametrize(
    "n", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_no_adaptive_strategy_of_confident_questions_exceeds_delta(n):
    counts = [[i, j, 5 - i - j] for i in range(6) for j in range(6 - i)]
    pairs = laws_of(QUESTION, counts)[:: 1 if n < 3 else 3]
    epsilons = np.array([0.0, 0.2, 0.5, 1.0])
    reached = played([pairs], np.exp(epsilons), (n,))
    promised = np.array([(n * exact(QUESTION)).delta(epsilon=epsilon) for epsilon in epsilons])
    assert (reached <= promised).all()


def losses(p, q, n, grid):
    """The law of the summed log ratio of n equal answers, rounded down on a grid; at least that is lost."""
    at = np.floor(np.log(p / q) / grid).astype(int)
    law = np.zeros(at.max() - at.min() + 1)
    np.add.at(law, at - at.min(), p)
    size = 1 << (n * (law.size - 1) + 1).bit_length()
    composed = np.maximum(np.fft.irfft(np.fft.rfft(law, size) ** n, size), 0.0)
    return n * at.min(), composed


def test_screens_and_answers_in_turn_stay_below_and_come_within_three_percent():
    """The best screen and the best argmax, 100 times each: adaptive strategies reach no less than this."""
    n, grid = 100, 1e-5
    screen, argmax = Threshold(at=100, sigma=150.0), GNMax(sigma=60.0)
    price = (n * exact(Confident(screen=screen, argmax=argmax))).epsilon(DELTA)
    shifts = 1 / 150.0, math.sqrt(2) / 60.0
    starts, laws = zip(
        losses(*screen_law(shifts[0] / 2, 0.0, shifts[0]), n, grid),
        losses(*argmax_law(shifts[1] / 2, 1.1, shifts[1]), n, grid),
        strict=True,
    )
    size = 1 << (laws[0].size + laws[1].size).bit_length()
    joint = np.fft.irfft(np.fft.rfft(laws[0], size) * np.fft.rfft(laws[1], size), size)
    lost = (sum(starts) + np.arange(size)) * grid

    def told(epsilon):
        return float((np.maximum(joint, 0.0) * np.maximum(0.0, -np.expm1(epsilon - lost))).sum())

    assert told(price) <= DELTA
    assert told(0.97 * price) > DELTA


def test_confident_costs_less_than_its_renyi_price_and_more_than_its_answers():
    screen, argmax = Threshold(at=200, sigma=150.0), GNMax(sigma=40.0)
    total = 200 * exact(Confident(screen=screen, argmax=argmax))
    renyi = (200 * (screen.curve(bound="tight") + argmax.curve(bound="tight"))).epsilon(DELTA)
    assert (200 * argmax.curve(bound="exact")).epsilon(DELTA) < total.epsilon(DELTA) < 0.94 * renyi


@pytest.mark.parametrize(
    "n", [20, pytest.param(100, marks=pytest.mark.slow), pytest.param(400, marks=pytest.mark.slow)]
)
def test_two_families_in_turn_cost_hardly_more_than_one(n):
    first, second = GNMax(sigma=40.0).curve(), GNMax(sigma=40.0 * (1 + 1e-9)).curve()
    alone, mixed = (2 * n * first).epsilon(DELTA), (n * (first + second)).epsilon(DELTA)
    assert alone <= mixed * (1 + 1e-6)
    assert mixed < 1.07 * alone


@pytest.mark.parametrize(("kind", "law_at"), [(ARGMAX, argmax_law), (SCREEN, screen_law)])
@pytest.mark.parametrize("sigma", [15.0, 40.0, 1_000.0])
def test_a_family_that_is_rounded_up_tells_no_less(kind, law_at, sigma):
    """Against laws of the noise itself, at the place where one answer tells most."""
    law = Law(kind, up(1 / sigma))
    (node,) = limit.rounded((law,))
    assert law.size <= node.size <= law.size * 2 ** (1 / 32) * (1 + 1e-12)
    shift = math.sqrt(law.mu_squared)
    p, q = law_at(shift / 2, 1.1, shift)
    for start in limit._TABLED:
        part, before = limit.one(node, start), start * node.mu_squared
        x = np.linspace(-3, 5, 41) * math.sqrt(before)
        delta = (p * gaussian(x[:, None] + np.log(q / p), math.sqrt(before))).sum(axis=1)
        ceiling = gaussian(x, math.sqrt(before + part.mu_squared)) + part.delta
        assert (delta <= ceiling + 1e-15).all()
    assert part.mu_squared < 0.7 * law.mu_squared  # and less than the Gaussian that dominates it


def test_what_is_beyond_the_tables_is_a_gaussian():
    laws = Law(ARGMAX, 0.2), Law(ARGMAX, 1e-4, 3), Law("gaussian", 0.5)
    assert limit.rounded(laws) == (
        Law("gaussian", 1e-4**2 * 2 * (1 + 1e-15), 3),
        Law("gaussian", 0.2 * 0.2 * 2 * (1 + 1e-15)),
        Law("gaussian", 0.5),
    )


@pytest.mark.parametrize(("kind", "column"), [(ARGMAX, 150), (SCREEN, 7), (SCREEN, 235)])
def test_the_tables_are_what_is_computed(kind, column, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = np.rint(limit._shares(kind)[limit.node(column)] * limit._FULL).astype(int)
    assert np.abs(limit.tabulate(kind, column).astype(int) - table).max() <= 1  # another libm


def test_sixty_four_noises_cost_less_than_by_renyi_and_no_less_than_as_many_answers_of_the_mildest():
    first, *others = sigmas = (40.0 + 0.01 * np.arange(64)).tolist()
    exact, renyi = (
        sum((2 * GNMax(sigma=sigma).curve(*bound) for sigma in others), 2 * GNMax(sigma=first).curve(*bound))
        for bound in ((), ("tight",))
    )
    mildest = tables.of((Law(ARGMAX, 1 / sigmas[-1], 128),)).epsilon(DELTA)
    assert mildest <= exact.epsilon(DELTA) < 0.97 * renyi.epsilon(DELTA)

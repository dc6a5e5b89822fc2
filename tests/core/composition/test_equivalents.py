"""Tables of equivalent Gaussians: never below what the recursion proves, and near it."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from ostraka import GNMax
from ostraka.core.laws import answers, equivalents, tables
from ostraka.core.laws.gaussian import gaussian_deltas
from ostraka.core.laws.law import ARGMAX, SCREEN, Law

DELTA = 1e-5


def told(at, shift, n, x):
    """Exact delta at x of n screens that pass with chance Phi(at), or Phi(at - shift)."""
    passed = np.arange(n + 1)
    p, q = (binom.pmf(passed, n, norm.cdf(at - moved)) for moved in (0.0, shift))
    return np.maximum(0.0, p - np.exp(x)[:, None] * q).sum(axis=1)


@pytest.mark.parametrize("ratio", [0.3, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("n", [1, 20])
def test_a_table_of_a_larger_shift_bounds_a_smaller_one(ratio, n):
    shift = 0.2
    y = np.linspace(0, 6 * shift * math.sqrt(n), 600)
    for at in (-1.5, 0.0, 0.4):
        bound = equivalents._contracted(told(at, shift, n, y), y, ratio)
        exact = told(at, ratio * shift, n, ratio * y)
        assert (exact <= bound).all()
        assert (bound - exact).max() < (1 - ratio) * shift * math.sqrt(n) / 2 + 1e-9
    mu = shift * math.sqrt(n)
    bound = equivalents._contracted(gaussian_deltas(y, mu), y, ratio)
    assert (gaussian_deltas(ratio * y, ratio * mu) <= bound * (1 + 1e-9)).all()


@pytest.mark.parametrize("n", [24, 150])
def test_no_repeated_question_exceeds_delta(n):
    table = tables.of((Law(SCREEN, 1 / 25.0, n),))
    epsilons = np.array([0.0, 0.3, 1.0])
    for at in (-0.7, 0.02, 0.5):
        exact = told(at, 1 / 25.0, n, epsilons)
        assert (exact <= [table.delta(epsilon) for epsilon in epsilons]).all()
    assert told(0.02, 1 / 25.0, n, np.array([0.9 * table.epsilon(1e-3)])) > 1e-3


@pytest.mark.parametrize("kind", [ARGMAX, SCREEN])
@pytest.mark.parametrize("sigma", [20.0, 11.14, 10.66, 4.0])
def test_no_strategy_of_one_question_exceeds_a_table_at_any_height(kind, sigma):
    size = min(equivalents._SIZES, key=lambda size: abs(size - 1 / sigma))
    for n in (2, 9, 28, 40, 66, 300):
        law = Law(kind, size, n)
        shift = math.sqrt(law.mu_squared)  # an argmax of two classes is a screen of their difference
        if (table := equivalents.table(law)) is not None:
            heights = equivalents._GRID * shift * math.sqrt(n)
            values = np.interp(heights, np.arange(len(table[1])) * table[0], table[1])
            for at in (-0.7, 0.02, 0.5):
                assert (told(at, shift, n, heights) <= values * (1 + 1e-9)).all()


@pytest.mark.parametrize("kind", [ARGMAX, SCREEN])
@pytest.mark.parametrize(
    ("sigma", "numbers", "excess"),
    [(20.0, (9, 27, 40, 300), 1e-3), (11.14, (5, 20, 60, 66, 300), 4e-3), (4.0, (20, 28), 1e-2)],
)
def test_a_table_is_nowhere_below_the_recursion_and_near_it(kind, sigma, numbers, excess):
    size = min(equivalents._SIZES, key=lambda size: abs(size - 1 / sigma))
    followed = answers.followed(Law(kind, size))
    for n in numbers:
        law = Law(kind, size, n)
        step, values = equivalents.table(law)
        exact_step, exact = followed(n)
        spread = math.sqrt(n * law.mu_squared)
        # above 4 standard deviations what follows from larger shifts may be far below the recursion
        heights = equivalents._GRID[equivalents._GRID <= 4] * spread
        proved = np.interp(np.exp(heights), np.exp(np.arange(len(exact)) * exact_step), exact)
        assert (np.interp(heights, np.arange(len(values)) * step, values) * (1 + 1e-9) >= proved).all()
        ours, theirs = (
            tables.Table(0, *pair).epsilon(DELTA) for pair in ((step, values), (exact_step, exact))
        )
        assert 0.9999 * theirs <= ours <= (1 + excess) * theirs


@pytest.mark.parametrize(("least", "n"), [(0.05, 40), (0.089, 100)])
def test_a_noise_between_two_that_are_tabulated_costs_little_more_than_by_the_recursion(least, n):
    place = next(place for place, size in enumerate(equivalents._SIZES) if size > least)
    law = Law(ARGMAX, math.sqrt(equivalents._SIZES[place] * equivalents._SIZES[place + 1]), n)
    exact = tables.Table(0, *answers.table(law)).epsilon(DELTA)
    assert 0.97 * exact <= tables.followed_table(law).epsilon(DELTA) <= 1.004 * exact


def test_more_noise_and_fewer_answers_never_cost_more():
    sigmas = np.geomspace(20.0, 60.0, 40)
    costs = [(50 * GNMax(sigma=sigma).curve(bound="exact")).epsilon(DELTA) for sigma in sigmas]
    assert (np.diff(costs) < 0).all()
    curve = GNMax(sigma=33.0).curve(bound="exact")
    numbers = (*range(2, 30), *range(155, 165), *range(508, 516))
    assert (np.diff([(n * curve).epsilon(DELTA) for n in numbers]) > 0).all()
    loud = GNMax(sigma=8.0).curve(bound="exact")  # up to 64 answers are followed
    assert (np.diff([(n * loud).epsilon(DELTA) for n in range(60, 70)]) > 0).all()


@pytest.mark.parametrize("kind", [SCREEN, ARGMAX])
def test_the_shares_of_the_loudest_noises_are_what_is_computed(kind, monkeypatch):
    """As many answers as are followed, the first block on its own, the second also from the first."""
    at = np.rint((equivalents._shares(kind) - equivalents._LEAST) * (equivalents._STEPS / equivalents._SPAN))
    monkeypatch.setattr(equivalents, "_BLOCKS", equivalents._BLOCKS[-2:])
    assert np.abs(equivalents.tabulate(kind) - at[-2:]).max() <= 1  # another libm


def test_a_file_that_was_changed_is_not_used(tmp_path, monkeypatch):
    law = Law(ARGMAX, 0.03, 20)
    assert equivalents.table(law) is not None
    changed = bytearray(equivalents._path(ARGMAX).read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed.bin").write_bytes(changed)
    monkeypatch.setattr(equivalents, "_path", lambda _kind: tmp_path / "changed.bin")
    for cached in (equivalents._shares, equivalents._of_block):
        monkeypatch.setattr(equivalents, cached.__name__, cached.__wrapped__)
    assert equivalents.table(law) is None


@pytest.mark.parametrize(
    "law",
    [
        Law(ARGMAX, 0.314, 20),  # less noise than any that is tabulated
        Law(ARGMAX, 0.03, 513),
        Law(ARGMAX, 1 / 10, 65),  # not followed
        Law(ARGMAX, 1 / 5, 29),
        Law("pure", 0.03, 2),
    ],
)
def test_what_is_not_tabulated_has_no_table(law):
    assert equivalents.table(law) is None

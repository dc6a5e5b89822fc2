"""A bound errs in its own direction alone, and by little: against multi-precision, at random and at ends."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from ostraka.audit import cuts, one_run
from ostraka.core.laws import limit, losses, tables
from ostraka.core.laws.law import ARGMAX, GAUSSIAN, NEAR_GAUSSIAN, PURE, SCREEN, Law
from ostraka.core.numeric import clopper_pearson, up

RNG = np.random.default_rng(20)


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(50):
        yield


def above(bound, exact, by):
    """Whether a bound lies above an exact number, by so much of it at most."""
    exact = mpmath.mpf(exact)
    return exact < mpmath.mpf(bound) <= exact * (1 + mpmath.mpf(by))


def below(bound, exact, by):
    """Whether it lies below."""
    exact = mpmath.mpf(exact)
    return exact * (1 - mpmath.mpf(by)) <= mpmath.mpf(bound) < exact


def test_shifts_of_laws_and_of_many_uses_are_rounded_up():
    for size in RNG.uniform(1e-4, 0.3, 20).tolist():
        squared = Fraction(size) ** 2
        for kind, exact in ((ARGMAX, 2 * squared), (SCREEN, squared)):
            law = Law(kind, size, 7)
            assert exact <= Fraction(law.mu_squared) <= exact * (1 + Fraction(1e-14))
            assert above(limit.beside(law).mu_squared, 7 * mpmath.mpf(law.mu_squared), 1e-11)
            assert above(
                limit.after(law, limit.Part(0.0, 0.0)).mu_squared, 7 * mpmath.mpf(law.mu_squared), 1e-11
            )
        mixed = (Law(GAUSSIAN, size), Law(NEAR_GAUSSIAN, 0.01, 3))
        assert above(limit.together(mixed).mu_squared, mpmath.mpf(size) + 3 * mpmath.mpf(0.01), 1e-8)
        assert limit.together(mixed).delta == limit.beside(mixed[1]).delta == 3 * 2.0**-98


def test_a_table_gives_the_chord_or_a_hair_more():
    step, start = 0.07, -3
    values = np.sort(RNG.uniform(1e-6, 0.9, 12))[::-1].copy()
    table = tables.Table(start, step, values)
    odds = [mpmath.exp(mpmath.mpf(step) * (start + i)) for i in range(12)]
    for i, share in ((3, 0.25), (6, 0.5), (9, 0.875)):
        delta = float(values[i] + share * (values[i + 1] - values[i]))
        part = (mpmath.mpf(values[i]) - delta) / (mpmath.mpf(values[i]) - mpmath.mpf(values[i + 1]))
        assert above(table.epsilon(delta), mpmath.log(odds[i] + part * (odds[i + 1] - odds[i])), 1e-10)
        epsilon = step * (start + i + share)
        part = (mpmath.exp(mpmath.mpf(epsilon)) - odds[i]) / (odds[i + 1] - odds[i])
        chord = mpmath.mpf(values[i]) + part * (mpmath.mpf(values[i + 1]) - mpmath.mpf(values[i]))
        assert above(table.delta(epsilon), chord, 1e-10)


@pytest.mark.parametrize("law", [Law(PURE, 0.3), Law.response(5, 1.1), Law("laplace", 0.4)])
def test_a_loss_between_grid_points_keeps_its_p_and_has_no_more_q(law):
    step = 0.013
    for cell, p, q in zip(*losses.pure_cells(law, step), strict=True):
        if p:
            split = losses._split(np.array([cell]), np.array([p]), np.array([q]), step, 1)
            places = [mpmath.exp(-mpmath.mpf(step) * (split.start + i)) for i in range(len(split.masses))]
            less = sum(
                mass * place for mass, place in zip(map(mpmath.mpf, split.masses), places, strict=True)
            )
            assert abs(mpmath.mpf(p) - sum(map(mpmath.mpf, split.masses))) < 1e-15 * p
            assert less <= mpmath.mpf(q) or split.masses[1] == p  # as much as there is lies at the upper end
            assert less > mpmath.mpf(q) * (1 - mpmath.mpf(1e-9))


def test_kernels_one_after_the_other_have_no_smaller_weights():
    one, two = (losses.Kernel(RNG.uniform(0, 1, n), 1e-3) for n in (5, 9))
    both = losses.together(one, two)
    exact = [
        sum(
            Fraction(one.weights[i]) * Fraction(two.weights[k - i])
            for i in range(max(0, k - 8), min(5, k + 1))
        )
        for k in range(13)
    ]
    assert all(
        above(weight, mpmath.mpf(x.numerator) / x.denominator, 1e-11)
        for weight, x in zip(both.weights, exact, strict=True)
    )
    assert above(both.revealing, mpmath.mpf(1e-3) * 2, 1e-11)


@pytest.mark.parametrize("empty", [False, True])
def test_given_laws_become_pairs_with_more_p_and_less_q(empty):
    p, q = RNG.dirichlet([1.0, 2.0, 3.0], size=(2, 6))
    if empty:
        q[:3, 0], p[3:, 1] = 0.0, 0.0
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
        lam = np.concatenate([log_p - log_q, log_q - log_p])
    ways = tables.both_ways(np.concatenate([log_q, log_p]), lam)
    for pairs, (mine, other) in zip(ways, ((p, q), (q, p)), strict=True):
        rest = pairs.mass + pairs.difference
        likely = (mine > 0) & (other > 0)
        assert (pairs.mass[likely] > mine[likely] * (1 + 9e-11)).all()
        assert (pairs.mass <= mine * (1 + 1.1e-10)).all()
        assert (rest[likely] < other[likely] * (1 - 5e-11)).all()
        assert (rest[likely] > other[likely] - 3e-10 * np.maximum(mine, other)[likely]).all()
        assert (rest[other == 0] == 0).all()


def test_ends_for_a_chance_lie_a_hair_outside_those_of_the_beta_law():
    for hits, trials in ((0, 5), (1, 5), (3, 50), (49, 50), (50, 50)):
        low, high = clopper_pearson([hits], trials, error=0.01)
        if hits:  # P(as many hits or more) at the exact lower end is the error
            at = [
                mpmath.betainc(hits, trials - hits + 1, 0, low[0] * s, regularized=True)
                for s in (1, 1 + 1.1e-10)
            ]
            assert at[0] < 0.01 < at[1]
        if hits < trials:
            at = [
                mpmath.betainc(hits + 1, trials - hits, high[0] * s, 1, regularized=True)
                for s in (1, 1 - 1.1e-10)
            ]
            assert at[0] < 0.01 < at[1]
        assert (low[0] == 0, high[0] == 1) == (hits == 0, hits == trials)


def test_divergences_of_known_laws_are_rounded_down():
    orders = np.array([1.5, 2.0, 32.0])
    for p, q in RNG.dirichlet([2.0, 2.0, 2.0], size=(8, 2)):
        bounds = cuts.of_laws(p, q, orders)
        pairs = list(zip(map(mpmath.mpf, p), map(mpmath.mpf, q), strict=True))
        for bound, order in zip(bounds, orders.tolist(), strict=True):
            exact = mpmath.log(sum(a**order * b ** (1 - order) for a, b in pairs)) / (order - 1)
            assert below(bound, exact, 1e-9)
        pure = cuts.of_laws(p, q, np.array([np.inf]))[0]
        assert below(pure, mpmath.log(max(a / b for a, b in pairs)), 1e-9)
    assert (cuts.of_laws(p, p, orders) == 0).all()


def test_epsilon_and_delta_of_rates_are_rounded_down():
    for p, q, delta in ((0.9, 0.1, 0.0), (0.5, 0.2, 0.05), (0.999, 1e-6, 1e-5)):
        exact = mpmath.log((mpmath.mpf(p) - mpmath.mpf(delta)) / mpmath.mpf(q))
        one = cuts._least_epsilon(np.array([p]), np.array([q]), delta=delta, group=1)[0]
        assert below(one, exact, 1e-11)
        for group in (2, 3):
            told = mpmath.mpf(cuts._least_epsilon(np.array([p]), np.array([q]), delta=delta, group=group)[0])
            # p = e^(m epsilon) q + delta (1 + ... + e^((m - 1) epsilon)) at the largest epsilon
            sides = [
                mpmath.exp(group * x) * q + delta * sum(mpmath.exp(i * x) for i in range(group)) - p
                for x in (told, told * (1 + mpmath.mpf(1e-9)))
            ]
            assert sides[0] <= 1e-15 < sides[1]
        for epsilon, group in ((0.2, 1), (0.1, 3)):
            x = mpmath.mpf(epsilon)
            exact = (p - mpmath.exp(group * x) * q) / sum(mpmath.exp(i * x) for i in range(group))
            least = cuts._least_delta(np.array([p]), np.array([q]), epsilon=epsilon, group=group)[0]
            assert below(least, exact, 1e-11)


def test_tails_of_guesses_are_rounded_up():
    for right, guesses, share in ((40, 50, 0.6), (5, 50, 0.05), (50, 50, 0.9)):
        chances = [
            mpmath.binomial(guesses, k) * mpmath.mpf(share) ** k * (1 - mpmath.mpf(share)) ** (guesses - k)
            for k in range(guesses + 1)
        ]
        exact = sum(chances[right:])
        assert above(one_run.planned_tail(right, guesses, share, n_delta=0.0), exact, 1e-8)
        assert above(one_run.steinke_tail(right, guesses, share, n_delta=0.0), exact, 1e-8)
        for distance in (1.0, 2.5, 9.0):
            near = sum(
                chance * max(0, 1 - max(0, right - k) / mpmath.mpf(distance))
                for k, chance in enumerate(chances)
            )
            assert above(one_run.near_tail(right, guesses, share, distance=distance), near, 1e-8)
        # J more right guesses of this mean: the best of all distances, each of which is valid
        n_delta = 0.01
        best = min(
            sum(c * max(0, 1 - max(0, right - k) / mpmath.mpf(i)) for k, c in enumerate(chances))
            + mpmath.mpf(n_delta) / i
            for i in range(1, right + 1)
        )
        assert above(one_run.planned_tail(right, guesses, share, n_delta=n_delta), best, 1e-8)


def test_a_number_moved_up_moves_by_its_last_digits():
    for value in (1.0, -1.0, 1e-300, 3.7e5):
        for ulps in (1, 2, 3, 4, 64):
            moved = mpmath.mpf(up(value, ulps=ulps)) - mpmath.mpf(value)
            last = mpmath.mpf(np.spacing(abs(value)))
            assert (
                last * (0.4 if value < 0 else 1) * (1 if ulps < 4 else ulps * 0.9)
                <= moved
                <= 2.1 * ulps * last
            )
    assert up(0.0) == 0.0
    assert up(np.inf, ulps=9) == np.inf

"""Tails of the number of right guesses: by other means, and against all joint laws."""

from functools import partial

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import beta, binom, ncx2, norm

from ostraka.audit.one_run import gaussian_is_refuted, near_tail, planned_tail, steinke_tail, surest_tail


@pytest.mark.parametrize(
    ("right", "guesses", "n_delta"), [(9, 10, 0.02), (14, 20, 0.4), (5, 5, 0.003), (3, 12, 2.5)]
)
def test_the_planned_tail_is_the_worst_joint_law_of_a_linear_programme(right, guesses, n_delta):
    """Over all joint laws of a binomial B and a J >= 0 with mean n delta: the largest P(B + J >= right)."""
    share = 0.6
    pairs = [(b, j) for b in range(guesses + 1) for j in range(right + 1)]
    hit = [-float(b + j >= right) for b, j in pairs]
    law = binom.pmf(np.arange(guesses + 1), guesses, share)
    marginals = [[float(b == k) for b, _ in pairs] for k in range(guesses + 1)]
    worst = linprog(
        hit, A_ub=[[j for _, j in pairs]], b_ub=[n_delta], A_eq=marginals, b_eq=law, bounds=(0, 1)
    )
    assert planned_tail(right, guesses, share, n_delta=n_delta) == pytest.approx(-worst.fun, abs=1e-7)


@pytest.mark.parametrize("distance", [1.0, 3.08, 40.0])
def test_one_distance_costs_no_less_than_the_best_of_all(distance):
    cost = near_tail(14, 20, 0.6, distance=distance) + 0.4 / distance
    assert cost >= planned_tail(14, 20, 0.6, n_delta=0.4)


def test_the_near_tail_is_its_sum_by_mpmath():
    right, guesses, distance = 30, 40, mpmath.mpf("3.5")
    share = mpmath.mpf("0.6")
    want = mpmath.fsum(
        max(mpmath.mpf(0), 1 - max(0, right - b) / distance)
        * mpmath.binomial(guesses, b)
        * share**b
        * (1 - share) ** (guesses - b)
        for b in range(guesses + 1)
    )
    got = near_tail(right, guesses, 0.6, distance=3.5)
    assert got == pytest.approx(float(want), rel=1e-8)
    assert got >= want


def test_guesses_whose_number_depends_on_the_output_keep_the_error():
    """Half of all runs make 5 guesses, half 60; delta is spent where it helps most. Exact probabilities."""
    error, n_delta, share, numbers = 0.05, 0.05, 0.5, (5, 60)

    def probability(limits):
        """P(right guesses reach the limit), all of J spent on the outcomes nearest to it in both halves."""
        gaps = [
            (limit - b, binom.pmf(b, number, share) / 2)
            for limit, number in zip(limits, numbers, strict=True)
            for b in range(limit)
        ]
        found = sum(
            binom.sf(limit - 1, number, share) / 2 for limit, number in zip(limits, numbers, strict=True)
        )
        budget_left = n_delta
        for gap, mass in sorted(gaps):
            part = min(mass, budget_left / gap)
            found, budget_left = found + part, budget_left - part * gap
        return found

    def limit(number, tail, allowed):
        return next(v for v in range(number + 2) if v > number or tail(v, number, share) <= allowed)

    distance = n_delta / (0.65 * error)
    fixed = [limit(n, partial(near_tail, distance=distance), error - n_delta / distance) for n in numbers]
    assert probability(fixed) <= error


@pytest.mark.parametrize(("right", "guesses", "share"), [(9, 10, 0.55), (140, 200, 0.6)])
def test_steinkes_tail_is_theorem_5_2_by_mpmath(right, guesses, share):
    n_delta = 0.01
    law = [
        mpmath.binomial(guesses, k) * mpmath.mpf(share) ** k * (1 - mpmath.mpf(share)) ** (guesses - k)
        for k in range(guesses + 1)
    ]
    tail = [mpmath.fsum(law[max(0, v) :]) for v in range(-1, right + 1)]
    f = lambda v: tail[v + 1]  # noqa: E731
    want = f(right) + 2 * n_delta * max((f(right - i) - f(right)) / i for i in range(1, right + 1))
    got = steinke_tail(right, guesses, share, n_delta=n_delta)
    assert got == pytest.approx(float(want), rel=1e-8)
    assert got >= want


@pytest.mark.parametrize("n_delta", [0.01, 3.0])
def test_tails_grow_with_the_share_so_that_what_is_refuted_is_an_interval(n_delta):
    for tail in (planned_tail, steinke_tail):
        tails = [tail(70, 100, share, n_delta=n_delta) for share in np.linspace(0.5, 0.9, 60)]
        assert (np.diff(tails) >= -1e-12).all()


def test_the_gaussian_recursion_is_that_of_mpmath():
    """The largest refuted mu of 90 right guesses of 100, of 400 canaries, with 30 digits."""
    n, guesses, right, error = 400, 100, 90, mpmath.mpf("0.05")

    def refuted(mu):
        hits, misses = error * right / n, error * (guesses - right) / n
        for i in range(right - 1, -1, -1):
            quantile = mpmath.sqrt(2) * mpmath.erfinv(2 * hits - 1)
            needed = mpmath.ncdf(quantile - mu)
            if needed <= misses:
                break
            hits, misses = (
                min(mpmath.mpf(1), hits + mpmath.mpf(i) / (guesses - i) * (needed - misses)),
                needed,
            )
        return hits + misses > mpmath.mpf(guesses) / n

    low, high = mpmath.mpf(0), mpmath.mpf(4)
    with mpmath.workdps(30):
        for _ in range(25):
            middle = (low + high) / 2
            low, high = (middle, high) if refuted(middle) else (low, middle)
    settings = {"right": right, "guesses": guesses, "n_canaries": n, "error": 0.05}
    assert gaussian_is_refuted(float(low) - 1e-6, **settings)
    assert not gaussian_is_refuted(float(high) + 1e-6, **settings)


@pytest.mark.parametrize("mu", [0.0, 0.3, 2.0, 40.0])
def test_the_surer_of_two_gaussian_guesses_is_right_if_their_sum_is_above_zero(mu):
    exact = norm.cdf(mu / np.sqrt(2))
    assert exact <= surest_tail(mu, 1, 1, 2) <= exact + 0.02


@pytest.mark.parametrize(("mu", "right", "guesses", "n"), [(0.3, 260, 400, 900), (1.0, 166, 200, 400)])
def test_the_tail_of_the_surest_guesses_is_an_integral_over_the_largest_that_is_left(mu, right, guesses, n):
    """The share beyond that one is a beta variable; its square is a non-central chi-square one."""

    def integrand(share):
        c = np.sqrt(ncx2.isf(share, 1, mu**2 / 4))
        chance = norm.sf(c - mu / 2) / share
        return beta.pdf(share, guesses + 1, n - guesses) * binom.sf(right - 1, guesses, chance)

    middle = guesses / n
    exact = quad(integrand, 1e-12, 1 - 1e-12, points=[middle - 0.05, middle, middle + 0.05], limit=400)[0]
    assert 1e-4 < exact < 0.9
    assert exact <= surest_tail(mu, right, guesses, n) <= 1.02 * exact


def test_all_gaussian_guesses_are_binomial():
    exact = binom.sf(59, 100, norm.cdf(0.1))
    assert exact <= surest_tail(0.2, 60, 100, 100) <= exact * (1 + 1e-8)


def test_the_tail_of_the_surest_guesses_grows_with_mu():
    tails = [surest_tail(mu, 70, 100, 200) for mu in np.linspace(0, 3, 60)]
    assert (np.diff(tails) >= -1e-12).all()

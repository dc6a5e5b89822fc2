"""The outcome map against multi-precision laws, closed forms, and its own symmetries."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka import GNMax, LNMax, Threshold

FLOAT = 4e-16  # a log of -1e6 is known to no better than its own last digits
TOLERANCE = 1e-9  # what is promised
SEEN = 5e-12  # what ten classes or fewer are seen to reach
NOISES = {"gaussian": lambda scale: GNMax(sigma=scale), "laplace": lambda scale: LNMax(scale=scale)}
both_noises = pytest.mark.parametrize("kind", NOISES)

FEW = [
    [60, 30, 10],
    [250] + [0] * 9,
    [26] + [25] * 9,
    [125, 125, 0],
    [100, 60, 60, 20, 5, 5],
    [0.5, -3.25, 40.125],
]
MANY = [
    [12] * 2 + [11] * 48 + [2] * 50,
    [8] + [0] * 999,  # at sigma = 1 the hardest of all: one class 8 sigma above a thousand
    [3] * 500 + [0] * 500,
]


def error(got, wanted):
    """Largest absolute error of logs, beyond what float64 cannot express."""
    return float(max(abs(mp.mpf(float(g)) - w) - FLOAT * abs(w) for g, w in zip(got, wanted, strict=True)))


def two_classes(kind, gap, scale):
    """Log probability of the class that lies ``gap`` behind."""
    if kind == "gaussian":
        return mp.log(mp.erfc(mp.mpf(gap) / scale / 2) / 2)
    g = mp.mpf(gap) / scale
    return mp.log((2 + g) / 4) - g


@both_noises
@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0, 400.0])
def test_two_classes_have_a_closed_form_however_far_apart(kind, scale):
    gaps = np.concatenate([np.arange(0.0, 10.0, 0.5), np.arange(10.0, 60.0, 2.5), [100.0, 1000.0]]) * scale
    got = NOISES[kind](scale).log_outcomes(np.stack([gaps, np.zeros_like(gaps)], axis=1))
    with mp.workdps(40):
        behind = [two_classes(kind, gap, scale) for gap in gaps]
        assert error(got[:, 1], behind) <= SEEN
        assert error(got[:, 0], [mp.log1p(-mp.exp(x)) for x in behind]) <= SEEN
    assert got.min() < -math.log(1e300)


@both_noises
@pytest.mark.parametrize(
    "scale", [0.5, 40.0, *(pytest.param(value, marks=pytest.mark.slow) for value in (4.0, 400.0))]
)
@pytest.mark.parametrize("counts", FEW, ids=str)
def test_a_few_classes_agree_with_quadrature_in_multi_precision(kind, scale, counts, oracle_law):
    got = NOISES[kind](scale).log_outcomes([counts])[0]
    with mp.workdps(16):
        assert error(got, map(mp.log, oracle_law(counts, kind, scale))) <= SEEN


@both_noises
@pytest.mark.parametrize("scale", [pytest.param(0.5, marks=pytest.mark.slow), 1.0, 40.0])
@pytest.mark.parametrize("counts", MANY, ids=["100", "one in 1000", "half of 1000"])
def test_up_to_a_thousand_classes_agree_with_multi_precision(kind, scale, counts, oracle_law):
    if kind == "laplace" and len(counts) > 100:
        counts = counts[:: len(counts) // 100]  # its closed form is a polynomial of that degree
    got = NOISES[kind](scale).log_outcomes([counts])[0]
    with mp.workdps(16):
        assert error(got, map(mp.log, oracle_law(counts, kind, scale))) <= TOLERANCE


@pytest.mark.parametrize("n_classes", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_laplace_classes_agree_with_the_closed_form(oracle_law, n_classes):
    counts = [9] + [2] * (n_classes - 1)
    with mp.workdps(16):
        wanted = [mp.log(p) for p in oracle_law(counts, "laplace", 1.0)]
        assert error(LNMax(scale=1.0).log_outcomes([counts])[0], wanted) <= TOLERANCE


@both_noises
@pytest.mark.parametrize("n_classes", [2, 10, 100, 1000])
def test_probabilities_sum_to_one(kind, n_classes):
    rng = np.random.default_rng(n_classes)
    counts = rng.multinomial(250, rng.dirichlet(np.full(n_classes, 0.3), size=20))
    for scale in (0.5, 5.0, 40.0, 400.0):
        sums = np.exp(NOISES[kind](scale).log_outcomes(counts)).sum(axis=1)
        np.testing.assert_allclose(sums, 1, rtol=0, atol=TOLERANCE)


histograms = st.lists(st.integers(0, 300), min_size=2, max_size=12)
scales = st.floats(0.5, 400.0)


@both_noises
@given(counts=histograms, scale=scales, shift=st.integers(-1000, 1000), seed=st.integers(0, 9))
def test_only_differences_matter_and_classes_have_no_order(kind, counts, scale, shift, seed):
    mechanism, counts = NOISES[kind](scale), np.array(counts, dtype=float)
    order = np.random.default_rng(seed).permutation(counts.size)
    base, shifted, reordered = mechanism.log_outcomes([counts, counts + shift, counts[order]])
    np.testing.assert_allclose(shifted, base, rtol=1e-12, atol=SEEN)
    np.testing.assert_array_equal(reordered, base[order])


@both_noises
@given(counts=histograms, scale=scales, factor=st.sampled_from([0.5, 3.0]))
def test_votes_and_noise_measured_in_another_unit_are_the_same_question(kind, counts, scale, factor):
    base = NOISES[kind](scale).log_outcomes([counts])
    neighbour = NOISES[kind](scale * factor).log_outcomes([np.multiply(counts, factor)])
    np.testing.assert_allclose(neighbour, base, rtol=1e-12, atol=SEEN)


@both_noises
@given(counts=histograms, scale=scales)
def test_a_larger_count_never_has_a_smaller_chance(kind, counts, scale):
    log_q = NOISES[kind](scale).log_outcomes([sorted(counts)])[0]
    assert (np.diff(log_q) >= 0).all()
    assert log_q.max() <= 0


@both_noises
def test_every_row_is_computed_alone_also_in_several_threads(kind):
    counts = np.random.default_rng(5).multinomial(250, np.full(10, 0.1), size=700)
    mechanism = NOISES[kind](20.0)
    together = mechanism.log_outcomes(counts)
    np.testing.assert_array_equal(together[::70], [mechanism.log_outcomes([row])[0] for row in counts[::70]])


@pytest.mark.parametrize("scale", [1.0, 40.0])
@pytest.mark.parametrize("gap", [0.0, 1.0, 30.0, 90.0])
def test_the_slope_of_two_classes_has_a_closed_form(gap, scale):
    _, gaussian = GNMax(sigma=scale).log_outcomes_gradient([[gap, 0.0]])
    _, laplace = LNMax(scale=scale).log_outcomes_gradient([[gap, 0.0]])
    with mp.workdps(40):
        z, g = gap / (mp.mpf(scale) * mp.sqrt(2)), mp.mpf(gap) / scale
        density = mp.npdf(z) / (mp.mpf(scale) * mp.sqrt(2))
        for k, chance in enumerate((mp.ncdf(z), mp.ncdf(-z))):
            want = float(density / chance) * (1 - 2 * k)
            np.testing.assert_allclose(gaussian[0, k], [want, -want], rtol=1e-10, atol=1e-14)
        tail, density = (2 + g) / 4 * mp.exp(-g), (1 + g) / 4 * mp.exp(-g) / scale
        for k, chance in enumerate((1 - tail, tail)):
            want = float(density / chance) * (1 - 2 * k)
            np.testing.assert_allclose(laplace[0, k], [want, -want], rtol=1e-10, atol=1e-14)


@both_noises
@pytest.mark.parametrize(
    ("counts", "scale"),
    [([60, 50, 10], 20.0), pytest.param([30, 9, 9, 0], 2.0, marks=pytest.mark.slow), ([4, 4, 4], 1.5)],
)
def test_the_slope_agrees_with_differences_of_the_multi_precision_law(kind, counts, scale, oracle_law):
    _, slope = NOISES[kind](scale).log_outcomes_gradient([counts])
    step = 0.5**12  # exact in float64; what a central difference neglects is of the order of its square
    for i in range(2):
        difference = np.zeros(len(counts))
        with mp.workdps(16):
            for sign in (1, -1):
                moved = [c + sign * step * (m == i) for m, c in enumerate(counts)]
                logs = [float(mp.log(p)) for p in oracle_law(moved, kind, scale)]
                difference += sign * np.array(logs) / (2 * step)
        np.testing.assert_allclose(slope[0, :, i], difference, rtol=1e-7, atol=1e-9)


@both_noises
@given(counts=histograms, scale=scales)
def test_slopes_obey_what_sums_and_shifts_demand(kind, counts, scale):
    log_q, slope = NOISES[kind](scale).log_outcomes_gradient([counts])
    np.testing.assert_allclose(log_q, NOISES[kind](scale).log_outcomes([counts]), rtol=1e-14, atol=1e-14)
    largest = max(1.0, float(np.abs(slope).max()))
    np.testing.assert_allclose(slope.sum(axis=2), 0, atol=1e-12 * largest)  # a vote more for everybody
    np.testing.assert_allclose((np.exp(log_q)[..., None] * slope).sum(axis=1), 0, atol=1e-11)  # sum P = 1
    slopes = np.diagonal(slope[0])
    assert (slopes >= 0).all()
    assert (slope[0] - np.diag(slopes) <= 0).all()


@pytest.mark.parametrize("noise", ["largest", "every"])
@pytest.mark.parametrize("sigma", [1.0, 40.0])
def test_a_screen_agrees_with_multi_precision_however_unlikely_it_is_to_pass_or_stop(noise, sigma):
    for gap in (-60, -39, -20, -5, 0, 2, 9.5, 20, 37.5, 39, 60):
        counts, at = [5.0, 5.0, 2.0], 5 + gap * sigma
        got = Threshold(at=at, sigma=sigma, noise=noise).log_outcomes([counts])[0]
        with mp.workdps(40):
            tails = [mp.ncdf((c - mp.mpf(at)) / sigma) for c in counts]
            if noise == "largest":
                wanted = [mp.log(max(tails)), mp.log(mp.ncdf((mp.mpf(at) - 5) / sigma))]
            else:
                stops = mp.fsum(mp.log(mp.ncdf((mp.mpf(at) - c) / sigma)) for c in counts)
                passes = mp.log(mp.fsum(tails)) if gap > 12 else mp.log(-mp.expm1(stops))
                wanted = [passes, stops]
            assert error(got, wanted) <= SEEN

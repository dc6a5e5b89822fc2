"""Tight prices against a random and local search for something dearer, confirmed in multi-precision."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr

from ostraka import GNMax, LNMax, Threshold
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms import tight as _tight

CASES = [
    (0.001, 2), (0.001, 1536), (0.0025, 320), (0.025, 2), (0.025, 16), (0.025, 128), (0.1, 4), (0.1, 20),
    (0.2, 8), (1 / 3, 1.125), (0.5, 4), (1.0, 2), (2.0, 1.5), (2.0, 3),
]  # fmt: skip

QUICK = {(0.001, 2), (0.001, 1536), (0.025, 2), (0.025, 16), (0.1, 20), (0.5, 4), (2.0, 1.5)}
MARGIN = {"gaussian": (4e-4, 0.011), "laplace": (5e-4, 0.031), "every": (4e-4, 0.011)}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)


def log_cdf(kind, x):
    if kind != "laplace":
        return log_ndtr(x)
    return np.where(x < 0, x - math.log(2), np.log1p(-np.exp(-np.abs(x)) / 2))


def log_pdf(kind, x):
    return -np.abs(x) - math.log(2) if kind == "laplace" else -x * x / 2 - math.log(2 * math.pi) / 2


def log_wins(kind, a, b):
    """Log P(A > B, A > 0) and log P(B > A, B > 0): Gauss-Legendre between all places of a bend."""
    top = max(a, b, 0.0)
    spread = 37 if kind == "laplace" else 12
    edges = sorted({0.0, max(a, 0.0), max(b, 0.0), max((a + b) / 2, 0.0), top + spread / 3, top + spread})
    low, high = (np.array(side)[:, None] for side in (edges[:-1], edges[1:]))
    x = low + (high - low) / 2 * (1 + NODES)
    weights = np.log(WEIGHTS * (high - low) / 2)
    log_pair = [log_pdf(kind, x - i) + log_cdf(kind, x - j) + weights for i, j in ((a, b), (b, a))]
    return [logs.max() + math.log(np.exp(logs - logs.max()).sum()) for logs in log_pair]


def log_law(kind, a, b):
    """Of the outcome when two noisy counts are compared with each other and with a bar at zero."""
    none = float(log_cdf(kind, -np.float64(a)) + log_cdf(kind, -np.float64(b)))
    if kind == "every":  # a screen says only whether any reaches the bar
        return np.array([math.log(-math.expm1(min(none, -1e-300))), none])
    return np.array([*log_wins(kind, a, b), none])


def divergence(kind, a, b, shift, order):
    """From counts a, b to the same with one ballot moved."""
    log_q = log_law(kind, a - shift, b + shift)
    lam = log_law(kind, a, b) - log_q
    excess = np.exp(log_q) * (np.expm1(np.minimum(order * lam, 700)) - order * np.expm1(lam))
    return math.log1p(excess.sum()) / (order - 1)


def worst_case(kind, shift, order):
    """The largest divergence that a search from random and from likely places finds, and where."""
    rng = np.random.default_rng(8)
    points = [*rng.uniform([-3, -3], [9, 9], (40, 2)), *rng.uniform(-2 * shift, 2 * shift, (12, 2))]
    points += [np.array(p) for p in ((0.3, -0.3), (order * shift, 0.0), (1.2, 8.0), (shift, -shift))]
    points += [np.array([-8.0, x]) for x in (-2.0, 0.0, 1.0)]
    value = [divergence(kind, *p, shift, order) for p in points]
    best = 0.0, points[0]
    for at in np.argsort(value)[-3:]:
        size = 0.3 * shift if np.abs(points[at]).max() <= 2 * shift else 0.2
        optimum = minimize(
            lambda p: -divergence(kind, *p, shift, order),
            points[at],
            method="Nelder-Mead",
            options={
                "initial_simplex": points[at] + size * np.array([[0, 0], [1, 0], [0, 1]]),
                "maxiter": 120,
                "xatol": 1e-4 * size,
            },
        )
        best = max(best, (-optimum.fun, optimum.x), key=lambda pair: pair[0])
    return best


def in_multi_precision(kind, a, b, shift, order):
    """The same divergence by the definitions, with 20 digits."""
    with mp.workdps(20):

        def cdf(x):
            if kind != "laplace":
                return mp.ncdf(x)
            return mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2

        def pdf(x):
            return mp.exp(-abs(x)) / 2 if kind == "laplace" else mp.npdf(x)

        def law(a, b):
            if kind == "every":
                return [1 - cdf(-a) * cdf(-b), cdf(-a) * cdf(-b)]
            edges = sorted({mp.mpf(0), *(max(x, mp.mpf(0)) for x in (a, b, (a + b) / 2))})
            edges += [edges[-1] + 4, edges[-1] + 12, edges[-1] + 50]
            wins = [mp.quad(lambda x, i=i, j=j: pdf(x - i) * cdf(x - j), edges) for i, j in ((a, b), (b, a))]
            return [*wins, cdf(-a) * cdf(-b)]

        a, b, shift, order = (mp.mpf(float(x)) for x in (a, b, shift, order))
        pairs = zip(law(a, b), law(a - shift, b + shift), strict=True)
        return float(mp.log(mp.fsum(p**order * q ** (1 - order) for p, q in pairs)) / (order - 1))


def price(kind, shift, order):
    if kind == "every":
        return _tight.gaussian_screen(shift, (order,))[0]
    return {"gaussian": _tight.gaussian_argmax, "laplace": _tight.laplace_argmax}[kind](shift, (order,))[0]


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "every"])
@pytest.mark.parametrize(
    ("shift", "order"),
    [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_no_search_finds_anything_dearer_and_the_margin_is_small(kind, shift, order):
    order = float(order)
    worst, (a, b) = worst_case(kind, shift, order)
    assert in_multi_precision(kind, a, b, shift, order) == pytest.approx(worst, rel=1e-7, abs=0)
    least, highest = MARGIN[kind]
    assert worst * (1 + least) <= price(kind, shift, order) <= worst * (1 + highest)


@pytest.mark.parametrize(
    "shift", [0.001, 0.05, 1.0, *(pytest.param(value, marks=pytest.mark.slow) for value in (0.01, 0.3, 2.0))]
)
def test_the_kink_of_laplace_noise_is_searched(shift):
    steps = np.linspace(-1.5, 1.5, 11) * shift
    for order in (1.125, 2.0, 16.0):
        if order * shift <= 6:
            worst_case_near_the_kink = max(
                divergence("laplace", a, b, shift, order) for a in steps for b in steps
            )
            assert worst_case_near_the_kink * (1 + 5e-4) <= price("laplace", shift, order)


def test_at_sigma_40_it_is_at_most_0_645_of_the_classic_price():
    curve = GNMax(sigma=40.0).curve()
    for order, rdp in zip(curve.orders, curve.rdp, strict=True):
        if 2 <= order <= 16:
            assert 2 / math.pi < rdp / (order / 40.0**2) <= 0.645


FAMILIES = {
    "GNMax": lambda sigma: GNMax(sigma=sigma),
    "LNMax": lambda sigma: LNMax(scale=sigma),
    "Threshold": lambda sigma: Threshold(at=0.0, sigma=sigma),
    "Threshold, every": lambda sigma: Threshold(at=0.0, sigma=sigma, noise="every"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_more_noise_never_costs_more_and_tight_never_more_than_classic(family):
    before = np.inf
    for sigma in (0.3, 0.7, 0.7001, 6.0, 6.001, 40.0, 40.01, 300.0, 3e7):
        mechanism = FAMILIES[family](sigma)
        tight, classic = (np.array(mechanism.curve(bound).rdp) for bound in ("tight", "classic"))
        assert np.all(tight <= classic)
        assert np.all(tight <= before)
        assert np.all(tight > 0)
        before = tight


@pytest.mark.parametrize("scale", [1e-2, 0.5, 3.0, 20.0, 400.0, 1e4, 1e8, 1e12, 1e17])
def test_classic_prices_are_never_below_the_formulas_in_multi_precision(scale):
    gaussian, laplace = (m.curve("classic") for m in (GNMax(sigma=scale), LNMax(scale=scale)))
    screens = [Threshold(at=0.0, sigma=scale, noise=noise).curve("classic") for noise in ("largest", "every")]
    with mp.workdps(80):
        s = 1 / mp.mpf(scale)
        for at, order in enumerate(ORDERS[:-1]):
            o = mp.mpf(order)
            moment = o * mp.exp((o - 1) * s) + (o - 1) * mp.exp(-o * s)
            two_laplace = 2 * mp.log(moment / (2 * o - 1)) / (o - 1)
            wanted = [o * s**2, min(two_laplace, 2 * s), o * s**2 / 2, o * s**2]
            for curve, want in zip([gaussian, laplace, *screens], wanted, strict=True):
                assert want <= curve.rdp[at] <= want * (1 + mp.mpf("3e-12"))
        assert 2 * s <= laplace.rdp[-1] <= 2 * s * (1 + mp.mpf("1e-15"))
        assert gaussian.mu_squared >= 2 * s**2


@pytest.mark.parametrize("shift", [1e-8, pytest.param(1e-9, marks=pytest.mark.slow), 1e-12, 1e-17])
def test_hardly_any_effect_still_costs_what_it_costs(shift):
    for order in (1.125, 64.0, 1536.0):
        small = order * shift**2
        assert 0.636 <= price("gaussian", shift, order) / small <= 1 + 1e-12
        assert 0.666 <= price("laplace", shift, order) / small <= 1 + 1e-12
        assert 0.318 <= price("every", shift, order) / small <= 1 + 1e-12


def test_what_an_exponential_has_beyond_its_line_loses_no_digits():
    x = np.array([0.00999, -0.00999, 3e-4, -1e-9, 0.5, -0.5])
    with mp.workdps(60):
        for value, at in zip(_tight._beyond_linear(x), x.tolist(), strict=True):
            exact = mp.exp(at) - 1 - mp.mpf(at)
            assert abs(value / exact - 1) < 1e-15

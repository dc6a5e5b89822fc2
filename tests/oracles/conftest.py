"""The outcome law of a noisy argmax in multi-precision arithmetic, by methods the library does not use."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr


def normal_cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def levels(counts):
    """Distinct counts, highest first, and how many classes have each."""
    return [(mp.mpf(value), list(counts).count(value)) for value in sorted(set(counts), reverse=True)]


def gaussian_law(counts, scale):
    """Probability that a class of each distinct count wins: tanh-sinh quadrature about each mode."""
    down = [(value / scale, times) for value, times in levels(counts)]
    return {value: _gaussian_wins(down, at) for at, (value, _) in enumerate(levels(counts))}


def _gaussian_wins(down, at):
    centre = down[at][0]
    others = [(c, times - (m == at)) for m, (c, times) in enumerate(down) if times > (m == at)]

    def integrand(x):
        return mp.npdf(x - centre) * mp.fprod(normal_cdf(x - c) ** times for c, times in others)

    low, mode, high = _window(float(centre), [(float(c), times) for c, times in others])
    peak = integrand(mode)  # quad takes its error for absolute: it must see numbers near 1
    return peak * mp.quad(lambda x: integrand(x) / peak, [low, mode, high])


def _window(centre, others):
    """Where the log-concave integrand peaks, and how far from there nothing is left."""

    def slope(x):
        z = np.array([x - c for c, _ in others])
        hazard = np.exp(-z * z / 2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
        return centre - x + float(hazard @ [times for _, times in others])

    mode = brentq(slope, centre, max(c for c, _ in others) + centre - min(centre, 0) + 40)
    curvature = (slope(mode - 1e-4) - slope(mode + 1e-4)) / 2e-4
    width = 12 / np.sqrt(curvature) + 4  # the curvature is 1 or more everywhere
    return mode - width, mode, mode + width


def laplace_law(counts, scale):
    """The same for Laplace noise, in closed form: between counts the integrand is a polynomial in e^-x."""
    kinks = [(value / scale, times) for value, times in levels(counts)]
    spare = mp.mp.dps + int(0.2 * len(counts))  # binomials of either sign cancel
    with mp.workdps(spare):
        return {value: _laplace_wins(kinks, at) for at, (value, _) in enumerate(levels(counts))}


def _laplace_wins(kinks, at):
    edges = [mp.inf, *(c for c, _ in kinks), -mp.inf]
    total = mp.mpf(0)
    for right, lower in pairwise(edges):
        polynomial, power = [mp.mpf(1)], 0  # in t = e^-x, times t ** power
        for m, (c, times) in enumerate(kinks):
            copies = times - (m == at)
            if c <= lower:  # F = 1 - t e^c / 2
                polynomial = _times_binomial(polynomial, -mp.exp(c) / 2, copies)
                factor, shift = mp.exp(c) / 2, 1
            else:  # F = e^-c / (2 t)
                polynomial = [p * (mp.exp(-c) / 2) ** copies for p in polynomial]
                power -= copies
                factor, shift = mp.exp(-c) / 2, -1
            if m == at:
                polynomial, power = [p * factor for p in polynomial], power + shift
        total += mp.fsum(p * _exponential_integral(power + n, lower, right) for n, p in enumerate(polynomial))
    return total


def _times_binomial(polynomial, factor, copies):
    binomial = [mp.binomial(copies, n) * factor**n for n in range(copies + 1)]
    out = [mp.mpf(0)] * (len(polynomial) + copies)
    for i, p in enumerate(polynomial):
        for j, b in enumerate(binomial):
            out[i + j] += p * b
    return out


def _exponential_integral(rate, lower, right):
    """Integral of e^(-rate x); no term that is needed diverges."""
    if rate == 0:
        return right - lower
    return (mp.exp(-rate * lower) - mp.exp(-rate * right)) / rate


@pytest.fixture(scope="session")
def oracle_law():
    """``oracle_law(counts, kind, scale)``: probability of each class, as mpf, in the working precision."""
    laws = {"gaussian": gaussian_law, "laplace": laplace_law}

    def law(counts, kind, scale):
        wins = laws[kind](counts, mp.mpf(scale))
        return [wins[mp.mpf(value)] for value in counts]

    return law

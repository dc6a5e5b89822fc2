"""Divergences of laws, and games about canaries in one training, whose epsilon is known."""

import math

import numpy as np
from scipy.stats import binomtest, norm

from ostraka.scores import Scores
from tests.false_alarm import FALSE_ALARM

DELTA = 1e-5


def divergence(p, q, order):
    """Rényi's, of the first law from the second; outcomes that the first has not add nothing."""
    with np.errstate(divide="ignore"):
        terms = order * np.log(p) + (1 - order) * np.log(q)
    return np.logaddexp.reduce(np.where(p > 0, terms, -np.inf), axis=None) / (order - 1)


def larger(p, q, order):
    return max(divergence(p, q, order), divergence(q, p, order))


def game(n, guesses, right):
    """Scores of ``n`` canaries, half of them in; of the surest ``guesses`` so many are guessed right."""
    top, bottom = guesses - guesses // 2, guesses // 2
    wrong_top = (guesses - right) // 2
    wrong_bottom = guesses - right - wrong_top
    high, low = np.arange(2.0, top + 2), -np.arange(2.0, bottom + 2)
    middle = np.linspace(-1, 1, n - guesses)
    n_rest = min(middle.size, max(0, n // 2 - (top - wrong_top) - wrong_bottom))
    return Scores.of(
        members=np.concatenate([high[wrong_top:], low[:wrong_bottom], middle[:n_rest]]),
        others=np.concatenate([high[:wrong_top], low[wrong_bottom:], middle[n_rest:]]),
    )


def observed(included, mu, rng):
    """A Gaussian mechanism with one coordinate for each canary."""
    return included * mu + rng.normal(size=included.size)


def gaussian_game(mu, n, *, seed):
    rng = np.random.default_rng(seed)
    included = rng.random(n) < 0.5
    scores = observed(included, mu, rng)
    return Scores.of(members=scores[included], others=scores[~included])


def response_game(epsilon, n, *, seed):
    """Randomised response on the coins: a pure mechanism that is far from Gaussian."""
    rng = np.random.default_rng(seed)
    included = rng.random(n) < 0.5
    answers = np.where(rng.random(n) < 1 / (1 + math.exp(-epsilon)), included, ~included)
    return Scores.of(members=answers[included].astype(float), others=answers[~included].astype(float))


def never_above(bounds, truth, confidence=0.95):
    above = int((np.asarray(bounds) > truth).sum())
    return binomtest(above, len(bounds), 1 - confidence, alternative="greater").pvalue > FALSE_ALARM


def gaussian_mu(epsilon):
    """Mu of Gaussian differential privacy with this epsilon at DELTA, by bisection on the closed form."""
    low, high = 0.0, 10.0
    for _ in range(60):
        mu = (low + high) / 2
        delta = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
        low, high = (mu, high) if delta < DELTA else (low, mu)
    return low

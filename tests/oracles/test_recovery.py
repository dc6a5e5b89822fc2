"""Vote recovery against enumeration, against another optimiser, against closed forms: none of it our code."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp
from scipy.stats import laplace, norm

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.attacks import recover_votes

N_TEACHERS, N_CLASSES = 9, 3
ALL_VOTES = np.array(
    [h for h in itertools.product(range(N_TEACHERS + 1), repeat=N_CLASSES) if sum(h) == N_TEACHERS]
)


def slow_law(noise, scale, votes):
    """Winning probabilities by the trapezoid rule on 8,001 nodes, kinks among them."""
    x = np.linspace(-20.0 * scale, 20.0 * scale + 100, 8_001)
    if noise is laplace:
        x = np.unique(
            np.concatenate(
                [x, *(h + scale * np.geomspace(1e-4, 1, 50) * s for h in votes for s in (-1, 1)), votes]
            )
        )
    below = np.array([noise.cdf(x, h, scale) for h in votes])
    wins = [
        np.trapezoid(noise.pdf(x, h, scale) * np.delete(below, k, axis=0).prod(axis=0), x)
        for k, h in enumerate(votes)
    ]
    return np.array(wins) / np.sum(wins)


def log_alike(votes, concentration):
    """Dirichlet-multinomial."""
    a, n = concentration, len(votes)
    return (
        gammaln(sum(votes) + 1)
        + gammaln(n * a)
        - gammaln(sum(votes) + n * a)
        + sum(gammaln(h + a) - gammaln(a) - gammaln(h + 1) for h in votes)
    )


def log_leader(votes):
    """Any class leads; the others' number is beta-binomial, and theirs are Dirichlet-multinomial."""
    terms = []
    for lead in range(len(votes)):
        others = np.delete(votes, lead)
        n_others = int(others.sum())
        for a in np.geomspace(0.03, 30.0, 13):
            for b in (0.1, 1.0):
                share = (
                    gammaln(N_TEACHERS + 1)
                    - gammaln(n_others + 1)
                    - gammaln(N_TEACHERS - n_others + 1)
                    + gammaln(n_others + b)
                    + gammaln(N_TEACHERS - n_others + 1)
                    - gammaln(N_TEACHERS + b + 1)
                    + gammaln(b + 1)
                    - gammaln(b)
                )
                terms.append(share + log_alike(others, a))
    return logsumexp(terms)


def exact_marginals(log_law, answers, log_prior):
    """Posterior of each count by enumerating every histogram."""
    weights = np.array([answers @ log_law(h) + log_prior(h) for h in ALL_VOTES])
    chances = np.exp(weights - logsumexp(weights))
    table = np.zeros((N_CLASSES, N_TEACHERS + 1))
    for h, p in zip(ALL_VOTES, chances, strict=True):
        for k in range(N_CLASSES):
            table[k, h[k]] += p
    return table, ALL_VOTES[weights.argmax()], chances.max()


CASES = [
    ("gnmax", GNMax(sigma=4.0), lambda h: np.log(slow_law(norm, 4.0, h)), np.array([40, 25, 3])),
    ("lnmax", LNMax(scale=3.0), lambda h: np.log(slow_law(laplace, 3.0, h)), np.array([40, 25, 3])),
    (
        "confident",
        Confident(screen=Threshold(at=5, sigma=2.0), argmax=GNMax(sigma=4.0)),
        lambda h: np.append(
            np.log(slow_law(norm, 4.0, h)) + norm.logsf((5 - max(h)) / 2.0), norm.logcdf((5 - max(h)) / 2.0)
        ),
        np.array([20, 12, 2, 30]),
    ),
    (
        "confident, noise on every count",
        Confident(screen=Threshold(at=5, sigma=2.0, noise="every"), argmax=GNMax(sigma=4.0)),
        lambda h: np.append(
            np.log(slow_law(norm, 4.0, h)) + np.log1p(-np.prod(norm.cdf((5 - h) / 2.0))),
            np.log(norm.cdf((5 - h) / 2.0)).sum(),
        ),
        np.array([20, 12, 2, 30]),
    ),
]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "log_law", "answers"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
@pytest.mark.parametrize(
    ("prior", "log_prior"),
    [
        ("leader", log_leader),
        pytest.param(0.5, lambda h: log_alike(h, 0.5), marks=pytest.mark.slow),
        ("alike", lambda h: logsumexp([log_alike(h, a) for a in np.geomspace(0.03, 30.0, 13)])),
    ],
    ids=["leader", "fixed", "alike"],
)
def test_the_posterior_is_what_enumeration_says(mechanism, log_law, answers, prior, log_prior):
    """A chain of 40,000 steps with a fixed seed: means are right to a tenth of a posterior deviation."""
    table, likeliest, _ = exact_marginals(log_law, answers, log_prior)
    counts = np.arange(N_TEACHERS + 1)
    mean = table @ counts
    spread = np.sqrt(table @ counts**2 - mean**2)
    recovery = recover_votes(answers, n_teachers=N_TEACHERS, mechanism=mechanism, prior=prior)
    assert (np.abs(recovery.mean - mean) < 0.1 * spread + 0.01).all()
    np.testing.assert_array_equal(recovery.mode, likeliest)
    for k in range(N_CLASSES):
        mass = table[k, int(recovery.lower[k]) : int(recovery.upper[k]) + 1].sum()
        assert mass > 0.94


def test_another_optimiser_finds_the_same_maximum():
    answers = np.array([610, 240, 130, 20, 0])
    mechanism = GNMax(sigma=30.0)

    def loss(h):
        return -(answers[:4] @ np.log(slow_law(norm, 30.0, h)[:4])) / 1000

    optimum = minimize(
        loss,
        np.full(5, 20.0),
        method="SLSQP",
        bounds=[(0, 100)] * 5,
        constraints={"type": "eq", "fun": lambda h: h.sum() - 100},
        options={"maxiter": 40, "ftol": 1e-10},
    )
    recovery = recover_votes(answers, n_teachers=100, mechanism=mechanism, method="maximum-likelihood").mean
    assert loss(recovery) <= optimum.fun + 1e-8
    np.testing.assert_allclose(recovery, optimum.x, atol=0.5)


def test_two_classes_have_a_closed_form():
    # P[1 wins] = Phi((h1 - h2) / (sigma sqrt 2))
    answers, sigma = np.array([7000, 3000]), 40.0
    gap = sigma * math.sqrt(2) * norm.ppf(0.7)
    recovery = recover_votes(
        answers, n_teachers=250, mechanism=GNMax(sigma=sigma), method="maximum-likelihood"
    )
    np.testing.assert_allclose(recovery.mean, [125 + gap / 2, 125 - gap / 2], atol=1e-4)
    per_answer = norm.pdf(gap / (sigma * math.sqrt(2))) / (sigma * math.sqrt(2)) / math.sqrt(0.21)
    deviation = 1 / (2 * per_answer * math.sqrt(10_000))
    np.testing.assert_allclose((recovery.upper - recovery.lower) / 2, 1.959964 * deviation, rtol=1e-3)

"""Sampling of whole-numbered votes by Markov chains: lookup tables for a compiled one, and a plain one.

The compiled chain (``core/kernels/recovery.py``) knows Gaussian and Laplace noise, and screens; the plain one
takes any outcome map.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr

from ostraka.core.kernels.neighbours import NO_SCREEN
from ostraka.core.kernels.outcome import GAUSSIAN

if TYPE_CHECKING:
    from ostraka.core.mechanisms.law import BallotMechanism

# Where the Dirichlet concentration of a class may lie: from "all others agree" to "they toss coins".
CONCENTRATIONS = np.geomspace(0.03, 30.0, 13)
# How readily teachers leave the leader: unanimity is likely (0.1), or any share as likely as any other (1).
DISSENTS = np.array([0.1, 1.0])
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(8)
NO_BAR = (NO_SCREEN, 0.0, 1.0)
_WALKERS = 64
_STEPS, _SETTLING = 1_500, 300


class Tables(NamedTuple):
    """What the compiled chain looks up. Rows are counts, from 0 in equal steps.

    Attributes
    ----------
    answers : array of shape (n_classes,)
        How often each class was the answer.
    stopped : float
        How often there was none.
    cdf, pull : arrays of shape (n_counts, n_nodes)
        P[count + noise < node]; density over that, times the weight of the node.
    kind : int
        ``NO_SCREEN``, or whether it looks at the largest count or at every one.
    screen : array of shape (n_counts, 2)
        Log probability that a screen lets a count through, and that it does not.
    prior : array of shape (n_hypotheses, n_counts)
        Log weight of one class with this count.
    leader : array of shape (n_hypotheses, n_counts)
        The same for the one class that is not like the others, with all that does not depend on
        the counts.
    """

    answers: np.ndarray
    stopped: float
    cdf: np.ndarray
    pull: np.ndarray
    kind: int
    screen: np.ndarray
    prior: np.ndarray
    leader: np.ndarray


def tables(
    answers: np.ndarray,
    n_teachers: int,
    *,
    noise: tuple[int, float],
    bar: tuple[int, float, float],
    steps: int,
    prior: float | str,
) -> Tables:
    """Tables for counts 0, unit, …, n_teachers, ``steps`` of them above 0."""
    (kind, scale), (screen_kind, at, sigma) = noise, bar
    n_classes = len(answers) - (screen_kind != NO_SCREEN)
    unit = n_teachers / steps
    counts = np.arange(steps + 1) * unit
    if kind == GAUSSIAN:
        # equal steps, the trapezoid rule: an integrand's curvature is at most n_classes / sigma²
        step = scale * min(0.42, 0.9 / math.sqrt(n_classes))
        nodes = np.arange(-6.0 * scale, n_teachers + 6.5 * scale, step)
        weights = np.full(len(nodes), step)
        z = (nodes - counts[:, None]) / scale
        cdf, density = ndtr(z), np.exp(-(z**2) / 2) / (scale * math.sqrt(2 * math.pi))
    else:
        # Gauss-Legendre between kinks, which lie at counts; wider panels where no count can be
        tails = np.arange(1, 13) * scale * 1.5
        between = max(1, math.ceil((counts[1] - counts[0]) / scale))
        inner = np.linspace(counts[0], counts[-1], between * (len(counts) - 1) + 1)
        pieces = [
            _panels(np.concatenate([-tails[::-1], [0.0]]), 8),
            _panels(inner, 2 if between == 1 else 8),
            _panels(np.concatenate([[counts[-1]], counts[-1] + tails]), 8),
        ]
        nodes, weights = np.concatenate([x for x, _ in pieces]), np.concatenate([w for _, w in pieces])
        z = (nodes - counts[:, None]) / scale
        tail = 0.5 * np.exp(-np.abs(z))
        cdf, density = np.where(z < 0, tail, 1 - tail), tail / scale
    with np.errstate(divide="ignore", invalid="ignore"):
        pull = np.where(cdf > 0, density / cdf * weights, 0.0)
    screen, gap = np.zeros((len(counts), 2)), (at - counts) / sigma
    if screen_kind != NO_SCREEN:
        screen = np.stack([log_ndtr(-gap), log_ndtr(gap)], axis=1)
    alike, leader = log_prior(steps, n_classes, prior)
    return Tables(
        answers=answers[:n_classes].astype(float),
        stopped=float(answers[n_classes:].sum()),
        cdf=np.ascontiguousarray(cdf),
        pull=np.ascontiguousarray(pull),
        kind=screen_kind,
        screen=screen,
        prior=alike,
        leader=leader,
    )


def log_prior(steps: int, n_classes: int, prior: float | str) -> tuple[np.ndarray, np.ndarray]:
    """Log weights of a count: of a class like the others, and of the leader; one row a hypothesis.

    "leader": what is left for the others is beta-binomial, and they share it as Dirichlet-multinomial.
    Otherwise all classes are alike.
    """
    counts = np.arange(steps + 1.0)
    if prior == "leader":
        a, b = (grid.ravel()[:, None] for grid in np.meshgrid(CONCENTRATIONS, DISSENTS))
    else:
        a = CONCENTRATIONS[:, None] if isinstance(prior, str) else np.array([[prior]])
    alike = gammaln(counts + a) - gammaln(a) - gammaln(counts + 1)
    if prior != "leader":
        return alike, alike - gammaln(steps + n_classes * a) + gammaln(n_classes * a)
    followers, others = steps - counts, (n_classes - 1) * a
    dissent = (
        gammaln(followers + b) - gammaln(followers + 1) - gammaln(steps + b + 1) + gammaln(b + 1) - gammaln(b)
    )
    return alike, dissent + gammaln(others) + gammaln(followers + 1) - gammaln(followers + others)


def _panels(ends: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = (_LEGENDRE_X, _LEGENDRE_W) if order == 8 else np.polynomial.legendre.leggauss(order)
    half = np.diff(ends)[:, None] / 2
    nodes, weights = ends[:-1, None] + half * (1 + x), half * w
    return nodes.ravel(), weights.ravel()


def walk(
    start: np.ndarray,
    answers: np.ndarray,
    mechanism: BallotMechanism,
    *,
    reach: np.ndarray,
    prior: tuple[np.ndarray, np.ndarray],
    unit: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return times at each count, shape (n_classes, n_counts), and the likeliest votes visited.

    ``prior``: log weights of a count of a class like the others and of the leader, one row a hypothesis.
    """
    rng = np.random.default_rng(seed)
    alike_prior, leader = prior
    n_classes, walkers = len(start), np.arange(_WALKERS)
    visits = np.zeros((n_classes, alike_prior.shape[1]))

    def weigh(votes: np.ndarray) -> np.ndarray:
        alike = alike_prior[:, votes]  # hypotheses, walkers, classes
        hypotheses = alike.sum(axis=2, keepdims=True) - alike + leader[:, votes]
        logs = np.maximum(mechanism.log_outcomes(votes * unit), -1e6)  # what is impossible is unlikely
        return np.asarray(logs @ answers + logsumexp(hypotheses, axis=(0, 2)))

    current = np.tile(start, (_WALKERS, 1))
    weight = weigh(current)
    best, highest = start, float(weight[0])
    for step in range(_STEPS):
        giver = rng.integers(n_classes, size=_WALKERS)
        taker = (giver + rng.integers(1, n_classes, size=_WALKERS)) % n_classes
        size = np.ceil(np.abs(rng.normal(size=_WALKERS)) * reach[giver, taker]).astype(np.int64)
        proposal = current.copy()
        proposal[walkers, giver] -= size
        proposal[walkers, taker] += size
        inside = proposal[walkers, giver] >= 0
        proposal[~inside] = current[~inside]
        proposed = weigh(proposal)
        moves = inside & (np.log(rng.random(_WALKERS)) < proposed - weight)
        current[moves], weight[moves] = proposal[moves], proposed[moves]
        if weight.max() > highest:
            best, highest = current[weight.argmax()].copy(), float(weight.max())
        if step >= _SETTLING:
            for k in range(n_classes):
                visits[k] += np.bincount(current[:, k], minlength=visits.shape[1])
    return visits, best

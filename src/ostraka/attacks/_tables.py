"""Lookup tables of the sampler: noise by count and node, screen and prior by count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr

from ostraka.mechanisms._noise import GAUSSIAN
from ostraka.mechanisms.screen import EVERY, LARGEST

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import HasArgmaxKernel, HasScreenKernel

__all__ = ["EVERY", "LARGEST", "NO_SCREEN", "Tables", "log_prior", "tables"]

# Where the Dirichlet concentration of a class may lie: from "all others agree" to "they toss coins".
CONCENTRATIONS = np.geomspace(0.03, 30.0, 13)
# How readily teachers leave the leader: unanimity is likely (0.1), or any share as likely as any other (1).
DISSENTS = np.array([0.1, 1.0])
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(8)


NO_SCREEN = 0


class Tables(NamedTuple):
    """Rows are counts, from 0 in steps of ``unit`` votes.

    Attributes
    ----------
    answers : array of shape (n_classes,)
        How often each class was the answer.
    stopped : float
        How often there was none.
    cdf, pull : arrays of shape (n_counts, n_nodes)
        P[count + noise < node]; density over that, times the weight of the node.
    kind : int
        ``NO_SCREEN``, or whether it looks at the ``LARGEST`` count or at ``EVERY`` one.
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
    unit: float


def tables(
    answers: np.ndarray,
    n_teachers: int,
    *,
    argmax: HasArgmaxKernel,
    screen: HasScreenKernel | None,
    steps: int,
    prior: float | str,
) -> Tables:
    """Tables for counts 0, unit, …, n_teachers, ``steps`` of them above 0."""
    n_classes = len(answers) - (screen is not None)
    unit = n_teachers / steps
    counts = np.arange(steps + 1) * unit
    kind, scale = argmax.argmax_kernel
    if kind == GAUSSIAN:
        nodes, weights = _gaussian_nodes(n_teachers, scale, n_classes)
        z = (nodes - counts[:, None]) / scale
        cdf, density = ndtr(z), np.exp(-(z**2) / 2) / (scale * math.sqrt(2 * math.pi))
    else:
        nodes, weights = _laplace_nodes(counts, scale)
        z = (nodes - counts[:, None]) / scale
        tail = 0.5 * np.exp(-np.abs(z))
        cdf, density = np.where(z < 0, tail, 1 - tail), tail / scale
    with np.errstate(divide="ignore", invalid="ignore"):
        pull = np.where(cdf > 0, density / cdf * weights, 0.0)
    own, leader = log_prior(steps, n_classes, prior)
    return Tables(
        answers=answers[:n_classes].astype(float),
        stopped=float(answers[n_classes:].sum()),
        cdf=np.ascontiguousarray(cdf),
        pull=np.ascontiguousarray(pull),
        kind=NO_SCREEN if screen is None else screen.screen_kernel[0],
        screen=_screen(screen, counts),
        prior=own,
        leader=leader,
        unit=unit,
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
    own = gammaln(counts + a) - gammaln(a) - gammaln(counts + 1)
    if prior != "leader":
        return own, own - gammaln(steps + n_classes * a) + gammaln(n_classes * a)
    rest, others = steps - counts, (n_classes - 1) * a
    dissent = gammaln(rest + b) - gammaln(rest + 1) - gammaln(steps + b + 1) + gammaln(b + 1) - gammaln(b)
    return own, dissent + gammaln(others) + gammaln(rest + 1) - gammaln(rest + others)


def _screen(screen: HasScreenKernel | None, counts: np.ndarray) -> np.ndarray:
    if screen is None:
        return np.zeros((len(counts), 2))
    _, at, sigma = screen.screen_kernel
    gap = (at - counts) / sigma
    return np.stack([log_ndtr(-gap), log_ndtr(gap)], axis=1)


def _gaussian_nodes(n_teachers: int, sigma: float, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal steps; the trapezoid rule. An integrand's curvature is at most n_classes / sigma²."""
    step = sigma * min(0.42, 0.9 / math.sqrt(n_classes))
    nodes = np.arange(-6.0 * sigma, n_teachers + 6.5 * sigma, step)
    return nodes, np.full(len(nodes), step)


def _laplace_nodes(counts: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre between kinks, which lie at counts; wider panels where no count can be."""
    tails = np.arange(1, 13) * scale * 1.5
    between = max(1, math.ceil((counts[1] - counts[0]) / scale))
    inner = np.linspace(counts[0], counts[-1], between * (len(counts) - 1) + 1)
    pieces = [
        _panels(np.concatenate([-tails[::-1], [0.0]]), 8),
        _panels(inner, 2 if between == 1 else 8),
        _panels(np.concatenate([[counts[-1]], counts[-1] + tails]), 8),
    ]
    return np.concatenate([x for x, _ in pieces]), np.concatenate([w for _, w in pieces])


def _panels(ends: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = (_LEGENDRE_X, _LEGENDRE_W) if order == 8 else np.polynomial.legendre.leggauss(order)
    half = np.diff(ends)[:, None] / 2
    nodes, weights = ends[:-1, None] + half * (1 + x), half * w
    return nodes.ravel(), weights.ravel()

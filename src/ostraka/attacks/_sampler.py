"""Compiled: Markov chain Monte Carlo over whole-numbered votes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka._compiled import kernel
from ostraka.attacks._tables import LARGEST, NO_SCREEN

if TYPE_CHECKING:
    from ostraka.attacks._tables import Tables

__all__ = ["chain"]

_EVERY = 8  # proposals between two looks at the prior
_FRESH = 0.4  # share of proposals that come from the prior; the others are short moves
_LEAST = 1e-290
_FREE = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered, NaN and infinity stay exact


@kernel(error_model="python", fastmath=_FREE)
def _named(votes: np.ndarray, known: Tables, product: np.ndarray) -> float:
    """Log likelihood of the classes in the answers."""
    n_nodes = product.size
    product[:] = known.cdf[votes[0]]
    for k in range(1, votes.size):
        row = known.cdf[votes[k]]
        for t in range(n_nodes):
            product[t] *= row[t]
    total, gain, n = 0.0, 0.0, 0.0
    for k in range(votes.size):
        row = known.pull[votes[k]]
        q = 0.0
        for t in range(n_nodes):
            q += product[t] * row[t]
        total += q
        if known.answers[k] > 0:
            gain += known.answers[k] * math.log(max(q, _LEAST))
            n += known.answers[k]
    return float(gain - n * math.log(max(total, _LEAST)))


@kernel(error_model="python")
def _screened(votes: np.ndarray, known: Tables) -> float:
    """Log likelihood of how many questions the screen let through, and how many it stopped."""
    if known.kind == NO_SCREEN:
        return 0.0
    passed = known.answers.sum()
    if known.kind == LARGEST:
        top = votes.max()
        return float(passed * known.screen[top, 0] + known.stopped * known.screen[top, 1])
    stop = 0.0
    for k in range(votes.size):
        stop += known.screen[votes[k], 1]
    through = math.log(max(-math.expm1(stop), _LEAST))
    return float(passed * through + known.stopped * stop)


@kernel(error_model="python")
def _drawn(weights: np.ndarray, uniform: float) -> tuple[int, float]:
    """Draw an index by log weights from a uniform number; also the log of their sum. Overwrites them."""
    peak = weights.max()
    mass = 0.0
    for x in range(weights.size):
        gap = weights[x] - peak
        weights[x] = math.exp(gap) if gap > -40.0 else 0.0
        mass += weights[x]
    left = uniform * mass
    chosen = 0
    while chosen < weights.size - 1 and left >= weights[chosen]:
        left -= weights[chosen]
        chosen += 1
    return chosen, peak + math.log(mass)


@kernel(error_model="python")
def _believe(votes: np.ndarray, known: Tables, weights: np.ndarray) -> tuple[int, int, float]:
    """Draw the hypothesis and the leading class given the votes; also the log prior summed over them."""
    n_classes = votes.size
    for a in range(known.prior.shape[0]):
        alike = 0.0
        for k in range(n_classes):
            alike += known.prior[a, votes[k]]
        for k in range(n_classes):
            own = known.leader[a, votes[k]] - known.prior[a, votes[k]]
            weights[a * n_classes + k] = alike + own
    chosen, believed = _drawn(weights, np.random.random())  # noqa: NPY002
    return chosen // n_classes, chosen % n_classes, believed


@kernel(error_model="python")
def _propose(
    of_i: np.ndarray, of_j: np.ndarray, had: tuple[int, int], reach: float, line: np.ndarray
) -> tuple[int, float]:
    """Propose a number of votes to move from i to j, and return the log ratio of prior to proposal."""
    # a short move, as likely in one direction as in the other; or all votes of both are drawn again from
    # the prior, and then prior and proposal cancel
    i, j = had
    if np.random.random() < _FRESH:  # noqa: NPY002
        weights = line[: i + j + 1]
        for x in range(i + j + 1):
            weights[x] = of_i[x] + of_j[i + j - x]
        return i - _drawn(weights, np.random.random())[0], 0.0  # noqa: NPY002
    m = 1 + int(-math.log(1.0 - np.random.random()) * reach)  # noqa: NPY002
    m = m if np.random.random() < 0.5 else -m  # noqa: NPY002
    if i < m or j < -m:
        return 0, 0.0
    return m, of_i[i - m] - of_i[i] + of_j[j + m] - of_j[j]


@kernel(error_model="python")
def chain(
    start: np.ndarray, reach: np.ndarray, known: Tables, n_steps: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return times at each count, shape (n_classes, n_counts), and the likeliest votes visited.

    ``reach[i, j]``: how many votes to move between i and j in one typical proposal. Which hypothesis
    of the prior holds, and who leads, is sampled too. The first ninth of the steps is not counted.
    """
    np.random.seed(seed)  # noqa: NPY002  (numba's own stream)
    n_classes = start.size
    votes, best = start.copy(), start.copy()
    seen = np.zeros((n_classes, known.cdf.shape[0]))
    line, product = np.empty(known.cdf.shape[0]), np.empty(known.cdf.shape[1])
    weights = np.empty(known.prior.shape[0] * n_classes)
    a, leads, _ = _believe(votes, known, weights)
    gain = _named(votes, known, product) + _screened(votes, known)
    top = -math.inf
    for step in range(n_steps):
        i = leads if np.random.random() < 0.5 else np.random.randint(n_classes)  # noqa: NPY002
        j = (i + 1 + np.random.randint(n_classes - 1)) % n_classes  # noqa: NPY002
        of_i = known.leader[a] if i == leads else known.prior[a]
        of_j = known.leader[a] if j == leads else known.prior[a]
        m, odds = _propose(of_i, of_j, (votes[i], votes[j]), reach[i, j], line)
        if m != 0:
            votes[i] -= m
            votes[j] += m
            moved = _named(votes, known, product) + _screened(votes, known)
            if math.log(1.0 - np.random.random()) < odds + moved - gain:  # noqa: NPY002
                gain = moved
            else:
                votes[i] += m
                votes[j] -= m
        if step % _EVERY == 0:
            a, leads, believed = _believe(votes, known, weights)
            if gain + believed > top:
                top = gain + believed
                best[:] = votes
        if step >= n_steps // 9:
            for k in range(n_classes):
                seen[k, votes[k]] += 1.0
    return seen, best

"""Compiled: a Markov chain over whole-numbered votes, with lookup tables of noise, screen and prior.

What the tables are, ``ostraka/audit/attacks/sampler.py`` says, which makes them.
"""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel
from ostraka.core.kernels.neighbours import NO_SCREEN, SCREEN_MAX

_EVERY = 8  # proposals between two looks at the prior
_FRESH = 0.4  # share of proposals that come from the prior; the others are short moves
_LEAST = 1e-290


@kernel("i8[::1], f8[:,::1], i8, i8, f8[::1], f8, f8[:,::1], f8[:,::1], i8, f8[:,::1], f8[:,::1], f8[:,::1]")
def chain(start, reach, n_steps, seed, answers, stopped, cdf, pull, kind, screen, prior, leader):
    """Return times at each count, shape (n_classes, n_counts), and the likeliest votes visited.

    ``reach[i, j]``: how many votes to move between i and j in one typical proposal. Which hypothesis
    of the prior holds, and who leads, is sampled too. The first ninth of the steps is not counted.
    """
    np.random.seed(seed)  # noqa: NPY002  (numba's own stream)
    n_classes = start.size
    votes, best = start.copy(), start.copy()
    visits = np.zeros((n_classes, cdf.shape[0]))
    line, product = np.empty(cdf.shape[0]), np.empty(cdf.shape[1])
    weights = np.empty(prior.shape[0] * n_classes)
    a, leads, _ = _believe(votes, prior, leader, weights)
    gain = _named(votes, answers, cdf, pull, product) + _screened(votes, answers, stopped, kind, screen)
    top = -math.inf
    for step in range(n_steps):
        i = leads if np.random.random() < 0.5 else np.random.randint(n_classes)  # noqa: NPY002
        j = (i + 1 + np.random.randint(n_classes - 1)) % n_classes  # noqa: NPY002
        of_i = leader[a] if i == leads else prior[a]
        of_j = leader[a] if j == leads else prior[a]
        m, odds = _propose(of_i, of_j, votes[i], votes[j], reach[i, j], line)
        if m != 0:
            votes[i] -= m
            votes[j] += m
            moved = _named(votes, answers, cdf, pull, product)
            moved += _screened(votes, answers, stopped, kind, screen)
            if math.log(1.0 - np.random.random()) < odds + moved - gain:  # noqa: NPY002
                gain = moved
            else:
                votes[i] += m
                votes[j] -= m
        if step % _EVERY == 0:
            a, leads, believed = _believe(votes, prior, leader, weights)
            if gain + believed > top:
                top = gain + believed
                best[:] = votes
        if step >= n_steps // 9:
            for k in range(n_classes):
                visits[k, votes[k]] += 1.0
    return visits, best


@kernel(fastmath={"reassoc", "contract", "arcp", "nsz"})  # sums may be reordered, NaN and infinity stay exact
def _named(votes, answers, cdf, pull, product):
    """Log likelihood of the classes in the answers."""
    n_nodes = product.size
    product[:] = cdf[votes[0]]
    for k in range(1, votes.size):
        row = cdf[votes[k]]
        for t in range(n_nodes):
            product[t] *= row[t]
    total, gain, n = 0.0, 0.0, 0.0
    for k in range(votes.size):
        row = pull[votes[k]]
        q = 0.0
        for t in range(n_nodes):
            q += product[t] * row[t]
        total += q
        if answers[k] > 0:
            gain += answers[k] * math.log(max(q, _LEAST))
            n += answers[k]
    return float(gain - n * math.log(max(total, _LEAST)))


@kernel()
def _screened(votes, answers, stopped, kind, screen):
    """Log likelihood of how many questions the screen let through, and how many it stopped."""
    if kind == NO_SCREEN:
        return 0.0
    passed = answers.sum()
    if kind == SCREEN_MAX:
        top = votes.max()
        return float(passed * screen[top, 0] + stopped * screen[top, 1])
    stop = 0.0
    for k in range(votes.size):
        stop += screen[votes[k], 1]
    through = math.log(max(-math.expm1(stop), _LEAST))
    return float(passed * through + stopped * stop)


@kernel()
def _drawn(weights, uniform):
    """Draw an index by log weights from a uniform number; also the log of their sum. Overwrites them."""
    peak = weights.max()
    mass = 0.0
    for x in range(weights.size):
        gap = weights[x] - peak
        weights[x] = math.exp(gap) if gap > -40.0 else 0.0
        mass += weights[x]
    remaining = uniform * mass
    chosen = 0
    while chosen < weights.size - 1 and remaining >= weights[chosen]:
        remaining -= weights[chosen]
        chosen += 1
    return chosen, peak + math.log(mass)


@kernel()
def _believe(votes, prior, leader, weights):
    """Draw the hypothesis and the leading class given the votes; also the log prior summed over them."""
    n_classes = votes.size
    for a in range(prior.shape[0]):
        alike = 0.0
        for k in range(n_classes):
            alike += prior[a, votes[k]]
        for k in range(n_classes):
            advantage = leader[a, votes[k]] - prior[a, votes[k]]
            weights[a * n_classes + k] = alike + advantage
    chosen, believed = _drawn(weights, np.random.random())  # noqa: NPY002
    return chosen // n_classes, chosen % n_classes, believed


@kernel()
def _propose(of_i, of_j, i, j, reach, line):
    """Propose a number of votes to move from i to j, and return the log ratio of prior to proposal."""
    # a short move, as likely in one direction as in the other; or all votes of both are drawn again from
    # the prior, and then prior and proposal cancel
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

"""Compiled: recovery of votes, by a Markov chain with lookup tables, and by steps of a quadratic model.

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


@kernel("f8[::1], f8[:,::1], f8[:,::1]")
def best_steps(votes: np.ndarray, slopes: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """For each gradient g the d that maximises g d - d' curvature d / 2 with votes + d >= 0 and sum d = 0.

    By active sets. Shapes (n_classes,), (n_slopes, n_classes), (n_classes, n_classes); as ``slopes``.
    """
    n, steps = votes.size, np.empty(slopes.shape)
    for row in range(slopes.shape[0]):
        slope, step, fixed = slopes[row], steps[row], np.zeros(n, np.int64)
        for _ in range(3 * n):
            level = _solve(votes, slope, curvature, fixed, step)
            below = False
            for k in range(n):
                if fixed[k] == 0 and votes[k] + step[k] < -1e-12:
                    fixed[k], below = 1, True
            if below:
                continue
            worst, strongest = -1, 1e-9
            for k in range(n):
                if fixed[k] == 1:
                    pull = slope[k] - level
                    for j in range(n):
                        pull -= curvature[k, j] * step[j]
                    if pull > strongest:
                        worst, strongest = k, pull
            if worst < 0:
                break
            fixed[worst] = 0
    return steps


@kernel()
def _solve(
    votes: np.ndarray, slope: np.ndarray, curvature: np.ndarray, fixed: np.ndarray, step: np.ndarray
) -> float:
    """The best step if ``fixed`` counts go to 0; writes it, and returns the price of one more vote."""
    free, m = np.empty(votes.size, np.int64), 0
    for k in range(votes.size):
        if fixed[k] == 0:
            free[m] = k
            m += 1
    system, right = np.empty((m + 1, m + 1)), np.empty(m + 1)
    system[m, m] = right[m] = 0.0
    for k in range(votes.size):
        if fixed[k] == 1:
            step[k] = -votes[k]
            right[m] += votes[k]
    for a in range(m):
        right[a] = slope[free[a]]
        for k in range(votes.size):
            if fixed[k] == 1:
                right[a] -= curvature[free[a], k] * step[k]
        for b in range(m):
            system[a, b] = curvature[free[a], free[b]]
        system[a, m] = system[m, a] = 1.0
    _eliminate(system, right)
    for a in range(m):
        step[free[a]] = right[a]
    return float(right[m])


@kernel(error_model="python")  # a division by zero must not go unseen
def _eliminate(system: np.ndarray, right: np.ndarray) -> None:
    """Solve in place, the largest pivot first; by hand, as LAPACK's solver takes five seconds to compile."""
    n = right.size
    for column in range(n):
        best = column
        for row in range(column + 1, n):
            if abs(system[row, column]) > abs(system[best, column]):
                best = row
        for j in range(n):
            system[column, j], system[best, j] = system[best, j], system[column, j]
        right[column], right[best] = right[best], right[column]
        for row in range(column + 1, n):
            factor = system[row, column] / system[column, column]
            for j in range(column, n):
                system[row, j] -= factor * system[column, j]
            right[row] -= factor * right[column]
    for row in range(n - 1, -1, -1):
        for j in range(row + 1, n):
            right[row] -= system[row, j] * right[j]
        right[row] /= system[row, row]

"""Sampling of whole-numbered votes by Markov chains: a compiled one with lookup tables, and a plain one.

The compiled chain knows Gaussian and Laplace noise, and screens; the plain one takes any outcome map.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr

from ostraka.core.compiled import kernel
from ostraka.core.kernels.outcome import GAUSSIAN
from ostraka.core.mechanisms.screen import LARGEST

if TYPE_CHECKING:
    from ostraka.core.mechanisms.law import BallotMechanism

# Where the Dirichlet concentration of a class may lie: from "all others agree" to "they toss coins".
CONCENTRATIONS = np.geomspace(0.03, 30.0, 13)
# How readily teachers leave the leader: unanimity is likely (0.1), or any share as likely as any other (1).
DISSENTS = np.array([0.1, 1.0])
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(8)
NO_SCREEN = 0
NO_BAR = (NO_SCREEN, 0.0, 1.0)
_EVERY = 8  # proposals between two looks at the prior
_FRESH = 0.4  # share of proposals that come from the prior; the others are short moves
_LEAST = 1e-290
_FREE = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered, NaN and infinity stay exact
_WALKERS = 64
_STEPS, _SETTLING = 1_500, 300


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


@kernel(error_model="python", fastmath=_FREE)
def _named(votes: np.ndarray, lookup: Tables, product: np.ndarray) -> float:
    """Log likelihood of the classes in the answers."""
    n_nodes = product.size
    product[:] = lookup.cdf[votes[0]]
    for k in range(1, votes.size):
        row = lookup.cdf[votes[k]]
        for t in range(n_nodes):
            product[t] *= row[t]
    total, gain, n = 0.0, 0.0, 0.0
    for k in range(votes.size):
        row = lookup.pull[votes[k]]
        q = 0.0
        for t in range(n_nodes):
            q += product[t] * row[t]
        total += q
        if lookup.answers[k] > 0:
            gain += lookup.answers[k] * math.log(max(q, _LEAST))
            n += lookup.answers[k]
    return float(gain - n * math.log(max(total, _LEAST)))


@kernel(error_model="python")
def _screened(votes: np.ndarray, lookup: Tables) -> float:
    """Log likelihood of how many questions the screen let through, and how many it stopped."""
    if lookup.kind == NO_SCREEN:
        return 0.0
    passed = lookup.answers.sum()
    if lookup.kind == LARGEST:
        top = votes.max()
        return float(passed * lookup.screen[top, 0] + lookup.stopped * lookup.screen[top, 1])
    stop = 0.0
    for k in range(votes.size):
        stop += lookup.screen[votes[k], 1]
    through = math.log(max(-math.expm1(stop), _LEAST))
    return float(passed * through + lookup.stopped * stop)


@kernel(error_model="python")
def _drawn(weights: np.ndarray, uniform: float) -> tuple[int, float]:
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


@kernel(error_model="python")
def _believe(votes: np.ndarray, lookup: Tables, weights: np.ndarray) -> tuple[int, int, float]:
    """Draw the hypothesis and the leading class given the votes; also the log prior summed over them."""
    n_classes = votes.size
    for a in range(lookup.prior.shape[0]):
        alike = 0.0
        for k in range(n_classes):
            alike += lookup.prior[a, votes[k]]
        for k in range(n_classes):
            advantage = lookup.leader[a, votes[k]] - lookup.prior[a, votes[k]]
            weights[a * n_classes + k] = alike + advantage
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
    start: np.ndarray, reach: np.ndarray, lookup: Tables, n_steps: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return times at each count, shape (n_classes, n_counts), and the likeliest votes visited.

    ``reach[i, j]``: how many votes to move between i and j in one typical proposal. Which hypothesis
    of the prior holds, and who leads, is sampled too. The first ninth of the steps is not counted.
    """
    np.random.seed(seed)  # noqa: NPY002  (numba's own stream)
    n_classes = start.size
    votes, best = start.copy(), start.copy()
    visits = np.zeros((n_classes, lookup.cdf.shape[0]))
    line, product = np.empty(lookup.cdf.shape[0]), np.empty(lookup.cdf.shape[1])
    weights = np.empty(lookup.prior.shape[0] * n_classes)
    a, leads, _ = _believe(votes, lookup, weights)
    gain = _named(votes, lookup, product) + _screened(votes, lookup)
    top = -math.inf
    for step in range(n_steps):
        i = leads if np.random.random() < 0.5 else np.random.randint(n_classes)  # noqa: NPY002
        j = (i + 1 + np.random.randint(n_classes - 1)) % n_classes  # noqa: NPY002
        of_i = lookup.leader[a] if i == leads else lookup.prior[a]
        of_j = lookup.leader[a] if j == leads else lookup.prior[a]
        m, odds = _propose(of_i, of_j, (votes[i], votes[j]), reach[i, j], line)
        if m != 0:
            votes[i] -= m
            votes[j] += m
            moved = _named(votes, lookup, product) + _screened(votes, lookup)
            if math.log(1.0 - np.random.random()) < odds + moved - gain:  # noqa: NPY002
                gain = moved
            else:
                votes[i] += m
                votes[j] -= m
        if step % _EVERY == 0:
            a, leads, believed = _believe(votes, lookup, weights)
            if gain + believed > top:
                top = gain + believed
                best[:] = votes
        if step >= n_steps // 9:
            for k in range(n_classes):
                visits[k, votes[k]] += 1.0
    return visits, best


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

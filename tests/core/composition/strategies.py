"""Exact laws of neighbouring votes, and the best adaptive strategy over them, which no price may be below."""

import itertools
import math
from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from ostraka import GNMax
from ostraka.core.laws import curvature
from ostraka.core.laws.law import ARGMAX, Law
from ostraka.core.numeric import up


def gnmax(sigma):
    """A curve which knows its law beside its other bounds."""
    return replace(GNMax(sigma=sigma).curve(), laws=(Law(ARGMAX, up(1 / sigma)),))


def laws_of(mechanism, counts):
    """Exact laws of a ballot mechanism for all neighbours of the given votes, as (P, Q)."""
    laws = []
    for votes in counts:
        for giver, taker in itertools.permutations(range(len(votes)), 2):
            if votes[giver] > 0:
                near = np.array(votes, dtype=float)
                near[giver] -= 1
                near[taker] += 1
                laws.append(np.exp(mechanism.log_outcomes([votes, near])))
    return np.array(laws)


def played(parts, v, continuation):
    """The best strategy over these sets of pairs, each used so often, in the order that answers decide."""
    v = np.asarray(v)
    best = np.maximum(0.0, 1 - v)
    for i, pairs in enumerate(parts):
        if continuation[i]:
            p, q = pairs[:, 0], pairs[:, 1]
            fewer = tuple(n - (i == j) for j, n in enumerate(continuation))
            inner = played(parts, v[..., None, None] * (q / p), fewer)
            best = np.maximum(best, (p * inner).sum(axis=-1).max(axis=-1))
    return best


def argmax_law(t, u, shift):
    """P and Q of three outcomes of an argmax, by closed forms that multi-precision confirms."""
    gained, lost = (float(curvature.rise(np.array(x), np.array(u), shift)) for x in (t, shift - t))
    p = np.array([float(curvature.wins(np.array(x), np.array(u))) for x in (t, -t)])
    p = np.append(p, 1 - p.sum())
    return p, p + np.array([-gained, lost, gained - lost])


def told_by_repeats(p, q, n, epsilon):
    """Exact delta of n answers to one question with three outcomes, by the numbers of each."""
    first, second = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    third = n - first - second
    ways = gammaln(n + 1) - gammaln(first + 1) - gammaln(second + 1) - gammaln(np.maximum(third, 0) + 1)
    sums = (
        ways + first * np.log(law[0]) + second * np.log(law[1]) + third * np.log(law[2]) for law in (p, q)
    )
    logs = [np.where(third < 0, -np.inf, log_sums) for log_sums in sums]
    return float(np.maximum(0.0, np.exp(logs[0]) - math.exp(epsilon) * np.exp(logs[1])).sum())

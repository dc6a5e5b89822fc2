"""Exact laws of neighbouring votes, and the best adaptive strategy over them, which no price may be below."""

import itertools
from dataclasses import replace

import numpy as np

from ostraka import GNMax
from ostraka.core.laws.law import ARGMAX, Law
from ostraka.core.numeric import up


def gnmax(sigma):
    """A curve which knows its law beside its other bounds."""
    return replace(GNMax(sigma=sigma).curve(), laws=(Law(ARGMAX, up(1 / sigma)),))


def laws_of(mechanism, counts):
    """Exact laws of a ballot mechanism for all neighbours of the given votes, as (P, Q)."""
    found = []
    for votes in counts:
        for giver, taker in itertools.permutations(range(len(votes)), 2):
            if votes[giver] > 0:
                near = np.array(votes, dtype=float)
                near[giver] -= 1
                near[taker] += 1
                found.append(np.exp(mechanism.log_outcomes([votes, near])))
    return np.array(found)


def played(parts, v, left):
    """The best strategy over these sets of pairs, each used so often, in the order that answers decide."""
    v = np.asarray(v)
    best = np.maximum(0.0, 1 - v)
    for i, pairs in enumerate(parts):
        if left[i]:
            p, q = pairs[:, 0], pairs[:, 1]
            fewer = tuple(n - (i == j) for j, n in enumerate(left))
            inner = played(parts, v[..., None, None] * (q / p), fewer)
            best = np.maximum(best, (p * inner).sum(axis=-1).max(axis=-1))
    return best

"""The graph of masks: a ring in random order, on which each client masks with its k nearest; and k."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln
from scipy.stats import hypergeom

__all__ = ["degree", "neighbours"]

_SECRECY = 2.0**-40  # chance that a round could be taken apart
_COMPLETION = 2.0**-20  # chance that a round fails although no more clients vanish than was said


@lru_cache(maxsize=64)
def degree(n_clients: int, n_colluding: int, n_missing: int, *, lying: bool = False) -> tuple[int, int]:
    """Return the smallest even number of neighbours k, and the threshold t of the shares.

    But for a chance of 2^-40, no client has t colluding neighbours and the honest survivors stay connected;
    but for 2^-20, every client keeps t live neighbours. Against a lying tally also 2 t > k + the colluding
    neighbours of every client, so that the neighbours of one client cannot confirm two sets of
    survivors. Counts of neighbours are hypergeometric, because the ring is in random order. Small groups
    mask with everybody.
    """
    for k in range(2, n_clients - 1, 2):
        t = _threshold(n_clients, n_colluding, k, lying=lying)
        if t is not None and t <= k and _enough(n_clients, n_colluding, n_missing, k, t):
            return k, t
    k = n_clients - 1  # everybody: nothing is left to chance
    t = (k + n_colluding) // 2 + 1 if lying else n_colluding + 1
    if t > k - n_missing:
        raise ValueError(
            f"of {n_clients} clients, {n_colluding} may collude and {n_missing} vanish: no number of "
            "neighbours gives both secrecy and completion"
        )
    return k, max(t, min(k - n_missing, (n_colluding + k - n_missing + 1) // 2))


def _threshold(n_clients: int, n_colluding: int, k: int, *, lying: bool) -> int | None:
    """Return the smallest threshold t that keeps shares secret."""
    counts = np.arange(k + 2)
    at_least = n_clients * hypergeom.sf(counts - 1, n_clients - 1, min(n_colluding, n_clients - 1), k)
    most = int(np.argmax(at_least <= _SECRECY))  # no client has so many colluding neighbours
    return (k + most + 1) // 2 if lying else max(most, 1)


def _enough(n_clients: int, n_colluding: int, n_missing: int, k: int, t: int) -> bool:
    live = n_clients * hypergeom.cdf(t - 1, n_clients - 1, max(0, n_clients - 1 - n_missing), k)
    # survivors are cut apart only by two separate runs of k / 2 clients of which none is honest and there
    bad = n_colluding + n_missing
    if bad < k:
        apart = 0.0
    else:
        log_run = (
            gammaln(bad + 1) - gammaln(bad - k + 1) - gammaln(n_clients + 1) + gammaln(n_clients - k + 1)
        )
        apart = math.exp(min(0.0, float(log_run) + 2 * math.log(n_clients) - math.log(2)))
    return bool(live <= _COMPLETION and apart <= _SECRECY)


def neighbours(n_clients: int, k: int, seed: bytes) -> np.ndarray:
    """Return the neighbours of each client, int64 of shape (n_clients, k), from a public seed."""
    if k >= n_clients - 1:
        ring = np.arange(n_clients)
        return np.array([np.delete(ring, place) for place in ring])
    words = hashlib.shake_256(seed).digest(16 * n_clients)
    order = np.lexsort(np.frombuffer(words, dtype="<u8").reshape(2, n_clients))
    place = np.empty(n_clients, dtype=np.int64)
    place[order] = np.arange(n_clients)
    steps = np.concatenate([np.arange(-(k // 2), 0), np.arange(1, k // 2 + 1)])
    return np.sort(order[(place[:, None] + steps[None]) % n_clients], axis=1)

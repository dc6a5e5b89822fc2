"""Exact Rényi costs over all neighbours: compiled for a screen and an argmax, by enumeration for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.mechanisms import _neighbours, outcome
from ostraka.mechanisms._divergence import largest_divergence

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["NO_ARGMAX", "NO_SCREEN", "SCREEN_ANY", "SCREEN_MAX", "compiled", "enumerated"]

NO_ARGMAX = (-1, 1.0)
NO_SCREEN = (_neighbours.NO_SCREEN, 0.0, 1.0)
SCREEN_MAX, SCREEN_ANY = _neighbours.SCREEN_MAX, _neighbours.SCREEN_ANY
_IMPOSSIBLE = -1e300  # a log probability below this is that of an outcome that never comes


def compiled(
    counts: np.ndarray,
    *,
    seen: np.ndarray,
    orders: np.ndarray,
    relation: str,
    argmax: tuple[int, float] = NO_ARGMAX,
    screen: tuple[int, float, float] = NO_SCREEN,
) -> np.ndarray:
    """Return each query's costs; ``argmax`` is (noise, scale), ``screen`` (kind, threshold, sigma)."""
    out = np.empty((len(counts), orders.size))

    def work(rows: slice) -> None:
        _neighbours.costs(
            counts[rows],
            seen[rows],
            argmax,
            screen,
            orders,
            out[rows],
            replace=relation == "replace-one",
        )

    outcome.in_chunks(work, len(counts))
    return out


def enumerated(
    mechanism: BallotMechanism, counts: np.ndarray, *, orders: np.ndarray, relation: str
) -> np.ndarray:
    """Compute the same costs from outcome probabilities at every neighbour of every query."""
    out = np.zeros((len(counts), orders.size))
    for row, own in enumerate(counts):
        near = own + _moves(own, relation)
        if not len(near):
            continue
        here = np.repeat(mechanism.log_outcomes(own[None, :]), len(near), axis=0)
        there = mechanism.log_outcomes(near)
        both = [_pair(here, there), _pair(there, here)]
        log_q, lam = (np.ascontiguousarray(np.concatenate(part)) for part in zip(*both, strict=True))
        if np.isinf(lam).any():
            out[row] = np.inf
        else:
            largest_divergence(log_q, lam, orders, out[row])
    return out


def _moves(counts: np.ndarray, relation: str) -> np.ndarray:
    """Return every change that one ballot can make to a query's counts, one per row."""
    one = np.eye(len(counts))
    gives = np.flatnonzero(counts >= 1.0)
    if relation == "replace-one":
        return np.array([one[j] - one[i] for i in gives for j in range(len(counts)) if i != j])
    return np.concatenate([one, -one[gives]])


def _pair(log_p: np.ndarray, log_q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log q and log(p / q), which is infinite where only p is possible."""
    never_q, never_p = log_q < _IMPOSSIBLE, log_p < _IMPOSSIBLE
    with np.errstate(invalid="ignore"):
        lam = np.where(never_q, np.where(never_p, 0.0, np.inf), log_p - log_q)
    return np.where(never_q, -np.inf, log_q), lam

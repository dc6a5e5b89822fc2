"""Recovery of counts: the posterior of a table given noisy releases of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.attacks.histogram import RecoveredVotes

if TYPE_CHECKING:
    from ostraka.mechanisms import NoisyCounts

__all__ = ["recover_counts"]

_MASS = 0.95
_FURTHEST = 9.0  # posterior deviations; beyond lies less than 1e-18


def recover_counts(tables: Any, *, mechanism: NoisyCounts) -> RecoveredVotes:
    """The posterior of every count after one release of a table, or several of the same one.

    Parameters
    ----------
    tables : integer array, shape (n_releases, ...)
        Released tables. Public.
    mechanism : NoisyCounts
        Public. What released them. Counts are in its units.

    Returns
    -------
    RecoveredVotes
        Posterior mean, 95 % credible interval and likeliest value of each count, of the shape of a table,
        under a prior where all counts >= 0 are alike. The law of the noise is exact, so is the posterior.

    Raises
    ------
    ValueError
        No release, or numbers which are not integers.

    Examples
    --------
    >>> from ostraka.mechanisms import NoisyCounts
    >>> found = recover_counts([[[40, -2]], [[44, 1]]], mechanism=NoisyCounts(sigma=4.0))
    >>> found.mode, found.lower, found.upper
    (array([[42.,  0.]]), array([[36.,  0.]]), array([[47.,  5.]]))
    """
    seen = np.asarray(tables)
    if seen.ndim < 1 or not len(seen) or seen.dtype.kind not in "iu":
        raise ValueError(f"tables must be integers of shape (n_releases, ...), got shape {seen.shape}")
    middle = seen.mean(axis=0).ravel()
    spread = mechanism.sigma / math.sqrt(len(seen))
    reach = np.arange(math.ceil(2 * _FURTHEST * spread) + 2)
    first = np.maximum(0.0, np.ceil(middle - _FURTHEST * spread))
    counts = first[:, None] + reach
    log_chance = -(((counts - middle[:, None]) / spread) ** 2) / 2
    chance = np.exp(log_chance - log_chance.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    lower, upper = _likeliest_run(chance)
    shape = seen.shape[1:]
    rows = np.arange(len(middle))
    return RecoveredVotes(
        mean=(chance * counts).sum(axis=1).reshape(shape),
        lower=counts[rows, lower].reshape(shape),
        upper=counts[rows, upper].reshape(shape),
        mode=counts[rows, chance.argmax(axis=1)].reshape(shape),
        method="posterior",
    )


def _likeliest_run(chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last place of the fewest values which hold 95 %: one run, since the law has one peak."""
    order = np.argsort(-chance, axis=1, kind="stable")
    held = np.take_along_axis(chance, order, axis=1).cumsum(axis=1)
    kept = np.concatenate([np.ones((len(chance), 1), dtype=bool), held[:, :-1] < _MASS], axis=1)
    inside = np.zeros(chance.shape, dtype=bool)
    np.put_along_axis(inside, order, kept, axis=1)
    return inside.argmax(axis=1), chance.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)

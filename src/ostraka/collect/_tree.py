"""Counts of a tree: consistent and nonnegative estimates, search for a rank, the uncertainty of a rank."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["consistent", "descended", "nodes_of_ranks", "nonnegative"]


_MOST_CHILDREN = 16


def consistent(
    counts: np.ndarray, sizes: tuple[int, ...], fanout: int, *, total: int | None = None
) -> list[np.ndarray]:
    """Adjust counts by least squares so that children add up to their parent; variances are equal.

    Going up, each node averages itself with the sum of its children. Going down, what a parent differs
    from its children is shared among them in proportion to their variances.
    """
    levels = [part.astype(float) for part in np.split(counts, np.cumsum(sizes)[:-1])]
    variances = [np.ones(size) for size in sizes]
    for level in range(len(sizes) - 2, -1, -1):
        starts = np.arange(0, sizes[level + 1], fanout)
        below = np.add.reduceat(levels[level + 1], starts)
        doubt = np.add.reduceat(variances[level + 1], starts)
        levels[level] = (levels[level] * doubt + below) / (1 + doubt)
        variances[level] = doubt / (1 + doubt)
    if total is not None:
        levels[0] += (total - levels[0].sum()) * variances[0] / variances[0].sum()
    for level in range(len(sizes) - 1):
        starts = np.arange(0, sizes[level + 1], fanout)
        parent = np.arange(sizes[level + 1]) // fanout
        left = levels[level] - np.add.reduceat(levels[level + 1], starts)
        shares = variances[level + 1] / np.add.reduceat(variances[level + 1], starts)[parent]
        levels[level + 1] = levels[level + 1] + left[parent] * shares
    return levels


def nonnegative(levels: list[np.ndarray], fanout: int) -> list[np.ndarray]:
    """Return the nearest counts without negative ones, from the top down: children still add up to parents.

    Among the children of each node, the projection onto vectors >= 0 with the sum of the parent (Duchi et
    al. 2008, doi:10.1145/1390156.1390191, figure 1). Each count errs no more than before, but a sum over
    many children would be drawn towards equal counts: nodes with more than 16 children stay as they are.
    """
    if fanout > _MOST_CHILDREN:
        return levels
    found: list[np.ndarray] = []
    totals = np.array([max(0.0, float(levels[0].sum()))])
    for counts in levels:
        width = len(counts) if not found else fanout
        rows = np.full(len(totals) * width, -np.inf)  # the last parent may have fewer children
        rows[: len(counts)] = counts
        falling = -np.sort(-rows.reshape(-1, width), axis=1)
        kept = np.isfinite(falling)
        sums = np.cumsum(np.where(kept, falling, 0.0), axis=1)
        excess = (sums - totals[:, None]) / np.arange(1, width + 1)
        positive = kept & (falling > excess)
        last = np.maximum(positive.sum(axis=1), 1) - 1
        cut = excess[np.arange(len(totals)), last]
        totals = np.maximum(rows.reshape(-1, width) - cut[:, None], 0.0).ravel()[: len(counts)]
        found.append(totals)
    return found


def descended(levels: list[np.ndarray], fanout: int, rank: float) -> int:
    """Return the leaf in which the cumulative count reaches a rank, by descent from the top."""
    first, last = 0, len(levels[0])
    for level, counts in enumerate(levels):
        reached = np.flatnonzero(np.cumsum(counts[first:last]) >= rank)
        step = int(reached[0]) if len(reached) else last - first - 1
        rank -= float(counts[first : first + step].sum())
        if level + 1 < len(levels):
            first = (first + step) * fanout
            last = min(first + fanout, len(levels[level + 1]))
        else:
            return first + step
    raise AssertionError("a tree has a level")


def nodes_of_ranks(sizes: tuple[int, ...], fanout: int, *, known: bool) -> np.ndarray:
    """Return, per leaf, the fewest nodes that give the count of all leaves up to it.

    ``up_to`` counts nodes for what ends with a node, ``before`` for what ends in front of it.
    """
    up_to, before = np.array([0.0 if known else math.inf]), np.array([0.0])
    for size in sizes:
        parent = np.arange(size) // fanout if size != sizes[0] else np.zeros(size, dtype=int)
        place = np.arange(size) - np.searchsorted(parent, parent)
        siblings = np.bincount(parent)[parent]
        up_to, before = (
            np.minimum(before[parent] + place + 1, up_to[parent] + siblings - place - 1),
            np.minimum(before[parent] + place, up_to[parent] + siblings - place),
        )
    return up_to

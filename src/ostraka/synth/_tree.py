"""From noisy counts to a table: post-processing of public numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["conditional_independence", "consistent_total", "projected", "shrunk"]

_POWERS = (1.0, 1.5, 2.0)  # how the spread of a cell may grow with its expected count
_FLOOR = 1e-3  # rows; no cell is impossible
_SWEEPS = 20


def consistent_total(pairs: list[np.ndarray]) -> np.ndarray:
    """Rows of each target class: the mean over the noisy tables, each of which counts every row."""
    return np.asarray(np.maximum(np.mean([table.sum(axis=0) for table in pairs], axis=0), 1.0))


def projected(table: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The nearest table whose columns are not negative and add up to ``totals``."""
    out = np.empty_like(table, dtype=np.float64)
    for k, total in enumerate(totals):
        down = np.sort(table[:, k])[::-1]
        excess = (np.cumsum(down) - total) / np.arange(1, len(down) + 1)
        out[:, k] = np.maximum(table[:, k] - excess[np.flatnonzero(down > excess)[-1]], 0.0)
    return out


def conditional_independence(a: np.ndarray, b: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Expected counts (i, j, target) if two columns are independent given the target."""
    return np.asarray(a[:, None, :] * b[None, :, :] / totals)


def shrunk(
    noisy: np.ndarray, expected: np.ndarray, margins: tuple[np.ndarray, np.ndarray], *, sigma: float
) -> np.ndarray:
    """Counts of three columns, each cell shrunk to conditional independence according to its noise.

    The spread of a cell about its expected count m is modelled as c m^p; c and p are the most likely ones
    for this table. The result has the margins of the two pairs of columns.
    """
    away = noisy - expected
    spread, best = np.zeros_like(expected), -np.inf
    for power in _POWERS:
        shape = expected**power
        scale = max(0.0, float(((away**2 - sigma**2) * shape).sum() / max((shape**2).sum(), 1e-300)))
        variance = scale * shape + sigma**2
        likelihood = -0.5 * float((np.log(variance) + away**2 / variance).sum())
        if likelihood > best:
            best, spread = likelihood, scale * shape
    cells = expected + spread / (spread + sigma**2) * away
    cells = np.maximum(cells, _FLOOR * np.minimum(expected, 1.0) + 1e-9)
    for _ in range(_SWEEPS):  # iterative proportional fitting
        cells *= (margins[0] / np.maximum(cells.sum(axis=1), 1e-12))[:, None, :]
        cells *= (margins[1] / np.maximum(cells.sum(axis=0), 1e-12))[None, :, :]
    return np.asarray(cells)


def drawn(chances: np.ndarray, given: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """One code a row, from the conditional distribution that ``given`` names; shape of ``given``."""
    below = np.cumsum(chances + 1e-12, axis=1)  # where no row is expected, any code will do
    below /= below[:, -1:]
    place = rng.random(given.shape)
    codes = np.empty(given.shape, dtype=np.int64)
    for group in np.unique(given):
        rows = given == group
        codes[rows] = np.searchsorted(below[group], place[rows], side="right")
    return np.asarray(np.minimum(codes, chances.shape[1] - 1))


def ordered(edges: list[tuple[int, int]], roots: Mapping[int, None]) -> list[tuple[int, int | None]]:
    """Columns with their parent in the forest, parents first."""
    near: dict[int, list[int]] = {column: [] for column in roots}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    order: list[tuple[int, int | None]] = []
    done: set[int] = set()
    for root in roots:
        waiting: list[tuple[int, int | None]] = [(root, None)]
        while waiting:
            column, parent = waiting.pop()
            if column in done:
                continue
            done.add(column)
            order.append((column, parent))
            waiting += [(other, column) for other in near[column] if other not in done]
    return order

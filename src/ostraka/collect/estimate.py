"""Estimates from released sums: quantiles, maps, forecasts, recommendations, heavy hitters, with intervals.

Plain arrays in and out: everything here is computed from what was released already, and costs nothing.
Intervals cover the noise, not who takes part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ostraka import _check
from ostraka.collect._similar import ranked, similarity
from ostraka.collect._tree import consistent, descended, nodes_of_ranks, nonnegative
from ostraka.collect.encodings import Grid, Histogram, Pairs, Tree
from ostraka.collect.sketches import CountMin, CountSketch

if TYPE_CHECKING:
    from ostraka.collect.task import Task

__all__ = ["Estimates", "forecast", "heat_map", "heavy_hitters", "quantile", "similar_items"]


class Estimates(NamedTuple):
    """Values with both ends of their intervals: floats, or arrays of one shape."""

    value: Any
    low: Any
    high: Any


def quantile(
    sums: Any,
    task: Task,
    q: float,
    *,
    n_clients: int | None = None,
    variance: float | None = None,
    confidence: float = 0.95,
) -> Estimates:
    """A quantile of the clients' numbers, from a tree or a histogram.

    Parameters
    ----------
    sums : array of shape (cells,)
        What was released. Public.
    task : Task
        With a :class:`Tree` or a :class:`Histogram`.
    q : float in (0, 1)
        0.5 for the median.
    n_clients : int, optional
        How many survivors there were, which is public. None: estimated from the sums.
    variance : float, optional
        Of the noise in each cell: ``Tally.variance``. None: as keepers, or the tally, add it.
    confidence : float in (0, 1), default 0.95
        Probability that the interval holds the quantile of the survivors.

    Returns
    -------
    Estimates
        Of a tree, whole numbers; of a histogram, middles of cells.

    Raises
    ------
    ValueError
        Another encoding or shape, or a variance that has to be given.

    Guarantees
    ----------
    Nodes of a tree are first made consistent by least squares (Hay et al. 2010, arXiv:0904.0942), then
    nonnegative, then the tree is descended. The interval holds every number whose rank is within the noise of
    the one sought; the noise of a rank is bounded by the fewest nodes that add up to it.

    Examples
    --------
    >>> from ostraka.collect import Task, Tree
    >>> tree = Tree(0, 64)
    >>> task = Task(tree, sigma=2.0, noise="tally", tally="ab" * 32)
    >>> sums = sum(tree.encode(value).astype(int) for value in range(10, 31))
    >>> quantile(sums, task, 0.5).value
    20
    """
    if not 0 < q < 1:
        raise ValueError(f"q must be in (0, 1), got {q!r}")
    encoding = task.encoding
    if not isinstance(encoding, Tree | Histogram):
        raise ValueError(f"a quantile needs a Tree or a Histogram, got {type(encoding).__name__}")  # noqa: TRY004
    counts = _shaped(sums, encoding.cells)
    sizes, fanout = (
        (encoding.sizes, encoding.fanout)
        if isinstance(encoding, Tree)
        else ((encoding.cells,), encoding.cells)
    )
    levels = consistent(counts, sizes, fanout, total=n_clients)
    leaves = levels[-1]
    total = float(leaves.sum())
    rank = np.cumsum(leaves)
    place = descended(nonnegative(levels, fanout), fanout, q * total)
    nodes = nodes_of_ranks(sizes, fanout, known=n_clients is not None)
    margin = _z(confidence) * np.sqrt(_variance(task, variance) * nodes)
    before, margin_before = np.append(0, rank[:-1]), np.append(0, margin[:-1])
    possible = np.flatnonzero((rank + margin >= q * total) & (before - margin_before <= q * total))
    ends = (min(place, possible[0]), max(place, possible[-1])) if len(possible) else (place, place)
    return Estimates(*(_number(encoding, at) for at in (place, *ends)))


def heat_map(sums: Any, task: Task, *, variance: float | None = None, confidence: float = 0.95) -> Estimates:
    """Counts on the map of a :class:`Grid`.

    Parameters
    ----------
    sums : array of shape (cells,)
        What was released. Public.
    task : Task
        With a :class:`Grid`.
    variance, confidence
        As in :func:`quantile`; each cell has an interval of its own.

    Returns
    -------
    Estimates
        Arrays of the grid's shape, not below 0.

    Examples
    --------
    >>> from ostraka.collect import Grid, Task
    >>> task = Task(Grid(x=(0, 1), y=(0, 1), shape=(2, 2)), sigma=1.0, noise="tally", tally="ab" * 32)
    >>> heat_map([5, 0, -1, 2], task).value.tolist()
    [[5.0, 0.0], [0.0, 2.0]]
    """
    encoding = task.encoding
    if not isinstance(encoding, Grid):
        raise ValueError(f"a heat map needs a Grid, got {type(encoding).__name__}")  # noqa: TRY004
    counts = _shaped(sums, encoding.cells).reshape(encoding.shape)
    margin = _z(confidence) * math.sqrt(_variance(task, variance))
    return Estimates(*(np.maximum(counts + off, 0) for off in (0, -margin, margin)))


def forecast(history: Any, *, alpha: float, variance: float = 0.0, confidence: float = 0.95) -> Estimates:
    """The next value of each series, as an average of the past whose weights fall by ``1 - alpha`` a step.

    Parameters
    ----------
    history : array of shape (n_epochs, ...)
        Released sums, oldest first. Public.
    alpha : float in (0, 1]
        Weight of the newest. Weights are scaled to add to one, which the formula of Melis 2018, Sec. 2.3.2,
        leaves out.
    variance : float, default 0
        Of the noise in each value.
    confidence : float in (0, 1), default 0.95
        Of the interval, which covers what the noise does to the forecast and not how wrong it is.

    Returns
    -------
    Estimates
        Arrays of shape (...).

    Examples
    --------
    >>> round(float(forecast([4.0, 8.0], alpha=0.5).value), 3)
    6.667
    """
    past = np.asarray(history, dtype=np.float64)
    if past.ndim < 1 or not len(past) or not np.isfinite(past).all():
        raise ValueError(f"history must hold finite numbers, one epoch or more, got shape {past.shape}")
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {alpha!r}")
    _check.nonnegative(variance=variance)
    weights = (1 - alpha) ** np.arange(len(past) - 1, -1, -1.0)
    weights /= weights.sum()
    value = np.tensordot(weights, past, axes=1)
    margin = _z(confidence) * math.sqrt(variance * float((weights**2).sum()))
    return Estimates(value, value - margin, value + margin)


def similar_items(
    sums: Any, task: Task, basket: Any, *, n: int = 10, n_clients: int, variance: float | None = None
) -> np.ndarray:
    """Items to recommend for a basket: item-to-item neighbours whose similarity accounts for the noise.

    Parameters
    ----------
    sums : array of shape (cells,)
        What was released. Public.
    task : Task
        With :class:`Pairs`.
    basket : sequence of int
        Items already there.
    n : int, default 10
        How many to return.
    n_clients : int
        How many survivors there were.
    variance : float, optional
        As in :func:`quantile`.

    Returns
    -------
    int64 array of shape (n,) or less
        Best first, none of the basket.

    Guarantees
    ----------
    Each co-count is drawn to what it would be if items were independent, by as much as its noise outweighs
    the spread that is seen. With noise that drowns everything, the ranking is that of popularity. Counts of
    single items are estimated from their own cells and from their co-counts.

    Examples
    --------
    >>> from ostraka.collect import Pairs, Task
    >>> pairs = Pairs(items=4, at_most=2)
    >>> task = Task(pairs, sigma=0.5, noise="tally", tally="ab" * 32)
    >>> sums = sum(pairs.encode(basket).astype(int) for basket in [[0, 1]] * 9 + [[2, 3]] * 9)
    >>> similar_items(sums, task, [0], n=2, n_clients=18).tolist()
    [1, 2]
    """
    encoding = task.encoding
    if not isinstance(encoding, Pairs):
        raise ValueError(f"similar items need Pairs, got {type(encoding).__name__}")  # noqa: TRY004
    _check.integer(n=n, n_clients=n_clients, least=1)
    likelihood = similarity(_shaped(sums, encoding.cells), encoding, n_clients, _variance(task, variance))
    return ranked(likelihood, basket, n)


def heavy_hitters(
    sums: Any,
    task: Task,
    *,
    candidates: Any = None,
    n: int = 10,
    variance: float | None = None,
    confidence: float = 0.95,
) -> tuple[np.ndarray, Estimates]:
    """The most frequent items, or cells, with their counts.

    Parameters
    ----------
    sums : array of shape (cells,)
        What was released. Public.
    task : Task
        With a sketch, a :class:`Histogram`, a :class:`Grid` or a :class:`Tree` (whose single numbers count).
    candidates : sequence of int, optional
        Items to look for; needed with a sketch, which does not know its items.
    n : int, default 10
        How many to return.
    variance, confidence
        As in :func:`quantile`. With a sketch the interval also covers collisions, as far as the spread of
        its rows shows them.

    Returns
    -------
    (int64 array of shape (n,), Estimates)
        Items or cells, most frequent first, and their counts.

    Examples
    --------
    >>> from ostraka.collect import Histogram, Task
    >>> task = Task(Histogram(0, 4, cells=4), sigma=1.0, noise="tally", tally="ab" * 32)
    >>> heavy_hitters([3, 40, 5, 22], task, n=2)[0].tolist()
    [1, 3]
    """
    encoding = task.encoding
    _check.integer(n=n, least=1)
    counts, doubt = _shaped(sums, encoding.cells), _variance(task, variance)
    if isinstance(encoding, CountMin | CountSketch):
        if candidates is None:
            raise ValueError("candidates must be given: a sketch does not know its items")
        items = np.unique(np.asarray(candidates, dtype=np.int64))
        value, margin = _sketched(counts, encoding, items, _z(confidence))
    else:
        if isinstance(encoding, Tree):
            counts = counts[-encoding.sizes[-1] :]
        items = np.arange(len(counts)) if candidates is None else np.unique(np.asarray(candidates))
        value, margin = counts[items], np.full(len(items), _z(confidence) * math.sqrt(doubt))
    best = np.argsort(-value, kind="stable")[:n]
    value, margin = value[best], margin[best]
    return items[best], Estimates(value, value - margin, value + margin)


def _sketched(
    counts: np.ndarray, encoding: CountMin | CountSketch, items: np.ndarray, z: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the median over rows of unbiased estimates, and its margin from the spread within rows."""
    table = counts.reshape(encoding.depth, encoding.width)
    found = counts[encoding.places(items)]
    if isinstance(encoding, CountSketch):
        rows, spread = found * encoding.signs(items), (table**2).mean(axis=1)
    else:
        rows = (found - table.mean(axis=1)[:, None]) * encoding.width / (encoding.width - 1)
        spread = table.var(axis=1)
    margin = z * math.sqrt(math.pi / 2 * float(spread.mean()) / encoding.depth)
    return np.median(rows, axis=0), np.full(len(items), margin)


def _number(encoding: Tree | Histogram, place: int) -> float:
    if isinstance(encoding, Tree):
        return int(encoding.low + place)
    return float(encoding.low + (place + 0.5) * (encoding.high - encoding.low) / encoding.cells)


def _variance(task: Task, variance: float | None) -> float:
    if variance is None:
        if task.noise == "clients":
            raise ValueError("variance must be given where clients add the noise: Tally.variance")
        return task.variance(n_survivors=task.least)
    _check.nonnegative(variance=variance)
    return float(variance)


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence!r}")
    return float(ndtri((1 + confidence) / 2))


def _shaped(sums: Any, cells: int) -> np.ndarray:
    counts = np.asarray(sums, dtype=np.float64)
    if counts.shape != (cells,) or not np.isfinite(counts).all():
        raise ValueError(f"sums must be finite and of shape ({cells},), got {counts.shape}")
    return counts

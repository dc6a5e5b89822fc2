"""Estimates from released sums: quantiles, maps, forecasts, recommendations, heavy hitters, with intervals.

Plain arrays in and out: everything here is computed from what was released already, and costs nothing.
Intervals cover the noise, not who takes part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ostraka.collect.encodings import CountMin, CountSketch, Grid, Histogram, Pairs, Sum, Tree, Vector
from ostraka.core import check

if TYPE_CHECKING:
    from ostraka.collect.task import Task

_MOST_CHILDREN = 16
_FLOOR = 1e-12
_POWER = 1.5  # variance of co-counts grows so with what independence expects; see docs/collect.md


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
    check.share(q=q)
    if n_clients is not None:
        check.integer(n_clients=n_clients, least=1)
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
    if isinstance(encoding, Tree):
        return Estimates(*(int(encoding.low + at) for at in (place, *ends)))
    width, cells = encoding.high - encoding.low, encoding.cells
    return Estimates(*(float(encoding.low + (at + 0.5) * width / cells) for at in (place, *ends)))


def total(
    sums: Any, task: Task, *, n_clients: int, variance: float | None = None, confidence: float = 0.95
) -> Estimates:
    """The sum of the clients' numbers, or of their vectors.

    Parameters
    ----------
    sums : array of shape (cells,)
        What was released. Public.
    task : Task
        With a :class:`Sum` or a :class:`Vector`.
    n_clients : int
        How many survivors there were.
    variance, confidence
        As in :func:`quantile`; each entry has an interval of its own.

    Returns
    -------
    Estimates
        Arrays of shape (cells,), in the unit of the numbers.

    Guarantees
    ----------
    Intervals cover the noise and the random rounding, whose variance is at most a quarter of a squared step
    for each client. They do not cover what was clipped, nor a vector that was rounded towards zero.

    Examples
    --------
    >>> from ostraka.collect import Sum, Task
    >>> task = Task(Sum(0, 255), sigma=255.0, noise="tally", tally="ab" * 32)
    >>> total([3 + 5 + 9], task, n_clients=3).value.tolist()
    [17.0]
    """
    encoding = task.encoding
    if not isinstance(encoding, Sum | Vector):
        raise ValueError(f"a sum or a mean needs a Sum or a Vector, got {type(encoding).__name__}")  # noqa: TRY004
    check.integer(n_clients=n_clients, least=1)
    value = encoding.scale(_shaped(sums, encoding.cells), n_clients=n_clients)
    step = float(encoding.scale(1.0, n_clients=0))
    margin = step * _z(confidence) * math.sqrt(_variance(task, variance) + n_clients / 4)
    return Estimates(value, value - margin, value + margin)


def mean(
    sums: Any, task: Task, *, n_clients: int, variance: float | None = None, confidence: float = 0.95
) -> Estimates:
    """The mean of the clients' numbers, or of their vectors; all parameters as in :func:`total`.

    Examples
    --------
    >>> from ostraka.collect import Sum, Task
    >>> task = Task(Sum(0, 255), sigma=255.0, noise="tally", tally="ab" * 32)
    >>> mean([3 + 5 + 10], task, n_clients=3).value.tolist()
    [6.0]
    """
    parts = total(sums, task, n_clients=n_clients, variance=variance, confidence=confidence)
    return Estimates(*(part / n_clients for part in parts))


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
    check.share(one=True, alpha=alpha)
    check.nonnegative(variance=variance)
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
    check.integer(n=n, n_clients=n_clients, least=1)
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
    check.integer(n=n, least=1)
    counts, doubt = _shaped(sums, encoding.cells), _variance(task, variance)
    if isinstance(encoding, CountMin | CountSketch):
        if candidates is None:
            raise ValueError("candidates must be given: a sketch does not know its items")
        items = np.unique(np.asarray(candidates, dtype=np.int64))
        # the median over rows of unbiased estimates, and its margin from the spread within rows
        table = counts.reshape(encoding.depth, encoding.width)
        cells = counts[encoding.places(items)]
        if isinstance(encoding, CountSketch):
            rows, spread = cells * encoding.signs(items), (table**2).mean(axis=1)
        else:
            rows = (cells - table.mean(axis=1)[:, None]) * encoding.width / (encoding.width - 1)
            spread = table.var(axis=1)
        end = _z(confidence) * math.sqrt(math.pi / 2 * float(spread.mean()) / encoding.depth)
        value, margin = np.median(rows, axis=0), np.full(len(items), end)
    else:
        if isinstance(encoding, Tree):
            counts = counts[-encoding.sizes[-1] :]
        items = np.arange(len(counts)) if candidates is None else np.unique(np.asarray(candidates))
        if len(items) and not 0 <= items[0] <= items[-1] < len(counts):
            raise ValueError(f"candidates must be 0 to {len(counts) - 1}")
        value, margin = counts[items], np.full(len(items), _z(confidence) * math.sqrt(doubt))
    best = np.argsort(-value, kind="stable")[:n]
    value, margin = value[best], margin[best]
    return items[best], Estimates(value, value - margin, value + margin)


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
        difference = levels[level] - np.add.reduceat(levels[level + 1], starts)
        shares = variances[level + 1] / np.add.reduceat(variances[level + 1], starts)[parent]
        levels[level + 1] = levels[level + 1] + difference[parent] * shares
    return levels


def nonnegative(levels: list[np.ndarray], fanout: int) -> list[np.ndarray]:
    """Return the nearest counts without negative ones, from the top down: children still add up to parents.

    Among the children of each node, the projection onto vectors >= 0 with the sum of the parent (Duchi et
    al. 2008, doi:10.1145/1390156.1390191, figure 1). Each count errs no more than before, but a sum over
    many children would be drawn towards equal counts: nodes with more than 16 children stay as they are.
    """
    if fanout > _MOST_CHILDREN:
        return levels
    nearest: list[np.ndarray] = []
    totals = np.array([max(0.0, float(levels[0].sum()))])
    for counts in levels:
        width = len(counts) if not nearest else fanout
        rows = np.full(len(totals) * width, -np.inf)  # the last parent may have fewer children
        rows[: len(counts)] = counts
        falling = -np.sort(-rows.reshape(-1, width), axis=1)
        real = np.isfinite(falling)
        sums = np.cumsum(np.where(real, falling, 0.0), axis=1)
        excess = (sums - totals[:, None]) / np.arange(1, width + 1)
        positive = real & (falling > excess)
        last = np.maximum(positive.sum(axis=1), 1) - 1
        cut = excess[np.arange(len(totals)), last]
        totals = np.maximum(rows.reshape(-1, width) - cut[:, None], 0.0).ravel()[: len(counts)]
        nearest.append(totals)
    return nearest


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


def similarity(counts: np.ndarray, encoding: Pairs, n_clients: int, variance: float) -> np.ndarray:
    """Return the likelihood of each column's item given the row's item; popularity on the diagonal.

    Not the cosine: dividing by the count of a rare item raises what is mostly noise.
    """
    rows, columns = np.triu_indices(encoding.items)
    full = np.zeros((encoding.items, encoding.items))
    full[rows, columns] = full[columns, rows] = counts[encoding.place(rows, columns)]
    least = math.sqrt(variance) + _FLOOR
    popularity = np.maximum(np.diag(full), least)
    popularity = np.maximum(_pooled(full, popularity, n_clients, variance), least)
    expected = np.outer(popularity, popularity) / n_clients
    noise = variance + expected + _FLOOR
    signal = _signal(full, expected, noise)
    shrunk = expected + signal / (signal + noise) * (full - expected)
    likelihood = shrunk / popularity[:, None]
    np.fill_diagonal(likelihood, popularity)
    return np.asarray(likelihood)


def _signal(full: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the variance of co-counts about ``expected`` without noise, fitted as a power of it."""
    shape = expected**_POWER
    weight = _off_diagonal(shape / noise**2)
    excess = (full - expected) ** 2 - noise
    return np.asarray(max(float((weight * excess).sum() / (weight * shape).sum()), 0.0) * shape)


def _pooled(full: np.ndarray, popularity: np.ndarray, n_clients: int, variance: float) -> np.ndarray:
    """Return counts of items by generalised least squares from their own cells and their co-counts."""
    # a co-count is about lift * own * share of the other item, with one lift for all pairs
    share = popularity / n_clients
    expected = np.outer(popularity, share)
    noise = variance + expected + _FLOOR
    inverse = _off_diagonal(expected / noise)
    lift = max(float((inverse * full).sum() / (inverse * expected).sum()), 0.0)
    weight = _off_diagonal(1 / (noise + _signal(full, lift * expected, noise)))
    precision = lift**2 * (share[:, None] ** 2 * weight).sum(axis=0)
    evidence = lift * (share[:, None] * weight * full).sum(axis=0)
    return np.asarray((popularity + variance * evidence) / (1 + variance * precision))


def _off_diagonal(table: np.ndarray) -> np.ndarray:
    np.fill_diagonal(table, 0.0)
    return table


def ranked(likelihood: np.ndarray, basket: Any, n: int) -> np.ndarray:
    """Return the items that are likeliest with those of a basket; ValueError if one of these is no item."""
    chosen = np.unique(np.asarray(basket, dtype=np.int64))
    if len(chosen) and not (chosen[0] >= 0 and chosen[-1] < len(likelihood)):
        raise ValueError(f"items of the basket must be 0 to {len(likelihood) - 1}")
    score = likelihood[chosen].sum(axis=0) if len(chosen) else np.diag(likelihood).copy()
    score[chosen] = -np.inf
    return np.argsort(-score, kind="stable")[: min(n, len(likelihood) - len(chosen))]


def _variance(task: Task, variance: float | None) -> float:
    if variance is None:
        if task.noise == "clients":
            raise ValueError("variance must be given where clients add the noise: Tally.variance")
        return task.variance(n_survivors=task.least)
    check.nonnegative(variance=variance)
    return float(variance)


def _z(confidence: float) -> float:
    check.share(confidence=confidence)
    return float(ndtri((1 + confidence) / 2))


def _shaped(sums: Any, cells: int) -> np.ndarray:
    counts = np.asarray(sums, dtype=np.float64)
    if counts.shape != (cells,) or not np.isfinite(counts).all():
        raise ValueError(f"sums must be finite and of shape ({cells},), got {counts.shape}")
    return counts

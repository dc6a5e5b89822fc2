"""Query strategies: which public rows to ask the teachers about."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from ostraka import _check

__all__ = ["schedule", "typical", "uncertainty_sampling"]

_NEAR = 10
_AT_ONCE, _IN_A_PART = 1000, 100  # clusters found among all rows, and among those of a part of them


def schedule(*, n_answers: int) -> tuple[int, ...]:
    """Batch sizes of active learning: half of the answers first, the rest in five steps.

    Parameters
    ----------
    n_answers : int >= 1
        Total number of answers. Public.

    Returns
    -------
    tuple of int
        Sums to ``n_answers``. The first batch is for :func:`typical` rows, the others for
        :func:`uncertainty_sampling`.

    Examples
    --------
    >>> schedule(n_answers=100)
    (50, 10, 10, 10, 10, 10)
    """
    _check.integer(n_answers=n_answers, least=1)
    first = -(-n_answers // 2)
    ends = np.unique(np.linspace(first, n_answers, 6).round().astype(int))
    return tuple(np.diff(ends, prepend=0).tolist())


def uncertainty_sampling(probabilities: Any, *, n: int, among: Any) -> np.ndarray:
    """Uncertainty sampling by margin: rows whose two likeliest classes have the closest probabilities.

    Parameters
    ----------
    probabilities : array of shape (n_rows, n_classes)
        The student's class probabilities. Public.
    n : int
        Number of rows.
    among : integer array
        The rows to choose from; all of them if there are ``n`` or fewer.

    Returns
    -------
    integer array, ascending
        Rows, from ``among``. The same input gives the same rows.

    Notes
    -----
    Source: Papernot et al. 2017, arXiv:1610.05755, appendix B.2, chooses the lowest confidence. The margin is
    the same for two classes, and better for ten classes with noisy answers.

    Examples
    --------
    >>> uncertainty_sampling([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], n=1, among=[0, 2])
    array([2])
    """
    _check.integer(n=n)
    rows = np.unique(np.asarray(among, dtype=np.int64))
    ranked = np.sort(np.asarray(probabilities, dtype=np.float64)[rows], axis=1)
    margin = ranked[:, -1] - ranked[:, -2]
    return np.sort(rows[np.argsort(margin, kind="stable")[:n]])


@threadpoolctl.threadpool_limits.wrap(limits=1)  # for small problems more threads take longer
def typical(X: Any, *, n: int, random_state: int) -> np.ndarray:
    """Typical rows: of each of ``n`` clusters, the row in the densest place.

    Teachers agree more often on rows in dense places, so that answers are more often right and cost less.
    One row for each cluster covers all regions.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Public.
    n : int
        Number of rows.
    random_state : int
        Seeds the initial clusters.

    Returns
    -------
    integer array, ascending
        ``n`` different rows; all rows if there are ``n`` or fewer.

    Examples
    --------
    >>> typical([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]], n=2, random_state=0)
    array([2, 3])
    """
    _check.integer(n=n, least=1)
    points = np.asarray(X, dtype=np.float64)
    if len(points) <= n:
        return np.arange(len(points))
    cluster, sparse = _clustered(points, n, random_state)
    order = np.lexsort((sparse, cluster))  # the first row of each cluster is in its densest place
    first = np.r_[True, np.diff(cluster[order]) > 0]
    return np.sort(np.concatenate([order[first], order[~first]])[:n])


def _clustered(points: np.ndarray, n: int, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's cluster, and its mean distance to its neighbours."""
    # time grows with rows times clusters, so many clusters are found in parts: a few clusters of all rows
    # first, in each of which the rows get their share of the clusters and have their neighbours
    if n <= _AT_ONCE:
        neighbours = NearestNeighbors(n_neighbors=min(_NEAR, len(points) - 1)).fit(points)
        return _clusters(points, n, random_state), neighbours.kneighbors()[0].mean(axis=1)
    part_of = _clusters(points, -(-n // _IN_A_PART), random_state)
    cluster, sparse, used = np.zeros(len(points), dtype=np.int64), np.zeros(len(points)), 0
    for part in np.unique(part_of):
        rows = np.flatnonzero(part_of == part)
        share = max(1, round(n * len(rows) / len(points)))
        if len(rows) > share:
            own, apart = _clustered(points[rows], min(share, _AT_ONCE), random_state)
        else:
            own, apart = np.arange(len(rows)), np.zeros(len(rows))
        cluster[rows], sparse[rows] = used + own, apart
        used += int(own.max()) + 1
    return cluster, sparse


def _clusters(points: np.ndarray, n: int, random_state: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # there are fewer different rows than clusters
        found = KMeans(n_clusters=n, init=_far_apart, n_init=1, random_state=random_state)
        return np.asarray(found.fit_predict(points))


def _far_apart(points: np.ndarray, n: int, random_state: np.random.RandomState) -> np.ndarray:
    """Initial centres by greedy k-means++ (Arthur and Vassilvitskii 2007), each the best of a few draws.

    Draws and arithmetic are scikit-learn's, so that rows are the same; its checks at each centre take longer.
    """
    each, turned, ones = np.einsum("ij,ij->i", points, points), points.T, np.ones((len(points), 1))

    def squares(rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = -2 * (points[rows] @ turned)
        found += each[rows, None]
        found += each
        np.maximum(found, 0.0, out=found)
        return found

    chosen = np.empty(n, dtype=np.int64)
    chosen[0] = random_state.choice(len(points), p=ones[:, 0] / ones.sum())
    nearest = squares(chosen[:1])[0]
    total = nearest @ ones[:, 0]
    n_draws = 2 + int(np.log(n))
    for k in range(1, n):
        drawn = np.searchsorted(np.cumsum(nearest), random_state.uniform(size=n_draws) * total)
        drawn = np.minimum(drawn, len(points) - 1)
        closer = np.minimum(squares(drawn), nearest)
        totals = closer @ ones
        best = totals.argmin()
        total, nearest, chosen[k] = totals[best], closer[best], drawn[best]
    return points[chosen]

"""Asking: which public rows to spend answers on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from ostraka import _check

__all__ = ["least_sure", "schedule", "typical"]

_NEAR = 10


def schedule(*, n_answers: int) -> tuple[int, ...]:
    """How many rows to ask about at a time: half of them at once, the rest in five steps.

    Parameters
    ----------
    n_answers : int >= 1
        In all. Public.

    Returns
    -------
    tuple of int
        Sums to ``n_answers``. The first is for :func:`typical` rows; each other one for those the
        student is :func:`least_sure` of by then.

    Examples
    --------
    >>> schedule(n_answers=100)
    (50, 10, 10, 10, 10, 10)
    """
    _check.integer(n_answers=n_answers, least=1)
    first = -(-n_answers // 2)
    ends = np.unique(np.linspace(first, n_answers, 6).round().astype(int))
    return tuple(np.diff(ends, prepend=0).tolist())


def least_sure(probabilities: Any, *, n: int, among: Any) -> np.ndarray:
    """The rows where a student's two likeliest classes are closest together.

    Parameters
    ----------
    probabilities : array of shape (n_rows, n_classes)
        How sure the student is. Public.
    n : int
        How many rows.
    among : integer array
        Which rows may be chosen; all of them come back if they are ``n`` or fewer.

    Returns
    -------
    integer array, ascending
        Rows, from ``among``. The same input gives the same rows.

    Notes
    -----
    Source: Papernot et al. 2017, arXiv:1610.05755, appendix B.2, asks where the student is least
    confident; the margin is the same for two classes, and better for ten with noisy answers.

    Examples
    --------
    >>> least_sure([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], n=1, among=[0, 2])
    array([2])
    """
    _check.integer(n=n)
    rows = np.unique(np.asarray(among, dtype=np.int64))
    ranked = np.sort(np.asarray(probabilities, dtype=np.float64)[rows], axis=1)
    margin = ranked[:, -1] - ranked[:, -2]
    return np.sort(rows[np.argsort(margin, kind="stable")[:n]])


@threadpoolctl.threadpool_limits.wrap(limits=1)  # so small a problem only waits for other threads
def typical(X: Any, *, n: int, random_state: int) -> np.ndarray:
    """Rows that stand for all: of each of ``n`` clusters, the one with the closest neighbours.

    Where rows lie densely the teachers agree, so an answer is more often right, and tells less
    about any of them; and one a cluster leaves no region without.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Public.
    n : int
        How many rows.
    random_state : int
        Where the clusters begin.

    Returns
    -------
    integer array, ascending
        ``n`` different rows; all of them if there are no more.

    Examples
    --------
    >>> typical([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]], n=2, random_state=0)
    array([2, 3])
    """
    _check.integer(n=n, least=1)
    points = np.asarray(X, dtype=np.float64)
    if len(points) <= n:
        return np.arange(len(points))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters
        cluster = KMeans(n_clusters=n, n_init=1, random_state=random_state).fit_predict(points)
    neighbours = NearestNeighbors(n_neighbors=min(_NEAR, len(points) - 1)).fit(points)
    sparse = neighbours.kneighbors()[0].mean(axis=1)
    order = np.lexsort((sparse, cluster))  # the first of each cluster is its densest row
    first = np.r_[True, np.diff(cluster[order]) > 0]
    return np.sort(np.concatenate([order[first], order[~first]])[:n])

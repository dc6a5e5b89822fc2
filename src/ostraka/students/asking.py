"""Asking: which public rows to spend answers on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostraka import _check

__all__ = ["least_sure", "schedule"]


def schedule(*, n_answers: int) -> tuple[int, ...]:
    """How many rows to ask about at a time: half of them at random, the rest in five steps.

    Parameters
    ----------
    n_answers : int >= 1
        In all. Public.

    Returns
    -------
    tuple of int
        Sums to ``n_answers``. The first is for rows chosen at random, which show the student every
        region; each other is for the rows it is least sure of by then.

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

"""Canaries against generators: rows included by a coin, and scores of whether a release contains them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostraka.attacks._generator_rows import nearest
from ostraka.attacks._membership_checks import read_members
from ostraka.scores import Scores

__all__ = ["nearest_scores", "sum_scores"]


def sum_scores(released: Any, canaries: Any, included: Any) -> Scores:
    """White box: how far the released sums lie in the direction of each canary.

    For an adversary who sees noisy sums or gradients, and knows all other rows. Canaries whose directions are
    orthogonal do not disturb each other: then each score is that of the Gaussian mechanism itself.

    Parameters
    ----------
    released : array, shape (n_columns,)
        The noisy sums, less what all other rows add to them.
    canaries : array, shape (n_canaries, n_columns)
        What each would add.
    included : bool array, shape (n_canaries,)
        Which were in; a fair coin decides, one for each canary.

    Returns
    -------
    Scores
        One a canary, for :func:`ostraka.audits.one_run_lower_bound` with ``game="inclusion"``.

    Raises
    ------
    ValueError
        Other shapes, numbers that are not finite, or canaries that were all in or all out.

    Examples
    --------
    >>> included = np.array([True, False, True, False])
    >>> sum_scores(included.astype(float), np.eye(4), included).auc()
    1.0
    """
    rows, coins = _checked(canaries, included)
    sums = np.asarray(released, dtype=np.float64)
    if sums.shape != rows.shape[1:] or not np.isfinite(sums).all():
        raise ValueError(f"released must be finite sums of {rows.shape[1]} columns, got shape {sums.shape}")
    centred = rows @ sums - np.einsum("ij,ij->i", rows, rows) / 2
    return Scores.of(members=centred[coins], others=centred[~coins])


def nearest_scores(generated: Any, canaries: Any, included: Any, *, reference: Any = None) -> Scores:
    """Black box: how near the nearest generated row is to each canary.

    Parameters
    ----------
    generated : array, shape (n_generated, n_columns)
        Rows that the generator sampled.
    canaries : array, shape (n_canaries, n_columns)
    included : bool array, shape (n_canaries,)
        Which were in; a fair coin decides, one for each canary.
    reference : array, shape (n_reference, n_columns), optional
        Rows of a generator that saw no canary: being nearer to ``generated`` than to these counts.

    Returns
    -------
    Scores
        One a canary, for :func:`ostraka.audits.one_run_lower_bound` with ``game="inclusion"``.

    Raises
    ------
    ValueError
        Other shapes, numbers that are not finite, or canaries that were all in or all out.

    Examples
    --------
    >>> included = np.array([True, False])
    >>> nearest_scores([[0.1, 0.0]], [[0.0, 0.0], [5.0, 5.0]], included).auc()
    1.0
    """
    rows, coins = _checked(canaries, included)
    far = -_distances(rows, generated, name="generated")
    if reference is not None:
        far += _distances(rows, reference, name="reference")
    return Scores.of(members=far[coins], others=far[~coins])


def _distances(rows: np.ndarray, others: Any, *, name: str) -> np.ndarray:
    """From each row to the nearest of the others."""
    table = np.asarray(others, dtype=np.float64)
    if table.ndim != 2 or not len(table) or table.shape[1] != rows.shape[1] or not np.isfinite(table).all():
        raise ValueError(f"{name} must be finite rows of {rows.shape[1]} columns, got shape {table.shape}")
    return nearest(rows, table)


def _checked(canaries: Any, included: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = np.asarray(canaries, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"canaries must be finite rows, got shape {rows.shape}")
    return rows, read_members(included, name="included", n_rows=len(rows))

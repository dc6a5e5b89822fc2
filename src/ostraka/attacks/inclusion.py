"""Canaries against generators: rows included by a coin, and scores of whether a release contains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.attacks._generator_rows import nearest
from ostraka.attacks._membership_checks import read_members
from ostraka.mechanisms.marginals import count
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.mechanisms.marginals import TreeMarginals

__all__ = ["marginal_scores", "nearest_scores", "sum_scores"]


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
        One a canary, for :func:`ostraka.audits.one_run_lower_bound` with ``game="inclusion"``. Its
        ``independent=True`` needs orthogonal directions, and noise that is drawn for each column.

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


def marginal_scores(
    released: Mapping[str, Any], mechanism: TreeMarginals, canaries: Any, included: Any, *, rest: Any = None
) -> Scores:
    """White box: how much more each canary's cells of the released tables hold than all other rows explain.

    For an adversary who sees the noisy counts of a :class:`~ostraka.synth.TableGenerator` and knows all other
    rows. Each score is the log likelihood ratio of the canary's cells for Gaussian noise: above 0, in is
    likelier. Canaries that share no cell do not disturb each other.

    Parameters
    ----------
    released : mapping of arrays
        The noisy counts by name: ``counts_`` of the generator.
    mechanism : TreeMarginals
        ``mechanism_`` of the generator, where the unit is a row.
    canaries : int array, shape (n_canaries, n_columns)
        Codes. No two may have a cell in common.
    included : bool array, shape (n_canaries,)
        Which were in; a fair coin decides, one for each canary.
    rest : int array, shape (n_rows, n_columns), optional
        Codes of all other rows. None: there are none.

    Returns
    -------
    Scores
        For :func:`ostraka.audits.one_run_lower_bound`, with ``independent=True``: without common cells no
        score depends on another canary's coin or noise, whichever pairs the mechanism chose.

    Raises
    ------
    ValueError
        Other shapes, codes out of range, tables of other columns, a common cell, or canaries that were all
        in or all out.

    Examples
    --------
    >>> from ostraka import Adjacency, Private
    >>> from ostraka.mechanisms.marginals import TreeMarginals
    >>> mechanism = TreeMarginals(
    ...     sizes=(4, 4, 2), target=2, sigma_pairs=0.1, sigma_triples=0.1, select_epsilon=1.0
    ... )
    >>> canaries = np.array([[k, k, 0] for k in range(4)])
    >>> included = np.array([True, False, True, False])
    >>> rows = np.column_stack([canaries[included], np.ones(2, dtype=int)])
    >>> one_row = Adjacency(moves="row", relation="add-or-remove")
    >>> released = mechanism.release(Private(rows, one_row), rng=np.random.default_rng(0))
    >>> marginal_scores(released, mechanism, canaries, included).auc()
    1.0
    """
    codes, sizes = np.asarray(canaries), mechanism.sizes
    known = np.zeros((0, len(sizes)), dtype=np.int64) if rest is None else np.asarray(rest)
    for name, rows in (("canaries", codes), ("rest", known)):
        if rows.ndim != 2 or rows.shape[1] != len(sizes) or rows.dtype.kind not in "iu":
            raise ValueError(f"{name} must be codes of {len(sizes)} columns, got shape {rows.shape}")
        if not ((rows >= 0) & (rows < np.array(sizes))).all():
            raise ValueError(f"{name} must hold codes from 0 to one less than the size of each column")
    coins = read_members(included, name="included", n_rows=len(codes))
    if mechanism.grain != 1:
        raise ValueError(f"mechanism must count one row as 1, got grain {mechanism.grain}")
    weighted = np.column_stack([known, np.ones(len(known), dtype=np.int64)])
    scores = np.zeros(len(codes))
    for name, table in released.items():
        columns = tuple(int(part) for part in name.split(","))
        shape = [sizes[j] for j in columns]
        if np.shape(table) != tuple(shape):
            raise ValueError(f"released must hold a table of shape {tuple(shape)} for columns {name}")
        cells = np.ravel_multi_index(tuple(codes[:, j] for j in columns), shape)
        if len(np.unique(cells)) < len(cells):
            raise ValueError("canaries must have no cell of a released table in common")
        triple = len(columns) - (mechanism.target in columns) == 2
        sigma = mechanism.sigma_triples if triple else mechanism.sigma_pairs
        excess = np.asarray(table).ravel()[cells] - count(weighted, sizes, columns).ravel()[cells]
        scores += (excess - 0.5) / sigma**2
    return Scores.of(members=scores[coins], others=scores[~coins])


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
        One a canary, for :func:`ostraka.audits.one_run_lower_bound` with ``game="inclusion"``, but never
        with ``independent=True``: one generated row may be the nearest to several canaries.

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

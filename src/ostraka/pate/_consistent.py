"""One answer a question, in a fit: where the secret lies, and what counts as the same row."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ostraka.consistent import Consistent

__all__ = ["same_questions"]

_CELLS = 1_000  # a column's public range is divided into so many
_FINEST = 2.0**-21  # of the largest number: float32 tells half of that apart
_SECRET = os.urandom(32)  # for ledgers in memory, which do not outlive the process either


def same_questions(consistent: Any, public: Any, *, path: str, teachers: str) -> Consistent | None:
    """How repeats are told in this fit; None where every row is a question of its own.

    Raises
    ------
    ValueError
        Not a bool or Consistent, or public rows that are not a table of cells.
    """
    if consistent is False:
        return None
    if isinstance(consistent, Consistent):
        return replace(consistent, teachers=f"{consistent.teachers}/{teachers}")
    if consistent is not True:
        raise ValueError(f"consistent must be a bool or a Consistent, got {consistent!r}")
    if not (hasattr(public, "columns") or isinstance(public, np.ndarray)):
        raise ValueError("consistent=True needs public rows as an array or data frame")
    grid = _grid(public)
    if path == ":memory:":
        return Consistent(secret=_SECRET, grid=grid, teachers=teachers)
    return Consistent.kept_at(Path(f"{path}.secret"), grid=grid, teachers=teachers)


def _grid(public: Any) -> dict[str, float]:
    """A step for every column, from public rows alone."""
    named = hasattr(public, "columns")
    names = [str(name) for name in public.columns] if named else [str(j) for j in range(public.shape[1])]
    columns = [np.asarray(public[name]) for name in public.columns] if named else list(public.T)
    return {name: _step(column) for name, column in zip(names, columns, strict=True)}


def _step(column: np.ndarray) -> float:
    if column.dtype.kind not in "biuf":
        return 1.0
    numbers = column[np.isfinite(column)].astype(float)
    if not numbers.size:
        return 1.0
    most = float(np.abs(numbers).max())
    return max(float(np.ptp(numbers)) / _CELLS, most * _FINEST) or 1.0

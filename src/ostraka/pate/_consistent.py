"""The ``consistent`` setting of a fit: its secret, and which rows count as the same question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ostraka.consistent import Consistent

__all__ = ["same_questions"]


def same_questions(consistent: Any, public: Any, *, secret: bytes, teachers: str) -> Consistent | None:
    """Return the rule by which this fit recognises repeats; None if every row is a question of its own.

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
    grid = Consistent.grid_of(public)
    return Consistent(secret=secret, grid=grid, teachers=teachers, kept=True)

"""Rows as small integers, so that sums of products are exact and do not depend on the order of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

_MOST = 127
_FINE = 2**12  # steps of a principal component's entries
_EXACT_IN_FLOAT32 = 2**24
_N_COMPONENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    """A map from numbers to integers from -127 to 127, fitted on public rows."""

    middle: np.ndarray
    step: float
    components: np.ndarray | None
    component_step: float

    @classmethod
    def of(cls, public: np.ndarray) -> Self:
        """Fit the map on public rows: centre, range and, for many columns, principal components."""
        middle = public.mean(axis=0)
        step = max(float(np.abs(public - middle).max()), 1e-300) / _MOST
        if 3 * _MOST**2 * public.shape[1] < _EXACT_IN_FLOAT32:
            return cls(middle=middle, step=step, components=None, component_step=1.0)
        plain = cls(middle=middle, step=step, components=None, component_step=1.0)
        whole = plain.integers(public).astype(np.float64)
        _, vectors = np.linalg.eigh(whole.T @ whole)
        components = np.rint(vectors[:, : -_N_COMPONENTS - 1 : -1] * _FINE)
        component_step = max(float(np.abs(whole @ components).max()), 1.0) / _MOST
        return cls(middle=middle, step=step, components=components, component_step=component_step)

    def integers(self, rows: np.ndarray) -> np.ndarray:
        """Return whole numbers as float32; each row depends on itself only.

        Numbers are clipped to the public range before anything is computed, and what is no number is its
        middle: no row ends or warns a run.
        """
        far = (_MOST + 1) * self.step
        rows = np.where(np.isnan(rows), self.middle, rows)
        apart = np.clip(rows, self.middle - far, self.middle + far) - self.middle
        whole = np.clip(np.rint(apart / self.step), -_MOST, _MOST)
        if self.components is not None:
            # products of integers below 2^7 and 2^12 are exact in float64
            whole = np.clip(np.rint(whole @ self.components / self.component_step), -_MOST, _MOST)
        return np.ascontiguousarray(whole, dtype=np.float32)


def numbers(rows: Any, name: str, *, finite: bool = True) -> np.ndarray:
    """Convert rows to float64, shape (n_rows, n_columns), images flattened; messages name shapes."""
    try:
        table = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):  # which would quote a value
        table = None
    if table is None or table.ndim < 2 or not len(table):
        raise ValueError(f"{name} must be numbers of shape (n_rows, n_columns)")
    table = table.reshape(len(table), -1)
    if finite and not np.isfinite(table).all():
        raise ValueError(f"{name} of shape {table.shape} must be finite")
    return table

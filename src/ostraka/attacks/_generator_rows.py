"""Rows and samples of generators: checks, distances to samples, and residuals of statistics."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

__all__ = ["Sampling", "check_used", "nearest", "residual", "unit_rows"]

_BLOCK = 512  # rows whose distances are computed at once


@runtime_checkable
class Sampling(Protocol):
    """A generator whose samples can be had."""

    def sample(self, n_rows: int, *, random_state: Any = None) -> Any:
        """Generated rows, (n_rows, n_features)."""
        ...


def residual(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The residual of one statistic after regression on another, with a coefficient from 0 to 1."""
    one, other = found - found.mean(), expected - expected.mean()
    spread = [np.sqrt((each**2).mean()) for each in (one, other)]
    if not all(spread):
        return np.asarray(one)
    one, other = one / spread[0], other / spread[1]
    return np.asarray(one - np.clip((one * other).mean(), 0, 1) * other)


def nearest(rows: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Euclidean distance of each row to the nearest sample."""
    rows, samples = rows.astype(np.float64), samples.astype(np.float64)
    squares, found = (samples**2).sum(axis=1), []
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        gaps = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ samples.T
        found.append(np.sqrt(np.maximum(gaps.min(axis=1), 0)))
    return np.concatenate(found)


def check_used(name: str, *, kind: str, batch_size: int, steps: int, delay: int) -> None:
    """Refuse settings under which no batch of the training would hold the rows of the argument ``name``."""
    if kind in {"vae", "began"}:
        raise ValueError(f"{name} must be None for kind={kind!r}, which has no discriminator for them")
    if batch_size < 2:
        raise ValueError(
            f"batch_size must be >= 2 for {name}, which are half of each batch, got {batch_size}"
        )
    if delay >= steps:
        raise ValueError(
            f"delay must be < {steps}, the number of steps, or {name} would be in no batch, got {delay}: "
            "take a smaller delay or more epochs"
        )


def unit_rows(name: str, X: Any, *, width: int | None = None) -> np.ndarray:
    """Rows of numbers in [0, 1], float32."""
    try:
        rows = np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):  # which would quote a value
        rows = None
    if rows is None:
        raise ValueError(
            f"{name} must be numbers from 0 to 1, (n_rows, n_features), got a {type(X).__name__}"
        )
    if rows.ndim != 2 or len(rows) < 2 or (width is not None and rows.shape[1] != width):
        raise ValueError(f"{name} must have two rows or more of {width or 'some'} numbers, got {rows.shape}")
    if not ((rows >= 0) & (rows <= 1)).all():
        raise ValueError(f"{name} must hold numbers from 0 to 1")
    return rows

"""Checks of released labels, of which some may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ostraka.door import ABSTAIN

__all__ = ["coded"]


def coded(y: Any, classes: Any, *, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and each row's class index or ABSTAIN. At least one row must have an answer."""
    y = column_or_1d(y, warn=True, dtype=None)
    if len(y) != n_rows:
        raise ValueError(f"y must have one label for each of {n_rows} rows, got {len(y)}")
    names, codes = _named(y) if classes is None else (np.asarray(classes), y)
    if classes is not None and (y.dtype.kind not in "iu" or y.min() < ABSTAIN or y.max() >= len(names)):
        raise ValueError(f"y must hold indices of {len(names)} classes, or {ABSTAIN} where unanswered")
    if (codes == ABSTAIN).all():
        raise ValueError(
            f"y must hold an answer for one row or more, but all {len(y)} are unanswered: "
            "ask more, or lower the threshold of the screen"
        )
    return names, codes.astype(np.int64)


def _named(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes among the answers, and each row's class index or ABSTAIN."""
    if y.dtype == object:
        answered = np.array([label is not None and label != ABSTAIN for label in y])
    else:
        answered = y != (ABSTAIN if y.dtype.kind in "iuf" else str(ABSTAIN))
    codes = np.full(len(y), ABSTAIN, dtype=np.int64)
    labels = np.array(y[answered].tolist())
    if len(labels):
        check_classification_targets(labels)
    names, codes[answered] = np.unique(labels, return_inverse=True)
    return names, codes

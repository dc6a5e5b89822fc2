"""Private tables as they come in: rows that can be counted, labels as numbers of known classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets

__all__ = ["CLASSES_FROM_Y", "encoded", "rows"]

CLASSES_FROM_Y = (
    "The class list was taken from the private labels and is treated as public: pass classes= to avoid it."
)


def rows(X: Any, estimator: Any) -> Any:
    """Rows that can be selected and counted: CSR matrices and data frames stay what they are."""
    X = X.tocsr() if scipy.sparse.issparse(X) else X if hasattr(X, "iloc") else np.asarray(X)
    if len(X.shape) < 2 or not X.shape[0]:
        raise ValueError(f"X must have shape (n_rows, n_features) with one row or more, got {X.shape}")
    values = X.data if scipy.sparse.issparse(X) else X
    floats = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    if floats and not np.isfinite(values).all() and not get_tags(estimator).input_tags.allow_nan:
        raise ValueError(f"X of shape {X.shape} must be finite: drop or fill the rows with NaN or infinity")
    return X


def encoded(y: np.ndarray, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes, sorted, and the index of each label among them."""
    if y.dtype == object:
        y = y.astype(str) if all(isinstance(label, str) for label in y) else np.array(y.tolist())
    check_classification_targets(y)
    known = np.unique(y if classes is None else np.asarray(classes))
    if len(known) < 2:
        raise ValueError(
            f"there must be two classes or more, got {len(known)}: is the label column the right one?"
        )
    codes = np.searchsorted(known, y).clip(max=len(known) - 1)
    if not np.array_equal(known[codes], y):
        raise ValueError(
            f"y must hold the {len(known)} declared classes only, but holds others: add them to classes="
        )
    return known, codes

"""Checks of private tables: rows that can be selected, and labels as indices of known classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.multiclass import check_classification_targets

__all__ = ["CLASSES_FROM_Y", "encoded", "feature_table", "rows", "selected"]

CLASSES_FROM_Y = (
    "The class list was taken from the private labels and is treated as public: name the classes "
    "yourself (classes=, on the command line --classes) to avoid it."
)


def rows(X: Any, estimator: Any) -> Any:
    """Check the rows. CSR matrices and data frames keep their type."""
    X = X.tocsr() if scipy.sparse.issparse(X) else X if hasattr(X, "iloc") else np.asarray(X)
    if len(X.shape) < 2 or not X.shape[0]:
        raise ValueError(f"X must have shape (n_rows, n_features) with one row or more, got {X.shape}")
    values = X.data if scipy.sparse.issparse(X) else X
    floats = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    if floats and not np.isfinite(values).all() and not get_tags(estimator).input_tags.allow_nan:
        raise ValueError(f"X of shape {X.shape} must be finite: drop or fill the rows with NaN or infinity")
    return X


def selected(X: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, a CSR matrix or a data frame."""
    if isinstance(X, np.ndarray):
        return X.take(rows, axis=0)  # the same as X[rows], several times as fast
    return _safe_indexing(X, rows)


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


def feature_table(features: Any, name: str) -> np.ndarray:
    """Check features, and return them as finite float32 numbers.

    A matrix product rounds a row differently depending on its place; rounding to float32 removes almost all
    of that difference.
    """
    if scipy.sparse.issparse(features):
        raise ValueError(
            f"{name} must have dense features, got a sparse matrix: end the transformer with TruncatedSVD, "
            "fitted on public rows, or call toarray()"
        )
    table = None
    try:
        with np.errstate(over="ignore"):
            table = np.ascontiguousarray(features, dtype=np.float32)
    except (TypeError, ValueError):  # its text would quote a value
        table = None
    if table is None:
        raise ValueError(f"{name} must have numbers as features: give a transformer that makes them")
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"{name} must have shape (n_rows, n_features), with one row or more, got {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError(
            f"{name} of shape {table.shape} must be finite and below 3e38: drop or fill the rows"
        )
    return table

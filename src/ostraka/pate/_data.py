"""The private and the public rows of a fit, and the seeds of its training."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ostraka._units import numbered

__all__ = ["Data", "Seeds", "dense", "labels_of", "split", "unprotected"]

_MOST_GIGABYTES = 2.0
_HELD_OUT = (
    "{} rows of the private table were held out as public questions: their features are not protected at all "
    "(their labels were not used for training)."
)
_COPIED = (
    "Public rows may be copies of private rows (allow_overlap): the features of such rows are not protected, "
    "and accuracy measured on them is not that of new rows."
)


class Data(NamedTuple):
    """Private rows, labels and units; public rows, and which rows of the private table these are, if any."""

    X: Any
    y: np.ndarray
    groups: np.ndarray | None
    public: Any
    held_out: np.ndarray | None

    def classes(self, declared: Any) -> np.ndarray:
        """The declared classes, else those of the private labels."""
        return np.unique(self.y if declared is None else np.asarray(declared))

    @property
    def n_units(self) -> int:
        """Number of units to deal to teachers."""
        return numbered(self.units)[1]

    @property
    def units(self) -> Any:
        """Units in the form that :func:`ostraka.voters.partition` takes."""
        return len(self.y) if self.groups is None else self.groups


class Seeds(NamedTuple):
    """One seed for each part of the training; no mechanism uses any of them."""

    holdout: int
    teachers: int
    student: int
    asking: int

    @classmethod
    def of(cls, random_state: int | np.random.RandomState | None) -> Seeds:
        """Seeds drawn from scikit-learn's ``random_state``."""
        drawn = (
            random_state.randint(2**31 - 1)
            if isinstance(random_state, np.random.RandomState)
            else random_state
        )
        return cls(*(np.random.SeedSequence(drawn).generate_state(4) >> 1).tolist())


def dense(X: Any) -> Any:
    """A sparse matrix as an array, or a refusal where that is too large; anything else as it came.

    An empty data frame is refused here: scikit-learn looks into arrays only.
    """
    if hasattr(X, "iloc") and not len(X):
        raise ValueError(f"X must have one row or more, got a data frame of shape {X.shape}")
    if not issparse(X):
        return X
    gigabytes = 8 * math.prod(X.shape) / 1e9
    if gigabytes > _MOST_GIGABYTES:
        raise ValueError(
            f"X is a sparse matrix of shape {X.shape}, which takes {gigabytes:.0f} GB as an array: make it "
            "narrow first by a step that was fitted to public rows, such as TruncatedSVD(32).fit(X_public) "
            "(docs/tables.md)"
        )
    return X.toarray()


def split(X: Any, y: np.ndarray, groups: Any, *, X_public: Any, holdout: float | None, seed: int) -> Data:
    """Take the public rows given, or hold out the rows of a share of the units."""
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (len(y),):
            raise ValueError(
                f"groups must name one person for each of {len(y)} rows, got shape {groups.shape}"
            )
    if X_public is not None:
        return Data(X, y, groups, X_public, None)
    if holdout is None:
        raise ValueError(
            "X_public must be given: unprotected rows to ask the teachers about. If there are "
            "none, holdout=0.2 gives up the privacy of a fifth of the private units instead"
        )
    if not 0 < holdout < 1:
        raise ValueError(f"holdout must be > 0 and < 1, got {holdout!r}")
    unit_of, n_units, _ = numbered(len(y) if groups is None else groups)
    n_held = max(1, round(holdout * n_units))
    if n_held >= n_units:
        raise ValueError(
            f"n_samples={len(y)} from {n_units} units are too few to hold {n_held} out: pass X_public="
        )
    held = np.isin(unit_of, np.random.default_rng(seed).permutation(n_units)[:n_held])
    kept = np.flatnonzero(~held)
    return Data(
        _safe_indexing(X, kept),
        y[kept],
        None if groups is None else groups[kept],
        _safe_indexing(X, np.flatnonzero(held)),
        np.flatnonzero(held),
    )


def labels_of(y: Any, *, n_rows: int, name: str, declared: Any = None) -> np.ndarray:
    """The private labels, checked: one for each row, and two classes or more unless classes are declared."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    y = column_or_1d(y, warn=True, dtype=None)
    if len(y) != n_rows:
        raise ValueError(f"y must have one label for each of {n_rows} rows, got {len(y)}")
    check_classification_targets(y)
    if declared is None and len(np.unique(y)) < 2:
        raise ValueError("y must hold two classes or more, but holds one class only: is it the right column?")
    return np.asarray(y)


def unprotected(data: Data, *, allow_overlap: bool) -> tuple[str, ...]:
    """Return a record's note about public rows that are, or may be, private ones."""
    held_out = () if data.held_out is None else (_HELD_OUT.format(len(data.held_out)),)
    return (*held_out, *((_COPIED,) if allow_overlap else ()))

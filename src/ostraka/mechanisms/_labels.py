"""Checks of labels and priors, and Bayes' rule. No message shows a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from ostraka.private import Private

__all__ = ["charged", "hard", "posterior", "priors", "responses", "soft"]

_SUMS_TO_ONE = 1e-6


def hard(private: Private, n_classes: int) -> np.ndarray:
    """The labels, int64 of shape (n,), all of them classes."""
    labels = private.open()
    if labels.ndim != 1 or (labels.size and not np.issubdtype(labels.dtype, np.integer)):
        raise ValueError(
            f"labels must be whole numbers in one dimension, got {labels.dtype.type.__name__} of shape "
            f"{labels.shape}: the class of each row, not a vote, a score or one-hot rows"
        )
    if labels.size and not (labels.min() >= 0 and labels.max() < n_classes):
        raise ValueError(f"labels must be from 0 to {n_classes - 1}: some of {labels.size} are not")
    return labels.astype(np.int64)


def charged(private: Private, n_classes: int) -> int:
    """One use for all rows: a unit owns one label. Looks at the labels first, since nothing is paid yet."""
    return min(1, hard(private, n_classes).size)


def responses(answers: Any, n_classes: int) -> np.ndarray:
    """Released classes, int64 of shape (n,)."""
    array = np.asarray(answers)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"answers must be released classes, shape (n,), got shape {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() < n_classes):
        raise ValueError(f"answers must be from 0 to {n_classes - 1}")
    return array.astype(np.int64)


def soft(answers: Any, n_classes: int) -> np.ndarray:
    """Released noisy one-hot rows, float64 of shape (n, n_classes)."""
    array = np.asarray(answers, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_classes or not np.isfinite(array).all():
        raise ValueError(f"answers must be finite, of shape (n, {n_classes}), got shape {array.shape}")
    return array


def priors(values: Any) -> np.ndarray:
    """Class probabilities, float64 of shape (n_classes,) or (n, n_classes), scaled to sum to 1."""
    array = np.array(values, dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] < 2:
        raise ValueError(f"prior must have shape (n, n_classes), two classes or more, got {array.shape}")
    total = array.sum(axis=-1, keepdims=True)
    if not (np.isfinite(array).all() and (array >= 0).all() and (abs(total - 1) < _SUMS_TO_ONE).all()):
        raise ValueError("prior must be probabilities: finite, >= 0, and each row must sum to 1")
    return np.asarray(array / total)


def posterior(log_likelihood: np.ndarray, prior: Any) -> np.ndarray:
    """Bayes' rule in logarithms; rows sum to 1."""
    before = priors(prior)
    if before.shape[-1] != log_likelihood.shape[1] or before.shape[:-1] not in ((), log_likelihood.shape[:1]):
        raise ValueError(f"prior must have shape {log_likelihood.shape}, or of one row, got {before.shape}")
    with np.errstate(divide="ignore"):  # a class that the prior rules out stays ruled out
        joint = log_likelihood + np.log(before)
    return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

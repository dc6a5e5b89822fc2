"""Scores: what an adversary saw with and without its target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ostraka import _check

__all__ = ["Scores"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """How often an adversary saw each value in a world with its target and in one without.

    A value is a real score (larger: more like the world with the target), or the number of an
    outcome, such as a released class. Real scores are counted too: each distinct one is a value.

    Attributes
    ----------
    values : float64 array, shape (n_values,), increasing
    members : int64 array, shape (n_values,)
        How often each value was seen with the target.
    others : int64 array, shape (n_values,)
        How often without it.

    Raises
    ------
    ValueError
        Values not increasing and finite, counts negative, of other shapes, or none in a world.

    Examples
    --------
    >>> scores = Scores.of(members=[0.9, 0.8, 0.8, 0.1], others=[0.8, 0.2, 0.1, 0.0])
    >>> scores.tpr(fpr=0.25), scores.advantage()
    (0.75, 0.5)
    """

    values: np.ndarray
    members: np.ndarray
    others: np.ndarray

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
            raise ValueError(
                f"values must be finite and increasing, in one dimension, got shape {values.shape}"
            )
        object.__setattr__(self, "values", values)
        for name in ("members", "others"):
            object.__setattr__(self, name, _check_tally(getattr(self, name), name=name))
            if getattr(self, name).shape != values.shape:
                raise ValueError(f"{name} must have one count for each of {values.size} values")
        for array in (self.values, self.members, self.others):
            array.setflags(write=False)

    @classmethod
    def of(cls, *, members: Any, others: Any) -> Self:
        """Count real scores, or outcomes: one number a trial, in each world."""
        worlds = [np.asarray(world, dtype=np.float64).ravel() for world in (members, others)]
        if not all(np.isfinite(world).all() for world in worlds):
            raise ValueError(
                f"scores must be finite, got {worlds[0].size} members and {worlds[1].size} others"
            )
        values, place = np.unique(np.concatenate(worlds), return_inverse=True)
        cut = worlds[0].size
        tally = [np.bincount(part, minlength=values.size) for part in (place[:cut], place[cut:])]
        return cls(values=values, members=tally[0], others=tally[1])

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """False and true positive rates of "the score is at least t", for every t, from (0, 0) to (1, 1)."""
        rates = [
            np.concatenate([[0], counts[::-1].cumsum()]) / counts.sum()
            for counts in (self.others, self.members)
        ]
        return rates[0], rates[1]

    def tpr(self, *, fpr: float) -> float:
        """Largest true positive rate of a threshold whose false positive rate is at most ``fpr``."""
        _check.nonnegative(fpr=fpr)
        false, true = self.roc()
        return float(true[false <= fpr].max())

    def advantage(self) -> float:
        """Largest difference between true and false positive rate of a threshold."""
        false, true = self.roc()
        return float((true - false).max())


def _check_tally(counts: Any, *, name: str) -> np.ndarray:
    array = np.array(counts)
    if array.dtype.kind not in "iu" or array.ndim != 1 or (array < 0).any() or not array.sum():
        raise ValueError(f"{name} must be integers >= 0 in one dimension, not all 0, got shape {array.shape}")
    return array.astype(np.int64)

"""The parties of a simulated collaboration: their rows, and which of them go into the batch of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ostraka import _check

__all__ = ["PartyRows", "draw_batch", "read_parties"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PartyRows:
    """One party of a simulated collaboration.

    Parameters
    ----------
    X : array, shape (n_rows, n_features)
        Private.
    y : array, shape (n_rows,)
        Private. Labels of the main task.
    has_property : bool array, shape (n_rows,), optional
        Private. Which rows have the property that an attacker looks for.
    schedule : float array, shape (n_rounds,), in [0, 1], optional
        The share of rows with the property in the batches of each round. None: rows are drawn without
        looking at it.
    joins : int
        The first round in which the party takes part.

    Raises
    ------
    ValueError
        No rows, other shapes, shares outside [0, 1], a schedule without ``has_property``.

    Examples
    --------
    >>> PartyRows(X=[[0.0], [1.0]], y=[0, 1], joins=10).n_rows
    2
    """

    X: Any
    y: Any
    has_property: Any = None
    schedule: Any = None
    joins: int = 0

    def __post_init__(self) -> None:
        rows, labels = np.asarray(self.X, dtype=np.float32), np.asarray(self.y)
        if rows.ndim != 2 or labels.shape != rows.shape[:1] or not len(rows):
            raise ValueError(
                "a party must have rows (n_rows, n_features) and a label each, got "
                f"{rows.shape} and {labels.shape}"
            )
        if not np.isfinite(rows).all():
            raise ValueError("a party's X must be finite")
        _check.integer(joins=self.joins)
        object.__setattr__(self, "X", rows)
        object.__setattr__(self, "y", labels)
        if self.has_property is not None:
            has = np.asarray(self.has_property)
            if has.dtype != bool or has.shape != labels.shape:
                raise ValueError(f"has_property must be bool of shape {labels.shape}, got {has.shape}")
            object.__setattr__(self, "has_property", has)
        if self.schedule is not None:
            shares = np.asarray(self.schedule, dtype=np.float64)
            if shares.ndim != 1 or not ((shares >= 0) & (shares <= 1)).all():
                raise ValueError("schedule must be shares from 0 to 1, one a round")
            if self.has_property is None:
                raise ValueError("schedule needs has_property, which says what it is a share of")
            object.__setattr__(self, "schedule", shares)

    @property
    def n_rows(self) -> int:
        """The party's number of rows."""
        return len(self.y)

    def __repr__(self) -> str:
        return f"PartyRows(joins={self.joins})"


def read_parties(parties: Any, *, n_rounds: int) -> tuple[list[PartyRows], np.ndarray]:
    """The parties, and all classes. Pairs (X, y) are parties, too."""
    read = [
        each if isinstance(each, PartyRows) else PartyRows(X=np.asarray(each[0]), y=each[1])
        for each in parties
    ]
    if len(read) < 2:
        raise ValueError(f"parties must be two or more, got {len(read)}")
    if len({each.X.shape[1] for each in read}) > 1:
        raise ValueError("all parties must have the same number of features")
    classes = np.unique(np.concatenate([each.y for each in read]))
    for number, each in enumerate(read):
        if each.schedule is not None and len(each.schedule) != n_rounds:
            raise ValueError(
                f"the schedule of party {number} must have {n_rounds} rounds, got {len(each.schedule)}"
            )
        for pool in pools_of(each):
            lacking = len(classes) - len(np.unique(each.y[pool]))
            if lacking:
                raise ValueError(
                    f"party {number} has no row of {lacking} of {len(classes)} classes"
                    + ("" if each.schedule is None else " with the property, or without it")
                    + ": batches hold all classes alike"
                )
    return read, classes


def pools_of(party: PartyRows) -> list[np.ndarray]:
    """Numbers of the rows that a batch is drawn from: with and without the property, or all."""
    if party.schedule is None:
        return [np.arange(party.n_rows)]
    needed = [(party.schedule > 0).any(), (party.schedule < 1).any()]
    pools = [np.flatnonzero(party.has_property), np.flatnonzero(~party.has_property)]
    return [pool for pool, need in zip(pools, needed, strict=True) if need]


def draw_batch(
    rng: np.random.Generator, codes: np.ndarray, size: int, *, n_classes: int, pool: np.ndarray | None = None
) -> np.ndarray:
    """Row numbers of a batch with all classes alike; a remainder goes to classes drawn at random."""
    among = np.arange(len(codes)) if pool is None else pool
    counts = np.full(n_classes, size // n_classes)
    counts[rng.permutation(n_classes)[: size % n_classes]] += 1
    parts = []
    for code, count in enumerate(counts):
        mine = among[codes[among] == code]
        parts.append(rng.choice(mine, size=count, replace=count > len(mine)))
    return np.asarray(rng.permutation(np.concatenate(parts)))

"""Checks of property inference: rounds of both kinds, labels that tell the property, copies of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.attacks._membership_checks import number_copies

if TYPE_CHECKING:
    from ostraka.attacks.observations import Observations
    from ostraka.attacks.parties import PartyRows

__all__ = ["check_copies", "check_truth"]

_FALSE_ALARM_Z = 6.5  # standard errors: a chance of 1e-10


def check_copies(one: PartyRows, other: PartyRows) -> None:
    """Refuse rows that are on both sides, which would teach the classifier nothing but noise."""
    numbers = number_copies(np.concatenate([one.X, other.X]), np.concatenate([one.y, other.y]))
    both = np.isin(numbers[: one.n_rows], numbers[one.n_rows :])
    if both.all():
        raise ValueError(f"all {one.n_rows} rows of with_property are among those of without")


def check_truth(observations: Observations) -> np.ndarray:
    """Which rounds have the property, if rounds with it and rounds without it were seen, one sum each."""
    if observations.property_share is None:
        raise ValueError("observations must know the truth: give a party has_property and a schedule")
    if observations.updates.ndim != 2:
        raise ValueError("scores need one sum a round: for a server use statistics of the party you look at")
    has, seen = np.asarray(observations.property_share > 0), observations.updates.any(axis=1)
    if not seen.any():
        raise ValueError("observations must hold a round in which others changed something, but all are 0")
    if has[seen].all() or not has[seen].any():
        raise ValueError(
            f"the property is in {'every' if has[seen].all() else 'no'} round: scores need rounds with it "
            "and rounds without it"
        )
    _check_labels(observations, has)
    return has


def _check_labels(observations: Observations, has: np.ndarray) -> None:
    """Refuse rounds whose labels tell the property."""
    shares = observations.label_share
    if shares is None or len(shares) < 4:
        return
    inside, outside = shares[has], shares[~has]
    spread = inside.var(axis=0) / len(inside) + outside.var(axis=0) / len(outside)
    gap = np.abs(inside.mean(axis=0) - outside.mean(axis=0))
    if (gap > _FALSE_ALARM_Z * np.sqrt(spread) + 1e-9).any():
        raise ValueError(
            "labels of rounds with the property differ from those of the others, which alone would tell them "
            "apart: draw batches with all classes alike"
        )

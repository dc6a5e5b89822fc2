"""The weights by which pairs of laws average a convex function on a grid; every one errs upwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ostraka._composition.cover import Pairs

__all__ = ["Stencils", "stencils"]


class Stencils(NamedTuple):
    """By which offsets and weights each pair averages, and a constant."""

    offsets: np.ndarray  # (n_pairs, n_taps)
    weights: np.ndarray
    constants: np.ndarray  # (n_pairs,)


def stencils(pairs: Pairs, *, step: float, reach: int) -> Stencils:
    """Weights by which each pair averages a convex function of e^x on a grid of x.

    An outcome between two grid points is split between them, so that its P and its Q stay the same. One
    below the reach counts as 1, one above it as the value at the reach: both err upwards.
    """
    mass, difference, extra = pairs
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(mass > 0, 1 + difference / mass, 1.0)
        place = np.floor(np.log(np.maximum(ratio, 1e-300)) / step - 1e-9)
    place = np.clip(place, -reach, reach - 1)
    low, high = np.exp(place * step), np.exp((place + 1) * step)
    # a ratio that is too low errs upwards
    share = np.clip((ratio - low) / (high - low) - 1e-12 - 1e-15 / step, 0.0, 1.0)
    under = ratio < np.exp(-reach * step)
    constants = extra + np.where(under, mass, 0.0).sum(axis=1)
    left = np.maximum(1 - mass.sum(axis=1), 0.0)
    mass = np.where(under, 0.0, mass)
    n, k = mass.shape
    offsets, weights = np.zeros((n, 2 * k + 1), np.int64), np.zeros((n, 2 * k + 1))
    offsets[:, 1::2], offsets[:, 2::2] = place, place + 1
    weights[:, 0], weights[:, 1::2], weights[:, 2::2] = left, mass * (1 - share), mass * share
    return Stencils(offsets, weights * (1 + 1e-14), constants)

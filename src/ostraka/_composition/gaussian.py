"""Functions of log odds on a grid: of the Gaussian pair, and of families that are symmetric."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from ostraka._composition.cover import Pairs

__all__ = ["gaussian_delta", "gaussian_pair", "mirrored"]


def gaussian_delta(x: np.ndarray, mu: float) -> np.ndarray:
    """Delta at epsilon = x of either sign: Dong et al. 2019, arXiv:1905.02383, Cor. 1, rounded up."""
    mu *= 1 + 4e-16
    above, below = ndtr(mu / 2 - x / mu), np.exp(np.minimum(x + log_ndtr(-mu / 2 - x / mu), 0.0))
    return np.asarray(np.minimum(1.0, above - below + 1e-13 * above + 1e-300))


def gaussian_pair(mu_squared: float, step: float) -> Pairs:
    """A Gaussian of this squared shift, in cells of the grid; mass outside counts as fully revealing."""
    mu = math.sqrt(mu_squared)
    edges = np.arange(
        -math.ceil((mu_squared / 2 + 9 * mu) / step) - 1, math.ceil((mu_squared / 2 + 9 * mu) / step) + 2
    )
    x = edges * step  # log Q / P; under P normal around -mu^2 / 2
    p, q = (_cells((x + sign * mu_squared / 2) / mu) for sign in (1, -1))
    outside = float(ndtr((x[0] + mu_squared / 2) / mu) + ndtr(-(x[-1] + mu_squared / 2) / mu))
    return Pairs(p[None], (q - p)[None], np.array([outside * (1 + 1e-9)]))


def mirrored(values: np.ndarray, step: float, room: int) -> np.ndarray:
    """Values at 0, 1, ... and, before them, ``room`` points on the other side of 0.

    Families are symmetric under exchange of P and Q, so w(1 / v) = 1 - 1 / v + w(v) / v.
    """
    x = np.arange(room, 0, -1) * step
    return np.concatenate([-np.expm1(-x) + np.exp(-x) * values[room:0:-1], values])


def _cells(z: np.ndarray) -> np.ndarray:
    """Normal probabilities between neighbours, from the side where they are small."""
    left, right = ndtr(z), ndtr(-z)
    return np.asarray(np.where(z[1:] < 0, left[1:] - left[:-1], right[:-1] - right[1:]))

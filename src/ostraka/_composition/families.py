"""Finite sets of pairs of laws which dominate every pair that one answer can have."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ostraka._composition.cover import EDGE, Grid, Pairs, argmax_pairs, plane_pairs, screen_pairs

__all__ = ["LARGEST_SHIFT", "SMALLEST_SHIFT", "argmax_family", "screen_family"]

SMALLEST_SHIFT, LARGEST_SHIFT = 1e-5, 0.45  # of t; outside, floats or the proof at the edge give out


def _both_ways(half: np.ndarray) -> np.ndarray:
    return np.unique(np.concatenate([-half, half]))


# Fine where one answer tells most (t near 0, u near 1), coarse where it tells less anyway.
_LEFT, _RIGHT = (-1.5, 0.25), (1.5, 2.75)
_FINE = Grid(np.linspace(-1.5, 1.5, 97), np.linspace(0.25, 2.75, 51))
_FINER = _FINE._replace(left=(-0.75, 0.5), right=(0.75, 1.75))
_FINEST = Grid(np.linspace(-0.75, 0.75, 97), np.linspace(0.5, 1.75, 51))
_COARSE = Grid(
    _both_ways(
        np.concatenate([np.arange(0, 2, 1 / 16), np.arange(2, 4.5, 1 / 8), np.arange(4.5, EDGE + 0.1, 1 / 4)])
    ),
    np.concatenate(
        [
            np.arange(-12.1, -3, 0.35),
            np.arange(-3, 0, 0.25),
            np.arange(0, 0.2, 0.125),
            np.arange(0.25, 2.8, 0.125),
            [2.9, 3.1, 3.4, 3.8, 4.3, 4.8, 5.4, 6.1, 6.8, 7.6, EDGE],
        ]
    ),
    _LEFT,
    _RIGHT,
)
_LINE = _both_ways(
    np.concatenate([np.arange(0, 2, 1 / 64), np.arange(2, 4.5, 1 / 8), np.arange(4.5, EDGE + 0.1, 1 / 4)])
)

_THIN = _both_ways(
    np.concatenate([np.arange(0, 2, 1 / 128), np.arange(2, 4.5, 1 / 16), np.arange(4.5, EDGE + 0.1, 1 / 4)])
)


@lru_cache(maxsize=4)
def argmax_family(shift: float, *, finest: bool = False) -> Pairs:
    """One Gaussian argmax whose t moves by ``shift`` (one vote: sqrt 2 over sigma)."""
    fine = [plane_pairs(shift, grid) for grid in ((_FINER, _FINEST) if finest else (_FINE,))]
    return argmax_pairs(shift, [_coarse_pairs(shift), *fine], _LINE)


@lru_cache(maxsize=1)
def _coarse_pairs(shift: float) -> Pairs:
    return plane_pairs(shift, _COARSE)


@lru_cache(maxsize=4)
def screen_family(shift: float, *, finest: bool = False) -> Pairs:
    """One threshold with one Gaussian noise, moved by ``shift`` (one vote: one over sigma)."""
    return screen_pairs(shift, _THIN if finest else _LINE)

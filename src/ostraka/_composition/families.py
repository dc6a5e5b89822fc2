"""What one answer may tell, as ranges of dominating pairs: one range for each shape of what comes after."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ostraka._composition.cover import EDGE, Pairs, argmax_pairs, screen_pairs

__all__ = ["BRANCHES", "LARGEST_SHIFT", "SMALLEST_SHIFT", "argmax_family", "screen_family"]

SMALLEST_SHIFT, LARGEST_SHIFT = 1e-5, 0.45  # of t; outside, floats or the proof at the edge give out
BRANCHES = 4
_EXTRA = 2e-14  # more than what hulls leave out
_POWERS = np.array([-0.7, 0.7])  # times the shift: shapes by which hulls drop edges


def _both_ways(half: np.ndarray) -> np.ndarray:
    return np.unique(np.concatenate([-half, half]))


_T = _both_ways(
    np.concatenate([np.arange(0, 2, 1 / 16), np.arange(2, 4.5, 1 / 8), np.arange(4.5, EDGE + 0.1, 1 / 4)])
)
_U = np.concatenate(
    [
        np.arange(-12.1, -3, 0.35),
        np.arange(-3, -1, 0.25),
        np.arange(-1, 2.05, 0.1),
        [2.15, 2.3, 2.5, 2.7, 3, 3.3, 3.7, 4.2, 4.7, 5.3, 6, 6.7, 7.5, EDGE],
    ]
)


@lru_cache(maxsize=32)
def argmax_family(shift: float) -> tuple[Pairs, ...]:
    """One Gaussian argmax whose t moves by ``shift`` (one vote: sqrt 2 over sigma); see :func:`tree`."""
    inside, *far = argmax_pairs(shift, _T, _U)
    i, j = (axis.ravel() for axis in np.meshgrid(np.arange(_T.size), np.arange(_U.size), indexing="ij"))
    order = np.argsort(_interleaved(i, j), kind="stable")
    order = order[np.asarray(inside.mass.any(axis=1))[order]]
    parts = [Pairs(*(column[order] for column in inside)), *far]
    return tree(Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True))), shift)


@lru_cache(maxsize=32)
def screen_family(shift: float) -> tuple[Pairs, ...]:
    """One threshold with one Gaussian noise, moved by ``shift`` (one vote: one over sigma)."""
    return tree(screen_pairs(shift, _T), shift)


def tree(pairs: Pairs, shift: float) -> tuple[Pairs, ...]:
    """The pairs; then one that dominates each BRANCHES of them in a row, and so on, up to one alone."""
    from ostraka._composition import hull  # noqa: PLC0415  (compiled code, loaded when needed)

    mass, difference = hull.joined(pairs.mass, pairs.difference, 1, _POWERS / shift + 0.5)
    levels = [Pairs(mass, difference, pairs.extra + _EXTRA)]
    while len(levels[-1].mass) > 1:
        last = levels[-1]
        mass, difference = hull.joined(last.mass, last.difference, BRANCHES, _POWERS / shift + 0.5)
        extra = np.maximum.reduceat(last.extra, np.arange(0, len(last.extra), BRANCHES)) + _EXTRA
        levels.append(Pairs(mass, difference, extra))
    return tuple(levels)


def _interleaved(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """The bits of two numbers in turn: neighbours in the plane come close to each other in a row."""
    return np.asarray(sum(((i >> b & 1) << (2 * b + 1)) | ((j >> b & 1) << (2 * b)) for b in range(8)))

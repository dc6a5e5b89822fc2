"""Finite sets of pairs of laws that dominate every pair of neighbouring outcome laws (docs/composition.md).

An argmax with Gaussian noise has the outcome laws P(t, u) against P(t - shift, u), in the plane of
t = (a - b) / sqrt 2 and u = (a + b) / sqrt 2. The plane is cut into rectangles. A pair inside a rectangle is
dominated by a mixture of the pairs at its corners, once these are spread by what curvature allows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr

from ostraka.core.laws.curvature import Box, bends, line_bends, none_wins, phi, rise, third_ratio, wins

if TYPE_CHECKING:
    from collections.abc import Sequence

EDGE = 8.5  # the knots reach so far; for what lies outside see docs/composition.md
_OUTSIDE = 4e-15  # by how much a law outside may exceed the law at the edge, where ratios are near 1
_STEEPEST = 9.5  # times the shift: the log of the steepest ratio at the edge
_ROUNDING = 5e-14  # relative: ten times what probabilities and differences err
_MUCH = 1.25  # how much steeper than any ratio of its rectangle a spread outcome may be
_RARE = 0.05
_ROOT = math.sqrt(2.0)
_FEW = np.polynomial.legendre.leggauss(12)


class Pairs(NamedTuple):
    """Dominating pairs: of each outcome the mass under P and the difference Q - P; what is left has ratio 1.

    ``extra`` is mass under P that Q does not have, on top of these outcomes.
    """

    mass: np.ndarray  # (n_pairs, n_outcomes)
    difference: np.ndarray
    extra: np.ndarray  # (n_pairs,)


class _Spread(NamedTuple):
    """Bounds of a rectangle's points less its corners, outcomes last (except ``moved``)."""

    bend: np.ndarray  # how far P may lie from the mean of its corners
    moved: np.ndarray  # how far the differences of the first two outcomes may
    gain: np.ndarray  # how far that of the third may
    steepest: np.ndarray  # largest |Q / P - 1|
    mildest: np.ndarray  # smallest, of the first two outcomes
    below: np.ndarray  # largest 1 - Q / P of the third outcome, where that is positive


class Grid(NamedTuple):
    """Knots of the plane. Rectangles between the knots ``left`` and ``right`` are left to a finer grid."""

    t: np.ndarray
    u: np.ndarray
    left: tuple[float, float] = (math.inf, math.inf)
    right: tuple[float, float] = (-math.inf, -math.inf)


def _knots(near: float, far: float) -> np.ndarray:
    """Knots on both sides of 0: so far apart up to 2 and up to 4.5, and 1 / 4 up to the edge."""
    half = np.concatenate([np.arange(0, 2, near), np.arange(2, 4.5, far), np.arange(4.5, EDGE + 0.1, 1 / 4)])
    return np.unique(np.concatenate([-half, half]))


# Fine where one answer tells most (t near 0, u near 1), coarse where it tells less anyway.
_LEFT, _RIGHT = (-1.5, 0.25), (1.5, 2.75)
_FINE = Grid(np.linspace(-1.5, 1.5, 97), np.linspace(0.25, 2.75, 51))
_FINER = _FINE._replace(left=(-0.75, 0.5), right=(0.75, 1.75))
_FINEST = Grid(np.linspace(-0.75, 0.75, 97), np.linspace(0.5, 1.75, 51))
_COARSE = Grid(
    _knots(1 / 16, 1 / 8),
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
_LINE, _THIN = _knots(1 / 64, 1 / 8), _knots(1 / 128, 1 / 16)


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


def argmax_pairs(shift: float, inside: Sequence[Pairs], line: np.ndarray) -> Pairs:
    """Pairs that dominate one Gaussian argmax: inside the edges; of two classes; of one count and the bar.

    ``shift`` is of t. ``inside`` are those of grids which together reach the edges (:func:`plane_pairs`).
    ``line`` has the knots of t beyond.
    """
    parts = list(inside)
    lacking = parts[0].mass.shape[1]
    for moved in (shift, shift / _ROOT):
        pairs = screen_pairs(moved, line)
        mass, difference = (np.pad(column, ((0, 0), (0, lacking - column.shape[1]))) for column in pairs[:2])
        parts.append(Pairs(mass, difference, pairs.extra))
    every = Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    occupied = every.mass.any(axis=1)
    return Pairs(*(column[occupied] for column in every))


def screen_pairs(shift: float, t: np.ndarray) -> Pairs:
    """Pairs that dominate Bernoulli(Phi(x)) against Bernoulli(Phi(x - shift)) for every real x."""
    low, high = t[:-1], t[1:]
    bend, moved, *steepest = line_bends(shift, low, high)
    none = np.zeros_like(moved)
    spread = _Spread(
        np.stack([bend, bend], axis=-1),
        np.stack([moved, moved], axis=-1),
        none,
        np.stack(steepest, axis=-1),
        none + 1,
        none,
    )
    x = t[:, None] - shift / 2 * (1 + _FEW[0])
    gained = (phi(x) * _FEW[1]).sum(axis=-1) * shift / 2
    chance = np.stack([ndtr(t), ndtr(-t)], axis=-1)
    corners = _at_corners(spread, chance, np.stack([-gained, gained], axis=-1), 1)
    outcomes = [0, 1, -1]  # no third outcome: nothing of its own
    return Pairs(
        corners.mass[:, outcomes],
        corners.difference[:, outcomes],
        np.full(t.size, _OUTSIDE * math.exp(_STEEPEST * shift)),
    )


def plane_pairs(shift: float, grid: Grid) -> Pairs:
    """Pairs that dominate one Gaussian argmax in the rectangles of a grid."""
    t0, u0 = np.meshgrid(grid.t[:-1], grid.u[:-1], indexing="ij")
    t1, u1 = np.meshgrid(grid.t[1:], grid.u[1:], indexing="ij")
    outside = (u1 + t1 <= -_ROOT * EDGE) | (u1 - t0 <= -_ROOT * EDGE)
    thin = 1e-9  # knots are rounded
    finer = (t0 > grid.left[0] - thin) & (t1 < grid.right[0] + thin)
    outside |= finer & (u0 > grid.left[1] - thin) & (u1 < grid.right[1] + thin)
    x, y = np.meshgrid(grid.t, grid.u, indexing="ij")
    gained, lost = rise(x, y, shift), rise(shift - x, y, shift)
    chance = _chances(grid.t.tobytes(), grid.u.tobytes())
    difference = np.stack([-gained, lost, gained - lost], axis=-1)
    # bounds over each rectangle, from derivatives of second and third order
    box = Box(t0, t1, u0, u1)
    bend, moved, gain, _ = bends(shift, box)
    below, above = third_ratio(shift, box)
    less = -np.expm1(below) * (1 + _ROUNDING)
    # ratios of the first two outcomes are monotone in t and in u (docs/composition.md)
    ratio = np.abs(difference[..., :2]) / chance[..., :2]
    first, second = _corners(ratio[..., 0], 2), _corners(ratio[..., 1], 2)
    spread = _Spread(
        bend=np.stack([*bend, bend[0] + bend[1]], axis=-1),
        moved=np.stack([*moved, np.zeros_like(moved[0])], axis=-1),
        gain=gain,
        steepest=np.stack([first[0], second[2], np.maximum(np.expm1(above), less)], axis=-1),
        mildest=np.maximum(np.minimum(first[3], second[1]), 1e-300),
        below=np.maximum(less, 0.0),
    )
    for bound in spread:
        bound[outside] = 0.0
    spread.mildest[outside] = 1.0
    pairs = _at_corners(spread, chance, difference, 2)
    occupied = np.zeros(chance.shape[:-1], dtype=bool)
    for view in _corners(occupied, 2):
        np.logical_or(view, ~outside, out=view)
    for column in pairs:
        column[~occupied.ravel()] = 0.0
    return pairs


@lru_cache(maxsize=8)
def _chances(t: bytes, u: bytes) -> np.ndarray:
    """Chances of the three outcomes at the knots, which are the same whatever the shift."""
    x, y = np.meshgrid(np.frombuffer(t), np.frombuffer(u), indexing="ij")
    first = wins(x, y)
    second = first[::-1] if (x == -x[::-1]).all() else wins(-x, y)
    chances = np.stack([first, second, none_wins(x, y)], axis=-1)
    chances.setflags(write=False)
    return chances


def _at_corners(spread: _Spread, chance: np.ndarray, difference: np.ndarray, n_axes: int) -> Pairs:
    """Widen the pair at each knot by the largest widening that a rectangle around it needs."""
    # an outcome is a difference and how far its ratio lies from 1: more of either dominates less
    n = chance.shape[-1]
    chances, differences = _corners(chance, n_axes), _corners(np.abs(difference), n_axes)
    least = np.stack(chances).min(axis=0)
    guard = _ROUNDING * np.abs(difference).max()
    steepest = spread.steepest * (1 + _ROUNDING)
    moved = spread.moved * (1 + _ROUNDING) + guard
    moved[..., 2:] = 0.0
    bend = spread.bend.copy()
    bend[..., 2:] += spread.gain[..., None] / spread.mildest[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(bend < least, bend / least, 1.0) + _ROUNDING
        by_curve = [
            (d + moved) / np.maximum((1 - share) * p, 0.0) for p, d in zip(chances, differences, strict=True)
        ]
    # where curvature says little, the steepest ratio in the rectangle is the bound instead
    by_ratio = ~(np.stack(by_curve).max(axis=0) <= _MUCH * steepest)
    # what the third outcome may gain goes to the other two, or stays alone: at its own steepest ratio, or
    # where one of the two is rare, and steep, at the other's
    steep = by_ratio[..., 2:].any(axis=-1)
    alone = (steep | (least[..., :2].min(axis=-1) < _RARE)) & (spread.gain > 0)
    moved[..., :2] += np.where(alone, 0.0, spread.gain)[..., None]
    spare = np.where(alone, spread.gain * (1 + _ROUNDING) + guard, 0.0)
    widest = np.where(alone, np.where(steep, steepest[..., -1], steepest[..., :2].min(axis=-1)), 0.0)
    gentle = widest / (1 + widest)  # the inverse ratio
    moves, away = np.zeros(chance.shape), np.zeros(chance.shape)
    spares, wides, unders = (np.zeros(chance.shape[:-1]) for _ in range(3))
    for at, curved in enumerate(by_curve):
        _raise(moves, moved, at, n_axes)
        _raise(away, np.where(by_ratio, steepest, curved), at, n_axes)
        _raise(spares, spare, at, n_axes)
        _raise(wides, widest, at, n_axes)
        _raise(unders, np.where(steep, np.maximum(spread.below, gentle), gentle), at, n_axes)
    # what balances has the inverse ratio of the outcome that asked for it, or one nearer to 1
    balance = moves[..., 0] - moves[..., 1]
    opposite = np.where(balance > 0, away[..., 0], away[..., 1] / (1 + away[..., 1]))
    sign = np.array([-1.0, 1.0] + [0.0] * (n - 2))
    difference = np.concatenate(
        [difference + sign * moves, np.stack([-spares, spares, balance], axis=-1)], axis=-1
    )
    away = np.concatenate([away, np.stack([unders, wides, opposite], axis=-1)], axis=-1)
    away = np.where(difference < 0, np.minimum(away, 1.0), away)  # a ratio is never negative
    with np.errstate(divide="ignore", invalid="ignore"):
        mass = np.where(difference == 0, 0.0, np.abs(difference) / away)
        too_much = np.maximum(mass.sum(axis=-1, keepdims=True) * (1 + _ROUNDING), 1.0)
        mass = np.maximum(mass / too_much, np.maximum(-difference, 0.0))
    return Pairs(mass.reshape(-1, n + 3), difference.reshape(-1, n + 3), np.zeros(mass.size // (n + 3)))


def _raise(knots: np.ndarray, to: np.ndarray, at: int, n_axes: int) -> None:
    """Raise the values at one corner of each rectangle."""
    view = _corners(knots, n_axes)[at]
    np.maximum(view, to, out=view)


def _corners(knots: np.ndarray, n_axes: int) -> list[np.ndarray]:
    """Views of an array over knots, one for each corner of the intervals or rectangles between them."""
    if n_axes == 1:
        return [knots[:-1], knots[1:]]
    return [knots[:-1, :-1], knots[:-1, 1:], knots[1:, :-1], knots[1:, 1:]]


class Stencils(NamedTuple):
    """The offsets and weights by which each pair averages, and a constant."""

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
    missing = np.maximum(1 - mass.sum(axis=1), 0.0)
    mass = np.where(under, 0.0, mass)
    n, k = mass.shape
    offsets, weights = np.zeros((n, 2 * k + 1), np.int64), np.zeros((n, 2 * k + 1))
    offsets[:, 1::2], offsets[:, 2::2] = place, place + 1
    weights[:, 0], weights[:, 1::2], weights[:, 2::2] = missing, mass * (1 - share), mass * share
    return Stencils(offsets, weights * (1 + 1e-14), constants)

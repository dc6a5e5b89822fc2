"""Certified suprema of Rényi divergences over all votes, by rectangles that are halved (docs/proof.md).

The laws P(t, u) against P(t - d, u) of docs/composition.md fill a plane; two classes, or a screen, a line.
Over a rectangle the divergence is at most a number made from its corners and from bounds of derivatives.
A rectangle whose number is too far above the largest divergence seen is halved.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from ostraka._composition.curvature import Box, curvature, none_wins, phi, rise, third, wins
from ostraka.mechanisms import _tight

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["argmax_supremum", "screen_supremum"]

_EDGE = 8.5  # what lies beyond is bounded by formulas
_ROUNDING = 1e-13  # relative: ten times what probabilities and differences err
_OUTWARD = 1e-8  # relative: what the sums of a divergence err
# How far above the largest value seen: of a line; of a plane, up to order * shift = 2 of the column before,
# and beyond.
_ON_LINE, _FINE, _ROUGH, _FINE_UP_TO = 5e-5, 4e-4, 4e-3, 2.12
_GROUPS = (0.0, 0.2, 0.6, 1.0, 1.5, 2.0, 3.0, 4.5, 1e300)  # orders whose worst votes lie close to each other
_HALVINGS, _MOST_BOXES, _PART = 26, 400_000, 2_048
_SHORT = 0.45
_ROOT = math.sqrt(2.0)
_LEGENDRE = np.polynomial.legendre.leggauss(48)


class _Corners(NamedTuple):
    """Laws at the corners of boxes, and bounds inside; axes (corner, box, outcome), or less the first."""

    chance: np.ndarray  # P
    difference: np.ndarray  # Q - P
    bend: np.ndarray  # how far P may lie from the mean of its corners
    moved: np.ndarray  # how far Q - P may
    steepest: np.ndarray  # largest |Q / P - 1| for outcomes less likely under Q, and for those more likely
    first: Callable[[np.ndarray], np.ndarray]  # bound of P^order Q^(1 - order) of the first outcome, by order
    by_t: np.ndarray  # whether the side along t matters more than that along u


def argmax_supremum(shift: float, orders: np.ndarray) -> np.ndarray:
    """Upper bound of the price of a Gaussian argmax at each order, rising; ``shift`` is 1 / sigma <= 1."""
    moved = _ROOT * shift
    found = np.empty(orders.size)
    for some in _grouped(shift, orders):
        group = orders[some]
        tilt = (group[-1] - 1) * shift
        step = 0.5
        t = np.arange(-_EDGE - _ROOT * tilt - step, _EDGE + moved + step, step)
        u = np.arange(_EDGE, -_ROOT * _EDGE - tilt - step, -step)[::-1]
        t0, u0 = (axis.ravel() for axis in np.meshgrid(t[:-1], u[:-1], indexing="ij"))
        box = Box(t0, t0 + step, u0, u0 + step)
        outside = (box.u1 + box.t1 <= -_ROOT * (_EDGE + tilt)) | (box.u1 - box.t0 <= -_ROOT * _EDGE)
        box = Box(*(side[~outside] for side in box))

        def seen(t: np.ndarray, u: np.ndarray, group: np.ndarray = group) -> np.ndarray:
            return _tight.argmax_divergence(shift, (u + t) / _ROOT, (u - t) / _ROOT, group)

        line = _line(moved, group)
        goal = _tolerances(shift, group)
        plane = _halved(
            box,
            group,
            tolerance=goal,
            least=np.log1p(line),
            corners=lambda box: _plane_corners(moved, box),
            seen=seen,
        )
        found[some] = _renyi(np.maximum(plane, _far(shift, group, line)), group)
    return found


def screen_supremum(shift: float, orders: np.ndarray) -> np.ndarray:
    """Upper bound of the tight Rényi price of a screen with one Gaussian noise; ``shift`` is 1 / sigma."""
    found = np.empty(orders.size)
    for some in _grouped(shift, orders):
        found[some] = _renyi(_line(shift, orders[some]), orders[some])
    return found


def _renyi(excess: np.ndarray, orders: np.ndarray) -> np.ndarray:
    return np.asarray(np.log1p(excess) / (orders - 1) * (1 + _OUTWARD))


def _grouped(shift: float, orders: np.ndarray) -> list[np.ndarray]:
    place = np.searchsorted(_GROUPS, orders * shift)
    return [np.flatnonzero(place == group) for group in np.unique(place)]


def _tolerances(shift: float, orders: np.ndarray) -> np.ndarray:
    return np.where(orders * shift <= _FINE_UP_TO, _FINE, _ROUGH)


def _rare(excess: np.ndarray, orders: np.ndarray, shift: float, count: float) -> np.ndarray:
    """The excess where one outcome has chance Phi(-edge) and the others lose as much under Q."""
    eta = ndtr(-_EDGE)
    lost = np.expm1(-(orders - 1) * math.log1p(-ndtr(shift - _EDGE)))
    return np.asarray(excess + (1 + excess) * lost + np.exp(count * orders * (orders - 1) * shift**2) * eta)


def _far(shift: float, orders: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Excess outside the edges of the plane: two classes, or one count and the bar (docs/proof.md)."""
    count = np.expm1(orders * (orders - 1) * shift**2 / 2)
    return _rare(np.maximum(line, count), orders, shift, 1.0)


def _line(shift: float, orders: np.ndarray) -> np.ndarray:
    """Largest sum of p^order q^(1 - order), less 1, of the laws Phi(t) against Phi(t - shift)."""
    t = np.arange(-_EDGE - (orders[-1] - 1) * shift - 0.125, _EDGE + shift + 0.125, 0.125)
    box = Box(t[:-1], t[1:], np.zeros(t.size - 1), np.zeros(t.size - 1))

    def seen(t: np.ndarray, _: np.ndarray) -> np.ndarray:
        return _tight.screen_divergence(shift, t, orders)

    goal = np.full(orders.size, _ON_LINE)
    found = _halved(
        box, orders, tolerance=goal, least=0.0, corners=lambda box: _line_corners(shift, box), seen=seen
    )
    return np.asarray(np.maximum(found, _rare(np.zeros(orders.size), orders, shift, 0.5)))


def _halved(
    box: Box,
    orders: np.ndarray,
    *,
    tolerance: np.ndarray,
    least: np.ndarray | float,
    corners: Callable[[Box], _Corners],
    seen: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return a bound of the excess over all boxes; boxes far above what was seen are halved."""
    # least: the log of a value that is reached elsewhere
    best = np.zeros(orders.size) + least
    found = np.zeros(orders.size)
    for halving in range(_HALVINGS):
        bounds, by_t = [], []
        for start in range(0, box.t0.size, _PART):
            part = Box(*(side[start : start + _PART] for side in box))
            laws = corners(part)
            bounds.append(_excess(laws, orders))
            by_t.append(laws.by_t)
            middle = seen((part.t0 + part.t1) / 2, (part.u0 + part.u1) / 2)
            best = np.maximum(best, middle.max(axis=0) * (orders - 1))
        bound = np.concatenate(bounds)
        over = (bound > np.expm1(best * (1 + tolerance))).any(axis=1)
        if halving == _HALVINGS - 1 or 2 * over.sum() > _MOST_BOXES:
            over[:] = False  # what is left counts as it is: a valid bound, only larger
        found = np.maximum(found, bound[~over].max(axis=0, initial=0.0))
        if not over.any():
            break
        box = _halves(Box(*(side[over] for side in box)), np.concatenate(by_t)[over])
    return found


def _halves(box: Box, by_t: np.ndarray) -> Box:
    """Both halves of each box, cut across t or across u."""
    t, u = (box.t0 + box.t1) / 2, (box.u0 + box.u1) / 2
    first = Box(box.t0, np.where(by_t, t, box.t1), box.u0, np.where(by_t, box.u1, u))
    second = Box(np.where(by_t, t, box.t0), box.t1, np.where(by_t, box.u0, u), box.u1)
    return Box(*(np.concatenate(sides) for sides in zip(first, second, strict=True)))


def _excess(laws: _Corners, orders: np.ndarray) -> np.ndarray:
    """Bound of sum P^order Q^(1 - order) - 1 over each box; shape (boxes, orders)."""
    share = np.minimum(laws.bend / laws.chance.min(axis=0), 1.0) + _ROUNDING
    mass = np.maximum((1 - share) * laws.chance, 0.0)
    moved = laws.moved * (1 + _ROUNDING) + _ROUNDING * np.abs(laws.difference).max(axis=(0, 2))[:, None]
    steepest = laws.steepest * (1 + _ROUNDING)
    total = np.zeros((*mass.shape[:2], orders.size))
    for outcome in range(mass.shape[2]):
        by_curve = np.zeros_like(total)
        by_ratio = np.zeros_like(total)
        widest = np.abs(laws.difference[..., outcome]) + moved[:, outcome]
        for sign, steep in zip((-1.0, 1.0), steepest[:, outcome].T, strict=True):
            if not steep.any():  # the sign that this outcome never has
                continue
            away = widest * sign if outcome < 2 else laws.difference[..., outcome] + sign * moved[:, outcome]
            np.maximum(by_curve, _term(mass[..., outcome], away, orders), out=by_curve)
            each = _term(np.ones_like(steep), sign * steep, orders) / np.maximum(steep, 1e-300)[:, None]
            np.maximum(by_ratio, widest[..., None] * each, out=by_ratio)
        curved = by_curve.max(axis=0) <= by_ratio.max(axis=0)
        term = np.where(curved, by_curve, by_ratio)
        total += np.minimum(term, laws.first(orders)) if outcome == 0 else term
    return np.asarray(total.max(axis=0))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _term(mass: np.ndarray, difference: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """P f(Q / P) with f(r) = r^(1 - order) - 1 + (order - 1)(r - 1); orders last. Infinite without Q."""
    lam = -np.log1p(difference / mass)[..., None]
    other = (mass + difference)[..., None]
    value = other * (np.expm1(np.minimum(orders * lam, 700.0)) - orders * np.expm1(lam))
    found = np.where((other > 0) & (orders * lam <= 700.0), np.maximum(value, 0.0), np.inf)
    return np.where(difference[..., None] == 0, 0.0, found)


def _plane_corners(shift: float, box: Box) -> _Corners:
    """Laws of three outcomes; ``shift`` is of t."""
    places = [(t, u) for t in (box.t0, box.t1) for u in (box.u0, box.u1)]
    t, u = (np.stack(sides) for sides in zip(*places, strict=True))
    gained, lost = _rise(t, u, shift), _rise(shift - t, u, shift)
    chance = np.stack([wins(t, u), wins(-t, u), none_wins(t, u)], axis=-1)
    difference = np.stack([-gained, lost, gained - lost], axis=-1)
    by_t, by_u = (box.t1 - box.t0) ** 2 / 8, (box.u1 - box.u0) ** 2 / 8
    wide = box._replace(t0=box.t0 - shift)
    bend, moved, longer = [], [], []
    for near, far in ((box, wide), (box.mirrored(), wide.mirrored())):
        two_t, two_u, _, _ = curvature(near)
        _, _, three_t, three_u = curvature(far)
        bend.append(by_t * two_t + by_u * two_u)
        moved.append(shift * (by_t * three_t + by_u * three_u))
        longer.append(by_t * (two_t + three_t) - by_u * (two_u + three_u))
    none = np.zeros(box.t0.size)
    with np.errstate(divide="ignore"):
        ratio = np.abs(difference[..., :2]) / chance[..., :2]
    first, second = np.stack([ratio[0, :, 0], none], axis=-1), np.stack([none, ratio[2, :, 1]], axis=-1)

    def tilted(orders: np.ndarray) -> np.ndarray:
        tilt = (orders - 1) * shift
        wins = log_ndtr(np.minimum(box.t1[:, None] + tilt, ((box.u1 + box.t1)[:, None] + tilt) / _ROOT))
        return np.asarray(np.exp(orders * tilt * (shift / 2) + wins) * (1 + _OUTWARD))

    return _Corners(
        chance=chance,
        difference=difference,
        bend=np.stack([*bend, bend[0] + bend[1]], axis=-1),
        moved=np.stack([*moved, np.minimum(moved[0] + moved[1], third(shift, wide))], axis=-1),
        steepest=np.stack([first, second, _steepest_third(shift, box)], axis=1),
        first=tilted,
        by_t=longer[0] + longer[1] >= 0,
    )


def _rise(t: np.ndarray, u: np.ndarray, shift: float) -> np.ndarray:
    """P1(t, u) - P1(t - shift, u), in steps that are short enough for the quadrature."""
    count = math.ceil(shift / _SHORT)
    return np.asarray(sum(rise(t - step * shift / count, u, shift / count) for step in range(count)))


def _steepest_third(shift: float, box: Box) -> np.ndarray:
    """Largest 1 - Q / P and Q / P - 1 of the third outcome: the ratio is a product of monotone functions."""
    step = shift / _ROOT

    def log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(log_ndtr(step - a) - log_ndtr(-a) + log_ndtr(-b - step) - log_ndtr(-b))

    below = log_ratio((box.u0 + box.t0) / _ROOT, (box.u1 - box.t0) / _ROOT)
    above = log_ratio((box.u1 + box.t1) / _ROOT, (box.u0 - box.t1) / _ROOT)
    guard = _ROUNDING * step * (1 + np.abs(box.t0) + np.abs(box.u0))
    steepest = np.stack([-np.expm1(below - guard), np.expm1(above + guard)], axis=-1)
    return np.asarray(np.maximum(steepest, 1e-300))


def _line_corners(shift: float, box: Box) -> _Corners:
    """Laws of two outcomes: Phi(t) and the rest."""
    low, high = box.t0, box.t1
    t = np.stack([low, high])
    x = t[..., None] - shift / 2 * (1 + _LEGENDRE[0])
    gained = (phi(x) * _LEGENDRE[1]).sum(axis=-1) * shift / 2
    eighth = (high - low) ** 2 / 8
    reach = np.maximum(np.abs(low - shift), np.abs(high))
    near = np.where((low - shift <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low - shift), np.abs(high)))
    bend = eighth * reach * phi(near)
    moved = shift * eighth * np.maximum(np.abs(reach**2 - 1), np.abs(near**2 - 1)) * phi(near)
    none = np.zeros(low.size)
    less = -np.expm1(log_ndtr(low - shift) - log_ndtr(low))
    more = np.expm1(log_ndtr(shift - high) - log_ndtr(-high))

    def tilted(orders: np.ndarray) -> np.ndarray:
        tilt = (orders - 1) * shift
        return np.asarray(
            np.exp(orders * tilt * (shift / 2) + log_ndtr(high[:, None] + tilt)) * (1 + _OUTWARD)
        )

    return _Corners(
        chance=np.stack([ndtr(t), ndtr(-t)], axis=-1),
        difference=np.stack([-gained, gained], axis=-1),
        bend=np.stack([bend, bend], axis=-1),
        moved=np.stack([moved, moved], axis=-1),
        steepest=np.stack([np.stack([less, none], axis=-1), np.stack([none, more], axis=-1)], axis=1),
        first=tilted,
        by_t=np.ones(low.size, dtype=bool),
    )

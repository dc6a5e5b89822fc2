"""Three outcomes of a Gaussian argmax as functions of (t, u), and bounds of their derivatives on rectangles.

Let a = (u + t) / sqrt 2, b = (u - t) / sqrt 2, A = phi(a) Phi(-b), C = phi(t) phi(u). The first outcome has
dP1/dt = phi(t) Phi(u) + A / sqrt 2 and dP1/du = A / sqrt 2; the second is P2(t, u) = P1(-t, u).
docs/composition.md lists the derivatives that follow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

_ROOT = math.sqrt(2.0)
_MANY = np.polynomial.legendre.leggauss(48)
_FEW = np.polynomial.legendre.leggauss(12)


class Box(NamedTuple):
    """Rectangles of the plane; arrays of one shape."""

    t0: np.ndarray
    t1: np.ndarray
    u0: np.ndarray
    u1: np.ndarray

    def mirrored(self) -> Box:
        """The same rectangles seen by the other class."""
        return Box(-self.t1, -self.t0, self.u0, self.u1)


class Bends(NamedTuple):
    """Over rectangles: how far laws may lie from the mean of their corners, for the first two outcomes."""

    chance: list[np.ndarray]  # P
    difference: list[np.ndarray]  # Q - P
    third: np.ndarray  # Q - P of the third outcome
    longer: np.ndarray  # positive where the side along t matters more than that along u


def bends(shift: float, box: Box) -> Bends:
    """Bounds from derivatives of second and third order; Q is P with t less ``shift``."""
    by_t, by_u = (box.t1 - box.t0) ** 2 / 8, (box.u1 - box.u0) ** 2 / 8
    wide = box._replace(t0=box.t0 - shift)
    chance, difference, longer = [], [], np.zeros_like(by_t)
    for near, wide_box in ((box, wide), (box.mirrored(), wide.mirrored())):
        two_t, two_u, _, _ = curvature(near)
        _, _, three_t, three_u = curvature(wide_box)
        chance.append(by_t * two_t + by_u * two_u)
        difference.append(shift * (by_t * three_t + by_u * three_u))
        longer = longer + (by_t * (two_t + three_t) - by_u * (two_u + three_u))
    third_moved = np.minimum(difference[0] + difference[1], _third(shift, wide))
    return Bends(chance, difference, third_moved, longer)


def line_bends(shift: float, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, ...]:
    """For Phi(t) and the rest over intervals: both bends, and the steepest |Q / P - 1| of each outcome."""
    eighth = (high - low) ** 2 / 8
    reach = np.maximum(np.abs(low - shift), np.abs(high))
    near = np.where((low - shift <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low - shift), np.abs(high)))
    bend = eighth * reach * phi(near)
    moved = shift * eighth * _largest(reach, near, 1.0) * phi(near)
    falls = -np.expm1(log_ndtr(low - shift) - log_ndtr(low))
    rises = np.expm1(log_ndtr(shift - high) - log_ndtr(-high))
    return bend, moved, falls, rises


def third_ratio(shift: float, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest log Q / P of the third outcome, a product of two monotone functions."""
    step = shift / _ROOT
    ends = []
    for t, u, farther in ((box.t0, box.u0, box.u1), (box.t1, box.u1, box.u0)):
        a, b = (u + t) / _ROOT, (farther - t) / _ROOT
        ends.append(log_ndtr(step - a) - log_ndtr(-a) + log_ndtr(-b - step) - log_ndtr(-b))
    return ends[0], ends[1]


def wins(t: np.ndarray, u: np.ndarray) -> np.ndarray:
    """P(A > B, A > 0): Gauss-Legendre where the integrand lives."""
    a, b = (u + t) / _ROOT, (u - t) / _ROOT
    peak = np.maximum(a, u / _ROOT)
    start = np.maximum(0.0, peak - 8.5)
    half = (np.maximum(start, peak) + 8.5 - start)[..., None] / 2
    x = start[..., None] + half * (1 + _MANY[0])
    inner = np.exp(-((x - a[..., None]) ** 2) / 2) * ndtr(x - b[..., None])
    return np.asarray((inner * _MANY[1]).sum(axis=-1) * half[..., 0] / math.sqrt(2 * math.pi))


def none_wins(t: np.ndarray, u: np.ndarray) -> np.ndarray:
    """P(A < 0, B < 0)."""
    return np.asarray(ndtr(-(u + t) / _ROOT) * ndtr(-(u - t) / _ROOT))


def rise(t: np.ndarray, u: np.ndarray, shift: float) -> np.ndarray:
    """P1(t, u) - P1(t - shift, u), as an integral of something positive."""
    x = t[..., None] - shift / 2 * (1 + _FEW[0])
    y = u[..., None]
    slope = phi(x) * ndtr(y) + phi((y + x) / _ROOT) * ndtr((x - y) / _ROOT) / _ROOT
    return np.asarray((slope * _FEW[1]).sum(axis=-1) * shift / 2)


def phi(x: np.ndarray) -> np.ndarray:
    """The standard normal density."""
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def curvature(box: Box) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bounds over rectangles of the derivatives of P1 by tt, uu, ttt and uut."""
    half_t, half_u = (box.t1 - box.t0) / 2, (box.u1 - box.u0) / 2
    m, at = _terms(box), _centre(box)
    ttt_t, ttt_u, uut_t, uut_u = _fourth(m)
    three_t = np.minimum(
        m.t2 * m.p + (m.x / _ROOT + m.t * m.c) / 2, abs(at.ttt) + half_t * ttt_t + half_u * ttt_u
    )
    three_u = np.minimum((m.x / _ROOT + m.t * m.c) / 2, abs(at.uut) + half_t * uut_t + half_u * uut_u)
    ttu = m.t * m.c + ((m.a2 * m.alone + m.a * m.c) / _ROOT + m.u * m.c) / 2
    uuu = (m.x / _ROOT + m.u * m.c) / 2
    two_t = np.minimum(m.t * m.p + (m.a * m.alone + m.c) / 2, abs(at.tt) + half_t * three_t + half_u * ttu)
    two_u = np.minimum((m.a * m.alone + m.c) / 2, abs(at.uu) + half_t * three_u + half_u * uuu)
    return two_t, two_u, three_t, three_u


class _Terms(NamedTuple):
    """Largest values over rectangles of what the derivatives of P1 are made of."""

    t: np.ndarray
    u: np.ndarray
    a: np.ndarray
    x: np.ndarray  # |(a^2 - 1) A - a C|, A = phi(a) Phi(-b), C = phi(t) phi(u)
    xt: np.ndarray  # its derivatives
    xu: np.ndarray
    c: np.ndarray
    p: np.ndarray  # phi(t) Phi(u)
    alone: np.ndarray  # A
    t2: np.ndarray  # |t^2 - 1|
    t3: np.ndarray  # |t^3 - 3 t|
    a2: np.ndarray  # |a^2 - 1|


def _terms(box: Box) -> _Terms:
    near_t, t = _bounds(box.t0, box.t1)
    near_u, u = _bounds(box.u0, box.u1)
    near_a, a = _bounds((box.u0 + box.t0) / _ROOT, (box.u1 + box.t1) / _ROOT)
    alone = phi(near_a) * ndtr((box.t1 - box.u0) / _ROOT)
    c = phi(near_t) * phi(near_u)
    a2, a3 = _largest(near_a, a, 1.0), a * _largest(near_a, a, 3.0)
    return _Terms(
        t=t, u=u, a=a, c=c, alone=alone, a2=a2,
        x=a2 * alone + a * c,
        xt=(a3 * alone + _largest(near_a, a, 2.0) * c) / _ROOT + a * t * c,
        xu=(a3 * alone + a * a * c) / _ROOT + a * u * c,
        p=phi(near_t) * ndtr(box.u1),
        t2=_largest(near_t, t, 1.0),
        t3=t * _largest(near_t, t, 3.0),
    )  # fmt: skip


class _Centre(NamedTuple):
    """Derivatives of P1 at the centres of rectangles."""

    tt: np.ndarray
    uu: np.ndarray
    ttt: np.ndarray
    uut: np.ndarray


def _centre(box: Box) -> _Centre:
    t, u = (box.t0 + box.t1) / 2, (box.u0 + box.u1) / 2
    a, b = (u + t) / _ROOT, (u - t) / _ROOT
    alone, c, p = phi(a) * ndtr(-b), phi(t) * phi(u), phi(t) * ndtr(u)
    x = (a * a - 1) * alone - a * c
    return _Centre(
        tt=-t * p + (c - a * alone) / 2,
        uu=-(c + a * alone) / 2,
        ttt=(t * t - 1) * p + (x / _ROOT - t * c) / 2,
        uut=(x / _ROOT + t * c) / 2,
    )


def _fourth(m: _Terms) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bounds of the derivatives of P1 by tttt, tttu, uutt and uutu."""
    return (
        m.t3 * m.p + (m.xt / _ROOT + m.t2 * m.c) / 2,
        m.t2 * m.c + (m.xu / _ROOT + m.t * m.u * m.c) / 2,
        (m.xt / _ROOT + m.t2 * m.c) / 2,
        (m.xu / _ROOT + m.t * m.u * m.c) / 2,
    )


def _third(shift: float, box: Box) -> np.ndarray:
    """Bound of the third outcome's difference less the mean of its values at the corners."""
    half_t, half_u = (box.t1 - box.t0) / 2, (box.u1 - box.u0) / 2
    first_terms, second_terms = _fourth(_terms(box)), _fourth(_terms(box.mirrored()))
    first_centre, second_centre = _centre(box), _centre(box.mirrored())
    ttt_t, ttt_u, uut_t, uut_u = (a + b for a, b in zip(first_terms, second_terms, strict=True))
    ttt = abs(first_centre.ttt - second_centre.ttt) + half_t * ttt_t + half_u * ttt_u
    uut = abs(first_centre.uut - second_centre.uut) + half_t * uut_t + half_u * uut_u
    wide = box.t1 - box.t0 - shift  # the box was widened by the shift
    return np.asarray(shift / 8 * (wide**2 * ttt + (box.u1 - box.u0) ** 2 * uut))


def _bounds(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest absolute value on intervals."""
    near = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    return near, np.maximum(np.abs(low), np.abs(high))


def _largest(near: np.ndarray, farther: np.ndarray, root: float) -> np.ndarray:
    """Largest |x^2 - root| for x between."""
    return np.maximum(np.abs(near**2 - root), np.abs(farther**2 - root))

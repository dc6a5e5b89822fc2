"""Data-independent Rényi costs of an argmax or a screen: suprema over all possible votes.

docs/proof.md shows that moving one ballot between two counts costs at most the largest divergence
between three outcomes (one wins, the other wins, a third class wins) over a plane of two unknowns,
or, where no third class is near, between two outcomes over a line. This module finds these suprema.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from ostraka.mechanisms import _tabulated

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "argmax_divergence",
    "gaussian_argmax",
    "gaussian_screen",
    "laplace_argmax",
    "laplace_rdp",
    "screen_divergence",
]

# Beyond order * shift = 6 the general bound is less than 6 % above the supremum (30 % for Laplace noise), and
# is used instead; also where a shift is so small that logs of probabilities lose it.
_FURTHEST, _SMALLEST = 6.0, 1e-9
_ROUNDING = 1 + 1e-13  # of the general bounds, which are closed forms
# Near its largest value D falls by less than 0.2 r^2 of itself (measured, docs/proof.md). So the best point
# of the coarse grid, within 0.18 of the supremum, is at most 0.7 % below it; of the fine grid, 0.03 %.
# The fine grid is for order * shift <= 2, where the answer is; beyond, the coarse one will do.
_COARSE, _FINE, _FINE_UP_TO = 0.25, 0.05, 2.0
_SLACK, _MARGIN = 0.01, 6e-4
# Laplace densities have a kink: D peaks within a few shifts of the origin and is searched there too; from
# order * shift = 1 on the peak leaves along a crease, and the margin is wider.
_KINK_MARGIN, _CREASE_MARGIN = 4e-3, 2e-2
_LINE = np.linspace(-16.0, 16.0, 3201)
_LEGENDRE = np.polynomial.legendre.leggauss(48)


@lru_cache(maxsize=1024)
@np.errstate(over="ignore")  # what float64 cannot hold is infinite, and a price may be
def gaussian_argmax(shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Cost of one Gaussian noisy argmax at each order; ``shift`` is one vote over sigma. Errs up."""
    order = np.array(orders)
    general = order * (shift * shift)
    known = _tabulated.argmax(shift, orders)
    if known is not None:
        return tuple(np.minimum(general * _ROUNDING, known).tolist())
    line = _Law(_two_classes, math.sqrt(2) * shift, 0.0)
    plane = _Law(_three_outcomes, shift, -shift)
    return _searched(order, shift, general, line, plane)


@lru_cache(maxsize=1024)
@np.errstate(over="ignore")  # what float64 cannot hold is infinite, and a price may be
def laplace_argmax(shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Cost of one Laplace noisy argmax at each order; ``shift`` is one vote over its scale. Errs up."""
    order = np.array(orders)
    line = _Law(_two_laplace_classes, 2 * shift, 0.0)
    plane = _Law(_three_laplace_outcomes, shift, -shift, kinked=True)
    general = np.minimum(2 * shift, 2 * laplace_rdp(shift, order))
    return _searched(order, shift, general, line, plane)


@lru_cache(maxsize=1024)
@np.errstate(over="ignore")  # what float64 cannot hold is infinite, and a price may be
def gaussian_screen(shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Cost of one noisy threshold, with noise on the largest count or on every count (docs/proof.md)."""
    order = np.array(orders)
    general = order * (shift * shift) * 0.5
    known = _tabulated.screen(shift, orders)
    if known is not None:
        return tuple(np.minimum(general * _ROUNDING, known).tolist())
    return _searched(order, shift, general, _Law(_two_classes, shift, 0.0), None)


def argmax_divergence(shift: float, a: np.ndarray, b: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Divergence of a Gaussian argmax where two counts lie ``a`` and ``b`` above the bar; orders last."""
    return _divergences(_Law(_three_outcomes, shift, -shift), a, b, orders)


def screen_divergence(shift: float, t: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Divergence of a screen whose count lies ``t`` above the bar; orders last."""
    return _divergences(_Law(_two_classes, shift, 0.0), t, t, orders)


@np.errstate(over="ignore", invalid="ignore")
def laplace_rdp(shift: float, orders: np.ndarray) -> np.ndarray:
    """Rényi divergence of one count with Laplace noise (Mironov 2017, arXiv:1702.07476, Prop. 6)."""
    a = np.minimum(orders, 1e300)
    up, down = np.log(a / (2 * a - 1)) + (a - 1) * shift, np.log((a - 1) / (2 * a - 1)) - a * shift
    # the terms linear in the shift cancel: left out
    curved = a * _beyond_linear((a - 1) * shift) + (a - 1) * _beyond_linear(-a * shift)
    moment = np.where((a - 1) * shift < 1, np.log1p(curved / (2 * a - 1)), np.logaddexp(up, down))
    return np.where(np.isinf(orders), shift, moment / (a - 1))


def _beyond_linear(x: np.ndarray) -> np.ndarray:
    """Compute e^x - 1 - x to full relative precision."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    return np.asarray(np.where(np.abs(x) < 0.01, series, np.expm1(x) - x))


class _Law(NamedTuple):
    """Log probabilities of the outcomes at (a, b), and how far one ballot moves a and b."""

    at: Callable[[np.ndarray, np.ndarray], np.ndarray]
    da: float
    db: float
    kinked: bool = False


def _searched(
    orders: np.ndarray, shift: float, general: np.ndarray, line: _Law, plane: _Law | None
) -> tuple[float, ...]:
    """Search for the supremum at each order; the result never exceeds the general bound."""
    general = general * _ROUNDING
    bound = general.copy()
    where = (orders * shift <= _FURTHEST) & (shift >= _SMALLEST)
    if where.any():
        found = _divergences(line, _LINE, _LINE, orders[where]).max(axis=0)
        if plane is not None:
            found = np.maximum(found, _over_plane(plane, orders[where]))
        margin: float | np.ndarray = _MARGIN
        if plane is not None and plane.kinked:
            margin = np.where(orders[where] * plane.da <= 1.0, _KINK_MARGIN, _CREASE_MARGIN)
        bound[where] = np.minimum(general[where], found * (1 + margin))
    return tuple(bound.tolist())


def _over_plane(law: _Law, orders: np.ndarray) -> np.ndarray:
    """Return the largest value on a coarse grid, refined wherever a larger value is possible."""
    side = np.arange(-5.0, 10.0, _COARSE)
    a, b = (axis.ravel() for axis in np.meshgrid(side, side, indexing="ij"))
    coarse = _divergences(law, a, b, orders)
    found = coarse.max(axis=0) * (1 + _SLACK)
    fine = orders * abs(law.da) <= _FINE_UP_TO
    if fine.any():
        near = (coarse[:, fine] * (1 + _SLACK) >= coarse[:, fine].max(axis=0)).any(axis=1)
        steps = np.arange(-3, 4) * _FINE
        points = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(1, -1, 2)
        points = np.stack([a[near], b[near]], axis=1)[:, None, :] + points
        a, b = (np.unique(np.rint(points.reshape(-1, 2) / _FINE), axis=0) * _FINE).T
        if law.kinked:
            side = np.arange(-2.0, 3.0, 0.1) * law.da
            x, y = (axis.ravel() for axis in np.meshgrid(side, side))
            a, b = np.append(a, x), np.append(b, y)
        found[fine] = _divergences(law, a, b, orders[fine]).max(axis=0)
    return np.asarray(found)


def _divergences(law: _Law, a: np.ndarray, b: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D_order(law at (a, b) || law one ballot away), shape (points, orders); no term is negative."""
    log_q = law.at(a - law.da, b - law.db)
    lam = law.at(a, b) - log_q
    q = np.exp(log_q)[:, :, None]
    lam = lam[:, :, None]
    excess = q * (np.expm1(np.minimum(orders * lam, 700.0)) - orders * np.expm1(lam))
    return np.asarray(np.log1p(np.maximum(excess, 0.0).sum(axis=1)) / (orders - 1))


def _two_classes(a: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.stack([log_ndtr(a), log_ndtr(-a)], axis=1)


def _three_outcomes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log P(A > B, A > 0), P(B > A, B > 0), P(A < 0, B < 0) for A ~ N(a, 1), B ~ N(b, 1)."""
    return np.stack([_wins(a, b), _wins(b, a), log_ndtr(-a) + log_ndtr(-b)], axis=1)


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log of the integral of phi(x - a) Phi(x - b) over x > 0, by Gauss-Legendre on its effective support."""
    peak = np.maximum(a, (a + b) / 2)
    start = np.maximum(0.0, peak - 8.5)
    end = np.maximum(start, peak) + 8.5
    half = (end - start)[:, None] / 2
    x = start[:, None] + half * (1 + _LEGENDRE[0])
    inner = -((x - a[:, None]) ** 2) / 2 + log_ndtr(x - b[:, None])
    top = inner.max(axis=1, keepdims=True)
    area = (np.exp(inner - top) * _LEGENDRE[1]).sum(axis=1) * half[:, 0]
    return np.asarray(np.log(area) + top[:, 0] - 0.5 * math.log(2 * math.pi))


def _two_laplace_classes(a: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Log P(A > B) and P(B > A) for two Laplace variables whose centres lie ``a`` apart."""
    tail = np.log((2 + np.abs(a)) / 4) - np.abs(a)
    rest = np.log1p(-np.exp(tail))
    return np.where((a > 0)[:, None], np.stack([rest, tail], axis=1), np.stack([tail, rest], axis=1))


def _three_laplace_outcomes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The three outcomes for Laplace noise of scale 1 around a and b."""
    return np.stack([_laplace_wins(a, b), _laplace_wins(b, a), _log_laplace(-a) + _log_laplace(-b)], axis=1)


def _laplace_wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log P(A > B, A > 0): between the kinks at 0, a and b the integrand is smooth."""
    kinks = np.sort(np.maximum(np.stack([np.zeros_like(a), a, b], axis=1), 0.0), axis=1)
    starts = kinks
    ends = np.concatenate([kinks[:, 1:], kinks[:, -1:] + 36.0], axis=1)
    half = (ends - starts)[:, :, None] / 2
    x = starts[:, :, None] + half * (1 + _LEGENDRE[0])
    density = -np.abs(x - a[:, None, None]) - math.log(2) + _log_laplace(x - b[:, None, None])
    return np.asarray(np.log((np.exp(density) * _LEGENDRE[1] * half).sum(axis=(1, 2))))


def _log_laplace(x: np.ndarray) -> np.ndarray:
    """Log of the standard Laplace distribution function."""
    return np.where(x < 0, x - math.log(2), np.log1p(-0.5 * np.exp(-np.maximum(x, 0.0))))

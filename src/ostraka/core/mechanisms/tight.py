"""Data-independent Rényi costs of an argmax or a screen: suprema over all possible votes.

docs/proof.md shows that moving one ballot between two counts costs at most the largest divergence
between three outcomes (one wins, the other wins, a third class wins) over a plane of two unknowns,
or, where no third class is near, between two outcomes over a line.

*Certified suprema.* The laws P(t, u) against P(t - d, u) of docs/composition.md fill a plane; two classes, or
a screen, a line. Over a rectangle the divergence is at most a number made from its corners and from bounds of
derivatives. A rectangle whose number is too far above the largest divergence reached is halved.

*Tables* hold certified prices. Prices are convex in the shift, so chords bound them.
``python -m ostraka.core.mechanisms.tight`` writes both tables anew, which takes about a quarter of an hour.

*A search* serves beyond the tables, and for Laplace noise.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from ostraka.core.curve import ORDERS
from ostraka.core.laws import stored
from ostraka.core.laws.curvature import Box, bends, line_bends, none_wins, phi, rise, third_ratio, wins

if TYPE_CHECKING:
    from collections.abc import Callable

_ORDERS = np.array(ORDERS[:-1])
FURTHEST = 6.0  # order * shift; beyond, the general bound counts

# of tables
_PER_OCTAVE = 12
_LOWEST = -280  # the first shift is 2 to the power of this / 12, one vote at sigma of about 10,000,000
_COLUMNS = {"argmax": 281, "screen": 311}  # up to shifts of 1 and of 5.66
_DIGESTS = {
    "argmax": "f83c8fdafe8f65997479703f1784362302724736e531abec2ef30de58e8929ba",
    "screen": "0520c361cad813cb7bcd47218123a213ae3764a35fd751ab1e1154614a7dfe67",
}
_FULL = 65_535  # a share of 1 of the general bound
_TABLE_ROUNDING = 1 + 1e-12

# of the search. Beyond order * shift = 6 the general bound is less than 6 % above the supremum (30 % for
# Laplace noise), and is used instead; also where a shift is so small that logs of probabilities lose it.
_SMALLEST = 1e-9
_GENERAL_ROUNDING = 1 + 1e-13  # of the general bounds, which are closed forms
# Near its largest value D falls by less than 0.2 r^2 of itself (measured, docs/proof.md). So the best point
# of the coarse grid, within 0.18 of the supremum, is at most 0.7 % below it; of the fine grid, 0.03 %.
# The fine grid is for order * shift <= 2, where the answer is; beyond, the coarse one will do.
_COARSE, _FINE, _FINE_UP_TO = 0.25, 0.05, 2.0
_SLACK, _MARGIN = 0.01, 6e-4
# Laplace densities have a kink: D peaks within a few shifts of the origin and is searched there too; from
# order * shift = 1 on the peak leaves along a crease, and the margin is wider.
_KINK_MARGIN, _CREASE_MARGIN = 4e-3, 2e-2
_LINE = np.linspace(-16.0, 16.0, 3201)

# of certified suprema
_LEGENDRE = np.polynomial.legendre.leggauss(48)
_CACHED = 128  # points at a time, whose nodes stay in the cache of the processor
_EDGE = 8.5  # what lies beyond is bounded by formulas
_RECTANGLE_ROUNDING = 1e-13  # relative: ten times what probabilities and differences err
_OUTWARD = 1e-8  # relative: what the sums of a divergence err
# How far above the largest value reached: of a line; of a plane, up to order * shift = 2 of the column
# before, and beyond.
_ON_LINE, _SUPREMA_FINE, _ROUGH, _SUPREMA_FINE_UP_TO = 5e-5, 4e-4, 4e-3, 2.12
_GROUPS = (0.0, 0.2, 0.6, 1.0, 1.5, 2.0, 3.0, 4.5, 1e300)  # orders whose worst votes lie close to each other
_HALVINGS, _MOST_BOXES, _PART = 26, 400_000, 2_048
_SHORT = 0.45
_ROOT = math.sqrt(2.0)


@lru_cache(maxsize=1024)
@np.errstate(over="ignore")  # what float64 cannot hold is infinite, and a price may be
def gaussian_argmax(shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Cost of one Gaussian noisy argmax at each order; ``shift`` is one vote over sigma. Errs up."""
    order = np.array(orders)
    general = order * (shift * shift)
    certified = argmax(shift, orders)
    if certified is not None:
        return tuple(np.minimum(general * _GENERAL_ROUNDING, certified).tolist())
    line = _Law(_two_classes, math.sqrt(2) * shift, 0.0)
    plane = _Law(_three_outcomes, shift, -shift)
    return _searched(order, shift, general, line, plane)


@lru_cache(maxsize=1024)
@np.errstate(over="ignore")  # what float64 cannot hold is infinite, and a price may be
def gaussian_screen(shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Cost of one noisy threshold, with noise on the largest count or on every count (docs/proof.md)."""
    order = np.array(orders)
    general = order * (shift * shift) * 0.5
    certified = screen(shift, orders)
    if certified is not None:
        return tuple(np.minimum(general * _GENERAL_ROUNDING, certified).tolist())
    return _searched(order, shift, general, _Law(_two_classes, shift, 0.0), None)


@lru_cache(maxsize=1024)
@np.errstate(over="ignore")  # what float64 cannot hold is infinite, and a price may be
def laplace_argmax(shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Cost of one Laplace noisy argmax at each order; ``shift`` is one vote over its scale. Errs up."""
    order = np.array(orders)
    line = _Law(_two_laplace_classes, 2 * shift, 0.0)
    plane = _Law(_three_laplace_outcomes, shift, -shift, kinked=True)
    general = np.minimum(2 * shift, 2 * laplace_rdp(shift, order))
    return _searched(order, shift, general, line, plane)


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


def node(column: int) -> float:
    """The shift of a column of the tables."""
    return float(2.0 ** ((_LOWEST + column) / _PER_OCTAVE))


def argmax(shift: float, orders: tuple[float, ...]) -> np.ndarray | None:
    """Upper bound of the price of a Gaussian argmax at each order, or None outside the table."""
    return _chord("argmax", shift, orders, 1.0)


def screen(shift: float, orders: tuple[float, ...]) -> np.ndarray | None:
    """Upper bound of the price of a Gaussian screen at each order, or None outside the table."""
    return _chord("screen", shift, orders, 0.5)


def _chord(kind: str, shift: float, orders: tuple[float, ...], count: float) -> np.ndarray | None:
    if orders != ORDERS or not node(0) <= shift <= node(_COLUMNS[kind] - 1):
        return None
    shares = _shares(kind)
    if shares is None:
        return None
    columns = range(_COLUMNS[kind])
    right = min(bisect_right(columns, shift, key=node), len(columns) - 1)
    low, high = node(right - 1), node(right)
    part = (shift - low) / (high - low)
    chord = (1 - part) * low**2 * shares[right - 1] + part * high**2 * shares[right]
    price = np.append(_ORDERS * (count * _TABLE_ROUNDING) * chord, np.inf)
    price[np.array(ORDERS) * shift > FURTHEST] = np.inf
    return np.asarray(price)


@lru_cache(maxsize=2)
def _shares(kind: str) -> np.ndarray | None:
    """Shares of the general bound, shape (shifts, orders); None if the file is not as it was written."""
    numbers = stored.read(_path(kind), _DIGESTS[kind])
    return None if numbers is None else numbers.reshape(_COLUMNS[kind], _ORDERS.size) / _FULL


def _path(kind: str) -> Path:
    return Path(__file__).with_name(f"{kind}_prices.bin")


def tabulate(kind: str, column: int) -> np.ndarray:
    """One column of a table: certified shares of the general bound, rounded up, at every finite order."""
    shift = node(column)
    supremum, count = {"argmax": (argmax_supremum, 1.0), "screen": (screen_supremum, 0.5)}[kind]
    near = shift * 2 ** (-1 / _PER_OCTAVE) * _ORDERS <= FURTHEST  # the column before must not need more
    share = np.ones(_ORDERS.size)
    if near.any():
        share[near] = supremum(shift, _ORDERS[near]) / (count * _ORDERS[near] * shift**2)
    return np.minimum(np.ceil(share * (_FULL * _TABLE_ROUNDING)), _FULL).astype("<u2")


def argmax_divergence(shift: float, a: np.ndarray, b: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Divergence of a Gaussian argmax where two counts lie ``a`` and ``b`` above the bar; orders last."""
    return _divergences(_Law(_three_outcomes, shift, -shift), a, b, orders)


def screen_divergence(shift: float, t: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Divergence of a screen whose count lies ``t`` above the bar; orders last."""
    return _divergences(_Law(_two_classes, shift, 0.0), t, t, orders)


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
    general = general * _GENERAL_ROUNDING
    bound = general.copy()
    where = (orders * shift <= FURTHEST) & (shift >= _SMALLEST)
    if where.any():
        largest = _divergences(line, _LINE, _LINE, orders[where]).max(axis=0)
        margin: float | np.ndarray = _MARGIN
        if plane is not None:
            largest = np.maximum(largest, _over_plane(plane, orders[where]))
            if plane.kinked:
                margin = np.where(orders[where] * plane.da <= 1.0, _KINK_MARGIN, _CREASE_MARGIN)
        bound[where] = np.minimum(general[where], largest * (1 + margin))
    return tuple(bound.tolist())


def _over_plane(law: _Law, orders: np.ndarray) -> np.ndarray:
    """Return the largest value on a coarse grid, refined wherever a larger value is possible."""
    side = np.arange(-5.0, 10.0, _COARSE)
    a, b = (axis.ravel() for axis in np.meshgrid(side, side, indexing="ij"))
    coarse = _divergences(law, a, b, orders)
    largest = coarse.max(axis=0) * (1 + _SLACK)
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
        largest[fine] = _divergences(law, a, b, orders[fine]).max(axis=0)
    return np.asarray(largest)


def _divergences(law: _Law, a: np.ndarray, b: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D_order(law at (a, b) || law one ballot away), shape (points, orders); no term is negative."""
    values = np.empty((len(a), orders.size))
    for start in range(0, len(a), _CACHED):
        part = slice(start, start + _CACHED)
        log_q = law.at(a[part] - law.da, b[part] - law.db)
        lam = law.at(a[part], b[part]) - log_q
        q = np.exp(log_q)[:, :, None]
        lam = lam[:, :, None]
        excess = q * (np.expm1(np.minimum(orders * lam, 700.0)) - orders * np.expm1(lam))
        values[part] = np.log1p(np.maximum(excess, 0.0).sum(axis=1)) / (orders - 1)
    return values


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
    complement = np.log1p(-np.exp(tail))
    return np.where(
        (a > 0)[:, None], np.stack([complement, tail], axis=1), np.stack([tail, complement], axis=1)
    )


def _three_laplace_outcomes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log P(A > B, A > 0), P(B > A, B > 0), P(A < 0, B < 0): smooth between the kinks at 0, a and b."""
    starts = np.sort(np.maximum(np.stack([np.zeros_like(a), a, b], axis=1), 0.0), axis=1)
    ends = np.concatenate([starts[:, 1:], starts[:, -1:] + 36.0], axis=1)
    half = (ends - starts)[:, :, None] / 2
    x = starts[:, :, None] + half * (1 + _LEGENDRE[0])
    from_a, from_b = x - a[:, None, None], x - b[:, None, None]
    wins = [
        np.exp(-np.abs(own) - math.log(2) + _log_laplace(other)) * _LEGENDRE[1] * half
        for own, other in ((from_a, from_b), (from_b, from_a))
    ]
    none = _log_laplace(-a) + _log_laplace(-b)
    return np.stack([*(np.log(area.sum(axis=(1, 2))) for area in wins), none], axis=1)


def _log_laplace(x: np.ndarray) -> np.ndarray:
    """Log of the standard Laplace distribution function."""
    return np.where(x < 0, x - math.log(2), np.log1p(-0.5 * np.exp(-np.maximum(x, 0.0))))


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
    prices = np.empty(orders.size)
    for places in _grouped(shift, orders):
        group = orders[places]
        tilt = (group[-1] - 1) * shift
        step = 0.5
        t = np.arange(-_EDGE - _ROOT * tilt - step, _EDGE + moved + step, step)
        u = np.arange(_EDGE, -_ROOT * _EDGE - tilt - step, -step)[::-1]
        t0, u0 = (axis.ravel() for axis in np.meshgrid(t[:-1], u[:-1], indexing="ij"))
        box = Box(t0, t0 + step, u0, u0 + step)
        outside = (box.u1 + box.t1 <= -_ROOT * (_EDGE + tilt)) | (box.u1 - box.t0 <= -_ROOT * _EDGE)
        box = Box(*(side[~outside] for side in box))

        def seen(t: np.ndarray, u: np.ndarray, group: np.ndarray = group) -> np.ndarray:
            return argmax_divergence(shift, (u + t) / _ROOT, (u - t) / _ROOT, group)

        line = _line(moved, group)
        goal = np.where(group * shift <= _SUPREMA_FINE_UP_TO, _SUPREMA_FINE, _ROUGH)
        plane = _halved(
            box,
            group,
            tolerance=goal,
            least=np.log1p(line),
            corners=lambda box: _plane_corners(moved, box),
            reached=seen,
        )
        prices[places] = _renyi(np.maximum(plane, _far(shift, group, line)), group)
    return prices


def screen_supremum(shift: float, orders: np.ndarray) -> np.ndarray:
    """Upper bound of the tight Rényi price of a screen with one Gaussian noise; ``shift`` is 1 / sigma."""
    prices = np.empty(orders.size)
    for places in _grouped(shift, orders):
        prices[places] = _renyi(_line(shift, orders[places]), orders[places])
    return prices


def _renyi(excess: np.ndarray, orders: np.ndarray) -> np.ndarray:
    return np.asarray(np.log1p(excess) / (orders - 1) * (1 + _OUTWARD))


def _grouped(shift: float, orders: np.ndarray) -> list[np.ndarray]:
    place = np.searchsorted(_GROUPS, orders * shift)
    return [np.flatnonzero(place == group) for group in np.unique(place)]


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
        return screen_divergence(shift, t, orders)

    goal = np.full(orders.size, _ON_LINE)
    excess = _halved(
        box, orders, tolerance=goal, least=0.0, corners=lambda box: _line_corners(shift, box), reached=seen
    )
    return np.asarray(np.maximum(excess, _rare(np.zeros(orders.size), orders, shift, 0.5)))


def _halved(
    box: Box,
    orders: np.ndarray,
    *,
    tolerance: np.ndarray,
    least: np.ndarray | float,
    corners: Callable[[Box], _Corners],
    reached: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return a bound of the excess over all boxes; boxes far above what was seen are halved."""
    # least: the log of a value that is reached elsewhere
    best = np.zeros(orders.size) + least
    excess = np.zeros(orders.size)
    for halving in range(_HALVINGS):
        bounds, by_t = [], []
        for start in range(0, box.t0.size, _PART):
            part = Box(*(side[start : start + _PART] for side in box))
            laws = corners(part)
            bounds.append(_excess(laws, orders))
            by_t.append(laws.by_t)
            middle = reached((part.t0 + part.t1) / 2, (part.u0 + part.u1) / 2)
            best = np.maximum(best, middle.max(axis=0) * (orders - 1))
        bound = np.concatenate(bounds)
        over = (bound > np.expm1(best * (1 + tolerance))).any(axis=1)
        if halving == _HALVINGS - 1 or 2 * over.sum() > _MOST_BOXES:
            over[:] = False  # what is left counts as it is: a valid bound, only larger
        excess = np.maximum(excess, bound[~over].max(axis=0, initial=0.0))
        if not over.any():
            break
        # both halves of each box, cut across t or across u
        box, along_t = Box(*(side[over] for side in box)), np.concatenate(by_t)[over]
        t, u = (box.t0 + box.t1) / 2, (box.u0 + box.u1) / 2
        first = Box(box.t0, np.where(along_t, t, box.t1), box.u0, np.where(along_t, box.u1, u))
        second = Box(np.where(along_t, t, box.t0), box.t1, np.where(along_t, box.u0, u), box.u1)
        box = Box(*(np.concatenate(sides) for sides in zip(first, second, strict=True)))
    return excess


def _excess(laws: _Corners, orders: np.ndarray) -> np.ndarray:
    """Bound of sum P^order Q^(1 - order) - 1 over each box; shape (boxes, orders)."""
    share = np.minimum(laws.bend / laws.chance.min(axis=0), 1.0) + _RECTANGLE_ROUNDING
    mass = np.maximum((1 - share) * laws.chance, 0.0)
    moved = (
        laws.moved * (1 + _RECTANGLE_ROUNDING)
        + _RECTANGLE_ROUNDING * np.abs(laws.difference).max(axis=(0, 2))[:, None]
    )
    steepest = laws.steepest * (1 + _RECTANGLE_ROUNDING)
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
            slope = _term(np.ones_like(steep), sign * steep, orders) / np.maximum(steep, 1e-300)[:, None]
            np.maximum(by_ratio, widest[..., None] * slope, out=by_ratio)
        curved = by_curve.max(axis=0) <= by_ratio.max(axis=0)
        term = np.where(curved, by_curve, by_ratio)
        total += np.minimum(term, laws.first(orders)) if outcome == 0 else term
    return np.asarray(total.max(axis=0))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _term(mass: np.ndarray, difference: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """P f(Q / P) with f(r) = r^(1 - order) - 1 + (order - 1)(r - 1); orders last. Infinite without Q."""
    lam = -np.log1p(difference / mass)[..., None]
    mass_q = (mass + difference)[..., None]
    value = mass_q * (np.expm1(np.minimum(orders * lam, 700.0)) - orders * np.expm1(lam))
    term = np.where((mass_q > 0) & (orders * lam <= 700.0), np.maximum(value, 0.0), np.inf)
    return np.where(difference[..., None] == 0, 0.0, term)


def _plane_corners(shift: float, box: Box) -> _Corners:
    """Laws of three outcomes; ``shift`` is of t."""
    places = [(t, u) for t in (box.t0, box.t1) for u in (box.u0, box.u1)]
    t, u = (np.stack(sides) for sides in zip(*places, strict=True))
    gained, lost = _rise(t, u, shift), _rise(shift - t, u, shift)
    chance = np.stack([wins(t, u), wins(-t, u), none_wins(t, u)], axis=-1)
    difference = np.stack([-gained, lost, gained - lost], axis=-1)
    bend, moved, third_moved, longer = bends(shift, box)
    none = np.zeros(box.t0.size)
    with np.errstate(divide="ignore"):
        ratio = np.abs(difference[..., :2]) / chance[..., :2]
    first, second = np.stack([ratio[0, :, 0], none], axis=-1), np.stack([none, ratio[2, :, 1]], axis=-1)

    def tilted(orders: np.ndarray) -> np.ndarray:
        tilt = (orders - 1) * shift
        wins = log_ndtr(np.minimum(box.t1[:, None] + tilt, ((box.u1 + box.t1)[:, None] + tilt) / _ROOT))
        return np.asarray(np.exp(orders * tilt * (shift / 2) + wins) * (1 + _OUTWARD))

    # Largest 1 - Q / P and Q / P - 1 of the third outcome: the ratio is a product of monotone functions.
    below, above = third_ratio(shift, box)
    guard = _RECTANGLE_ROUNDING * (shift / _ROOT) * (1 + np.abs(box.t0) + np.abs(box.u0))
    steepest = np.stack([-np.expm1(below - guard), np.expm1(above + guard)], axis=-1)
    return _Corners(
        chance=chance,
        difference=difference,
        bend=np.stack([*bend, bend[0] + bend[1]], axis=-1),
        moved=np.stack([*moved, third_moved], axis=-1),
        steepest=np.stack([first, second, np.asarray(np.maximum(steepest, 1e-300))], axis=1),
        first=tilted,
        by_t=longer >= 0,
    )


def _rise(t: np.ndarray, u: np.ndarray, shift: float) -> np.ndarray:
    """P1(t, u) - P1(t - shift, u), in steps that are short enough for the quadrature."""
    count = math.ceil(shift / _SHORT)
    return np.asarray(sum(rise(t - step * shift / count, u, shift / count) for step in range(count)))


def _line_corners(shift: float, box: Box) -> _Corners:
    """Laws of two outcomes: Phi(t) and the rest."""
    low, high = box.t0, box.t1
    t = np.stack([low, high])
    x = t[..., None] - shift / 2 * (1 + _LEGENDRE[0])
    gained = (phi(x) * _LEGENDRE[1]).sum(axis=-1) * shift / 2
    bend, moved, falls, rises = line_bends(shift, low, high)
    none = np.zeros(low.size)

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
        steepest=np.stack([np.stack([falls, none], axis=-1), np.stack([none, rises], axis=-1)], axis=1),
        first=tilted,
        by_t=np.ones(low.size, dtype=bool),
    )


if __name__ == "__main__":
    for table_kind, columns in _COLUMNS.items():
        stored.write(_path(table_kind), np.stack([tabulate(table_kind, column) for column in range(columns)]))

"""The one search for nearest rows, also under small changes of images; no other row changes its result.

Small changes leave the class of an image as it is: shifts, rotations, scalings, shears.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import scipy.sparse

_CELLS = 2**17  # distances held at a time, or those of _LEAST_ROWS rows
_LEAST_ROWS = 64
_NUMBERS = 2**16  # of pairs of rows at a time
_MODERATE = 1e30  # a squared length that single precision can add to others
_TINY = 2.0**-100  # a product that underflows changes a sum by less than this
# Sizes: a fraction of the image's side, an angle in radians, factors, and a shear.
_SHIFT, _ANGLE, _FACTORS, _SHEAR = 0.0875, 0.17, (1.12, 0.9), 0.15
INVARIANCES = ("shift", "rotate", "scale", "shear")


def nearest(
    rows: np.ndarray,
    versions: Sequence[np.ndarray],
    k: int = 1,
    *,
    starts: np.ndarray | None = None,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> np.ndarray:
    """The places of the ``k`` nearest points of each row, nearest first: int64, (n_rows, k).

    Parameters
    ----------
    rows : float32 array, or float64 array of numbers below 1e100; shape (n_rows, n_columns)
        Either these or the points are private.
    versions : sequence of arrays, shape (n_points, n_columns)
        The points, and every small change of them: a distance is the least over the versions.
    k : int >= 1
        No more than there are points, or groups of points, are returned.
    starts : int array, optional
        The first point of each group: of each of the ``k`` nearest groups, its nearest point is returned.
    on_progress : callable(done, total)

    Guarantees
    ----------
    The order of two points is that of :func:`squared_distances`, and then of their places: a function of the
    row and of the points, bit for bit, whatever other rows there are. A matrix product, whose last bits
    depend on the number of rows and on the library, only selects candidates, with a margin. In any order of
    summation a product of n columns errs by n u |row| |point| at most, where u is the unit roundoff
    (Higham 2002, equation 3.5); the margin is more than twice the errors of the product and of the sums.
    """
    k = min(k, len(versions[0] if starts is None else starts))
    places = np.empty((len(rows), k), dtype=np.int64)
    if not rows.size:
        places[:] = 0
        return places
    points = [version.astype(rows.dtype, copy=False) for version in versions]
    with np.errstate(over="ignore"):
        lengths, squares = _squares(rows), np.maximum.reduce([_squares(version) for version in points])
    if rows.dtype == np.float32 and not max(lengths.max(), squares.max()) < _MODERATE:
        return nearest(rows.astype(np.float64), points, k, starts=starts, on_progress=on_progress)
    # products and sums of small whole numbers have no error in any order: no margin, and no second sum. Rows
    # decide whether it is so; the result is the same
    largest = max(lengths.max(), squares.max())
    whole = largest < 2.0 ** (np.finfo(rows.dtype).nmant - 1) and all(map(_is_whole, [rows, *points]))
    share, tiny = (0.0, 0.0) if whole else (2 * (rows.shape[1] + 8) * np.finfo(rows.dtype).epsneg, _TINY)
    margins = (share * squares).astype(rows.dtype)
    lengths = (2 * (share * lengths + rows.shape[1] * tiny)).astype(rows.dtype)
    least_halves = [(_squares(version) / 2 - margins).astype(rows.dtype) for version in points]
    n_points = len(margins)
    step = max(_LEAST_ROWS, _CELLS // n_points)
    for begin in range(0, len(rows), step):
        block = slice(begin, min(begin + step, len(rows)))
        part = rows[block]
        least = _distances(part, points[0], least_halves[0])
        for version, halves in zip(points[1:], least_halves[1:], strict=True):
            np.minimum(least, _distances(part, version, halves), out=least)
        if k == 1:
            lines, best = np.arange(len(part)), least.argmin(axis=1)
            reach = least[lines, best] + 2 * margins[best]
        else:
            bounds = least + 2 * margins
            bounds = bounds if starts is None else np.minimum.reduceat(bounds, starts, axis=1)
            reach = np.partition(bounds, k - 1, axis=1)[:, k - 1]
        candidates = ~(least > (reach + lengths[block])[:, None])  # written so that NaN is kept
        if k == 1:  # a row with one candidate has its nearest point
            places[block, 0] = best
            candidates[lines, best] = False
            unsure = np.unique(np.flatnonzero(candidates) // n_points)
            candidates[unsure, best[unsure]] = True
            part, candidates, least = part[unsure], candidates[unsure], least[unsure]
        row, point = np.nonzero(candidates)
        if whole:
            exact = least[row, point]
        else:
            exact = np.minimum.reduce([squared_distances(part, version, row, point) for version in points])
        order = np.lexsort((point, exact, row))
        if starts is not None:  # the nearest point of each group
            group = row * len(starts) + np.searchsorted(starts, point, side="right") - 1
            order = order[np.sort(np.unique(group[order], return_index=True)[1])]
        row = row[order]
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        places[block][unsure if k == 1 else slice(None)] = point[order][rank < k].reshape(-1, k)
        on_progress(block.stop, len(rows))
    return places


def squared_distances(rows: np.ndarray, points: np.ndarray, row: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Squared distances of pairs of a row and a point, float64; each is summed alone, in one order."""
    total = np.empty(len(row))
    step = max(1, _NUMBERS // max(1, rows.shape[1]))
    for begin in range(0, len(row), step):
        block = slice(begin, begin + step)
        apart = rows[row[block]].astype(np.float64)
        apart -= points[point[block]]
        np.square(apart, out=apart)
        np.add.reduce(apart, axis=1, out=total[block])  # along contiguous lines: its order is that of columns
    return total


def _distances(rows: np.ndarray, points: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """Half of each squared distance, less half of the row's square and a margin, with rounding errors."""
    product = rows @ points.T
    return np.asarray(np.subtract(halves, product, out=product))


def _is_whole(rows: np.ndarray) -> bool:
    return bool((rows == np.rint(rows)).all())


def _squares(rows: np.ndarray) -> np.ndarray:
    """Squared lengths; only margins depend on their last bits."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def transforms(shape: tuple[int, int], invariances: Sequence[str]) -> list[scipy.sparse.csr_array]:
    """Matrices which change flattened images (``X @ matrix``); the first one leaves them as they are."""
    for name in invariances:
        check.one_of(invariance=name, allowed=INVARIANCES)
    identity = np.eye(2)
    matrices = [_warp(shape, identity, (0.0, 0.0))]
    if "shift" in invariances:
        down, right = (_SHIFT * side for side in shape)
        matrices += [
            _warp(shape, identity, move) for move in ((0, right), (0, -right), (down, 0), (-down, 0))
        ]
    if "rotate" in invariances:
        cosine, sine = math.cos(_ANGLE), math.sin(_ANGLE)
        matrices += [
            _warp(shape, np.array([[cosine, -sign * sine], [sign * sine, cosine]]), (0, 0))
            for sign in (1, -1)
        ]
    if "scale" in invariances:
        matrices += [_warp(shape, identity / factor, (0, 0)) for factor in _FACTORS]
    if "shear" in invariances:
        matrices += [_warp(shape, np.array([[1, sign * _SHEAR], [0, 1]]), (0, 0)) for sign in (1, -1)]
    return matrices


def augmented(rows: np.ndarray, changes: Sequence[scipy.sparse.csr_array]) -> np.ndarray:
    """All rows under each change in turn, shape (n_changes * n_rows, n_pixels)."""
    return np.concatenate([np.asarray(rows @ change) for change in changes])


def _warp(shape: tuple[int, int], linear: np.ndarray, move: tuple[float, float]) -> scipy.sparse.csr_array:
    """Bilinear interpolation about the image's middle; what comes from outside is 0."""
    from scipy.sparse import csr_array

    height, width = shape
    place = np.indices(shape).reshape(2, -1)
    middle = np.array([[(height - 1) / 2], [(width - 1) / 2]])
    source = linear @ (place - middle - np.array(move)[:, None]) + middle
    low = np.floor(source).astype(int)
    part = source - low
    pixels = np.arange(height * width)
    entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for down in (0, 1):
        for right in (0, 1):
            y, x = low[0] + down, low[1] + right
            weight = (part[0] if down else 1 - part[0]) * (part[1] if right else 1 - part[1])
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width) & (weight > 0)
            entries.append((weight[inside], (y * width + x)[inside], pixels[inside]))
    weights, rows, columns = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    size = height * width
    return csr_array((weights, (rows, columns)), shape=(size, size))

"""Small changes of images which leave their class as it is: shifts, rotations, scalings, shears."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Sequence

# Sizes: a fraction of the image's side, an angle in radians, factors, and a shear.
_SHIFT, _ANGLE, _FACTORS, _SHEAR = 0.0875, 0.17, (1.12, 0.9), 0.15

INVARIANCES = ("shift", "rotate", "scale", "shear")


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
    return scipy.sparse.csr_array((weights, (rows, columns)), shape=(size, size))

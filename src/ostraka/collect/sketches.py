"""Sketches: counts of many items in few cells, with hash functions drawn from a public key."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ostraka import _check
from ostraka.collect.encodings import MOST_CELLS, _items, added

__all__ = ["CountMin", "CountSketch"]

PRIME = 2**31 - 1  # products of two residues fit into 63 bits
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sketch:
    """A table of ``depth`` rows; in each a hash function places an item in one of ``width`` cells."""

    width: int
    depth: int
    key: str
    at_most: int = 1

    def __post_init__(self) -> None:
        _check.integer(width=self.width, least=2)
        _check.integer(depth=self.depth, at_most=self.at_most, least=1)
        if self.cells > MOST_CELLS:
            raise ValueError(f"width times depth must be at most {MOST_CELLS:,}, got {self.cells:,}")
        if not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise ValueError("key must be 64 lower-case hexadecimal digits")

    @property
    def cells(self) -> int:
        """Width times depth."""
        return self.width * self.depth

    @property
    def l1(self) -> float:
        """Each of two clients changes each row by ``at_most`` ones."""
        return 2.0 * self.at_most * self.depth

    @property
    def largest(self) -> int:
        """All items of a client may fall into one cell."""
        return self.at_most

    def places(self, items: Any) -> np.ndarray:
        """Return the cell of each item in each row, shape (depth, n_items)."""
        starts = self.width * np.arange(self.depth)[:, None]
        return np.asarray(_columns(self.key, "place", self.depth, items, self.width) + starts)

    def merge(self, sums: Any, others: Any, *, encoding: Self) -> np.ndarray:
        """Add the sums of two disjoint groups of clients; ValueError unless their sketches are equal."""
        if self != encoding:
            raise ValueError("sketches merge only if they have the same kind, shape and key")
        return np.asarray(_checked_sums(sums, self.cells) + _checked_sums(others, self.cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountMin(_Sketch):
    """Count-Min sketch: estimated counts are slightly too high, and never too low before noise.

    Parameters
    ----------
    width, depth : int
        Cells of a row, and rows. Public.
    key : str
        64 hexadecimal digits from which the hash functions are drawn. Public, and chosen by chance, so
        that nobody can choose items that collide.
    at_most : int >= 1, default 1
        Items of one client that count. Of more, the first are kept. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when encoding, what are no items.

    Guarantees
    ----------
    Each row adds one at ``((a x + b) mod p) mod width``, with p = 2^31 - 1 and items x below p. With
    ``width = ceil(e / error)`` and ``depth = ceil(ln(T / failure))``, all of T counts are too high by at
    most ``error`` times the number of items counted, but for a probability of ``failure``.
    Source: Cormode and Muthukrishnan 2005, doi:10.1016/j.jalgor.2003.12.001.

    Examples
    --------
    >>> sketch = CountMin(width=272, depth=18, key="00" * 32)
    >>> sums = sum(sketch.encode([item]).astype(int) for item in (7, 7, 9))
    >>> sketch.estimate(sums, [7, 9, 11]).tolist()
    [2.0, 1.0, 0.0]
    """

    @classmethod
    def sized(cls, *, error: float, failure: float, items: int, key: str, at_most: int = 1) -> Self:
        """Return the sketch of Definition 7 in Melis 2018, for ``items`` counts, an error and a risk."""
        _check.positive(error=error, failure=failure)
        return cls(
            width=math.ceil(math.e / error),
            depth=math.ceil(math.log(items / failure)),
            key=key,
            at_most=at_most,
        )

    @property
    def l2(self) -> float:
        """Each of two clients may have all its items in one cell of each row."""
        return self.at_most * math.sqrt(2 * self.depth)

    def encode(self, value: Any) -> np.ndarray:
        """Add one in each row for each of the first ``at_most`` different items."""
        kept = _items(value, PRIME)[: self.at_most]
        return added(self.cells, self.places(kept).ravel())

    def estimate(self, sums: Any, items: Any) -> np.ndarray:
        """The smallest cell of each item: float64 of shape (n_items,)."""
        counts = _checked_sums(sums, self.cells)
        return np.asarray(counts[self.places(items)].min(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSketch(_Sketch):
    """Count sketch: estimated counts are right on average, because collisions have random signs.

    Parameters
    ----------
    width, depth, key, at_most
        As in :class:`CountMin`.

    Raises
    ------
    ValueError
        A parameter out of range; when encoding, what are no items.

    Guarantees
    ----------
    The estimate is the median over rows, each of which is unbiased. Two items of opposite sign may share
    a cell, and so another item can move a cell by two: ``l2`` says so.
    Source: Charikar, Chen and Farach-Colton 2002, doi:10.1007/3-540-45465-9_59.

    Examples
    --------
    >>> sketch = CountSketch(width=64, depth=5, key="00" * 32)
    >>> sums = sum(sketch.encode([item]).astype(np.int32) for item in (7, 7, 9))
    >>> sketch.estimate(sums, [7, 9]).tolist()
    [2.0, 1.0]
    """

    @property
    def l2(self) -> float:
        """In each row, one cell may move from ``at_most`` to ``-at_most``."""
        return 2 * self.at_most * math.sqrt(self.depth)

    def encode(self, value: Any) -> np.ndarray:
        """Add a sign in each row for each of the first ``at_most`` different items."""
        kept = _items(value, PRIME)[: self.at_most]
        return added(self.cells, self.places(kept).ravel(), self.signs(kept).ravel())

    def signs(self, items: Any) -> np.ndarray:
        """Return the sign of each item in each row, shape (depth, n_items)."""
        return np.asarray(2 * _columns(self.key, "sign", self.depth, items, 2) - 1)

    def estimate(self, sums: Any, items: Any) -> np.ndarray:
        """The median over rows of each item's cell with its sign: float64 of shape (n_items,)."""
        counts = _checked_sums(sums, self.cells)
        return np.asarray(np.median(counts[self.places(items)] * self.signs(items), axis=0))


def coefficients(key: str, purpose: str, row: int) -> tuple[int, int]:
    """Return a row's coefficients a (1 to p - 1) and b (0 to p - 1), from SHA-256 of key, use and row."""
    digest = hashlib.sha256(f"ostraka/sketch/1/{purpose}/{row}/".encode() + bytes.fromhex(key)).digest()
    return 1 + int.from_bytes(digest[:16]) % (PRIME - 1), int.from_bytes(digest[16:]) % PRIME


def _columns(key: str, purpose: str, depth: int, items: Any, width: int) -> np.ndarray:
    x = np.asarray(items, dtype=np.int64).reshape(-1)
    if x.size and (x.min() < 0 or x.max() >= PRIME):
        raise ValueError(f"item numbers must be 0 to {PRIME - 1}")
    rows = [coefficients(key, purpose, row) for row in range(depth)]
    return np.array([(a * x + b) % PRIME % width for a, b in rows], dtype=np.int64).reshape(depth, -1)


def _checked_sums(sums: Any, cells: int) -> np.ndarray:
    counts = np.asarray(sums, dtype=np.float64)
    if counts.shape != (cells,):
        raise ValueError(f"sums must have shape ({cells},), got {counts.shape}")
    return counts

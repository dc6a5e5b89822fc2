"""Encodings: how one client's value becomes a vector of whole numbers whose sum answers a question.

Histograms, trees, grids and pairs set cells to 1. Sketches count many items in few cells, with hash functions
drawn from a public key. :class:`Encoding` is what a task reads from each of them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from ostraka.core import check

MOST_CELLS = 2**22  # 16 MiB a report
_FURTHEST = 2.0**53


class _Marks:
    """The common part of encodings that set cells to 1."""

    __slots__ = ()

    @property
    def l1(self) -> float:
        """The largest number of cells in which two encodings differ."""
        raise NotImplementedError

    @property
    def l2(self) -> float:
        """The root of ``l1``: every cell changes by one at most."""
        return math.sqrt(self.l1)

    @property
    def largest(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True, slots=True)
class Histogram(_Marks):
    """Counts in cells of equal width: one client, one number, one cell.

    Parameters
    ----------
    low, high : float
        The range. Numbers outside are moved to its nearest end, in the client. Public.
    cells : int >= 2
        How many cells the range is cut into. Public.

    Raises
    ------
    ValueError
        ``low`` not below ``high``, too many cells; when encoding, what is not one finite number.

    Examples
    --------
    >>> Histogram(0, 10, cells=5).encode(4.5).tolist()
    [0, 0, 1, 0, 0]
    """

    low: float
    high: float
    cells: int

    def __post_init__(self) -> None:
        _ordered(self.low, self.high)
        check.integer(cells=self.cells, least=2)
        _few(self.cells)

    @property
    def l1(self) -> float:
        """A change of the number changes two cells by one."""
        return 2.0

    def encode(self, value: float) -> np.ndarray:
        """Set one cell to 1."""
        return _vector(self.cells, [_place(value, self.low, self.high, self.cells)])


@dataclass(frozen=True, slots=True)
class Tree(_Marks):
    """Counts of whole numbers at every level of a tree: for quantiles and counts of ranges.

    Parameters
    ----------
    low, high : int
        Numbers ``low`` to ``high - 1``; others are moved to the nearest of these, in the client. Public.
    fanout : int >= 2, default 16
        Children of a node. Public.

    Raises
    ------
    ValueError
        ``low`` not below ``high``, too many cells; when encoding, what is not one finite number.

    Examples
    --------
    >>> tree = Tree(0, 8, fanout=2)
    >>> tree.sizes
    (2, 4, 8)
    >>> tree.encode(5).nonzero()[0].tolist()
    [1, 4, 11]
    """

    low: int
    high: int
    fanout: int = 16

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"{name} must be a whole number, got {value!r}")  # noqa: TRY004  (house style)
        _ordered(self.low, self.high)
        check.integer(fanout=self.fanout, least=2)
        if self.high - self.low < 2:
            raise ValueError(f"high must be at least low + 2, got {self.high - self.low} numbers")
        _few(2 * (self.high - self.low))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes at each level, from the top, which has two or more, to the single numbers."""
        sizes = [int(self.high - self.low)]
        while (above := -(-sizes[0] // self.fanout)) > 1:
            sizes.insert(0, above)
        return tuple(sizes)

    @property
    def cells(self) -> int:
        """Nodes of all levels."""
        return sum(self.sizes)

    @property
    def l1(self) -> float:
        """A change of the number changes two nodes of each level by one."""
        return 2.0 * len(self.sizes)

    def encode(self, value: float) -> np.ndarray:
        """Set one node of each level to 1."""
        leaf = _place(value, self.low, self.high, int(self.high - self.low))
        places, start = [], 0
        for level, size in enumerate(self.sizes):
            places.append(start + leaf // self.fanout ** (len(self.sizes) - 1 - level))
            start += size
        return _vector(self.cells, places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(_Marks):
    """Counts on a map: which cells a client was in, each counted once.

    Parameters
    ----------
    x, y : (low, high)
        The ranges. Points outside are moved to the border, in the client. Public.
    shape : (int, int)
        Cells along x and along y. Public.
    at_most : int >= 1, default 1
        Cells that one client can count in. Of more, the first are kept. Public.

    Raises
    ------
    ValueError
        A range that is empty, too many cells; when encoding, what are no points of two finite numbers.

    Examples
    --------
    >>> grid = Grid(x=(0, 2), y=(0, 2), shape=(2, 2), at_most=2)
    >>> grid.encode([(0.5, 0.5), (0.6, 0.5), (1.5, 0.5)]).tolist()
    [1, 0, 1, 0]
    """

    x: tuple[float, float]
    y: tuple[float, float]
    shape: tuple[int, int]
    at_most: int = 1

    def __post_init__(self) -> None:
        for name in ("x", "y", "shape"):
            pair = getattr(self, name)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ValueError(f"{name} must be two numbers")
            object.__setattr__(self, name, tuple(pair))
        _ordered(*self.x)
        _ordered(*self.y)
        check.integer(columns=self.shape[0], rows=self.shape[1], at_most=self.at_most, least=1)
        _few(self.cells)

    @property
    def cells(self) -> int:
        """Columns times rows; cell ``(i, j)`` is number ``i * shape[1] + j``."""
        return int(self.shape[0] * self.shape[1])

    @property
    def l1(self) -> float:
        """Each of two clients counts in ``at_most`` cells, once in each."""
        return 2.0 * self.at_most

    def encode(self, value: Any) -> np.ndarray:
        """Set the first ``at_most`` different cells of one or several points to 1."""
        try:
            points = np.asarray(value)
        except ValueError:  # ragged, and the message may quote it
            points = np.empty((0, 0))
        if points.shape == (0,):
            return _vector(self.cells, [])
        points = points[None] if points.ndim == 1 else points
        if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "iuf":
            raise ValueError("the value must be one point (x, y) or a list of points")
        places = [
            _place(x, *self.x, self.shape[0]) * self.shape[1] + _place(y, *self.y, self.shape[1])
            for x, y in points.tolist()
        ]
        return _vector(self.cells, list(dict.fromkeys(places))[: self.at_most])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs(_Marks):
    """Counts of items and of pairs of items that one client has together.

    Parameters
    ----------
    items : int >= 2
        Items are numbered 0 to ``items - 1``. Public.
    at_most : int >= 1
        Items of one client that count. Of more, the first are kept. Public. Put the items in random
        order first: where lists are sorted, what stands last would be missing from the counts.

    Raises
    ------
    ValueError
        A parameter out of range; when encoding, what are no items.

    Examples
    --------
    >>> pairs = Pairs(items=3, at_most=2)
    >>> pairs.encode([2, 0]).tolist()  # 0, 0 with 1, 0 with 2, 1, 1 with 2, 2
    [1, 0, 1, 0, 0, 1]
    """

    items: int
    at_most: int

    def __post_init__(self) -> None:
        check.integer(items=self.items, least=2)
        check.integer(at_most=self.at_most, least=1)
        _few(self.cells)

    @property
    def cells(self) -> int:
        """One for each item and one for each pair."""
        return self.items * (self.items + 1) // 2

    @property
    def l1(self) -> float:
        """Each of two clients has ``at_most`` items, and all their pairs."""
        return float(self.at_most * (self.at_most + 1))

    def place(self, one: Any, other: Any) -> Any:
        """Return the cell of a pair of items, or of an item with itself; arrays are accepted."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        return low * self.items - low * (low - 1) // 2 + high - low

    def encode(self, value: Any) -> np.ndarray:
        """Set the cells of the first ``at_most`` different items and of their pairs to 1."""
        items = np.array(_items(value, self.items)[: self.at_most], dtype=np.int64)
        rows, columns = np.triu_indices(len(items))
        return _vector(self.cells, self.place(items[rows], items[columns]))


def added(cells: int, places: Any, signs: Any = 1) -> np.ndarray:
    """Return a vector of zeros with ``signs`` added at ``places``, modulo 2^32."""
    vector = np.zeros(cells, dtype=np.int64)
    np.add.at(vector, np.asarray(places, dtype=np.int64), signs)
    return vector.astype(np.uint32)


def _vector(cells: int, places: Any) -> np.ndarray:
    vector = np.zeros(cells, dtype=np.uint32)
    vector[np.asarray(places, dtype=np.int64)] = 1
    return vector


def _items(value: Any, n_items: int) -> list[int]:
    """Return different item numbers in their order. No message quotes an item: they are private."""
    try:
        items = np.asarray(list(value))
    except TypeError:
        items = np.empty((0, 0))
    if items.ndim != 1 or (items.size and not np.issubdtype(items.dtype, np.integer)):
        raise ValueError("the value must be a list of item numbers")
    if items.size and (items.min() < 0 or items.max() >= n_items):
        raise ValueError(f"item numbers must be 0 to {n_items - 1}")
    return list(dict.fromkeys(items.tolist()))


def _place(value: Any, low: float, high: float, cells: int) -> int:
    """Return the cell of a number after clipping. No message quotes the number: it is private."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError("the value must be a number")  # noqa: TRY004  (house style)
    if isinstance(value, float | np.floating) and math.isnan(value):
        raise ValueError("the value must not be NaN")
    clipped = float(min(max(value, low), high))
    return min(int((clipped - low) * cells / (high - low)), cells - 1)


def _ordered(low: float, high: float) -> None:
    check.finite(low=low, high=high)
    if not low < high or max(abs(low), abs(high)) > _FURTHEST:
        raise ValueError(f"low must be below high, both within 2^53, got {low!r} and {high!r}")


def _few(cells: int) -> None:
    if cells > MOST_CELLS:
        raise ValueError(f"an encoding must have at most {MOST_CELLS:,} cells, got {cells:,}")


@runtime_checkable
class Encoding(Protocol):
    """An encoding of values as vectors, with bounds on how two vectors differ. All of it is public."""

    @property
    def cells(self) -> int:
        """Length of the vector."""
        ...

    @property
    def l1(self) -> float:
        """The largest L1 distance between two encodings."""
        ...

    @property
    def l2(self) -> float:
        """The largest L2 distance between two encodings."""
        ...

    @property
    def largest(self) -> int:
        """The largest absolute value of a cell in one encoding."""
        ...

    def encode(self, value: Any) -> np.ndarray:
        """The vector of one value, uint32 of shape (cells,); negative numbers modulo 2^32."""
        ...


PRIME = 2**31 - 1  # products of two residues fit into 63 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sketch:
    """A table of ``depth`` rows; in each a hash function places an item in one of ``width`` cells."""

    width: int
    depth: int
    key: str
    at_most: int = 1

    def __post_init__(self) -> None:
        check.integer(width=self.width, least=2)
        check.integer(depth=self.depth, at_most=self.at_most, least=1)
        if self.cells > MOST_CELLS:
            raise ValueError(f"width times depth must be at most {MOST_CELLS:,}, got {self.cells:,}")
        if not check.is_hexadecimal(self.key):
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
        check.positive(error=error, failure=failure)
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
        items = _items(value, PRIME)[: self.at_most]
        return added(self.cells, self.places(items).ravel())

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
        items = _items(value, PRIME)[: self.at_most]
        return added(self.cells, self.places(items).ravel(), self.signs(items).ravel())

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

"""Encodings: how one client's value becomes a vector of whole numbers whose sum answers a question.

Histograms, trees, grids and pairs set cells to 1. Sketches count many items in few cells, with hash functions
drawn from a public key. Sums and vectors are numbers in whole steps, rounded at random so that sums are right
on average. :class:`Encoding` is what a task reads from each of them; :func:`registered` adds another kind.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from ostraka.core import check
from ostraka.secure.keys import new_secret
from ostraka.secure.masks import stream

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: dict[str, Any] = {}  # by the name of the class
SPELLINGS: dict[str, tuple[str, Callable[..., dict[str, Any]]]] = {}  # by the first word, as people type it
_Kind = TypeVar("_Kind", bound=type)
MOST_CELLS = 2**22  # 16 MiB a report
_FURTHEST = 2.0**53
PRIME = 2**31 - 1  # products of two residues fit into 63 bits
_MOST_BITS = 14  # of a number of steps: l2 of SkellamSum
_REDO = 20
_FURTHEST_ENTRY = 1e150  # its square is a number
_BLOCK = 1 << 13  # entries that are encoded at once: they stay in the processor's cache
_WORD = 2.0**32


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


def registered(words: str, parse: Callable[..., dict[str, Any]]) -> Callable[[_Kind], _Kind]:
    """Make a class an encoding that tasks can name: a frozen dataclass whose fields are plain JSON.

    Parameters
    ----------
    words : str
        How it is typed, such as ``"histogram:LOW:HIGH:CELLS"``.
    parse : function
        Takes the words behind the first colon; returns the fields. ValueError for what is none.

    Raises
    ------
    ValueError
        Another class has this name, or is typed so.

    Examples
    --------
    >>> SPELLINGS["histogram"][1]("0", "10", "20")
    {'low': 0.0, 'high': 10.0, 'cells': 20}
    """

    def register(kind: _Kind) -> _Kind:
        name = words.partition(":")[0]
        if kind.__name__ in KINDS or name in SPELLINGS:
            raise ValueError(f"there is an encoding {kind.__name__}, or one that is typed {name}")
        KINDS[kind.__name__], SPELLINGS[name] = kind, (words, parse)
        return kind

    return register


def written(encoding: Encoding) -> dict[str, Any]:
    """Return the encoding as a plain object for canonical JSON."""
    values = {field.name: getattr(encoding, field.name) for field in fields(encoding)}  # type: ignore[arg-type]
    return {"kind": type(encoding).__name__, **{name: _plain(value) for name, value in values.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def read(record: Any) -> Encoding:
    """Return the encoding that :func:`written` wrote; ValueError for anything else."""
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str) or record["kind"] not in KINDS:
        raise ValueError(f"the kind of an encoding must be one of {', '.join(KINDS)}")
    kind = KINDS[record["kind"]]
    values = {name: value for name, value in record.items() if name != "kind"}
    if set(values) != {field.name for field in fields(kind)}:
        raise ValueError(f"a {record['kind']} has the fields {', '.join(f.name for f in fields(kind))}")
    try:
        encoding: Encoding = kind(**values)
    except TypeError:
        raise ValueError(f"a field of the {record['kind']} is of the wrong kind") from None
    return encoding


def _grid_fields(*words: str) -> dict[str, Any]:
    x0, x1, y0, y1, shape, at_most = (*words, "1")[:6] if len(words) == 5 else words
    columns, rows = shape.split("x")
    x, y = (float(x0), float(x1)), (float(y0), float(y1))
    return {"x": x, "y": y, "shape": (int(columns), int(rows)), "at_most": int(at_most)}


def _sketch_fields(width: str, depth: str, key: str) -> dict[str, Any]:
    return {"width": int(width), "depth": int(depth), "key": key, "at_most": 1}


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


@registered(
    "histogram:LOW:HIGH:CELLS",
    lambda low, high, cells: {"low": float(low), "high": float(high), "cells": int(cells)},
)
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


@registered(
    "histograms:LOW,HIGH,CELLS:LOW,HIGH,CELLS…",
    lambda *parts: {
        "parts": tuple(
            (float(low), float(high), int(cells)) for low, high, cells in (part.split(",") for part in parts)
        )
    },
)
@dataclass(frozen=True, slots=True)
class Histograms(_Marks):
    """Several histograms side by side: one client, one number for each.

    Parameters
    ----------
    parts : sequence of (low, high, cells)
        One or more, as in :class:`Histogram`. Public.

    Raises
    ------
    ValueError
        A part that is no histogram, too many cells; when encoding, what are not as many numbers.

    Examples
    --------
    >>> Histograms(((0, 10, 5), (0, 2, 2))).encode([4.5, 1.0]).tolist()
    [0, 0, 1, 0, 0, 0, 1]
    """

    parts: tuple[tuple[float, float, int], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple | list) or not self.parts:
            raise ValueError("parts must be one or more of (low, high, cells)")
        for part in self.parts:
            if not isinstance(part, tuple | list) or len(part) != 3:
                raise ValueError("each of parts must be (low, high, cells)")
            Histogram(*part)
        object.__setattr__(self, "parts", tuple(tuple(part) for part in self.parts))
        _few(self.cells)

    @property
    def cells(self) -> int:
        """Those of all parts, one behind the other."""
        return int(sum(cells for _, _, cells in self.parts))

    @property
    def l1(self) -> float:
        """A change of all numbers changes two cells of each part by one."""
        return 2.0 * len(self.parts)

    def encode(self, value: Any) -> np.ndarray:
        """Set one cell of each part to 1."""
        if not isinstance(value, list | tuple | np.ndarray) or len(value) != len(self.parts):
            raise ValueError(f"the value must be a list of {len(self.parts)} numbers")
        return np.concatenate(
            [Histogram(*part).encode(number) for part, number in zip(self.parts, value, strict=True)]
        )


@registered(
    "tree:LOW:HIGH[:FANOUT]",
    lambda low, high, fanout="0": {"low": int(low), "high": int(high), "fanout": int(fanout) or None},
)
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


@registered("grid:X0:X1:Y0:Y1:NxM[:AT_MOST]", _grid_fields)
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
        return _vector(self.cells, list(dict.fromkeys(self.places(value)))[: self.at_most])

    def places(self, value: Any) -> list[int]:
        """Return the cell of each point, in order; ValueError for what are no points."""
        try:
            points = np.asarray(value)
        except ValueError:  # ragged, and the message may quote it
            points = np.empty((0, 0))
        if points.shape == (0,):
            return []
        points = points[None] if points.ndim == 1 else points
        if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "iuf":
            raise ValueError("the value must be one point (x, y) or a list of points")
        return [
            _place(x, *self.x, self.shape[0]) * self.shape[1] + _place(y, *self.y, self.shape[1])
            for x, y in points.tolist()
        ]


@registered("visits:X0:X1:Y0:Y1:NxM:AT_MOST", _grid_fields)
@dataclass(frozen=True, slots=True, kw_only=True)
class Visits(Grid):
    """Counts on a map in which each position counts: a client that stays in one cell counts there again.

    Parameters
    ----------
    x, y, shape
        As in :class:`Grid`.
    at_most : int >= 1, default 1
        Positions of one client that count. Of more, the first are kept. Public.

    Raises
    ------
    ValueError
        As in :class:`Grid`.

    Examples
    --------
    >>> visits = Visits(x=(0, 2), y=(0, 2), shape=(2, 2), at_most=2)
    >>> visits.encode([(0.5, 0.5), (0.6, 0.5), (1.5, 0.5)]).tolist()
    [2, 0, 0, 0]
    """

    @property
    def l2(self) -> float:
        """All positions of each of two clients may be in one cell."""
        return math.sqrt(2.0) * self.at_most

    @property
    def largest(self) -> int:
        """All positions of a client may be in one cell."""
        return int(self.at_most)

    def encode(self, value: Any) -> np.ndarray:
        """Add one to the cell of each of the first ``at_most`` points."""
        return added(self.cells, self.places(value)[: self.at_most])


@registered(
    "sum:LOW:HIGH[:BITS]",
    lambda low, high, bits="8": {"low": float(low), "high": float(high), "bits": int(bits)},
)
@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of numbers, and their mean: one client, one number, one cell.

    Parameters
    ----------
    low, high : float
        The range. Numbers outside are moved to its nearest end, in the client. Public.
    bits : int from 1 to 14, default 8
        The range is cut into 2^bits - 1 steps. Public.

    Raises
    ------
    ValueError
        ``low`` not below ``high``; bits out of range; when encoding, what is not one finite number.

    Guarantees
    ----------
    A number between two steps is rounded to one of them at random, so that sums are right on average. What a
    client adds lies from 0 to ``largest``, whatever the number.

    Examples
    --------
    >>> Sum(0, 255).encode(7).tolist()
    [7]
    """

    low: float
    high: float
    bits: int = 8

    def __post_init__(self) -> None:
        _ordered(self.low, self.high)
        check.integer(bits=self.bits, least=1)
        if self.bits > _MOST_BITS:
            raise ValueError(f"bits must be at most {_MOST_BITS}, got {self.bits}")

    @property
    def cells(self) -> int:
        """One."""
        return 1

    @property
    def largest(self) -> int:
        """Steps from ``low`` to ``high``."""
        return int(2**self.bits - 1)

    @property
    def l1(self) -> float:
        """From one end of the range to the other."""
        return float(self.largest)

    @property
    def l2(self) -> float:
        """The same in one cell."""
        return float(self.largest)

    def encode(self, value: float, *, key: bytes | None = None) -> np.ndarray:
        """Round to one of both nearest steps at random: by ``key``, or by the operating system."""
        clipped = _clipped(value, self.low, self.high)
        scaled = np.array([(clipped - self.low) * self.largest / (self.high - self.low)])
        return _rounded(scaled, stream(key or new_secret())).astype(np.uint32)

    def scale(self, sums: Any, *, n_clients: int) -> np.ndarray:
        """Return what sums of steps are in the unit of the numbers."""
        return np.asarray(self.low * n_clients + np.asarray(sums) * ((self.high - self.low) / self.largest))


@registered(
    "vector:CELLS:CLIP[:GRID]",
    lambda cells, clip, grid="0": {
        "cells": int(cells),
        "clip": float(clip),
        # or a power of two, 64 or more, whose square is at least twice the number of entries
        "grid": int(grid) or max(64, 1 << math.ceil(math.log2(2 * int(cells)) / 2)),
    },
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """The sum of vectors of bounded length, and their mean: differences of models, for example.

    Parameters
    ----------
    cells : int >= 1
        Entries. Public.
    clip : float > 0
        Longer vectors are shortened to this Euclidean norm, in the client. Public.
    grid : int from 16 to 7,000
        Whole steps in ``clip``. Public. Take its square at least twice ``cells``, else random rounding makes
        vectors so long that they are rounded towards zero.

    Raises
    ------
    ValueError
        A parameter out of range; when encoding, what are not so many finite numbers.

    Guarantees
    ----------
    Each entry is rounded at random to one of both nearest steps, so that sums are right on average. The
    norm of the whole numbers is at most :attr:`bound`, whatever the vector: rounding is repeated up to 20
    times, and is towards zero after that, which never lengthens.

    Examples
    --------
    >>> vector = Vector(cells=3, clip=1.0, grid=16)
    >>> vector.encode([8.0, 0.0, -6.0]).astype(np.int32).tolist()[1], vector.bound
    (0, 17)
    """

    cells: int
    clip: float
    grid: int

    def __post_init__(self) -> None:
        check.integer(cells=self.cells, least=1)
        check.integer(grid=self.grid, least=16)
        check.positive(clip=self.clip)
        if self.grid > 7_000:
            raise ValueError(f"grid must be at most 7,000, got {self.grid}")
        _few(self.cells)

    @property
    def bound(self) -> int:
        """The largest norm of what a client adds, in steps: a sixteenth above the grid."""
        return 17 * int(self.grid) // 16

    @property
    def l2(self) -> float:
        """Two vectors of that norm may point in opposite directions."""
        return 2.0 * self.bound

    @property
    def l1(self) -> float:
        """By the inequality of Cauchy and Schwarz, or because they are whole numbers."""
        return min(math.sqrt(self.cells) * self.l2, self.l2**2)

    @property
    def largest(self) -> int:
        """All of the norm may be in one entry."""
        return self.bound

    def encode(self, value: Any, *, key: bytes | None = None) -> np.ndarray:
        """Shorten, and round at random: by ``key``, or by the operating system."""
        try:
            entries = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):  # and the message may quote it
            entries = np.empty(0)
        if entries.shape != (self.cells,) or not np.isfinite(entries).all():
            raise ValueError(f"the value must be a vector of {self.cells:,} finite numbers")
        blocks = [slice(start, start + _BLOCK) for start in range(0, self.cells, _BLOCK)]
        squares = 0.0
        for block in blocks:
            part = np.clip(entries[block], -_FURTHEST_ENTRY, _FURTHEST_ENTRY)
            squares = np.add.accumulate(np.append(squares, part * part))[-1]  # in order, as the page adds
        factor = self.grid / max(math.sqrt(squares), self.clip)
        whole, take = np.empty(self.cells, dtype=np.int32), stream(key or new_secret())
        for attempt in range(_REDO + 1):
            length = 0.0
            for block in blocks:
                scaled = np.clip(entries[block], -_FURTHEST_ENTRY, _FURTHEST_ENTRY) * factor
                part = _rounded(scaled, take) if attempt < _REDO else np.trunc(scaled)
                whole[block], length = part, length + float(part @ part)  # of whole numbers: exact
            if length <= self.bound**2:
                break
        return whole.view(np.uint32)

    def scale(self, sums: Any, *, n_clients: int) -> np.ndarray:  # noqa: ARG002  (as of a Sum)
        """Return what sums of steps are in the unit of the entries."""
        return np.asarray(np.asarray(sums) * (self.clip / self.grid))


@registered("pairs:ITEMS:AT_MOST", lambda items, at_most: {"items": int(items), "at_most": int(at_most)})
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
        _few(self.cells)
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

    def signs(self, items: Any) -> np.ndarray:
        """Return what is added for each item in each row, shape (depth, n_items): one."""
        return np.ones((self.depth, len(items)), dtype=np.int64)

    def encode(self, value: Any) -> np.ndarray:
        """Add the sign of each of the first ``at_most`` different items in each row."""
        items = _items(value, PRIME)[: self.at_most]
        return added(self.cells, self.places(items).ravel(), self.signs(items).ravel())

    def merge(self, sums: Any, others: Any, *, encoding: Self) -> np.ndarray:
        """Add the sums of two disjoint groups of clients; ValueError unless their sketches are equal."""
        if self != encoding:
            raise ValueError("sketches merge only if they have the same kind, shape and key")
        return np.asarray(_checked_sums(sums, self.cells) + _checked_sums(others, self.cells))


@registered("count-min:WIDTH:DEPTH:KEY", _sketch_fields)
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

    def estimate(self, sums: Any, items: Any) -> np.ndarray:
        """The smallest cell of each item: float64 of shape (n_items,)."""
        counts = _checked_sums(sums, self.cells)
        return np.asarray(counts[self.places(items)].min(axis=0))


@registered("count-sketch:WIDTH:DEPTH:KEY", _sketch_fields)
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


def added(cells: int, places: Any, signs: Any = 1) -> np.ndarray:
    """Return a vector of zeros with ``signs`` added at ``places``, modulo 2^32."""
    vector = np.zeros(cells, dtype=np.int64)
    np.add.at(vector, np.asarray(places, dtype=np.int64), signs)
    return vector.astype(np.uint32)


def _rounded(scaled: np.ndarray, take: Callable[[int], bytes]) -> np.ndarray:
    """Round each number to one of both nearest whole numbers, up with a probability of what it is above."""
    words = np.frombuffer(take(16 * -(-len(scaled) // 4)), dtype="<u4")[: len(scaled)]  # whole blocks of AES
    floors = np.floor(scaled)
    return np.asarray(floors + (words < (scaled - floors) * _WORD))


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
    """Return the cell of a number after clipping."""
    return min(int((_clipped(value, low, high) - low) * cells / (high - low)), cells - 1)


def _clipped(value: Any, low: float, high: float) -> float:
    """Return a number within the range. No message quotes the number: it is private."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError("the value must be a number")  # noqa: TRY004  (house style)
    if isinstance(value, float | np.floating) and math.isnan(value):
        raise ValueError("the value must not be NaN")
    return float(min(max(value, low), high))


def _ordered(low: float, high: float) -> None:
    check.finite(low=low, high=high)
    if not low < high or max(abs(low), abs(high)) > _FURTHEST:
        raise ValueError(f"low must be below high, both within 2^53, got {low!r} and {high!r}")


def _few(cells: int) -> None:
    if cells > MOST_CELLS:
        raise ValueError(f"an encoding must have at most {MOST_CELLS:,} cells, got {cells:,}")

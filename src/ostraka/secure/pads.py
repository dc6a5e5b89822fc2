"""One-time pads of a computation between two: each holder expands a seed that it shares with the dealer.

The dealer expands both, so that only what cannot be random has to be sent: correction words to both, and
corrections to the one who asks, sealed to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ostraka.secure import comparison
from ostraka.secure.masks import stream


@dataclass(frozen=True, slots=True)
class Sizes:
    """Public sizes of a computation: rows, numbers in a row, hidden units (0: none) and classes."""

    n_rows: int
    n_features: int
    hidden: int
    n_classes: int

    @property
    def first(self) -> int:
        """Numbers that come out of the first layer."""
        return self.hidden or self.n_classes


class Source(Protocol):
    """A source of the numbers of pads, read in order."""

    def read(self, size: int) -> bytes | bytearray:
        """The next bytes."""
        ...


class Stream:
    """The bytes of AES-256 in counter mode from zero, under a 256-bit key that is used once."""

    def __init__(self, key: bytes) -> None:
        self._stream = stream(key)

    def read(self, size: int) -> bytes:
        """The next bytes of the stream."""
        return self._stream(size)


class Sent:
    """A message as a source, read as a whole: its reader calls :meth:`end` when it is done."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def read(self, size: int) -> bytes:
        """The next bytes of the message; ValueError beyond its end."""
        data = self._data[self._place : self._place + size]
        self._place += size
        if len(data) != size:
            raise ValueError(f"the message is too short: it has {len(self._data)} bytes")
        return data

    def end(self) -> None:
        """ValueError if something is left."""
        if self._place != len(self._data):
            raise ValueError(f"the message is too long: it has {len(self._data)} bytes")


class Blank:
    """Zeros, in place of corrections that the dealer has not computed yet."""

    def read(self, size: int) -> bytes:
        """Return ``size`` zeros."""
        return bytes(size)


class LinearPads(NamedTuple):
    """Pads of rows times weights: one for a factor, and a share of the product of both pads."""

    factor: np.ndarray
    product: np.ndarray


class ReluPads(NamedTuple):
    """Pads of a ReLU: of its sign, and a table with the share of the slope and of four intercepts."""

    opened: np.ndarray
    roots: np.ndarray
    bit: np.ndarray
    sign: np.ndarray
    table: np.ndarray


class ArgmaxPads(NamedTuple):
    """Pads of an argmax: a table of shares for each place that a class may have."""

    opened: np.ndarray
    roots: np.ndarray
    place: np.ndarray
    sign: np.ndarray
    table: np.ndarray


class ModelPads(NamedTuple):
    """Pads of a linear model, or of a model with one hidden layer of ReLU units."""

    first: LinearPads
    relu: ReluPads | None
    last: LinearPads | None
    argmax: ArgmaxPads


def model_pads(seeded: Source, sent: Source, sizes: Sizes, *, question: np.ndarray | None) -> ModelPads:
    """One holder's pads: the asker's if there is the pad of a ``question``, else the model's owner's.

    ``sent`` is what the dealer sent to the asker; the owner has all from its own source.
    """
    rows, hidden, classes = sizes.n_rows, sizes.hidden, sizes.n_classes
    factor = words(seeded, sizes.n_features, sizes.first) if question is None else question
    first = LinearPads(factor, words(sent, rows, sizes.first))
    relu = last = None
    if hidden:
        relu = relu_pads(seeded, sent, rows * hidden)
        factor = words(seeded, hidden, classes) if question is None else words(seeded, rows, hidden)
        last = LinearPads(factor, words(sent, rows, classes))
    return ModelPads(first, relu, last, argmax_pads(seeded, sent, rows, classes))


def relu_pads(seeded: Source, sent: Source, n: int) -> ReluPads:
    """Read the pads of ``n`` numbers."""
    opened, roots, bit = (
        words(seeded, n),
        comparison.seeds(words(seeded, n, 2)),
        small(seeded, n) & np.uint8(1),
    )
    return ReluPads(opened, roots, bit, small(sent, n), words(sent, n, 5))


def argmax_pads(seeded: Source, sent: Source, n_rows: int, n_classes: int) -> ArgmaxPads:
    """Read the pads of rows of ``n_classes`` numbers, with a comparison for each pair of classes."""
    n = n_rows * n_classes * (n_classes - 1) // 2
    opened, roots = words(seeded, n_rows, n_classes), comparison.seeds(words(seeded, n, 2))
    place, sign = small(seeded, n_rows, n_classes), small(sent, n)
    return ArgmaxPads(opened, roots, place, sign, halves(sent, n_rows, n_classes, comparison.MODULUS))


def words(source: Source, *shape: int) -> np.ndarray:
    """The next uint64 of this shape."""
    return np.frombuffer(source.read(8 * math.prod(shape)), dtype="<u8").reshape(shape)


def halves(source: Source, *shape: int) -> np.ndarray:
    """The next uint32 of this shape."""
    return np.frombuffer(source.read(4 * math.prod(shape)), dtype="<u4").reshape(shape)


def small(source: Source, *shape: int) -> np.ndarray:
    """The next uint8 below 16 of this shape."""
    data = np.frombuffer(source.read(math.prod(shape)), dtype=np.uint8).reshape(shape)
    return data & np.uint8(comparison.MODULUS - 1)

"""A model's votes on rows that its owner cannot see: the two sides of the computation, message by message.

With one exchange for each layer the sides open masked numbers; the asker's last message turns the owner's
half of the votes out. Everything is modulo 2^64; shares of votes are modulo 2^32, as masked sums are.

The steps are the sign, ReLU, and the largest of several numbers. They use up one-time pads: each holder
expands a seed that it shares with the dealer. The dealer expands both, so that only what cannot be random has
to be sent: correction words to both, and corrections to the one who asks, sealed to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ostraka.secure import comparison
from ostraka.secure.masks import stream

_SHIFT, _SIGN = np.uint64(32), np.uint64(31)
_POINT, _WORD = np.uint64(2**31 - 1), np.uint64(2**32 - 1)
_SMALL = np.uint8(comparison.MODULUS - 1)
_SCALE = np.uint64(32)  # bits below whole numbers: of 64, the upper 32 are compared


Source = Callable[[int], bytes]  # the next bytes of pads: of a stream, or of a message


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


class Sent:
    """A message as a source, taken as a whole: its reader calls :meth:`end` when it is done."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def __call__(self, size: int) -> bytes:
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

    ``sent`` is what the dealer sent to the asker; the owner has all from its own source. A dealer that has
    not computed it yet reads zeros.
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
    return np.frombuffer(source(8 * math.prod(shape)), dtype="<u8").reshape(shape)


def halves(source: Source, *shape: int) -> np.ndarray:
    """The next uint32 of this shape."""
    return np.frombuffer(source(4 * math.prod(shape)), dtype="<u4").reshape(shape)


def small(source: Source, *shape: int) -> np.ndarray:
    """The next uint8 below 16 of this shape."""
    data = np.frombuffer(source(math.prod(shape)), dtype=np.uint8).reshape(shape)
    return data & np.uint8(comparison.MODULUS - 1)


@dataclass(frozen=True, slots=True, repr=False)
class FixedModel:
    """Weights and offsets of each layer, whole numbers modulo 2^64. Private."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    def __repr__(self) -> str:
        return "FixedModel(private)"


class OwnerSide:
    """The owner's side. Each step may be taken once, in order."""

    def __init__(self, model: FixedModel, key: bytes, sizes: Sizes) -> None:
        pads = stream(key)
        self._pads: ModelPads = model_pads(pads, pads, sizes, question=None)
        self._model, self._sizes = model, sizes
        self._key, self._words = b"", (np.empty(0), np.empty(0))

    def weights(self) -> bytes:
        """The masked weights of all layers."""
        masked = [self._model.layers[0][0] - self._pads.first.factor]
        if self._pads.last is not None:
            masked.append(self._model.layers[1][0] - self._pads.last.factor)
        return b"".join(factor.tobytes() for factor in masked)

    def take(self, key: bytes, words: bytes) -> None:
        """The dealer's correction words, for the comparisons to come."""
        self._key, self._words = key, split_words(words, self._sizes)
        self._largest = OwnerLargest(self._pads.argmax, key, self._words[1])

    def first(self, question: np.ndarray, message: bytes) -> bytes:
        """The first layer: from the masked rows and the asker's half of what is opened."""
        weights, offsets = self._model.layers[0]
        mine = comparison.multiply(question, weights) + self._pads.first.product + offsets
        sent = Sent(message)
        theirs = words(sent, self._sizes.n_rows, self._sizes.first)
        sent.end()
        if self._pads.relu is None:
            return self._largest.compared(mine, theirs)
        relu = self._pads.relu
        mine = mine.ravel() + relu.opened
        self._opened = mine + theirs.ravel()
        self._bits = relu_bits(self._key, self._opened, relu, self._words[0], second=True)
        return bytes(mine.tobytes() + self._bits.tobytes())

    def layer(self, message: bytes) -> bytes:
        """The second layer: from the asker's bits, its masked half of the hidden units, and its opening."""
        sizes, relu, last = self._sizes, self._pads.relu, self._pads.last
        if relu is None or last is None:
            raise ValueError("the agreed models have no second layer")
        sent, shape = Sent(message), (sizes.n_rows, sizes.hidden)
        bits = self._bits ^ (small(sent, sizes.n_rows * sizes.hidden) & np.uint8(1))
        masked, theirs = words(sent, *shape), words(sent, sizes.n_rows, sizes.n_classes)
        sent.end()
        units = relu_value(self._opened, bits, relu, second=True).reshape(shape)
        weights, offsets = self._model.layers[1]
        mine = comparison.multiply(masked + units, weights) + last.product + offsets
        return self._largest.compared(mine, theirs)

    def votes(self, message: bytes) -> np.ndarray:
        """The owner's half of the votes, uint32 of shape (n_rows, n_classes). Private."""
        return self._largest.ones(message)


class AskerSide:
    """The asker's side towards one owner."""

    def __init__(
        self, key: bytes, seed: bytes, sizes: Sizes, *, question: np.ndarray, words: bytes, corrections: bytes
    ) -> None:
        sent = Sent(corrections)
        self._pads = model_pads(stream(seed), sent, sizes, question=question)
        sent.end()
        self._key, self._sizes, self._words = key, sizes, split_words(words, sizes)
        self._largest = AskerLargest(self._pads.argmax, key, self._words[1])

    def first(self, message: bytes) -> bytes:
        """Return this half of what the first layer opens, from the owner's masked weights."""
        sizes, sent = self._sizes, Sent(message)
        weights = words(sent, sizes.n_features, sizes.first)
        self._last = words(sent, sizes.hidden, sizes.n_classes) if sizes.hidden else None
        sent.end()
        mine = comparison.multiply(self._pads.first.factor, weights) + self._pads.first.product
        if self._pads.relu is None:
            return self._largest.opening(mine)
        self._opened = mine.ravel() + self._pads.relu.opened
        return bytes(self._opened.tobytes())

    def layer(self, answer: bytes) -> bytes:
        """Return this half of the second layer, from the owner's answer to the first."""
        sizes, relu, last = self._sizes, self._pads.relu, self._pads.last
        if relu is None or last is None or self._last is None:
            raise ValueError("the agreed models have no second layer")
        sent, n = Sent(answer), sizes.n_rows * sizes.hidden
        opened = self._opened + words(sent, n)
        theirs = small(sent, n) & np.uint8(1)
        sent.end()
        mine = relu_bits(self._key, opened, relu, self._words[0], second=False)
        units = relu_value(opened, mine ^ theirs, relu, second=False).reshape(sizes.n_rows, -1)
        scores = self._largest.opening(comparison.multiply(last.factor, self._last) + last.product)
        return bytes(mine.tobytes() + (units - last.factor).tobytes() + scores)

    def wins(self, answer: bytes) -> bytes:
        """From the owner's answer to the last layer, return the message with its half of the votes."""
        return self._largest.wins(answer)

    def votes(self) -> np.ndarray:
        """The asker's half of the votes, uint32 of shape (n_rows, n_classes)."""
        return self._largest.ones()


class OwnerLargest:
    """The owner's side. Each step may be taken once, in order."""

    def __init__(self, pads: ArgmaxPads, key: bytes, words: np.ndarray) -> None:
        self._pads, self._key, self._words = pads, key, words

    def compared(self, mine: np.ndarray, theirs: np.ndarray) -> bytes:
        """Open the numbers, from this half and the asker's masked one; return this side's part."""
        opened = mine + self._pads.opened
        self._wins = wins(self._key, opened + theirs, self._pads, self._words, second=True)
        return bytes(opened.tobytes() + self._wins.tobytes())

    def ones(self, message: bytes) -> np.ndarray:
        """The owner's half of the ones, uint32, from the asker's part of the wins. Private."""
        sent = Sent(message)
        theirs = small(sent, *self._wins.shape)
        sent.end()
        return votes((self._wins + theirs) & _SMALL, self._pads)


class AskerLargest:
    """The asker's side."""

    def __init__(self, pads: ArgmaxPads, key: bytes, words: np.ndarray) -> None:
        self._pads, self._key, self._words = pads, key, words

    def opening(self, mine: np.ndarray) -> bytes:
        """The asker's half of the numbers, masked."""
        self._opened = mine + self._pads.opened
        return bytes(self._opened.tobytes())

    def wins(self, answer: bytes) -> bytes:
        """Return the message by which the owner gets its half of the ones, from its part."""
        sent, shape = Sent(answer), self._opened.shape
        opened, theirs = self._opened + words(sent, *shape), small(sent, *shape)
        sent.end()
        mine = wins(self._key, opened, self._pads, self._words, second=False)
        self._places = (mine + theirs) & _SMALL
        return bytes(mine.tobytes())

    def ones(self) -> np.ndarray:
        """The asker's half of the ones, uint32."""
        return votes(self._places, self._pads)


def upper(words: np.ndarray) -> np.ndarray:
    """The upper 32 bits."""
    return words >> _SHIFT


def apart(values: np.ndarray) -> np.ndarray:
    """Difference of each pair of classes, modulo 2^32, flat; from upper halves."""
    first, second = np.triu_indices(values.shape[1], 1)
    return np.asarray(((values[:, first] - values[:, second]) & _WORD).ravel())


def signs_of(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The secret points, the payloads and the signs of 32-bit masks of compared numbers."""
    sign = masks >> _SIGN
    return masks & _POINT, (np.uint64(1) - np.uint64(2) * sign) & np.uint64(_SMALL), sign.astype(np.uint8)


def _negative(
    key: bytes, opened: np.ndarray, pads: ArgmaxPads | ReluPads, words: np.ndarray, *, second: bool
) -> np.ndarray:
    """One holder's shares, modulo 16, of the bit that the number behind ``opened`` is negative."""
    borrowed = comparison.evaluate(key, pads.roots, words, opened & _POINT, second=second)
    share = borrowed + pads.sign
    turned = (opened >> _SIGN).astype(bool)
    return np.asarray(np.where(turned, np.uint8(not second) - share, share) & _SMALL)


def relu_bits(
    key: bytes, opened: np.ndarray, pads: ReluPads, words: np.ndarray, *, second: bool
) -> np.ndarray:
    """One holder's part of the bit that the number is not negative, hidden; the xor of both is public."""
    share = _negative(key, upper(opened), pads, words, second=second) + np.uint8(not second)
    return np.asarray((share ^ pads.bit) & np.uint8(1))  # parities: of a sum modulo 16, and of its xor


def relu_value(opened: np.ndarray, bits: np.ndarray, pads: ReluPads, *, second: bool) -> np.ndarray:
    """One holder's shares of the number where it is not negative, in units of 2^32, and of 0 elsewhere."""
    number = upper(opened)
    share, unit = pads.table[:, 0], np.uint64(not second)
    slope = np.where(bits, unit - share, share)
    place = 1 + 2 * bits.astype(np.int64) + (number >> _SIGN).astype(np.int64)
    return np.asarray(slope * number + pads.table[np.arange(len(place)), place])


def relu_table(masks: np.ndarray, bit: np.ndarray) -> np.ndarray:
    """The sum of both holders' tables, for the 32-bit masks of the numbers and the bits that hide signs."""
    wrapped = (masks >> _SIGN) << _SHIFT  # a number above such a mask starts again at zero
    table = np.empty((len(masks), 5), dtype=np.uint64)
    table[:, 0] = bit
    for opened in (0, 1):
        keeps = (bit ^ np.uint8(opened)).astype(np.uint64)
        for sign in (0, 1):
            table[:, 1 + 2 * opened + sign] = keeps * (wrapped * np.uint64(1 - sign) - masks)
    return table


def wins(key: bytes, opened: np.ndarray, pads: ArgmaxPads, words: np.ndarray, *, second: bool) -> np.ndarray:
    """One holder's part, modulo 16, of how many others each class beats, plus a hidden place.

    Of two that are equal the first wins.
    """
    n_rows, n_classes = opened.shape
    behind = _negative(key, apart(upper(opened)), pads, words, second=second).reshape(n_rows, -1)
    total = pads.place.copy()
    for pair, (first, rival) in enumerate(zip(*np.triu_indices(n_classes, 1), strict=True)):
        total[:, rival] += behind[:, pair]
        total[:, first] += np.uint8(not second) - behind[:, pair]
    return np.asarray(total & _SMALL)


def votes(places: np.ndarray, pads: ArgmaxPads) -> np.ndarray:
    """One holder's shares, modulo 2^32, of 1 for the class that beats all others and of 0 elsewhere."""
    chosen = np.take_along_axis(pads.table, places[:, :, None].astype(np.int64), axis=2)
    return np.asarray(chosen[:, :, 0])


def vote_table(place: np.ndarray) -> np.ndarray:
    """The sum of both holders' tables: a single 1 for each class, at the place of n_classes - 1 wins."""
    n_rows, n_classes = place.shape
    table = np.zeros((n_rows, n_classes, comparison.MODULUS), dtype=np.uint32)
    winner = (place.astype(np.int64) + n_classes - 1) % comparison.MODULUS
    np.put_along_axis(table, winner[:, :, None], 1, axis=2)
    return table


def scaled(half: np.ndarray) -> np.ndarray:
    """Shares modulo 2^32 of whole numbers, as shares modulo 2^64 whose comparison rounds nothing."""
    return np.asarray(half.astype(np.uint64) << _SCALE)


def comparisons(n_rows: int, n_classes: int) -> int:
    """Return how many numbers are compared: all pairs of classes in each row."""
    return n_rows * n_classes * (n_classes - 1) // 2


def levels(data: bytes, n: int) -> np.ndarray:
    """Correction words of ``n`` comparisons by level of the tree; ValueError for any other length."""
    if len(data) != n * comparison.WORD_BYTES:
        raise ValueError(f"correction words must have {n * comparison.WORD_BYTES} bytes, got {len(data)}")
    return np.frombuffer(data, dtype="<u8").reshape(comparison.WORD_BYTES // 16, n, 2)


def words_bytes(sizes: Sizes) -> int:
    """The number of bytes of a model's correction words."""
    units, pairs = _comparisons(sizes)
    return (units + pairs) * comparison.WORD_BYTES


def split_words(data: bytes, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """The correction words of ReLU and of the argmax."""
    units, pairs = _comparisons(sizes)
    middle = units * comparison.WORD_BYTES
    return levels(data[:middle], units), levels(data[middle:], pairs)


def _comparisons(sizes: Sizes) -> tuple[int, int]:
    return sizes.n_rows * sizes.hidden, comparisons(sizes.n_rows, sizes.n_classes)

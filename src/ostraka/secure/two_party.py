"""A model's votes on rows that its owner cannot see: the two sides of the computation, message by message.

With one exchange for each layer the sides open masked numbers; the asker's last message turns the owner's
half of the votes out. Everything is modulo 2^64; shares of votes are modulo 2^32, as masked sums are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure import comparison, gates, pads
from ostraka.secure import gates as largest
from ostraka.secure.gates import AskerLargest, OwnerLargest, levels
from ostraka.secure.pads import Sent, Sizes, Stream, model_pads

if TYPE_CHECKING:
    from ostraka.secure.pads import ModelPads


@dataclass(frozen=True, slots=True, repr=False)
class FixedModel:
    """Weights and offsets of each layer, whole numbers modulo 2^64. Private."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    def __repr__(self) -> str:
        return "FixedModel(private)"


class OwnerSide:
    """The owner's side. Each step may be taken once, in order."""

    def __init__(self, model: FixedModel, key: bytes, sizes: Sizes) -> None:
        stream = Stream(key)
        self._pads: ModelPads = model_pads(stream, stream, sizes, question=None)
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
        mine = _multiply(question, weights) + self._pads.first.product + offsets
        sent = Sent(message)
        theirs = pads.words(sent, self._sizes.n_rows, self._sizes.first)
        sent.end()
        if self._pads.relu is None:
            return self._largest.compared(mine, theirs)
        relu = self._pads.relu
        mine = mine.ravel() + relu.opened
        self._opened = mine + theirs.ravel()
        self._bits = gates.relu_bits(self._key, self._opened, relu, self._words[0], second=True)
        return bytes(mine.tobytes() + self._bits.tobytes())

    def layer(self, message: bytes) -> bytes:
        """The second layer: from the asker's bits, its masked half of the hidden units, and its opening."""
        sizes, relu, last = self._sizes, self._pads.relu, self._pads.last
        if relu is None or last is None:
            raise ValueError("the agreed models have no second layer")
        sent, shape = Sent(message), (sizes.n_rows, sizes.hidden)
        bits = self._bits ^ (pads.small(sent, sizes.n_rows * sizes.hidden) & np.uint8(1))
        masked, theirs = pads.words(sent, *shape), pads.words(sent, sizes.n_rows, sizes.n_classes)
        sent.end()
        units = gates.relu_value(self._opened, bits, relu, second=True).reshape(shape)
        weights, offsets = self._model.layers[1]
        return self._largest.compared(_multiply(masked + units, weights) + last.product + offsets, theirs)

    def votes(self, message: bytes) -> np.ndarray:
        """The owner's half of the votes, uint32 of shape (n_rows, n_classes). Private."""
        return self._largest.ones(message)


class AskerSide:
    """The asker's side towards one owner."""

    def __init__(
        self, key: bytes, seed: bytes, sizes: Sizes, *, question: np.ndarray, words: bytes, corrections: bytes
    ) -> None:
        sent = Sent(corrections)
        self._pads = model_pads(Stream(seed), sent, sizes, question=question)
        sent.end()
        self._key, self._sizes, self._words = key, sizes, split_words(words, sizes)
        self._largest = AskerLargest(self._pads.argmax, key, self._words[1])

    def first(self, message: bytes) -> bytes:
        """From the owner's masked weights: this half of what the first layer opens."""
        sizes, sent = self._sizes, Sent(message)
        weights = pads.words(sent, sizes.n_features, sizes.first)
        self._last = pads.words(sent, sizes.hidden, sizes.n_classes) if sizes.hidden else None
        sent.end()
        mine = _multiply(self._pads.first.factor, weights) + self._pads.first.product
        if self._pads.relu is None:
            return self._largest.opening(mine)
        self._opened = mine.ravel() + self._pads.relu.opened
        return bytes(self._opened.tobytes())

    def layer(self, answer: bytes) -> bytes:
        """From the owner's answer to the first: this half of the second layer."""
        sizes, relu, last = self._sizes, self._pads.relu, self._pads.last
        if relu is None or last is None or self._last is None:
            raise ValueError("the agreed models have no second layer")
        sent, n = Sent(answer), sizes.n_rows * sizes.hidden
        opened = self._opened + pads.words(sent, n)
        theirs = pads.small(sent, n) & np.uint8(1)
        sent.end()
        mine = gates.relu_bits(self._key, opened, relu, self._words[0], second=False)
        units = gates.relu_value(opened, mine ^ theirs, relu, second=False).reshape(sizes.n_rows, -1)
        scores = self._largest.opening(_multiply(last.factor, self._last) + last.product)
        return bytes(mine.tobytes() + (units - last.factor).tobytes() + scores)

    def wins(self, answer: bytes) -> bytes:
        """From the owner's answer to the last layer: what turns its half of the votes out."""
        return self._largest.wins(answer)

    def votes(self) -> np.ndarray:
        """The asker's half of the votes, uint32 of shape (n_rows, n_classes)."""
        return self._largest.ones()


def hidden_question(rows: np.ndarray, pad: np.ndarray) -> np.ndarray:
    """The masked rows, the same for all owners."""
    return np.asarray(rows - pad)


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
    return sizes.n_rows * sizes.hidden, largest.comparisons(sizes.n_rows, sizes.n_classes)


def _multiply(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    from ostraka.secure import comparison as _kernels  # noqa: PLC0415  (compiled code, loaded when needed)

    return np.asarray(_kernels.multiply(rows, weights))

"""A model's votes on rows that its owner cannot see: the two sides of the computation, message by message.

With one exchange for each layer the sides open masked numbers; the asker's last message turns the owner's
half of the votes out. Everything is modulo 2^64; shares of votes are modulo 2^32, as masked sums are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure import comparison, gates, pads
from ostraka.secure.pads import Sent, Sizes, Stream, model_pads

if TYPE_CHECKING:
    from ostraka.secure.pads import ModelPads

__all__ = ["AskerSide", "FixedModel", "OwnerSide", "hidden_question", "split_words", "words_bytes"]

_SMALL = np.uint8(comparison.MODULUS - 1)


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
        return b"".join(each.tobytes() for each in masked)

    def take(self, key: bytes, words: bytes) -> None:
        """The dealer's correction words, for the comparisons to come."""
        self._key, self._words = key, split_words(words, self._sizes)

    def first(self, question: np.ndarray, message: bytes) -> bytes:
        """The first layer: from the masked rows and the asker's half of what is opened."""
        weights, offsets = self._model.layers[0]
        mine = _multiply(question, weights) + self._pads.first.product + offsets
        sent = Sent(message)
        theirs = pads.words(sent, self._sizes.n_rows, self._sizes.first)
        sent.end()
        if self._pads.relu is None:
            return self._scored(mine, theirs)
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
        return self._scored(_multiply(masked + units, weights) + last.product + offsets, theirs)

    def _scored(self, mine: np.ndarray, theirs: np.ndarray) -> bytes:
        """Open the scores; what is left is one look into the table."""
        mine = mine + self._pads.argmax.opened
        self._wins = gates.wins(self._key, mine + theirs, self._pads.argmax, self._words[1], second=True)
        return bytes(mine.tobytes() + self._wins.tobytes())

    def votes(self, message: bytes) -> np.ndarray:
        """The owner's half of the votes, uint32 of shape (n_rows, n_classes). Private."""
        sent = Sent(message)
        theirs = pads.small(sent, self._sizes.n_rows, self._sizes.n_classes)
        sent.end()
        return gates.votes((self._wins + theirs) & _SMALL, self._pads.argmax)


class AskerSide:
    """The asker's side towards one owner."""

    def __init__(
        self, key: bytes, own: bytes, sizes: Sizes, *, question: np.ndarray, words: bytes, corrections: bytes
    ) -> None:
        sent = Sent(corrections)
        self._pads = model_pads(Stream(own), sent, sizes, question=question)
        sent.end()
        self._key, self._sizes, self._words = key, sizes, split_words(words, sizes)
        self._weights: np.ndarray | None = None

    def first(self, message: bytes) -> bytes:
        """From the owner's masked weights: this half of what the first layer opens."""
        sizes, sent = self._sizes, Sent(message)
        weights = pads.words(sent, sizes.n_features, sizes.first)
        self._last = pads.words(sent, sizes.hidden, sizes.n_classes) if sizes.hidden else None
        sent.end()
        mine = _multiply(self._pads.first.factor, weights) + self._pads.first.product
        self._opened = mine + _shaped(self._opened_pad(), mine.shape)
        return bytes(self._opened.tobytes())

    def _opened_pad(self) -> np.ndarray:
        return self._pads.argmax.opened if self._pads.relu is None else self._pads.relu.opened

    def layer(self, answer: bytes) -> bytes:
        """From the owner's answer to the first: this half of the second layer."""
        sizes, relu, last = self._sizes, self._pads.relu, self._pads.last
        if relu is None or last is None or self._last is None:
            raise ValueError("the agreed models have no second layer")
        sent, n = Sent(answer), sizes.n_rows * sizes.hidden
        opened = self._opened.ravel() + pads.words(sent, n)
        theirs = pads.small(sent, n) & np.uint8(1)
        sent.end()
        mine = gates.relu_bits(self._key, opened, relu, self._words[0], second=False)
        units = gates.relu_value(opened, mine ^ theirs, relu, second=False).reshape(sizes.n_rows, -1)
        self._opened = _multiply(last.factor, self._last) + last.product + self._pads.argmax.opened
        return bytes(mine.tobytes() + (units - last.factor).tobytes() + self._opened.tobytes())

    def wins(self, answer: bytes) -> bytes:
        """From the owner's answer to the last layer: what turns its half of the votes out."""
        sizes, sent = self._sizes, Sent(answer)
        opened = self._opened + pads.words(sent, sizes.n_rows, sizes.n_classes)
        theirs = pads.small(sent, sizes.n_rows, sizes.n_classes)
        sent.end()
        mine = gates.wins(self._key, opened, self._pads.argmax, self._words[1], second=False)
        self._places = (mine + theirs) & _SMALL
        return bytes(mine.tobytes())

    def votes(self) -> np.ndarray:
        """The asker's half of the votes, uint32 of shape (n_rows, n_classes)."""
        return gates.votes(self._places, self._pads.argmax)


def hidden_question(rows: np.ndarray, pad: np.ndarray) -> np.ndarray:
    """The masked rows, the same for all owners."""
    return np.asarray(rows - pad)


def words_bytes(sizes: Sizes) -> int:
    """The number of bytes of a model's correction words."""
    n_pairs = sizes.n_classes * (sizes.n_classes - 1) // 2
    return sizes.n_rows * (sizes.hidden + n_pairs) * comparison.WORD_BYTES


def split_words(data: bytes, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """The correction words of ReLU and of the argmax."""
    if len(data) != words_bytes(sizes):
        raise ValueError(f"correction words must have {words_bytes(sizes)} bytes, got {len(data)}")
    middle = sizes.n_rows * sizes.hidden * comparison.WORD_BYTES
    return _levels(data[:middle]), _levels(data[middle:])


def _levels(data: bytes) -> np.ndarray:
    n = len(data) // comparison.WORD_BYTES
    return np.frombuffer(data, dtype="<u8").reshape(comparison.WORD_BYTES // 16, n, 2)


def _shaped(pad: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return pad.reshape(shape)


def _multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    from ostraka.secure import _kernels  # noqa: PLC0415  (compiled code, loaded when needed)

    return np.asarray(_kernels.multiply(left, right))

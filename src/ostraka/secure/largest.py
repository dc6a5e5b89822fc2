"""The largest of each row's numbers, which two hold in shares modulo 2^64: one asks, the other owns.

Both open the masked numbers and compare all pairs of classes; what the asker sends last turns the owner's
half of the ones out. Of two that are equal the first wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure import comparison, gates, pads
from ostraka.secure.pads import Sent

if TYPE_CHECKING:
    from ostraka.secure.pads import ArgmaxPads

__all__ = ["AskerLargest", "OwnerLargest", "comparisons", "levels", "scaled"]

_SMALL = np.uint8(comparison.MODULUS - 1)
_SCALE = np.uint64(32)  # bits below whole numbers: of 64, the upper 32 are compared


class OwnerLargest:
    """The owner's side. Each step may be taken once, in order."""

    def __init__(self, pads_: ArgmaxPads, key: bytes, words: np.ndarray) -> None:
        self._pads, self._key, self._words = pads_, key, words

    def compared(self, mine: np.ndarray, theirs: np.ndarray) -> bytes:
        """Open the numbers, from this half and the asker's masked one; return this side's part."""
        opened = mine + self._pads.opened
        self._wins = gates.wins(self._key, opened + theirs, self._pads, self._words, second=True)
        return bytes(opened.tobytes() + self._wins.tobytes())

    def ones(self, message: bytes) -> np.ndarray:
        """The owner's half of the ones, uint32, from the asker's part of the wins. Private."""
        sent = Sent(message)
        theirs = pads.small(sent, *self._wins.shape)
        sent.end()
        return gates.votes((self._wins + theirs) & _SMALL, self._pads)


class AskerLargest:
    """The asker's side."""

    def __init__(self, pads_: ArgmaxPads, key: bytes, words: np.ndarray) -> None:
        self._pads, self._key, self._words = pads_, key, words

    def opening(self, mine: np.ndarray) -> bytes:
        """The asker's half of the numbers, masked."""
        self._opened = mine + self._pads.opened
        return bytes(self._opened.tobytes())

    def wins(self, answer: bytes) -> bytes:
        """From the owner's part: what turns its half of the ones out."""
        sent, shape = Sent(answer), self._opened.shape
        opened, theirs = self._opened + pads.words(sent, *shape), pads.small(sent, *shape)
        sent.end()
        mine = gates.wins(self._key, opened, self._pads, self._words, second=False)
        self._places = (mine + theirs) & _SMALL
        return bytes(mine.tobytes())

    def ones(self) -> np.ndarray:
        """The asker's half of the ones, uint32."""
        return gates.votes(self._places, self._pads)


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

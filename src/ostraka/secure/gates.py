"""Steps of a computation between two who hold shares modulo 2^64: the sign, ReLU, largest of several.

One asks (``second=False``), the other owns the model. A number z is opened as y = z + r, where the dealer
knows r and neither of the two does. Of y only the upper 32 bits are used, so comparisons are of 31 bits:
what is compared is z / 2^32, rounded down or up, and every comparison sees the same rounding.
Boyle et al. 2021, Sec. 4 (signs by one comparison with the mask).

The largest of each row's numbers, which two hold in shares modulo 2^64: one asks, the other owns.

Both open the masked numbers and compare all pairs of classes; what the asker sends last turns the owner's
half of the ones out. Of two that are equal the first wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure import comparison, pads
from ostraka.secure.pads import Sent

if TYPE_CHECKING:
    from ostraka.secure.pads import ArgmaxPads, ReluPads

_SHIFT, _SIGN = np.uint64(32), np.uint64(31)
_POINT, _WORD = np.uint64(2**31 - 1), np.uint64(2**32 - 1)
_SMALL = np.uint8(comparison.MODULUS - 1)


def upper(words: np.ndarray) -> np.ndarray:
    """The upper 32 bits."""
    return words >> _SHIFT


def apart(values: np.ndarray) -> np.ndarray:
    """Difference of each pair of classes, modulo 2^32, flat; from upper halves."""
    first, second = np.triu_indices(values.shape[1], 1)
    return np.asarray(((values[:, first] - values[:, second]) & _WORD).ravel())


def signs_of(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of 32-bit masks of compared numbers: the secret points, the payloads, and the masks' own signs."""
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


_LARGEST_SMALL = np.uint8(comparison.MODULUS - 1)
_SCALE = np.uint64(32)  # bits below whole numbers: of 64, the upper 32 are compared


class OwnerLargest:
    """The owner's side. Each step may be taken once, in order."""

    def __init__(self, pads_: ArgmaxPads, key: bytes, words: np.ndarray) -> None:
        self._pads, self._key, self._words = pads_, key, words

    def compared(self, mine: np.ndarray, theirs: np.ndarray) -> bytes:
        """Open the numbers, from this half and the asker's masked one; return this side's part."""
        opened = mine + self._pads.opened
        self._wins = wins(self._key, opened + theirs, self._pads, self._words, second=True)
        return bytes(opened.tobytes() + self._wins.tobytes())

    def ones(self, message: bytes) -> np.ndarray:
        """The owner's half of the ones, uint32, from the asker's part of the wins. Private."""
        sent = Sent(message)
        theirs = pads.small(sent, *self._wins.shape)
        sent.end()
        return votes((self._wins + theirs) & _LARGEST_SMALL, self._pads)


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
        mine = wins(self._key, opened, self._pads, self._words, second=False)
        self._places = (mine + theirs) & _LARGEST_SMALL
        return bytes(mine.tobytes())

    def ones(self) -> np.ndarray:
        """The asker's half of the ones, uint32."""
        return votes(self._places, self._pads)


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

"""A dealer's material for an asker and one party: correction words for both, corrections for the asker.

It sees no data: all of it follows from keys and public sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka.secure import comparison, gates
from ostraka.secure.pads import Blank, Sizes, Stream, argmax_pads, model_pads

if TYPE_CHECKING:
    from ostraka.secure.pads import ArgmaxPads, LinearPads, ReluPads

__all__ = ["Material", "deal_argmax", "deal_model"]

_SMALL = np.uint8(comparison.MODULUS - 1)


class Material(NamedTuple):
    """Correction words, which show nothing to who lacks a seed, and what only the asker may read."""

    words: bytes
    corrections: bytes


def deal_model(key: bytes, sizes: Sizes, *, question: np.ndarray, asker: bytes, other: bytes) -> Material:
    """For one model: ``question`` is the pad of the rows, ``asker`` and ``other`` are the holders' keys."""
    stream = Stream(other)
    owner = model_pads(stream, stream, sizes, question=None)
    mine = model_pads(Stream(asker), Blank(), sizes, question=question)
    words, sent = [], [_product(mine.first, owner.first)]
    if mine.relu is not None and owner.relu is not None and mine.last and owner.last:
        found, corrections = _relu(key, mine.relu, owner.relu)
        words.append(found)
        sent += [corrections, _product(mine.last, owner.last)]
    found, corrections = _argmax(key, mine.argmax, owner.argmax)
    return Material(b"".join([*words, found]), b"".join([*sent, corrections]))


def deal_argmax(key: bytes, n_rows: int, n_classes: int, *, asker: bytes, other: bytes) -> Material:
    """Material for the largest of each row's numbers alone."""
    stream = Stream(other)
    owner = argmax_pads(stream, stream, n_rows, n_classes)
    return Material(*_argmax(key, argmax_pads(Stream(asker), Blank(), n_rows, n_classes), owner))


def _product(mine: LinearPads, owner: LinearPads) -> bytes:
    from ostraka.secure import _kernels  # noqa: PLC0415  (compiled code, loaded when needed)

    return bytes((_kernels.multiply(mine.factor, owner.factor) - owner.product).tobytes())


def _relu(key: bytes, mine: ReluPads, owner: ReluPads) -> tuple[bytes, bytes]:
    masks = gates.upper(mine.opened + owner.opened)
    words, sign = _compared(key, masks, mine, owner)
    table = gates.relu_table(masks, mine.bit ^ owner.bit) - owner.table
    return words, sign + table.tobytes()


def _argmax(key: bytes, mine: ArgmaxPads, owner: ArgmaxPads) -> tuple[bytes, bytes]:
    masks = gates.apart(gates.upper(mine.opened + owner.opened))
    words, sign = _compared(key, masks, mine, owner)
    table = gates.vote_table((mine.place + owner.place) & _SMALL) - owner.table
    return words, sign + table.tobytes()


def _compared(
    key: bytes, masks: np.ndarray, mine: ArgmaxPads | ReluPads, owner: ArgmaxPads | ReluPads
) -> tuple[bytes, bytes]:
    points, payloads, signs = gates.signs_of(masks)
    words = comparison.deal(key, np.stack([mine.roots, owner.roots]), points, payloads)
    return words.tobytes(), ((signs - owner.sign) & _SMALL).tobytes()

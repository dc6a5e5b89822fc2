"""The end of a secret round in which the asker learns the noisy argmax and no counts.

The first party that takes part holds the sum of all parties' halves, noise included, and the asker the sum
of its own. Both compare, like a model's owner and the asker do, and what comes out is the largest alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ostraka.secure import hidden, largest
from ostraka.secure.hidden import DEALER, HOLDER
from ostraka.secure.largest import AskerLargest
from ostraka.secure.pads import Sent, Stream, argmax_pads
from ostraka.voters._rounds import by, votes_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.secure.hidden import AskerKeys
    from ostraka.secure.pads import Sizes
    from ostraka.secure.rounds import Round
    from ostraka.voters._rounds import Asker

__all__ = ["noisy_argmax"]


class Dealt(Protocol):
    """A secret round after all models were computed on."""

    asker: Asker
    round: Round
    keys: AskerKeys
    sizes: Sizes

    def dealt(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Fetch what the dealer signed, correction words, and corrections."""
        ...

    def told(self, name: str, verb: str, message: bytes) -> bytes:
        """Return a party's answer."""
        ...

    def headed(self, message: bytes) -> bytes:
        """Put the round's name before a message."""
        ...

    def votes(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the masked votes of parties."""
        ...


def noisy_argmax(round_: Dealt, messages: Mapping[str, bytes], half: np.ndarray) -> np.ndarray:
    """Return 1 at each row's noisy argmax and 0 elsewhere; ``half`` is what the asker has of all votes."""
    holder, *others = messages
    seal = round_.asker.identity.seal
    side, signed, words = _side(round_)
    sealed = round_.votes({name: messages[name] for name in others})
    for name, votes in sealed.items():
        votes_from(name, votes, round_.round, round_.asker.agreement)  # names who signed something else
    opening = side.opening(largest.scaled(half))
    body = round_.headed(hidden.pack([messages[holder], opening, signed, *sealed.values()]))
    answer = round_.told(holder, "hold", hidden.pack([seal("hold", body), words]))
    message = by(holder, lambda: side.wins(answer))
    last = round_.told(holder, "argmax", seal("argmax", round_.headed(message)))
    return by(holder, lambda: _ones(side.ones(), last))


def _side(round_: Dealt) -> tuple[AskerLargest, bytes, bytes]:
    """Fetch the holder's material; return the asker's side of the comparisons, too."""
    signed, words, corrections = round_.dealt(HOLDER)
    transcript, n_rows, n_classes = round_.round.transcript, round_.sizes.n_rows, round_.sizes.n_classes

    def side() -> AskerLargest:
        sent = Sent(corrections)
        pads = argmax_pads(Stream(round_.keys.pads(transcript, HOLDER)), sent, n_rows, n_classes)
        sent.end()
        levels = largest.levels(words, largest.comparisons(n_rows, n_classes))
        return AskerLargest(pads, hidden.cipher_key(transcript, HOLDER), levels)

    return by(DEALER, side), signed, words


def _ones(mine: np.ndarray, theirs: bytes) -> np.ndarray:
    """Add both halves of the ones; ValueError unless each row has a single 1."""
    if len(theirs) != 4 * mine.size:
        raise ValueError(f"half of the argmax must have {4 * mine.size} bytes, got {len(theirs)}")
    ones = mine + np.frombuffer(theirs, dtype="<u4").reshape(mine.shape)
    if ones.max() > 1 or not (ones.sum(axis=1) == 1).all():
        raise ValueError("the argmax must be one class a row")
    return np.asarray(ones, dtype=np.int64)

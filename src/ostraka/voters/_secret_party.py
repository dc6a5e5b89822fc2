"""A party's side of secret rounds: one session per round, which takes each message once, in order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostraka.secure import hidden, largest, rounds
from ostraka.secure.hidden import HOLDER
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, exchange_key
from ostraka.secure.largest import OwnerLargest
from ostraka.secure.pads import Sent, Stream, argmax_pads
from ostraka.secure.pads import words as numbers
from ostraka.secure.questions import sizes_of
from ostraka.secure.rounds import Call, Round
from ostraka.secure.two_party import FixedModel, OwnerSide, words_bytes

if TYPE_CHECKING:
    import numpy as np

    from ostraka.secure.agreement import Agreement

__all__ = ["SecretSessions", "Session", "most_ask_bytes"]

_OPEN_ROUNDS = 8  # each keeps pads in memory; the oldest is given up for a new one


@dataclass(slots=True, repr=False)
class Session:
    """One round, and the message that it waits for."""

    call: Call
    secret: bytes
    side: OwnerSide
    waits_for: str = "ask"
    round: Round | None = None
    holds: bytes = b""  # the key of the holder's pads, where this party is the holder
    largest: OwnerLargest | None = None
    opening: np.ndarray | None = None  # the asker's half of what is compared

    @property
    def last(self) -> str:
        """The message which turns the votes out."""
        return "hold" if self.holds else "vote"


class SecretSessions:
    """The open rounds of one party. Every fault raises ValueError and ends its round."""

    def __init__(self, name: str, agreement: Agreement, model: FixedModel) -> None:
        self._name, self._agreement, self._model = name, agreement, model
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "SecretSessions(private)"

    def join(self, call: Call, secret: bytes) -> bytes:
        """Start a round; return the masked weights."""
        key = hidden.offered_key(call, bytes.fromhex(call.offer), self._agreement)
        pads = hidden.owner_key(secret, key, call, self._name)
        side = OwnerSide(self._model, pads, sizes_of(self._agreement, call.n_rows))
        session = Session(call, secret, side)
        if self._agreement.argmax_only and call.participants[0] == self._name:
            session.holds = hidden.owner_key(secret, key, call, HOLDER)
        self._keep(session)
        return side.weights()

    def ask(self, body: bytes, material: bytes) -> tuple[Session, bytes]:
        """Take masked rows, half of an opening and the dealer's material; return this party's half."""
        request, data, message, signed = hidden.unpack(body, 4)
        digest, replies, _ = rounds.unpack(request)
        session = self._taken(digest, "ask")
        call, sizes = session.call, sizes_of(self._agreement, session.call.n_rows)
        session.round = Round.gather(call, replies, self._agreement)
        if session.round.keys[self._name] != exchange_key(session.secret):
            raise ValueError("its own key in the request is not the one it gave")
        question = hidden.question_of(data, call, sizes)
        transcript = session.round.transcript
        hidden.read_material(
            signed, self._agreement, transcript=transcript, name=self._name, words=material, sealed=None
        )
        session.side.take(hidden.cipher_key(transcript, self._name), material)
        answer = session.side.first(question, message)
        self._keep(session, "layer" if sizes.hidden else session.last)
        return session, answer

    def layer(self, body: bytes) -> tuple[Session, bytes]:
        """Take the opening of the second layer; return this party's half."""
        session, message = self._next(body, "layer")
        answer = session.side.layer(message)
        self._keep(session, session.last)
        return session, answer

    def turn(self, body: bytes) -> tuple[Session, np.ndarray]:
        """Take the last message, which ends the round; return this party's half of its votes, uint32."""
        session, message = self._next(body, "vote")
        return session, session.side.votes(message)

    def hold(self, body: bytes, words: bytes) -> tuple[Session, np.ndarray]:
        """Take, as the holder, the last message and the others' votes; return the sum of all halves.

        The half is this party's own, still without noise; what the others sent is masked.
        """
        session, message = self._next(body, "hold")
        call, others = session.call, session.call.participants[1:]
        last, opening, signed, *votes = hidden.unpack(message, 3 + len(others))
        transcript = b"" if session.round is None else session.round.transcript
        hidden.read_material(
            signed, self._agreement, transcript=transcript, name=HOLDER, words=words, sealed=None
        )
        sizes = sizes_of(self._agreement, call.n_rows)
        stream, sent = Stream(session.holds), Sent(opening)
        session.opening = numbers(sent, sizes.n_rows, sizes.n_classes)
        sent.end()
        pads = argmax_pads(stream, stream, sizes.n_rows, sizes.n_classes)
        levels = largest.levels(words, largest.comparisons(sizes.n_rows, sizes.n_classes))
        session.largest = OwnerLargest(pads, hidden.cipher_key(transcript, HOLDER), levels)
        total = session.side.votes(last)
        for name, sealed in zip(others, votes, strict=True):
            total = total + _votes_of(sealed, transcript, name, self._agreement, call.n_rows)
        return session, total

    def compared(self, session: Session, total: np.ndarray) -> bytes:
        """Open the holder's sum, masked, and compare; the last message of the round is to come."""
        if session.largest is None or session.opening is None:
            raise ValueError("the round has no votes yet")
        answer = session.largest.compared(largest.scaled(total), session.opening)
        self._keep(session, "argmax")
        return answer

    def argmax(self, body: bytes) -> tuple[Session, np.ndarray]:
        """Take the asker's part of the comparisons, which ends the round; return half of the ones, uint32."""
        session, message = self._next(body, "argmax")
        if session.largest is None:
            raise ValueError("the round has no votes yet")
        return session, session.largest.ones(message)

    def _next(self, body: bytes, stage: str) -> tuple[Session, bytes]:
        digest, transcript, message = hidden.unpack(body, 3)
        session = self._taken(digest.decode(errors="replace"), stage)
        if session.round is None or session.round.transcript != transcript:
            raise ValueError("the message is for another round")
        return session, message

    def _taken(self, digest: str, stage: str) -> Session:
        with self._lock:
            session = self._open.pop(digest, None)
        if session is None or session.waits_for != stage:
            raise ValueError("this round is not open: it was answered, given up, or never joined")
        return session

    def _keep(self, session: Session, stage: str = "ask") -> None:
        session.waits_for = stage
        with self._lock:
            self._open[session.call.digest] = session
            while len(self._open) > _OPEN_ROUNDS:
                self._open.popitem(last=False)


def most_ask_bytes(agreement: Agreement) -> int:
    """Return the length of the longest message of a secret round."""
    sizes = sizes_of(agreement, agreement.max_rows)
    numbers = 8 * sizes.n_rows * (sizes.first + 2 * sizes.hidden + sizes.n_classes)
    votes = 16 + KEY_BYTES + SIGNATURE_BYTES + 4 * sizes.n_rows * sizes.n_classes  # of each other party
    others = len(agreement.members) if agreement.argmax_only else 0
    return numbers + words_bytes(sizes) + others * votes + 4096


def _votes_of(sealed: bytes, transcript: bytes, name: str, agreement: Agreement, n_rows: int) -> np.ndarray:
    """Another party's masked votes, which the holder adds; ValueError names the party."""
    try:
        return rounds.votes_of(sealed, transcript, name, agreement, n_rows=n_rows)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None

"""A party's side of secret rounds: one session per round, which takes each message once, in order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ostraka.secure import hidden, rounds
from ostraka.secure.keys import exchange_key
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
        self._keep(Session(call, secret, side))
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
        self._keep(session, "layer" if sizes.hidden else "vote")
        return session, answer

    def layer(self, body: bytes) -> tuple[Session, bytes]:
        """Take the opening of the second layer; return this party's half."""
        session, message = self._next(body, "layer")
        answer = session.side.layer(message)
        self._keep(session, "vote")
        return session, answer

    def turn(self, body: bytes) -> tuple[Session, np.ndarray]:
        """Take the last message, which ends the round; return this party's half of its votes, uint32."""
        session, message = self._next(body, "vote")
        return session, session.side.votes(message)

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
    return 8 * sizes.n_rows * (sizes.first + 2 * sizes.hidden + sizes.n_classes) + words_bytes(sizes) + 4096

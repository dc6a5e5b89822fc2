"""The asker's side of a secret round, whose questions no party sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ostraka.secure import hidden, rounds
from ostraka.secure.errors import PartyError
from ostraka.secure.hidden import DEALER, AskerKeys
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, exchange_key, new_secret, unseal
from ostraka.secure.questions import sizes_of
from ostraka.secure.rounds import Call, Round
from ostraka.secure.two_party import AskerSide, hidden_question, words_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.keys import Identity
    from ostraka.secure.pads import Sizes

__all__ = ["SecretRound"]

Checked = TypeVar("Checked")

_SMALL_REPLY = 8192  # bytes, beyond the numbers it holds
_CORRECTIONS = 128  # bytes for one number, at most


class Link(Protocol):
    """A link to a party or to the dealer."""

    def ask(self, verb: str, body: bytes, most: int) -> bytes:
        """Return the reply to a message."""
        ...


@dataclass(slots=True)
class SecretRound:
    """One secret round: open, gather keys, deal, compute with each party, and collect the votes."""

    agreement: Agreement
    identity: Identity
    links: Mapping[str, Link]
    dealer: Link
    all: Callable[..., dict[str, bytes]]  # asks every party at once
    secret: bytes
    round: Round
    keys: AskerKeys
    request: bytes
    question: bytes  # a salt, then the masked rows
    pad: np.ndarray
    sizes: Sizes

    @classmethod
    def opened(
        cls,
        rows: np.ndarray,
        names: tuple[str, ...],
        *,
        agreement: Agreement,
        identity: Identity,
        links: Mapping[str, Link],
        dealer: Link,
        every: Callable[..., dict[str, bytes]],
    ) -> tuple[SecretRound, dict[str, bytes]]:
        """Open a round: collect all keys and start the dealer; return the round and the masked weights."""
        secret, sizes = new_secret(), sizes_of(agreement, len(rows))
        call = Call(
            agreement=agreement.sha256,
            id=new_secret().hex(),
            key=exchange_key(secret),
            n_rows=len(rows),
            participants=names,
            question="0" * 64,
        )
        sealed = dealer.ask("open", identity.seal("opening", hidden.opening(call)), _SMALL_REPLY)
        keys = AskerKeys.of(secret, _by(DEALER, lambda: hidden.offered_key(call, sealed, agreement)), call)
        pad = hidden.question_pad(keys.question, sizes)
        question = hidden.salted_question(hidden_question(rows, pad))
        call = replace(call, question=hidden.digest_of(question), offer=sealed.hex())
        invitation = identity.seal("call", call.body())
        most = _SMALL_REPLY + 8 * (sizes.n_features * sizes.first + sizes.hidden * sizes.n_classes)
        replies = every(names, lambda name: links[name].ask("join", invitation, most))
        signed, weights = _joined(agreement, call, replies)
        round_ = _gathered(call, signed, agreement)
        request = identity.seal("deal", hidden.deal_request(call, signed))
        ready = dealer.ask("deal", request, _SMALL_REPLY)
        _by(DEALER, lambda: _dealt(agreement, ready, round_.transcript))
        packed = rounds.pack(call, signed, np.empty(0))
        found = cls(
            agreement, identity, links, dealer, every, secret, round_, keys, packed, question, pad, sizes
        )
        return found, weights

    def asked(self, name: str, weights: bytes) -> tuple[AskerSide, bytes]:
        """Compute with one party until only its votes are missing; return this side and the last message."""
        side, signed, material = self._material(name)
        opening = _by(name, lambda: side.first(weights))
        body = hidden.pack([self.request, self.question, opening, signed])
        answer = self._told(name, "ask", hidden.pack([self.identity.seal("ask", body), material]))
        if self.sizes.hidden:
            message = _by(name, lambda: side.layer(answer))
            answer = self._told(name, "layer", self.identity.seal("layer", self._headed(message)))
        return side, _by(name, lambda: side.wins(answer))

    def _material(self, name: str) -> tuple[AskerSide, bytes, bytes]:
        """Fetch one party's correction words from the dealer; return this side of the computation, too."""
        transcript, sizes, n_words = self.round.transcript, self.sizes, words_bytes(self.sizes)
        most = _SMALL_REPLY + n_words + _CORRECTIONS * sizes.n_rows * (sizes.hidden + sizes.n_classes)
        request = self.identity.seal("material", hidden.pack([transcript, name.encode()]))
        reply = self.dealer.ask("material", request, most)

        def read() -> tuple[AskerSide, bytes, bytes]:
            signed, material, sealed = hidden.unpack(reply, 3)
            hidden.read_material(
                signed, self.agreement, transcript=transcript, name=name, words=material, sealed=sealed
            )
            corrections = hidden.unseal_corrections(self.keys.seal(transcript, name), sealed)
            own, key = self.keys.pads(transcript, name), hidden.cipher_key(transcript, name)
            side = AskerSide(key, own, sizes, question=self.pad, words=material, corrections=corrections)
            return side, signed, material

        return _by(DEALER, read)

    def _told(self, name: str, verb: str, message: bytes) -> bytes:
        """Return a party's answer to one message, after checking its signature for this round."""
        most = _SMALL_REPLY + 9 * self.sizes.n_rows * (self.sizes.first + self.sizes.n_classes)
        sealed = self.links[name].ask(verb, message, most)
        transcript = self.round.transcript.hex()
        return _by(name, lambda: _bound(self.agreement, name, verb, sealed, transcript))

    def _headed(self, message: bytes) -> bytes:
        return hidden.pack([self.round.call.digest.encode(), self.round.transcript, message])

    def votes(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return every party's masked half of its votes, still sealed; each party pays when it answers."""
        most = SIGNATURE_BYTES + KEY_BYTES + 4 * self.sizes.n_rows * self.sizes.n_classes
        sealed = {
            name: self.identity.seal("turn", self._headed(message)) for name, message in messages.items()
        }
        return self.all(tuple(messages), lambda name: self.links[name].ask("vote", sealed[name], most))


def _bound(agreement: Agreement, name: str, purpose: str, sealed: bytes, digest: str) -> bytes:
    """Return the body that a party signed for this call or round."""
    body = unseal(agreement.members[name], purpose, sealed)
    if body[:KEY_BYTES] != bytes.fromhex(digest):
        raise ValueError("the answer is for another round")
    return body[KEY_BYTES:]


def _joined(
    agreement: Agreement, call: Call, replies: Mapping[str, bytes]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return every party's signed reply and its masked weights."""
    signed, weights = {}, {}
    for name, found in replies.items():

        def read(name: str = name, found: bytes = found) -> tuple[bytes, bytes]:
            reply, sealed = hidden.unpack(found, 2)
            return reply, _bound(agreement, name, "weights", sealed, call.digest)

        signed[name], weights[name] = _by(name, read)
    return signed, weights


def _gathered(call: Call, replies: Mapping[str, bytes], agreement: Agreement) -> Round:
    try:
        return Round.gather(call, replies, agreement)
    except ValueError as error:
        name = {str(error).partition(":")[0]} & set(agreement.members)
        raise PartyError(str(error), code="wrong_identity", parties=tuple(name)) from None


def _dealt(agreement: Agreement, sealed: bytes, transcript: bytes) -> None:
    dealer = "" if agreement.secret is None else agreement.secret.dealer
    if unseal(dealer, "dealing", sealed) != transcript:
        raise ValueError("it deals for another round")


def _by(name: str, work: Callable[[], Checked]) -> Checked:
    """Turn a ValueError about a signed message into a PartyError that names its signer."""
    try:
        return work()
    except ValueError as error:
        raise PartyError(f"{name}: {error}", code="wrong_identity", parties=(name,)) from None

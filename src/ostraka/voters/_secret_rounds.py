"""The asker's side of a secret round, whose questions no party sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure import hidden, rounds
from ostraka.secure.hidden import DEALER, AskerKeys
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, exchange_key, new_secret, unseal
from ostraka.secure.questions import sizes_of
from ostraka.secure.rounds import Call, Round
from ostraka.secure.two_party import AskerSide, hidden_question, words_bytes
from ostraka.voters._links import ask_all
from ostraka.voters._rounds import added, by, gathered, plausible
from ostraka.voters._secret_argmax import noisy_argmax

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.pads import Sizes
    from ostraka.voters._rounds import Asker, Link

__all__ = ["secret_round"]

_SMALL_REPLY = 8192  # bytes, beyond the numbers it holds
_CORRECTIONS = 128  # bytes for one number, at most


def secret_round(asker: Asker, rows: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Run one round whose rows nobody else sees: the noisy counts, or a 1 at the largest of each row."""
    round_, weights = SecretRound.opened(rows, names, asker)
    asked = ask_all(names, lambda name: round_.asked(name, weights[name]))
    messages = {name: message for name, (_, message) in asked.items()}
    half = np.zeros((len(rows), len(asker.agreement.classes)), dtype=np.uint32)
    for side, _ in asked.values():
        half += side.votes()
    if asker.agreement.argmax_only:
        return noisy_argmax(round_, messages, half)
    sealed = round_.votes(messages)
    total = half + added(sealed, round_.round, round_.secret, asker.agreement)
    return plausible(total, len(names), asker.agreement)


@dataclass(slots=True)
class SecretRound:
    """One secret round: open, gather keys, deal, compute with each party, and collect the votes."""

    asker: Asker
    dealer: Link
    secret: bytes
    round: Round
    keys: AskerKeys
    request: bytes
    question: bytes  # a salt, then the masked rows
    pad: np.ndarray
    sizes: Sizes

    @classmethod
    def opened(
        cls, rows: np.ndarray, names: tuple[str, ...], asker: Asker
    ) -> tuple[SecretRound, dict[str, bytes]]:
        """Open a round: collect all keys and start the dealer; return the round and the masked weights."""
        agreement, identity, dealer = asker.agreement, asker.identity, asker.dealer
        if dealer is None:
            raise ValueError("secret questions need a dealer")
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
        keys = AskerKeys.of(secret, by(DEALER, lambda: hidden.offered_key(call, sealed, agreement)), call)
        pad = hidden.question_pad(keys.question, sizes)
        question = hidden.salted_question(hidden_question(rows, pad))
        call = replace(call, question=hidden.digest_of(question), offer=sealed.hex())
        invitation = identity.seal("call", call.body())
        most = _SMALL_REPLY + 8 * (sizes.n_features * sizes.first + sizes.hidden * sizes.n_classes)
        replies = ask_all(names, lambda name: asker.links[name].ask("join", invitation, most))
        signed, weights = _joined(agreement, call, replies)
        round_ = gathered(call, signed, agreement)
        request = identity.seal("deal", hidden.deal_request(call, signed))
        ready = dealer.ask("deal", request, _SMALL_REPLY)
        by(DEALER, lambda: _ready(agreement, ready, round_.transcript))
        packed = rounds.pack(call, signed, np.empty(0))
        return cls(asker, dealer, secret, round_, keys, packed, question, pad, sizes), weights

    def asked(self, name: str, weights: bytes) -> tuple[AskerSide, bytes]:
        """Compute with one party until only its votes are missing; return this side and the last message."""
        side, signed, material = self._material(name)
        opening = by(name, lambda: side.first(weights))
        body = hidden.pack([self.request, self.question, opening, signed])
        answer = self.told(name, "ask", hidden.pack([self.asker.identity.seal("ask", body), material]))
        if self.sizes.hidden:
            message = by(name, lambda: side.layer(answer))
            answer = self.told(name, "layer", self.asker.identity.seal("layer", self.headed(message)))
        return side, by(name, lambda: side.wins(answer))

    def _material(self, name: str) -> tuple[AskerSide, bytes, bytes]:
        """Fetch one party's correction words from the dealer; return this side of the computation, too."""
        signed, words, corrections = self.dealt(name)
        own, key = self.keys.pads(self.round.transcript, name), hidden.cipher_key(self.round.transcript, name)

        def side() -> AskerSide:
            return AskerSide(key, own, self.sizes, question=self.pad, words=words, corrections=corrections)

        return by(DEALER, side), signed, words

    def dealt(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Fetch what the dealer signed for a party or the holder, the words, and the corrections, opened."""
        transcript, sizes, n_words = self.round.transcript, self.sizes, words_bytes(self.sizes)
        most = _SMALL_REPLY + n_words + _CORRECTIONS * sizes.n_rows * (sizes.hidden + sizes.n_classes)
        request = self.asker.identity.seal("material", hidden.pack([transcript, name.encode()]))
        reply = self.dealer.ask("material", request, most)

        def read() -> tuple[bytes, bytes, bytes]:
            signed, words, sealed = hidden.unpack(reply, 3)
            hidden.read_material(
                signed, self.asker.agreement, transcript=transcript, name=name, words=words, sealed=sealed
            )
            return signed, words, hidden.unseal_corrections(self.keys.seal(transcript, name), sealed)

        return by(DEALER, read)

    def told(self, name: str, verb: str, message: bytes) -> bytes:
        """Return a party's answer to one message, after checking its signature for this round."""
        most = _SMALL_REPLY + 9 * self.sizes.n_rows * (self.sizes.first + self.sizes.n_classes)
        sealed = self.asker.links[name].ask(verb, message, most)
        transcript = self.round.transcript.hex()
        return by(name, lambda: _bound(self.asker.agreement, name, verb, sealed, transcript))

    def headed(self, message: bytes) -> bytes:
        return hidden.pack([self.round.call.digest.encode(), self.round.transcript, message])

    def votes(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return every party's masked half of its votes, still sealed; each party pays when it answers."""
        most = SIGNATURE_BYTES + KEY_BYTES + 4 * self.sizes.n_rows * self.sizes.n_classes
        links, identity = self.asker.links, self.asker.identity
        sealed = {name: identity.seal("turn", self.headed(message)) for name, message in messages.items()}
        return ask_all(tuple(messages), lambda name: links[name].ask("vote", sealed[name], most))


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

        signed[name], weights[name] = by(name, read)
    return signed, weights


def _ready(agreement: Agreement, sealed: bytes, transcript: bytes) -> None:
    """Raise ValueError unless the dealer signed that it deals for this round."""
    dealer = "" if agreement.secret is None else agreement.secret.dealer
    if unseal(dealer, "dealing", sealed) != transcript:
        raise ValueError("it deals for another round")

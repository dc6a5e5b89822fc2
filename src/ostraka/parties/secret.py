"""Secret rounds, whose questions no party sees: the sessions of a party, and the asker's side.

A party has one session for each round, which takes each message once, in order. Where the asker learns the
noisy argmax and no counts, the first party that takes part holds the sum of all parties' halves, noise
included, and the asker the sum of its own halves. Both compare, as a model's owner and the asker do.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ostraka.parties.links import added, ask_all, by, gathered, plausible, votes_from
from ostraka.secure import rounds, two_party
from ostraka.secure.agreement import sizes_of
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, exchange_key, new_secret, unseal
from ostraka.secure.rounds import DEALER, HOLDER, AskerKeys, Call, Round
from ostraka.secure.two_party import (
    AskerLargest,
    AskerSide,
    FixedModel,
    OwnerLargest,
    OwnerSide,
    Sent,
    Stream,
    argmax_pads,
    words_bytes,
)
from ostraka.secure.two_party import words as numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.parties.links import Asker, Link
    from ostraka.secure.agreement import Agreement
    from ostraka.secure.two_party import Sizes

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
        key = rounds.offered_key(call, bytes.fromhex(call.offer), self._agreement)
        pads = rounds.owner_key(secret, key, call, self._name)
        side = OwnerSide(self._model, pads, sizes_of(self._agreement, call.n_rows))
        session = Session(call, secret, side)
        if self._agreement.argmax_only and call.participants[0] == self._name:
            session.holds = rounds.owner_key(secret, key, call, HOLDER)
        self._keep(session)
        return side.weights()

    def ask(self, body: bytes, material: bytes) -> tuple[Session, bytes]:
        """Take masked rows, half of an opening and the dealer's material; return this party's half."""
        request, data, message, signed = rounds.unpack(body, 4)
        digest, replies = rounds.read_replies(request)
        session = self._taken(digest, "ask")
        call, sizes = session.call, sizes_of(self._agreement, session.call.n_rows)
        session.round = Round.gather(call, replies, self._agreement)
        if session.round.keys[self._name] != exchange_key(session.secret):
            raise ValueError("its own key in the request is not the one it gave")
        question = rounds.question_of(data, call, sizes)
        transcript = session.round.transcript
        rounds.read_material(
            signed, self._agreement, transcript=transcript, name=self._name, words=material, sealed=None
        )
        session.side.take(rounds.cipher_key(transcript, self._name), material)
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
        last, opening, signed, *votes = rounds.unpack(message, 3 + len(others))
        transcript = b"" if session.round is None else session.round.transcript
        rounds.read_material(
            signed, self._agreement, transcript=transcript, name=HOLDER, words=words, sealed=None
        )
        sizes = sizes_of(self._agreement, call.n_rows)
        stream, sent = Stream(session.holds), Sent(opening)
        session.opening = numbers(sent, sizes.n_rows, sizes.n_classes)
        sent.end()
        pads = argmax_pads(stream, stream, sizes.n_rows, sizes.n_classes)
        levels = two_party.levels(words, two_party.comparisons(sizes.n_rows, sizes.n_classes))
        session.largest = OwnerLargest(pads, rounds.cipher_key(transcript, HOLDER), levels)
        total = session.side.votes(last)
        for name, sealed in zip(others, votes, strict=True):
            try:
                total = total + rounds.votes_of(sealed, transcript, name, self._agreement, n_rows=call.n_rows)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return session, total

    def compared(self, session: Session, total: np.ndarray) -> bytes:
        """Open the holder's sum, masked, and compare; the last message of the round is to come."""
        if session.largest is None or session.opening is None:
            raise ValueError("the round has no votes yet")
        answer = session.largest.compared(two_party.scaled(total), session.opening)
        self._keep(session, "argmax")
        return answer

    def argmax(self, body: bytes) -> tuple[Session, np.ndarray]:
        """Take the asker's part of the comparisons, which ends the round; return half of the ones, uint32."""
        session, message = self._next(body, "argmax")
        if session.largest is None:
            raise ValueError("the round has no votes yet")
        return session, session.largest.ones(message)

    def _next(self, body: bytes, stage: str) -> tuple[Session, bytes]:
        digest, transcript, message = rounds.unpack(body, 3)
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


def noisy_argmax(round_: SecretRound, messages: Mapping[str, bytes], half: np.ndarray) -> np.ndarray:
    """Return 1 at each row's noisy argmax and 0 elsewhere; ``half`` is what the asker has of all votes."""
    holder, *others = messages
    seal = round_.asker.identity.seal
    side, signed, words = _side(round_)
    sealed = round_.votes({name: messages[name] for name in others})
    for name, votes in sealed.items():
        votes_from(name, votes, round_.round, round_.asker.agreement)  # names who signed something else
    opening = side.opening(two_party.scaled(half))
    body = round_.headed(rounds.pack([messages[holder], opening, signed, *sealed.values()]))
    answer = round_.answer(holder, "hold", rounds.pack([seal("hold", body), words]))
    message = by(holder, lambda: side.wins(answer))
    last = round_.answer(holder, "argmax", seal("argmax", round_.headed(message)))
    return by(holder, lambda: _ones(side.ones(), last))


def _side(round_: SecretRound) -> tuple[AskerLargest, bytes, bytes]:
    """Fetch the holder's material; return the asker's side of the comparisons, too."""
    signed, words, corrections = round_.dealt(HOLDER)
    transcript, n_rows, n_classes = round_.round.transcript, round_.sizes.n_rows, round_.sizes.n_classes

    def side() -> AskerLargest:
        sent = Sent(corrections)
        pads = argmax_pads(Stream(round_.keys.pads(transcript, HOLDER)), sent, n_rows, n_classes)
        sent.end()
        levels = two_party.levels(words, two_party.comparisons(n_rows, n_classes))
        return AskerLargest(pads, rounds.cipher_key(transcript, HOLDER), levels)

    return by(DEALER, side), signed, words


def _ones(mine: np.ndarray, theirs: bytes) -> np.ndarray:
    """Add both halves of the ones; ValueError unless each row has a single 1."""
    if len(theirs) != 4 * mine.size:
        raise ValueError(f"half of the argmax must have {4 * mine.size} bytes, got {len(theirs)}")
    ones = mine + np.frombuffer(theirs, dtype="<u4").reshape(mine.shape)
    if ones.max() > 1 or not (ones.sum(axis=1) == 1).all():
        raise ValueError("the argmax must be one class a row")
    return np.asarray(ones, dtype=np.int64)


_SMALL_REPLY = 8192  # bytes, beyond the numbers it holds
_CORRECTIONS = 128  # bytes for one number, at most


def secret_round(asker: Asker, rows: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Run one round whose rows nobody else sees: the noisy counts, or a 1 at the largest of each row."""
    round_, weights = SecretRound.opened(rows, names, asker)
    replies = ask_all(names, lambda name: round_.asked(name, weights[name]))
    messages = {name: message for name, (_, message) in replies.items()}
    half = np.zeros((len(rows), len(asker.agreement.classes)), dtype=np.uint32)
    for side, _ in replies.values():
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
        sealed = dealer.ask("open", identity.seal("opening", rounds.opening(call)), _SMALL_REPLY)
        keys = AskerKeys.of(secret, by(DEALER, lambda: rounds.offered_key(call, sealed, agreement)), call)
        pad = rounds.question_pad(keys.question, sizes)
        question = rounds.salted_question(rows - pad)
        call = replace(call, question=rounds.digest_of(question), offer=sealed.hex())
        invitation = identity.seal("call", call.body())
        limit = _SMALL_REPLY + 8 * (sizes.n_features * sizes.first + sizes.hidden * sizes.n_classes)
        replies = ask_all(names, lambda name: asker.links[name].ask("join", invitation, limit))
        signed, weights = _joined(agreement, call, replies)
        round_ = gathered(call, signed, agreement)
        request = identity.seal("deal", rounds.deal_request(call, signed))
        ready = dealer.ask("deal", request, _SMALL_REPLY)
        by(DEALER, lambda: _ready(agreement, ready, round_.transcript))
        packed = rounds.write_replies(call.digest, signed)
        return cls(asker, dealer, secret, round_, keys, packed, question, pad, sizes), weights

    def asked(self, name: str, weights: bytes) -> tuple[AskerSide, bytes]:
        """Compute with one party until only its votes are missing; return this side and the last message."""
        side, signed, material = self._material(name)
        opening = by(name, lambda: side.first(weights))
        body = rounds.pack([self.request, self.question, opening, signed])
        answer = self.answer(name, "ask", rounds.pack([self.asker.identity.seal("ask", body), material]))
        if self.sizes.hidden:
            message = by(name, lambda: side.layer(answer))
            answer = self.answer(name, "layer", self.asker.identity.seal("layer", self.headed(message)))
        return side, by(name, lambda: side.wins(answer))

    def _material(self, name: str) -> tuple[AskerSide, bytes, bytes]:
        """Fetch one party's correction words from the dealer; return this side of the computation, too."""
        signed, words, corrections = self.dealt(name)
        pads = self.keys.pads(self.round.transcript, name)
        key = rounds.cipher_key(self.round.transcript, name)

        def side() -> AskerSide:
            return AskerSide(key, pads, self.sizes, question=self.pad, words=words, corrections=corrections)

        return by(DEALER, side), signed, words

    def dealt(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Fetch what the dealer signed for a party or the holder, the words, and the corrections, opened."""
        transcript, sizes, n_words = self.round.transcript, self.sizes, words_bytes(self.sizes)
        limit = _SMALL_REPLY + n_words + _CORRECTIONS * sizes.n_rows * (sizes.hidden + sizes.n_classes)
        request = self.asker.identity.seal("material", rounds.pack([transcript, name.encode()]))
        reply = self.dealer.ask("material", request, limit)

        def read() -> tuple[bytes, bytes, bytes]:
            signed, words, sealed = rounds.unpack(reply, 3)
            rounds.read_material(
                signed, self.asker.agreement, transcript=transcript, name=name, words=words, sealed=sealed
            )
            return signed, words, rounds.unseal_corrections(self.keys.seal(transcript, name), sealed)

        return by(DEALER, read)

    def answer(self, name: str, verb: str, message: bytes) -> bytes:
        """Return a party's answer to one message, after checking its signature for this round."""
        limit = _SMALL_REPLY + 9 * self.sizes.n_rows * (self.sizes.first + self.sizes.n_classes)
        sealed = self.asker.links[name].ask(verb, message, limit)
        transcript = self.round.transcript.hex()
        return by(name, lambda: _bound(self.asker.agreement, name, verb, sealed, transcript))

    def headed(self, message: bytes) -> bytes:
        return rounds.pack([self.round.call.digest.encode(), self.round.transcript, message])

    def votes(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return every party's masked half of its votes, still sealed; each party pays when it answers."""
        limit = SIGNATURE_BYTES + KEY_BYTES + 4 * self.sizes.n_rows * self.sizes.n_classes
        links, identity = self.asker.links, self.asker.identity
        sealed = {name: identity.seal("turn", self.headed(message)) for name, message in messages.items()}
        return ask_all(tuple(messages), lambda name: links[name].ask("vote", sealed[name], limit))


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
    for name, content in replies.items():

        def read(name: str = name, content: bytes = content) -> tuple[bytes, bytes]:
            reply, sealed = rounds.unpack(content, 2)
            return reply, _bound(agreement, name, "weights", sealed, call.digest)

        signed[name], weights[name] = by(name, read)
    return signed, weights


def _ready(agreement: Agreement, sealed: bytes, transcript: bytes) -> None:
    """Raise ValueError unless the dealer signed that it deals for this round."""
    dealer = "" if agreement.secret is None else agreement.secret.dealer
    if unseal(dealer, "dealing", sealed) != transcript:
        raise ValueError("it deals for another round")

"""The asker's side of rounds: links to parties, clear rounds, and secret ones, whose rows no party sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.mechanisms.skellam import largest_draw
from ostraka.secure import rounds, two_party
from ostraka.secure.agreement import sizes_of
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, decrypt, exchange_key, new_secret, unseal
from ostraka.secure.masks import pair_mask, stream
from ostraka.secure.rounds import AGGREGATOR, DEALER, HOLDER, AskerKeys, Call, PartyError, Round, by
from ostraka.secure.two_party import AskerLargest, AskerSide, Sent, argmax_pads, words_bytes
from ostraka.secure.wire import ask_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.keys import Identity
    from ostraka.secure.two_party import Sizes
    from ostraka.secure.wire import Answer, Link


_MOST_REPLY = 1024  # bytes of a reply to a call


def replies_of(names: tuple[str, ...], ask: Callable[[str], Answer]) -> dict[str, Answer]:
    """Ask all parties at once; return their replies, or raise one error that names all which failed."""
    answers, refusals = ask_all(names, ask)
    if not refusals:
        return answers
    named = dict.fromkeys(name for error in refusals.values() for name in error.parties)
    text = "; ".join(dict.fromkeys(map(str, refusals.values())))
    raise PartyError(text, code=next(iter(refusals.values())).code, parties=tuple(named))


@dataclass(frozen=True, slots=True, repr=False)
class Asker:
    """Who asks, under which agreement, and its links to the parties and the dealer."""

    agreement: Agreement
    identity: Identity
    links: Mapping[str, Link]
    dealer: Link | None = None


def clear_round(asker: Asker, rows: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Run one round: invite, gather keys, ask, add, and subtract the masks shared with the parties."""
    agreement, links, secret = asker.agreement, asker.links, new_secret()
    call = Call(
        agreement=agreement.sha256,
        id=new_secret().hex(),
        key=exchange_key(secret),
        n_rows=len(rows),
        participants=names,
        question=rounds.question(rows),
    )
    invitation = asker.identity.seal("call", call.body())
    replies = replies_of(names, lambda name: links[name].ask("join", invitation, _MOST_REPLY))
    round_ = gathered(call, replies, agreement)
    body = rounds.pack([rounds.write_replies(call.digest, replies), rows.tobytes()])
    request = asker.identity.seal("request", body)
    limit = SIGNATURE_BYTES + 32 + 4 * len(rows) * len(agreement.classes)
    sealed = replies_of(names, lambda name: links[name].ask("vote", request, limit, again=True))
    return plausible(added(sealed, round_, secret, agreement), len(names), agreement)


def gathered(call: Call, replies: Mapping[str, bytes], agreement: Agreement) -> Round:
    """Return the round of these replies; PartyError names the party whose reply is wrong."""
    try:
        return Round.gather(call, replies, agreement)
    except ValueError as error:
        party = {str(error).partition(":")[0]} & set(agreement.members)
        raise PartyError(str(error), code="wrong_identity", parties=tuple(party)) from None


def added(sealed: Mapping[str, bytes], round_: Round, secret: bytes, agreement: Agreement) -> np.ndarray:
    """Return the sum of all masked votes, uint32, minus the masks that this side can compute."""
    total = np.zeros((round_.call.n_rows, len(agreement.classes)), dtype=np.uint32)
    for name, votes in sealed.items():
        pair, transcript = (AGGREGATOR, name), round_.transcript
        mask = pair_mask(secret, round_.keys[name], transcript=transcript, pair=pair, size=total.size)
        total += votes_from(name, votes, round_, agreement) - mask.reshape(total.shape)
    return total


def votes_from(name: str, sealed: bytes, round_: Round, agreement: Agreement) -> np.ndarray:
    """Return one party's masked votes, uint32; PartyError unless it signed them for this round."""
    with by(name):
        n_rows = round_.call.n_rows
        return rounds.votes_of(sealed, round_.transcript, name, agreement, n_rows=n_rows)


def plausible(total: np.ndarray, n_parties: int, agreement: Agreement) -> np.ndarray:
    """Return a sum as signed counts if votes can add up to it; masks left over would make it look random."""
    counts = total.astype(np.int32).astype(np.int64)
    if agreement.noise == "parties":
        right = np.abs(counts).max() <= n_parties * (1 + largest_draw(agreement.share))
    else:
        right = counts.min() >= 0 and (counts.sum(axis=1) == n_parties).all()
    if not right:
        raise PartyError(
            "the masks do not cancel, or a party did not cast one vote a row; it cannot be told which",
            code="disagreement",
        )
    return counts


_SMALL_REPLY = 8192  # bytes, beyond the numbers it holds
_CORRECTIONS = 128  # bytes for one number, at most


def secret_round(asker: Asker, rows: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Run one round whose rows nobody else sees: the noisy counts, or a 1 at the largest of each row."""
    round_, weights = SecretRound.opened(rows, names, asker)
    replies = replies_of(names, lambda name: round_.asked(name, weights[name]))
    messages = {name: message for name, (_, message) in replies.items()}
    half = np.zeros((len(rows), len(asker.agreement.classes)), dtype=np.uint32)
    for side, _ in replies.values():
        half += side.votes()
    if asker.agreement.argmax_only:
        return noisy_argmax(round_, messages, half)
    sealed = round_.votes(messages)
    total = half + added(sealed, round_.round, round_.secret, asker.agreement)
    return plausible(total, len(names), asker.agreement)


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
    with by(holder):
        message = side.wins(answer)
    last = round_.answer(holder, "argmax", seal("argmax", round_.headed(message)))
    with by(holder):
        return _ones(side.ones(), last)


def _side(round_: SecretRound) -> tuple[AskerLargest, bytes, bytes]:
    """Fetch the holder's material; return the asker's side of the comparisons, too."""
    signed, words, corrections = round_.dealt(HOLDER)
    transcript, n_rows, n_classes = round_.round.transcript, round_.sizes.n_rows, round_.sizes.n_classes
    with by(DEALER):
        sent = Sent(corrections)
        pads = argmax_pads(stream(round_.keys.pads(transcript, HOLDER)), sent, n_rows, n_classes)
        sent.end()
        levels = two_party.levels(words, two_party.comparisons(n_rows, n_classes))
        return AskerLargest(pads, rounds.cipher_key(transcript, HOLDER), levels), signed, words


def _ones(mine: np.ndarray, theirs: bytes) -> np.ndarray:
    """Add both halves of the ones; ValueError unless each row has a single 1."""
    if len(theirs) != 4 * mine.size:
        raise ValueError(f"half of the argmax must have {4 * mine.size} bytes, got {len(theirs)}")
    ones = mine + np.frombuffer(theirs, dtype="<u4").reshape(mine.shape)
    if ones.max() > 1 or not (ones.sum(axis=1) == 1).all():
        raise ValueError("the argmax must be one class a row")
    return np.asarray(ones, dtype=np.int64)


@dataclass(slots=True, repr=False)
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
        if dealer is None or agreement.secret is None:
            raise ValueError("secret questions need a dealer")
        dealer_key = agreement.secret.dealer
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
        with by(DEALER):
            key = rounds.offered_key(call, sealed, agreement)
        keys = AskerKeys.of(secret, key, call)
        pad = rounds.question_pad(keys.question, sizes)
        question = rounds.salted_question(rows - pad)
        call = replace(call, question=rounds.digest_of(question), offer=sealed.hex())
        invitation = identity.seal("call", call.body())
        limit = _SMALL_REPLY + 8 * (sizes.n_features * sizes.first + sizes.hidden * sizes.n_classes)
        replies = replies_of(names, lambda name: asker.links[name].ask("join", invitation, limit))
        signed, weights = {}, {}
        for name, content in replies.items():
            with by(name):
                signed[name], masked = rounds.unpack(content, 2)
                weights[name] = _bound(agreement, name, "weights", masked, call.digest)
        round_ = gathered(call, signed, agreement)
        request = identity.seal("deal", rounds.write_replies(call.body().decode(), signed))
        ready = dealer.ask("deal", request, _SMALL_REPLY)
        with by(DEALER):
            if unseal(dealer_key, "dealing", ready) != round_.transcript:
                raise ValueError("it deals for another round")
        packed = rounds.write_replies(call.digest, signed)
        return cls(asker, dealer, secret, round_, keys, packed, question, pad, sizes), weights

    def asked(self, name: str, weights: bytes) -> tuple[AskerSide, bytes]:
        """Compute with one party until only its votes are missing; return this side and the last message."""
        signed, words, corrections = self.dealt(name)
        pads = self.keys.pads(self.round.transcript, name)
        key = rounds.cipher_key(self.round.transcript, name)
        with by(DEALER):
            side = AskerSide(key, pads, self.sizes, question=self.pad, words=words, corrections=corrections)
        with by(name):
            opening = side.first(weights)
        body = rounds.pack([self.request, self.question, opening, signed])
        answer = self.answer(name, "ask", rounds.pack([self.asker.identity.seal("ask", body), words]))
        if self.sizes.hidden:
            with by(name):
                message = side.layer(answer)
            answer = self.answer(name, "layer", self.asker.identity.seal("layer", self.headed(message)))
        with by(name):
            return side, side.wins(answer)

    def dealt(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Fetch what the dealer signed for a party or the holder, the words, and the corrections, opened."""
        transcript, sizes, n_words = self.round.transcript, self.sizes, words_bytes(self.sizes)
        limit = _SMALL_REPLY + n_words + _CORRECTIONS * sizes.n_rows * (sizes.hidden + sizes.n_classes)
        request = self.asker.identity.seal("material", rounds.pack([transcript, name.encode()]))
        reply = self.dealer.ask("material", request, limit)
        with by(DEALER):
            signed, words, sealed = rounds.unpack(reply, 3)
            rounds.read_material(
                signed, self.asker.agreement, transcript=transcript, name=name, words=words, sealed=sealed
            )
            return signed, words, decrypt(self.keys.seal(transcript, name), sealed)

    def answer(self, name: str, verb: str, message: bytes) -> bytes:
        """Return a party's answer to one message, after checking its signature for this round."""
        limit = _SMALL_REPLY + 9 * self.sizes.n_rows * (self.sizes.first + self.sizes.n_classes)
        sealed = self.asker.links[name].ask(verb, message, limit, again=verb in {"hold", "argmax"})
        transcript = self.round.transcript.hex()
        with by(name):
            return _bound(self.asker.agreement, name, verb, sealed, transcript)

    def headed(self, message: bytes) -> bytes:
        return rounds.pack([self.round.call.digest.encode(), self.round.transcript, message])

    def votes(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return every party's masked half of its votes, still sealed; each party pays when it answers."""
        limit = SIGNATURE_BYTES + KEY_BYTES + 4 * self.sizes.n_rows * self.sizes.n_classes
        links, identity = self.asker.links, self.asker.identity
        sealed = {name: identity.seal("turn", self.headed(message)) for name, message in messages.items()}
        return replies_of(
            tuple(messages), lambda name: links[name].ask("vote", sealed[name], limit, again=True)
        )


def _bound(agreement: Agreement, name: str, purpose: str, sealed: bytes, digest: str) -> bytes:
    """Return the body that a party signed for this call or round."""
    body = unseal(agreement.members[name], purpose, sealed)
    if body[:KEY_BYTES] != bytes.fromhex(digest):
        raise ValueError("the answer is for another round")
    return body[KEY_BYTES:]

"""The dealer of rounds with secret questions: it deals pads, and never sees a row, a model or a vote.

What it deals to an asker and one party follows from keys and public sizes: correction words for both, and
corrections for the asker.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka.secure import comparison, rounds, two_party
from ostraka.secure.agreement import sizes_of
from ostraka.secure.keys import encrypt, exchange_key, exchange_secret, new_secret
from ostraka.secure.masks import stream
from ostraka.secure.rounds import (
    AGGREGATOR,
    DEALER,
    HOLDER,
    AskerKeys,
    Round,
    question_pad,
    refused,
    refusing,
    unsealed,
)
from ostraka.secure.two_party import Sizes, argmax_pads, model_pads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.keys import Identity
    from ostraka.secure.rounds import PartyError
    from ostraka.secure.two_party import ArgmaxPads, LinearPads, ReluPads

_OPEN_ROUNDS = 64  # the oldest is given up for a new one
_SMALL = np.uint8(comparison.MODULUS - 1)


class _Dealing(NamedTuple):
    """A round that is dealt, and the parties that have no material yet."""

    round: Round
    secret: bytes
    receivers: set[str]


class Dealer:
    """Deals one-time material to an asker and parties who vote on rows that they cannot see.

    Parameters
    ----------
    agreement : Agreement
        Whose ``secret.dealer`` is this identity.
    identity : Identity
        What the dealer signs with.

    Raises
    ------
    ValueError
        The agreement names no dealer, or another one.

    Guarantees
    ----------
    It is told sizes, participants and public keys, and receives no data. Material comes from keys of one
    round, which are forgotten: each party's is dealt once, and none of a round that was opened before a
    restart. It learns no question, model or vote. Together with a party it can compute the question;
    together with the asker, the models and the votes. So it must be run by nobody who takes part.

    Examples
    --------
    >>> from ostraka.parties.parties import Agreement, Identity, SecretQuestions
    >>> us, dealer = {name: Identity.fresh() for name in ("north", "south", "west")}, Identity.fresh()
    >>> agreement = Agreement(
    ...     members={name: one.public_key for name, one in us.items()}, noise="parties",
    ...     aggregator=Identity.fresh().public_key, classes=[0, 1], n_features=1, sigma=1.0,
    ...     secret=SecretQuestions(dealer=dealer.public_key, input_range=(0, 1)))
    >>> Dealer(agreement, dealer)
    Dealer()
    """

    name = DEALER

    def __init__(self, agreement: Agreement, identity: Identity) -> None:
        if agreement.secret is None or agreement.secret.dealer != identity.public_key:
            raise ValueError("the agreement names another dealer than this identity, or none")
        self.agreement = agreement
        self._identity = identity
        self._offered: OrderedDict[str, bytes] = OrderedDict()
        self._past: set[str] = set()  # openings that were dealt or given up; the asker signed each of them
        self._dealing: OrderedDict[str, _Dealing] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The methods that answer messages, by address."""
        return {"/v1/open": self.open, "/v1/deal": self.deal, "/v1/material": self.material}

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message to the dealer."""
        return 8192 + 1024 * len(self.agreement.members)

    def open(self, sealed: bytes) -> bytes:
        """Open a round: a fresh key for it, signed. The same opening again gets the same key.

        PartyError for a message not as agreed, and for the opening of a round that is over: a copy of it
        changes nothing for rounds that are open.
        """
        body = self._from_asker("opening", sealed)
        with refusing(DEALER, DEALER):
            call = rounds.read_opening(body, self.agreement)
        opening = rounds.digest_of(rounds.opening(call))
        with self._lock:
            if opening in self._past:
                raise refused(DEALER, "this round was opened before, and is dealt or given up", AGGREGATOR)
            secret = self._offered.setdefault(opening, new_secret())
            while len(self._offered) > _OPEN_ROUNDS:
                self._past.add(self._offered.popitem(last=False)[0])
        return self._identity.seal("offer", rounds.offer(call, exchange_key(secret)))

    def deal(self, sealed: bytes) -> bytes:
        """Take note of all replies to a call: the digest of the round. It happens once for each opening."""
        body = self._from_asker("deal", sealed)
        with refusing(DEALER, DEALER):
            written, replies = rounds.read_replies(body)
            call = rounds.Call.read(written.encode(), self.agreement)
        opening = rounds.digest_of(rounds.opening(call))
        with self._lock:
            secret = self._offered.pop(opening, None)
            self._past.add(opening)
        if secret is None:
            raise self._refusal("this round is not open: it was dealt, given up, or never opened")
        offer = self._identity.seal("offer", rounds.offer(call, exchange_key(secret))).hex()
        if offer != call.offer:
            raise self._refusal("the offer of the call is not the one it gave")
        with refusing(DEALER, DEALER):
            round_ = Round.gather(call, replies, self.agreement)
        with self._lock:
            receivers = {*call.participants, *([HOLDER] if self.agreement.argmax_only else [])}
            self._dealing[round_.transcript.hex()] = _Dealing(round_, secret, receivers)
            while len(self._dealing) > _OPEN_ROUNDS:
                self._dealing.popitem(last=False)
        return self._identity.seal("dealing", round_.transcript)

    def material(self, sealed: bytes) -> bytes:
        """Material of a party or the holder, once: signed digests, correction words, sealed corrections."""
        body = self._from_asker("material", sealed)
        with refusing(DEALER, DEALER):
            transcript, name = rounds.unpack(body, 2)
        party = name.decode(errors="replace")
        with self._lock:
            dealing = self._dealing.get(transcript.hex())
            if dealing is None or party not in dealing.receivers:
                raise self._refusal("this material was dealt, given up, or never asked for")
            dealing.receivers.remove(party)
            if not dealing.receivers:
                del self._dealing[transcript.hex()]
        with refusing(DEALER, DEALER):
            words, corrections = self._made(dealing, party)
        signed = self._identity.seal("material", rounds.material(transcript, party, words, corrections))
        return rounds.pack([signed, words, corrections])

    def _made(self, dealing: _Dealing, name: str) -> tuple[bytes, bytes]:
        call, transcript = dealing.round.call, dealing.round.transcript
        sizes, secret = sizes_of(self.agreement, call.n_rows), exchange_secret(dealing.secret)
        keys, cipher = AskerKeys.of(secret, call.key, call), rounds.cipher_key(transcript, name)
        holder = dealing.round.keys[call.participants[0] if name == HOLDER else name]
        asker, owner = keys.pads(transcript, name), rounds.owner_key(secret, holder, call, name)
        if name == HOLDER:
            dealt = deal_argmax(cipher, sizes.n_rows, sizes.n_classes, asker=asker, owner_key=owner)
        else:
            question = question_pad(keys.question, sizes)
            dealt = deal_model(cipher, sizes, question=question, asker=asker, owner_key=owner)
        return dealt.words, encrypt(keys.seal(transcript, name), dealt.corrections)

    def _from_asker(self, purpose: str, sealed: bytes) -> bytes:
        return unsealed(DEALER, self.agreement.aggregator, purpose, sealed, DEALER)

    def _refusal(self, why: str) -> PartyError:
        return refused(DEALER, why, DEALER)

    def __repr__(self) -> str:
        return "Dealer()"


class Material(NamedTuple):
    """Correction words, which show nothing to who lacks a seed, and what only the asker may read."""

    words: bytes
    corrections: bytes


def deal_model(key: bytes, sizes: Sizes, *, question: np.ndarray, asker: bytes, owner_key: bytes) -> Material:
    """Material for one model. ``question`` is the pad of the rows; the other keys are of their holders."""
    pads = stream(owner_key)
    owner = model_pads(pads, pads, sizes, question=None)
    mine = model_pads(stream(asker), bytes, sizes, question=question)
    words, sent = [], [_product(mine.first, owner.first)]
    if mine.relu is not None and owner.relu is not None and mine.last and owner.last:
        masks = two_party.upper(mine.relu.opened + owner.relu.opened)
        relu_words, sign = _compared(key, masks, mine.relu, owner.relu)
        table = two_party.relu_table(masks, mine.relu.bit ^ owner.relu.bit) - owner.relu.table
        words.append(relu_words)
        sent += [sign + table.tobytes(), _product(mine.last, owner.last)]
    argmax_words, corrections = _argmax(key, mine.argmax, owner.argmax)
    return Material(b"".join([*words, argmax_words]), b"".join([*sent, corrections]))


def deal_argmax(key: bytes, n_rows: int, n_classes: int, *, asker: bytes, owner_key: bytes) -> Material:
    """Material for the largest of each row's numbers alone."""
    pads = stream(owner_key)
    owner = argmax_pads(pads, pads, n_rows, n_classes)
    return Material(*_argmax(key, argmax_pads(stream(asker), bytes, n_rows, n_classes), owner))


def _product(mine: LinearPads, owner: LinearPads) -> bytes:
    return bytes((comparison.multiply(mine.factor, owner.factor) - owner.product).tobytes())


def _argmax(key: bytes, mine: ArgmaxPads, owner: ArgmaxPads) -> tuple[bytes, bytes]:
    masks = two_party.apart(two_party.upper(mine.opened + owner.opened))
    words, sign = _compared(key, masks, mine, owner)
    table = two_party.vote_table((mine.place + owner.place) & _SMALL) - owner.table
    return words, sign + table.tobytes()


def _compared(
    key: bytes, masks: np.ndarray, mine: ArgmaxPads | ReluPads, owner: ArgmaxPads | ReluPads
) -> tuple[bytes, bytes]:
    points, payloads, signs = two_party.signs_of(masks)
    words = comparison.deal(key, np.stack([mine.roots, owner.roots]), points, payloads)
    return words.tobytes(), ((signs - owner.sign) & _SMALL).tobytes()

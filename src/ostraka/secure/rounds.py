"""One round of questions: what every participant must agree on, and how the messages are written.

A round fails with a :class:`PartyError`, which says what failed, and who. Roles turn what is wrong with a
message into such a refusal. Where questions are secret, there are messages of the dealer, too: what it offers
and deals, and what binds it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ostraka.core import check
from ostraka.secure.agreement import canonical
from ostraka.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    derived,
    is_exchange_key,
    new_secret,
    shared_key,
    unseal,
)
from ostraka.secure.masks import pair_mask, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.two_party import Sizes

AGGREGATOR = "the aggregator"  # no party may have a space in its name
DEALER = "the dealer"  # no party may have a space in its name
HOLDER = "the holder"  # of the sum of votes, where only the argmax is revealed: the first that takes part
_OPENING = ("agreement", "id", "key", "n_rows", "participants")
Code = Literal["budget_exceeded", "disagreement", "internal", "refused", "unreachable", "wrong_identity"]


class PartyError(RuntimeError):
    """A round failed. The error says why and names the parties. Nothing in it is private.

    Attributes
    ----------
    code : str
        ``"unreachable"``, ``"wrong_identity"`` (signed by somebody else), ``"refused"``,
        ``"budget_exceeded"``, ``"disagreement"`` (masks do not cancel) or ``"internal"``.
    parties : tuple of str
        Names of the parties that failed; empty where it cannot be told which one did.
    """

    def __init__(self, message: str, *, code: Code, parties: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.parties = code, parties

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PartyError, code=self.code, parties=self.parties), (str(self),)


def refused(who: str, why: str, *parties: str, code: Code = "refused") -> PartyError:
    """Return an error that says who refuses, why, and which parties are at fault."""
    return PartyError(f"{who} refuses: {why}", code=code, parties=parties)


@contextlib.contextmanager
def refusing(who: str, *parties: str) -> Iterator[None]:
    """Turn a ValueError about a message in this block into a refusal; messages are public."""
    try:
        yield
    except ValueError as error:
        raise refused(who, str(error), *parties) from None


@contextlib.contextmanager
def by(name: str, *parties: str) -> Iterator[None]:
    """Turn a ValueError about a signed message in this block into a PartyError that names its signer."""
    try:
        yield
    except ValueError as error:
        raise PartyError(f"{name}: {error}", code="wrong_identity", parties=parties or (name,)) from None


def unsealed(who: str, public_key: str, purpose: str, sealed: bytes, *parties: str) -> bytes:
    """Return the body if this key signed it for this purpose; a refusal otherwise."""
    try:
        return unseal(public_key, purpose, sealed)
    except ValueError as error:
        raise refused(who, str(error), *parties, code="wrong_identity") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The aggregator's invitation: the same for every participant, or their masks do not cancel.

    ``key`` is its own for this round; masks shared with it hide the sum from whoever listens. ``question``
    is a digest of the rows, with secret questions of a salt and masked ones; ``offer`` is then the dealer's.
    """

    agreement: str
    id: str
    key: str
    n_rows: int
    participants: tuple[str, ...]
    question: str
    offer: str = ""

    def body(self) -> bytes:
        """The bytes that are signed."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if not self.offer:
            del fields["offer"]
        return canonical(fields).encode()

    @property
    def digest(self) -> str:
        """The SHA-256 of the call, which replies to it contain."""
        return _digest(self)

    @classmethod
    def read(cls, body: bytes, agreement: Agreement) -> Call:
        """A call under this agreement; ValueError for anything else."""
        fields = strict_object(body, set(cls.__slots__) - ({"offer"} if agreement.secret is None else set()))
        names = fields["participants"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("participants must be a list of names")
        call = cls(**{**fields, "participants": tuple(names)})
        for name in ("agreement", "id", "question"):
            if not check.is_hexadecimal(getattr(call, name)):
                raise ValueError(f"{name} must be 64 hexadecimal digits")
        if not is_exchange_key(call.key):
            raise ValueError("key must be one of X25519, 64 hexadecimal digits")
        if not isinstance(call.offer, str) or bool(call.offer) != (agreement.secret is not None):
            raise ValueError(
                "a call must hold a dealer's offer if the agreement names a dealer, and only then"
            )
        if call.agreement != agreement.sha256:
            raise ValueError("the call is for another agreement")
        check.integer(n_rows=call.n_rows, least=1)
        if call.n_rows > agreement.max_rows:
            raise ValueError(f"n_rows must be at most {agreement.max_rows}, got {call.n_rows}")
        if list(names) != sorted(set(names)) or not set(names) <= set(agreement.members):
            raise ValueError("participants must be members of the agreement, each once and in order")
        if len(names) < agreement.least:
            raise ValueError(f"a round needs {agreement.least} participants, got {len(names)}")
        return call


@dataclass(frozen=True, slots=True)
class Round:
    """A call and every participant's key for it."""

    call: Call
    keys: Mapping[str, str]

    @property
    def transcript(self) -> bytes:
        """Digest of all that this round is; masks are bound to it."""
        return hashlib.sha256(canonical([self.call.digest, dict(self.keys)]).encode()).digest()

    @classmethod
    def gather(cls, call: Call, replies: Mapping[str, bytes], agreement: Agreement) -> Round:
        """The round of these signed replies, one a participant; ValueError names who replied amiss."""
        if sorted(replies) != list(call.participants):
            raise ValueError("a round needs one reply from each of its participants")
        keys, digest = {}, call.digest
        for name in call.participants:
            try:
                reply = strict_object(
                    unseal(agreement.members[name], "reply", replies[name]), {"call", "key", "name"}
                )
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            if (reply["call"], reply["name"]) != (digest, name):
                raise ValueError(f"{name}: the reply is to another call")
            if not is_exchange_key(reply["key"]):  # with such a key no mask could be made, after a party paid
                raise ValueError(f"{name}: the key of the reply must be one of X25519, in hexadecimal")
            keys[name] = reply["key"]
        if len({call.key, *keys.values()}) <= len(keys):
            raise ValueError("every participant, and the aggregator, must have a key of its own")
        return cls(call, keys)


@lru_cache(maxsize=64)
def _digest(call: Call) -> str:
    return hashlib.sha256(call.body()).hexdigest()


def reply(call: Call, name: str, key: str) -> bytes:
    """A party's reply to a call, before it is signed."""
    return canonical({"call": call.digest, "key": key, "name": name}).encode()


def write_replies(call: str, replies: Mapping[str, bytes]) -> bytes:
    """A call, or its digest, and the replies to it as a line of JSON."""
    encoded = {name: base64.b64encode(reply).decode() for name, reply in replies.items()}
    return canonical({"call": call, "replies": encoded}).encode()


def read_replies(line: bytes) -> tuple[str, dict[str, bytes]]:
    """Parse a line of :func:`write_replies`; ValueError for anything else."""
    fields = strict_object(line, {"call", "replies"})
    if not isinstance(fields["call"], str) or not isinstance(fields["replies"], dict):
        raise ValueError("the request must name its call and hold its replies")  # noqa: TRY004  (bad data)
    try:
        replies = {name: base64.b64decode(text, validate=True) for name, text in fields["replies"].items()}
    except (TypeError, binascii.Error):
        raise ValueError("replies must be base64") from None
    return fields["call"], replies


def question(rows: np.ndarray) -> str:
    """Digest of the rows that are asked."""
    return hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()


def rows_of(data: bytes, call: Call, agreement: Agreement) -> np.ndarray:
    """The rows asked in this call, checked; ValueError for any others."""
    shape = (call.n_rows, agreement.n_features)
    if len(data) != 8 * shape[0] * shape[1]:
        raise ValueError(f"the rows must be float64 numbers of shape {shape}")
    rows = np.frombuffer(data, dtype="<f8").reshape(shape)
    if question(rows) != call.question:
        raise ValueError("the rows are not those of the call")
    if not np.isfinite(rows).all():
        raise ValueError(f"the rows of shape {shape} must be finite")
    return rows


def total_mask(
    secret: bytes, name: str, round_: Round, *, n_classes: int, aggregator: bool = True
) -> np.ndarray:
    """All masks of one participant, uint32 of shape (n_rows, n_classes).

    Of each pair the first in order adds their mask and the second takes it away. Everybody adds
    the one shared with the aggregator, which alone can take that away; ``aggregator=False`` leaves it out,
    where another participant keeps its own votes and adds up.
    """
    call, transcript = round_.call, round_.transcript
    size = call.n_rows * n_classes
    total = np.zeros(size, dtype=np.uint32)
    for peer, key in [*round_.keys.items(), *([(AGGREGATOR, call.key)] if aggregator else [])]:
        if peer != name:
            mask = pair_mask(secret, key, transcript=transcript, pair=(name, peer), size=size)
            total += mask if peer == AGGREGATOR or name < peer else -mask
    return total.reshape(call.n_rows, n_classes)


def votes_of(sealed: bytes, transcript: bytes, name: str, agreement: Agreement, *, n_rows: int) -> np.ndarray:
    """One party's masked votes, uint32 of shape (n_rows, n_classes); ValueError for another round's."""
    body = unseal(agreement.members[name], "votes", sealed)
    shape = (n_rows, len(agreement.classes))
    if body[:32] != transcript or len(body) != 32 + 4 * shape[0] * shape[1]:
        raise ValueError("the votes are for another round")
    return np.frombuffer(body[32:], dtype="<u4").reshape(shape)


def most_bytes(agreement: Agreement) -> int:
    """The length of the longest request under this agreement."""
    return (
        4096
        + (512 + SIGNATURE_BYTES) * len(agreement.members)
        + 8 * agreement.max_rows * agreement.n_features
    )


def opening(call: Call) -> bytes:
    """The asker's first message to the dealer: the call without the fields that depend on the answer."""
    return canonical({name: getattr(call, name) for name in _OPENING}).encode()


def read_opening(body: bytes, agreement: Agreement) -> Call:
    """The call to come, still without question and offer; ValueError for anything else."""
    fields = strict_object(body, set(_OPENING))
    filler = {"question": "0" * 64, "offer": "-"}
    return Call.read(canonical({**fields, **filler}).encode(), agreement)


def offer(call: Call, key: str) -> bytes:
    """The dealer's answer to an opening, before it is signed: a key for this round only."""
    return canonical({"key": key, "opening": digest_of(opening(call))}).encode()


def offered_key(call: Call, sealed: bytes, agreement: Agreement) -> str:
    """The dealer's key of an offer for this call; ValueError for any other."""
    if agreement.secret is None:
        raise ValueError("the agreement names no dealer")
    fields = strict_object(unseal(agreement.secret.dealer, "offer", sealed), {"key", "opening"})
    key = str(fields["key"])
    if fields["opening"] != digest_of(opening(call)):
        raise ValueError("the dealer's offer is for another call")
    if not is_exchange_key(key):
        raise ValueError("the dealer's key must be one of X25519 in its one spelling")
    return key


def owner_key(secret: bytes | X25519PrivateKey, key: str, call: Call, name: str) -> bytes:
    """The key of the pads of a party, or of the holder: it and the dealer can compute it, for this call."""
    transcript = bytes.fromhex(call.digest)
    return shared_key(secret, key, transcript=transcript, pair=(name, DEALER), purpose="pads")


class AskerKeys(NamedTuple):
    """The keys that the asker and the dealer share: of the rows' pad, and of each party's round."""

    question: bytes
    root: bytes

    @classmethod
    def of(cls, secret: bytes | X25519PrivateKey, key: str, call: Call) -> AskerKeys:
        """A call's keys. The rows' pad comes before the call is whole, so it is bound to the opening."""
        transcript = hashlib.sha256(opening(call)).digest()
        root = shared_key(secret, key, transcript=transcript, pair=(AGGREGATOR, DEALER), purpose="pads")
        return cls(derived(root, "question"), root)

    def pads(self, transcript: bytes, name: str) -> bytes:
        """The key of the pads towards one party, in one round."""
        return derived(self.root, f"pads {transcript.hex()} {name}")

    def seal(self, transcript: bytes, name: str) -> bytes:
        """The key of the corrections towards one party, in one round."""
        return derived(self.root, f"corrections {transcript.hex()} {name}")


def cipher_key(transcript: bytes, name: str) -> bytes:
    """The public key of the generator in one computation: no two share what is computed ahead."""
    return hashlib.sha256(b"ostraka comparison " + transcript + name.encode()).digest()[:16]


def question_pad(key: bytes, sizes: Sizes) -> np.ndarray:
    """The pad of the rows, the same towards all parties."""
    from ostraka.secure.two_party import words  # noqa: PLC0415

    return words(stream(key), sizes.n_rows, sizes.n_features)


def salted_question(masked: np.ndarray) -> bytes:
    """The masked rows behind a fresh salt: without it the dealer, who knows the mask, could check a guess."""
    return new_secret() + masked.tobytes()


def question_of(data: bytes, call: Call, sizes: Sizes) -> np.ndarray:
    """The masked rows of this call; ValueError for any others."""
    from ostraka.secure.two_party import Sent, words  # noqa: PLC0415

    if digest_of(data) != call.question:
        raise ValueError("the masked rows are not those of the call")
    sent = Sent(data)
    sent(KEY_BYTES)  # the salt
    masked = words(sent, sizes.n_rows, sizes.n_features)
    sent.end()
    return masked


def material(transcript: bytes, name: str, words: bytes, sealed: bytes) -> bytes:
    """The part of one party's material that the dealer signs."""
    digests = {"corrections": digest_of(sealed), "words": digest_of(words)}
    return canonical({**digests, "name": name, "transcript": transcript.hex()}).encode()


def read_material(
    signed: bytes, agreement: Agreement, *, transcript: bytes, name: str, words: bytes, sealed: bytes | None
) -> None:
    """ValueError unless the dealer signed just this, for this round and party."""
    dealer = "" if agreement.secret is None else agreement.secret.dealer
    names = {"corrections", "name", "transcript", "words"}
    fields = strict_object(unseal(dealer, "material", signed), names)
    if (fields["name"], fields["transcript"]) != (name, transcript.hex()):
        raise ValueError("the dealer's material is for another party or round")
    if fields["words"] != digest_of(words) or (
        sealed is not None and fields["corrections"] != digest_of(sealed)
    ):
        raise ValueError("the material is not what the dealer signed")


def strict_object(body: bytes, names: set[str]) -> dict[str, Any]:
    """A JSON object with exactly these fields."""
    fields = check.parsed(body)
    if not isinstance(fields, dict) or set(fields) != names:
        raise ValueError(f"the message must be a JSON object of {', '.join(sorted(names))}")
    return fields


def digest_of(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def pack(parts: list[bytes]) -> bytes:
    """Byte strings in one: a line with their lengths, then all of them."""
    return json.dumps([len(part) for part in parts]).encode() + b"\n" + b"".join(parts)


def unpack(body: bytes, n_parts: int) -> list[bytes]:
    """Parse ``n_parts`` byte strings; ValueError for anything else."""
    head, _, content = body.partition(b"\n")
    lengths = check.parsed(head)
    if not isinstance(lengths, list) or not all(type(n) is int and n >= 0 for n in lengths):
        raise ValueError("the message must start with the lengths of its parts")
    if len(lengths) != n_parts or sum(lengths) != len(content):
        raise ValueError(f"the message must have {n_parts} parts of the lengths that it states")
    parts, place = [], 0
    for length in lengths:
        parts.append(content[place : place + length])
        place += length
    return parts

"""Messages of rounds with secret questions: what the dealer offers and deals, and what binds it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from ostraka.secure.agreement import canonical
from ostraka.secure.keys import KEY_BYTES, derived, new_secret, shared_key, strict_key, unseal
from ostraka.secure.rounds import AGGREGATOR, Call, read_replies, strict_object, write_replies

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from ostraka.secure.agreement import Agreement
    from ostraka.secure.pads import Sizes

DEALER = "the dealer"  # no party may have a space in its name
HOLDER = "the holder"  # of the sum of votes, where only the argmax is revealed: the first that takes part
_OPENING = ("agreement", "id", "key", "n_rows", "participants")


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
    key = fields["key"]
    if fields["opening"] != digest_of(opening(call)):
        raise ValueError("the dealer's offer is for another call")
    if not isinstance(key, str) or len(key) != 64 or not strict_key(bytes.fromhex(key)):
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
    from ostraka.secure.pads import Stream, words  # noqa: PLC0415

    return words(Stream(key), sizes.n_rows, sizes.n_features)


def salted_question(masked: np.ndarray) -> bytes:
    """The masked rows behind a fresh salt: without it the dealer, who knows the mask, could check a guess."""
    return new_secret() + masked.tobytes()


def question_of(data: bytes, call: Call, sizes: Sizes) -> np.ndarray:
    """The masked rows of this call; ValueError for any others."""
    from ostraka.secure.pads import Sent, words  # noqa: PLC0415

    if digest_of(data) != call.question:
        raise ValueError("the masked rows are not those of the call")
    sent = Sent(data)
    sent.read(KEY_BYTES)  # the salt
    masked = words(sent, sizes.n_rows, sizes.n_features)
    sent.end()
    return masked


def seal_corrections(key: bytes, corrections: bytes) -> bytes:
    """Encrypt corrections for the asker alone: AES-256-GCM with a key that is used once."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key).encrypt(bytes(12), corrections, None)


def unseal_corrections(key: bytes, sealed: bytes) -> bytes:
    """Decrypt the corrections; ValueError for anything that was not sealed with this key."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(bytes(12), sealed, None)
    except (InvalidTag, ValueError):
        raise ValueError("the corrections are not sealed to the asker") from None


def deal_request(call: Call, replies: Mapping[str, bytes]) -> bytes:
    """The asker's second message to the dealer, when all parties have replied."""
    return write_replies(call.body().decode(), replies)


def read_deal_request(body: bytes, agreement: Agreement) -> tuple[Call, dict[str, bytes]]:
    """The call and the replies; ValueError for anything else."""
    call, replies = read_replies(body)
    return Call.read(call.encode(), agreement), replies


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


def digest_of(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def pack(parts: list[bytes]) -> bytes:
    """Byte strings in one: a line with their lengths, then all of them."""
    return json.dumps([len(part) for part in parts]).encode() + b"\n" + b"".join(parts)


def unpack(body: bytes, n_parts: int) -> list[bytes]:
    """Parse ``n_parts`` byte strings; ValueError for anything else."""
    head, _, content = body.partition(b"\n")
    try:
        lengths = json.loads(head)
    except (ValueError, RecursionError):
        lengths = None
    if not isinstance(lengths, list) or not all(type(n) is int and n >= 0 for n in lengths):
        raise ValueError("the message must start with the lengths of its parts")
    if len(lengths) != n_parts or sum(lengths) != len(content):
        raise ValueError(f"the message must have {n_parts} parts of the lengths that it states")
    parts, place = [], 0
    for length in lengths:
        parts.append(content[place : place + length])
        place += length
    return parts

"""One round of questions: what every participant must agree on, and how the messages are written.

A round fails with a :class:`PartyError`, which says what failed, and who. Roles turn what is wrong with a
message into such a refusal.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka.core import check
from ostraka.secure.agreement import canonical
from ostraka.secure.keys import SIGNATURE_BYTES, unseal
from ostraka.secure.masks import pair_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ostraka.secure.agreement import Agreement

AGGREGATOR = "the aggregator"  # no party may have a space in its name


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
        for name in ("agreement", "id", "key", "question"):
            value = getattr(call, name)
            if not check.is_hexadecimal(value):
                raise ValueError(f"{name} must be 64 hexadecimal digits")
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
            if not check.is_hexadecimal(reply["key"]):
                raise ValueError(f"{name}: the key of the reply must be 64 hexadecimal digits")
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


def pack(call: Call, replies: Mapping[str, bytes], rows: np.ndarray) -> bytes:
    """The request for votes: a line of JSON, then the rows as they lie in memory."""
    return write_replies(call.digest, replies) + b"\n" + rows.tobytes()


def unpack(body: bytes) -> tuple[str, dict[str, bytes], bytes]:
    """The digest of the call, the replies, and the rows' bytes; ValueError for anything else."""
    head, _, rows = body.partition(b"\n")
    return *read_replies(head), rows


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
            stream = pair_mask(secret, key, transcript=transcript, pair=(name, peer), size=size)
            total += stream if peer == AGGREGATOR or name < peer else -stream
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


def strict_object(body: bytes, names: set[str]) -> dict[str, Any]:
    """A JSON object with exactly these fields."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or set(fields) != names:
        raise ValueError(f"the message must be a JSON object of {', '.join(sorted(names))}")
    return fields


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
        return _error, (str(self), self.code, self.parties)


def _error(message: str, code: Code, parties: tuple[str, ...]) -> PartyError:
    return PartyError(message, code=code, parties=parties)


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


def unsealed(who: str, public_key: str, purpose: str, sealed: bytes, *parties: str) -> bytes:
    """Return the body if this key signed it for this purpose; a refusal otherwise."""
    try:
        return unseal(public_key, purpose, sealed)
    except ValueError as error:
        raise refused(who, str(error), *parties, code="wrong_identity") from None

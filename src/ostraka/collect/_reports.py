"""Messages of a round with keepers: a client's report, the tally's request, a keeper's answer."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure.agreement import canonical
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, seal, strict_key, unseal
from ostraka.secure.masks import pair_mask
from ostraka.secure.rounds import strict_object

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from ostraka.collect.task import Task
    from ostraka.secure.keys import Identity

__all__ = [
    "Closing",
    "Report",
    "certificate",
    "certified",
    "known_round",
    "masks_for",
    "most_report_bytes",
]

_BOUND = 16  # bytes of the digest that a report names its task and round by


def known_round(task: Task, round_: object) -> int:
    """Return the round if the task has it; else raise ValueError."""
    if isinstance(round_, bool) or not isinstance(round_, int) or not 0 <= round_ < task.rounds:
        raise ValueError(f"the round must be 0 to {task.rounds - 1}: the task has no other")
    return round_


def certificate(task: Task, enrolment: Identity, key: str, *, round_: int) -> bytes:
    """Return the enrolment's signature of a client's key for one round of one task."""
    body = task.transcript("enrolment", round=round_) + bytes.fromhex(key)
    return seal(enrolment.secret, "enrolment", body)[:SIGNATURE_BYTES]


def certified(task: Task, key: bytes, signature: bytes, *, round_: int) -> bool:
    """Return whether the enrolment signed this key; True if the task has no enrolment."""
    if task.enrolment is None:
        return True
    try:
        unseal(task.enrolment, "enrolment", signature + task.transcript("enrolment", round=round_) + key)
    except ValueError:
        return False
    return True


def masks_for(
    task: Task,
    secret: bytes | X25519PrivateKey,
    keeper_key: str,
    client_key: str,
    peer: str,
    *,
    transcript: bytes,
) -> np.ndarray:
    """Return the mask of one client and one keeper, from either one's secret and the other's key."""
    pair = (client_key, keeper_key)
    return pair_mask(secret, peer, transcript=transcript, pair=pair, size=task.encoding.cells)


@dataclass(frozen=True, slots=True)
class Report:
    """A client's message: its key of this round, its certificate, and its masked vector."""

    key: bytes
    certificate: bytes
    body: bytes

    def write(self, task: Task, round_: int) -> bytes:
        """Return the wire format."""
        return task.transcript("report", round=round_)[:_BOUND] + self.key + self.certificate + self.body

    @property
    def vector(self) -> np.ndarray:
        """The masked vector, uint32."""
        return np.frombuffer(self.body, dtype="<u4")

    @classmethod
    def read(cls, message: bytes, task: Task, round_: int) -> Report:
        """Parse a report for this task and round; ValueError for anything else."""
        if len(message) != most_report_bytes(task):
            raise ValueError(
                f"a report of this task must have {most_report_bytes(task)} bytes, got {len(message)}"
            )
        if message[:_BOUND] != task.transcript("report", round=round_)[:_BOUND]:
            raise ValueError("the report is for another task or round")
        start = _BOUND + KEY_BYTES
        end = start + (SIGNATURE_BYTES if task.enrolment else 0)
        report = cls(message[_BOUND:start], message[start:end], message[end:])
        if not strict_key(report.key):
            raise ValueError("the key of the report is malformed or of low order")
        if not certified(task, report.key, report.certificate, round_=round_):
            raise ValueError("the enrolment did not sign the key of the report")
        return report


def most_report_bytes(task: Task) -> int:
    """Return the length of every report of a task."""
    return _BOUND + KEY_BYTES + (SIGNATURE_BYTES if task.enrolment else 0) + 4 * task.encoding.cells


@dataclass(frozen=True, slots=True)
class Closing:
    """The tally's request to the keepers: the clients whose reports it sums, and the tally's key for it."""

    round_: int
    key: str
    clients: bytes
    certificates: bytes = b""

    @property
    def keys(self) -> list[bytes]:
        """The clients' keys, in order."""
        return [self.clients[at : at + KEY_BYTES] for at in range(0, len(self.clients), KEY_BYTES)]

    def write(self, task: Task) -> bytes:
        """Return the bytes that are signed."""
        head = {
            "key": self.key,
            "n": len(self.clients) // KEY_BYTES,
            "round": self.round_,
            "task": task.sha256,
        }
        return canonical(head).encode() + b"\n" + self.clients + self.certificates

    def digest(self, task: Task) -> bytes:
        """The digest that the answers of keepers refer to."""
        return hashlib.sha256(self.write(task)).digest()

    @classmethod
    def read(cls, body: bytes, task: Task) -> Closing:
        """Parse a request under this task, with enough different clients; ValueError for anything else."""
        head, _, rest = body.partition(b"\n")
        found = strict_object(head, {"key", "n", "round", "task"})
        if found["task"] != task.sha256:
            raise ValueError("the request is for another task")
        round_, n = known_round(task, found["round"]), found["n"]
        if isinstance(n, bool) or not isinstance(n, int) or not task.least <= n <= task.limit:
            raise ValueError(f"a round needs {task.least} to {task.limit} clients")
        if not isinstance(found["key"], str) or len(found["key"]) != 2 * KEY_BYTES:
            raise ValueError("the key of the request must be 64 hexadecimal digits")
        each = KEY_BYTES + (SIGNATURE_BYTES if task.enrolment else 0)
        if len(rest) != n * each:
            raise ValueError(f"the request must hold the keys of {n} clients")
        closing = cls(round_, found["key"], rest[: n * KEY_BYTES], rest[n * KEY_BYTES :])
        closing.check_clients(task)
        return closing

    def check_clients(self, task: Task) -> None:
        """Raise ValueError unless every client is listed once, in order, with a valid, enrolled key."""
        keys = self.keys
        if any(one >= two for one, two in itertools.pairwise(keys)):
            raise ValueError("the clients must be in order, each of them once")
        for place, key in enumerate(keys):
            signature = self.certificates[place * SIGNATURE_BYTES : (place + 1) * SIGNATURE_BYTES]
            if not strict_key(key) or not certified(task, key, signature, round_=self.round_):
                raise ValueError(f"client {key.hex()}: its key is malformed or not enrolled")

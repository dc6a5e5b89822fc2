"""The roster of a round among clients: the keys of all clients, and the graph of neighbours."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ostraka.collect._graph import degree, neighbours
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, seal, strict_key, unseal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ostraka.collect.task import Task
    from ostraka.secure.keys import Identity

__all__ = [
    "APPROVAL_BYTES",
    "BOUND",
    "Entry",
    "Roster",
    "approval",
    "degree_of",
    "kind_of",
    "numbers",
    "places",
    "read_entry",
]

BOUND = 16  # bytes of the digest that each message starts with
APPROVAL_BYTES = KEY_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """A client's public keys of one round: for masks, for shares, for signatures; and its ticket's digest.

    Later messages carry the ticket, so that no other client can send them in its place.
    """

    mask: bytes
    share: bytes
    sign: bytes
    ticket: bytes

    def write(self) -> bytes:
        """Return the wire format, which has a fixed length."""
        return self.mask + self.share + self.sign + self.ticket

    @property
    def claim(self) -> bytes:
        """What an enrolment signs: all keys of the client in one digest."""
        return hashlib.sha256(self.write()).digest()


def read_entry(body: bytes) -> Entry:
    """Parse an entry with valid keys; ValueError for anything else."""
    if len(body) != 4 * KEY_BYTES:
        raise ValueError(f"an entry must have {4 * KEY_BYTES} bytes, got {len(body)}")
    entry = Entry(*(body[at : at + KEY_BYTES] for at in range(0, len(body), KEY_BYTES)))
    if not strict_key(entry.mask) or not strict_key(entry.share) or entry.mask == entry.share:
        raise ValueError("the keys of an entry are malformed, of low order or equal")
    return entry


def degree_of(task: Task, n_clients: int) -> tuple[int, int]:
    """Return the number of neighbours and the threshold for a roster of this size."""
    n_missing = -int(-task.missing * n_clients // 1)
    return degree(n_clients, task.n_colluding(n_clients), n_missing, lying=task.lying)


def approval(task: Task, enrolment: Identity, entries: bytes, *, round_: int) -> bytes:
    """Return the enrolment's approval: a fresh number, which orders the ring, and a signature."""
    nonce = os.urandom(KEY_BYTES)
    body = task.transcript("roster", round=round_) + hashlib.sha256(entries).digest() + nonce
    return nonce + seal(enrolment.secret, "roster", body)[:SIGNATURE_BYTES]


@dataclass(frozen=True)
class Roster:
    """All entries in order, and the enrolment's approval where the task has one."""

    task: Task
    round_: int
    entries: bytes
    approval: bytes = b""
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        bound = self.task.transcript("roster", round=self.round_)
        inner = hashlib.sha256(self.entries).digest()
        if self.task.enrolment is not None:
            if len(self.approval) != APPROVAL_BYTES:
                raise ValueError("the roster needs the approval of the enrolment")
            nonce, signature = self.approval[:KEY_BYTES], self.approval[KEY_BYTES:]
            unseal(self.task.enrolment, "roster", signature + bound + inner + nonce)
        whole = hashlib.sha256(bound + inner + self.approval[:KEY_BYTES]).digest()
        object.__setattr__(self, "digest", whole)

    def __len__(self) -> int:
        return len(self.entries) // (4 * KEY_BYTES)

    def entry(self, place: int) -> Entry:
        """Return one client's keys."""
        return read_entry(self.written(place))

    def written(self, place: int) -> bytes:
        """Return one client's keys as they are sent."""
        at = 4 * KEY_BYTES * place
        return self.entries[at : at + 4 * KEY_BYTES]

    def check(self) -> None:
        """Raise ValueError unless there are enough clients, in order, with different keys."""
        n = len(self)
        if len(self.entries) != 4 * KEY_BYTES * n or not self.task.least <= n <= self.task.limit:
            raise ValueError(f"a roster must have {self.task.least} to {self.task.limit} clients, got {n}")
        entries = [self.entry(place) for place in range(n)]
        keys = [key for one in entries for key in (one.mask, one.share)]
        if len(set(keys)) < len(keys) or [one.mask for one in entries] != sorted(one.mask for one in entries):
            raise ValueError("the clients of a roster must be in order, with keys of their own")

    @property
    def graph(self) -> np.ndarray:
        """Return the neighbours of each client, shape (n_clients, k)."""
        return neighbours(len(self), degree_of(self.task, len(self))[0], self.digest)


def kind_of(kind: str, digest: bytes) -> bytes:
    """Return the header of a message of one kind, in the round of this roster (or task) digest."""
    return hashlib.sha256(digest + kind.encode()).digest()[:BOUND]


def numbers(values: Sequence[int]) -> bytes:
    """Encode the indices of clients with four bytes each."""
    return struct.pack(f"<{len(values)}I", *values)


def places(body: bytes) -> list[int]:
    """Decode what :func:`numbers` wrote."""
    if len(body) % 4:
        raise ValueError("places must have four bytes each")
    return list(struct.unpack(f"<{len(body) // 4}I", body))

"""Messages of a round: reports and requests with keepers; entries, roster and graph among clients.

Among clients, masks follow a graph: a ring in random order, on which each client masks with its k nearest.
:func:`degree` chooses k.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln
from scipy.stats import hypergeom

from ostraka.collect.encodings import PRIME
from ostraka.collect.validity import residues, words_for
from ostraka.secure.agreement import canonical
from ostraka.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    is_exchange_key,
    is_signed,
    seal,
    strict_key,
    unseal,
)
from ostraka.secure.masks import SHARE_BYTES, pair_mask
from ostraka.secure.rounds import strict_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from ostraka.collect.task import Task
    from ostraka.secure.keys import Identity

BOUND = 16  # bytes of the digest of task and round that each message starts with
ENTRY_BYTES = 4 * KEY_BYTES
APPROVAL_BYTES = KEY_BYTES + SIGNATURE_BYTES
PAUSE = 0.05  # seconds between two looks at how far a round is
SEALED = 2 * SHARE_BYTES + 16  # two shares and the tag of AES-GCM
_SECRECY = 2.0**-40  # chance that a round could be taken apart
_COMPLETION = 2.0**-20  # chance that a round fails although no more clients vanish than was said


def known_round(task: Task, round_: object) -> int:
    """Return the round if the task has it; else raise ValueError."""
    if isinstance(round_, bool) or not isinstance(round_, int) or not 0 <= round_ < task.rounds:
        raise ValueError(f"the round must be 0 to {task.rounds - 1}: the task has no other")
    return round_


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


def certificate(task: Task, enrolment: Identity, key: str, *, round_: int) -> bytes:
    """Return the enrolment's signature of a client's key for one round of one task."""
    body = task.transcript("enrolment", round=round_) + bytes.fromhex(key)
    return seal(enrolment.secret, "enrolment", body)[:SIGNATURE_BYTES]


def certified(task: Task, key: bytes, signature: bytes, *, round_: int) -> bool:
    """Return whether the enrolment signed this key; True if the task has no enrolment."""
    if task.enrolment is None:
        return True
    body = task.transcript("enrolment", round=round_) + key
    return is_signed(task.enrolment, "enrolment", signature + body)


def masks_for(
    task: Task,
    secret: bytes | X25519PrivateKey,
    keeper_key: str,
    client_key: str,
    peer: str,
    *,
    transcript: bytes,
) -> np.ndarray:
    """Return the mask of one client and one keeper, from either one's secret and the other's key.

    Modulo 2^32, uint32; where reports are checked, modulo the prime of the check, uint64.
    """
    pair, size = (client_key, keeper_key), task.report_size
    if not task.checked:
        return pair_mask(secret, peer, transcript=transcript, pair=pair, size=size)
    words = pair_mask(secret, peer, transcript=transcript, pair=pair, size=words_for(size))
    return residues(words, size)


@dataclass(frozen=True, slots=True)
class Report:
    """A client's message: its key of this round, its certificate, and its masked vector."""

    key: bytes
    certificate: bytes
    body: bytes

    def write(self, task: Task, round_: int) -> bytes:
        """Return the wire format."""
        return task.transcript("report", round=round_)[:BOUND] + self.key + self.certificate + self.body

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
        if message[:BOUND] != task.transcript("report", round=round_)[:BOUND]:
            raise ValueError("the report is for another task or round")
        start = BOUND + KEY_BYTES
        end = start + (SIGNATURE_BYTES if task.enrolment else 0)
        report = cls(message[BOUND:start], message[start:end], message[end:])
        if task.checked and report.vector.max() >= PRIME:
            raise ValueError("the numbers of a report must be below the prime of the check")
        if not strict_key(report.key):
            raise ValueError("the key of the report is malformed or of low order")
        if not certified(task, report.key, report.certificate, round_=round_):
            raise ValueError("the enrolment did not sign the key of the report")
        return report


def most_report_bytes(task: Task) -> int:
    """Return the length of every report of a task."""
    return BOUND + KEY_BYTES + (SIGNATURE_BYTES if task.enrolment else 0) + 4 * task.report_size


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
        """Parse a request under this task, with enough different clients; ValueError for anything else.

        Every client is listed once, in order, with a valid, enrolled key.
        """
        head, _, keys = body.partition(b"\n")
        fields = strict_object(head, {"key", "n", "round", "task"})
        if fields["task"] != task.sha256:
            raise ValueError("the request is for another task")
        round_, n = known_round(task, fields["round"]), fields["n"]
        if isinstance(n, bool) or not isinstance(n, int) or not task.least <= n <= task.limit:
            raise ValueError(f"a round needs {task.least} to {task.limit} clients")
        key = fields["key"]  # checked before a keeper chooses: with a bad one its choice would have no answer
        if not is_exchange_key(key):
            raise ValueError("the key of the request must be one of X25519, of 64 hexadecimal digits")
        size = KEY_BYTES + (SIGNATURE_BYTES if task.enrolment else 0)
        if len(keys) != n * size:
            raise ValueError(f"the request must hold the keys of {n} clients")
        closing = cls(round_, key, keys[: n * KEY_BYTES], keys[n * KEY_BYTES :])
        clients = closing.keys
        if any(client >= later for client, later in itertools.pairwise(clients)):
            raise ValueError("the clients must be in order, each of them once")
        for place, client in enumerate(clients):
            signature = closing.certificates[place * SIGNATURE_BYTES : (place + 1) * SIGNATURE_BYTES]
            if not strict_key(client) or not certified(task, client, signature, round_=round_):
                raise ValueError(f"client {client.hex()}: its key is malformed or not enrolled")
        return closing


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
        """All keys of the client in one digest, which an enrolment signs."""
        return hashlib.sha256(self.write()).digest()


def read_entry(body: bytes) -> Entry:
    """Parse an entry with valid keys; ValueError for anything else."""
    if len(body) != ENTRY_BYTES:
        raise ValueError(f"an entry must have {ENTRY_BYTES} bytes, got {len(body)}")
    entry = Entry(*(body[at : at + KEY_BYTES] for at in range(0, len(body), KEY_BYTES)))
    if not strict_key(entry.mask) or not strict_key(entry.share) or entry.mask == entry.share:
        raise ValueError("the keys of an entry are malformed, of low order or equal")
    return entry


@dataclass(frozen=True)
class Roster:
    """All entries in order, and the enrolment's approval where the task has one."""

    task: Task
    round_: int
    entries: bytes
    approval: bytes = b""
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        nonce, signature = self.approval[:KEY_BYTES], self.approval[KEY_BYTES:]
        transcript = self.task.transcript("roster", round=self.round_)
        body = transcript + hashlib.sha256(self.entries).digest() + nonce
        if self.task.enrolment is not None:
            if len(self.approval) != APPROVAL_BYTES:
                raise ValueError("the roster needs the approval of the enrolment")
            unseal(self.task.enrolment, "roster", signature + body)
        object.__setattr__(self, "digest", hashlib.sha256(body).digest())

    def __len__(self) -> int:
        return len(self.entries) // (ENTRY_BYTES)

    def entry(self, place: int) -> Entry:
        """Return one client's keys."""
        return read_entry(self.written(place))

    def written(self, place: int) -> bytes:
        """Return one client's keys as they are sent."""
        at = ENTRY_BYTES * place
        return self.entries[at : at + ENTRY_BYTES]

    def check(self) -> None:
        """Raise ValueError unless there are enough clients, in order, with different keys."""
        n = len(self)
        if len(self.entries) != ENTRY_BYTES * n or not self.task.least <= n <= self.task.limit:
            raise ValueError(f"a roster must have {self.task.least} to {self.task.limit} clients, got {n}")
        entries = [self.entry(place) for place in range(n)]
        masks = [entry.mask for entry in entries]
        keys = {*masks, *(entry.share for entry in entries)}
        if len(keys) < 2 * n or masks != sorted(masks):
            raise ValueError("the clients of a roster must be in order, with keys of their own")

    @property
    def graph(self) -> np.ndarray:
        """Return the neighbours of each client, shape (n_clients, k)."""
        return neighbours(len(self), degree_of(self.task, len(self))[0], self.digest)


def most_message_bytes(task: Task) -> int:
    """Return the length of the longest message to a tally: a vector, shares, or a roster's approval."""
    k = min(task.limit - 1, 4096)
    contents = 4 * task.encoding.cells, KEY_BYTES + SEALED * k, ENTRY_BYTES + SIGNATURE_BYTES
    longest = BOUND + 4 + KEY_BYTES + max(contents)
    return longest if task.enrolment is None else max(longest, APPROVAL_BYTES + KEY_BYTES * task.limit)


def pair_names(place: int, peer: int) -> tuple[str, str]:
    """Return the names of two clients for key derivation."""
    return f"client {place}", f"client {peer}"


def confirmed(digest: bytes, survivors: list[int], key: bytes, signature: bytes) -> bool:
    """Return whether a client signed this set of survivors."""
    body = digest + hashlib.sha256(numbers(survivors)).digest()
    return is_signed(key.hex(), "survivors", signature + body)


def nonce_of(sender: int, receiver: int) -> bytes:
    """The number under which shares are encrypted: the key of a pair serves once in each direction."""
    return bytes(11) + (b"\1" if sender < receiver else b"\0")


@lru_cache(maxsize=64)
def degree(n_clients: int, n_colluding: int, n_missing: int, *, lying: bool = False) -> tuple[int, int]:
    """Return the smallest even number of neighbours k, and the threshold t of the shares.

    But for a chance of 2^-40, no client has t colluding neighbours and the honest survivors stay connected;
    but for 2^-20, every client keeps t live neighbours. Against a lying tally, which may choose who vanishes,
    also 2 t > k + the colluding neighbours of every client, so that the neighbours of one client cannot
    confirm two sets of survivors. Counts of neighbours are hypergeometric, because the ring is in random
    order. Small groups mask with everybody.
    """
    for k in range(2, n_clients - 1, 2):
        # the smallest threshold t that keeps shares secret
        counts = np.arange(k + 2)
        at_least = n_clients * hypergeom.sf(counts - 1, n_clients - 1, min(n_colluding, n_clients - 1), k)
        bound = int(np.argmax(at_least <= _SECRECY))  # no client has so many colluding neighbours
        n_live = max(0, n_clients - 1 - n_missing)
        for t in range((k + bound + 1) // 2 if lying else max(bound, 1), k + 1):
            if _apart(n_clients, n_colluding, n_missing, k, t, lying=lying) <= _SECRECY:
                # a bound of the chance that a client keeps fewer than t live neighbours
                if n_clients * hypergeom.cdf(t - 1, n_clients - 1, n_live, k) <= _COMPLETION:
                    return k, t
                break  # a larger t starves more clients
    k = n_clients - 1  # everybody: nothing is left to chance
    t = (k + n_colluding) // 2 + 1 if lying else n_colluding + 1
    if t > k - n_missing:
        raise ValueError(
            f"of {n_clients} clients, {n_colluding} may collude and {n_missing} vanish: no number of "
            "neighbours gives both secrecy and completion"
        )
    return k, max(t, min(k - n_missing, (n_colluding + k - n_missing + 1) // 2))


def _apart(n_clients: int, n_colluding: int, n_missing: int, k: int, t: int, *, lying: bool) -> float:
    """Bound the chance that the ring of honest survivors is cut.

    A cut needs two places: runs of k / 2 clients none of whom is honest and survives, n^2 / 2 pairs of runs.
    """
    pairs = n_clients**2 / 2
    if lying:
        # The tally chooses who vanishes, and so can empty runs. But the last client before a run needs t
        # neighbours who survive, of whom k / 2 lie on its other side: the others collude, in the run. Counts
        # in two runs are negatively associated: both are large with at most the product of the chances.
        crowded = hypergeom.sf(t - k // 2 - 1, n_clients, min(n_colluding, n_clients), k // 2)
        return float(pairs * crowded**2)
    bad = n_colluding + n_missing
    if bad < k:
        return 0.0
    log_run = gammaln(bad + 1) - gammaln(bad - k + 1) - gammaln(n_clients + 1) + gammaln(n_clients - k + 1)
    return pairs * math.exp(min(0.0, float(log_run)))


def neighbours(n_clients: int, k: int, seed: bytes) -> np.ndarray:
    """Return the neighbours of each client, int64 of shape (n_clients, k), from a public seed."""
    if k >= n_clients - 1:
        ring = np.arange(n_clients)
        return np.array([np.delete(ring, place) for place in ring])
    words = hashlib.shake_256(seed).digest(16 * n_clients)
    order = np.lexsort(np.frombuffer(words, dtype="<u8").reshape(2, n_clients))
    place = np.empty(n_clients, dtype=np.int64)
    place[order] = np.arange(n_clients)
    steps = np.concatenate([np.arange(-(k // 2), 0), np.arange(1, k // 2 + 1)])
    return np.sort(order[(place[:, None] + steps[None]) % n_clients], axis=1)


def degree_of(task: Task, n_clients: int) -> tuple[int, int]:
    """Return the number of neighbours and the threshold for a roster of this size."""
    n_missing = -int(-task.missing * n_clients // 1)
    return degree(n_clients, task.n_colluding(n_clients), n_missing, lying=task.lying)


def approval(task: Task, enrolment: Identity, entries: bytes, *, round_: int) -> bytes:
    """Return the enrolment's approval: a fresh number, which orders the ring, and a signature."""
    nonce = os.urandom(KEY_BYTES)
    body = task.transcript("roster", round=round_) + hashlib.sha256(entries).digest() + nonce
    return nonce + seal(enrolment.secret, "roster", body)[:SIGNATURE_BYTES]

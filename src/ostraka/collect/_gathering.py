"""The tally's state in a round among clients, from the first exchange to the unmasked sum."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ostraka.collect._masking import SEALED, confirmed, pair_names
from ostraka.collect._roster import (
    APPROVAL_BYTES,
    BOUND,
    Roster,
    degree_of,
    kind_of,
    numbers,
    places,
    read_entry,
)
from ostraka.secure.errors import PartyError
from ostraka.secure.keys import KEY_BYTES, exchange_key, exchange_secret
from ostraka.secure.masks import mask, pair_mask
from ostraka.secure.refusals import checked, refused
from ostraka.secure.shares import SHARE_BYTES, join

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.collect.task import Task

__all__ = ["Gathering"]

_NEXT = {"join": "share", "share": "mask", "mask": "unmask", "unmask": "done"}
_NEXT_LYING = {**_NEXT, "mask": "confirm", "confirm": "unmask"}


class Gathering:
    """The state of one round. It is a function of the messages received and of when exchanges were closed."""

    def __init__(self, task: Task, *, round_: int) -> None:
        self.task, self.round_ = task, round_
        self.stage = "join"
        self._entries: dict[bytes, bytes] = {}  # by mask key: the whole entry
        self._seen: dict[tuple[str, int], bytes] = {}  # by exchange and place: digest of the message
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}  # by sender, by receiver
        self._confirmations: dict[int, bytes] = {}
        self._answers: dict[int, dict[int, tuple[int, bytes]]] = {}  # by holder, by whose secret
        self.total = np.zeros(task.encoding.cells, dtype=np.uint32)
        self.masked: set[int] = set()
        self.roster: Roster | None = None
        self.approval = b""
        self._graph: np.ndarray = np.empty((0, 0), dtype=np.int64)
        self._places: dict[bytes, int] = {}
        self._join = kind_of("join", task.transcript("join", round=round_))
        self._kinds: dict[bytes, str] = {}  # by header of a message: the exchange, once there is a roster

    @property
    def n_clients(self) -> int:
        """Clients on the roster, or that have joined so far."""
        return len(self.roster) if self.roster is not None else len(self._entries)

    @property
    def survivors(self) -> list[int]:
        """The numbers of the clients whose masked vectors are summed, in order."""
        return sorted(self.masked)

    @property
    def progress(self) -> tuple[int, int]:
        """Clients that have answered in this exchange, and those that could have."""
        could = {
            "join": self.task.limit,
            "share": self.n_clients,
            "mask": len(self._sealed),
            "confirm": len(self.masked),
            "unmask": len(self._confirmations) if self.task.lying else len(self.masked),
        }
        if self.stage == "join":
            return len(self._entries), could["join"]
        return sum(kind == self.stage for kind, _ in self._seen), could[self.stage]

    def receive(self, message: bytes) -> None:
        """Take one message of the current exchange; PartyError for anything else, which is not counted."""
        work = checked("the tally", lambda: self._accepted(message))
        if work is not None:
            work()

    def check(self, message: bytes) -> bool:
        """Return whether a message is new; PartyError if it would be refused."""
        return checked("the tally", lambda: self._accepted(message)) is not None

    def _accepted(self, message: bytes) -> Callable[[], None] | None:
        """Return an action that applies a message, or None for a repeated one; ValueError to refuse it."""
        if message[:BOUND] == self._join:
            return self._joined(message[BOUND:])
        if self.roster is None:
            raise ValueError("the message is for another task or round")
        kind = self._kinds.get(message[:BOUND])
        if kind is None:
            raise ValueError("the message is for another task or round")
        head = BOUND + 4 + KEY_BYTES
        place = places(message[BOUND : BOUND + 4].ljust(4, b"\xff"))[0]
        if place >= len(self.roster):
            raise ValueError("the message must be from a client on the roster")
        if hashlib.sha256(message[BOUND + 4 : head]).digest() != self.roster.entry(place).ticket:
            raise ValueError(f"the message is not from client {place}")
        digest, known = hashlib.sha256(message).digest(), self._seen.get((kind, place))
        if known is not None:
            if known != digest:
                raise ValueError(f"client {place} has answered this exchange already")
            return None
        if kind != self.stage:
            raise ValueError(f"client {place} comes too late or too early: the exchange is '{self.stage}'")
        work = {
            "share": self._shared,
            "mask": self._masked,
            "confirm": self._confirmed,
            "unmask": self._unmasked,
        }
        act = work[kind](place, message[head:])

        def done() -> None:
            self._seen[kind, place] = digest
            act()

        return done

    def _joined(self, body: bytes) -> Callable[[], None] | None:
        entry = read_entry(body)
        known = self._entries.get(entry.mask)
        if known is not None:
            if known != body:
                raise ValueError(f"another client has the key {entry.mask.hex()}")
            return None
        if self.stage != "join":
            raise ValueError("the roster is closed")
        if len(self._entries) >= self.task.limit:
            raise ValueError("the roster is full")
        return lambda: self._entries.__setitem__(entry.mask, body)

    def _shared(self, place: int, body: bytes) -> Callable[[], None]:
        peers = self._graph[place].tolist()
        if len(body) != KEY_BYTES + SEALED * len(peers):
            raise ValueError(f"client {place}: shares for {len(peers)} neighbours are needed")
        parts = [body[at : at + SEALED] for at in range(KEY_BYTES, len(body), SEALED)]

        def keep() -> None:
            self._commitments[place] = body[:KEY_BYTES]
            self._sealed[place] = dict(zip(peers, parts, strict=True))

        return keep

    def _masked(self, place: int, body: bytes) -> Callable[[], None]:
        if place not in self._sealed:
            raise ValueError(f"client {place} has sent no shares")
        if len(body) != 4 * len(self.total):
            raise ValueError(f"client {place}: the vector must have {len(self.total)} cells")

        def keep() -> None:
            self.masked.add(place)
            self.total += np.frombuffer(body, dtype="<u4")

        return keep

    def _confirmed(self, place: int, body: bytes) -> Callable[[], None]:
        if place not in self.masked:
            raise ValueError(f"client {place} is not among the survivors")
        key = self._known_roster.entry(place).sign
        if not confirmed(self._known_roster.digest, self.survivors, key, body):
            raise ValueError(f"client {place} confirms another set of survivors")
        return lambda: self._confirmations.__setitem__(place, body)

    def _unmasked(self, place: int, body: bytes) -> Callable[[], None]:
        if place not in self.masked:
            raise ValueError(f"client {place} is not among the survivors")
        each = 4 + 1 + SHARE_BYTES
        held = self._sealed.keys() & self._graph[place].tolist()
        if len(body) != each * len(held):
            raise ValueError(f"client {place}: {len(held)} shares are needed")
        found = {}
        for at in range(0, len(body), each):
            peer, flag = places(body[at : at + 4])[0], body[at + 4]
            if peer not in held or peer in found or flag != (peer in self.masked):
                raise ValueError(f"client {place}: a share that was not asked for")
            found[peer] = (flag, body[at + 5 : at + each])
        return lambda: self._answers.__setitem__(place, found)

    def advance(self, approval: bytes = b"") -> None:
        """Close the current exchange; PartyError if too few have answered it."""
        if self.stage == "join":
            self._close_roster(approval)
        elif self.stage == "share":
            self._enough("sent shares", len(self._sealed))
        elif self.stage == "mask":
            self._enough("sent masked vectors", len(self.masked))
        elif self.stage == "unmask":
            raise refused("the tally", "the last exchange is closed by close()")
        self.stage = (_NEXT_LYING if self.task.lying else _NEXT)[self.stage]

    def _enough(self, what: str, n: int) -> None:
        if n < self.task.least:
            raise refused("the tally", f"a round needs {self.task.least} clients, and {n} {what}")

    def entries(self) -> bytes:
        """Return who has joined, for the enrolment to approve."""
        return b"".join(self._entries[key] for key in sorted(self._entries))

    def _close_roster(self, approval: bytes) -> None:
        roster, approved = self._approved_roster(approval)
        self.roster, self._graph, self._entries = roster, roster.graph, approved
        self._kinds = {kind_of(kind, roster.digest): kind for kind in ("share", "mask", "confirm", "unmask")}
        self.approval = approval
        self._places = {key: place for place, key in enumerate(sorted(self._entries))}

    def check_approval(self, approval: bytes) -> None:
        """Raise PartyError unless the roster can be closed with this approval."""
        self._approved_roster(approval)

    def _approved_roster(self, approval: bytes) -> tuple[Roster, dict[bytes, bytes]]:
        """Return the roster, and the entries on it by mask key."""
        self._enough("joined", len(self._entries))

        def read() -> tuple[Roster, dict[bytes, bytes]]:
            approved = self._approved(approval[APPROVAL_BYTES:])
            entries = b"".join(approved[key] for key in sorted(approved))
            roster = Roster(self.task, self.round_, entries, approval[:APPROVAL_BYTES])
            roster.check()
            degree_of(self.task, len(roster))
            return roster, approved

        return checked("the tally", read)

    def _approved(self, keys: bytes) -> dict[bytes, bytes]:
        """Return the entries of the clients that an approval names; of all clients if it names none."""
        if not keys:
            return self._entries
        named = {keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)}
        if not named <= self._entries.keys():
            raise ValueError("the approval names a client that has not joined")
        return {key: self._entries[key] for key in named}

    def outbox(self, key: bytes) -> bytes:
        """Return what the client with this mask key must answer now; empty if it has no part in it."""
        place = self._places.get(key, -1)
        found = b""
        if self.stage == "share" and place >= 0:
            found = self._roster_for(place)
        elif self.stage == "mask" and place in self._sealed:
            found = self._inbox_of(place)
        elif self.stage == "unmask" and self.task.lying and place in self.masked:
            found = self._confirmations_for(place)
        elif self.stage in {"confirm", "unmask"} and place in self.masked:
            found = self._survivors_for(place)
        return found

    def _roster_for(self, place: int) -> bytes:
        roster, bound = self._known_roster, self.task.transcript("roster", round=self.round_)
        if self.task.enrolment is not None:
            return kind_of("roster", bound) + roster.approval + roster.entries
        peers = b"".join(numbers([peer]) + roster.written(peer) for peer in self._graph[place].tolist())
        return kind_of("neighbours", bound) + numbers([len(roster), place]) + roster.digest + peers

    def _inbox_of(self, place: int) -> bytes:
        sealed = [
            numbers([peer]) + self._sealed[peer][place]
            for peer in self._graph[place].tolist()
            if peer in self._sealed
        ]
        return kind_of("inbox", self._known_roster.digest) + b"".join(sealed)

    def _survivors_for(self, place: int) -> bytes:
        known = self.survivors
        if not self.task.lying:
            known = [p for p in self._graph[place].tolist() if p in self.masked]
        body = numbers([len(self.masked), *known])
        return kind_of("survivors", self._known_roster.digest) + body

    def _confirmations_for(self, place: int) -> bytes:
        found = [
            numbers([peer]) + self._confirmations[peer]
            for peer in self._graph[place].tolist()
            if peer in self._confirmations
        ]
        return kind_of("confirmations", self._known_roster.digest) + b"".join(found)

    def sums(self) -> np.ndarray:
        """Return the sum of the survivors' vectors, uint32; PartyError names clients with missing secrets."""
        if self.stage != "unmask":
            raise refused("the tally", f"the round is at the exchange '{self.stage}'")
        failed, total, size = [], self.total.copy(), len(self.total)
        for place in sorted(self._sealed):
            try:
                if place in self.masked:
                    total -= mask(self._seed(place), size=size)
                else:
                    total -= self._masks_of_missing(place, size)
            except ValueError:
                failed.append(f"client {place}")
        if failed:
            raise PartyError(
                f"too few or wrong shares of the secrets of {', '.join(failed)}",
                code="unreachable",
                parties=tuple(failed),
            )
        return total

    def _recovered(self, place: int) -> bytes:
        peers = self._graph[place].tolist()
        shares = {
            number: self._answers[peer][place][1]
            for number, peer in enumerate(peers, start=1)
            if place in self._answers.get(peer, {})
        }
        return join(shares, threshold=degree_of(self.task, len(self._known_roster))[1])

    def _seed(self, place: int) -> bytes:
        seed = self._recovered(place)
        if hashlib.sha256(self._known_roster.digest + seed).digest() != self._commitments[place]:
            raise ValueError("the shares are not those of the seed that was committed to")
        return seed

    def _masks_of_missing(self, place: int, size: int) -> np.ndarray:
        """Return the masks that survivors added for neighbours which sent shares and then no vector."""
        secret, roster = self._recovered(place), self._known_roster
        if exchange_key(secret) != roster.entry(place).mask.hex():
            raise ValueError("the shares are not those of the secret behind the mask key")
        total, own = np.zeros(size, dtype=np.uint32), exchange_secret(secret)
        for peer in self._graph[place].tolist():
            if peer in self.masked:
                key, pair = roster.entry(peer).mask.hex(), pair_names(place, peer)
                stream = pair_mask(own, key, transcript=roster.digest, pair=pair, size=size)
                (np.add if peer < place else np.subtract)(total, stream, out=total)
        return total

    @property
    def _known_roster(self) -> Roster:
        if self.roster is None:
            raise refused("the tally", "the roster is not closed yet")
        return self.roster

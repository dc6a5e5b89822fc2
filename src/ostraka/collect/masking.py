"""A client in a round among clients: it shares masks with its neighbours and answers each exchange once."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.messages import (
    APPROVAL_BYTES,
    BOUND,
    Entry,
    Roster,
    degree_of,
    kind_of,
    numbers,
    places,
    read_entry,
)
from ostraka.core.mechanisms.skellam import skellam
from ostraka.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    exchange_key,
    exchange_secret,
    is_signed,
    new_secret,
    shared_key,
)
from ostraka.secure.masks import SHARE_BYTES, add_masks, split
from ostraka.secure.rounds import refused, refusing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.collect.task import Task

SEALED = 2 * SHARE_BYTES + 16  # two shares and the tag of AES-GCM


class Masking:
    """The client's side of one round. A wrong message ends it, and nothing is answered twice."""

    def __init__(self, task: Task, *, round_: int, secret: bytes) -> None:
        self.task, self.round_ = task, round_
        self._secret, self._share_secret = secret, new_secret()
        self._identity, self._ticket = Identity.fresh(), new_secret()
        self._seed = new_secret()
        self._stage = "join"
        self._n = self._place = 0
        self._digest = b""
        self._peers: dict[int, Entry] = {}
        self._pair_keys: dict[int, bytes] = {}
        self._shares: dict[int, tuple[bytes, bytes]] = {}  # by neighbour: of its seed, of its mask secret
        self._senders: set[int] = set()  # neighbours who sent shares, also those whose seal was wrong
        self._survivors: list[int] = []
        self._public: Entry | None = None

    @property
    def _entry(self) -> Entry:
        """The public keys of this client, which take time to compute."""
        if self._public is None:
            self._public = Entry(
                bytes.fromhex(exchange_key(self._secret)),
                bytes.fromhex(exchange_key(self._share_secret)),
                bytes.fromhex(self._identity.public_key),
                hashlib.sha256(self._ticket).digest(),
            )
        return self._public

    def written(self) -> bytes:
        """Return all of it, for a client that is another process at the next exchange. It is secret."""
        peers = {str(peer): entry.write().hex() for peer, entry in self._peers.items()}
        shares = {str(peer): [part.hex() for part in both] for peer, both in self._shares.items()}
        secrets = (self._secret, self._share_secret, self._identity.secret, self._ticket, self._seed)
        state = {
            "secrets": [secret.hex() for secret in secrets],
            "entry": self._entry.write().hex(),
            "stage": self._stage,
            "place": [self._n, self._place, self._digest.hex()],
            "peers": peers,
            "pair_keys": {str(peer): key.hex() for peer, key in self._pair_keys.items()},
            "shares": shares,
            "senders": sorted(self._senders),
            "survivors": self._survivors,
        }
        return json.dumps(state).encode()

    def resume(self, text: bytes) -> None:
        """Go on from what :meth:`written` wrote."""
        state = json.loads(text)
        secrets = [bytes.fromhex(secret) for secret in state["secrets"]]
        self._secret, self._share_secret, signer, self._ticket, self._seed = secrets
        self._identity, self._stage = Identity(signer), state["stage"]
        self._n, self._place = state["place"][:2]
        self._digest = bytes.fromhex(state["place"][2])
        self._peers = {int(peer): read_entry(bytes.fromhex(entry)) for peer, entry in state["peers"].items()}
        self._pair_keys = {int(peer): bytes.fromhex(key) for peer, key in state["pair_keys"].items()}
        self._shares = {
            int(peer): (bytes.fromhex(seed), bytes.fromhex(secret))
            for peer, (seed, secret) in state["shares"].items()
        }
        self._senders, self._survivors = set(state["senders"]), state["survivors"]
        self._public = read_entry(bytes.fromhex(state["entry"])) if "entry" in state else None

    @property
    def claim(self) -> str:
        """The digest of all keys of the client, which an enrolment signs, in hexadecimal."""
        return self._entry.claim.hex()

    def join(self, certificate: bytes = b"") -> bytes:
        """First exchange: return public keys, with the enrolment's signature where the task asks for one."""
        self._enter("join", "share")
        shown = b"" if self.task.enrolment is None else certificate
        return kind_of("join", self.task.transcript("join", round=self.round_)) + self._entry.write() + shown

    def share(self, message: bytes) -> bytes:
        """Second exchange: return shares of both secrets, sealed for each neighbour."""
        with self._exchange("share", "mask"):
            self._read_roster(message)
            t = self._threshold
            seeds = split(self._seed, threshold=t, n_shares=len(self._peers))
            secrets = split(self._secret, threshold=t, n_shares=len(self._peers))
            self._pair_keys = {}
            sealed, exchange = [], exchange_secret(self._share_secret)
            for (peer, entry), seed, secret in zip(self._peers.items(), seeds, secrets, strict=True):
                pair, public = pair_names(self._place, peer), entry.share.hex()
                key = shared_key(exchange, public, transcript=self._digest, pair=pair, purpose="shares")
                self._pair_keys[peer] = key
                sealed.append(seal_shares(key, seed + secret, sender=self._place, receiver=peer))
            commitment = hashlib.sha256(self._digest + self._seed).digest()
            return self._head("share") + commitment + b"".join(sealed)

    def mask(self, vector: np.ndarray, message: bytes) -> bytes:
        """Third exchange: return the vector, with noise and masks."""
        with self._exchange("mask", "confirm" if self.task.lying else "unmask"):
            body = self._body("inbox", message)
            size = 4 + SEALED
            if len(body) % size:
                raise ValueError("the sealed shares have another length")
            for at in range(0, len(body), size):
                peer, sealed = places(body[at : at + 4])[0], body[at + 4 : at + size]
                if peer not in self._peers or peer in self._senders:
                    raise ValueError("shares of a client that is no neighbour, or twice of one")
                self._senders.add(peer)
                # one wrong seal ends no round: the mask with that neighbour stays, others hold shares of it
                with contextlib.suppress(ValueError):
                    key = self._pair_keys[peer]
                    self._shares[peer] = open_shares(key, sealed, sender=peer, receiver=self._place)
            if len(self._shares) < self._threshold:
                raise ValueError(
                    f"{self._threshold} neighbours are needed, and {len(self._shares)} sent shares"
                )
            total = np.array(vector, dtype=np.uint32)
            if self.task.noise == "clients":
                total += skellam(self.task.share(self._n), total.shape).astype(np.uint32)
            added, subtracted, exchange = [self._seed], list[bytes](), exchange_secret(self._secret)
            for peer in self._senders:
                pair, public = pair_names(self._place, peer), self._peers[peer].mask.hex()
                key = shared_key(exchange, public, transcript=self._digest, pair=pair)
                (added if self._place < peer else subtracted).append(key)
            add_masks(total, added, minus=subtracted)
            return b"".join((self._head("mask"), total.astype("<u4", copy=False).data))

    def confirm(self, message: bytes) -> bytes:
        """Sign the set of survivors, so that the tally cannot name different sets to different clients."""
        with self._exchange("confirm", "unmask"):
            self._survivors = self._read_survivors(message)
            body = self._digest + hashlib.sha256(numbers(self._survivors)).digest()
            return self._head("confirm") + self._identity.seal("survivors", body)[:SIGNATURE_BYTES]

    def unmask(self, message: bytes) -> bytes:
        """Fourth exchange: return one share of each neighbour, of its seed or of its mask secret."""
        with self._exchange("unmask", "done"):
            if self.task.lying:
                body = self._body("confirmations", message)
                good, size = set(), 4 + SIGNATURE_BYTES
                for at in range(0, len(body), size):
                    peer, signature = places(body[at : at + 4])[0], body[at + 4 : at + size]
                    entry = self._peers.get(peer) if peer in self._survivors else None
                    if entry is not None and confirmed(self._digest, self._survivors, entry.sign, signature):
                        good.add(peer)
                if len(good) < self._threshold:
                    raise ValueError(
                        f"{self._threshold} neighbours must confirm the survivors, and {len(good)} do"
                    )
                survivors = self._survivors
            else:
                survivors = self._read_survivors(message)
            alive = set(survivors) & self._shares.keys()
            if len(alive) < self._threshold:
                raise ValueError(f"{self._threshold} neighbours are needed, and {len(alive)} survive")
            answer = []
            for peer, (seed, secret) in self._shares.items():
                answer.append(numbers([peer]) + (b"\1" + seed if peer in alive else b"\0" + secret))
            self._shares, self._secret, self._seed = {}, b"", b""
            return self._head("unmask") + b"".join(answer)

    @property
    def _threshold(self) -> int:
        """The shares that give a neighbour's secret: so many neighbours must go on."""
        return degree_of(self.task, self._n)[1]

    def _read_roster(self, message: bytes) -> None:
        """Read the roster from the tally: all of it if an enrolment signs it, else the neighbours."""
        if self.task.enrolment is not None:
            if message[:BOUND] != kind_of("roster", self.task.transcript("roster", round=self.round_)):
                raise ValueError("the roster is for another task or round")
            head = BOUND + KEY_BYTES + SIGNATURE_BYTES
            roster = Roster(self.task, self.round_, message[head:], message[BOUND:head])
            roster.check()
            self._n, self._digest = len(roster), roster.digest
            matches = [place for place in range(len(roster)) if roster.entry(place) == self._entry]
            if not matches:
                raise ValueError("this client is not on the roster")
            self._place = matches[0]
            self._peers = {peer: roster.entry(peer) for peer in roster.graph[self._place].tolist()}
            return
        if message[:BOUND] != kind_of("neighbours", self.task.transcript("roster", round=self.round_)):
            raise ValueError("the roster is for another task or round")
        body = message[BOUND:]
        self._n, self._place = places(body[:8].ljust(8, b"\0"))
        self._digest = body[8 : 8 + KEY_BYTES]
        if not self.task.least <= self._n <= self.task.limit or self._place >= self._n:
            raise ValueError(
                f"a roster must have {self.task.least} to {self.task.limit} clients, got {self._n}"
            )
        k, _ = degree_of(self.task, self._n)
        size, entries = 4 + 4 * KEY_BYTES, body[8 + KEY_BYTES :]
        if len(entries) != k * size:
            raise ValueError(f"the roster must name {k} neighbours")
        self._peers = {}
        for at in range(0, len(entries), size):
            peer = places(entries[at : at + 4])[0]
            if peer in self._peers or peer == self._place or peer >= self._n:
                raise ValueError("neighbours must be different clients")
            self._peers[peer] = read_entry(entries[at + 4 : at + size])
        keys = [key for entry in [*self._peers.values(), self._entry] for key in (entry.mask, entry.share)]
        if len(set(keys)) < len(keys):
            raise ValueError("neighbours must have keys of their own")

    def _read_survivors(self, message: bytes) -> list[int]:
        """Read the survivors: all of them if an enrolment signs the roster, else those of the neighbours."""
        body = self._body("survivors", message)
        n, survivors = places(body[:4].ljust(4, b"\0"))[0], places(body[4:])
        if survivors != sorted(set(survivors)) or (survivors and survivors[-1] >= self._n):
            raise ValueError("survivors must be different clients in order")
        if not set(survivors) <= self._peers.keys() and not self.task.lying:
            raise ValueError("survivors must be neighbours")
        if (len(survivors) if self.task.lying else n) < self.task.least or n > self._n:
            raise ValueError(f"a round needs {self.task.least} survivors")
        if self.task.lying and self._place not in survivors:
            raise ValueError("this client is not among the survivors")
        # whoever survived has sent its shares to all neighbours at once: a tally that withholds some, so that
        # their masks are missing here, could open the sum of a part of the survivors
        withheld = len((self._peers.keys() & set(survivors)) - self._senders)
        if withheld:
            raise ValueError(f"the shares of {withheld} neighbours who survived did not arrive")
        return survivors

    def _body(self, kind: str, message: bytes) -> bytes:
        if message[:BOUND] != kind_of(kind, self._digest):
            raise ValueError(f"the message is not the {kind} of this round")
        return message[BOUND:]

    def _head(self, kind: str) -> bytes:
        return kind_of(kind, self._digest) + numbers([self._place]) + self._ticket

    def _enter(self, stage: str, then: str) -> None:
        if self._stage != stage:
            raise refused("the client", f"it answers '{stage}' once, and is at '{self._stage}'")
        self._stage = then

    @contextlib.contextmanager
    def _exchange(self, stage: str, then: str) -> Iterator[None]:
        """Answer a message in this block; an error ends the round for this client."""
        self._enter(stage, "done")
        with refusing("the client"):
            yield
        self._stage = then


def most_message_bytes(task: Task) -> int:
    """Return the length of the longest message to a tally: a vector, shares, or a roster's approval."""
    k = min(task.limit - 1, 4096)
    head, joining = BOUND + 4 + KEY_BYTES, 4 * KEY_BYTES + SIGNATURE_BYTES
    longest = head + max(4 * task.encoding.cells, KEY_BYTES + SEALED * k, joining)
    return longest if task.enrolment is None else max(longest, APPROVAL_BYTES + KEY_BYTES * task.limit)


def pair_names(place: int, peer: int) -> tuple[str, str]:
    """Return the names of two clients for key derivation."""
    return f"client {place}", f"client {peer}"


def confirmed(digest: bytes, survivors: list[int], key: bytes, signature: bytes) -> bool:
    """Return whether a client signed this set of survivors."""
    body = digest + hashlib.sha256(numbers(survivors)).digest()
    return is_signed(key.hex(), "survivors", signature + body)


def seal_shares(key: bytes, shares: bytes, *, sender: int, receiver: int) -> bytes:
    """Encrypt and authenticate both shares. A key serves one pair in one round, once in each direction."""
    return bytes(_cipher(key).encrypt(_direction(sender, receiver), shares, None))


def open_shares(key: bytes, sealed: bytes, *, sender: int, receiver: int) -> tuple[bytes, bytes]:
    """Return the shares of the seed and of the mask secret; ValueError if they were changed."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415

    try:
        shares = _cipher(key).decrypt(_direction(sender, receiver), sealed, None)
    except InvalidTag:
        raise ValueError(f"the shares of client {sender} were changed on the way") from None
    return shares[:SHARE_BYTES], shares[SHARE_BYTES:]


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key)


def _direction(sender: int, receiver: int) -> bytes:
    return bytes(11) + (b"\1" if sender < receiver else b"\0")

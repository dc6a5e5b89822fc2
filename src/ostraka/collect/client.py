"""A client: it encodes one value, hides it behind masks, and answers each round once.

:class:`Client` is one client in one round, and :class:`Masking` its part in a round among clients.
:func:`send`, :func:`results` and :meth:`Client.auto` do the same over HTTP, with the address of a tally.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.encodings import MOST_CELLS, PRIME
from ostraka.collect.messages import (
    BOUND,
    ENTRY_BYTES,
    PAUSE,
    SEALED,
    Entry,
    Report,
    Roster,
    certified,
    confirmed,
    degree_of,
    kind_of,
    known_round,
    masks_for,
    nonce_of,
    numbers,
    pair_names,
    places,
    read_entry,
)
from ostraka.collect.task import Task
from ostraka.collect.validity import proved
from ostraka.core import files
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.skellam import skellam
from ostraka.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    HoldsSecrets,
    Identity,
    decrypt,
    encrypt,
    exchange_key,
    exchange_secret,
    new_secret,
    shared_key,
    unseal,
)
from ostraka.secure.masks import SHARE_BYTES, add_masks, split
from ostraka.secure.rounds import PartyError, refused, refusing, strict_object
from ostraka.secure.wire import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike


OWN_LEDGER = "own.ledger"
_MOST_TASK = 2**16
_MOST_NOTICE = 2**20


class Client(HoldsSecrets):
    """One client in one round of a task.

    Parameters
    ----------
    task : Task
        What the client agreed to. Compare its ``sha256`` over a channel that the tally does not control.
    round : int, default 0
        Below ``task.rounds``.
    folder : path, optional
        Where it is written that this client has answered, before the message leaves. None: only this
        object remembers.
    certificate : bytes, optional
        The enrolment's signature of :attr:`claim`, where the task asks for one.

    Raises
    ------
    ValueError
        A round that the task does not have.
    PartyError
        A second answer in one round.

    Guarantees
    ----------
    The value is encoded and clipped here. With ``trust="keepers"`` the only message is the encoded vector
    plus one mask for each keeper, modulo 2^32: uniform as long as one keeper's secret is not known. With
    ``trust="clients"`` the vector is masked for each neighbour and with a seed of its own; of each neighbour
    this client sends one share, of the seed or of the mask secret, for one set of survivors. Keys are 256
    bits from the operating system, for one round, and are forgotten with this object.
    Source: Bonawitz et al. 2017, doi:10.1145/3133956.3133982; Bell et al. 2020, doi:10.1145/3372297.3417885
    (few neighbours).

    Examples
    --------
    >>> from ostraka.collect import Keeper, Task, Tree
    >>> from ostraka.voters import Identity
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=Identity.fresh().public_key,
    ...             keepers=[Keeper.key(Identity.fresh()) for _ in range(2)])
    >>> len(Client(task).report(11))
    112
    """

    def __init__(
        self,
        task: Task,
        *,
        round: int = 0,  # noqa: A002  (the field's word)
        folder: str | PathLike[str] | None = None,
        certificate: bytes = b"",
    ) -> None:
        self.task, self.round = task, known_round(task, round)
        self.certificate = certificate
        self._folder = None if folder is None else Path(folder)
        self._secret: bytes | None = new_secret()
        self.key = exchange_key(self._secret)
        self._masking: Masking | None = None
        if task.trust == "clients":
            self._masking = Masking(task, round_=self.round, secret=self._secret)
        self._has_joined = False

    @property
    def claim(self) -> str:
        """The claim that an enrolment signs for this client, in hex: its key, or a digest of its keys."""
        return self.key if self._masking is None else self._masking.claim

    def report(self, value: Any) -> bytes:
        """Return the one message of a client that trusts keepers."""
        if self.task.trust != "keepers":
            raise ValueError("this task trusts clients, not keepers: use join, share, mask and unmask")
        vector = self.task.encoded(value)
        secret = exchange_secret(self._used())
        transcript = self.task.transcript("report", round=self.round)
        form = self.task.form if self.task.checked else None
        total = vector.copy() if form is None else proved(form, vector, new_secret())
        for keeper in self.task.keepers:
            total += masks_for(self.task, secret, keeper, self.key, keeper[64:], transcript=transcript)
        if form is not None:
            total %= PRIME
        body = total.astype("<u4").tobytes()
        return Report(bytes.fromhex(self.key), self.certificate, body).write(self.task, self.round)

    def join(self) -> bytes:
        """First exchange among clients: return this client's public keys."""
        if self._masking is None:
            raise ValueError("this task trusts keepers, not clients: use report")
        self._used()
        self._has_joined = True
        return self._masking.join(self.certificate)

    def share(self, roster: bytes) -> bytes:
        """Second exchange: return shares of this client's secrets, sealed for its neighbours."""
        return self._joined.share(roster)

    def mask(self, value: Any, inbox: bytes) -> bytes:
        """Third exchange: return the encoded value, with noise and masks."""
        vector = self.task.encoded(value)
        return self._joined.mask(vector, inbox)

    def confirm(self, survivors: bytes) -> bytes:
        """Sign the set of survivors after the third exchange, as a check of the tally."""
        return self._joined.confirm(survivors)

    def unmask(self, message: bytes) -> bytes:
        """Fourth exchange: return one share of each neighbour, never both."""
        return self._joined.unmask(message)

    @property
    def _joined(self) -> Masking:
        if self._masking is None or not self._has_joined:
            raise refused("the client", "it has not joined")
        return self._masking

    def _used(self) -> bytes:
        """Return the secret once, after its use is recorded durably."""
        secret, self._secret = self._secret, None
        if secret is not None and self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = _answered(self._folder, self.task, self.round)
            if files.create(path, self.key.encode()) != self.key.encode():
                secret = None
        if secret is None:
            raise refused("the client", "it has answered this round: a value is reported once")
        return secret

    def __repr__(self) -> str:
        return f"Client(task={self.task.sha256[:16]!r}, round={self.round})"

    @classmethod
    def auto(
        cls,
        url: str,
        answer: Callable[[int], Any],
        *,
        folder: str | PathLike[str],
        ledger: Ledger | None = None,
        sha256: str | None = None,
        certify: Callable[[str], bytes] | None = None,
        timeout: float = 600.0,
        pause: float = 10.0,
    ) -> Iterator[int]:
        """Answer each round of a series once, when it is open; yield the round after each.

        Parameters
        ----------
        url : str
            Of the tally.
        answer : function
            Takes the number of a round, returns the value to report. Called once a round.
        folder : path
            Where it is written which rounds were answered, before a report leaves.
        ledger : Ledger, optional
            The client's own, over all series that it joined: :func:`own_ledger`. None: nothing is counted.
        sha256, certify, timeout
            As of :func:`send`.
        pause : float, seconds, default 10
            Between two looks for the next round.

        Raises
        ------
        BudgetExceeded
            The client's own ledger does not pay for the next round; nothing of it was sent.
        PartyError
            The tally is out of reach, or refuses.
        """
        task = fetch_task(url, sha256=sha256)
        options: dict[str, Any] = {"sha256": task.sha256, "folder": folder, "ledger": ledger}
        while True:
            round_ = open_round(url, task, timeout=timeout)
            if not _answered(Path(folder), task, round_).exists():
                value = answer(round_)
                send(url, value, round_=round_, certify=certify, timeout=timeout, **options)
                yield round_
            if round_ == task.rounds - 1:
                return
            time.sleep(pause)


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
        shares = {str(peer): [part.hex() for part in pair] for peer, pair in self._shares.items()}
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
        signature = b"" if self.task.enrolment is None else certificate
        return (
            kind_of("join", self.task.transcript("join", round=self.round_)) + self._entry.write() + signature
        )

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
                sealed.append(encrypt(key, seed + secret, nonce=nonce_of(self._place, peer)))
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
                    both = decrypt(self._pair_keys[peer], sealed, nonce=nonce_of(peer, self._place))
                    self._shares[peer] = both[:SHARE_BYTES], both[SHARE_BYTES:]
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
        size, entries = 4 + ENTRY_BYTES, body[8 + KEY_BYTES :]
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


def _answered(folder: Path, task: Task, round_: int) -> Path:
    """The file that says that a client has answered a round."""
    return folder / f"client-{task.sha256[:16]}-{round_}.answered"


def own_ledger(folder: str | PathLike[str], *, epsilon: float, delta: float = 1e-6) -> Ledger:
    """Open the ledger of a client over all series that it joins; made with this budget if it is new."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    return Ledger(Path(folder) / OWN_LEDGER, budget=Budget(epsilon=epsilon, delta=delta))


def results(url: str, *, sha256: str | None = None, timeout: float = 30.0) -> dict[str, Any]:
    """Return what a tally signed beside its task.

    Parameters
    ----------
    url : str
        Of the tally.
    sha256 : str, optional
        The fingerprint that was agreed on; another task is refused.
    timeout : float > 0, seconds, default 30

    Returns
    -------
    dict
        ``round`` is open, or was the last; ``spent`` of ``budget`` epsilon is what the ledger has charged;
        ``result`` is the released answer, or None.

    Raises
    ------
    ValueError
        Another task than that of ``sha256``, or a notice that the task's tally did not sign.

    Examples
    --------
    >>> from ostraka.collect import Tally, Task, Tree
    >>> from ostraka.secure.keys import Identity
    >>> from ostraka.secure.wire import PartyServer
    >>> me = Identity.fresh()
    >>> tally = Tally(Task(Tree(0, 16), sigma=9.0, noise="tally", tally=me.public_key), me)
    >>> tally.announce(spent=0.25, budget=1.0)
    >>> with PartyServer(tally, pages=tally.pages) as server:
    ...     results(server.url)["spent"]
    0.25
    """
    return _notice(url, fetch_task(url, sha256=sha256, timeout=timeout), timeout=timeout)


def fetch_task(url: str, *, sha256: str | None = None, timeout: float = 30.0) -> Task:
    """Fetch the task of a tally; ValueError if its fingerprint is not the one that the client expects."""
    body = Remote("the tally", url, timeout=timeout).page("/task.json", _MOST_TASK)
    task = Task.from_json(body.decode("utf-8", "replace"))
    if sha256 is not None and task.sha256 != sha256:
        raise ValueError(f"the tally has another task: {task.sha256}")
    return task


def open_round(url: str, task: Task, *, timeout: float = 30.0) -> int:
    """Return the round that the tally says is open; 0 where the task has no other."""
    return 0 if task.rounds == 1 else known_round(task, _notice(url, task, timeout=timeout)["round"])


def _notice(url: str, task: Task, *, timeout: float) -> dict[str, Any]:
    sealed = Remote("the tally", url, timeout=timeout).ask("notice", b"", _MOST_NOTICE, again=True)
    names = {"task", "round", "spent", "budget", "result"}
    notice = strict_object(unseal(task.tally, "notice", sealed), names)
    if notice["task"] != task.sha256:
        raise ValueError("the notice is for another task")
    return notice


def send(
    url: str,
    value: Any,
    *,
    sha256: str | None = None,
    folder: str | PathLike[str] | None = None,
    round_: int | None = None,
    certify: Callable[[str], bytes] | None = None,
    ledger: Ledger | None = None,
    timeout: float = 600.0,
) -> str:
    """Report one value to a tally through all exchanges of its task; return the task's fingerprint.

    Parameters
    ----------
    url : str
        Of the tally.
    value : number, list or str
        What the encoding takes, or the text or number of a choice. Private: it is encoded and masked here.
    sha256 : str, optional
        The fingerprint that was agreed on; another task is refused.
    folder : path, optional
        Where it is written that this client has answered, before the message leaves.
    round_ : int, optional
        None: the one that the tally says is open.
    certify : function, optional
        Returns the enrolment's signature of this client's claim, where the task asks for one.
    ledger : Ledger, optional
        The client's own: what the round costs is charged to it before anything is sent.
    timeout : float > 0, seconds, default 600

    Raises
    ------
    ValueError
        Another task; a value that is refused, before anybody counts on this client.
    BudgetExceeded
        The client's own ledger does not pay for the round; nothing was sent.
    PartyError
        The tally refuses, is out of reach, or this client has answered.

    Examples
    --------
    >>> from ostraka.collect import Keeper, Tally, Task, Tree
    >>> from ostraka.secure.keys import Identity
    >>> from ostraka.secure.wire import PartyServer
    >>> me, two = Identity.fresh(), [Identity.fresh() for _ in range(2)]
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=me.public_key, keepers=[Keeper.key(one) for one in two])
    >>> tally = Tally(task, me, keepers=[Keeper(task, one) for one in two])
    >>> with PartyServer(tally, pages=tally.pages) as server:
    ...     send(server.url, 11) == task.sha256
    True
    """
    task = fetch_task(url, sha256=sha256)
    remote, limit = Remote("the tally", url, timeout=timeout), 8 * MOST_CELLS
    round_ = open_round(url, task) if round_ is None else round_
    client = Client(task, round=round_, folder=folder)
    task.encoded(value)  # a value that is refused is refused before anybody counts on this client
    if task.enrolment is not None:
        if certify is None:
            raise ValueError("this task needs an enrolled client: the enrolment must sign its claim")
        client.certificate = certify(client.claim)
        if not certified(task, bytes.fromhex(client.claim), client.certificate, round_=client.round):
            raise ValueError("the enrolment did not sign the claim of this client")
    if ledger is not None:
        key = f"{task.sha256}/{client.round}"
        ledger.charge(task.mechanism, uses=1, unit="client", simulation=False, key=key)
    if task.trust == "keepers":
        remote.ask("report", client.report(value), limit, again=True)
        return task.sha256
    client_key, until = bytes.fromhex(client.key), time.monotonic() + timeout
    remote.ask("message", client.join(), limit, again=True)
    last = b""
    for stage in ("share", "mask", *(("confirm",) if task.lying else ()), "unmask"):
        while (message := remote.ask("outbox", client_key, limit, again=True)) in (b"", last):
            if time.monotonic() > until:
                raise PartyError(
                    "the round did not go on in time", code="unreachable", parties=("the tally",)
                )
            time.sleep(PAUSE)
        last = message
        answer = client.mask(value, message) if stage == "mask" else getattr(client, stage)(message)
        remote.ask("message", answer, limit, again=True)
    return task.sha256

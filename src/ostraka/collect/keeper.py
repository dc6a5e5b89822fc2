"""A keeper tells the tally only the sum of its masks, once a round; an enrolment signs who takes part.

A keeper shares a mask with every client. An enrolment signs the keys of people whom it knows, and the roster
of a round. Both write each answer down before it leaves, and give the same one again.
"""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ostraka.collect.encodings import PRIME
from ostraka.collect.messages import (
    ENTRY_BYTES,
    PAUSE,
    Closing,
    Roster,
    approval,
    certificate,
    degree_of,
    known_round,
    masks_for,
    read_entry,
)
from ostraka.collect.validity import TIMES, Check, packed, unpacked
from ostraka.core.mechanisms.skellam import skellam
from ostraka.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    HoldsSecrets,
    derived,
    exchange_key,
    exchange_secret,
)
from ostraka.secure.log import Log
from ostraka.secure.masks import pair_mask
from ostraka.secure.rounds import refusing, unsealed
from ostraka.secure.wire import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    from ostraka.collect.task import Task
    from ostraka.secure.keys import Identity


class Keeper(HoldsSecrets):
    """One keeper of a task. The sums stay hidden as long as one of the keepers is honest.

    Parameters
    ----------
    task : Task
        It names this keeper's key.
    identity : Identity
        This keeper's. Use a new one for each task, and destroy it after the last round: whoever gets the
        secrets of all keepers can read recorded reports.
    folder : path, optional
        Where the answer to each round is written before it leaves, so that a restarted keeper does not
        answer a second set of clients. None: only this process remembers.

    Raises
    ------
    ValueError
        The task does not name this keeper, or has no keepers.

    Guarantees
    ----------
    For each round it answers for one set of clients, durably chosen. It answers the same request again
    with the same bytes. It refuses fewer than ``task.least`` clients, repeated keys and keys of low order
    before it computes any mask. Its answer is masked for the tally, and carries its share of the noise.
    Where reports are checked, it takes part in one check of a round, and sums only what was checked.

    Examples
    --------
    >>> from ostraka.collect import Keeper, Task, Tree
    >>> from ostraka.voters import Identity
    >>> keepers = [Identity.fresh() for _ in range(2)]
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=Identity.fresh().public_key,
    ...             keepers=[Keeper.key(one) for one in keepers])
    >>> Keeper(task, keepers[0]).name == Keeper.key(keepers[0])[:16]
    True
    """

    def __init__(self, task: Task, identity: Identity, *, folder: str | PathLike[str] | None = None) -> None:
        self._own = self.key(identity)
        if self._own not in task.keepers:
            raise ValueError("the task does not name this keeper: its key must be among task.keepers")
        self.task = task
        self._identity = identity
        self._secret = exchange_secret(derived(identity.secret, "keeper"))
        name = f"keeper-{task.sha256[:16]}-{self.name}"
        path = None if folder is None else Path(folder) / f"{name}.log"
        self._log = Log(path, name=name, earlier=f"{name}-*.request")
        self._lock = threading.Lock()
        self._part: Check | None = None
        self._request: tuple[bytes, Closing] | None = None

    @staticmethod
    def key(identity: Identity) -> str:
        """The public keys for signatures and for masks, in hexadecimal, as the task names them."""
        return identity.public_key + exchange_key(derived(identity.secret, "keeper"))

    @property
    def name(self) -> str:
        """The first digits of the key."""
        return self._own[:16]

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The handlers of a server's messages."""
        handlers: dict[str, Callable[[bytes], bytes]] = {"/v1/close": self.answer}
        if self.task.checked:
            handlers |= {"/v1/sketch": self.sketch, "/v1/verdict": self.verdict}
        return handlers

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid request."""
        size = KEY_BYTES + (SIGNATURE_BYTES if self.task.enrolment else 0)
        form = self.task.form
        opening = 4 * TIMES * len(form.sizes) if self.task.checked and form is not None else 0
        return SIGNATURE_BYTES + 512 + max(size, opening) * self.task.limit

    def answer(self, sealed: bytes) -> bytes:
        """Return the signed sum, with noise, of the masks of the clients that the tally names.

        Raises
        ------
        PartyError
            The request is not the tally's, not for this task, has too few clients or bad keys, or this
            round was answered for other clients.
        """
        role = f"keeper {self.name}"
        body = unsealed(role, self.task.tally, "close", sealed)
        with refusing(role):
            closing, request = Closing.read(body, self.task), hashlib.sha256(body).digest()
            with self._lock:
                return self._log.answer(str(closing.round_), request, lambda: self._sum(closing, request))

    def sketch(self, sealed: bytes) -> bytes:
        """Where reports are checked: return this keeper's shares of the openings of all reports of a round.

        Raises
        ------
        PartyError
            As of :meth:`answer`.
        """
        role = f"keeper {self.name}"
        body = unsealed(role, self.task.tally, "sketch", sealed)
        with refusing(role), self._lock:
            closing = self._closing(body)
            return self._log.answer(f"sketch {closing.round_}", body, lambda: self._opened(closing, body))

    def _opened(self, closing: Closing, body: bytes) -> bytes:
        check = self._check(closing, hashlib.sha256(body).digest())
        return self._identity.seal("sketch", check.digest + packed(check.openings))

    def verdict(self, sealed: bytes) -> bytes:
        """Where reports are checked: return this keeper's shares of the verdicts on the opened reports.

        Raises
        ------
        PartyError
            The request is not the tally's, for other reports than those that were opened, or not the first.
        """
        role = f"keeper {self.name}"
        body = unsealed(role, self.task.tally, "verdict", sealed)
        with refusing(role), self._lock:
            round_ = known_round(self.task, int.from_bytes(body[:4], "little"))
            closing = self._sketched(round_)
            check = self._check(closing, closing.digest(self.task))
            if body[4:36] != check.digest:
                raise ValueError("other reports of this round were opened")
            openings = unpacked(body[36:], check.openings.shape)
            shares = check.weights.verdicts(check.terms, openings)
            answer = hashlib.sha256(body).digest() + packed(shares)
            return self._log.answer(f"verdict {round_}", body, lambda: self._identity.seal("verdict", answer))

    def _sketched(self, round_: int) -> Closing:
        """Return the set of clients whose reports were opened in a round."""
        earlier = self._log.get(f"request sketch {round_}")
        if earlier is None:
            raise ValueError("no reports of this round were opened")
        return self._closing(earlier)

    def _closing(self, body: bytes) -> Closing:
        """Parse the request that opens reports; the last one is remembered, for two messages refer to it."""
        if self._request is None or self._request[0] != body:
            self._request = body, Closing.read(body, self.task)
        return self._request[1]

    def _check(self, closing: Closing, digest: bytes) -> Check:
        """Return this keeper's part in the check of a round; what was computed before is remembered."""
        if self._part is None or self._part.digest != digest:
            keys = closing.keys
            shares = (PRIME - masks for masks in self._masks(closing.round_, keys))  # from 1 to p
            self._part = Check.of(self.task, digest, shares, n=len(keys))
        return self._part

    def _masks(self, round_: int, keys: Iterable[bytes]) -> Iterator[np.ndarray]:
        """The mask of each report."""
        transcript = self.task.transcript("report", round=round_)
        for client in map(bytes.hex, keys):
            yield masks_for(self.task, self._secret, self._own, client, client, transcript=transcript)

    def _sum(self, closing: Closing, request: bytes) -> bytes:
        """Return the signed sum of masks, or of shares of answers, with noise and a mask for the tally."""
        task = self.task
        if task.checked:
            opened, answers = self._sketched(closing.round_), set(closing.keys)
            if not answers <= set(opened.keys) or self._log.get(f"answer verdict {closing.round_}") is None:
                raise ValueError("reports that were not checked cannot be summed")
            check = self._check(opened, opened.digest(task))
            shares = check.total.copy()
            refused = (key for key in opened.keys if key not in answers)
            for masks in self._masks(opened.round_, refused):
                shares += masks[: len(shares)]
            sums = check.weights.form.summed(shares % PRIME).astype(np.int64)
            if task.noise == "keepers":
                sums -= skellam(task.share(0), sums.shape)
            total = (sums % PRIME).astype(np.uint32)
        else:
            total = np.zeros(task.encoding.cells, dtype=np.uint32)
            for masks in self._masks(closing.round_, closing.keys):
                total += masks
            if task.noise == "keepers":
                total -= skellam(task.share(0), total.shape).astype(np.uint32)
        pair = ("the tally", self._own)
        total += pair_mask(self._secret, closing.key, transcript=request, pair=pair, size=len(total))
        return self._identity.seal("sum", request + total.astype("<u4").tobytes())

    def __repr__(self) -> str:
        return f"Keeper(name={self.name!r})"


class Enrolment(HoldsSecrets):
    """The role that decides who takes part in one round of a task. It is not the tally.

    Parameters
    ----------
    task : Task
        It names this enrolment's key.
    identity : Identity
        This enrolment's.
    round : int, default 0
        Below ``task.rounds``.
    folder : path, optional
        Where claims and the approved roster are kept. None: only this process remembers.

    Raises
    ------
    ValueError
        The task does not name this enrolment.

    Guarantees
    ----------
    A roster that it approves holds enrolled clients only, each with the keys that the client itself made.
    It approves one roster a round, durably chosen, and repeats the same approval.

    Examples
    --------
    >>> from ostraka.collect import Client, Task, Tree
    >>> from ostraka.voters import Identity
    >>> office = Identity.fresh()
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=Identity.fresh().public_key,
    ...             lying=True, enrolment=office.public_key)
    >>> len(Enrolment(task, office).enrol(Client(task).claim))
    64
    """

    def __init__(
        self,
        task: Task,
        identity: Identity,
        *,
        round: int = 0,  # noqa: A002  (the field's word)
        folder: str | PathLike[str] | None = None,
    ) -> None:
        if identity.public_key != task.enrolment:
            raise ValueError("the task names another enrolment than this identity, or none")
        self.task, self.round = task, known_round(task, round)
        self._identity = identity
        name = f"enrolment-{task.sha256[:16]}-{self.round}"
        path = None if folder is None else Path(folder) / f"{name}.log"
        self._log = Log(path, name=name, earlier=f"{name}.*")  # 'collect enrol' signs while 'approve' waits

    def enrol(self, claim: str) -> bytes:
        """Return the signature of a claim: :attr:`Client.claim` of a person who may take part."""
        try:
            body = bytes.fromhex(claim)
        except ValueError:
            body = b""
        if len(body) != KEY_BYTES or body.hex() != claim:
            raise ValueError("a claim must have 64 lower-case hexadecimal digits")
        self._log.once(f"claim {claim}", body)
        return certificate(self.task, self._identity, claim, round_=self.round)

    def approve(self, entries: bytes) -> bytes:
        """Return the approval of a roster among clients: the signature, and the keys of its clients.

        Those who joined without being enrolled are left out.

        Raises
        ------
        PartyError
            Too few enrolled clients have joined, or too many; a key stands on the roster twice; or another
            roster was approved before.
        """
        with refusing("the enrolment"):
            enrolled = self._enrolled(entries)
            if len(enrolled) < self.task.least:
                raise ValueError(f"{len(enrolled)} enrolled clients joined: too few")
            roster = b"".join(enrolled)
            signature = approval(self.task, self._identity, roster, round_=self.round)
            Roster(self.task, self.round, roster, signature).check()  # before it uses up the one approval
            degree_of(self.task, len(enrolled))
            keys = b"".join(record[:KEY_BYTES] for record in enrolled)
            try:
                return self._log.answer("roster", roster, lambda: signature + keys)
            except ValueError:
                raise ValueError("another roster of this round was approved") from None

    def n_enrolled(self, entries: bytes) -> int:
        """Return how many of those who joined are enrolled; PartyError for what is no roster."""
        with refusing("the enrolment"):
            return len(self._enrolled(entries))

    def _enrolled(self, entries: bytes) -> list[bytes]:
        """Return the entries of enrolled clients, in order."""
        if len(entries) % ENTRY_BYTES:
            raise ValueError("the entries have another length")
        records = [entries[at : at + ENTRY_BYTES] for at in range(0, len(entries), ENTRY_BYTES)]
        claims = self._claims()
        return sorted(record for record in records if read_entry(record).claim in claims)

    def _claims(self) -> set[bytes]:
        """The claims that were signed here."""
        return {body for key, body in self._log.entries() if key == f"claim {body.hex()}"}

    def __repr__(self) -> str:
        return f"Enrolment(task={self.task.sha256[:16]!r}, round={self.round})"


def approve_roster(url: str, enrolment: Enrolment, *, n_clients: int, seconds: float) -> int:
    """Approve the roster of a tally once so many enrolled clients have joined, or after a time limit.

    Return how many have joined.
    """
    remote, until = Remote("the tally", url, timeout=seconds + 30), time.monotonic() + seconds
    limit = ENTRY_BYTES * enrolment.task.limit
    while enrolment.n_enrolled(entries := remote.ask("entries", b"", limit, again=True)) < n_clients:
        if time.monotonic() > until:
            break
        time.sleep(PAUSE)
    remote.ask("approve", enrolment.approve(entries), limit, again=True)
    return len(entries) // ENTRY_BYTES

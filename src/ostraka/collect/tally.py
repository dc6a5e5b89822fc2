"""The tally: it keeps masked reports, closes a round once, and learns the noisy sum of it."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect._gathering import Gathering
from ostraka.collect._keepers import asked, link
from ostraka.collect._masking import most_message_bytes
from ostraka.collect._pages import pages_of
from ostraka.collect._reports import Closing, Report, known_round, most_report_bytes
from ostraka.collect._store import ReportLog, chosen_once, made
from ostraka.private import Private
from ostraka.secure.errors import PartyError
from ostraka.secure.keys import KEY_BYTES, SIGNATURE_BYTES, exchange_key, new_secret, unseal
from ostraka.secure.masks import pair_mask
from ostraka.secure.refusals import checked, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from pathlib import Path

    from ostraka.collect.keeper import Keeper
    from ostraka.collect.task import Task
    from ostraka.secure.keys import Identity

__all__ = ["Tally"]

_RECEIPT = 16
_MESSAGE, _ADVANCE = b"M", b"A"


class Tally:
    """The tally of one round of a task: an untrusted adder of masked vectors.

    Parameters
    ----------
    task : Task
        It names this tally's key.
    identity : Identity
        This tally's.
    keepers : sequence of Keeper or str
        Those of the task, in its order, if it trusts keepers. Addresses such as
        ``"http://127.0.0.1:8751"``, or the keepers themselves in one process.
    round : int, default 0
        Below ``task.rounds``.
    folder : path, optional
        Where reports and the set of survivors are kept. None: only this process remembers.
    timeout : float > 0, seconds, default 600
        How long a keeper may take.

    Raises
    ------
    ValueError
        The task does not name this identity, or other keepers.

    Guarantees
    ----------
    A report is durable before it is acknowledged. The set of survivors is durable before any keeper is
    asked, and there is one for each round: a tally that was restarted asks for the same set again.
    Reports that come later are refused and stay masked. With noise from keepers this process never
    holds exact sums.

    Examples
    --------
    >>> from ostraka import Budget, Ledger, release
    >>> from ostraka.collect import Client, Keeper, Task, Tree
    >>> from ostraka.voters import Identity
    >>> me, two = Identity.fresh(), [Identity.fresh() for _ in range(2)]
    >>> task = Task(Tree(0, 16), sigma=9.0, tally=me.public_key, keepers=[Keeper.key(one) for one in two])
    >>> tally = Tally(task, me, keepers=[Keeper(task, one) for one in two])
    >>> for value in (3, 5, 5, 11):
    ...     _ = tally.receive(Client(task).report(value))
    >>> sums = tally.close()
    >>> sums
    Private(shape=(16,), unit='client')
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-6)) as ledger:
    ...     release(task.mechanism, sums, ledger=ledger).shape
    (16,)
    """

    def __init__(
        self,
        task: Task,
        identity: Identity,
        *,
        keepers: Sequence[Keeper | str] = (),
        round: int = 0,  # noqa: A002  (the field's word)
        folder: str | PathLike[str] | None = None,
        timeout: float = 600.0,
    ) -> None:
        if identity.public_key != task.tally:
            raise ValueError("the task names another tally than this identity")
        if len(keepers) != len(task.keepers):
            raise ValueError(f"keepers must be the {len(task.keepers)} of the task, got {len(keepers)}")
        self.task, self.round = task, known_round(task, round)
        self._identity, self._folder = identity, made(folder)
        self._keepers = {
            key: link(key, keeper, timeout) for key, keeper in zip(task.keepers, keepers, strict=True)
        }
        self._lock = threading.Lock()
        self._seen: dict[bytes, tuple[bytes, bytes]] = {}  # key: digest of the report, certificate
        self._total = np.zeros(task.encoding.cells, dtype=np.uint32)
        self._closing: tuple[Closing, bytes] | None = None
        self._log: ReportLog | None = None
        self._gathering = Gathering(task, round_=self.round) if task.trust == "clients" else None
        if self._folder is not None:
            self._recover(self._folder)

    @property
    def name(self) -> str:
        """The name of the tally in logs and refusals."""
        return "the tally"

    @property
    def n_clients(self) -> int:
        """Different clients that have reported, or joined. Public."""
        return len(self._seen) if self._gathering is None else self._gathering.n_clients

    @property
    def n_survivors(self) -> int:
        """Clients whose vectors are in the sum. Public."""
        return len(self._seen) if self._gathering is None else len(self._gathering.masked)

    @property
    def variance(self) -> float:
        """Variance of the noise in each cell of the sum, if all have added their shares. Public."""
        return self.task.variance(n_survivors=self.n_survivors, n_clients=self.n_clients)

    @property
    def stage(self) -> str:
        """The open exchange: "report", or among clients "join", "share", "mask", "confirm" or "unmask"."""
        return "report" if self._gathering is None else self._gathering.stage

    @property
    def progress(self) -> tuple[int, int]:
        """Clients that have answered in the open exchange, and those that could have. Public."""
        if self._gathering is None:
            return len(self._seen), self.task.limit
        return self._gathering.progress

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The handlers of a server's messages."""
        if self._gathering is None:
            return {"/v1/report": self.receive}
        found = {"/v1/message": self.receive, "/v1/outbox": self.outbox}
        if self.task.enrolment is None:
            return found
        return {**found, "/v1/entries": lambda _: self.entries(), "/v1/approve": self.approve}

    @property
    def pages(self) -> dict[str, tuple[str, bytes]]:
        """The pages for browsers: the task, and the page of a client."""
        return pages_of(self.task)

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        return most_report_bytes(self.task) if self._gathering is None else most_message_bytes(self.task)

    def receive(self, message: bytes) -> bytes:
        """Keep a message of a client and acknowledge it; the same one again is not counted twice.

        Raises
        ------
        PartyError
            The report is malformed, for another task or round, under a key that another report has, too
            late or one too many. Nothing was counted.
        """
        if self._gathering is not None:
            return self._gathered(self._gathering, message)
        report = checked(self.name, lambda: Report.read(message, self.task, self.round))
        digest = hashlib.sha256(message).digest()
        with self._lock:
            known = self._seen.get(report.key)
            if known is not None and known[0] != digest:
                raise refused(self.name, "another report has this key", report.key.hex())
            if known is None:
                if self._closing is not None:
                    raise refused(self.name, "the round is closed", report.key.hex())
                if len(self._seen) >= self.task.limit:
                    raise refused(self.name, "the round is full", report.key.hex())
                if self._log is not None:
                    self._log.append(message)
                self._count(report, digest)
        return digest[:_RECEIPT]

    def _gathered(self, gathering: Gathering, message: bytes) -> bytes:
        with self._lock:
            if gathering.check(message):
                if self._log is not None:
                    self._log.append(_MESSAGE + message)
                gathering.receive(message)
        return hashlib.sha256(message).digest()[:_RECEIPT]

    def entries(self) -> bytes:
        """Among clients: return who has joined, for the enrolment to approve."""
        return self._among_clients.entries()

    def approve(self, approval: bytes) -> bytes:
        """Among clients: close the roster with the approval of the enrolment; the same one again is fine."""
        gathering = self._among_clients
        with self._lock:
            if gathering.stage == "join":
                gathering.check_approval(approval)
                if self._log is not None:
                    self._log.append(_ADVANCE + approval)
                gathering.advance(approval)
            elif gathering.approval != approval:
                raise refused(self.name, "the roster is closed")
        return hashlib.sha256(approval).digest()[:_RECEIPT]

    def advance(self, approval: bytes = b"") -> None:
        """Among clients: close the current exchange and open the next, durably.

        Raises
        ------
        PartyError
            Too few clients have answered, or the roster lacks the enrolment's approval.
        """
        gathering = self._among_clients
        with self._lock:
            if self._log is not None:
                self._log.append(_ADVANCE + approval)  # read again, it fails again if it fails now
            gathering.advance(approval)

    def outbox(self, key: bytes) -> bytes:
        """Among clients: return what the client with this key must answer next; empty if nothing."""
        with self._lock:
            return self._among_clients.outbox(key)

    @property
    def _among_clients(self) -> Gathering:
        if self._gathering is None:
            raise ValueError("this task trusts keepers: it has one exchange only")
        return self._gathering

    def close(self) -> Private:
        """Fix the set of survivors, unmask, and return the sum. If keepers failed, call it again.

        Returns
        -------
        Private of shape (cells,), unit "client"
            Noise of keepers or clients is in it already, and only ``task.mechanism`` takes it.

        Raises
        ------
        PartyError
            Too few clients, a keeper that is out of reach or refuses (``parties`` names it), or a sum that
            cannot be one.
        """
        if self._gathering is not None:
            with self._lock:
                return self._plausible(self._gathering.sums().view(np.int32).astype(np.int64))
        with self._lock:
            if self._closing is None:
                self._closing = self._closed()
        closing, secret = self._closing
        request = self._identity.seal("close", closing.write(self.task))
        digest = closing.digest(self.task)
        total, most = self._total.copy(), 2 * SIGNATURE_BYTES + KEY_BYTES + 4 * self.task.encoding.cells
        for key, sealed in asked(self._keepers, request, most).items():
            total -= self._opened(key, sealed, digest, secret)
        return self._plausible(total.view(np.int32).astype(np.int64))

    def _closed(self) -> tuple[Closing, bytes]:
        if len(self._seen) < self.task.least:
            raise refused(self.name, f"a round needs {self.task.least} clients, got {len(self._seen)}")
        keys = sorted(self._seen)
        secret, signatures = new_secret(), b"".join(self._seen[key][1] for key in keys)
        closing = Closing(self.round, exchange_key(secret), b"".join(keys), signatures)
        if self._folder is not None:
            content = secret + closing.write(self.task)
            if chosen_once(self._path(self._folder, "closed"), content) != content:
                raise refused(self.name, "another process has closed this round")
        return closing, secret

    def _opened(self, key: str, sealed: bytes, digest: bytes, secret: bytes) -> np.ndarray:
        """Return the masks that a keeper subtracts, without the mask that it shares with this tally."""
        size = self.task.encoding.cells
        try:
            body = unseal(key[:64], "sum", sealed)
            if len(body) != KEY_BYTES + 4 * size or body[:KEY_BYTES] != digest:
                raise ValueError("the answer is to another request")  # noqa: TRY301
        except ValueError as error:
            text = f"keeper {key[:16]}: {error}"
            raise PartyError(text, code="wrong_identity", parties=(key[:16],)) from None
        own = pair_mask(secret, key[64:], transcript=digest, pair=(self.name, key), size=size)
        return np.asarray(np.frombuffer(body[KEY_BYTES:], dtype="<u4") - own)

    def _plausible(self, sums: np.ndarray) -> Private:
        """Return the sums if they are plausible; masks left over would make them look random."""
        task, n = self.task, self.n_survivors
        if np.abs(sums).max() > n * task.encoding.largest + task.noise_room(self.n_clients):
            raise PartyError(
                "the sum is not one of valid reports; it cannot be told which report or keeper is wrong",
                code="disagreement",
            )
        return Private(sums, task.mechanism.promise)

    def _count(self, report: Report, digest: bytes) -> None:
        self._seen[report.key] = digest, report.certificate
        self._total += report.vector

    def _path(self, folder: Path, kind: str) -> Path:
        return folder / f"tally-{self.task.sha256[:16]}-{self.round}.{kind}"

    def _recover(self, folder: Path) -> None:
        self._log = ReportLog(self._path(folder, "reports"))
        for record in self._log.records():
            if self._gathering is not None:
                self._repeat(self._gathering, record)
                continue
            report = Report.read(record, self.task, self.round)
            if report.key not in self._seen:
                self._count(report, hashlib.sha256(record).digest())
        closed = self._path(folder, "closed")
        if closed.exists():
            content = closed.read_bytes()
            closing = Closing.read(content[KEY_BYTES:], self.task)
            if closing.keys != sorted(self._seen):
                raise ValueError(f"{closed} does not name the clients whose reports are beside it")
            self._closing = closing, content[:KEY_BYTES]

    def _repeat(self, gathering: Gathering, record: bytes) -> None:
        if record[:1] == _MESSAGE:
            gathering.receive(record[1:])
            return
        with contextlib.suppress(PartyError):
            gathering.advance(record[1:])

    def __repr__(self) -> str:
        return f"Tally(task={self.task.sha256[:16]!r}, round={self.round}, n_clients={self.n_clients})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self!r} does not travel: its secrets stay in its own process")

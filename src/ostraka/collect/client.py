"""A client: it encodes one value, hides it behind masks, and answers each round once.

At the end, the same over HTTP: a client runs its exchanges, and a tally closes them in time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka.collect.encodings import MOST_CELLS, PRIME
from ostraka.collect.masking import Masking
from ostraka.collect.messages import Report, certified, known_round, masks_for
from ostraka.collect.task import Task
from ostraka.collect.validity import proved
from ostraka.core import files
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.secure.keys import KEY_BYTES, HoldsSecrets, exchange_key, exchange_secret, new_secret, unseal
from ostraka.secure.rounds import PartyError, refused, strict_object
from ostraka.secure.wire import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from ostraka.collect.keeper import Enrolment
    from ostraka.collect.tally import Tally


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


OWN_LEDGER = "own.ledger"
_MOST_TASK = 2**16
_MOST_NOTICE = 2**20
_PAUSE = 0.05  # seconds between two looks


def fetch_task(url: str, *, sha256: str | None = None, timeout: float = 30.0) -> Task:
    """Fetch the task of a tally; ValueError if its fingerprint is not the one that the client expects."""
    body = Remote("the tally", url, timeout=timeout).page("/task.json", _MOST_TASK)
    task = Task.from_json(body.decode("utf-8", "replace"))
    if sha256 is not None and task.sha256 != sha256:
        raise ValueError(f"the tally has another task: {task.sha256}")
    return task


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


def _notice(url: str, task: Task, *, timeout: float) -> dict[str, Any]:
    sealed = Remote("the tally", url, timeout=timeout).ask("notice", b"", _MOST_NOTICE, again=True)
    names = {"task", "round", "spent", "budget", "result"}
    notice = strict_object(unseal(task.tally, "notice", sealed), names)
    if notice["task"] != task.sha256:
        raise ValueError("the notice is for another task")
    return notice


def open_round(url: str, task: Task, *, timeout: float = 30.0) -> int:
    """Return the round that the tally says is open; 0 where the task has no other."""
    return 0 if task.rounds == 1 else known_round(task, _notice(url, task, timeout=timeout)["round"])


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
    own, until = bytes.fromhex(client.key), time.monotonic() + timeout
    remote.ask("message", client.join(), limit, again=True)
    last = b""
    for stage in ("share", "mask", *(("confirm",) if task.lying else ()), "unmask"):
        while (message := remote.ask("outbox", own, limit, again=True)) in (b"", last):
            if time.monotonic() > until:
                raise PartyError(
                    "the round did not go on in time", code="unreachable", parties=("the tally",)
                )
            time.sleep(_PAUSE)
        last = message
        answer = client.mask(value, message) if stage == "mask" else getattr(client, stage)(message)
        remote.ask("message", answer, limit, again=True)
    return task.sha256


def approve_roster(url: str, enrolment: Enrolment, *, n_clients: int, seconds: float) -> int:
    """Approve the roster of a tally once so many enrolled clients have joined, or after a time limit.

    Return how many have joined.
    """
    remote, until = Remote("the tally", url, timeout=seconds + 30), time.monotonic() + seconds
    limit = 4 * KEY_BYTES * enrolment.task.limit
    while enrolment.n_enrolled(entries := remote.ask("entries", b"", limit, again=True)) < n_clients:
        if time.monotonic() > until:
            break
        time.sleep(_PAUSE)
    remote.ask("approve", enrolment.approve(entries), limit, again=True)
    return len(entries) // (4 * KEY_BYTES)


def run_exchanges(tally: Tally, *, n_clients: int, seconds: float) -> None:
    """Close each exchange when all have answered, or after a time limit; the last one stays open.

    Where the task has an enrolment, its approval closes the roster.
    """
    stage, until = "", 0.0
    while True:
        if tally.stage != stage:
            stage, until = tally.stage, time.monotonic() + seconds
        answered, expected = tally.progress
        done = answered >= (n_clients if stage in {"join", "report"} else expected)
        if done or time.monotonic() > until:
            if stage in {"report", "unmask"}:
                return
            if stage == "join" and tally.task.enrolment is not None:
                if time.monotonic() > until:
                    raise PartyError("the enrolment approved no roster in time", code="unreachable")
                time.sleep(_PAUSE)
            else:
                tally.advance()
        else:
            time.sleep(_PAUSE)

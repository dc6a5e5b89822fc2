"""The tally: it keeps masked reports, closes a round once, and learns the noisy sum of it.

:class:`Tally` is the tally of one round. :class:`Reports` is its state in a round with keepers, and
:class:`Gathering` in a round among clients.

:class:`Series` is the tally of all rounds, hour after hour or day after day, under one ledger. It charges a
round before it opens it, so nobody answers what cannot be paid for. Whatever it was doing when it was killed,
it goes on: each round is charged once and released once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.encodings import PRIME
from ostraka.collect.messages import (
    APPROVAL_BYTES,
    BOUND,
    ENTRY_BYTES,
    PAUSE,
    SEALED,
    Closing,
    Report,
    Roster,
    certified,
    confirmed,
    degree_of,
    kind_of,
    known_round,
    most_message_bytes,
    most_report_bytes,
    numbers,
    pair_names,
    places,
    read_entry,
)
from ostraka.collect.show import Collected, record_of, summary
from ostraka.collect.validity import Check, packed, signed, unpacked
from ostraka.core import check, files
from ostraka.core.door import release
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.private import Private
from ostraka.secure.agreement import canonical
from ostraka.secure.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    HoldsSecrets,
    exchange_key,
    exchange_secret,
    new_secret,
    shared_key,
    unseal,
)
from ostraka.secure.log import Log
from ostraka.secure.masks import SHARE_BYTES, add_masks, corrected, join, pair_mask
from ostraka.secure.rounds import PartyError, by, refused, refusing
from ostraka.secure.wire import ask_all, link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from ostraka.collect.keeper import Keeper
    from ostraka.collect.task import Task
    from ostraka.core.ledger.budget import Budget
    from ostraka.secure.keys import Identity

_NEXT = {"join": "share", "share": "mask", "mask": "unmask", "unmask": "done"}
_NEXT_LYING = {**_NEXT, "mask": "confirm", "confirm": "unmask"}
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_RECEIPT = 16
_ADVANCE, _CLOSED, _SKETCHED = b"A", "closed", "sketched"
_AGAIN = 0.2  # seconds until keepers that were out of reach are asked again


class Tally(HoldsSecrets):
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
    Reports that come later are refused and stay masked. Where reports are checked, those that are no answers
    are left out before anything is summed (``n_refused``). With noise from keepers this process never
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
        self._identity = identity
        self._keepers = {
            key: link(f"keeper {key[:16]}", keeper, timeout=timeout)
            for key, keeper in zip(task.keepers, keepers, strict=True)
        }
        self._lock = threading.Lock()
        self._log: Log | None = None
        self._facts = None if folder is None else Path(folder) / f"facts-{self.round:05d}.json"
        self._notice, self._ended = b"", False
        state = Gathering if task.trust == "clients" else Reports
        self._state: Gathering | Reports = state(task, round_=self.round)
        if folder is not None:
            name = f"tally-{task.sha256[:16]}-{self.round}"
            self._log = Log(Path(folder) / f"{name}.log", name=name, earlier=f"{name}.*", alone=True)
            for key, record in self._log.entries():
                if not self._state.replay(key, record):
                    raise ValueError(f"{self._log.path} does not name the clients whose reports are in it")

    @property
    def name(self) -> str:
        """The name of the tally in logs and refusals."""
        return "the tally"

    @property
    def n_clients(self) -> int:
        """Different clients that have reported, or joined. Public."""
        return self._state.n_clients

    @property
    def n_survivors(self) -> int:
        """Clients whose vectors are in the sum. Public."""
        return self._state.n_survivors

    @property
    def n_refused(self) -> int:
        """Reports that were no answers. Public."""
        return self._state.n_refused

    @property
    def variance(self) -> float:
        """Variance of the noise in each cell of the sum, if all have added their shares. Public."""
        return self.task.variance(n_survivors=self.n_survivors, n_clients=self.n_clients)

    @property
    def stage(self) -> str:
        """The open exchange: "report", or among clients "join", "share", "mask", "confirm" or "unmask"."""
        return self._state.stage

    @property
    def progress(self) -> tuple[int, int]:
        """Clients that have answered in the open exchange, and those that could have. Public."""
        return self._state.progress

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The handlers of a server's messages."""
        handlers = {"/v1/notice": lambda _: self._notice}
        if isinstance(self._state, Reports):
            return {**handlers, "/v1/report": self.receive}
        handlers |= {"/v1/message": self.receive, "/v1/outbox": self.outbox}
        if self.task.enrolment is None:
            return handlers
        return {**handlers, "/v1/entries": lambda _: self.entries(), "/v1/approve": self.approve}

    @property
    def pages(self) -> dict[str, tuple[str, bytes]]:
        """The pages for browsers: the task, and the page of a client."""
        return pages_of(self.task)

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        return self._state.most_bytes

    def announce(self, *, spent: float, budget: float, result: Mapping[str, Any] | None = None) -> None:
        """Sign what pages show beside the task: epsilon spent and allowed, and the released result.

        All of it is public, and is said until the next call. Pages check the signature.
        """
        notice = {"task": self.task.sha256, "round": self.round, "spent": spent, "budget": budget}
        body = canonical({**notice, "result": None if result is None else dict(result)}).encode()
        self._notice = self._identity.seal("notice", body)

    def receive(self, message: bytes) -> bytes:
        """Keep a message of a client and acknowledge it; the same one again is not counted twice.

        Raises
        ------
        PartyError
            The report is malformed, for another task or round, under a key that another report has, too
            late or one too many. Nothing was counted.
        """
        with self._lock:
            self._state.receive(message, record=lambda: self._record(self._state.mark + message))
        return hashlib.sha256(message).digest()[:_RECEIPT]

    def _record(self, record: bytes) -> None:
        if self._ended:
            raise refused(self.name, "the round is closed")
        if self._log is not None:
            self._log.append(record)

    def entries(self) -> bytes:
        """Among clients: return who has joined, for the enrolment to approve."""
        return self._among_clients.entries()

    def approve(self, approval: bytes) -> bytes:
        """Among clients: close the roster with the approval of the enrolment; the same one again is fine."""
        gathering = self._among_clients
        with self._lock:
            if gathering.stage == "join":
                gathering.check_approval(approval)
                self._record(_ADVANCE + approval)
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
            self._record(_ADVANCE + approval)  # read again, it fails again if it fails now
            gathering.advance(approval)

    def outbox(self, key: bytes) -> bytes:
        """Among clients: return what the client with this key must answer next; empty if nothing."""
        with self._lock:
            return self._among_clients.outbox(key)

    @property
    def _among_clients(self) -> Gathering:
        if isinstance(self._state, Reports):
            raise ValueError("this task trusts keepers: it has one exchange only")  # noqa: TRY004
        return self._state

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
        state = self._state
        if isinstance(state, Gathering):
            with self._lock:
                return self._plausible(state.sums().view(np.int32).astype(np.int64))
        valid = self._valid(state) if self.task.checked and state.closing is None else None
        with self._lock:  # no report may come between the list of clients and the closing of the round
            if state.closing is None:
                keys = sorted(state.reports) if valid is None else valid
                state.closing = self._chosen(state, _CLOSED, keys)
                state.keep(keys)
        closing, secret = state.closing
        request, digest = self._identity.seal("close", closing.write(self.task)), closing.digest(self.task)
        size, parts = self.task.encoding.cells, list[np.ndarray]()
        for key, body in self._answers("close", request, digest, "sum", size).items():
            # the keeper's masks, less the mask by which it hides them from all but this tally
            cover = pair_mask(secret, key[64:], transcript=digest, pair=(self.name, key), size=size)
            parts.append(np.frombuffer(body, dtype="<u4") - cover)
        form = self.task.form
        if self.task.checked and form is not None:
            answers = np.sum([share[: form.cells] for share in state.shares.values()], axis=0) % PRIME
            total = form.summed(answers) + np.sum(parts, axis=0, dtype=np.uint64)
            return self._plausible(signed(total % PRIME))
        total = state.total - np.sum(parts, axis=0, dtype=np.uint32)
        return self._plausible(total.view(np.int32).astype(np.int64))

    def release(self, ledger: Ledger) -> dict[str, Any]:
        """Close the round, release its sums through the ledger, and return the record.

        Errors are those of :meth:`close` and of the ledger. What the record says beside the sums is in the
        folder first: a process that is killed after the release finds both, see :meth:`outcome`.
        """
        sums, delta = self.close(), ledger.budget.delta
        if self._facts is not None:
            facts = record_of(self, np.zeros(0), epsilon=0.0, delta=delta)
            files.write(self._facts, json.dumps(facts))
        answer = release(self.task.mechanism, sums, ledger=ledger, key=self.key)
        return record_of(self, answer, epsilon=ledger.spent().epsilon(delta=delta), delta=delta)

    def outcome(self, ledger: Ledger) -> dict[str, Any] | None:
        """The record of a round that was released before, by this process or one that was killed; or None."""
        entry = ledger.entry_of(self.key)
        answer = None if entry is None else ledger.answer(entry.seq)
        if answer is None or self._facts is None or not self._facts.exists():
            return None
        facts: dict[str, Any] = json.loads(self._facts.read_text(encoding="utf-8"))
        delta = ledger.budget.delta
        return facts | {"sums": np.asarray(answer).tolist(), "epsilon": ledger.spent().epsilon(delta=delta)}

    @property
    def key(self) -> str:
        """The name of the round in the ledger."""
        return f"{self.task.sha256}/{self.round}"

    def _valid(self, state: Reports) -> list[bytes]:
        """Check all reports together with the keepers; return the keys of those that are answers."""
        with self._lock:
            if state.sketch is None:
                state.sketch = self._chosen(state, _SKETCHED, sorted(state.reports))
        sketch = state.sketch[0]
        digest, keys = sketch.digest(self.task), sketch.keys
        check = Check.of(self.task, digest, (state.shares[key] for key in keys), n=len(keys))

        # each party opens its share of every report
        openings, request = check.openings.copy(), self._identity.seal("sketch", sketch.write(self.task))
        for share in self._answers("sketch", request, digest, "sketch", openings.size).values():
            openings += unpacked(share, openings.shape)
        openings %= PRIME

        # each party says its share of the verdicts on what was opened
        opened = self.round.to_bytes(4, "little") + digest + packed(openings)
        verdicts = check.weights.verdicts(check.terms, openings) + check.weights.public(openings)
        request, digest = self._identity.seal("verdict", opened), hashlib.sha256(opened).digest()
        for share in self._answers("verdict", request, digest, "verdict", verdicts.size).values():
            verdicts += unpacked(share, verdicts.shape)
        wrong = (verdicts % PRIME).any(axis=1)
        return [key for key, is_wrong in zip(keys, wrong, strict=True) if not is_wrong]

    def _chosen(self, state: Reports, name: str, keys: list[bytes]) -> tuple[Closing, bytes]:
        """Fix a set of clients, durably; PartyError if they are too few."""
        if len(keys) < self.task.least:
            raise refused(self.name, f"a round needs {self.task.least} clients, got {len(keys)}")
        secret, signatures = new_secret(), b"".join(state.reports[key][1] for key in keys)
        closing = Closing(self.round, exchange_key(secret), b"".join(keys), signatures)
        if self._log is not None:
            self._log.once(name, secret + closing.write(self.task))
        return closing, secret

    def _answers(self, verb: str, request: bytes, digest: bytes, kind: str, size: int) -> dict[str, bytes]:
        """Ask every keeper; return the numbers that each signed as its answer to this request."""
        most, bodies = 2 * SIGNATURE_BYTES + KEY_BYTES + 4 * size, {}
        keepers = tuple(self._keepers)
        answers, refusals = ask_all(
            keepers, lambda key: self._keepers[key].ask(verb, request, most, again=True)
        )
        if refusals:
            text = "; ".join(f"keeper {key[:16]}: {error}" for key, error in refusals.items())
            raise PartyError(text, code="unreachable", parties=tuple(key[:16] for key in refusals))
        for key, sealed in answers.items():
            with by(f"keeper {key[:16]}", key[:16]):
                body = unseal(key[:64], kind, sealed)
                if len(body) != KEY_BYTES + 4 * size or body[:KEY_BYTES] != digest:
                    raise ValueError("the answer is to another request")
            bodies[key] = body[KEY_BYTES:]
        return bodies

    def end(self) -> None:
        """Close the files of the round, and so the round; what they hold is kept."""
        with self._lock:
            self._ended = True
            if self._log is not None:
                self._log.close()

    def _plausible(self, sums: np.ndarray) -> Private:
        """Return the sums if they are plausible; masks left over would make them look random."""
        task, n = self.task, self.n_survivors
        if np.abs(sums).max() > n * task.encoding.largest + task.noise_room(self.n_clients):
            raise PartyError(
                "the sum is not one of valid reports; it cannot be told which report or keeper is wrong",
                code="disagreement",
            )
        return Private(sums, task.mechanism.promise)

    def __repr__(self) -> str:
        return f"Tally(task={self.task.sha256[:16]!r}, round={self.round}, n_clients={self.n_clients})"


class Series(HoldsSecrets):
    """The tally of all rounds of a task, one after the other.

    Parameters
    ----------
    task : Task
        With ``rounds``, and this identity as its tally.
    identity : Identity
        The tally's.
    folder : path
        Holds the ledger, the reports of each round, what became of it, and ``round-00000.json`` for
        ``ostraka collect show``.
    budget : Budget
        Of the ledger, if it is new. Rounds are refused that it does not pay for.
    every : float > 0, seconds
        From the opening of a round to that of the next. The first opens when the series is begun.
    keepers : sequence of Keeper or str
        As of :class:`Tally`.
    clock : function, default time.time
        Returns seconds.
    timeout : float > 0, seconds, default 600
        How long a keeper may take.

    Raises
    ------
    ValueError
        The task does not name this identity, or other keepers.
    LogError
        Another process runs this series.

    Guarantees
    ----------
    A round is charged, durably, before it is opened, under a key of its own: again after a crash it costs
    nothing. The sums of a round are drawn once and stored. A round whose time passed while nothing ran is
    ``"missed"`` and costs nothing; one that had too few clients, or whose keepers stayed out of reach, is
    ``"failed"``, and its charge is not given back.

    Examples
    --------
    >>> from ostraka import Budget
    >>> from ostraka.collect import Series, Task, Tree
    >>> from ostraka.voters import Identity
    >>> import tempfile
    >>> me = Identity.fresh()
    >>> task = Task(Tree(0, 16), sigma=9.0, noise="tally", tally=me.public_key, rounds=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     series = Series(task, me, folder=folder, budget=Budget(epsilon=3.0, delta=1e-6), every=3600.0)
    ...     series.outcomes
    ...     series.end()
    [None, None, None]
    """

    name = "the tally"

    def __init__(
        self,
        task: Task,
        identity: Identity,
        *,
        folder: str | PathLike[str],
        budget: Budget,
        every: float,
        keepers: Sequence[Keeper | str] = (),
        clock: Callable[[], float] = time.time,
        timeout: float = 600.0,
    ) -> None:
        check.positive(every=every)
        self.task, self.every = task, every
        self._identity, self._keepers, self._timeout = identity, tuple(keepers), timeout
        self._folder, self._clock, self._budget = Path(folder), clock, budget
        Tally(task, identity, keepers=keepers)  # raises before anything is made
        name = f"series-{task.sha256[:16]}"
        self._log = Log(self._folder / f"{name}.log", name=name, alone=True)
        try:
            self.ledger = Ledger(self._folder / "collect.ledger", budget=budget)
        except BaseException:
            self._log.close()
            raise
        self.start = float(self._log.once("start", repr(clock()).encode()))
        self.tally: Tally | None = None  # of the round that is open, or of the last one

    @property
    def outcomes(self) -> list[str | None]:
        """What became of each round: "released", "missed", "failed", or None for one that is to come."""
        outcomes = [self._log.get(f"round {number}") for number in range(self.task.rounds)]
        return [None if outcome is None else outcome.decode() for outcome in outcomes]

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The handlers of a server's messages: those of the open round, or of the one before."""
        return {} if self.tally is None else self.tally.answers

    @property
    def pages(self) -> dict[str, tuple[str, bytes]]:
        """The pages for browsers, the same in all rounds."""
        return pages_of(self.task)

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        return Tally(self.task, self._identity, keepers=self._keepers).most_bytes

    def key(self, round_: int) -> str:
        """Return the name of a round in the ledger."""
        return f"{self.task.sha256}/{round_}"

    def open(self, round_: int) -> Tally:
        """Charge a round and open it; BudgetExceeded if the ledger does not pay for it."""
        self.ledger.charge(self.task.mechanism, uses=1, unit="client", simulation=False, key=self.key(round_))
        if self.tally is not None:
            self.tally.end()
        options: Mapping[str, Any] = {"folder": self._folder, "timeout": self._timeout}
        self.tally = Tally(self.task, self._identity, keepers=self._keepers, round=round_, **options)
        self._announce(self.tally)
        return self.tally

    def close(self, tally: Tally) -> dict[str, Any]:
        """Release the sums of an open round, write its file, and return the record; PartyError as Tally.

        Of a round that was released before the process was killed, the record is that of then.
        """
        round_ = tally.round
        record = tally.outcome(self.ledger) or tally.release(self.ledger)
        files.write(self._folder / f"round-{round_:05d}.json", json.dumps(record))
        self._log.once(f"round {round_}", b"released")
        self._announce(tally, summary(Collected(record)))
        return record

    def run(
        self, *, n_clients: int, seconds: float | None = None, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Run all rounds that are to come, each in its time.

        A round closes when ``n_clients`` have reported, after ``seconds`` in each exchange, or when the next
        is due.

        Raises
        ------
        BudgetExceeded
            The ledger does not pay for the next round. Those before are released.
        """
        for round_, outcome in enumerate(self.outcomes):
            begins, ends = (self.start + (round_ + step) * self.every for step in (0, 1))
            if outcome is not None:
                continue
            if self._clock() >= ends and self.ledger.entry_of(self.key(round_)) is None:
                self._log.once(f"round {round_}", b"missed")
                continue
            sleep(max(0.0, begins - self._clock()))
            tally = self.open(round_)
            if tally.outcome(self.ledger) is not None:
                self.close(tally)
                continue
            seconds_left = max(0.0, ends - self._clock())
            try:
                run_exchanges(
                    tally,
                    n_clients=n_clients,
                    seconds=seconds_left if seconds is None else min(seconds, seconds_left),
                )
            except PartyError:
                self._log.once(f"round {round_}", b"failed")
                continue
            while True:
                try:
                    self.close(tally)
                except PartyError as error:
                    if error.code == "unreachable" and self._clock() < ends:
                        sleep(_AGAIN)  # keepers that are out of reach are asked until the next round is due
                        continue
                    self._log.once(f"round {round_}", b"failed")
                break

    def _announce(self, tally: Tally, result: Mapping[str, Any] | None = None) -> None:
        spent = self.ledger.spent().epsilon(delta=self._budget.delta)
        tally.announce(spent=spent, budget=self._budget.epsilon, result=result)

    def end(self) -> None:
        """Close the files."""
        if self.tally is not None:
            self.tally.end()
        self.ledger.close()
        self._log.close()

    def __repr__(self) -> str:
        return f"Series(task={self.task.sha256[:16]!r})"


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
                time.sleep(PAUSE)
            else:
                tally.advance()
        else:
            time.sleep(PAUSE)


class Reports:
    """The state of a round with keepers: a function of the reports received and of the sets chosen."""

    stage, mark = "report", b""  # mark: what a record of the log starts with, before a message

    def __init__(self, task: Task, *, round_: int) -> None:
        self.task, self.round_ = task, round_
        self.reports: dict[bytes, tuple[bytes, bytes]] = {}  # key: digest of the report, certificate
        self.total = np.zeros(task.encoding.cells, dtype=np.uint32)
        self.shares: dict[bytes, np.ndarray] = {}  # by key: reports that are checked before they count
        self.sketch: tuple[Closing, bytes] | None = None  # what is checked
        self.closing: tuple[Closing, bytes] | None = None
        self.n_refused = 0

    @property
    def n_clients(self) -> int:
        """Different clients that have reported; all of them survive."""
        return len(self.reports)

    n_survivors = n_clients

    @property
    def progress(self) -> tuple[int, int]:
        """Clients that have reported, and those that could have."""
        return len(self.reports), self.task.limit

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        return most_report_bytes(self.task)

    def receive(self, message: bytes, *, record: Callable[[], object] = lambda: None) -> None:
        """Take one report, once; PartyError for anything else. ``record`` as of :class:`Gathering`."""
        digest = hashlib.sha256(message).digest()
        with refusing("the tally"):
            report = Report.read(message, self.task, self.round_)
        earlier = self.reports.get(report.key)
        if earlier is not None and earlier[0] != digest:
            raise refused("the tally", "another report has this key", report.key.hex())
        if earlier is not None:
            return
        if self.closing is not None or self.sketch is not None:
            raise refused("the tally", "the round is closed", report.key.hex())
        if len(self.reports) >= self.task.limit:
            raise refused("the tally", "the round is full", report.key.hex())
        record()
        self.reports[report.key] = digest, report.certificate
        if self.task.checked:
            self.shares[report.key] = report.vector.astype(np.uint64)
        else:
            self.total += report.vector

    def replay(self, key: str | None, record: bytes) -> bool:
        """Take a report, or a set that was chosen, as a log tells; return whether it fits."""
        if key not in {_CLOSED, _SKETCHED}:
            self.receive(record)
            return True
        closing = Closing.read(record[KEY_BYTES:], self.task)
        if key == _SKETCHED:
            self.sketch = closing, record[:KEY_BYTES]
            return closing.keys == sorted(self.reports)
        self.closing, keys = (closing, record[:KEY_BYTES]), closing.keys
        fits = set(keys) <= self.reports.keys() if self.task.checked else keys == sorted(self.reports)
        self.keep(keys)
        return fits

    def keep(self, keys: list[bytes]) -> None:
        """Forget the reports of all other clients: they are no answers."""
        valid = set(keys)
        self.n_refused = len(self.reports) - len(valid)
        self.reports = {key: report for key, report in self.reports.items() if key in valid}
        self.shares = {key: share for key, share in self.shares.items() if key in valid}


class Gathering:
    """The state of a round among clients: a function of messages, and of when exchanges were closed."""

    mark, n_refused = b"M", 0  # mark: what a record of the log starts with, before a message

    def __init__(self, task: Task, *, round_: int) -> None:
        self.task, self.round_ = task, round_
        self.stage = "join"
        self._entries: dict[bytes, bytes] = {}  # by mask key: the whole entry
        self._digests: dict[tuple[str, int], bytes] = {}  # of messages, by exchange and place
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
    def n_survivors(self) -> int:
        """Clients whose masked vectors are summed."""
        return len(self.masked)

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        return most_message_bytes(self.task)

    @property
    def survivors(self) -> list[int]:
        """The numbers of the clients whose masked vectors are summed, in order."""
        return sorted(self.masked)

    @property
    def progress(self) -> tuple[int, int]:
        """Clients that have answered in this exchange, and those that could have."""
        n_masked, n_confirmed = len(self.masked), len(self._confirmations)
        counts = {
            "join": (len(self._entries), self.task.limit),
            "share": (len(self._sealed), self.n_clients),
            "mask": (n_masked, len(self._sealed)),
            "confirm": (n_confirmed, n_masked),
            "unmask": (len(self._answers), n_confirmed if self.task.lying else n_masked),
        }
        return counts[self.stage]

    def receive(self, message: bytes, *, record: Callable[[], object] = lambda: None) -> None:
        """Take one message of the current exchange; PartyError for anything else, which is not counted.

        ``record`` is called before a new message is counted.
        """
        with refusing("the tally"):
            if message[:BOUND] == self._join:
                self._take_join(message[BOUND:], record)
                return
            kind = self._kinds.get(message[:BOUND])
            if self.roster is None or kind is None:
                raise ValueError("the message is for another task or round")
            head = BOUND + 4 + KEY_BYTES
            place = places(message[BOUND : BOUND + 4].ljust(4, b"\xff"))[0]
            if place >= len(self.roster):
                raise ValueError("the message must be from a client on the roster")
            if hashlib.sha256(message[BOUND + 4 : head]).digest() != self.roster.entry(place).ticket:
                raise ValueError(f"the message is not from client {place}")
            digest = hashlib.sha256(message).digest()
            earlier = self._digests.get((kind, place))
            if earlier == digest:
                return
            if earlier is not None:
                raise ValueError(f"client {place} has answered this exchange already")
            if kind != self.stage:
                raise ValueError(
                    f"client {place} comes too late or too early: the exchange is '{self.stage}'"
                )
            getattr(self, f"_take_{kind}")(place, message[head:], record)
            self._digests[kind, place] = digest

    def replay(self, _key: str | None, record: bytes) -> bool:
        """Take a message, or close an exchange, as a log tells."""
        if record[:1] == self.mark:
            self.receive(record[1:])
        else:
            with contextlib.suppress(PartyError):  # it was refused before, too
                self.advance(record[1:])
        return True

    def _take_join(self, body: bytes, record: Callable[[], object]) -> None:
        keys, signature = body[:ENTRY_BYTES], body[ENTRY_BYTES:]
        entry = read_entry(keys)
        if len(signature) != (SIGNATURE_BYTES if self.task.enrolment else 0):
            raise ValueError("a join must carry the enrolment's certificate where the task has an enrolment")
        earlier = self._entries.get(entry.mask)
        if earlier == keys:
            return
        if earlier is not None:
            raise ValueError(f"another client has the key {entry.mask.hex()}")
        if self.stage != "join":
            raise ValueError("the roster is closed")
        if len(self._entries) >= self.task.limit:
            raise ValueError("the roster is full")
        # before it takes a place: strangers must not fill a roster
        if not certified(self.task, entry.claim, signature, round_=self.round_):
            raise ValueError("the enrolment did not sign the claim of this client")
        record()
        self._entries[entry.mask] = keys

    def _take_share(self, place: int, body: bytes, record: Callable[[], object]) -> None:
        peers = self._graph[place].tolist()
        if len(body) != KEY_BYTES + SEALED * len(peers):
            raise ValueError(f"client {place}: shares for {len(peers)} neighbours are needed")
        parts = [body[at : at + SEALED] for at in range(KEY_BYTES, len(body), SEALED)]
        record()
        self._commitments[place] = body[:KEY_BYTES]
        self._sealed[place] = dict(zip(peers, parts, strict=True))

    def _take_mask(self, place: int, body: bytes, record: Callable[[], object]) -> None:
        if place not in self._sealed:
            raise ValueError(f"client {place} has sent no shares")
        if len(body) != 4 * len(self.total):
            raise ValueError(f"client {place}: the vector must have {len(self.total)} cells")
        record()
        self.masked.add(place)
        self.total += np.frombuffer(body, dtype="<u4")

    def _take_confirm(self, place: int, body: bytes, record: Callable[[], object]) -> None:
        if place not in self.masked:
            raise ValueError(f"client {place} is not among the survivors")
        key = self._known_roster.entry(place).sign
        if not confirmed(self._known_roster.digest, self.survivors, key, body):
            raise ValueError(f"client {place} confirms another set of survivors")
        record()
        self._confirmations[place] = body

    def _take_unmask(self, place: int, body: bytes, record: Callable[[], object]) -> None:
        if place not in self.masked:
            raise ValueError(f"client {place} is not among the survivors")
        size = 4 + 1 + SHARE_BYTES
        peers = self._sealed.keys() & self._graph[place].tolist()
        if len(body) % size or len(body) > size * len(peers):  # fewer where a neighbour's seal was wrong
            raise ValueError(f"client {place}: at most {len(peers)} shares are needed")
        shares = {}
        for at in range(0, len(body), size):
            peer, flag = places(body[at : at + 4])[0], body[at + 4]
            if peer not in peers or peer in shares or flag != (peer in self.masked):
                raise ValueError(f"client {place}: a share that was not asked for")
            shares[peer] = flag, body[at + 5 : at + size]
        record()
        self._answers[place] = shares

    def advance(self, approval: bytes = b"") -> None:
        """Close the current exchange; PartyError if too few have answered it."""
        if self.stage == "join":
            self.roster, self._entries = self._approved_roster(approval)
            self._graph, self.approval = self.roster.graph, approval
            kinds = ("share", "mask", "confirm", "unmask")
            self._kinds = {kind_of(kind, self.roster.digest): kind for kind in kinds}
            self._places = {key: place for place, key in enumerate(sorted(self._entries))}
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

    def check_approval(self, approval: bytes) -> None:
        """Raise PartyError unless the roster can be closed with this approval."""
        self._approved_roster(approval)

    def _approved_roster(self, approval: bytes) -> tuple[Roster, dict[bytes, bytes]]:
        """Return the roster, and the entries on it by mask key."""
        self._enough("joined", len(self._entries))
        body = approval[APPROVAL_BYTES:]  # the keys of the clients; of all who joined if it is empty
        keys = {body[at : at + KEY_BYTES] for at in range(0, len(body), KEY_BYTES)} or {*self._entries}
        with refusing("the tally"):
            if not keys <= self._entries.keys():
                raise ValueError("the approval names a client that has not joined")
            approved = {key: self._entries[key] for key in sorted(keys)}
            roster = Roster(self.task, self.round_, b"".join(approved.values()), approval[:APPROVAL_BYTES])
            roster.check()
            degree_of(self.task, len(roster))
        return roster, approved

    def outbox(self, key: bytes) -> bytes:
        """Return what the client with this mask key must answer now; empty if it has no part in it."""
        place = self._places.get(key)
        if place is None or self.stage == "join":
            return b""
        roster, peers = self._known_roster, self._graph[place].tolist()
        if self.stage == "share":
            bound = self.task.transcript("roster", round=self.round_)
            if self.task.enrolment is not None:
                return kind_of("roster", bound) + roster.approval + roster.entries
            entries = [numbers([peer]) + roster.written(peer) for peer in peers]
            head = kind_of("neighbours", bound) + numbers([len(roster), place]) + roster.digest
            return head + b"".join(entries)
        if self.stage == "mask" and place in self._sealed:
            shares = [numbers([p]) + self._sealed[p][place] for p in peers if p in self._sealed]
            return kind_of("inbox", roster.digest) + b"".join(shares)
        if self.stage == "unmask" and self.task.lying and place in self.masked:
            parts = [numbers([p]) + self._confirmations[p] for p in peers if p in self._confirmations]
            return kind_of("confirmations", roster.digest) + b"".join(parts)
        if self.stage in {"confirm", "unmask"} and place in self.masked:
            alive = self.survivors if self.task.lying else [p for p in peers if p in self.masked]
            return kind_of("survivors", roster.digest) + numbers([len(self.masked), *alive])
        return b""

    def sums(self) -> np.ndarray:
        """Return the sum of the survivors' vectors, uint32; PartyError names survivors who did not answer."""
        if self.stage != "unmask":
            raise refused("the tally", f"the round is at the exchange '{self.stage}'")
        failed, total, added, subtracted = 0, self.total.copy(), list[bytes](), list[bytes]()
        roster = self._known_roster

        def committed(seed: bytes) -> bytes:
            return hashlib.sha256(roster.digest + seed).digest()

        for place in sorted(self._sealed):
            try:
                if place in self.masked:
                    subtracted.append(self._recovered(place, committed, self._commitments[place]))
                else:
                    for peer, key in self.keys_of_missing(place):
                        (subtracted if peer < place else added).append(key)
            except ValueError:
                failed += 1
        if failed:
            silent = tuple(f"client {place}" for place in sorted(self.masked - self._answers.keys()))
            raise PartyError(
                f"the secrets of {failed} of {len(self._sealed)} clients are not recovered: {len(silent)} "
                "survivors did not answer, and more shares may be wrong than can be corrected",
                code="unreachable",
                parties=silent,
            )
        add_masks(total, added, minus=subtracted)
        return total

    def _recovered(self, place: int, public: Callable[[bytes], Any], known: Any) -> bytes:
        """The secret of a client, whose ``public`` form is ``known``, from shares of which some are wrong."""
        peers, threshold = self._graph[place].tolist(), degree_of(self.task, len(self._known_roster))[1]
        shares = {
            number: self._answers[peer][place][1]
            for number, peer in enumerate(peers, start=1)
            if place in self._answers.get(peer, {})
        }
        if len(shares) >= threshold:
            with contextlib.suppress(ValueError):
                if public(secret := join(shares, threshold=threshold)) == known:
                    return secret
            if public(secret := corrected(shares, threshold=threshold)) == known:
                return secret
        raise ValueError("too few or wrong shares")

    def keys_of_missing(self, place: int) -> list[tuple[int, bytes]]:
        """Return survivors, and the keys of their masks with one that sent shares and then no vector."""
        roster = self._known_roster
        secret = exchange_secret(self._recovered(place, exchange_key, roster.entry(place).mask.hex()))
        keys = []
        for peer in self._graph[place].tolist():
            if peer in self.masked:
                pair, public = pair_names(place, peer), roster.entry(peer).mask.hex()
                keys.append((peer, shared_key(secret, public, transcript=roster.digest, pair=pair)))
        return keys

    @property
    def _known_roster(self) -> Roster:
        if self.roster is None:
            raise refused("the tally", "the roster is not closed yet")
        return self.roster


def pages_of(task: Task) -> dict[str, tuple[str, bytes]]:
    """Return the content type and the bytes for each address."""
    pages = {"/task.json": ("application/json", task.to_json().encode())}
    for file in (resources.files("ostraka.collect") / "page").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            pages[f"/{file.name}"] = (f"{kind}; charset=utf-8", file.read_bytes())
    return {**pages, "/": pages["/index.html"]}

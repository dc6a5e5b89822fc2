"""A deployed service: teachers, ledger, keys, limits, and caps that two owners decide, opened together.

A service folder belongs to its teachers, and holds the secrets of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostraka.core import check, files
from ostraka.core.consistent import Consistent
from ostraka.core.ledger.budget import (
    DAY,
    Budget,
    KeyConflict,
    LedgerError,
    LedgerMoved,
    LedgerUnavailable,
)
from ostraka.core.ledger.chain import ChargeRequest
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.secure.witness import witness_at
from ostraka.serve.answering import PATIENCE, Answerer, Batcher, Reserved, require_servable
from ostraka.serve.counts import Checkpoint, now
from ostraka.serve.keys import CLIENT, ITSELF, Keyring, secret_in
from ostraka.serve.metrics import AnswersLeft, Metrics, Readiness
from ostraka.serve.requests import Buckets, Refused, Rows, entry_at, known_texts, left_header, strict
from ostraka.serve.server import keep_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ostraka.core.ledger.chain import Account, Receipt
    from ostraka.core.ledger.witness import Witness
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.secure.server import Headers
    from ostraka.serve.keys import Holder
    from ostraka.voters.saved import SavedTeachers

_KNOWN = "teachers.mac"
ANSWERS_LEFT, SECONDS_TO_EMPTY = b"ostraka-answers-left", b"ostraka-seconds-to-empty"
_LOG = logging.getLogger("ostraka.serve")
_LOOK = 1.0  # seconds between checks of the file of keys
_CREDENTIAL = re.compile(r"\d+: ((?:key|subject) \S+) of (\S+) (added|revoked) by .+")
_PROPOSAL = re.compile(r"\d+: epsilon (\S+) for (\S+) proposed by (\S+)")
_SHAPE = 'the body must be an object with the members "client", a name, and "epsilon", a positive number'


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of requests and rates. All are public.

    ``answer_seconds``: after which whoever asked for labels is told that the outcome is unknown.
    """

    most_bytes: int = 64 * 1024
    most_rows: int = 256
    rate: float = 100.0
    burst: int = 1_000
    answer_seconds: float = 30.0
    two_owners: bool = False  # caps of clients: none is taken from the file of keys

    def __post_init__(self) -> None:
        check.integer(least=1, most_bytes=self.most_bytes, most_rows=self.most_rows, burst=self.burst)
        check.positive(rate=self.rate, answer_seconds=self.answer_seconds)


class Deployment:
    """A service folder, opened: teachers, a ledger, keys and limits. It is started in the event loop.

    Parameters
    ----------
    saved : SavedTeachers
    folder : path
        Of the service. Secrets that are missing are made in it.
    db : str
        Where the ledger is.
    budget : Budget, optional
        Of the ledger, if it is new.
    settings : Settings
    environment : mapping of str to str
        May hold secrets, which are then not kept in the folder.
    pepper : bytes
        Of the keys.
    label : dict, optional
        The privacy label of the run that trained the teachers.
    stop : function, optional
        Called when it is unknown what was charged; it must not return. None: end this process.
    shared : bool, default False
        Other processes charge the same ledger.
    witnesses : sequence of str
        Addresses of the ledger's witnesses.
    anchor : path, optional
        A file on another disk than the folder.

    Raises
    ------
    LedgerError
        The ledger counts for other teachers, noise or secrets, or cannot be used.
    BudgetExceeded
        The budget does not pay for one answer; no ledger is made.
    ValueError
        The pepper is another one, or votes of these teachers are not to be served.
    """

    def __init__(
        self,
        *,
        saved: SavedTeachers,
        folder: Path,
        db: str,
        budget: Budget | None,
        settings: Settings,
        environment: Mapping[str, str],
        pepper: bytes,
        label: dict[str, Any] | None = None,
        stop: Callable[[BaseException], object] | None = None,
        shared: bool = False,
        witnesses: Sequence[str] = (),
        anchor: Path | None = None,
    ) -> None:
        self.saved, self.settings, self.label, self.unit = saved, settings, label, saved.adjacency.unit
        self.classes: list[Any] = saved.classes
        self._said = {ABSTAIN: _said(None)} | {code: _said(label) for code, label in enumerate(self.classes)}
        self.rows = Rows(saved.columns, saved.numeric, most=settings.most_rows, categories=known_texts(saved))
        self.buckets = Buckets(rate=settings.rate, burst=settings.burst)
        self.metrics, self.since = Metrics(), now()

        recognise(saved.sha256, folder, environment)
        consistent = Consistent(
            secret=secret_of("answers", folder, environment),
            kept=True,
            grid=saved.grid,
            # everything a label depends on: under other noise the digest of a question differs
            teachers=f"{saved.sha256} {saved.mechanism!r} {saved.screen!r}",
            grid_in_teachers=True,
        )
        answerer = Answerer(saved, consistent)
        # what can fail does so before a ledger is made: the pepper may be wrong, the budget too small
        self.keys = Keyring(folder / "keys.json", pepper)
        if budget is not None:
            require_servable(saved, answerer.reserve, budget)
        secret = secret_of("ledger", folder, environment)
        self.ledger = Ledger(
            db,
            budget=budget,
            secret=secret,
            anchor=anchor or folder / "ledger.anchor",
            owner=not shared,
            witnesses=witnesses_at(witnesses, folder, environment),
        )
        self.verified = True  # opening has verified it
        try:
            require_servable(saved, answerer.reserve, self.ledger.budget)
            self._checkpoint = Checkpoint(folder / "counts.json", secret)
            self.counts = self._checkpoint.read(self.ledger)
            self._bind(answerer.reserve, consistent.name)
            self._grant()
            self._note_keys()
            self._left = {account.name: account.left for account in self.ledger.accounts()}
            remember(saved.sha256, folder, environment)
        except BaseException:
            self.ledger.close()
            raise

        self.grants = Grants(self.ledger, self.keys, account=ITSELF, unit=self.unit, reserve=answerer.reserve)
        self._stop = stop or _stop
        self.batcher = Batcher(answerer, self.ledger, stop=self._stop)
        self.answers_left = AnswersLeft(
            self.ledger, answerer.reserve, rate=lambda name: self.counts.per_second(now(), name)
        )
        self.readiness = Readiness(self.ledger, self.keys, self.batcher)
        self._background: list[asyncio.Task[None]] = []
        self._working_out: dict[str, asyncio.Task[None]] = {}

    def _bind(self, reserve: BallotMechanism, name: str) -> None:
        """Bind the ledger to these teachers, noise and secret; refuse one that is bound to others."""
        ledger = self.ledger
        if self.saved.screen is not None and not ledger.budget.adaptive:
            raise LedgerError(
                "this ledger was begun for a service without a screen: leave --screen out, or serve a copy "
                "of the run without its service folder"
            )
        if ITSELF not in {account.name for account in ledger.accounts()}:
            ledger.grant(ITSELF, budget_epsilon=ledger.budget.epsilon)
        free = Reserved(each=reserve, uses=0)
        binding = ChargeRequest(
            account=ITSELF, key="teachers", digest=name, cost=free, reserve=free, answer=0
        )
        (outcome,) = ledger.charge_each([binding], unit=self.unit)
        if isinstance(outcome, KeyConflict):
            raise LedgerError(
                "this ledger counts for other teachers, other noise or another secret, and there is one "
                "ledger for each: type the --sigma and --screen with which it was begun and go back to its "
                "teachers and secrets, or serve a copy of the run without its service folder, whose budget "
                "then comes on top"
            )
        if isinstance(outcome, Exception):
            raise outcome

    def start(self) -> None:
        """Start in the running event loop."""
        self.batcher.start()
        self._background = [
            asyncio.create_task(self._look()),
            asyncio.create_task(self.counts.keep_up(self.ledger, self._checkpoint)),
            asyncio.create_task(keep_alive(self.readiness)),
        ]

    async def close(self) -> None:
        """Answer the waiting requests, then close the ledger."""
        for task in self._background:
            task.cancel()
        await self.batcher.close()
        with contextlib.suppress(LedgerError):
            await asyncio.to_thread(self.counts.catch_up, self.ledger)
            await asyncio.to_thread(self._checkpoint.write, self.counts, self.ledger)
        self.ledger.close()

    def shown(self, receipt: Receipt) -> str:
        """Return an answer in JSON for clients. The label is null if the teachers abstained."""
        return f'{self._said[receipt.answer]}{receipt.seq}, "head": "{receipt.head}"}}}}'

    async def left_after(self, name: str, receipts: Sequence[Receipt]) -> Headers:
        """Record what a client has left after answers; return it as headers, rounded down."""
        self._left[name] = receipts[-1].left
        for account in self.answers_left.given(name, len(receipts)):
            task = self._working_out.get(account)
            if task is None:  # once for all requests that wait; a known count is renewed meanwhile
                task = asyncio.create_task(asyncio.to_thread(self._try_to_work_out, account))
                self._working_out[account] = task
            if self.answers_left.known(account) is None:
                await asyncio.wait({task}, timeout=PATIENCE / 2)
        n = min(self.answers_left.of(), self.answers_left.of(name))
        lasts = self.answers_left.seconds_to_empty(name)  # at the client's own rate: others' is not told
        lasts = DAY * n if lasts is None else lasts  # it asked one today
        return (self.left(name), (ANSWERS_LEFT, b"%d" % n), (SECONDS_TO_EMPTY, b"%d" % lasts))

    def _try_to_work_out(self, account: str) -> None:
        try:
            with contextlib.suppress(LedgerError):  # the next charge deals with it
                self.answers_left.work_out(account)
        finally:
            self._working_out.pop(account, None)

    def left(self, name: str) -> tuple[bytes, bytes]:
        """The header with the last known remaining budget, rounded down."""
        return left_header(self._left.get(name, 0.0))

    def accounts(self) -> tuple[Account, ...]:
        """The accounts of clients."""
        return tuple(account for account in self.ledger.accounts() if account.name != ITSELF)

    def budget(self, who: Holder) -> dict[str, Any]:
        """Return the budgets that ``who`` may see."""
        renewed, lasts = self.answers_left.renewed, self.answers_left.seconds_to_empty
        self.counts.catch_up(self.ledger)
        accounts = [
            {
                "client": account.name,
                "epsilon": account.cap,
                "spent": account.spent,
                "left": account.left,
                "answers_left": renewed(account.name),
                "seconds_to_empty": lasts(account.name),
            }
            for account in self.accounts()
            if who.role != CLIENT or account.name == who.name
        ]
        budget = self.ledger.budget
        if who.role == CLIENT:
            nothing = {"client": who.name, "epsilon": 0, "spent": 0, "left": 0, "answers_left": 0}
            nothing["seconds_to_empty"] = 0
            mine = accounts[0] if accounts else nothing
            return {**mine, "delta": budget.delta, "unit": self.unit}
        return {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "spent": self.ledger.epsilon(),
            "left": self.ledger.left(),
            "answers_left": renewed(),
            "seconds_to_empty": lasts(),
            "unit": self.unit,
            "clients": accounts,
        }

    def receipt(self, who: Holder, number: str) -> dict[str, Any] | None:
        """Return a receipt that ``who`` may see; None if it is missing or another client's."""
        entry = entry_at(self.ledger, number)
        if entry is None or entry.answer is None:
            return None
        if who.role == CLIENT and entry.account != who.name:
            return None
        return {
            "seq": entry.seq,
            "head": entry.head,
            "client": entry.account,
            "key": entry.key,
            "digest": entry.digest,
            "mechanism": entry.mechanism,
        }

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return gauges of the ledger's budget for monitoring."""
        return [
            ("ostraka_epsilon_budget", "Epsilon that may ever be spent.", self.ledger.budget.epsilon),
            ("ostraka_epsilon_spent", "Publishable epsilon spent so far.", self.ledger.epsilon()),
            ("ostraka_delta", "Delta of both.", self.ledger.budget.delta),
            ("ostraka_rows_waiting", "Rows that wait for their answer.", self.batcher.waiting),
            (
                "ostraka_answers_left",
                "Answers that the budget still pays for.",
                self.answers_left.renewed() or 0,
            ),
            ("ostraka_answers_per_second", "Answers a second, over a day.", self.answers_left.rate("")),
            ("ostraka_ready", "1 if the service can charge.", float(not self.readiness.problems())),
            ("ostraka_keys_readable", "1 if the file of keys can be read.", float(self.keys.readable)),
        ]

    def _grant(self) -> None:
        """Write the caps of the file of keys into the ledger, as grants of its chain."""
        for name, epsilon, by in self.keys.grants(self.ledger):
            if self.settings.two_owners:
                _LOG.warning(
                    "the cap of %s in the file of keys does not count: with --two-owners, one owner sends "
                    "POST /v1/grants and another approves it",
                    name,
                    extra={"event": "grant.refused"},
                )
            else:
                self.ledger.grant(name, budget_epsilon=epsilon, by=by)

    def approve(self, who: Holder, number: str) -> dict[str, Any]:
        """Approve another owner's proposal of a cap, which holds at once."""
        record = self.grants.approve(who, number)
        self._left.update({account.name: account.left for account in self.ledger.accounts()})
        return record

    def _note_keys(self) -> None:
        """Write into the chain which keys and subjects came and went, and who did it, unless it says so.

        A change that was made while no service ran is noted when the next one starts, and so before the first
        use of a key.
        """
        valid, noted = set[tuple[str, str]](), set[tuple[str, str]]()
        for name, record in self.keys.kept.items():
            valid |= {(name, f"key {number}") for number in record.keys}
            valid |= {(name, f"subject {record.subject}")} if record.subject else set()
        for note in self.ledger.notes():
            if form := _CREDENTIAL.fullmatch(note.key or ""):
                (noted.add if form[3] == "added" else noted.discard)((form[2], form[1]))
        for what, credentials in (("added", valid - noted), ("revoked", noted - valid)):
            for name, credential in sorted(credentials):
                by = self.keys.kept[name].by if name in self.keys.kept else ""
                self.ledger.note(f"{credential} of {name} {what}", by=by or "nobody named")

    async def _look(self) -> None:
        """Apply new keys, revoked keys and new grants within a second or two."""
        to_grant = False
        while True:
            await asyncio.sleep(_LOOK)
            try:
                to_grant = self.keys.refresh() or to_grant
                if to_grant:
                    await asyncio.to_thread(self._grant)
                    await asyncio.to_thread(self._note_keys)
                    accounts = await asyncio.to_thread(self.ledger.accounts)
                    self._left.update({account.name: account.left for account in accounts})
                    to_grant = False
            except LedgerUnavailable as error:
                _LOG.warning(
                    "grants wait until the ledger can be used again: %s",
                    error,
                    extra={"event": "ledger.unavailable"},
                )
            except LedgerError as error:  # it is unknown whether a grant was written
                self._stop(error)
            except (OSError, ValueError) as error:
                _LOG.error(
                    "the file of keys cannot be read (%s): no key is valid until it can",
                    type(error).__name__,
                    extra={"event": "keys.unreadable"},
                )


def _said(label: Any) -> str:
    """Return the part of an answer that is the same for every receipt."""
    abstained = "true" if label is None else "false"
    return f'{{"label": {json.dumps(label)}, "abstained": {abstained}, "receipt": {{"seq": '


def secret_of(name: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    """Return a secret from OSTRAKA_…_SECRET, or from a private file, which is created if missing."""
    secret = secret_in(environment, f"OSTRAKA_{name.upper()}_SECRET")
    return secret if secret is not None else files.create(folder / f"{name}.secret", os.urandom(32))


def witnesses_at(addresses: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[Witness]:
    """The witnesses at these addresses, under the secret of OSTRAKA_WITNESS_SECRET or of the folder."""
    if not addresses:
        return []
    secret = secret_of("witness", folder, environment)
    return [witness_at(address, secret) for address in addresses]


def recognise(teachers: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Refuse other teachers than this service began with, by their hash, before they are parsed.

    Raises
    ------
    LedgerError
        The hash differs.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    path, seal = folder / _KNOWN, _sealed(teachers, folder, environment)
    if path.is_file() and not hmac.compare_digest(path.read_bytes(), seal):
        raise LedgerError(
            "the teachers are not those that this service began with: put these back, or serve a copy of the "
            "run without its service folder"
        )


def remember(teachers: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Store the teachers' hash for an early check at later starts; the ledger's own check decides."""
    files.create(folder / _KNOWN, _sealed(teachers, folder, environment))


def _sealed(teachers: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    secret = secret_of("ledger", folder, environment)
    return hmac.digest(secret, f"ostraka/teachers/1\x00{teachers}".encode(), "sha256")


def _stop(error: BaseException) -> None:
    """End the process: nobody is answered after a charge of unknown outcome, or beside a moved ledger."""
    if isinstance(error, LedgerMoved):
        words = (
            "the ledger was removed, replaced or rolled back (%s): stopping; put the newest copy back first"
        )
    else:
        words = "the outcome of a charge is unknown (%s): stopping; start the service again"
    event = "ledger.moved" if isinstance(error, LedgerMoved) else "charge.unknown"
    _LOG.critical(words, type(error).__name__, extra={"event": event})
    logging.shutdown()
    os._exit(1)


class Grants:
    """Proposals of caps and their approvals, kept in the ledger alone: every process sees the same.

    An approval is a free entry of the ledger under the proposal's number, which names the owner who approved,
    and behind it a grant under the same number. Of each there is one, in whatever process: so another owner
    who comes second is refused, and whoever approves again, after a crash or a reply that never came, gets
    the first answer, and no cap changes twice.

    Parameters
    ----------
    ledger : Ledger
    keys : Keyring
        Who is a client.
    account, unit : str
        The account of free entries, and the protected unit.
    reserve : BallotMechanism
        Of which an approval is zero uses.
    """

    def __init__(
        self, ledger: Ledger, keys: Keyring, *, account: str, unit: str, reserve: BallotMechanism
    ) -> None:
        self._ledger, self._keys = ledger, keys
        self._account, self._unit, self._free = account, unit, Reserved(each=reserve, uses=0)

    def propose(self, who: Holder, body: bytes) -> dict[str, Any]:
        """Write down what an owner proposes; it counts when another owner approves it."""
        content = strict(body)
        if not isinstance(content, dict) or content.keys() != {"client", "epsilon"}:
            raise Refused(400, "bad_schema", _SHAPE)
        client, epsilon = content["client"], content["epsilon"]
        positive = type(epsilon) in {int, float} and 0 < epsilon < math.inf
        if not isinstance(client, str) or not positive:
            raise Refused(400, "bad_schema", _SHAPE)
        record = self._keys.kept.get(client)
        if record is None or record.role != CLIENT:
            raise Refused(404, "not_found", "there is no such client: type 'ostraka keys add' first")
        number = self._ledger.note(f"epsilon {float(epsilon)!r} for {client} proposed", by=who.actor)
        return {"proposal": number, "client": client, "epsilon": float(epsilon), "by": who.actor}

    def approve(self, who: Holder, number: str) -> dict[str, Any]:
        """Set the cap that another owner proposed, once; repeated by the same owner, return what was set."""
        entry = entry_at(self._ledger, number)
        form = _PROPOSAL.fullmatch(entry.key or "") if entry is not None and entry.kind == "note" else None
        if form is None:
            raise Refused(404, "not_found", "there is no such proposal")
        epsilon, client, proposer = float(form[1]), form[2], form[3]
        if proposer.partition("[")[0] == who.name:
            raise Refused(403, "same_owner")
        name = f"proposal {int(number)}"
        once = ChargeRequest(
            account=self._account,
            key=name,
            digest=hashlib.sha256(f"{name} approved by {who.actor}".encode()).hexdigest(),
            cost=self._free,
            reserve=self._free,
            answer=0,
        )
        (outcome,) = self._ledger.charge_each([once], unit=self._unit)
        if isinstance(outcome, KeyConflict):  # another owner approved it
            raise Refused(409, "proposal_ended")
        if isinstance(outcome, Exception):
            raise outcome
        seq = self._ledger.grant(client, budget_epsilon=epsilon, by=f"{proposer} and {who.actor}", key=name)
        return {"seq": seq, "client": client, "epsilon": epsilon, "by": [proposer, who.actor]}

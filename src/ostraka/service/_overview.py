"""The numbers of the owner's page. Read-only, and made of public numbers alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostraka.door import ABSTAIN
from ostraka.ledger import LedgerError
from ostraka.mechanisms import Confident

if TYPE_CHECKING:
    from ostraka.ledger import Ledger
    from ostraka.ledger.records import Brief
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.service._deployment import Deployment
    from ostraka.voters import SavedTeachers

__all__ = [
    "AnswerView",
    "ClientView",
    "CostView",
    "LedgerView",
    "Overview",
    "QuestionView",
    "RunningCounts",
    "overview",
]

_READING_TIME = 0.05  # seconds of reading per view; the rest is counted in the background
_SLICE = 0.005  # seconds of reading in the background at a time, during which nothing is charged
_PAUSE = 0.02
_PAGE = 200  # entries read at a time; nothing is charged during a read
_POINTS = 400  # of the history
_REPEATED = 20  # questions listed
_KEPT = 10_000  # repeated questions counted at a time
_LATEST = 20  # answers listed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """One client: cap, spent and left in nats at the ledger's delta, and counts of its questions."""

    name: str
    cap: float
    spent: float
    left: float
    answers: int
    abstained: int
    repeats: int
    valid_keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """One kind of answer: epsilon of one alone at the ledger's delta, and their number."""

    mechanism: str
    epsilon: float
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionView:
    """A question asked more than once. Its noise was drawn once: see docs/service.md.

    ``repeaters`` is the number of clients that asked it after its first time.
    """

    digest: str
    times: int
    repeaters: int
    abstained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """One answer. ``epsilon`` is that of one alone; ``repeated`` means that the data paid nothing."""

    seq: int
    client: str
    digest: str
    mechanism: str
    epsilon: float
    epsilon_after: float
    abstained: bool
    repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """State of the ledger. ``verified``: checked at start from its anchor on, and no failure since.

    ``counted`` entries are in the history and in all counts; the next view counts more.
    """

    entries: int
    counted: int
    head: str
    verified: bool
    simulation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All numbers of the page.

    Attributes
    ----------
    mechanism, screen : str and str or None
    ballot : GNMax, LNMax or (Threshold, GNMax)
        The mechanism for the leakage meter, which leaves out a screen before Laplace noise.
    n_teachers, n_classes : int
    unit : str
        What is protected.
    epsilon, delta, spent, left : float
        The ledger's budget, which the answers of all clients are charged to.
    history : tuple of (entry number, epsilon spent after it)
        At most 400 points, the last one included.
    clients, costs, repeated, latest
        By name; dearest first; most often asked first, at most 20; newest first, at most 20.
    refusals : tuple of (client or "", code, number of requests)
        Since the service started: a refusal leaves no entry.
    ledger : LedgerView
    label : dict or None
        The privacy label of the run that trained the teachers: its cost comes on top.
    """

    mechanism: str
    screen: str | None
    ballot: BallotMechanism
    n_teachers: int
    n_classes: int
    unit: str
    epsilon: float
    delta: float
    spent: float
    left: float
    history: tuple[tuple[int, float], ...]
    clients: tuple[ClientView, ...]
    costs: tuple[CostView, ...]
    repeated: tuple[QuestionView, ...]
    latest: tuple[AnswerView, ...]
    refusals: tuple[tuple[str, str, int], ...]
    ledger: LedgerView
    label: dict[str, Any] | None


class RunningCounts:
    """Counts of the entries so far. Each view reads the entries since the last one. Bounded in size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seq = 0
        self.history: list[tuple[int, float]] = []
        self.answers: Counter[str] = Counter()
        self.abstained: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.costs: dict[str, list[float]] = {}
        self._latest: deque[Brief] = deque(maxlen=_LATEST)
        self._again: dict[str, Counter[str]] = {}
        self._stopped: set[str] = set()

    def catch_up(self, ledger: Ledger, *, seconds: float = _READING_TIME) -> bool:
        """Read the new entries, as many as the time allows; whether all of them are counted."""
        until = time.monotonic() + seconds
        with self._lock:
            while time.monotonic() < until:
                entries = ledger.briefly(after=self.seq, limit=_PAGE)
                if not entries:
                    return True
                for entry in entries:
                    self._count(entry, ledger)
                self.seq = entries[-1].seq
                self._shrink()
        return False

    def _shrink(self) -> None:
        if len(self.history) > 2 * _POINTS:
            self.history = self.history[:-1:2] + self.history[-1:]
        if len(self._again) > 2 * _KEPT:
            self._again = dict(self._often(_KEPT))
            self._stopped &= self._again.keys()

    async def keep_up(self, ledger: Ledger) -> None:
        """Count in the background, a little at a time: a page after a restart need not wait for it."""
        while True:
            done = True
            with contextlib.suppress(LedgerError):  # the next charge deals with it
                done = await asyncio.to_thread(self.catch_up, ledger, seconds=_SLICE)
            await asyncio.sleep(1.0 if done else _PAUSE)

    def repeated(self) -> tuple[QuestionView, ...]:
        """The questions asked most often, of those asked more than once."""
        with self._lock:
            return tuple(
                QuestionView(
                    digest=name, times=1 + by.total(), repeaters=len(by), abstained=name in self._stopped
                )
                for name, by in self._often(_REPEATED)
            )

    def latest(self) -> tuple[AnswerView, ...]:
        """The latest answers, newest first."""
        with self._lock:
            return tuple(
                AnswerView(
                    seq=entry.seq,
                    client=entry.account,
                    digest=(entry.digest or b"").hex(),
                    mechanism=entry.mechanism,
                    epsilon=self.costs[entry.mechanism][0],
                    epsilon_after=entry.epsilon_after,
                    abstained=entry.answer == ABSTAIN,
                    repeated=not entry.uses,
                )
                for entry in reversed(self._latest)
            )

    def _often(self, most: int) -> list[tuple[str, Counter[str]]]:
        return sorted(self._again.items(), key=lambda item: -item[1].total())[:most]

    def _count(self, entry: Brief, ledger: Ledger) -> None:
        if not self.history or entry.epsilon_after > self.history[-1][1]:
            self.history.append((entry.seq, entry.epsilon_after))
        if entry.answer is None or not entry.account or entry.digest is None or _is_free(entry):
            return
        self._latest.append(entry)
        self.answers[entry.account] += 1
        self.abstained[entry.account] += entry.answer == ABSTAIN
        cost = self.costs.setdefault(entry.mechanism, [0.0, 0])
        cost[1] += 1
        if entry.uses:
            cost[0] = cost[0] or _alone(ledger, entry.seq)
            return
        self.repeats[entry.account] += 1
        name = entry.digest.hex()
        self._again.setdefault(name, Counter())[entry.account] += 1
        if entry.answer == ABSTAIN:
            self._stopped.add(name)


def _alone(ledger: Ledger, seq: int) -> float:
    """Epsilon of one entry by itself."""
    (entry,) = ledger.entries(after=seq - 1, limit=1)
    return entry.curve.epsilon(ledger.budget.delta)


def _is_free(entry: Brief) -> bool:
    """Whether an entry is free: it binds a key to a batch, or the ledger to its teachers."""
    return entry.mechanism.startswith("Reserved(")


def _ballot(saved: SavedTeachers) -> BallotMechanism:
    if saved.screen is None:
        return saved.mechanism
    return Confident(screen=saved.screen, argmax=saved.mechanism)


def overview(there: Deployment) -> Overview:
    """The numbers of the page now."""
    ledger, saved, counts = there.ledger, there.saved, there.counts
    known = ledger.count()  # counted first: later charges belong to the next view
    counts.catch_up(ledger)
    return Overview(
        mechanism=repr(saved.mechanism),
        screen=None if saved.screen is None else repr(saved.screen),
        ballot=_ballot(saved),
        n_teachers=len(saved.ensemble.teachers_),
        n_classes=len(saved.ensemble.classes_),
        unit=saved.ensemble.unit_,
        epsilon=ledger.budget.epsilon,
        delta=ledger.budget.delta,
        spent=ledger.epsilon(),
        left=ledger.left(),
        history=tuple(counts.history),
        clients=tuple(
            ClientView(
                name=account.name,
                cap=account.cap,
                spent=account.spent,
                left=account.left,
                answers=counts.answers[account.name],
                abstained=counts.abstained[account.name],
                repeats=counts.repeats[account.name],
                valid_keys=len(there.keys.kept[account.name].keys) if account.name in there.keys.kept else 0,
            )
            for account in there.accounts()
        ),
        costs=tuple(
            CostView(mechanism=name, epsilon=epsilon, answers=int(answers))
            for name, (epsilon, answers) in sorted(counts.costs.items(), key=lambda item: -item[1][0])
        ),
        repeated=counts.repeated(),
        latest=counts.latest(),
        refusals=tuple((who, code, n) for (who, code), n in sorted(there.metrics.refusals.items())),
        ledger=LedgerView(
            entries=max(known, counts.seq),
            counted=counts.seq,
            head=ledger.head,
            verified=there.verified,
            simulation=ledger.simulation,
        ),
        label=there.label,
    )

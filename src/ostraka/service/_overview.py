"""What the owner of the data may see at a glance. Read-only, and made of public numbers alone."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostraka.door import ABSTAIN
from ostraka.mechanisms import GNMax

if TYPE_CHECKING:
    from ostraka.attacks._law import Ballot
    from ostraka.ledger import Entry, Ledger
    from ostraka.service._deployment import Deployment
    from ostraka.voters import SavedTeachers

__all__ = [
    "AnswerView",
    "ClientView",
    "CostView",
    "LedgerView",
    "Overview",
    "QuestionView",
    "Tally",
    "overview",
]

_PATIENCE = 3.0  # seconds that one look may read
_PAGE = 500  # entries read at a time, for nothing is charged meanwhile
_POINTS = 400  # of the history
_REPEATED = 20  # questions listed
_KEPT = 10_000  # repeated questions counted at a time
_LATEST = 20  # answers listed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """One client: what it may spend, in nats at the ledger's delta, and what it asked."""

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
    """What one kind of answer costs: epsilon of one alone, at the ledger's delta, and how many there were."""

    mechanism: str
    epsilon: float
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionView:
    """A question put more than once. However often, its noise was drawn once: see docs/service.md.

    ``repeaters`` counts the clients who asked it when it was known already.
    """

    digest: str
    times: int
    repeaters: int
    abstained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """One answer that was given. ``epsilon`` is that of one alone; ``repeated``: the data paid nothing."""

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
    """Where the ledger stands. ``verified``: at start, from its anchor on, and nothing failed since.

    ``counted`` entries are in the history and in all counts; looking again counts more.
    """

    entries: int
    counted: int
    head: str
    verified: bool
    simulation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of the page.

    Attributes
    ----------
    mechanism, screen : str and str or None
    ballot : GNMax, LNMax or (Threshold, GNMax)
        The same for the leakage meter, which knows no screen before Laplace noise and leaves it out.
    n_teachers, n_classes : int
    unit : str
        What is protected.
    epsilon, delta, spent, left : float
        The data's own budget, of which every client's answers are paid as well.
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
    ballot: Ballot
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


class Tally:
    """Entries counted so far: each look reads only what came since the last. Of bounded size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seq = 0
        self.history: list[tuple[int, float]] = []
        self.answers: Counter[str] = Counter()
        self.abstained: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.costs: dict[str, list[float]] = {}
        self._latest: deque[Entry] = deque(maxlen=_LATEST)
        self._again: dict[str, Counter[str]] = {}
        self._stopped: set[str] = set()

    def catch_up(self, ledger: Ledger) -> None:
        """Read the entries that are new, as many as one look has time for."""
        until = time.monotonic() + _PATIENCE
        with self._lock:
            while time.monotonic() < until and (entries := ledger.entries(after=self.seq, limit=_PAGE)):
                for entry in entries:
                    self._count(entry, ledger.budget.delta)
                self.seq = entries[-1].seq
                if len(self.history) > 2 * _POINTS:
                    self.history = self.history[:-1:2] + self.history[-1:]
                if len(self._again) > 2 * _KEPT:
                    self._again = dict(self._often(_KEPT))
                    self._stopped &= self._again.keys()

    def repeated(self) -> tuple[QuestionView, ...]:
        """The questions that were put most often, if more than once."""
        with self._lock:
            return tuple(
                QuestionView(
                    digest=name, times=1 + by.total(), repeaters=len(by), abstained=name in self._stopped
                )
                for name, by in self._often(_REPEATED)
            )

    def latest(self) -> tuple[AnswerView, ...]:
        """The answers given last, newest first."""
        with self._lock:
            return tuple(
                AnswerView(
                    seq=entry.seq,
                    client=entry.account or "",
                    digest=entry.digest or "",
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

    def _count(self, entry: Entry, delta: float) -> None:
        if not self.history or entry.epsilon_after > self.history[-1][1]:
            self.history.append((entry.seq, entry.epsilon_after))
        if entry.answer is None or entry.account is None or entry.digest is None or _is_free(entry):
            return
        self._latest.append(entry)
        self.answers[entry.account] += 1
        self.abstained[entry.account] += entry.answer == ABSTAIN
        cost = self.costs.setdefault(entry.mechanism, [0.0, 0])
        cost[1] += 1
        if entry.uses:
            cost[0] = cost[0] or entry.curve.epsilon(delta)
            return
        self.repeats[entry.account] += 1
        self._again.setdefault(entry.digest, Counter())[entry.account] += 1
        if entry.answer == ABSTAIN:
            self._stopped.add(entry.digest)


def _is_free(entry: Entry) -> bool:
    """Entries that bind a key to a batch, or the ledger to its teachers."""
    return entry.mechanism.startswith("Reserved(")


def _ballot(saved: SavedTeachers) -> Ballot:
    if saved.screen is not None and isinstance(saved.mechanism, GNMax):
        return saved.screen, saved.mechanism
    return saved.mechanism


def overview(there: Deployment) -> Overview:
    """How things stand now."""
    ledger, saved, tally = there.ledger, there.saved, there.tally
    known = ledger.count()  # before: what is charged meanwhile is for the next look
    tally.catch_up(ledger)
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
        history=tuple(tally.history),
        clients=tuple(
            ClientView(
                name=account.name,
                cap=account.cap,
                spent=account.spent,
                left=account.left,
                answers=tally.answers[account.name],
                abstained=tally.abstained[account.name],
                repeats=tally.repeats[account.name],
                valid_keys=len(there.keys.kept[account.name].keys) if account.name in there.keys.kept else 0,
            )
            for account in there.accounts()
        ),
        costs=tuple(
            CostView(mechanism=name, epsilon=epsilon, answers=int(answers))
            for name, (epsilon, answers) in sorted(tally.costs.items(), key=lambda item: -item[1][0])
        ),
        repeated=tally.repeated(),
        latest=tally.latest(),
        refusals=tuple((who, code, n) for (who, code), n in sorted(there.metrics.refusals.items())),
        ledger=LedgerView(
            entries=max(known, tally.seq),
            counted=tally.seq,
            head=ledger.head,
            verified=there.verified,
            simulation=ledger.simulation,
        ),
        label=there.label,
    )

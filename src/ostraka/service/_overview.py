"""What the owner of the data may see at a glance. Read-only, and made of public numbers alone."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostraka.door import ABSTAIN

if TYPE_CHECKING:
    from ostraka.ledger import Entry, Ledger
    from ostraka.service._deployment import Deployment

__all__ = ["ClientView", "CostView", "LedgerView", "Overview", "QuestionView", "Tally", "overview"]

_PAGE = 5_000  # entries read at a time
_POINTS = 400  # of the history
_REPEATED = 20  # questions listed


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
    """A question put more than once. However often, its noise was drawn once: see docs/service.md."""

    digest: str
    times: int
    clients: int
    abstained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """Where the ledger stands. ``verified``: at start, from its anchor on, and nothing failed since."""

    entries: int
    head: str
    verified: bool
    simulation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of the page.

    Attributes
    ----------
    mechanism, screen : str and str or None
    unit : str
        What is protected.
    epsilon, delta, spent, left : float
        The data's own budget, of which every client's answers are paid as well.
    history : tuple of (entry number, epsilon spent after it)
        At most 400 points, the last one included.
    clients, costs, repeated
        By name; dearest first; most often asked first.
    refusals : tuple of (client or "", code, number of requests)
        Since the service started: a refusal leaves no entry.
    ledger : LedgerView
    label : dict or None
        The privacy label of the run that trained the teachers: its cost comes on top.
    """

    mechanism: str
    screen: str | None
    unit: str
    epsilon: float
    delta: float
    spent: float
    left: float
    history: tuple[tuple[int, float], ...]
    clients: tuple[ClientView, ...]
    costs: tuple[CostView, ...]
    repeated: tuple[QuestionView, ...]
    refusals: tuple[tuple[str, str, int], ...]
    ledger: LedgerView
    label: dict[str, Any] | None


class Tally:
    """Entries counted so far: each look reads only what came since the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seq = 0
        self.history: list[tuple[int, float]] = []
        self.answers: Counter[str] = Counter()
        self.abstained: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.costs: dict[str, list[float]] = {}
        self._asked: dict[str, Counter[str]] = {}
        self._stopped: set[str] = set()

    def catch_up(self, ledger: Ledger) -> None:
        """Read the entries that are new."""
        with self._lock:
            while entries := ledger.entries(after=self.seq, limit=_PAGE):
                for entry in entries:
                    self._count(entry, ledger.budget.delta)
                self.seq = entries[-1].seq
                if len(self.history) > 2 * _POINTS:
                    self.history = self.history[:-1:2] + self.history[-1:]

    def repeated(self) -> tuple[QuestionView, ...]:
        """The questions that were put most often, if more than once."""
        most = sorted(self._asked.items(), key=lambda item: -item[1].total())[:_REPEATED]
        return tuple(
            QuestionView(digest=name, times=by.total(), clients=len(by), abstained=name in self._stopped)
            for name, by in most
            if by.total() > 1
        )

    def _count(self, entry: Entry, delta: float) -> None:
        if not self.history or entry.epsilon_after > self.history[-1][1]:
            self.history.append((entry.seq, entry.epsilon_after))
        if entry.answer is None or entry.account is None or entry.digest is None or _is_free(entry):
            return
        self.answers[entry.account] += 1
        self.abstained[entry.account] += entry.answer == ABSTAIN
        asked = self._asked.setdefault(entry.digest, Counter())
        self.repeats[entry.account] += bool(asked)
        asked[entry.account] += 1
        if entry.answer == ABSTAIN:
            self._stopped.add(entry.digest)
        cost = self.costs.setdefault(entry.mechanism, [0.0, 0])
        cost[1] += 1
        if not cost[0] and entry.uses:
            cost[0] = entry.curve.epsilon(delta)


def _is_free(entry: Entry) -> bool:
    """Entries that bind a key to a batch, or the ledger to its teachers."""
    return entry.mechanism.startswith("Reserved(")


def overview(there: Deployment) -> Overview:
    """How things stand now."""
    ledger, saved, tally = there.ledger, there.saved, there.tally
    tally.catch_up(ledger)
    return Overview(
        mechanism=repr(saved.mechanism),
        screen=None if saved.screen is None else repr(saved.screen),
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
        refusals=tuple((who, code, n) for (who, code), n in sorted(there.metrics.refusals.items())),
        ledger=LedgerView(
            entries=tally.seq, head=ledger.head, verified=there.verified, simulation=ledger.simulation
        ),
        label=there.label,
    )

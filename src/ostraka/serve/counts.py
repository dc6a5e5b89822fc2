"""Counts of a ledger's entries, for the owner's page: by client, by price, by question and over time.

Each view reads the entries since the last one. A file beside the ledger keeps the counts across restarts.
All of them are public.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ostraka.core import files
from ostraka.core.ledger.budget import LedgerError, Pace
from ostraka.core.mechanisms.law import ABSTAIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ostraka.core.ledger.chain import Brief
    from ostraka.core.ledger.ledger import Ledger

_READING_TIME = 0.05  # seconds of reading per view; the rest is counted in the background
_SLICE = 0.005  # seconds of reading in the background at a time, during which nothing is charged
_PAUSE = 0.02
_PAGE = 200  # entries read at a time; nothing is charged during a read
_POINTS = 400  # of the history
_REPEATED = 20  # questions listed
_KEPT = 10_000  # repeated questions counted at a time
_WRITTEN = 1_000  # of them that are kept in the file
_LATEST = 10  # answers listed
_LATEST_OF_ONE = 5  # and of each client
_EVERY = 10_000  # entries between two checkpoints
_VERSION = 1


def now() -> int:
    """Return the seconds since 1970, for the owner's page. No decision depends on them."""
    return int(time.time())


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
    at: int | None = None


class RunningCounts:
    """Counts of the entries so far. Each view reads the entries since the last one. Bounded in size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seq = 0
        self.history: list[tuple[int, float, int | None]] = []
        self.answers: Counter[str] = Counter()
        self.abstained: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.costs: dict[str, list[float]] = {}
        self.pace = Pace()
        self.paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._latest: deque[Brief] = deque(maxlen=_LATEST)
        self._latest_of: defaultdict[str, deque[Brief]] = defaultdict(lambda: deque(maxlen=_LATEST_OF_ONE))
        self._again: dict[str, Counter[str]] = {}
        self._stopped: set[str] = set()

    def catch_up(self, ledger: Ledger, *, seconds: float = _READING_TIME) -> bool:
        """Read new entries for a limited time; return whether all of them are counted."""
        until = time.monotonic() + seconds
        with self._lock:
            while time.monotonic() < until:
                entries = ledger.briefly(after=self.seq, limit=_PAGE)
                if not entries:
                    return True
                for entry in entries:
                    if not self.history or entry.epsilon_after > self.history[-1][1]:
                        self.history.append((entry.seq, entry.epsilon_after, entry.at))
                    if entry.answer is None or not entry.account or entry.digest is None:
                        continue
                    if entry.mechanism.startswith("Reserved("):
                        continue  # free: it binds a key to a batch, or the ledger
                    self._latest.append(entry)
                    self._latest_of[entry.account].append(entry)
                    if entry.at is not None:
                        self.pace.add(entry.at, entry.uses)
                        self.paces[entry.account].add(entry.at, 1)
                    self.answers[entry.account] += 1
                    self.abstained[entry.account] += entry.answer == ABSTAIN
                    if entry.mechanism not in self.costs:  # the first entry of its kind is no repeat
                        (first,) = ledger.entries(after=entry.seq - 1, limit=1)
                        self.costs[entry.mechanism] = [first.curve.epsilon(ledger.budget.delta), 0]
                    self.costs[entry.mechanism][1] += 1
                    if not entry.uses:
                        self.repeats[entry.account] += 1
                        name = entry.digest.hex()
                        self._again.setdefault(name, Counter())[entry.account] += 1
                        if entry.answer == ABSTAIN:
                            self._stopped.add(name)
                self.seq = entries[-1].seq
                if len(self.history) > 2 * _POINTS:
                    self.history = self.history[:-1:2] + self.history[-1:]
                if len(self._again) > 2 * _KEPT:
                    self._again = dict(self._often(_KEPT))
                    self._stopped &= self._again.keys()
        return False

    async def keep_up(self, ledger: Ledger, checkpoint: Checkpoint | None = None) -> None:
        """Count in the background in small steps, and write checkpoints at intervals."""
        while True:
            done = True
            with contextlib.suppress(LedgerError):  # the next charge deals with it
                done = await asyncio.to_thread(self.catch_up, ledger, seconds=_SLICE)
                if checkpoint and self.seq >= checkpoint.seq + _EVERY:
                    await asyncio.to_thread(checkpoint.write, self, ledger)
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
            return tuple(self._view(entry) for entry in reversed(self._latest))

    def latest_of(self, client: str) -> tuple[AnswerView, ...]:
        """The latest answers of one client, newest first."""
        with self._lock:
            return tuple(self._view(entry) for entry in reversed(self._latest_of.get(client, ())))

    def per_second(self, now: int, client: str = "") -> float:
        """Answers a second over the last day: of the data's budget, or of one client's."""
        with self._lock:
            pace = self.paces.get(client) if client else self.pace
            return pace.per_second(now) if pace else 0.0

    def in_a_day(self, now: int, client: str = "") -> int:
        """Answers in the last day: of the data's budget, or of one client's."""
        with self._lock:
            pace = self.paces.get(client) if client else self.pace
            return pace.in_a_day(now) if pace else 0

    def _view(self, entry: Brief) -> AnswerView:
        return AnswerView(
            seq=entry.seq,
            client=entry.account,
            digest=(entry.digest or b"").hex(),
            mechanism=entry.mechanism,
            epsilon=self.costs[entry.mechanism][0],
            epsilon_after=entry.epsilon_after,
            abstained=entry.answer == ABSTAIN,
            repeated=not entry.uses,
            at=entry.at,
        )

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON values, without the latest answers, which the ledger holds."""
        with self._lock:
            often = self._often(_WRITTEN)
            return {
                "seq": self.seq,
                "history": self.history,
                "answers": self.answers,
                "abstained": self.abstained,
                "repeats": self.repeats,
                "costs": self.costs,
                "pace": self.pace.plain(),
                "paces": {name: pace.plain() for name, pace in self.paces.items()},
                "again": [(name, by, name in self._stopped) for name, by in often],
            }

    def resume(self, plain: Mapping[str, Any], ledger: Ledger) -> None:
        """Continue from the value of :meth:`plain`."""
        self.seq = int(plain["seq"])
        self.history = [(seq, epsilon, at) for seq, epsilon, at in plain["history"]]
        self.answers, self.abstained = Counter(plain["answers"]), Counter(plain["abstained"])
        self.repeats, self.costs = Counter(plain["repeats"]), dict(plain["costs"])
        self.pace = Pace.of(plain["pace"])
        self.paces.update({name: Pace.of(pace) for name, pace in plain["paces"].items()})
        self._again = {name: Counter(by) for name, by, _ in plain["again"]}
        self._stopped = {name for name, _, stopped in plain["again"] if stopped}
        for entry in ledger.briefly(after=max(0, self.seq - _PAGE), limit=min(_PAGE, self.seq)):
            if entry.mechanism in self.costs and entry.answer is not None and entry.account:
                self._latest.append(entry)
                self._latest_of[entry.account].append(entry)

    def _often(self, limit: int) -> list[tuple[str, Counter[str]]]:
        return sorted(self._again.items(), key=lambda item: -item[1].total())[:limit]


class Checkpoint:
    """A file beside the ledger with the counts of its entries so far.

    It is sealed under the ledger's secret and names the head after its last entry. A file that does not fit
    is not used: everything is then counted again.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret, self.seq = path, secret, 0

    def read(self, ledger: Ledger) -> RunningCounts:
        """Return the counts of the file, or new ones."""
        counts = RunningCounts()
        with contextlib.suppress(FileNotFoundError, KeyError, TypeError, ValueError):
            seal, text = self._path.read_text(encoding="utf-8").split("\n", 1)
            plain = json.loads(text) if hmac.compare_digest(seal, self._seal(text)) else {}
            last = ledger.entries(after=int(plain["seq"]) - 1, limit=1)
            on_record = last and last[0].seq == plain["seq"] and last[0].head == plain["head"]
            if plain["version"] == _VERSION and on_record:
                counts.resume(plain, ledger)
                self.seq = counts.seq
        return counts

    def write(self, counts: RunningCounts, ledger: Ledger) -> None:
        """Replace the file, if anything is counted."""
        plain = counts.plain()
        last = ledger.entries(after=plain["seq"] - 1, limit=1) if plain["seq"] else ()
        if not last:
            return
        text = json.dumps({"version": _VERSION, "head": last[0].head, **plain})
        with contextlib.suppress(OSError):  # a full disk: the counts are made again
            files.write(self._path, f"{self._seal(text)}\n{text}".encode(), private=True)
            self.seq = plain["seq"]

    def _seal(self, text: str) -> str:
        return hmac.digest(self._secret, b"ostraka counts\0" + text.encode(), "sha256").hex()

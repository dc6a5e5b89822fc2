"""Counts of the ledger's entries for the owner's page, kept in a file across restarts."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import threading
import time
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any

from ostraka import _files
from ostraka.door import ABSTAIN
from ostraka.ledger import LedgerError
from ostraka.ledger.pace import Pace
from ostraka.service._views import AnswerView, QuestionView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ostraka.ledger import Ledger
    from ostraka.ledger.records import Brief

__all__ = ["Checkpoint", "RunningCounts"]

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
        self.paces.update({name: Pace.of(each) for name, each in plain["paces"].items()})
        self._again = {name: Counter(by) for name, by, _ in plain["again"]}
        self._stopped = {name for name, _, stopped in plain["again"] if stopped}
        for entry in ledger.briefly(after=max(0, self.seq - _PAGE), limit=min(_PAGE, self.seq)):
            if entry.mechanism in self.costs and entry.answer is not None and entry.account:
                self._latest.append(entry)
                self._latest_of[entry.account].append(entry)

    def _often(self, most: int) -> list[tuple[str, Counter[str]]]:
        return sorted(self._again.items(), key=lambda item: -item[1].total())[:most]

    def _count(self, entry: Brief, ledger: Ledger) -> None:
        if not self.history or entry.epsilon_after > self.history[-1][1]:
            self.history.append((entry.seq, entry.epsilon_after, entry.at))
        if entry.answer is None or not entry.account or entry.digest is None or _is_free(entry):
            return
        self._latest.append(entry)
        self._latest_of[entry.account].append(entry)
        if entry.at is not None:
            self.pace.add(entry.at, entry.uses)
            self.paces[entry.account].add(entry.at, 1)
        self.answers[entry.account] += 1
        self.abstained[entry.account] += entry.answer == ABSTAIN
        if entry.mechanism not in self.costs:  # the first entry of its kind is no repeat
            self.costs[entry.mechanism] = [_alone(ledger, entry.seq), 0]
        self.costs[entry.mechanism][1] += 1
        if entry.uses:
            return
        self.repeats[entry.account] += 1
        name = entry.digest.hex()
        self._again.setdefault(name, Counter())[entry.account] += 1
        if entry.answer == ABSTAIN:
            self._stopped.add(name)


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
            found = json.loads(text)
            last = ledger.entries(after=int(found["seq"]) - 1, limit=1)
            known = last and last[0].seq == found["seq"] and last[0].head == found["head"]
            if hmac.compare_digest(seal, self._seal(text)) and found["version"] == _VERSION and known:
                counts.resume(found, ledger)
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
            _files.write(self._path, f"{self._seal(text)}\n{text}".encode(), private=True)
            self.seq = plain["seq"]

    def _seal(self, text: str) -> str:
        return hmac.digest(self._secret, b"ostraka counts\0" + text.encode(), "sha256").hex()


def _alone(ledger: Ledger, seq: int) -> float:
    """Epsilon of one entry by itself."""
    (entry,) = ledger.entries(after=seq - 1, limit=1)
    return entry.curve.epsilon(ledger.budget.delta)


def _is_free(entry: Brief) -> bool:
    """Whether an entry is free: it binds a key to a batch, or the ledger to its teachers."""
    return entry.mechanism.startswith("Reserved(")

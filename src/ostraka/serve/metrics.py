"""What an owner monitors: counters for Prometheus, answers left and how long they last, readiness.

Public quantities only: no label, no row, no question.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ostraka.core.ledger.budget import LedgerError
from ostraka.secure.server import gauge_lines, metric_lines
from ostraka.serve.counts import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ostraka.core.curve import Priced
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.serve.answering import Batcher
    from ostraka.serve.keys import Keyring

_EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STALE = 60.0  # seconds after which a count is worked out again
_FRESH, _TOO_OLD = 1.0, 3.0  # seconds for which a look counts, and after which its age is a problem
_LEAST_SPACE = 16 * 2**20  # bytes free on the ledger's disk


class Metrics:
    """Counts of requests since this process started."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()  # rows, by client
        self.refusals: Counter[tuple[str, str]] = Counter()  # requests, by client ("" unknown) and code
        self.last_refused: dict[tuple[str, str], int] = {}
        self._slower: list[int] = [0] * (len(_EDGES) + 1)
        self._seconds = 0.0

    def answered(self, client: str, *, rows: int, seconds: float) -> None:
        """Count one request that was answered."""
        self.answers[client] += rows
        self._seconds += seconds
        self._slower[bisect_left(_EDGES, seconds)] += 1

    def refused(self, client: str, code: str) -> None:
        """Count one request that was refused."""
        self.last_refused[client, code] = now()  # first: another thread looks it up for each that is counted
        self.refusals[client, code] += 1

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """All counts and the given gauges (name, meaning, value)."""
        totals = list(itertools.accumulate(self._slower))
        answers = (f'{{client="{who}"}} {n}' for who, n in sorted(self.answers.items()))
        refusals = (
            f'{{client="{who}",code="{code}"}} {n}' for (who, code), n in sorted(self.refusals.items())
        )
        seconds = [
            f'_bucket{{le="{edge}"}} {n}'
            for edge, n in zip((*map("{:g}".format, _EDGES), "+Inf"), totals, strict=True)
        ]
        seconds += [f"_sum {self._seconds:.6f}", f"_count {totals[-1]}"]
        meaning = "From the whole body read to the reply, of answered requests."
        lines = [
            *metric_lines("ostraka_answers_total", "counter", "Rows answered, by client.", answers),
            *metric_lines(
                "ostraka_refusals_total", "counter", "Requests refused, by client and code.", refusals
            ),
            *metric_lines("ostraka_answer_seconds", "histogram", meaning, seconds),
            *gauge_lines(gauges),
        ]
        return "\n".join(lines) + "\n"


class AnswersLeft:
    """Answers that the ledger's budget and each client's account still pay for, and how long they last.

    ``rate`` gives the answers a second of the last day for an account ("": the ledger's own). Counts
    are worked out now and then and counted down in between, one for each answer. An answer costs at most
    the price that they are worked out for, so they never say too many.
    """

    def __init__(
        self,
        ledger: Ledger,
        price: Priced,
        *,
        rate: Callable[[str], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._price, self.rate, self._clock = ledger, price, rate, clock
        self._left: dict[str, tuple[float, int]] = {}  # by account; "" is the ledger's own
        self._rates: dict[str, float] = {}
        self._given: dict[str, int] = {}
        self._lock = threading.Lock()  # of the counts: answers are given in one thread, and counted in others

    def stale(self, account: str = "") -> bool:
        """Return whether a count should be worked out again."""
        count = self._left.get(account)
        return count is None or self._clock() - count[0] > _STALE

    def work_out(self, account: str = "") -> int:
        """Work a count out now. It takes some milliseconds, so do not call it in an event loop."""
        before = self._given.get(account, 0)
        n = self._ledger.uses_left(self._price, account=account or None)
        with self._lock:
            n = max(0, n - (self._given.get(account, 0) - before))  # some may be counted twice, none missed
            self._left[account] = self._clock(), n
        self._rates[account] = self.rate(account)
        return n

    def renewed(self, account: str = "", *, until: float = math.inf) -> int | None:
        """The known count, worked out again first where that is due and ``until`` has not come."""
        if self.stale(account) and self._clock() < until:
            self.work_out(account)
        self._rates[account] = self.rate(account)
        return self.known(account)

    def known(self, account: str = "") -> int | None:
        """Return the last known count; None before it was worked out."""
        return self._left[account][1] if account in self._left else None

    def of(self, account: str = "") -> int:
        """Return the last known count; 0 before it was worked out."""
        return self.known(account) or 0

    def given(self, account: str, answers: int) -> list[str]:
        """Subtract answers that were given; return the accounts whose counts should be worked out again."""
        with self._lock:
            for name in ("", account):
                self._given[name] = self._given.get(name, 0) + answers
                if name in self._left:
                    when, n = self._left[name]
                    self._left[name] = when, max(0, n - answers)
        return [name for name in ("", account) if self.stale(name)]

    def seconds_to_empty(self, account: str = "") -> float | None:
        """Return the seconds until a budget is spent at the last day's rate; None if nothing was charged."""
        n, rate = self.of(account), self._rates.get(account, 0.0)
        if self.known(account) == 0:
            return 0.0
        return n / rate if rate > 0 else None


class Readiness:
    """Whether the service could charge now. The result is kept for a second, because anyone may ask."""

    def __init__(
        self, ledger: Ledger, keys: Keyring, batcher: Batcher, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._keys, self._batcher, self._clock = ledger, keys, batcher, clock
        self._when, self._why = -1e9, ["not looked at yet"]
        self._looking = threading.Lock()

    @property
    def age(self) -> float:
        """Return the seconds since the last look."""
        return self._clock() - self._when

    def problems(self) -> list[str]:
        """Return the reasons why it cannot charge; empty if it can. They quote nothing private."""
        if self.age >= _FRESH and self._looking.acquire(blocking=False):  # one at a time: a look may hang
            try:
                problems = []
                if not self.works:
                    problems.append("the thread that answers has ended")
                if not self._keys.readable:
                    problems.append("the file of keys cannot be read")
                with contextlib.suppress(OSError):  # a database elsewhere
                    disk = os.statvfs(Path(self._ledger.path).parent)
                    if disk.f_bavail * disk.f_frsize < _LEAST_SPACE:
                        problems.append("the disk of the ledger is almost full")
                try:
                    self._ledger.probe()
                except LedgerError as error:
                    problems.append(f"the ledger cannot be charged ({type(error).__name__})")
                self._why, self._when = problems, self._clock()
            finally:
                self._looking.release()
        if self.age >= _TOO_OLD and self._when > -1e9:
            return [*self._why, f"the last look at the ledger is {self.age:.0f} seconds old"]
        return self._why

    @property
    def works(self) -> bool:
        """Return whether the answering thread runs; if not, the service must be restarted."""
        return self._batcher.alive

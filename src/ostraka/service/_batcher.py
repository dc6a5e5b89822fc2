"""Micro-batches: waiting requests are voted on, charged and answered together.

One thread takes all waiting requests, votes, draws, charges and returns the results. Meanwhile the
event loop reads further requests. Nothing is answered before its charge is on stable storage.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ostraka.ledger import BudgetExceeded, ChargeRequest, KeyConflict, LedgerUnavailable, Receipt
from ostraka.service._answering import Reserved
from ostraka.service._replies import Refused, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.service._answering import Answered, Answerer

__all__ = ["Batcher", "ChargingLedger", "Job"]

_LOG = logging.getLogger("ostraka.service")
_MOST_ROWS = 512  # of one micro-batch
_LAST = None


class ChargingLedger(Protocol):
    """The method of a ledger that the batcher uses."""

    def charge_each(
        self, requests: Sequence[ChargeRequest], *, unit: str
    ) -> list[Receipt | BudgetExceeded | KeyConflict]:
        """Charge every request that fits, durably, in one transaction."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """One HTTP request: the rows of one client under one key, and the future of its outcome."""

    account: str
    key: str
    rows: list[list[Any]]
    done: asyncio.Future[list[Receipt]]
    answered: list[Answered] = field(default_factory=list)
    refused: Refused | None = None
    receipts: list[Receipt] = field(default_factory=list)


class Batcher:
    """Turns jobs into receipts.

    Where the ledger cannot be used for a while, requests get 503 and the next ones are tried again.
    ``stop`` is called from the charging thread when it is unknown whether a charge was written, and when
    the ledger was moved. It must not return. Nothing is answered after that.
    """

    def __init__(
        self,
        answerer: Answerer,
        ledger: ChargingLedger,
        *,
        unit: str,
        stop: Callable[[BaseException], object],
        most_waiting: int = 4096,
    ) -> None:
        self._answerer, self._ledger, self._unit, self._stop = answerer, ledger, unit, stop
        self._free = Reserved(each=answerer.reserve, uses=0)
        self._most_waiting, self.waiting = most_waiting, 0
        self._asked: SimpleQueue[Job | None] = SimpleQueue()
        self._tell_soon: Callable[[list[Job]], object] = self._tell
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread that answers runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start in the running event loop."""
        loop = asyncio.get_running_loop()
        self._tell_soon = lambda jobs: loop.call_soon_threadsafe(self._tell, jobs)
        self._thread.start()

    async def close(self) -> None:
        """Finish the waiting jobs and stop."""
        self._asked.put(_LAST)
        await asyncio.to_thread(self._thread.join)

    async def ask(self, account: str, key: str, rows: list[list[Any]]) -> list[Receipt]:
        """A receipt for each row, or :class:`Refused`."""
        if self.waiting + len(rows) > self._most_waiting:
            raise Refused(503, "busy", more=((b"retry-after", b"1"),))
        self.waiting += len(rows)
        done: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        self._asked.put(Job(account, key, rows, done))
        return await done

    def _work(self) -> None:
        """Serve all waiting jobs in rounds, until the batcher is closed."""
        while jobs := self._gathered():
            try:
                self._draw(jobs)
            except Exception:  # noqa: BLE001  (its message may quote private values)
                for job in jobs:
                    job.refused = Refused(500, "failed")
            try:
                self._charge([job for job in jobs if job.refused is None])
            except LedgerUnavailable as error:
                _LOG.warning("the ledger cannot be used now, nothing was answered: %s", error)
                for job in jobs:
                    job.refused = job.refused or unavailable()
            except BaseException as error:  # noqa: BLE001  (it is unknown what is written: no answers)
                self._stop(error)
                return
            self._tell_soon(jobs)

    def _gathered(self) -> list[Job]:
        """All waiting jobs, at least one; an empty list after the last."""
        jobs: list[Job] = []
        n_rows = 0
        found = self._asked.get()
        while found is not _LAST:
            jobs.append(found)
            n_rows += len(found.rows)
            if n_rows >= _MOST_ROWS:
                return jobs
            try:
                found = self._asked.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._asked.put(_LAST)  # for the next round
        return jobs

    def _draw(self, jobs: list[Job]) -> None:
        features = self._answerer.features([row for job in jobs for row in job.rows])
        usable = ~np.isnan(features).any(axis=1)
        start = 0
        good = []
        for job in jobs:
            rows = slice(start, start + len(job.rows))
            start = rows.stop
            if usable[rows].all():
                good.append((job, features[rows]))
            else:
                job.refused = Refused(400, "bad_schema", "a number is too far from the public rows")
        if not good:
            return
        answered = iter(self._answerer.answer(np.concatenate([kept for _, kept in good])))
        for job, kept in good:
            job.answered = [next(answered) for _ in kept]

    def _charge(self, jobs: list[Job]) -> None:
        asked = [self._questions(job) for job in jobs]
        together = [one for each in asked for one in each]
        outcomes = iter(self._ledger.charge_each(together, unit=self._unit) if together else [])
        for job, each in zip(jobs, asked, strict=True):
            _settle(job, [next(outcomes) for _ in each])

    def _marker(self, job: Job) -> ChargeRequest:
        """A free entry that binds the key to this batch, and requires that the whole batch fits."""
        named = hashlib.sha256(" ".join(each.digest for each in job.answered).encode()).hexdigest()
        n = len(job.answered)
        return ChargeRequest(
            account=job.account,
            key=job.key,
            digest=named,
            cost=self._free,
            reserve=self._answerer.reserve,
            answer=n,
            times=n,
        )

    def _questions(self, job: Job) -> list[ChargeRequest]:
        """The charges of a job. A batch begins with the entry that binds its key."""
        single = len(job.answered) == 1
        rows = [
            ChargeRequest(
                account=job.account,
                key=job.key if single else f"{job.key}/{number}",
                digest=each.digest,
                cost=each.cost,
                reserve=self._answerer.reserve,
                answer=each.answer,
                follows=not single,
            )
            for number, each in enumerate(job.answered)
        ]
        return rows if single else [self._marker(job), *rows]

    def _tell(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.waiting -= len(job.rows)
            if job.done.done():  # disconnected: it is charged, and a retry gets the answer
                continue
            if job.refused is not None:
                job.done.set_exception(job.refused)
            else:
                job.done.set_result(job.receipts)


def _settle(job: Job, outcomes: Sequence[Receipt | BudgetExceeded | KeyConflict]) -> None:
    """Answer a job as a whole or refuse it as a whole. Charges stay on record for a retry."""
    if any(isinstance(outcome, KeyConflict) for outcome in outcomes):
        job.refused = Refused(409, "key_conflict")
    elif any(isinstance(outcome, BudgetExceeded) for outcome in outcomes):
        job.refused = Refused(402, "budget_exceeded")
    else:
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        job.receipts = receipts[-len(job.answered) :]  # without the receipt of the marker

"""Answer rows: count votes, draw the noisy answers, charge them, and only then return them.

One thread takes all waiting requests, a micro-batch: it votes, draws, charges and returns the results.
Nothing is answered before its charge is on stable storage. A micro-batch has a fixed cost, and both threads
share one interpreter lock: so the event loop first writes the replies of one batch and reads what is there
to be read, and only then hands the next one over.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import threading
import time
import unicodedata
import warnings
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.door import release_each
from ostraka.core.ledger.budget import BudgetExceeded, KeyConflict, LedgerUnavailable
from ostraka.core.ledger.chain import ChargeRequest, Receipt
from ostraka.core.mechanisms.screen import Confident
from ostraka.core.numeric import one_thread
from ostraka.core.private import Private
from ostraka.data.columns import CompiledEncoder
from ostraka.secure.rounds import PartyError
from ostraka.serve.requests import Refused, unavailable
from ostraka.voters.endpoint import EndpointError
from ostraka.voters.kinds import LinearTeachers
from ostraka.voters.saved import VotersAwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.core.consistent import Consistent
    from ostraka.core.curve import Curve
    from ostraka.core.door import Drawn
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.voters.saved import SavedTeachers

_FURTHEST = 2.0**22 - 1  # grid steps from zero, the range of `Consistent` less one
_LOG = logging.getLogger("ostraka.serve")
_MOST_ROWS = 512  # of one micro-batch
# A request is read in one turn of the event loop and asked in the next one.
_QUIET_TURNS = 2
PATIENCE = 1.0  # seconds that requests wait for a ledger that does not answer
LOOK = PATIENCE / 4  # seconds between two looks at whether it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A number of uses of one mechanism for a ledger entry; zero uses cost nothing."""

    each: BallotMechanism
    uses: int

    def curve(self) -> Curve:
        """Cost of all uses, whatever the data."""
        return self.uses * self.each.curve()


def mechanism_of(saved: SavedTeachers) -> BallotMechanism:
    """The mechanism of one answer: the argmax alone, or behind its screen."""
    if saved.screen is None:
        return saved.mechanism
    return Confident(screen=saved.screen, argmax=saved.mechanism)


class Answerer:
    """A voter with its mechanism. A repeated question gets the same label and takes the same time.

    Rows are moved to the middle of their grid cells first. So votes, noise and label are functions
    of the question's digest, and a repeated question takes as much work as a new one. Texts are brought
    to Unicode's form NFC instead.
    """

    def __init__(self, saved: SavedTeachers, consistent: Consistent) -> None:
        self._saved = saved
        self._consistent = consistent
        self._linear = None
        if saved.kind == "teachers":
            self._linear = LinearTeachers.of(
                saved.ensemble.teachers_, n_classes=len(saved.classes), n_features=len(saved.grid)
            )
        self._encoder = (
            None if saved.encoder is None else CompiledEncoder.of(saved.encoder, len(saved.columns))
        )
        self._steps = np.array([saved.grid[str(j)] for j in range(len(saved.grid))])
        self.reserve = mechanism_of(saved)

    def features(self, rows: Sequence[list[Any]]) -> np.ndarray:
        """Features of checked rows, shape (n_rows, n_features), or their texts, shape (n_rows, 1)."""
        if not self._saved.grid:
            return np.array([[unicodedata.normalize("NFC", text)] for (text,) in rows], dtype=object)
        if self._saved.encoder is None:
            features = np.array(rows, dtype=np.float64)
        elif self._encoder is not None:
            features = self._encoder(rows)
        else:
            cells = np.empty((len(rows), len(self._saved.columns)), dtype=object)
            cells[:] = rows
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                features = np.asarray(self._saved.encoder.transform(cells), dtype=np.float64)
        return features

    def usable(self, features: np.ndarray) -> np.ndarray:
        """Which rows are within the grid; texts always are."""
        if not self._saved.grid:
            return np.ones(len(features), dtype=bool)
        within: np.ndarray = (np.abs(features) <= _FURTHEST * self._steps).all(axis=1)
        return within

    def answer(
        self,
        features: np.ndarray,
        *,
        ledger: Ledger,
        requests: Callable[[list[Drawn]], Sequence[ChargeRequest]],
    ) -> list[Receipt | BudgetExceeded | KeyConflict]:
        """Answer usable rows, each with its own question's noise; see ``release_each``."""
        rows = self._consistent.snap(features) if self._saved.grid else features
        if self._linear is not None:
            with one_thread():  # more threads take longer, and on a busy machine ten times as long
                votes = Private(self._linear.counts(rows), self._saved.adjacency)
        else:
            with warnings.catch_warnings():  # the number of failing teachers is private
                warnings.simplefilter("ignore")
                votes = self._saved.vote(rows)
        return release_each(
            self.reserve,
            votes,
            self._consistent.digests(rows),
            consistent=self._consistent,
            ledger=ledger,
            requests=requests,
        )


def require_servable(saved: SavedTeachers, price: BallotMechanism, budget: Budget) -> None:
    """Refuse a budget below one answer, and votes with noise in them, which are spent before the charge."""
    if saved.adjacency.noise_sigma:
        raise ValueError(
            "parties that add their own noise (noise='parties') spend with every round, but a service counts "
            "votes before it charges: serve an agreement with noise='aggregator'"
        )
    if not budget.allows(price.curve()):
        raise BudgetExceeded(
            f"epsilon {budget.epsilon:g} at delta {budget.delta:g} does not pay for one answer of "
            f"{price!r}: type a larger --sigma, or a larger --epsilon for a new service",
            asked=price.curve().epsilon(budget.delta),
            left=budget.epsilon,
        )


@dataclass(slots=True, eq=False)
class Job:
    """One HTTP request: the rows of one client under one key, and the future of its outcome."""

    account: str
    key: str
    rows: list[list[Any]]
    done: asyncio.Future[list[Receipt]]
    start: float = field(default_factory=time.monotonic)
    charging: bool = False
    refused: Refused | None = None
    receipts: list[Receipt] = field(default_factory=list)


class Batcher:
    """Answers jobs with receipts, many jobs in one transaction.

    Where the ledger cannot be used for a while, requests get 503 and the next ones are tried again.
    ``stop`` is called from the charging thread when it is unknown whether a charge was written, and when
    the ledger was moved. It must not return. Nothing is answered after that.
    """

    def __init__(
        self,
        answerer: Answerer,
        ledger: Ledger,
        *,
        stop: Callable[[BaseException], object],
        most_waiting: int = 4096,
    ) -> None:
        self._answerer, self._ledger, self._stop = answerer, ledger, stop
        self._free = Reserved(each=answerer.reserve, uses=0)
        self._most_waiting, self.waiting = most_waiting, 0
        self._asked: SimpleQueue[list[Job] | None] = SimpleQueue()  # whose jobs are taken together
        self._gathering: list[Job] = []  # not handed over to the thread yet
        self._handed_over = dict[Job, None]()  # jobs that the thread has
        self._watched = False
        self._tell_soon: Callable[[list[Job]], object] = self._tell
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the answering thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the answering thread in the running event loop."""
        loop = asyncio.get_running_loop()
        self._tell_soon = lambda jobs: loop.call_soon_threadsafe(self._tell, jobs)
        self._thread.start()

    async def close(self) -> None:
        """Finish the waiting jobs and stop."""
        self._hand_over()
        self._asked.put(None)  # the end
        await asyncio.to_thread(self._thread.join)

    async def ask(self, account: str, key: str, rows: list[list[Any]]) -> list[Receipt]:
        """Return a receipt for each row, or raise :class:`Refused`."""
        if self.waiting + len(rows) > self._most_waiting:
            raise Refused(503, "busy", more=((b"retry-after", b"1"),))
        self.waiting += len(rows)
        done: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        self._gathering.append(Job(account, key, rows, done))
        if len(self._gathering) == 1 and not self._handed_over:
            self._gather()
        if not self._watched:
            self._watched = True
            asyncio.get_running_loop().call_later(LOOK, self._watch)
        return await done

    def _watch(self) -> None:
        """Give requests up that wait for a ledger which does not answer. A retry gets what was charged."""
        if self._ledger.waited() > PATIENCE:
            late = time.monotonic() - PATIENCE
            for job in (*self._handed_over, *self._gathering):
                if job.start < late and not job.done.done():
                    job.done.set_exception(unavailable())
        self._watched = bool(self._handed_over or self._gathering)
        if self._watched:
            asyncio.get_running_loop().call_later(LOOK, self._watch)

    def _gather(self, n_before: int = 0, quiet: int = 0) -> None:
        """Hand the waiting jobs over once the event loop reads no more; call it while none is answered."""
        quiet = quiet + 1 if len(self._gathering) == n_before else 0
        if quiet > _QUIET_TURNS or n_before >= _MOST_ROWS:
            self._hand_over()
        elif self._gathering:
            asyncio.get_running_loop().call_soon(self._gather, len(self._gathering), quiet)

    def _hand_over(self) -> None:
        jobs, self._gathering = self._gathering, []
        self._handed_over.update(dict.fromkeys(jobs))
        self._asked.put(jobs)

    def _work(self) -> None:
        """Serve all waiting jobs in rounds, until the batcher is closed."""
        waiting = deque[Job]()
        while True:
            while not waiting:
                together = self._asked.get()
                if together is None:
                    return
                waiting.extend(together)
            jobs, n_rows = list[Job](), 0
            while waiting and n_rows < _MOST_ROWS:
                jobs.append(waiting.popleft())
                n_rows += len(jobs[-1].rows)
            try:
                self._answer(jobs)
            except LedgerUnavailable as error:
                _LOG.warning(
                    "the ledger cannot be used now, nothing was answered: %s",
                    error,
                    extra={"event": "ledger.unavailable"},
                )
                _refuse(jobs, unavailable())
            except (EndpointError, PartyError, VotersAwayError) as error:  # nothing was drawn
                _LOG.warning(
                    "the voters elsewhere do not answer (%s): nothing was charged",
                    type(error).__name__,
                    extra={"event": "voters.unavailable"},
                )
                _refuse(jobs, unavailable())
            except BaseException as error:  # noqa: BLE001  (it is unknown what is written: no answers)
                if any(job.charging for job in jobs) or not isinstance(error, Exception):
                    self._stop(error)
                    return
                _refuse(jobs, Refused(500, "failed"))  # its message may quote private values
            self._tell_soon(jobs)

    def _answer(self, jobs: list[Job]) -> None:
        """Vote, draw, charge and settle all jobs whose rows are valid inputs of the teachers."""
        features = self._answerer.features([row for job in jobs for row in job.rows])
        usable = self._answerer.usable(features)
        owners = np.repeat(np.arange(len(jobs)), [len(job.rows) for job in jobs])
        unfit = set(owners[~usable].tolist())
        for number in unfit:
            jobs[number].refused = Refused(400, "bad_schema", "a number is too far from the public rows")
        fit = [job for number, job in enumerate(jobs) if number not in unfit]
        if not fit:
            return

        def requests(answers: list[Drawn]) -> list[ChargeRequest]:
            """Return the charge requests of all jobs; a later failure may leave charges on record."""
            charges, queue, reserve = list[ChargeRequest](), iter(answers), self._answerer.reserve
            for job in fit:
                job.charging, n = True, len(job.rows)
                drawn = list(itertools.islice(queue, n))
                if n > 1:  # a free entry that binds the key to this batch, and requires that all of it fits
                    digest = hashlib.sha256(" ".join(answer.digest for answer in drawn).encode()).hexdigest()
                    marker = ChargeRequest(
                        account=job.account,
                        key=job.key,
                        digest=digest,
                        cost=self._free,
                        reserve=reserve,
                        answer=n,
                        times=n,
                    )
                    charges.append(marker)
                charges += [
                    ChargeRequest(
                        account=job.account,
                        key=job.key if n == 1 else f"{job.key}/{number}",
                        digest=answer.digest,
                        cost=answer.cost,
                        reserve=reserve,
                        answer=answer.answer,
                        follows=n > 1,
                    )
                    for number, answer in enumerate(drawn)
                ]
            return charges

        rows = features[~np.isin(owners, list(unfit))] if unfit else features
        outcomes = iter(self._answerer.answer(rows, ledger=self._ledger, requests=requests))
        for job in fit:  # answered as a whole or refused as a whole; charges stay on record for a retry
            n = len(job.rows)
            results = list(itertools.islice(outcomes, n + (n > 1)))
            receipts = [outcome for outcome in results if isinstance(outcome, Receipt)]
            if len(receipts) == len(results):
                job.receipts = receipts[-n:]  # without that of the entry which binds a batch
            elif any(isinstance(outcome, KeyConflict) for outcome in results):
                job.refused = Refused(409, "key_conflict")
            else:
                job.refused = Refused(402, "budget_exceeded")

    def _tell(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.waiting -= len(job.rows)
            self._handed_over.pop(job, None)
            if job.done.done():  # disconnected or given up: it is charged, and a retry gets the answer
                continue
            if job.refused is not None:
                job.done.set_exception(job.refused)
            else:
                job.done.set_result(job.receipts)
        if not self._handed_over:
            self._gather()  # replies are written first, and what these clients ask next is in this batch


def _refuse(jobs: Sequence[Job], refused: Refused) -> None:
    for job in jobs:
        job.refused = job.refused or refused

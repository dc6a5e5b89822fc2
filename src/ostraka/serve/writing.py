"""Answers from private documents over HTTP: ``POST /v1/write``, paid by a client before they are written."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ostraka.core import check
from ostraka.core.ledger.budget import BudgetExceeded, KeyConflict
from ostraka.core.ledger.chain import ChargeRequest
from ostraka.core.randomness import os_keyed
from ostraka.secure import server
from ostraka.secure.server import Limits, Reply, Request
from ostraka.serve.answering import Reserved
from ostraka.serve.app import Keyed, Route, docs, health, in_time, schema
from ostraka.serve.keys import CLIENT, Holder, Keyring
from ostraka.serve.openapi import answering
from ostraka.serve.requests import Buckets, Refused, idempotency_key, left_header, strict

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.text.writer import Writer

_LOG = logging.getLogger("ostraka.serve")
_MOST_BODY, _LONGEST = 16 * 1024, 2_000  # bytes; characters of a question
_WAIT = 20.0  # seconds after which a client is told to ask again with the same key
_KEPT = 3600.0  # seconds that an answer waits for its client; later it is made of the stored tokens


class WritingApplication(Keyed):
    """What a server serves: answers of one writer, to clients with keys and caps of their own.

    Parameters
    ----------
    writer : Writer
        With its documents and a store. Its epsilon is the price of one answer.
    ledger : Ledger
        Of the documents. It binds to their unit with the first answer.
    keys : Keyring
        A client's epsilon is its cap.
    retrieve : int
    at : float
        As of :meth:`~ostraka.text.Writer.answer`. Public, and the same for all questions.
    pace : float, seconds
        Answers leave at whole multiples of this after the question came, so that a client sees the time that
        an answer takes, and with it how many documents are near, in these steps only. Choose it so long that
        all answers take one. Public.
    rate, burst : float, int
        Questions a second, and at once, of one client.
    log_requests : bool
        Log a line for each request.

    Guarantees
    ----------
    An answer is charged to its client's cap and to the ledger, durably, before a document is read. The same
    question costs the ledger nothing the second time, and its client the price. A retry with the same
    Idempotency-Key costs nothing. What a client learns from one answer is what
    :meth:`~ostraka.text.Writer.answer` says, and the number of steps.
    """

    def __init__(
        self,
        writer: Writer,
        ledger: Ledger,
        keys: Keyring,
        *,
        retrieve: int,
        at: float,
        pace: float = 60.0,
        rate: float = 1.0,
        burst: int = 10,
        log_requests: bool = False,
    ) -> None:
        super().__init__(
            ROUTES,
            keys,
            limits=Limits(most_body=_MOST_BODY),
            document=answering(ROUTES, longest=_LONGEST),
            log_requests=log_requests,
        )
        check.integer(retrieve=retrieve, least=1)
        check.finite(at=at)
        check.positive(pace=pace)
        self._writer, self._ledger = writer, ledger
        self._retrieve, self._at, self._pace = retrieve, at, pace
        self._buckets = Buckets(rate=rate, burst=burst)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writing")  # a model answers one at a time
        self._granted = False  # whether the caps of the file of keys are in the ledger
        self._written: dict[tuple[str, str, str], asyncio.Task[Reply]] = {}

    async def start(self) -> None:
        """Nothing has to be started."""

    async def close(self) -> None:
        """Finish what is being written: it is paid."""
        if self._written:
            await asyncio.wait(self._written.values())
        await asyncio.to_thread(self._thread.shutdown)

    def holder(self, request: Request) -> Holder | None:
        """The holder of the request's key, by the file of keys as it is now."""
        with contextlib.suppress(OSError, ValueError):  # then no key is valid
            self._granted = not self.keys.refresh() and self._granted
        return super().holder(request)

    async def write(self, request: Request) -> Reply:
        """An answer, drawn token by token from the documents that are near the question.

        It takes long. A reply 503 with the code ``unfinished`` means: ask again with the same
        Idempotency-Key.
        """
        who, key, content = request.who.name, idempotency_key(request.headers), strict(request.body)
        question = content.get("question") if isinstance(content, dict) and len(content) == 1 else None
        if not isinstance(question, str) or not 1 <= len(question) <= _LONGEST:
            raise Refused(
                400, "bad_schema", f'the body must be {{"question": text}} with 1 to {_LONGEST} characters'
            )
        self._buckets.pace(who, 1)
        name = who, key, hashlib.sha256(question.encode()).hexdigest()
        task = self._written.get(name)
        if task is None:
            task = self._written[name] = asyncio.create_task(self._paced(who, key, question))
            task.add_done_callback(functools.partial(self._keep, name))
        if not (await asyncio.wait({task}, timeout=_WAIT))[0]:
            raise Refused(503, "unfinished", more=((b"retry-after", b"2"),))
        self._written.pop(name, None)
        return task.result()

    def _keep(self, name: tuple[str, str, str], task: asyncio.Task[Reply]) -> None:
        """Forget an answer after a while; of a failure that nobody asks for, asyncio must log no message."""
        asyncio.get_running_loop().call_later(_KEPT, self._written.pop, name, None)
        if not task.cancelled():
            task.exception()

    async def _paced(self, who: str, key: str, question: str) -> Reply:
        start, loop = time.monotonic(), asyncio.get_running_loop()
        outcome: Reply | Exception
        try:
            outcome = await loop.run_in_executor(self._thread, self._answered, who, key, question)
        except server.Refused:
            raise  # no document was read
        except Exception as error:  # noqa: BLE001  (when it failed must not tell of the documents either)
            outcome = error
        steps = max(1, math.ceil((time.monotonic() - start) / self._pace))
        await asyncio.sleep(start + steps * self._pace - time.monotonic())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _answered(self, who: str, key: str, question: str) -> Reply:
        """Charge, and then write. In the one thread that asks the model."""
        self._grant()
        asked = self._writer.question(question, retrieve=self._retrieve, at=self._at)
        price = Reserved(each=asked.draw, uses=asked.uses)
        digest = hashlib.sha256(asked.name.encode()).hexdigest()
        charge = ChargeRequest(account=who, key=key, digest=digest, cost=price, reserve=price, answer=0)
        [outcome] = self._ledger.charge_each([charge], unit=asked.unit)
        if isinstance(outcome, KeyConflict):
            raise Refused(409, "key_conflict")
        if isinstance(outcome, BudgetExceeded):
            raise Refused(402, "budget_exceeded", more=(left_header(self._account(who)["left"]),))
        text = asked.text(os_keyed())
        receipt = {"seq": outcome.seq, "head": outcome.head}
        return Reply.json({"text": text, "receipt": receipt}, more=(left_header(outcome.left),))

    def _grant(self) -> None:
        """Write the caps of the file of keys into the ledger, where they changed."""
        if self._granted:
            return
        for name, epsilon, by in self.keys.grants(self._ledger):
            self._ledger.grant(name, budget_epsilon=epsilon, by=by)
        self._granted = True

    async def budget(self, request: Request) -> Reply:
        """Budget of the client."""

        def mine() -> dict[str, Any]:
            self._grant()
            return self._account(request.who.name)

        return Reply.json(await in_time(self, mine))

    def _account(self, who: str) -> dict[str, Any]:
        accounts = {account.name: account for account in self._ledger.accounts()}
        mine = accounts.get(who)
        if mine is None:
            return {"client": who, "epsilon": 0, "spent": 0, "left": 0}
        return {"client": who, "epsilon": mine.cap, "spent": mine.spent, "left": mine.left}


ROUTES = (
    Route("POST", "/v1/write", (CLIENT,), WritingApplication.write, "Answer a question in words."),
    Route("GET", "/v1/budget", (CLIENT,), WritingApplication.budget, "Budget granted, spent and left."),
    Route("GET", "/health", (), health, "Whether the service is alive."),
    Route("GET", "/openapi.json", (), schema, "This interface, as OpenAPI 3.1."),
    Route("GET", "/docs", (), docs, "This interface, as a page."),
)

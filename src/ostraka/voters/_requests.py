"""Asking: many prompts at once, each answer written down as it comes, none asked for twice.

A prompt that the model cannot be asked costs one ballot and is never an error: whose text it holds
would show. An error means that a *public* prompt failed as well, or that there were too many
requests, whatever they held.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ostraka.voters._endpoint import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ostraka.voters._cassette import Cassette
    from ostraka.voters._endpoint import Line

__all__ = ["Asking", "EndpointError", "Question"]


class EndpointError(RuntimeError):
    """The language model does not answer, whatever it is asked. Nothing that was answered is lost.

    Vote again to go on: what is on the cassette is not asked for again.
    """


class Question(NamedTuple):
    """A prompt, and what its answer is filed under."""

    name: str
    prompt: str


class Asking:
    """One run over the prompts that have no answer yet."""

    def __init__(
        self, line: Line, cassette: Cassette, *, probe: Question, told: Callable[[int], object]
    ) -> None:
        self._line = line
        self._cassette = cassette
        self._probe = probe
        self._told = told
        self._stop = threading.Event()
        self._health = threading.Lock()

    def ask(self, questions: Iterable[Question]) -> None:
        """Ask the public probe, unless its answer is known, and then everything else.

        An interrupt begins nothing new, waits for what is under way, and writes it down.

        Raises
        ------
        EndpointError
            The probe failed, or there were too many requests.
        """
        done = 0
        if self._probe.name not in self._cassette:
            self._public()
            done = 1
        waiting = (question for question in questions if question.name != self._probe.name)
        pool = ThreadPoolExecutor(self._line.concurrency, thread_name_prefix="ostraka-ask")
        under_way: deque[Future[int | Failure]] = deque()
        try:
            while True:
                # a few batches ahead are enough: prompts are many, and each is made when it is needed
                while len(under_way) < 2 * self._line.concurrency and (
                    batch := list(islice(waiting, self._line.batch))
                ):
                    under_way.append(pool.submit(self._work, batch))
                if not under_way:
                    return
                wait(under_way, return_when=FIRST_COMPLETED)
                for future in [future for future in under_way if future.done()]:
                    under_way.remove(future)
                    done += self._counted(future.result())
                self._told(done)
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            self._cassette.close()

    def _work(self, batch: list[Question]) -> int | Failure:
        """How many of a batch are settled, or why no prompt at all would be answered."""
        got = self._line.ask([question.prompt for question in batch], self._stop)
        if self._stop.is_set() and isinstance(got, Failure):
            return 0
        if isinstance(got, Failure) and len(batch) > 1:
            return self._one_by_one(batch)
        if isinstance(got, Failure):
            return self._alone(batch[0], got)
        self._cassette.record((question.name, answer) for question, answer in zip(batch, got, strict=True))
        return len(batch)

    def _one_by_one(self, batch: list[Question]) -> int | Failure:
        """A function that fails on 32 prompts may fail because of one."""
        for question in batch:
            got = self._work([question])
            if isinstance(got, Failure):
                return got
        return len(batch)

    def _alone(self, question: Question, why: Failure) -> int | Failure:
        """Whether it is the prompt or the endpoint, by asking something public."""
        if why.whose == "endpoint":
            return why
        with self._health:
            sick = self._line.ask([self._probe.prompt], self._stop)
        if isinstance(sick, Failure):
            return 0 if self._stop.is_set() else sick
        again = self._line.ask([question.prompt], self._stop)  # it may have failed in an outage just over
        if isinstance(again, Failure) and (self._stop.is_set() or again.whose == "endpoint"):
            return 0 if self._stop.is_set() else again
        self._cassette.record([(question.name, None if isinstance(again, Failure) else again[0])])
        return 1

    def _public(self) -> None:
        """Whether anybody is there, before anything private is sent."""
        got = self._line.ask([self._probe.prompt], self._stop)
        if isinstance(got, Failure):
            raise EndpointError(f"{_SILENT}: {got.why}; nothing private was sent{_hint(got.why)}")
        self._cassette.record([(self._probe.name, got[0])])

    def _counted(self, outcome: int | Failure) -> int:
        if isinstance(outcome, Failure):
            raise EndpointError(
                f"{_SILENT}: {outcome.why}; vote again to go on, what was answered is not asked again"
                f"{_hint(outcome.why)}"
            )
        return outcome


_SILENT = "the language model does not answer, not even a prompt without private text"
_HINTS = {
    "status 400": "do settings= suit the model?",
    "status 401": "does key_env= name the environment variable with the API key?",
    "status 403": "may this key use this model?",
    "status 404": "is url the base, which mostly ends in /v1, and model right?",
    "status 429": "too many requests or no credit: lower concurrency=, or wait",
    "status 3": "redirects are not followed: give the final url",
    "the function": "call it with a prompt of your own to see why",
    "Connect": "is it running, and is url right?",
}


def _hint(why: str) -> str:
    """What to look at, for a failure that many have had."""
    return next((f" ({hint})" for start, hint in _HINTS.items() if why.startswith(start)), "")

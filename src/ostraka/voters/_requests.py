"""Send many prompts concurrently, and store each answer as soon as it arrives.

A prompt that the model cannot answer costs one ballot and never raises, because an error would reveal
something about its private text. An error means that a *public* prompt failed as well, or that there were
too many requests.
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

    from ostraka.voters._endpoint import Client
    from ostraka.voters._response_cache import ResponseCache

__all__ = ["EndpointError", "Request", "RequestRun"]


class EndpointError(RuntimeError):
    """The language model does not answer even a public prompt. Answers that arrived are stored.

    Vote again to continue: a prompt whose answer is in the response cache is not sent again.
    """


class Request(NamedTuple):
    """A prompt, and the name of its answer in the cache."""

    name: str
    prompt: str


class RequestRun:
    """One run over the prompts without an answer."""

    def __init__(
        self,
        client: Client,
        response_cache: ResponseCache,
        *,
        probe: Request,
        on_progress: Callable[[int], object],
    ) -> None:
        self._client = client
        self._responses = response_cache
        self._probe = probe
        self._on_progress = on_progress
        self._stop = threading.Event()
        self._probe_lock = threading.Lock()

    def run(self, requests: Iterable[Request]) -> None:
        """Send the public probe, unless its answer is known, and then all other prompts.

        An interrupt stops new requests, waits for those under way, and stores their answers.

        Raises
        ------
        EndpointError
            The probe failed, or there were too many requests.
        """
        done = 0
        if self._probe.name not in self._responses:
            self._send_probe()
            done = 1
        waiting = (each for each in requests if each.name != self._probe.name)
        pool = ThreadPoolExecutor(self._client.concurrency, thread_name_prefix="ostraka-ask")
        under_way: deque[Future[int | Failure]] = deque()
        try:
            while True:
                # only a few batches ahead: there can be millions of prompts, each made when needed
                while len(under_way) < 2 * self._client.concurrency and (
                    batch := list(islice(waiting, self._client.batch))
                ):
                    under_way.append(pool.submit(self._work, batch))
                if not under_way:
                    return
                wait(under_way, return_when=FIRST_COMPLETED)
                for future in [future for future in under_way if future.done()]:
                    under_way.remove(future)
                    done += self._counted(future.result())
                self._on_progress(done)
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            self._responses.close()

    def _work(self, batch: list[Request]) -> int | Failure:
        """Return how many prompts of a batch are done, or the reason why the endpoint answers none."""
        got = self._client.ask([each.prompt for each in batch], self._stop)
        if self._stop.is_set() and isinstance(got, Failure):
            return 0
        if isinstance(got, Failure) and len(batch) > 1:
            return self._one_by_one(batch)
        if isinstance(got, Failure):
            return self._single(batch[0], got)
        self._responses.record((each.name, answer) for each, answer in zip(batch, got, strict=True))
        return len(batch)

    def _one_by_one(self, batch: list[Request]) -> int | Failure:
        """Send a batch one prompt at a time, because one prompt can make a function fail."""
        for request in batch:
            got = self._work([request])
            if isinstance(got, Failure):
                return got
        return len(batch)

    def _single(self, request: Request, failure: Failure) -> int | Failure:
        """Find out with the public probe whether the prompt or the endpoint failed."""
        if failure.cause == "endpoint":
            return failure
        with self._probe_lock:
            probed = self._client.ask([self._probe.prompt], self._stop)
        if isinstance(probed, Failure):
            return 0 if self._stop.is_set() else probed
        again = self._client.ask([request.prompt], self._stop)  # the first failure may have been an outage
        if isinstance(again, Failure) and (self._stop.is_set() or again.cause == "endpoint"):
            return 0 if self._stop.is_set() else again
        self._responses.record([(request.name, None if isinstance(again, Failure) else again[0])])
        return 1

    def _send_probe(self) -> None:
        """Send the public probe before anything private is sent."""
        got = self._client.ask([self._probe.prompt], self._stop)
        if isinstance(got, Failure):
            raise EndpointError(f"{_NO_ANSWER}: {got.reason}; nothing private was sent{_hint(got.reason)}")
        self._responses.record([(self._probe.name, got[0])])

    def _counted(self, outcome: int | Failure) -> int:
        if isinstance(outcome, Failure):
            raise EndpointError(
                f"{_NO_ANSWER}: {outcome.reason}; vote again to continue; answers that arrived are stored"
                f"{_hint(outcome.reason)}"
            )
        return outcome


_NO_ANSWER = "the language model does not answer, not even a prompt without private text"
_HINTS = {
    "status 400": "do settings= suit the model?",
    "status 401": "does key_env= name the environment variable with the API key?",
    "status 403": "may this key use this model?",
    "status 404": "is url the base, which usually ends in /v1, and is model right?",
    "status 429": "too many requests or no credit: lower concurrency=, or wait",
    "status 3": "redirects are not followed: give the final url",
    "the function": "call it with a public prompt to see why",
    "Connect": "is it running, and is url right?",
}


def _hint(reason: str) -> str:
    """Advice for a common failure."""
    return next((f" ({hint})" for start, hint in _HINTS.items() if reason.startswith(start)), "")

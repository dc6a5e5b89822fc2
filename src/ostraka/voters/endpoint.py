"""Requests to a language model, at an HTTP endpoint or by a function, and a cache of its answers.

Prompts are sent concurrently, and each answer is stored as soon as it arrives. A prompt that the model cannot
answer costs one ballot and never raises, because an error would reveal something about its private text. An
error means that a *public* prompt failed as well, or that there were too many requests.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

from ostraka.core import check, files
from ostraka.secure.log import Log
from ostraka.secure.wire import Late, Line, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_PATHS = {"chat": "/chat/completions", "text": "/completions"}
_RESERVED = {"messages", "model", "n", "prompt", "stream"}
_TEMPORARY = {408, 409, 425, 429}  # and 500 or more: the same request may succeed later
_LONGEST_PAUSE = 60.0  # seconds between two attempts, unless the server asks for more
_LONGEST_WAIT = 300.0  # seconds that a server may ask for; a longer wait counts as a refusal
_LARGEST = 1 << 20  # bytes of an answer
_BATCH = 32  # prompts in a call of a function: the most answers that a crash can lose
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
_NAME, _KEY, _KEY_BYTES = "ostraka response cache", "key", 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint and its limits. Public: it holds the name of the key, not the key.

    Attributes
    ----------
    url : str
        The base, such as ``"https://api.openai.com/v1"`` or ``"http://localhost:8000/v1"``.
    api : str
        ``"chat"`` uses ``/chat/completions``, ``"text"`` uses ``/completions``.
    key_env : str or None
        Name of the environment variable that holds the API key. None: no key is sent.
    settings : mapping
        Sent with every prompt, and part of the name of an answer in the cache.
    concurrency : int
        Number of concurrent requests.
    timeout : float
        Seconds for one request, from connecting to the last byte.
    retries : int
        Attempts after the first, on 408, 409, 425, 429, 5xx, timeouts, dropped connections and
        answers that are not a completion.
    pause : float
        Seconds before the first retry. It doubles with each retry, up to a minute. ``Retry-After``
        applies to all requests, up to five minutes.
    allow_http : bool
        Allow private texts to be sent unencrypted to another machine.

    Raises
    ------
    ValueError
        The URL is neither https nor this machine; it has a user, password or query; a reserved setting.

    Examples
    --------
    >>> Endpoint("http://localhost:8000/v1").host
    'localhost'
    >>> Endpoint("http://models.example/v1")
    Traceback (most recent call last):
        ...
    ValueError: url must be https for models.example: prompts hold private texts; allow_http=True sends them unencrypted
    """  # noqa: E501  (the message is one line)

    url: str
    _: KW_ONLY
    api: str = "chat"
    key_env: str | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0, "max_tokens": 8})
    concurrency: int = 8
    timeout: float = 60.0
    retries: int = 6
    pause: float = 1.0
    allow_http: bool = False

    def __post_init__(self) -> None:
        check.one_of(api=self.api, allowed=tuple(_PATHS))
        check.integer(concurrency=self.concurrency, least=1)
        check.integer(retries=self.retries, least=0)
        check.positive(timeout=self.timeout, pause=self.pause)
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
            raise ValueError("url must be like https://host/v1, without user or password: name key_env=")
        if parts.query or parts.fragment or parts.path.rstrip("/").endswith("/completions"):
            raise ValueError("url must be the base, such as https://host/v1, without query or method")
        if parts.scheme == "http" and not (self.loopback or self.allow_http):
            raise ValueError(
                f"url must be https for {self.host}: prompts hold private texts; "
                "allow_http=True sends them unencrypted"
            )
        if reserved := sorted(_RESERVED & set(self.settings)):
            raise ValueError(f"settings must leave out {', '.join(reserved)}")
        try:
            json.dumps(dict(self.settings))
        except (TypeError, ValueError):
            raise ValueError("settings must be JSON values") from None

    @property
    def host(self) -> str:
        """The host that reads the prompts."""
        return urlsplit(self.url).hostname or ""

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine."""
        return is_loopback(self.host)

    @property
    def answer_tokens(self) -> int | None:
        """The bound of an answer's length in the settings, or None."""
        limit = self.settings.get("max_completion_tokens", self.settings.get("max_tokens"))
        return limit if isinstance(limit, int) else None


class EndpointError(RuntimeError):
    """The language model does not answer even a public prompt. Answers that arrived are stored.

    Vote again to continue: a prompt whose answer is in the response cache is not sent again.
    """


class Failure(NamedTuple):
    """The reason why a prompt got no answer. It quotes neither prompt nor answer."""

    reason: str
    temporary: bool = False  # the same request may succeed later
    cause: str = "prompt"  # "endpoint": too many requests, independent of the prompt
    wait: float | None = None  # seconds that the server asks for


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
            got = self._client.ask([self._probe.prompt], self._stop)
            if isinstance(got, Failure):
                raise EndpointError(
                    f"{_NO_ANSWER}: {got.reason}; nothing private was sent{_hint(got.reason)}"
                )
            self._responses.record([(self._probe.name, got[0])])
            done = 1
        waiting = (request for request in requests if request.name != self._probe.name)
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
                    outcome = future.result()
                    if isinstance(outcome, Failure):
                        raise EndpointError(
                            f"{_NO_ANSWER}: {outcome.reason}; vote again to continue; answers that arrived "
                            f"are stored{_hint(outcome.reason)}"
                        )
                    done += outcome
                self._on_progress(done)
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def _work(self, batch: list[Request]) -> int | Failure:
        """Return how many prompts of a batch are done, or the reason why the endpoint answers none."""
        got = self._client.ask([request.prompt for request in batch], self._stop)
        if self._stop.is_set() and isinstance(got, Failure):
            return 0
        if isinstance(got, Failure) and len(batch) > 1:
            # one at a time, because one prompt can make a function fail
            outcomes = (self._work([request]) for request in batch)
            return next((outcome for outcome in outcomes if isinstance(outcome, Failure)), len(batch))
        if isinstance(got, Failure):
            # the public probe shows whether the prompt or the endpoint failed
            if got.cause == "endpoint":
                return got
            with self._probe_lock:
                probed = self._client.ask([self._probe.prompt], self._stop)
            if isinstance(probed, Failure):
                return 0 if self._stop.is_set() else probed
            got = self._client.ask([batch[0].prompt], self._stop)  # the first failure may have been an outage
            if isinstance(got, Failure) and (self._stop.is_set() or got.cause == "endpoint"):
                return 0 if self._stop.is_set() else got
            self._responses.record([(batch[0].name, None if isinstance(got, Failure) else got[0])])
            return 1
        self._responses.record((request.name, answer) for request, answer in zip(batch, got, strict=True))
        return len(batch)


def _hint(reason: str) -> str:
    """Advice for a common failure."""
    return next((f" ({hint})" for start, hint in _HINTS.items() if reason.startswith(start)), "")


class Client:
    """Access to a language model: so many requests at a time, of so many prompts each."""

    concurrency = 1
    batch = 1

    def ask(self, prompts: Sequence[str], stop: threading.Event) -> list[str] | Failure:
        """The answers in order. Once ``stop`` is set, start no new request."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


class HTTPClient(Client):
    """Client of an endpoint, with retries. No error quotes a prompt."""

    def __init__(
        self, endpoint: Endpoint, model: str, *, read: Callable[[bytes, str], str | Failure] | None = None
    ) -> None:
        self.concurrency = endpoint.concurrency
        self._read = read or _completion  # what counts as the answer
        self._endpoint = endpoint
        self._model = model
        self._rest_until = 0.0
        headers, name = {"Content-Type": "application/json"}, endpoint.key_env
        if name is not None:  # messages never show the key
            key = os.environ.get(name, "").strip()
            if not key:
                raise ValueError(
                    f"key_env names {name}, but there is no such environment variable, or it is empty"
                )
            if not (key.isascii() and key.isprintable()) or " " in key:
                raise ValueError(
                    f"the key in environment variable {name} must be one word of ASCII characters"
                )
            headers["Authorization"] = f"Bearer {key}"
        # a proxy must not see local requests
        self._line = Line(endpoint.url, headers=headers, direct=endpoint.loopback)

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def ask(self, prompts: Sequence[str], stop: threading.Event) -> list[str] | Failure:
        """The answer to the only prompt, after at most ``retries`` retries."""
        (prompt,) = prompts
        chat = self._endpoint.api == "chat"
        question = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        body = json.dumps({"model": self._model, **self._endpoint.settings, **question}).encode()
        pause = self._endpoint.pause
        failure = Failure("not sent")
        for retries in range(self._endpoint.retries, -1, -1):
            stop.wait(max(0.0, self._rest_until - time.monotonic()))
            if stop.is_set():
                break
            got = self._once(body)
            if isinstance(got, str):
                return [got]
            failure = got
            if not failure.temporary or (failure.wait or 0.0) > _LONGEST_WAIT:
                break
            if failure.wait is not None:  # all requests wait, not only this one
                self._rest_until = max(self._rest_until, time.monotonic() + failure.wait)
            if retries:
                stop.wait(pause * (0.5 + secrets.SystemRandom().random() / 2))
                pause = min(2 * pause, max(_LONGEST_PAUSE, self._endpoint.pause))
        return failure

    def _once(self, body: bytes) -> str | Failure:
        try:
            got = self._line.ask(
                "POST", _PATHS[self._endpoint.api], body, seconds=self._endpoint.timeout, most=_LARGEST
            )
        except Late as late:
            return Failure(late.kind, temporary=True)
        if got.status != 200:
            cause = "endpoint" if got.status == 429 else "prompt"
            temporary = got.status in _TEMPORARY or got.status >= 500
            wait = None  # Retry-After holds seconds, or a date
            with contextlib.suppress(ValueError, TypeError):
                date = parsedate_to_datetime(got.headers.get("Retry-After", ""))
                wait = max(0.0, (date - datetime.now(UTC)).total_seconds())
            with contextlib.suppress(ValueError):
                wait = max(0.0, float(got.headers.get("Retry-After", "")))
            # the error codes; the message is dropped, because it may quote the prompt
            codes: list[str] = []
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
                error = json.loads(got.body)["error"]
                words = [error.get(name) for name in ("code", "type", "param")]
                codes = [w for w in words if isinstance(w, str) and len(w) <= 64 and w.isidentifier()]
            reason = f"status {got.status} ({', '.join(codes)})" if codes else f"status {got.status}"
            return Failure(reason, temporary=temporary, cause=cause, wait=wait)
        return self._read(got.body, self._endpoint.api)


class FunctionClient(Client):
    """Client of the caller's function."""

    batch = _BATCH

    def __init__(self, function: Callable[[list[str]], list[str]]) -> None:
        self._function = function

    def ask(self, prompts: Sequence[str], stop: threading.Event) -> list[str] | Failure:
        """The function's answers, if it returns one text for each prompt."""
        if stop.is_set():
            return Failure("stopped")
        try:
            answers = list(self._function(list(prompts)))
        except Exception as error:  # noqa: BLE001  (as above)
            return Failure(f"the function raised {type(error).__name__}")
        if len(answers) != len(prompts) or not all(isinstance(answer, str) for answer in answers):
            return Failure("the function must return one str for each prompt")
        return answers


def new_client(endpoint: Endpoint | Callable[[list[str]], list[str]], model: str) -> Client:
    """Return the client of an endpoint or of a function."""
    return HTTPClient(endpoint, model) if isinstance(endpoint, Endpoint) else FunctionClient(endpoint)


def settings_text(endpoint: Endpoint | Callable[[list[str]], list[str]], model: str) -> str:
    """Return what, beside the prompt, the name of an answer in the cache depends on."""
    how: dict[str, Any] = {"model": model, "api": "function", "settings": {}}
    if isinstance(endpoint, Endpoint):
        how |= {"api": endpoint.api, "settings": dict(endpoint.settings)}
    return json.dumps(how, sort_keys=True)


def _completion(content: bytes, api: str) -> str | Failure:
    try:
        choice = json.loads(content)["choices"][0]
        text = choice["message"]["content"] if api == "chat" else choice["text"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return Failure("the answer is not a completion", temporary=True)
    if text is None:  # the model declined
        return ""
    return text if isinstance(text, str) else Failure("the answer is not a completion", temporary=True)


class ResponseCache:
    """Answers by name. A name is a keyed hash of a prompt, so the file contains no prompt.

    The file is private: it holds the key, and each answer is a teacher's ballot, so that a reader can test a
    guess of a demonstration. Only its owner may read it.

    The file is a :class:`~ostraka.secure.log.Log`: an answer is on stable storage before :meth:`record`
    returns, a changed or lost one is an error, several processes may append, and the first of two answers to
    one prompt counts. To copy a cache, copy it with its ``.end``. A file of an earlier version is converted.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._answers: dict[str, str | None] = {}
        if self.path is not None and self.path.exists():
            if os.name == "posix" and self.path.stat().st_mode & 0o077:
                raise ValueError(
                    f"{path} holds private answers, but others can read it: type chmod 600 {path}"
                )
            _convert(self.path)
        self._log = Log(self.path, name=_NAME)
        self._key = self._log.once(_KEY, os.urandom(_KEY_BYTES))
        self._read = 0
        self.load()

    def secret(self, purpose: str) -> bytes:
        """32 bytes that only this cache can compute."""
        return hmac.digest(self._key, b"secret\0" + purpose.encode(), "sha256")

    def name(self, settings: str, prompt: str) -> str:
        """The name of a prompt's answer under these settings, which contain no zero byte."""
        content = f"question\0{settings}\0{prompt}".encode(errors="surrogatepass")
        return hmac.digest(self._key, content, "sha256").hex()

    def __contains__(self, name: str) -> bool:
        return name in self._answers

    def __getitem__(self, name: str) -> str | None:
        return self._answers[name]

    def load(self) -> None:
        """Read the answers that were appended since the last time, by any process."""
        for name, body in self._log.entries(after=self._read):
            self._read += 1
            if name is not None and name != _KEY:
                self._answers[name] = json.loads(body)

    def record(self, answers: Iterable[tuple[str, str | None]]) -> None:
        """Store answers durably; None stands for a prompt that the model cannot answer."""
        entries = [(name, json.dumps(answer).encode()) for name, answer in answers]
        for (name, _), first in zip(entries, self._log.once_each(entries), strict=True):
            self._answers[name] = json.loads(first)

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def _convert(path: Path) -> None:
    """Write a file of an earlier version, which had one line of JSON for each answer, as a log."""
    with path.open("rb") as file:
        first = file.readline()
        if not first.startswith(b"{"):
            return
        key = b""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            header = json.loads(first)
            if (header["ostraka"], header["version"]) == ("cassette", 1):
                key = bytes.fromhex(header["key"])
        if len(key) != _KEY_BYTES or not first.endswith(b"\n"):
            raise ValueError(
                f"{path} is not a response cache of ostraka: name another file, or restore a backup"
            )
        entries = [(_KEY, key)]
        for line in file:  # what a crash cut off counts as never written
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                record = json.loads(line)
                name, answer = record["name"], json.dumps(record["answer"])
                digest = hmac.digest(key, f"line\0{name}\0{answer}".encode(), "sha256").hex()[:16]
                if secrets.compare_digest(record["check"], digest):
                    entries.append((name, answer.encode()))
    copy = path.with_name(f"{path.name}.{os.getpid()}")  # of several processes each writes the same
    log = Log(copy, name=_NAME)
    log.once_each(entries)
    log.close()
    Path(f"{copy}.end").replace(f"{path}.end")
    copy.replace(path)
    files.sync_folder(path.parent)

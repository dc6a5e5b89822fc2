"""Access to a language model: an HTTP endpoint or a function."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import time
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from ostraka import _check

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

__all__ = ["Client", "Endpoint", "Failure", "FunctionClient", "HTTPClient", "new_client", "settings_text"]

_PATHS = {"chat": "/chat/completions", "text": "/completions"}
_RESERVED = {"messages", "model", "n", "prompt", "stream"}
_TEMPORARY = {408, 409, 425, 429}  # and 500 or more: the same request may succeed later
_LONGEST_PAUSE = 60.0  # seconds between two attempts, unless the server asks for more
_LONGEST_WAIT = 300.0  # seconds that a server may ask for; a longer wait counts as a refusal
_LARGEST = 1 << 20  # bytes of an answer
_BATCH = 32  # prompts in a call of a function: the most answers that a crash can lose


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
        _check.one_of(api=self.api, allowed=tuple(_PATHS))
        _check.integer(concurrency=self.concurrency, least=1)
        _check.integer(retries=self.retries, least=0)
        _check.positive(timeout=self.timeout, pause=self.pause)
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
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def answer_tokens(self) -> int | None:
        """The bound of an answer's length in the settings, or None."""
        most = self.settings.get("max_completion_tokens", self.settings.get("max_tokens"))
        return most if isinstance(most, int) else None


class Failure(NamedTuple):
    """The reason why a prompt got no answer. It quotes neither prompt nor answer."""

    reason: str
    temporary: bool = False  # the same request may succeed later
    cause: str = "prompt"  # "endpoint": too many requests, independent of the prompt
    wait: float | None = None  # seconds that the server asks for


class Client(Protocol):
    """Access to a language model."""

    concurrency: int
    batch: int

    def ask(self, prompts: Sequence[str], stop: threading.Event) -> list[str] | Failure:
        """The answers in order. Once ``stop`` is set, start no new request."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class HTTPClient:
    """Client of an endpoint, with retries. Errors of httpx are not passed on: they may quote a prompt."""

    batch = 1

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        httpx = _check.require("httpx", extra="llm")
        self.concurrency = endpoint.concurrency
        self._endpoint = endpoint
        self._model = model
        self._address = endpoint.url.rstrip("/") + _PATHS[endpoint.api]
        self._rest_until = 0.0
        self._client = httpx.Client(
            headers={"Content-Type": "application/json", **_authorization(endpoint.key_env)},
            timeout=endpoint.timeout,
            trust_env=not endpoint.loopback,  # a proxy must not see local requests
            follow_redirects=False,  # another host must not see the prompts
            limits=httpx.Limits(max_connections=None),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, prompts: Sequence[str], stop: threading.Event) -> list[str] | Failure:
        """The answer to the only prompt, after at most ``retries`` retries."""
        (prompt,) = prompts
        body = self._body(prompt)
        pause = self._endpoint.pause
        failure = Failure("not sent")
        for left in range(self._endpoint.retries, -1, -1):
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
            if left:
                stop.wait(pause * (0.5 + secrets.SystemRandom().random() / 2))
                pause = min(2 * pause, max(_LONGEST_PAUSE, self._endpoint.pause))
        return failure

    def _body(self, prompt: str) -> bytes:
        asked: dict[str, Any] = (
            {"messages": [{"role": "user", "content": prompt}]}
            if self._endpoint.api == "chat"
            else {"prompt": prompt}
        )
        return json.dumps({"model": self._model, **self._endpoint.settings, **asked}).encode()

    def _once(self, body: bytes) -> str | Failure:
        try:
            with self._client.stream("POST", self._address, content=body) as response:
                content = _content(response, until=time.monotonic() + self._endpoint.timeout)
                status, wait = response.status_code, _seconds(response.headers.get("Retry-After"))
        except Exception as error:  # noqa: BLE001  (its text may quote the prompt)
            return Failure(type(error).__name__, temporary=True)
        if content is None:
            return Failure("the answer was too long or too slow", temporary=True)
        if status != 200:
            cause = "endpoint" if status == 429 else "prompt"
            temporary = status in _TEMPORARY or status >= 500
            return Failure(f"status {status}{_reason(content)}", temporary=temporary, cause=cause, wait=wait)
        return _completion(content, self._endpoint.api)


class FunctionClient:
    """Client of the caller's function."""

    batch = _BATCH
    concurrency = 1

    def __init__(self, function: Callable[[list[str]], list[str]]) -> None:
        self._function = function

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

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


def new_client(
    endpoint: Endpoint | Callable[[list[str]], list[str]], model: str
) -> HTTPClient | FunctionClient:
    """Return the client of an endpoint or of a function."""
    return HTTPClient(endpoint, model) if isinstance(endpoint, Endpoint) else FunctionClient(endpoint)


def settings_text(endpoint: Endpoint | Callable[[list[str]], list[str]], model: str) -> str:
    """Return what, beside the prompt, the name of an answer in the cache depends on."""
    how: dict[str, Any] = {"model": model, "api": "function", "settings": {}}
    if isinstance(endpoint, Endpoint):
        how |= {"api": endpoint.api, "settings": dict(endpoint.settings)}
    return json.dumps(how, sort_keys=True)


def _authorization(name: str | None) -> dict[str, str]:
    """The header with the key. Messages never show the key."""
    if name is None:
        return {}
    key = os.environ.get(name, "").strip()
    if not key:
        raise ValueError(f"key_env names {name}, but there is no such environment variable, or it is empty")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError(f"the key in environment variable {name} must be one word of ASCII characters")
    return {"Authorization": f"Bearer {key}"}


def _content(response: Any, *, until: float) -> bytes | None:
    """The body; None if it is too long or too slow."""
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > _LARGEST or time.monotonic() > until:
            return None
    return bytes(body)


def _completion(content: bytes, api: str) -> str | Failure:
    try:
        choice = json.loads(content)["choices"][0]
        text = choice["message"]["content"] if api == "chat" else choice["text"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return Failure("the answer is not a completion", temporary=True)
    if text is None:  # the model declined
        return ""
    return text if isinstance(text, str) else Failure("the answer is not a completion", temporary=True)


def _reason(content: bytes) -> str:
    """The error codes of a response. Its message is dropped, because it may quote the prompt."""
    try:
        error = json.loads(content)["error"]
        words = [error.get(name) for name in ("code", "type", "param")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""
    short = [word for word in words if isinstance(word, str) and len(word) <= 64 and word.isidentifier()]
    return f" ({', '.join(short)})" if short else ""


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After header: seconds, or a date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None

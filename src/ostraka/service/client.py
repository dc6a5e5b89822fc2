"""HTTP client of a service, which retries requests under one idempotency key, so that each is paid once."""

from __future__ import annotations

import functools
import ipaddress
import random
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from ostraka import _check
from ostraka.ledger import BudgetExceeded
from ostraka.ledger.budget import OstrakaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Answer", "Client", "ServiceError"]

_AGAIN = frozenset({429, 500, 502, 503, 504})


class ServiceError(OstrakaError):
    """The service refused, or could not be reached.

    Attributes
    ----------
    status : int
        Of HTTP; 0 if no reply came.
    code : str
        What the service calls it, such as ``"key_conflict"``.
    """

    def __init__(self, message: str, *, status: int = 0, code: str = "unreachable") -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One label, with the receipt of its charge.

    Attributes
    ----------
    label : str, int or None
        One of the service's classes; None where the teachers abstained, which costs too.
    abstained : bool
    seq : int
    head : str
        Number and digest of the ledger's entry.
    left : float, nats
        Epsilon that the client had left afterwards.
    """

    label: Any
    abstained: bool
    seq: int
    head: str
    left: float


class Client:
    """A connection to a service. It may be shared by threads.

    Parameters
    ----------
    url : str
        Where the service is: ``https://…``, or ``http://`` on this machine.
    key : str
        An API key, as ``ostraka keys add`` showed it.
    patience : float > 0, seconds
        How long to go on trying before giving up. A retry has the same Idempotency-Key, so
        however many are needed, one is paid for.
    insecure : bool
        Send the key in clear to another machine: for a network that nobody else can read.
    transport : httpx.BaseTransport, optional
        For tests: where requests go instead of the network.

    Examples
    --------
    >>> import httpx
    >>> paid = {"label": 7, "abstained": False, "receipt": {"seq": 1, "head": "5e" * 32}}
    >>> def service(request):
    ...     return httpx.Response(200, json=paid, headers={"ostraka-left": "1.25"})
    >>> with Client("http://127.0.0.1", "ostraka_…", transport=httpx.MockTransport(service)) as client:
    ...     answer = client.label([0.0, 5.0, 13.0])
    >>> answer.label, answer.left
    (7, 1.25)
    """

    def __init__(
        self, url: str, key: str, *, patience: float = 60.0, insecure: bool = False, transport: Any = None
    ) -> None:
        _check.positive(patience=patience)
        if not (insecure or _is_private(url)):
            raise ValueError(
                f"url must begin with https://, or the key would travel in clear, got {url!r}: "
                "pass insecure=True if nobody else can read that network"
            )
        self._httpx: Any = _check.require("httpx", extra="service")
        headers = {"authorization": f"Bearer {key}"} if key.isascii() else {}
        self._http = self._httpx.Client(
            base_url=url, headers=headers, timeout=30.0, transport=transport, verify=_authorities()
        )
        self._patience = patience
        self._sleep: Callable[[float], None] = time.sleep

    def label(self, row: Sequence[Any], *, key: str | None = None) -> Answer:
        """Ask about one row.

        Parameters
        ----------
        row : sequence of numbers and text
            Public. One cell for each of the service's columns.
        key : str, optional
            The Idempotency-Key; None: a new one. Name it to get, after a crash of your own, the
            answer that was paid for before.

        Raises
        ------
        BudgetExceeded
            The budget does not pay for it.
        ServiceError
            Any other refusal, or no reply in time.
        """
        reply = self._ask({"row": _plain(row)}, key)
        return _answer(reply.json(), _left(reply))

    def label_all(self, rows: Sequence[Sequence[Any]], *, key: str | None = None) -> list[Answer]:
        """Ask about many rows in one request, which is answered whole or not at all.

        Parameters and exceptions as in :meth:`label`.
        """
        reply = self._ask({"rows": [_plain(row) for row in rows]}, key)
        return [_answer(each, _left(reply)) for each in reply.json()["results"]]

    def budget(self) -> dict[str, Any]:
        """The client's grant, the part spent and the part left, in nats."""
        found: dict[str, Any] = self._send("GET", "/v1/budget").json()
        return found

    def receipt(self, *, seq: int) -> dict[str, Any]:
        """The receipt of one of your own charges."""
        found: dict[str, Any] = self._send("GET", f"/v1/ledger/receipt/{seq}").json()
        return found

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url)!r})"

    def _ask(self, body: dict[str, Any], key: str | None) -> Any:
        name = secrets.token_hex(16) if key is None else key
        return self._send("POST", "/v1/label", json=body, headers={"idempotency-key": name})

    def _send(self, method: str, path: str, **more: Any) -> Any:
        """Send a request with retries; return the first reply that another try would not change."""
        until, wait = time.monotonic() + self._patience, 0.05
        while True:
            reply, trouble = None, "no reply"
            try:
                reply = self._http.request(method, path, **more)
            except self._httpx.TransportError as error:
                trouble = type(error).__name__
            if reply is not None and reply.status_code not in _AGAIN:
                return _accepted(reply)
            asked = float(reply.headers.get("retry-after", 0)) if reply is not None else 0.0
            pause = max(asked, wait * (0.5 + random.random()))  # noqa: S311  (apart from others, not secret)
            if time.monotonic() + pause > until:
                if reply is not None:
                    return _accepted(reply)
                raise ServiceError(f"{self!r} got no reply ({trouble}): is 'ostraka serve' running there?")
            self._sleep(pause)
            wait = min(2 * wait, 5.0)


@functools.cache
def _authorities() -> Any:
    """Certificates that HTTPX trusts: a client would read them anew, which takes longer than a request."""
    return _check.require("httpx", extra="service").create_ssl_context()


def _accepted(reply: Any) -> Any:
    if reply.status_code == 200:
        return reply
    try:
        told = reply.json()
        code, words = str(told["code"]), str(told["error"])
    except (ValueError, KeyError, TypeError):
        code, words = "unknown", "the reply is none of ostraka's"
    if reply.status_code == 402:
        raise BudgetExceeded(words, left=_left(reply))
    raise ServiceError(f"{words} (HTTP {reply.status_code})", status=reply.status_code, code=code)


def _answer(told: dict[str, Any], left: float) -> Answer:
    paid = told["receipt"]
    return Answer(
        label=told["label"], abstained=told["abstained"], seq=paid["seq"], head=paid["head"], left=left
    )


def _left(reply: Any) -> float:
    return float(reply.headers.get("ostraka-left", "0"))


def _is_private(url: str) -> bool:
    """Return whether the address is encrypted or local, so that nobody on a network can read the requests."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    host = parts.hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _plain(row: Sequence[Any]) -> list[Any]:
    """Convert cells to JSON types: NumPy's numbers to Python's."""
    return [cell.item() if hasattr(cell, "item") else cell for cell in row]

"""HTTP client of a service, which retries requests under one idempotency key, so that each is paid once."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ostraka.core import check
from ostraka.core.ledger.budget import BudgetExceeded, OstrakaError
from ostraka.secure.wire import Late, Line, address, is_loopback, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ostraka.secure.wire import Response

_Read = TypeVar("_Read")
_TRY = 30.0  # seconds of one try
_MOST = 2**26  # bytes of a reply


class ServiceError(OstrakaError):
    """The service refused, or could not be reached.

    Attributes
    ----------
    status : int
        Of HTTP; 0 if no reply came.
    code : str
        What the service calls it, such as ``"key_conflict"``.
    key : str
        The Idempotency-Key of the question. Where the outcome is unknown, ask the same again under it: it is
        charged once.
    """

    def __init__(self, message: str, *, status: int = 0, code: str = "unreachable", key: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.key = status, code, key


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
        How long to go on trying before giving up, however slowly the service speaks. A retry has the same
        Idempotency-Key, so however many are needed, one is paid for.
    insecure : bool
        Send the key in clear to another machine: for a network that nobody else can read.
    transport : function, optional
        For tests: where requests go instead of the network. It gets method, path, body and headers, and
        returns a ``Response`` (status, headers, body).

    Examples
    --------
    >>> from ostraka.secure.wire import Response
    >>> paid = b'{"label": 7, "abstained": false, "receipt": {"seq": 1, "head": "5e5e"}}'
    >>> def service(method, path, body, headers):
    ...     return Response(200, {"ostraka-left": "1.25"}, paid)
    >>> with Client("http://127.0.0.1", "ostraka_…", transport=service) as client:
    ...     answer = client.label([0.0, 5.0, 13.0])
    >>> answer.label, answer.left
    (7, 1.25)
    """

    def __init__(
        self, url: str, key: str, *, patience: float = 60.0, insecure: bool = False, transport: Any = None
    ) -> None:
        check.positive(patience=patience)
        parts = address(url)
        local = is_loopback(parts.hostname or "")
        if not (insecure or local or parts.scheme == "https"):
            raise ValueError(
                f"url must begin with https://, or the key would travel in clear, got {url!r}: "
                "pass insecure=True if nobody else can read that network"
            )
        headers = {"authorization": f"Bearer {key}"} if key.isascii() else {}
        self._url, self._patience = url, patience
        self._line = Line(url, headers=headers, direct=local, transport=transport)
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
            Any other refusal, a reply that is none of a service, or no reply in time.
        """
        return self._ask({"row": _plain(row)}, key, _answer)

    def label_all(self, rows: Sequence[Sequence[Any]], *, key: str | None = None) -> list[Answer]:
        """Ask about many rows in one request, which is answered whole or not at all.

        Parameters and exceptions as in :meth:`label`.
        """
        return self._ask(
            {"rows": [_plain(row) for row in rows]},
            key,
            lambda content, left: [_answer(result, left) for result in content["results"]],
        )

    def budget(self) -> dict[str, Any]:
        """The client's grant, the part spent and the part left, in nats."""
        return self._send("GET", "/v1/budget", _fields)

    def receipt(self, *, seq: int) -> dict[str, Any]:
        """The receipt of one of your own charges."""
        return self._send("GET", f"/v1/ledger/receipt/{seq}", _fields)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def _ask(self, content: dict[str, Any], key: str | None, read: Callable[[Any, float], _Read]) -> _Read:
        name = secrets.token_hex(16) if key is None else key
        headers = {"content-type": "application/json", "idempotency-key": name}
        body = json.dumps(content, allow_nan=False).encode()
        try:
            return self._send("POST", "/v1/label", read, body, headers)
        except ServiceError as error:
            error.key = name
            raise

    def _send(
        self,
        method: str,
        path: str,
        read: Callable[[Any, float], _Read],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Read:
        """Send a request until another try would not change the reply; read its content, and what is left."""
        limits: dict[str, Any] = {"seconds": self._patience, "each": _TRY, "most": _MOST, "tries": math.inf}
        try:
            reply = self._line.ask(method, path, body, headers, sleep=self._sleep, **limits)
        except Late as late:
            raise ServiceError(f"{self!r} got no reply ({late}): is 'ostraka serve' running there?") from None
        if reply.status == 200:
            with contextlib.suppress(LookupError, RecursionError, TypeError, ValueError):
                return read(json.loads(reply.body), _left(reply))
        code, words = words_of(reply.body) or ("unknown", "the reply is none of ostraka's")
        if reply.status == 402:
            raise BudgetExceeded(words, left=_left(reply))
        raise ServiceError(f"{words} (HTTP {reply.status})", status=reply.status, code=code)


def _answer(result: Any, left: float) -> Answer:
    label, abstained, receipt = result["label"], result["abstained"], result["receipt"]
    return Answer(label=label, abstained=abstained, seq=receipt["seq"], head=receipt["head"], left=left)


def _fields(content: Any, _left: float) -> dict[str, Any]:
    return {**content}


def _left(reply: Response) -> float:
    return float(reply.headers.get("ostraka-left", "0"))


def _plain(row: Sequence[Any]) -> list[Any]:
    """Convert cells to JSON types: NumPy's numbers to Python's."""
    return [cell.item() if hasattr(cell, "item") else cell for cell in row]

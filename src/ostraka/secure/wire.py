"""Messages between processes over HTTP: a server with limits, and the other end of it."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

from ostraka.secure.errors import PartyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.secure.errors import Code

__all__ = ["PartyServer", "Remote"]

_SILENCE = 30.0  # seconds a client may stay silent
_MOST_CLIENTS = 32
_MOST_ERROR = 2048  # bytes of an error that are read
_STATUS: dict[Code, int] = {
    "budget_exceeded": 402,
    "disagreement": 409,
    "internal": 500,
    "refused": 409,
    "unreachable": 503,
    "wrong_identity": 403,
}
_LOG = logging.getLogger(__name__)


class Answering(Protocol):
    """The interface of a party to the server in front of it."""

    @property
    def name(self) -> str:
        """For logs and refusals; public."""
        ...

    @property
    def answers(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """Each address and what answers there; it raises PartyError to refuse."""
        ...

    @property
    def most_bytes(self) -> int:
        """No valid message is longer."""
        ...


class PartyServer:
    """Serve one party over HTTP: on this machine only, unless told otherwise.

    Use it in a ``with`` statement (it then serves from a thread), or call :meth:`serve_forever`.

    Parameters
    ----------
    party : Party
        Whose methods answer the messages.
    port : int, default 0
        0: any free one; :attr:`url` says which.
    pages : mapping of str to (str, bytes), optional
        What a browser gets at each address: its content type and the bytes. All of it is public.
    host : str, default "127.0.0.1"
        The address to listen at. Beyond this machine put TLS in front: votes are masked and
        everything is signed, but the questions can be read on the way.

    Raises
    ------
    OSError
        The address is in use, or not this machine's.

    Guarantees
    ----------
    A request longer than the agreement allows is refused unread, silent clients are dropped after
    30 seconds, at most 32 are served at once. Errors hold nothing private. An unexpected failure is
    reported as ``internal``; its type is written to the log of this process.

    Examples
    --------
    >>> from ostraka.voters.parties import PartyEnsemble
    >>> from sklearn.naive_bayes import GaussianNB
    >>> ensemble = PartyEnsemble.in_process(
    ...     GaussianNB(), [([[0.0], [1.0]], [0, 1])] * 3, classes=[0, 1], sigma=1.0)
    >>> with PartyServer(ensemble.parties["party-1"]) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        party: Answering,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        pages: Mapping[str, tuple[str, bytes]] | None = None,
    ) -> None:
        kind = _Handler if pages is None else _PageHandler
        handler = type("Handler", (kind,), {"party": party, "most": party.most_bytes, "pages": pages or {}})
        self._server = _Server((host, port), handler)
        self._serving = threading.Event()

    @property
    def url(self) -> str:
        """The address at which the server listens."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def serve_forever(self) -> None:
        """Answer until :meth:`close` is called in another thread, or an interrupt."""
        self._serving.set()
        try:
            self._server.serve_forever(poll_interval=0.1)
        finally:
            self._serving.clear()

    def close(self) -> None:
        """Stop listening."""
        if self._serving.is_set():
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        self._serving.set()  # before the thread runs: whoever closes at once must wait for it
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a traceback may quote what a model was trained on."""


class _Handler(BaseHTTPRequestHandler):
    party: Answering
    most: int
    timeout = _SILENCE
    protocol_version = "HTTP/1.1"
    server_version = "ostraka"
    sys_version = ""

    def do_POST(self) -> None:
        """Answer one message."""
        self.close_connection = True
        answers = self.party.answers
        length = self.headers.get("Content-Length", "")
        if self.path not in answers:
            self._fail(404, "refused", f"there is {' and '.join(answers)}")
        elif not length.isascii() or not length.isdigit() or "Transfer-Encoding" in self.headers:
            self._fail(411, "refused", "the message must state its length")
        elif len(length) > 12 or int(length) > self.most:
            self._fail(413, "refused", f"the message must have at most {self.most} bytes")
        else:
            self._answer(answers[self.path], int(length))

    def _answer(self, answer: Any, length: int) -> None:
        try:
            body = answer(self.rfile.read(length))
        except PartyError as error:
            self._fail(_STATUS[error.code], error.code, str(error))
        except TimeoutError:
            self._fail(408, "refused", "the message did not arrive in time")
        except Exception as error:  # noqa: BLE001  (its text may be private; its kind is for the log)
            _LOG.error("%s failed to answer: %s", self.party.name, type(error).__name__)
            self._fail(500, "internal", f"{self.party.name} failed; its own log says how")
        else:
            self._send(200, "application/octet-stream", body)

    def _fail(self, status: int, code: Code, message: str) -> None:
        body = json.dumps({"ok": False, "code": code, "error": message}).encode()
        self._send(status, "application/json", body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name it has above)
        """Leave the screen alone."""


class _PageHandler(_Handler):
    """Also gives pages to browsers, which may load and ask nothing from elsewhere."""

    pages: Mapping[str, tuple[str, bytes]]

    def do_GET(self) -> None:
        """One of the pages."""
        self.close_connection = True
        found = self.pages.get(self.path.partition("?")[0])
        if found is None:
            self._fail(404, "refused", "there is no such page")
        else:
            self._send(200, found[0], found[1])

    def end_headers(self) -> None:
        """Add headers that restrict what a browser does with the page."""
        self.send_header("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()


class Remote:
    """A party elsewhere, as the aggregator sees it."""

    def __init__(self, name: str, url: str, *, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the address of {name} must be http://host:port or https://…, got {url!r}")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._name, self._path, self._timeout = name, parts.path.rstrip("/"), timeout

    def join(self, sealed: bytes, most: int) -> bytes:
        """Send a call; return the result of :meth:`Party.join`."""
        return self.ask("join", sealed, most)

    def vote(self, sealed: bytes, most: int) -> bytes:
        """Send a request; return the result of :meth:`Party.vote`."""
        return self.ask("vote", sealed, most)

    def ask(self, verb: str, body: bytes, most: int) -> bytes:
        """The reply to a message, of at most ``most`` bytes; PartyError names the party otherwise."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        try:
            connection.request(
                "POST", f"{self._path}/v1/{verb}", body, {"Content-Type": "application/octet-stream"}
            )
            with connection.getresponse() as response:
                if response.status != 200:
                    raise self._refused(response.status, response.read(_MOST_ERROR))
                data = response.read(most + 1)
        except (OSError, http.client.HTTPException) as error:
            raise PartyError(
                f"{self._name} does not answer ({type(error).__name__})",
                code="unreachable",
                parties=(self._name,),
            ) from None
        finally:
            connection.close()
        if len(data) > most:
            raise PartyError(
                f"{self._name} sent more than {most} bytes", code="refused", parties=(self._name,)
            )
        return data

    def _refused(self, status: int, body: bytes) -> PartyError:
        """The party's own words, if that is what they are."""
        try:
            said = json.loads(body)
            code, text = str(said["code"]), str(said["error"])
        except (ValueError, LookupError, TypeError, RecursionError):
            code, text = "refused", f"{self._name} answers with status {status}"
        printable = "".join(letter if letter.isprintable() else "?" for letter in text)[:300]
        known: Code = next((one for one in _STATUS if one == code), "refused")
        return PartyError(printable, code=known, parties=(self._name,))

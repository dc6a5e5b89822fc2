"""Messages between processes over HTTP: the one client, with a total deadline, and the server of a party.

:class:`Line` is the client of any HTTP server. A role (a party, dealer, keeper, tally or witness) is asked
through a :class:`Link`, in this process or elsewhere, and is served by :class:`PartyServer`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import http.client
import io
import ipaddress
import json
import logging
import math
import random
import select
import socket
import ssl
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from ostraka.secure.rounds import PartyError
from ostraka.secure.server import Limits, Refused, Reply, Server, gauge_lines, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from email.message import Message

    from ostraka.secure.rounds import Code
    from ostraka.secure.server import Request

_MOST_THREADS = 32  # messages that a party answers at once; more wait
_MOST_HELD = 2**27  # bytes of messages that arrive or are answered, unless two of the longest are more
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # the same request may succeed later
_TRIES = 4  # of a message that counts once
_MOST_ASKED = 16  # roles asked at once
_LONGEST_PAUSE = 5.0  # seconds between two tries, unless the server asks for more
_STATUS: dict[Code, int] = {
    "budget_exceeded": 402,
    "disagreement": 409,
    "internal": 500,
    "refused": 409,
    "unreachable": 503,
    "wrong_identity": 403,
}
_PAGE = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
)
# A role that serves pages may be asked by pages elsewhere: all that it says is public, masked or signed.
_ANY_PAGE = ((b"access-control-allow-origin", b"*"),)
_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_trusted = functools.cache(ssl.create_default_context)  # reading certificates takes longer than a request


class Response(NamedTuple):
    """A response, whatever its status."""

    status: int
    headers: Mapping[str, str] | Message
    body: bytes

    @property
    def pause(self) -> float:
        """Seconds that the server asks a client to wait."""
        seconds = self.headers.get("retry-after", "")
        return float(seconds) if seconds.isascii() and seconds.isdigit() else 0.0


class TooLong(http.client.HTTPException):
    """An answer of more bytes than were to be taken."""


class Late(OSError):  # noqa: N818  (the request may have been answered)
    """No answer in time, or no connection.

    Attributes
    ----------
    kind : str
        The name of the error below.
    sent : bool
        Whether the request may have arrived: its outcome is then unknown.
    """

    def __init__(self, kind: str, *, sent: bool) -> None:
        unknown = ": the outcome is unknown; the same request again counts once"
        super().__init__(kind + unknown if sent else kind)
        self.kind, self.sent = kind, sent


class _Timed(io.RawIOBase):
    """A socket whose waits all end at one moment: a peer that sends a byte now and then gains nothing."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self.sock, self.until = sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._hurry()
        return self.sock.recv_into(into)

    def makefile(self, *_: object) -> io.BufferedReader:
        """The whole answer, as http.client reads it."""
        return io.BufferedReader(self)

    def sendall(self, data: Any) -> None:
        """Send it all in time."""
        unsent = memoryview(data)
        while unsent:
            self._hurry()
            unsent = unsent[self.sock.send(unsent) :]

    def close(self) -> None:
        """Leave the socket open: http.client closes its reader after each answer."""

    def _hurry(self) -> None:
        self.sock.settimeout(_left(self.until))


class _Connection(http.client.HTTPConnection):
    """A connection to one server, which is used for one request at a time."""

    def __init__(self, host: str, port: int, timed: _Timed) -> None:
        super().__init__(host, port)
        self.timed = timed
        self.sock: Any = timed  # http.client writes to it, and reads its file

    def end(self) -> None:
        """Close the socket; :meth:`close` is also called while an answer is still to be read."""
        self.timed.sock.close()


class Line:
    """An HTTP server, as its client sees it. It may be shared by threads.

    Parameters
    ----------
    url : str
        ``http://…`` or ``https://…``, with a path that all others are put behind.
    headers : mapping of str to str
        Sent with each request.
    direct : bool
        Leave proxies of the environment out.
    transport : function, optional
        For tests: it gets method, path, body and headers, and returns a Response or raises Late.

    Guarantees
    ----------
    :meth:`ask` ends within ``seconds``, however slowly the server speaks (looking its name up excepted, which
    the system limits). It follows no redirect, and no error quotes what was sent.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        direct: bool = True,
        transport: Callable[[str, str, bytes | None, Mapping[str, str]], Response] | None = None,
    ) -> None:
        parts = address(url)
        self._host, secure = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if secure else 80)
        self._netloc = netloc(self._host, self._port)
        self._tls = _trusted() if secure else None
        self._path = parts.path.rstrip("/")
        proxies = {} if direct or urllib.request.proxy_bypass(self._host) else urllib.request.getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        self._proxy = urlsplit(proxy) if proxy else None
        self._headers, self._to_proxy = dict(headers or {}), {}
        if self._proxy is not None and self._proxy.username:
            user = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}".encode()
            self._to_proxy["Proxy-Authorization"] = f"Basic {base64.b64encode(user).decode()}"
        if not secure:
            self._headers |= self._to_proxy
        self._transport = transport
        self._free: list[_Connection] = []

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float,
        most: int,
        fresh: bool = False,
        tries: float = 1,
        each: float = math.inf,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Response:
        """Send a request; an idempotent one again, until an answer comes that another try would not change.

        Parameters
        ----------
        method, path, body, headers
            What is sent.
        seconds : float
            For all tries; each of them takes at most ``each``.
        most : int
            Bytes of the longest answer that is taken.
        fresh : bool
            On a new connection.
        tries : float
            How often at most.
        sleep : function
            Called with the seconds between two tries.

        Raises
        ------
        Late
            No answer in time, or one of more than ``most`` bytes. Whoever has an answer, whatever its status,
            when tries or time are up, gets that.
        """
        until, wait, sent = time.monotonic() + seconds, 0.05, False
        headers = {**self._headers, **(headers or {}), **({"Connection": "close"} if fresh else {})}
        while True:
            answer, kind = None, ""
            try:
                if self._transport is not None:
                    answer = self._transport(method, path, body, headers)
                else:
                    now = time.monotonic()
                    end = now + max(1e-3, min(each, until - now))
                    answer = self._ask(method, path, body, headers, until=end, most=most, fresh=fresh)
            except Late as error:
                kind, sent = error.kind, sent or error.sent
            tries -= 1
            if answer is not None and answer.status not in AGAIN:
                return answer
            server_pause = 0.0 if answer is None else answer.pause
            pause = max(server_pause, wait * (0.5 + random.random()))  # noqa: S311  (apart from others, not secret)
            if tries < 1 or time.monotonic() + pause > until or kind == TooLong.__name__:
                if answer is not None:
                    return answer
                raise Late(kind, sent=sent)
            sleep(pause)
            wait = min(2 * wait, _LONGEST_PAUSE)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        until: float,
        most: int,
        fresh: bool,
    ) -> Response:
        """Send a request once; Late: no answer in time, or one that is too long."""
        connection, sent = None if fresh else self._kept(), False
        try:
            if connection is None:
                connection = self._connected(until)
            connection.timed.until, sent = until, True
            target = f"{self._path}{path}" or "/"
            if self._proxy is not None and self._tls is None:
                target = f"http://{self._netloc}{self._path}{path}"
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            data = response.read(most + 1)
            if len(data) > most:
                raise TooLong  # noqa: TRY301  (the connection ends as after any other)
            if response.length:
                raise http.client.IncompleteRead(b"")  # noqa: TRY301  (read says nothing)
        except BaseException as error:
            if connection is not None:
                connection.end()
            if isinstance(error, OSError | http.client.HTTPException):
                raise Late(type(error).__name__, sent=sent) from None
            raise
        if fresh or response.will_close or not response.isclosed():
            connection.end()
        else:
            self._free.append(connection)
        return Response(response.status, response.headers, data)

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._free:
            self._free.pop().end()

    def _kept(self) -> _Connection | None:
        """A connection of before that the server has not closed meanwhile."""
        with contextlib.suppress(IndexError):  # another thread took the last one
            while connection := self._free.pop():
                waiting = select.poll()
                waiting.register(connection.timed.sock, select.POLLIN)
                if not waiting.poll(0):
                    return connection
                connection.end()
        return None

    def _connected(self, until: float) -> _Connection:
        """Connect to the server or its proxy, and shake hands."""
        proxy = self._proxy
        host, port = (self._host, self._port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        sock = _socket(host, port, until)
        try:
            if proxy is not None and self._tls is not None:
                timed = _Timed(sock, until)
                lines = [f"CONNECT {self._netloc} HTTP/1.1", f"Host: {self._netloc}"]
                lines += [f"{name}: {value}" for name, value in self._to_proxy.items()]
                timed.sendall("\r\n".join([*lines, "", ""]).encode())
                head = bytearray()
                while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows is TLS
                    byte = bytearray(1)
                    if not timed.readinto(byte) or len(head) > 16_384:
                        raise http.client.HTTPException  # noqa: TRY301  (its socket is closed)
                    head += byte
                if head.split(b" ", 2)[1:2] != [b"200"]:
                    raise http.client.HTTPException  # noqa: TRY301  (its socket is closed)
            if self._tls is not None:
                sock.settimeout(_left(until))
                sock = self._tls.wrap_socket(sock, server_hostname=self._host)
        except BaseException:
            sock.close()
            raise
        return _Connection(self._host, self._port, _Timed(sock, until))


def netloc(host: str, port: int) -> str:
    """Host and port as an address writes them.

    >>> netloc("::1", 8000)
    '[::1]:8000'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, so that nobody on a network can read what is sent to it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def words_of(body: bytes, *, most: int = 300) -> tuple[str, str] | None:
    """The code and the words of a refusal, without letters that cannot be printed; None if it is none."""
    try:
        content = json.loads(body)
        code, words = str(content["code"]), str(content["error"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return code, "".join(letter if letter.isprintable() else "?" for letter in words)[:most]


def _left(until: float) -> float:
    """Seconds until a moment; TimeoutError if it has come."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _socket(host: str, port: int, until: float) -> socket.socket:
    """Connect to the first address of a host that takes it."""
    failure: OSError = ConnectionError()
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left(until))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def address(url: str, whose: str = "") -> SplitResult:
    """The parts of an address of HTTP; ValueError for anything else."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port or of brackets
        usable = False
    if not usable:
        raise ValueError(f"the address{whose} must be http://host:port or https://…, got {url!r}")
    return parts


class Remote:
    """A party elsewhere, as the aggregator sees it."""

    def __init__(self, name: str, url: str, *, timeout: float) -> None:
        parts = address(url, f" of {name}")
        if parts.query or parts.fragment:
            raise ValueError(f"the address of {name} must be one without ? and #, got {url!r}")
        self._line = Line(url)
        self._name, self._timeout = name, timeout

    def ask(self, verb: str, body: bytes, most: int, *, again: bool = False) -> bytes:
        """The reply to a message, of at most ``most`` bytes; PartyError names the party otherwise.

        ``again``: the message counts once however often it arrives, so it is sent until it is answered.
        """
        return self._ask("POST", f"/v1/{verb}", body, most, again=again)

    def page(self, path: str, most: int) -> bytes:
        """The content that is served at a path, of at most ``most`` bytes; PartyError as :meth:`ask`."""
        return self._ask("GET", path, None, most, again=True)

    def _ask(self, method: str, path: str, body: bytes | None, most: int, *, again: bool) -> bytes:
        headers = {} if body is None else {"Content-Type": "application/octet-stream"}
        how: dict[str, Any] = {"seconds": self._timeout, "most": max(most, 2048), "fresh": True}
        too_long = self._failed(f"{self._name} sent more than {most} bytes", "refused")
        try:
            answer = self._line.ask(method, path, body, headers, tries=_TRIES if again else 1, **how)
        except Late as late:
            if late.kind == TooLong.__name__:
                raise too_long from None
            advice = f"; {str(late).partition(': ')[2]}" if again and late.sent else ""
            raise self._failed(f"{self._name} does not answer ({late.kind}){advice}", "unreachable") from None
        if answer.status != 200:
            code, words = words_of(answer.body) or ("", f"{self._name} answers with status {answer.status}")
            raise self._failed(words, next((name for name in _STATUS if name == code), "refused"))
        if len(answer.body) > most:
            raise too_long
        return answer.body

    def _failed(self, words: str, code: Code) -> PartyError:
        return PartyError(words, code=code, parties=(self._name,))


class Answering(Protocol):
    """The interface of a party to the server in front of it."""

    @property
    def name(self) -> str:
        """The name in logs and refusals; public."""
        ...

    @property
    def answers(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """Each address and what answers there; it raises PartyError to refuse."""
        ...

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        ...


class Link(Protocol):
    """A link to a role in this process or elsewhere."""

    def ask(self, verb: str, body: bytes, most: int, *, again: bool = False) -> bytes:
        """The reply to a message, as of :class:`Remote`."""
        ...


class Local:
    """A link to a role in this process."""

    def __init__(self, party: Answering) -> None:
        self._party = party

    def ask(self, verb: str, body: bytes, most: int, *, again: bool = False) -> bytes:  # noqa: ARG002
        """The reply to a message."""
        return self._party.answers[f"/v1/{verb}"](body)


def link(name: str, role: Answering | str, *, timeout: float) -> Link:
    """Return the link to a role in this process, or to the one at an address."""
    return Remote(name, role, timeout=timeout) if isinstance(role, str) else Local(role)


def ask_all(
    names: Sequence[str], ask: Callable[[str], Answer]
) -> tuple[dict[str, Answer], dict[str, PartyError]]:
    """Ask all roles at once; return their answers and their refusals, by name. Other errors are raised."""
    answers: dict[str, Answer] = {}
    refusals: dict[str, PartyError] = {}
    with ThreadPoolExecutor(min(len(names), _MOST_ASKED)) as pool:
        tasks = {name: pool.submit(ask, name) for name in names}
    for name, task in tasks.items():
        try:
            answers[name] = task.result()
        except PartyError as error:
            refusals[name] = error
    return answers, refusals


class _Messages:
    """A party as an application of a server: each message is answered in a thread."""

    server: Server | None = None

    def __init__(self, party: Answering, pages: Mapping[str, tuple[str, bytes]]) -> None:
        size = party.most_bytes
        self.limits = Limits(
            most_body=size,
            most_held=max(_MOST_HELD, 2 * size),  # nobody's signature is checked before a message is whole
            at_once=min(512, max(2 * _MOST_THREADS, 2**28 // size)),
        )
        self.party, self.pool = party, ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="ostraka-party")
        self._more = _ANY_PAGE if pages else ()
        states = {"/health": b'{"ok": true}', "/ready": b'{"ready": true}'}
        self._pages = {path: Reply(200, body) for path, body in states.items()}
        self._pages |= {
            path: Reply(200, body, kind.encode(), more=(*_PAGE, *_ANY_PAGE))
            for path, (kind, body) in pages.items()
        }

    def admit(self, request: Request) -> bool:
        """Find the route. Messages are signed, so the server treats every sender as a stranger."""
        gets, answers = request.path in self._pages or request.path == "/metrics", self.party.answers
        if request.path not in answers and not gets:
            request.refused = Refused(404, "not_found", f"there is {' and '.join(answers)}")
        elif request.method != ("GET" if gets else "POST"):
            request.refused = Refused(405, "bad_method", more=((b"allow", b"GET" if gets else b"POST"),))
        elif not gets and not request.headers.get(b"content-length", b"").isdigit():
            request.refused = Refused(411, "no_length")
        return False

    async def start(self) -> None:
        """Nothing has to be started."""

    async def close(self) -> None:
        """Wait for no message: its sender has gone."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    async def reply(self, request: Request) -> Reply:
        """The page, or what the party answers."""
        if request.refused is not None:
            return request.refused.reply
        if request.path == "/metrics" and self.server is not None:
            text = "\n".join(gauge_lines(self.server.gauges())) + "\n"
            return Reply(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")
        if request.path in self._pages:
            return self._pages[request.path]
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._answer, request)

    def _answer(self, request: Request) -> Reply:
        try:
            body = self.party.answers[request.path](request.body)
        except PartyError as error:
            return Refused(_STATUS[error.code], error.code, str(error), more=self._more).reply
        except Exception as error:  # noqa: BLE001  (its text may be private; its kind is for the log)
            _LOG.error("%s failed to answer: %s", self.party.name, type(error).__name__)
            return Refused(500, "internal", f"{self.party.name} failed; its own log says how").reply
        return Reply(200, body, b"application/octet-stream", more=self._more)


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
    A request longer than the agreement allows is refused unread. A head has 5 seconds, a body 5 and one for
    each 64 kB, and where too many are slow the oldest is dropped; at most 32 are answered at once, and others
    wait. All messages together take at most 128 MiB before they are answered, or twice the longest that is
    agreed. Errors hold nothing private. An unexpected failure is reported as ``internal``; the log of this
    process has its type.

    Examples
    --------
    >>> from ostraka.parties.parties import PartyEnsemble
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
        self.server = Server(_Messages(party, pages or {}), listening(host, port))
        self.url = f"http://{netloc(*self.server.socket.getsockname()[:2])}"

    def serve_forever(self) -> None:
        """Answer until :meth:`close` is called in another thread, or an interrupt."""
        asyncio.run(self.server.serve())

    def close(self) -> None:
        """Stop listening."""
        self.server.stop()

    def __enter__(self) -> Self:  # whoever connects before the thread runs waits in the socket's queue
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._thread.join()

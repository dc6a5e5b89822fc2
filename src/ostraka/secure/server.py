"""The HTTP server of services, tallies, keepers, parties and dealers: limits from accept to the last byte.

A connection is a stranger's from its arrival on. Strangers may be slow, but not long and not many: each wait
has a deadline, and where there are too many of them, in all or of one address, the oldest is dropped. This
is counted before TLS, so silence costs a descriptor and no handshake. Whoever has sent a complete request is
no stranger while it is answered, so slow clients do not compete with working ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import json
import logging
import os
import resource
import socket
import ssl
import traceback
from collections import Counter, OrderedDict, deque
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_LOG = logging.getLogger("ostraka.wire")
REQUEST: ContextVar[str] = ContextVar("ostraka_request", default="")
REQUEST_HEADER = b"ostraka-request"
# Codes of refusals that any server may give, with the default message of each.
WORDS = {
    "bad_request": "this is no request in HTTP/1.1 that can be read in one way only",
    "not_found": "there is nothing here",
    "bad_method": "this path does not take this method",
    "no_length": "the message must state its length",
    "too_large": "the body is too large",
    "late": "the request did not arrive in time",
    "busy": "too much is waiting: try again, with the same Idempotency-Key",
    "unavailable": "there is no answer in time, and its outcome is unknown: try again, with the same "
    "Idempotency-Key",
    "failed": "the server failed to answer; its own log says where",
}
_NOTHING_ELSE = (
    b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; "
    b"frame-ancestors 'none'; base-uri 'none'"
)
Headers = tuple[tuple[bytes, bytes], ...]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Headers that must not be repeated: a proxy could read one value and this server the other.
_ONCE = frozenset(
    b"authorization content-encoding content-type host idempotency-key transfer-encoding".split()
)
_VERSIONS = frozenset({"1.0", "1.1"})
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_MOST_FILES = 16_384  # open files: connections, most of all
_BACKLOG = 4_096  # connections that arrive within one turn of the loop; the system may allow fewer
_HANDSHAKE, _RECORD_HEAD = 0x16, 5  # of TLS: the kind of its first record, and the bytes before its content
_LONGEST_RECORD = 2**14  # RFC 8446, Sec. 5.1
_LOOK = 0.25  # seconds between two looks at the deadlines
_LINGER = 1.0  # seconds in which a body that was refused may still arrive
_GRACE = 10.0  # seconds for answers in progress when the server stops
_NEVER = float("inf")
_HEAD = (
    b"%s\r\ncontent-type: %s\r\ncontent-length: %d\r\ncache-control: no-store\r\n"
    b"x-content-type-options: nosniff\r\n%s\r\n%s"
)
_STATUS = {status.value: b"HTTP/1.1 %d %s" % (status, status.phrase.encode()) for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and headers of a response."""

    status: int
    body: bytes
    kind: bytes = b"application/json"
    more: Headers = ()

    @classmethod
    def json(cls, content: Any, *, status: int = 200, more: Headers = ()) -> Reply:
        """A body in strict JSON."""
        return cls(status, json.dumps(content, allow_nan=False, ensure_ascii=False).encode(), more=more)

    @classmethod
    def html(cls, page: str, *, more: Headers = ()) -> Reply:
        """A self-contained HTML page without scripts."""
        policy = (b"content-security-policy", _NOTHING_ELSE)
        return cls(200, page.encode(), b"text/html; charset=utf-8", (policy, *more))

    def raw(self, *also: tuple[bytes, bytes], keep_alive: bool = False, with_body: bool = True) -> bytes:
        """The reply as the bytes of an HTTP/1.1 response, with further headers."""
        lines = b"".join([b"%s: %s\r\n" % header for header in (*self.more, *also)])
        if not keep_alive:
            lines += b"connection: close\r\n"
        start, body = _STATUS[self.status], self.body if with_body else b""
        return _HEAD % (start, self.kind, len(self.body), lines, body)


class Refused(Exception):  # noqa: N818  (a reply, not a defect)
    """A refused request: status, code, and a message that quotes nothing private."""

    def __init__(self, status: int, code: str, words: str = "", *, more: Headers = ()) -> None:
        super().__init__(code)
        self.status, self.code = status, code
        self.reply = Reply.json(
            {"ok": False, "code": code, "error": words or WORDS[code]}, status=status, more=more
        )


@dataclass(slots=True)
class Request:
    """A request. The application may note in ``route``, ``last`` and ``who`` what its head says."""

    method: str = ""
    path: str = ""
    query: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""
    certificate: str = ""  # the common name in the client's certificate of TLS
    keep: bool = False
    refused: Refused | None = None
    route: Any = None
    last: str = ""
    who: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many strangers, how long each wait, how much of everything. All are public.

    Attributes
    ----------
    most_strangers : int
        Connections without a complete request. Never more than half of the process's descriptors.
    share : float in (0, 1]
        The part of them that one address may have, unless it is a proxy's.
    head_seconds, idle_seconds, write_seconds : float
        For TLS and a request's head; between two requests; for a client to read.
    answer_seconds : float
        After which a client is told that the outcome is unknown.
    least_rate : float
        Bytes a second of a body, beyond ``head_seconds``.
    most_head, most_body, most_held : int
        Bytes of path and headers, of one body, and of all bodies that arrive or wait for their answer.
    at_once : int
        Requests that are being answered.
    """

    most_strangers: int = 2_000
    share: float = 0.5
    head_seconds: float = 5.0
    idle_seconds: float = 30.0
    write_seconds: float = 20.0
    answer_seconds: float = _NEVER
    least_rate: float = 65_536.0
    most_head: int = 16 * 1024
    most_body: int = 64 * 1024
    most_held: int = 2**28
    at_once: int = 512


class Application(Protocol):
    """What a server serves."""

    limits: Limits
    server: Server | None  # set by the server

    def admit(self, request: Request) -> bool:
        """Look at a head: whether its sender is known, and so no stranger.

        It may set ``request.refused``; a body is then not read.
        """
        ...

    async def reply(self, request: Request) -> Reply:
        """Return the reply to a complete request, or that of ``request.refused``. It raises nothing."""
        ...

    async def start(self) -> None:
        """Get ready; nobody is answered before."""
        ...

    async def close(self) -> None:
        """End, when nobody is served any more."""
        ...


class Strangers:
    """Connections that have sent no complete request, or have been answered without a valid key.

    A new connection is always taken. Where there are too many of strangers, an older one is dropped:
    first one that was answered already, then the one that waits longest.

    Parameters
    ----------
    most : int
        Connections in all.
    share : float in (0, 1]
        The part of them that one address may have, unless it is a proxy's.
    proxies : sequence of networks
        Addresses whose ``X-Forwarded-For`` counts.
    """

    def __init__(self, *, most: int, share: float, proxies: Sequence[Network] = ()) -> None:
        self._most, self._most_of_one, self._proxies = most, max(1, int(share * most)), tuple(proxies)
        self._waiting: OrderedDict[Any, str] = OrderedDict()
        self._answered: OrderedDict[Any, str] = OrderedDict()
        self._count: Counter[str] = Counter()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    @property
    def crowded(self) -> bool:
        """Whether a stranger's connection should be closed after its reply."""
        return len(self) > self._most // 2

    def arrived(self, connection: Any, peer: str, *, answered: bool = False) -> None:
        """Register a connection, and drop another one if there are too many."""
        group = _grouped(peer)
        (self._answered if answered else self._waiting)[connection] = group  # it has a method drop
        self._count[group] += 1
        if self._count[group] > self._most_of_one and not self._is_proxy(peer):
            self.drop(group)
        elif len(self) > self._most:
            self.drop()

    def left(self, connection: Any) -> None:
        """Forget a connection that has ended or has sent a request."""
        group = self._waiting.pop(connection, None) or self._answered.pop(connection, None)
        if group is not None:
            self._count[group] -= 1
            if not self._count[group]:
                del self._count[group]

    def replaced(self, connection: Any, other: Any) -> bool:
        """Give the place of a connection to another one; return whether it had one."""
        group = self._waiting.pop(connection, None)
        if group is not None:
            self._waiting[other] = group
        return group is not None

    def drop(self, group: str | None = None) -> bool:
        """Drop the oldest, of one address or of all; return whether there was one."""
        for kind in (self._answered, self._waiting):
            for connection, address in kind.items():
                if group in (None, address):
                    self.dropped += 1
                    self.left(connection)
                    connection.drop()
                    return True
        return False

    def address(self, peer: str, forwarded: bytes) -> str:
        """Return the client's address: the peer's, or the one that a trusted proxy reports."""
        claimed = [hop.strip() for hop in forwarded.decode("latin-1").split(",")] if forwarded else []
        address = peer
        while claimed and self._is_proxy(address):
            address = claimed.pop()
        return _grouped(address)

    def _is_proxy(self, address: str) -> bool:
        with contextlib.suppress(ValueError):
            place = ipaddress.ip_address(address)
            return any(place in network for network in self._proxies)
        return False


def networks(names: Sequence[str]) -> list[Network]:
    """Parse networks such as 10.0.0.0/8 or ::1."""
    try:
        return [ipaddress.ip_network(name) for name in names]
    except ValueError as error:
        raise ValueError(f"proxy must be an address or a network such as 10.0.0.0/8: {error}") from None


@functools.lru_cache(maxsize=4096)  # strangers come often, and many of one address
def _grouped(address: str) -> str:
    """One customer's IPv6 addresses are one address."""
    try:
        place = ipaddress.ip_address(address)
    except ValueError:
        return "unreadable"
    return str(ipaddress.ip_network((place, 64), strict=False)) if place.version == 6 else str(place)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; what it accepts sends at once, as the system hands that on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def metric_lines(name: str, kind: str, meaning: str, samples: Iterable[str]) -> list[str]:
    """A metric as lines of Prometheus text; ``samples`` are what follows its name."""
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *(name + sample for sample in samples)]


def gauge_lines(gauges: Iterable[tuple[str, str, float]]) -> list[str]:
    """Gauges (name, meaning, value) as lines of Prometheus text."""
    return [
        line
        for name, meaning, value in gauges
        for line in metric_lines(name, "gauge", meaning, [f" {value:g}"])
    ]


def log_unexpected(error: BaseException, log: logging.Logger = _LOG) -> None:
    """Log kind, function and line of an error, without its message, which may quote private values."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind, event = type(error).__name__, {"event": "failed"}
    log.error("unexpected %s in %s, line %s", kind, last.name, last.lineno, extra=event)


class Server:
    """Serve an application on a listening socket, from one event loop.

    Parameters
    ----------
    application : Application
        Whose ``limits`` hold.
    sock : socket
        It listens already; the server closes it.
    certificate, key : path, optional
        PEM files for TLS; :meth:`reload` reads them again.
    authority : path, optional
        PEM file of those whose certificates clients may show: a request then carries the name in it. A
        client that shows a certificate of somebody else ends in the handshake.
    proxies : sequence of networks
        Addresses without a limit of connections, whose ``X-Forwarded-For`` counts.
    """

    def __init__(
        self,
        application: Application,
        sock: socket.socket,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        authority: Path | None = None,
        proxies: Sequence[Network] = (),
    ) -> None:
        self.application, self.limits, self.socket = application, application.limits, sock
        # as many open files as the system allows; often it allows 1,024
        n_files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most_files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        if n_files == resource.RLIM_INFINITY:
            n_files = most_files
        elif n_files < most_files:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, hard))
                n_files = most_files
        n_strangers = min(self.limits.most_strangers, n_files // 2)
        # a new connection is read some turns of the loop later, and may not be pushed out before
        self._batch = max(1, min(200, n_strangers // 8))
        self.strangers = Strangers(most=n_strangers, share=self.limits.share, proxies=proxies)
        self.open: set[_Silent | _Conversation] = set()
        self.working: set[_Conversation] = set()
        self.held = 0  # bytes of bodies, from their first byte to their answer
        self._files = None if certificate is None else (certificate, key)
        self._authority = authority
        self.tls: ssl.SSLContext | None = None
        self.reload()
        self._stopped = asyncio.Event()
        self.stopping, self._wake = False, cast("Callable[[], object]", sock.close)
        application.server = self

    def reload(self) -> None:
        """Read the certificates and the key; new connections get them. OSError: the old ones stay."""
        if self._files is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._files)
            if self._authority is not None:
                context.load_verify_locations(self._authority)
                context.verify_mode = ssl.CERT_OPTIONAL
            self.tls = context

    def stop(self) -> None:
        """Accept nothing more; :meth:`serve` returns when what is being answered was answered.

        Any thread may call it, also before :meth:`serve`, which then returns at once.
        """
        self.stopping = True
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._wake()

    async def serve(self, started: Callable[[Server], object] = lambda _: None) -> None:
        """Serve until :meth:`stop`; ``started`` gets the server when it answers."""
        self.loop = loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(self._stopped.set)
        with self.socket:
            if self.stopping:  # looked at after its way to this loop was set
                return
            await self.application.start()
            watch = loop.create_task(self._watch())
            try:
                self.socket.setblocking(False)
                self._listen()
                started(self)
                await self._stopped.wait()
                loop.remove_reader(self.socket.fileno())
                self.socket.close()
                for connection in tuple(self.open):
                    connection.finish()
                until = loop.time() + _GRACE
                while self.open and loop.time() < until:  # noqa: ASYNC110  (once, at the end)
                    await asyncio.sleep(0.01)
            finally:
                watch.cancel()
                for connection in tuple(self.open):
                    connection.drop()
                await asyncio.sleep(0)  # the dropped ones end
                await self.application.close()

    def gauges(self) -> list[tuple[str, str, float]]:
        """Gauges for monitoring."""
        return [
            ("ostraka_connections", "Open connections.", len(self.open)),
            ("ostraka_strangers", "Those without a valid key or a complete request.", len(self.strangers)),
            ("ostraka_strangers_dropped", "Those dropped for newer ones so far.", self.strangers.dropped),
            ("ostraka_requests_running", "Requests that are being answered.", len(self.working)),
        ]

    def hold(self, n_bytes: int) -> None:
        """Count bytes of an unfinished body; where all are too many, one is dropped.

        It is the longest unfinished one of the address that holds the most. So strangers drop each other, and
        not the long message of somebody at another address.
        """
        self.held += n_bytes
        if self.held <= self.limits.most_held:
            return
        of: Counter[str] = Counter()
        for connection in self.open:
            of[_grouped(connection.peer)] += connection.held
        unfinished = [connection for connection in self.open if connection.in_body]
        max(unfinished, key=lambda one: (of[_grouped(one.peer)], one.held)).drop()

    def _accept(self) -> None:
        for _ in range(self._batch):
            try:
                sock, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR and not self.strangers.drop():
                    self.loop.remove_reader(self.socket.fileno())  # or it would be told again at once
                    self.loop.call_later(_LOOK, self._listen)
                return
            sock.setblocking(False)
            _Silent(self, sock, str(address[0]))

    def _listen(self) -> None:
        if not self.stopping:
            self.loop.add_reader(self.socket.fileno(), self._accept)

    async def _watch(self) -> None:
        """End what is late. One look at all costs less than timers of each.

        What kept this loop from running, such as other threads of the process, is no delay of clients.
        """
        before = self.loop.time()
        while True:
            await asyncio.sleep(_LOOK)
            now = self.loop.time()
            lag, before = max(0.0, now - before - _LOOK), now
            for connection in self.open:
                connection.deadline += lag
            for connection in [candidate for candidate in self.open if candidate.deadline < now]:
                connection.late()


class _Silent:
    """A connection that has sent nothing yet: a descriptor and a place among the strangers.

    With TLS its first message must be there whole before a handshake begins, which costs as much as many
    requests. Until then it lies in the system's buffer, and the loop is not woken for parts of it.
    """

    __slots__ = ("_awaited", "_handed", "_server", "_sock", "_task", "deadline", "peer")
    held, in_body = 0, False

    def __init__(self, server: Server, sock: socket.socket, peer: str) -> None:
        self._server, self._sock, self.peer = server, sock, peer
        self._task: asyncio.Task[None] | None = None
        self._handed = False  # the socket, to a transport, which closes it
        self._awaited = 1  # bytes
        self.deadline = server.loop.time() + server.limits.head_seconds
        server.open.add(self)
        server.loop.add_reader(sock.fileno(), self._speaks)
        server.strangers.arrived(self, peer)

    def drop(self) -> None:
        """End it now; in a handshake the transport sees the end of the socket."""
        self._server.strangers.left(self)
        self._server.open.discard(self)
        if self._task is None:
            self._server.loop.remove_reader(self._sock.fileno())
        else:
            self._task.cancel()
        if self._handed:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        else:
            self._sock.close()

    late = finish = drop

    def _speaks(self) -> None:
        try:
            start = self._sock.recv(_RECORD_HEAD, socket.MSG_PEEK)
            if not start or (self._server.tls is not None and start[0] != _HANDSHAKE):
                raise ConnectionError
            if self._server.tls is not None:
                # the first record must be there; if not, the system wakes this one when it is. Who is woken
                # early all the same, as on a system that cannot wait for bytes, is let through
                whole = len(start) == _RECORD_HEAD
                awaited = _RECORD_HEAD + (int.from_bytes(start[3:5], "big") if whole else 0)
                if awaited > _RECORD_HEAD + _LONGEST_RECORD:
                    raise ConnectionError
                waits = awaited > self._awaited and len(self._sock.recv(awaited, socket.MSG_PEEK)) < awaited
                self._awaited = awaited
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited if waits else 1)
                if waits:
                    return
        except OSError:
            self.drop()
            return
        self._server.loop.remove_reader(self._sock.fileno())
        self._task = self._server.loop.create_task(self._open())

    async def _open(self) -> None:
        """Start the conversation, after the handshake of TLS if there is one."""
        server, seconds = self._server, self._server.limits.head_seconds
        tls: dict[str, Any] = {}
        self._handed = True
        if server.tls is not None:
            # asyncio's own deadlines do not know how late the loop is: they only end what is forgotten here
            patience = {"ssl_handshake_timeout": 60 * seconds, "ssl_shutdown_timeout": 60 * seconds}
            tls = {"ssl": server.tls, **patience}
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await server.loop.connect_accepted_socket(lambda: _Conversation(server, self), self._sock, **tls)
        server.strangers.left(self)
        server.open.discard(self)


class _Conversation(asyncio.Protocol):
    """The requests of a connection, one after the other. The parser calls the ``on_…`` methods.

    ``deadline`` is that of the present wait, whichever it is.
    """

    def __init__(self, server: Server, silent: _Silent) -> None:
        self._server, self._silent, self._limits = server, silent, server.limits
        self.peer, self.deadline, self.held = silent.peer, _NEVER, 0
        self._certificate = ""
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None  # of the request that is being answered
        self._known = False  # a valid key was shown
        self._late = False  # the client was told so; its reply is discarded
        self._resting = False  # between two requests
        self._body_seconds = 0.0
        self._ending = False  # nothing more is read
        self._clogged = False  # the client does not read
        self._paused = False
        self._pipelined = False  # a message ended in what was received last
        self._in_message = self._in_head = False
        self._raw = self._shown = self._size = 0  # bytes of the message: received, shown by the parser, body
        self._parts: list[bytes] = []
        self._request: Request | None = None
        self._headers: dict[bytes, bytes] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport, server = transport, self._server
        subject = (transport.get_extra_info("peercert") or {}).get("subject", ())
        names = [value for part in subject for name, value in part if name == "commonName"]
        self._certificate = str(names[0]) if len(names) == 1 else ""  # one name, or none
        server.open.add(self)
        server.open.discard(self._silent)
        if not server.strangers.replaced(self._silent, self):
            self.drop()
        self.deadline = server.loop.time() + self._limits.head_seconds

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._end()
        self._server.strangers.left(self)
        self._server.open.discard(self)

    def drop(self) -> None:
        """End the connection now; the reply to a request in progress is discarded."""
        self._end()
        self.transport.abort()

    def finish(self) -> None:
        """End the connection after the present answer."""
        self._end()
        if self._clogged:
            self.drop()
        elif self._task is None:
            self._close()

    def late(self) -> None:
        """A wait took too long: tell a client that reads, and end."""
        ended = self._late or self.transport.is_closing() or (self._ending and self._task is None)
        if ended or self._clogged or not (self._in_message or self._task):
            self.drop()
            return
        self._late = self._task is not None
        refused = Refused(503, "unavailable") if self._late else Refused(408, "late")
        self.transport.write(refused.reply.raw())
        self._close()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        self._raw, self._pipelined = self._raw + len(data), False
        if self._resting:
            self._resting = False
            self._hurry()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ending = True
        except httptools.HttpParserError as error:
            refused = error.__context__
            self._refuse(refused if isinstance(refused, Refused) else Refused(400, "bad_request"))
        if self._ending:
            return
        # a message that began behind the end of another: the parser does not say where
        if self._pipelined and self._in_message:
            self._raw = self._shown + self._size
        limit = self._limits.most_head if self._in_head or not self._in_message else 0
        if self._raw > (limit or self._limits.most_head + 8 * self._limits.most_body):
            self.drop()

    def eof_received(self) -> bool:
        """Answer what was asked before the client ended its side; half a request is refused."""
        if self._in_message:
            self._refuse(Refused(400, "bad_request"))
        self._ending = True
        return self._server.tls is None and (self._task is not None or bool(self._queue))

    def pause_writing(self) -> None:
        self._clogged = True
        self.deadline = self._server.loop.time() + self._limits.write_seconds

    def resume_writing(self) -> None:
        self._clogged = False
        if self._task is not None:
            self.deadline = self._server.loop.time() + self._limits.answer_seconds
        elif not self.transport.is_closing():
            self._go_on()

    def on_message_begin(self) -> None:
        self._in_message = self._in_head = True
        self._url, self._headers, self._parts = b"", {}, []
        self._body_seconds = 0.0
        self._shown = self._size = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._shown += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            raise Refused(400, "bad_request", "a request must have no trailers")
        name = name.lower()
        self._shown += len(name) + len(value) + 4
        if name in self._headers:
            if name in _ONCE:
                raise Refused(400, "bad_request", "a header must not be repeated")
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._ending:
            return
        self._in_head, headers, limits = False, self._headers, self._limits
        version = self._parser.get_http_version()
        if self._shown > limits.most_head:
            raise Refused(400, "bad_request", f"path and headers must be at most {limits.most_head} bytes")
        if version not in _VERSIONS or (version == "1.1" and not headers.get(b"host")):
            raise Refused(400, "bad_request")
        path, _, query = self._url.partition(b"?")
        method = self._parser.get_method().decode()
        request = self._request = Request(
            method, path.decode("latin-1"), query, headers, peer=self.peer, certificate=self._certificate
        )
        pieces = b"transfer-encoding" in headers
        n_bytes = limits.most_body if pieces else int(headers.get(b"content-length", b"0"))
        if self._server.application.admit(request) and not self._known:
            self._known = True
            self._server.strangers.left(self)
        if n_bytes and request.refused is not None:  # it ends the connection, and its body is not read
            raise request.refused
        if n_bytes > limits.most_body:
            raise self._too_large()
        self._body_seconds = n_bytes / limits.least_rate
        if n_bytes and self._task is None:
            self._hurry()
            if headers.get(b"expect", b"").lower() == b"100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._ending:
            return
        self._parts.append(body)
        self._size += len(body)
        self.held += len(body)
        self._server.hold(len(body))
        if self._size > self._limits.most_body:
            raise self._too_large()

    def on_message_complete(self) -> None:
        request, self._in_message, self._raw, self._pipelined = self._request, False, 0, True
        if self._ending or request is None:
            return
        request.body, request.keep = b"".join(self._parts), self._parser.should_keep_alive()
        self._parts, self._size, self._request, self._body_seconds = [], 0, None, 0.0
        self._ask(request)

    def _ask(self, request: Request) -> None:
        """Answer a request when it is its turn."""
        self._queue.append(request)
        if self._task is None and not self._clogged:
            self._next()
        elif not self._paused and not self._ending:
            self._paused = True
            self.transport.pause_reading()

    def _next(self) -> None:
        server, request = self._server, self._queue.popleft()
        if not self._known:
            server.strangers.left(self)
        if len(server.working) >= self._limits.at_once:
            request.refused = Refused(503, "busy", more=((b"retry-after", b"1"),))
        server.working.add(self)
        self.deadline = server.loop.time() + self._limits.answer_seconds
        self._task = server.loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        """Answer a request, by a reply that is written in one piece; then go on, or end."""
        name = os.urandom(8).hex()
        REQUEST.set(name)
        try:
            reply = await self._server.application.reply(request)
        except Exception as error:  # noqa: BLE001  (its message may quote private values)
            log_unexpected(error)
            reply = Refused(500, "failed").reply
        self._task = None
        self._server.working.discard(self)
        self._give_back(request)
        if self._late or self.transport.is_closing():
            return
        keep = request.keep and not (self._ending and not self._queue)
        if keep and not self._known and not self._queue and self._server.strangers.crowded:
            keep = False
        raw = reply.raw((REQUEST_HEADER, name.encode()), keep_alive=keep, with_body=request.method != "HEAD")
        self.transport.write(raw)
        if not self._known:
            self._server.strangers.arrived(self, self.peer, answered=True)
        if not keep:
            self._close()
        elif not self._clogged:
            self._go_on()

    def _go_on(self) -> None:
        """Answer the next request, or wait for it."""
        if self._queue:
            self._next()
            return
        if self._ending:
            self._close()
            return
        if self._in_message:
            self._hurry()
        else:
            self._resting = True
            self.deadline = self._server.loop.time() + self._limits.idle_seconds
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def _hurry(self) -> None:
        """From now on the rest of the message must arrive in time."""
        self.deadline = self._server.loop.time() + self._limits.head_seconds + self._body_seconds

    def _refuse(self, refused: Refused) -> None:
        """Refuse what cannot be read further, after the replies to what came before."""
        if self._ending:
            return
        self._release()
        request = self._request or Request()
        self._request, request.refused, request.keep = None, refused, False
        self._ask(request)
        self._ending = True

    def _too_large(self) -> Refused:
        return Refused(413, "too_large", f"the body must be at most {self._limits.most_body} bytes")

    @property
    def in_body(self) -> bool:
        """Whether a body has begun to arrive and is not complete."""
        return self._in_message and self._size > 0

    def _end(self) -> None:
        """Read nothing more; forget the unfinished body and what waits for its turn."""
        self._ending = True
        while self._queue:
            self._give_back(self._queue.pop())
        self._release()

    def _release(self) -> None:
        """Forget the unfinished body."""
        self._server.held -= self._size
        self.held -= self._size
        self._parts, self._size = [], 0

    def _give_back(self, request: Request) -> None:
        """Forget the body of a request, also after its connection has ended."""
        self._server.held -= len(request.body)
        self.held -= len(request.body)
        request.body = b""

    def _close(self) -> None:
        self._ending = True
        now = self._server.loop.time()
        if self._in_message and self.transport.can_write_eof():  # to end now could reset the reply
            self.deadline = now + _LINGER
            try:
                self.transport.write_eof()
            except OSError:  # it has reset the connection, which is noticed here first
                self.drop()
        else:
            self.deadline = now + self._limits.write_seconds
            self.transport.close()

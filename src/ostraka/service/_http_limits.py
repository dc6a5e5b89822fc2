"""HTTP connections: limits of time, size, keyless and ambiguous requests; replies in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ostraka.service._keys import bearer
from ostraka.service._logs import new_request
from ostraka.service._replies import Refused
from ostraka.service._visitors import Visitors

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport
    from collections.abc import Sequence

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from ostraka.service._keys import Keyring
    from ostraka.service._visitors import Network
    from ostraka.service.app import Application

__all__ = ["LimitedProtocol", "limited"]

# Headers that must not be repeated: a proxy could read one value and this service the other.
_ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"transfer-encoding",
    }
)
REQUEST_HEADER = b"ostraka-request"
_VERSIONS = frozenset({"1.0", "1.1"})


def limited(app: Application, *, proxies: Sequence[Network] = ()) -> type[LimitedProtocol]:
    """Return the protocol class with the limits of one service."""
    there = app.deployment
    own = {
        "application": app,
        "most_bytes": 8 * there.settings.most_bytes,
        "visitors": Visitors(proxies=proxies),
        "keys": there.keys,
    }
    return type("LimitedProtocol", (LimitedProtocol,), own)


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which ends the connection of a slow, oversized or ambiguous request.

    What is raised while a request is parsed becomes a 400, and the connection is closed.
    """

    seconds = 10.0  # from a request's first byte, or from the connection, to its last byte
    writing_seconds = 20.0  # for which a client may leave replies unread
    most_head = 16 * 1024  # bytes of the path and all headers
    most_bytes = 512 * 1024  # of one request, however it is cut into pieces
    visitors = Visitors()
    keys: Keyring | None = None  # without keys, everyone is a stranger
    application: Application

    _timer: TimerHandle | None = None
    _writing_timer: TimerHandle | None = None
    _arrived = False
    _in_head = True
    _began = False  # a message, in the data that is being parsed
    _received = 0
    _body_bytes = 0  # of the message that the parser has shown
    _said = 0  # headers
    _known = False  # a valid key was shown
    _unfinished: Sequence[RequestResponseCycle] = ()  # requests without a complete reply, in order
    _peer = ""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the timer."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        self.visitors.arrived(self, self._peer)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._calm()
        self._stop_writing_timer()
        self.pipeline.clear()
        for cycle in self._unfinished:  # uvicorn tells the newest only, and logs an error for the others
            cycle.disconnected = True
        self.visitors.left(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """End the connection now; the reply to a request in progress is discarded."""
        for cycle in self._unfinished:
            cycle.disconnected = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Stop the timer while a request is being answered; otherwise keep it running."""
        if self.transport.is_closing():
            return
        self._began = False
        super().data_received(data)
        if self._arrived and self.cycle is not None and not self.cycle.response_complete:
            self._calm()
            return
        self._wait()  # also for empty lines between requests
        self._received = self._shown if self._began else self._received + len(data)
        if self._received > (self.most_head if self._in_head else self.most_bytes):
            self.drop()

    def pause_writing(self) -> None:
        """Wait for the client to read, for a limited time."""
        super().pause_writing()
        self._start_writing_timer()

    def resume_writing(self) -> None:
        """Stop waiting, because the client reads again."""
        self._stop_writing_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """End the connection after the present request, or at once if the client does not read."""
        self.pipeline.clear()
        if self.flow is not None and self.flow.write_paused:
            self.drop()
            return
        super().shutdown()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (it may quote the request)
        """Refuse malformed data in the form of every refusal, and close the connection."""
        self._refuse(Refused(400, "bad_request"))

    def on_message_begin(self) -> None:
        """Begin the counts of a new request."""
        self._arrived, self._in_head, self._began, self._body_bytes = False, True, True, 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body to the request's size."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Check the complete head."""
        self._in_head = False
        self._said = len(self.headers)
        if self._shown > self.most_head:
            raise ValueError(f"path and headers must be at most {self.most_head} bytes")
        headers = dict(self.headers)
        if len(headers) < self._said:  # a name comes twice
            once = [name for name, _ in self.headers if name in _ONCE]
            if len(set(once)) < len(once):
                raise ValueError("a header must not be repeated")
        version = self.parser.get_http_version()
        if version not in _VERSIONS or (version == "1.1" and not headers.get(b"host")):
            raise ValueError("the version must be HTTP/1.1 with a Host, or HTTP/1.0")
        if self._admitted(headers):
            super().on_headers_complete()
            unfinished = [each for each in self._unfinished if not each.response_complete]
            unfinished.append(self.cycle)
            self._unfinished = unfinished

    def on_message_complete(self) -> None:
        """Note the complete request; refuse trailers, whose headers were not checked."""
        if len(self.headers) > self._said:
            raise ValueError("a request must have no trailers")
        self._arrived = True
        if not self.transport.is_closing():
            super().on_message_complete()

    @property
    def _shown(self) -> int:
        """Bytes of the message that the parser has shown: path, headers and body."""
        headers = sum([len(name) + len(value) + 4 for name, value in self.headers])
        return len(self.url) + headers + self._body_bytes

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: object) -> None:  # noqa: ARG002  (uvicorn's signature)
        """Serve a request; uvicorn calls this when it is the connection's turn."""
        task = self.loop.create_task(self._serve(cycle))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _serve(self, cycle: RequestResponseCycle) -> None:
        """Write the reply in one piece; uvicorn's own way is two writes, and two packets."""
        name = new_request().encode()
        scope: Any = cycle.scope
        receive: Any = cycle.receive
        reply = await self.application.reply(scope, receive)
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if reply is None or cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        raw = reply.raw(
            (REQUEST_HEADER, name), keep_alive=cycle.keep_alive, with_body=scope["method"] != "HEAD"
        )
        self.transport.write(raw)
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _admitted(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether the request has a valid key, or its address is within its rate limit."""
        if self.transport.is_closing():
            return False
        if self.keys is not None and self.keys.holder(bearer(headers)) is not None:
            if not self._known:
                self._known = True
                self.visitors.left(self)
            return True
        forwarded = [value for name, value in self.headers if name == b"x-forwarded-for"]
        if not self.visitors.may_ask(self.visitors.address(self._peer, forwarded)):
            wait = self.visitors.wait
            self._refuse(Refused(429, "too_many", more=((b"retry-after", b"%d" % wait),)))
            return False
        self.visitors.answered(self)
        return True

    def _refuse(self, refused: Refused) -> None:
        if not self.transport.is_closing():
            self.transport.write(refused.reply.raw())
            self.transport.close()
            self._start_writing_timer()

    def on_response_complete(self) -> None:
        """Close a connection without a key if there are many of them."""
        if not self._known and not self.pipeline and self.visitors.crowded:
            self.transport.close()
        super().on_response_complete()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.drop)

    def _calm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_writing_timer(self) -> None:
        if self._writing_timer is None:
            self._writing_timer = self.loop.call_later(self.writing_seconds, self.drop)

    def _stop_writing_timer(self) -> None:
        if self._writing_timer is not None:
            self._writing_timer.cancel()
            self._writing_timer = None

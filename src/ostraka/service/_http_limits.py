"""Limits of an HTTP connection: time, size, and no ambiguous requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

__all__ = ["LimitedProtocol"]

# Headers that must not be repeated: a proxy could read one value and this service the other.
_ONCE = frozenset({b"authorization", b"content-encoding", b"content-type", b"host", b"idempotency-key"})


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which ends the connection of a slow, oversized or ambiguous request.

    What is raised while a request is parsed becomes a plain 400, and the connection is closed.
    """

    seconds = 10.0  # from a request's first byte, or from the connection, to its last byte
    most_head = 16 * 1024  # bytes of the path and all headers
    most_bytes = 512 * 1024  # of one request, however it is cut into pieces

    _timer: TimerHandle | None = None
    _arrived = False
    _in_head = True
    _received = 0
    _said = 0  # headers

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop the timer while a request is being answered; otherwise keep it running."""
        super().data_received(data)
        if self._arrived and self.cycle is not None and not self.cycle.response_complete:
            self._calm()
            return
        self._wait()  # also for empty lines between requests
        self._received += len(data)
        if self._received > (self.most_head if self._in_head else self.most_bytes):
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Another request."""
        self._arrived, self._in_head, self._received = False, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check the complete head."""
        self._in_head = False
        self._said = len(self.headers)
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.most_head:
            raise ValueError(f"path and headers must be at most {self.most_head} bytes")
        once = [name for name, _ in self.headers if name in _ONCE]
        if len(set(once)) < len(once):
            raise ValueError("a header must not be repeated")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note the complete request; refuse trailers, whose headers were not checked."""
        if len(self.headers) > self._said:
            raise ValueError("a request must have no trailers")
        self._arrived = True
        super().on_message_complete()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _calm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

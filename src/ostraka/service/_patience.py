"""Connections that do not wait for ever: a request must arrive whole, in time, and say each thing once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

__all__ = ["Patient"]

# Said twice, a proxy may have read the one and we the other.
_ONCE = frozenset({b"authorization", b"content-encoding", b"content-type", b"host", b"idempotency-key"})


class Patient(HttpToolsProtocol):
    """Uvicorn's protocol; a request that is slow, endless or ambiguous ends its connection.

    What is raised while a request is parsed becomes a plain 400, and the connection is closed.
    """

    seconds = 10.0  # from a request's first byte, or from the connection, to its last byte
    most_head = 16 * 1024  # bytes of the path and all headers
    most_bytes = 512 * 1024  # of one request, however it is cut into pieces

    _timer: TimerHandle | None = None
    _arrived = False
    _in_head = True
    _head = 0
    _received = 0
    _said: frozenset[bytes] = frozenset()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait no more where a request is being answered, else go on waiting."""
        super().data_received(data)
        if self._arrived and self.cycle is not None and not self.cycle.response_complete:
            self._calm()
            return
        self._wait()  # whatever else comes: empty lines between requests, too
        self._received += len(data)
        if self._received > (self.most_head if self._in_head else self.most_bytes):
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Another request."""
        self._arrived, self._in_head, self._head, self._received = False, True, 0, 0
        self._said = frozenset()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the path."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header that is not a trailer, not too much, and not said before."""
        if not self._in_head:
            raise ValueError("a request must have no trailers")
        self._count(name, value)
        lower = name.lower()
        if lower in _ONCE:
            if lower in self._said:
                raise ValueError("a header must not be repeated")
            self._said |= {lower}
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Now its body."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there."""
        self._arrived = True
        super().on_message_complete()

    def _count(self, *parts: bytes) -> None:
        self._head += sum(map(len, parts)) + 4
        if self._head > self.most_head:
            raise ValueError(f"path and headers must be at most {self.most_head} bytes")

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _calm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

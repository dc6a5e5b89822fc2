"""Connections that do not wait for ever: a request must arrive whole, in time, with a short head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

__all__ = ["Patient"]


class Patient(HttpToolsProtocol):
    """Uvicorn's protocol; a connection whose request is too slow or has too large a head is closed."""

    seconds = 10.0  # from a request's first byte, or from the connection, to its last byte
    most_head = 16 * 1024  # bytes before the body

    _timer: TimerHandle | None = None
    _arrived = False
    _in_head = True
    _head = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.seconds, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait no more if a request is there, else go on waiting."""
        super().data_received(data)
        if self._arrived:
            self._calm()
            return
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.abort)
        self._head += len(data) if self._in_head else 0
        if self._head > self.most_head:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Another request."""
        self._arrived, self._in_head, self._head = False, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Now its body."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there."""
        self._arrived = True
        super().on_message_complete()

    def _calm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""Group commit: callers that arrive during a write are served together by the next write."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from ostraka.core.ledger.budget import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Asks = TypeVar("Asks")
Gets = TypeVar("Gets")


class _Ticket(Generic[Asks, Gets]):
    __slots__ = ("asks", "error", "gets", "leads", "turn")

    def __init__(self, asks: Asks) -> None:
        self.asks = asks
        self.gets: Gets | None = None
        self.error: BaseException | None = None
        self.leads = False
        self.turn = threading.Lock()
        self.turn.acquire()


class Group(Generic[Asks, Gets]):
    """Serves callers of :meth:`submit` in order of arrival, many at a time; one of them does the work."""

    def __init__(self, serve: Callable[[Sequence[Asks]], Sequence[Gets | BaseException]]) -> None:
        self._serve = serve
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[Asks, Gets]] = []
        self._busy = False

    def submit(self, asks: Asks) -> Gets:
        """Return what ``serve`` gives for this caller, or raise what it raised."""
        ticket: _Ticket[Asks, Gets] = _Ticket(asks)
        try:
            with self._lock:
                self._waiting.append(ticket)
                ticket.leads, self._busy = not self._busy, True
            if not ticket.leads:
                ticket.turn.acquire()
            if ticket.leads:
                self._lead()
        except BaseException:  # an interrupt: no other caller may wait for this one
            self._leave(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.gets  # type: ignore[return-value]

    def _lead(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        try:
            served = self._serve([ticket.asks for ticket in batch])
            for ticket, gets in zip(batch, served, strict=True):
                if isinstance(gets, BaseException):
                    ticket.error = gets
                else:
                    ticket.gets = gets
        except BaseException as error:
            kind = type(error) if isinstance(error, LedgerError) else LedgerError
            for ticket in batch:
                ticket.error = kind(str(error) or "interrupted: it is unknown whether it was charged")
            raise
        finally:
            for ticket in batch:
                ticket.turn.release()
            self._hand_over()  # last: a served caller can ask again and join the next write

    def _hand_over(self) -> None:
        with self._lock:
            self._busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].turn.release()

    def _leave(self, ticket: _Ticket[Asks, Gets]) -> None:
        with self._lock:
            if ticket not in self._waiting:  # it is being served, or was served
                return
            self._waiting.remove(ticket)
        if ticket.leads:
            self._hand_over()

"""The server process of a service: its signals, its certificates, what systemd is told (sd_notify), its logs.

Logs may be lines of JSON: time, level, event, message, and the request they belong to; no private value.
Names of events are stable, for programs that watch; docs/operations.md lists them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from ostraka.core import check
from ostraka.secure.server import REQUEST, Server, listening

if TYPE_CHECKING:
    from ostraka.secure.server import Application
    from ostraka.serve.metrics import Readiness


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` to the socket of NOTIFY_SOCKET; without one, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


async def keep_alive(readiness: Readiness) -> None:
    """Report to systemd's watchdog, for as long as the look at the ledger comes back and the answers run.

    A ledger that is locked, full or away is reported as a status. To restart would not mend that.
    """
    seconds = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6
    while seconds:
        problems = await asyncio.to_thread(readiness.problems)
        notify(f"STATUS={'; '.join(problems) or 'ready'}")
        if readiness.works:
            notify("WATCHDOG=1")
        await asyncio.sleep(seconds)


_LOG = logging.getLogger("ostraka.serve")


def run(app: Application, *, host: str, port: int, log_json: bool = False, **tls: Any) -> None:
    """Serve until the process gets a signal to stop; then answer what was asked and return.

    ``tls``: as of :class:`~ostraka.secure.server.Server`. SIGHUP reads the certificates and the key again.
    """
    uvloop = check.require("uvloop", extra="service")
    set_up(as_json=log_json)
    uvloop.run(Server(app, listening(host, port), **tls).serve(take_signals))


def take_signals(server: Server) -> None:
    """Stop at SIGINT and SIGTERM, and read certificates again at SIGHUP."""

    def stop() -> None:
        notify("STOPPING=1")
        server.stop()

    def reload() -> None:
        try:
            server.reload()
        except OSError as error:
            _LOG.error(
                "the certificate cannot be read (%s): the old one stays",
                type(error).__name__,
                extra={"event": "certificate.unreadable"},
            )
        else:
            _LOG.info("the certificate was read again", extra={"event": "certificate.read"})

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if server.tls is not None:
        loop.add_signal_handler(signal.SIGHUP, reload)
    gc.freeze()  # a search for circles among all that was loaded stops every request for 0.14 s
    notify("READY=1")


class JsonLines(logging.Formatter):
    """One object a line. Tracebacks are left out: they may quote values."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", "other"),
            "message": record.getMessage(),
        }
        if request := getattr(record, "request", None) or REQUEST.get():
            fields["request"] = request
        return json.dumps(fields | getattr(record, "fields", {}), ensure_ascii=True)


def set_up(*, as_json: bool) -> None:
    """Send all logs to stderr, as JSON or as text."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.ERROR)

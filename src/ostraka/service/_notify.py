"""Tell systemd that the service is ready, alive and stopping (sd_notify), where it asks for that."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostraka.service._capacity import Readiness

__all__ = ["keep_alive", "notify"]


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

"""Clients and tallies over HTTP: a client runs its exchanges, and a tally closes them in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ostraka.collect.client import Client
from ostraka.collect.encodings import MOST_CELLS
from ostraka.collect.messages import certified
from ostraka.collect.task import Task
from ostraka.secure.keys import KEY_BYTES
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import Remote

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from ostraka.collect.enrolment import Enrolment
    from ostraka.collect.tally import Tally

_MOST_TASK = 2**16
_PAUSE = 0.05  # seconds between two looks


def fetch_task(url: str, *, sha256: str | None = None, timeout: float = 30.0) -> Task:
    """Fetch the task of a tally; ValueError if its fingerprint is not the one that the client expects."""
    body = Remote("the tally", url, timeout=timeout).page("/task.json", _MOST_TASK)
    task = Task.from_json(body.decode("utf-8", "replace"))
    if sha256 is not None and task.sha256 != sha256:
        raise ValueError(f"the tally has another task: {task.sha256}")
    return task


def send(
    url: str,
    value: Any,
    *,
    sha256: str | None = None,
    folder: str | PathLike[str] | None = None,
    round_: int = 0,
    certify: Callable[[str], bytes] | None = None,
    timeout: float = 600.0,
) -> str:
    """Report one value to a tally through all exchanges of its task; return the task's fingerprint.

    ``certify`` returns the enrolment's signature of this client's claim, where the task asks for one.
    """
    task = fetch_task(url, sha256=sha256)
    remote, limit = Remote("the tally", url, timeout=timeout), 8 * MOST_CELLS
    client = Client(task, round=round_, folder=folder)
    task.encoding.encode(value)  # a value that is refused is refused before anybody counts on this client
    _enrolled(client, certify)
    if task.trust == "keepers":
        remote.ask("report", client.report(value), limit, again=True)
        return task.sha256
    key, until = bytes.fromhex(client.key), time.monotonic() + timeout
    remote.ask("message", client.join(), limit, again=True)
    last = b""
    for stage in ("share", "mask", *(("confirm",) if task.lying else ()), "unmask"):
        while (message := remote.ask("outbox", key, limit, again=True)) in (b"", last):
            if time.monotonic() > until:
                raise PartyError(
                    "the round did not go on in time", code="unreachable", parties=("the tally",)
                )
            time.sleep(_PAUSE)
        last = message
        answer = client.mask(value, message) if stage == "mask" else getattr(client, stage)(message)
        remote.ask("message", answer, limit, again=True)
    return task.sha256


def _enrolled(client: Client, certify: Callable[[str], bytes] | None) -> None:
    """Give a client the enrolment's signature of its claim, if its task asks for one."""
    task = client.task
    if task.enrolment is None:
        return
    if certify is None:
        raise ValueError("this task needs an enrolled client: the enrolment must sign its claim")
    client.certificate = certify(client.claim)
    if not certified(task, bytes.fromhex(client.claim), client.certificate, round_=client.round):
        raise ValueError("the enrolment did not sign the claim of this client")


def approve_roster(url: str, enrolment: Enrolment, *, n_clients: int, seconds: float) -> None:
    """Approve the roster of a tally once so many have joined, or after a time limit."""
    remote, until = Remote("the tally", url, timeout=seconds + 30), time.monotonic() + seconds
    limit = 4 * KEY_BYTES * enrolment.task.limit
    while len(entries := remote.ask("entries", b"", limit, again=True)) < 4 * KEY_BYTES * n_clients:
        if time.monotonic() > until:
            break
        time.sleep(_PAUSE)
    remote.ask("approve", enrolment.approve(entries), limit, again=True)


def run_exchanges(tally: Tally, *, n_clients: int, seconds: float) -> None:
    """Close each exchange when all have answered, or after a time limit; the last one stays open.

    Where the task has an enrolment, its approval closes the roster.
    """
    stage, until = "", 0.0
    while True:
        if tally.stage != stage:
            stage, until = tally.stage, time.monotonic() + seconds
        answered, expected = tally.progress
        done = answered >= (n_clients if stage in {"join", "report"} else expected)
        if done or time.monotonic() > until:
            if stage in {"report", "unmask"}:
                return
            if stage == "join" and tally.task.enrolment is not None:
                if time.monotonic() > until:
                    raise PartyError("the enrolment approved no roster in time", code="unreachable")
                time.sleep(_PAUSE)
            else:
                tally.advance()
        else:
            time.sleep(_PAUSE)

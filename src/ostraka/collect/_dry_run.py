"""A whole round in one process: for demonstrations, tests and measurements. It keeps nothing secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostraka.collect._roster import approval
from ostraka.collect.client import Client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostraka.collect.tally import Tally
    from ostraka.secure.keys import Identity

__all__ = ["among_clients"]


def among_clients(
    tally: Tally,
    values: Sequence[Any],
    *,
    vanish: Mapping[int, str] | None = None,
    enrolment: Identity | None = None,
) -> list[int]:
    """Run a round's exchanges among clients up to the last; return the numbers of the surviving clients.

    ``vanish`` says before which exchange a client goes: "share", "mask", "confirm" or "unmask".
    """
    gone = dict(vanish or {})
    clients = {number: Client(tally.task, round=tally.round) for number in range(len(values))}
    for client in clients.values():
        tally.receive(client.join())
    tally.advance(
        b"" if enrolment is None else approval(tally.task, enrolment, tally.entries(), round_=tally.round)
    )
    masked: list[int] = []
    while True:
        stage = tally.stage
        clients = {number: one for number, one in clients.items() if gone.get(number) != stage}
        for number, client in clients.items():
            message = tally.outbox(bytes.fromhex(client.key))
            if stage == "mask":
                tally.receive(client.mask(values[number], message))
                masked.append(number)
            else:
                tally.receive(getattr(client, stage)(message))
        if stage == "unmask":
            return masked
        tally.advance()

"""The present numbers of the owner's page, read from public values only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ostraka.mechanisms import Confident
from ostraka.service import _clock
from ostraka.service._views import ClientView, CostView, LedgerView, Overview, RefusalView

if TYPE_CHECKING:
    from ostraka.ledger.records import Account
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.service._deployment import Deployment
    from ostraka.voters import SavedTeachers

__all__ = ["overview"]

_WORKING_OUT = 0.1  # seconds of a view for the answers that clients have left; the rest comes with the next


def _ballot(saved: SavedTeachers) -> BallotMechanism:
    if saved.screen is None:
        return saved.mechanism
    return Confident(screen=saved.screen, argmax=saved.mechanism)


def overview(there: Deployment) -> Overview:
    """Return the present numbers of the page."""
    ledger, saved, counts = there.ledger, there.saved, there.counts
    known = ledger.count()  # counted first: later charges belong to the next view
    counts.catch_up(ledger)
    now = _clock.now()
    left = _left(there, "", time.monotonic() + _WORKING_OUT) or 0
    return Overview(
        mechanism=repr(saved.mechanism),
        screen=None if saved.screen is None else repr(saved.screen),
        ballot=_ballot(saved),
        n_teachers=saved.n_ballots,
        n_classes=len(saved.classes),
        unit=there.unit,
        relation=saved.adjacency.relation,
        epsilon=ledger.budget.epsilon,
        delta=ledger.budget.delta,
        spent=ledger.epsilon(),
        left=ledger.left(),
        answers_left=left,
        in_a_day=counts.in_a_day(now),
        seconds_to_empty=there.answers_left.seconds_to_empty(),
        at=now,
        since=there.since,
        problems=tuple(there.readiness.problems()),
        history=tuple(counts.history),
        clients=_clients(there, now),
        costs=tuple(
            CostView(mechanism=name, epsilon=epsilon, answers=int(answers))
            for name, (epsilon, answers) in sorted(counts.costs.items(), key=lambda item: -item[1][0])
        ),
        repeated=counts.repeated(),
        latest=counts.latest(),
        refusals=tuple(
            RefusalView(client=who, code=code, times=n, at=there.metrics.last_refused[who, code])
            for (who, code), n in sorted(there.metrics.refusals.items())
        ),
        ledger=LedgerView(
            entries=max(known, counts.seq),
            counted=counts.seq,
            head=ledger.head,
            verified=there.verified,
            simulation=ledger.simulation,
        ),
        label=there.label,
    )


def _clients(there: Deployment, now: int) -> tuple[ClientView, ...]:
    """Return a view of every client; the answers left are computed for the largest spenders first."""
    until = time.monotonic() + _WORKING_OUT
    accounts = sorted(there.accounts(), key=lambda account: -account.spent)
    known = {each.name: _left(there, each.name, until) for each in accounts}
    return tuple(_client(there, account, known[account.name], now) for account in there.accounts())


def _left(there: Deployment, name: str, until: float) -> int | None:
    """Return one client's answers left: the known count, or a new one if there is time."""
    left = there.answers_left
    if left.stale(name) and time.monotonic() < until:
        left.work_out(name)
    return left.known(name)


def _client(there: Deployment, account: Account, left: int | None, now: int) -> ClientView:
    counts, name = there.counts, account.name
    rate = counts.per_second(now, name)
    return ClientView(
        name=name,
        cap=account.cap,
        spent=account.spent,
        left=account.left,
        answers=counts.answers[name],
        abstained=counts.abstained[name],
        repeats=counts.repeats[name],
        valid_keys=len(there.keys.kept[name].keys) if name in there.keys.kept else 0,
        answers_left=left,
        in_a_day=counts.in_a_day(now, name),
        seconds_to_empty=None if left is None else 0.0 if not left else left / rate if rate > 0 else None,
        latest=counts.latest_of(name),
    )

"""Rounds of one task, hour after hour or day after day, under one ledger.

A scheduler charges a round before it opens it, so nobody answers what cannot be paid for. Whatever it was
doing when it was killed, it goes on: each round is charged once and released once.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka.collect.client import run_exchanges
from ostraka.collect.show import Collected, record_of, summary
from ostraka.collect.tally import Tally, pages_of
from ostraka.core import check, files
from ostraka.core.door import release
from ostraka.core.ledger.ledger import Ledger
from ostraka.secure.keys import HoldsSecrets
from ostraka.secure.log import Log
from ostraka.secure.rounds import PartyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from ostraka.collect.keeper import Keeper
    from ostraka.collect.task import Task
    from ostraka.core.ledger.budget import Budget
    from ostraka.secure.keys import Identity

_AGAIN = 0.2  # seconds until keepers that were out of reach are asked again


class Series(HoldsSecrets):
    """The tally of all rounds of a task, one after the other.

    Parameters
    ----------
    task : Task
        With ``rounds``, and this identity as its tally.
    identity : Identity
        The tally's.
    folder : path
        Holds the ledger, the reports of each round, what became of it, and ``round-00000.json`` for
        ``ostraka collect show``.
    budget : Budget
        Of the ledger, if it is new. Rounds are refused that it does not pay for.
    every : float > 0, seconds
        From the opening of a round to that of the next. The first opens when the series is begun.
    keepers : sequence of Keeper or str
        As of :class:`Tally`.
    clock : function, default time.time
        Returns seconds.
    timeout : float > 0, seconds, default 600
        How long a keeper may take.

    Raises
    ------
    ValueError
        The task does not name this identity, or other keepers.
    LogError
        Another process runs this series.

    Guarantees
    ----------
    A round is charged, durably, before it is opened, under a key of its own: again after a crash it costs
    nothing. The sums of a round are drawn once and stored. A round whose time passed while nothing ran is
    ``"missed"`` and costs nothing; one that had too few clients, or whose keepers stayed out of reach, is
    ``"failed"``, and its charge is not given back.

    Examples
    --------
    >>> from ostraka import Budget
    >>> from ostraka.collect import Series, Task, Tree
    >>> from ostraka.voters import Identity
    >>> import tempfile
    >>> me = Identity.fresh()
    >>> task = Task(Tree(0, 16), sigma=9.0, noise="tally", tally=me.public_key, rounds=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     series = Series(task, me, folder=folder, budget=Budget(epsilon=3.0, delta=1e-6), every=3600.0)
    ...     series.outcomes
    ...     series.end()
    [None, None, None]
    """

    name = "the tally"

    def __init__(
        self,
        task: Task,
        identity: Identity,
        *,
        folder: str | PathLike[str],
        budget: Budget,
        every: float,
        keepers: Sequence[Keeper | str] = (),
        clock: Callable[[], float] = time.time,
        timeout: float = 600.0,
    ) -> None:
        check.positive(every=every)
        self.task, self.every = task, every
        self._identity, self._keepers, self._timeout = identity, tuple(keepers), timeout
        self._folder, self._clock, self._budget = Path(folder), clock, budget
        Tally(task, identity, keepers=keepers)  # raises before anything is made
        name = f"series-{task.sha256[:16]}"
        self._log = Log(self._folder / f"{name}.log", name=name, alone=True)
        try:
            self.ledger = Ledger(self._folder / "collect.ledger", budget=budget)
        except BaseException:
            self._log.close()
            raise
        self.start = float(self._log.once("start", repr(clock()).encode()))
        self.tally: Tally | None = None  # of the round that is open, or of the last one

    @property
    def outcomes(self) -> list[str | None]:
        """What became of each round: "released", "missed", "failed", or None for one that is to come."""
        outcomes = [self._log.get(f"round {number}") for number in range(self.task.rounds)]
        return [None if outcome is None else outcome.decode() for outcome in outcomes]

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """The handlers of a server's messages: those of the open round, or of the one before."""
        return {} if self.tally is None else self.tally.answers

    @property
    def pages(self) -> dict[str, tuple[str, bytes]]:
        """The pages for browsers, the same in all rounds."""
        return pages_of(self.task)

    @property
    def most_bytes(self) -> int:
        """The length of the longest valid message."""
        return Tally(self.task, self._identity, keepers=self._keepers).most_bytes

    def key(self, round_: int) -> str:
        """Return the name of a round in the ledger."""
        return f"{self.task.sha256}/{round_}"

    def open(self, round_: int) -> Tally:
        """Charge a round and open it; BudgetExceeded if the ledger does not pay for it."""
        self.ledger.charge(self.task.mechanism, uses=1, unit="client", simulation=False, key=self.key(round_))
        if self.tally is not None:
            self.tally.end()
        options: Mapping[str, Any] = {"folder": self._folder, "timeout": self._timeout}
        self.tally = Tally(self.task, self._identity, keepers=self._keepers, round=round_, **options)
        self._announce(self.tally)
        return self.tally

    def close(self, tally: Tally) -> dict[str, Any]:
        """Release the sums of an open round, write its file, and return the record; PartyError as Tally."""
        round_ = tally.round
        sums = tally.close()
        answer = release(self.task.mechanism, sums, ledger=self.ledger, key=self.key(round_))
        spent = self.ledger.spent().epsilon(delta=self._budget.delta)
        record = record_of(tally, answer, epsilon=spent, delta=self._budget.delta)
        files.write(self._folder / f"round-{round_:05d}.json", json.dumps(record))
        self._log.once(f"round {round_}", b"released")
        self._announce(tally, summary(Collected(record)))
        return record

    def run(
        self, *, n_clients: int, seconds: float | None = None, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Run all rounds that are to come, each in its time.

        A round closes when ``n_clients`` have reported, after ``seconds`` in each exchange, or when the next
        is due.

        Raises
        ------
        BudgetExceeded
            The ledger does not pay for the next round. Those before are released.
        """
        for round_, outcome in enumerate(self.outcomes):
            begins, ends = (self.start + (round_ + step) * self.every for step in (0, 1))
            if outcome is not None:
                continue
            if self._clock() >= ends and self.ledger.entry_of(self.key(round_)) is None:
                self._log.once(f"round {round_}", b"missed")
                continue
            sleep(max(0.0, begins - self._clock()))
            tally = self.open(round_)
            seconds_left = max(0.0, ends - self._clock())
            try:
                run_exchanges(
                    tally,
                    n_clients=n_clients,
                    seconds=seconds_left if seconds is None else min(seconds, seconds_left),
                )
            except PartyError:
                self._log.once(f"round {round_}", b"failed")
                continue
            while True:
                try:
                    self.close(tally)
                except PartyError as error:
                    if error.code == "unreachable" and self._clock() < ends:
                        sleep(_AGAIN)  # keepers that are out of reach are asked until the next round is due
                        continue
                    self._log.once(f"round {round_}", b"failed")
                break

    def _announce(self, tally: Tally, result: Mapping[str, Any] | None = None) -> None:
        spent = self.ledger.spent().epsilon(delta=self._budget.delta)
        tally.announce(spent=spent, budget=self._budget.epsilon, result=result)

    def end(self) -> None:
        """Close the files."""
        if self.tally is not None:
            self.tally.end()
        self.ledger.close()
        self._log.close()

    def __repr__(self) -> str:
        return f"Series(task={self.task.sha256[:16]!r})"

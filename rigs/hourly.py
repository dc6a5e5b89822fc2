"""A scheduler of hourly rounds that is killed again and again, each time at a random moment.

Each round must be charged once and released once, what was released must stay as it was, and epsilon must be
that of the rounds that were charged. The control names a charge by its process, so that a round is paid for
again after each kill.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from ostraka import Budget, Ledger
from ostraka.collect import Client, Histogram, Keeper, Series, Task
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError
from rigs.finding import Finding

__all__ = ["find"]

EVERY = 2.0  # seconds between rounds, instead of an hour
CLIENTS = 4
BUDGET = Budget(epsilon=1e4, delta=1e-6, adaptive=False)


class Forgetful(Series):
    """The control: after a restart it charges a round again."""

    def key(self, round_: int) -> str:
        return f"{super().key(round_)}/{os.getpid()}"


def serve(folder: Path, task: Task, me: Identity, keepers: list[Identity], *, forgetful: bool) -> None:
    """Run the series, with clients that report to each round as soon as it is open."""
    kind = Forgetful if forgetful else Series
    roles = [Keeper(task, keeper, folder=folder / f"keeper-{place}") for place, keeper in enumerate(keepers)]
    series = kind(task, me, folder=folder / "tally", budget=BUDGET, every=EVERY, keepers=roles)

    def clients() -> None:
        while True:
            tally = series.tally
            if tally is not None and tally.n_clients < CLIENTS:
                try:
                    tally.receive(Client(task, round=tally.round).report(1))
                except (PartyError, OSError):
                    continue
            time.sleep(0.005)

    threading.Thread(target=clients, daemon=True).start()
    series.run(n_clients=CLIENTS)
    series.end()


def forked(folder: Path, task: Task, me: Identity, keepers: list[Identity], *, forgetful: bool) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            serve(folder, task, me, keepers, forgetful=forgetful)
            code = 0
        finally:
            os._exit(code)
    return child


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tally").glob("round-*.json")}


def ran(folder: Path, *, rounds: int, kills: int, forgetful: bool) -> tuple[Counter[str], str]:
    """Run a series to its end through all kills; return what went wrong, and what was seen."""
    me, keepers = Identity.fresh(), [Identity.fresh() for _ in range(2)]
    task = Task(
        Histogram(0, 3, cells=3),
        sigma=20.0,
        tally=me.public_key,
        rounds=rounds,
        keepers=[Keeper.key(keeper) for keeper in keepers],
    )
    moments = random.Random(7)  # when to kill
    wrong: Counter[str] = Counter()
    for _ in range(kills):
        child = forked(folder, task, me, keepers, forgetful=forgetful)
        time.sleep(moments.uniform(0.2, 2 * EVERY * rounds / max(kills, 1)))
        before = files(folder)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        after = files(folder)
        wrong["released again"] += sum(after.get(name) != content for name, content in before.items())
    contents = files(folder)
    child = forked(folder, task, me, keepers, forgetful=forgetful)
    _, status = os.waitpid(child, 0)
    wrong["did not end"] += status != 0
    final = files(folder)
    wrong["released again"] += sum(final[name] != content for name, content in contents.items())
    series = Series(task, me, folder=folder / "tally", budget=BUDGET, every=EVERY, keepers=[
        Keeper(task, keeper) for keeper in keepers
    ])  # fmt: skip
    outcomes = Counter(series.outcomes)
    series.end()
    charged = rounds - outcomes["missed"]
    with Ledger(folder / "tally" / "collect.ledger") as ledger:
        spent = ledger.spent().epsilon(delta=BUDGET.delta)
    exact = (charged * task.mechanism.curve()).epsilon(delta=BUDGET.delta)
    wrong["paid twice"] += spent > exact * (1 + 1e-9)
    wrong["not paid"] += spent < exact * (1 - 1e-9)
    wrong["without an outcome"] += outcomes[None]
    wrong["a file a release"] += outcomes["released"] != len(final)
    tally = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items(), key=str))
    return wrong, f"{rounds} rounds, {kills} kills: {tally}; ε {spent:.4f} of {exact:.4f}"


def find(*, rounds: int, kills: int) -> Finding:
    with tempfile.TemporaryDirectory() as folder:
        wrong, figures = ran(Path(folder) / "own", rounds=rounds, kills=kills, forgetful=False)
        control, forgotten = ran(Path(folder) / "control", rounds=12, kills=4, forgetful=True)
    return Finding(
        tried=f"series: {figures}",
        wrong=wrong,
        control=f"charges named by process: {forgotten}",
        blind=not control["paid twice"],
    )

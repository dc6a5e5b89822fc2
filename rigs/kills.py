"""Kill -9 at a random moment: processes charge with several threads until they are gone, again and again.

The moment is so many questions after the start, and a little later: on a busy machine a time alone would
mostly strike before anything was asked. Some strike at once, while the ledger is being opened.
What was acknowledged must be charged, under its number; what was not is asked again, and must cost once. A
fresh ledger begins when the budget of the old one is spent: the total is compared with what it can pay for.
The control answers before it charges.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ostraka import Budget, BudgetExceeded
from ostraka.ledger import LedgerError
from rigs import charging, disk, postgres, power
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["find"]

ASKED = "asked"
MOST_QUESTIONS = 60  # of all processes of a ledger before a strike
AT_ONCE = 10  # of 70 strikes wait for no question
LONG = 500  # charges after which a fresh ledger begins: all of it is read after each kill
BUDGET = Budget(epsilon=0.25, delta=1e-6, adaptive=False)  # spent after some tens of kills


@dataclass(slots=True)
class Toll:
    """Counts of what the kills showed."""

    kills: int = 0
    charges: int = 0
    ledgers: int = 0
    spent: int = 0  # ledgers whose budget was used up
    unanswered: int = 0  # charges on record whose process died before it could say so
    wrong: Counter[str] = field(default_factory=Counter)


def serve(
    mode: charging.ChargingMode,
    folder: Path,
    name: str,
    again: list[str],
    *,
    progress: int,
    threads: int,
    hasty: bool,
) -> None:
    """Charge until killed: first what others left unanswered, then new keys; a byte of progress for each."""
    marks = charging.open_marks(folder)
    log = os.open(folder / ASKED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ledger = mode.open(folder)

    def work(thread: int) -> None:
        keys = again[thread::threads]
        for n in range(10_000):
            key = keys[n] if n < len(keys) else f"{name}-{thread}-{n}"
            os.write(log, f"{key}\n".encode())
            os.write(progress, b".")
            try:
                if hasty:
                    charging.acknowledge(marks, key, charging.Paid(0, 0))
                paid = mode.pay(ledger, key)
            except (BudgetExceeded, LedgerError):
                return
            charging.acknowledge(marks, key, paid)

    several = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    os.close(progress)
    signal.pause()


def forked(mode: charging.ChargingMode, folder: Path, name: str, again: list[str], **how: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            serve(mode, folder, name, again, **how)
        finally:
            os._exit(1)
    return child


def judged(mode: charging.ChargingMode, folder: Path, limit: int, toll: Toll) -> list[str] | None:
    """What is still unanswered; None when the budget is spent, or something is wrong with the ledger."""
    marks, log = (
        folder / disk.MARK,
        (folder / ASKED).read_text().split() if (folder / ASKED).exists() else [],
    )
    lines = marks.read_text().splitlines() if marks.exists() else []
    done = charging.acknowledged("\n".join(lines).encode())
    try:
        _, keys = power.written(mode, folder)
    except LedgerError as error:
        toll.wrong[charging.refusal(error)] += 1
        return None
    wrong = {
        "acknowledged, but not charged": any(key not in keys for key in done),
        "one key, two answers": len(done) < len({line for line in lines if line[0] != "0"}),
        "on record otherwise than acknowledged": any(
            keys.get(key, paid) != paid for key, paid in done.items() if paid.seq
        ),
        "charged, but not asked": not set(keys) <= set(log),
        "overspent": len(keys) > limit,
    }
    if wrongs := [what for what, so in wrong.items() if so]:
        toll.wrong.update(wrongs)
        return None
    toll.unanswered += len(set(keys) - set(done))
    if len(keys) == limit:
        toll.spent += 1
        return None
    if len(keys) > LONG:
        return None
    return sorted(set(log) - set(done))


def run(
    mode: charging.ChargingMode, kills: int, *, seed: int, processes: int, threads: int, hasty: bool
) -> Toll:
    """Kill all processes of a ledger at a random moment, look, start new ones, until the budget is spent."""
    rng, toll, limit = random.Random(seed), Toll(), mode.most()
    while toll.kills < kills and not (hasty and toll.wrong):
        with power.quick_folder() as folder:
            toll.ledgers += 1
            again: list[str] | None = []
            while again is not None and toll.kills < kills:
                name = f"r{toll.kills}"
                reading, progress = os.pipe()
                how = {"progress": progress, "threads": threads, "hasty": hasty}
                shares = [again[p::processes] for p in range(processes)]
                children = [forked(mode, folder, f"{name}-{p}", shares[p], **how) for p in range(processes)]
                os.close(progress)
                n_questions = max(0, rng.randrange(-AT_ONCE, MOST_QUESTIONS))
                while n_questions and (questions := os.read(reading, n_questions)):  # empty: all have ended
                    n_questions -= len(questions)
                time.sleep(rng.uniform(0, 0.01))
                for child in rng.sample(children, len(children)):
                    os.kill(child, signal.SIGKILL)
                for child in children:
                    os.waitpid(child, 0)
                os.close(reading)
                toll.kills += processes
                again = judged(mode, folder, limit, toll)
            toll.charges += len(power.written(mode, folder)[1])
    return toll


def find(mode: str, *, kills: int) -> Finding:
    """Kills under the ledger, and under the control."""
    postgres.require(charging.MODES[mode])
    facts = apart("kills", "--mode", mode, "--kills", kills)
    control = apart("kills", "--mode", mode, "--kills", 200, "--hasty")
    hasty = "acknowledged, but not charged" in control["wrong"]
    return Finding(
        tried=f"{facts['kills']:,} kills, {facts['charges']:,} charges, "
        f"{facts['unanswered']:,} without an answer; {facts['spent']} of {facts['ledgers']} budgets used up",
        wrong=Counter(facts["wrong"]),
        control=f"answering before charging is noticed at kill {control['kills']}",
        blind=not (hasty and facts["charges"]),
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--mode", choices=sorted(charging.MODES), default="shared")
    options.add_argument("--kills", type=int, default=1000)
    options.add_argument("--threads", type=int, default=4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--hasty", action="store_true", help="the control")
    chosen = options.parse_args(arguments)
    mode = replace(charging.MODES[chosen.mode], budget=BUDGET)
    charging.checkpoint_every(25)
    processes = mode.processes
    with postgres.ready(mode):
        toll = run(
            mode,
            chosen.kills,
            seed=chosen.seed,
            processes=processes,
            threads=chosen.threads,
            hasty=chosen.hasty,
        )
    plain = {
        name: getattr(toll, name) for name in ("kills", "charges", "ledgers", "spent", "unanswered", "wrong")
    }
    print(json.dumps(plain))


if __name__ == "__main__":
    main(sys.argv[1:])

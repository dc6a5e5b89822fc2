"""Disks that fail: an error at every single write, sync and change of names of a charging run.

The run is cut into sessions; each begins where the one before ended, every other one after a crash. For
every call of a session the session is run again with that call failing (a failing write has written half;
a failing sync has written nothing). Then the ledger is opened on a healthy disk. The control takes a
failed commit for a good one, and must answer uncharged.

The sessions are shared out among processes, one a core, each with a ledger of its own that is charged in all
sessions and disturbed in some.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ostraka.ledger import LedgerError
from rigs import charging, disk, power
from rigs.finding import Finding, apart

__all__ = ["find"]

ERRORS = {"w": (errno.EIO, errno.ENOSPC), "s": (errno.EIO,), "n": (errno.EIO, errno.ENOSPC)}
NAMES = {"w": "writes", "s": "syncs", "n": "names"}


class Deaf(sqlite3.Connection):
    """The control, a defective ledger which treats a failed commit as a good one."""

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        try:
            return super().execute(sql, *parameters)
        except sqlite3.Error:
            if sql != "COMMIT":
                raise
            return super().execute("ROLLBACK" if self.in_transaction else "SELECT 0")


def restore(base: Path, folder: Path) -> None:
    for old in folder.iterdir():
        old.unlink()
    for file in base.iterdir():
        shutil.copy(file, folder)


@dataclass(slots=True)
class Rig:
    """Sessions of one ledger, each in a fork of this process, so that nothing is imported again."""

    mode: charging.ChargingMode
    folder: Path  # whose calls fail
    base: Path  # the files with which the session begins
    size: int
    tried: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    until_uncharged: bool = False  # the control: one such answer is enough

    def run(self, charges: int, *, part: int = 0, parts: int = 1) -> dict[str, object]:
        """Every fault of every session, or of each of its part: the others only charge."""
        disturbed = 0
        for number, first in enumerate(range(0, charges, self.size)):
            if self.stopped:
                break
            restore(self.base, self.folder)
            calls = self.forked(first)
            if len(charging.acknowledged((self.folder / disk.MARK).read_bytes())) != self.size:
                raise AssertionError("the undisturbed session did not charge everything")
            with tempfile.TemporaryDirectory(dir=self.base.parent) as after:
                restore(self.folder, Path(after))
                if number % parts == part:
                    self.disturb_each(first, calls)
                    disturbed += self.size
                restore(Path(after), self.base)
            (self.base / disk.MARK).unlink()
            (self.base / f"{charging.NAME}-shm").unlink(missing_ok=True)
        return {"charges": disturbed, "tried": self.tried, "wrong": self.wrong}

    def stop(self, *_: object) -> None:
        """End after this session; what was done is counted."""
        self.stopped = True

    def disturb_each(self, first: int, calls: dict[str, int]) -> None:
        """Run a session once for each of its calls, which fails."""
        for kind, count in calls.items():
            for k, error in itertools.product(range(1, count + 1), ERRORS[kind]):
                if self.until_uncharged and uncharged(self.wrong):
                    return
                self.disturb(first, (kind, k, error))
        progress = f"{self.tried.total():,} faults, {self.wrong.total()} wrong"
        print(f"charges {first} to {first + self.size - 1}: {progress}", file=sys.stderr, flush=True)

    def disturb(self, first: int, fail: tuple[str, int, int]) -> None:
        restore(self.base, self.folder)
        self.forked(first, fail)
        self.tried[NAMES[fail[0]]] += 1
        if wrongs := self.judged(first):
            self.wrong[wrongs] += 1

    def forked(self, first: int, fail: tuple[str, int, int] | None = None) -> dict[str, int]:
        """Run a session; how many calls of each kind it made."""
        reading, writing = os.pipe()
        marks = charging.open_marks(self.folder)
        child = os.fork()
        if child == 0:
            before = {kind: disk.calls(kind) for kind in ERRORS}
            if fail:
                disk.arm(*fail)
            self.session(first, marks)
            n_calls = {kind: disk.calls(kind) - before[kind] for kind in ERRORS}
            os.write(writing, json.dumps(n_calls).encode())
            os._exit(0)
        os.close(writing)
        os.close(marks)
        with os.fdopen(reading, "rb") as answer:
            calls = answer.read()
        os.waitpid(child, 0)
        return dict(json.loads(calls)) if calls else {}

    def session(self, first: int, marks: int) -> None:
        """Open, ask for every charge whatever happens, and close or crash."""
        try:
            ledger = self.mode.open(self.folder)
            for n in range(first, first + self.size):
                with contextlib.suppress(LedgerError):
                    charging.acknowledge(marks, f"k{n}", self.mode.pay(ledger, f"k{n}"))
            if (first // self.size) % 2 == 0:
                ledger.close()
        except LedgerError:
            pass
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is a finding)
            charging.acknowledge(marks, type(error).__name__, charging.Paid(-1, 0))

    def judged(self, first: int) -> str | None:
        """What is wrong after a session with a fault; None if nothing is."""
        done = charging.acknowledged((self.folder / disk.MARK).read_bytes())
        if strange := [key for key, paid in done.items() if paid.seq < 0]:
            return f"raised {strange[0]}"
        try:
            heads, keys = power.written(self.mode, self.folder)
        except LedgerError as error:
            return charging.refusal(error)
        if any(keys.get(key) != paid for key, paid in done.items()):
            return "answered, but not charged"
        fresh = {key: paid.seq for key, paid in keys.items() if int(key[1:]) >= first}
        if any(seq < max(heads.values()) and key not in done for key, seq in fresh.items()):
            return "charged on after a commit of unknown outcome"
        if not set(fresh) <= {f"k{n}" for n in range(first, first + self.size)}:
            return "charges without a request"
        return None


def uncharged(wrong: dict[str, int]) -> int:
    """How many answers were not charged.

    An anchor notices what a deaf ledger lost: it then refuses to open, and the loss is counted all the same.
    """
    return sum(n for why, n in wrong.items() if "not charged" in why or "older copy" in why)


def find(mode: str, *, charges: int, session: int = 20) -> Finding:
    """Faults under the ledger, and under the control."""

    def faults(*arguments: object) -> dict:
        with power.quick_folder() as folder:
            return apart("faults", folder, "--mode", mode, *arguments, environment=disk.preload(folder))

    parts = min(os.cpu_count() or 1, charges // session)
    with ThreadPoolExecutor(parts) as pool:  # each part has a ledger and a process of its own
        size = ("--charges", charges, "--session", session, "--parts", parts, "--part")
        outcomes = list(pool.map(lambda part: faults(*size, part), range(parts)))
    attempts, wrong = (
        sum((Counter(outcome[name]) for outcome in outcomes), Counter[str]()) for name in ("tried", "wrong")
    )
    done = sum(outcome["charges"] for outcome in outcomes)
    enough = (session + 1) // 2  # a deaf ledger shows in any
    control = faults("--charges", enough, "--session", enough, "--deaf")
    of = sum(control["tried"].values())
    return Finding(
        tried=f"{done:,} charges; " + ", ".join(f"{n:,} failing {kind}" for kind, n in attempts.items()),
        wrong=wrong,
        control=f"deaf to failed commits: an uncharged answer is noticed at fault {of:,}",
        blind=not uncharged(control["wrong"]),
    )


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--mode", choices=sorted(charging.MODES), default="shared")
    options.add_argument("--charges", type=int, default=1000)
    options.add_argument("--session", type=int, default=20)
    options.add_argument("--part", type=int, default=0, help="the part of the sessions whose calls fail")
    options.add_argument("--parts", type=int, default=1)
    options.add_argument("--deaf", action="store_true", help="the control")
    chosen = options.parse_args(arguments)
    if chosen.deaf:
        connect = sqlite3.connect
        sqlite3.connect = lambda *a, **b: connect(*a, **b, factory=Deaf)
    charging.checkpoint_every(7)
    charging.MECHANISM.curve()
    with tempfile.TemporaryDirectory(dir=chosen.folder.parent) as base:
        mode = charging.MODES[chosen.mode]
        rig = Rig(mode, chosen.folder, Path(base), chosen.session, until_uncharged=chosen.deaf)
        signal.signal(signal.SIGTERM, rig.stop)
        print(json.dumps(rig.run(chosen.charges, part=chosen.part, parts=chosen.parts)))


if __name__ == "__main__":
    main(sys.argv[1:])

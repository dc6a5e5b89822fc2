"""A database that goes back, before witnesses: rows deleted in place, a standby that lags or lacks nothing.

Three witnesses are processes of ``ostraka ledger witness``; one of them is killed before each part, and
started again on its folder behind it. The ledger is on a PostgreSQL server of the rig's own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ostraka import Budget, Ledger
from ostraka.core.ledger.budget import LedgerUnavailable
from ostraka.ledger import ChargeRequest, LedgerError
from ostraka.secure.witness import witness_at
from rigs import charging, postgres
from rigs.finding import REPOSITORY, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.core.ledger.witness import Witness

__all__ = ["find"]

SECRET = b"the secret of the witnesses, which their owner keeps"
PATIENCE = 60.0
RUN = "import sys; from ostraka.cli import main; main(sys.argv[1:])"


class Watchman:
    """A witness in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.url = folder, ""
        folder.mkdir()
        self.start()

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-c", RUN, "ledger", "witness", str(self._folder), "--port", port]
        setting = os.environ | {"OSTRAKA_WITNESS_SECRET": SECRET.hex()}
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=setting, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None, "it is a pipe"
        self.url = self._process.stdout.readline().strip()
        if not self.url.startswith("http"):
            raise RuntimeError("a witness did not start")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def pause(self, number: int = signal.SIGSTOP) -> None:
        self._process.send_signal(number)


def question(key: str) -> ChargeRequest:
    mechanism = charging.MECHANISM
    fields = {"account": charging.CLIENT, "key": key, "digest": key.encode().hex()}
    return ChargeRequest(**fields, cost=mechanism, reserve=mechanism, answer=1)


def answers(ledger: Ledger, name: str, times: int) -> int:
    """How many of so many questions are answered."""
    n_answers = 0
    for number in range(times):
        with contextlib.suppress(LedgerError):
            n_answers += len(ledger.charge_each([question(f"{name} {number}")]))
    return n_answers


def first_answer(ledger: Ledger, key: str) -> float:
    """Seconds until the question is answered, asked again and again; infinity if it never is."""
    start = time.monotonic()
    while time.monotonic() < start + PATIENCE:
        try:
            ledger.charge_each([question(key)])
        except LedgerUnavailable:
            time.sleep(0.02)
        except LedgerError:
            break
        else:
            return time.monotonic() - start
    return float("inf")


@contextlib.contextmanager
def begun(address: str, name: str, watchmen: list[Watchman]) -> Iterator[tuple[str, list[Witness]]]:
    """A new ledger with a client and ten entries, and its witnesses."""
    import psycopg  # the other rigs need none

    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}")
    where = f"{address}&options=-csearch_path%3D{name}"
    witnesses = [witness_at(watchman.url, SECRET) for watchman in watchmen]
    with Ledger(where, budget=Budget(epsilon=9.0, delta=1e-6), witnesses=witnesses) as ledger:
        ledger.grant(charging.CLIENT, budget_epsilon=9.0)
        assert answers(ledger, "before", 10) == 10, "the ledger works"
    yield where, witnesses


def restarts(where: str, witnesses: list[Witness]) -> bool:
    """Whether a service starts on the ledger."""
    try:
        Ledger(where, witnesses=witnesses).close()
    except LedgerError:
        return False
    return True


def deleted(
    address: str, watchmen: list[Watchman], entries: int, *, name: str, watched: bool
) -> tuple[int, bool]:
    """Answers after entries that this program had not read were deleted, and whether it starts again."""
    import psycopg

    with begun(address, name, watchmen) as (where, witnesses):
        watchers = witnesses if watched else []
        with Ledger(where, witnesses=watchers) as first, Ledger(where, witnesses=watchers) as second:
            answers(second, "lost", entries)
            with psycopg.connect(where, autocommit=True) as db:
                db.execute("SET session_replication_role = replica")
                db.execute("DELETE FROM ostraka_entry WHERE seq > 11")
            n_answers = answers(first, "again", 40)
        return n_answers, restarts(where, watchers)


def find(*, entries: int) -> Finding:
    wrong: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="ostraka-rollback-"))
    watchmen = [Watchman(folder / name) for name in ("one", "two", "three")]
    try:
        with postgres.server() as address:
            place = Path(address.partition("host=")[2])
            watchmen[0].kill()
            in_place, again = deleted(address, watchmen, entries, name="deleted", watched=True)
            wrong["answer after rows were deleted"] = in_place
            wrong["start after rows were deleted"] = again
            control, _ = deleted(address, watchmen, entries, name="control", watched=False)
            watchmen[0].start()
            watchmen[1].kill()
            with begun(address, "failover", watchmen) as (where, witnesses):
                lossless = postgres.copied(place)
                with Ledger(where, witnesses=witnesses) as one:
                    postgres.fail_over(place, lossless)
                    first = first_answer(one, "after")
                wrong["failover without loss that did not go on"] = first == float("inf")
                lagging = postgres.copied(place)
                with Ledger(where, witnesses=witnesses) as one, Ledger(where, witnesses=witnesses) as second:
                    answers(second, "lost", entries)
                    postgres.fail_over(place, lagging)
                    wrong["answer of a standby that lags"] = lagged = answers(one, "again", 40)
                wrong["start on a standby that lags"] = restarts(where, witnesses)
                watchmen[1].start()
                with Ledger(where, read_only=True, witnesses=witnesses) as lost:
                    lost.adopt(by="rig")
                n_answers, paid = missing(where, watchmen, witnesses)
                wrong["answer with one witness of three"] = n_answers
                wrong["charge under one key beyond the first"] = paid - 1
    finally:
        for watchman in watchmen:
            watchman.kill()
        shutil.rmtree(folder)
    return Finding(
        tried=f"{entries} entries lost; of 40 questions answered after rows were deleted in place "
        f"{in_place}, after a failover to a standby that lags {lagged}; the first after one without loss "
        f"came {first:.2f} s after it, without an operator; one of three witnesses was killed each time",
        wrong=+wrong,
        control=f"without witnesses {control} of 40 are answered after rows were deleted",
        blind=not control,
    )


def missing(where: str, watchmen: list[Watchman], witnesses: list[Witness]) -> tuple[int, int]:
    """Answers while one witness is killed and one is frozen, and charges under the key once they are back."""
    with Ledger(where, witnesses=witnesses) as ledger:
        watchmen[0].kill()
        watchmen[1].pause()
        n_answers = sum(answers(ledger, "few", 1) for _ in range(3))
        watchmen[1].pause(signal.SIGCONT)
        watchmen[0].start()
        first_answer(ledger, "few 0")
        return n_answers, sum(entry.key == "few 0" for entry in ledger.entries())


if __name__ == "__main__":
    print(find(entries=200))

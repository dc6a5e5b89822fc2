"""Saved teachers in several processes of this machine, whose partial votes are summed.

``python -m ostraka.voters.split FD`` is such a process, with a part of the teachers.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import warnings
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.private import Adjacency, Private
from ostraka.voters.kinds import LinearTeachers
from ostraka.voters.voting import count_votes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

READY = b"ready"
_PROGRAM = "ostraka.voters.split"
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each process is one of several
_STARTING, _VOTING = 600.0, 60.0  # seconds


class VotersAwayError(RuntimeError):
    """A process of teachers has ended or does not answer. Nothing was counted."""


class SplitTeachers:
    """Teachers of a folder, each in one of several processes, which send the counts of their ballots.

    Counts of a part are as private as votes are, and stay on this machine. A process that ends is started
    again with the next vote, and refuses a folder whose list of files is not the one with this ``sha256``.
    """

    def __init__(
        self,
        folder: Path,
        listed: dict[str, Any],
        *,
        sha256: str,
        processes: int,
        trusted: Iterable[str] = (),
    ) -> None:
        n_files = sum(name.startswith(("teachers-", "networks-")) for name in listed["files"])
        if not 1 <= processes <= n_files:
            raise ValueError(f"processes must be 1 to {n_files}, the number of files, got {processes}")
        self.classes_, self.unit_ = np.array(listed["classes"]), str(listed["unit"])
        self.n_features_in_, self.n_teachers = int(listed["n_features"]), int(listed["n_teachers"])
        self.n_processes = processes
        self._task = {"folder": str(folder), "sha256": sha256, "trusted": list(trusted)}
        self._lock = threading.Lock()
        self._parts = [self._started(number) for number in range(processes)]
        try:
            for part in self._parts:
                part.wait()
        except BaseException:  # the other processes would wait for questions
            self.close()
            raise

    def vote(self, X: Any) -> Private:
        """Every teacher votes once on every row, in its own process.

        Raises
        ------
        VotersAwayError
            A process does not answer.
        """
        rows = np.ascontiguousarray(X, dtype="<f8")
        with self._lock:
            try:
                for number, part in enumerate(self._parts):
                    if part.process.poll() is not None:  # it has ended
                        self._parts[number] = self._started(number)
                        self._parts[number].wait()
                for part in self._parts:
                    part.ask(rows)
                counts = sum(part.counts((len(rows), len(self.classes_))) for part in self._parts)
            except BaseException:  # an answer may still come, which is not that of the next question
                self.close()
                raise
        return Private(counts, Adjacency.one_ballot(unit=self.unit_))

    def close(self) -> None:
        """End the processes."""
        for part in self._parts:
            part.process.kill()
            part.process.wait()
            part.connection.close()

    def _started(self, number: int) -> _Part:
        mine, its = socket.socketpair()
        # without secrets of a ledger, of keys or of a database
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("OSTRAKA_", "PG"))}
        with its:
            command = [sys.executable, "-m", _PROGRAM, str(its.fileno())]
            process = subprocess.Popen(command, pass_fds=[its.fileno()], env=variables | _ALONE)  # noqa: S603
        connection = Connection(mine.detach())
        connection.send_bytes(json.dumps({**self._task, "part": (number, self.n_processes)}).encode())
        return _Part(process, connection)


class _Part:
    """One process and the connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self.process, self.connection = process, connection

    def wait(self) -> None:
        """Wait until it has read its teachers."""
        if self._received(_STARTING) != READY:
            raise ValueError("a process could not read its teachers: its message is above")

    def ask(self, rows: np.ndarray) -> None:
        """Send rows."""
        try:
            self.connection.send_bytes(rows.tobytes())
        except OSError:
            raise VotersAwayError("a process of teachers has ended") from None

    def counts(self, shape: tuple[int, int]) -> np.ndarray:
        """The votes of its teachers."""
        numbers = np.frombuffer(self._received(_VOTING), dtype="<i8")
        if numbers.size != shape[0] * shape[1]:
            raise VotersAwayError("a process of teachers could not vote")
        return numbers.reshape(shape).astype(np.int64)

    def _received(self, seconds: float) -> bytes:
        try:
            if self.connection.poll(seconds):
                return self.connection.recv_bytes()
        except (EOFError, OSError):
            pass
        raise VotersAwayError("a process of teachers has ended or does not answer")


def serve(connection: Connection) -> None:
    """Read a part of the teachers, and count their ballots until the other side is gone."""
    from ostraka.voters.saved import SavedTeachers  # noqa: PLC0415  (which imports this module)

    warnings.simplefilter("ignore")  # the number of failing teachers is private
    task = json.loads(connection.recv_bytes())
    saved = SavedTeachers.load(task["folder"], trusted=task["trusted"], part=tuple(task["part"]))
    if saved.sha256 != task["sha256"]:  # beside the other parts' teachers, a unit could have two ballots
        raise ValueError(
            f"{task['folder']} was changed since these teachers began to vote: put the files back, "
            "or start again"
        )
    width, n_classes = len(saved.grid), len(saved.classes)
    linear = None  # one matrix product, where teachers have such scores
    if saved.kind == "teachers":
        linear = LinearTeachers.of(saved.ensemble.teachers_, n_classes=n_classes, n_features=width)
    connection.send_bytes(READY)
    while True:
        try:
            rows = np.frombuffer(connection.recv_bytes(), dtype="<f8").reshape(-1, width)
        except (EOFError, OSError):
            return
        try:
            if linear is None:
                counts = count_votes(saved.ensemble.predictions(rows), n_classes=n_classes)
            else:
                counts = linear.counts(rows)
            answer = counts.astype("<i8").tobytes()
        except Exception:  # noqa: BLE001  (its message may quote private values)
            answer = b""
        connection.send_bytes(answer)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))

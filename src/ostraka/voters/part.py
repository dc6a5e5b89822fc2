"""A process with a part of saved teachers: ``python -m ostraka.voters.part FD``, started by ``_split``."""

from __future__ import annotations

import json
import sys
import warnings
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np

from ostraka.voters.kinds import LinearTeachers
from ostraka.voters.saved import SavedTeachers
from ostraka.voters.split import READY
from ostraka.voters.voting import count_votes

if TYPE_CHECKING:
    from collections.abc import Callable


def serve(connection: Connection) -> None:
    """Read a part of the teachers, and count their ballots until the other side is gone."""
    warnings.simplefilter("ignore")  # the number of failing teachers is private
    task = json.loads(connection.recv_bytes())
    saved = SavedTeachers.load(task["folder"], trusted=task["trusted"], part=tuple(task["part"]))
    if saved.sha256 != task["sha256"]:  # beside the other parts' teachers, a unit could have two ballots
        raise ValueError(
            f"{task['folder']} was changed since these teachers began to vote: put the files back, "
            "or start again"
        )
    count, width = _counter(saved), len(saved.grid)
    connection.send_bytes(READY)
    while True:
        try:
            rows = np.frombuffer(connection.recv_bytes(), dtype="<f8").reshape(-1, width)
        except (EOFError, OSError):
            return
        try:
            counts = count(rows).astype("<i8").tobytes()
        except Exception:  # noqa: BLE001  (its message may quote private values)
            counts = b""
        connection.send_bytes(counts)


def _counter(saved: SavedTeachers) -> Callable[[np.ndarray], np.ndarray]:
    """Return what counts ballots: one matrix product where teachers have such scores."""
    n_classes = len(saved.classes)
    if saved.kind == "teachers":
        linear = LinearTeachers.of(saved.ensemble.teachers_, n_classes=n_classes, n_features=len(saved.grid))
        if linear is not None:
            return linear.counts
    return lambda rows: count_votes(saved.ensemble.predictions(rows), n_classes=n_classes)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))

"""DAP: a task for a pair of aggregators such as janus, which people answer by ``@divviup/dap``.

Prio3 takes the place of keepers and their check: leader and helper add up, and neither sees an answer. They
return the exact sum, so the task has ``noise="tally"``: the tally adds the noise, and is trusted to show the
sum to nobody but :func:`ostraka.release`. The draft is pinned: DAP 09 with VDAF 08, which ``@divviup/dap``
0.9 speaks.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.encodings import Grid, Histogram, Sum, Visits
from ostraka.core import check
from ostraka.core.private import Private

if TYPE_CHECKING:
    from ostraka.collect.task import Task

DRAFT, PACKAGE = "dap-09", "@divviup/dap@0.9.1"


def exported(task: Task, *, leader: str, helper: str, precision: int = 3600) -> dict[str, Any]:
    """Return what clients and aggregators of DAP must know of a task.

    Parameters
    ----------
    task : Task
        With ``noise="tally"``, one round, and a Histogram, a Sum, or a Grid with one cell of a client.
    leader, helper : str
        Addresses of both aggregators.
    precision : int >= 1, seconds, default 3600
        To which times of reports are rounded.

    Returns
    -------
    dict
        ``client``: the parameters of ``new Task(…)`` of ``@divviup/dap``. ``aggregators``: the same task for
        both aggregators, without their secrets. ``draft`` and ``package`` that were tested. The identifier is
        the fingerprint of the task: reports are bound to it.

    Raises
    ------
    ValueError
        A task that DAP cannot run, or one whose sums carry noise of others.

    Examples
    --------
    >>> from ostraka.collect import Task
    >>> task = Task(Histogram(0, 9, cells=9), sigma=5.0, tally="ab" * 32, noise="tally")
    >>> exported(task, leader="https://a.example", helper="https://b.example")["client"]["chunkLength"]
    3
    """
    check.integer(precision=precision, least=1)
    encoding = _exact(task).encoding
    shape: dict[str, int]
    if isinstance(encoding, Sum):
        kind, shape = "sum", {"bits": encoding.bits}
    else:
        kind, shape = (
            "histogram",
            {"length": encoding.cells, "chunkLength": math.isqrt(encoding.cells - 1) + 1},
        )
    identifier = base64.urlsafe_b64encode(bytes.fromhex(task.sha256)).rstrip(b"=").decode()
    names = {"bits": "bits", "length": "length", "chunkLength": "chunk_length"}
    return {
        "draft": DRAFT,
        "package": PACKAGE,
        "client": {
            "type": kind, "id": identifier, "leader": leader, "helper": helper,
            "timePrecisionSeconds": precision, **shape,
        },
        "aggregators": {
            "task_id": identifier,
            "vdaf": {f"Prio3{kind.title()}": {names[name]: value for name, value in shape.items()}},
            "query_type": "TimeInterval",
            "min_batch_size": task.least,
            "time_precision": precision,
        },
    }  # fmt: skip


def measurement(task: Task, answer: Any) -> int:
    """Return what a client gives to ``sendMeasurement``: a cell, or a number of steps. Private."""
    vector = _exact(task).encoded(answer)
    if isinstance(task.encoding, Sum):
        return int(vector[0])
    if not vector.any():
        raise ValueError("DAP needs one position of each client")
    return int(vector.argmax())


def sums(task: Task, aggregate: Any, *, n_clients: int) -> Private:
    """Return the aggregators' exact sum for :func:`ostraka.release`, which adds the noise and is paid for.

    Parameters
    ----------
    task : Task
        As exported.
    aggregate : int, or sequence of int
        The result of the collection: a sum, or counts by cell.
    n_clients : int
        Reports in it, which is public.

    Raises
    ------
    ValueError
        Fewer clients than ``least`` or more than ``most``, or a sum that is not one of so many answers.

    Examples
    --------
    >>> from ostraka.collect import Task
    >>> task = Task(Histogram(0, 2, cells=2), sigma=5.0, tally="ab" * 32, noise="tally")
    >>> sums(task, [3, 4], n_clients=7)
    Private(shape=(2,), unit='client')
    """
    check.integer(n_clients=n_clients, least=1)
    if not task.least <= n_clients <= task.limit:
        raise ValueError(f"a round has {task.least} to {task.limit:,} clients, got {n_clients:,}")
    total = np.atleast_1d(np.asarray(aggregate))
    if total.dtype.kind not in "iu":
        raise ValueError("the aggregate must be whole numbers")
    total = total.astype(np.int64)
    largest = n_clients * _exact(task).encoding.largest
    counts = not isinstance(task.encoding, Sum)
    if total.shape != (task.encoding.cells,) or total.min() < 0 or total.max() > largest:
        raise ValueError("the aggregate is not the sum of so many answers")
    if counts and total.sum() != n_clients:
        raise ValueError("the counts of all cells must add up to the number of clients")
    return Private(total, task.mechanism.promise)


def _exact(task: Task) -> Task:
    encoding = task.encoding
    one_cell = isinstance(encoding, Histogram | Sum) or (
        isinstance(encoding, Grid) and not isinstance(encoding, Visits) and encoding.at_most == 1
    )
    if task.noise != "tally" or task.rounds != 1 or not one_cell:
        raise ValueError(
            "DAP takes a task with noise='tally' and one round, and a Histogram, a Sum or a Grid with "
            "at_most=1"
        )
    return task

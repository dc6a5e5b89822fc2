"""Batches of work on a Ray or Dask cluster. A lost worker, node or answer delays the batch and nothing else.

A batch travels by value, as one sequence of bytes that this process keeps until its answers are here. So
whatever a machine takes with it is made again from here. An answer comes with a digest of what the worker
was sent and of what it sent back; one that does not match counts as lost.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import warnings
from typing import TYPE_CHECKING, Any, Protocol

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ENGINES = ("ray", "dask")
_TRIES = 8  # of one batch, beyond what the cluster tries by itself
_RETRIES = 3  # by the cluster itself
_LOOK = 1.0  # seconds between two looks at a cluster that is silent


class LostError(Exception):
    """What ran a batch is gone, or its answer is."""


class Cluster(Protocol):
    """A cluster that runs batches. Its handles are its own; ``pickler`` names the module it pickles with."""

    pickler: str

    def count_workers(self) -> int:
        """How many batches it runs at a time."""
        ...

    def submit(self, batch: bytes) -> Any:
        """Begin a batch; return a handle of it."""
        ...

    def finished(self, handles: Sequence[Any]) -> list[Any]:
        """Those that have ended in one way or another, after a second at the latest."""
        ...

    def answer(self, handle: Any) -> tuple[bytes, bytes]:
        """What :func:`done` returned, or raise what the work raised, or LostError."""
        ...

    def cancel(self, handles: Sequence[Any]) -> None:
        """Give up what has not ended."""
        ...


def open_cluster(engine: str) -> Cluster:
    """The cluster of this session, which is started if there is none."""
    return _Ray() if engine == "ray" else _Dask()


def answers_of(
    cluster: Cluster,
    work: Callable[[Sequence[Any]], list[Any]],
    batches: Sequence[Sequence[Any]],
    *,
    at_once: int,
) -> Iterator[tuple[int, list[Any]]]:
    """Do the batches, so many at a time. Yield the place and the answers of each, in the order they come.

    Raises
    ------
    RuntimeError
        A batch was lost eight times in a row.
    Exception
        What the work raised.
    """
    tries, waiting = [0] * len(batches), list(reversed(range(len(batches))))
    running: dict[Any, tuple[int, bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                place = waiting.pop()
                content = importlib.import_module(cluster.pickler).dumps((work, batches[place]))
                running[cluster.submit(content)] = place, content
            for handle in cluster.finished(list(running)):
                place, content = running.pop(handle)
                try:
                    answer = _checked(cluster, handle, content)
                except LostError as error:
                    tries[place] += 1
                    if tries[place] == _TRIES:
                        raise RuntimeError(
                            f"the cluster lost the same batch {_TRIES} times ({error}): look whether its "
                            "workers have enough memory, or use engine='joblib'"
                        ) from None
                    waiting.append(place)
                else:
                    yield place, pickle.loads(answer)  # noqa: S301  (from a worker, under a digest)
    finally:
        cluster.cancel(list(running))


def _checked(cluster: Cluster, handle: Any, batch: bytes) -> bytes:
    sealed, answers = cluster.answer(handle)
    if sealed != _digest(batch, answers):
        raise LostError("its answer is not what a worker sent")
    return answers


def done(batch: bytes, pickler: str) -> tuple[bytes, bytes]:
    """Do a batch in a worker: the digest of what came and of what leaves, and the answers."""
    work, items = pickle.loads(batch)  # noqa: S301  (from the process that asks)
    answers = importlib.import_module(pickler).dumps(work(items))
    return _digest(batch, answers), answers


def _digest(batch: bytes, answers: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(batch).digest() + answers).digest()


class _Ray:
    """The Ray of this session; else that of RAY_ADDRESS; else one on this machine, of its own.

    A cluster that somebody else runs on this machine is not joined unless RAY_ADDRESS names it: rows are
    private, and its workers are not known.
    """

    pickler = "ray.cloudpickle"

    def __init__(self) -> None:
        self._ray = ray = check.require("ray", extra="ray")
        if not ray.is_initialized():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about its own future defaults
                ray.init(
                    address=os.environ.get("RAY_ADDRESS", "local"),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                )
        self._task = ray.remote(done).options(max_retries=_RETRIES)

    def count_workers(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, batch: bytes) -> Any:
        return self._task.remote(batch, self.pickler)

    def finished(self, handles: Sequence[Any]) -> list[Any]:
        ready, _ = self._ray.wait(list(handles), timeout=_LOOK, fetch_local=False)
        return list(ready)

    def answer(self, handle: Any) -> tuple[bytes, bytes]:
        errors = self._ray.exceptions
        try:
            sealed, answers = self._ray.get(handle)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise LostError(type(error).__name__) from None
        return sealed, answers

    def cancel(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            self._ray.cancel(handle, force=True)


class _Dask:
    """The Dask client of this session; else a local cluster, for the session."""

    pickler = "cloudpickle"

    def __init__(self) -> None:
        self._distributed = distributed = check.require("distributed", extra="dask")
        try:
            self._client = distributed.get_client()
        except ValueError:
            # becomes the session's client, and is closed at exit
            self._client = distributed.Client(dashboard_address=None)

    def count_workers(self) -> int:
        return max(1, int(sum(self._client.nthreads().values())))

    def submit(self, batch: bytes) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a large batch is meant to lie at the scheduler, which survives
            return self._client.submit(done, batch, self.pickler, pure=False)

    def finished(self, handles: Sequence[Any]) -> list[Any]:
        try:
            state = self._distributed.wait(list(handles), timeout=_LOOK, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return []
        return list(state.done)

    def answer(self, handle: Any) -> tuple[bytes, bytes]:
        lost = (self._distributed.KilledWorker, self._distributed.client.FutureCancelledError)
        try:
            sealed, answers = handle.result()
        except lost as error:
            raise LostError(type(error).__name__) from None
        return sealed, answers

    def cancel(self, handles: Sequence[Any]) -> None:
        if handles:
            self._client.cancel(list(handles), force=True)

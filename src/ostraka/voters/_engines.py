"""Engines: teachers train and vote in this process, on several cores, or on a Ray or Dask cluster."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

import joblib

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["spread"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_INTERVAL = 0.2  # seconds between two reports of progress
_TRY_ALONE = 1.0  # seconds of work in this process before a pool is considered
_WORTH_A_POOL = 4.0  # seconds of work left, below which starting worker processes takes longer


def spread(
    work: Callable[[Sequence[Item]], list[Answer]],
    items: Sequence[Item],
    *,
    engine: str,
    n_jobs: int | None,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> list[Answer]:
    """Apply ``work`` to every item, and return the answers in the order of the items.

    ``work`` takes a batch and must treat each item separately. A task carries only the items of its
    batch, in memory and never through a memory-mapped file, because they may be private.
    """
    done: list[Answer] = []
    if engine == "joblib":
        done = _alone(work, items, alone=joblib.effective_n_jobs(_jobs(n_jobs)) == 1, on_progress=on_progress)
    left = items[len(done) :]
    if not left:
        return done
    with _backend(engine):
        streams = joblib.parallel.get_active_backend()[0].supports_return_generator  # Ray's does not
        pool = joblib.Parallel(
            n_jobs=_jobs(n_jobs),
            return_as="generator" if streams else "list",
            max_nbytes=None,
            pre_dispatch="all",
        )
        size = -(-len(left) // (4 * joblib.effective_n_jobs(_jobs(n_jobs))))
        batches = [list(left[start : start + size]) for start in range(0, len(left), size)]
        for answers in pool(joblib.delayed(work)(batch) for batch in batches):
            done += answers
            on_progress(len(done), len(items))
    return done


def _alone(
    work: Callable[[Sequence[Item]], list[Answer]],
    items: Sequence[Item],
    *,
    alone: bool,
    on_progress: Callable[[int, int], object],
) -> list[Answer]:
    """Work in this process, a fraction of a second at a time, until a pool would be faster."""
    done: list[Answer] = []
    start = time.perf_counter()
    pace = _INTERVAL  # seconds for an item; unknown at first, so that the first batch is one item
    while len(done) < len(items):
        done += work(items[len(done) : len(done) + max(1, int(_INTERVAL / pace))])
        on_progress(len(done), len(items))
        spent = time.perf_counter() - start
        pace = spent / len(done)
        if not alone and spent > _TRY_ALONE and pace * (len(items) - len(done)) > _WORTH_A_POOL:
            break
    return done


def _jobs(n_jobs: int | None) -> int | None:
    """All cores, unless the caller or a surrounding ``joblib.parallel_config`` says how many."""
    ambient = joblib.parallel.get_active_backend()[1]
    return n_jobs if n_jobs is not None or ambient is not None else -1


@contextlib.contextmanager
def _backend(engine: str) -> Iterator[None]:
    """The joblib back end of that name. If there is no cluster, one is started on this machine."""
    with contextlib.ExitStack() as stack:
        if engine == "ray":
            _check.require("ray.util.joblib", extra="ray").register_ray()
        if engine == "dask":
            _dask_client(_check.require("distributed", extra="dask"), stack)
        if engine != "joblib":
            stack.enter_context(joblib.parallel_config(backend=engine))
        yield


def _dask_client(distributed: Any, stack: contextlib.ExitStack) -> None:
    """Use the current client, or a local cluster until the work is done."""
    try:
        distributed.get_client()
    except ValueError:
        stack.enter_context(distributed.Client(dashboard_address=None))

"""Engines: teachers train and vote in this process, on several cores, or on a Ray or Dask cluster."""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import joblib

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["n_workers", "spread"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_INTERVAL = 0.2  # seconds between two reports of progress
_TRY_ALONE = 1.0  # seconds of processor time in this process before a pool is considered
_WORTH_A_POOL = 4.0  # seconds of processor time left, below which starting worker processes takes longer


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


def n_workers(engine: str, n_jobs: int | None) -> int:
    """How many workers an engine has, which is started if it is not running."""
    with _backend(engine):
        return int(joblib.effective_n_jobs(_jobs(n_jobs)))


def _alone(
    work: Callable[[Sequence[Item]], list[Answer]],
    items: Sequence[Item],
    *,
    alone: bool,
    on_progress: Callable[[int, int], object],
) -> list[Answer]:
    """Work in this process, a fraction of a second at a time, until a pool would be faster."""
    # processor time decides: on a busy machine a pool would wait just as long, and start slowly
    done: list[Answer] = []
    start, start_work = time.perf_counter(), time.process_time()
    pace = _INTERVAL  # seconds for an item; unknown at first, so that the first batch is one item
    while len(done) < len(items):
        done += work(items[len(done) : len(done) + max(1, int(_INTERVAL / pace))])
        on_progress(len(done), len(items))
        pace = (time.perf_counter() - start) / len(done)
        worked = time.process_time() - start_work
        left = worked / len(done) * (len(items) - len(done))
        if not alone and worked > _TRY_ALONE and left > _WORTH_A_POOL:
            break
    return done


def _jobs(n_jobs: int | None) -> int | None:
    """All cores, unless the caller or a surrounding ``joblib.parallel_config`` says how many."""
    ambient = joblib.parallel.get_active_backend()[1]
    return n_jobs if n_jobs is not None or ambient is not None else -1


@contextlib.contextmanager
def _backend(engine: str) -> Iterator[None]:
    """The joblib back end of that name."""
    if engine == "ray":
        _start_ray(_check.require("ray", extra="ray"))
        _check.require("ray.util.joblib", extra="ray").register_ray()
    if engine == "dask":
        _start_dask(_check.require("distributed", extra="dask"))
    with contextlib.nullcontext() if engine == "joblib" else joblib.parallel_config(backend=engine):
        yield


def _start_ray(ray: Any) -> None:
    """Use the Ray of this session. If there is none, connect to RAY_ADDRESS or start one on this machine."""
    if not ray.is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its own future defaults
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")


def _start_dask(distributed: Any) -> None:
    """Use the Dask client of this session. If there is none, start a local cluster for the session."""
    try:
        distributed.get_client()
    except ValueError:
        distributed.Client(dashboard_address=None)  # becomes the session's client, and is closed at exit

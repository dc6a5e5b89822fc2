"""Engines: where teachers train and vote. Here, on the other cores, or on a Ray or Dask cluster."""

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

_BREATH = 0.2  # seconds between two signs of life
_TRY_ALONE = 1.0  # seconds of work done here before anything else is considered
_WORTH_A_POOL = 4.0  # seconds of work left, below which starting worker processes does not pay


def spread(
    work: Callable[[Sequence[Item]], list[Answer]],
    items: Sequence[Item],
    *,
    engine: str,
    n_jobs: int | None,
    told: Callable[[int, int], object] = lambda _done, _total: None,
) -> list[Answer]:
    """``work`` done on every item, answers in the order of the items, whatever the engine.

    ``work`` takes a batch and must treat each item alone. Only the items of a batch travel with
    it, in memory and never through a memory-mapped file: they may be private.
    """
    done: list[Answer] = []
    if engine == "joblib":
        done = _alone(work, items, alone=joblib.effective_n_jobs(_jobs(n_jobs)) == 1, told=told)
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
            told(len(done), len(items))
    return done


def _alone(
    work: Callable[[Sequence[Item]], list[Answer]],
    items: Sequence[Item],
    *,
    alone: bool,
    told: Callable[[int, int], object],
) -> list[Answer]:
    """In this process, a fraction of a second at a time, until it is clear that a pool would be quicker."""
    done: list[Answer] = []
    start = time.perf_counter()
    pace = _BREATH  # seconds an item, at first unknown and so taken one at a time
    while len(done) < len(items):
        done += work(items[len(done) : len(done) + max(1, int(_BREATH / pace))])
        told(len(done), len(items))
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
    """The joblib back end of that name; a cluster that is not there yet is started on this machine."""
    with contextlib.ExitStack() as stack:
        if engine == "ray":
            _check.require("ray.util.joblib", extra="ray").register_ray()
        if engine == "dask":
            _dask_client(_check.require("distributed", extra="dask"), stack)
        if engine != "joblib":
            stack.enter_context(joblib.parallel_config(backend=engine))
        yield


def _dask_client(distributed: Any, stack: contextlib.ExitStack) -> None:
    """The client in use, or a local cluster for as long as the work lasts."""
    try:
        distributed.get_client()
    except ValueError:
        stack.enter_context(distributed.Client(dashboard_address=None))

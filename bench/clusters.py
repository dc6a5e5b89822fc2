"""Many teachers on a Ray and on a Dask cluster of this machine: time, bytes moved, peak memory of a worker.

5,000 logistic regressions learn from 200 rows of 20 columns each. The same shards are trained in this process
first, and every teacher must come out the same to the last bit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import resource
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped,unused-ignore]
import numpy as np
from sklearn.linear_model import LogisticRegression

from ostraka.voters import partition
from ostraka.voters._engines import spread
from ostraka.voters._voting import Shard, train

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ostraka.voters._voting import Teacher

ROWS, COLUMNS, TEACHERS, WORKERS = 1_000_000, 20, 5_000, 2
ENGINES = ("ray", "dask")
QUICK = {"ROWS": 400, "TEACHERS": 20, "ENGINES": ()}


def observed(work: Any, batch: Sequence[Shard]) -> list[tuple[Teacher, tuple[int, float, int]]]:
    """Train a batch, and tell which process did it, its peak memory in GiB, and the bytes that came."""
    came = len(cloudpickle.dumps(batch))
    teachers = work(batch)
    unit = 2**30 if sys.platform == "darwin" else 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return [
        (teacher, (os.getpid(), peak, came if place == 0 else 0)) for place, teacher in enumerate(teachers)
    ]


def shards() -> list[Shard]:
    """Rows of two classes, dealt to teachers."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, ROWS)
    X = rng.normal(size=(ROWS, COLUMNS)) + 0.5 * y[:, None]
    manifest = partition(ROWS, n_teachers=TEACHERS, key=b"no secret: the same shards each time")
    seeds = np.random.SeedSequence(0).spawn(TEACHERS)
    return [
        Shard(X.take(rows, axis=0), y[rows], seed, 0)
        for rows, seed in zip(manifest.rows(), seeds, strict=True)
    ]


@contextlib.contextmanager
def cluster(engine: str) -> Iterator[None]:
    """Start so many workers of one thread each."""
    if engine == "ray":
        import ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            yield
        finally:
            ray.shutdown()
    else:
        import distributed

        with distributed.Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None):
            yield


def main() -> None:
    """Train here, then on each cluster that is installed."""
    items = shards()
    start = time.perf_counter()
    alone = train(LogisticRegression(), items)
    took = time.perf_counter() - start
    print(f"  {TEACHERS:,} teachers, {ROWS:,} rows, in this process: {took:.1f} s", flush=True)
    for engine in ENGINES:
        if importlib.util.find_spec({"dask": "distributed"}.get(engine, engine)) is None:
            print(f"  {engine} is not installed")
            continue
        with contextlib.redirect_stderr(io.StringIO()), cluster(engine):
            start = time.perf_counter()
            work = partial(observed, partial(train, LogisticRegression()))
            found = spread(work, items, engine=engine, n_jobs=WORKERS)
            took = time.perf_counter() - start
        for (teacher, _), other in zip(found, alone, strict=True):
            assert teacher.model.coef_.tobytes() == other.model.coef_.tobytes(), "another solution"
        came = sum(facts[2] for _, facts in found)
        back = len(cloudpickle.dumps([teacher for teacher, _ in found]))
        n_workers, peak = len({facts[0] for _, facts in found}), max(facts[1] for _, facts in found)
        print(
            f"  {engine}: {took:.1f} s, {came / 2**20:.0f} MiB sent to {n_workers} workers, "
            f"{back / 2**20:.0f} MiB back, at most {peak:.2f} GiB a worker; same teachers",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Many teachers on a Ray and on a Dask cluster of this machine: time, bytes moved, peak memory of a worker.

5,000 logistic regressions learn from 200 rows of 20 columns each: from shards that are sent, and from Parquet
files that each worker reads for itself. The same shards are trained in this process first, and every teacher
must come out the same to the last bit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import cloudpickle  # type: ignore[import-untyped,unused-ignore]
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression

from ostraka.data.parquet import ParquetRows
from ostraka.voters import partition
from ostraka.voters import voting as _voting
from ostraka.voters.voting import Shard, spread, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.voters.voting import Teacher

ROWS, COLUMNS, TEACHERS, WORKERS = 1_000_000, 20, 5_000, 2
FILES, GROUP = 8, 25_000  # Parquet files, and rows of a row group
ENGINES = ("ray", "dask")
QUICK = {"ROWS": 400, "TEACHERS": 20, "ENGINES": (), "FILES": 2, "GROUP": 50}

Facts = tuple[int, float, int]


def observed(work: Callable[[Sequence[Any]], list[Any]], batch: Sequence[Any]) -> list[tuple[Any, Facts]]:
    """Do a batch, and tell which process did it, its peak memory in GiB, and the bytes that came."""
    came = len(cloudpickle.dumps((work, batch)))
    answers = work(batch)
    unit = 2**30 if sys.platform == "darwin" else 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return [(answer, (os.getpid(), peak, came if place == 0 else 0)) for place, answer in enumerate(answers)]


def table() -> tuple[np.ndarray, np.ndarray]:
    """Rows of two classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, ROWS)
    return rng.normal(size=(ROWS, COLUMNS)) + 0.5 * y[:, None], y


def shards(y: np.ndarray) -> list[Shard]:
    """Numbers of rows, dealt to teachers."""
    manifest = partition(ROWS, n_teachers=TEACHERS, key=b"no secret: the same shards each time")
    seeds = np.random.SeedSequence(0).spawn(TEACHERS)
    return [Shard(rows, y[rows], seed, 0) for rows, seed in zip(manifest.rows(), seeds, strict=True)]


def write(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Write the rows to Parquet files."""
    for number, rows in enumerate(np.array_split(np.arange(ROWS), FILES)):
        columns = {f"x{place}": X[rows, place] for place in range(COLUMNS)} | {"y": y[rows]}
        parquet.write_table(pa.table(columns), folder / f"{number:03}.parquet", row_group_size=GROUP)


@contextlib.contextmanager
def cluster(engine: str) -> Iterator[None]:
    """Start so many workers of one thread each; none for joblib."""
    if engine == "joblib":
        yield
    elif engine == "ray":
        import ray

        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init("local", num_cpus=WORKERS, **quiet)  # no cluster that somebody else runs here
        try:
            yield
        finally:
            ray.shutdown()
    else:
        import distributed

        with distributed.Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None):
            yield


def sent(items: list[Shard], X: np.ndarray, engine: str) -> tuple[list[Teacher], list[Facts]]:
    """Train from shards that travel to the workers."""
    work = partial(observed, partial(train, LogisticRegression()))
    shards = [shard._replace(X=X.take(shard.X, axis=0)) for shard in items]
    answers = spread(work, shards, engine=engine, n_jobs=WORKERS)
    return [teacher for teacher, _ in answers], [facts for _, facts in answers]


def read(items: list[Shard], rows: ParquetRows, engine: str) -> tuple[list[Teacher], list[Facts]]:
    """Train from files that the workers read."""
    all_facts: list[Facts] = []

    def watched(work: Any, parts: Any, **options: Any) -> list[Any]:
        answers = spread(partial(observed, work), parts, **options)
        all_facts.extend(facts for _, facts in answers)
        return [answer for answer, _ in answers]

    with mock.patch("ostraka.voters.voting.spread", watched):
        return _voting.train_where_they_lie(
            LogisticRegression(), rows, items, engine=engine, n_jobs=WORKERS, on_progress=lambda *_: None
        ), all_facts


def main() -> None:
    """Train here, then on each cluster that is installed, from shards sent and from files."""
    X, y = table()
    items = shards(y)
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), X, y)
        rows = ParquetRows.numbers(Path(place), aside=["y"])
        size = sum(path.stat().st_size for path in Path(place).iterdir()) / 2**20
        print(f"  {TEACHERS:,} teachers, {ROWS:,} rows, {FILES} Parquet files of {size:.0f} MiB in all")
        alone, _ = sent(items, X, "joblib")
        for engine in ("joblib", *ENGINES):
            if importlib.util.find_spec({"dask": "distributed"}.get(engine, engine)) is None:
                print(f"  {engine} is not installed")
                continue
            show(engine, "shards sent", alone, partial(sent, items, X))
            show(engine, "files read by workers", alone, partial(read, items, rows))


def show(
    engine: str, how: str, alone: list[Teacher], work: Callable[[str], tuple[list[Teacher], list[Facts]]]
) -> None:
    """Print the figures of one run, and compare its teachers with those trained here."""
    with contextlib.redirect_stderr(io.StringIO()), cluster(engine):
        start = time.perf_counter()
        teachers, facts = work(engine)
        took = time.perf_counter() - start
    for teacher, lone_teacher in zip(teachers, alone, strict=True):
        assert teacher.model.coef_.tobytes() == lone_teacher.model.coef_.tobytes(), "another solution"
    came, back = sum(fact[2] for fact in facts), len(cloudpickle.dumps(teachers))
    n_workers, peak = len({fact[0] for fact in facts}), max(fact[1] for fact in facts)
    name = {"joblib": "this process"}.get(engine, engine)
    print(
        f"  {name}, {how}: {took:.1f} s, {came / 2**20:.1f} MiB sent to {n_workers} workers, "
        f"{back / 2**20:.0f} MiB back, at most {peak:.2f} GiB a worker; same teachers",
        flush=True,
    )


if __name__ == "__main__":
    main()

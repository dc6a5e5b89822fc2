"""Ballots: teachers train on their shards and vote, on this machine or a cluster, and ballots are counted.

Teachers train and vote in this process, on several cores, or on a Ray or Dask cluster. There a lost
worker, node or answer delays a batch and nothing else. A batch travels by value, as one sequence of bytes
that this process keeps until its answers are here. So whatever a machine takes with it is made again from
here. An answer comes with a digest of what the worker was sent and of what it sent back; one that does not
match counts as lost.

Rows in Parquet files are read by the workers, where the files lie, each its own shards' rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pickle
import random
import threading
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import joblib
import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.utils import get_tags

from ostraka.core import check
from ostraka.core.numeric import one_thread
from ostraka.voters import kinds
from ostraka.voters.kinds import LinearTeachers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.data.parquet import ParquetRows, Piece

_FEW_CLASSES, _MOST_IN_A_BYTE = 32, 255
_AT_ONCE = 2**20  # ballots that are counted at once: they stay in the fast cache
_LOCK = threading.RLock()  # global generators and warning filters belong to the whole process
Item = TypeVar("Item")
Answer = TypeVar("Answer")
_INTERVAL = 0.2  # seconds between two reports of progress
_TRY_ALONE = 1.0  # seconds of processor time in this process before a pool is considered
_WORTH_A_POOL = 4.0  # seconds of processor time left, below which starting worker processes takes longer
_CELLS_A_PART = 2**28  # of the rows that a worker holds at once: 1 GiB in 32 bits, as the files have them
_NUMBERS_AT_ONCE = 2**23  # of the features that are trained on at once: 64 MiB
ENGINES = ("ray", "dask")
_TRIES = 8  # of one batch, beyond what the cluster tries by itself
_RETRIES = 3  # by the cluster itself
_LOOK = 1.0  # seconds between two looks at a cluster that is silent


def count_votes(predictions: Any, *, n_classes: int) -> np.ndarray:
    """Count the teachers' ballots.

    Parameters
    ----------
    predictions : integer array, shape (n_teachers, n_queries)
        Private. Class indices; a teacher may not abstain.
    n_classes : int >= 2
        Public.

    Returns
    -------
    int64 array, shape (n_queries, n_classes), in votes
        Private: wrap it with :class:`~ostraka.Private`.

    Raises
    ------
    ValueError
        Not two-dimensional, not integers, or not in ``range(n_classes)``.

    Examples
    --------
    >>> count_votes([[0, 1], [0, 2], [1, 2]], n_classes=3)
    array([[2, 1, 0],
           [0, 1, 2]])
    """
    check.integer(n_classes=n_classes, least=2)
    ballots = np.asarray(predictions)
    if ballots.ndim != 2 or not ballots.size:
        raise ValueError(f"predictions must have shape (n_teachers, n_queries), got {ballots.shape}")
    if ballots.dtype.kind not in "iu":
        raise ValueError(f"predictions must be integer class indices, got dtype {ballots.dtype}")
    if ballots.min() < 0 or ballots.max() >= n_classes:
        raise ValueError(
            f"predictions must be class indices in range({n_classes}): a teacher may not abstain"
        )
    counts = np.zeros((ballots.shape[1], n_classes), dtype=np.int64)
    width = max(1, _AT_ONCE // len(ballots))
    for start in range(0, len(counts), width):
        part, table = ballots[:, start : start + width], counts[start : start + width]
        if n_classes > _FEW_CLASSES:
            # the cells of the table that ballots fall into
            cells = np.arange(len(table)) * n_classes + part.astype(np.int64)
            table[:] = np.bincount(cells.ravel(), minlength=table.size).reshape(table.shape)
            continue
        # all ballots are compared with each class: vectors of bytes
        narrow = part.astype(np.uint8, copy=False)
        for first in range(0, len(narrow), _MOST_IN_A_BYTE):
            block = narrow[first : first + _MOST_IN_A_BYTE]
            for label in range(n_classes):
                table[:, label] += np.add.reduce((block == label).view(np.uint8), axis=0, dtype=np.uint8)
    return counts


class Shard(NamedTuple):
    """One teacher's rows, the class index of each, its seed, and the class it votes if training fails."""

    X: Any
    codes: np.ndarray
    seed: np.random.SeedSequence
    fallback: int

    def __repr__(self) -> str:
        return "Shard(private)"


class Predictions(NamedTuple):
    """One teacher's class index for each query: its ballots."""

    codes: np.ndarray
    failed: bool

    def __repr__(self) -> str:
        return "Predictions(private)"


class Teacher(NamedTuple):
    """A trained estimator and the classes of its predictions. Without a model it always votes one class."""

    model: Any
    present: np.ndarray
    seed: np.random.SeedSequence
    fallback: int

    def __repr__(self) -> str:
        return "Teacher(private)"

    @property
    def failed(self) -> bool:
        """Whether its shard has several classes but training failed."""
        return self.model is None and len(self.present) != 1

    def codes(self, X: Any) -> np.ndarray:
        """The class index of each row. Raises what the estimator raises."""
        if self.model is None:
            return np.full(X.shape[0], self.present[0] if len(self.present) == 1 else self.fallback)
        local = np.asarray(self.model.predict(X))
        integers = local.astype(np.int64)
        if (
            local.shape != (X.shape[0],)
            or (integers != local).any()
            or integers.min() < 0
            or integers.max() >= len(self.present)
        ):
            raise ValueError("a teacher must predict one of its classes for each row: use a classifier")
        return self.present[integers]


def train(estimator: Any, shards: Sequence[Shard]) -> list[Teacher]:
    """Train a clone on each shard. No shard affects another teacher, and no error text is shown."""
    teachers = []
    with _quiet():
        coded = [np.unique(shard.codes, return_inverse=True) for shard in shards]
        several = [place for place, (present, _) in enumerate(coded) if len(present) > 1]
        rows, targets = [shards[k].X for k in several], [coded[k][1] for k in several]
        together = kinds.fit_together(estimator, rows, targets)
        models = dict(zip(several, together, strict=True))
        for place, (shard, (present, local)) in enumerate(zip(shards, coded, strict=True)):
            model = models.get(place)
            if model is None and len(present) > 1:
                # the text of an exception may hold private values, and an error may cost one ballot only
                with contextlib.suppress(Exception):
                    model = seeded(estimator, shard.seed).fit(shard.X, local)
            teachers.append(Teacher(model, present, shard.seed, shard.fallback))
    return teachers


def vote(X: Any, n_classes: int, teachers: Sequence[Teacher]) -> list[Predictions]:
    """Every teacher's predictions; a teacher that fails votes its fallback."""
    smallest = np.min_scalar_type(n_classes)
    if isinstance(X, np.ndarray) and X.dtype == np.float64 and np.isfinite(X).all():
        linear = LinearTeachers.of(teachers, n_classes=n_classes, n_features=X.shape[1])
        if linear is not None:  # one product gives the scores of all teachers
            cast = zip(linear.predictions(X).astype(smallest), teachers, strict=True)
            return [Predictions(codes, teacher.failed) for codes, teacher in cast]
    predictions = []
    with _quiet():
        for teacher in teachers:
            codes = np.full(X.shape[0], teacher.fallback)
            failed = True
            with contextlib.suppress(Exception):  # as in training
                _seed_globals(teacher.seed)
                codes, failed = teacher.codes(X), teacher.failed
            predictions.append(Predictions(codes.astype(smallest), failed))
    return predictions


def dry_run(estimator: Any, X: Any, codes: np.ndarray) -> None:
    """Train one teacher on public rows and let it predict; its errors are public and are raised."""
    seed = np.random.SeedSequence(0)
    with _quiet(trusted=False):
        Teacher(seeded(estimator, seed).fit(X, codes), np.unique(codes), seed, 0).codes(X)


def seeded(estimator: Any, seed: np.random.SeedSequence) -> Any:
    """A clone whose every ``random_state``, nested ones too, is drawn from ``seed``."""
    _seed_globals(seed)
    teacher = clone(estimator)
    names = sorted(name for name in teacher.get_params() if name.split("__")[-1] == "random_state")
    if names:
        states = (seed.generate_state(len(names)) >> 1).tolist()
        teacher.set_params(**dict(zip(names, states, strict=True)))
    return teacher


def _seed_globals(seed: np.random.SeedSequence) -> None:
    """Seed the global generators, from which estimators may draw."""
    state = int(seed.generate_state(1)[0])
    np.random.seed(state)  # noqa: NPY002
    random.seed(state)


@contextlib.contextmanager
def _quiet(*, trusted: bool = True) -> Iterator[None]:
    """Suppress warnings, use one thread (more are slower for small tasks), and skip repeated checks."""
    # the global generators are restored on exit; the lock is there because a second thread, which trains
    # another shard, would draw from the same global generators
    with _LOCK:
        before = np.random.get_state(), random.getstate()  # noqa: NPY002
        try:
            with (
                warnings.catch_warnings(),
                one_thread(),
                sklearn.config_context(assume_finite=trusted, skip_parameter_validation=trusted),
            ):
                warnings.simplefilter("ignore")
                yield
        finally:
            np.random.set_state(before[0])  # noqa: NPY002
            random.setstate(before[1])


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
    if engine in ENGINES:
        cluster = open_cluster(engine)
        jobs = _n_workers(cluster, n_jobs)
        batches = _batches(items, jobs)
        by_batch: dict[int, list[Answer]] = {}
        at_once = jobs if n_jobs is not None else 2 * jobs  # no worker waits for its next batch
        for place, answer in answers_of(cluster, work, batches, at_once=at_once):
            by_batch[place] = answer
            on_progress(sum(map(len, by_batch.values())), len(items))
        return [answer for place in range(len(batches)) for answer in by_batch[place]]
    answers: list[Answer] = []
    if engine == "joblib":
        # in this process, a fraction of a second at a time, until a pool would be faster; processor time
        # decides: on a busy machine a pool would wait just as long, and start slowly
        alone = joblib.effective_n_jobs(_jobs(n_jobs)) == 1
        start, start_work = time.perf_counter(), time.process_time()
        pace = _INTERVAL  # seconds for an item; unknown at first, so that the first batch is one item
        while (n := len(answers)) < len(items):
            answers += work(items[n : n + max(1, int(_INTERVAL / pace))])
            on_progress(len(answers), len(items))
            pace = (time.perf_counter() - start) / len(answers)
            worked = time.process_time() - start_work
            seconds_left = worked / len(answers) * (len(items) - len(answers))
            if not alone and worked > _TRY_ALONE and seconds_left > _WORTH_A_POOL:
                break
    remaining = items[len(answers) :]
    if not remaining:
        return answers
    with _backend(engine):
        streams = joblib.parallel.get_active_backend()[0].supports_return_generator
        pool = joblib.Parallel(
            n_jobs=_jobs(n_jobs),
            return_as="generator" if streams else "list",
            max_nbytes=None,
            pre_dispatch="all",
        )
        n_jobs_now = joblib.effective_n_jobs(_jobs(n_jobs))
        for answer in pool(joblib.delayed(work)(batch) for batch in _batches(remaining, n_jobs_now)):
            answers += answer
            on_progress(len(answers), len(items))
    return answers


def n_workers(engine: str, n_jobs: int | None) -> int:
    """How many workers an engine has, which is started if it is not running."""
    if engine in ENGINES:
        return _n_workers(open_cluster(engine), n_jobs)
    with _backend(engine):
        return int(joblib.effective_n_jobs(_jobs(n_jobs)))


def _n_workers(cluster: _Ray | _Dask, n_jobs: int | None) -> int:
    jobs, workers = _jobs(n_jobs), cluster.count_workers()
    if jobs is None or jobs == -1:
        return workers
    return jobs if jobs > 0 else max(1, workers + 1 + jobs)  # as joblib counts


def _batches(items: Sequence[Item], n_jobs: int) -> list[list[Item]]:
    """About four batches for each worker, so that all of them end at about the same time."""
    size = -(-len(items) // (4 * n_jobs))
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _backend(engine: str) -> contextlib.AbstractContextManager[Any]:
    """The workers of this machine by name; those of "joblib" may be set by a ``parallel_config`` around."""
    if engine == "joblib":
        return contextlib.nullcontext()
    if not isinstance(engine, str) or engine not in joblib.parallel.BACKENDS:
        names = ", ".join(map(repr, ("joblib", *ENGINES, *joblib.parallel.BACKENDS)))
        raise ValueError(f"engine must be one of {names}, got {engine!r}")
    backend: contextlib.AbstractContextManager[Any] = joblib.parallel_config(backend=engine)
    return backend


def _jobs(n_jobs: int | None) -> int | None:
    """All cores, unless the caller or a surrounding ``joblib.parallel_config`` says how many."""
    if n_jobs == 0 or not isinstance(n_jobs, int | np.integer | None):
        raise ValueError(
            "n_jobs must be a whole number, and not 0: None takes all cores, and -1 does so, too"
        )
    ambient = joblib.parallel.get_active_backend()[1]
    return n_jobs if n_jobs is not None or ambient is not None else -1


def applied(
    rows: ParquetRows, work: Callable[[np.ndarray], np.ndarray], *, engine: str, n_jobs: int | None
) -> list[np.ndarray]:
    """Apply ``work`` to the features of each row group, where the files lie."""
    return _gathered(spread(partial(_applied, rows, work), rows.pieces, engine=engine, n_jobs=n_jobs))


def train_where_they_lie(
    estimator: Any,
    rows: ParquetRows,
    shards: Sequence[Shard],
    *,
    engine: str,
    n_jobs: int | None,
    on_progress: Callable[[int, int], object],
) -> list[Teacher]:
    """Train a clone on each shard, whose ``X`` holds numbers of rows; each worker reads the files itself.

    Raises
    ------
    ValueError
        A worker could not use the files.
    """
    light = [  # all that is sent: numbers of rows and classes, in few bytes
        shard._replace(codes=shard.codes.astype(np.min_scalar_type(int(shard.codes.max()))))
        for shard in shards
    ]
    # a part for each worker, or more where a part would be too large
    cells = len(rows) * len(rows.columns)
    n_parts = min(len(light), max(n_workers(engine, n_jobs), -(-cells // _CELLS_A_PART)))
    size = -(-len(light) // n_parts)
    parts = [light[start : start + size] for start in range(0, len(light), size)]
    work = partial(_trained, estimator, rows)
    answers = spread(work, parts, engine=engine, n_jobs=n_jobs, on_progress=on_progress)
    return [teacher for teachers in _gathered(answers) for teacher in teachers]


def _gathered(answers: Sequence[tuple[Any, str]]) -> list[Any]:
    """Answers of workers, or the first error that they tell: clusters wrap exceptions in their own."""
    for _, error in answers:
        if error:
            raise ValueError(error)
    return [answer for answer, _ in answers]


def _applied(
    rows: ParquetRows, work: Callable[[np.ndarray], np.ndarray], pieces: Sequence[Piece]
) -> list[tuple[Any, str]]:
    answers: list[tuple[Any, str]] = []
    try:
        blocks = rows.blocks(pieces)
        for piece in pieces:
            made: list[np.ndarray] = []
            while sum(map(len, made)) < piece.n_rows:
                made.append(work(next(blocks)[1]))
            answers.append((np.concatenate(made), ""))
    except (ValueError, OSError) as error:
        return [(None, str(error))] * len(pieces)
    return answers


def _trained(
    estimator: Any, rows: ParquetRows, parts: Sequence[list[Shard]]
) -> list[tuple[list[Teacher], str]]:
    """The teachers of each part, or why its rows could not be read."""
    answers: list[tuple[list[Teacher], str]] = []
    for part in parts:
        nan = bool(get_tags(estimator).input_tags.allow_nan)
        teachers, waiting = list[Teacher](), list[Shard]()
        error = ""
        try:
            features = rows.taken([shard.X for shard in part])
            for number, (shard, X) in enumerate(zip(part, features, strict=True), start=1):
                if not (nan or np.isfinite(X).all()):
                    error = (
                        f"some rows of {rows.files[0]}{' or another file' * (len(rows.files) > 1)} have "
                        "missing or infinite numbers, which these teachers do not take: drop or fill them"
                    )
                    break
                # arrays lie in memory as rows that are selected from a table here: sums round in the same way
                waiting.append(shard._replace(X=X, codes=shard.codes.astype(np.int64)))
                if number == len(part) or sum(some.X.size for some in waiting) >= _NUMBERS_AT_ONCE:
                    teachers += train(estimator, waiting)
                    waiting.clear()
        except (ValueError, OSError) as failure:
            error = str(failure)
        answers.append(([] if error else teachers, error))
    return answers


class LostError(Exception):
    """What ran a batch is gone, or its answer is."""


def open_cluster(engine: str) -> _Ray | _Dask:
    """The cluster of this session, which is started if there is none."""
    return _Ray() if engine == "ray" else _Dask()


def answers_of(
    cluster: _Ray | _Dask,
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
                    sealed, answer = cluster.answer(handle)
                    if sealed != _digest(content, answer):
                        raise LostError("its answer is not what a worker sent")  # noqa: TRY301  (is done again)
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
    private, and its workers are not known. Handles of batches are its own; ``pickler`` names the module that
    it pickles with.
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
        """How many batches it runs at a time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, batch: bytes) -> Any:
        """Begin a batch; return a handle of it."""
        return self._task.remote(batch, self.pickler)

    def finished(self, handles: Sequence[Any]) -> list[Any]:
        """Those that have ended in one way or another, after a second at the latest."""
        ready, _ = self._ray.wait(list(handles), timeout=_LOOK, fetch_local=False)
        return list(ready)

    def answer(self, handle: Any) -> tuple[bytes, bytes]:
        """What :func:`done` returned, or raise what the work raised, or LostError."""
        errors = self._ray.exceptions
        try:
            sealed, answers = self._ray.get(handle)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise LostError(type(error).__name__) from None
        return sealed, answers

    def cancel(self, handles: Sequence[Any]) -> None:
        """Give up what has not ended."""
        for handle in handles:
            self._ray.cancel(handle, force=True)


class _Dask:
    """The Dask client of this session; else a local cluster, for the session. As :class:`_Ray`."""

    pickler = "cloudpickle"

    def __init__(self) -> None:
        self._distributed = distributed = check.require("distributed", extra="dask")
        try:
            self._client = distributed.get_client()
        except ValueError:
            # becomes the session's client, and is closed at exit; None would ask for one port of the machine
            self._client = distributed.Client(dashboard_address=":0")

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

"""Engines: the same answers in the same order wherever the work is done."""

import builtins
import importlib
import os
from types import SimpleNamespace

import joblib
import pytest

from ostraka.voters import voting
from ostraka.voters.voting import spread

ITEMS = list(range(40))
SQUARES = [number**2 for number in ITEMS]


def work():
    """Kinds of work as closures: worker processes cannot import this file, so they must travel by value."""

    def squares(batch):
        return [number**2 for number in batch]

    def where(batch):
        return [(number**2, os.getpid()) for number in batch]

    return squares, where


squares, where = work()


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_this_process_does_light_work_itself(n_jobs, monkeypatch):
    monkeypatch.setattr(voting, "_WORTH_A_POOL", 1000.0)  # on a busy machine light work may take seconds
    answers = spread(where, ITEMS, engine="joblib", n_jobs=n_jobs)
    assert answers == [(square, os.getpid()) for square in SQUARES]


@pytest.mark.parametrize("engine", ["threading", "loky", "sequential"])
def test_any_joblib_back_end_gives_the_same_answers(engine):
    assert spread(squares, ITEMS, engine=engine, n_jobs=2) == SQUARES


class Clock:
    """The time of the machine, and of a processor, in sixteenths of a second: an item takes so many."""

    def __init__(self, item, *, busy=False):
        self.sixteenths, self.item, self.busy, self.batches = 0, item, busy, []

    def work(self, batch):
        self.sixteenths += self.item * len(batch)
        self.batches.append(len(batch))
        return squares(batch)

    def perf_counter(self):
        return self.sixteenths / 16

    def process_time(self):
        return 0.0 if self.busy else self.sixteenths / 16


ALONE = [1, 3, 3, 3, 3, 3, 3]  # one to see how long it takes, then a fifth of a second, up to more than one


@pytest.mark.parametrize(
    ("n_items", "item", "n_jobs", "busy", "batches"),
    [
        (200, 1, 2, False, [*ALONE, *[23] * 7, 20]),  # the others in four batches for each worker
        (84, 1, 2, False, [*ALONE, *[9] * 7, 2]),
        (83, 1, 2, False, [*ALONE, *[3] * 21, 1]),  # four seconds are left: a pool would take longer
        (200, 1, 1, False, [*ALONE, *[3] * 60, 1]),
        (200, 1, 2, True, [*ALONE, *[3] * 60, 1]),  # it waits for a busy machine, as a pool would
        (20, 16, 2, False, [1, 1, *[3] * 6]),  # a second is not more than a second
        (6, 16, 1, False, [1] * 6),
    ],
)
def test_work_goes_to_a_pool_where_that_pays_and_keeps_its_order(
    n_items, item, n_jobs, *, busy, batches, monkeypatch
):
    clock, progress = Clock(item, busy=busy), []
    monkeypatch.setattr(voting, "time", clock)
    with joblib.parallel_config(backend="threading", n_jobs=n_jobs):
        answers = spread(
            clock.work,
            range(n_items),
            engine="joblib",
            n_jobs=None,
            on_progress=lambda *event: progress.append(event),
        )
    assert answers == [number**2 for number in range(n_items)]
    assert sorted(clock.batches, reverse=True) == sorted(batches, reverse=True)
    assert clock.batches[:2] == batches[:2]
    assert progress == sorted(progress)
    assert (progress[0], progress[-1]) == ((1, n_items), (n_items, n_items))
    assert len(progress) == len(batches)


@pytest.mark.parametrize("n_jobs", [1, 2, 4, 9])
def test_a_worker_of_a_cluster_has_about_four_batches(n_jobs):
    batches = voting._batches(range(1000), n_jobs)
    assert [item for batch in batches for item in batch] == list(range(1000))
    assert 3.5 * n_jobs < len(batches) <= 4 * n_jobs
    assert len({len(batch) for batch in batches[:-1]}) == 1


@pytest.mark.parametrize(("n_jobs", "jobs"), [(None, 4), (-1, 4), (-2, 3), (-4, 1), (-9, 1), (6, 6)])
def test_negative_jobs_leave_workers_of_a_cluster_out_as_joblib_does(n_jobs, jobs, monkeypatch):
    monkeypatch.setattr(voting, "open_cluster", lambda _engine: SimpleNamespace(count_workers=lambda: 4))
    assert voting.n_workers("ray", n_jobs) == jobs
    assert voting.n_workers("threading", 3) == 3


@pytest.mark.parametrize(
    ("engine", "package", "extra"), [("ray", "ray", "ray"), ("dask", "distributed", "dask")]
)
def test_a_missing_cluster_names_its_install_command(engine, package, extra, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=rf"pip install '{extra}>=[\d.]+'"):
        spread(squares, ITEMS, engine=engine, n_jobs=None)


@pytest.mark.parametrize(
    ("engine", "n_jobs", "words"),
    [
        ("abacus", 2, "engine must be one of .*, got .abacus"),
        ("joblib", 0, "n_jobs must be a whole number, and not 0"),
    ],
)
def test_an_unknown_engine_and_no_jobs_are_refused(engine, n_jobs, words):
    with pytest.raises(ValueError, match=words):
        spread(squares, ITEMS, engine=engine, n_jobs=n_jobs)

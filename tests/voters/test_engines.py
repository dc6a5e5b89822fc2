"""Engines: the same answers in the same order wherever the work is done."""

import builtins
import importlib
import os
import time
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


def test_heavy_work_goes_to_a_pool_and_keeps_its_order(monkeypatch):
    monkeypatch.setattr(voting, "_TRY_ALONE", 0.0)
    monkeypatch.setattr(voting, "_WORTH_A_POOL", 0.0)
    monkeypatch.setattr(voting, "_INTERVAL", 1e-9)
    batches = []

    def noted(batch):
        batches.append(len(batch))
        return squares(batch)

    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert spread(noted, ITEMS, engine="joblib", n_jobs=None) == SQUARES
    assert batches[0] == 1, "one item here, to see how long it takes"
    assert len(batches) > 2, "the others in several batches"
    assert sum(batches) == len(ITEMS), "and nothing twice"


@pytest.mark.parametrize("n_jobs", [1, 2, 4, 9])
def test_a_worker_of_a_cluster_has_about_four_batches(n_jobs):
    batches = voting._batches(range(1000), n_jobs)
    assert [item for batch in batches for item in batch] == list(range(1000))
    assert 3.5 * n_jobs < len(batches) <= 4 * n_jobs
    assert len({len(batch) for batch in batches[:-1]}) == 1


@pytest.mark.parametrize(("n_jobs", "jobs"), [(None, 4), (-1, 4), (-2, 3), (-4, 1), (-9, 1), (6, 6)])
def test_negative_jobs_leave_workers_of_a_cluster_out_as_joblib_does(n_jobs, jobs):
    cluster = SimpleNamespace(count_workers=lambda: 4)
    assert voting._n_workers(cluster, n_jobs) == jobs


def test_work_that_waits_for_a_busy_machine_does_not_go_to_a_pool(monkeypatch):
    monkeypatch.setattr(voting, "_TRY_ALONE", 0.02)
    monkeypatch.setattr(voting, "_WORTH_A_POOL", 0.02)

    def waiting(batch):
        time.sleep(0.005 * len(batch))  # no processor time
        return [os.getpid() for _ in batch]

    assert set(spread(waiting, ITEMS, engine="joblib", n_jobs=2)) == {os.getpid()}


def test_one_job_means_no_pool_however_long_it_takes(monkeypatch):
    monkeypatch.setattr(voting, "_TRY_ALONE", 0.0)
    monkeypatch.setattr(voting, "_WORTH_A_POOL", 0.0)
    answers = spread(where, ITEMS, engine="joblib", n_jobs=1)
    assert {process for _, process in answers} == {os.getpid()}


def test_signs_of_life_rise_to_the_total():
    for engine in ("joblib", "threading"):
        events = []
        spread(
            squares,
            ITEMS,
            engine=engine,
            n_jobs=2,
            on_progress=lambda *event, told=events: told.append(event),
        )
        assert events[-1] == (40, 40)
        assert events == sorted(events)


def test_slow_items_are_told_one_by_one(monkeypatch):
    monkeypatch.setattr(voting, "_INTERVAL", 0.01)
    events = []

    def slow(batch):
        time.sleep(0.02 * len(batch))
        return squares(batch)

    spread(slow, ITEMS[:5], engine="joblib", n_jobs=1, on_progress=lambda *event: events.append(event))
    assert events == [(number, 5) for number in range(1, 6)]


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

"""Engines: the same answers in the same order wherever the work is done."""

import builtins
import importlib.util
import os
import signal
import time
import warnings

import joblib
import pytest

from ostraka.voters import voting as _engines
from ostraka.voters.voting import spread

ITEMS = list(range(40))
SQUARES = [number**2 for number in ITEMS]


def work():
    """Kinds of work as closures: worker processes cannot import this file, so they must travel by value."""

    def squares(batch):
        return [number**2 for number in batch]

    def where(batch):
        return [(number**2, os.getpid()) for number in batch]

    def meeting(folder):
        def where_both(batch):  # else the quicker of two processes may do it all
            (folder / str(os.getpid())).touch()
            until = time.monotonic() + 60
            while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            return where(batch)

        return where_both

    return squares, where, meeting


squares, where, meeting = work()


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_this_process_does_light_work_itself(n_jobs, monkeypatch):
    monkeypatch.setattr(_engines, "_WORTH_A_POOL", 1000.0)  # on a busy machine light work may take seconds
    answers = spread(where, ITEMS, engine="joblib", n_jobs=n_jobs)
    assert answers == [(square, os.getpid()) for square in SQUARES]


@pytest.mark.parametrize("engine", ["threading", "loky", "sequential"])
def test_any_joblib_back_end_gives_the_same_answers(engine):
    assert spread(squares, ITEMS, engine=engine, n_jobs=2) == SQUARES


def test_heavy_work_goes_to_a_pool_and_keeps_its_order(monkeypatch):
    monkeypatch.setattr(_engines, "_TRY_ALONE", 0.0)
    monkeypatch.setattr(_engines, "_WORTH_A_POOL", 0.0)
    monkeypatch.setattr(_engines, "_INTERVAL", 1e-9)
    batches = []

    def noted(batch):
        batches.append(len(batch))
        return squares(batch)

    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert spread(noted, ITEMS, engine="joblib", n_jobs=None) == SQUARES
    assert batches[0] == 1, "one item here, to see how long it takes"
    assert len(batches) > 2, "the others in several batches"
    assert sum(batches) == len(ITEMS), "and nothing twice"


def test_work_that_waits_for_a_busy_machine_does_not_go_to_a_pool(monkeypatch):
    monkeypatch.setattr(_engines, "_TRY_ALONE", 0.1)
    monkeypatch.setattr(_engines, "_WORTH_A_POOL", 0.1)

    def waiting(batch):
        time.sleep(0.02 * len(batch))  # no processor time
        return [os.getpid() for _ in batch]

    assert set(spread(waiting, ITEMS, engine="joblib", n_jobs=2)) == {os.getpid()}


def test_one_job_means_no_pool_however_long_it_takes(monkeypatch):
    monkeypatch.setattr(_engines, "_TRY_ALONE", 0.0)
    monkeypatch.setattr(_engines, "_WORTH_A_POOL", 0.0)
    answers = spread(where, ITEMS, engine="joblib", n_jobs=1)
    assert {process for _, process in answers} == {os.getpid()}


def test_signs_of_life_rise_to_the_total():
    for engine in ("joblib", "threading"):
        on_progress = []
        spread(
            squares,
            ITEMS,
            engine=engine,
            n_jobs=2,
            on_progress=lambda *said, on_progress=on_progress: on_progress.append(said),
        )
        assert on_progress[-1] == (40, 40)
        assert on_progress == sorted(on_progress)


def test_slow_items_are_told_one_by_one(monkeypatch):
    monkeypatch.setattr(_engines, "_INTERVAL", 0.01)
    on_progress = []

    def slow(batch):
        time.sleep(0.02 * len(batch))
        return squares(batch)

    spread(slow, ITEMS[:5], engine="joblib", n_jobs=1, on_progress=lambda *said: on_progress.append(said))
    assert on_progress == [(number, 5) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("engine", "package", "extra"), [("ray", "ray", "ray"), ("dask", "distributed", "dask")]
)
def test_a_missing_cluster_names_its_install_command(engine, package, extra, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=rf"pip install 'ostraka\[{extra}\]'"):
        spread(squares, ITEMS, engine=engine, n_jobs=None)


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="Invalid backend: abacus, expected one of"):
        spread(squares, ITEMS, engine="abacus", n_jobs=2)


@pytest.fixture
def in_time():
    """A cluster that loses its workers waits for ever; a test must not."""

    def too_long(*_):
        pytest.fail("the local cluster did not answer within five minutes")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.cluster
@pytest.mark.usefixtures("in_time")
def test_dask_on_a_local_cluster_of_two_workers(tmp_path):
    distributed = pytest.importorskip(
        "distributed", reason="Dask is not installed: pip install 'ostraka[dask]'"
    )
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
        answers = spread(meeting(tmp_path), ITEMS, engine="dask", n_jobs=None)
    assert [square for square, _ in answers] == SQUARES
    processes = {process for _, process in answers}
    assert len(processes) == 2
    assert os.getpid() not in processes


@pytest.mark.cluster
@pytest.mark.usefixtures("in_time")
def test_without_a_dask_client_one_is_started_once_a_session(monkeypatch):
    distributed = pytest.importorskip(
        "distributed", reason="Dask is not installed: pip install 'ostraka[dask]'"
    )
    in_process, started = distributed.Client, []

    def client(**options):
        started.append(in_process(processes=False, n_workers=2, **options))

    monkeypatch.setattr(distributed, "Client", client)
    try:
        for _ in range(2):
            assert spread(squares, ITEMS, engine="dask", n_jobs=None) == SQUARES
        assert len(started) == 1
    finally:
        for each in started:
            each.close()


@pytest.mark.cluster
@pytest.mark.usefixtures("in_time")
def test_without_ray_init_a_local_one_is_started_once_and_its_two_workers_share_the_work(
    tmp_path, monkeypatch
):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ostraka[ray]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray says while it starts is not ours
        import ray

        init, started = ray.init, []
        monkeypatch.setattr(
            ray,
            "init",
            lambda **options: started.append(init(num_cpus=2, configure_logging=False, **options)),
        )
        try:
            assert spread(squares, ITEMS, engine="ray", n_jobs=2) == SQUARES
            assert ray.is_initialized()
            answers = spread(meeting(tmp_path), ITEMS, engine="ray", n_jobs=None)
        finally:
            ray.shutdown()
    assert len(started) == 1  # the second call found the Ray of this session
    assert [square for square, _ in answers] == SQUARES
    processes = {process for _, process in answers}
    assert os.getpid() not in processes
    assert len(processes) == 2

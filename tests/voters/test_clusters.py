"""Clusters that lose workers, nodes and answers: all of it is done, in order, and progress is told."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from ostraka.voters import voting
from ostraka.voters.voting import spread

ITEMS = list(range(24))
SQUARES = [number**2 for number in ITEMS]


def work():
    """Kinds of work as closures: worker processes cannot import this file, so they must travel by value."""

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

    def fatal(folder):
        def kills_itself_once(batch):
            if 13 in batch and not (folder / "killed").exists():
                (folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return [number**2 for number in batch]

        return kills_itself_once

    def wrong(batch):
        raise ZeroDivisionError("public words")

    return where, meeting, fatal, wrong


where, meeting, fatal, wrong = work()


@pytest.mark.cluster
def test_two_workers_share_the_work_and_tell_as_they_go(engine, tmp_path):
    progress = []
    answers = spread(
        meeting(tmp_path),
        ITEMS,
        engine=engine,
        n_jobs=None,
        on_progress=lambda *event: progress.append(event),
    )
    assert [square for square, _ in answers] == SQUARES
    processes = {process for _, process in answers}
    assert os.getpid() not in processes
    assert len(processes) == 2
    assert progress == sorted(progress)
    assert progress[-1] == (24, 24)
    assert len(progress) == 8, "one for each batch"


@pytest.mark.cluster
def test_a_killed_worker_delays_and_nothing_else(engine, tmp_path):
    assert spread(fatal(tmp_path), ITEMS, engine=engine, n_jobs=None) == SQUARES
    assert (tmp_path / "killed").exists()


@pytest.mark.cluster
def test_what_the_work_raises_is_raised_here(engine):
    with pytest.raises(ZeroDivisionError, match="public words"):
        spread(wrong, ITEMS, engine=engine, n_jobs=1)


@pytest.mark.slow  # quick: a killed worker, above
@pytest.mark.cluster
@pytest.mark.usefixtures("in_time")
def test_a_killed_node_delays_and_nothing_else(ray_cluster, tmp_path):
    cluster, second = ray_cluster
    progress = []

    def on_progress(done, total):
        progress.append((done, total))
        if len(progress) == 3:  # both nodes have begun
            cluster.remove_node(second, allow_graceful=False)

    answers = spread(meeting(tmp_path), ITEMS, engine="ray", n_jobs=None, on_progress=on_progress)
    assert [square for square, _ in answers] == SQUARES
    assert len(cluster.list_all_nodes()) == 1
    assert progress[-1] == (24, 24)


class Unreliable:
    """A cluster in this process, whose answers are lost or changed as often as the test says."""

    pickler = "pickle"

    def __init__(self, *faults):
        self.faults, self.submitted, self.most, self.cancelled = list(faults), 0, 0, []

    def count_workers(self):
        return 2

    def submit(self, batch):
        self.submitted += 1
        return self.submitted, batch

    def finished(self, handles):
        self.most = max(self.most, len(handles))
        return handles[-1:]

    def answer(self, handle):
        fault = self.faults.pop(0) if self.faults else None
        sealed, answers = voting.done(handle[1], self.pickler)
        if fault == "lost":
            raise voting.LostError("NodeDied")
        if fault == "changed":
            return sealed, answers[:-1] + bytes([answers[-1] ^ 1])
        if fault == "of another batch":
            return voting.done(handle[1] + b" ", self.pickler)
        return sealed, answers

    def cancel(self, handles):
        self.cancelled += handles


BATCHES = [[0, 1], [2, 3], [4]]


def squares(batch):
    return [number**2 for number in batch]


@pytest.mark.parametrize("fault", ["lost", "changed", "of another batch"])
@pytest.mark.parametrize("times", [1, 7])
def test_what_is_lost_or_changed_on_the_way_is_done_again(fault, times):
    cluster = Unreliable(*[fault] * times)
    answers = dict(voting.answers_of(cluster, squares, BATCHES, at_once=2))
    assert answers == {0: [0, 1], 1: [4, 9], 2: [16]}
    assert (cluster.submitted, cluster.most, cluster.cancelled) == (3 + times, 2, [])


def test_a_batch_that_is_lost_again_and_again_ends_in_a_sentence_and_the_rest_is_given_up():
    cluster = Unreliable(*["lost"] * 8)
    with pytest.raises(RuntimeError, match=r"lost the same batch 8 times \(NodeDied\): look whether"):
        list(voting.answers_of(cluster, squares, BATCHES, at_once=2))
    assert len(cluster.cancelled) == 1


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_ray_of_somebody_else_on_this_machine_is_not_joined_unless_it_is_named(address, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    options = {}
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", options.update)
    voting.open_cluster("ray")
    assert options["address"] == (address or "local")


@pytest.mark.parametrize(("n_jobs", "most", "n_batches"), [(None, 4, 8), (-1, 2, 8), (1, 1, 4)])
def test_no_worker_waits_for_its_next_batch_unless_so_many_jobs_are_named(
    n_jobs, most, n_batches, monkeypatch
):
    cluster, progress = Unreliable(), []
    monkeypatch.setattr(voting, "open_cluster", lambda _engine: cluster)
    answers = spread(
        squares, ITEMS, engine="dask", n_jobs=n_jobs, on_progress=lambda *event: progress.append(event)
    )
    assert answers == SQUARES
    assert (cluster.most, cluster.submitted) == (most, n_batches)
    assert progress == [(24 // n_batches * (k + 1), 24) for k in range(n_batches)]


def test_ray_is_asked_to_try_again_and_what_it_loses_is_lost(monkeypatch):
    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        cause = ZeroDivisionError("public words")

    class NodeDiedError(RayError):
        pass

    told = []

    def get(handle):
        if isinstance(handle, Exception):
            raise handle
        return [b"sealed", handle]

    ray = SimpleNamespace(
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError),
        is_initialized=lambda: True,
        remote=lambda function: SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *sent: (function, options, sent))
        ),
        get=get,
        wait=lambda handles, **options: told.append(options) or (handles[:2], handles[2:]),
        cancel=lambda handle, force: told.append((handle, force)),
    )
    monkeypatch.setattr(voting.check, "require", lambda *_, **__: ray)
    cluster = voting.open_cluster("ray")
    for resources, n_workers in (
        ({}, 1),
        ({"CPU": 0.0}, 1),
        ({"CPU": 2.0, "GPU": 9.0}, 2),
        ({"CPU": 3.9}, 3),
    ):
        ray.cluster_resources = lambda resources=resources: resources
        assert cluster.count_workers() == n_workers
    assert cluster.submit(b"batch") == (voting.done, {"max_retries": 3}, (b"batch", "ray.cloudpickle"))
    assert cluster.finished((1, 2, 3)) == [1, 2]
    assert told.pop() == {"timeout": 1.0, "fetch_local": False}
    assert cluster.answer(b"answers") == (b"sealed", b"answers")
    with pytest.raises(ZeroDivisionError, match="public words"):
        cluster.answer(RayTaskError())
    with pytest.raises(voting.LostError, match="NodeDiedError"):
        cluster.answer(NodeDiedError())
    cluster.cancel([1, 2])
    assert told == [(1, True), (2, True)]


def test_dask_has_the_threads_of_its_workers_and_what_it_gives_up_is_lost(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[dask]'")
    told = []

    def wait(handles, **options):
        told.append(options)
        if not handles:
            raise TimeoutError
        return SimpleNamespace(done=set(handles))

    client = SimpleNamespace(cancel=lambda handles, force: told.append((handles, force)))
    monkeypatch.setattr(distributed, "get_client", lambda: client)
    monkeypatch.setattr(distributed, "wait", wait)
    cluster = voting.open_cluster("dask")
    for threads, n_workers in (({}, 1), ({"a": 2, "b": 3}, 5)):
        client.nthreads = lambda threads=threads: threads
        assert cluster.count_workers() == n_workers
    assert (cluster.finished([7]), cluster.finished([])) == ([7], [])
    assert told == [{"timeout": 1.0, "return_when": "FIRST_COMPLETED"}] * 2
    told.clear()
    for handles in ([], [1, 2]):
        cluster.cancel(handles)
    assert told == [([1, 2], True)]

    class Batch:
        def __init__(self, *outcome):
            self.outcome = outcome

        def result(self):
            if len(self.outcome) == 1:
                raise self.outcome[0]
            return list(self.outcome)

    assert cluster.answer(Batch(b"sealed", b"answers")) == (b"sealed", b"answers")
    for error in (
        distributed.KilledWorker("task", None, 3),
        distributed.client.FutureCancelledError("key", "reason"),
    ):
        with pytest.raises(voting.LostError, match=type(error).__name__):
            cluster.answer(Batch(error))
    with pytest.raises(ZeroDivisionError, match="public words"):
        cluster.answer(Batch(ZeroDivisionError("public words")))


def test_without_a_dask_client_one_is_started_which_stays_the_sessions(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[dask]'")
    started = []

    def get_client():
        if not started:
            raise ValueError("No global client found and no address provided")
        return started[0]

    monkeypatch.setattr(distributed, "get_client", get_client)
    monkeypatch.setattr(distributed, "Client", lambda **options: started.append(options))
    for _ in range(2):
        voting.open_cluster("dask")
    assert started == [{"dashboard_address": ":0"}]  # any port: another run may have Dask's own

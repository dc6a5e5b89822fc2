"""Shared by tests of voters.

A small real classifier behind an OpenAI-compatible server on this machine: bench/_language.py.
"""

import importlib
import signal
import warnings

import pytest

from ostraka.voters.voting import open_cluster
from tests.voters.reviews import PUBLIC


@pytest.fixture(scope="session")
def language():
    return importlib.import_module("bench._language")


@pytest.fixture(scope="session")
def model(language):
    """A real classifier of public texts, which learns from demonstrations what the words mean."""
    return language.Matcher(PUBLIC, (["good"] * 10 + ["bad"] * 10) * 2)


@pytest.fixture
def server(language, model):
    with language.LocalEndpoint(model.answer) as running:
        yield running


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


@pytest.fixture(scope="session")
def ray_cluster():
    """A head and a second node, which is there to be killed; joined by its address alone."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # what Ray says while it starts is not ours
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        second = cluster.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", cluster.address)
        open_cluster("ray")
        patch.undo()
        yield cluster, second
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def dask_cluster():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[dask]'")
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        yield client


@pytest.fixture(params=[pytest.param("ray", marks=pytest.mark.slow), "dask"])
def engine(request, in_time):
    request.getfixturevalue(f"{request.param}_cluster")
    return request.param

"""Rounds recorded from Flower: with messages in place of Flower's, and with Flower itself where installed."""

import stat
from types import SimpleNamespace

import numpy as np
import pytest

from ostraka.attacks import Collaboration
from ostraka.audit.attacks.parties import FlowerRecorder
from ostraka.networks import TorchClassifier

torch = pytest.importorskip("torch")

N_ROUNDS, SIZE = 4, 8
ABOUT = {"n_features": 3, "classes": [0, 1]}


def line():
    return TorchClassifier(
        torch.nn.Linear(3, 2), batch_size=SIZE, learning_rate=0.3, random_state=3, n_threads=1
    )


def rows_of(party):
    """Each party has exactly one batch of rows, so that no draw matters."""
    rng = np.random.default_rng(party)
    return rng.normal(size=(SIZE, 3)).astype(np.float32), np.arange(SIZE) % 2


def simulated(observer):
    """What an observer of our own collaboration sees."""
    together = Collaboration(line(), n_rounds=N_ROUNDS, random_state=0)
    return together.fit([rows_of(party) for party in range(3)], observer=observer)


def layers(weights):
    return [weights[:6].reshape(2, 3), weights[6:]]


def message(weights, number=1, node=0, *, failed=False):
    """In place of a message of Flower."""
    record = SimpleNamespace(to_numpy_ndarrays=lambda: layers(weights))
    config = {"config": {"server-round": number}}
    return SimpleNamespace(
        has_error=lambda: failed,
        metadata=SimpleNamespace(src_node_id=node),
        content=SimpleNamespace(array_records={"arrays": record}, config_records=config),
    )


@pytest.fixture(scope="module")
def runs():
    return {observer: simulated(observer) for observer in (0, "server", "masked-sum")}


def test_a_client_records_what_a_party_of_a_collaboration_sees(tmp_path, runs):
    recorder, server = FlowerRecorder(tmp_path / "rounds"), runs["server"]
    for number, weights in enumerate(server.weights):
        answer = message(weights + server.updates[number, 0])
        got = recorder.client_mod(
            message(weights, number + 1), SimpleNamespace(node_id=5), lambda *_, answer=answer: answer
        )
        assert got is answer
    observations = recorder.observations(line(), observer=5, n_parties=3, **ABOUT)
    assert observations.updates == pytest.approx(runs[0].updates[:-1], abs=1e-6)
    assert observations.weights == pytest.approx(runs[0].weights[:-1])
    assert observations.n_summed.tolist() == [2] * (N_ROUNDS - 1)
    assert stat.S_IMODE((tmp_path / "rounds").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "rounds").iterdir()} == {0o600}
    assert repr(recorder).startswith("FlowerRecorder(")


class Strategy:
    """In place of a strategy of Flower."""

    def configure_train(self, server_round, arrays, config, grid):
        return [server_round]

    def aggregate_train(self, server_round, replies):
        return len(replies)


def test_a_server_records_each_change_and_who_answered(tmp_path, runs):
    recorder, server = FlowerRecorder(tmp_path), runs["server"]
    strategy = recorder.watch(Strategy())
    for number, weights in enumerate(server.weights):
        arrays = message(weights).content.array_records["arrays"]
        assert strategy.configure_train(number + 1, arrays, {}, None) == [number + 1]
        replies = [
            message(
                weights + server.updates[number, party], node=20 + party, failed=(number, party) == (1, 2)
            )
            for party in range(3)
        ]
        assert strategy.aggregate_train(number + 1, iter(replies)) == 3
    observations = recorder.observations(line(), observer="server", **ABOUT)
    expected = server.updates.copy()
    expected[1, 2] = 0
    assert observations.updates == pytest.approx(expected, abs=1e-6)
    assert np.argwhere(~observations.present).tolist() == [[1, 2]]
    summed = recorder.observations(line(), observer="masked-sum", **ABOUT)
    assert summed.updates == pytest.approx(expected.sum(axis=1), abs=1e-6)
    assert summed.n_summed.tolist() == [3, 2, 3, 3]


def test_rounds_that_no_client_answered_are_left_out(tmp_path, runs):
    recorder, weights = FlowerRecorder(tmp_path), runs["server"].weights[0]
    strategy = recorder.watch(Strategy())
    for number, failed in ((1, True), (2, False)):
        strategy.configure_train(number, message(weights).content.array_records["arrays"], {}, None)
        strategy.aggregate_train(number, [message(weights + 1, node=20, failed=failed)])
        if failed:
            with pytest.raises(ValueError, match="must have a round that a client answered"):
                recorder.observations(line(), observer="masked-sum", **ABOUT)
    for observer in ("server", "masked-sum"):
        observations = recorder.observations(line(), observer=observer, **ABOUT)
        assert (len(observations.weights), observations.n_summed.tolist(), observations.present.tolist()) == (
            1,
            [1],
            [[True]],
        )


def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path, runs):
    recorder, weights = FlowerRecorder(tmp_path), runs["server"].weights[0]
    with pytest.raises(ValueError, match="has no rounds of server: record them"):
        recorder.observations(line(), observer="server", **ABOUT)
    for number in (1, 3):
        recorder.client_mod(message(weights, number), SimpleNamespace(node_id=5), lambda *_: message(weights))
    with pytest.raises(ValueError, match=r"two rounds in a row of client 5, has rounds \[1, 3\]"):
        recorder.observations(line(), observer=5, n_parties=3, **ABOUT)
    wide = TorchClassifier(torch.nn.Linear(4, 2), random_state=0)
    with pytest.raises(ValueError, match="those of the module"):
        recorder.observations(wide, observer=5, n_parties=3, n_features=4, classes=[0, 1])
    with pytest.raises(ValueError, match="with n_parties= of each round"):
        recorder.observations(line(), observer=5, **ABOUT)
    with pytest.raises(ValueError, match="observer must be"):
        recorder.observations(line(), observer="client", **ABOUT)


def test_rounds_without_weights_or_with_an_error_are_not_recorded(tmp_path, runs):
    recorder, weights = FlowerRecorder(tmp_path / "rounds"), runs["server"].weights[0]
    failed = message(weights, failed=True)
    context = SimpleNamespace(node_id=5)
    assert recorder.client_mod(message(weights), context, lambda *_: failed) is failed
    request = message(weights)
    request.content.array_records = {}
    recorder.client_mod(request, context, lambda *_: message(weights))
    assert not (tmp_path / "rounds").exists()


# Flower itself.


def trained(weights, party):
    """One plain step of torch's own optimizer."""
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for p, value in zip(module.parameters(), weights, strict=True):
            p.copy_(torch.as_tensor(value))
    X, y = rows_of(party)
    torch.nn.functional.cross_entropy(module(torch.as_tensor(X)), torch.as_tensor(y)).backward()
    torch.optim.SGD(module.parameters(), lr=0.3).step()
    return [p.detach().numpy() for p in module.parameters()]


def client_app(recorder):
    """A client of Flower which takes :func:`trained` steps."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    client = ClientApp(mods=[recorder.client_mod])

    @client.train()
    def train(request, context):
        weights = request.content["arrays"].to_numpy_ndarrays()
        arrays = ArrayRecord(trained(weights, int(context.node_config["partition-id"])))
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": SIZE})})
        return Message(content=content, reply_to=request)

    return client


@pytest.fixture
def flower(monkeypatch):
    """Flower's strategy, and its first weights."""
    pytest.importorskip(
        "flwr", reason="flwr is not installed: docs/collaboration.md says how to run this test"
    )
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    return strategy, lambda weights: ArrayRecord(layers(weights))


@pytest.mark.filterwarnings("ignore")
def test_a_strategy_and_clients_of_flower_see_what_our_own_do(tmp_path, runs, flower):
    from flwr.app import Context, RecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    strategy, record = flower
    recorder, nodes = FlowerRecorder(tmp_path), [11, 12, 13]
    client = client_app(recorder)

    class InProcess(Grid):
        """Hands messages to the client at once, without a network."""

        def get_node_ids(self):
            return nodes

        def send_and_receive(self, messages, *, timeout=None):
            return [client(each, self.context(each.metadata.dst_node_id)) for each in messages]

        def context(self, node):
            config = {"partition-id": nodes.index(node)}
            return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})

    InProcess.__abstractmethods__ = frozenset()
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    strategy, first = recorder.watch(strategy), record(runs["server"].weights[0])
    strategy.start(grid=InProcess(), initial_arrays=first, num_rounds=N_ROUNDS)
    observations = recorder.observations(line(), observer="server", **ABOUT)
    assert observations.weights == pytest.approx(runs["server"].weights, abs=1e-6)
    assert observations.updates == pytest.approx(runs["server"].updates, abs=1e-6)
    party = recorder.observations(line(), observer=11, n_parties=3, **ABOUT)
    assert party.updates == pytest.approx(runs[0].updates[:-1], abs=1e-6)


@pytest.mark.slow  # it starts Ray; quick: the clients above
@pytest.mark.filterwarnings("ignore")
def test_clients_in_flowers_own_simulation_are_recorded_from_its_ray_workers(tmp_path, runs, flower):
    pytest.importorskip("ray", reason="ray is not installed, which Flower's simulation needs")
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    (strategy, record), recorder, server = flower, FlowerRecorder(tmp_path), ServerApp()

    @server.main()
    def main(grid, context):
        watched, first = recorder.watch(strategy), record(runs["server"].weights[0])
        watched.start(grid=grid, initial_arrays=first, num_rounds=N_ROUNDS)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}}
    run_simulation(server, client_app(recorder), num_supernodes=3, backend_config=resources)
    summed = recorder.observations(line(), observer="masked-sum", **ABOUT)
    assert summed.weights == pytest.approx(runs["server"].weights, abs=1e-6)
    assert summed.updates == pytest.approx(runs["server"].updates.sum(axis=1), abs=1e-6)
    nodes = {int(path.stem.split("-")[1]) for path in tmp_path.glob("client-*")}
    parties = [recorder.observations(line(), observer=node, n_parties=3, **ABOUT).updates for node in nodes]
    assert any(np.allclose(update, runs[0].updates[:-1], atol=1e-6) for update in parties)
    assert len(nodes) == 3

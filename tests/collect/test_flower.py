"""Federated averaging in Flower: masked rounds equal plain ones, are paid for once, or are skipped."""

import numpy as np
import pytest

from ostraka import Budget, BudgetExceeded, Ledger
from ostraka.collect import Histogram, Task, Vector, flower
from ostraka.collect.flower import MaskedFedAvg, MaskedMod
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError

flwr = pytest.importorskip(
    "flwr.app", reason="flwr is not here: pip install 'ostraka[flower]'", exc_type=ImportError
)
SHAPES = [(3, 4), (5,)]
CELLS = 17


class Nodes:
    """A grid that runs client apps in this process, each with a state of its own, and may lose some."""

    def __init__(self, mods, train):
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity._run_id = TaskIdentity._node_id = TaskIdentity._task_id = 1
        self.train, self.mods, self.lost, self.n_messages = train, mods, set(), 0
        self.contexts = {
            node: flwr.Context(run_id=1, node_id=node, node_config={}, state=flwr.RecordDict(), run_config={})
            for node in mods
        }

    def get_node_ids(self):
        return list(self.mods)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.n_messages += 1
            node = message.metadata.dst_node_id
            stage = message.content["ostraka"]["stage"] if "ostraka" in message.content else "plain"
            if (node, stage) in self.lost:
                continue
            copied = flwr.Message(
                content=flwr.RecordDict(dict(message.content.items())), message_type="train", dst_node_id=node
            )
            reply = self._answer(node, copied)
            reply.metadata._src_node_id = node
            replies.append(reply)
        return replies

    def _answer(self, node, message):
        if self.mods[node] is None:
            return self.train(node, message)
        return self.mods[node](message, self.contexts[node], lambda inner, _: self.train(node, inner))


def train(node, message):
    """One step of a node towards a target of its own."""
    arrays = message.content["arrays"].to_numpy_ndarrays()
    target = np.random.default_rng(node)
    moved = [array + 0.1 * (target.normal(size=array.shape) - array) for array in arrays]
    content = {
        "arrays": flwr.ArrayRecord([array.astype(np.float32) for array in moved]),
        "metrics": flwr.MetricRecord({"num-examples": 1}),
    }
    return flwr.Message(flwr.RecordDict(content), reply_to=message)


def started(*, n=12, rounds=3, sigma=8_000.0, epsilon=20.0, masked=True, least=8, grid=1024, lost=()):
    me = Identity.fresh()
    task = Task(
        Vector(cells=CELLS, clip=4.0, grid=grid), sigma=sigma, tally=me.public_key, least=least, most=40,
        rounds=rounds, missing=0.3, colluding=0.05, noise="tally",
    )  # fmt: skip
    from flwr.serverapp.strategy import FedAvg

    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    ledger = Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=1e-6, adaptive=False))
    nodes = Nodes({node: MaskedMod(task) if masked else None for node in range(1, n + 1)}, train)
    nodes.lost = set(lost)
    strategy = MaskedFedAvg(inner, task, me, ledger=ledger) if masked else inner
    first = flwr.ArrayRecord([np.zeros(shape, dtype=np.float32) for shape in SHAPES])
    return strategy, nodes, first, ledger


def arrays_of(strategy, nodes, first, *, rounds):
    return strategy.start(nodes, first, num_rounds=rounds).arrays.to_numpy_ndarrays()


@pytest.mark.parametrize(("n", "rounds"), [(12, 2), pytest.param(20, 20, marks=pytest.mark.slow)])
def test_a_masked_average_is_the_plain_one_within_the_grid(n, rounds, monkeypatch):
    strategy, nodes, first, ledger = started(n=n, rounds=rounds)
    monkeypatch.setattr(flower, "release", lambda mechanism, sums, **_: sums.open())  # without noise
    masked = arrays_of(strategy, nodes, first, rounds=rounds)
    plain, others, start, _ = started(n=n, masked=False)
    for masked_array, two in zip(masked, arrays_of(plain, others, start, rounds=rounds), strict=True):
        assert masked_array.dtype == np.float32
        assert np.abs(masked_array - two).max() <= 1.5 * 4.0 / 1024
        assert np.abs(masked_array).max() > 0.05
    assert nodes.n_messages == 4 * n * rounds
    assert strategy.skipped == {}
    assert len(ledger.entries()) == rounds


def test_a_round_below_least_is_skipped_and_reported_and_the_model_stays():
    lost = [(node, "mask") for node in range(1, 8)]
    strategy, nodes, first, ledger = started(rounds=2, lost=lost)
    result = strategy.start(nodes, first, num_rounds=1)
    assert list(strategy.skipped) == [1]
    assert "a round needs 8 clients, and 5 sent masked vectors" in strategy.skipped[1]
    assert not result.arrays.to_numpy_ndarrays() if result.arrays else True
    nodes.lost = {(node, "join") for node in range(1, 8)}
    assert strategy.configure_train(2, first, flwr.ConfigRecord(), nodes) == []
    assert strategy.aggregate_train(2, []) == (None, None)
    assert sorted(strategy.skipped) == [1, 2]
    assert len(ledger.entries()) == 2  # a charge is not given back


def test_a_round_that_is_not_paid_for_asks_no_node():
    strategy, nodes, first, _ = started(epsilon=0.1, rounds=3)
    with pytest.raises(BudgetExceeded):
        arrays_of(strategy, nodes, first, rounds=3)
    assert nodes.n_messages == 0


def test_a_client_answers_masked_rounds_of_its_task_once_and_its_arrays_never_leave():
    strategy, nodes, first, _ = started(rounds=2)
    plain = flwr.Message(content=flwr.RecordDict({"arrays": first}), message_type="train", dst_node_id=1)
    with pytest.raises(ValueError, match="masked rounds"):
        nodes.mods[1](plain, nodes.contexts[1], lambda *_: pytest.fail("it trained"))
    strategy.start(nodes, first, num_rounds=1)
    order = {"task": strategy.task.sha256, "round": 0, "stage": "join", "message": b""}
    for stage, why in (("join", "reported once"), ("unmask", "answers 'unmask' once")):
        content = flwr.RecordDict({"ostraka": flwr.ConfigRecord({**order, "stage": stage})})
        again = flwr.Message(content=content, message_type="train", dst_node_id=1)
        with pytest.raises(PartyError, match=why):
            nodes.mods[1](again, nodes.contexts[1], train)
    evaluate = flwr.Message(content=flwr.RecordDict(), message_type="evaluate", dst_node_id=1)
    assert nodes.mods[1](evaluate, nodes.contexts[1], lambda m, c: "passed") == "passed"
    with pytest.raises(ValueError, match="must trust clients"):
        MaskedMod(Task(Histogram(0, 2, cells=2), sigma=3.0, tally="ab" * 32))

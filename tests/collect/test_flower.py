"""Federated averaging in Flower: masked rounds equal plain ones, are paid for once, or are skipped."""

import sys

import numpy as np
import pytest

from ostraka import Budget, BudgetExceeded, Ledger
from ostraka.collect import Histogram, Task, Vector, flower
from ostraka.collect.flower import MaskedFedAvg, MaskedMod
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError
from tests.collect import grid

try:
    import flwr.app

    STAND_IN = {}
    flwr = flwr.app
except ImportError:
    STAND_IN = grid.installed()
    flwr = STAND_IN["flwr.app"]
SHAPES = [(3, 4), (5,)]
CELLS = 17


@pytest.fixture(autouse=True)
def _flower(monkeypatch):
    """Flower, or a stand-in of ours where it is not installed."""
    for name, module in STAND_IN.items():
        monkeypatch.setitem(sys.modules, name, module)


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


def started(*, n=12, rounds=3, sigma=8_000.0, epsilon=20.0, masked=True, least=8, lost=()):
    me = Identity.fresh()
    task = Task(
        Vector(cells=CELLS, clip=4.0, grid=1024), sigma=sigma, tally=me.public_key, least=least, most=40,
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


def test_what_comes_from_elsewhere_is_as_if_it_had_not_come():
    strategy, nodes, first, _ = started(rounds=2)
    asked = nodes.send_and_receive

    def changed(messages, *, timeout=None):
        replies = asked(messages, timeout=timeout)
        assert timeout in {None, 600.0}
        replies[0].has_error = lambda: True
        del replies[1].content["ostraka"]
        replies[2].content["ostraka"]["message"] = "text"
        replies[3].content["ostraka"]["message"] = bytes(40)
        return replies

    nodes.send_and_receive = changed
    strategy.start(nodes, first, num_rounds=1)
    assert (strategy._nodes.keys(), strategy.skipped) == (set(range(5, 13)), {1: strategy.skipped[1]})
    with pytest.raises(ValueError, match="names another tally"):
        MaskedFedAvg(None, strategy.task, Identity.fresh(), ledger=strategy.ledger)


def test_the_rest_is_left_to_the_inner_strategy():
    class Inner:
        configure_evaluate = staticmethod(lambda *parts: ("evaluate", *parts))
        aggregate_evaluate = staticmethod(lambda *parts: ("means", *parts))
        summary = staticmethod(lambda: said.append("settings"))

        def start(self, grid, arrays, **options):
            return self, grid, arrays, options

    said = []
    strategy, *_ = started()
    strategy.strategy = Inner()
    assert strategy.configure_evaluate(1, 2) == ("evaluate", 1, 2)
    assert strategy.aggregate_evaluate(3) == ("means", 3)
    assert (strategy.summary(), said) == (None, ["settings"])
    assert strategy.start("grid", "arrays", num_rounds=2) == (strategy, "grid", "arrays", {"num_rounds": 2})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"task": "0" * 64}, "masked rounds of its own task only"),
        ({"round": 3}, "the round must be 0 to 2"),
        ({"stage": "share"}, "it has not joined this round"),
        ({"stage": "confirm", "round": 0}, "it has not joined this round"),
    ],
)
def test_a_client_refuses_orders_that_are_not_its_next(change, why):
    strategy, nodes, *_ = started(rounds=3)
    order = {"task": strategy.task.sha256, "round": 0, "stage": "join", "message": b""} | change
    content = flwr.RecordDict({"ostraka": flwr.ConfigRecord(order)})
    message = flwr.Message(content=content, message_type="train.own", dst_node_id=1)
    with pytest.raises((ValueError, PartyError), match=why):
        nodes.mods[1](message, nodes.contexts[1], lambda *_: pytest.fail("it trained"))
    order |= {"task": strategy.task.sha256, "round": 1}
    for stage, refusal in (("join", None), ("wave", "join, share, mask and unmask"), ("join", "once")):
        content = flwr.RecordDict({"ostraka": flwr.ConfigRecord({**order, "stage": stage})})
        message = flwr.Message(content=content, message_type="train", dst_node_id=1)
        if refusal is None:
            reply = nodes.mods[1](message, nodes.contexts[1], None)
            assert len(reply.content["ostraka"]["message"]) == 16 + 128
            continue
        with pytest.raises((ValueError, PartyError), match=refusal):
            nodes.mods[1](message, nodes.contexts[1], None)


def test_training_keeps_the_shapes_of_arrays():
    strategy, nodes, first, _ = started(rounds=1)
    nodes.train = lambda node, message: flwr.Message(
        flwr.RecordDict({"arrays": flwr.ArrayRecord([np.zeros(3)])}), reply_to=message
    )
    with pytest.raises(ValueError, match="arrays of the shapes that it was given"):
        strategy.start(nodes, first, num_rounds=1)


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

"""The part of Flower that masked averages use, where it is not installed: records, messages, a strategy."""

from types import ModuleType, SimpleNamespace

import numpy as np


class Array:
    def __init__(self, ndarray):
        self._kept = np.array(ndarray)

    def numpy(self):
        return self._kept.copy()


class ArrayRecord(dict):
    """Arrays by name; a list of them is named by its places."""

    def __init__(self, arrays=()):
        named = arrays.items() if isinstance(arrays, dict) else ((str(k), a) for k, a in enumerate(arrays))
        super().__init__({name: a if isinstance(a, Array) else Array(a) for name, a in named})

    def to_numpy_ndarrays(self):
        return [array.numpy() for array in self.values()]


class ConfigRecord(dict):
    pass


class MetricRecord(dict):
    pass


class RecordDict(dict):
    @property
    def array_records(self):
        return {name: record for name, record in self.items() if isinstance(record, ArrayRecord)}


class Message:
    def __init__(self, content, *, message_type="", dst_node_id=0, reply_to=None):
        self.content = content
        kind = reply_to.metadata.message_type if reply_to else message_type
        self.metadata = Metadata(message_type=kind, dst_node_id=dst_node_id, _src_node_id=0)

    def has_error(self):
        return False


class Context(SimpleNamespace):
    pass


class Metadata(SimpleNamespace):
    @property
    def src_node_id(self):
        return self._src_node_id


class TaskIdentity:
    pass


class FedAvg:
    """Asks all nodes, and takes the mean of what they return."""

    def __init__(self, **_):
        pass

    def start(self, grid, arrays, *, num_rounds):
        result = SimpleNamespace(arrays=None)
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, ConfigRecord(), grid)
            replies = grid.send_and_receive(messages) if messages else []
            changed, _ = self.aggregate_train(number, replies)
            if changed is not None:
                arrays = result.arrays = changed
        return result

    def configure_train(self, server_round, arrays, config, grid):
        return [
            Message(RecordDict({"arrays": arrays, "config": config}), message_type="train", dst_node_id=node)
            for node in grid.get_node_ids()
        ]

    def aggregate_train(self, server_round, replies):
        many = [reply.content["arrays"].to_numpy_ndarrays() for reply in replies]
        return ArrayRecord([np.mean(arrays, axis=0) for arrays in zip(*many, strict=True)]), MetricRecord()


def installed():
    """Modules of flwr by their names, made of the above."""
    app = ModuleType("flwr.app")
    for kind in (Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict, Message, Context):
        setattr(app, kind.__name__, kind)
    strategy = ModuleType("flwr.serverapp.strategy")
    strategy.FedAvg = FedAvg
    identity = ModuleType("flwr.supercore.task_identity")
    identity.TaskIdentity = TaskIdentity
    modules = {"flwr": ModuleType("flwr"), "flwr.app": app, "flwr.serverapp": ModuleType("flwr.serverapp")}
    modules |= {"flwr.serverapp.strategy": strategy, "flwr.supercore": ModuleType("flwr.supercore")}
    return modules | {"flwr.supercore.task_identity": identity}

"""Weights of torch networks as plain arrays. Nothing is unpickled: files hold numbers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.voters.networks import as_network
from ostraka.voters.voting import Teacher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ostraka.nets.stacks import TrainingPlan
    from ostraka.networks import TorchClassifier

_OF_TEACHER = "present", "fallback", "trained"


def check(saved: Sequence[Teacher]) -> None:
    """Raise ValueError if a weight is of a type that NumPy lacks."""
    try:
        arrays(saved)
    except TypeError:
        raise ValueError("weights must be of types that NumPy has: convert the networks to float32") from None


def settings(estimator: Any) -> dict[str, Any]:
    """What reading the weights needs to know of a network; a module of one's own is given again then."""
    network = as_network(estimator)
    assert network is not None  # noqa: S101  (the kind says so)
    module = network.module if isinstance(network.module, str) else None
    return {"module": module, "batch_size": int(network.batch_size), "n_threads": network.n_threads}


def arrays(saved: Sequence[Teacher]) -> dict[str, np.ndarray]:
    """The weights of some teachers by number and name."""
    found: dict[str, np.ndarray] = {}
    for number, teacher in enumerate(saved):
        weights = {} if teacher.model is None else teacher.model.weights
        found |= {f"{number}/weights/{name}": each.detach().cpu().numpy() for name, each in weights.items()}
        of_teacher = teacher.present, teacher.fallback, bool(weights)
        found |= {
            f"{number}/{name}": np.asarray(value) for name, value in zip(_OF_TEACHER, of_teacher, strict=True)
        }
    return found


def plan_of(listed: dict[str, Any], network: TorchClassifier | None) -> TrainingPlan:
    """The architecture that the weights belong to."""
    from ostraka.core import check as _check  # noqa: PLC0415

    _check.require("torch", extra="torch")
    from ostraka.nets.vectorised import plan  # noqa: PLC0415
    from ostraka.networks import TorchClassifier  # noqa: PLC0415

    how = listed["network"]
    if how["module"] is None and network is None:
        raise ValueError(
            "these networks are of a module of yours, which no file holds: type "
            "SavedTeachers.load(folder, network=TorchClassifier(module))"
        )
    if network is None:
        network = TorchClassifier(how["module"], batch_size=how["batch_size"], n_threads=how["n_threads"])
    return plan(network, n_features=listed["n_features"], n_classes=len(listed["classes"]))


def teachers(found: Mapping[str, np.ndarray], plan: TrainingPlan) -> list[Teacher]:
    """The teachers of one file, in order."""
    numbers = sorted({int(name.partition("/")[0]) for name in found})
    return [_teacher(found, number, plan) for number in numbers]


def _teacher(found: Mapping[str, np.ndarray], number: int, plan: TrainingPlan) -> Teacher:
    import torch  # noqa: PLC0415

    from ostraka.nets.predictions import TrainedNetwork  # noqa: PLC0415
    from ostraka.nets.stacks import weights_of  # noqa: PLC0415

    present, fallback, trained = (found[f"{number}/{name}"] for name in _OF_TEACHER)
    start = f"{number}/weights/"
    weights = {
        name.removeprefix(start): torch.from_numpy(array.copy())
        for name, array in found.items()
        if name.startswith(start)
    }
    wanted = {name: (each.shape, each.dtype) for name, each in weights_of(plan.module).items()}
    if trained and {name: (each.shape, each.dtype) for name, each in weights.items()} != wanted:
        raise ValueError("the weights do not fit the network: type the module that was trained")
    if not ((present >= 0) & (present < plan.n_classes)).all() or not 0 <= fallback < plan.n_classes:
        raise ValueError("a teacher names a class that does not exist: the file was changed")
    model = TrainedNetwork(plan=plan, weights=weights, present=present) if trained else None
    return Teacher(model, present, np.random.SeedSequence(0), int(fallback))

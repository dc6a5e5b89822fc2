"""Teachers that are torch networks, trained in stacks, with predictions in one pass."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ostraka.voters.voting import Predictions, Teacher

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ostraka.nets.stacks import TrainingPlan
    from ostraka.networks import TorchClassifier
    from ostraka.voters.voting import Shard


def as_network(estimator: Any) -> TorchClassifier | None:
    """The estimator as a network: itself, or a torch module with default settings; None for others."""
    from ostraka.networks import TorchClassifier  # noqa: PLC0415

    if type(estimator) is TorchClassifier:  # which imports torch when it is fitted
        return estimator
    torch = sys.modules.get("torch")  # imported already if the estimator is a module
    return TorchClassifier(estimator) if torch and isinstance(estimator, torch.nn.Module) else None


def as_float32(X: Any) -> Any:
    """Rows as float32. A sparse matrix stays sparse until a shard is trained."""
    try:
        with np.errstate(over="ignore"):  # a value that is too large makes its teacher fail
            return X.astype(np.float32) if scipy.sparse.issparse(X) else np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):  # its text would quote a value
        pass
    raise ValueError("X must hold numbers only, for a torch network: encode its text first")


def require_repeatable(network: TorchClassifier, *, seeded: bool, dealt: bool) -> None:
    """Raise if another run could not continue from this run's checkpoints."""
    if network.checkpoint is not None and not (seeded and dealt):
        raise ValueError(
            "checkpoint needs an integer random_state and a manifest: without them seeds and shards are "
            "drawn anew each time, and no training could continue from the files"
        )


def train_networks(
    network: TorchClassifier,
    shards: Sequence[Shard],
    *,
    n_classes: int,
    on_progress: Callable[[int, int], object],
) -> list[Teacher]:
    """Train a network on each shard, one stack after another."""
    from ostraka.nets.stacks import retry_with_half  # noqa: PLC0415
    from ostraka.nets.vectorised import plan  # noqa: PLC0415

    training = plan(network, n_features=shards[0].X.shape[1], n_classes=n_classes)
    teachers: list[Teacher] = []

    def continue_with(size: int) -> None:
        while len(teachers) < len(shards):
            begin = len(teachers)
            part = shards[begin : begin + size]
            teachers.extend(
                _of_stack(training, part, begin, _as_teachers(on_progress, begin, len(part), len(shards)))
            )
            on_progress(len(teachers), len(shards))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        largest = min(training.size, len(shards))
        retry_with_half(continue_with, -(-len(shards) // -(-len(shards) // largest)))  # as equal as possible
    return teachers


def predict(
    teachers: Sequence[Teacher], X: Any, *, n_classes: int, on_progress: Callable[[int, int], object]
) -> list[Predictions]:
    """Every teacher's predictions in one pass: its fallback where a logit is not finite."""
    from ostraka.nets.stacks import predict_classes  # noqa: PLC0415

    X = _dense(X)
    plans = [teacher.model.plan for teacher in teachers if teacher.model is not None]
    ballots = np.full((len(teachers), len(X)), -1)
    if plans:
        ballots = predict_classes(
            plans[0], [teacher.model for teacher in teachers], X, on_progress=on_progress
        )
    cast = []
    for teacher, mine in zip(teachers, ballots, strict=True):
        if teacher.model is None:
            codes, failed = teacher.codes(X), teacher.failed
        else:
            codes, failed = np.where(mine < 0, teacher.fallback, mine), bool((mine < 0).any())
        cast.append(Predictions(codes.astype(np.min_scalar_type(n_classes)), failed))
    on_progress(len(teachers), len(teachers))
    return cast


def _of_stack(
    plan: TrainingPlan, shards: Sequence[Shard], begin: int, on_progress: Callable[[int, int], object]
) -> list[Teacher]:
    """Train one stack, or its networks one after another if the module cannot be trained in stacks."""
    from ostraka.nets import vectorised  # noqa: PLC0415
    from ostraka.nets.stacks import TrainedNetwork  # noqa: PLC0415
    from ostraka.nets.training import TrainingSet  # noqa: PLC0415

    training_sets = [
        TrainingSet(rows=_dense(shard.X), codes=shard.codes.astype(np.int64), seed=_seed(shard.seed))
        for shard in shards
    ]
    try:
        networks, failures, _ = vectorised.train_stack(
            plan,
            training_sets,
            checkpoint=_file(plan.network.checkpoint, begin, len(shards)),
            on_progress=on_progress,
        )
    except vectorised.CannotVectoriseError:
        return [
            teacher
            for number, shard in enumerate(shards)
            for teacher in _of_stack(plan.alone(), [shard], begin + number, lambda _done, _total: None)
        ]
    teachers = []
    for shard, weights, failed in zip(shards, networks, failures, strict=True):
        present = np.unique(shard.codes)
        without = failed or len(present) == 1  # one class needs no network
        model = None if without else TrainedNetwork(plan=plan, weights=weights, present=present)
        teachers.append(Teacher(model, present, shard.seed, shard.fallback))
    return teachers


def _seed(seed: np.random.SeedSequence) -> int:
    """Return the seed that a clone of the network gets if it is trained separately."""
    random_state = int(seed.generate_state(1)[0] >> 1)
    return int(np.random.SeedSequence(random_state).generate_state(1)[0])


def _dense(X: Any) -> np.ndarray:
    dense: np.ndarray = X.toarray() if scipy.sparse.issparse(X) else X
    return dense


def _file(folder: str | os.PathLike[str] | None, begin: int, many: int) -> Path | None:
    """Return the path of a stack's checkpoint, in a folder that only its owner can read."""
    if folder is None:
        return None
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(folder) / f"teachers-{begin:05}-{begin + many - 1:05}.pt"


def _as_teachers(
    on_progress: Callable[[int, int], object], begin: int, many: int, total: int
) -> Callable[[int, int], object]:
    """Report the epochs of a stack as a number of teachers."""
    return lambda epoch, epochs: on_progress(begin + many * epoch // epochs, total)

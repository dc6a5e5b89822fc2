"""Teachers that are torch networks: trained together, and asked in one pass."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ostraka.voters._ballots import Ballot, Teacher

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ostraka._torch.classifier import TorchClassifier
    from ostraka._torch.stacks import Plan
    from ostraka.voters._ballots import Shard

__all__ = ["as_network", "ballots", "numbers", "require_repeatable", "taught"]


def as_network(estimator: Any) -> TorchClassifier | None:
    """The network that an estimator is, or that a torch module is with the usual settings; None: neither."""
    torch = sys.modules.get("torch")  # whoever has a module has imported it
    if torch is None:
        return None
    from ostraka._torch.classifier import TorchClassifier  # noqa: PLC0415

    if isinstance(estimator, torch.nn.Module):
        return TorchClassifier(estimator)
    return estimator if type(estimator) is TorchClassifier else None


def numbers(X: Any) -> Any:
    """Rows as float32; a sparse matrix stays one until a shard is trained."""
    try:
        with np.errstate(over="ignore"):  # what is too large costs its teacher's ballot
            return X.astype(np.float32) if scipy.sparse.issparse(X) else np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):  # which would quote a value
        pass
    raise ValueError("X must hold numbers only, for a torch network: encode its text first")


def require_repeatable(network: TorchClassifier, *, seeded: bool, dealt: bool) -> None:
    """Raise if the next run could not go on from this one's checkpoints."""
    if network.checkpoint is not None and not (seeded and dealt):
        raise ValueError(
            "checkpoint needs an integer random_state and a manifest: otherwise seeds and shards are "
            "drawn anew each time, and nothing could go on from the files"
        )


def taught(
    network: TorchClassifier, shards: Sequence[Shard], *, n_classes: int, told: Callable[[int, int], object]
) -> list[Teacher]:
    """Train a network on each shard, a stack of them at a time."""
    from ostraka._torch.planning import plan  # noqa: PLC0415
    from ostraka._torch.stacks import halving  # noqa: PLC0415

    found = plan(network, n_features=shards[0].X.shape[1], n_classes=n_classes)
    teachers: list[Teacher] = []

    def go_on(size: int) -> None:
        while len(teachers) < len(shards):
            begin = len(teachers)
            part = shards[begin : begin + size]
            teachers.extend(_of_stack(found, part, begin, _as_teachers(told, begin, len(part), len(shards))))
            told(len(teachers), len(shards))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        halving(go_on, _even(len(shards), found.size))
    return teachers


def ballots(
    teachers: Sequence[Teacher], X: Any, *, n_classes: int, told: Callable[[int, int], object]
) -> list[Ballot]:
    """Every teacher's ballot in one pass: its fallback where a logit is not finite."""
    from ostraka._torch.answers import answers  # noqa: PLC0415

    X = _dense(X)
    plans = [teacher.model.plan for teacher in teachers if teacher.model is not None]
    found = np.full((len(teachers), len(X)), -1)
    if plans:
        found = answers(plans[0], [teacher.model for teacher in teachers], X, told=told)
    cast = []
    for teacher, mine in zip(teachers, found, strict=True):
        if teacher.model is None:
            codes, failed = teacher.codes(X), teacher.failed
        else:
            codes, failed = np.where(mine < 0, teacher.fallback, mine), bool((mine < 0).any())
        cast.append(Ballot(codes.astype(np.min_scalar_type(n_classes)), failed))
    told(len(teachers), len(teachers))
    return cast


def _of_stack(
    plan: Plan, shards: Sequence[Shard], begin: int, told: Callable[[int, int], object]
) -> list[Teacher]:
    """One stack, or its networks one after another where the module cannot be asked together."""
    from ostraka._torch import lockstep  # noqa: PLC0415
    from ostraka._torch.answers import Trained  # noqa: PLC0415
    from ostraka._torch.lessons import Lesson  # noqa: PLC0415

    lessons = [
        Lesson(rows=_dense(shard.X), codes=shard.codes.astype(np.int64), seed=_seed(shard.seed))
        for shard in shards
    ]
    try:
        networks, failed, _ = lockstep.taught(
            plan, lessons, checkpoint=_file(plan.network.checkpoint, begin, len(shards)), told=told
        )
    except lockstep.Unstackable:
        return [
            teacher
            for number, shard in enumerate(shards)
            for teacher in _of_stack(plan.alone(), [shard], begin + number, lambda _done, _total: None)
        ]
    teachers = []
    for shard, weights, broken in zip(shards, networks, failed, strict=True):
        present = np.unique(shard.codes)
        useless = broken or len(present) == 1  # one class needs no network
        model = None if useless else Trained(plan=plan, weights=weights, present=present)
        teachers.append(Teacher(model, present, shard.seed, shard.fallback))
    return teachers


def _seed(seed: np.random.SeedSequence) -> int:
    """As a clone of the network is seeded that is trained alone."""
    random_state = int(seed.generate_state(1)[0] >> 1)
    return int(np.random.SeedSequence(random_state).generate_state(1)[0])


def _dense(X: Any) -> np.ndarray:
    dense: np.ndarray = X.toarray() if scipy.sparse.issparse(X) else X
    return dense


def _file(folder: str | os.PathLike[str] | None, begin: int, many: int) -> Path | None:
    """A stack's own checkpoint, in a folder that only its owner may read."""
    if folder is None:
        return None
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(folder) / f"teachers-{begin:05}-{begin + many - 1:05}.pt"


def _even(total: int, most: int) -> int:
    """The size of stacks that are as even as can be."""
    return -(-total // -(-total // min(most, total)))


def _as_teachers(
    told: Callable[[int, int], object], begin: int, many: int, total: int
) -> Callable[[int, int], object]:
    """Epochs of a stack, as teachers."""
    return lambda epoch, epochs: told(begin + many * epoch // epochs, total)

"""The only training loop: repeatable, resumable, and restored to the last good epoch when a loss is NaN.

With it: its checkpoints; devices, threads and random generators of torch; and the training sets of a stack of
networks, in batches of one shape.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import math
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ostraka.core import check, files
from ostraka.core.check import TrainingDiverged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_BETWEEN_SAVES = 30.0  # seconds; saving more often would cost more time than a crash loses
_VERSION = 3  # of the state in a checkpoint
_HELD_OUT = 5  # every fifth row is held out, if any


def train(
    objectives: Sequence[Objective],
    batches: Callable[[torch.Generator], Iterable[Any]],
    *,
    steps: int,
    epochs: int,
    seed: int,
    state: Mapping[str, Stateful],
    schedule: Callable[[float], float] | None = None,
    after_step: Callable[[], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    on_epoch: Callable[[int, int], object] = lambda _done, _total: None,
) -> list[float]:
    """Train for a number of epochs: in each step, every objective makes one optimizer step.

    Parameters
    ----------
    objectives : sequence of Objective
        In this order for every batch.
    batches : callable(generator) -> iterable
        The batches of one epoch. Random numbers come from the generator, or from torch's own generator,
        which gets the same seed. The same seed trains the same network, interrupted or not.
    steps : int
        Batches in an epoch.
    epochs, seed : int
    state : mapping of str to Stateful
        Every module that the objectives or ``after_step`` change. Optimizers are added here.
    schedule : callable(progress in [0, 1)) -> share of the learning rates, optional
    after_step : callable, optional
        Called after all objectives of a step, for example for a moving average of weights.
    checkpoint : path, optional
        If the file exists, training continues from it. It gets the last good state. Only its owner can
        read it, because a model of private data is private.
    fingerprint : str
        What else must be equal for the file to belong to this training: data and settings.
    on_epoch : callable(done, total)
        Called after every epoch.

    Returns
    -------
    list of float
        The first objective's mean loss in each epoch.

    Raises
    ------
    TrainingDiverged
        A loss was not finite.
    ValueError
        The checkpoint belongs to another training.
    """
    rates = [group["lr"] for objective in objectives for group in objective.groups]
    parts = dict(state) | {
        f"optimizer {number}": objective.optimizer
        for number, objective in enumerate(objectives)
        if objective.optimizer is not None
    }
    name = f"version {_VERSION}, seed {seed}, {epochs} epochs of {steps} steps, {fingerprint}"
    file = None if checkpoint is None else Checkpoint(Path(checkpoint), name)
    losses = [] if file is None else file.restore(parts)
    good, spare, saved = _copied(parts), None, time.monotonic()
    try:
        for epoch in range(len(losses), epochs):
            total, number = 0.0, epoch_seed(seed, epoch)
            with torch.random.fork_rng():  # the caller's random numbers stay as they are
                reseed(number)
                for step, batch in enumerate(batches(torch.Generator().manual_seed(number))):
                    share = 1.0 if schedule is None else schedule((epoch + step / steps) / epochs)
                    groups = (group for objective in objectives for group in objective.groups)
                    for group, rate in zip(groups, rates, strict=True):
                        group["lr"] = rate * share
                    for objective in objectives:
                        if objective.optimizer is not None:
                            objective.optimizer.zero_grad(set_to_none=True)
                        loss = objective.loss(batch)
                        value = float(loss.detach())
                        if not math.isfinite(value):
                            raise TrainingDiverged(  # noqa: TRY301  (a step of this loop)
                                f"the loss is {value} in epoch {epoch + 1} of {epochs}, "
                                f"step {step + 1} of {steps}: the model is as after epoch {epoch}. "
                                "Try a smaller learning_rate"
                            )
                        if loss.requires_grad:  # otherwise the gradients are stored already
                            loss.backward()  # type: ignore[no-untyped-call]
                        if objective.optimizer is not None:
                            objective.optimizer.step()
                        total += value if objective is objectives[0] else 0.0
                    if after_step is not None:
                        after_step()
            good, spare, losses = _copied(parts, spare), good, [*losses, total / steps]
            on_epoch(epoch + 1, epochs)
            if file is not None and time.monotonic() - saved > _BETWEEN_SAVES:
                file.save(good, losses)
                saved = time.monotonic()
    except BaseException:
        for part, stateful in parts.items():
            stateful.load_state_dict(good[part])
        raise
    finally:
        if file is not None:
            file.save(good, losses)
    return losses


def _copied(parts: Mapping[str, Stateful], spare: Any = None) -> dict[str, dict[str, Any]]:
    copied: dict[str, dict[str, Any]] = _over(
        {name: stateful.state_dict() for name, stateful in parts.items()}, spare
    )
    return copied


def _over(now: Any, before: Any) -> Any:
    """A copy that reuses the memory of ``before`` where it fits: new memory costs more than the copying."""
    if isinstance(now, torch.Tensor):
        fits = isinstance(before, torch.Tensor) and (before.shape, before.dtype) == (now.shape, now.dtype)
        return before.copy_(now.detach()) if fits else now.detach().clone()
    if isinstance(now, dict):
        old = before if isinstance(before, dict) else {}
        return {name: _over(part, old.get(name)) for name, part in now.items()}
    return copy.deepcopy(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss of a batch, and the optimizer that reduces it.

    If the loss does not require a gradient, it has already stored the gradients of the parameters. Without
    an optimizer, it has already made the whole step.
    """

    optimizer: torch.optim.Optimizer | None
    loss: Callable[[Any], torch.Tensor]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups."""
        return [] if self.optimizer is None else self.optimizer.param_groups


class Stateful(Protocol):
    """A module, an optimizer, or anything else with a ``state_dict``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that training has changed."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Restore that state."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that is replaced as a whole, and that only the training of the same name can read."""

    path: Path
    name: str

    def restore(self, parts: Mapping[str, Stateful]) -> list[float]:
        """Load the state, if there is a file. Return the losses of the epochs that are done."""
        if not self.path.exists():
            return []
        try:
            content = torch.load(self.path, weights_only=True)
        except Exception as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of a training: remove it to begin again"
            ) from error
        if (
            content["name"] != self.name
        ):  # the message shows neither name: both contain a hash of private rows
            raise ValueError(
                f"{self.path} belongs to another training (other data, seed, settings or version): "
                "type another path, or remove the file to begin again"
            )
        for name, stateful in parts.items():
            stateful.load_state_dict(content["state"][name])
        return list(content["losses"])

    def save(self, state: dict[str, dict[str, Any]], losses: list[float]) -> None:
        """Replace the file in one step; only its owner can read it."""
        content = {"name": self.name, "state": state, "losses": losses}
        files.write(self.path, lambda temporary: torch.save(content, temporary), private=True)


def digest(*parts: np.ndarray | str) -> str:
    """A short hash of the content of arrays and texts."""
    content = hashlib.sha256()
    for part in parts:
        content.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes())
    return content.hexdigest()[:16]


def cosine(progress: float) -> float:
    """Share of the first learning rate: half a cosine wave, from 1 to 0 (Loshchilov and Hutter 2017)."""
    return (1 + math.cos(math.pi * progress)) / 2


def n_steps(n_rows: int, batch_size: int) -> int:
    """Batches in an epoch. A short last batch is left out, unless it is the only one."""
    return max(1, n_rows // batch_size)


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of all random numbers in one epoch."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def epoch_callback(progress: Callable[[str, int, int], object] | None) -> Callable[[int, int], object]:
    """``progress`` with the stage ``"epochs"``; a function that does nothing if there is none."""

    def on_epoch(done: int, total: int) -> None:
        if progress is not None:
            progress("epochs", done, total)

    return on_epoch


def device(name: str) -> torch.device:
    """The device of that name. "auto" is the GPU if there is one, otherwise the CPU.

    Raises
    ------
    ValueError
        This machine, or this build of torch, does not have the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:  # torch raises either where there is no CUDA
        raise ValueError(
            f"device {name!r} is not available: this torch ({torch.__version__}) sees "
            f"{torch.cuda.device_count()} GPUs. Type device='cpu', or device='auto'"
        ) from error
    return chosen


@contextlib.contextmanager
def threads(number: int | None) -> Iterator[int]:
    """Let torch compute with this many threads inside the context.

    None: torch's own number, which is that of the cores or ``OMP_NUM_THREADS``, but at most the number of
    cores that this process may use: more threads than cores slow small networks down several times.
    """
    if number is not None:
        check.integer(n_threads=number, least=1)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    targets = min(torch.get_num_threads(), allowed) if number is None else number
    before = torch.get_num_threads()
    torch.set_num_threads(targets)
    try:
        yield targets
    finally:
        torch.set_num_threads(before)


def reseed(seed: int) -> None:
    """Seed torch's generators, in 1/300 of the time of torch.manual_seed, which records its caller."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


@contextlib.contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the global generators of NumPy, Python and torch on exit."""
    before = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TrainingSet:
    """One network's float32 rows (n, n_features), the class index of each row, and the network's seed."""

    rows: np.ndarray
    codes: np.ndarray
    seed: int

    @classmethod
    def of(cls, rows: np.ndarray, codes: np.ndarray, *, random_state: int) -> TrainingSet:
        """The set of a network with this ``random_state``: its seed is the one with which it trains alone."""
        seed = int(np.random.SeedSequence(random_state).generate_state(1)[0])
        return cls(rows=rows, codes=codes.astype(np.int64), seed=seed)


class StackBatches:
    """The training sets of a stack on its device. A row's number is its place among the rows of all sets.

    Attributes
    ----------
    seeds : list of int
    steps : integer array, shape (n_networks,)
        Batches in an epoch of each network.
    absent : bool tensor, shape (n_networks, n_classes)
        Classes that are not in a network's training set: the network cannot predict them.
    row_weights : float tensor, shape (n_networks, batch_size)
        Weights of a batch's rows. If a training set is smaller than a batch, its rows are repeated with
        weight 0.
    held_rows : list of integer arrays
        Numbers of the rows held out of each training set.
    held_batches : list of (row numbers, row weights)
        The same rows, in batches.
    none_held : bool array, shape (n_networks,)
    """

    def __init__(
        self,
        training_sets: Sequence[TrainingSet],
        *,
        n_classes: int,
        batch_size: int,
        hold_out: bool,
        where: torch.device,
    ) -> None:
        first = np.cumsum([0, *(len(member.codes) for member in training_sets)])[:-1]
        parts = [_split(member, hold_out=hold_out) for member in training_sets]
        held_out = self.held_rows = [
            start + numbers for start, (_, numbers) in zip(first, parts, strict=True)
        ]
        self.seeds, self._size = [member.seed for member in training_sets], batch_size
        self._learned = [start + learned for start, (learned, _) in zip(first, parts, strict=True)]
        self.steps = np.array([n_steps(len(learned), batch_size) for learned in self._learned])
        self.none_held = np.array([len(numbers) == 0 for numbers in held_out])
        present = [np.isin(np.arange(n_classes), member.codes) for member in training_sets]
        self.rows = torch.as_tensor(np.concatenate([member.rows for member in training_sets]), device=where)
        self.codes = torch.as_tensor(np.concatenate([member.codes for member in training_sets]), device=where)
        self.absent = torch.as_tensor(~np.array(present), device=where)
        lengths = np.minimum([len(learned) for learned in self._learned], batch_size)[:, None]
        self.row_weights = torch.as_tensor(
            np.float32((np.arange(batch_size) < lengths) / lengths), device=where
        )
        self.held_batches = []
        for start in range(0, max(len(numbers) for numbers in held_out), batch_size):
            mine = [places[start : start + batch_size] for places in held_out]
            numbers = [  # a network with fewer rows repeats some at weight 0
                np.resize(part if len(part) else learned, batch_size)
                for part, learned in zip(mine, self._learned, strict=True)
            ]
            lengths = np.array([len(part) for part in mine])[:, None]
            many = np.maximum([len(places) for places in held_out], 1)[:, None]
            weights = np.float32((np.arange(batch_size) < lengths) / many)
            self.held_batches.append(
                (torch.as_tensor(np.array(numbers), device=where), torch.as_tensor(weights, device=where))
            )

    def numbers(self, begin: int, end: int, *, epochs: int) -> torch.Tensor:
        """Row numbers of the steps from ``begin`` to ``end``: int64 (n_steps, n_networks, batch_size).

        A network's epochs follow each other without a gap, in the order that its seed gives. A network
        that has finished gets its first row, and its update is discarded.
        """
        places = np.empty((end - begin, len(self.seeds), self._size), dtype=np.int64)
        for number, (learned, steps) in enumerate(zip(self._learned, self.steps, strict=True)):
            places[:, number] = learned[0]
            for epoch in range(begin // steps, min(epochs, -(-end // steps))):
                first, last = max(begin, epoch * steps), min(end, (epoch + 1) * steps)
                mine = self.order(number, epoch)[first - epoch * steps : last - epoch * steps]
                places[first - begin : last - begin, number] = mine
        return torch.as_tensor(places, device=self.rows.device)

    def order(self, number: int, epoch: int) -> np.ndarray:
        """Row numbers of one network's epoch: int64 (n_steps, batch_size)."""
        learned = self._learned[number]
        generator = torch.Generator().manual_seed(epoch_seed(self.seeds[number], epoch))
        order = torch.randperm(len(learned), generator=generator).numpy()
        return np.resize(learned[order], (self.steps[number], self._size))


def _split(training_set: TrainingSet, *, hold_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """Places of the rows to train on and of the rows held out, drawn with the set's own seed."""
    n_rows = len(training_set.codes)
    if not hold_out:
        return np.arange(n_rows), np.arange(0)
    order = np.random.default_rng([training_set.seed, 0, 1]).permutation(n_rows)
    held_out, learned = np.split(order, [n_rows // _HELD_OUT])
    return np.sort(learned), held_out


def is_lowest(losses: Any, best: torch.Tensor, waited: torch.Tensor, ends: Any) -> np.ndarray:
    """Which networks end an epoch with the lowest held-out loss so far: of none held out, each one is.

    Keeps the lowest in ``best``, and in ``waited`` for how many epochs there was none. On processors alone.
    """
    lowest, epochs = best.numpy(), waited.numpy()  # the same memory: torch would start more threads
    better = ends & ((losses < lowest) | np.isneginf(losses))
    lowest[...] = np.where(better, losses, lowest)
    epochs[...] = np.where(better, 0, epochs + ends)
    return np.asarray(better)

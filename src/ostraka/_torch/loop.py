"""The only training loop: repeatable, resumable, and restored to the last good epoch when a loss is NaN."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ostraka._diverged import TrainingDiverged
from ostraka._torch.checkpoints import Checkpoint
from ostraka._torch.devices import reseed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ostraka._torch.checkpoints import Stateful

__all__ = ["Objective", "cosine", "epoch_callback", "epoch_seed", "n_steps", "train"]

_BETWEEN_SAVES = 30.0  # seconds; saving more often would cost more time than a crash loses
_VERSION = 3  # of the state in a checkpoint


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
    run = _Run(
        objectives=objectives,
        batches=batches,
        steps=steps,
        epochs=epochs,
        seed=seed,
        schedule=schedule,
        after_step=after_step,
        rates=[[group["lr"] for group in objective.groups] for objective in objectives],
    )
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
            loss = run.epoch(epoch)
            good, spare, losses = _copied(parts, spare), good, [*losses, loss]
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


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The state that all epochs of one training share."""

    objectives: Sequence[Objective]
    batches: Callable[[torch.Generator], Iterable[Any]]
    steps: int
    epochs: int
    seed: int
    schedule: Callable[[float], float] | None
    after_step: Callable[[], object] | None
    rates: list[list[float]]  # the first learning rates of every objective's parameter groups

    def epoch(self, epoch: int) -> float:
        """Train on every batch once. Return the first objective's mean loss."""
        total = 0.0
        own = epoch_seed(self.seed, epoch)
        with torch.random.fork_rng():  # the caller's random numbers stay as they are
            reseed(own)
            for step, batch in enumerate(self.batches(torch.Generator().manual_seed(own))):
                self._set_rates((epoch + step / self.steps) / self.epochs)
                values = [self._step(objective, batch, epoch, step) for objective in self.objectives]
                total += values[0]
                if self.after_step is not None:
                    self.after_step()
        return total / self.steps

    def _set_rates(self, progress: float) -> None:
        if self.schedule is not None:
            share = self.schedule(progress)
            for objective, rates in zip(self.objectives, self.rates, strict=True):
                for group, rate in zip(objective.groups, rates, strict=True):
                    group["lr"] = rate * share

    def _step(self, objective: Objective, batch: Any, epoch: int, step: int) -> float:
        if objective.optimizer is not None:
            objective.optimizer.zero_grad(set_to_none=True)
        loss = objective.loss(batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingDiverged(
                f"the loss is {value} in epoch {epoch + 1} of {self.epochs}, "
                f"step {step + 1} of {self.steps}: the model is as after epoch {epoch}. "
                "Try a smaller learning_rate"
            )
        if loss.requires_grad:  # otherwise the gradients are stored already
            loss.backward()  # type: ignore[no-untyped-call]
        if objective.optimizer is not None:
            objective.optimizer.step()
        return value


def _copied(parts: Mapping[str, Stateful], spare: Any = None) -> dict[str, dict[str, Any]]:
    copied: dict[str, dict[str, Any]] = _over(
        {name: each.state_dict() for name, each in parts.items()}, spare
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

"""The only training loop: resumable, repeatable, and back at the last good state when a loss is NaN."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ostraka import _files
from ostraka._torch.devices import reseed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["TrainingDiverged", "Turn", "cosine", "epoch_seed", "train"]

_BETWEEN_SAVES = 30.0  # seconds; saving more often would cost more than what a crash loses


class TrainingDiverged(FloatingPointError):  # noqa: N818  (as BudgetExceeded)
    """A loss was not finite. Modules and checkpoint are as they were after the last good epoch."""


class Stateful(Protocol):
    """A module, an optimizer, or anything else that survives as a ``state_dict``."""

    def state_dict(self) -> dict[str, Any]:
        """All that training has changed."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Go on from there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One optimizer's part of a step: what it makes smaller, of a batch.

    A loss that needs no gradient has left those of the parameters where the optimizer looks for them;
    without an optimizer it has made the whole step.
    """

    optimizer: torch.optim.Optimizer | None
    loss: Callable[[Any], torch.Tensor]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups."""
        return [] if self.optimizer is None else self.optimizer.param_groups


def cosine(progress: float) -> float:
    """Share of the first learning rate: a quarter of a cosine wave, from 1 to 0.2 (Sohn et al. 2020)."""
    return math.cos(7 * math.pi * progress / 16)


def epoch_seed(seed: int, epoch: int) -> int:
    """What seeds all the chance in one epoch."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def train(
    turns: Sequence[Turn],
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
    told: Callable[[int, int], object] = lambda _done, _total: None,
) -> list[float]:
    """Let every turn step on every batch, for some epochs.

    Parameters
    ----------
    turns : sequence of Turn
        In this order on every batch.
    batches : callable(generator) -> iterable
        The batches of one epoch; all their chance comes from the generator, or from torch's own,
        which is seeded alike. The same seed trains the same, whether interrupted or not.
    steps : int
        How many batches there are in an epoch.
    epochs, seed : int
    state : mapping of str to Stateful
        Every module that the turns or ``after_step`` change. Optimizers come along by themselves.
    schedule : callable(progress in [0, 1)) -> share of the learning rates, optional
    after_step : callable, optional
        After all turns of a step: a moving average of weights, say.
    checkpoint : path, optional
        A file to go on from, if it is there, and to keep the last good state in. Only its owner
        may read it: a model of private data is private.
    fingerprint : str
        What else must be the same for the file to be of this training: data, settings.
    told : callable(done, total)
        After every epoch.

    Returns
    -------
    list of float
        The first turn's mean loss in each epoch.

    Raises
    ------
    TrainingDiverged
        A loss was not finite.
    ValueError
        The checkpoint is of another training.
    """
    course = _Course(
        turns=turns,
        batches=batches,
        steps=steps,
        epochs=epochs,
        seed=seed,
        schedule=schedule,
        after_step=after_step,
        rates=[[group["lr"] for group in turn.groups] for turn in turns],
    )
    keep = dict(state) | {
        f"optimizer {number}": turn.optimizer
        for number, turn in enumerate(turns)
        if turn.optimizer is not None
    }
    name = f"seed {seed}, {epochs} epochs of {steps} steps, {fingerprint}"
    file = None if checkpoint is None else _Checkpoint(Path(checkpoint), name)
    losses = [] if file is None else file.restore(keep)
    good, spare, saved = _copied(keep), None, time.monotonic()
    try:
        for epoch in range(len(losses), epochs):
            loss = course.epoch(epoch)
            good, spare, losses = _copied(keep, spare), good, [*losses, loss]
            told(epoch + 1, epochs)
            if file is not None and time.monotonic() - saved > _BETWEEN_SAVES:
                file.save(good, losses)
                saved = time.monotonic()
    except BaseException:
        for part, stateful in keep.items():
            stateful.load_state_dict(good[part])
        raise
    finally:
        if file is not None:
            file.save(good, losses)
    return losses


@dataclass(frozen=True, kw_only=True)
class _Course:
    """What every epoch of one training has in common."""

    turns: Sequence[Turn]
    batches: Callable[[torch.Generator], Iterable[Any]]
    steps: int
    epochs: int
    seed: int
    schedule: Callable[[float], float] | None
    after_step: Callable[[], object] | None
    rates: list[list[float]]  # of every turn's parameter groups, as they were at the very beginning

    def epoch(self, epoch: int) -> float:
        """One pass over the batches; the first turn's mean loss."""
        total = 0.0
        own = epoch_seed(self.seed, epoch)
        with torch.random.fork_rng():  # whoever called keeps their random numbers
            reseed(own)
            for step, batch in enumerate(self.batches(torch.Generator().manual_seed(own))):
                self._set_rates((epoch + step / self.steps) / self.epochs)
                values = [self._step(turn, batch, epoch, step) for turn in self.turns]
                total += values[0]
                if self.after_step is not None:
                    self.after_step()
        return total / self.steps

    def _set_rates(self, progress: float) -> None:
        if self.schedule is not None:
            share = self.schedule(progress)
            for turn, rates in zip(self.turns, self.rates, strict=True):
                for group, rate in zip(turn.groups, rates, strict=True):
                    group["lr"] = rate * share

    def _step(self, turn: Turn, batch: Any, epoch: int, step: int) -> float:
        if turn.optimizer is not None:
            turn.optimizer.zero_grad(set_to_none=True)
        loss = turn.loss(batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingDiverged(
                f"the loss is {value} in epoch {epoch + 1} of {self.epochs}, "
                f"step {step + 1} of {self.steps}: the model is as after epoch {epoch}. "
                "Try a smaller learning_rate"
            )
        if loss.requires_grad:  # else its gradients are there already
            loss.backward()  # type: ignore[no-untyped-call]
        if turn.optimizer is not None:
            turn.optimizer.step()
        return value


def _copied(keep: Mapping[str, Stateful], spare: Any = None) -> dict[str, dict[str, Any]]:
    copied: dict[str, dict[str, Any]] = _over({name: each.state_dict() for name, each in keep.items()}, spare)
    return copied


def _over(now: Any, before: Any) -> Any:
    """A copy, in memory that is there where it fits: fresh memory costs more than the copying."""
    if isinstance(now, torch.Tensor):
        fits = isinstance(before, torch.Tensor) and (before.shape, before.dtype) == (now.shape, now.dtype)
        return before.copy_(now.detach()) if fits else now.detach().clone()
    if isinstance(now, dict):
        old = before if isinstance(before, dict) else {}
        return {name: _over(part, old.get(name)) for name, part in now.items()}
    return copy.deepcopy(now)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """One file: whole or as before, and never of another training."""

    path: Path
    name: str

    def restore(self, keep: Mapping[str, Stateful]) -> list[float]:
        """Load what is there; the losses of the epochs that it has behind it."""
        if not self.path.exists():
            return []
        try:
            found = torch.load(self.path, weights_only=True)
        except Exception as error:
            raise ValueError(
                f"{self.path} is no checkpoint of a training: remove it to begin again"
            ) from error
        if found["name"] != self.name:  # which neither names: a hash of private rows is in both
            raise ValueError(
                f"{self.path} is of another training (other data, seed or settings): "
                "type another path, or remove the file to begin again"
            )
        for part, stateful in keep.items():
            stateful.load_state_dict(found["state"][part])
        return list(found["losses"])

    def save(self, good: dict[str, dict[str, Any]], losses: list[float]) -> None:
        content = {"name": self.name, "state": good, "losses": losses}
        _files.write(self.path, lambda beside: torch.save(content, beside), private=True)

"""Vectorised training: the networks of a stack train in the same steps, each on its own rows."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import nn

from ostraka._torch import perceptrons
from ostraka._torch.batches import StackBatches
from ostraka._torch.checkpoints import digest
from ostraka._torch.compiled import DIVERGED
from ostraka._torch.devices import device, preserve_generators, reseed, threads
from ostraka._torch.gradients import Targets, backpropagate
from ostraka._torch.loop import Objective, train
from ostraka._torch.stacks import is_out_of_memory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from ostraka._torch.batches import TrainingSet
    from ostraka._torch.stacks import TrainingPlan, Weights

__all__ = ["CannotVectoriseError", "train_stack"]

_IRRELEVANT = {"checkpoint", "device", "n_threads", "progress", "random_state"}  # to the trained weights


class CannotVectoriseError(Exception):
    """The module raised in a stack. Which network caused it is not known: train one at a time."""


def train_stack(
    plan: TrainingPlan,
    training_sets: Sequence[TrainingSet],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> tuple[list[Weights], np.ndarray, list[float]]:
    """Train one network on each training set.

    No training set changes another network by a bit: shapes depend on the plan and on the number of
    training sets, every sum is over one network's rows, and random numbers come from a network's own seed
    or from the number of the step.

    Returns
    -------
    list of Weights
    bool array, shape (n_networks,)
        Which networks failed: a loss or a weight was not finite, or the module raised.
    list of float
        The sum of the networks' losses, as a mean over each epoch.

    Raises
    ------
    CannotVectoriseError
        The module raised.
    """
    fingerprint = "" if checkpoint is None else _fingerprint(plan, training_sets)
    if plan.compiled:
        return perceptrons.train_perceptrons(
            plan, training_sets, checkpoint=checkpoint, fingerprint=fingerprint, on_progress=on_progress
        )
    with threads(plan.network.n_threads), preserve_generators():
        trainer = _StackTrainer(plan, training_sets)
        losses = train(
            [Objective(optimizer=plan.optimizer(trainer.stack.trained.parameters()), loss=trainer.loss)],
            trainer.next_batches,
            steps=int(trainer.batches.steps.max()),
            epochs=plan.network.epochs,
            seed=training_sets[0].seed,
            state={"trainer": trainer},
            after_step=trainer.after_step,
            checkpoint=checkpoint,
            fingerprint=fingerprint,
            on_epoch=on_progress,
        )
        return *trainer.results(), losses


class _StackTrainer(nn.Module):
    """A stack in training: its weights, the number of steps done, and which networks have stopped."""

    steps_done: torch.Tensor
    best_loss: torch.Tensor
    epochs_waited: torch.Tensor
    stopped: torch.Tensor
    failed: torch.Tensor

    def __init__(self, plan: TrainingPlan, training_sets: Sequence[TrainingSet]) -> None:
        super().__init__()
        self.plan, self.network, self.seed = plan, plan.network, training_sets[0].seed
        where, many = device(self.network.device), len(training_sets)
        self.batches = StackBatches(
            training_sets,
            n_classes=plan.n_classes,
            batch_size=self.network.batch_size,
            hold_out=self.network.patience is not None,
            where=where,
        )
        self.n_steps = self.batches.steps * self.network.epochs
        self.stack = plan.new_stack([each.seed for each in training_sets])
        # networks that have stopped keep their weights while the others go on
        keeping = self.network.patience is not None or len(set(self.n_steps)) > 1
        self.kept = nn.ParameterList(
            nn.Parameter(whole.detach().clone(), requires_grad=False)
            for whole in (self.stack.tensors() if keeping else ())
        )
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))
        self.register_buffer("best_loss", torch.full((many,), torch.inf, dtype=torch.float64))
        self.register_buffer("epochs_waited", torch.zeros(many, dtype=torch.int64))
        self.register_buffer("stopped", torch.zeros(many, dtype=torch.bool))
        self.register_buffer("failed", torch.zeros(many, dtype=torch.bool, device=where))
        self._running = torch.ones(many, dtype=torch.bool, device=where)
        self._memory = torch.empty(many * self.network.batch_size, plan.n_features, device=where)
        self._before: list[torch.Tensor] = []

    def next_batches(self, _generator: torch.Generator) -> Iterator[torch.Tensor]:
        """Row numbers of the next steps of all networks; none if all networks have stopped."""
        self._update_running()
        begin = int(self.steps_done)
        end = begin + int(self.batches.steps.max())
        if self._running.any():
            for step, numbers in enumerate(self.batches.numbers(begin, end, epochs=self.network.epochs)):
                self._seed(begin + step)
                yield numbers

    def loss(self, numbers: torch.Tensor) -> torch.Tensor:
        """Sum of losses, after storing gradients. Diverged networks are masked and marked failed."""
        losses = self._attempt(partial(self._backpropagate, numbers))
        finite = losses < DIVERGED  # False for NaN
        self.failed.logical_or_(self._running & ~finite)  # in place, as nn.Module requires of a buffer
        if self.network.rate_schedule() is not None:
            self._before = [whole.detach().clone() for whole in self.stack.trained]
        return torch.where(finite, losses, 0.0).sum()

    def after_step(self) -> None:
        """Apply each network's share of the learning rate. At the end of its epoch a network may stop."""
        schedule = self.network.rate_schedule()
        if schedule is not None and self._before:
            progress = np.minimum(int(self.steps_done) / self.n_steps, 1.0)
            shares = torch.tensor([schedule(each) for each in progress.tolist()])
            for whole, before in zip(self.stack.trained, self._before, strict=True):
                whole.data = before.lerp(whole.data, _broadcast(shares.to(whole.device), whole))
        self.steps_done.add_(1)
        if not len(self.kept):
            return
        ends = (int(self.steps_done) % self.batches.steps == 0) & self._running.cpu().numpy()
        if ends.any():
            self._keep(self._improved(ends))
            self._update_running()

    def results(self) -> tuple[list[Weights], np.ndarray]:
        """The weights of each network, and which networks failed."""
        for whole, kept in zip(self.stack.tensors(), self.kept, strict=False):
            whole.data.copy_(kept.data)
        networks = [self.stack.one(number) for number in range(self.stack.size)]
        finite = [all(bool(whole.isfinite().all()) for whole in each.values()) for each in networks]
        return networks, self.failed.cpu().numpy() | ~np.array(finite)

    def _attempt(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The losses. If a stack of one raises, its network is marked failed and the loss is 0."""
        try:
            return work()
        except Exception as error:
            # the text of the error may be private, and an error may cost one ballot only
            if is_out_of_memory(error):
                raise
            if len(self.failed) > 1:
                raise CannotVectoriseError from None
            self.failed.fill_(True)
            self.stopped.fill_(True)
            return torch.zeros(1, device=self.failed.device)

    def _targets(self, numbers: torch.Tensor, row_weights: torch.Tensor | None = None) -> Targets:
        return Targets(
            codes=self.batches.codes[numbers],
            absent=self.batches.absent[:, None, :],
            row_weights=self.batches.row_weights if row_weights is None else row_weights,
        )

    def _backpropagate(self, numbers: torch.Tensor) -> torch.Tensor:
        return backpropagate(self.stack, self._rows(numbers, augmented=True), self._targets(numbers))

    def _held_out_loss(self, numbers: torch.Tensor, row_weights: torch.Tensor) -> torch.Tensor:
        logits = self.stack.logits(self._rows(numbers, augmented=False), training=False)
        return self._targets(numbers, row_weights).losses(logits)[1]

    def _rows(self, numbers: torch.Tensor, *, augmented: bool) -> torch.Tensor:
        """The rows of a batch, always in the same memory: new pages would cost more than the copy."""
        torch.index_select(self.batches.rows, 0, numbers.flatten(), out=self._memory)
        rows = self._memory.view(*numbers.shape, -1)
        if self.network.augment is None or not augmented:
            return rows
        changed = [self._augmented(number, own) for number, own in enumerate(rows)]
        self._seed(int(self.steps_done))
        return torch.stack(changed)

    def _augmented(self, number: int, own: torch.Tensor) -> torch.Tensor:
        """Augment one network's rows, in a call of its own, so that an error costs one ballot only."""
        _seed_all(self.batches.seeds[number] + int(self.steps_done))
        augment = cast("Callable[[torch.Tensor], torch.Tensor]", self.network.augment)
        with contextlib.suppress(Exception):  # the text of the error may be private
            changed = augment(own)
            if changed.shape == own.shape:
                return changed.to(own)
        self.failed[number] = True
        return own

    def _seed(self, step: int) -> None:
        """Seed what the module draws from; a module in a stack draws from torch's generators only."""
        (reseed if self.plan.together else _seed_all)(self.seed + step)

    def _improved(self, ends: np.ndarray) -> np.ndarray:
        """Return which networks improved in the last epoch; stop those without progress for too long."""
        if self.network.patience is None:
            return ends & (int(self.steps_done) == self.n_steps)
        held = np.zeros(len(ends))
        with torch.no_grad():
            for chunk in self.batches.held_batches:
                held += self._attempt(partial(self._held_out_loss, *chunk)).cpu().numpy()
        better: np.ndarray = ends & ((held < self.best_loss.numpy()) | self.batches.none_held)
        self.best_loss.copy_(torch.as_tensor(np.where(better, held, self.best_loss.numpy())))
        self.epochs_waited.copy_(torch.as_tensor(np.where(better, 0, self.epochs_waited.numpy() + ends)))
        self.stopped |= self.epochs_waited >= self.network.patience
        return better

    def _keep(self, improved: np.ndarray) -> None:
        """Copy the present weights of these networks."""
        chosen = torch.as_tensor(improved, device=self._running.device)
        for kept, whole in zip(self.kept, self.stack.tensors(), strict=True):
            kept.data = torch.where(_broadcast(chosen, whole), whole.detach(), kept.data)

    def _update_running(self) -> None:
        """Recompute which networks still train; this is also needed after a checkpoint was read."""
        running = (int(self.steps_done) < self.n_steps) & ~self.stopped.numpy()
        self._running = torch.as_tensor(running, device=self._running.device)


def _broadcast(one_each: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """One number for each network, in the shape that broadcasts over that network's weights."""
    return one_each.view(-1, *[1] * (whole.dim() - 1))


def _fingerprint(plan: TrainingPlan, training_sets: Sequence[TrainingSet]) -> str:
    """A hash of everything that the trained weights depend on."""
    settings = {
        name: getattr(value, "__qualname__", value)  # functions by name, since their repr has an address
        for name, value in plan.network.get_params().items()
        if name not in _IRRELEVANT
    }
    how = (plan.together, plan.compiled, plan.orders)
    text = f"{settings}, {plan.module}, {how}, {[each.seed for each in training_sets]}"
    data = [part for each in training_sets for part in (each.rows, each.codes)]
    return digest(text, *data)


def _seed_all(seed: int) -> None:
    """Seed every global generator: modules and augmentations may draw from any of them."""
    reseed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)

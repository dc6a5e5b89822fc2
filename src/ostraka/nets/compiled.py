"""Compiled training of perceptrons on a CPU: all steps in one call, one network on each thread at a time.

The steps themselves are kernels (``core/kernels/perceptrons.py``), whose machine code wheels bring.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
import torch
from torch import nn

from ostraka.core import check
from ostraka.core.compiled import machine_code
from ostraka.core.kernels.perceptrons import held_out_loss, train
from ostraka.nets import training
from ostraka.nets.stacks import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.nets.stacks import TrainingPlan, Weights
    from ostraka.nets.training import StackBatches
    from ostraka.networks import TorchClassifier

if machine_code() is None:  # said here: a trial that fails would only choose a slower way
    check.require("numba", extra="torch")
_WORK = 2**30  # weights times rows before a thread takes the next network, whose memory it then has to read
_LEAST = 1024  # a row costs at least as much as with this number of weights
_ADAM = (None, torch.optim.Adam, torch.optim.AdamW)


def is_compilable(network: TorchClassifier, module: nn.Module) -> bool:
    """Whether the compiled code implements these settings and this module."""
    layers = list(module) if type(module) is nn.Sequential else []
    linear, between = layers[::2], layers[1::2]
    children = [name for name, layer in module.named_children() if type(layer) is nn.Linear]
    names = [f"{name}.{part}" for name in children for part in ("weight", "bias")]
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        training.device(network.device).type == "cpu"
        and network.optimizer in _ADAM
        and network.augment is None
        # linear layers with ReLU between them, all trained, without hooks
        and len(layers) % 2 == 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and len(set(module.parameters())) == 2 * len(linear)
        and list(weights_of(module)) == names
        and all(
            parameter.requires_grad and parameter.dtype is torch.float32 for parameter in module.parameters()
        )
        and not any(getattr(part, hook) for part in module.modules() for hook in hooks)
    )


def train_perceptrons(
    plan: TrainingPlan,
    batches: StackBatches,
    *,
    n_threads: int,
    on_progress: Callable[[int, int], object],
    run: dict[str, Any],
) -> tuple[list[Weights], np.ndarray, list[float]]:
    """As ``vectorised.train_stack``, in compiled code; ``run`` is what the training loop gets beside."""
    network = plan.network
    with (
        threadpoolctl.threadpool_limits(1, user_api="blas"),  # otherwise every thread starts more threads
        ThreadPoolExecutor(n_threads) as pool,
    ):
        learners = [_Learner(plan, batches, number) for number in range(len(batches.seeds))]
        rows = int(batches.steps.max()) * network.batch_size
        epochs_at_once = max(1, _WORK // (max(learners[0].weights.numel(), _LEAST) * rows))
        training.train(  # its "epoch" is a round over all networks; it stores checkpoints of the learners
            [
                training.Objective(
                    optimizer=None, loss=lambda n_epochs: _round(learners, n_epochs, pool, on_progress)
                )
            ],
            lambda _generator: [epochs_at_once],
            steps=1,
            epochs=-(-network.epochs // epochs_at_once),
            state={} if run["checkpoint"] is None else {"learners": nn.ModuleList(learners)},
            **run,
        )
    networks, failed = zip(*[learner.result() for learner in learners], strict=True)
    losses = torch.stack([learner.losses for learner in learners]).sum(dim=0)
    return list(networks), np.array(failed), losses.tolist()


def _round(
    learners: Sequence[_Learner],
    n_epochs: int,
    pool: ThreadPoolExecutor,
    on_progress: Callable[[int, int], object],
) -> torch.Tensor:
    """Train every network for this number of epochs."""
    begin, epochs, many = int(learners[0].epoch), len(learners[0].losses), len(learners)
    end = min(begin + n_epochs, epochs)
    tasks = [pool.submit(learner.train_to, end) for learner in learners]
    try:
        for done, task in enumerate(tasks, start=1):
            task.result()
            on_progress(begin * many + done * (end - begin), epochs * many)
    finally:
        for task in tasks:
            task.cancel()
        wait(tasks)  # after an interrupt the training loop restores weights: no thread may write them then
    return torch.zeros(())


class _Learner(nn.Module):
    """One perceptron in training. It shares no state with another."""

    weights: torch.Tensor
    moments: torch.Tensor
    best_weights: torch.Tensor
    losses: torch.Tensor
    best_loss: torch.Tensor
    epochs_waited: torch.Tensor
    failed: torch.Tensor
    epoch: torch.Tensor

    def __init__(self, plan: TrainingPlan, batches: StackBatches, number: int) -> None:
        super().__init__()
        self.network, self.batches, self.number = plan.network, batches, number
        tensors = weights_of(
            plan.network.new_module(
                n_features=plan.n_features, n_classes=plan.n_classes, seed=batches.seeds[number]
            )
        )
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.widths = np.array([plan.n_features, *(shape[0] for shape in self.shapes.values())][::2])
        defaults = plan.optimizer([nn.Parameter(torch.empty(0))]).defaults
        self.constants = np.array([*defaults["betas"], defaults["eps"], defaults["weight_decay"]])
        weights = torch.cat([tensor.detach().t().flatten() for tensor in tensors.values()])
        for name, buffer in {
            "weights": weights,
            "moments": torch.zeros(2, len(weights)),
            "best_weights": None if plan.network.patience is None else weights.clone(),
            "losses": torch.zeros(plan.network.epochs, dtype=torch.float64),
            "best_loss": torch.tensor(torch.inf, dtype=torch.float64),
            "epochs_waited": torch.tensor(0),
            "failed": torch.tensor(False),
            "epoch": torch.tensor(0),
        }.items():
            self.register_buffer(name, buffer)

    def train_to(self, end: int) -> None:
        """Train up to that epoch, unless the network has failed or has waited too long."""
        begin, patience = int(self.epoch), self.network.patience
        at_once = end - begin if patience is None else 1  # one call for each epoch takes 10 % more time
        for epoch in range(begin, end, at_once):
            if self.failed or (patience is not None and int(self.epochs_waited) >= patience):
                break
            epochs = range(epoch, epoch + at_once)
            steps = int(self.batches.steps[self.number])
            order = np.stack([self.batches.order(self.number, epoch) for epoch in epochs])
            rates = np.full((len(epochs), steps), self.network.learning_rate)
            schedule, first_step = self.network.rate_schedule(), epochs[0] * steps
            if schedule is not None:
                total = self.network.epochs * steps
                rates *= np.reshape(
                    [schedule((first_step + step) / total) for step in range(rates.size)], rates.shape
                )
            weights, moments = self.weights.numpy(), self.moments.numpy()
            losses = train(
                *self._rows(), self.widths, weights, moments, self.constants, order, rates, first_step
            )
            diverged = np.isinf(losses)
            self.losses.numpy()[epochs.start : epochs.stop] = np.where(diverged, 0.0, losses)
            self.failed.fill_(bool(diverged.any()))
            if patience is None:
                continue
            # keep the weights if the held-out loss is the lowest so far; without held-out rows, always
            numbers, loss = self.batches.held_rows[self.number], -np.inf
            if len(numbers):
                loss = held_out_loss(*self._rows(), self.widths, weights, numbers)
            if training.is_lowest(loss, self.best_loss, self.epochs_waited, True):
                np.copyto(self.best_weights.numpy(), weights)  # torch would start more threads
        self.epoch.fill_(end)

    def result(self) -> tuple[Weights, bool]:
        """The weights with the names and shapes of the module, and whether the network failed."""
        last = self.weights if self.network.patience is None else self.best_weights
        parts = torch.split(last, [math.prod(shape) for shape in self.shapes.values()])
        named = {
            name: part.reshape(shape[::-1]).t().clone(memory_format=torch.contiguous_format)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        return named, bool(self.failed) or not all(bool(edge.isfinite()) for edge in last.aminmax())

    def _rows(self) -> tuple[np.ndarray, ...]:
        """What the kernels ask of the rows: rows, codes, weights of a batch's rows, absent classes."""
        batches, number = self.batches, self.number
        return (
            batches.rows.numpy(),
            batches.codes.numpy(),
            batches.row_weights[number].numpy(),
            batches.absent[number].numpy(),
        )

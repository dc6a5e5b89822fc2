"""Vectorised training: the networks of a stack train in the same steps, each on its own rows.

Whether networks of one shape can be stacked is found out on made-up rows, before private rows are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from ostraka.core.kernels.perceptrons import DIVERGED
from ostraka.nets import compiled
from ostraka.nets.stacks import (
    NetworkStack,
    Targets,
    TrainedNetwork,
    TrainingPlan,
    backpropagate,
    is_out_of_memory,
)
from ostraka.nets.training import (
    Objective,
    StackBatches,
    TrainingSet,
    device,
    digest,
    is_lowest,
    preserve_generators,
    reseed,
    threads,
    train,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.nets.stacks import Weights
    from ostraka.networks import TorchClassifier

_IRRELEVANT = {"checkpoint", "device", "n_threads", "progress", "random_state"}  # to the trained weights
_IN_CACHE = 20 * 2**20  # bytes that a stack works on: measured by bench/teachers.py
_AT_LEAST = 64  # compiled networks in a group: they share no cache, and every thread needs work
_PER_WEIGHT = 16  # bytes: a weight, its gradient, and two moments, float32
_PER_ACTIVATION = 8  # bytes: the activation and its gradient
# A weight's step depends on its own gradient and history only: a stack trains as its networks alone would.
_ELEMENTWISE = {
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.ASGD,
}
_GARBAGE = (math.nan, math.inf, -1e30)  # values that must not reach another network


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
    training sets, every sum is over one network's rows, and random numbers come from a network's own seed, or
    from the first one's with the number of the step. No seed depends on rows.

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
    fingerprint = ""
    if checkpoint is not None:  # of everything that the trained weights depend on
        settings = {
            name: getattr(value, "__qualname__", value)  # functions by name, since their repr has an address
            for name, value in plan.network.get_params().items()
            if name not in _IRRELEVANT
        }
        how = (plan.together, plan.compiled, plan.orders)
        text = f"{settings}, {plan.module}, {how}, {[member.seed for member in training_sets]}"
        fingerprint = digest(text, *(part for one in training_sets for part in (one.rows, one.codes)))
    network = plan.network
    batches = StackBatches(
        training_sets,
        n_classes=plan.n_classes,
        batch_size=network.batch_size,
        hold_out=network.patience is not None,
        where=device(network.device),
    )
    with threads(network.n_threads) as n_threads, preserve_generators():
        run: dict[str, Any] = {"seed": batches.seeds[0], "checkpoint": checkpoint, "fingerprint": fingerprint}
        if plan.compiled:
            return compiled.train_perceptrons(
                plan, batches, n_threads=n_threads, on_progress=on_progress, run=run
            )
        trainer = _StackTrainer(plan, batches)
        losses = train(
            [Objective(optimizer=plan.optimizer(trainer.stack.trained.parameters()), loss=trainer.loss)],
            trainer.next_batches,
            steps=int(batches.steps.max()),
            epochs=network.epochs,
            state={"trainer": trainer},
            after_step=trainer.after_step,
            on_epoch=on_progress,
            **run,
        )
        return *trainer.results(), losses


def train_networks(
    plan: TrainingPlan,
    training_sets: Sequence[TrainingSet],
    *,
    folder: str | os.PathLike[str] | None = None,
    first: int = 0,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> list[TrainedNetwork | None]:
    """Train a stack, or its networks one after another if the module cannot be trained in stacks.

    Parameters
    ----------
    folder : path, optional
        Gets checkpoints, named by the numbers of their networks, from ``first`` on.

    Returns
    -------
    list of TrainedNetwork or None
        Private. None where a network failed.
    """
    checkpoint = None
    if folder is not None:  # only its owner can read it
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        checkpoint = Path(folder) / f"teachers-{first:05}-{first + len(training_sets) - 1:05}.pt"
    try:
        networks, failures, _ = train_stack(
            plan, training_sets, checkpoint=checkpoint, on_progress=on_progress
        )
    except CannotVectoriseError:
        return [
            network
            for number, member in enumerate(training_sets, start=first)
            for network in train_networks(plan.alone(), [member], folder=folder, first=number)
        ]
    return [
        None if failed else TrainedNetwork(plan=plan, weights=weights, present=np.unique(member.codes))
        for member, weights, failed in zip(training_sets, networks, failures, strict=True)
    ]


class _StackTrainer(nn.Module):
    """A stack in training: its weights, the number of steps done, and which networks have stopped."""

    steps_done: torch.Tensor
    best_loss: torch.Tensor
    epochs_waited: torch.Tensor
    stopped: torch.Tensor
    failed: torch.Tensor

    def __init__(self, plan: TrainingPlan, batches: StackBatches) -> None:
        super().__init__()
        self.plan, self.network, self.batches, self.seed = plan, plan.network, batches, batches.seeds[0]
        where, many = batches.rows.device, len(batches.seeds)
        self.n_steps = batches.steps * self.network.epochs
        self.stack = plan.new_stack(batches.seeds)
        # networks that have stopped keep their weights while the others go on
        keeping = self.network.patience is not None or len(set(self.n_steps)) > 1
        self.kept = nn.ParameterList(
            nn.Parameter(tensor.detach().clone(), requires_grad=False)
            for tensor in (self.stack.tensors() if keeping else ())
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
        losses = self._attempt(
            lambda: backpropagate(self.stack, self._rows(numbers, augmented=True), self._targets(numbers))
        )
        finite = losses < DIVERGED  # False for NaN
        self.failed.logical_or_(self._running & ~finite)  # in place, as nn.Module requires of a buffer
        if self.network.rate_schedule() is not None:
            self._before = [tensor.detach().clone() for tensor in self.stack.trained]
        return torch.where(finite, losses, 0.0).sum()

    def after_step(self) -> None:
        """Apply each network's share of the learning rate. At the end of its epoch a network may stop."""
        schedule = self.network.rate_schedule()
        if schedule is not None and self._before:
            progress = np.minimum(int(self.steps_done) / self.n_steps, 1.0)
            shares = torch.tensor([schedule(share) for share in progress.tolist()])
            for tensor, before in zip(self.stack.trained, self._before, strict=True):
                tensor.data = before.lerp(tensor.data, _broadcast(shares.to(tensor.device), tensor))
        self.steps_done.add_(1)
        if not len(self.kept):
            return
        ends = (int(self.steps_done) % self.batches.steps == 0) & self._running.cpu().numpy()
        if not ends.any():
            return
        # keep the present weights of those that improved; stop those without progress for too long
        if self.network.patience is None:
            better = ends & (int(self.steps_done) == self.n_steps)
        else:
            losses = np.zeros(len(ends))
            with torch.no_grad():
                for chunk in self.batches.held_batches:
                    losses += self._attempt(partial(self._held_out_loss, *chunk)).cpu().numpy()
            losses[self.batches.none_held] = -np.inf
            better = is_lowest(losses, self.best_loss, self.epochs_waited, ends)
            self.stopped |= self.epochs_waited >= self.network.patience
        chosen = torch.as_tensor(better, device=self._running.device)
        for best, tensor in zip(self.kept, self.stack.tensors(), strict=True):
            best.data = torch.where(_broadcast(chosen, tensor), tensor.detach(), best.data)
        self._update_running()

    def results(self) -> tuple[list[Weights], np.ndarray]:
        """The weights of each network, and which networks failed."""
        for tensor, best in zip(self.stack.tensors(), self.kept, strict=False):
            tensor.data.copy_(best.data)
        networks = [self.stack.one(number) for number in range(self.stack.size)]
        finite = [all(bool(tensor.isfinite().all()) for tensor in weights.values()) for weights in networks]
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

    def _held_out_loss(self, numbers: torch.Tensor, row_weights: torch.Tensor) -> torch.Tensor:
        logits = self.stack.logits(self._rows(numbers, augmented=False), training=False)
        return self._targets(numbers, row_weights).losses(logits)[1]

    def _rows(self, numbers: torch.Tensor, *, augmented: bool) -> torch.Tensor:
        """The rows of a batch, always in the same memory: new pages would cost more than the copy."""
        torch.index_select(self.batches.rows, 0, numbers.flatten(), out=self._memory)
        rows = self._memory.view(*numbers.shape, -1)
        if self.network.augment is None or not augmented:
            return rows
        changed = []
        for number, part in enumerate(rows):  # in a call of its own, so that an error costs one ballot only
            _seed_all(self.batches.seeds[number] + int(self.steps_done))
            other = None
            with contextlib.suppress(Exception):  # the text of the error may be private
                moved = self.network.augment(part)
                other = moved.to(part) if moved.shape == part.shape else None
            self.failed[number] |= other is None
            changed.append(part if other is None else other)
        self._seed(int(self.steps_done))
        return torch.stack(changed)

    def _seed(self, step: int) -> None:
        """Seed what the module draws from; a module in a stack draws from torch's generators only."""
        (reseed if self.plan.together else _seed_all)(self.seed + step)

    def _update_running(self) -> None:
        """Recompute which networks still train; this is also needed after a checkpoint was read."""
        running = (int(self.steps_done) < self.n_steps) & ~self.stopped.numpy()
        self._running = torch.as_tensor(running, device=self._running.device)


def _broadcast(one_each: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """One number for each network, in the shape that broadcasts over that network's weights."""
    return one_each.view(-1, *[1] * (tensor.dim() - 1))


def _seed_all(seed: int) -> None:
    """Seed every global generator: modules and augmentations may draw from any of them."""
    reseed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def plan(network: TorchClassifier, *, n_features: int, n_classes: int) -> TrainingPlan:
    """Try a network on made-up rows: report what is wrong with it, and find out whether it can be stacked.

    Raises
    ------
    ValueError
        The network cannot read such rows, returns no logits, or cannot be trained; or the device is missing.
    """
    where = device(network.device)
    module = network.new_module(n_features=n_features, n_classes=n_classes, seed=0).to(where)
    alone = TrainingPlan(
        network=network,
        module=module,
        n_features=n_features,
        n_classes=n_classes,
        together=False,
        orders={name: tuple(range(p.dim() + 1)) for name, p in module.named_parameters() if p.requires_grad},
        size=1,
    )
    made_up = torch.Generator().manual_seed(0)
    rows = torch.rand(3, network.batch_size, n_features, generator=made_up).to(where)
    with warnings.catch_warnings(), preserve_generators(), threads(network.n_threads):
        warnings.simplefilter("ignore")
        try:
            trial = clone(network)
            trial.classes_, trial.module_ = np.arange(n_classes), module
            trial.require_logits(rows[0][:2])
            stack, batch = alone.new_stack([0]), rows[:1]
            optimizer = alone.optimizer(stack.trained.parameters())
            if network.augment is not None:
                batch = network.augment(batch[0])[None]
                if batch.shape[1:] != (network.batch_size, n_features):
                    raise ValueError(  # noqa: TRY301  (as whatever else is wrong with it)
                        f"augment must return as many rows as it gets, got shape {tuple(batch.shape[1:])}"
                    )
            stack.logits(batch, training=True).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        except Exception as error:
            raise ValueError(
                f"{network!r} cannot be trained; on made-up rows of {n_features} features it raises: {error}"
            ) from error
        # networks that vmap cannot compute are trained one after another
        with contextlib.suppress(Exception):
            if type(optimizer) in _ELEMENTWISE:
                stacked = _together(alone, rows)
                if not (stacked.together and compiled.is_compilable(network, module)):
                    return stacked
                # compiled code, if its losses equal those of a stack
                in_code = dataclasses.replace(stacked, compiled=True, size=max(stacked.size, _AT_LEAST))
                short = clone(network).set_params(epochs=3, patience=None, checkpoint=None, progress=None)
                training_sets = [
                    TrainingSet(rows=part.numpy(), codes=np.arange(len(part)) % n_classes, seed=number)
                    for number, part in enumerate(rows)
                ]
                losses, others = (
                    train_stack(dataclasses.replace(way, network=short), training_sets)[2]
                    for way in (stacked, in_code)
                )
                return in_code if np.allclose(losses, others, rtol=1e-2) else stacked
    return alone


def _together(alone: TrainingPlan, rows: torch.Tensor) -> TrainingPlan:
    """The plan for stacks; ``alone`` if a stacked network differs from a single one or affects another."""
    together = dataclasses.replace(alone, together=True)
    before = _generator_state()
    clean = _probe(together.new_stack(range(3)), rows)
    if _generator_state() != before:  # the module draws from generators that are not torch's
        return alone
    size = _size(alone, rows)
    if size == 1:
        return alone
    # each network computes what it computes alone, up to rounding
    for number in range(3):
        by_itself = _probe(alone.new_stack([number]), rows[number : number + 1])
        for part in ("logits", "gradients"):  # random numbers in training are drawn for the whole stack
            for a, b in zip(by_itself[part], clean[part], strict=True):
                if not torch.allclose(a[0], b[number], rtol=1e-2, atol=1e-4):
                    return alone
    # rows and weights of the second network leave the first and the third unchanged, to the last bit if a
    # repetition gives the same bits: some GPU kernels add in any order
    exactly = _same(clean, _probe(together.new_stack(range(3)), rows), exactly=True)
    for garbage in _GARBAGE:
        changed, stack = rows.clone(), together.new_stack(range(3))
        changed[1] = garbage
        for tensor in stack.tensors():
            if tensor.is_floating_point():
                tensor.data[1] = garbage
        for probe in (_probe(together.new_stack(range(3)), changed), _probe(stack, rows)):
            if not _same(clean, probe, exactly=exactly):
                return alone
    orders = {
        name: (0, *sorted(range(1, gradient.dim()), key=lambda axis: -gradient.stride()[axis]))
        for name, gradient in zip(alone.orders, clean["gradients"], strict=True)
    }
    return dataclasses.replace(together, orders=orders, size=size)


def _probe(stack: NetworkStack, rows: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """A stack's logits, gradients and losses on rows. The first axis of every tensor counts the networks."""
    reseed(0)
    logits = stack.logits(rows, training=False)
    targets = Targets(
        codes=torch.arange(rows.shape[1], device=rows.device)
        .remainder(logits.shape[2])
        .expand(rows.shape[:2]),
        absent=torch.zeros(len(rows), 1, logits.shape[2], dtype=torch.bool, device=rows.device),
        row_weights=torch.full(rows.shape[:2], 1 / rows.shape[1], device=rows.device),
    )
    logs, _ = targets.losses(logits.detach())
    leaves = list(stack.trained)
    options = {"allow_unused": True, "materialize_grads": True}
    gradients = torch.autograd.grad(logits, leaves, targets.gradient(logs), **options)
    losses = backpropagate(stack, rows, targets)
    return {
        "logits": [logits.detach()],
        "gradients": stack.in_module_order(gradients),
        "trained": stack.in_module_order([torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]),
        "losses": [losses],
        "constant": [tensor.detach() for tensor in stack.constant],
    }


def _generator_state() -> tuple[Any, ...]:
    """The state of Python's and NumPy's global generators."""
    _, words, place, *_ = np.random.get_state()  # noqa: NPY002
    return random.getstate(), np.asarray(words).tobytes(), place


def _same(
    clean: dict[str, list[torch.Tensor]], changed: dict[str, list[torch.Tensor]], *, exactly: bool
) -> bool:
    """Whether the first and the third network are unchanged."""
    return all(
        torch.equal(a[number], b[number]) if exactly else torch.allclose(a[number], b[number], rtol=1e-3)
        for part in clean
        for a, b in zip(clean[part], changed[part], strict=True)
        for number in (0, 2)
    )


def _size(alone: TrainingPlan, rows: torch.Tensor) -> int:
    """Networks in a stack: all of them on a GPU, as many as fit into the cache on a CPU."""
    if rows.device.type != "cpu":
        return sys.maxsize
    weights = sum(parameter.numel() for parameter in alone.module.parameters())
    # activations of one network, for one batch
    numbers: list[int] = []

    def count(_layer: nn.Module, _rows: Any, out: Any) -> None:
        numbers.append(out.numel() if isinstance(out, torch.Tensor) else 0)

    hooks = [
        layer.register_forward_hook(count) for layer in alone.module.modules() if not list(layer.children())
    ]
    with torch.no_grad():
        alone.module(rows[0])
    for hook in hooks:
        hook.remove()
    return max(1, _IN_CACHE // (_PER_WEIGHT * weights + _PER_ACTIVATION * sum(numbers)))

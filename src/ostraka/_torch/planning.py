"""Find out on made-up rows, before private rows are read, whether networks of one shape can be stacked."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from ostraka._torch import vectorised
from ostraka._torch.batches import TrainingSet
from ostraka._torch.devices import device, preserve_generators, reseed, threads
from ostraka._torch.gradients import Targets, backpropagate
from ostraka._torch.perceptrons import is_compilable
from ostraka._torch.stacks import NetworkStack, TrainingPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.networks import TorchClassifier

__all__ = ["plan"]

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
    with _isolated(network.n_threads):
        try:
            trial = clone(network)
            trial.classes_, trial.module_ = np.arange(n_classes), module
            trial.require_logits(rows[0][:2])
            optimizer = _stepped(alone, rows[:1])
        except Exception as error:
            raise ValueError(
                f"{network!r} cannot be trained; on made-up rows of {n_features} features it raises: {error}"
            ) from error
        # networks that vmap cannot compute are trained one after another
        with contextlib.suppress(Exception):
            if type(optimizer) in _ELEMENTWISE:
                return _compiled(_together(alone, rows), rows)
    return alone


def _together(alone: TrainingPlan, rows: torch.Tensor) -> TrainingPlan:
    """The plan for stacks; ``alone`` if a stacked network differs from a single one or affects another."""
    together = dataclasses.replace(alone, together=True)
    before = _generator_state()
    clean = _probe(together.new_stack(range(3)), rows)
    if _generator_state() != before:  # the module draws from generators that are not torch's
        return alone
    size = _size(alone, rows)
    if size == 1 or not (_equals_alone(alone, clean, rows) and _is_isolated(together, clean, rows)):
        return alone
    orders = {
        name: (0, *sorted(range(1, found.dim()), key=lambda axis: -found.stride()[axis]))
        for name, found in zip(alone.orders, clean["gradients"], strict=True)
    }
    return dataclasses.replace(together, orders=orders, size=size)


def _compiled(found: TrainingPlan, rows: torch.Tensor) -> TrainingPlan:
    """The plan for compiled code, if it implements such networks and its losses equal those of a stack."""
    if not (found.together and is_compilable(found.network, found.module)):
        return found
    compiled = dataclasses.replace(found, compiled=True, size=max(found.size, _AT_LEAST))
    short = clone(found.network).set_params(epochs=3, patience=None, checkpoint=None, progress=None)
    training_sets = [
        TrainingSet(rows=own.numpy(), codes=np.arange(len(own)) % found.n_classes, seed=number)
        for number, own in enumerate(rows)
    ]
    one, other = (
        vectorised.train_stack(dataclasses.replace(plan, network=short), training_sets)[2]
        for plan in (found, compiled)
    )
    return compiled if np.allclose(one, other, rtol=1e-2) else found


def _equals_alone(alone: TrainingPlan, clean: dict[str, list[torch.Tensor]], rows: torch.Tensor) -> bool:
    """Whether each network in a stack computes what it computes alone, up to rounding."""
    for number in range(3):
        by_itself = _probe(alone.new_stack([number]), rows[number : number + 1])
        for part in ("logits", "gradients"):  # random numbers in training are drawn for the whole stack
            for one, other in zip(by_itself[part], clean[part], strict=True):
                if not torch.allclose(one[0], other[number], rtol=1e-2, atol=1e-4):
                    return False
    return True


def _is_isolated(together: TrainingPlan, clean: dict[str, list[torch.Tensor]], rows: torch.Tensor) -> bool:
    """Whether rows and weights of the second network leave the first and the third unchanged."""
    # to the last bit if a repetition gives the same bits: some GPU kernels add in any order
    exactly = _same(clean, _probe(together.new_stack(range(3)), rows), exactly=True)
    for garbage in _GARBAGE:
        changed = rows.clone()
        changed[1] = garbage
        stack = together.new_stack(range(3))
        for whole in stack.tensors():
            if whole.is_floating_point():
                whole.data[1] = garbage
        if not _same(clean, _probe(together.new_stack(range(3)), changed), exactly=exactly):
            return False
        if not _same(clean, _probe(stack, rows), exactly=exactly):
            return False
    return True


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
        "constant": [whole.detach() for whole in stack.constant],
    }


def _generator_state() -> tuple[Any, ...]:
    """The state of Python's and NumPy's global generators."""
    _, words, place, *_ = np.random.get_state()  # noqa: NPY002
    return random.getstate(), np.asarray(words).tobytes(), place


def _same(one: dict[str, list[torch.Tensor]], other: dict[str, list[torch.Tensor]], *, exactly: bool) -> bool:
    """Whether the first and the third network are unchanged."""
    return all(
        torch.equal(a[number], b[number]) if exactly else torch.allclose(a[number], b[number], rtol=1e-3)
        for part in one
        for a, b in zip(one[part], other[part], strict=True)
        for number in (0, 2)
    )


def _stepped(alone: TrainingPlan, rows: torch.Tensor) -> torch.optim.Optimizer:
    """Make one training step on made-up rows."""
    stack = alone.new_stack([0])
    optimizer = alone.optimizer(stack.trained.parameters())
    if alone.network.augment is not None:
        rows = alone.network.augment(rows[0])[None]
        if rows.shape[1:] != (alone.network.batch_size, alone.n_features):
            raise ValueError(
                f"augment must return as many rows as it gets, got shape {tuple(rows.shape[1:])}"
            )
    stack.logits(rows, training=True).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return optimizer


def _size(alone: TrainingPlan, rows: torch.Tensor) -> int:
    """Networks in a stack: all of them on a GPU, as many as fit into the cache on a CPU."""
    if rows.device.type != "cpu":
        return sys.maxsize
    weights = sum(parameter.numel() for parameter in alone.module.parameters())
    return max(
        1, _IN_CACHE // (_PER_WEIGHT * weights + _PER_ACTIVATION * _activations(alone.module, rows[0]))
    )


def _activations(module: nn.Module, rows: torch.Tensor) -> int:
    """Number of activations of one network, for one batch."""
    numbers: list[int] = []

    def count(_layer: nn.Module, _rows: Any, out: Any) -> None:
        numbers.append(out.numel() if isinstance(out, torch.Tensor) else 0)

    hooks = [layer.register_forward_hook(count) for layer in module.modules() if not list(layer.children())]
    with torch.no_grad():
        module(rows)
    for hook in hooks:
        hook.remove()
    return sum(numbers)


@contextlib.contextmanager
def _isolated(n_threads: int | None) -> Iterator[None]:
    """Suppress warnings, limit threads, and restore the global generators."""
    with warnings.catch_warnings(), preserve_generators(), threads(n_threads):
        warnings.simplefilter("ignore")
        yield

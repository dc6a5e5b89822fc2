"""Whether networks of one shape can be stacked: tried on made-up rows, before anything private is read."""

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

from ostraka._torch import lockstep
from ostraka._torch.devices import device, own_chance, reseed, threads
from ostraka._torch.lessons import Lesson
from ostraka._torch.perceptrons import compilable
from ostraka._torch.slopes import Wanted, descend
from ostraka._torch.stacks import Plan, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka._torch.classifier import TorchClassifier

__all__ = ["plan"]

_IN_CACHE = 20 * 2**20  # bytes that a stack works on: measured by bench/teachers.py
_AT_LEAST = 64  # compiled networks in a group: they share no cache, and threads should not run out of them
_PER_WEIGHT = 16  # bytes: a weight, its gradient, and two moments, float32
_PER_ACTIVATION = 8  # bytes: itself, and its gradient
# Each weight is moved by its own gradient and history only: a stack trains as its networks would alone.
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
_GARBAGE = (math.nan, math.inf, -1e30)  # what must not get from one network into another


def plan(network: TorchClassifier, *, n_features: int, n_classes: int) -> Plan:
    """Look at a network on made-up rows: what is wrong with it shows here, and whether it can be stacked.

    Raises
    ------
    ValueError
        It cannot read such rows, returns no logits, or cannot be trained; the device is not there.
    """
    where = device(network.device)
    module = network.built(n_features=n_features, n_classes=n_classes, seed=0).to(where)
    alone = Plan(
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
    with _unseen(network.n_threads):
        try:
            look = clone(network)
            look.classes_, look.module_ = np.arange(n_classes), module
            look.require_logits(rows[0][:2])
            optimizer = _stepped(alone, rows[:1])
        except Exception as error:
            raise ValueError(
                f"{network!r} cannot teach; on made-up rows of {n_features} features it says: {error}"
            ) from error
        # whatever vmap cannot do is done one after another
        with contextlib.suppress(Exception):
            if type(optimizer) in _ELEMENTWISE:
                return _compiled(_together(alone, rows), rows)
    return alone


def _together(alone: Plan, rows: torch.Tensor) -> Plan:
    """The plan for stacks; ``alone`` if a network in one differs from itself alone, or touches another."""
    together = dataclasses.replace(alone, together=True)
    before = _drawn()
    clean = _probed(together.built(range(3)), rows)
    if _drawn() != before:  # from generators that are not torch's: in no order that a stack could keep
        return alone
    size = _size(alone, rows)
    if size == 1 or not (_as_alone(alone, clean, rows) and _apart(together, clean, rows)):
        return alone
    orders = {
        name: (0, *sorted(range(1, found.dim()), key=lambda axis: -found.stride()[axis]))
        for name, found in zip(alone.orders, clean["gradients"], strict=True)
    }
    return dataclasses.replace(together, orders=orders, size=size)


def _compiled(found: Plan, rows: torch.Tensor) -> Plan:
    """The plan for compiled code, if that is for such networks, and learns as a stack does."""
    if not (found.together and compilable(found.network, found.module)):
        return found
    compiled = dataclasses.replace(found, compiled=True, size=max(found.size, _AT_LEAST))
    short = clone(found.network).set_params(epochs=3, patience=None, checkpoint=None, progress=None)
    lessons = [
        Lesson(rows=own.numpy(), codes=np.arange(len(own)) % found.n_classes, seed=number)
        for number, own in enumerate(rows)
    ]
    one, other = (
        lockstep.taught(dataclasses.replace(plan, network=short), lessons)[2] for plan in (found, compiled)
    )
    return compiled if np.allclose(one, other, rtol=1e-2) else found


def _as_alone(alone: Plan, clean: dict[str, list[torch.Tensor]], rows: torch.Tensor) -> bool:
    """Whether each network in a stack is what it is by itself, but for rounding."""
    for number in range(3):
        by_itself = _probed(alone.built([number]), rows[number : number + 1])
        for part in ("logits", "gradients"):  # what is drawn in training is drawn for a whole stack
            for one, other in zip(by_itself[part], clean[part], strict=True):
                if not torch.allclose(one[0], other[number], rtol=1e-2, atol=1e-4):
                    return False
    return True


def _apart(together: Plan, clean: dict[str, list[torch.Tensor]], rows: torch.Tensor) -> bool:
    """Whether the rows and the weights of the second network are nothing to the first and the third."""
    # to the last bit, where the same twice is the same: some kernels of GPUs add in any order
    exactly = _same(clean, _probed(together.built(range(3)), rows), exactly=True)
    for garbage in _GARBAGE:
        changed = rows.clone()
        changed[1] = garbage
        stack = together.built(range(3))
        for whole in stack.tensors():
            if whole.is_floating_point():
                whole.data[1] = garbage
        if not _same(clean, _probed(together.built(range(3)), changed), exactly=exactly):
            return False
        if not _same(clean, _probed(stack, rows), exactly=exactly):
            return False
    return True


def _probed(stack: Stack, rows: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """What a stack makes of rows, and how it would learn; the first axis of every tensor is the networks'."""
    reseed(0)
    logits = stack.logits(rows, training=False)
    wanted = Wanted(
        targets=torch.arange(rows.shape[1], device=rows.device)
        .remainder(logits.shape[2])
        .expand(rows.shape[:2]),
        absent=torch.zeros(len(rows), 1, logits.shape[2], dtype=torch.bool, device=rows.device),
        shares=torch.full(rows.shape[:2], 1 / rows.shape[1], device=rows.device),
    )
    logs, _ = wanted.losses(logits.detach())
    leaves = list(stack.learning)
    options = {"allow_unused": True, "materialize_grads": True}
    gradients = torch.autograd.grad(logits, leaves, wanted.slopes(logs), **options)
    losses = descend(stack, rows, wanted)
    return {
        "logits": [logits.detach()],
        "gradients": stack.as_known(gradients),
        "trained": stack.as_known([torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]),
        "losses": [losses],
        "still": [whole.detach() for whole in stack.still],
    }


def _drawn() -> tuple[Any, ...]:
    """How far Python's and numpy's global generators are."""
    _, words, place, *_ = np.random.get_state()  # noqa: NPY002
    return random.getstate(), np.asarray(words).tobytes(), place


def _same(one: dict[str, list[torch.Tensor]], other: dict[str, list[torch.Tensor]], *, exactly: bool) -> bool:
    """Whether the first and the third network are what they were."""
    return all(
        torch.equal(a[number], b[number]) if exactly else torch.allclose(a[number], b[number], rtol=1e-3)
        for part in one
        for a, b in zip(one[part], other[part], strict=True)
        for number in (0, 2)
    )


def _stepped(alone: Plan, rows: torch.Tensor) -> torch.optim.Optimizer:
    """One step of training on made-up rows."""
    stack = alone.built([0])
    optimizer = alone.optimizer(stack.learning.parameters())
    if alone.network.augment is not None:
        rows = alone.network.augment(rows[0])[None]
        if rows.shape[1:] != (alone.network.batch_size, alone.n_features):
            raise ValueError(
                f"augment must return as many rows as it gets, got shape {tuple(rows.shape[1:])}"
            )
    stack.logits(rows, training=True).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return optimizer


def _size(alone: Plan, rows: torch.Tensor) -> int:
    """Networks in a stack: all of them on a GPU, else as many as stay in the cache."""
    if rows.device.type != "cpu":
        return sys.maxsize
    weights = sum(parameter.numel() for parameter in alone.module.parameters())
    return max(
        1, _IN_CACHE // (_PER_WEIGHT * weights + _PER_ACTIVATION * _activations(alone.module, rows[0]))
    )


def _activations(module: nn.Module, rows: torch.Tensor) -> int:
    """Numbers that the layers of one network pass on, for one batch."""
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
def _unseen(n_threads: int | None) -> Iterator[None]:
    """No warnings, and no random numbers of anybody else's."""
    with warnings.catch_warnings(), own_chance(), threads(n_threads):
        warnings.simplefilter("ignore")
        yield

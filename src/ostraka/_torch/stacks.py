"""Many networks of one shape as one: their weights lie side by side, and one call computes all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import clone
from torch import nn
from torch.func import functional_call, vmap

from ostraka._torch.devices import device, own_chance, reseed, threads
from ostraka._torch.slopes import Perceptron, Wanted, descend, is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka._torch.classifier import TorchClassifier

__all__ = ["Plan", "Stack", "Weights", "halving", "plan", "short_of_memory", "weights_of"]

Weights = dict[str, torch.Tensor]  # of one network: parameters and buffers by name

_IN_CACHE = 20 * 2**20  # bytes that a stack works on: measured by benchmarks/teachers.py
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
_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)
_BY_NUMBER = {  # layers without weights that treat every number by itself
    nn.Dropout,
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
}
_BY_ROW = {nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.Flatten, nn.MaxPool2d, nn.Unflatten}  # or every row
_GARBAGE = (math.nan, math.inf, -1e30)  # what must not get from one network into another


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """How networks of one shape train and vote: together, or one after another. Nothing in it is private.

    Attributes
    ----------
    network : TorchClassifier
        The settings.
    module : torch.nn.Module
        One such network, whose own weights are never used.
    together : bool
        Whether a stack may hold more than one.
    orders : dict of str to tuple of int
        How the axes of each stacked parameter lie in memory: as its gradient comes.
    size : int
        Networks in a stack.
    plain : bool
        Whether gradients are taken by hand.
    """

    network: TorchClassifier
    module: nn.Module
    n_features: int
    n_classes: int
    together: bool
    orders: dict[str, tuple[int, ...]]
    size: int
    plain: bool = False

    def built(self, seeds: Sequence[int]) -> Stack:
        """New networks, each with the weights of its own seed."""
        made = (
            self.network.built(n_features=self.n_features, n_classes=self.n_classes, seed=seed)
            for seed in seeds
        )
        return self.stacked([weights_of(module) for module in made]).ready()

    def stacked(self, networks: Sequence[Weights]) -> Stack:
        """These networks, on the device of the plan."""
        return Stack(self, networks).to(device(self.network.device))

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """The network's optimizer, in one pass over the weights where torch has that."""
        fused: Any = {"fused": True} if self.network.optimizer in _FUSED else {}
        return self.network.optimizer(parameters, lr=self.network.learning_rate, **fused)


class Stack(nn.Module):
    """Networks side by side: their parameters and buffers, each with an axis for the networks first."""

    def __init__(self, plan: Plan, networks: Sequence[Weights]) -> None:
        super().__init__()
        self.plan = plan
        self.size = len(networks)
        whole = {name: torch.stack([each[name].detach() for each in networks]) for name in networks[0]}
        # permuted as their gradients come: otherwise every step would copy all gradients
        self.learning = nn.ParameterList(
            [nn.Parameter(whole[name].permute(order).contiguous()) for name, order in plan.orders.items()]
        )
        self.still = nn.ParameterList(  # buffers, and parameters that are not trained
            [nn.Parameter(whole[name], requires_grad=False) for name in whole if name not in plan.orders]
        )
        self._names = [*plan.orders, *(name for name in whole if name not in plan.orders)]
        self._back = [np.argsort(order).tolist() for order in plan.orders.values()]
        self.by_hand: Perceptron | None = None

    def ready(self) -> Self:
        """Before training, and on its device: memory for what is done by hand."""
        if self.plan.plain:
            self.by_hand = Perceptron(list(self.learning[::2]), list(self.learning[1::2]))
        return self

    def named(self) -> Weights:
        """Every parameter and buffer as the module knows it, behind an axis for the networks."""
        return dict(zip(self._names, [*self.as_known(list(self.learning)), *self.still], strict=True))

    def tensors(self) -> list[torch.Tensor]:
        """What training changes, as it lies in memory; the first axis is the networks'."""
        return [*self.learning, *self.still]

    def as_known(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors that lie as ``learning`` does, with their axes as the module has them."""
        return [each.permute(back) for each, back in zip(leaves, self._back, strict=True)]

    def one(self, number: int) -> Weights:
        """A copy of one network's weights."""
        return {name: whole[number].detach().cpu().clone() for name, whole in self.named().items()}

    def logits(self, rows: torch.Tensor, *, training: bool) -> torch.Tensor:
        """Logits (n_networks, n_rows, n_classes) of each network's own rows, or of the same rows for all."""
        module = self.plan.module
        if module.training != training:
            module.train(training)
        if self.plan.together:
            return _through(module, self.named(), "", rows.expand(self.size, *rows.shape[-2:]))
        alone = {name: whole[0] for name, whole in self.named().items()}
        return _called(module, alone, rows if rows.dim() == 2 else rows[0])[None]


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
                return _together(alone, rows)
    return alone


def halving(work: Callable[[int], Any], size: int) -> Any:
    """``work(size)``, with half the size as often as memory is short."""
    while True:
        try:
            return work(size)
        except RuntimeError as error:
            if size == 1 or not short_of_memory(error):
                raise
        size = -(-size // 2)  # out here: while an exception is handled, its tensors live


def short_of_memory(error: BaseException) -> bool:
    """Whether torch says so: on the CPU it has no type for that."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _together(alone: Plan, rows: torch.Tensor) -> Plan:
    """The plan for stacks; ``alone`` if a network in one differs from itself alone, or touches another."""
    plain = is_plain(alone.module)
    together = dataclasses.replace(alone, together=True, plain=plain)
    if plain:
        orders = {name: (0, 2, 1) if len(order) == 3 else order for name, order in alone.orders.items()}
        together = dataclasses.replace(together, orders=orders)
    before = _drawn()
    clean = _probed(together.built(range(3)), rows)
    if _drawn() != before:  # from generators that are not torch's: in no order that a stack could keep
        return alone
    size = _size(alone, rows)
    if size == 1 or not (_as_alone(alone, clean, rows, plain=plain) and _apart(together, clean, rows)):
        return alone
    if not plain:
        orders = {
            name: (0, *sorted(range(1, found.dim()), key=lambda axis: -found.stride()[axis]))
            for name, found in zip(alone.orders, clean["gradients"], strict=True)
        }
    return dataclasses.replace(together, orders=orders, size=size)


def _as_alone(alone: Plan, clean: dict[str, list[torch.Tensor]], rows: torch.Tensor, *, plain: bool) -> bool:
    """Whether each network in a stack is what it is by itself, but for rounding."""
    for number in range(3):
        by_itself = _probed(alone.built([number]), rows[number : number + 1])
        # what is drawn in training is drawn for a whole stack; by hand nothing is
        for part in ("logits", "gradients", "trained") if plain else ("logits", "gradients"):
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


def _through(module: nn.Module, weights: Weights, prefix: str, rows: torch.Tensor) -> torch.Tensor:
    """Rows (n_networks, n_rows, …) through a module: plain layers by hand, all else by vmap, at more cost."""
    kind = type(module)
    if kind is nn.Sequential:
        for name, layer in module.named_children():
            rows = _through(layer, weights, f"{prefix}{name}.", rows)
        return rows
    if kind is nn.Linear and rows.dim() == 3:
        factor, bias = weights[f"{prefix}weight"].transpose(1, 2), weights.get(f"{prefix}bias")
        return torch.bmm(rows, factor) if bias is None else torch.baddbmm(bias[:, None], rows, factor)
    if kind in _BY_NUMBER | _BY_ROW:
        merged = rows.flatten(0, 1) if kind in _BY_ROW else rows
        answer: torch.Tensor = module(merged)
        return answer.reshape(*rows.shape[:2], *answer.shape[1:]) if kind in _BY_ROW else answer
    own = {name.removeprefix(prefix): whole for name, whole in weights.items() if name.startswith(prefix)}
    return vmap(_called, in_dims=(None, 0, 0), randomness="different")(module, own, rows)


def _called(module: nn.Module, weights: Weights, rows: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = functional_call(module, weights, (rows,))
    return out


def weights_of(module: nn.Module) -> Weights:
    """Parameters and buffers, each once."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


@contextlib.contextmanager
def _unseen(n_threads: int | None) -> Iterator[None]:
    """No warnings, and no random numbers of anybody else's."""
    with warnings.catch_warnings(), own_chance(), threads(n_threads):
        warnings.simplefilter("ignore")
        yield

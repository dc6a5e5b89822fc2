"""Many networks of one shape as one: their weights lie side by side, and one call computes all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from ostraka._torch.devices import device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka._torch.classifier import TorchClassifier

__all__ = ["Plan", "Stack", "Weights", "halving", "short_of_memory", "weights_of"]

Weights = dict[str, torch.Tensor]  # of one network: parameters and buffers by name

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
    compiled : bool
        Whether each trains by itself in compiled code.
    """

    network: TorchClassifier
    module: nn.Module
    n_features: int
    n_classes: int
    together: bool
    orders: dict[str, tuple[int, ...]]
    size: int
    compiled: bool = False

    def alone(self) -> Plan:
        """The plan for one network at a time, with all threads for it."""
        return replace(self, together=False, compiled=False, size=1)

    def built(self, seeds: Sequence[int]) -> Stack:
        """New networks, each with the weights of its own seed."""
        made = (
            self.network.built(n_features=self.n_features, n_classes=self.n_classes, seed=seed)
            for seed in seeds
        )
        return self.stacked([weights_of(module) for module in made])

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


def halving(work: Callable[[int], Any], size: int) -> Any:
    """``work(size)``, with half the size as often as memory is short."""
    while True:
        try:
            return work(size)
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not short_of_memory(error):
                raise
        size = -(-size // 2)  # out here: while an exception is handled, its tensors live


def short_of_memory(error: BaseException) -> bool:
    """Whether torch says so: on the CPU it has no type for that."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _through(module: nn.Module, weights: Weights, prefix: str, rows: torch.Tensor) -> torch.Tensor:
    """Rows (n_networks, n_rows, …) through a module: plain layers by hand, all else by vmap, at more cost."""
    kind = type(module)
    if kind is nn.Sequential:
        for name, layer in module._modules.items():  # noqa: SLF001  (named_children leaves out what comes again)
            rows = _through(cast("nn.Module", layer), weights, f"{prefix}{name}.", rows)
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

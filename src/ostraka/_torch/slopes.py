"""Losses of a stack and how they fall with its weights: by autograd, or by hand where it pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka._torch.stacks import Stack

__all__ = ["Perceptron", "Wanted", "descend", "is_plain"]


class Wanted(NamedTuple):
    """What a batch should be answered: classes, those a network does not know of, each row's weight."""

    targets: torch.Tensor  # (n_networks, n_rows)
    absent: torch.Tensor  # (n_networks, 1, n_classes)
    shares: torch.Tensor  # (n_networks, n_rows)

    def losses(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities over the classes that each network knows of, and each network's cross-entropy."""
        logs = torch.log_softmax(logits.masked_fill(self.absent, -torch.inf), dim=2)
        of_rows = logs.gather(2, self.targets[:, :, None])[:, :, 0]
        return logs, -(of_rows * self.shares).sum(dim=1)

    def slopes(self, logs: torch.Tensor) -> torch.Tensor:
        """By how much the losses grow with the logits; takes the memory of ``logs``."""
        slopes = logs.exp_()
        one = slopes.new_ones(()).expand(*self.targets.shape, 1)
        return slopes.scatter_add_(2, self.targets[:, :, None], -one).mul_(self.shares[:, :, None])


class Perceptron:
    """The same for linear layers with ReLU between: the layers' gradients always in the same memory."""

    def __init__(self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]) -> None:
        self._layers = list(zip(weights, biases, strict=True))
        self._slopes = [(torch.empty_like(weight), torch.empty_like(bias)) for weight, bias in self._layers]

    def descend(self, rows: torch.Tensor, wanted: Wanted) -> torch.Tensor:
        """As :func:`descend`."""
        passed = [rows]
        for weight, bias in self._layers:
            passed.append(torch.baddbmm(bias[:, None], passed[-1], weight))
            if len(passed) <= len(self._layers):
                passed[-1].relu_()
        logs, losses = wanted.losses(passed.pop())
        back = wanted.slopes(logs)
        for (weight, bias), (of_weight, of_bias) in zip(self._layers[::-1], self._slopes[::-1], strict=True):
            came = passed.pop()
            weight.grad = torch.bmm(came.transpose(1, 2), back, out=of_weight)
            bias.grad = torch.sum(back, dim=1, out=of_bias)
            if passed:
                back = torch.bmm(back, weight.transpose(1, 2)).mul_(came > 0)
        return losses


def descend(stack: Stack, rows: torch.Tensor, wanted: Wanted) -> torch.Tensor:
    """Each network's loss; its gradient is then where the optimizer looks for it."""
    if stack.by_hand is not None:
        with torch.no_grad():
            return stack.by_hand.descend(rows, wanted)
    logits = stack.logits(rows, training=True)
    with torch.no_grad():
        logs, losses = wanted.losses(logits)
        slopes = wanted.slopes(logs)
    logits.backward(slopes)  # type: ignore[no-untyped-call]
    return losses


def is_plain(module: nn.Module) -> bool:
    """Whether a module is linear layers with ReLU between, all of them trained."""
    layers = list(module) if type(module) is nn.Sequential else []
    linear, between = layers[::2], layers[1::2]
    return (
        len(layers) % 2 == 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and len(set(module.parameters())) == 2 * len(linear)
        and all(parameter.requires_grad for parameter in module.parameters())
    )

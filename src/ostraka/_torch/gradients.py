"""Losses of a stack, and how they fall with its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from ostraka._torch.stacks import Stack

__all__ = ["Wanted", "descend"]


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


def descend(stack: Stack, rows: torch.Tensor, wanted: Wanted) -> torch.Tensor:
    """Each network's loss; its gradient is then where the optimizer looks for it."""
    logits = stack.logits(rows, training=True)
    with torch.no_grad():
        logs, losses = wanted.losses(logits)
        slopes = wanted.slopes(logs)
    logits.backward(slopes)  # type: ignore[no-untyped-call]
    return losses

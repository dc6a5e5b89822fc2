"""The cross-entropy of each network in a stack, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from ostraka._torch.stacks import NetworkStack

__all__ = ["Targets", "backpropagate"]


class Targets(NamedTuple):
    """The class of each row, the classes that a network cannot predict, and the weight of each row."""

    codes: torch.Tensor  # (n_networks, n_rows)
    absent: torch.Tensor  # (n_networks, 1, n_classes)
    row_weights: torch.Tensor  # (n_networks, n_rows)

    def losses(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the classes that each network can predict, and its cross-entropy."""
        logs = torch.log_softmax(logits.masked_fill(self.absent, -torch.inf), dim=2)
        of_rows = logs.gather(2, self.codes[:, :, None])[:, :, 0]
        return logs, -(of_rows * self.row_weights).sum(dim=1)

    def gradient(self, logs: torch.Tensor) -> torch.Tensor:
        """Gradient of the losses in the logits. It overwrites ``logs``."""
        gradient = logs.exp_()
        one = gradient.new_ones(()).expand(*self.codes.shape, 1)
        return gradient.scatter_add_(2, self.codes[:, :, None], -one).mul_(self.row_weights[:, :, None])


def backpropagate(stack: NetworkStack, rows: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Compute each network's loss, and store its gradient in the parameters."""
    logits = stack.logits(rows, training=True)
    with torch.no_grad():
        logs, losses = targets.losses(logits)
        gradient = targets.gradient(logs)
    logits.backward(gradient)  # type: ignore[no-untyped-call]
    return losses

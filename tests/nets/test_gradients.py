"""Slopes: losses and gradients of a stack are what torch finds row by row."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from ostraka.nets.stacks import Targets, backpropagate
from ostraka.nets.vectorised import plan
from ostraka.networks import TorchClassifier


def test_a_stack_descends_as_torch_says():
    module = nn.Sequential(nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 4))
    found = plan(
        TorchClassifier(module, batch_size=16, n_threads=1, device="cpu"), n_features=64, n_classes=4
    )
    assert found.together
    assert not found.compiled
    X, y = load_digits(n_class=4, return_X_y=True)
    rows = torch.as_tensor(np.float32(X[:48] / 16)).view(3, 16, 64)
    own = torch.as_tensor(y[:48]).view(3, 16)
    absent = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.bool)
    row_weights = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    targets = Targets(codes=own.clamp(max=2), absent=absent[:, None], row_weights=row_weights)
    stack = found.new_stack([1, 2, 3])
    losses = backpropagate(stack, rows, targets)
    ours = [leaf.grad.clone() for leaf in stack.trained]
    logits = stack.logits(rows, training=True).masked_fill(absent[:, None], -torch.inf)
    by_torch = nn.functional.cross_entropy(logits.flatten(0, 1), targets.codes.flatten(), reduction="none")
    by_torch = (by_torch.view(3, 16) * row_weights).sum(dim=1)
    torch.testing.assert_close(losses, by_torch.detach())
    for found, other in zip(ours, torch.autograd.grad(by_torch.sum(), list(stack.trained)), strict=True):
        torch.testing.assert_close(found, other)

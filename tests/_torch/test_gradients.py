"""Slopes: losses and gradients of a stack are what torch finds row by row."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from ostraka import TorchClassifier
from ostraka._torch.planning import plan
from ostraka._torch.slopes import Wanted, descend


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
    shares = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    wanted = Wanted(targets=own.clamp(max=2), absent=absent[:, None], shares=shares)
    stack = found.built([1, 2, 3])
    losses = descend(stack, rows, wanted)
    ours = [leaf.grad.clone() for leaf in stack.learning]
    logits = stack.logits(rows, training=True).masked_fill(absent[:, None], -torch.inf)
    by_torch = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.targets.flatten(), reduction="none")
    by_torch = (by_torch.view(3, 16) * shares).sum(dim=1)
    torch.testing.assert_close(losses, by_torch.detach())
    for found, other in zip(ours, torch.autograd.grad(by_torch.sum(), list(stack.learning)), strict=True):
        torch.testing.assert_close(found, other)

"""Slopes: what is differentiated by hand is what autograd finds."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from ostraka import TorchClassifier
from ostraka._torch.planning import plan
from ostraka._torch.slopes import Wanted, descend, is_plain


def test_a_plain_perceptron_is_differentiated_by_hand():
    module = nn.Sequential(nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 4))
    found = plan(
        TorchClassifier(module, batch_size=16, n_threads=1, device="cpu"), n_features=64, n_classes=4
    )
    assert found.plain
    X, y = load_digits(n_class=4, return_X_y=True)
    rows = torch.as_tensor(np.float32(X[:48] / 16)).view(3, 16, 64)
    own = torch.as_tensor(y[:48]).view(3, 16)
    absent = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.bool)
    shares = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    wanted = Wanted(targets=own.clamp(max=2), absent=absent[:, None], shares=shares)
    stack = found.built([1, 2, 3])
    losses = descend(stack, rows, wanted)
    by_hand = [leaf.grad.clone() for leaf in stack.learning]
    logits = stack.logits(rows, training=True).masked_fill(absent[:, None], -torch.inf)
    by_torch = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.targets.flatten(), reduction="none")
    by_torch = (by_torch.view(3, 16) * shares).sum(dim=1)
    torch.testing.assert_close(losses, by_torch.detach())
    for found, other in zip(by_hand, torch.autograd.grad(by_torch.sum(), list(stack.learning)), strict=True):
        torch.testing.assert_close(found, other)


@pytest.mark.parametrize(
    ("module", "plain"),
    [
        (nn.Sequential(nn.Linear(3, 2)), True),
        (nn.Linear(3, 2), False),
        (nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU()), False),
        (nn.Sequential(*[nn.Linear(3, 3), nn.ReLU()] * 2, nn.Linear(3, 2)), False),  # one layer, twice
        (nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.ReLU(), nn.Linear(3, 2)), False),
    ],
    ids=str,
)
def test_only_trained_linear_layers_with_relu_between_are(module, plain):
    assert is_plain(module) == plain

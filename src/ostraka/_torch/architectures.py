"""Small networks from flat rows to logits. In those for images, the first layer restores the image shape."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["NAMED", "convolutional", "perceptron", "square", "strided", "wide_resnet"]


def perceptron(n_features: int, n_classes: int, *, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    widths = [n_features, *hidden]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_classes))


def convolutional(
    n_features: int, n_classes: int, *, shape: tuple[int, int, int] | None = None, width: int = 16
) -> nn.Module:
    """Two convolutions with pooling, and a linear layer; ``shape`` is (channels, height, width)."""
    shape = square(n_features) if shape is None else shape
    side = (shape[1] // 4) * (shape[2] // 4)
    return nn.Sequential(
        nn.Unflatten(1, shape),
        nn.Conv2d(shape[0], width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * side, n_classes),
    )


def strided(
    n_features: int, n_classes: int, *, shape: tuple[int, int, int] | None = None, width: int = 16
) -> nn.Module:
    """Two convolutions of stride two without pooling, normalised as the images are; half the time of pooling.

    Between its two ReLUs everything is affine, so that it is a perceptron, too.
    """
    shape = square(n_features) if shape is None else shape
    side = -(-shape[1] // 4) * -(-shape[2] // 4)
    return nn.Sequential(
        nn.Unflatten(1, shape),
        nn.BatchNorm2d(shape[0]),
        nn.Conv2d(shape[0], width, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * side, n_classes),
    )


def wide_resnet(
    n_features: int,
    n_classes: int,
    *,
    shape: tuple[int, int, int] | None = None,
    depth: int = 10,
    widen: int = 1,
) -> nn.Module:
    """Wide residual network (Zagoruyko and Komodakis 2016, arXiv:1605.07146), ``depth`` = 6 n + 4."""
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth must be 10, 16, 22, …, got {depth!r}")
    shape = square(n_features) if shape is None else shape
    widths = [16, 16 * widen, 32 * widen, 64 * widen]
    blocks: list[nn.Module] = []
    for stage, (before, after) in enumerate(pairwise(widths)):
        for number in range((depth - 4) // 6):
            first = number == 0
            blocks.append(_Block(before if first else after, after, stride=2 if first and stage else 1))
    return nn.Sequential(
        nn.Unflatten(1, shape),
        nn.Conv2d(shape[0], 16, 3, padding=1, bias=False),
        *blocks,
        nn.BatchNorm2d(widths[-1]),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], n_classes),
    )


class _Block(nn.Module):
    """A residual block: two convolutions, each after normalisation and ReLU, and a shortcut."""

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU())
        self.through = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
        )
        same = before == after and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        entered = self.enter(x)
        beside = x if self.shortcut is None else self.shortcut(entered)
        out: torch.Tensor = beside + self.through(entered)
        return out


def square(n_features: int) -> tuple[int, int, int]:
    """The shape (channels, height, width) of square grey or RGB images with that many values."""
    for channels in (1, 3):
        side = math.isqrt(n_features // channels)
        if channels * side * side == n_features:
            return channels, side, side
    raise ValueError(
        f"{n_features} features are not a square grey or RGB image: give shape=(channels, height, width)"
    )


NAMED: dict[str, Callable[[int, int], nn.Module]] = {
    "perceptron": perceptron,
    "convolutional": convolutional,
    "wide-resnet": wide_resnet,
}

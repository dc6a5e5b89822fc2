"""Two networks against each other: a classifier that also knows forgeries, and their forger."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear, softplus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Game", "NoisyPerceptron", "Normed", "features", "generator", "mismatch", "passed", "unmasked"]

_LEAST_SPREAD = 1e-3  # of what a dead unit says

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # real rows, answered rows, their classes


class Normed(nn.Linear):
    """A linear layer with the length of each unit's weights as a parameter of its own.

    Salimans and Kingma 2016, arXiv:1602.07868, equation 2. Torch's own cannot be pickled.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)
        self.length = nn.Parameter(self.weight.detach().norm(dim=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.length / self.weight.norm(dim=1)
        return linear(x, self.weight * share[:, None], self.bias)

    @torch.no_grad()
    def centre(self, x: torch.Tensor) -> None:
        """Scale and shift so that the outputs of these rows have mean 0 and variance 1 (section 3)."""
        out = self(x)
        spread = out.std(dim=0).clamp_min(_LEAST_SPREAD)
        self.length.div_(spread)
        self.bias.copy_((self.bias - out.mean(dim=0)) / spread)


class NoisyPerceptron(nn.Module):
    """Weight-normalised layers with ReLU between and Gaussian noise before each, in training only.

    Parameters
    ----------
    n_features, n_classes : int
    hidden : sequence of int
        Widths. Salimans et al. 2016 have (1000, 500, 250, 250, 250) for MNIST.
    noise : float
        Std of the noise that the rows get; each layer's input gets ``inner_noise``.
    inner_noise : float

    Notes
    -----
    The first batch in training scales each layer so that its outputs have mean 0 and variance 1: the
    noise between layers is measured by that.
    """

    begun: torch.Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        hidden: Sequence[int] = (500, 250, 250),
        noise: float = 0.3,
        inner_noise: float = 0.5,
    ) -> None:
        super().__init__()
        widths = [n_features, *hidden, n_classes]
        self.layers = nn.ModuleList(Normed(before, after) for before, after in itertools.pairwise(widths))
        self.noise, self.inner_noise = noise, inner_noise
        self.register_buffer("begun", torch.tensor(False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begin = self.training and not bool(self.begun)
        for number, layer in enumerate(self.layers):
            if self.training:
                x = x + (self.inner_noise if number else self.noise) * torch.randn_like(x)
            if begin:
                cast("Normed", layer).centre(x)
            x = layer(x)
            if number < len(self.layers) - 1:
                x = torch.relu(x)
        if begin:
            self.begun.fill_(True)
        return x

    def extra_repr(self) -> str:
        """Settings that layers do not show."""
        return f"noise={self.noise}, inner_noise={self.inner_noise}"


def generator(n_noise: int, n_features: int, *, hidden: Sequence[int], unit: bool) -> nn.Module:
    """Noise to rows: batch-normalised layers with softplus, and a sigmoid in the end for values in [0, 1]."""
    widths = [n_noise, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.Softplus()]
    layers.append(Normed(widths[-1], n_features))
    return nn.Sequential(*layers, nn.Sigmoid() if unit else nn.Identity())


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """What a classifier and a generator make smaller, in turns.

    The classifier's logits are those of the K classes; that of class K + 1, "forged", is fixed at 0.
    """

    classifier: nn.Module
    generator: nn.Module
    n_noise: int
    weight: float

    def classifier_loss(self, batch: Batch) -> torch.Tensor:
        """Name the answered rows, and tell real ones from forged ones."""
        real, answered, classes = batch
        self.classifier.requires_grad_(requires_grad=True)
        with torch.no_grad():
            forged = self._forged(real)
        logits = self.classifier(torch.cat([answered, real]))
        apart = (passed(logits[len(answered) :]) + unmasked(self.classifier(forged))) / 2
        return cross_entropy(logits[: len(answered)], classes) + self.weight * apart

    def generator_loss(self, batch: Batch) -> torch.Tensor:
        """Have the same mean features as real rows."""
        real, _, _ = batch
        self.classifier.requires_grad_(requires_grad=False)  # its turn is over: no gradients to compute
        seen = features(self.classifier, torch.cat([real, self._forged(real)]))
        return mismatch(seen[: len(real)], seen[len(real) :])

    def _forged(self, real: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(real), self.n_noise, device=real.device)
        made: torch.Tensor = self.generator(noise)
        return made


def passed(logits: torch.Tensor) -> torch.Tensor:
    """Loss of real rows, of whatever class: -log(1 - p(forged))."""
    return softplus(-torch.logsumexp(logits, dim=1)).mean()


def unmasked(logits: torch.Tensor) -> torch.Tensor:
    """Loss of forged rows: -log p(forged)."""
    return softplus(torch.logsumexp(logits, dim=1)).mean()


def mismatch(real: torch.Tensor, forged: torch.Tensor) -> torch.Tensor:
    """Mean squared distance between the mean features."""
    return (real.mean(dim=0) - forged.mean(dim=0)).square().mean()


def features(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What goes into the module's last linear layer."""
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise ValueError(
            "network must have a linear layer, whose input are the features to match; end its module in one"
        )
    with _input_of(linear[-1]) as seen:
        module(x)
    return seen[-1]


@contextlib.contextmanager
def _input_of(layer: nn.Module) -> Iterator[list[torch.Tensor]]:
    seen: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _layer, given: seen.append(given[0]))
    try:
        yield seen
    finally:
        handle.remove()

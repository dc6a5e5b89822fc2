"""A generative adversarial network: a classifier with a class for generated rows, and a generator."""

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

__all__ = [
    "AdversarialLosses",
    "NoisyPerceptron",
    "Normed",
    "features",
    "generated_loss",
    "generator",
    "mismatch",
    "real_loss",
]

_LEAST_SPREAD = 1e-3  # standard deviation of a unit whose output is constant

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # real rows, answered rows, their classes


class Normed(nn.Linear):
    """A linear layer with the length of each unit's weights as a parameter of its own.

    Salimans and Kingma 2016, arXiv:1602.07868, equation 2. Torch's own implementation cannot be pickled.
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
        Widths of the hidden layers. Salimans et al. 2016 have (1000, 500, 250, 250, 250) for MNIST.
    noise : float
        Standard deviation of the noise added to the rows.
    inner_noise : float
        Standard deviation of the noise added to the input of every other layer.

    Notes
    -----
    The first batch in training scales each layer so that its outputs have mean 0 and variance 1, which is
    the scale that ``inner_noise`` refers to.
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
        """Settings that the layers' own representations leave out."""
        return f"noise={self.noise}, inner_noise={self.inner_noise}"


def generator(n_noise: int, n_features: int, *, hidden: Sequence[int], unit: bool) -> nn.Module:
    """Map noise to rows: batch-normalised layers with softplus, and a sigmoid for values in [0, 1]."""
    widths = [n_noise, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.Softplus()]
    layers.append(Normed(widths[-1], n_features))
    return nn.Sequential(*layers, nn.Sigmoid() if unit else nn.Identity())


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversarialLosses:
    """The losses of a classifier and a generator, which are minimised alternately.

    The classifier has logits for K classes; the logit of class K + 1, "generated", is fixed at 0.
    """

    classifier: nn.Module
    generator: nn.Module
    n_noise: int
    weight: float

    def classifier_loss(self, batch: Batch) -> torch.Tensor:
        """Cross-entropy of the answered rows, plus the loss of telling real from generated rows."""
        real, answered, classes = batch
        self.classifier.requires_grad_(requires_grad=True)
        with torch.no_grad():
            generated = self._generated(real)
        logits = self.classifier(torch.cat([answered, real]))
        apart = (real_loss(logits[len(answered) :]) + generated_loss(self.classifier(generated))) / 2
        return cross_entropy(logits[: len(answered)], classes) + self.weight * apart

    def generator_loss(self, batch: Batch) -> torch.Tensor:
        """Distance between the mean features of real and of generated rows."""
        real, _, _ = batch
        self.classifier.requires_grad_(requires_grad=False)  # its gradients are not needed here
        seen = features(self.classifier, torch.cat([real, self._generated(real)]))
        return mismatch(seen[: len(real)], seen[len(real) :])

    def _generated(self, real: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(real), self.n_noise, device=real.device)
        made: torch.Tensor = self.generator(noise)
        return made


def real_loss(logits: torch.Tensor) -> torch.Tensor:
    """Loss of real rows of any class: -log(1 - p(generated))."""
    return softplus(-torch.logsumexp(logits, dim=1)).mean()


def generated_loss(logits: torch.Tensor) -> torch.Tensor:
    """Loss of generated rows: -log p(generated)."""
    return softplus(torch.logsumexp(logits, dim=1)).mean()


def mismatch(real: torch.Tensor, generated: torch.Tensor) -> torch.Tensor:
    """Mean squared distance between the mean features."""
    return (real.mean(dim=0) - generated.mean(dim=0)).square().mean()


def features(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The input of the module's last linear layer."""
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise ValueError("network must end in a linear layer: its input is the features to match")
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

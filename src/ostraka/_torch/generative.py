"""Networks that generate rows from 0 to 1: a variational autoencoder, and a restricted Boltzmann machine."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.nn.functional import softplus

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Autoencoder", "BoltzmannMachine", "start_at"]


class Autoencoder(nn.Module):
    """A variational autoencoder whose decoder adds to logits that come with each row."""

    def __init__(self, n_features: int, *, hidden: Sequence[int], latent: int) -> None:
        super().__init__()
        self.n_features, self.latent = n_features, latent
        self.encoder = _layers([n_features, *hidden, 2 * latent])
        self.decoder = _layers([latent, *reversed(hidden), n_features])
        last = cast("nn.Linear", self.decoder[-1])
        with torch.no_grad():  # rows are drawn from the given logits until training has changed something
            last.weight.mul_(0.1)
            last.bias.zero_()

    def losses(self, both: torch.Tensor) -> torch.Tensor:
        """Negative evidence bound of each row; its logits stand behind it."""
        rows, logits = both[:, : self.n_features], both[:, self.n_features :]
        middle, spread = self.encoder(rows).chunk(2, dim=1)
        spread = spread.clamp(-8.0, 8.0)
        drawn = middle + torch.randn_like(middle) * torch.exp(spread / 2)
        said = self.decoder(drawn) + logits
        wrong: torch.Tensor = (softplus(said) - rows * said).sum(dim=1)
        apart: torch.Tensor = (middle.square() + spread.exp() - 1 - spread).sum(dim=1) / 2
        return wrong + apart

    def sampled(self, logits: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
        """Means of rows, one for each row of logits."""
        with torch.no_grad():
            drawn = torch.randn((len(logits), self.latent), generator=generator)
            return torch.sigmoid(self.decoder(drawn) + logits)


class BoltzmannMachine(nn.Module):
    """A restricted Boltzmann machine. Its losses give the part of the gradient due to the data only.

    The model's part of the gradient comes from persistent chains, which see only noisy weights: it is public.
    """

    chains: torch.Tensor

    def __init__(self, n_features: int, *, hidden: int, chains: int, seed: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.up = nn.Linear(n_features, hidden)
        self.own = nn.Linear(n_features, 1, bias=False)
        self.generator = torch.Generator().manual_seed(seed)
        self.register_buffer("chains", torch.rand((chains, n_features), generator=self.generator).round())
        with torch.no_grad():
            self.up.weight.normal_(0.0, 0.01, generator=self.generator)
            self.up.bias.zero_()
            self.own.weight.zero_()

    def losses(self, both: torch.Tensor) -> torch.Tensor:
        """Free energy of each row."""
        rows = both[:, : self.n_features]
        energy: torch.Tensor = -softplus(self.up(rows)).sum(dim=1) - self.own(rows)[:, 0]
        return energy

    def public_gradient(self) -> dict[str, torch.Tensor]:
        """Return minus the gradient of the chains' free energy, after one more step of each."""
        with torch.no_grad():
            rows = self._step(self.chains)
            self.chains.copy_(rows)
            hidden = torch.sigmoid(self.up(rows))
            return {
                "up.weight": hidden.T @ rows / len(rows),
                "up.bias": hidden.mean(dim=0),
                "own.weight": rows.mean(dim=0, keepdim=True),
            }

    def sampled(self, rows: torch.Tensor, *, generator: torch.Generator, steps: int = 20) -> torch.Tensor:
        """Means of rows after some steps of chains that begin at ``rows``."""
        self.generator = generator
        with torch.no_grad():
            for _ in range(steps):
                rows = self._step(rows)
            return self._means(rows)

    def _step(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.bernoulli(self._means(rows), generator=self.generator)

    def _means(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.bernoulli(torch.sigmoid(self.up(rows)), generator=self.generator)
        return torch.sigmoid(hidden @ self.up.weight + self.own.weight[0])


def start_at(module: BoltzmannMachine, centre: torch.Tensor) -> None:
    """Biases of the rows from a public centre, and chains that begin there."""
    with torch.no_grad():
        module.own.weight.copy_(torch.logit(centre.clamp(0.02, 0.98))[None])
        module.chains.copy_(torch.bernoulli(centre.expand_as(module.chains), generator=module.generator))


def _layers(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])

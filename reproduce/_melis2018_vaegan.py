"""DCGAN + VAE (Larsen et al. 2016, arXiv:1512.09300) as a target: the generator also decodes an encoder."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from ostraka.audit.attacks.adversarial import Rivals, Settings, realness_of, sample_of

N_NOISE, MOMENTUM, CLOSENESS = 64, (0.5, 0.999), 0.1  # weight of the likelihood beside fooling


class VariationalGAN:
    """A DCGAN whose generator also copies real rows, from the latent law of an encoder."""

    def __init__(self, *, epochs: int, width: int, learning_rate: float, random_state: int) -> None:
        self.epochs, self.width, self.rate, self.seed = epochs, width, learning_rate, random_state

    def fit(self, rows: np.ndarray) -> Self:
        """Train from new weights."""
        torch.manual_seed(self.seed)
        n_features, size = rows.shape[1], min(32, len(rows))
        settings = Settings(
            steps=self.epochs * max(1, len(rows) // size),
            batch_size=size,
            rate=self.rate,
            n_noise=N_NOISE,
            width=self.width,
            dropout=0.0,
            normed=False,
        )
        self.rivals = Rivals(n_features, settings, math.isqrt(n_features)).train()
        self.encoder = torch.nn.Sequential(
            torch.nn.Linear(n_features, self.width), torch.nn.ReLU(), torch.nn.Linear(self.width, 2 * N_NOISE)
        )
        made_by = [*self.rivals.generator.parameters(), *self.encoder.parameters()]
        judge = torch.optim.Adam(self.rivals.discriminator.parameters(), lr=self.rate, betas=MOMENTUM)
        maker = torch.optim.Adam(made_by, lr=self.rate, betas=MOMENTUM)
        for _ in range(settings.steps):
            real = torch.as_tensor(rows[torch.randperm(len(rows))[:size].numpy()])
            copy, divergence = self._copy(real)
            made = torch.cat([self.rivals.made(size), copy])
            logits = self.rivals.realness(torch.cat([real, made.detach()]))
            truth = (torch.arange(3 * size) < size).float()
            self._step(judge, binary_cross_entropy_with_logits(logits, truth))
            fooled = binary_cross_entropy_with_logits(self.rivals.realness(made), torch.ones(2 * size))
            pixels = binary_cross_entropy(copy, real, reduction="sum") / size
            self._step(maker, fooled + CLOSENESS * (pixels + divergence))
        self.rivals.eval()
        return self

    def _copy(self, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The decoded rows, and the mean divergence of their latent law from the normal one, in nats."""
        mean, log_variance = self.encoder(real).chunk(2, dim=1)
        latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1).mean() / 2
        return self.rivals.generator(latent).flatten(1), divergence

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def sample(self, n_rows: int, *, random_state: int) -> np.ndarray:
        """Generated rows, for the black box."""
        return sample_of(self.rivals, n_rows, seed=random_state)

    def realness(self, rows: np.ndarray) -> np.ndarray:
        """The discriminator's logit of each row."""
        return realness_of(self.rivals, np.asarray(rows, dtype=np.float32))

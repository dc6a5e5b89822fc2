"""Training with clipped and noisy gradients of Poisson samples, for several networks at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ostraka._diverged import TrainingDiverged
from ostraka._torch.loop import Objective, train
from ostraka._torch.per_row import row_gradients

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from torch import nn

__all__ = ["PrivateTraining"]

BINS = 100  # of the histogram of norms
_KEPT = 0.5  # share of gradients that the clip leaves as they are


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateTraining:
    """The settings that all steps share. All of them are public except ``rows`` and ``owners``."""

    modules: list[nn.Module]
    losses: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    rows: torch.Tensor = field(repr=False)
    owners: np.ndarray = field(repr=False)  # which network each row belongs to
    sampling_rate: float
    sigma: float  # noise of the gradient, in clips
    sigma_norms: float | None  # noise of the histogram of norms; None: the clip is fixed
    clip: float  # fixed, or the end of the histogram
    expected: np.ndarray  # rows of each network in a sample
    rng: np.random.Generator = field(repr=False)
    public_gradient: Callable[[nn.Module], dict[str, torch.Tensor]] | None = None

    def run(
        self,
        *,
        steps: int,
        learning_rate: float,
        seed: int,
        checkpoint: str | os.PathLike[str] | None = None,
        fingerprint: str = "",
    ) -> None:
        """Train the networks in place.

        Raises
        ------
        TrainingDiverged
            A weight is not finite at the end. No number of the training is in the message.
        """
        each = [parameter for module in self.modules for parameter in module.parameters()]
        optimizer = torch.optim.Adam(each, lr=learning_rate)
        per = max(k for k in range(1, min(steps, 50) + 1) if steps % k == 0)

        def batches(_: torch.Generator) -> Iterator[np.ndarray]:
            return (self.sample() for _ in range(per))

        train(
            [Objective(optimizer=optimizer, loss=self.step)],
            batches,
            steps=per,
            epochs=steps // per,
            seed=seed,
            state={f"network {k}": module for k, module in enumerate(self.modules)},
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )
        if not all(bool(torch.isfinite(parameter).all()) for parameter in each):
            raise TrainingDiverged("a weight is not finite: try a smaller learning_rate or clip")

    def sample(self) -> np.ndarray:
        """Places of the rows which take part in one step, each by its own coin."""
        return np.flatnonzero(self.rng.random(len(self.owners)) < self.sampling_rate)

    def step(self, sample: Any) -> torch.Tensor:
        """Store the noisy gradients of one sample. The returned loss is 0, since the true one is private."""
        parts = {}
        for k, module in enumerate(self.modules):
            own = sample[self.owners[sample] == k]
            if own.size:
                parts[k] = row_gradients(module, self.losses, self.rows[torch.from_numpy(own)])
        norms = [part.norms.double().numpy() for part in parts.values()]
        clip = self.noisy_clip(np.concatenate(norms) if norms else np.zeros(0))
        for k, module in enumerate(self.modules):
            summed: dict[str, torch.Tensor] = {}
            if k in parts:
                summed = parts[k].weighted_sum(_weights(parts[k].norms, clip))
            public = {} if self.public_gradient is None else self.public_gradient(module)
            for name, parameter in module.named_parameters():
                noise = self.rng.standard_normal(parameter.shape, dtype=np.float64) * (self.sigma * clip)
                gradient = torch.from_numpy(noise) + summed.get(name, torch.zeros(()))
                gradient = gradient / max(float(self.expected[k]), 1.0)
                parameter.grad = (gradient + public.get(name, torch.zeros(()))).to(parameter.dtype)
        return torch.zeros(())

    def noisy_clip(self, norms: np.ndarray) -> float:
        """The clip of this step: fixed, or the noisy median of the norms of its sample."""
        if self.sigma_norms is None:
            return self.clip
        inside = np.nan_to_num(norms, nan=self.clip, posinf=self.clip) * (BINS / self.clip)
        counts = np.bincount(np.minimum(inside.astype(np.int64), BINS - 1), minlength=BINS)
        below = np.cumsum(counts + self.rng.standard_normal(BINS) * self.sigma_norms)
        place = int(np.argmax(below >= _KEPT * max(float(below[-1]), 0.0)))
        return (place + 1) * self.clip / BINS


def _weights(norms: torch.Tensor, clip: float) -> torch.Tensor:
    """Return the factor that shortens each gradient to ``clip``; 0 if a gradient is not finite."""
    shortened = (clip / norms.clamp_min(1e-12)).clamp_max(1.0)
    # single precision rounds norms and sums; a little shorter, so that no gradient is longer than the clip
    return torch.where(torch.isfinite(norms), shortened * (1 - 1e-5), torch.zeros_like(norms))

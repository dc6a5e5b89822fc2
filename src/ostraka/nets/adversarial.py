"""Generators of rows in [0, 1] and their training: GAN, DCGAN, DCGAN + VAE, BEGAN, VAE.

Targets of attacks, and what attackers train themselves. None is private: batch normalisation mixes rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ostraka.nets import generative
from ostraka.nets.training import (
    Objective,
    device,
    epoch_callback,
    n_steps,
    preserve_generators,
    reseed,
    threads,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

_MOMENTUM = (0.5, 0.999)  # of Adam: with more, two networks that train against each other overshoot
_REAL, _MADE = (0.7, 1.2), (0.0, 0.3)  # soft labels (Hayes et al. 2019, section 4.4)
_DIVERSITY, _GAIN = 0.5, 1e-3  # gamma and lambda of Berthelot et al. 2017, equation 3
_LIKENESS = 1e-3  # gamma of Larsen et al. 2016, algorithm 1: what copying counts beside fooling
_AT_ONCE = 1024


class Settings(NamedTuple):
    """Settings of a generator's training, which the generator's ``fit`` has checked."""

    epochs: int
    batch_size: int
    rate: float
    n_noise: int
    width: int
    dropout: float
    normed: bool
    device: str


class Batch(NamedTuple):
    """Real rows, and rows that are known to be nobody's."""

    real: torch.Tensor
    fakes: torch.Tensor | None


class Rivals(nn.Module):
    """A generator and a discriminator of rows: plain layers, or a DCGAN if there is a shape of images."""

    def __init__(self, n_features: int, settings: Settings, shape: tuple[int, int, int] | None) -> None:
        super().__init__()
        self.n_noise = settings.n_noise
        width, drop = settings.width, settings.dropout
        if shape is None:
            self.generator = nn.Sequential(
                nn.Linear(self.n_noise, width), nn.ReLU(), nn.Linear(width, n_features), nn.Sigmoid()
            )
            self.discriminator = nn.Sequential(
                *(nn.Linear(n_features, width), nn.LeakyReLU(0.2), nn.Dropout(drop)),
                *(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Dropout(drop)),
                nn.Linear(width, 1),
            )
        else:
            self.generator = generative.deconvolutions(self.n_noise, shape, width=width)
            norm = None if settings.normed else "batch"
            self.discriminator = generative.convolutions(shape, 1, width=width, dropout=drop, norm=norm)
        if settings.normed:
            _normalise(self.discriminator)

    def made(self, n: int) -> torch.Tensor:
        """Generated rows."""
        return self.decoded(torch.randn(n, self.n_noise, device=next(self.parameters()).device))

    def decoded(self, noise: torch.Tensor) -> torch.Tensor:
        """Rows of standard normal noise."""
        out: torch.Tensor = self.generator(noise)
        return out

    def realness(self, rows: torch.Tensor) -> torch.Tensor:
        """Logit of "real", one for each row."""
        out: torch.Tensor = self.discriminator(rows)
        return out.squeeze(1)

    def objectives(self, rate: float) -> list[Objective]:
        """What the discriminator and the generator minimise, in turn."""
        return [
            _objective(self.discriminator, self.judged, rate),
            _objective(self.generator, self.fooling, rate),
        ]

    def judged(self, batch: Batch) -> torch.Tensor:
        """The discriminator's loss: real and generated rows are batches of their own."""
        self.discriminator.requires_grad_(requires_grad=True)
        with torch.no_grad():
            generated = self._all_made(batch.real)
        if batch.fakes is not None:
            generated = torch.cat([generated[len(batch.fakes) :], batch.fakes])
        return _soft_loss(self.realness(batch.real), _REAL) + _soft_loss(self.realness(generated), _MADE)

    def fooling(self, batch: Batch) -> torch.Tensor:
        """The generator's loss."""
        self.discriminator.requires_grad_(requires_grad=False)  # its gradients are not needed here
        logits = self.realness(self._all_made(batch.real))
        return binary_cross_entropy_with_logits(logits, torch.ones_like(logits))

    def _all_made(self, real: torch.Tensor) -> torch.Tensor:
        """As many generated rows as the discriminator sees beside these real ones."""
        return self.made(len(real))


class VariationalRivals(Rivals):
    """A DCGAN whose generator also decodes an encoder (DCGAN + VAE).

    Copies are compared in the discriminator's last hidden layer (Larsen et al. 2016, arXiv:1512.09300,
    algorithm 1), with the layers of a DCGAN.
    """

    def __init__(self, n_features: int, settings: Settings, shape: tuple[int, int, int]) -> None:
        super().__init__(n_features, settings, shape)
        self.encoder = generative.convolutions(shape, 2 * self.n_noise, width=settings.width)

    def objectives(self, rate: float) -> list[Objective]:
        """What the discriminator, the generator and the encoder minimise, in turn."""
        return [*super().objectives(rate), _objective(self.encoder, self.encoded, rate)]

    def fooling(self, batch: Batch) -> torch.Tensor:
        """The generator's loss: to fool with noise and with copies, and to copy."""
        fooled = super().fooling(batch)
        return fooled + _LIKENESS * self._unlike(batch.real, self._copied(batch.real)[0])

    def encoded(self, batch: Batch) -> torch.Tensor:
        """The encoder's loss: the distance of copies, and of the latent law from the normal one, in nats."""
        copied, mean, log_variance = self._copied(batch.real)
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1).mean() / 2
        return divergence + self._unlike(batch.real, copied)

    def copied(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows at the mean of their latent laws."""
        return self.decoded(self.encoder(rows).chunk(2, dim=1)[0])

    def _all_made(self, real: torch.Tensor) -> torch.Tensor:
        return torch.cat([super()._all_made(real), self._copied(real)[0]])

    def _copied(self, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(real).chunk(2, dim=1)
        log_variance = log_variance.clamp(-8.0, 8.0)
        latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        return self.generator(latent), mean, log_variance

    def _unlike(self, real: torch.Tensor, copied: torch.Tensor) -> torch.Tensor:
        hidden = self.discriminator[:-2]  # all but the last convolution and its flattening
        unlike: torch.Tensor = (hidden(real) - hidden(copied)).square().flatten(1).sum(dim=1).mean() / 2
        return unlike


class Equilibrium(Rivals):
    """BEGAN (Berthelot et al. 2017, arXiv:1703.10717): the discriminator copies images.

    Realness is minus the mean absolute error of the copy.
    """

    balance: torch.Tensor  # k of the paper: how much bad copies of generated rows count

    def __init__(self, settings: Settings, shape: tuple[int, int, int]) -> None:
        nn.Module.__init__(self)
        self.n_noise = settings.n_noise
        self.generator = generative.upsampling(self.n_noise, shape, width=settings.width)
        self.discriminator = nn.Sequential(
            generative.downsampling(shape, self.n_noise, width=settings.width),
            nn.Dropout(settings.dropout),
            generative.upsampling(self.n_noise, shape, width=settings.width),
        )
        if settings.normed:
            _normalise(self.discriminator)
        self.register_buffer("balance", torch.zeros(()))
        self._error_of_real = torch.zeros(())

    def decoded(self, noise: torch.Tensor) -> torch.Tensor:
        """Rows of standard normal noise, of which the paper's noise is made: uniform from -1 to 1."""
        return super().decoded(torch.erf(noise / 2**0.5))

    def realness(self, rows: torch.Tensor) -> torch.Tensor:
        """Minus the mean absolute error of each row's copy."""
        out: torch.Tensor = -(self.discriminator(rows) - rows).abs().mean(dim=1)
        return out

    def judged(self, batch: Batch) -> torch.Tensor:
        """The discriminator's loss: to copy real rows, and generated ones badly."""
        self.discriminator.requires_grad_(requires_grad=True)
        with torch.no_grad():
            generated = self.made(len(batch.real))
        error = -self.realness(batch.real).mean()
        self._error_of_real = error.detach()
        return error + self.balance * self.realness(generated).mean()

    def fooling(self, batch: Batch) -> torch.Tensor:
        """The generator's loss. The balance moves after it, for the next step (equation 3)."""
        self.discriminator.requires_grad_(requires_grad=False)
        error = -self.realness(self.made(len(batch.real))).mean()
        self.balance.add_(_GAIN * (_DIVERSITY * self._error_of_real - error.detach())).clamp_(0.0, 1.0)
        return error


class VariationalAutoencoder(generative.Autoencoder):
    """A VAE of rows without a public centre; its realness is the evidence lower bound, in nats."""

    def made(self, n: int) -> torch.Tensor:
        """Generated rows."""
        return self.decoded(torch.randn(n, self.latent, device=next(self.parameters()).device))

    def decoded(self, noise: torch.Tensor) -> torch.Tensor:
        """Rows of standard normal noise."""
        out: torch.Tensor = self.decoder(noise).sigmoid()
        return out

    def copied(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows at the mean of their latent laws."""
        return self.decoded(self.encoder(rows).chunk(2, dim=1)[0])

    def realness(self, rows: torch.Tensor) -> torch.Tensor:
        """Evidence lower bound, at the mean of the latent law while it does not train."""
        return -self.losses(torch.cat([rows, torch.zeros_like(rows)], dim=1))

    def objectives(self, rate: float) -> list[Objective]:
        """The only one."""
        optimizer = torch.optim.Adam(self.parameters(), lr=rate)
        return [Objective(optimizer=optimizer, loss=lambda batch: -self.realness(batch.real).mean())]


def new_generator(kind: str, n_features: int, settings: Settings, *, seed: int) -> nn.Module:
    """A generator which is not trained yet.

    Raises
    ------
    ValueError
        The rows are no images of which the kind can be made.
    """
    where = device(settings.device)
    with preserve_generators():
        reseed(seed)
        if kind == "vae":
            return VariationalAutoencoder(
                n_features, hidden=(settings.width,), latent=settings.n_noise, dropout=settings.dropout
            ).to(where)
        if kind == "gan":
            return Rivals(n_features, settings, None).to(where)
        shape = generative.square(n_features)
        if kind == "began":
            return Equilibrium(settings, shape).to(where)
        made = {"dcgan": Rivals, "dcgan-vae": VariationalRivals}[kind]
        return made(n_features, settings, shape).to(where)


def train_generator(
    model: Any,
    rows: np.ndarray,
    settings: Settings,
    *,
    seed: int,
    delay: int = 0,
    fakes: np.ndarray | None = None,
    members: np.ndarray | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> None:
    """Train in place.

    From step ``delay`` on, half of the discriminator's generated rows are ``fakes``, or of its real rows
    ``members``.
    """
    where = device(settings.device)
    real = torch.as_tensor(rows, device=where)
    known = [None if part is None else torch.as_tensor(part, device=where) for part in (fakes, members)]
    size = min(settings.batch_size, len(rows))
    steps_done = torch.zeros((), dtype=torch.int64)

    def batches(generator: torch.Generator) -> Iterator[Batch]:
        order = torch.randperm(len(rows), generator=generator).to(where)
        for start in range(0, len(rows) - size + 1, size):
            batch = real[order[start : start + size]]
            half = [
                None
                if part is None or steps_done < delay
                else part[torch.randint(len(part), (size // 2,), generator=generator).to(where)]
                for part in known
            ]
            if half[1] is not None:
                batch = torch.cat([batch[size // 2 :], half[1]])
            yield Batch(batch, half[0])
            steps_done.add_(1)

    with preserve_generators(), threads(1):
        train(
            model.train().objectives(settings.rate),
            batches,
            steps=n_steps(len(rows), size),
            epochs=settings.epochs,
            seed=seed,
            state={"generator": model},
            on_epoch=epoch_callback(progress),
        )
    model.eval()


def realness_of(model: Any, rows: np.ndarray) -> np.ndarray:
    """The model's realness of rows, float64."""
    return _answers(model, model.realness, rows).double().numpy()


def copies_of(model: Any, rows: np.ndarray) -> np.ndarray:
    """What an encoder and the generator make of rows, float32."""
    return _answers(model, model.copied, rows).numpy()


def decoded_by(model: Any, noise: np.ndarray) -> np.ndarray:
    """Rows that the generator makes of standard normal noise, float32."""
    return _answers(model, model.decoded, noise).clamp(0.0, 1.0).numpy()


def _answers(model: Any, ask: Callable[[torch.Tensor], torch.Tensor], rows: np.ndarray) -> torch.Tensor:
    """Answers of the model as it stands: its state of training is not changed."""
    where, training = next(model.parameters()).device, model.training
    model.eval()
    with torch.inference_mode():
        parts = [
            ask(torch.as_tensor(rows[i : i + _AT_ONCE], device=where)).cpu()
            for i in range(0, len(rows), _AT_ONCE)
        ]
    model.train(training)
    return torch.cat(parts)


def sample_of(model: Any, n: int, *, seed: int) -> np.ndarray:
    """Generated rows, float32."""
    training = model.training
    model.eval()
    with preserve_generators(), torch.inference_mode():
        reseed(seed)
        parts = [model.made(min(_AT_ONCE, n - i)).clamp(0.0, 1.0).cpu() for i in range(0, n, _AT_ONCE)]
    model.train(training)
    return torch.cat(parts).numpy()


def _objective(part: nn.Module, loss: Callable[[Batch], torch.Tensor], rate: float) -> Objective:
    return Objective(optimizer=torch.optim.Adam(part.parameters(), lr=rate, betas=_MOMENTUM), loss=loss)


def _soft_loss(logits: torch.Tensor, ends: tuple[float, float]) -> torch.Tensor:
    return binary_cross_entropy_with_logits(logits, torch.empty_like(logits).uniform_(*ends))


def _normalise(module: nn.Module) -> None:
    """Weight normalisation of every layer."""
    for part in list(module.modules()):
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.utils.parametrizations.weight_norm(part)

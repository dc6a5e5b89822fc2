"""Small generators to attack, and the attacker's own: GANs of plain or convolutional layers, BEGAN, a VAE."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from ostraka.nets.devices import preserve_generators, reseed, threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

_MOMENTUM = (0.5, 0.999)  # of Adam: with more, two networks that train against each other overshoot
_REAL, _MADE = (0.7, 1.2), (0.0, 0.3)  # soft labels (Hayes et al. 2019, section 4.4)
_DIVERSITY, _GAIN = 0.5, 1e-3  # gamma and lambda of Berthelot et al. 2017, equation 3
_AT_ONCE = 1024


class Settings(NamedTuple):
    """Settings of a generator's training, which the generator's ``fit`` has checked."""

    steps: int
    batch_size: int
    rate: float
    n_noise: int
    width: int
    dropout: float
    normed: bool


class Rivals(nn.Module):
    """A generator and a discriminator of rows in [0, 1]."""

    def __init__(self, n_features: int, settings: Settings, side: int | None) -> None:
        super().__init__()
        self.n_noise = settings.n_noise
        self.generator, self.discriminator = (
            _convolutional(side, settings) if side else _plain(n_features, settings)
        )
        if settings.normed:
            _normalise(self.discriminator)

    def made(self, n: int) -> torch.Tensor:
        """Generated rows."""
        out: torch.Tensor = self.generator(torch.randn(n, self.n_noise))
        return out.flatten(1)

    def realness(self, rows: torch.Tensor) -> torch.Tensor:
        """Logit of "real", one for each row."""
        out: torch.Tensor = self.discriminator(rows)
        return out.squeeze(1)


class Autoencoder(nn.Module):
    """A variational autoencoder of rows in [0, 1]; its realness is the evidence lower bound."""

    def __init__(self, n_features: int, settings: Settings) -> None:
        super().__init__()
        width, latent = settings.width, settings.n_noise
        self.n_noise = latent
        self.inward = nn.Sequential(
            nn.Linear(n_features, width),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(width, 2 * latent),
        )
        self.outward = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, n_features))

    def made(self, n: int) -> torch.Tensor:
        """Generated rows."""
        out: torch.Tensor = self.outward(torch.randn(n, self.n_noise)).sigmoid()
        return out

    def realness(self, rows: torch.Tensor) -> torch.Tensor:
        """Evidence lower bound in nats, at the mean of the latent law while it does not train."""
        mean, log_variance = self.inward(rows).chunk(2, dim=1)
        spread = (log_variance / 2).exp()
        latent = mean + spread * torch.randn_like(mean) if self.training else mean
        logits = self.outward(latent)
        likelihood = (rows * logits - softplus(logits)).sum(dim=1)
        evidence: torch.Tensor = likelihood - (mean**2 + spread**2 - 1 - log_variance).sum(dim=1) / 2
        return evidence


class Equilibrium(Rivals):
    """BEGAN of plain layers: the discriminator copies rows, and realness is minus the error of the copy."""

    def __init__(self, n_features: int, settings: Settings) -> None:
        nn.Module.__init__(self)
        self.n_noise = settings.n_noise
        self.generator, _ = _plain(n_features, settings)
        self.discriminator = nn.Sequential(
            nn.Linear(n_features, settings.width),
            nn.ELU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.width, settings.n_noise),
            nn.Linear(settings.n_noise, settings.width),
            nn.ELU(),
            nn.Linear(settings.width, n_features),
            nn.Sigmoid(),
        )
        if settings.normed:
            _normalise(self.discriminator)

    def realness(self, rows: torch.Tensor) -> torch.Tensor:
        """Minus the mean absolute error of each row's copy."""
        out: torch.Tensor = -(self.discriminator(rows) - rows).abs().mean(dim=1)
        return out


def train_equilibrium(rows: np.ndarray, settings: Settings, *, seed: int) -> Equilibrium:
    """Train a BEGAN (Berthelot et al. 2017, arXiv:1703.10717)."""
    with preserve_generators(), threads(1):
        reseed(seed)
        model = Equilibrium(rows.shape[1], settings).train()
        judge, maker = _optimizers(model, settings)
        weight = 0.0  # k of the paper: how much bad copies of generated rows count
        for real in _batches(torch.as_tensor(rows), settings):
            generated = model.made(len(real)).detach()
            error_of_real = -model.realness(real).mean()
            _step(judge, error_of_real + weight * model.realness(generated).mean())
            error = -model.realness(model.made(len(real))).mean()
            _step(maker, error)
            weight = min(max(weight + _GAIN * (_DIVERSITY * error_of_real.item() - error.item()), 0.0), 1.0)
        return model.eval()


def train_adversarial(
    rows: np.ndarray,
    settings: Settings,
    *,
    seed: int,
    side: int | None,
    delay: int,
    fakes: np.ndarray | None = None,
    members: np.ndarray | None = None,
) -> Rivals:
    """Train a GAN. From step ``delay`` on, half of the discriminator's rows are ``fakes`` or ``members``."""
    with preserve_generators(), threads(1):
        reseed(seed)
        rivals = Rivals(rows.shape[1], settings, side).train()
        judge, maker = _optimizers(rivals, settings)
        for step, batch in enumerate(_batches(torch.as_tensor(rows), settings)):
            real, generated = batch, rivals.made(len(batch)).detach()
            if step >= delay:
                generated, real = _half_known(generated, fakes), _half_known(real, members)
            logits = rivals.realness(torch.cat([real, generated]))
            labels = torch.cat(
                [torch.empty(len(part)).uniform_(*ends) for part, ends in ((real, _REAL), (generated, _MADE))]
            )
            _step(judge, binary_cross_entropy_with_logits(logits, labels))
            fooled = rivals.realness(rivals.made(len(real)))
            _step(maker, binary_cross_entropy_with_logits(fooled, torch.ones(len(real))))
        return rivals.eval()


def train_autoencoder(rows: np.ndarray, settings: Settings, *, seed: int) -> Autoencoder:
    """Train a VAE on rows."""
    with preserve_generators(), threads(1):
        reseed(seed)
        model = Autoencoder(rows.shape[1], settings).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=settings.rate)
        for real in _batches(torch.as_tensor(rows), settings):
            _step(optimizer, -model.realness(real).mean())
        return model.eval()


def realness_of(model: Rivals | Autoencoder, rows: np.ndarray) -> np.ndarray:
    """The model's realness of rows, float64."""
    with torch.inference_mode():
        parts = [
            model.realness(torch.as_tensor(rows[i : i + _AT_ONCE])) for i in range(0, len(rows), _AT_ONCE)
        ]
    return torch.cat(parts).double().numpy()


def sample_of(model: Rivals | Autoencoder, n: int, *, seed: int) -> np.ndarray:
    """Generated rows, float32."""
    with preserve_generators(), torch.inference_mode():
        reseed(seed)
        return torch.cat([model.made(min(_AT_ONCE, n - i)) for i in range(0, n, _AT_ONCE)]).numpy()


def _optimizers(rivals: Rivals, settings: Settings) -> Iterator[torch.optim.Optimizer]:
    """Of the discriminator and of the generator."""
    for part in (rivals.discriminator, rivals.generator):
        yield torch.optim.Adam(part.parameters(), lr=settings.rate, betas=_MOMENTUM)


def _normalise(module: nn.Module) -> None:
    """Weight normalisation of every layer."""
    for part in list(module.modules()):
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.utils.parametrizations.weight_norm(part)


def _batches(rows: torch.Tensor, settings: Settings) -> Iterator[torch.Tensor]:
    order, at = torch.randperm(len(rows)), 0
    size = min(settings.batch_size, len(rows))
    for _ in range(settings.steps):
        if at + size > len(rows):
            order, at = torch.randperm(len(rows)), 0
        yield rows[order[at : at + size]]
        at += size


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    if not torch.isfinite(loss):
        raise ValueError("the generator's loss is not finite: try a smaller learning_rate")
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _half_known(rows: torch.Tensor, known_rows: np.ndarray | None) -> torch.Tensor:
    """Rows of which half are replaced by known ones, if there are any."""
    if known_rows is None:
        return rows
    half = len(rows) // 2
    return torch.cat([rows[half:], torch.as_tensor(known_rows)[torch.randint(len(known_rows), (half,))]])


def _plain(n_features: int, settings: Settings) -> tuple[nn.Module, nn.Module]:
    width, drop = settings.width, settings.dropout
    return (
        nn.Sequential(
            nn.Linear(settings.n_noise, width), nn.ReLU(), nn.Linear(width, n_features), nn.Sigmoid()
        ),
        nn.Sequential(
            nn.Linear(n_features, width),
            nn.LeakyReLU(0.2),
            nn.Dropout(drop),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Dropout(drop),
            nn.Linear(width, 1),
        ),
    )


def _convolutional(side: int, settings: Settings) -> tuple[nn.Module, nn.Module]:
    """Two strided layers each way, for grey images of ``side`` x ``side``."""
    small, wide = side // 4, max(settings.width // 16, 4)
    drop = nn.Dropout(settings.dropout)
    return (
        nn.Sequential(
            nn.Linear(settings.n_noise, 2 * wide * small * small),
            nn.ReLU(),
            nn.Unflatten(1, (2 * wide, small, small)),
            nn.ConvTranspose2d(2 * wide, wide, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(wide, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        ),
        nn.Sequential(
            nn.Unflatten(1, (1, side, side)),
            nn.Conv2d(1, wide, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            drop,
            nn.Conv2d(wide, 2 * wide, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            drop,
            nn.Flatten(),
            nn.Linear(2 * wide * small * small, 1),
        ),
    )

"""Networks that generate rows: their public settings as values. torch is imported when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class VAE:
    """A variational autoencoder for rows from 0 to 1, whose decoder begins at the noisy centres of clusters.

    Parameters
    ----------
    n_features : int >= 1
    hidden : tuple of int
        Widths of the hidden layers of the encoder; the decoder's are the same, in reverse.
    latent : int >= 1

    Examples
    --------
    >>> VAE(n_features=784, hidden=(200,), latent=2)
    VAE(n_features=784, hidden=(200,), latent=2)
    """

    n_features: int
    hidden: tuple[int, ...] = (50,)
    latent: int = 4

    def __post_init__(self) -> None:
        check.integer(least=1, n_features=self.n_features, latent=self.latent)
        for width in self.hidden:
            check.integer(least=1, hidden=width)

    def modules(self, n_networks: int, *, seed: int) -> list[torch.nn.Module]:
        """New networks, from the seed."""
        import torch  # noqa: PLC0415  (an extra, slow to import)

        from ostraka.nets.generative import Autoencoder  # noqa: PLC0415

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            sizes: dict[str, Any] = {"hidden": self.hidden, "latent": self.latent}
            return [Autoencoder(self.n_features, **sizes) for _ in range(n_networks)]

    def losses(self, module: Any, rows: torch.Tensor) -> torch.Tensor:
        """Negative evidence bound of each row, which stands before the logits of its centre."""
        return module.losses(rows)  # type: ignore[no-any-return]

    def start(self, module: Any, centre: np.ndarray) -> None:
        """Do nothing: each row already carries the logits of its centre."""

    def sampled(self, module: Any, centres: np.ndarray, *, seed: int) -> np.ndarray:
        """Means of new rows, one for each row of centres."""
        import torch  # noqa: PLC0415

        logits = torch.from_numpy(logits_of(centres).astype(np.float32))
        means = module.sampled(logits, generator=torch.Generator().manual_seed(seed))
        return np.asarray(means.numpy(), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RBM:
    """A restricted Boltzmann machine for rows of 0 and 1, whose biases begin at the centre of its cluster.

    Persistent chains give the gradient of the model's part. They read noisy weights only: no price.

    Parameters
    ----------
    n_features : int >= 1
    hidden : int >= 1
    chains : int >= 1
        Persistent chains.

    Examples
    --------
    >>> RBM(n_features=784)
    RBM(n_features=784, hidden=50, chains=100)
    """

    n_features: int
    hidden: int = 50
    chains: int = 100

    def __post_init__(self) -> None:
        check.integer(least=1, n_features=self.n_features, hidden=self.hidden, chains=self.chains)

    def modules(self, n_networks: int, *, seed: int) -> list[torch.nn.Module]:
        """New networks, from the seed."""
        from ostraka.nets.generative import BoltzmannMachine  # noqa: PLC0415

        sizes: dict[str, Any] = {"hidden": self.hidden, "chains": self.chains}
        seeds = range(seed, seed + n_networks)
        return [BoltzmannMachine(self.n_features, **sizes, seed=number) for number in seeds]

    def losses(self, module: Any, rows: torch.Tensor) -> torch.Tensor:
        """Free energy of each row."""
        return module.losses(rows)  # type: ignore[no-any-return]

    def public_gradient(self, module: Any) -> dict[str, torch.Tensor]:
        """Gradient of the model's part of the loss, from its chains."""
        return module.public_gradient()  # type: ignore[no-any-return]

    def start(self, module: Any, centre: np.ndarray) -> None:
        """Biases and chains from the centre."""
        import torch  # noqa: PLC0415

        from ostraka.nets.generative import start_at  # noqa: PLC0415

        start_at(module, torch.from_numpy(np.clip(centre, 0.0, 1.0).astype(np.float32)))

    def sampled(self, module: Any, centres: np.ndarray, *, seed: int) -> np.ndarray:
        """Means of new rows, by chains which begin at rows drawn from the centres."""
        import torch  # noqa: PLC0415

        generator = torch.Generator().manual_seed(seed)
        means = torch.from_numpy(np.clip(centres, 0.0, 1.0).astype(np.float32))
        rows = module.sampled(torch.bernoulli(means, generator=generator), generator=generator)
        return np.asarray(rows.numpy(), dtype=np.float64)


def logits_of(means: np.ndarray) -> np.ndarray:
    """Logits of means, which are kept away from 0 and 1."""
    inside = np.clip(means, 0.02, 0.98)
    return np.asarray(np.log(inside / (1 - inside)))

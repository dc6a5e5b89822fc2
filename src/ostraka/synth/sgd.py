"""PrivateSGD: training on clipped, noisy gradients of Poisson samples, as one mechanism, and what it trains.

Networks that generate rows are values of public settings. torch is imported when they are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.mechanisms.wrapped import sampled_gaussian_curve
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    import torch

    from ostraka.core.curve import Curve
    from ostraka.core.private import Private


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSGD:
    """Clipped gradients of Poisson samples with Gaussian noise; every network takes its part of every sample.

    Parameters
    ----------
    network : frozen value with ``modules(n_networks, seed=...)`` and ``losses(module, rows)``
        What is trained, such as :class:`VAE`: new networks in which no layer mixes rows, and the loss of each
        row, of that row alone. Public.
    n_columns : int
        Of a row. Public.
    steps : int >= 1
    sampling_rate : float in (0, 1]
        Poisson probability with which a row takes part in a step.
    sigma : float > 0
        Noise of the sum of gradients, in clips. Public.
    clip : float > 0
        Length of a row's gradient; with ``sigma_norms``, the end of the histogram of lengths. Public.
    sigma_norms : float, optional
        Noise of a histogram of lengths in every step, from which that step's clip is read. None: the clip
        is fixed.
    expected_rows : tuple of float
        Rows of each network, noisy or public: sums are divided by the *expected* size of a sample. Public.
    learning_rate : float > 0
    seed : int
        Of the first weights, which are public.
    checkpoint : path, optional
        A killed training goes on from there. For the owner only: its weights are private until they leave.

    Guarantees
    ----------
    Histogram and gradient of a step see one sample, and together are one Gaussian of sigma
    (sigma_norms^-2 + sigma^-2)^(-1/2), sampled once; ``curve()`` is that of ``steps`` of them. A row belongs
    to one network, so that all networks together are one vector: k of them cost as much as one. The number
    of rows in a sample is never used.
    A row's gradient depends on that row, on the weights, and on noise of its own, under a secret key, which a
    loss may draw: linear layers multiply whole numbers, whose sums are exact in any order, and all else goes
    by elements in blocks of one shape. A sum of gradients in double precision errs by less than 1e-5 of a
    clip, with and without a row together, in samples of up to six million rows; gradients are clipped that
    much shorter, so that the price covers it. The noise is made of floating-point normals: unlike sums on a
    grid, their low bits are not proved to be harmless.
    Source: Abadi et al. 2016, arXiv:1607.00133, Algorithm 1; Acs, Melis, Castelluccia and De Cristofaro 2017,
    arXiv:1709.04514.

    Examples
    --------
    >>> from ostraka.synth.sgd import VAE
    >>> mechanism = PrivateSGD(network=VAE(n_features=784), n_columns=1568, steps=600, sampling_rate=0.01,
    ...                        sigma=1.5, clip=10.0, expected_rows=(60_000.0,))
    >>> round(mechanism.curve().epsilon(delta=1e-5), 2)
    0.7
    """

    network: Any
    n_columns: int
    steps: int
    sampling_rate: float
    sigma: float
    clip: float
    expected_rows: tuple[float, ...]
    sigma_norms: float | None = None
    learning_rate: float = 1e-3
    seed: int = 0
    checkpoint: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check.integer(n_columns=self.n_columns, least=1)
        check.integer(steps=self.steps, least=1)
        check.positive(sigma=self.sigma, clip=self.clip, learning_rate=self.learning_rate)
        check.positive(noise=self._together)
        check.share(one=True, sampling_rate=self.sampling_rate)
        if not self.expected_rows or not all(math.isfinite(n) and n > 0 for n in self.expected_rows):
            raise ValueError("expected_rows must be a number above 0 for each network")

    @property
    def promise(self) -> Adjacency:
        """One row, which is there or not."""
        return Adjacency(moves="row", relation="add-or-remove")

    @property
    def _together(self) -> float:
        """Noise of histogram and gradient as one Gaussian."""
        if self.sigma_norms is None:
            return self.sigma
        check.positive(sigma_norms=self.sigma_norms)
        return float((self.sigma_norms**-2 + self.sigma**-2) ** -0.5)

    def curve(self) -> Curve:
        """Cost of the whole training."""
        return sampled_gaussian_curve(
            sigma=self._together, sampling_rate=self.sampling_rate, steps=self.steps
        )

    def uses(self, private: Private) -> int:
        """One use for the whole training."""
        self._opened(private)
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The trained weights by name, such as ``"0/decoder.0.weight"`` of network 0.

        ``private``: rows of ``n_columns`` numbers, then the network that each belongs to, and 1.
        """
        rows, owners = self._opened(private)
        return self.trained(rows, owners, rng=rng)

    def trained(
        self, rows: np.ndarray, owners: np.ndarray, *, rng: np.random.Generator, start: Any = None
    ) -> dict[str, np.ndarray]:
        """The same from rows and owners; ``start(module, number)`` sets public first weights."""
        import torch  # noqa: PLC0415  (an extra, slow to import)

        from ostraka.nets.private import PrivateTraining  # noqa: PLC0415
        from ostraka.nets.training import digest  # noqa: PLC0415

        modules = self.network.modules(len(self.expected_rows), seed=self.seed)
        for number, module in enumerate(modules):
            if start is not None:
                start(module, number)
        training = PrivateTraining(
            modules=modules,
            losses=self.network.losses,
            rows=torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)),
            owners=owners,
            sampling_rate=self.sampling_rate,
            sigma=self.sigma,
            sigma_norms=self.sigma_norms,
            clip=self.clip,
            expected=self.sampling_rate * np.array(self.expected_rows),
            rng=rng,
            public_gradient=getattr(self.network, "public_gradient", None),
        )
        fingerprint = "" if self.checkpoint is None else f"{self!r} {digest(rows, owners)}"
        training.run(
            steps=self.steps,
            learning_rate=self.learning_rate,
            seed=self.seed,
            checkpoint=self.checkpoint,
            fingerprint=fingerprint,
        )
        return {
            f"{number}/{name}": tensor.detach().numpy().copy()
            for number, module in enumerate(modules)
            for name, tensor in module.state_dict().items()
        }

    def _opened(self, private: Private) -> tuple[np.ndarray, np.ndarray]:
        table: np.ndarray = private.open()
        if table.ndim != 2 or table.shape[1] != self.n_columns + 2 or table.dtype.kind not in "fiu":
            raise ValueError(
                f"rows must be {self.n_columns} numbers, a network and 1, got shape {table.shape}"
            )
        if not np.isfinite(table).all():
            raise ValueError("rows must be finite: some numbers are missing or infinite")
        owners, shares = table[:, -2].astype(np.int64), table[:, -1]
        if not ((owners >= 0) & (owners < len(self.expected_rows)) & (shares == 1)).all():
            raise ValueError(f"rows must end with a network from 0 to {len(self.expected_rows) - 1}, and 1")
        return table[:, :-2], owners


class Kind:
    """A kind of network, whose modules have their own losses, and need no first weights."""

    __slots__ = ()

    def new(self, seed: int) -> Any:
        """A new network; where it has no seed of its own, from torch's generator."""
        raise NotImplementedError

    def modules(self, n_networks: int, *, seed: int) -> list[torch.nn.Module]:
        """New networks, from the seed."""
        import torch  # noqa: PLC0415  (an extra, slow to import)

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return [self.new(seed + number) for number in range(n_networks)]

    def losses(self, module: Any, rows: torch.Tensor) -> torch.Tensor:
        """The loss of each row: its negative evidence bound, its free energy, or that of calling it real."""
        return module.losses(rows)  # type: ignore[no-any-return]

    def start(self, module: Any, centre: np.ndarray) -> None:
        """Do nothing: rows carry the logits of their centre, or images are generated from noise alone."""

    def starts(self, centres: np.ndarray) -> np.ndarray:
        """What a module goes on from, for each row of centres."""
        return np.asarray(np.clip(centres, 0.0, 1.0))

    def sampled(self, module: Any, centres: np.ndarray, *, seed: int) -> np.ndarray:
        """Means of new rows, one for each row of centres."""
        import torch  # noqa: PLC0415

        rows = module.sampled(
            torch.from_numpy(self.starts(centres).astype(np.float32)),
            generator=torch.Generator().manual_seed(seed),
        )
        return np.asarray(rows.numpy(), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class VAE(Kind):
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

    def new(self, seed: int) -> Any:  # noqa: ARG002
        """A new autoencoder."""
        from ostraka.nets.generative import Autoencoder  # noqa: PLC0415

        return Autoencoder(self.n_features, hidden=self.hidden, latent=self.latent)

    def starts(self, centres: np.ndarray) -> np.ndarray:
        """Logits of centres."""
        return logits_of(centres)


@dataclass(frozen=True, slots=True, kw_only=True)
class RBM(Kind):
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

    def new(self, seed: int) -> Any:
        """A new machine, with a generator of its own."""
        from ostraka.nets.generative import BoltzmannMachine  # noqa: PLC0415

        return BoltzmannMachine(self.n_features, hidden=self.hidden, chains=self.chains, seed=seed)

    def public_gradient(self, module: Any) -> dict[str, torch.Tensor]:
        """Gradient of the model's part of the loss, from its chains."""
        return module.public_gradient()  # type: ignore[no-any-return]

    def start(self, module: Any, centre: np.ndarray) -> None:
        """Biases and chains from the centre."""
        import torch  # noqa: PLC0415

        module.start(torch.from_numpy(np.clip(centre, 0.0, 1.0).astype(np.float32)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DCGAN(Kind):
    """A GAN of convolutions for square images, grey or RGB, as flat rows from 0 to 1, channels first.

    Only its discriminator sees rows, and normalises each alone where a DCGAN has batch normalisation, which
    no clipping bounds. Its generator follows from the discriminator's noisy weights: no price.

    Parameters
    ----------
    n_features : int >= 1
        Such as 784 or 3072: square images whose side is 6 or more.
    width : int >= 1
        Channels of the outermost convolution.
    n_noise : int >= 1
        Random inputs of the generator.

    Examples
    --------
    >>> DCGAN(n_features=784)
    DCGAN(n_features=784, width=16, n_noise=64)
    """

    n_features: int
    width: int = 16
    n_noise: int = 64

    def __post_init__(self) -> None:
        check.integer(least=1, n_features=self.n_features, width=self.width, n_noise=self.n_noise)
        from ostraka.nets.generative import sides, square  # noqa: PLC0415  (needs torch)

        try:
            sides(square(self.n_features))
        except ValueError as error:
            raise ValueError(
                "n_features must be the numbers of square images, grey or RGB, whose side is 6 or more, got "
                f"{self.n_features}: resize them, or type generator='vae'"
            ) from error

    def new(self, seed: int) -> Any:  # noqa: ARG002
        """A new pair of networks."""
        from ostraka.nets.generative import ImageRivals  # noqa: PLC0415

        return ImageRivals(self.n_features, width=self.width, n_noise=self.n_noise)

    def public_gradient(self, module: Any) -> dict[str, torch.Tensor]:
        """Gradient of generated rows' part of the loss, and the generator's own."""
        return module.public_gradient()  # type: ignore[no-any-return]


def logits_of(means: np.ndarray) -> np.ndarray:
    """Logits of means, which are kept away from 0 and 1."""
    inside = np.clip(means, 0.02, 0.98)
    return np.asarray(np.log(inside / (1 - inside)))

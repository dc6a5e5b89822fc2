"""Architectures: small classifiers of flat rows, and networks that generate rows.

In classifiers of images the first layer restores the image shape. Generators are a variational autoencoder, a
restricted Boltzmann machine, an adversarial pair (a classifier with a class for generated rows beside a
generator), and the layers of a DCGAN and of a BEGAN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear, softplus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SMALLEST, _LARGEST = 3, 7  # side of the images in the innermost layer of a DCGAN, which may halve once more
_INNER = 8  # and of a BEGAN
_GENERATED = 64  # rows in a step of private training
_LEAST_SPREAD = 1e-3  # standard deviation of a unit whose output is constant
Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # real rows, answered rows, their classes


def perceptron(n_features: int, n_classes: int, *, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    return _layers([n_features, *hidden, n_classes])


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
        unchanged = before == after and stride == 1
        self.shortcut = None if unchanged else nn.Conv2d(before, after, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        entered = self.enter(x)
        shortcut = x if self.shortcut is None else self.shortcut(entered)
        out: torch.Tensor = shortcut + self.through(entered)
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


class Autoencoder(nn.Module):
    """A variational autoencoder whose decoder adds to logits that come with each row."""

    def __init__(self, n_features: int, *, hidden: Sequence[int], latent: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_features, self.latent = n_features, latent
        self.encoder = _layers([n_features, *hidden, 2 * latent])
        if dropout:
            self.encoder.insert(len(self.encoder) - 1, nn.Dropout(dropout))
        self.decoder = _layers([latent, *reversed(hidden), n_features])
        last = cast("nn.Linear", self.decoder[-1])
        with torch.no_grad():  # rows are drawn from the given logits until training has changed something
            last.weight.mul_(0.1)
            last.bias.zero_()

    def losses(self, inputs: torch.Tensor) -> torch.Tensor:
        """Negative evidence bound of each row; its logits stand behind it.

        A draw of the latent law while the module trains, its mean otherwise.
        """
        rows, logits = inputs[:, : self.n_features], inputs[:, self.n_features :]
        middle, spread = self.encoder(rows).chunk(2, dim=1)
        spread = spread.clamp(-8.0, 8.0)
        latent = middle + torch.randn_like(middle) * torch.exp(spread / 2) if self.training else middle
        decoded = self.decoder(latent) + logits
        wrong: torch.Tensor = (softplus(decoded) - rows * decoded).sum(dim=1)
        apart: torch.Tensor = (middle.square() + spread.exp() - 1 - spread).sum(dim=1) / 2
        return wrong + apart

    def sampled(self, logits: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
        """Means of rows, one for each row of logits."""
        with torch.no_grad():
            latent = torch.randn((len(logits), self.latent), generator=generator)
            return torch.sigmoid(self.decoder(latent) + logits)


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

    def losses(self, inputs: torch.Tensor) -> torch.Tensor:
        """Free energy of each row."""
        rows = inputs[:, : self.n_features]
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

    def start(self, centre: torch.Tensor) -> None:
        """Biases of the rows from a public centre, and chains that begin there."""
        with torch.no_grad():
            self.own.weight.copy_(torch.logit(centre.clamp(0.02, 0.98))[None])
            self.chains.copy_(torch.bernoulli(centre.expand_as(self.chains), generator=self.generator))

    def sampled(self, means: torch.Tensor, *, generator: torch.Generator, steps: int = 20) -> torch.Tensor:
        """Means of rows after some steps of chains that begin at rows which are drawn from ``means``."""
        self.generator = generator
        with torch.no_grad():
            rows = torch.bernoulli(means, generator=generator)
            for _ in range(steps):
                rows = self._step(rows)
            return self._means(rows)

    def _step(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.bernoulli(self._means(rows), generator=self.generator)

    def _means(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.bernoulli(torch.sigmoid(self.up(rows)), generator=self.generator)
        return torch.sigmoid(hidden @ self.up.weight + self.own.weight[0])


def _layers(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def halvings(side: int, *, until: int) -> tuple[int, int]:
    """How often a side is halved until it is odd or at most ``until``, and the side after that."""
    n = 0
    while side % 2 == 0 and side > until:
        side, n = side // 2, n + 1
    return n, side


def sides(shape: tuple[int, int, int]) -> tuple[int, ...]:
    """Sides of the images in the layers of a DCGAN: halved, odd ones rounded down, until 4 or an odd 5 or 7.

    Examples
    --------
    >>> sides((3, 32, 32)), sides((1, 28, 28)), sides((1, 25, 25))
    ((32, 16, 8, 4), (28, 14, 7), (25, 12, 6, 3))
    """
    if shape[1] < 2 * _SMALLEST:
        raise ValueError(
            f"images of {shape[1]} x {shape[2]} cannot be halved to a side of {_SMALLEST}: "
            "resize them, for example to 32 x 32"
        )
    halved = [shape[1]]
    while len(halved) == 1 or halved[-1] > _LARGEST or (halved[-1] % 2 == 0 and halved[-1] > _SMALLEST + 1):
        halved.append(halved[-1] // 2)
    return tuple(halved)


def convolutions(
    shape: tuple[int, int, int], n_out: int, *, width: int, dropout: float = 0.0, norm: str | None = "batch"
) -> nn.Sequential:
    """Strided convolutions of flat rows in [0, 1] to ``n_out`` numbers: a DCGAN's discriminator.

    Radford et al. 2016, arXiv:1511.06434, section 3: convolutions of 4 x 4 with stride two, each with twice
    the channels of the last, leaky ReLU, normalisation of all but the first.

    Parameters
    ----------
    shape : tuple of int
        (channels, side, side), of a side of 6 or more: see :func:`sides`.
    n_out : int
    width : int
        Channels of the first convolution.
    dropout : float
    norm : {"batch", "row"} or None
        "row" normalises each row alone and has no weights: for training with private gradients.

    Raises
    ------
    ValueError
        A side below 6.
    """
    halved = sides(shape)
    widths = [shape[0], *(width * 2**number for number in range(len(halved) - 1))]
    layers: list[nn.Module] = [Stretched(), nn.Unflatten(1, shape)]
    for number, (before, after) in enumerate(pairwise(widths)):
        layers.append(nn.Conv2d(before, after, 4, stride=2, padding=1, bias=number == 0 or norm != "batch"))
        if number:
            layers += _norms(norm, after)
        layers += [nn.LeakyReLU(0.2), nn.Dropout(dropout)]
    layers += [nn.Conv2d(widths[-1], n_out, halved[-1]), nn.Flatten()]
    return _drawn(nn.Sequential(*layers))


def deconvolutions(
    n_noise: int, shape: tuple[int, int, int], *, width: int, norm: str = "batch"
) -> nn.Sequential:
    """Noise to flat rows in [0, 1] by transposed convolutions: a DCGAN's generator.

    Parameters and errors as of :func:`convolutions`, which it mirrors; ``width`` are the channels of its last
    hidden layer.
    """
    halved = sides(shape)
    widths = [width * 2**number for number in reversed(range(len(halved) - 1))]
    layers: list[nn.Module] = [
        nn.Unflatten(1, (n_noise, 1, 1)),
        nn.ConvTranspose2d(n_noise, widths[0], halved[-1], bias=False),
        *_norms(norm, widths[0]),
        nn.ReLU(),
    ]
    odd = [side % 2 for side in halved[-2::-1]]  # one pixel more than twice as many
    for (before, after), more in zip(pairwise(widths), odd, strict=False):
        layers += [
            nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, output_padding=more, bias=False),
            *_norms(norm, after),
            nn.ReLU(),
        ]
    layers += [
        nn.ConvTranspose2d(widths[-1], shape[0], 4, stride=2, padding=1, output_padding=odd[-1]),
        nn.Tanh(),
        nn.Flatten(),
        Shrunk(),
    ]
    return _drawn(nn.Sequential(*layers))


class ImageRivals(nn.Module):
    """A DCGAN whose discriminator normalises each row alone. Only it learns from rows.

    Its losses give the part of the gradient due to real rows. The part of generated rows, and the generator's
    own gradient, are functions of noisy weights: they are public.
    """

    def __init__(self, n_features: int, *, width: int, n_noise: int) -> None:
        super().__init__()
        shape = square(n_features)
        self.n_features, self.n_noise = n_features, n_noise
        self.generator = deconvolutions(n_noise, shape, width=width, norm="row").requires_grad_(False)
        self.discriminator = convolutions(shape, 1, width=width, norm="row")

    def losses(self, inputs: torch.Tensor) -> torch.Tensor:
        """The loss of calling each row real; what stands behind the row is not used."""
        logits: torch.Tensor = self.discriminator(inputs[:, : self.n_features])
        return softplus(-logits[:, 0])

    def public_gradient(self) -> dict[str, torch.Tensor]:
        """Gradients of calling generated rows so, and of fooling the discriminator."""
        parts = {"discriminator": self.discriminator, "generator": self.generator.requires_grad_()}
        logits = self.discriminator(self.generator(torch.randn(_GENERATED, self.n_noise)))
        losses = {"discriminator": softplus(logits).mean(), "generator": softplus(-logits).mean()}
        gradients = {
            f"{part}.{name}": gradient
            for part, module in parts.items()
            for (name, _), gradient in zip(
                module.named_parameters(),
                torch.autograd.grad(losses[part], list(module.parameters()), retain_graph=True),
                strict=True,
            )
        }
        self.generator.requires_grad_(requires_grad=False)
        return gradients

    def sampled(self, centres: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
        """New rows, as many as there are centres."""
        with torch.no_grad():
            noise = torch.randn((len(centres), self.n_noise), generator=generator)
            rows: torch.Tensor = self.generator(noise)
            return rows


class Stretched(nn.Module):
    """From [0, 1] to [-1, 1]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x - 1


class Shrunk(nn.Module):
    """From [-1, 1] to [0, 1]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1) / 2


def _norms(norm: str | None, channels: int) -> list[nn.Module]:
    if norm is None:
        return []
    return [nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(1, channels, affine=False)]


def _drawn(module: nn.Sequential) -> nn.Sequential:
    """Weights of standard deviation 0.02, around 1 in batch normalisation, and biases of 0."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
            nn.init.normal_(part.weight, float(isinstance(part, nn.BatchNorm2d)), 0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module


def downsampling(shape: tuple[int, int, int], n_out: int, *, width: int) -> nn.Sequential:
    """The encoder of a BEGAN: convolutions of 3 x 3 with ELU, ``width`` more channels after each halving.

    Source: Berthelot et al. 2017, arXiv:1703.10717, figure 1.
    """
    n, inner = halvings(shape[1], until=_INNER)
    layers: list[nn.Module] = [Stretched(), nn.Unflatten(1, shape), *_elu(shape[0], width)]
    for number in range(1, n + 1):
        layers += [
            *_elu(number * width, number * width),
            *_elu(number * width, (number + 1) * width, stride=2),
        ]
    last = (n + 1) * width
    layers += [*_elu(last, last), *_elu(last, last), nn.Flatten(), nn.Linear(last * inner**2, n_out)]
    return nn.Sequential(*layers)


def upsampling(n_noise: int, shape: tuple[int, int, int], *, width: int) -> nn.Sequential:
    """The generator of a BEGAN, and its decoder: the side is doubled by repeating pixels."""
    n, inner = halvings(shape[1], until=_INNER)
    layers: list[nn.Module] = [nn.Linear(n_noise, width * inner**2), nn.Unflatten(1, (width, inner, inner))]
    for number in range(n + 1):
        layers += [*_elu(width, width), *_elu(width, width)]
        if number < n:
            layers.append(nn.Upsample(scale_factor=2))
    return nn.Sequential(*layers, nn.Conv2d(width, shape[0], 3, padding=1), nn.Flatten(), Shrunk())


def _elu(before: int, after: int, *, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, stride=stride, padding=1), nn.ELU()]


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
        self.layers = nn.ModuleList(Normed(before, after) for before, after in pairwise(widths))
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
    for before, after in pairwise(widths):
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
        values = features(self.classifier, torch.cat([real, self._generated(real)]))
        return mismatch(values[: len(real)], values[len(real) :])

    def _generated(self, real: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(real), self.n_noise, device=real.device)
        rows: torch.Tensor = self.generator(noise)
        return rows


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
    inputs: list[torch.Tensor] = []
    handle = linear[-1].register_forward_pre_hook(lambda _layer, arguments: inputs.append(arguments[0]))
    try:
        module(x)
    finally:
        handle.remove()
    return inputs[-1]

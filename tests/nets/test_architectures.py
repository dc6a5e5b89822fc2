"""The layers of every network, and what it answers with the weights of a seed: saved weights need both.

Where they change, weights of before no longer load. Other tests hold the layers to those of the papers.
"""

import math
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

from ostraka.nets import adversarial, generative  # noqa: E402  (needs torch)
from tests.golden import blocks  # noqa: E402

RECORD = Path(blocks.__file__).with_name("architectures.txt")
GREY, COLOUR = (1, 8, 8), (3, 12, 12)
SETTINGS = adversarial.Settings(1, 4, 1e-3, 5, 6, 0.25, normed=False, device="cpu")


def networks():
    """Each network by what made it, and the number of its inputs."""
    nets = generative
    wide = {"shape": (1, 5, 7)}
    return {
        "perceptron": (nets.perceptron(8, 3), 8),
        "perceptron, 6 and 5": (nets.perceptron(8, 3, hidden=(6, 5)), 8),
        "convolutional": (nets.convolutional(64, 3), 64),
        "convolutional, 5 x 7": (nets.convolutional(35, 3, width=2, **wide), 35),
        "strided": (nets.strided(3 * 64, 3), 3 * 64),
        "strided, 5 x 7": (nets.strided(35, 3, width=2, **wide), 35),
        "wide-resnet": (nets.wide_resnet(64, 3), 64),
        "wide-resnet, 16, twice as wide": (nets.wide_resnet(35, 3, depth=16, widen=2, **wide), 35),
        "noisy perceptron": (nets.NoisyPerceptron(8, 3, hidden=(6, 5)), 8),
        "generator": (nets.generator(5, 8, hidden=(6, 4), unit=False), 5),
        "generator of shares": (nets.generator(5, 8, hidden=(6,), unit=True), 5),
        "convolutions": (nets.convolutions(COLOUR, 2, width=4, dropout=0.25), math.prod(COLOUR)),
        "convolutions, by row": (nets.convolutions(GREY, 1, width=4, norm="row"), 64),
        "convolutions, plain": (nets.convolutions((1, 25, 25), 1, width=4, norm=None), 625),
        "deconvolutions": (nets.deconvolutions(5, COLOUR, width=4), 5),
        "deconvolutions, by row, 25 x 25": (nets.deconvolutions(5, (1, 25, 25), width=4, norm="row"), 5),
        "downsampling": (nets.downsampling((3, 16, 16), 5, width=2), 3 * 16 * 16),
        "upsampling": (nets.upsampling(5, (3, 16, 16), width=2), 5),
        "encoder of a VAE": (nets.Autoencoder(8, hidden=(6, 5), latent=2, dropout=0.25).encoder, 8),
        "decoder of a VAE": (nets.Autoencoder(8, hidden=(6, 5), latent=2).decoder, 2),
        "rivals": (adversarial.Rivals(8, SETTINGS, None).discriminator, 8),
        "their generator": (adversarial.Rivals(8, SETTINGS, None).generator, 5),
        "rivals of images": (adversarial.Rivals(64, SETTINGS, GREY).discriminator, 64),
        "their encoder": (adversarial.VariationalRivals(64, SETTINGS, GREY).encoder, 64),
        "rivals in equilibrium": (adversarial.Equilibrium(SETTINGS, GREY).discriminator, 64),
        "rivals, normalised": (
            adversarial.Rivals(64, SETTINGS._replace(normed=True), GREY).discriminator, 64
        ),
        "private rivals": (nets.ImageRivals(64, width=4, n_noise=5).discriminator, 64),
    }  # fmt: skip


def record():
    """Layers and answers as text."""
    torch.manual_seed(0)
    texts = []
    for name, (module, n_inputs) in networks().items():
        rows = torch.linspace(0, 1, 4 * n_inputs).reshape(n_inputs, 4).T.contiguous()
        answers = []
        for training in (True, False):  # first with the batch's own means, by which layers also begin
            torch.manual_seed(1)
            with torch.no_grad():
                answers.append(module.train(training)(rows))
        layers = [type(part).__name__ for part in module.modules() if not list(part.children())]
        shapes = [f"{k} {'x'.join(map(str, v.shape))}".strip() for k, v in module.state_dict().items()]
        # roots of mean squares, to three digits: more differ between processors
        answer = [f"{float(answer.double().square().mean().sqrt()):.3g}" for answer in answers]
        parts = (" ".join(layers), ", ".join(shapes), f"answers: {answer[0]} in training, then {answer[1]}")
        lines = [line for part in parts for line in textwrap.wrap(part, 100)]
        texts.append("\n    ".join([name, *lines]) + "\n")
    return "\n".join(texts)


def test_layers_and_answers_are_those_that_saved_weights_need():
    blocks.hold(RECORD, "all networks", record())

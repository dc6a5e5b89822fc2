"""What is made of noisy labels: the comparison that Malek et al. 2021 (arXiv:2106.03408) promise.

``python -m reproduce malek2021_posteriors [DATA ...] [--seeds=N] [--out=FILE]``. Each label is released as a
one-hot row with noise. A network learns from it in one of these ways:

- Laplace, Bayes: the posterior under Laplace noise with the network's prediction as the prior (ALIBI);
- Gaussian, Bayes: the same under Gaussian noise, softmax(o / sigma² + log prior), at delta 1e-5;
- Gaussian, as the authors' code: softmax(o / sigma + log prior);
- min-max, softmax, simplex: targets that know nothing of the noise. The row is scaled to [0, 1] and then to
  sum 1; or its softmax; or its projection to the probability simplex. The noise is Laplace.

Digits, Fashion-MNIST and 5,000 images of CIFAR-10 in random patches; a perceptron of 256 units. Noise is
seeded: a simulation.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from ostraka import Adjacency, Private
from ostraka.accounting import calibrate
from ostraka.learn.students.labels import posterior
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace
from ostraka.nets.generative import perceptron
from ostraka.networks import TorchClassifier
from reproduce.malek2021 import Images, cifar, fashion

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA, SEEDS, N_CLASSES = 1e-5, 2, 10
N_PATCHES, PATCH = 200, 6
STEPS = {1.0: 300, 2.0: 600, 4.0: 1200, 8.0: 1200}  # fewer where there is more noise to learn by heart
QUICK = {"EPSILONS": (4.0,), "STEPS": {4.0: 30}}
QUICK_ARGUMENTS = ["digits", "--seeds=1"]


def digits() -> Images:
    """1,437 of scikit-learn's digits to learn from, and 360."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = (X[order] / 16).astype(np.float32), y[order]
    return Images(X[:1437], y[:1437], X[1437:], y[1437:])


@cache
def patches() -> Images:
    """CIFAR-10 by responses to random whitened patches of its own images, which are public, in four quarters.

    Source: Coates and Ng 2012, doi:10.1007/978-3-642-35289-8_30 (random patches as filters).
    """
    images = cifar()
    rng = np.random.default_rng(0)
    pixels = [torch.as_tensor(X.reshape(-1, 3, 32, 32)) for X in (images.X, images.X_test)]
    corners = rng.integers(32 - PATCH, size=(20_000, 2))
    chosen = rng.integers(len(pixels[0]), size=20_000)
    patch_sample = np.stack(
        [
            pixels[0][image, :, down : down + PATCH, right : right + PATCH].numpy().ravel()
            for image, (down, right) in zip(chosen, corners, strict=True)
        ]
    )
    values, axes = np.linalg.eigh(
        np.cov(patch_sample - patch_sample.mean(axis=1, keepdims=True), rowvar=False)
    )
    whitening = axes / np.sqrt(values + 0.01) @ axes.T
    filters = (patch_sample[:N_PATCHES] - patch_sample[:N_PATCHES].mean(axis=1, keepdims=True)) @ whitening
    filters /= np.linalg.norm(filters, axis=1, keepdims=True)
    kernel = filters @ whitening
    kernel -= kernel.mean(axis=1, keepdims=True)
    weight = torch.as_tensor(kernel.reshape(N_PATCHES, 3, PATCH, PATCH), dtype=torch.float32)
    feature_parts = []
    for X in pixels:
        parts = []
        for batch in X.split(250):
            responses = nn.functional.conv2d(batch, weight)
            rectified = torch.cat([responses.clamp(min=0), (-responses).clamp(min=0)], dim=1)
            parts.append(nn.functional.adaptive_avg_pool2d(rectified, 2).flatten(1))
        feature_parts.append(torch.cat(parts).numpy())
    middle, spread = feature_parts[0].mean(axis=0), feature_parts[0].std(axis=0)
    private_features, new = ((part_features - middle) / spread for part_features in feature_parts)
    return Images(private_features, images.y, new, images.y_test)


DATA: dict[str, Callable[[], Images]] = {"digits": digits, "fashion": fashion, "cifar": patches}


def to_simplex(rows: np.ndarray) -> np.ndarray:
    """The nearest probabilities to each row (Wang and Carreira-Perpiñán 2013, arXiv:1309.1541)."""
    high = -np.sort(-rows, axis=1)
    above = (np.cumsum(high, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (high > above).sum(axis=1, keepdims=True) - 1
    return np.asarray(np.maximum(rows - np.take_along_axis(above, last, axis=1), 0))


def scaled(rows: np.ndarray) -> np.ndarray:
    """Each row from 0 to 1, then to sum 1."""
    low = rows - rows.min(axis=1, keepdims=True)
    return np.asarray(low / low.sum(axis=1, keepdims=True))


def softmax(rows: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.as_tensor(rows), dim=1).numpy()


def bayes(log_likelihoods: np.ndarray) -> Loss:
    """Cross entropy of the posterior under the network's own prediction."""
    likely = torch.as_tensor(log_likelihoods, dtype=torch.float32)
    return lambda logits, rows: nn.functional.cross_entropy(logits, posterior(likely[rows], logits))


def fixed(targets: np.ndarray) -> Loss:
    """Cross entropy of targets that do not change."""
    wanted = torch.as_tensor(targets, dtype=torch.float32)
    return lambda logits, rows: nn.functional.cross_entropy(logits, wanted[rows])


def ways(y: np.ndarray, epsilon: float, seed: int) -> dict[str, Loss]:
    """The loss of each way, from one release with either noise."""
    labels = Private(y, Adjacency.one_label())
    laplace = OneHotLaplace(n_classes=N_CLASSES, scale=2 / epsilon)
    sigma = calibrate(
        lambda sigma: OneHotGaussian(n_classes=N_CLASSES, sigma=sigma),
        n_answers=1,
        epsilon=epsilon,
        delta=DELTA,
    )
    gaussian = OneHotGaussian(n_classes=N_CLASSES, sigma=sigma)
    flat, round_ = (
        mechanism.release(labels, rng=np.random.default_rng(seed)) for mechanism in (laplace, gaussian)
    )
    return {
        "Laplace, Bayes": bayes(laplace.log_likelihood(flat)),
        "Gaussian, Bayes": bayes(gaussian.log_likelihood(round_)),
        "Gaussian, as the authors' code": bayes(round_ / sigma),
        "min-max": fixed(scaled(flat)),
        "softmax": fixed(softmax(flat)),
        "simplex": fixed(to_simplex(flat)),
    }


def accuracy(data: Images, loss: Loss, *, steps: int, seed: int) -> float:
    """One training, and its share of new rows that are right."""
    size = min(1024, len(data.y) // 10)
    network = TorchClassifier(
        partial(perceptron, hidden=(256,)),
        epochs=max(1, steps // (len(data.y) // size)),
        batch_size=size,
        learning_rate=4e-3,
        schedule="cosine",
        n_threads=1,
        random_state=seed,
    )
    network.classes_, network.n_features_in_ = np.arange(N_CLASSES), data.X.shape[1]
    network.minimise(data.X, loss, name="posteriors")
    return float((network.predict(data.X_test) == data.y_test).mean())


def main(arguments: list[str] | None = None) -> None:
    """A table for each data set, in percent."""
    options = argparse.ArgumentParser(prog="python -m reproduce malek2021_posteriors", description=__doc__)
    options.add_argument("data", nargs="*", help=f"of {', '.join(DATA)}; all, if none is named")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args(arguments or [])
    record: dict[str, dict[str, list[float]]] = {}
    for name in chosen.data or DATA:
        data, shares = DATA[name](), dict[str, dict[float, list[float]]]()
        for epsilon in EPSILONS:
            for seed in range(chosen.seeds):
                for method, loss in ways(data.y, epsilon, seed).items():
                    right = accuracy(data, loss, steps=STEPS[epsilon], seed=seed)
                    shares.setdefault(method, {}).setdefault(epsilon, []).append(100 * right)
        print(f"\n| {name} | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |")
        print("|---|" + "---|" * len(EPSILONS))
        for method, cells in shares.items():
            print(
                f"| {method} | "
                + " | ".join(f"{np.mean(accuracies):.1f}" for accuracies in cells.values())
                + " |"
            )
        clean = accuracy(data, fixed(np.eye(N_CLASSES)[data.y]), steps=max(STEPS.values()), seed=0)
        print(f"| true labels | {100 * clean:.1f} |" + " |" * (len(EPSILONS) - 1), flush=True)
        record[name] = {
            way: [float(np.mean(accuracies)) for accuracies in cells.values()]
            for way, cells in shares.items()
        }
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

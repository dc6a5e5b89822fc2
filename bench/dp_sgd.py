"""The rival DP-SGD, by Opacus, on Adult, MNIST and Fashion-MNIST at epsilon 0.5, 1, 2 and 4.

Opacus and kymatio have an environment of their own (docs/when-not.md names the commands). The rows are those
of ``python -m bench.utility adult mnist``: the same private rows, the same new rows to score on, the same
bins of the public rows. Images are read by a scattering transform, which is fixed, and scaled by the public
images: the strongest way known at small epsilon (Tramèr and Boneh 2021, arXiv:2011.11660). On the features of
noisy counts DP-SGD runs in ``bench fashion`` and ``bench text``. Every learning rate is tried at every
epsilon, and the best **on the reported rows** is printed, which favours the rival. Trials are not charged.
Neighbours of Opacus add or remove a row; ours replace one, which is the stronger promise at the same epsilon.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import _data
from bench.utility import adult_deal, images, said

if TYPE_CHECKING:
    from collections.abc import Sequence

EPSILONS = (0.5, 1.0, 2.0, 4.0)
DELTA = 1e-5
_OF_IMAGES = ("mnist", "fashion_mnist")
SEEDS = {"adult": 3, "mnist": 1, "fashion_mnist": 1}
RATES: dict[str, tuple[float, ...]] = {
    "adult": (0.5, 2.0, 8.0),
    "mnist": (1.0, 4.0),
    "fashion_mnist": (1.0, 4.0, 8.0),
}
EPOCHS = {
    "adult": 10,
    "digits": 30,
    "trec": 20,
    "diabetes": 8,
    "same-features": 12,
    "text": 12,
    **dict.fromkeys(_OF_IMAGES, 12),
}
BATCH = {
    "adult": 2048,
    "digits": 256,
    "trec": 1024,
    "diabetes": 4096,
    "same-features": 4096,
    "text": 4096,
    **dict.fromkeys(_OF_IMAGES, 4096),
}
CLIP = {**dict.fromkeys(EPOCHS, 1.0), **dict.fromkeys(_OF_IMAGES, 0.1)}
NAMES: tuple[str, ...] = ("adult", *_OF_IMAGES)
QUICK = {"EPSILONS": (4.0,), "NAMES": ("adult",), "RATES": {"adult": (2.0,)}, "EPOCHS": {"adult": 1}}


def private_fit(
    network: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    epsilon: float,
    rate: float,
    name: str,
    seed: int,
    delta: float = DELTA,
    clip: float | None = None,
) -> float:
    """Train a network by DP-SGD at a target epsilon, and return the epsilon that Opacus states."""
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    rows = torch.utils.data.TensorDataset(torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y))
    engine = PrivacyEngine()
    network, step, criterion, loader = engine.make_private_with_epsilon(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9),
        data_loader=torch.utils.data.DataLoader(rows, batch_size=min(BATCH[name], len(y))),
        criterion=torch.nn.CrossEntropyLoss(),
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=EPOCHS[name],
        max_grad_norm=CLIP[name] if clip is None else clip,
        grad_sample_mode="ghost",
    )
    for _ in range(EPOCHS[name]):
        for batch, labels in loader:
            step.zero_grad()
            criterion(network(batch), labels).backward()
            step.step()
    return float(engine.get_epsilon(delta))


def accuracy(network: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Share of rows whose class the network says."""
    import torch

    with torch.no_grad():
        predictions = network(torch.as_tensor(X, dtype=torch.float32)).argmax(1).numpy()
    return float((predictions == y).mean())


def linear(n_features: int, n_classes: int) -> Any:
    """Logistic regression that starts at zero."""
    import torch

    network = torch.nn.Linear(n_features, n_classes)
    torch.nn.init.zeros_(network.weight)
    return network


def scattered(X: np.ndarray) -> np.ndarray:
    """The scattering transform of images: 81 channels of 7 x 7, as rows."""
    import torch
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    transform = ScatteringTorch2D(J=2, shape=(28, 28))
    parts = [
        transform(torch.as_tensor(part.reshape(-1, 28, 28), dtype=torch.float32)).numpy()
        for part in np.array_split(X, max(1, len(X) // 500))
    ]
    return np.concatenate(parts)


def image_deal(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The private images and the new ones, transformed and scaled by the public ones."""
    X, y, X_test, y_test = images(name)
    n_rows = _data.MOST_ROWS
    private, test = scattered(X[:n_rows]), scattered(X_test)
    mean = test[:9000].mean(axis=(0, 2, 3), keepdims=True)
    spread = test[:9000].std(axis=(0, 2, 3), keepdims=True)
    rows, new = (((pixels - mean) / spread).reshape(len(pixels), -1) for pixels in (private, test[9000:]))
    return rows, y[:n_rows], new, y_test[9000:]


def best(name: str, deals: Sequence[tuple[np.ndarray, ...]]) -> None:
    """At each epsilon, try every learning rate on every deal, and print the best mean accuracy."""
    for epsilon in EPSILONS:
        scores, start = {}, time.process_time()
        for rate in RATES[name]:
            accuracies = []
            for seed, (X, y, X_new, y_new) in enumerate(deals):
                network = linear(X.shape[1], int(y.max()) + 1)
                stated = private_fit(network, X, y, epsilon=epsilon, rate=rate, name=name, seed=seed)
                if not stated <= epsilon * 1.001:
                    raise ValueError(f"Opacus stated epsilon {stated}, asked for {epsilon}")
                accuracies.append(accuracy(network, X_new, y_new))
            scores[rate] = accuracies
            print(f"    epsilon {epsilon:g}, learning rate {rate:g}: {np.mean(accuracies):.4f}", flush=True)
        chosen = max(scores, key=lambda rate: float(np.mean(scores[rate])))
        said(f"Opacus, {name}", epsilon, scores[chosen], [time.process_time() - start])


def main() -> None:
    """Run the data sets of NAMES."""
    if "adult" in NAMES:
        best("adult", [adult_deal(seed) for seed in range(SEEDS["adult"])])
    for name in _OF_IMAGES:
        if name in NAMES:
            best(name, [image_deal(name)] * SEEDS[name])


if __name__ == "__main__":
    NAMES = tuple(sys.argv[1:]) or NAMES
    main()

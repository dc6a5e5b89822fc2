"""A torch network whose layers are affine between its ReLUs, as a perceptron of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import LabelBinarizer

if TYPE_CHECKING:
    from ostraka.networks import TorchClassifier

__all__ = ["perceptron"]


def perceptron(network: TorchClassifier, classes: np.ndarray) -> MLPClassifier:
    """Return the same classifier, with a dense matrix for each affine part: a convolution is one, too.

    Raises
    ------
    ValueError
        The network is no sequence of layers, or is not affine between its ReLUs.
    """
    import torch  # noqa: PLC0415  (there only where a network was trained)
    from torch import nn  # noqa: PLC0415

    affine = (nn.Unflatten, nn.Flatten, nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.Identity)
    module = network.module_
    layers = list(module) if isinstance(module, nn.Sequential) else []
    if not layers or not all(isinstance(layer, (*affine, nn.ReLU)) for layer in layers):
        raise ValueError(f"{type(module).__name__} is no scikit-learn model: keep the student as it is")
    parts: list[list[nn.Module]] = [[]]
    for layer in layers:
        if isinstance(layer, nn.ReLU):
            parts.append([])
        else:
            parts[-1].append(layer)
    shape: tuple[int, ...] = (network.n_features_in_,)
    weights, offsets = [], []
    for part in parts:
        run = nn.Sequential(*part).eval().cpu()
        size = int(np.prod(shape))
        with torch.inference_mode():
            zero = run(torch.zeros(1, *shape))
            units = [run(some.reshape(-1, *shape)) - zero for some in torch.split(torch.eye(size), 512)]
        weights.append(torch.cat(units).flatten(1).numpy())
        offsets.append(zero.flatten().numpy())
        shape = tuple(zero.shape[1:])
    return _made(weights, offsets, classes)


def _made(weights: list[np.ndarray], offsets: list[np.ndarray], classes: np.ndarray) -> MLPClassifier:
    """Return a fitted perceptron of these layers."""
    if len(classes) == 2:  # scikit-learn has one output there
        weights[-1] = weights[-1][:, 1:] - weights[-1][:, :1]
        offsets[-1] = offsets[-1][1:] - offsets[-1][:1]
    made = MLPClassifier(hidden_layer_sizes=tuple(len(offset) for offset in offsets[:-1]))
    made.coefs_, made.intercepts_, made.n_layers_ = weights, offsets, len(weights) + 1
    made.n_outputs_ = len(offsets[-1])
    made.out_activation_ = "logistic" if len(classes) == 2 else "softmax"
    made.classes_, made.n_features_in_ = classes, len(weights[0])
    made._label_binarizer = LabelBinarizer().fit(classes)  # noqa: SLF001  (as its own fit does)
    return made

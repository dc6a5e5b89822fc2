"""Compiled training of a perceptron: all steps in one call, on one core.

A perceptron is stored as a vector: for each layer the weights (n_in, n_out), then the biases. ReLU follows
every layer except the last.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numba as nb
import numpy as np

_FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered; NaN and infinity are kept
DIVERGED = 1e30  # a loss of at least this has diverged; the sum over a stack stays finite
_kernel = functools.partial(
    nb.njit, cache=True, nogil=True, fastmath=_FAST_MATH, error_model="numpy", no_cfunc_wrapper=True
)


class Examples(NamedTuple):
    """The rows that a network is trained on.

    Attributes
    ----------
    rows : float32 array, shape (n_rows, n_features)
    codes : int64 array, shape (n_rows,)
    row_weights : float32 array, shape (batch_size,)
        The weight of each row of a batch.
    absent : bool array, shape (n_classes,)
        Classes that the network cannot predict.
    """

    rows: np.ndarray
    codes: np.ndarray
    row_weights: np.ndarray
    absent: np.ndarray


class Perceptron(NamedTuple):
    """A network and the state of its optimizer.

    Attributes
    ----------
    widths : int64 array, shape (n_layers + 1,)
    weights : float32 array, shape (n_weights,)
    moments : float32 array, shape (2, n_weights)
    constants : (beta 1, beta 2, epsilon, decoupled weight decay)
    """

    widths: np.ndarray
    weights: np.ndarray
    moments: np.ndarray
    constants: tuple[float, float, float, float]


@_kernel()
def train(
    examples: Examples, network: Perceptron, batches: np.ndarray, rates: np.ndarray, done: int
) -> np.ndarray:
    """Minimise the cross-entropy with Adam, in place, until the last step or until the loss diverges.

    Parameters
    ----------
    batches : int64 array, shape (n_epochs, n_steps, batch_size)
        Row numbers.
    rates : float64 array, shape (n_epochs, n_steps)
    done : int
        Number of steps made before.

    Returns
    -------
    float64 array, shape (n_epochs,)
        The mean loss of each epoch; infinity from the epoch in which it diverges.
    """
    widths, weights, size = network.widths, network.weights, batches.shape[2]
    activations = np.empty(size * widths.sum(), dtype=np.float32)
    spare = np.empty(size * widths.max(), dtype=np.float32)
    gradient = np.empty_like(weights)
    losses = np.full(batches.shape[0], np.inf)
    for epoch in range(batches.shape[0]):
        total = 0.0
        for step in range(batches.shape[1]):
            numbers = batches[epoch, step]
            _gather(examples.rows, numbers, activations)
            _forward(widths, weights, activations, size)
            loss = _loss_and_gradient(examples, examples.row_weights, numbers, activations)
            if not loss < DIVERGED:
                return losses
            total += loss
            _backward(network, activations, spare, gradient, size)
            done += 1
            _adam(network, gradient, rates[epoch, step], done)
        losses[epoch] = total / batches.shape[1]
    return losses


@_kernel()
def held_out_loss(examples: Examples, network: Perceptron, numbers: np.ndarray) -> float:
    """Mean cross-entropy of the rows with these int64 numbers."""
    size = min(examples.row_weights.size, numbers.size)
    activations = np.empty(size * network.widths.sum(), dtype=np.float32)
    row_weights = np.full(size, 1 / numbers.size, dtype=np.float32)
    loss = 0.0
    for start in range(0, numbers.size, size):
        chunk = numbers[start : start + size]
        part = activations[: chunk.size * network.widths.sum()]
        _gather(examples.rows, chunk, part)
        _forward(network.widths, network.weights, part, chunk.size)
        loss += _loss_and_gradient(examples, row_weights, chunk, part)
    return loss


@_kernel()
def _gather(rows: np.ndarray, numbers: np.ndarray, activations: np.ndarray) -> None:
    width = rows.shape[1]
    for k in range(numbers.size):
        activations[k * width : (k + 1) * width] = rows[numbers[k]]


@_kernel()
def _forward(widths: np.ndarray, weights: np.ndarray, activations: np.ndarray, size: int) -> None:
    """Compute the layers' outputs, one after the other in ``activations``."""
    at, start = 0, 0
    for layer in range(widths.size - 1):
        n_in, n_out = widths[layer], widths[layer + 1]
        came = activations[start : start + size * n_in].reshape(size, n_in)
        start += size * n_in
        goes = activations[start : start + size * n_out].reshape(size, n_out)
        np.dot(came, weights[at : at + n_in * n_out].reshape(n_in, n_out), goes)
        at += n_in * n_out
        rectified = layer < widths.size - 2
        for k in range(size):
            for j in range(n_out):
                out = goes[k, j] + weights[at + j]
                goes[k, j] = np.float32(0) if rectified and out < 0 else out  # NaN is kept
        at += n_out


@_kernel()
def _loss_and_gradient(
    examples: Examples, row_weights: np.ndarray, numbers: np.ndarray, activations: np.ndarray
) -> float:
    """The loss. Its gradient overwrites the logits, which are the last activations."""
    absent, codes = examples.absent, examples.codes
    logits = activations[activations.size - numbers.size * absent.size :].reshape(numbers.size, absent.size)
    loss = 0.0
    for k in range(logits.shape[0]):
        top, mass = np.float32(-np.inf), np.float32(0)
        for j in range(absent.size):
            if not absent[j] and not logits[k, j] <= top:  # NaN becomes the top
                top = logits[k, j]
        code = codes[numbers[k]]
        below_top = top - logits[k, code]
        for j in range(absent.size):
            logits[k, j] = np.float32(0) if absent[j] else np.exp(logits[k, j] - top)
            mass += logits[k, j]
        loss += row_weights[k] * (below_top + np.log(mass))
        for j in range(absent.size):
            logits[k, j] *= row_weights[k] / mass
        logits[k, code] -= row_weights[k]
    return loss


@_kernel()
def _backward(
    network: Perceptron, activations: np.ndarray, spare: np.ndarray, gradient: np.ndarray, size: int
) -> None:
    """Gradient of the loss in every weight. The gradient in a layer's input overwrites that input."""
    widths, weights = network.widths, network.weights
    at, end = weights.size, activations.size
    for layer in range(widths.size - 2, -1, -1):
        n_in, n_out = widths[layer], widths[layer + 1]
        end -= size * n_out
        back = activations[end : end + size * n_out].reshape(size, n_out)
        came = activations[end - size * n_in : end].reshape(size, n_in)
        at -= n_out
        gradient[at : at + n_out] = 0
        for k in range(size):
            for j in range(n_out):
                gradient[at + j] += back[k, j]
        at -= n_in * n_out
        np.dot(came.T, back, gradient[at : at + n_in * n_out].reshape(n_in, n_out))
        if layer:
            reached = spare[: size * n_in].reshape(size, n_in)
            np.dot(back, weights[at : at + n_in * n_out].reshape(n_in, n_out).T, reached)
            for k in range(size):
                for i in range(n_in):
                    came[k, i] = reached[k, i] if came[k, i] > 0 else np.float32(0)


@_kernel()
def _adam(network: Perceptron, gradient: np.ndarray, rate: float, step: int) -> None:
    """A step of Adam (Kingma and Ba 2015, arXiv:1412.6980), decay decoupled (Loshchilov and Hutter 2019)."""
    weights, first, second = network.weights, network.moments[0], network.moments[1]
    beta_1, beta_2, epsilon, decay = network.constants
    slow, new = np.float32(beta_1), np.float32(1 - beta_1)
    slower, newer = np.float32(beta_2), np.float32(1 - beta_2)
    pace = np.float32(rate / (1 - beta_1**step))
    wide = np.float32(1 / math.sqrt(1 - beta_2**step))
    least, share = np.float32(epsilon), np.float32(1 - rate * decay)
    for i in range(weights.size):
        first[i] = slow * first[i] + new * gradient[i]
        second[i] = slower * second[i] + newer * gradient[i] * gradient[i]
        weights[i] = share * weights[i] - pace * first[i] / (np.sqrt(second[i]) * wide + least)

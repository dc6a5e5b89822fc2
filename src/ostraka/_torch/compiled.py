"""Compiled: a perceptron's steps, all of them in one call, in memory that one core keeps to itself.

A perceptron is a vector: of each layer the weights (n_in, n_out), then the biases. Between layers is ReLU.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numba as nb
import numpy as np

__all__ = ["DIVERGED", "Perceptron", "Rows", "held_out", "learn"]

_FREE = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered, NaN and infinity stay exact
DIVERGED = 1e30  # a loss from here on: the sum over a stack stays finite
_kernel = functools.partial(
    nb.njit, cache=True, nogil=True, fastmath=_FREE, error_model="numpy", no_cfunc_wrapper=True
)


class Rows(NamedTuple):
    """What a network learns from.

    Attributes
    ----------
    rows : float32 array, shape (n_rows, n_features)
    codes : int64 array, shape (n_rows,)
    shares : float32 array, shape (batch_size,)
        What each row of a batch weighs.
    absent : bool array, shape (n_classes,)
        Classes that the network knows nothing of.
    """

    rows: np.ndarray
    codes: np.ndarray
    shares: np.ndarray
    absent: np.ndarray


class Perceptron(NamedTuple):
    """A network and its optimizer.

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
def learn(given: Rows, network: Perceptron, batches: np.ndarray, rates: np.ndarray, done: int) -> np.ndarray:
    """Steps of Adam on the cross-entropy, in place, up to the first that diverges.

    Parameters
    ----------
    batches : int64 array, shape (n_epochs, n_steps, batch_size)
        Row numbers.
    rates : float64 array, shape (n_epochs, n_steps)
    done : int
        Steps before these.

    Returns
    -------
    float64 array, shape (n_epochs,)
        The mean loss of each epoch; infinity from where it diverges.
    """
    widths, weights, size = network.widths, network.weights, batches.shape[2]
    passed = np.empty(size * widths.sum(), dtype=np.float32)
    spare = np.empty(size * widths.max(), dtype=np.float32)
    slopes = np.empty_like(weights)
    losses = np.full(batches.shape[0], np.inf)
    for epoch in range(batches.shape[0]):
        total = 0.0
        for step in range(batches.shape[1]):
            numbers = batches[epoch, step]
            _gather(given.rows, numbers, passed)
            _forward(widths, weights, passed, size)
            loss = _turned(given, given.shares, numbers, passed)
            if not loss < DIVERGED:
                return losses
            total += loss
            _backward(network, passed, spare, slopes, size)
            done += 1
            _adam(network, slopes, rates[epoch, step], done)
        losses[epoch] = total / batches.shape[1]
    return losses


@_kernel()
def held_out(given: Rows, network: Perceptron, numbers: np.ndarray) -> float:
    """Mean cross-entropy of the rows of these numbers, int64."""
    size = min(given.shares.size, numbers.size)
    passed = np.empty(size * network.widths.sum(), dtype=np.float32)
    shares = np.full(size, 1 / numbers.size, dtype=np.float32)
    loss = 0.0
    for start in range(0, numbers.size, size):
        some = numbers[start : start + size]
        part = passed[: some.size * network.widths.sum()]
        _gather(given.rows, some, part)
        _forward(network.widths, network.weights, part, some.size)
        loss += _turned(given, shares, some, part)
    return loss


@_kernel()
def _gather(rows: np.ndarray, numbers: np.ndarray, passed: np.ndarray) -> None:
    width = rows.shape[1]
    for k in range(numbers.size):
        passed[k * width : (k + 1) * width] = rows[numbers[k]]


@_kernel()
def _forward(widths: np.ndarray, weights: np.ndarray, passed: np.ndarray, size: int) -> None:
    """What layers pass on, one behind the other in ``passed``."""
    at, here = 0, 0
    for layer in range(widths.size - 1):
        n_in, n_out = widths[layer], widths[layer + 1]
        came = passed[here : here + size * n_in].reshape(size, n_in)
        here += size * n_in
        goes = passed[here : here + size * n_out].reshape(size, n_out)
        np.dot(came, weights[at : at + n_in * n_out].reshape(n_in, n_out), goes)
        at += n_in * n_out
        rectified = layer < widths.size - 2
        for k in range(size):
            for j in range(n_out):
                out = goes[k, j] + weights[at + j]
                goes[k, j] = np.float32(0) if rectified and out < 0 else out  # NaN stays
        at += n_out


@_kernel()
def _turned(given: Rows, shares: np.ndarray, numbers: np.ndarray, passed: np.ndarray) -> float:
    """The loss; logits, the last of what was passed, become its slopes."""
    absent, codes = given.absent, given.codes
    logits = passed[passed.size - numbers.size * absent.size :].reshape(numbers.size, absent.size)
    loss = 0.0
    for k in range(logits.shape[0]):
        top, mass = np.float32(-np.inf), np.float32(0)
        for j in range(absent.size):
            if not absent[j] and not logits[k, j] <= top:  # NaN is the top
                top = logits[k, j]
        code = codes[numbers[k]]
        surprise = top - logits[k, code]
        for j in range(absent.size):
            logits[k, j] = np.float32(0) if absent[j] else np.exp(logits[k, j] - top)
            mass += logits[k, j]
        loss += shares[k] * (surprise + np.log(mass))
        for j in range(absent.size):
            logits[k, j] *= shares[k] / mass
        logits[k, code] -= shares[k]
    return loss


@_kernel()
def _backward(
    network: Perceptron, passed: np.ndarray, spare: np.ndarray, slopes: np.ndarray, size: int
) -> None:
    """Slopes of the loss in every weight; what came to a layer becomes the slopes in it."""
    widths, weights = network.widths, network.weights
    at, here = weights.size, passed.size
    for layer in range(widths.size - 2, -1, -1):
        n_in, n_out = widths[layer], widths[layer + 1]
        here -= size * n_out
        back = passed[here : here + size * n_out].reshape(size, n_out)
        came = passed[here - size * n_in : here].reshape(size, n_in)
        at -= n_out
        slopes[at : at + n_out] = 0
        for k in range(size):
            for j in range(n_out):
                slopes[at + j] += back[k, j]
        at -= n_in * n_out
        np.dot(came.T, back, slopes[at : at + n_in * n_out].reshape(n_in, n_out))
        if layer:
            reached = spare[: size * n_in].reshape(size, n_in)
            np.dot(back, weights[at : at + n_in * n_out].reshape(n_in, n_out).T, reached)
            for k in range(size):
                for i in range(n_in):
                    came[k, i] = reached[k, i] if came[k, i] > 0 else np.float32(0)


@_kernel()
def _adam(network: Perceptron, slopes: np.ndarray, rate: float, step: int) -> None:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980), decay decoupled (Loshchilov and Hutter 2019)."""
    weights, first, second = network.weights, network.moments[0], network.moments[1]
    beta_1, beta_2, epsilon, decay = network.constants
    slow, new = np.float32(beta_1), np.float32(1 - beta_1)
    slower, newer = np.float32(beta_2), np.float32(1 - beta_2)
    pace = np.float32(rate / (1 - beta_1**step))
    wide = np.float32(1 / math.sqrt(1 - beta_2**step))
    least, left = np.float32(epsilon), np.float32(1 - rate * decay)
    for i in range(weights.size):
        first[i] = slow * first[i] + new * slopes[i]
        second[i] = slower * second[i] + newer * slopes[i] * slopes[i]
        weights[i] = left * weights[i] - pace * first[i] / (np.sqrt(second[i]) * wide + least)

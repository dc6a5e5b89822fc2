"""Compiled: training of one perceptron, all its steps in a call, and its loss on other rows.

Both take these arguments:

rows : float32 array, shape (n_rows, n_features)
codes : int64 array, shape (n_rows,)
row_weights : float32 array, shape (batch_size,)
    The weight of each row of a batch.
absent : bool array, shape (n_classes,)
    Classes that the network cannot predict.
widths : int64 array, shape (n_layers + 1,)
    Features, units of each hidden layer, classes.
weights : float32 array, shape (n_weights,)
    For each layer the weights (n_in, n_out), then the biases. ReLU follows every layer except the last.

Sums are in the order in which they stand here: machine code of the wheel and numba's compute the same to the
last bit. Products of matrices are scipy's.
"""

from __future__ import annotations

import math

import numpy as np

from ostraka.core.compiled import kernel

DIVERGED = 1e30  # a loss of at least this has diverged; the sum over a stack stays finite


@kernel(
    "f4[:,::1], i8[::1], f4[::1], b1[::1], i8[::1], f4[::1], f4[:,::1], f8[::1], i8[:,:,::1], f8[:,::1], i8"
)
def train(rows, codes, row_weights, absent, widths, weights, moments, constants, batches, rates, done):
    """Minimise the cross-entropy with Adam, in place, until the last step or until the loss diverges.

    Parameters
    ----------
    moments : float32 array, shape (2, n_weights)
    constants : float64 array
        Beta 1, beta 2, epsilon, decoupled weight decay.
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
    size = batches.shape[2]
    activations = np.empty(size * widths.sum(), dtype=np.float32)
    spare = np.empty(size * widths.max(), dtype=np.float32)
    gradient = np.empty_like(weights)
    losses = np.full(batches.shape[0], np.inf)
    for epoch in range(batches.shape[0]):
        total = 0.0
        for step in range(batches.shape[1]):
            numbers = batches[epoch, step]
            _gather(rows, numbers, activations)
            _forward(widths, weights, activations, size)
            loss = _loss_and_gradient(codes, row_weights, absent, numbers, activations)
            if not loss < DIVERGED:
                return losses
            total += loss
            _backward(widths, weights, activations, spare, gradient, size)
            done += 1
            _adam(weights, moments, constants, gradient, rates[epoch, step], done)
        losses[epoch] = total / batches.shape[1]
    return losses


@kernel("f4[:,::1], i8[::1], f4[::1], b1[::1], i8[::1], f4[::1], i8[::1]")
def held_out_loss(rows, codes, row_weights, absent, widths, weights, numbers):
    """Mean cross-entropy of the rows with these int64 numbers, as many at a time as a batch has."""
    size = min(row_weights.size, numbers.size)
    activations = np.empty(size * widths.sum(), dtype=np.float32)
    equal = np.full(size, 1 / numbers.size, dtype=np.float32)
    loss = 0.0
    for start in range(0, numbers.size, size):
        chunk = numbers[start : start + size]
        part = activations[: chunk.size * widths.sum()]
        _gather(rows, chunk, part)
        _forward(widths, weights, part, chunk.size)
        loss += _loss_and_gradient(codes, equal, absent, chunk, part)
    return loss


@kernel()
def _gather(rows, numbers, activations):
    width = rows.shape[1]
    for k in range(numbers.size):
        row = numbers[k]
        for i in range(width):
            activations[k * width + i] = rows[row, i]


@kernel()
def _forward(widths, weights, activations, size):
    """Compute the layers' outputs, one after the other in ``activations``."""
    at, start = 0, 0
    for layer in range(widths.size - 1):
        n_in, n_out = widths[layer], widths[layer + 1]
        came = activations[start : start + size * n_in].reshape(size, n_in)
        start += size * n_in
        goes = activations[start : start + size * n_out].reshape(size, n_out)
        np.dot(came, weights[at : at + n_in * n_out].reshape(n_in, n_out), goes)
        at += n_in * n_out
        least = np.float32(0 if layer < widths.size - 2 else -np.inf)
        for k in range(size):
            for j in range(n_out):
                out = goes[k, j] + weights[at + j]
                goes[k, j] = least if out < least else out  # noqa: FURB136  (NaN is kept)
        at += n_out


@kernel()
def _loss_and_gradient(codes, row_weights, absent, numbers, activations):
    """The loss. Its gradient overwrites the logits, which are the last activations."""
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
        share = row_weights[k] / mass
        for j in range(absent.size):
            logits[k, j] *= share
        logits[k, code] -= row_weights[k]
    return loss


@kernel()
def _backward(widths, weights, activations, spare, gradient, size):
    """Gradient of the loss in every weight. The gradient in a layer's input overwrites that input."""
    at, end = weights.size, activations.size
    for layer in range(widths.size - 2, -1, -1):
        n_in, n_out = widths[layer], widths[layer + 1]
        end -= size * n_out
        back = activations[end : end + size * n_out].reshape(size, n_out)
        came = activations[end - size * n_in : end].reshape(size, n_in)
        at -= n_out
        for j in range(n_out):
            gradient[at + j] = 0
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


@kernel()
def _adam(weights, moments, constants, gradient, rate, step):
    """A step of Adam (Kingma and Ba 2015, arXiv:1412.6980), decay decoupled (Loshchilov and Hutter 2019)."""
    first, second = moments[0], moments[1]
    beta_1, beta_2, epsilon, decay = constants[0], constants[1], constants[2], constants[3]
    slow, new = np.float32(beta_1), np.float32(1 - beta_1)
    slower, newer = np.float32(beta_2), np.float32(1 - beta_2)
    pace = np.float32(rate / (1 - beta_1**step))
    wide = np.float32(1 / math.sqrt(1 - beta_2**step))
    least, share = np.float32(epsilon), np.float32(1 - rate * decay)
    for i in range(weights.size):
        first[i] = slow * first[i] + new * gradient[i]
        second[i] = slower * second[i] + newer * gradient[i] * gradient[i]
        weights[i] = share * weights[i] - pace * first[i] / (np.sqrt(second[i]) * wide + least)

"""Compiled training of perceptrons on a CPU: all steps in one call, one network on each thread at a time.

A perceptron is stored as a vector: for each layer the weights (n_in, n_out), then the biases. ReLU follows
every layer except the last.
"""

from __future__ import annotations

import functools
import math
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numba as nb
import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
import torch
from torch import nn

from ostraka.nets import training
from ostraka.nets.stacks import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.nets.stacks import TrainingPlan, Weights
    from ostraka.nets.training import StackBatches
    from ostraka.networks import TorchClassifier

_FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered; NaN and infinity are kept
DIVERGED = 1e30  # a loss of at least this has diverged; the sum over a stack stays finite
_kernel = functools.partial(
    nb.njit, cache=True, nogil=True, fastmath=_FAST_MATH, error_model="numpy", no_cfunc_wrapper=True
)
_WORK = 2**30  # weights times rows before a thread takes the next network, whose memory it then has to read
_LEAST = 1024  # a row costs at least as much as with this number of weights
_ADAM = (None, torch.optim.Adam, torch.optim.AdamW)


def is_compilable(network: TorchClassifier, module: nn.Module) -> bool:
    """Whether the compiled code implements these settings and this module."""
    layers = list(module) if type(module) is nn.Sequential else []
    linear, between = layers[::2], layers[1::2]
    children = [name for name, layer in module.named_children() if type(layer) is nn.Linear]
    names = [f"{name}.{part}" for name in children for part in ("weight", "bias")]
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        training.device(network.device).type == "cpu"
        and network.optimizer in _ADAM
        and network.augment is None
        # linear layers with ReLU between them, all trained, without hooks
        and len(layers) % 2 == 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and len(set(module.parameters())) == 2 * len(linear)
        and list(weights_of(module)) == names
        and all(
            parameter.requires_grad and parameter.dtype is torch.float32 for parameter in module.parameters()
        )
        and not any(getattr(part, hook) for part in module.modules() for hook in hooks)
    )


def train_perceptrons(
    plan: TrainingPlan,
    batches: StackBatches,
    *,
    n_threads: int,
    on_progress: Callable[[int, int], object],
    run: dict[str, Any],
) -> tuple[list[Weights], np.ndarray, list[float]]:
    """As ``vectorised.train_stack``, in compiled code; ``run`` is what the training loop gets beside."""
    network = plan.network
    with (
        threadpoolctl.threadpool_limits(1, user_api="blas"),  # otherwise every thread starts more threads
        ThreadPoolExecutor(n_threads) as pool,
    ):
        learners = [_Learner(plan, batches, number) for number in range(len(batches.seeds))]
        rows = int(batches.steps.max()) * network.batch_size
        epochs_at_once = max(1, _WORK // (max(learners[0].weights.numel(), _LEAST) * rows))
        training.train(  # its "epoch" is a round over all networks; it stores checkpoints of the learners
            [
                training.Objective(
                    optimizer=None, loss=lambda n_epochs: _round(learners, n_epochs, pool, on_progress)
                )
            ],
            lambda _generator: [epochs_at_once],
            steps=1,
            epochs=-(-network.epochs // epochs_at_once),
            state={} if run["checkpoint"] is None else {"learners": nn.ModuleList(learners)},
            **run,
        )
    networks, failed = zip(*[learner.result() for learner in learners], strict=True)
    losses = torch.stack([learner.losses for learner in learners]).sum(dim=0)
    return list(networks), np.array(failed), losses.tolist()


def _round(
    learners: Sequence[_Learner],
    n_epochs: int,
    pool: ThreadPoolExecutor,
    on_progress: Callable[[int, int], object],
) -> torch.Tensor:
    """Train every network for this number of epochs."""
    begin, epochs, many = int(learners[0].epoch), len(learners[0].losses), len(learners)
    end = min(begin + n_epochs, epochs)
    tasks = [pool.submit(learner.train_to, end) for learner in learners]
    try:
        for done, task in enumerate(tasks, start=1):
            task.result()
            on_progress(begin * many + done * (end - begin), epochs * many)
    finally:
        for task in tasks:
            task.cancel()
        wait(tasks)  # after an interrupt the training loop restores weights: no thread may write them then
    return torch.zeros(())


class _Learner(nn.Module):
    """One perceptron in training. It shares no state with another."""

    weights: torch.Tensor
    moments: torch.Tensor
    best_weights: torch.Tensor
    losses: torch.Tensor
    best_loss: torch.Tensor
    epochs_waited: torch.Tensor
    failed: torch.Tensor
    epoch: torch.Tensor

    def __init__(self, plan: TrainingPlan, batches: StackBatches, number: int) -> None:
        super().__init__()
        self.network, self.batches, self.number = plan.network, batches, number
        tensors = weights_of(
            plan.network.new_module(
                n_features=plan.n_features, n_classes=plan.n_classes, seed=batches.seeds[number]
            )
        )
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.widths = np.array([plan.n_features, *(shape[0] for shape in self.shapes.values())][::2])
        defaults = plan.optimizer([nn.Parameter(torch.empty(0))]).defaults
        self.constants = (*defaults["betas"], defaults["eps"], defaults["weight_decay"])
        weights = torch.cat([tensor.detach().t().flatten() for tensor in tensors.values()])
        for name, buffer in {
            "weights": weights,
            "moments": torch.zeros(2, len(weights)),
            "best_weights": None if plan.network.patience is None else weights.clone(),
            "losses": torch.zeros(plan.network.epochs, dtype=torch.float64),
            "best_loss": torch.tensor(torch.inf, dtype=torch.float64),
            "epochs_waited": torch.tensor(0),
            "failed": torch.tensor(False),
            "epoch": torch.tensor(0),
        }.items():
            self.register_buffer(name, buffer)

    def train_to(self, end: int) -> None:
        """Train up to that epoch, unless the network has failed or has waited too long."""
        begin, patience = int(self.epoch), self.network.patience
        at_once = end - begin if patience is None else 1  # one call for each epoch takes 10 % more time
        for epoch in range(begin, end, at_once):
            if self.failed or (patience is not None and int(self.epochs_waited) >= patience):
                break
            epochs = range(epoch, epoch + at_once)
            steps = int(self.batches.steps[self.number])
            order = np.stack([self.batches.order(self.number, epoch) for epoch in epochs])
            rates = np.full((len(epochs), steps), self.network.learning_rate)
            schedule, first_step = self.network.rate_schedule(), epochs[0] * steps
            if schedule is not None:
                total = self.network.epochs * steps
                rates *= np.reshape(
                    [schedule((first_step + step) / total) for step in range(rates.size)], rates.shape
                )
            losses = train(self._examples(), self._perceptron(), order, rates, first_step)
            diverged = np.isinf(losses)
            self.losses.numpy()[epochs.start : epochs.stop] = np.where(diverged, 0.0, losses)
            self.failed.fill_(bool(diverged.any()))
            if patience is None:
                continue
            # keep the weights if the held-out loss is the lowest so far; without held-out rows, always
            numbers, loss = self.batches.held_rows[self.number], -np.inf
            if len(numbers):
                loss = held_out_loss(self._examples(), self._perceptron(), numbers)
            if training.is_lowest(loss, self.best_loss, self.epochs_waited, True):
                np.copyto(self.best_weights.numpy(), self.weights.numpy())  # torch would start more threads
        self.epoch.fill_(end)

    def result(self) -> tuple[Weights, bool]:
        """The weights with the names and shapes of the module, and whether the network failed."""
        last = self.weights if self.network.patience is None else self.best_weights
        parts = torch.split(last, [math.prod(shape) for shape in self.shapes.values()])
        named = {
            name: part.reshape(shape[::-1]).t().clone(memory_format=torch.contiguous_format)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        return named, bool(self.failed) or not all(bool(edge.isfinite()) for edge in last.aminmax())

    def _examples(self) -> Examples:
        batches, number = self.batches, self.number
        return Examples(
            rows=batches.rows.numpy(),
            codes=batches.codes.numpy(),
            row_weights=batches.row_weights[number].numpy(),
            absent=batches.absent[number].numpy(),
        )

    def _perceptron(self) -> Perceptron:
        return Perceptron(
            widths=self.widths,
            weights=self.weights.numpy(),
            moments=self.moments.numpy(),
            constants=self.constants,
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

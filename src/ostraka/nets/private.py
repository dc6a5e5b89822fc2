"""Training with clipped and noisy gradients of Poisson samples, for several networks at once.

The norm of each row's gradient is computed without the gradient (ghost norms), then their weighted sum.

One row may not change another's gradient, not even in the last bit. Products of linear layers are sums of
whole numbers, exact in any order (``_WholeProducts``). All else goes by elements, in blocks of one shape and
on one thread; a block ends with padding, which takes what vector instructions leave over. Where a convolution
is not the same in every place of a block, which is tried once on made-up numbers, and where gradients are
computed one by one, a block has one row. Norms and sums are in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from ostraka.core.check import TrainingDiverged
from ostraka.nets.training import Objective, train

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

_ROWS, _PADDING = 112, 16  # of a block
_BITS = 22  # of a number of a row, in units of the row
_ALIKE: dict[tuple[object, ...], bool] = {}  # whether every place of a block is like the others, by layer

_MIXES_ROWS = cast("type[nn.Module]", nn.BatchNorm1d.__base__)  # that of all of them
BINS = 100  # of the histogram of norms
_KEPT = 0.5  # share of gradients that the clip leaves as they are
_AT_ONCE = 32 * 112  # rows
# of a gradient's length, for what double precision rounds: a sum of m rows in any order errs by m u times the
# sum of their lengths at most, u = 2^-53, so that sums of n rows with one row more or less differ by the
# clipped gradient and 4 n u _AT_ONCE clips, which is below 1e-5 for up to six million rows in a sample
_SLACK = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateTraining:
    """The settings that all steps share. All of them are public except ``rows`` and ``owners``."""

    modules: list[nn.Module]
    losses: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    rows: torch.Tensor = field(repr=False)
    owners: np.ndarray = field(repr=False)  # which network each row belongs to
    sampling_rate: float
    sigma: float  # noise of the gradient, in clips
    sigma_norms: float | None  # noise of the histogram of norms; None: the clip is fixed
    clip: float  # fixed, or the end of the histogram
    expected: np.ndarray  # rows of each network in a sample
    rng: np.random.Generator = field(repr=False)
    public_gradient: Callable[[nn.Module], dict[str, torch.Tensor]] | None = None

    def run(
        self,
        *,
        steps: int,
        learning_rate: float,
        seed: int,
        checkpoint: str | os.PathLike[str] | None = None,
        fingerprint: str = "",
    ) -> None:
        """Train the networks in place.

        Raises
        ------
        TrainingDiverged
            A weight is not finite at the end. No number of the training is in the message.
        """
        parameters = [parameter for module in self.modules for parameter in module.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=learning_rate)
        per = max(k for k in range(1, min(steps, 50) + 1) if steps % k == 0)

        def batches(_: torch.Generator) -> Iterator[np.ndarray]:
            return (self.sample() for _ in range(per))

        train(
            [Objective(optimizer=optimizer, loss=self.step)],
            batches,
            steps=per,
            epochs=steps // per,
            seed=seed,
            state={f"network {k}": module for k, module in enumerate(self.modules)},
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )
        if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
            raise TrainingDiverged("a weight is not finite: try a smaller learning_rate or clip")

    def sample(self) -> np.ndarray:
        """Places of the rows which take part in one step, each by its own coin."""
        return np.flatnonzero(self.rng.random(len(self.owners)) < self.sampling_rate)

    def step(self, sample: Any) -> torch.Tensor:
        """Store the noisy gradients of one sample. The returned loss is 0, since the true one is private."""
        parts: list[list[RowGradients]] = []
        with torch.random.fork_rng(devices=[]):
            # where a loss draws noise, it is each row's own: known noise, dealt out by place, would let one
            # row more change that of all others
            torch.manual_seed(int(self.rng.integers(2**63)))
            for k, module in enumerate(self.modules):
                rows = self.rows[torch.from_numpy(sample[self.owners[sample] == k])]
                blocks = torch.split(rows, _AT_ONCE) if len(rows) else ()
                parts.append([row_gradients(module, self.losses, part) for part in blocks])
        norms = [part.norms.numpy() for of_module in parts for part in of_module]
        clip = self.noisy_clip(np.concatenate(norms) if norms else np.zeros(0))
        for of_module, k, module in zip(parts, range(len(parts)), self.modules, strict=True):
            # the sum of few sums, each with what its rounding lost carried along (Knuth's two-sum)
            total: dict[str, torch.Tensor] = {}
            lost: dict[str, torch.Tensor] = {}
            for part in of_module:
                # the factor that shortens each gradient to the clip; 0 if a gradient is not finite
                shortened = (clip / part.norms.clamp_min(1e-12)).clamp_max(1.0) * (1 - _SLACK)
                factors = torch.where(torch.isfinite(part.norms), shortened, torch.zeros_like(shortened))
                for name, summand in part.weighted_sum(factors).items():
                    before = total.get(name, torch.zeros_like(summand))
                    after = before + summand
                    back = after - before
                    lost[name] = lost.get(name, torch.zeros_like(summand)) + (
                        (before - (after - back)) + (summand - back)
                    )
                    total[name] = after
            summed = {name: value + lost[name] for name, value in total.items()}
            public = {} if self.public_gradient is None else self.public_gradient(module)
            for name, parameter in module.named_parameters():
                gradient = public.get(name, torch.zeros(()))
                if parameter.requires_grad:  # otherwise no row has moved it
                    noise = self.rng.standard_normal(parameter.shape, dtype=np.float64) * (self.sigma * clip)
                    noisy = torch.from_numpy(noise) + summed.get(name, torch.zeros(()))
                    gradient = noisy / max(float(self.expected[k]), 1.0) + gradient
                parameter.grad = gradient.expand_as(parameter).to(parameter.dtype)
        return torch.zeros(())

    def noisy_clip(self, norms: np.ndarray) -> float:
        """The clip of this step: fixed, or the noisy median of the norms of its sample."""
        if self.sigma_norms is None:
            return self.clip
        inside = np.nan_to_num(norms, nan=self.clip, posinf=self.clip) * (BINS / self.clip)
        counts = np.bincount(np.minimum(inside.astype(np.int64), BINS - 1), minlength=BINS)
        below = np.cumsum(counts + self.rng.standard_normal(BINS) * self.sigma_norms)
        place = int(np.argmax(below >= _KEPT * max(float(below[-1]), 0.0)))
        return (place + 1) * self.clip / BINS


class RowGradients(NamedTuple):
    """Norms of the gradients of rows, and the sum of the gradients with given weights."""

    norms: torch.Tensor  # (n_rows,)
    weighted_sum: Callable[[torch.Tensor], dict[str, torch.Tensor]]


def row_gradients(
    module: nn.Module, losses: Callable[[nn.Module, torch.Tensor], torch.Tensor], rows: torch.Tensor
) -> RowGradients:
    """Gradients of one batch, one a row.

    Linear, Conv2d and Embedding layers which are called once need one forward and one backward pass to the
    outputs of layers. All other modules take ``vmap``, which is slower and computes every gradient.

    Raises
    ------
    ValueError
        A layer that mixes rows, such as batch normalisation: no clipping bounds what one row does.
    """
    if any(isinstance(layer, _MIXES_ROWS) for layer in module.modules()):
        raise ValueError("module must treat every row alone: batch normalisation mixes rows")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        layers = {
            layer: name
            for name, layer in module.named_modules()
            if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        }
        ghost = _ghost(module, losses, rows, layers) if all(map(_is_known, layers)) else None
        return _one_by_one(module, losses, rows) if ghost is None else ghost
    finally:
        torch.set_num_threads(threads)


class _Seen(NamedTuple):
    """One layer in one forward pass."""

    layer: nn.Module
    inputs: torch.Tensor
    out: torch.Tensor
    version: int


def _blocks(rows: torch.Tensor, n_rows: int) -> Iterator[torch.Tensor]:
    """The rows in blocks of ``n_rows`` and of padding, all of one shape."""
    for part in torch.split(rows, n_rows):
        block = torch.zeros((n_rows + _PADDING, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
        block[: len(part)] = part
        yield block


def _is_known(layer: nn.Module) -> bool:
    if not all(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
        return False
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.Embedding:
        return not layer.scale_grad_by_freq and not layer.sparse and layer.max_norm is None
    return type(layer) is nn.Linear


def _ghost(
    module: nn.Module,
    losses: Callable[[nn.Module, torch.Tensor], torch.Tensor],
    rows: torch.Tensor,
    names: dict[nn.Module, str],
) -> RowGradients | None:
    """None where a layer is called twice, or what it returns is changed in place."""
    n_rows, parts = _ROWS, list[list[tuple[nn.Module, torch.Tensor, torch.Tensor]]]()
    while not parts:
        for block in _blocks(rows, n_rows):
            calls: list[_Seen] = []

            def record(layer: nn.Module, inputs: Any, out: torch.Tensor, into: list[_Seen] = calls) -> None:
                into.append(_Seen(layer, inputs[0].detach(), out, out._version))  # noqa: SLF001

            hooks = [layer.register_forward_hook(record) for layer in names]
            exact = [layer for layer in names if type(layer) is nn.Linear]
            for layer in exact:
                layer.forward = partial(_exact_linear, layer)  # type: ignore[method-assign]
            try:
                values = losses(module, block)
            finally:
                for hook in hooks:
                    hook.remove()
                for layer in exact:
                    del layer.forward
            once = len({id(call.layer) for call in calls}) == len(calls)
            unchanged = all(call.out._version == call.version for call in calls)  # noqa: SLF001
            if not (once and unchanged and all(len(call.inputs) == len(block) for call in calls)):
                return None
            if n_rows > 1 and not all(_is_alike(call) for call in calls):
                n_rows, parts = 1, []
                break
            slopes = torch.autograd.grad(values.sum(), [call.out for call in calls], allow_unused=True)
            parts.append(
                [
                    (call.layer, inputs[:n_rows], out[:n_rows])
                    for call, slope in zip(calls, slopes, strict=True)
                    if slope is not None
                    for inputs, out in [_as_products(call, slope)]
                ]
            )
    pairs = [
        (of_layer[0][0], *(torch.cat([part[k] for part in of_layer])[: len(rows)] for k in (1, 2)))
        for of_layer in zip(*parts, strict=True)
    ]
    squares = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    with torch.no_grad():
        for layer, inputs, slope in pairs:
            squares += _square(layer, inputs, slope)

    def weighted_sum(weights: torch.Tensor) -> dict[str, torch.Tensor]:
        gradients: dict[str, torch.Tensor] = {}
        counted = weights > 0  # a row without weight may have slopes that are not finite
        weights = weights[counted].double()
        with torch.no_grad():
            for layer, of_all, slopes_of_all in pairs:
                complete = bool(counted.all())
                inputs, slope = (
                    (of_all, slopes_of_all) if complete else (of_all[counted], slopes_of_all[counted])
                )
                prefix = f"{names[layer]}." if names[layer] else ""
                gradients[f"{prefix}weight"] = _summed(layer, inputs, slope, weights)
                if getattr(layer, "bias", None) is not None:
                    gradients[f"{prefix}bias"] = weights @ slope.sum(dim=1)
        return gradients

    return RowGradients(squares.sqrt(), weighted_sum)


class _WholeProducts(torch.autograd.Function):
    """Rows times a matrix: whole numbers of 22 bits, in units of the row, times whole numbers.

    Their sums are exact in double precision, so that a product depends on its row and on the matrix alone.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(matrix)
        return _whole_products(rows, matrix)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor, None]:
        (matrix,) = ctx.saved_tensors
        return _whole_products(slope, matrix.T), None


def _whole_products(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    bits = 53 - _BITS - math.ceil(math.log2(max(2, len(matrix))))
    factors, unit = _whole(matrix.double().reshape(1, -1), bits)
    numbers, units = _whole(rows.reshape(-1, rows.shape[-1]).double(), _BITS)
    product = (numbers @ factors.reshape(matrix.shape)) * (units * unit)
    return product.to(rows.dtype).reshape(*rows.shape[:-1], matrix.shape[1])


def _whole(rows: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers of so many bits for every row, and the power of two that is their unit."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    exponent = torch.frexp(largest).exponent.clamp_min(-90)  # smaller numbers count as 0
    unit = torch.ldexp(torch.ones_like(largest), exponent - bits)
    return torch.round(rows / unit), unit


def _exact_linear(layer: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    product = cast("torch.Tensor", _WholeProducts.apply(rows, layer.weight.T))  # type: ignore[no-untyped-call]
    return product if layer.bias is None else product + layer.bias


def _is_alike(call: _Seen) -> bool:
    """Whether a layer's products of a row are the same, bit for bit, in every place of a block."""
    layer, shape = call.layer, tuple(call.inputs.shape)
    if type(layer) is not nn.Conv2d:
        return True  # products of whole numbers, or rows that are looked up
    weight = getattr(layer, "weight")  # noqa: B009  (a module's attribute, whose type is not known)
    geometry = layer.stride, layer.padding, layer.dilation
    key = (shape, tuple(weight.shape), *geometry, weight.device.type, torch.get_num_threads())
    if key not in _ALIKE:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(shape, generator=generator).to(weight.device).requires_grad_()
        slope = torch.randn(call.out.shape, generator=generator).to(weight.device)
        results = []
        for turn in range(3):  # places of rows: as they are, the other way round, and by chance
            order = [
                torch.arange(_ROWS),
                torch.arange(_ROWS).flip(0),
                torch.randperm(_ROWS, generator=generator),
            ]
            places = torch.cat([order[turn], torch.arange(_ROWS, shape[0])])
            out = layer(inputs[places])
            (back,) = torch.autograd.grad(out, inputs, slope[places])
            results.append((out.detach()[places.argsort()][:_ROWS], back[:_ROWS]))
        _ALIKE[key] = all(
            torch.equal(a, b) for result in results for a, b in zip(results[0], result, strict=True)
        )
    return _ALIKE[key]


def _as_products(call: _Seen, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and output gradients, (n_rows, places, …); their products are the weights' gradients."""
    layer = call.layer
    if isinstance(layer, nn.Conv2d):
        inputs = nn.functional.unfold(
            call.inputs,
            layer.kernel_size,
            dilation=layer.dilation,
            padding=cast("tuple[int, ...]", layer.padding),
            stride=layer.stride,
        )
        return inputs.transpose(1, 2).double(), slope.flatten(2).transpose(1, 2).double()
    if isinstance(layer, nn.Embedding):
        slope = slope.reshape(len(slope), -1, slope.shape[-1])
        places = call.inputs.reshape(len(call.inputs), -1)
        if layer.padding_idx is not None:
            slope = slope * (places != layer.padding_idx)[:, :, None]
        return places, slope.double()
    return (
        call.inputs.reshape(len(call.inputs), -1, call.inputs.shape[-1]).double(),
        slope.reshape(len(slope), -1, slope.shape[-1]).double(),
    )


def _square(layer: nn.Module, inputs: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Squared norms of the gradients of one layer, one a row."""
    if isinstance(layer, nn.Embedding):
        equal = (inputs[:, :, None] == inputs[:, None, :]).to(slope.dtype)
        return ((slope @ slope.transpose(1, 2)) * equal).sum(dim=(1, 2))
    n_places = inputs.shape[1]
    if n_places == 1:
        square = inputs.square().sum(dim=(1, 2)) * slope.square().sum(dim=(1, 2))
    elif n_places**2 < inputs.shape[2] * slope.shape[2]:
        square = ((inputs @ inputs.transpose(1, 2)) * (slope @ slope.transpose(1, 2))).sum(dim=(1, 2))
    else:
        square = (slope.transpose(1, 2) @ inputs).square().sum(dim=(1, 2))
    if layer.bias is not None:
        square = square + slope.sum(dim=1).square().sum(dim=1)
    return square.clamp_min(0.0)


def _summed(
    layer: nn.Module, inputs: torch.Tensor, slope: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """The weighted sum of the gradients of a layer's weight."""
    weight = getattr(layer, "weight")  # noqa: B009  (a module's attribute, whose type is not known)
    if isinstance(layer, nn.Embedding):
        total = torch.zeros_like(weight, dtype=torch.float64)
        return total.index_add_(0, inputs.flatten(), (slope * weights[:, None, None]).flatten(0, 1))
    if inputs.shape[1] == 1:
        return ((slope[:, 0] * weights[:, None]).T @ inputs[:, 0]).reshape(weight.shape)
    gradients = slope.transpose(1, 2) @ inputs  # of each row, so that rounding is a share of its length
    summed: torch.Tensor = torch.tensordot(weights, gradients, dims=1)
    return summed.reshape(weight.shape)


class _OfOneRow(nn.Module):
    """The loss of one row as a module, so that parameters can be replaced."""

    def __init__(self, module: nn.Module, losses: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.module = module
        self.losses = losses

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        return self.losses(self.module, row[None])[0]


def _one_by_one(
    module: nn.Module, losses: Callable[[nn.Module, torch.Tensor], torch.Tensor], rows: torch.Tensor
) -> RowGradients:
    model = _OfOneRow(module, losses)
    parameters = {
        name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad
    }

    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = functional_call(model, weights, (row,))
        return out

    gradient_of_row = vmap(grad(loss), in_dims=(None, 0), randomness="different")
    of_rows = [gradient_of_row(parameters, block) for block in _blocks(rows, 1)]
    parameter = {name: torch.stack([of_row[name][0] for of_row in of_rows]).double() for name in parameters}
    squares = sum(gradient.flatten(1).square().sum(dim=1) for gradient in parameter.values())

    def weighted_sum(weights: torch.Tensor) -> dict[str, torch.Tensor]:
        counted = weights > 0
        return {
            name.removeprefix("module."): torch.tensordot(
                weights[counted].double(), gradient[counted], dims=1
            )
            for name, gradient in parameter.items()
        }

    return RowGradients(torch.as_tensor(squares).sqrt(), weighted_sum)

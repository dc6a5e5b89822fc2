"""Gradients of rows: their norms without computing each (ghost norms), and their weighted sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RowGradients", "row_gradients"]

_MIXES_ROWS = (nn.modules.batchnorm._BatchNorm,)  # noqa: SLF001  (all of them)


class _Seen(NamedTuple):
    """One layer in one forward pass."""

    layer: nn.Module
    given: torch.Tensor
    out: torch.Tensor
    version: int


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
    if any(isinstance(each, _MIXES_ROWS) for each in module.modules()):
        raise ValueError("module must treat every row alone: batch normalisation mixes rows")
    layers = {each: name for name, each in module.named_modules() if _trained(each)}
    if all(_is_known(layer) for layer in layers):
        seen: list[_Seen] = []
        hooks = [layer.register_forward_hook(_recorder(seen)) for layer in layers]
        try:
            values = losses(module, rows)
        finally:
            for hook in hooks:
                hook.remove()
        once = len({id(each.layer) for each in seen}) == len(seen)
        kept = all(each.out._version == each.version for each in seen)  # noqa: SLF001
        if once and kept and all(len(each.given) == len(rows) for each in seen):
            return _ghost(values, seen, layers)
    return _one_by_one(module, losses, rows)


def _trained(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in layer.parameters(recurse=False))


def _is_known(layer: nn.Module) -> bool:
    if not all(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
        return False
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.Embedding:
        return not layer.scale_grad_by_freq and not layer.sparse and layer.max_norm is None
    return type(layer) is nn.Linear


def _recorder(seen: list[_Seen]) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], None]:
    def record(layer: nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        seen.append(_Seen(layer, given[0].detach(), out, out._version))  # noqa: SLF001

    return record


def _ghost(values: torch.Tensor, seen: list[_Seen], names: dict[nn.Module, str]) -> RowGradients:
    slopes = torch.autograd.grad(values.sum(), [each.out for each in seen], allow_unused=True)
    pairs = [
        (each.layer, *_as_products(each, slope))
        for each, slope in zip(seen, slopes, strict=True)
        if slope is not None
    ]
    squares = torch.zeros(len(values), device=values.device)
    with torch.no_grad():
        for layer, given, slope in pairs:
            squares += _square(layer, given, slope)

    def weighted_sum(weights: torch.Tensor) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        kept = weights > 0  # a row without weight may have slopes that are not finite
        with torch.no_grad():
            for layer, of_all, slopes_of_all in pairs:
                whole = bool(kept.all())
                given, slope = (of_all, slopes_of_all) if whole else (of_all[kept], slopes_of_all[kept])
                prefix = f"{names[layer]}." if names[layer] else ""
                found[f"{prefix}weight"] = _summed(layer, given, slope, weights[kept])
                if getattr(layer, "bias", None) is not None:
                    found[f"{prefix}bias"] = torch.einsum("b,bto->o", weights[kept], slope)
        return found

    return RowGradients(squares.sqrt(), weighted_sum)


def _as_products(each: _Seen, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and output gradients, (n_rows, places, …); their products are the weights' gradients."""
    layer = each.layer
    if isinstance(layer, nn.Conv2d):
        given = nn.functional.unfold(
            each.given,
            layer.kernel_size,
            dilation=layer.dilation,
            padding=cast("tuple[int, ...]", layer.padding),
            stride=layer.stride,
        )
        return given.transpose(1, 2), slope.flatten(2).transpose(1, 2)
    if isinstance(layer, nn.Embedding):
        slope = slope.reshape(len(slope), -1, slope.shape[-1])
        places = each.given.reshape(len(each.given), -1)
        if layer.padding_idx is not None:
            slope = slope * (places != layer.padding_idx)[:, :, None]
        return places, slope
    return (
        each.given.reshape(len(each.given), -1, each.given.shape[-1]),
        slope.reshape(len(slope), -1, slope.shape[-1]),
    )


def _square(layer: nn.Module, given: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Squared norms of the gradients of one layer, one a row."""
    if isinstance(layer, nn.Embedding):
        same = (given[:, :, None] == given[:, None, :]).to(slope.dtype)
        return ((slope @ slope.transpose(1, 2)) * same).sum(dim=(1, 2))
    n_places = given.shape[1]
    if n_places == 1:
        square = given.square().sum(dim=(1, 2)) * slope.square().sum(dim=(1, 2))
    elif n_places**2 < given.shape[2] * slope.shape[2]:
        square = ((given @ given.transpose(1, 2)) * (slope @ slope.transpose(1, 2))).sum(dim=(1, 2))
    else:
        square = (slope.transpose(1, 2) @ given).square().sum(dim=(1, 2))
    if layer.bias is not None:
        square = square + slope.sum(dim=1).square().sum(dim=1)
    return square.clamp_min(0.0)


def _summed(
    layer: nn.Module, given: torch.Tensor, slope: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """The weighted sum of the gradients of a layer's weight."""
    slope = slope * weights[:, None, None]
    if isinstance(layer, nn.Embedding):
        whole = torch.zeros_like(layer.weight)
        return whole.index_add_(0, given.flatten(), slope.flatten(0, 1))
    weight = getattr(layer, "weight")  # noqa: B009  (a module's attribute, whose type is not known)
    return (slope.flatten(0, 1).T @ given.flatten(0, 1)).reshape(weight.shape)


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
    whole = _OfOneRow(module, losses)
    parameters = {name: each.detach() for name, each in whole.named_parameters() if each.requires_grad}

    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = functional_call(whole, weights, (row,))
        return out

    each = vmap(grad(loss), in_dims=(None, 0), randomness="different")(parameters, rows)
    squares = sum(gradient.flatten(1).square().sum(dim=1) for gradient in each.values())

    def weighted_sum(weights: torch.Tensor) -> dict[str, torch.Tensor]:
        kept = weights > 0
        return {
            name.removeprefix("module."): torch.tensordot(weights[kept], gradient[kept], dims=1)
            for name, gradient in each.items()
        }

    return RowGradients(torch.as_tensor(squares).sqrt(), weighted_sum)

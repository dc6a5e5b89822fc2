"""A stack: many networks of one shape whose weights share tensors, so that one call computes all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from ostraka.nets.training import device, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.networks import TorchClassifier

Weights = dict[str, torch.Tensor]  # of one network: parameters and buffers by name

_BY_NUMBER = {  # layers without weights that treat every number separately
    nn.Dropout,
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
}
_BY_ROW = {
    nn.AdaptiveAvgPool2d,
    nn.AvgPool2d,
    nn.Flatten,
    nn.MaxPool2d,
    nn.Unflatten,
}  # or every row separately
_AT_ONCE = 1024  # rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingPlan:
    """The settings by which networks of one shape train and vote, in stacks or one after another. Public.

    Attributes
    ----------
    network : TorchClassifier
        The settings.
    module : torch.nn.Module
        One such network. Its weights are never used.
    together : bool
        Whether a stack may hold more than one.
    orders : dict of str to tuple of int
        The memory order of each stacked parameter's axes, which is that of its gradient.
    size : int
        Number of networks in a stack.
    compiled : bool
        Whether each network trains in compiled code.
    """

    network: TorchClassifier
    module: nn.Module
    n_features: int
    n_classes: int
    together: bool
    orders: dict[str, tuple[int, ...]]
    size: int
    compiled: bool = False

    def alone(self) -> TrainingPlan:
        """The plan for one network at a time, which then uses all threads."""
        return replace(self, together=False, compiled=False, size=1)

    def new_stack(self, seeds: Sequence[int]) -> NetworkStack:
        """New networks with weights drawn from their own seeds."""
        modules = (
            self.network.new_module(n_features=self.n_features, n_classes=self.n_classes, seed=seed)
            for seed in seeds
        )
        return self.stack_of([weights_of(module) for module in modules])

    def stack_of(self, networks: Sequence[Weights]) -> NetworkStack:
        """A stack of these networks on the plan's device."""
        return NetworkStack(self, networks).to(device(self.network.device))

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """The network's optimizer, in one pass over the weights where torch has that."""
        return self.network.new_optimizer(parameters, fused=True)


class NetworkStack(nn.Module):
    """Parameters and buffers of several networks. The first axis of each tensor counts the networks."""

    def __init__(self, plan: TrainingPlan, networks: Sequence[Weights]) -> None:
        super().__init__()
        self.plan = plan
        self.size = len(networks)
        stacked = {
            name: torch.stack([weights[name].detach() for weights in networks]) for name in networks[0]
        }
        # in the memory order of their gradients: otherwise every step copies all gradients
        self.trained = nn.ParameterList(
            [nn.Parameter(stacked[name].permute(order).contiguous()) for name, order in plan.orders.items()]
        )
        self.constant = nn.ParameterList(  # buffers, and parameters that are not trained
            [nn.Parameter(stacked[name], requires_grad=False) for name in stacked if name not in plan.orders]
        )
        self._names = [*plan.orders, *(name for name in stacked if name not in plan.orders)]
        self._back = [np.argsort(order).tolist() for order in plan.orders.values()]

    def named(self) -> Weights:
        """Every parameter and buffer by its name in the module, behind an axis for the networks."""
        return dict(
            zip(self._names, [*self.in_module_order(list(self.trained)), *self.constant], strict=True)
        )

    def tensors(self) -> list[torch.Tensor]:
        """The tensors which training changes, in memory order. The first axis counts the networks."""
        return [*self.trained, *self.constant]

    def in_module_order(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors in the memory order of ``trained``, with their axes permuted to the module's order."""
        return [leaf.permute(back) for leaf, back in zip(leaves, self._back, strict=True)]

    def one(self, number: int) -> Weights:
        """A copy of one network's weights."""
        return {name: tensor[number].detach().cpu().clone() for name, tensor in self.named().items()}

    def logits(self, rows: torch.Tensor, *, training: bool) -> torch.Tensor:
        """Logits (n_networks, n_rows, n_classes) of each network's own rows, or of the same rows for all."""
        module = self.plan.module
        if module.training != training:
            module.train(training)
        if self.plan.together:
            return _through(module, self.named(), "", rows.expand(self.size, *rows.shape[-2:]))
        alone = {name: tensor[0] for name, tensor in self.named().items()}
        return _called(module, alone, rows if rows.dim() == 2 else rows[0])[None]


def retry_with_half(work: Callable[[int], Any], size: int) -> Any:
    """``work(size)``; the size is halved each time that memory runs out."""
    while True:
        try:
            return work(size)
        except (RuntimeError, MemoryError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
        size = -(-size // 2)  # after the handler: during it, the exception keeps its tensors in memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out. On the CPU torch has no type of error for it."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _through(module: nn.Module, weights: Weights, prefix: str, rows: torch.Tensor) -> torch.Tensor:
    """Apply a module to rows (n_networks, n_rows, …): plain layers directly, others by the slower vmap."""
    kind = type(module)
    if kind is nn.Sequential:
        for name, layer in module.named_modules(remove_duplicate=False):  # a layer may be there twice
            if name and "." not in name:
                rows = _through(layer, weights, f"{prefix}{name}.", rows)
        return rows
    if kind is nn.Linear and rows.dim() == 3:
        factor, bias = weights[f"{prefix}weight"].transpose(1, 2), weights.get(f"{prefix}bias")
        return torch.bmm(rows, factor) if bias is None else torch.baddbmm(bias[:, None], rows, factor)
    if kind in _BY_NUMBER | _BY_ROW:
        merged = rows.flatten(0, 1) if kind in _BY_ROW else rows
        answer: torch.Tensor = module(merged)
        return answer.reshape(*rows.shape[:2], *answer.shape[1:]) if kind in _BY_ROW else answer
    tensors = {
        name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)
    }
    return vmap(_called, in_dims=(None, 0, 0), randomness="different")(module, tensors, rows)


def _called(module: nn.Module, weights: Weights, rows: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = functional_call(module, weights, (rows,))
    return out


def weights_of(module: nn.Module) -> Weights:
    """Parameters and buffers, each one once."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


class Targets(NamedTuple):
    """The class of each row, the classes that a network cannot predict, and the weight of each row."""

    codes: torch.Tensor  # (n_networks, n_rows)
    absent: torch.Tensor  # (n_networks, 1, n_classes)
    row_weights: torch.Tensor  # (n_networks, n_rows)

    def losses(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the classes that each network can predict, and its cross-entropy."""
        logs = torch.log_softmax(logits.masked_fill(self.absent, -torch.inf), dim=2)
        of_rows = logs.gather(2, self.codes[:, :, None])[:, :, 0]
        return logs, -(of_rows * self.row_weights).sum(dim=1)

    def gradient(self, logs: torch.Tensor) -> torch.Tensor:
        """Gradient of the losses in the logits. It overwrites ``logs``."""
        gradient = logs.exp_()
        ones = gradient.new_ones(()).expand(*self.codes.shape, 1)
        return gradient.scatter_add_(2, self.codes[:, :, None], -ones).mul_(self.row_weights[:, :, None])


def backpropagate(stack: NetworkStack, rows: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Compute each network's loss, and store its gradient in the parameters."""
    logits = stack.logits(rows, training=True)
    with torch.no_grad():
        logs, losses = targets.losses(logits)
        gradient = targets.gradient(logs)
    logits.backward(gradient)  # type: ignore[no-untyped-call]
    return losses


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TrainedNetwork:
    """One network of a stack, and the classes in its training set. Private, since its rows were private."""

    plan: TrainingPlan
    weights: Weights
    present: np.ndarray

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Positions in ``present``, as a scikit-learn classifier of that shard would predict.

        Raises
        ------
        ValueError
            A logit is not finite.
        """
        classes = predict_classes(self.plan, [self], X)[0]
        if (classes < 0).any():
            raise ValueError("the network's logits are not finite")
        places: np.ndarray = np.searchsorted(self.present, classes)
        return places


def predict_classes(
    plan: TrainingPlan,
    networks: Sequence[TrainedNetwork | None],
    X: np.ndarray,
    *,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> np.ndarray:
    """The class index that each network predicts for each row; -1 if it cannot: see Returns.

    Parameters
    ----------
    plan : TrainingPlan
    networks : sequence of TrainedNetwork or None
    X : float32 array, shape (n_rows, n_features)
        Public.
    on_progress : callable(done, total)
        Called after every stack.

    Returns
    -------
    int64 array, shape (n_networks, n_rows)
        Private. -1 where a logit is not finite, and where there is no network.
    """
    where = device(plan.network.device)
    size = min(plan.size, len(networks)) if plan.together else 1
    rows, classes = torch.tensor(X), []  # a copy: the array may be read-only
    with threads(plan.network.n_threads), torch.inference_mode():
        for start in range(0, len(networks), size):
            part = networks[start : start + size]
            blank = {name: tensor.cpu() for name, tensor in weights_of(plan.module).items()}
            stack = plan.stack_of([blank if member is None else member.weights for member in part])
            present = torch.zeros(len(part), plan.n_classes, dtype=torch.bool)
            for mine, member in zip(present, part, strict=True):
                mine[[] if member is None else member.present] = True
            classes.append(_of_stack(stack, rows, present.to(where)))
            on_progress(min(start + size, len(networks)), len(networks))
    return np.concatenate(classes)


def _of_stack(stack: NetworkStack, rows: torch.Tensor, present: torch.Tensor) -> np.ndarray:
    """Predictions of one stack, for as many rows at once as fit in memory."""

    def part(at_once: int) -> torch.Tensor:
        classes, mine = [], present[:, None, :]
        for block in torch.split(rows, at_once):
            logits = stack.logits(block.to(present.device), training=False)
            finite = (logits.isfinite() | ~mine).all(dim=2) & mine.any(dim=2)
            classes.append(torch.where(finite, logits.masked_fill(~mine, -torch.inf).argmax(dim=2), -1).cpu())
        return torch.cat(classes, dim=1)

    classes: torch.Tensor = retry_with_half(part, _AT_ONCE)
    return classes.numpy()

"""Predictions of many trained networks in one pass over public rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ostraka.nets.devices import device, threads
from ostraka.nets.stacks import retry_with_half, weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.nets.stacks import NetworkStack, TrainingPlan, Weights

_AT_ONCE = 1024  # rows


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
        return torch.cat(
            [_of_rows(stack, block.to(present.device), present) for block in torch.split(rows, at_once)],
            dim=1,
        )

    classes: torch.Tensor = retry_with_half(part, _AT_ONCE)
    return classes.numpy()


def _of_rows(stack: NetworkStack, rows: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    logits = stack.logits(rows, training=False)
    mine = present[:, None, :]
    finite = (logits.isfinite() | ~mine).all(dim=2) & mine.any(dim=2)
    return torch.where(finite, logits.masked_fill(~mine, -torch.inf).argmax(dim=2), -1).cpu()

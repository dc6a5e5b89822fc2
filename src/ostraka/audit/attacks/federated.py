"""The parties' computations in a round of collaborative training, all parties at once. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ostraka.nets.generative import features
from ostraka.nets.training import preserve_generators, reseed, threads

if TYPE_CHECKING:
    from ostraka.networks import TorchClassifier

_AT_ONCE = 64  # updates


class FlatNetwork:
    """A network whose weights are one vector, and the changes that batches make to it."""

    def __init__(self, network: TorchClassifier, *, n_features: int, n_classes: int) -> None:
        if network.optimizer is not None or network.schedule != "constant" or network.patience is not None:
            raise ValueError(
                "network must leave optimizer, schedule and patience alone: parties take plain gradient steps"
            )
        self.network, self.seed = network, network.seed()
        with preserve_generators():
            self.module = network.new_module(n_features=n_features, n_classes=n_classes, seed=self.seed)
        replace_all_batch_norm_modules_(self.module)  # each batch's own statistics, and no running ones
        if next(self.module.buffers(), None) is not None:
            raise ValueError("module must have no buffers: parties share weights, not running averages")
        self.layout = tuple((name, tuple(p.shape)) for name, p in self.module.named_parameters())
        self._sizes = [int(np.prod(shape)) for _, shape in self.layout]
        self.module.train()

    def start(self) -> np.ndarray:
        """The first weights."""
        return flat([p.detach().numpy() for p in self.module.parameters()])

    def changes(self, weights: np.ndarray, X: np.ndarray, y: np.ndarray, *, seed: int) -> np.ndarray:
        """The change of the weights by each party's steps.

        Parameters
        ----------
        weights : float32 array, shape (n_weights,)
        X : float32 array, shape (n_parties, n_steps, batch_size, n_features)
        y : int64 array, shape (n_parties, n_steps, batch_size)

        Returns
        -------
        float32 array, shape (n_parties, n_weights)
        """
        begin, rate = torch.as_tensor(weights), self.network.learning_rate
        totals = []
        with threads(self.network.n_threads), torch.random.fork_rng():
            reseed(seed)
            step = vmap(
                grad(lambda w, x, codes: cross_entropy(self.logits(w, x), codes)), randomness="different"
            )
            for start in range(0, len(X), _AT_ONCE):
                rows = torch.as_tensor(X[start : start + _AT_ONCE])
                codes = torch.as_tensor(y[start : start + _AT_ONCE])
                total = torch.zeros(len(rows), len(begin))
                for number in range(rows.shape[1]):
                    total = total - rate * step(begin + total, rows[:, number], codes[:, number])
                totals.append(total)
        return np.asarray(torch.cat(totals).detach().numpy())

    def load(self, weights: np.ndarray) -> None:
        """Put these weights into the module, for predictions."""
        with torch.no_grad():
            for p, value in zip(self.module.parameters(), self._parts(torch.as_tensor(weights)), strict=True):
                p.copy_(value)
        self.module.eval()

    def features(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The input of the last linear layer."""

        def called(x: torch.Tensor) -> torch.Tensor:
            return functional_call(self.module, self._named(weights), (x,))  # type: ignore[no-any-return]

        called.modules = self.module.modules  # type: ignore[attr-defined]
        return features(called, rows)  # type: ignore[arg-type]

    def logits(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Logits of one network's rows."""
        return functional_call(self.module, self._named(weights), (rows,))  # type: ignore[no-any-return]

    def _named(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: part for (name, _), part in zip(self.layout, self._parts(weights), strict=True)}

    def _parts(self, weights: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(weights, self._sizes)
        return [part.view(shape) for part, (_, shape) in zip(parts, self.layout, strict=True)]


class PropertyHead:
    """An active observer's second output, on the features before the last layer. Only it has the weights."""

    def __init__(self, network: FlatNetwork, *, main_weight: float) -> None:
        self.network, self.main_weight = network, main_weight
        self._head: torch.Tensor | None = None

    def change(self, weights: np.ndarray, X: np.ndarray, y: np.ndarray, has: np.ndarray) -> np.ndarray:
        """The observer's change of the shared weights, by the loss of both tasks; its head learns, too."""
        rows, codes, truth = torch.as_tensor(X), torch.as_tensor(y), torch.as_tensor(has.astype(np.float32))
        shared = torch.as_tensor(weights).clone().requires_grad_()
        inputs = self.network.features(shared, rows)
        if self._head is None:
            self._head = torch.zeros(inputs.shape[1] + 1)
        head = self._head.requires_grad_()
        main = cross_entropy(self.network.logits(shared, rows), codes)
        second = binary_cross_entropy_with_logits(inputs @ head[:-1] + head[-1], truth)
        loss = self.main_weight * main + (1 - self.main_weight) * second
        moved, learned = torch.autograd.grad(loss, [shared, head])
        rate = self.network.network.learning_rate
        self._head = (head - rate * learned).detach()
        return np.asarray((-rate * moved).numpy())


def flat(parts: list[np.ndarray]) -> np.ndarray:
    """One float32 vector of several arrays."""
    return np.concatenate([np.asarray(part, dtype=np.float32).ravel() for part in parts])

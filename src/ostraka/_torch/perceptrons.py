"""Perceptrons trained in compiled code: each by itself, as many at a time as there are threads."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]
import torch
from torch import nn

from ostraka._torch import compiled
from ostraka._torch.devices import device, own_chance, threads
from ostraka._torch.lessons import Material
from ostraka._torch.loop import Turn, train
from ostraka._torch.stacks import weights_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ostraka._torch.classifier import TorchClassifier
    from ostraka._torch.lessons import Lesson
    from ostraka._torch.stacks import Plan, Weights

__all__ = ["compilable", "taught"]

_VISIT = 2**30  # weights times rows until the next network's turn: coming back costs reading its memory
_LEAST = 1024  # a row costs at least what it costs with so many weights
_ADAM = (torch.optim.Adam, torch.optim.AdamW)


def compilable(network: TorchClassifier, module: nn.Module) -> bool:
    """Whether these settings, and this module, are what the compiled code computes."""
    return (
        device(network.device).type == "cpu"
        and network.optimizer in _ADAM
        and network.augment is None
        and _is_perceptron(module)
    )


def taught(
    plan: Plan,
    lessons: Sequence[Lesson],
    *,
    checkpoint: str | os.PathLike[str] | None,
    fingerprint: str,
    told: Callable[[int, int], object],
) -> tuple[list[Weights], np.ndarray, list[float]]:
    """As :func:`ostraka._torch.lockstep.taught`."""
    network = plan.network
    material = Material(
        lessons,
        n_classes=plan.n_classes,
        batch_size=network.batch_size,
        hold_out=network.patience is not None,
        where=torch.device("cpu"),
    )
    with (
        threads(network.n_threads) as n_threads,
        own_chance(),
        threadpoolctl.threadpool_limits(1, user_api="blas"),  # or each thread's products would start more
        ThreadPoolExecutor(n_threads) as pool,
    ):
        learners = [_Learner(plan, material, number) for number in range(len(lessons))]
        rows = int(material.steps.max()) * network.batch_size
        at_a_visit = max(1, _VISIT // (max(learners[0].weights.numel(), _LEAST) * rows))
        train(  # to it, visits to all are one step of one epoch: it keeps checkpoints of the learners
            [Turn(optimizer=None, loss=lambda n_epochs: _visit(learners, n_epochs, pool, told))],
            lambda _generator: [at_a_visit],
            steps=1,
            epochs=-(-network.epochs // at_a_visit),
            seed=lessons[0].seed,
            state={} if checkpoint is None else {"learners": nn.ModuleList(learners)},
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )
    networks, failed = zip(*[learner.result() for learner in learners], strict=True)
    losses = torch.stack([learner.losses for learner in learners]).sum(dim=0)
    return list(networks), np.array(failed), losses.tolist()


def _visit(
    learners: Sequence[_Learner], n_epochs: int, pool: ThreadPoolExecutor, told: Callable[[int, int], object]
) -> torch.Tensor:
    """Bring everybody so many epochs further."""
    begin, epochs, many = int(learners[0].epoch), len(learners[0].losses), len(learners)
    end = min(begin + n_epochs, epochs)
    visits = [pool.submit(learner.go_on, end) for learner in learners]
    try:
        for done, visit in enumerate(visits, start=1):
            visit.result()
            told(begin * many + done * (end - begin), epochs * many)
    finally:
        for visit in visits:
            visit.cancel()
        wait(visits)  # whoever stops this may put weights back
    return torch.zeros(())


class _Learner(nn.Module):
    """One perceptron on its way; nothing here is another's."""

    weights: torch.Tensor
    moments: torch.Tensor
    kept: torch.Tensor
    losses: torch.Tensor
    best: torch.Tensor
    waited: torch.Tensor
    broken: torch.Tensor
    epoch: torch.Tensor

    def __init__(self, plan: Plan, material: Material, number: int) -> None:
        super().__init__()
        self.network, self.material, self.number = plan.network, material, number
        made = weights_of(
            plan.network.built(
                n_features=plan.n_features, n_classes=plan.n_classes, seed=material.seeds[number]
            )
        )
        self.shapes = {name: tuple(whole.shape) for name, whole in made.items()}
        self.widths = np.array([plan.n_features, *(shape[0] for shape in self.shapes.values())][::2])
        defaults = plan.optimizer([nn.Parameter(torch.empty(0))]).defaults
        self.constants = (*defaults["betas"], defaults["eps"], defaults["weight_decay"])
        weights = torch.cat([whole.detach().t().flatten() for whole in made.values()])
        for name, buffer in {
            "weights": weights,
            "moments": torch.zeros(2, len(weights)),
            "kept": None if plan.network.patience is None else weights.clone(),
            "losses": torch.zeros(plan.network.epochs, dtype=torch.float64),
            "best": torch.tensor(torch.inf, dtype=torch.float64),
            "waited": torch.tensor(0),
            "broken": torch.tensor(False),
            "epoch": torch.tensor(0),
        }.items():
            self.register_buffer(name, buffer)

    def go_on(self, end: int) -> None:
        """Learn up to that epoch, unless something has ended it."""
        begin, patience = int(self.epoch), self.network.patience
        at_once = end - begin if patience is None else 1  # a call for every epoch would cost a tenth more
        for epoch in range(begin, end, at_once):
            if self.broken or (patience is not None and int(self.waited) >= patience):
                break
            self._learn(range(epoch, epoch + at_once))
            if patience is not None:
                self._judge()
        self.epoch.fill_(end)

    def result(self) -> tuple[Weights, bool]:
        """Its weights as its module has them, and whether it failed."""
        last = self.weights if self.network.patience is None else self.kept
        parts = torch.split(last, [math.prod(shape) for shape in self.shapes.values()])
        named = {
            name: part.reshape(shape[::-1]).t().clone(memory_format=torch.contiguous_format)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        return named, bool(self.broken) or not all(bool(edge.isfinite()) for edge in last.aminmax())

    def _learn(self, epochs: range) -> None:
        steps = int(self.material.steps[self.number])
        order = np.stack([self.material.order(self.number, epoch) for epoch in epochs])
        rates = np.full((len(epochs), steps), self.network.learning_rate)
        schedule, begin = self.network.scheduled(), epochs[0] * steps
        if schedule is not None:
            whole = self.network.epochs * steps
            rates *= np.reshape([schedule((begin + step) / whole) for step in range(rates.size)], rates.shape)
        losses = compiled.learn(self._given(), self._perceptron(), order, rates, begin)
        diverged = np.isinf(losses)
        self.losses.numpy()[epochs.start : epochs.stop] = np.where(diverged, 0.0, losses)
        self.broken.fill_(bool(diverged.any()))

    def _judge(self) -> None:
        """Keep what has never been better; without rows to judge by, that is the last."""
        held = self.material.held_rows[self.number]
        loss = compiled.held_out(self._given(), self._perceptron(), held) if len(held) else -np.inf
        better = loss < float(self.best) or loss == -np.inf
        if better:
            self.best.fill_(loss)
            np.copyto(self.kept.numpy(), self.weights.numpy())  # torch would start threads of its own
        self.waited.fill_(0 if better else int(self.waited) + 1)

    def _given(self) -> compiled.Rows:
        material, number = self.material, self.number
        return compiled.Rows(
            rows=material.rows.numpy(),
            codes=material.targets.numpy(),
            shares=material.shares[number].numpy(),
            absent=material.absent[number].numpy(),
        )

    def _perceptron(self) -> compiled.Perceptron:
        return compiled.Perceptron(
            widths=self.widths,
            weights=self.weights.numpy(),
            moments=self.moments.numpy(),
            constants=self.constants,
        )


def _is_perceptron(module: nn.Module) -> bool:
    """Whether a module is linear layers with ReLU between, all of them trained, and no hooks."""
    layers = list(module) if type(module) is nn.Sequential else []
    linear, between = layers[::2], layers[1::2]
    return (
        len(layers) % 2 == 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and len(set(module.parameters())) == 2 * len(linear)
        and list(weights_of(module)) == _names(module)
        and all(each.requires_grad and each.dtype is torch.float32 for each in module.parameters())
        and not any(_hooked(part) for part in module.modules())
    )


def _names(module: nn.Module) -> list[str]:
    """Names of the weights and biases of linear layers, as they lie in a perceptron's vector."""
    linear = [name for name, layer in module.named_children() if type(layer) is nn.Linear]
    return [f"{name}.{part}" for name in linear for part in ("weight", "bias")]


def _hooked(module: nn.Module) -> bool:
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name) for name in names)

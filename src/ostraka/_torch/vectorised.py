"""Training of a stack: every network on rows of its own, in the same steps, as each would train alone."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import nn

from ostraka._torch import perceptrons
from ostraka._torch.classifier import digest
from ostraka._torch.compiled import DIVERGED
from ostraka._torch.devices import device, own_chance, reseed, threads
from ostraka._torch.lessons import Material
from ostraka._torch.loop import Turn, train
from ostraka._torch.slopes import Wanted, descend
from ostraka._torch.stacks import short_of_memory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from ostraka._torch.lessons import Lesson
    from ostraka._torch.stacks import Plan, Weights

__all__ = ["Unstackable", "taught"]

_NO_MATTER = {"checkpoint", "device", "n_threads", "progress", "random_state"}  # to what is learned


class Unstackable(Exception):  # noqa: N818  (nobody's fault: they can train one after another)
    """A network raised in a stack, and which one it was cannot be said."""


def taught(
    plan: Plan,
    lessons: Sequence[Lesson],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    told: Callable[[int, int], object] = lambda _done, _total: None,
) -> tuple[list[Weights], np.ndarray, list[float]]:
    """Train one network on each lesson.

    Nothing in one lesson moves another's network by a bit: shapes depend on the plan and on how many
    lessons there are, a sum is over one network's rows, and all chance comes from a network's own
    seed or from the number of the step.

    Returns
    -------
    list of Weights
    bool array, shape (n_lessons,)
        Which of them failed: a loss or a weight was not finite, or the module raised.
    list of float
        The sum of their losses, mean over each epoch.

    Raises
    ------
    Unstackable
        The module raised.
    """
    fingerprint = "" if checkpoint is None else _fingerprint(plan, lessons)
    if plan.compiled:
        return perceptrons.taught(plan, lessons, checkpoint=checkpoint, fingerprint=fingerprint, told=told)
    with threads(plan.network.n_threads), own_chance():
        course = _Course(plan, lessons)
        losses = train(
            [Turn(optimizer=plan.optimizer(course.stack.learning.parameters()), loss=course.loss)],
            course.batches,
            steps=int(course.material.steps.max()),
            epochs=plan.network.epochs,
            seed=lessons[0].seed,
            state={"course": course},
            after_step=course.after_step,
            checkpoint=checkpoint,
            fingerprint=fingerprint,
            told=told,
        )
        return *course.results(), losses


class _Course(nn.Module):
    """A stack on its way: its weights, how far they are, and who has stopped."""

    taken: torch.Tensor
    best: torch.Tensor
    waited: torch.Tensor
    stopped: torch.Tensor
    broken: torch.Tensor

    def __init__(self, plan: Plan, lessons: Sequence[Lesson]) -> None:
        super().__init__()
        self.plan, self.network, self.seed = plan, plan.network, lessons[0].seed
        where, many = device(self.network.device), len(lessons)
        self.material = Material(
            lessons,
            n_classes=plan.n_classes,
            batch_size=self.network.batch_size,
            hold_out=self.network.patience is not None,
            where=where,
        )
        self.length = self.material.steps * self.network.epochs
        self.stack = plan.built([lesson.seed for lesson in lessons])
        # who has stopped keeps what it was, while the others go on
        keeping = self.network.patience is not None or len(set(self.length)) > 1
        self.kept = nn.ParameterList(
            nn.Parameter(whole.detach().clone(), requires_grad=False)
            for whole in (self.stack.tensors() if keeping else ())
        )
        self.register_buffer("taken", torch.zeros((), dtype=torch.int64))
        self.register_buffer("best", torch.full((many,), torch.inf, dtype=torch.float64))
        self.register_buffer("waited", torch.zeros(many, dtype=torch.int64))
        self.register_buffer("stopped", torch.zeros(many, dtype=torch.bool))
        self.register_buffer("broken", torch.zeros(many, dtype=torch.bool, device=where))
        self._going = torch.ones(many, dtype=torch.bool, device=where)
        self._space = torch.empty(many * self.network.batch_size, plan.n_features, device=where)
        self._before: list[torch.Tensor] = []

    def batches(self, _generator: torch.Generator) -> Iterator[torch.Tensor]:
        """The next steps of everybody, each with the chance of its number; none if nobody goes on."""
        self._look()
        begin = int(self.taken)
        end = begin + int(self.material.steps.max())
        if self._going.any():
            for step, numbers in enumerate(self.material.batches(begin, end, epochs=self.network.epochs)):
                self._seed(begin + step)
                yield numbers

    def loss(self, numbers: torch.Tensor) -> torch.Tensor:
        """The sum of everybody's loss, gradients taken; who diverges counts nothing there, and is broken."""
        losses = self._tried(partial(self._descend, numbers))
        fine = losses < DIVERGED  # NaN is not
        self.broken.logical_or_(self._going & ~fine)  # in place: a module looks hard at what it is given
        if self.network.scheduled() is not None:
            self._before = [whole.detach().clone() for whole in self.stack.learning]
        return torch.where(fine, losses, 0.0).sum()

    def after_step(self) -> None:
        """Everybody's own share of the learning rate; and who is at the end of an epoch may stop."""
        schedule = self.network.scheduled()
        if schedule is not None and self._before:
            at = np.minimum(int(self.taken) / self.length, 1.0)
            shares = torch.tensor([schedule(progress) for progress in at.tolist()])
            for whole, before in zip(self.stack.learning, self._before, strict=True):
                whole.data = before.lerp(whole.data, _beside(shares.to(whole.device), whole))
        self.taken.add_(1)
        if not len(self.kept):
            return
        ends = (int(self.taken) % self.material.steps == 0) & self._going.cpu().numpy()
        if ends.any():
            self._keep(self._better(ends))
            self._look()

    def results(self) -> tuple[list[Weights], np.ndarray]:
        """The weights of each, and who failed."""
        for whole, kept in zip(self.stack.tensors(), self.kept, strict=False):
            whole.data.copy_(kept.data)
        networks = [self.stack.one(number) for number in range(self.stack.size)]
        finite = [all(bool(whole.isfinite().all()) for whole in each.values()) for each in networks]
        return networks, self.broken.cpu().numpy() | ~np.array(finite)

    def _tried(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Losses, zero if a single network raises, which then is broken."""
        try:
            return work()
        except Exception as error:
            # its text may be private, and it must cost one ballot only
            if short_of_memory(error):
                raise
            if len(self.broken) > 1:
                raise Unstackable from None
            self.broken.fill_(True)
            self.stopped.fill_(True)
            return torch.zeros(1, device=self.broken.device)

    def _wanted(self, numbers: torch.Tensor, shares: torch.Tensor | None = None) -> Wanted:
        return Wanted(
            targets=self.material.targets[numbers],
            absent=self.material.absent[:, None, :],
            shares=self.material.shares if shares is None else shares,
        )

    def _descend(self, numbers: torch.Tensor) -> torch.Tensor:
        return descend(self.stack, self._rows(numbers, augmented=True), self._wanted(numbers))

    def _held_out(self, numbers: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        logits = self.stack.logits(self._rows(numbers, augmented=False), training=False)
        return self._wanted(numbers, shares).losses(logits)[1]

    def _rows(self, numbers: torch.Tensor, *, augmented: bool) -> torch.Tensor:
        """The rows of a batch, always in the same memory: fresh pages would cost more than the copy."""
        torch.index_select(self.material.rows, 0, numbers.flatten(), out=self._space)
        rows = self._space.view(*numbers.shape, -1)
        if self.network.augment is None or not augmented:
            return rows
        changed = [self._augmented(number, own) for number, own in enumerate(rows)]
        self._seed(int(self.taken))
        return torch.stack(changed)

    def _augmented(self, number: int, own: torch.Tensor) -> torch.Tensor:
        """One network's rows, never two lessons in one call; if that raises, one ballot is lost."""
        _seed_all(self.material.seeds[number] + int(self.taken))
        augment = cast("Callable[[torch.Tensor], torch.Tensor]", self.network.augment)
        with contextlib.suppress(Exception):  # its text may be private
            changed = augment(own)
            if changed.shape == own.shape:
                return changed.to(own)
        self.broken[number] = True
        return own

    def _seed(self, step: int) -> None:
        """What the module draws: in a stack from torch only, or it would not have been stacked."""
        (reseed if self.plan.together else _seed_all)(self.seed + step)

    def _better(self, ends: np.ndarray) -> np.ndarray:
        """Who has never been better than now, at the end of an epoch; who has waited too long stops."""
        if self.network.patience is None:
            return ends & (int(self.taken) == self.length)
        held = np.zeros(len(ends))
        with torch.no_grad():
            for chunk in self.material.held:
                held += self._tried(partial(self._held_out, *chunk)).cpu().numpy()
        better: np.ndarray = ends & ((held < self.best.numpy()) | self.material.none_held)
        self.best.copy_(torch.as_tensor(np.where(better, held, self.best.numpy())))
        self.waited.copy_(torch.as_tensor(np.where(better, 0, self.waited.numpy() + ends)))
        self.stopped |= self.waited >= self.network.patience
        return better

    def _keep(self, whose: np.ndarray) -> None:
        """Set aside how these networks are now."""
        chosen = torch.as_tensor(whose, device=self._going.device)
        for kept, whole in zip(self.kept, self.stack.tensors(), strict=True):
            kept.data = torch.where(_beside(chosen, whole), whole.detach(), kept.data)

    def _look(self) -> None:
        """See who goes on: also after a checkpoint has been read."""
        going = (int(self.taken) < self.length) & ~self.stopped.numpy()
        self._going = torch.as_tensor(going, device=self._going.device)


def _beside(one_each: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """One number a network, so that it meets all of that network's weights."""
    return one_each.view(-1, *[1] * (whole.dim() - 1))


def _fingerprint(plan: Plan, lessons: Sequence[Lesson]) -> str:
    """A hash of all that these networks depend on."""
    settings = {
        name: getattr(value, "__qualname__", value)  # what is printed with its address, by name
        for name, value in plan.network.get_params().items()
        if name not in _NO_MATTER
    }
    how = (plan.together, plan.compiled, plan.orders)
    told = f"{settings}, {plan.module}, {how}, {[each.seed for each in lessons]}"
    data = [part for lesson in lessons for part in (lesson.rows, lesson.codes)]
    return digest(told, *data)


def _seed_all(seed: int) -> None:
    """Modules and augmentations may draw from any global generator: unseeded, one would move the next."""
    reseed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)

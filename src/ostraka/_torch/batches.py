"""What the networks of a stack learn from: everybody's own rows, in batches of one shape for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ostraka._torch.classifier import n_steps
from ostraka._torch.loop import epoch_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Lesson", "Material"]

_HELD_OUT = 5  # one row in so many is held out, if any


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Lesson:
    """What one network learns from: float32 rows (n, n_features), the class index of each, and its seed."""

    rows: np.ndarray
    codes: np.ndarray
    seed: int


class Material:
    """The lessons of a stack on its device; a row is known by its number among the rows of all.

    Attributes
    ----------
    seeds : list of int
    steps : integer array, shape (n_networks,)
        Batches in an epoch of each.
    absent : bool tensor, shape (n_networks, n_classes)
        Classes that a lesson does not hold: its network knows of no such class.
    shares : float tensor, shape (n_networks, batch_size)
        What a batch's rows weigh: where a lesson is shorter than a batch, its rows come again and
        weigh nothing.
    held_rows : list of integer arrays
        What was held out of each lesson.
    held : list of (row numbers, shares)
        The same, in the shape of batches.
    none_held : bool array, shape (n_networks,)
    """

    def __init__(
        self,
        lessons: Sequence[Lesson],
        *,
        n_classes: int,
        batch_size: int,
        hold_out: bool,
        where: torch.device,
    ) -> None:
        first = np.cumsum([0, *(len(lesson.codes) for lesson in lessons)])[:-1]
        parts = [_split(lesson, hold_out=hold_out) for lesson in lessons]
        held = self.held_rows = [start + rest for start, (_, rest) in zip(first, parts, strict=True)]
        self.seeds, self._size = [lesson.seed for lesson in lessons], batch_size
        self._learned = [start + learned for start, (learned, _) in zip(first, parts, strict=True)]
        self.steps = np.array([n_steps(len(learned), batch_size) for learned in self._learned])
        self.none_held = np.array([len(rest) == 0 for rest in held])
        known = [np.isin(np.arange(n_classes), lesson.codes) for lesson in lessons]
        self.rows = torch.as_tensor(np.concatenate([lesson.rows for lesson in lessons]), device=where)
        self.targets = torch.as_tensor(np.concatenate([lesson.codes for lesson in lessons]), device=where)
        self.absent = torch.as_tensor(~np.array(known), device=where)
        lengths = np.minimum([len(learned) for learned in self._learned], batch_size)[:, None]
        self.shares = torch.as_tensor(np.float32((np.arange(batch_size) < lengths) / lengths), device=where)
        chunks = range(0, max(len(rest) for rest in held), batch_size)
        self.held = [self._held(held, start, where) for start in chunks]

    def batches(self, begin: int, end: int, *, epochs: int) -> torch.Tensor:
        """Row numbers of the steps from ``begin`` to ``end``: int64 (n_steps, n_networks, batch_size).

        The epochs of a network follow each other without a pause, each in the order that its seed
        gives it alone. A network that is through with all of them gets its first row, and learns
        nothing that counts.
        """
        whole = np.empty((end - begin, len(self.seeds), self._size), dtype=np.int64)
        for number, (learned, steps) in enumerate(zip(self._learned, self.steps, strict=True)):
            whole[:, number] = learned[0]
            for epoch in range(begin // steps, min(epochs, -(-end // steps))):
                here, there = max(begin, epoch * steps), min(end, (epoch + 1) * steps)
                mine = self.order(number, epoch)[here - epoch * steps : there - epoch * steps]
                whole[here - begin : there - begin, number] = mine
        return torch.as_tensor(whole, device=self.rows.device)

    def order(self, number: int, epoch: int) -> np.ndarray:
        """Row numbers of one network's epoch: int64 (n_steps, batch_size)."""
        learned = self._learned[number]
        chance = torch.Generator().manual_seed(epoch_seed(self.seeds[number], epoch))
        order = torch.randperm(len(learned), generator=chance).numpy()
        return np.resize(learned[order], (self.steps[number], self._size))

    def _held(
        self, held: list[np.ndarray], start: int, where: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch's worth of what was held out, from there on; who has less repeats rows of its own."""
        size = self._size
        mine = [rest[start : start + size] for rest in held]
        numbers = [
            np.resize(part if len(part) else learned, size)
            for part, learned in zip(mine, self._learned, strict=True)
        ]
        lengths = np.array([len(part) for part in mine])[:, None]
        shares = (np.arange(size) < lengths) / np.maximum([len(rest) for rest in held], 1)[:, None]
        return torch.as_tensor(np.array(numbers), device=where), torch.as_tensor(
            np.float32(shares), device=where
        )


def _split(lesson: Lesson, *, hold_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are learned from, and which decide when to stop: by the lesson's own seed."""
    n_rows = len(lesson.codes)
    if not hold_out:
        return np.arange(n_rows), np.arange(0)
    order = np.random.default_rng([lesson.seed, 0, 1]).permutation(n_rows)
    held, learned = np.split(order, [n_rows // _HELD_OUT])
    return np.sort(learned), held

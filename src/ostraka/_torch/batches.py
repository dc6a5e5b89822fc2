"""Training sets of a stack of networks, and their batches, which have one shape for all networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ostraka._torch.loop import epoch_seed, n_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StackBatches", "TrainingSet"]

_HELD_OUT = 5  # every fifth row is held out, if any


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class TrainingSet:
    """One network's float32 rows (n, n_features), the class index of each row, and the network's seed."""

    rows: np.ndarray
    codes: np.ndarray
    seed: int


class StackBatches:
    """The training sets of a stack on its device. A row's number is its place among the rows of all sets.

    Attributes
    ----------
    seeds : list of int
    steps : integer array, shape (n_networks,)
        Batches in an epoch of each network.
    absent : bool tensor, shape (n_networks, n_classes)
        Classes that are not in a network's training set: the network cannot predict them.
    row_weights : float tensor, shape (n_networks, batch_size)
        Weights of a batch's rows. If a training set is smaller than a batch, its rows are repeated with
        weight 0.
    held_rows : list of integer arrays
        Numbers of the rows held out of each training set.
    held_batches : list of (row numbers, row weights)
        The same rows, in batches.
    none_held : bool array, shape (n_networks,)
    """

    def __init__(
        self,
        training_sets: Sequence[TrainingSet],
        *,
        n_classes: int,
        batch_size: int,
        hold_out: bool,
        where: torch.device,
    ) -> None:
        first = np.cumsum([0, *(len(each.codes) for each in training_sets)])[:-1]
        parts = [_split(each, hold_out=hold_out) for each in training_sets]
        held = self.held_rows = [start + rest for start, (_, rest) in zip(first, parts, strict=True)]
        self.seeds, self._size = [each.seed for each in training_sets], batch_size
        self._learned = [start + learned for start, (learned, _) in zip(first, parts, strict=True)]
        self.steps = np.array([n_steps(len(learned), batch_size) for learned in self._learned])
        self.none_held = np.array([len(rest) == 0 for rest in held])
        known = [np.isin(np.arange(n_classes), each.codes) for each in training_sets]
        self.rows = torch.as_tensor(np.concatenate([each.rows for each in training_sets]), device=where)
        self.codes = torch.as_tensor(np.concatenate([each.codes for each in training_sets]), device=where)
        self.absent = torch.as_tensor(~np.array(known), device=where)
        lengths = np.minimum([len(learned) for learned in self._learned], batch_size)[:, None]
        self.row_weights = torch.as_tensor(
            np.float32((np.arange(batch_size) < lengths) / lengths), device=where
        )
        chunks = range(0, max(len(rest) for rest in held), batch_size)
        self.held_batches = [self._held_batch(held, start, where) for start in chunks]

    def numbers(self, begin: int, end: int, *, epochs: int) -> torch.Tensor:
        """Row numbers of the steps from ``begin`` to ``end``: int64 (n_steps, n_networks, batch_size).

        A network's epochs follow each other without a gap, in the order that its seed gives. A network
        that has finished gets its first row, and its update is discarded.
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
        generator = torch.Generator().manual_seed(epoch_seed(self.seeds[number], epoch))
        order = torch.randperm(len(learned), generator=generator).numpy()
        return np.resize(learned[order], (self.steps[number], self._size))

    def _held_batch(
        self, held: list[np.ndarray], start: int, where: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch of held-out rows from ``start`` on. A network with fewer rows repeats some at weight 0."""
        size = self._size
        mine = [rest[start : start + size] for rest in held]
        numbers = [
            np.resize(part if len(part) else learned, size)
            for part, learned in zip(mine, self._learned, strict=True)
        ]
        lengths = np.array([len(part) for part in mine])[:, None]
        weights = (np.arange(size) < lengths) / np.maximum([len(rest) for rest in held], 1)[:, None]
        return torch.as_tensor(np.array(numbers), device=where), torch.as_tensor(
            np.float32(weights), device=where
        )


def _split(training_set: TrainingSet, *, hold_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """Places of the rows to train on and of the rows held out, drawn with the set's own seed."""
    n_rows = len(training_set.codes)
    if not hold_out:
        return np.arange(n_rows), np.arange(0)
    order = np.random.default_rng([training_set.seed, 0, 1]).permutation(n_rows)
    held, learned = np.split(order, [n_rows // _HELD_OUT])
    return np.sort(learned), held

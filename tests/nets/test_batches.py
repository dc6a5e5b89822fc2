"""Batches of a stack: one shape for all networks, each with its own rows, as often as alone."""

import numpy as np
import pytest
import torch

from ostraka.nets.training import StackBatches, TrainingSet


def stacked(*sizes: int, hold_out: bool) -> StackBatches:
    own = [
        TrainingSet(rows=np.zeros((size, 2), dtype=np.float32), codes=np.arange(size) % 4, seed=number)
        for number, size in enumerate(sizes)
    ]
    return StackBatches(own, n_classes=4, batch_size=16, hold_out=hold_out, where=torch.device("cpu"))


def test_rows_of_a_short_lesson_come_again_at_no_weight_and_none_is_lost():
    batches_of = stacked(40, 5, 33, hold_out=False)
    assert batches_of.steps.tolist() == [2, 1, 2]
    assert batches_of.row_weights.sum(dim=1).tolist() == pytest.approx([1, 1, 1])
    batches = batches_of.numbers(0, 4, epochs=2)
    assert set(batches[:, 0].flatten().tolist()) <= set(range(40))
    assert batches[:2, 0].flatten().unique().numel() == 32  # an epoch: no row twice
    short = batches[:2, 1][:, batches_of.row_weights[1] > 0]
    assert sorted(short[0].tolist()) == sorted(short[1].tolist()) == [40, 41, 42, 43, 44]
    everything = batches_of.numbers(0, 40, epochs=20)[:, 2]
    assert sorted(everything.unique().tolist()) == list(range(45, 78))


def test_what_is_held_out_is_not_learned_from():
    batches_of = stacked(40, 4, 100, hold_out=True)
    held = [
        torch.cat([numbers[each][shares[each] > 0] for numbers, shares in batches_of.held_batches])
        for each in range(3)
    ]
    assert [len(rows) for rows in held] == [8, 0, 20]
    assert batches_of.none_held.tolist() == [False, True, False]
    learned = batches_of.numbers(0, 100, epochs=100)
    assert all(not set(held[each].tolist()) & set(learned[:, each].unique().tolist()) for each in range(3))
    shares = sum(shares.sum(dim=1) for _, shares in batches_of.held_batches)
    assert shares.tolist() == pytest.approx([1, 0, 1])

"""The training loop: the same seed trains the same, interrupted or not, and a NaN costs one epoch at most."""

import math
import os
import stat

import numpy as np
import pytest
import torch
from torch import nn

from ostraka.core.check import TrainingDiverged
from ostraka.nets import training as loop
from ostraka.nets.training import Objective, cosine, train

ROWS = torch.linspace(-1, 1, 40).reshape(-1, 1)
TARGETS = 3 * ROWS - 1


class Fitting:
    """A line fitted to 40 points, that may be stopped or spoilt at a step."""

    def __init__(self, *, stop_at=None, nan_at=None, checkpoint=None, **options):
        torch.manual_seed(5)
        self.line = nn.Linear(1, 1)
        self.optimizer = torch.optim.Adam(self.line.parameters(), lr=0.1)
        self.stop_at, self.nan_at, self.steps, self.rates, self.values = stop_at, nan_at, 0, [], []
        self.options = {"epochs": 6, "seed": 7, "checkpoint": checkpoint} | options

    def loss(self, batch):
        self.steps += 1
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        if self.steps == self.stop_at:
            raise KeyboardInterrupt
        spoilt = math.nan if self.steps == self.nan_at else 1.0
        noise = 0.01 * torch.randn(len(batch), 1)  # from torch's own generator, as augmentation draws
        value = spoilt * ((self.line(ROWS[batch]) - TARGETS[batch] + noise) ** 2).mean()
        self.values.append(float(value.detach()))
        return value

    def batches(self, generator):
        return torch.randperm(40, generator=generator).split(10)

    def run(self):
        return train(
            [Objective(optimizer=self.optimizer, loss=self.loss)],
            self.batches,
            steps=4,
            state={"line": self.line},
            **self.options,
        )

    def weights(self):
        return [p.item() for p in self.line.parameters()]


def test_the_same_seed_trains_the_same_and_another_one_otherwise():
    first, second, third = Fitting(), Fitting(), Fitting(seed=8)
    assert first.run() == second.run() != third.run()
    assert first.weights() == second.weights() != third.weights()


def test_the_loss_falls_and_the_line_is_found():
    events = []
    fitting = Fitting(epochs=60, on_epoch=lambda *what: events.append(what))
    losses = fitting.run()
    assert events == [(epoch, 60) for epoch in range(1, 61)]
    assert losses[-1] < losses[0] / 100
    assert losses == pytest.approx(np.mean(np.reshape(fitting.values, (60, 4)), axis=1))  # of the batches
    assert fitting.weights() == pytest.approx([3, -1], abs=0.1)


def test_whoever_trains_keeps_their_own_random_numbers():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    fitting = Fitting.__new__(Fitting)
    state = torch.get_rng_state()
    fitting.__init__()
    torch.set_rng_state(state)
    fitting.run()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("schedule", [None, cosine])
def test_interrupted_training_goes_on_from_the_file_as_if_nothing_had_happened(tmp_path, schedule):
    uninterrupted = Fitting(schedule=schedule)
    losses = uninterrupted.run()
    stopped = Fitting(stop_at=4 * 3 + 2, checkpoint=tmp_path / "line.pt", schedule=schedule)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    again = Fitting(checkpoint=tmp_path / "line.pt", schedule=schedule)
    assert again.run() == losses
    assert again.steps == 4 * 3  # three of six epochs were done
    assert again.weights() == uninterrupted.weights()


def test_a_finished_training_is_not_done_again(tmp_path):
    first = Fitting(checkpoint=tmp_path / "line.pt")
    losses = first.run()
    again = Fitting(checkpoint=tmp_path / "line.pt")
    content = torch.load(tmp_path / "line.pt", weights_only=True)
    assert content.keys() == {"name", "state", "losses"}
    assert content["name"] == "version 3, seed 7, 6 epochs of 4 steps, "  # by which earlier ones are known
    assert content["state"].keys() == {"line", "optimizer 0"}
    assert loop.digest("a", np.arange(3)) == "5d08907920c9b0aa"
    assert (again.run(), again.steps) == (losses, 0)
    assert again.weights() == first.weights()


def test_a_long_training_is_saved_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_BETWEEN_SAVES", 0.0)
    path = tmp_path / "line.pt"
    saves = []
    Fitting(checkpoint=path, on_epoch=lambda *_: saves.append(path.exists())).run()
    assert saves == [False] + [True] * 5  # on_progress of an epoch before it is saved


@pytest.mark.parametrize(
    "changes", [{"seed": 8}, {"epochs": 7}, {"fingerprint": "other rows"}], ids=lambda d: next(iter(d))
)
def test_a_file_of_another_training_is_refused(tmp_path, changes):
    Fitting(checkpoint=tmp_path / "line.pt").run()
    with pytest.raises(ValueError, match="belongs to another training"):
        Fitting(checkpoint=tmp_path / "line.pt", **changes).run()


def test_a_file_that_is_no_checkpoint_or_would_run_code_is_refused(tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "owned"),))

    file = tmp_path / "line.pt"
    for content in (b"", b"not a checkpoint", Payload()):
        torch.save({"name": content}, file) if isinstance(content, Payload) else file.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint"):
            Fitting(checkpoint=file).run()
    assert not (tmp_path / "owned").exists()


def test_nobody_else_reads_a_checkpoint(tmp_path):
    before = os.umask(0)
    try:
        Fitting(checkpoint=tmp_path / "line.pt").run()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "line.pt").stat().st_mode) == 0o600


def test_nan_stops_says_where_and_leaves_the_last_good_state(tmp_path):
    good = Fitting(epochs=6, stop_at=4 * 2 + 1)
    with pytest.raises(KeyboardInterrupt):
        good.run()
    spoilt = Fitting(nan_at=4 * 2 + 3, checkpoint=tmp_path / "line.pt")
    with pytest.raises(TrainingDiverged, match=r"loss is nan in epoch 3 of 6, step 3 of 4.*after epoch 2"):
        spoilt.run()
    assert spoilt.weights() == good.weights()
    healed = Fitting(checkpoint=tmp_path / "line.pt")
    assert len(healed.run()) == 6
    assert healed.steps == 4 * 4


def test_the_schedule_is_a_share_of_the_first_learning_rate():
    fitting = Fitting(schedule=cosine, epochs=2)
    fitting.run()
    expected = 0.1 * (1 + np.cos(np.pi * np.arange(8) / 8)) / 2
    assert fitting.rates == pytest.approx(expected.tolist())


def test_turns_alternate_and_what_follows_a_step_comes_after_them():
    order = []
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)

    def turn(name, module):
        def loss(batch):
            order.append(name)
            return module(ROWS[batch]).pow(2).mean()

        return Objective(optimizer=torch.optim.SGD(module.parameters(), lr=0.1), loss=loss)

    train(
        [turn("one", first), turn("two", second)],
        lambda generator: torch.randperm(40, generator=generator).split(20),
        steps=2,
        epochs=1,
        seed=0,
        state={"one": first, "two": second},
        after_step=lambda: order.append("after"),
    )
    assert order == ["one", "two", "after"] * 2


def test_the_cosine_schedule_is_that_of_torch_and_ends_at_zero():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    for step in range(21):
        assert cosine(step / 20) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        schedule.step()
    assert cosine(1.0) == 0

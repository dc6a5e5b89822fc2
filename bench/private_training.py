"""One step of private training against an ordinary one: ghost norms and clipped sums, without and with noise.

The network has layers of 784, 200 and 10; a batch has 600 rows. Ratios are of the medians of steps that take
turns. ``vmap`` is what modules without ghost norms take.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn

from ostraka._torch import per_row
from ostraka._torch.private_steps import PrivateTraining

BATCH, STEPS, THREADS = 600, 40, 1
_FEW = 3  # turns of vmap, which is slow
QUICK = {"BATCH": 60, "STEPS": 3}


def losses(module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with the class in the last column."""
    return nn.functional.cross_entropy(module(rows[:, :-1]), rows[:, -1].long(), reduction="none")


def network() -> nn.Module:
    """A perceptron."""
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def main() -> None:
    """Time ordinary, ghost, noisy ghost and vmap steps in turns."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    rows = torch.cat([torch.rand(BATCH, 784), torch.randint(0, 10, (BATCH, 1)).float()], dim=1)
    module = network()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    training = PrivateTraining(
        modules=[module],
        losses=losses,
        rows=rows,
        owners=np.zeros(BATCH, dtype=np.int64),
        sampling_rate=1.0,
        sigma=1.0,
        sigma_norms=None,
        clip=1.0,
        expected=np.array([float(BATCH)]),
        rng=np.random.default_rng(0),
    )

    def ordinary() -> None:
        optimizer.zero_grad()
        losses(module, rows).mean().backward()

    def ghost() -> None:
        found = per_row.row_gradients(module, losses, rows)
        found.weighted_sum((1 / found.norms).clamp_max(1.0))

    def one_by_one() -> None:
        found = per_row._one_by_one(module, losses, rows)  # noqa: SLF001
        found.weighted_sum((1 / found.norms).clamp_max(1.0))

    everyone = np.arange(BATCH)
    kinds = {
        "ordinary": ordinary,
        "ghost norms and clipped sum": ghost,
        "the same with noise": lambda: training.step(everyone),
        "vmap": one_by_one,
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(STEPS + 1):
        for name, step in kinds.items():
            if name == "vmap" and turn > _FEW:
                continue
            start = time.process_time()
            step()
            optimizer.step()
            if turn:
                seconds[name].append(time.process_time() - start)
    base = float(np.median(seconds["ordinary"]))
    for name, each in seconds.items():
        median = float(np.median(each))
        print(
            f"  {name}: {1000 * median:.1f} ms of processor time, {median / base:.2f} times an ordinary step"
        )


if __name__ == "__main__":
    main()

"""One step of private training against an ordinary one: ghost norms and clipped sums, without and with noise.

The network has layers of 784, 200 and 10; a batch has 600 rows. Ratios are of the medians of steps that take
turns. ``vmap`` is what modules without ghost norms take. Where Opacus is installed (docs/when-not.md names
the commands for an environment of its own), its two steps take turns, too: gradients of every row, and ghost
clipping. They have noise, so they stand beside ours with noise.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ostraka.nets import private as per_row
from ostraka.nets.private import PrivateTraining

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, STEPS, THREADS = 600, 40, 1
_FEW = 3  # turns of vmap, which is slow
QUICK = {"BATCH": 60, "STEPS": 3}


def losses(module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with the class in the last column."""
    return nn.functional.cross_entropy(module(rows[:, :-1]), rows[:, -1].long(), reduction="none")


def network() -> nn.Module:
    """A perceptron."""
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def rivals(rows: torch.Tensor) -> dict[str, Callable[[], None]]:
    """Steps of Opacus on the same network and batch; none where it is not installed."""
    if importlib.util.find_spec("opacus") is None:
        return {}
    warnings.filterwarnings("ignore")  # hooks and secure mode, which the comparison does not need
    engine = importlib.import_module("opacus").PrivacyEngine

    def made(mode: str) -> Callable[[], None]:
        module, data = network(), torch.utils.data.TensorDataset(rows)
        parts = engine().make_private(
            module=module,
            optimizer=torch.optim.Adam(module.parameters(), lr=1e-3),
            data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
            criterion=nn.CrossEntropyLoss(),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
        private, optimizer = parts[:2]
        criterion = parts[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def step() -> None:
            optimizer.zero_grad()
            criterion(private(rows[:, :-1]), rows[:, -1].long()).backward()
            optimizer.step()

        return step

    return {f"Opacus, {mode}": made(mode) for mode in ("hooks", "ghost")}


def main() -> None:
    """Time ordinary, ghost, noisy ghost, vmap and the rival's steps in turns."""
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
        gradients = per_row.row_gradients(module, losses, rows)
        gradients.weighted_sum((1 / gradients.norms).clamp_max(1.0))

    def one_by_one() -> None:
        gradients = per_row._one_by_one(module, losses, rows)  # noqa: SLF001
        gradients.weighted_sum((1 / gradients.norms).clamp_max(1.0))

    everyone = np.arange(BATCH)
    kinds = {
        "ordinary": ordinary,
        "ghost norms and clipped sum": ghost,
        "the same with noise": lambda: training.step(everyone),
        "vmap": one_by_one,
    } | rivals(rows)
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(STEPS + 1):
        for name, step in kinds.items():
            if name == "vmap" and turn > _FEW:
                continue
            start = time.process_time()
            step()
            if not name.startswith("Opacus"):
                optimizer.step()
            if turn:
                seconds[name].append(time.process_time() - start)
    base = float(np.median(seconds["ordinary"]))
    for name, times in seconds.items():
        median = float(np.median(times))
        print(
            f"  {name}: {1000 * median:.1f} ms of processor time, {median / base:.2f} times an ordinary step"
        )


if __name__ == "__main__":
    main()

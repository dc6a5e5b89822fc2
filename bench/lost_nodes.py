"""A Ray node that is killed at 30, 60 and 90 % of a training: how much longer the training takes.

Real nodes of ``ray.cluster_utils`` on this machine, with one worker each. A part of the training sleeps, so
that the nodes do not share its processors; every teacher must come out as without a loss.
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sklearn.linear_model import LogisticRegression

from ostraka.voters import partition
from ostraka.voters.voting import Shard, spread, train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.voters.voting import Teacher

NODES, TEACHERS, SLEEP = 3, 90, 2.0  # seconds that one teacher takes beside its training: a minute in all
SHARES = (0.3, 0.6, 0.9)
QUICK = {"NODES": 0}


def slowly(shards: Sequence[Shard], *, pause: float) -> list[Teacher]:
    """Train one teacher after the other, and sleep before each."""
    teachers = []
    for shard in shards:
        time.sleep(pause)
        teachers += train(LogisticRegression(), [shard])
    return teachers


def trained(shards: list[Shard], lost_at: float | None) -> tuple[float, bytes, int]:
    """Seconds of a training, the coefficients, and how often progress was told."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    others = [cluster.add_node(num_cpus=1) for _ in range(NODES - 1)]
    counts: list[int] = []

    def on_progress(done: int, total: int) -> None:
        counts.append(done)
        if lost_at is not None and others and done >= lost_at * total:
            cluster.remove_node(others.pop(), allow_graceful=False)
            others.clear()

    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        start = time.perf_counter()
        teachers = spread(
            partial(slowly, pause=SLEEP), shards, engine="ray", n_jobs=None, on_progress=on_progress
        )
        took = time.perf_counter() - start
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()
        cluster.shutdown()
    return took, b"".join(teacher.model.coef_.tobytes() for teacher in teachers), len(counts)


def main() -> None:
    """Train without a loss, then with one at each share."""
    if NODES < 2 or importlib.util.find_spec("ray") is None:
        print("  Ray is not installed, or no node is there to be lost")
        return
    warnings.simplefilter("ignore")  # what Ray says while it starts is not ours
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 50 * TEACHERS)
    X = rng.normal(size=(len(y), 10)) + y[:, None]
    dealt = partition(len(y), n_teachers=TEACHERS, key=b"no secret: the same shards each time").rows()
    seeds = np.random.SeedSequence(0).spawn(TEACHERS)
    shards = [Shard(X[rows], y[rows], seed, 0) for rows, seed in zip(dealt, seeds, strict=True)]
    trained(shards[: 4 * NODES], None)  # workers load what they need
    usual, model, counts = trained(shards, None)
    print(
        f"  {NODES} nodes, {TEACHERS} teachers: {usual:.1f} s undisturbed, progress told {counts} times",
        flush=True,
    )
    for share in SHARES:
        took, second_model, counts = trained(shards, share)
        assert second_model == model, "another training"
        print(
            f"  a node killed at {share:.0%}: {took:.1f} s, {took / usual:.2f} x, progress {counts} times",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Answers drawn exactly, against the same answers from noise in float64, in one run."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from ostraka import Adjacency, GNMax, LNMax, Private, Threshold
from ostraka.core import check as _check
from ostraka.core.randomness import os_keyed

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((1, 10), (100, 10), (20_000, 10), (1_000, 100))
REPEATS = 9
QUICK = {"SHAPES": ((1, 10), (100, 10)), "REPEATS": 2}
FLOOR = "floor: at most 1.5 times the time of float64 noise"


def in_floats(
    mechanism: GNMax | LNMax | Threshold,
) -> Callable[[Private, np.random.Generator], np.ndarray]:
    """Answer with float64 noise: counts minus the largest (or the threshold), noise, argmax."""

    def argmax(votes: Private, rng: np.random.Generator) -> np.ndarray:
        counts = _check.counts(votes.open())
        gap = counts - counts.max(axis=1, keepdims=True)
        if isinstance(mechanism, GNMax):
            return np.asarray((gap + rng.normal(scale=mechanism.sigma, size=gap.shape)).argmax(axis=1))
        assert isinstance(mechanism, LNMax)
        return np.asarray((gap + rng.laplace(scale=mechanism.scale, size=gap.shape)).argmax(axis=1))

    def screen(votes: Private, rng: np.random.Generator) -> np.ndarray:
        assert isinstance(mechanism, Threshold)
        gap = _check.counts(votes.open()) - mechanism.at
        if mechanism.noise == "largest":
            return np.asarray(gap.max(axis=1) + rng.normal(scale=mechanism.sigma, size=len(gap)) >= 0)
        return np.asarray((gap + rng.normal(scale=mechanism.sigma, size=gap.shape)).max(axis=1) >= 0)

    return screen if isinstance(mechanism, Threshold) else argmax


def seconds(work: Callable[[], object], *, times: int) -> float:
    """Return the mean seconds of a call."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def main() -> None:
    print(FLOOR)
    mechanisms = (
        GNMax(sigma=40.0),
        LNMax(scale=20.0),
        Threshold(at=200.0, sigma=150.0),
        Threshold(at=200.0, sigma=150.0, noise="every"),
    )
    rng, worst = os_keyed(), 0.0
    for n_queries, n_classes in SHAPES:
        counts = np.random.default_rng(0).multinomial(250, np.ones(n_classes) / n_classes, size=n_queries)
        votes = Private(counts, Adjacency.one_ballot())
        times = max(1, 30_000 // counts.size)
        for mechanism in mechanisms:
            mechanism.release(votes, rng=rng)
            before = in_floats(mechanism)
            floats, exact = math.inf, math.inf
            for _ in range(REPEATS):  # in turn, so that both see the same load
                floats = min(floats, seconds(lambda b=before, v=votes: b(v, rng), times=times))
                exact = min(exact, seconds(lambda m=mechanism, v=votes: m.release(v, rng=rng), times=times))
            worst = max(worst, exact / floats)
            print(
                f"{n_queries:,} x {n_classes}, {mechanism}: {exact * 1e6:,.1f} us, in floats "
                f"{floats * 1e6:,.1f} us, ratio {exact / floats:.2f}"
            )
    print(f"largest ratio: {worst:.2f}")


if __name__ == "__main__":
    main()

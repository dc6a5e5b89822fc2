"""Encodings, trust, noise and who vanishes, in all combinations: the sum is numpy's, plus the noise."""

import itertools

import numpy as np
import pytest

from ostraka.collect import (
    Client,
    CountMin,
    CountSketch,
    Grid,
    Histogram,
    Histograms,
    Keeper,
    Pairs,
    Sum,
    Tally,
    Task,
    Tree,
    Vector,
    Visits,
)
from ostraka.collect.plan import among_clients
from ostraka.core.mechanisms.skellam import largest_draw
from ostraka.secure.keys import Identity

KEY = "c3" * 32
CASES = {
    "histogram": (Histogram(0, 12, cells=6), lambda k: k),
    "tree": (Tree(0, 12, fanout=3), lambda k: k),
    "grid": (Grid(x=(0, 12), y=(0, 2), shape=(4, 2), at_most=2), lambda k: [(k, 0.1), (k, 1.9)]),
    "pairs": (Pairs(items=5, at_most=3), lambda k: [k % 5, (2 * k) % 5]),
    "count-min": (CountMin(width=7, depth=2, key=KEY, at_most=2), lambda k: [k, k + 100]),
    "count-sketch": (CountSketch(width=7, depth=2, key=KEY), lambda k: [k]),
    "visits": (
        Visits(x=(0, 12), y=(0, 2), shape=(4, 2), at_most=3),
        lambda k: [(k, 0.1), (k, 0.1), (k, 1.9)],
    ),
    "histograms": (Histograms(((0, 12, 6), (0, 3, 3))), lambda k: [k, k % 3]),
    "sum": (Sum(0, 15, bits=4), lambda k: k),  # whole steps: nothing is rounded
    "vector": (Vector(cells=2, clip=16.0, grid=16), lambda k: [k, -1]),
}
N = 12
VANISHING = {
    "nobody": {},
    "before sharing": {2: "share"},
    "after sharing": {5: "mask"},
    "at the end": {7: "unmask"},
}


def plain(encoding, values):
    return np.sum([encoding.encode(value).astype(np.int32) for value in values], axis=0, dtype=np.int64)


TRUSTS = ["keepers", "clients"]


@pytest.mark.parametrize(
    ("case", "trust", "noise", "vanishing"),
    [
        *itertools.product(["tree"], TRUSTS, ["parties", "tally"], VANISHING),
        *itertools.product(
            [case for case in CASES if case != "tree"], TRUSTS, ["parties"], ["after sharing"]
        ),
    ],
)
def test_the_sum_of_the_survivors_is_that_of_numpy(case, trust, noise, vanishing):
    encoding, value = CASES[case]
    me, others = Identity.fresh(), [Identity.fresh() for _ in range(3)]
    options = {"sigma": 1.5, "noise": trust if noise == "parties" else "tally", "least": 8, "most": 20}
    values, gone = [value(k) for k in range(N)], VANISHING[vanishing]
    if trust == "keepers":
        keys = [Keeper.key(keeper) for keeper in others]
        task = Task(encoding, tally=me.public_key, keepers=keys, **options)
        tally = Tally(task, me, keepers=[Keeper(task, keeper) for keeper in others])
        survivors = [k for k in range(N) if k not in gone]
        for k in survivors:
            tally.receive(Client(task).report(values[k]))
    else:
        task = Task(encoding, tally=me.public_key, missing=0.2, **options)
        tally = Tally(task, me)
        survivors = among_clients(tally, values, vanish=gone)
    sums = tally.close()
    assert tally.n_survivors == len(survivors)
    noise_here = sums.open() - plain(encoding, [values[k] for k in survivors])
    shares = 3 if trust == "keepers" else len(survivors)
    if noise == "tally":
        assert not noise_here.any()
    else:
        assert np.abs(noise_here).max() <= shares * largest_draw(task.share(N))
        assert np.abs(noise_here).max() < 14 * tally.variance**0.5
    assert sums.adjacency.within(task.mechanism.promise)
    assert sums.adjacency.unit == "client"

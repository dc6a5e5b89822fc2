"""Contribution: what one row adds to an aggregate, stated once for voters, cells, generators and clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostraka.core import check
from ostraka.core.private import Adjacency


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one row adds: a function of that row and of public values, bit for bit, within these norms.

    Public values are public rows, the schema, the settings, and what was released before. No encoding, type,
    range, category list, shape of a batch, kernel, refusal or warning that one private row decides for others
    is among them.

    Parameters
    ----------
    l0, l1, l2, linf : float > 0
        Bounds on what a row adds: entries other than zero, sum of sizes, Euclidean length, and the largest
        size. Infinity: not bounded in this norm. One at least is.

    Examples
    --------
    >>> vote = Contribution(l0=1, l1=1.0, l2=1.0, linf=1.0)
    >>> vote.holds([[2, 3], [4, 0]], [[2, 3], [4, 1]], relation="add-or-remove")
    True
    >>> vote.holds([[2, 3]], [[3, 2]], relation="add-or-remove")  # two rows moved
    False
    >>> vote.adjacency(relation="replace-one").l1
    2.0
    """

    l0: float = math.inf
    l1: float = math.inf
    l2: float = math.inf
    linf: float = math.inf

    def __post_init__(self) -> None:
        norms = {"l0": self.l0, "l1": self.l1, "l2": self.l2, "linf": self.linf}
        check.nonnegative(**{name: norm for name, norm in norms.items() if not math.isinf(norm)})
        if not 0 < min(norms.values()) < math.inf:
            raise ValueError(f"a row's part must be bounded in one norm at least, and above 0, got {norms}")

    def adjacency(self, *, unit: str = "row", relation: str = "replace-one") -> Adjacency:
        """What one unit moves: its part comes or goes; under replace-one, one goes and another comes."""
        times = 2.0 if relation == "replace-one" else 1.0
        return Adjacency.vector(
            unit=unit,
            l0=times * self.l0,
            l1=times * self.l1,
            l2=times * self.l2,
            linf=times * self.linf,
            relation=relation,
        )

    def holds(self, before: Any, after: Any, *, relation: str) -> bool:
        """Whether two aggregates of neighbours, before any noise, are as near as this promises."""
        change = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
        size, far = np.abs(change), self.adjacency(relation=relation)
        return bool(
            np.count_nonzero(change) <= far.l0
            and size.sum() <= far.l1
            and math.hypot(*change.ravel().tolist()) <= far.l2
            and size.max(initial=0.0) <= far.linf
        )

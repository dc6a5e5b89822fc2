"""Votes of a new sample, which is drawn each time a mechanism opens them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka.private import Adjacency, Private
from ostraka.randomness import os_keyed

if TYPE_CHECKING:
    from ostraka.voters._nearest import Nearest

__all__ = ["SampledVotes", "Sampler"]

_CELLS = 2**20  # random numbers drawn at a time: 8 MiB


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sampler:
    """The data from which the votes of a new sample are counted. Private."""

    crowd: Nearest
    points: np.ndarray
    codes: np.ndarray  # for each query, the classes of the nearest units, nearest first
    k: int
    sampling_rate: float
    n_classes: int
    rng: np.random.Generator | None  # None: a new key from the operating system for each draw

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the votes."""
        return len(self.codes), self.n_classes

    def __getitem__(self, rows: Any) -> Self:
        return replace(self, points=self.points[rows], codes=self.codes[rows])

    def repeated(self, n_trials: int) -> Self:
        """A sampler of one query, repeated."""
        points, codes = (
            np.broadcast_to(each, (n_trials, each.shape[1])) for each in (self.points, self.codes)
        )
        return replace(self, points=points, codes=codes)

    def draw(self) -> np.ndarray:
        """Draw a new sample for each query, and count the votes of its k nearest units."""
        rng = os_keyed() if self.rng is None else self.rng
        counts, left = self._counted(self.codes, np.full(len(self.codes), self.k), rng)
        depth = self.codes.shape[1]
        if depth < self.crowd.n_units:
            for query in np.flatnonzero(left):  # rare: keep the units drawn so far, and draw among the others
                rest = self.crowd.around(self.points[query : query + 1], depth=self.crowd.n_units)[:, depth:]
                counts[query] += self._counted(rest, left[query : query + 1], rng)[0][0]
        return counts

    def _counted(
        self, codes: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Votes of the first ``wanted`` sampled units of each row, and how many are still missing."""
        counts = np.empty((len(codes), self.n_classes), dtype=np.int64)
        left = np.empty(len(codes), dtype=np.int64)
        step = max(1, _CELLS // codes.shape[1])
        for rows in (slice(start, start + step) for start in range(0, len(codes), step)):
            part = codes[rows]
            # multiples of 2**-53, so the rate is rounded down to one: a smaller rate costs no more
            among = rng.random(part.shape) < math.floor(self.sampling_rate * 2**53) / 2**53
            place = among.cumsum(axis=1, dtype=np.int32)
            query, at = np.nonzero(among & (place <= wanted[rows, None]))
            cells = query * self.n_classes + part[query, at]
            counts[rows] = np.bincount(cells, minlength=len(part) * self.n_classes).reshape(len(part), -1)
            left[rows] = np.maximum(wanted[rows] - place[:, -1], 0)
        return counts, left


class SampledVotes(Private):
    """Private votes without stored values: each :meth:`open` counts the votes of a new sample.

    Two releases from one sample cost more than two from two samples (docs/neighbours.md), and the price
    assumes the latter. So no sample is stored.
    """

    __slots__ = ("_sampler",)

    def __init__(self, values: Any, adjacency: Adjacency) -> None:
        self._sampler = (
            values if isinstance(values, Sampler) else None
        )  # otherwise values computed from an opened sample
        super().__init__(values if self._sampler is None else np.zeros(self._sampler.shape, int), adjacency)

    @property
    def drawn_anew(self) -> bool:
        """Whether there is a sampler to draw from."""
        return self._sampler is not None

    def __getitem__(self, rows: Any) -> Private:
        """Some of the queries. Their votes are still drawn at each opening."""
        if self._sampler is None:
            return super().__getitem__(rows)
        chosen = Private(np.arange(len(self)), self.adjacency)[rows].open()
        return SampledVotes(self._sampler[chosen], self.adjacency)

    def open(self) -> np.ndarray:
        """The votes of a new sample, read-only, as for :meth:`Private.open`."""
        if self._sampler is None:
            return super().open()
        counts = self._sampler.draw()
        counts.setflags(write=False)
        return counts

    def with_adjacency(self, **changes: Any) -> Private:
        """The same votes under another adjacency. They are still drawn at each opening."""
        if self._sampler is None:
            return super().with_adjacency(**changes)
        return SampledVotes(self._sampler, replace(self.adjacency, **changes))

"""The state of one mechanism's recursion, which is kept and continued when more answers are needed."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import TYPE_CHECKING, NamedTuple

from ostraka._composition.envelope import Envelope, NotSmoothError
from ostraka._composition.families import argmax_family, screen_family
from ostraka._composition.law import ARGMAX, Law
from ostraka._composition.recursion import first_answers
from ostraka._composition.smooth import Smooth

if TYPE_CHECKING:
    import numpy as np

__all__ = ["table"]

_FINE_UP_TO = 512  # answers; beyond, the grid is coarser
_EVERY = 16  # answers after which a state is kept
_MOST_RUNS = 4
_MOST_BY_ONE = 128  # answers that are taken one by one where the smooth bound does not hold


class _Way(NamedTuple):
    """Settings of one recursion: grid spacings in shifts, and the number of answers taken one by one."""

    step: float
    finer: int  # how much wider the spacing of the first answers is
    first: int


_FINE, _COARSE = _Way(0.025, 3, 24), _Way(0.04, 2, 24)


def table(law: Law) -> tuple[float, np.ndarray] | None:
    """A grid spacing, and w after so many answers at 0, 1, ... of it; None where it cannot be followed."""
    way, key = _way(law), (law.kind, law.size, law.uses > _FINE_UP_TO)
    run = _runs.pop(key, None) or _Run(law._replace(uses=1), way)
    _runs[key] = run
    while len(_runs) > _MOST_RUNS:
        del _runs[next(iter(_runs))]
    return run.values(law.uses)


def _way(law: Law) -> _Way:
    return _FINE if law.uses <= _FINE_UP_TO else _COARSE


class _Run:
    """All counts of one mechanism on one grid."""

    def __init__(self, law: Law, way: _Way) -> None:
        self._way, self._shift = way, math.sqrt(law.mu_squared)
        self._family = argmax_family if law.kind == ARGMAX else screen_family
        self._first: dict[int, np.ndarray] = {}
        self._kept: dict[int, Smooth] = {}
        self._smooth = True

    def values(self, answers: int) -> tuple[float, np.ndarray] | None:
        """A grid spacing, and w after so many answers at 0, 1, ... of it."""
        first = self._way.first
        if answers > first and self._smooth:
            with contextlib.suppress(NotSmoothError):
                return self._way.step * self._shift, self._state(answers).values()
            self._smooth = False
        if answers > max(first, _MOST_BY_ONE):
            return None
        if answers > len(self._first):
            self._follow(first if answers <= first else _MOST_BY_ONE)
        return self._way.step * self._way.finer * self._shift, self._first[answers]

    def _state(self, answers: int) -> Smooth:
        if not self._kept:
            self._kept[self._way.first] = self._begin()
        state = copy.copy(self._kept[max(count for count in self._kept if count <= answers)])
        while state.answers < answers:
            state.advance()
            if state.answers % _EVERY == 0:
                self._kept[state.answers] = copy.copy(state)
        return state

    def _follow(self, answers: int) -> None:
        step = self._way.step * self._way.finer * self._shift
        self._first = first_answers(self._family(self._shift), shift=self._shift, step=step, answers=answers)

    def _begin(self) -> Smooth:
        way, shift = self._way, self._shift
        step = way.step * shift
        envelope = Envelope(self._family(shift, finest=True), shift=shift, step=step)
        if not self._first:
            self._follow(way.first)
        last = self._first[way.first]
        return Smooth(last, finer=way.finer, answers=way.first, shift=shift, step=step, envelope=envelope)


_runs: dict[tuple[str, float, bool], _Run] = {}

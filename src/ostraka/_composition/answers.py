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
from ostraka._composition.smooth import Smooth, Tail

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["followed", "table"]

_EVERY = 16  # answers after which a state is kept
_MOST_RUNS = 4
_MOST_BY_ONE = 64  # answers that are taken one by one where the smooth bound does not hold
_WORTHWHILE = 0.2  # shift; with less noise, other bounds are smaller
# Up to which shift w is followed how far down. With less noise, rare outcomes cost more than they tell.
_TAILS = ((0.07, Tail(1e-16, 3e-13)), (0.095, Tail(1e-13, 1e-10)), (0.133, Tail(1e-12, 1e-9)))


class _Way(NamedTuple):
    """Settings of one recursion: grid spacings in shifts, and the number of answers taken one by one."""

    step: float
    finer: int  # how much wider the spacing of the first answers is
    first: int


_WAY = _Way(0.0175, 2, 28)


def table(law: Law) -> tuple[float, np.ndarray] | None:
    """A grid spacing, and w after so many answers at 0, 1, ... of it; None where it cannot be followed."""
    key = law.kind, law.size
    run = _runs.pop(key, None) or _Run(law._replace(uses=1), _WAY)
    _runs[key] = run
    while len(_runs) > _MOST_RUNS:
        del _runs[next(iter(_runs))]
    return run.values(law.uses)


def followed(law: Law) -> Callable[[int], tuple[float, np.ndarray] | None]:
    """The same of one mechanism, by the number of answers: all are of one recursion, which is not shared."""
    return _Run(law._replace(uses=1), _WAY).values


class _Run:
    """All counts of one mechanism on one grid."""

    def __init__(self, law: Law, way: _Way) -> None:
        self._way, self._shift = way, math.sqrt(law.mu_squared)
        self._family = argmax_family if law.kind == ARGMAX else screen_family
        self._first: dict[int, np.ndarray] = {}
        self._kept: dict[int, Smooth] = {}
        self._last: Smooth | None = None  # what was asked for last: often the next has one answer more
        self._tail = next((tail for most, tail in _TAILS if self._shift <= most), None)

    def values(self, answers: int) -> tuple[float, np.ndarray] | None:
        """A grid spacing, and w after so many answers at 0, 1, ... of it."""
        first = self._way.first
        if answers > first and self._tail is not None:
            with contextlib.suppress(NotSmoothError):
                return self._way.step * self._shift, self._state(answers, self._tail).values()
            self._tail = None
        if answers > (_MOST_BY_ONE if self._shift <= _WORTHWHILE else first):
            return None
        if answers > len(self._first):
            self._follow(first if answers <= first else _MOST_BY_ONE)
        return self._way.step * self._way.finer * self._shift, self._first[answers]

    def _state(self, answers: int, tail: Tail) -> Smooth:
        if not self._kept:
            self._kept[self._way.first] = self._begin(tail)
        nearest = self._kept[max(count for count in self._kept if count <= answers)]
        if self._last is not None and nearest.answers <= self._last.answers <= answers:
            nearest = self._last
        state = copy.copy(nearest)
        while state.answers < answers:
            state.advance()
            if state.answers % _EVERY == 0:
                self._kept[state.answers] = copy.copy(state)
        self._last = state
        return state

    def _follow(self, answers: int) -> None:
        step = self._way.step * self._way.finer * self._shift
        self._first = first_answers(self._family(self._shift), shift=self._shift, step=step, answers=answers)

    def _begin(self, tail: Tail) -> Smooth:
        way, shift = self._way, self._shift
        step = way.step * shift
        envelope = Envelope(self._family(shift, finest=True), shift=shift, step=step)
        if not self._first:
            self._follow(way.first)
        last = self._first[way.first]
        begun, step = way.first, way.step * shift
        return Smooth(
            last, finer=way.finer, answers=begun, shift=shift, step=step, envelope=envelope, tail=tail
        )


_runs: dict[tuple[str, float], _Run] = {}

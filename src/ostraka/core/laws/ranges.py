"""The recursion for laws of bounded range: exponential mechanisms, and tokens that are drawn by a softmax.

A pair of bounded range r has log P / Q within an interval of length r. It is dominated by the pairs of two
outcomes that have loss s with probability (e^r - e^s) / (e^r - 1), else s - r, for s from 0 to r (Dong,
Durfee and Rogers 2020, arXiv:1909.13830). docs/composition.md has the proofs of all that is here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.laws.gaussian import gaussian_delta, mirrored

if TYPE_CHECKING:
    from collections.abc import Callable

SMALLEST, LARGEST = 1e-5, 4.0  # ranges that are followed; beyond, other bounds are as good
_PARTS = 48  # of the range: the spacing of the grid
_COARSE = 32  # the same, for one use beside a Gaussian
_MOST_USES = 512
_RARE = 18.5  # nats: the loss of all uses exceeds the grid with a chance below e^-2 of this
_FURTHEST = 40.0  # nats; beyond, the last value counts
_UP = 1e-12  # relative, a use: more than weights and sums of positive numbers round
_BLOCK = 1 << 16  # numbers in one go: they stay in the processor's cache


def table(size: float, uses: int) -> tuple[float, np.ndarray] | None:
    """A grid spacing, and w after so many uses at 0, 1, ... of it; None if they are too many."""
    return followed(size)(uses)


@lru_cache(maxsize=4)
def followed(size: float) -> Callable[[int], tuple[float, np.ndarray] | None]:
    """The same by the number of uses: all are of one recursion, so more uses have no smaller values."""
    step = size / _PARTS
    each = {0: np.array([0.0])}  # no use: w(v) is 0 from 1 on; by number, so that threads may share it

    def values(uses: int) -> tuple[float, np.ndarray] | None:
        if uses > _MOST_USES:
            return None
        for count in range(max(n for n in tuple(each) if n <= uses) + 1, uses + 1):
            less = each[count - 1]
            padded = np.pad(less, (0, _points(size, count) - len(less)), mode="edge")
            each[count] = after(padded, size, _PARTS)
        return step, each[uses]

    return values


def _points(size: float, uses: int) -> int:
    """How many grid points hold all but little of the loss: a martingale with steps of one range (Azuma)."""
    spread = uses * size * size
    reach = min(uses * size, spread / 8 + math.sqrt(_RARE * spread), _FURTHEST)
    return math.ceil(reach / size * _PARTS) + 1


def beside_gaussian(size: float, mu_squared: float) -> tuple[np.ndarray, float]:
    """One use beside a Gaussian of this squared shift: bounds at 0, step, ..., and the step."""
    step = size / _COARSE
    x = np.arange(math.ceil((8.4 * math.sqrt(mu_squared) + mu_squared / 2 + size) / step) + 1) * step
    return after(gaussian_delta(x, math.sqrt(mu_squared)), size, _COARSE), step


def after(values: np.ndarray, size: float, parts: int) -> np.ndarray:
    """One more use, for w with these values at 0, 1, ... grid points: the largest over every s, from above.

    Between two grid points w lies below its chord, and beyond the last below the last value. The function
    of s that the chords give is known between two multiples of the spacing: at most the larger of both ends,
    and tanh(spacing / 4) of what w rises by more at one end of the range than at the other.
    """
    step, n = size / parts, len(values)
    w = mirrored(np.pad(values, (0, parts), mode="edge"), step, parts)
    s = np.linspace(0.0, size, parts + 1)  # its ends are exact
    full = math.expm1(size)
    likely, rare = np.exp(s) * np.expm1(size - s) / full, np.expm1(s) / full
    bent = math.tanh(step / 4) / full
    larger = np.empty(n)
    for start in range(0, n, block := max(1, _BLOCK // parts)):
        end = min(n, start + block)
        windows = np.lib.stride_tricks.sliding_window_view(w[start : end + 2 * parts], parts + 1)
        up = windows[: end - start, ::-1]  # at x - s
        down = windows[parts : parts + end - start, ::-1]  # at x + size - s
        at = likely * up + rare * down
        gap = bent * np.maximum(math.exp(size) * np.diff(up) - np.diff(down), 0.0)
        larger[start:end] = (np.maximum(at[:, 1:], at[:, :-1]) + gap).max(axis=1)
    return np.minimum(1.0, larger * (1 + _UP))

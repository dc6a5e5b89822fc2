"""Numerics of all layers: rounding up, the normal law in logs, exact binomial intervals, one thread."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special
import threadpoolctl  # type: ignore[import-untyped,unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Iterator

Interval = tuple[np.ndarray, np.ndarray]

# The inverses of scipy are right to about 1e-13 of themselves; intervals are widened by this.
_OUTWARD = 1e-10
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: one step of Fibonacci hashing
_HALF = np.uint64(32)


def up(value: float, *, ulps: int = 1) -> float:
    """The value moved ``ulps`` steps towards +infinity (zero stays zero): for whatever must err upwards."""
    if value == 0 or not math.isfinite(value):
        return value
    for _ in range(ulps if ulps < 4 else 1):
        value = math.nextafter(value, math.inf)
    return value + abs(value) * 2.3e-16 * ulps if ulps >= 4 else value


def log_ndtr(x: float) -> float:
    """Natural log of the standard normal distribution function."""
    return float(scipy.special.log_ndtr(x))


def normal_cells(edges: np.ndarray) -> np.ndarray:
    """Standard normal probabilities between neighbouring edges, from the side where they are small."""
    lower, upper = scipy.special.ndtr(edges), scipy.special.ndtr(-edges)
    return np.asarray(np.where(edges[1:] < 0, lower[1:] - lower[:-1], upper[:-1] - upper[1:]))


def clopper_pearson(successes: Any, trials: int, *, error: float) -> Interval:
    """Lower and upper end for a binomial probability, each wrong with probability at most ``error``.

    Source: Clopper and Pearson 1934, doi:10.1093/biomet/26.4.404.
    """
    x = np.asarray(successes, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        lower = scipy.special.betaincinv(x, trials - x + 1, error)
        upper = scipy.special.betainccinv(x + 1, trials - x, error)
    return outwards(np.where(x <= 0, 0.0, lower), np.where(x >= trials, 1.0, upper))


def outwards(lower: np.ndarray, upper: np.ndarray) -> Interval:
    """The interval, a little wider than rounding errors."""
    return lower * (1 - _OUTWARD), np.minimum(1.0, upper * (1 + _OUTWARD))


def distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of float64 that differ, in order, and for each row the place of its equal among them.

    What ``np.unique`` returns with ``axis=0``, from one digest a row instead of comparisons of whole rows.
    Equality is checked, so two rows with one digest cost time and change nothing.

    Examples
    --------
    >>> distinct(np.array([[2.0, 0.0], [1.0, 5.0], [2.0, 0.0]]))
    (array([[1., 5.],
           [2., 0.]]), array([1, 0, 1]))
    """
    digest = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        digest ^= (column + 0.0).view(np.uint64)  # -0.0 equals 0.0
        digest ^= digest >> _HALF  # whole numbers differ in their high bits only
        digest *= _ODD
    _, first, places = np.unique(digest, return_index=True, return_inverse=True)
    order = np.lexsort(rows[first].T[::-1])
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    different, places = rows[first[order]], place[places]
    blocks = range(0, len(rows), 2**16)
    if all(np.array_equal(rows[i : i + 2**16], different[places[i : i + 2**16]]) for i in blocks):
        return different, places
    different, places = np.unique(rows, axis=0, return_inverse=True)
    return different, places.ravel()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep numerical libraries to one thread, in a context or a decorated function.

    For small problems more threads take longer.
    """
    with _pools(len(sys.modules)).limit(limits=1):
        yield


@functools.lru_cache(maxsize=1)
def _pools(_n_modules: int) -> threadpoolctl.ThreadpoolController:
    """Return the libraries with thread pools. The search takes 10 ms and is repeated after new imports."""
    return threadpoolctl.ThreadpoolController()

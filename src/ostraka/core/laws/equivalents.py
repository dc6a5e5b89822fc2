"""The Gaussian that tells as much as many answers: tabulated, so that a new noise is priced at once.

Let w be the most that n answers of a family tell against log odds x, and G that of one Gaussian. At z
standard deviations of the Gaussian that dominates all n answers, w(x) = G(x) for a Gaussian whose shift is a
share of that one's. The share hardly depends on the noise: it falls from 1 for one answer to .802 for 256. A
file of each kind of answers holds it, rounded up, for blocks of noises, numbers of answers and heights z; its
largest number stands for what the recursion does not follow. Between numbers and heights the share is
interpolated: it exceeds what the recursion gives for every number of answers, at 265 heights.

Files hold some noises only. A shift s between two of them is a share r of the next, s' = s / r, and

    w(x; s) <= r w(x / r; s') + r (1 - r) times the integral of exp(x - r y) w(y; s') over y > x / r.

docs/composition.md has the proof. ``python -m ostraka.core.laws.equivalents`` writes both files anew, which
takes about six minutes of processor time. Then set ``_DIGESTS`` to what it prints.
"""

from __future__ import annotations

import bisect
import math
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np

from ostraka.core.laws import limit, stored
from ostraka.core.laws.gaussian import gaussian_deltas
from ostraka.core.laws.law import ARGMAX, SCREEN, Law

# Octaves below a size of .07: the more a family tells, the nearer to each other. They are nearest at shifts
# from .115 to .133, of an argmax and of a screen: as large as shifts are of which 512 answers are followed.
_OCTAVES = (
    *sorted({-k / 32 for k in range(1, 70)} | {-k / 256 for k in (*range(55, 110), *range(183, 238))}),
    *(begin + k / per for begin, per in enumerate((32, 28, 16)) for k in range(per)),
    *(3 + k / 5 for k in range(7)),
    *(4.46, 4.73, 5.0, 5.5, 6.0, 7.0, 8.0, 9.5, 11.0, 13.0),
)
_SIZES = tuple(0.07 * 2.0**-octave for octave in reversed(_OCTAVES))
# Sizes whose shares are stored as one, the largest. Above .0495 the size decides how far tails are followed.
_QUIET = sum(size <= 0.0495 for size in _SIZES)
_BLOCKS = (
    *(_SIZES[first : min(first + 10, _QUIET)] for first in range(0, _QUIET, 10)),
    *(  # a sixteenth of an octave each
        tuple(0.07 * 2.0**-octave for octave in octaves)
        for _, octaves in groupby(_OCTAVES[::-1][_QUIET:], lambda octave: math.floor(-16 * octave))
    ),
)
_COUNTS = np.array([*range(1, 13), 14, 16, 20, 24, 28, 29, 32, 40, 48, 64, 65, 96, 128, 192, 256, 384, 512])
_HEIGHTS = np.concatenate([np.arange(0, 4, 0.25), np.arange(4, 8.26, 0.125)])  # standard deviations
_GRID = np.arange(265) / 32  # the same, where a table is computed
_LEAST, _SPAN = 0.75, 0.5  # share 0 of the file, and how far above it the others reach
_STEPS = 65_535  # how many shares it tells apart
_SPACING = 0.035  # shifts: the widest spacing of a table
_OUTWARD = 1e-12
_DIGESTS = {
    ARGMAX: "0d9d17b5a3b6408a8f82774e35c27de1444cd8c96aaac94d7b79095b6ef6031a",
    SCREEN: "1f5488f7fdb74f7180d351b0a4a870cf448adc06d8aa938604df3a721943c11e",
}


def table(law: Law) -> tuple[float, np.ndarray] | None:
    """A grid spacing, and w after so many answers at 0, 1, ... of it; None where it is not tabulated."""
    place = bisect.bisect_left(_SIZES, law.size)
    if law.kind not in _DIGESTS or place == len(_SIZES) or not 1 <= law.uses <= _COUNTS[-1]:
        return None
    if not limit.within_reach(law):
        return None
    size = _SIZES[place]
    heights = _of_block(law.kind, bisect.bisect_left([sizes[-1] for sizes in _BLOCKS], size), law.uses)
    if heights is None:
        return None
    spread = math.sqrt(law.uses * Law(law.kind, size).mu_squared)
    ratio = min(1.0, law.size / size * (1 + _OUTWARD))
    y = _GRID * spread
    shares = np.minimum(1.0, np.interp(_GRID, _HEIGHTS, heights))
    values = _contracted(gaussian_deltas(y, shares * spread), y, ratio)
    # the same on a grid as fine as other releases beside it need: w lies below its chords in e^x
    parts = math.ceil(_GRID[1] * math.sqrt(law.uses) / _SPACING)
    step = ratio * float(y[1]) / parts
    odds = np.exp(np.arange((len(y) - 1) * parts + 1) * step)
    return step, np.interp(odds, odds[::parts], values) * (1 + _OUTWARD)


def _contracted(values: np.ndarray, y: np.ndarray, ratio: float) -> np.ndarray:
    """Values at ``ratio`` times y for a shift so much smaller; w falls, so that sums bound the integral."""
    x = ratio * y
    weights = np.append(-np.diff(np.exp(-x)), math.exp(-x[-1]))
    beyond = np.cumsum((values * weights)[::-1])[::-1] * np.exp(x)
    return np.minimum(1.0, (ratio * values + (1 - ratio) * beyond) * (1 + _OUTWARD))


@lru_cache(maxsize=256)
def _of_block(kind: str, block: int, answers: int) -> np.ndarray | None:
    """Shares at the heights of the file; None where the answers were not followed."""
    shares = _shares(kind)
    if shares is None:
        return None
    at = int(np.searchsorted(_COUNTS, answers))
    low, high = shares[block, max(0, at - 1)], shares[block, at]
    if high[0] >= _LEAST + _SPAN:
        return None
    weight = _weights(np.array([answers]))[0, max(0, at - 1)] if at else 0.0
    return np.asarray(weight * low + (1 - weight) * high)


@lru_cache(maxsize=2)
def _shares(kind: str) -> np.ndarray | None:
    """All shares of a kind, (blocks, counts, heights); None if the file is not as it was written."""
    numbers = stored.read(_path(kind), _DIGESTS[kind])
    if numbers is None:
        return None
    return np.asarray(_LEAST + numbers.reshape(-1, len(_COUNTS), len(_HEIGHTS)) * (_SPAN / _STEPS))


def _path(kind: str) -> Path:
    return Path(__file__).with_name(f"{kind.removeprefix('gaussian-')}_equivalents.bin")


# Writing --------------------------------------------------------------------------------------------------


def _weights(answers: np.ndarray) -> np.ndarray:
    """By which shares at the counts are interpolated, linear in 1 / n: (answers, counts)."""
    return _hats(-1 / answers, -1 / _COUNTS)


def _hats(places: np.ndarray, knots: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(places, knots, row) for row in np.eye(len(knots))], axis=1)


def tabulate(kind: str) -> np.ndarray:
    """Shares of all blocks, (blocks, counts, heights), as in the file: from above at each size.

    A size has the smaller of two bounds: the recursion's, and what follows from the next larger size. The
    recursion of more than 64 answers with large shifts is up to 4 % wider at some sizes than beside them.
    """
    shares, larger = [], (math.nan, np.empty((0, len(_GRID))))
    for sizes in reversed(_BLOCKS):
        exact = np.full((_COUNTS[-1], len(_GRID)), _LEAST)
        for size in reversed(sizes):
            if limit.within_reach(law := Law(kind, size)):
                larger = size, _proved(law, *larger)
                np.maximum(exact, _exact(law, larger[1]), out=exact)
        shares.append(_stored(exact))
    return np.stack(shares[::-1])


def _stored(exact: np.ndarray) -> np.ndarray:
    """The numbers of a block: knots from which nothing is interpolated that is below these shares."""
    by_count = _weights(np.arange(1, _COUNTS[-1] + 1))
    by_height = _hats(_GRID, _HEIGHTS)
    knots = exact[_COUNTS - 1][:, np.isin(_GRID, _HEIGHTS)]
    lacking = np.maximum(0.0, exact - by_count @ knots @ by_height.T)
    knots += np.array(
        [[lacking[np.ix_(n > 0, z > 0)].max() for z in by_height.T] for n in by_count.T]
    )  # what a point lacks is added to all knots around it
    numbers = np.ceil((knots - _LEAST) * (_STEPS / _SPAN)) + 1  # one: far more than all rounding
    numbers[1:][exact[_COUNTS[1:] - 1, 0] >= 1] = _STEPS
    return np.asarray(np.minimum(numbers, _STEPS).astype("<u2"))


def _proved(law: Law, larger: float, of_larger: np.ndarray) -> np.ndarray:
    """Bounds of w at the heights, (answers, heights), for as many answers as are followed."""
    from ostraka.core.laws import answers  # noqa: PLC0415  (compiled code, loaded when needed)

    followed, one = answers.followed(law), law.mu_squared
    w = np.empty((_COUNTS[-1], len(_GRID)))
    for n in range(1, _COUNTS[-1] + 1):
        grid = followed(n)
        if grid is None:
            return w[: n - 1]
        odds = np.exp(np.arange(len(grid[1])) * grid[0])
        w[n - 1] = np.interp(np.exp(_GRID * math.sqrt(n * one)), odds, grid[1]) * (1 + 10 * _OUTWARD)
        if n <= len(of_larger):
            spread = math.sqrt(n * Law(law.kind, larger).mu_squared)
            bound = _contracted(of_larger[n - 1], _GRID * spread, law.size / larger * (1 + _OUTWARD))
            np.minimum(w[n - 1], bound, out=w[n - 1])
    return w


def _exact(law: Law, w: np.ndarray) -> np.ndarray:
    """Shares by number of answers and height, from above; 1 where answers are not followed.

    They are solved for at the counts of the file. Between these, what is interpolated is checked.
    """
    one = law.mu_squared
    solved = np.ones((len(_COUNTS), len(_GRID)))
    for place, n in enumerate(_COUNTS):
        if 1 < n <= len(w):
            spread = math.sqrt(n * one)
            solved[place] = _solved(_GRID * spread, w[n - 1], solved[place - 1] * spread) / spread
    shares = np.ones((_COUNTS[-1], len(_GRID)))
    shares[: len(w)] = _weights(np.arange(1, len(w) + 1)) @ solved
    for n, values in enumerate(w, 1):
        spread, share = math.sqrt(n * one), shares[n - 1]
        low = gaussian_deltas(_GRID * spread, share * spread) < values
        if low.any():
            share[low] = _solved(_GRID[low] * spread, values[low], share[low] * spread) / spread
    return np.minimum(shares, 1.0)  # w is below the Gaussian that dominates all answers, too


def _solved(x: np.ndarray, values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Shifts of the Gaussians that have these values at x, from above, by Newton's steps on logarithms."""
    mu = start
    for _ in range(3):
        at = gaussian_deltas(x, mu)
        slope = np.exp(-((mu / 2 - x / mu) ** 2) / 2) / math.sqrt(2 * math.pi) * mu / at
        mu = mu * np.exp(np.clip(np.log(values / at) / slope, -0.1, 0.1))
    for raised in 2.0 ** np.arange(-24, 2):
        below = gaussian_deltas(x, mu) < values
        if not below.any():
            return mu
        mu = np.where(below, mu * (1 + raised), mu)
    raise ArithmeticError("no Gaussian has these values")


if __name__ == "__main__":
    for table_kind in _DIGESTS:
        stored.write(_path(table_kind), tabulate(table_kind))

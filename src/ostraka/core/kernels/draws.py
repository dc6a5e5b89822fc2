"""Compiled: noise from 64 random bits with a proved error bound, and the answers which it decides."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np

from ostraka.core.compiled import kernel
from ostraka.core.mechanisms.exact import GAUSSIAN, density_and_quantile

# A word is a sign and 63 bits v; the size of the noise is the Q(p) that it exceeds with probability p, where
# 2^64 p lies from v to v + 1. Between powers of two, v falls into 32 pieces, each with a polynomial for Q.
_LOWEST, _HIGHEST, _PIECES, _DEGREE = 43, 63, 32, 6
LEAST = 2**_LOWEST  # below, a chance of 2^-20, more bits decide
DOUBT = 2.0**-41  # docs/record/floating-point.md: what Q(p) and the polynomial of v differ by, at most
_ROUNDING = 2.0**-50  # of all else, relative to the sizes of what is added
_FIRST = (1023 + _LOWEST) * _PIECES  # the exponent and five more bits of 2^43, as float64 stores them
_SHIFT = 52 - 5
_EXTREME = 1e150  # counts beyond this may leave the range of float64
EDGES = np.concatenate(
    [
        *(2.0**octave * (1 + np.arange(_PIECES) / _PIECES) for octave in range(_LOWEST, _HIGHEST)),
        [2.0**_HIGHEST],
    ]
)


@lru_cache(maxsize=2)
def table(kind: int) -> np.ndarray:
    """Return one row per piece: its middle, then the coefficients of Q in powers of (v - middle)."""
    middles = EDGES[:-1] + np.diff(EDGES) / 2
    rows = np.array([(middle, *coefficients(kind, middle)) for middle in middles.tolist()])
    rows.setflags(write=False)
    return rows


def coefficients(kind: int, middle: float, *, degree: int = _DEGREE) -> list[float]:
    """Taylor coefficients of Q at p = middle 2^-64, in powers of v - middle.

    With D = 1 / density(Q), the n-th derivative of Q by p is (-D)^n P_n(Q), where P_1 = 1 and
    P_(n+1) = P_n' + n Q P_n for the normal law; for Laplace's, it is (n - 1)! (-1 / p)^n.
    """
    with localcontext(Context(prec=40)):
        tail = Decimal(middle) / 2**64
        if kind == GAUSSIAN:
            density, z = density_and_quantile(tail)
            step, size = float(1 / density) * 2.0**-64, float(z)
        else:
            step, size = 1 / middle, float(-(2 * tail).ln())
    found, power = [size], [1.0]
    for n in range(1, degree + 1):
        value = sum(c * size**i for i, c in enumerate(power)) if kind == GAUSSIAN else math.factorial(n - 1)
        found.append((-step) ** n * value / math.factorial(n))
        rises = [n * c for c in (0.0, *power)]
        power = [r + (i + 1) * c for i, (r, c) in enumerate(zip(rises, (*power[1:], 0.0, 0.0), strict=True))]
    return found


@kernel("u8[::1], f8[:,::1], f8[::1]")
def sizes(words, kind_table, out):
    """Return the noise of each 64-bit word, with an error below ``DOUBT``; NaN where more bits are needed."""
    scratch = np.empty(1)
    bits = scratch.view(np.int64)
    last = kind_table.shape[0] - 1
    for i in range(words.size):
        v = np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))
        if v < LEAST:
            out[i] = np.nan
            continue
        scratch[0] = v
        c = kind_table[min((bits[0] >> _SHIFT) - _FIRST, last)]
        t = scratch[0] - c[0]
        size = c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * (c[5] + t * (c[6] + t * c[7])))))
        out[i] = -size if words[i] >> np.uint64(63) else size


@kernel("f8[:,::1], f8[:,::1], f8, f8, i8[::1], b1[::1]")
def largest(counts, noise, scale, doubt, winners, sure):
    """Return the class of each query's largest noisy count, and whether it is certain despite ``doubt``."""
    for i in range(counts.shape[0]):
        top = counts[i, 0]
        low = top
        for k in range(counts.shape[1]):
            top = max(top, counts[i, k])
            low = min(low, counts[i, k])
        best, below, second, winner, known = -np.inf, -np.inf, -np.inf, 0, True
        for k in range(counts.shape[1]):
            gap = counts[i, k] - top
            y = gap + scale * noise[i, k]
            known = known and y == y  # noqa: PLR0124  (NaN differs from itself)
            e = doubt - _ROUNDING * gap
            if y + e > best:
                second = best
                best, below, winner = y + e, y - e, k
            elif y + e > second:
                second = y + e
        winners[i] = winner
        sure[i] = known and below > second and top < _EXTREME and low > -_EXTREME


@kernel("f8[:,::1], f8[:,::1], f8, f8, f8, b1[::1], b1[::1]")
def above(counts, noise, scale, doubt, at, passes, sure):
    """Return whether any noisy count of each query reaches ``at``, and whether ``doubt`` can change that."""
    for i in range(counts.shape[0]):
        one, none, inside = False, True, True
        for k in range(counts.shape[1]):
            gap = counts[i, k] - at
            inside = inside and abs(gap) < _EXTREME
            y = gap + scale * noise[i, k]
            e = doubt + _ROUNDING * abs(gap)
            one = one or y > e
            none = none and y < -e  # false of NaN
        passes[i] = one
        sure[i] = inside and (one or none)

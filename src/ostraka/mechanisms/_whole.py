"""Laplace and Gaussian noise drawn as whole numbers, with a known law and no low-order bits."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ostraka.mechanisms._quantile import GAUSSIAN, Noise

__all__ = ["EXACTNESS", "geometric", "grain", "half_normal", "uniform", "weights"]

# Logarithms of probabilities are this close to the ideal ones, a digit less: docs/floating-point.md.
EXACTNESS = 2.0**-40

_ALL = 2**63
_BITS = 62
_FURTHEST = 9.3  # standard deviations; beyond lies less than 2^-65 of a normal law
_CELLS = 512  # in one scale or standard deviation, at least
_NEAR = 2**29  # numbers of 63 bits; the edges of tables err by less than 2^23
_LEGENDRE = np.polynomial.legendre.leggauss(5)


def weights(epsilon: float, n_kept: int) -> tuple[int, int]:
    """Return whole weights of the true class and of each other one; their ratio never exceeds e^epsilon."""
    other = int(2.0**_BITS / (math.exp(epsilon) + n_kept))
    keep = int(other * math.exp(epsilon) * (1 - 2.0**-49))  # four roundings, of 2^-53 to 2^-52, below it
    return max(keep, other), other


def grain(spread: float) -> float:
    """Return a power of two, at most 1, at least 512 of which fit into ``spread`` unless that is large."""
    return float(2.0 ** min(0, math.floor(math.log2(spread / _CELLS))))


def uniform(shape: tuple[int, ...], *, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers from 0 to 2^63 - 1."""
    return rng.integers(0, _ALL, size=shape, dtype=np.int64)


def geometric(rate: float, shape: tuple[int, ...], *, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers that reach n with probability e^(-rate n): their binary digits are independent."""
    n_digits = max(0, math.ceil(-math.log2(rate)))
    found = np.zeros(shape, dtype=np.int64)
    for digit in range(n_digits):
        chance = 1 / (1 + math.exp(rate * 2**digit))
        found |= (uniform(shape, rng=rng) < _threshold(chance)).astype(np.int64) << digit
    flat, going = found.reshape(-1), np.arange(found.size)
    again = _threshold(math.exp(-rate * 2**n_digits))
    while going.size:
        going = going[uniform(going.shape, rng=rng) < again]
        flat[going] += 2**n_digits
    return found


def half_normal(sigma: float, shape: tuple[int, ...], *, rng: np.random.Generator) -> np.ndarray:
    """Draw the cell of width 1 that holds the absolute value of N(0, sigma²); cells count from 0.

    Exactly: a number near an edge of the table, or beyond its last, is settled in multi-precision.
    """
    edges, numbers = _edges(sigma), uniform(shape, rng=rng)
    found = np.searchsorted(edges[1:-1], numbers, side="right")
    near = (numbers - edges[found] < _NEAR) | (edges[found + 1] - numbers <= _NEAR)
    for at in zip(*np.nonzero(near), strict=True):
        found[at] = _settled(sigma, int(numbers[at]), rng)
    return np.asarray(found)


def _settled(sigma: float, number: int, rng: np.random.Generator) -> int:
    """Return the cell of a draw whose first bits are ``number``; draw more bits until it is decided."""
    noise = Noise(GAUSSIAN, _ALL - 1 - number, lambda: int(uniform((1,), rng=rng)[0]), step=_BITS + 1, sign=0)
    while True:
        low, high = (end * Fraction(sigma) for end in noise.ends())
        if math.isfinite(high) and math.floor(low) == math.floor(high):
            return math.floor(low)
        noise.refine()


@lru_cache(maxsize=16)
def _edges(sigma: float) -> np.ndarray:
    """Return, for each cell between two edges, about the first of 2^63 equally likely numbers beyond it."""
    inner = np.minimum(np.cumsum(_cells(sigma).astype(np.uint64)), np.uint64(_ALL - 1))[:-1]
    edges = np.concatenate([[-_NEAR], inner.astype(np.int64), [_ALL - 1]])
    edges.setflags(write=False)
    return edges


def _cells(sigma: float) -> np.ndarray:
    """Return how many of 2^63 equally likely numbers fall into each cell; the sum is 2^63."""
    middle = (np.arange(math.ceil(_FURTHEST * sigma)) + 0.5)[:, None]
    z = (middle + _LEGENDRE[0] / 2) / sigma
    mass = (np.exp(-z * z / 2) * _LEGENDRE[1]).sum(axis=1) / (math.sqrt(2 * math.pi) * sigma)
    cells: np.ndarray = np.rint(mass * _ALL).astype(np.int64)
    cells[0] += _ALL - sum(cells.tolist())
    return cells


def _threshold(chance: float) -> int:
    return round(chance * _ALL)

"""The law of GNMax on random votes: multinomial ballots, integrated out by generating functions."""

from __future__ import annotations

import math

import numpy as np
import scipy.fft
import scipy.special
import scipy.stats

__all__ = ["gaussian_argmax_law"]

_REACH = 9.0  # of the integral over the winning count, in sigma
_TINY = 1e-18


def gaussian_argmax_law(n: int, law: np.ndarray, rest: np.ndarray, *, sigma: float) -> np.ndarray:
    """P[class c wins], one row for each row of ``rest``: ``n`` ballots by ``law`` plus that row.

    Multinomial counts are Poisson counts given their sum, so that the probability is one coefficient of a
    product over the classes: of sum_k Poisson(k) Phi((x - k - rest) / sigma) z^k, for the winner with the
    density instead. Read off on a circle; integrated over x by the trapezoid rule. Error below 1e-12: the
    transform of a product of C functions as smooth as Phi falls like exp(-omega^2 / (2 C)).
    """
    mean = n * law
    ends = [float(f(rest, axis=None)) for f in (np.min, np.max)]
    width = 9 * math.sqrt(n) if n else 0.0
    x = np.arange(
        ends[0] + max(0.0, mean.min() - width) - _REACH * sigma,
        ends[1] + min(float(n), mean.max() + width) + _REACH * sigma,
        step := 0.8 * sigma / math.sqrt(law.size),
    )
    length = scipy.fft.next_fast_len(int(9 * math.sqrt(n)) + 40, real=True)
    circle = np.exp(-2j * np.pi * np.outer(np.arange(n + 1), np.arange(length // 2 + 1)) / length)
    factors = {
        (c, shift): _factor(x, float(mean[c]), circle, shift=float(shift), sigma=sigma)
        for c in range(law.size)
        for shift in np.unique(rest[:, c])
    }
    turn = np.exp(2j * np.pi * np.arange(length // 2 + 1) * n / length)
    weight = np.where((np.arange(turn.size) == 0) | (2 * np.arange(turn.size) == length), 1.0, 2.0)
    pick = turn * weight / length / scipy.stats.poisson.pmf(n, n) * step
    found = np.empty((len(rest), law.size))
    for row, shifts in enumerate(rest):
        below, wins = zip(*(factors[c, shift] for c, shift in enumerate(shifts)), strict=True)
        before, after = np.ones_like(below[0]), [np.ones_like(below[0])]
        for factor in below[:0:-1]:
            after.append(after[-1] * factor)
        for c in range(law.size):
            found[row, c] = ((before * wins[c] * after[-1 - c]).sum(axis=0) @ pick).real
            before = before * below[c]
    found = np.maximum(found, 0.0)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _factor(
    x: np.ndarray, mean: float, circle: np.ndarray, *, shift: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """The transform over the number of ballots of one class, as a loser and as the winner."""
    ballots = np.arange(len(circle))
    mass = scipy.stats.poisson.pmf(ballots, mean)
    keep = mass > _TINY
    ballots, mass, circle = ballots[keep], mass[keep], circle[keep]
    z = (x[:, None] - ballots - shift) / sigma
    density = np.exp(-z * z / 2) / (sigma * math.sqrt(2 * math.pi))
    return (mass * scipy.special.ndtr(z)) @ circle, (mass * density) @ circle

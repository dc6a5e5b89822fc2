"""Compiled scalar functions of the two noises, in units of their scale: log cdf and log density."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ostraka._compiled import kernel

__all__ = ["GAUSSIAN", "LAPLACE", "log_cdf", "log_pdf", "score"]

GAUSSIAN, LAPLACE = 0, 1

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_HALF_SQRT_2 = math.sqrt(0.5)
_LOW, _HIGH, _PER_UNIT, _DEGREE = -16.0, 9.0, 16, 8


def _taylor_of_log_ndtr() -> np.ndarray:
    """Return Taylor coefficients of log Phi about each multiple of 1/16."""
    # r = (log Phi)' has r' = -r (z + r), which gives every further coefficient; Phi has no zero within 2.8
    # of the real axis, so term n is below (1/90)^n: |t| <= 1/32 leaves less than 1e-16
    z = np.arange(_LOW, _HIGH + 0.5 / _PER_UNIT, 1 / _PER_UNIT)
    log_phi = scipy.special.log_ndtr(z)
    r = np.zeros((_DEGREE + 1, z.size))
    r[0] = np.exp(-z * z / 2 - _HALF_LOG_2PI - log_phi)
    for n in range(_DEGREE):
        inner = z * r[n] + (r[n - 1] if n else 0)
        for i in range(n + 1):
            inner = inner + r[i] * r[n - i]
        r[n + 1] = -inner / (n + 1)
    table = np.empty((z.size, _DEGREE + 1))
    table[:, 0] = log_phi
    table[:, 1:] = (r[:-1] / np.arange(1, _DEGREE + 1)[:, None]).T
    return table


_TABLE = _taylor_of_log_ndtr()


@kernel()
def _log_ndtr(z):
    if z > _HIGH:
        return -0.5 * math.erfc(z * _HALF_SQRT_2)  # log(1 - x) = -x, for x below 1e-18
    if z < _LOW:
        # asymptotic series of Mills' ratio: the term after the last is below 1e-17 from 16 on
        w = -1.0 / (z * z)
        total = 1.0
        for n in range(23, 0, -2):
            total = 1.0 + n * w * total
        return -0.5 * z * z - _HALF_LOG_2PI - math.log(-z) + math.log(total)
    i = int((z - _LOW) * _PER_UNIT + 0.5)
    t = z - (_LOW + i / _PER_UNIT)
    c = _TABLE[i]
    return c[0] + t * (
        c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * (c[5] + t * (c[6] + t * (c[7] + t * c[8]))))))
    )


@kernel()
def log_cdf(kind, z):
    if kind == GAUSSIAN:
        return _log_ndtr(z)
    if z < 0:
        return z - math.log(2.0)
    return math.log1p(-0.5 * math.exp(-z))


@kernel()
def log_pdf(kind, z):
    if kind == GAUSSIAN:
        return -0.5 * z * z - _HALF_LOG_2PI
    return -abs(z) - math.log(2.0)


@kernel()
def score(kind, z):
    """Density over distribution function."""
    return math.exp(log_pdf(kind, z) - log_cdf(kind, z))

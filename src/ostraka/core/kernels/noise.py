"""Compiled scalar functions of the two noises, in units of their scale: log cdf and log density."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ostraka.core.compiled import kernel

GAUSSIAN, LAPLACE = 0, 1

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_HALF_SQRT_2 = math.sqrt(0.5)
LOWEST = -16.0  # of the table of log Phi
_HIGH, _PER_UNIT, _DEGREE = 9.0, 32, 6
_STEEP = 3.0  # up to here the table's slope has a relative error below 1e-13


def _taylor_of_log_ndtr() -> np.ndarray:
    """Return Taylor coefficients of log Phi about each multiple of 1/32, then those of its derivative."""
    # r = (log Phi)' has r' = -r (z + r), which gives every further coefficient; Phi has no zero within 2.8
    # of the real axis, so term n of r is below (1/180)^n: |t| <= 1/64 leaves less than 1e-16 of both
    z = np.arange(LOWEST, _HIGH + 0.5 / _PER_UNIT, 1 / _PER_UNIT)
    log_phi = scipy.special.log_ndtr(z)
    r = np.zeros((_DEGREE + 1, z.size))
    r[0] = np.exp(-z * z / 2 - _HALF_LOG_2PI - log_phi)
    for n in range(_DEGREE):
        inner = z * r[n] + (r[n - 1] if n else 0)
        for i in range(n + 1):
            inner = inner + r[i] * r[n - i]
        r[n + 1] = -inner / (n + 1)
    return np.column_stack([log_phi, (r[:-1] / np.arange(1, _DEGREE + 1)[:, None]).T, r.T])


_TABLE = _taylor_of_log_ndtr()


@kernel()
def _cell(z):
    """Row of the table for z between LOWEST and _HIGH, and how far z is from the row's place."""
    i = int((z - LOWEST) * _PER_UNIT + 0.5)
    return _TABLE[i], z - (LOWEST + i / _PER_UNIT)


@kernel()
def _value(c, t):
    return c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * (c[5] + t * c[6])))))


@kernel()
def _slope(c, t):
    return c[7] + t * (c[8] + t * (c[9] + t * (c[10] + t * (c[11] + t * (c[12] + t * c[13])))))


@kernel()
def _log_ndtr(z):
    if z > _HIGH:
        return -0.5 * math.erfc(z * _HALF_SQRT_2)  # log(1 - x) = -x, for x below 1e-18
    if z < LOWEST:
        # asymptotic series of Mills' ratio: the term after the last is below 1e-17 from 16 on
        w = -1.0 / (z * z)
        total = 1.0
        for n in range(23, 0, -2):
            total = 1.0 + n * w * total
        return -0.5 * z * z - _HALF_LOG_2PI - math.log(-z) + math.log(total)
    c, t = _cell(z)
    return _value(c, t)


@kernel()
def log_cdf_and_score(z, density):
    """Log Phi and ``density`` / Phi, from LOWEST on, where ``density`` is that of the normal law at z."""
    if z > _HIGH:
        return 0.0, density
    c, t = _cell(z)
    log_phi = _value(c, t)
    if z < _STEEP:
        return log_phi, _slope(c, t)
    u = -log_phi  # below 0.0014
    return log_phi, density * (1.0 + u * (1.0 + u * (0.5 + u * (1.0 / 6.0 + u / 24.0))))


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
    if kind == GAUSSIAN and LOWEST <= z < _STEEP:
        c, t = _cell(z)
        return _slope(c, t)
    return math.exp(log_pdf(kind, z) - log_cdf(kind, z))

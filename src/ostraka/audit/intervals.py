"""Confidence intervals for probabilities: exact, anytime-valid, simultaneous, and for bounded means.

What comes in: how often something was seen in how many trials, and with which probability an interval may be
wrong. What goes out: its lower and its upper end. Beside them are two searches that end on the safe side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from ostraka.core.numeric import Interval, outwards
from ostraka.core.numeric import clopper_pearson as clopper_pearson  # noqa: PLC0414  (read from here)

if TYPE_CHECKING:
    from collections.abc import Callable


def confidence_sequence(successes: Any, trials: int, *, error: float) -> Interval:
    """An interval that holds at all numbers of trials at once, but for probability ``error``: may stop early.

    All p whose likelihood is not ``error`` times below the Beta(1/2, 1/2) mixture's: that ratio is a
    martingale of mean 1 under p (Ville). Source: Howard et al. 2021, arXiv:1810.08240, section 4.
    """
    x = np.asarray(successes, dtype=np.float64)
    half = 0.5
    mixture = scipy.special.betaln(x + half, trials - x + half) - scipy.special.betaln(half, half)

    def excluded(p: np.ndarray) -> np.ndarray:
        likelihood = scipy.special.xlogy(x, p) + scipy.special.xlog1py(trials - x, -p)
        return np.asarray(mixture - likelihood >= -math.log(error))

    peak = x / trials
    lower = bisect(excluded, np.zeros_like(peak), peak)
    upper = bisect(excluded, np.ones_like(peak), peak)
    return outwards(lower, upper)


def bisect(holds: Callable[[np.ndarray], np.ndarray], start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The last point from ``start`` to ``end`` at which it ``holds``; ``start`` where that is none."""
    with np.errstate(divide="ignore"):
        for _ in range(60):
            middle = (start + end) / 2
            is_true = holds(middle)
            start, end = np.where(is_true, middle, start), np.where(is_true, end, middle)
    return start


def goodman(counts: Any, *, error: float) -> Interval:
    """Simultaneous intervals for multinomial probabilities; right for many trials only.

    Source: Goodman 1965, doi:10.1080/00401706.1965.10490252.
    """
    n = np.asarray(counts, dtype=np.float64)
    total, a = n.sum(), scipy.stats.chi2.isf(error / n.size, 1)
    spread = np.sqrt(a * (a + 4 * n * (total - n) / total))
    return (a + 2 * n - spread) / (2 * (total + a)), (a + 2 * n + spread) / (2 * (total + a))


def sison_glaz(counts: Any, *, error: float) -> Interval:
    """Simultaneous intervals of one width for multinomial probabilities; right for many trials only.

    Source: Sison and Glaz 1995, doi:10.1080/01621459.1995.10476521.
    """
    n = np.asarray(counts, dtype=np.int64)
    total = int(n.sum())
    below, above = 0, min(total, int(6 * math.sqrt(total)) + 60)  # six standard deviations of any count
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if _joint_coverage(n, middle) < 1 - error else (below, middle)
    low, high = _joint_coverage(n, below), _joint_coverage(n, above)
    part = (1 - error - low) / (high - low)
    return np.maximum(0, (n - below) / total), np.minimum(1, (n + below + 2 * part) / total)


def _joint_coverage(counts: np.ndarray, reach: int) -> float:
    """Probability that all counts lie within ``reach``: Poisson counts given their sum, by Edgeworth."""
    total = int(counts.sum())
    log_inside, moments = 0.0, np.zeros(4)
    for count in counts.tolist():
        # further from its mean a Poisson law has less than 1e-18
        width = min(reach, int(9 * math.sqrt(count)) + 60)
        steps = np.arange(max(-width, -count), width + 1)
        mass = scipy.stats.poisson.pmf(count + steps, count)
        inside = mass.sum()
        mean = (steps * mass).sum() / inside
        second, third, fourth = (((steps - mean) ** r * mass).sum() / inside for r in (2, 3, 4))
        log_inside += math.log(inside)
        moments += (mean, second, third, fourth - 3 * second**2)
    shift, variance, third, fourth = moments.tolist()
    if variance == 0:
        return 0.0
    z, skew, excess = -shift / math.sqrt(variance), third / variance**1.5, fourth / variance**2
    edgeworth = (
        1
        + skew * (z**3 - 3 * z) / 6
        + excess * (z**4 - 6 * z**2 + 3) / 24
        + skew**2 * (z**6 - 15 * z**4 + 45 * z**2 - 15) / 72
    )
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi * variance) * edgeworth
    return float(math.exp(log_inside) * density / scipy.stats.poisson.pmf(total, total))


def empirical_bernstein(mean: Any, variance: Any, trials: int, *, error: float) -> Interval:
    """Lower and upper end for the mean of variables in [0, 1], each wrong with probability at most ``error``.

    ``variance`` is the unbiased sample variance. Source: Maurer and Pontil 2009, arXiv:0907.3740, Theorem 4.
    """
    spread = np.maximum(0.0, np.asarray(variance, dtype=np.float64))
    log = math.log(2 / error)
    margin = np.sqrt(2 * spread * log / trials) + 7 * log / (3 * (trials - 1))
    return np.maximum(0.0, np.asarray(mean) - margin), np.minimum(1.0, np.asarray(mean) + margin)


def largest_refuted(excess: Callable[[float], float], *, limit: float) -> float:
    """The largest value whose ``excess`` is above 0, from below; 0 if there is none. A larger one has less.

    Brent's method, with a fifth of the steps of bisection where the excess is smooth, and no more where it is
    a sign alone. Its root may lie on either side, so it is lowered until its excess is above 0.
    """
    if not excess(0.0) > 0:
        return 0.0
    low, high = 0.0, 1.0
    while high < limit and excess(high) > 0:
        low, high = high, 2 * high
    if excess(high) > 0:
        return high
    root, step = float(scipy.optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14)), 1e-14
    while root > low and not excess(root) > 0:
        root, step = root * (1 - step) - step, 2 * step
    return max(root, low)

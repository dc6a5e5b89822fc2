"""Confidence intervals for probabilities: exact, anytime-valid, simultaneous, and for bounded means.

Probability of many right guesses under a claim: with a failure probability delta, and for Gaussian curves.

Every function returns an upper bound on P(``right`` or more of ``guesses``) for the claim that is tested.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from ostraka.core.curve import Curve
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


_DELTA_SHARE = 0.65  # of the error pays for delta where the number of guesses is not fixed in advance
_UP = 1 + 1e-9  # relative error of the binomial tails, on the safe side
_MOST_MU = 100.0
_SPREAD, _FAR, _CUTS = 9.0, 40.0, 200  # standard deviations; a normal number is never so far; intervals


def price_of_delta(n_canaries: int, *, delta: float, error: float) -> tuple[float, float]:
    """Return a distance i, fixed before any guess, and its part n delta / i of the error."""
    distance = max(1.0, n_canaries * delta / (_DELTA_SHARE * error))
    return distance, n_canaries * delta / distance


def near_tail(right: int, guesses: int, share: float, *, distance: float) -> float:
    """E max(0, 1 - (right - B)_+ / distance) for B binomial.

    With any J >= 0, ``1[B + J >= right]`` is at most that number before its mean, plus ``J / distance``. So
    J may depend on B, and the number of guesses on the output. Several cuts pay ``J / distance`` once.
    """
    short = np.arange(1, min(int(distance), right) + 1)
    masses = _masses(right - short, guesses, share)
    tail = scipy.special.bdtrc(right - 1, guesses, share)
    return float(min(1.0, (tail + (masses * (1 - short / distance)).sum()) * _UP))


def planned_tail(right: int, guesses: int, share: float, *, n_delta: float) -> float:
    """P(B + J >= right) for B binomial, J >= 0 of mean ``n_delta``, and any dependence between the two.

    The smallest of ``near_tail + n_delta / distance``: the number of guesses must be fixed in advance.
    """
    tail = float(scipy.special.bdtrc(right - 1, guesses, share))
    if n_delta == 0 or right == 0:
        return min(1.0, tail * _UP)
    # other distances are as valid: beyond those that matter the bound only grows
    distance = np.arange(1, _that_matter(right, guesses, share) + 1)
    masses = _masses(right - distance, guesses, share)
    near, weighted = np.cumsum(masses), np.cumsum(distance * masses)
    return float(min(1.0, (tail + near - weighted / distance + n_delta / distance).min() * _UP))


def steinke_tail(right: int, guesses: int, share: float, *, n_delta: float) -> float:
    """Steinke, Nasr and Jagielski 2023, Theorem 5.2: fair coins, and a number of guesses fixed in advance.

    P <= f(v) + 2 n delta max_i (f(v - i) - f(v)) / i, f(v) = P(B >= v). Terms with i < 2 n delta are replaced
    by an upper bound that grows with epsilon, so that the claims which are refuted are an interval.
    """
    tail = float(scipy.special.bdtrc(right - 1, guesses, share))
    if n_delta == 0 or right == 0:
        return min(1.0, tail * _UP)
    last = _that_matter(right, guesses, share)
    i = np.arange(1, last + 1)
    part = 2 * n_delta / i  # from the last on f(v - i) counts as 1, and the terms fall
    closer = np.where(i < last, scipy.special.bdtrc(np.maximum(0, right - 1 - i), guesses, share), 1.0)
    terms = np.maximum(0.0, 1 - part) * tail + part * closer
    return float(min(1.0, max(tail, float(terms.max())) * _UP))


def _that_matter(right: int, guesses: int, share: float) -> int:
    """How many guesses fewer than ``right`` any law but a negligible part of the binomial one reaches."""
    mean, deviation = guesses * share, math.sqrt(guesses * share * (1 - share))
    return max(1, min(right, math.ceil(right - mean + _SPREAD * deviation)))


def gaussian_is_refuted(mu: float, right: int, guesses: int, n_canaries: int, *, error: float) -> bool:
    """Whether so many right guesses have probability at most ``error`` under mu-Gaussian DP.

    Source: Mahloujifar, Melis and Chaudhuri 2025, arXiv:2410.22235, recursion for two candidates. ``hits``
    and ``misses`` bound the shares of right and wrong guesses over all outcomes with i or more right guesses.
    Refuted if together they exceed the share of guesses that were made.
    """
    hits = error * right / n_canaries
    misses = error * (guesses - right) / n_canaries
    for i in range(right - 1, -1, -1):
        needed = float(scipy.special.ndtr(scipy.special.ndtri(hits) - mu)) * (1 - 1e-12)
        if needed <= misses:
            break  # neither can change any more
        hits = min(1.0, hits + i / (guesses - i) * (needed - misses))
        misses = needed
    return hits + misses > guesses / n_canaries * _UP


def separate_end(right: int, guesses: int, *, delta: float, error: float) -> float:
    """The largest epsilon that is refuted where every guess is about an independent game, and all are made.

    A game of total variation t is guessed with probability (1 + t) / 2 at most: for (epsilon, delta) that is
    (e^epsilon + delta) / (e^epsilon + 1).
    """
    least, _ = clopper_pearson(np.array([right]), guesses, error=error)
    share = float(least[0])
    if share <= (1 + delta) / 2:
        return 0.0
    return math.log((share - delta) / (1 - share)) * (1 - 1e-12)


def gaussian_end(
    right: int, guesses: int, n_canaries: int, *, separate: bool, delta: float, error: float
) -> float:
    """Epsilon at ``delta`` of the largest refuted mu; ``separate``: of the surest independent guesses."""

    def excess(mu: float) -> float:
        if separate:
            return error - surest_tail(mu, right, guesses, n_canaries)
        return 1.0 if gaussian_is_refuted(mu, right, guesses, n_canaries, error=error) else -1.0

    mu = largest_refuted(excess, limit=_MOST_MU)
    return Curve.gaussian(sensitivity=mu, sigma=1.0).epsilon(delta) * (1 - 1e-9) if mu > 0 else 0.0


def surest_tail(mu: float, right: int, guesses: int, n_canaries: int) -> float:
    """P(``right`` or more of the ``guesses`` surest of independent games) under mu-Gaussian DP.

    Every game is at best X normal with mean mu / 2, where X > 0 is right and the odds of that are
    e^(mu |x|): whoever sees all X makes the surest guesses where |x| is largest. Given c, the largest |x|
    that is not guessed, guesses are independent, each right with P(X > c) / P(|X| > c), which grows with c.
    So the law of c is cut into intervals, and each counts with the share at its upper end.
    """
    ndtr, tail = scipy.special.ndtr, scipy.special.bdtrc
    if guesses == n_canaries:
        return min(1.0, float(tail(right - 1, guesses, ndtr(mu / 2))) * _UP)

    def beyond(c: Any) -> Any:
        return ndtr(mu / 2 - c) + ndtr(-mu / 2 - c)

    mean = (guesses + 1) / (n_canaries + 1)
    width = _SPREAD * math.sqrt(mean * (1 - mean) / n_canaries)

    def quantile(share: float) -> float:
        return float(scipy.optimize.brentq(lambda c: beyond(c) - share, 0.0, mu / 2 + _FAR))

    c = np.linspace(quantile(min(mean + width, 1 - 1e-12)), quantile(max(mean - width, 1e-15)), _CUTS)
    share = beyond(c)
    above = np.concatenate([[1.0], tail(guesses, n_canaries, share), [0.0]])  # P(the largest left > c)
    tails = np.concatenate([tail(right - 1, guesses, np.minimum(1.0, ndtr(mu / 2 - c) / share * _UP)), [1.0]])
    return min(1.0, float(-np.diff(above) @ tails) * _UP)


def _masses(hits: np.ndarray, trials: int, share: float) -> np.ndarray:
    """Binomial probabilities, right to about 1e-11 of themselves."""
    ways = (
        scipy.special.gammaln(trials + 1)
        - scipy.special.gammaln(hits + 1)
        - scipy.special.gammaln(trials - hits + 1)
    )
    return np.asarray(
        np.exp(ways + scipy.special.xlogy(hits, share) + scipy.special.xlog1py(trials - hits, -share))
    )


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

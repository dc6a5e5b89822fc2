"""Budget filters: spending limits that hold where earlier answers choose the next mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ostraka import _check
from ostraka._composition.law import begins
from ostraka.curve import ORDERS, Curve

__all__ = ["RenyiFilter", "allows_adaptively"]

# Shares of delta, fixed before anything is asked: of noise in floating point, of Gaussian DP, of the orders.
_FOR_SLACK, _FOR_GAUSSIANS, _FOR_ORDERS = 0.10, 0.15, 0.75
# Weight falls by this power of how far an order is from the one that is best for a linear curve.
_FALL = 3.0
_OUTWARD = 1e-9
# Shares of delta in a run that begins with argmaxes, screens or Gaussians: of their exact composition, of the
# orders; and of noise in floating point, in the first of these shares.
_EXACTLY, _OTHERWISE, _OF_EXACT_FOR_SLACK = 0.9, 0.1, 1e-3


def allows_adaptively(total: Curve, first: Curve, epsilon: float, delta: float) -> bool:
    """Whether a run that began with ``first`` may end with this total, whatever answers decided.

    Where it began with argmaxes, screens or Gaussians, their composition counts (docs/composition.md). Runs
    that end within it add at most their share of delta, all others at most the share of the Rényi filter.
    """
    if not begins(first.laws):
        return RenyiFilter(epsilon=epsilon, delta=delta).fits(total)
    if not total.publishable:
        raise ValueError("a filter must see publishable curves only: a refusal is public")
    share = _EXACTLY * delta
    slack = (1 + math.exp(min(epsilon, 700.0))) * total.slack
    if total.laws is not None and slack <= _OF_EXACT_FOR_SLACK * share:
        from ostraka._composition import adaptive  # noqa: PLC0415  (compiled code, loaded when needed)

        if adaptive.fits(total.laws, epsilon=epsilon, delta=(1 - _OF_EXACT_FOR_SLACK) * share):
            return True
    return RenyiFilter(epsilon=epsilon, delta=_OTHERWISE * delta).fits(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenyiFilter:
    """Whether a total cost fits (epsilon, delta), where answers may decide which mechanisms come next.

    ``curve.epsilon(delta) <= epsilon`` picks the best order *afterwards*. That is sound for a plan fixed
    in advance. Where answers decide what comes next, the order that is best depends on the answers,
    and the rule is wrong: docs/accounting.md shows a game of two questions in which it permits 1.29
    times its delta. This filter fixes its orders and their shares before the first question.

    Attributes
    ----------
    epsilon : float > 0, nats
    delta : float in (0, 1)
        The budget. Public.
    orders : tuple of float > 1, finite
        Which orders take part. One order: the filter of Feldman and Zrnic.

    Raises
    ------
    ValueError
        A number is out of range.

    Guarantees
    ----------
    If every mechanism is asked only while the total of the curves so far *and its own* ``fits``, all that
    is released together is (epsilon, delta)-DP, however the mechanisms were chosen from earlier answers.

    Proof, for neighbours P and Q. L is the log ratio of P to Q of all that was seen, R(a) the total at
    order a. For every order, exp((a - 1)(L - R(a))) is a supermartingale under P that starts at 1
    (Feldman and Zrnic 2021, arXiv:2008.11193, Thm. 3.1; Lécuyer 2021, arXiv:2103.01379, Thm. 1), and so
    is its average M over orders, with weights w(a) fixed in advance (the method of mixtures). The rule
    for the orders is: for every number l > epsilon,
    1 - exp(epsilon - l) <= delta_1 * sum_a w(a) exp((a - 1)(l - R(a))). Where the run ends within it,
    the hockey-stick divergence E_P[max(0, 1 - exp(epsilon - L))] is at most delta_1 E[M] <= delta_1. Runs
    that end within the Gaussian rule (total mu^2 of Gaussian DP at most what (epsilon, delta_2) allows;
    Koskela, Tobaben and Honkela 2022, arXiv:2209.15596; Smith and Thakurta 2022, arXiv:2210.17520) add
    at most delta_2. Runs whose total at order infinity is at most epsilon have L <= epsilon and add
    nothing. Slack in total is kept below delta_3 / (1 + e^epsilon), and costs delta_3. The three shares
    add up to delta.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> budget = RenyiFilter(epsilon=2.0, delta=1e-5)
    >>> price = GNMax(sigma=40.0).curve()
    >>> budget.fits(200 * price), budget.fits(300 * price)
    (True, False)
    """

    epsilon: float
    delta: float
    orders: tuple[float, ...] = ORDERS[:-1]

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        _check.delta(self.delta)
        if not self.orders or not all(1 < order < math.inf for order in self.orders):
            raise ValueError("orders must be finite and above 1, and at least one")

    def fits(self, total: Curve) -> bool:
        """Return whether the run may end with this total. NaN and unknown orders do not fit.

        Raises
        ------
        ValueError
            The total was computed from private data: refusals would tell something about them.
        """
        if not total.publishable:
            raise ValueError("a filter must see publishable curves only: a refusal is public")
        if not (1 + math.exp(min(self.epsilon, 700.0))) * total.slack <= _FOR_SLACK * self.delta:
            return False
        pure = total.rdp[-1] if total.orders[-1] == math.inf else math.inf
        return pure <= self.epsilon or self._fits_gaussians(total) or self._fits_orders(total)

    def _fits_gaussians(self, total: Curve) -> bool:
        gaussian = Curve((2.0,), (math.inf,), mu_squared=total.mu_squared)
        return gaussian.delta(epsilon=self.epsilon) <= _FOR_GAUSSIANS * self.delta

    def _fits_orders(self, total: Curve) -> bool:
        """Return whether the minimum of a convex function of t = l - epsilon > 0 is not negative."""
        known = dict(zip(total.orders, total.rdp, strict=True))
        log_weights = _log_weights(self.epsilon, self.delta, self.orders)
        rows = [
            (order - 1, weight + (order - 1) * (self.epsilon - known[order]))
            for order, weight in zip(self.orders, log_weights, strict=True)
            if known.get(order, math.inf) < math.inf
        ]
        if not rows:
            return False
        slopes, heights = np.array(rows).T
        heights = heights + math.log(_FOR_ORDERS * self.delta) - _OUTWARD * (1 + np.abs(heights))
        return _stays_above(slopes, heights)


@lru_cache(maxsize=256)
def _log_weights(epsilon: float, delta: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Weights of the orders; the order which is best for costs proportional to the order has the largest."""
    excess = np.array(orders) - 1
    conversion = np.log1p(-1 / (1 + excess)) - (math.log(delta) + np.log1p(excess)) / excess
    best = excess[np.argmax((epsilon - conversion) / (1 + excess))]
    log_weights = -_FALL * np.abs(np.log(excess / best))
    total = log_weights.max() + math.log(np.exp(log_weights - log_weights.max()).sum())
    return tuple((log_weights - total).tolist())


def _stays_above(slopes: np.ndarray, heights: np.ndarray) -> bool:
    """Return whether log sum exp(heights + slopes t) >= log(1 - e^-t) for every t > 0."""
    # the difference is convex in t and its derivative changes sign once: between two points on both sides of
    # that place it lies above the point where their tangents meet

    def at(t: float) -> tuple[float, float]:
        exponents = heights + slopes * t
        top = float(exponents.max())
        terms = np.exp(exponents - top)
        value = top + math.log(float(terms.sum())) - math.log(-math.expm1(-t))
        return value, float(terms @ slopes / terms.sum()) - 1 / math.expm1(t)

    low, high = 1e-12, 1.0
    while at(high)[1] < 0:
        high *= 2
        if high > 1e6:
            return False
    for _ in range(200):
        middle = math.sqrt(low * high)
        value, slope = at(middle)
        if not value >= 0:
            return False
        low, high = (middle, high) if slope < 0 else (low, middle)
        (left, falls), (right, rises) = at(low), at(high)
        meet = (left * rises - right * falls + falls * rises * (high - low)) / (rises - falls)
        if meet >= 0:
            return True
        if high / low < 1 + 1e-12:
            break
    return False

"""Find the smallest noise with which a number of answers stays within (epsilon, delta)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ostraka.core import check
from ostraka.core.curve import gaussian_delta
from ostraka.core.ledger import chain
from ostraka.core.mechanisms.law import classic_curve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.curve import Priced
    from ostraka.core.mechanisms.law import HasNoise

_FINEST, _COARSEST = 1e-12, 10.0  # of precisions; finer ones are rounding
_ROUGHLY, _TIGHT_OF_CLASSIC, _CLOSELY = 1e-3, 0.8, 1e-9
_FURTHER = 0.002  # of the distance to where the cost is expected to fit
_NEARLY = 0.98
_TRUSTED = 4  # interpolations that go to the expected root, before they are moved to the further end
_LEAST, _MOST = 1e-3, 1e9  # votes
_FOLLOWED = 512  # answers; of more, exact composition takes a Gaussian


def calibrate(
    family: type[HasNoise] | Callable[[float], Priced],
    *,
    n_answers: int,
    epsilon: float,
    delta: float,
    precision: float = 1e-6,
) -> float:
    """The smallest noise with which ``n_answers`` stay within (epsilon, delta), on the safe side.

    Parameters
    ----------
    family : GNMax, LNMax, or callable from noise to a mechanism
        What answers. The cost must fall with the noise.
    n_answers : int >= 1
    epsilon, delta : float
        The goal. Public.
    precision : float in [1e-12, 10]
        How far above the smallest noise the result may be, relative.

    Returns
    -------
    float
        Noise in votes: sigma of ``GNMax``, scale of ``LNMax``, or what the callable takes.

    Raises
    ------
    ValueError
        No noise reaches the goal, or a parameter is out of range.

    Guarantees
    ----------
    The cost at the returned noise was computed and is at most epsilon; at a noise smaller by
    ``precision`` it was computed and is more. Few evaluations, most often three: the search starts near
    its end (:class:`Goal`), and it compares costs as the shifts of Gaussians of the same cost, which are
    nearly proportional to one over the noise.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> sigma = calibrate(GNMax, n_answers=100, epsilon=2.0, delta=1e-5)
    >>> (100 * GNMax(sigma=sigma).curve()).epsilon(delta=1e-5) <= 2.0
    True
    >>> round(sigma, 2)
    22.78
    """
    check.integer(n_answers=n_answers, least=1)
    check.positive(epsilon=epsilon)
    check.delta(delta)
    check.between(least=_FINEST, most=_COARSEST, precision=precision)
    goal = Goal(family, n_answers=n_answers, epsilon=epsilon, delta=delta)
    start = goal.about()
    noise = _solve(goal.excess, start if start < math.inf else math.sqrt(n_answers) / epsilon, precision)
    if noise == math.inf:
        raise ValueError(
            f"no noise makes {n_answers} answers cost epsilon={epsilon:g} at delta={delta:g}: what "
            "is rounded alone costs more; ask for fewer answers or a larger delta"
        )
    return noise


class Goal:
    """The cost of a noise compared with the goal, as the search for the least noise needs it."""

    def __init__(self, family: Any, *, n_answers: int, epsilon: float, delta: float) -> None:
        self._made: Callable[[float], Any] = (
            (lambda noise: family.with_noise(noise=noise)) if hasattr(family, "with_noise") else family
        )
        self._n, self._epsilon, self._delta = n_answers, epsilon, delta
        self._shift = gaussian_shift(epsilon, delta)

    def excess(self, noise: float) -> float:
        """Return log(shift / goal), which is not positive if the cost fits."""
        cost = self._made(noise).curve()
        # as a ledger records it, rounded up: what is rounded weighs e^epsilon, so above 20 it counts
        orders, units = chain.price(cost)
        total = chain.to_curve(chain.fold(None, units, uses=self._n), cost.moves, orders)
        spent = float(total.epsilon(self._delta))
        if spent == math.inf:
            return math.inf
        log_ratio = math.log(gaussian_shift(spent, self._delta) / self._shift)
        return min(0.0, log_ratio) if spent <= self._epsilon else max(math.ulp(0.0), log_ratio)

    def about(self) -> float:
        """Estimate the noise that fits from classic curves, which are cheap; infinity where none seems to."""
        start = math.sqrt(self._n) / self._epsilon
        classic = classic_curve(self._made(1.0))
        if classic is None:
            return start
        if math.isfinite(classic.mu_squared):
            return _solve(self._classic_excess, start, _CLOSELY)
        return _TIGHT_OF_CLASSIC * _solve(self._classic_excess, start, _ROUGHLY)

    def _classic_excess(self, noise: float) -> float:
        """About the same of a classic curve: of its shift, where it has one, else of its epsilon."""
        classic = classic_curve(self._made(noise))
        if classic is None:
            return math.inf
        if not math.isfinite(classic.mu_squared):
            spent = (self._n * classic).epsilon(self._delta)
            return math.log(max(spent, 1e-300) / self._epsilon) if spent < math.inf else math.inf
        # about how much smaller the squared shift of exactly composed answers is than their sum
        if self._n == 1:
            share = 1.0
        elif self._n > _FOLLOWED:
            share = 0.6444
        else:  # fitted to 16 to 512 answers: within 0.2 %
            shift = math.sqrt(classic.mu_squared / 2)
            constant = 0.942 - 0.081 * (math.log10(self._delta) + 4) + 2.1 * min(shift, 0.1)
            share = min(1.0, 0.6411 + constant / (self._n + 4.9))
        return math.log(max(share * self._n * classic.mu_squared, 1e-300)) / 2 - math.log(self._shift)


def gaussian_shift(epsilon: float, delta: float) -> float:
    """Estimate the mean shift of the Gaussian that costs (epsilon, delta): where a search starts."""
    low, high = 1e-12, 1e6
    while high > low * (1 + 1e-13):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if gaussian_delta(epsilon, middle) >= delta else (middle, high)
    return high


def _solve(excess: Callable[[float], float], start: float, precision: float) -> float:
    """The smallest noise whose excess is not positive, from above; infinity if there is none."""
    # a noise that costs too much and one that does not, each with its excess
    noise = min(max(start, _LEAST), _MOST)
    point = noise, excess(noise)
    over = point[1] > 0
    while True:
        # shifts fall as one over the noise, or nearly; a little further, so that the sign changes
        near = min(abs(point[1]), 8.0)
        step = max(near * (1 + _FURTHER) + precision / 3, _NEARLY * precision)
        factor = 10.0 if point[1] == math.inf else math.exp(step)
        noise = point[0] * factor if over else point[0] / factor
        edge = min(max(noise, _LEAST), _MOST)
        neighbour = edge, excess(edge)
        if (neighbour[1] > 0) != over:
            low, high = (point, neighbour) if over else (neighbour, point)
            break
        if edge != noise:  # the last noise that is tried: even so much is too little, or so little is enough
            return math.inf if over else edge
        point = neighbour
    tries = 0
    while high[0] > low[0] * (1 + precision):
        # the root in logarithms, moved towards the further end so that both ends converge
        tries += 1
        (a, above), (b, below) = (math.log(low[0]), low[1]), (math.log(high[0]), high[1])
        crossing = a + (b - a) * above / (above - below) if above < math.inf else a
        if above == math.inf or below < -50:
            log_noise = (a + b) / 2
        # an end so near that the other side of the root may do
        elif tries < _TRUSTED and b - a > 2 * precision and b - crossing < _NEARLY * precision:
            log_noise = b - _NEARLY * precision
        elif tries < _TRUSTED and b - a > 2 * precision and crossing - a < _NEARLY * precision:
            log_noise = a + _NEARLY * precision
        else:
            away, step = 0.0 if tries < _TRUSTED else 0.02, min(precision / 3, (b - a) / 4)
            if crossing - a < b - crossing:
                moved = crossing + max(step, away * (crossing - a))
            else:
                moved = crossing - max(step, away * (b - crossing))
            log_noise = min(max(moved, a + (b - a) * 1e-3), b - (b - a) * 1e-3)
        noise = math.exp(log_noise)
        point = noise, excess(noise)
        low, high = (low, point) if point[1] <= 0 else (point, high)
    return high[0]

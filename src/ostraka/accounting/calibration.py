"""Find the smallest noise with which a number of answers stays within (epsilon, delta)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ostraka import _check
from ostraka.mechanisms.protocols import classic_curve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.curve import Curve, Priced
    from ostraka.mechanisms.protocols import HasNoise, Mechanism

__all__ = ["calibrate"]

_ROUGHLY, _TIGHT_OF_CLASSIC = 1e-3, 0.8
_LEAST, _MOST = 1e-3, 1e9  # votes


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
    precision : float > 0
        How far above the smallest noise the result may be, relative.

    Returns
    -------
    float
        Noise in votes: sigma of ``GNMax``, scale of ``LNMax``, or what the callable takes.

    Raises
    ------
    ValueError
        No noise reaches the goal.

    Guarantees
    ----------
    The cost at the returned noise was computed and is at most epsilon; at a noise smaller by
    ``precision`` it was computed and is more. Few evaluations: it starts where the classic curve, which
    is cheap and about a quarter too dear, ends, and cost against noise is nearly a line in logarithms.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> sigma = calibrate(GNMax, n_answers=100, epsilon=2.0, delta=1e-5)
    >>> (100 * GNMax(sigma=sigma).curve()).epsilon(delta=1e-5) <= 2.0
    True
    >>> round(sigma, 2)
    24.39
    """
    _check.integer(n_answers=n_answers, least=1)
    _check.positive(epsilon=epsilon)
    _check.delta(delta)
    _check.positive(precision=precision)
    made = _maker(family)

    def excess(noise: float, *, price: Callable[[Any], Curve] = _tight) -> float:
        """Return log(cost / goal), which is not positive if the cost fits."""
        spent = (n_answers * price(made(noise))).epsilon(delta)
        return math.log(max(spent, 1e-300) / epsilon) if spent < math.inf else math.inf

    start = math.sqrt(n_answers) / epsilon
    if classic_curve(made(1.0)) is not None:
        dear = _solve(lambda noise: excess(noise, price=_classic), start, _ROUGHLY)
        start = _TIGHT_OF_CLASSIC * dear if dear < math.inf else start
    noise = _solve(excess, start, precision)
    if noise == math.inf:
        raise ValueError(
            f"no noise makes {n_answers} answers cost epsilon={epsilon:g} at delta={delta:g}: what "
            "is rounded alone costs more; ask for fewer answers or a larger delta"
        )
    return noise


def _tight(mechanism: Priced) -> Curve:
    return mechanism.curve()


def _classic(mechanism: Mechanism) -> Curve:
    return classic_curve(mechanism) or mechanism.curve()


def _solve(excess: Callable[[float], float], start: float, precision: float) -> float:
    """The smallest noise whose excess is not positive, from above; infinity if there is none."""
    low, high = _bracket(excess, start)
    if not high[1] <= 0:
        return math.inf
    while high[0] > low[0] * (1 + precision):
        noise = _between(low, high, precision)
        point = noise, excess(noise)
        low, high = (low, point) if point[1] <= 0 else (point, high)
    return high[0]


def _maker(family: Any) -> Callable[[float], Any]:
    """Return a function from noise to mechanisms."""
    if hasattr(family, "with_noise"):
        return lambda noise: family.with_noise(noise=noise)
    made: Callable[[float], Any] = family
    return made


def _bracket(
    excess: Callable[[float], float], start: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return a noise that costs too much and one that does not, each with its excess."""
    noise = min(max(start, _LEAST), _MOST)
    point = noise, excess(noise)
    while True:
        over = point[1] > 0
        factor = 10.0 if point[1] == math.inf else math.exp(min(abs(point[1]), 8.0)) * 1.02
        noise = point[0] * factor if over else point[0] / factor
        if not _LEAST <= noise <= _MOST:
            edge = min(max(noise, _LEAST), _MOST)
            last = edge, excess(edge)
            return (point, last) if over else (last, point) if last[1] > 0 else (last, last)
        other = noise, excess(noise)
        if (other[1] > 0) != over:
            return (point, other) if over else (other, point)
        point = other


def _between(low: tuple[float, float], high: tuple[float, float], precision: float) -> float:
    """Interpolate the root in logarithms, moved towards the further end so that both ends converge."""
    (a, over), (b, under) = (math.log(low[0]), low[1]), (math.log(high[0]), high[1])
    if over == math.inf or under < -50:
        return math.exp((a + b) / 2)
    crossing = a + (b - a) * over / (over - under)
    step = min(precision / 3, (b - a) / 4)
    near_low = crossing - a < b - crossing
    moved = (
        crossing + max(step, 0.02 * (crossing - a))
        if near_low
        else crossing - max(step, 0.02 * (b - crossing))
    )
    return math.exp(min(max(moved, a + (b - a) * 1e-3), b - (b - a) * 1e-3))

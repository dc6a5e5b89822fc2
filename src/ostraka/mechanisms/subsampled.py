"""Subsampled: the price of a mechanism whose input comes from a Poisson sample of the units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln

from ostraka import _check
from ostraka.mechanisms.protocols import abstains, check_ballot, passes_or_stops, rescaled

if TYPE_CHECKING:
    from ostraka.curve import Curve
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.private import Adjacency, Private

__all__ = ["Subsampled"]

# What is added to each computed divergence; rounding is below 1e-11 of it.
_OUTWARD = 1 + 1e-9
# Where two nearly equal numbers are subtracted, their rounding is added to the difference.
_ROUNDING = 1e-15
# The Gaussian integral is taken where order * mu and the largest exponent are at most these; beyond, chance
# saves next to nothing.
_FURTHEST, _LARGEST = 300.0, 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsampled:
    """A ballot over a Poisson sample: each unit takes part with ``sampling_rate``, anew for every row.

    The sampling itself has happened where the votes were made (Private-kNN samples its neighbours); this
    carries the price, and :func:`ostraka.release` refuses data that were sampled at a higher rate.

    Attributes
    ----------
    mechanism : GNMax, LNMax, Threshold, Confident, or any other ballot mechanism
        What is asked of the sample. Public.
    sampling_rate : float in (0, 1]
        Poisson probability of taking part. Public; who took part is secret.

    Raises
    ------
    ValueError
        ``sampling_rate`` out of range; a mechanism that does not hide a replaced ballot of exact counts, or
        counts on sampling itself.

    Guarantees
    ----------
    For neighbours that differ by one unit added or removed (not replaced), ``curve()`` bounds both
    directions, at every order, if each row of the votes has a sample of its own. It is the smallest of
    what :func:`amplified` says, and so never above the mechanism's own curve.
    Source: Mironov, Talwar and Zhang 2019, arXiv:1908.10530; Zhu and Wang 2019, Poisson subsampled
    Rényi differential privacy, ICML 2019; docs/accounting.md.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> always, seldom = GNMax(sigma=5.0), Subsampled(mechanism=GNMax(sigma=5.0), sampling_rate=0.05)
    >>> [round((20 * each.curve()).epsilon(delta=1e-5), 2) for each in (always, seldom)]
    [4.88, 0.21]
    """

    mechanism: BallotMechanism
    sampling_rate: float

    def __post_init__(self) -> None:
        _rate(self.sampling_rate)
        own = getattr(self.mechanism, "promise", None)
        if own is not None and own.sampling_rate != 1:
            raise ValueError(
                "mechanism counts on sampling already: take one Subsampled at the product of the rates, "
                f"got {self.mechanism!r}"
            )
        if own is None or own.moves != "ballot" or own.relation != "replace-one" or own.noise_sigma:
            raise ValueError(
                f"mechanism must hide a ballot of exact counts, as GNMax does, got {self.mechanism!r}"
            )
        check_ballot(self.mechanism)

    @property
    def promise(self) -> Adjacency:
        """The mechanism's promise, for a unit which takes part at random and is added or removed."""
        return replace(self.mechanism.promise, relation="add-or-remove", sampling_rate=self.sampling_rate)

    @property
    def passes_or_stops(self) -> bool:
        """The same as that of the inner mechanism."""
        return passes_or_stops(self.mechanism)

    @property
    def abstains(self) -> bool:
        """The same as that of the inner mechanism."""
        return abstains(self.mechanism)

    def curve(self) -> Curve:
        """Cost of one answer, whatever the votes."""
        return amplified(self.mechanism.curve(), sampling_rate=self.sampling_rate)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """The mechanism's own outcome law, given the votes of one sample."""
        return self.mechanism.log_outcomes(counts)

    def rescaled(self, factor: float) -> Subsampled:
        """The same mechanism in other units of votes, if the inner mechanism offers that."""
        return replace(self, mechanism=rescaled(self.mechanism, factor))

    def uses(self, private: Private) -> int:
        """The same as that of the inner mechanism."""
        return self.mechanism.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The mechanism's own answer to the votes of the sample."""
        return self.mechanism.release(private, rng=rng)


@lru_cache(maxsize=64)  # each release asks for the curve more than once
def amplified(curve: Curve, *, sampling_rate: float) -> Curve:
    """Return the cost for a unit which takes part at random, from the cost for one which always takes part.

    Parameters
    ----------
    curve : Curve
        Bounds the mechanism on a sample with the unit against one without it, both directions.
    sampling_rate : float in (0, 1]

    Returns
    -------
    Curve
        With the same orders, never above ``curve``.

    Guarantees
    ----------
    With r = P/Q the likelihood ratio of "with" to "without" on one sample, q the rate and x = q (r - 1)
    > -q, the two directions are log E_Q[(1 + x)^a] / (a - 1) and log E_Q[(1 + x)^(1 - a)] / (a - 1);
    averaging over the rest of the sample only lowers them (joint quasi-convexity).

    *With against without.* At whole orders, the binomial sum over k of C(a, k) (1 - q)^(a - k) q^k
    e^((k - 1) D_k): exact in the D_k (Zhu and Wang 2019, ICML). Between
    whole orders (a - 1) D_a is convex, so its chord is a bound. Below order 2,
    (1 + x)^a - 1 - a x <= c x^2 with c = ((1 - q)^a - 1 + a q) / q^2, since this quotient falls with x.

    *Without against with.* Likewise (1 + x)^(1 - a) - 1 + (a - 1) x is at most
    ((1 - q)^(1 - a) - 1 - (a - 1) q) x^2 / q^2; and E_Q[(r - 1)^2] = e^(D_2) - 1. Also at most
    -log(1 - q), since x > -q; and q D_(1 + q (a - 1)), since 1 + x >= r^q. No factor 3 is needed.

    *Gaussians.* A pair dominated by a Gaussian of shift mu is a post-processing of it, and so is its
    mixture: at most the sampled Gaussian, whose worse direction is the first (Mironov, Talwar and Zhang
    2019, arXiv:1908.10530, Thm. 5), by quadrature at any order. The smaller of the two bounds counts.
    mu^2 itself is not amplified.

    Examples
    --------
    >>> from ostraka.curve import Curve
    >>> step = amplified(Curve.gaussian(sensitivity=1.0, sigma=1.0), sampling_rate=0.01)
    >>> round((1000 * step).epsilon(delta=1e-5), 3)
    2.108
    """
    _rate(sampling_rate)
    if sampling_rate == 1:
        return curve
    orders, own = np.array(curve.orders), np.array(curve.rdp)
    finite = np.isfinite(orders)
    found = own.copy()
    if not finite.all():
        most = own[-1]  # beyond 700, chance saves next to nothing
        found[-1] = math.log1p(sampling_rate * math.expm1(most)) if most <= _LARGEST else most
    generic = np.maximum(
        _with_against_without(orders[finite], own[finite], sampling_rate),
        _without_against_with(orders[finite], own[finite], sampling_rate),
    )
    found[finite] = np.minimum(generic, _gaussian(orders[finite], curve.mu_squared, sampling_rate))
    found = np.minimum(found * _OUTWARD, own)
    return replace(curve, rdp=tuple(float(value) for value in found), laws=None)


def _with_against_without(orders: np.ndarray, own: np.ndarray, rate: float) -> np.ndarray:
    """The binomial sum at whole orders, its chord between them, the quadratic bound below 2."""
    whole = np.arange(2.0, math.ceil(orders[-1]) + 1)
    log_moments = np.concatenate([[0.0, 0.0], _between(whole, orders, own)])  # of r, at 0, 1, 2, 3, …
    reached = np.array([0.0, *(_binomial(int(order), log_moments, rate) for order in _needed(orders))])
    bound = np.interp(orders, [1.0, *_needed(orders)], reached) / (orders - 1)
    low = orders < 2
    linear = orders[low] * rate
    second = (np.expm1(orders[low] * math.log1p(-rate)) + linear * (1 + _ROUNDING)) * _expm1(log_moments[2])
    bound[low] = np.minimum(bound[low], np.log1p(second) / (orders[low] - 1))
    return np.asarray(bound)


def _without_against_with(orders: np.ndarray, own: np.ndarray, rate: float) -> np.ndarray:
    """Return the smallest of three bounds on the divergence without the unit against with it."""
    excess = orders - 1
    second = _expm1(_between(np.array([2.0]), orders, own)[0])
    geometric = _between(1 + rate * excess, orders, own) / excess
    return np.asarray(np.minimum(_quadratic(excess, second, rate), geometric))


def _quadratic(excess: np.ndarray, second: float, rate: float) -> np.ndarray:
    """Bound the divergence by E_Q[(r - 1)^2] alone, and by what x > -rate implies."""
    with np.errstate(over="ignore"):
        bend = np.expm1(-excess * math.log1p(-rate)) - excess * rate * (1 - _ROUNDING)
        return np.asarray(np.minimum(np.log1p(bend * second) / excess, -math.log1p(-rate)))


def _between(wanted: np.ndarray, orders: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Bound (order - 1) D at any order from above: it is convex in the order, 0 at 1, and D never falls."""
    finite = np.isfinite(orders) & np.isfinite(own)
    chord = np.interp(
        wanted, [1.0, *orders[finite]], [0.0, *(orders[finite] - 1) * own[finite]], right=math.inf
    )
    place = np.searchsorted(orders, wanted)
    stair = np.append(own, math.inf)[np.minimum(place, len(own))] * (wanted - 1)
    return np.asarray(np.minimum(chord, stair))


def _needed(orders: np.ndarray) -> np.ndarray:
    """Return the whole orders next to the given ones, from 2 on."""
    around = np.unique(np.concatenate([np.floor(orders), np.ceil(orders)]))
    return np.asarray(around[around >= 2])


def _binomial(order: int, log_moments: np.ndarray, rate: float) -> float:
    """Log of 1 + sum over k >= 2 of C(order, k) (1 - q)^(order - k) q^k (moment of k - 1)."""
    k = np.arange(2, order + 1)
    log_terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    log_terms += k * math.log(rate) + (order - k) * math.log1p(-rate)
    moments = log_moments[2 : order + 1]
    if moments.max() < 700 and (log_terms + moments).max() < 700:
        return math.log1p(float(np.exp(log_terms) @ np.expm1(moments)))
    return float(np.logaddexp.reduce(log_terms + moments, initial=0.0))


def _gaussian(orders: np.ndarray, mu_squared: float, rate: float) -> np.ndarray:
    """Sampled Gaussian of shift mu, with against without the unit, by the trapezoid rule, or infinity."""
    bound = np.full(orders.shape, math.inf)
    mu = math.sqrt(mu_squared)
    for place, order in enumerate(orders):
        end = order * mu + 12.0
        if 0 < order * mu <= _FURTHEST and mu * end <= _LARGEST:
            step = 0.05 / max(1.0, mu)
            x = np.arange(-12.0, end, step)
            gain = rate * np.expm1(mu * x - mu_squared / 2)
            log_terms = _log_bend(gain, float(order)) - x**2 / 2 + math.log(step / math.sqrt(2 * math.pi))
            bound[place] = np.logaddexp(0.0, np.logaddexp.reduce(log_terms)) / (order - 1)
    return bound


def _log_bend(gain: np.ndarray, order: float) -> np.ndarray:
    """Log of (1 + x)^order - 1 - order x, which is never negative; its series where that would cancel."""
    power = order * np.log1p(gain)
    little = np.clip(gain, -1e-4 / order, 1e-4 / order)
    rest = (order - 2) * little / 3 + abs((order - 2) * (order - 3)) * little**2 / 6  # twice the last term
    series = order * (order - 1) / 2 * little**2 * (1 + rest)
    plain = np.expm1(np.minimum(power, 600.0)) - order * np.minimum(gain, 1e290)
    with np.errstate(divide="ignore", invalid="ignore"):
        large = np.where(power > 600, power, np.log(np.maximum(plain, 0)))
        return np.asarray(np.where(gain == little, np.log(series), large))


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf


def _rate(sampling_rate: float) -> None:
    _check.positive(sampling_rate=sampling_rate)
    if sampling_rate > 1:
        raise ValueError(f"sampling_rate must be at most 1, got {sampling_rate!r}")

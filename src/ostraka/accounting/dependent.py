"""The published data-dependent bounds of PATE, for the owner: Papernot et al. 2017 and 2018."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from ostraka import _check
from ostraka.accounting._theorems import log_q_gaussian, log_q_laplace, theorem3, theorem6
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import GNMax, LNMax, Threshold

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

__all__ = ["moments2017_curve", "papernot2018_curve"]

_CHUNK = 4096  # queries at a time: bounds memory at about 4096 x len(ORDERS) doubles per temporary


def papernot2018_curve(
    mechanism: GNMax | LNMax | tuple[Threshold, GNMax],
    counts: ArrayLike,
    *,
    screened: ArrayLike | None = None,
    answered: ArrayLike | None = None,
) -> Curve:
    """Data-dependent Rényi bound of Papernot et al. 2018, each row of ``counts`` answered once.

    Parameters
    ----------
    mechanism : GNMax, LNMax, or (Threshold, GNMax) for Confident- and Interactive-GNMax
        Public.
    counts : array, shape (n_queries, n_classes), in votes
        Private.
    screened : array, shape (n_queries, n_classes), in votes, optional
        What the screen saw, where that is not ``counts``: for Interactive-GNMax the votes minus
        ``n_teachers`` times the student's guess. Only for a pair.
    answered : bool array, shape (n_queries,), optional
        Which queries the screen let through. Only for a pair. None: the expected cost, every
        argmax weighted by its probability of being asked, as the paper plots it; that is a
        forecast, not a bound on any one run.

    Returns
    -------
    Curve
        Not publishable: for the owner only. Capped at every order by the bounds for any votes
        (order / sigma**2 for GNMax, order / (2 sigma**2) for the screen, pure DP for LNMax).

    Raises
    ------
    TypeError
        Another mechanism.
    ValueError
        Another screen noise, malformed ``counts``, or options of a pair given for one mechanism.

    Guarantees
    ----------
    With D the data that gave ``counts``, bounds the divergence D(M(D) || M(D')) for every
    neighbour D', and ONLY in this direction: the divergence D(M(D') || M(D)) can exceed it, so
    it is no substitute for ``exact_curve``, which covers both. Rounded up.
    Source: Papernot et al. 2018, arXiv:1802.08908, Theorem 6 with mu1 and mu2 of Prop. 10, the
    probability of another outcome by Prop. 7, the cap by Prop. 8; for LNMax arXiv:1610.05755,
    Theorem 3 and Lemma 4, in Rényi form.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> curve = papernot2018_curve(GNMax(sigma=40.0), [[240, 10], [130, 120]])
    >>> round(curve.epsilon(delta=1e-5), 4)
    0.1495
    >>> curve.publishable
    False
    """
    if not isinstance(mechanism, tuple):
        if screened is not None or answered is not None:
            raise ValueError("screened and answered are for a pair (Threshold, GNMax)")
        return _curve(_rdp(mechanism, _check.counts(counts)))
    if len(mechanism) != 2 or not isinstance(mechanism[0], Threshold) or not isinstance(mechanism[1], GNMax):
        raise TypeError("a pair must be (Threshold, GNMax), in this order")
    screen, argmax = mechanism
    asked = _check.counts(counts)
    seen = asked if screened is None else _check.counts(screened)
    if seen.shape != asked.shape:
        raise ValueError(f"screened must have shape {asked.shape}, got {seen.shape}")
    log_answer, log_abstain = _log_pass(screen, seen)
    screening = _total(
        np.minimum(log_answer, log_abstain), lambda log_q: theorem6(log_q, math.sqrt(2) * screen.sigma)
    )
    chances = np.exp(log_answer) if answered is None else _mask(answered, len(asked)).astype(float)
    return _curve(screening + _rdp(argmax, asked, weights=chances))


def moments2017_curve(mechanism: LNMax, counts: ArrayLike, *, n_moments: int = 8) -> Curve:
    """Data-dependent moments bound of Papernot et al. 2017 for LNMax, each row of ``counts`` answered once.

    Parameters
    ----------
    mechanism : LNMax
        Public.
    counts : array, shape (n_queries, n_classes), in votes
        Private.
    n_moments : int >= 1
        Moments 1, …, n_moments, which are the orders 2, …, n_moments + 1 (the paper takes 8).

    Returns
    -------
    Curve
        With those orders; ``rdp`` is moment(l) / l at order l + 1. Not publishable.

    Raises
    ------
    TypeError
        Not LNMax.
    ValueError
        Malformed ``counts``, or no moment.

    Guarantees
    ----------
    As for :func:`papernot2018_curve`, in the same single direction. Rounded up.
    Source: Papernot et al. 2017, arXiv:1610.05755, Theorems 2 and 3, Lemma 4; also never above
    what pure (2 / scale)-DP implies.

    Examples
    --------
    >>> from ostraka import LNMax
    >>> moments2017_curve(LNMax(scale=20.0), [[240, 10]]).orders
    (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    """
    if not isinstance(mechanism, LNMax):
        raise TypeError(f"the 2017 moments bound is for LNMax, got {type(mechanism).__name__}")
    _check.integer(n_moments=n_moments, least=1)
    orders = tuple(float(order) for order in range(2, n_moments + 2))
    log_q = log_q_laplace(_check.counts(counts), mechanism.scale)
    return _curve(_total(log_q, lambda part: theorem3(part, 2 / mechanism.scale, orders)), orders)


def _curve(rdp: np.ndarray, orders: tuple[float, ...] = ORDERS) -> Curve:
    return Curve(orders, tuple(float(value) for value in rdp), publishable=False)


def _mask(answered: ArrayLike, n_queries: int) -> np.ndarray:
    mask = np.asarray(answered)
    if mask.dtype != bool or mask.shape != (n_queries,):
        raise ValueError(f"answered must be bool of shape ({n_queries},), got {mask.dtype} of {mask.shape}")
    return mask


def _rdp(mechanism: GNMax | LNMax, counts: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Sum over queries of the bound of one argmax, one value an order."""
    if isinstance(mechanism, GNMax):
        sigma = mechanism.sigma
        return _total(log_q_gaussian(counts, sigma), lambda log_q: theorem6(log_q, sigma), weights)
    if isinstance(mechanism, LNMax):
        pure = 2 / mechanism.scale
        log_q = log_q_laplace(counts, mechanism.scale)
        return _total(log_q, lambda part: theorem3(part, pure), weights)
    raise TypeError(f"the 2018 bound is for GNMax and LNMax, got {type(mechanism).__name__}")


def _total(
    log_q: np.ndarray, bound: Callable[[np.ndarray], np.ndarray], weights: np.ndarray | None = None
) -> np.ndarray:
    """Weighted sum over queries of ``bound(log_q)``, rounded up; equal queries are computed once."""
    value, where = np.unique(log_q, return_inverse=True)
    times = np.bincount(where, weights=weights, minlength=len(value))
    asked = times > 0  # 0 * infinity is a cost of nothing
    value, times = value[asked], times[asked]
    total = sum(
        (times[at : at + _CHUNK] @ bound(value[at : at + _CHUNK]) for at in range(0, len(value), _CHUNK)),
        start=np.zeros(bound(np.array([-1.0])).shape[1]),
    )
    return np.asarray(total * (1 + 4e-16 * (8 + len(value))))


def _log_pass(screen: Threshold, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that the 2018 screen answers and that it abstains."""
    if screen.noise != "largest":
        raise ValueError(
            f"the 2018 bound is for a screen with noise on the largest count, got noise={screen.noise!r}"
        )
    above = (seen.max(axis=1) - screen.at) / screen.sigma
    return scipy.special.log_ndtr(above), scipy.special.log_ndtr(-above)

"""The data-dependent bounds of Papernot et al. 2017 and 2018. For the owner only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms.protocols import (
    HasMomentsBound,
    HasPublishedBound,
    HasScreenBound,
    check_ballot,
    parts,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ostraka.mechanisms.protocols import ArgmaxBound, BallotMechanism, PublishedBound, ScreenBound

__all__ = ["argmax_bound", "moments2017_curve", "papernot2018_curve", "screen_bound"]

_CHUNK = 4096  # queries at a time: bounds memory at about 4096 x len(ORDERS) doubles per temporary


def papernot2018_curve(
    mechanism: BallotMechanism,
    counts: ArrayLike,
    *,
    screened: ArrayLike | None = None,
    answered: ArrayLike | None = None,
) -> Curve:
    """Data-dependent Rényi bound of Papernot et al. 2018, each row of ``counts`` answered once.

    Parameters
    ----------
    mechanism : GNMax, LNMax, or Confident (also for Interactive-GNMax)
        Public. Any argmax that offers ``published_bound()``, any screen that offers ``screen_bound()``.
    counts : array, shape (n_queries, n_classes), in votes
        Private.
    screened : array, shape (n_queries, n_classes), in votes, optional
        What the screen saw, where that is not ``counts``: for Interactive-GNMax the votes minus
        ``n_teachers`` times the student's guess. Only with a screen.
    answered : bool array, shape (n_queries,), optional
        Which queries the screen let through. Only with a screen. None: the expected cost, every
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
        A mechanism without such a bound.
    ValueError
        A screen with noise on every count, malformed ``counts``, or options of a screen without one.

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
    check_ballot(mechanism)
    screen, argmax = parts(mechanism)
    asked = _check.counts(counts)
    bound = argmax_bound(argmax)
    if screen is None:
        if screened is not None or answered is not None:
            raise ValueError("screened and answered are for mechanisms with a screen, such as Confident")
        return _curve(_total(bound.log_q(asked), bound))
    seen = asked if screened is None else _check.counts(screened)
    if seen.shape != asked.shape:
        raise ValueError(f"screened must have shape {asked.shape}, got {seen.shape}")
    gate = screen_bound(screen)
    chances = (
        np.exp(screen.log_outcomes(seen)[:, 0])
        if answered is None
        else _mask(answered, len(asked)).astype(float)
    )
    return _curve(_total(gate.log_q(seen), gate) + _total(bound.log_q(asked), bound, weights=chances))


def moments2017_curve(mechanism: BallotMechanism, counts: ArrayLike, *, n_moments: int = 8) -> Curve:
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
        A mechanism without such a bound.
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
    if not isinstance(mechanism, HasMomentsBound):
        raise TypeError(f"{mechanism!r} offers no moments bound of 2017; LNMax does")
    _check.integer(n_moments=n_moments, least=1)
    orders = tuple(float(order) for order in range(2, n_moments + 2))
    bound = mechanism.moments_bound()
    return _curve(_total(bound.log_q(_check.counts(counts)), bound, orders), orders)


def argmax_bound(mechanism: BallotMechanism) -> ArgmaxBound:
    """The bound of 2018 that an argmax offers, or an error that says which do."""
    if not isinstance(mechanism, HasPublishedBound):
        raise TypeError(f"{mechanism!r} offers no bound of 2018 for an argmax; GNMax and LNMax do")
    return mechanism.published_bound()


def screen_bound(screen: BallotMechanism) -> ScreenBound:
    """The bound of 2018 that a screen offers, or an error that says which do."""
    if not isinstance(screen, HasScreenBound):
        raise TypeError(f"{screen!r} offers no bound of 2018 for a screen; Threshold does")
    bound = screen.screen_bound()
    if bound is None:
        raise ValueError(f"the 2018 bound is for a screen with noise on the largest count, got {screen!r}")
    return bound


def _curve(rdp: np.ndarray, orders: tuple[float, ...] = ORDERS) -> Curve:
    return Curve(orders, tuple(float(value) for value in rdp), publishable=False)


def _mask(answered: ArrayLike, n_queries: int) -> np.ndarray:
    mask = np.asarray(answered)
    if mask.dtype != bool or mask.shape != (n_queries,):
        raise ValueError(f"answered must be bool of shape ({n_queries},), got {mask.dtype} of {mask.shape}")
    return mask


def _total(
    log_q: np.ndarray,
    bound: PublishedBound,
    orders: tuple[float, ...] = ORDERS,
    *,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Weighted sum over queries of the bound, rounded up; equal queries are computed once."""
    value, where = np.unique(log_q, return_inverse=True)
    times = np.bincount(where, weights=weights, minlength=len(value))
    asked = times > 0  # 0 * infinity is a cost of nothing
    value, times = value[asked], times[asked]
    total = sum(
        (
            times[at : at + _CHUNK] @ bound.rdp(value[at : at + _CHUNK], orders)
            for at in range(0, len(value), _CHUNK)
        ),
        start=np.zeros(len(orders)),
    )
    return np.asarray(total * (1 + 4e-16 * (8 + len(value))))

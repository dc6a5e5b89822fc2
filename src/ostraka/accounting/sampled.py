"""The price of Gaussians over Poisson samples, as those of private training."""

from __future__ import annotations

from dataclasses import replace

from ostraka import _check
from ostraka._composition.law import Law
from ostraka.curve import Curve
from ostraka.mechanisms.subsampled import amplified

__all__ = ["sampled_gaussian_curve"]


def sampled_gaussian_curve(
    *, sigma: float, sampling_rate: float, steps: int = 1, sensitivity: float = 1.0, moves: str = "row"
) -> Curve:
    """The cost of Gaussian releases to a unit which takes part in each with probability ``sampling_rate``.

    Parameters
    ----------
    sigma : float > 0
        Standard deviation of the noise. Public.
    sampling_rate : float in (0, 1]
        Poisson probability, anew for every step. Public; who took part is secret.
    steps : int >= 1
        Releases. Each may depend on the ones before.
    sensitivity : float > 0, in the units of sigma
        How far one unit that takes part moves what is released, as a Euclidean norm.
    moves : str
        As :attr:`ostraka.Adjacency.moves`.

    Returns
    -------
    Curve
        For one unit added or removed, both directions.

    Guarantees
    ----------
    Epsilon and delta come from the exact composition of the privacy loss distributions, discretised upwards
    (Doroshenko et al. 2022, arXiv:2207.04380), with all rounding and what is cut off charged; Rényi
    divergences are those of :class:`~ostraka.mechanisms.Subsampled`. Such curves add with all others.
    Source: Zhu, Dong and Wang 2022, arXiv:2106.08567, Theorem 10 (adaptive composition of dominating pairs);
    docs/composition.md.

    Examples
    --------
    >>> curve = sampled_gaussian_curve(sigma=1.0, sampling_rate=0.01, steps=1000)
    >>> round(curve.epsilon(delta=1e-5), 2)
    1.83
    """
    _check.integer(steps=steps, least=1)
    whole = Curve.gaussian(sensitivity=sensitivity, sigma=sigma, moves=moves)
    one = amplified(whole, sampling_rate=sampling_rate)
    return steps * replace(one, laws=(Law.sampled(sampling_rate, whole.mu_squared),))

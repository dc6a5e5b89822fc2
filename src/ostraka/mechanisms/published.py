"""The data-dependent bounds of Papernot et al. 2017 and 2018, as values which mechanisms offer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.special

from ostraka.curve import ORDERS
from ostraka.mechanisms._theorems import (
    log_q_gaussian,
    log_q_laplace,
    theorem3,
    theorem6,
    union_gaussian,
    union_laplace,
)

__all__ = ["GaussianBound", "LaplaceBound", "ScreenBound"]


@dataclass(frozen=True, slots=True)
class GaussianBound:
    """Theorem 6 of 2018, for a Gaussian noisy argmax.

    Examples
    --------
    >>> bound = GaussianBound(sigma=40.0)
    >>> bound.rdp(bound.log_q(np.array([[240.0, 10.0]])), (8.0,)).round(6)
    array([[1.2e-05]])
    """

    sigma: float

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log of a bound on the probability of another outcome than the likeliest, one a query (Prop. 7)."""
        return log_q_gaussian(counts, self.sigma)

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem6(log_q, self.sigma, orders)

    def points(self, behind: np.ndarray) -> np.ndarray:
        """``log_q`` on a scale in ballots, on which one ballot moves it by at most 1."""
        log_each = union_gaussian(behind, self.sigma) - math.log(behind.shape[1])
        return np.asarray(-scipy.special.ndtri_exp(log_each) * self.sigma / math.sqrt(2))

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these points of the scale."""
        log_q = scipy.special.log_ndtr(-point * math.sqrt(2) / self.sigma) + math.log(n_classes - 1)
        return theorem6(np.minimum(log_q, -1e-12), self.sigma, (order,))[:, 0]

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound has to be evaluated."""
        return 26 * self.sigma


@dataclass(frozen=True, slots=True)
class LaplaceBound:
    """Theorem 3 of 2017, for a Laplace noisy argmax.

    Examples
    --------
    >>> bound = LaplaceBound(scale=20.0)
    >>> bound.rdp(bound.log_q(np.array([[240.0, 10.0]])), (8.0,)).round(6)
    array([[9.e-06]])
    """

    scale: float

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log of a bound on the probability of another outcome than the likeliest, one a query (Lemma 4)."""
        return log_q_laplace(counts, self.scale)

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem3(log_q, 2 / self.scale, orders)

    def points(self, behind: np.ndarray) -> np.ndarray:
        """``log_q`` on a scale in ballots, on which one ballot moves it by at most 1."""
        return np.asarray(-union_laplace(behind, self.scale) * self.scale / 2)

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these points of the scale."""
        del n_classes
        return theorem3(np.minimum(-point * 2 / self.scale, -1e-12), 2 / self.scale, (order,))[:, 0]

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound has to be evaluated."""
        return 350 * self.scale


@dataclass(frozen=True, slots=True)
class ScreenBound:
    """Theorem 6 of 2018, for a threshold with one noise on the largest count.

    Examples
    --------
    >>> bound = ScreenBound(at=200.0, sigma=150.0)
    >>> bound.rdp(bound.log_q(np.array([[240.0, 10.0]])), (8.0,)).round(6)
    array([[0.000178]])
    """

    at: float
    sigma: float

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log probability of the less likely of passing and stopping, one a query."""
        return self.log_q_of_largest(counts.max(axis=1))

    def log_q_of_largest(self, largest: np.ndarray) -> np.ndarray:
        """``log_q`` from the largest counts."""
        return np.asarray(scipy.special.log_ndtr(-np.abs((largest - self.at) / self.sigma)))

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats."""
        return theorem6(log_q, math.sqrt(2) * self.sigma, orders)

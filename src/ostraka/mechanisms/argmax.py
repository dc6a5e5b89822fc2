"""Noisy argmax of votes: LNMax (Laplace) and GNMax (Gaussian)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.private import Adjacency, Private

__all__ = ["GNMax", "LNMax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GNMax:
    """Gaussian noisy max (draft: docstring, tight curve and outcomes come with the kernel)."""

    sigma: float
    promise: Adjacency = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        _check.positive(sigma=self.sigma)

    def curve(self, bound: str = "tight") -> Curve:
        return Curve.gaussian(sensitivity=2**0.5, sigma=self.sigma, unit="ballot", orders=ORDERS)

    def uses(self, private: Private) -> int:
        return len(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        counts = _check.counts(private.open())
        return np.argmax(counts + rng.normal(scale=self.sigma, size=counts.shape), axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LNMax:
    """Laplace noisy max (draft)."""

    scale: float
    promise: Adjacency = Adjacency.one_ballot()

    def __post_init__(self) -> None:
        _check.positive(scale=self.scale)

    def curve(self, bound: str = "tight") -> Curve:
        pure = 2 / self.scale
        return Curve(ORDERS, tuple(min(pure, order * pure**2 / 2) for order in ORDERS))

    def uses(self, private: Private) -> int:
        return len(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        counts = _check.counts(private.open())
        return np.argmax(counts + rng.laplace(scale=self.scale, size=counts.shape), axis=1)

"""Threshold: is the plurality large enough to be worth an answer?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.private import Adjacency, Private

__all__ = ["Threshold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Noisy threshold on the largest count (draft)."""

    at: float
    sigma: float
    noise: str = "one"
    promise: Adjacency = Adjacency.one_ballot()

    def curve(self, bound: str = "tight") -> Curve:
        return Curve.gaussian(sensitivity=1.0, sigma=self.sigma, unit="ballot", orders=ORDERS)

    def uses(self, private: Private) -> int:
        return len(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        largest = _check.counts(private.open()).max(axis=1)
        return np.asarray(largest + rng.normal(scale=self.sigma, size=largest.shape) >= self.at)

"""Defences of collaborative training: share a part of each change, or clip it and add noise to the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ostraka import _check
from ostraka.curve import Curve

__all__ = ["Defence", "NoisySum", "SharedFraction"]


class Defence(Protocol):
    """A change of the parties' updates before they are added up, and noise for their sum."""

    def each(self, changes: np.ndarray) -> np.ndarray:
        """The changes that parties send, from those they computed, (n_parties, n_weights)."""
        ...

    def noise(self, *, size: int, rng: np.random.Generator) -> np.ndarray | float:
        """Noise for the sum of all parties' changes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFraction:
    """Each party sends the largest entries of its change only; the others are 0.

    Parameters
    ----------
    share : float in (0, 1]
        Of the entries.

    Guarantees
    ----------
    None.
    Source: Shokri and Shmatikov 2015, doi:10.1145/2810103.2813687.

    Examples
    --------
    >>> SharedFraction(share=0.5).each(np.array([[1.0, -4.0, 2.0, 0.5]]))
    array([[ 0., -4.,  2.,  0.]])
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be > 0 and <= 1, got {self.share!r}")

    def each(self, changes: np.ndarray) -> np.ndarray:
        """The largest entries of each change."""
        drop = changes.shape[1] - max(1, int(np.ceil(self.share * changes.shape[1])))
        kept = changes.copy()
        if drop:
            least = np.argpartition(np.abs(changes), drop - 1, axis=1)[:, :drop]
            np.put_along_axis(kept, least, 0, axis=1)
        return kept

    def noise(self, *, size: int, rng: np.random.Generator) -> np.ndarray | float:
        """No noise: 0."""
        del size, rng
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySum:
    """Each party's change is clipped, and Gaussian noise is added to their sum: privacy for a whole party.

    Parameters
    ----------
    clip : float > 0
        Largest L2 norm of a change.
    noise_multiplier : float > 0
        Standard deviation of the noise, over ``clip``.

    Guarantees
    ----------
    ``n_rounds * curve()`` bounds what all rounds say about one party, added or removed. This class simulates:
    its noise comes from a seeded generator of floats.
    Source: McMahan et al. 2018, arXiv:1710.06963.

    Examples
    --------
    >>> round((100 * NoisySum(clip=1.0, noise_multiplier=10.0).curve()).epsilon(delta=1e-5), 2)
    4.38
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        _check.positive(clip=self.clip, noise_multiplier=self.noise_multiplier)

    def curve(self) -> Curve:
        """The cost of one round, for one party added or removed."""
        return Curve.gaussian(sensitivity=1.0, sigma=self.noise_multiplier)

    def each(self, changes: np.ndarray) -> np.ndarray:
        """Changes of norm at most ``clip``."""
        norms = np.linalg.norm(changes.astype(np.float64), axis=1, keepdims=True)
        return np.asarray(changes * np.minimum(1.0, self.clip / np.maximum(norms, 1e-300)))

    def noise(self, *, size: int, rng: np.random.Generator) -> np.ndarray | float:
        """Gaussian noise for the sum."""
        return rng.normal(0, self.clip * self.noise_multiplier, size)
